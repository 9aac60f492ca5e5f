"""What paper 003 claims of CBCAST in one group, and how each claim is judged."""

from collections.abc import Mapping, Sequence
from statistics import correlation

from mombroker.sim.papers.base import UNKNOWN, Claim, Judgement, Missing, Table, spread_of, verdict

RPC, STREAM, FIELDS, CORE = "II-rpc", "II-stream", "compression", "V"
SIZES = {"S, null": 0, "M, 1k": 1024, "L, 7k": 7168}
S, M, L = SIZES
EAGER, LAZY = "one at a time", "in bursts of 10"
ABOUT, LINE = 20, 0.95  # per cent off; R² of what grows roughly linearly
RAPIDLY = 0.5  # of the rate to one destination that are left with seven; printed is a quarter

PRINTED = {  # table II: ms, by destinations
    S: (6.51, 8.67, 10.7, 12.9, 16.3, 19.6, 22.9), M: (7.86, 10.1, 12.2, 15.2, 18.8, 21.9, 25.7),
    L: (17.0, 23.4, 34.9, 43.4, 54.1, 64.6, 75.7),
}  # fmt: skip
STREAMED = {"per_s": (S, (1019, 572, 567, 447, 352, 305, 253)), "kb_per_s": (L, (550, 361, 249, 180, 143, 118, 101))}
SUN_RPC = 3.5  # ms, a null call
MODEL = "in a model of the printed costs of one packet (table V); the stamps and their bytes are those of this bus"


def linear(table: Table) -> Judgement:
    fits = {}
    for size in SIZES:
        curve = table.curve(RPC, size, "ms")
        fits[size] = correlation([*curve], [*curve.values()]) ** 2
    shown = ", ".join(f"{size}: {fit:.4f}" for size, fit in fits.items())
    return Judgement(verdict([fit >= LINE for fit in fits.values()]), f"R² of a straight line: {shown}", MODEL)


def printed(table: Table) -> Judgement:
    return beside({size: (table.curve(RPC, size, "ms"), values) for size, values in PRINTED.items()})


def printed_rates(table: Table) -> Judgement:
    """Messages and kB a second, to each destination."""
    return beside({
        f"{size}, {'messages' if column == 'per_s' else 'kB'} a second": (table.curve(STREAM, size, column), values)
        for column, (size, values) in STREAMED.items()
    })  # fmt: skip


def beside(found: Mapping[str, tuple[Mapping[float, float], Sequence[float]]]) -> Judgement:
    """Measured by number of destinations, and the printed values of 1, 2, … destinations."""
    held, shown = [], []
    for name, (curve, values) in found.items():
        ratios = [curve[at] / value for at, value in enumerate(values, 1)]
        held += [abs(ratio - 1) <= ABOUT / 100 for ratio in ratios]
        shown.append(f"{name}: {min(ratios):.2f} to {max(ratios):.2f} of the printed")
    return Judgement(verdict(held), "; ".join(shown), f"{MODEL}; within {ABOUT} %")


def cheaper_than_calls(table: Table) -> Judgement:
    one, seven = table.at(RPC, S, 1, "ms"), table.at(RPC, S, 7, "ms")
    calls = 7 * SUN_RPC
    return Judgement(
        verdict([seven < calls]), f"{seven:.1f} ms; printed are {PRINTED[S][6]} beside {calls:.1f}",
        f"{MODEL}; the {SUN_RPC} ms of a SUN RPC are the paper's, as none is in the model: seven of its own multicasts "
        f"to one, which cost more, would take {7 * one:.1f} ms",
    )  # fmt: skip


def size_dominates(table: Table) -> Judgement:
    ratios = [table.at(RPC, L, n, "ms") / table.at(RPC, S, n, "ms") for n in range(1, 8)]
    shown = f"7k takes {min(ratios):.1f} to {max(ratios):.1f} times the time"
    return Judgement(verdict([ratio > 2 for ratio in ratios]), shown, MODEL)


def throughput(table: Table) -> Judgement:
    curve = table.curve(STREAM, L, "total_kb_per_s")
    held = [550 <= value <= 750 for value in curve.values()]
    why = MODEL if all(held) else "the wire alone bounds the model, which has neither flow control nor lost packets"
    shown = ", ".join(f"{n:g}: {value:.0f}" for n, value in curve.items())
    return Judgement(verdict(held), f"kB/s in all, by destinations: {shown}", why)


def drops(table: Table) -> Judgement:
    curve = table.curve(STREAM, S, "per_s")
    values = [*curve.values()]
    held = [all(a > b for a, b in zip(values, values[1:], strict=False)), values[-1] <= RAPIDLY * values[0]]
    return Judgement(
        verdict(held), ", ".join(f"{n:g}: {value:.0f}" for n, value in curve.items()) + " a second",
        f"{MODEL}; rapidly: to a half at most, where 253 of 1,019 are printed",
    )  # fmt: skip


def vector_bytes(table: Table) -> Judgement:
    sizes = table.curve(RPC, S, "stamp_bytes")
    shown = f"{min(sizes.values()):.1f} to {max(sizes.values()):.1f} bytes on this bus, n = 2 to 8"
    return Judgement(
        verdict([all(value < 40 + 4 * (n + 1) for n, value in sizes.items())]), shown,
        "40 + 4 n are said to be an upper bound, and to shrink in a new implementation",
    )  # fmt: skip


def compressed(table: Table) -> Judgement:
    eager, lazy = (table.curve(FIELDS, setting, "fields_pct") for setting in (EAGER, LAZY))
    held = [lazy[n] < 50 and lazy[n] < eager[n] / 2 for n in lazy]
    shown = "; ".join(
        f"{name} {', '.join(f'{value:.0f} % at n = {n:g}' for n, value in curve.items())}"
        for name, curve in ((EAGER, eager), (LAZY, lazy))
    )
    return Judgement(verdict(held), f"fields carried: {shown}")


def constant_stamp(table: Table) -> Judgement:
    """One process sends and receives nothing: no field but its own changes."""
    values = list(table.curve(STREAM, S, "stamp_bytes").values())
    return Judgement(
        verdict([spread_of(values) <= 15]), f"{min(values):.1f} to {max(values):.1f} bytes in groups of 2 to 8"
    )  # fmt: skip


def causal_share(table: Table) -> Judgement:
    causal, fifo = table.curve(CORE, "a pair", "cpu_vector_us"), table.curve(CORE, "a pair", "cpu_fifo_us")
    shown = f"null message: {causal[0]:.1f} µs of CPU in the core, {fifo[0]:.1f} µs with FIFO order alone"
    return Judgement(UNKNOWN, shown, "the whole needs real transport: mom bench hop runs it live")


def causal_part(table: Table) -> Judgement:
    causal, fifo = table.curve(CORE, "a pair", "cpu_vector_us"), table.curve(CORE, "a pair", "cpu_fifo_us")
    shown = f"null message: {causal[0] - fifo[0]:.1f} of {causal[0]:.1f} µs of CPU in the core are for causality"
    return Judgement(UNKNOWN, shown, "the printed whole is threads and the rest of Isis, which a core has not")


def no_order(table: Table) -> Judgement:
    raise Missing("ABCAST comes with groups")


CLAIMS = [
    Claim(RPC, "§8", "the cost of a CBCAST grows roughly linearly with the group", linear),
    Claim(RPC, "table II", "the printed times", printed),
    Claim(RPC, "§8", "a null multicast to 7 that all reply to costs less than 7 successive null calls of SUN RPC",
          cheaper_than_calls),
    Claim(RPC, "§8", "the size of packets dominates the cost", size_dominates),
    Claim(RPC, "§8, note 14", "the vector adds 40 + 4 n bytes, to be reduced much", vector_bytes),
    Claim(STREAM, "table II", "the printed rates, asynchronously: null messages, and kB of 7k packets", printed_rates),
    Claim(STREAM, "§8", "all destinations together get 550 to 750 kB/s of 7k packets", throughput),
    Claim(STREAM, "§8", "the rate of messages drops rapidly with the number of destinations", drops),
    Claim(STREAM, "§5.4", "while a process only sends, its timestamps need one field", constant_stamp),
    Claim(FIELDS, "§5.4", "with bursty communication compression reduces the timestamp substantially", compressed),
    Claim(CORE, "§8", "nearly all time is spent in the transport; the protocol costs little beside it", causal_share),
    Claim(CORE, "table IV", "causality is 234 of 1,430 µs of a null call between two threads", causal_part),
    Claim(CORE, "§8, table III", "ABCAST runs at roughly half the speed of CBCAST with small packets", no_order),
]  # fmt: skip
