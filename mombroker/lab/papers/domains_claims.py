"""What paper 004 claims, and how each claim is judged: by exponents that are fitted to the model's round trips."""

from collections.abc import Mapping
from math import inf, log

from mombroker.lab.papers.base import (
    UNKNOWN,
    Claim,
    Judge,
    Judgement,
    Missing,
    Table,
    Value,
    joined,
    power,
    reasons,
    straight,
    verdict,
)

LOCAL, REMOTE, BROADCAST = "local", "remote", "broadcast"
NEAR = 0.15  # that an exponent may be off
LINE, LOGARITHM = 0.95, 0.9  # R² of a straight line at least: over n, or n²; and over log n, more than over n
CLEAR = 2  # times as fast, at the greatest size: more
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


def near(exponent: float) -> str:
    return f"judged: a power of {exponent:g}, {NEAR:g} off at most"


def grows(figure: str, setting: str, exponent: int, most: float = inf) -> Judge:
    """The clocks' part of the time, without what is constant, as n to this power; the whole by a line over that."""

    def judge(table: Table) -> Judgement:
        clocks, times, stamps = (
            {n: value for n, value in table.curve(figure, setting, column).items() if n <= most}
            for column in ("clock_ms", "rtt_ms", "control_bytes")
        )
        found, lines = power(clocks)[0], {1: straight(times), 2: straight(times, lambda n: n * n)}
        return Judgement(
            verdict([abs(found - exponent) <= NEAR and lines[exponent] >= LINE]),
            f"the clocks' part of the time grows as n to the power {found:.2f} (R² of the time over n {lines[1]:.4f}, "
            f"over n² {lines[2]:.4f}), n = {min(clocks):g} to {max(clocks):g}; on this bus, which sends only what has "
            f"changed, the bytes of stamps as n to the power {power(stamps)[0]:.2f}",
            f"{near(exponent)}, and an R² of {LINE:g} at least; {MODEL}; {live(REMOTE, setting)}",
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
    whole, each = power(curve)[0], power({n: value / (n - 1) for n, value in curve.items() if n > 1})[0]
    why = f"{near(2)}; {MODEL}; {live(BROADCAST, 'flat')}"
    if whole > 2 + NEAR:
        why = f"all n messages take their hop, one after another, at the main agent's server; {why}"
    return Judgement(
        verdict([abs(whole - 2) <= NEAR]),
        f"the round trip as n to the power {whole:.2f}, its share of one message as n to the power {each:.2f}", why,
    )  # fmt: skip


def formula(table: Table) -> Judgement:
    """2 (a + b n²) without domains; at most 6 (a + b n) on the bus, and, but for what is constant, as n grows."""
    held: dict[str, list[bool]] = {"flat": [], "bus": []}
    shares = []
    for row in table.rows:
        if row["figure"] == "12" and row["kind"] == REMOTE and row["layout"] in held:
            a, b, n = row["a_us"] / 1000, row["b_us"] / 1000, row["n"]
            flat = row["layout"] == "flat"
            bound = 2 * (a + b * n * n) if flat else 6 * (a + b * n)
            share = row["rtt_ms"] / bound
            held[row["layout"]].append(abs(share - 1) < 1e-6 if flat else share <= 1)
            shares.append(share)
    if not all(held.values()):
        raise Missing("it needs figure 12")
    grown = power(table.curve("12", "bus", "clock_ms"))[0]
    return Judgement(
        verdict([all(held["flat"]), all(held["bus"]) and abs(grown - 1) <= NEAR]),
        f"{min(shares):.2f} to {max(shares):.2f} of 2 (a + b n²) and of 6 (a + b n), a bound; on the bus the clocks' "
        f"part grows as n to the power {grown:.2f}",
        f"{near(1)}; {MODEL}",
    )


def gain(table: Table) -> Judgement:
    """At every size, and clear at the greatest."""
    ratios = over(table, "flat", "bus")
    most = max(ratios)
    held = {f"a gain at n = {n:g}": ratio > 1 for n, ratio in ratios.items()}
    held[f"a clear one at n = {most:g}"] = ratios[most] > CLEAR
    why = f"{MODEL}; {live(REMOTE, 'flat')}, and on the bus {live(REMOTE, 'bus')}"
    if ratios[min(ratios)] < 1:
        why = f"with few servers the constant part of the additional hops weighs more; {why}"
    clear = f"clear: more than {CLEAR:g} times as fast at the greatest size"
    return Judgement(
        verdict([*held.values()]), f"without over with domains: {shown(ratios)}", joined(reasons(held), clear, why)
    )


def over(table: Table, one: str, other: str) -> dict[float, float]:
    """By n: how many times as long a round trip takes."""
    times, others = (table.curve("12", layout, "rtt_ms") for layout in (one, other))
    return {n: (Value(times[n]) / Value(others[n])).mean for n in times if n in others}


def shown(ratios: Mapping[float, float]) -> str:
    return ", ".join(f"{ratio:.2f} at n = {n:g}" for n, ratio in ratios.items())


def tree_may_lose(table: Table) -> Judgement:
    ratios = over(table, "tree", "bus")
    return Judgement(verdict([any(ratio > 1 for ratio in ratios.values())]), f"tree over bus: {shown(ratios)}", MODEL)


def logarithmic(table: Table) -> Judgement:
    """Of domains of 4 servers with 3 below each: against log n, and against n."""
    curve = table.curve("12", "tree", "rtt_ms")
    logs, line = straight(curve, log), straight(curve)
    return Judgement(
        verdict([logs > LOGARITHM and logs > line]), f"R² over log n {logs:.3f}, over n {line:.3f}",
        f"judged: more than {LOGARITHM:g} over log n, and more than over n; {MODEL}",
    )  # fmt: skip


CLAIMS = [
    Claim("8", "§6.2", "without domains the cost of a remote unicast is quadratic", grows("8", "flat", 2)),
    Claim("8", "§6.1", "unicasts on the local server (run in the paper, whose results for them are not shown)", local),
    Claim("9", "§6.2", "without domains the cost of a broadcast is quadratic", broadcast),
    Claim("11", "§6.2, §7", "with a bus of √n domains of √n servers it is linear, up to 150 servers",
          grows("11", "bus", 1, 150)),
    Claim("11", "§6.2", "(beyond the paper) and so to 1,000", grows("11", "bus", 1)),
    Claim("12", "§6.2", "domains of causality bring a clear gain", gain),
    Claim("12", "§6.2", "C is about n² without domains, K n on the bus", formula),
    Claim("12", "§6.2", "on a tree of domains of fixed size the cost can be logarithmic", logarithmic),
    Claim("12", "§6.2", "a tree may be less efficient than a bus in some cases", tree_may_lose),
]  # fmt: skip
