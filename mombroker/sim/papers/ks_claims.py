"""What paper 002 claims, and how each claim is judged. Nothing here is tuned: a claim that fails is told to fail."""

from collections.abc import Mapping, Sequence
from math import log
from statistics import correlation, linear_regression

from mombroker.sim.papers import base
from mombroker.sim.papers.base import (
    Claim,
    Judge,
    Judgement,
    Missing,
    Table,
    Value,
    curves,
    every,
    listed,
    reasons,
    spread_of,
    verdict,
)

FLOOR = "floor"  # the points with a transmission time of 0
FLAT = 15  # per cent between the least and the greatest that still count as constant, or as about the same
ABOUT = 20  # per cent that a value may be off the printed one where the paper says "about"
CLOSE = 10  # per cent between two curves that are "very close together"
RUNS, APART = 10, 1  # of each point in the paper, and per cent that they differ by at most
LONG = 30_000  # sends of a run in the paper
ALIKE = 0.9  # correlation of two curves of the same pattern
# of a claim that is not met although no necessary minimum is known to be above it
OPTIMAL = "no implementation can under this load: KS carries what constraints I and II make necessary, and no more"
ENTRY = {"ks": "KS", "ks_bitmap": "KS'"}


def spans(curves: Mapping[str, Mapping[float, float]]) -> str:
    """The first and the last value of each curve."""
    ends = {name: [*curve.values()] for name, curve in curves.items()}
    return ", ".join(f"{name} {values[0]:.1f} to {values[-1]:.1f}" for name, values in ends.items())


def necessary(table: Table, n: int, column: str, limit: float) -> str:
    """Why no correct implementation keeps below a limit under the floor; empty where it could, or nobody knows."""
    try:
        floor, bare = table.at(FLOOR, "MTT 0", n, column), table.at(FLOOR, "MTT 0", n, "ks_bare")
    except Missing:
        return ""
    if floor < limit:
        return ""
    without = f" ({bare:.1f} % without the header)" if column == "ks" else ""
    return (
        f"no implementation can: at n = {n} and M/T = 0.1 what constraints I and II make necessary is {floor:.1f} %"
        f"{without} even where messages take no time"
    )


def below(figure: str, column: str, limit: float, n: int, settings: Sequence[str], x: float | None = None) -> Judge:
    """The curves never reach `limit` (at `x`: there)."""

    def judge(table: Table) -> Judgement:
        found = {setting: table.measured(figure, setting, column) for setting in settings}
        if x is not None:
            most = {setting: table.at(figure, setting, x, column) for setting in settings}
            found = {setting: {x: curve[x]} for setting, curve in found.items()}
        else:
            most = {setting: max(value.mean for value in curve.values()) for setting, curve in found.items()}
        held = {setting: every(value.below(limit) for value in curve.values()) for setting, curve in found.items()}
        at = "at most " if x is None else ""
        why = ""
        if False in held.values():
            why = necessary(table, n, column, limit) or (OPTIMAL if column == "ks" else "")
        return Judgement(verdict([*held.values()]), f"{at}{listed(most)} %", reasons(held, why))

    return judge


def about(figure: str, column: str, value: float, n: int) -> Judge:
    """All curves are about at `value` at `n`."""

    def judge(table: Table) -> Judgement:
        found = {setting: table.at(figure, setting, n, column) for setting in curves(table, figure, column)}
        least, most = value * (1 - ABOUT / 100), value * (1 + ABOUT / 100)
        held = {setting: table.measured(figure, setting, column)[n].within(least, most) for setting in found}
        off = [setting for setting, good in held.items() if good is False]
        why = f"{', '.join(off)}: more than {ABOUT} % off" if off else ""
        why = why and necessary(table, n, column, most) or why
        return Judgement(verdict([*held.values()]), f"{listed(found)} %", reasons(held, why))

    return judge


def constant(figure: str, column: str, start: float = 0, settings: Sequence[str] = ()) -> Judge:
    """From `start` on."""

    def judge(table: Table) -> Judgement:
        spreads, held = {}, {}
        for setting in curves(table, figure, column, settings):
            values = [value for x, value in table.measured(figure, setting, column).items() if x >= start]
            if len(values) < 2:
                raise Missing(f"it needs {setting} beyond {start:g}; run it with --full")
            spreads[setting] = spread_of([value.mean for value in values])
            held[setting] = base.constant(values, FLAT)
        return Judgement(
            verdict([*held.values()]), f"greatest above least: {listed(spreads)} %",
            reasons(held, f"constant: within {FLAT} %"),
        )  # fmt: skip

    return judge


def cheaper(figure: str, settings: Sequence[str] = ()) -> Judge:
    """KS' is below KS at all points."""

    def judge(table: Table) -> Judgement:
        ratios = {}
        for setting, plain in curves(table, figure, "ks", settings).items():
            packed = table.curve(figure, setting, "ks_bitmap")
            ratios[setting] = max(packed[x] / plain[x] for x in plain)
        held = [ratio < 1 for ratio in ratios.values()]
        return Judgement(verdict(held), f"KS' / KS at most {listed(ratios, '.2f')}")

    return judge


# -- figure 3 ----------------------------------------------------------------------------------------------------------


def falls(table: Table) -> Judgement:
    held, shown = [], []
    for column, name in ENTRY.items():
        found = curves(table, "3", column)
        for curve in found.values():
            values = [*curve.values()]
            held.append(all(a > b for a, b in zip(values, values[1:], strict=False)))
        shown.append(f"{name}: {spans(found)} %")
    return Judgement(verdict(held), "; ".join(shown))


def linear(table: Table) -> Judgement:
    """The exponent of n, by least squares."""
    exponents = {}
    for setting, curve in curves(table, "3", "ks").items():
        if len(curve) < 2:
            raise Missing("it needs several n")
        integers = [log(value * n * n) for n, value in curve.items()]
        exponents[setting] = linear_regression([*map(log, curve)], integers).slope
    held = [abs(exponent - 1) <= 0.15 for exponent in exponents.values()]
    return Judgement(verdict(held), f"integers grow as n to the power {listed(exponents, '.2f')}")


def beside(table: Table, figure: str, setting: str, column: str = "ks") -> dict[float, Value]:
    """x -> KS' over KS, run by run: one run measures both, so that chance moves their ratio less."""
    chosen = (row for row in table.rows if (row["figure"], row["setting"]) == (figure, setting))
    ratios = Table([row | {"beside": row["ks_bitmap"] / row[column]} for row in chosen], table.drawn)
    found = ratios.measured(figure, setting, "beside")
    table.untold |= ratios.untold
    return found


def at_hundred(found: Mapping[str, Mapping[float, Value]]) -> dict[str, Value]:
    """Raises Missing where no such point is."""
    for setting, curve in found.items():
        if 100 not in curve:
            raise Missing(f"it needs {setting} at 100; run it with --full")
    return {setting: curve[100] for setting, curve in found.items()}


def overtakes(table: Table) -> Judgement:
    """KS' is better with few members, worse with many."""
    found = {setting: beside(table, "3", setting) for setting in curves(table, "3", "ks")}
    many = at_hundred(found)
    few = {setting: curve[min(curve)] for setting, curve in found.items()}
    held = {setting: every([few[setting].below(1), Value(1).below(many[setting])]) for setting in found}
    first, last = ({setting: value.mean for setting, value in values.items()} for values in (few, many))
    return Judgement(
        verdict([*held.values()]), f"KS' / KS with few: {listed(first, '.2f')}; at n = 100: {listed(last, '.2f')}",
        reasons(held),
    )  # fmt: skip


def crossing(table: Table, setting: str, column: str) -> Value | None:
    """The n from which KS' is not smaller any more, between two points by a straight line."""
    plain, packed = table.curve("3", setting, column), table.curve("3", setting, "ks_bitmap")
    ratios = beside(table, "3", setting, column)
    gaps = [(n, packed[n] - plain[n], plain[n] * ratios[n].of) for n in plain]
    for (a, before, off), (b, after, then) in zip(gaps, gaps[1:], strict=False):
        if before < 0 <= after:
            slope = (after - before) / (b - a)
            return Value(a - before / slope, max(off, then) / slope)
    return None


def crossed(table: Table, setting: str, n: Value | None) -> str:
    return f"not up to {max(table.curve('3', setting, 'ks')):g}" if n is None else f"{n.mean:.0f}"


def thresholds(table: Table) -> Judgement:
    for setting in ("S3", "S4"):
        table.at("3", setting, 100, "ks")
    shown, held = [], {}
    for setting, printed in (("S4", 45), ("S3", 62)):
        found = [crossing(table, setting, column) for column in ("ks", "ks_bare")]
        near = [n.within(0.9 * printed, 1.1 * printed) for n in found if n is not None]
        held[setting] = True if True in near else None if None in near else False
        with_, without = (crossed(table, setting, n) for n in found)
        shown.append(f"{setting}: {with_} with the header, {without} without")
    why = "10 % off counts as equal, in either way to count"
    if False in held.values():
        why += f"; {OPTIMAL}, and KS' the same in another form"
    return Judgement(verdict([*held.values()]), "; ".join(shown), reasons(held, why))


def order_of_thresholds(table: Table) -> Judgement:
    table.at("3", "S3", 100, "ks"), table.at("3", "S4", 100, "ks")
    early, late = (crossing(table, setting, "ks_bare") for setting in ("S4", "S3"))
    if early is None and late is None:
        raise Missing("neither curve crosses the other up to the largest n that was run")
    held = early is not None and (late is None or early.below(late))
    return Judgement(
        verdict([held]), f"S4: {crossed(table, 'S4', early)}, S3: {crossed(table, 'S3', late)}, both without header",
        "within chance, by 95 % intervals" if held is None else "",
    )  # fmt: skip


def near_at_last(table: Table) -> Judgement:
    ratios = at_hundred({setting: beside(table, "3", setting) for setting in curves(table, "3", "ks")})
    gaps = {setting: 100 * (ratio.mean - 1) for setting, ratio in ratios.items()}
    held = {setting: ratio.within(1 - CLOSE / 100, 1 + CLOSE / 100) for setting, ratio in ratios.items()}
    return Judgement(
        verdict([*held.values()]), f"KS' beside KS at n = 100: {listed(gaps, '+.1f')} %",
        reasons(held, f"close: within {CLOSE} %"),
    )  # fmt: skip


def unaffected(table: Table) -> Judgement:
    found = curves(table, "3", "ks", ["S1", "S3", "S4"])
    common = set.intersection(*(set(curve) for curve in found.values()))
    spreads = {f"n = {n:g}": spread_of([curve[n] for curve in found.values()]) for n in sorted(common)}
    values = [table.measured("3", setting, "ks") for setting in found]
    held = {f"n = {n:g}": base.constant([curve[n] for curve in values], FLAT) for n in sorted(common)}
    return Judgement(
        verdict([*held.values()]), f"greatest of the three above least: {listed(spreads)} %",
        reasons(held, f"same: within {FLAT} %"),
    )  # fmt: skip


# -- figure 4 ----------------------------------------------------------------------------------------------------------


def between(curve: Mapping[float, float], x: float) -> float:
    """By a straight line over log x, between the two points about it. Raises Missing outside."""
    if x in curve:
        return curve[x]
    xs = [*curve]
    if not xs[0] < x < xs[-1]:
        raise Missing(f"it needs points about {x:g}; run it with --full")
    after = next(at for at, each in enumerate(xs) if each > x)
    a, b = xs[after - 1], xs[after]
    return curve[a] + (curve[b] - curve[a]) * log(x / a) / log(b / a)


def last_decade(curve: Mapping[float, Value]) -> Value:
    """By what factor a curve rises while x grows tenfold, at its end: little depends on which points were run."""
    last = max(curve)
    before = ({x: value.mean for x, value in curve.items()}, {x: value.of for x, value in curve.items()})
    return curve[last] / Value(*(between(each, last / 10) for each in before))


def levels_off(table: Table) -> Judgement:
    late, held = {}, {}
    found = curves(table, "4", "ks")
    for setting in found:
        curve = table.measured("4", setting, "ks")
        ratio = last_decade(curve)
        late[setting] = 100 * (ratio.mean - 1)
        steady = ratio.within(1 - FLAT / 100, 1 + FLAT / 100)
        held[setting] = every([curve[min(curve)].below(curve[max(curve)]), steady])
    return Judgement(
        verdict([*held.values()]), f"{spans(found)} %; over the last decade of MTT: {listed(late, '+.1f')} %",
        reasons(held, f"steady: within {FLAT} % while MTT grows tenfold"),
    )  # fmt: skip


def near_and_far(table: Table) -> Judgement:
    gaps = {}
    for setting, plain in curves(table, "4", "ks").items():
        packed = table.curve("4", setting, "ks_bitmap")
        gaps[setting] = max(100 * (1 - packed[x] / plain[x]) for x in plain)
    held = [gaps["S3"] <= CLOSE, all(gap > CLOSE for setting, gap in gaps.items() if setting != "S3")]
    return Judgement(verdict(held), f"KS' below KS by {listed(gaps)} %", f"close: within {CLOSE} %")


def busy(table: Table) -> Judgement:
    few, many = table.curve("4", "S1", "ks"), table.curve("4", "S4", "ks")
    gaps = [100 * (value / between(few, x) - 1) for x, value in many.items()]
    held = [abs(gap) <= FLAT for gap in gaps]
    drawn = [x for x in many if x not in few]
    why = f"the same: within {FLAT} %"
    if drawn:
        why += f"; S1 is taken from the line between its neighbours at MTT = {', '.join(f'{x:g}' for x in drawn)}"
    return Judgement(verdict(held), f"S4 beside S1: {min(gaps):+.1f} to {max(gaps):+.1f} %", why)


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def fluctuates(table: Table) -> Judgement:
    """S2 and S3 over all MIMT; the others do not."""
    spreads = {setting: spread_of([*curve.values()]) for setting, curve in curves(table, "5", "ks").items()}
    still = max(spreads["S1"], spreads["S4"])
    held = [still <= FLAT, spreads["S2"] > still, spreads["S3"] > still]
    return Judgement(verdict(held), f"greatest above least: {listed(spreads)} %", f"no fluctuation: within {FLAT} %")


# -- figures 6 to 8 ----------------------------------------------------------------------------------------------------


def falls_slightly(table: Table) -> Judgement:
    held, shown = {}, {}
    for setting in ("S1", "S4"):
        values = [*table.measured("6", setting, "ks").values()]
        ratio = values[-1] / values[0]
        shown[setting] = 100 * (ratio.mean - 1)
        held[setting] = ratio.within(1 - FLAT / 100, 1)
    return Judgement(
        verdict([*held.values()]), f"KS from the least M/T to 1: {listed(shown, '+.1f')} %", reasons(held)
    )  # fmt: skip


def marginally_more(table: Table) -> Judgement:
    plain, packed = table.curve("8", "S2", "ks"), table.curve("8", "S2", "ks_bitmap")
    ratios = [packed[x] / plain[x] for x in plain]
    why = "the other way round without the header, too" if max(ratios) < 1 else ""
    bare = table.curve("8", "S2", "ks_bare")
    if any(packed[x] > bare[x] for x in bare):
        why = f"without the header KS' / KS is up to {max(packed[x] / bare[x] for x in bare):.2f}"
    held = [ratio > 1 for ratio in ratios]
    return Judgement(verdict(held), f"KS' / KS {min(ratios):.2f} to {max(ratios):.2f}", why)


def seeds(figure: str) -> Judge:
    """Two runs that differ by more decide it; that none do, takes as many as the paper has."""

    def judge(table: Table) -> Judgement:
        spreads = {name: table.spread(figure, column) for column, name in ENTRY.items()}
        held = [spread <= APART for spread in spreads.values()]
        values = [
            each for setting in table.settings(figure) for each in table.values(figure, setting, "sends").values()
        ]
        runs, sends = min(map(len, values)), min(map(min, values))
        why = "" if sends >= LONG else f"runs of {sends:,} sends differ more than those of {LONG:,} in the paper"
        if all(held) and runs < RUNS:
            return Judgement(
                base.UNKNOWN, f"{runs} runs: at most {listed(spreads)} % apart", f"it needs --seeds {RUNS}"
            )
        return Judgement(verdict(held), f"{runs} runs: at most {listed(spreads)} % apart", why)

    return judge


def log_follows(figure: str) -> Judge:
    """The sizes of the log and of a message rise and fall together, or are both constant."""

    def judge(table: Table) -> Judgement:
        shown, held = [], []
        for setting, curve in curves(table, figure, "ks").items():
            sizes, logs = [*curve.values()], [*table.curve(figure, setting, "log").values()]
            if len(sizes) < 3:
                raise Missing("it needs three points of a curve")
            still = max(spread_of(sizes), spread_of(logs)) <= FLAT
            alike = 1.0 if still else correlation(sizes, logs) if spread_of(sizes) and spread_of(logs) else 0.0
            held.append(alike >= ALIKE)
            shown.append(f"{setting} {'both constant' if still else f'{alike:.2f}'}")
        return Judgement(
            verdict(held), f"correlation: {', '.join(shown)}", f"the same pattern: {ALIKE} or both within {FLAT} %"
        )

    return judge


CLAIMS = [
    Claim("3", "§4.1", "the overhead, as a share of that of RST, falls rapidly as n rises", falls),
    Claim("3", "§4.1, §5", "KS and KS' scale almost linearly in n", linear),
    Claim("3", "§4.1", "at n = 15 KS has about 25 % of the overhead of RST", about("3", "ks", 25, 15)),
    Claim("3", "§4.1", "at n = 15 KS' has about 15 % of the overhead of RST", about("3", "ks_bitmap", 15, 15)),
    Claim("3", "§1, §4.1", "at n = 100 KS has only about 4 %, in all simulations", about("3", "ks", 4, 100)),
    Claim(
        "3", "§5", "at n = 100 KS has less than 4 %",
        below("3", "ks", 4, 100, ["S1", "S2", "S3", "S4"], x=100),
    ),
    Claim("3", "§4.1", "for low n KS' is more efficient, for high n KS is", overtakes),
    Claim("3", "§4.1", "KS and KS' are close together for high n", near_at_last),
    Claim("3", "§4.1", "the threshold is n = 45 for S4 and n = 62 for S3", thresholds),
    Claim("3", "§4.1", "the threshold comes earlier for S4 than for S3", order_of_thresholds),
    Claim("3", "§4.1", "S1, S3, S4: unicast or multicast, the improvement is the same", unaffected),
    Claim("4", "§4.2", "the overhead first rises gradually with MTT, but soon reaches a steady state", levels_off),
    Claim("4", "§4.2", "for n = 15 never more than 35 %", below("4", "ks", 35, 15, ["S1", "S2", "S4"])),
    Claim("4", "§4.2", "for n = 40 always less than 11 %", below("4", "ks", 11, 40, ["S3"])),
    Claim("4", "§4.2", "KS and KS' are very close for n = 40; KS' is noticeably better for n = 15", near_and_far),
    Claim("4", "§4.2", "more multicasts do not change the overhead appreciably (S1, S4)", busy),
    Claim("5", "§4.3", "the overhead is almost constant over MIMT, even where it is low", constant("5", "ks")),
    Claim("5", "§4.3", "in S2 and S3 it fluctuates slightly at low MIMT, in S1 and S4 not at all", fluctuates),
    Claim("5", "§4.3", "it stays almost constant beyond a MIMT of 1,200 ms (S3, S4)",
          constant("5", "ks", 1200, ["S3", "S4"])),
    Claim("5", "§4.3", "KS' is lower than KS in all cases", cheaper("5")),
    Claim("5", "§4.3", "for n = 20 KS has less than 20 %", below("5", "ks", 20, 20, ["S2", "S3", "S4"])),
    Claim("5", "§4.3", "for n = 20 KS' has less than 12 %", below("5", "ks_bitmap", 12, 20, ["S2", "S3", "S4"])),
    Claim("6", "§4.4", "KS' is lower than KS in all simulations", cheaper("6")),
    Claim("6", "§4.4, §5", "the overhead of KS is almost independent of M/T", constant("6", "ks")),
    Claim("6", "§4.4", "the overhead of KS' is, too", constant("6", "ks_bitmap")),
    Claim("6", "§4.4", "with few members (S1, S4) that of KS falls very slightly", falls_slightly),
    Claim("7", "§4.4", "varying |Dests|/n leads to the same: KS is constant", constant("7", "ks")),
    Claim("7", "§4.4", "KS' is lower than KS, or almost equal", cheaper("7")),
    Claim("8", "§4.4", "varying B/T leads to the same: KS is constant", constant("8", "ks")),
    Claim("8", "§4.4", "KS' is lower than KS, but for S2", cheaper("8", ["S1", "S3", "S4"])),
    Claim("8", "§4.4", "for S2 KS' has marginally more overhead than KS", marginally_more),
]  # fmt: skip
CLAIMS += [
    Claim(figure, "§4", "the size of the log follows the same pattern as that of a message", log_follows(figure))
    for figure in "345678"
]
CLAIMS += [
    Claim(figure, "§4", "the 10 runs of a point do not differ by more than a percent", seeds(figure))
    for figure in "345678"
]
