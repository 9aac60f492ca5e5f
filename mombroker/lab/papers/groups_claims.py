"""What paper 003 claims of CBCAST, and how each claim is judged."""

from collections.abc import Mapping, Sequence

from mombroker.lab.papers.base import (
    UNKNOWN,
    Claim,
    Judge,
    Judgement,
    Missing,
    Table,
    Value,
    enough,
    every,
    joined,
    power,
    reasons,
    straight,
    verdict,
)

RPC, STREAM, FIELDS, CORE = "II-rpc", "II-stream", "compression", "V"
SIZES = {"S, null": 0, "M, 1k": 1024, "L, 7k": 7168}
S, M, L = SIZES
EAGER, LAZY = "one at a time", "in bursts of 10"
ABOUT = 20  # per cent off
# What grows roughly linearly: R² of a line, at least; the power as which it grows, at most; and how long a step in
# the later half of a curve is beside one in the earlier. A fixed part makes the power smaller, and bends nothing:
# from 1 to 7 a square then has steps 2.2 times as long, a root 0.65 times.
LINE, LINEAR, BENT = 0.95, 1.15, (0.7, 2.0)
DOMINANT = 2  # times the time of a null packet: more
MUCH = 0.5  # of the printed bytes of a vector; and of fields, those of all and those without bursts: less
RAPIDLY = 0.5  # of the rate to one destination that are left with seven; printed is a quarter

PRINTED = {  # table II: ms, by destinations
    S: (6.51, 8.67, 10.7, 12.9, 16.3, 19.6, 22.9), M: (7.86, 10.1, 12.2, 15.2, 18.8, 21.9, 25.7),
    L: (17.0, 23.4, 34.9, 43.4, 54.1, 64.6, 75.7),
}  # fmt: skip
STREAMED = {"per_s": (S, (1019, 572, 567, 447, 352, 305, 253)), "kb_per_s": (L, (550, 361, 249, 180, 143, 118, 101))}
SUN_RPC = 3.5  # ms, a null call
MODEL = "in a model of the printed costs of one packet (table V); the stamps and their bytes are those of this bus"


def linear(table: Table) -> Judgement:
    held, shown = [], []
    for size in SIZES:
        curve = table.curve(RPC, size, "ms")
        fit, (grows, _), bend = straight(curve), power(curve), bent(curve)
        held.append(fit >= LINE and grows <= LINEAR and BENT[0] <= bend <= BENT[1])
        shown.append(f"{size}: {fit:.4f}, {grows:.2f}, {bend:.2f}")
    return Judgement(
        verdict(held),
        "R² of a straight line, the power of n as which it grows, a step of the later half over one of the earlier: "
        + "; ".join(shown),
        f"{MODEL}; roughly linear: {LINE} at least, {LINEAR} at most, {BENT[0]} to {BENT[1]:g}",
    )


def bent(curve: Mapping[float, float]) -> float:
    """What it rises by in the later half over what it does in the earlier, each for one more in x."""
    enough(curve, 3)
    xs = [*curve]
    first, middle, last = xs[0], xs[len(xs) // 2], xs[-1]
    earlier, later = ((curve[b] - curve[a]) / (b - a) for a, b in ((first, middle), (middle, last)))
    return (Value(later) / Value(earlier)).mean


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
        if not {*range(1, len(values) + 1)} <= {*curve}:
            raise Missing(f"it needs all that is printed of {name}")
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
    ratios = [(Value(table.at(RPC, L, n, "ms")) / Value(table.at(RPC, S, n, "ms"))).mean for n in range(1, 8)]
    shown = f"7k takes {min(ratios):.1f} to {max(ratios):.1f} times the time"
    why = f"{MODEL}; it dominates where 7k take more than {DOMINANT} times the time of a null packet"
    return Judgement(verdict([ratio > DOMINANT for ratio in ratios]), shown, why)


def throughput(table: Table) -> Judgement:
    curve = table.curve(STREAM, L, "total_kb_per_s")
    held = [550 <= value <= 750 for value in curve.values()]
    why = MODEL if all(held) else "the wire alone bounds the model, which has neither flow control nor lost packets"
    shown = ", ".join(f"{n:g}: {value:.0f}" for n, value in curve.items())
    return Judgement(verdict(held), f"kB/s in all, by destinations: {shown}", why)


def drops(table: Table) -> Judgement:
    curve = table.curve(STREAM, S, "per_s")
    enough(curve)
    values = [*curve.values()]
    held = [all(a > b for a, b in zip(values, values[1:], strict=False)), values[-1] <= RAPIDLY * values[0]]
    return Judgement(
        verdict(held), ", ".join(f"{n:g}: {value:.0f}" for n, value in curve.items()) + " a second",
        f"{MODEL}; rapidly: to a half at most, where 253 of 1,019 are printed",
    )  # fmt: skip


def vector_bytes(table: Table) -> Judgement:
    sizes = table.curve(RPC, S, "stamp_bytes")
    shares = [value / (40 + 4 * (n + 1)) for n, value in sizes.items()]
    shown = f"{min(sizes.values()):.1f} to {max(sizes.values()):.1f} bytes on this bus, n = 2 to 8"
    return Judgement(
        verdict([share < MUCH for share in shares]), f"{shown}: at most {max(shares):.2f} of 40 + 4 n",
        f"judged of the new implementation that the paper announces: much: to less than {MUCH:g}. Only one member "
        "multicasts, so that its stamps have one field",
    )  # fmt: skip


def compressed(table: Table) -> Judgement:
    eager, lazy = (table.measured(FIELDS, setting, "fields_pct") for setting in (EAGER, LAZY))
    held = {
        f"fields at n = {n:g}": every([lazy[n].below(100 * MUCH), (lazy[n] / eager[n]).below(MUCH)]) for n in lazy
    }  # fmt: skip
    shown = "; ".join(
        f"{name} {', '.join(f'{value.mean:.0f} % at n = {n:g}' for n, value in curve.items())}"
        for name, curve in ((EAGER, eager), (LAZY, lazy))
    )
    why = f"substantially: to less than {MUCH:g} of all fields, and of those without bursts"
    return Judgement(verdict([*held.values()]), f"fields carried: {shown}", joined(why, reasons(held)))


def one_field(table: Table) -> Judgement:
    """One process sends and receives nothing: no field but its own changes."""
    fields = [value for size in SIZES for value in table.curve(STREAM, size, "fields").values()]
    sizes = table.curve(STREAM, S, "stamp_bytes").values()
    return Judgement(
        verdict([not max(fields)]),
        f"its own and, in the mean, {min(fields):g} to {max(fields):g} others, {min(sizes):.1f} to {max(sizes):.1f} "
        "bytes in all, in groups of 2 to 8",
    )


def core_times(table: Table) -> tuple[float, float]:
    """µs of a null message: causal, and in the order of a link alone."""
    return table.at(CORE, "a pair", 0, "cpu_vector_us"), table.at(CORE, "a pair", 0, "cpu_fifo_us")


def causal_share(table: Table) -> Judgement:
    causal, fifo = core_times(table)
    shown = f"null message: {causal:.1f} µs of CPU in the core, {fifo:.1f} µs with FIFO order alone"
    return Judgement(UNKNOWN, shown, "the whole needs real transport: mom bench hop runs it live")


def causal_part(table: Table) -> Judgement:
    causal, fifo = core_times(table)
    shown = f"null message: {causal - fifo:.1f} of {causal:.1f} µs of CPU in the core are for causality"
    return Judgement(UNKNOWN, shown, "the printed whole is threads and the rest of Isis, which a core has not")


def missing(why: str) -> Judge:
    def judge(table: Table) -> Judgement:
        raise Missing(why)

    return judge


CLAIMS = [
    Claim(RPC, "§8", "the cost of a CBCAST grows roughly linearly with the group", linear),
    Claim(RPC, "table II", "the printed times", printed),
    Claim(RPC, "table II", "the row Self: to another thread 1.5 ms, or 4,240 messages and 16,706 kB a second",
          missing("no member sends to itself here; the 4,240 are what the model takes a streamed message to cost")),
    Claim(RPC, "§8", "a null multicast to 7 that all reply to costs less than 7 successive null calls of SUN RPC",
          cheaper_than_calls),
    Claim(RPC, "figure 6", "the size of packets dominates the cost", size_dominates),
    Claim(RPC, "§8, note 14", "the vector adds 40 + 4 n bytes, to be reduced much", vector_bytes),
    Claim(STREAM, "table II", "the printed rates, asynchronously: null messages, and kB of 7k packets", printed_rates),
    Claim(STREAM, "§8", "7k packets to one destination go exactly as fast as over TCP, 550 kB/s",
          missing("no TCP is in the model; what it streams is beside the printed 550 above")),
    Claim(STREAM, "§8", "null messages to one destination go about as fast as over Amoeba, more than 1,000 a second",
          missing("no Amoeba is here to be run")),
    Claim(STREAM, "§8", "all destinations together get 550 to 750 kB/s of 7k packets", throughput),
    Claim(STREAM, "§8", "the rate of messages drops rapidly with the number of destinations", drops),
    Claim(STREAM, "§5.4", "while a process only sends, its timestamps need one field", one_field),
    Claim(FIELDS, "§5.4", "with bursty communication compression reduces the timestamp substantially", compressed),
    Claim(CORE, "§8", "nearly all time is spent in the transport; the protocol costs little beside it", causal_share),
    Claim(CORE, "table V",
          "of 7.86 ms of a 1k call 0.23 are causal multicast, 3.6 transport, 1.59 system calls, 1.5 wire",
          missing("the model is made of these, so that it cannot find them")),
    Claim(CORE, "table IV", "causality is 234 of 1,430 µs of a null call between two threads", causal_part),
]  # fmt: skip
