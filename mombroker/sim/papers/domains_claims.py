"""What paper 004 claims, and how each claim is judged: by exponents that are fitted to the model's round trips."""

from collections.abc import Mapping
from math import log
from statistics import correlation

from mombroker.sim.papers.base import UNKNOWN, Claim, Judge, Judgement, Missing, Table, power, verdict

LOCAL, REMOTE, BROADCAST = "local", "remote", "broadcast"
NEAR = 0.15  # that an exponent may be off
MODEL = (
    "in the model only, where a hop in a domain of s servers takes a + b s² by assumption: what is measured is how "
    "many hops a round trip takes, and in domains of which size"
)
# ms of a round trip live, with this bus's clock and with a full image of it: docs/benchmarks.md, in one process
LIVE: Mapping[tuple[str, str], Mapping[int, tuple[float, float]]] = {
    (REMOTE, "flat"): {10: (2.7, 3.3), 150: (3.5, 14)},
    (REMOTE, "bus"): {10: (9.9, 8.9), 150: (4.4, 3.9)},
    (BROADCAST, "flat"): {10: (24, 20), 150: (1372, 1433)},
}

LOCAL_LIVE = "0.04 to 0.08 ms with 10 to 150 servers, in any layout"


def live(kind: str, layout: str) -> str:
    (few, (ours, image)), (many, (ours_late, image_late)) = LIVE[kind, layout].items()
    return (
        f"live, n = {few} to {many} (docs/benchmarks.md): {ours:g} to {ours_late:,g} ms with this bus's clock, "
        f"{image:g} to {image_late:,g} with a full image"
    )


def exponent(curve: Mapping[float, float]) -> float:
    """Of n, by least squares of logarithms."""
    if len(curve) < 3:
        raise Missing("it needs three sizes or more")
    return power(curve)[0]


def straight(curve: Mapping[float, float], power: float) -> float:
    """R² of a straight line over n to this power."""
    return correlation([n**power for n in curve], [*curve.values()]) ** 2


def grows(figure: str, setting: str, column: str, power: float, most: float = 1e9) -> Judge:
    def judge(table: Table) -> Judgement:
        curve = {n: value for n, value in table.curve(figure, setting, column).items() if n <= most}
        times = {n: value for n, value in table.curve(figure, setting, "rtt_ms").items() if n <= most}
        found = exponent(curve)
        stamps = exponent({n: value for n, value in table.curve(figure, setting, "control_bytes").items() if n <= most})
        what = "the clocks' part of the time" if column == "clock_ms" else "the time"
        return Judgement(
            verdict([abs(found - power) <= NEAR]),
            f"{what} grows as n to the power {found:.2f} (R² of the time over n {straight(times, 1):.4f}, over n² "
            f"{straight(times, 2):.4f}), n = {min(curve):g} to {max(curve):g}; on this bus, which sends only what has "
            f"changed, the bytes of stamps as n to the power {stamps:.2f}",
            f"{MODEL}; {live(REMOTE, setting)}",
        )

    return judge


def local(table: Table) -> Judgement:
    """The model has no cost for it."""
    hops = max(table.curve("8", LOCAL, "hops").values())
    return Judgement(
        UNKNOWN, f"at most {hops:g} hops, at any n: no stamp",
        f"in the model whatever makes no hop takes no time, by assumption; live (docs/benchmarks.md) {LOCAL_LIVE}",
    )  # fmt: skip


def broadcast(table: Table) -> Judgement:
    curve = table.curve("9", "flat", "rtt_ms")
    whole, each = exponent(curve), exponent({n: value / (n - 1) for n, value in curve.items()})
    why = f"{MODEL}; {live(BROADCAST, 'flat')}"
    if whole > 2 + NEAR:
        why = f"all n messages take their hop, one after another, at the main agent's server; {why}"
    return Judgement(
        verdict([abs(whole - 2) <= NEAR]),
        f"the round trip as n to the power {whole:.2f}, its share of one message as n to the power {each:.2f}", why,
    )  # fmt: skip


def formula(table: Table) -> Judgement:
    """2 (a + b n²) without domains, at most 6 (a + b n) on the bus."""
    held, shown = [], []
    for row in table.rows:
        if row["figure"] == "12" and row["kind"] == REMOTE and row["layout"] in ("flat", "bus"):
            a, b, n = row["a_us"] / 1000, row["b_us"] / 1000, row["n"]
            flat = row["layout"] == "flat"
            bound = 2 * (a + b * n * n) if flat else 6 * (a + b * n)
            held.append(abs(row["rtt_ms"] / bound - 1) < 1e-6 if flat else row["rtt_ms"] <= bound)
            shown.append(row["rtt_ms"] / bound)
    if not held:
        raise Missing("it needs figure 12")
    return Judgement(verdict(held), f"{min(shown):.2f} to {max(shown):.2f} of the formula", MODEL)


def gain(table: Table) -> Judgement:
    flat, bus = table.curve("12", "flat", "rtt_ms"), table.curve("12", "bus", "rtt_ms")
    ratios = {n: flat[n] / bus[n] for n in flat}
    first = min((n for n, ratio in ratios.items() if ratio > 1), default=float("inf"))
    held = [first in ratios and all(ratio > 1 for n, ratio in ratios.items() if n >= first), ratios[max(ratios)] > 2]
    why = f"{MODEL}; {live(REMOTE, 'flat')}, and on the bus {live(REMOTE, 'bus')}"
    if ratios[min(ratios)] < 1:
        why = f"with few servers the constant part of the additional hops weighs more; {why}"
    return Judgement(
        verdict(held), f"without over with domains: {', '.join(f'{r:.2f} at n = {n:g}' for n, r in ratios.items())}",
        why,
    )  # fmt: skip


def tree_may_lose(table: Table) -> Judgement:
    tree, bus = table.curve("12", "tree", "rtt_ms"), table.curve("12", "bus", "rtt_ms")
    worse = [n for n in tree if tree[n] > bus[n]]
    return Judgement(
        verdict([bool(worse)]),
        f"tree over bus: {', '.join(f'{tree[n] / bus[n]:.2f} at n = {n:g}' for n in tree)}", MODEL,
    )  # fmt: skip


def logarithmic(table: Table) -> Judgement:
    """Of domains of 4 servers with 3 below each: against log n, and against n."""
    curve = table.curve("12", "tree", "rtt_ms")
    logs = correlation([*map(log, curve)], [*curve.values()]) ** 2
    return Judgement(
        verdict([logs > 0.9 and logs > straight(curve, 1)]),
        f"R² over log n {logs:.3f}, over n {straight(curve, 1):.3f}", MODEL,
    )  # fmt: skip


CLAIMS = [
    Claim("8", "§6.2", "without domains the cost of a remote unicast is quadratic", grows("8", "flat", "clock_ms", 2)),
    Claim("8", "§6.1", "a unicast on the local server costs the same whatever the number of servers", local),
    Claim("9", "§6.2", "without domains the cost of a broadcast is quadratic", broadcast),
    Claim("11", "§6.2, §7", "with a bus of √n domains of √n servers it is linear, up to 150 servers",
          grows("11", "bus", "clock_ms", 1, 150)),
    Claim("11", "§6.2", "(beyond the paper) and so to 1,000", grows("11", "bus", "clock_ms", 1)),
    Claim("12", "§6.2", "domains of causality bring a clear gain", gain),
    Claim("12", "§6.2", "C is about n² without domains, K n on the bus", formula),
    Claim("12", "§6.2", "on a tree of domains of fixed size the cost can be logarithmic", logarithmic),
    Claim("12", "§6.2", "a tree may be less efficient than a bus in some cases", tree_may_lose),
]  # fmt: skip
