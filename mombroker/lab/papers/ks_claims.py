"""What paper 002 claims, and how each claim is judged. Nothing here is tuned: a claim that fails is told to fail."""

from collections.abc import Iterable, Sequence
from math import log

from mombroker.lab.papers import base
from mombroker.lab.papers.base import (
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
    some,
    spread_of,
    verdict,
)
from mombroker.lab.papers.ks_curves import (
    at_hundred,
    beside,
    correlated,
    crossed,
    crossing,
    doubling,
    exponent,
    last_decade,
    on_the_line,
    ranges,
    spans,
    spread,
    to_hundred,
)

FLOOR = "floor"  # the points with a transmission time of 0
FLAT = 15  # per cent between the least and the greatest that still count as constant, or as about the same
ABOUT = 20  # per cent that a value may be off the printed one where the paper says "about"
CLOSE = 10  # per cent between two curves that are "very close together", or of which one is "marginally" more
EQUAL = 1  # per cent that one of two curves may be above the other where they are "almost equal"
STILL = 5  # per cent between the least and the greatest of a curve that does not fluctuate at all
LOW = 400  # ms: a MIMT below is low
RAPID = 25  # per cent that an overhead falls by at least as n doubles, where it falls "rapidly"
HALF = 50  # per cent of the overhead of RST: below is "much less"
LINEAR = 0.15  # that a power of n may be off 1 where growth is "almost linear"
RUNS, APART = 10, 1  # of each point in the paper, and per cent that they differ by at most
LONG = 30_000  # sends of a run in the paper
ALIKE, KIN = 0.9, 3  # of two curves of the same pattern: their correlation; one moves at most so many times as far
COVERED = ("S1", "S2", "S3")  # the settings of figures 3 to 5 that have the M/T of the floor, and so at least its size
# of a claim that is not met although no necessary minimum is known to be above it
OPTIMAL = "no implementation can under this load: KS carries what constraints I and II make necessary, and no more"
ENTRY = {"ks": "KS", "ks_bitmap": "KS'"}


def necessary(table: Table, n: int, column: str, limit: float) -> str:
    """Why no correct implementation keeps below a limit under the floor; empty where it could, or nobody knows."""
    try:
        floor, bare = table.measured(FLOOR, "MTT 0", column), table.at(FLOOR, "MTT 0", n, "ks_bare")
    except Missing:
        return ""
    if not Value(limit).below(floor[n]):
        return ""
    without = f" ({bare:.1f} % without the header)" if column == "ks" else ""
    return (
        f"no implementation can: at n = {n} and M/T = 0.1 what constraints I and II make necessary is "
        f"{floor[n].mean:.1f} %{without} even where messages take no time"
    )


def impossible(table: Table, n: int, column: str, limit: float, off: Sequence[str], otherwise: str) -> str:
    """Why these settings are not below a limit: by the floor those that it covers, and the rest by another reason."""
    floor = necessary(table, n, column, limit)
    covered = [setting for setting in off if floor and setting in COVERED]
    rest = [setting for setting in off if setting not in covered]
    told = ((covered, floor), (rest, otherwise))
    return "; ".join(f"{', '.join(settings)}: {why}" for settings, why in told if settings and why)


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
        off = [setting for setting, good in held.items() if good is False]
        why = impossible(table, n, column, limit, off, OPTIMAL if column == "ks" else "")
        return Judgement(verdict([*held.values()]), f"{at}{listed(most)} %", reasons(held, why))

    return judge


def about(figure: str, column: str, value: float, n: int) -> Judge:
    """All curves are about at `value` at `n`."""

    def judge(table: Table) -> Judgement:
        found = {setting: table.at(figure, setting, n, column) for setting in curves(table, figure, column)}
        least, most = value * (1 - ABOUT / 100), value * (1 + ABOUT / 100)
        held = {setting: table.measured(figure, setting, column)[n].within(least, most) for setting in found}
        off = [setting for setting, good in held.items() if good is False]
        why = impossible(table, n, column, most, off, f"more than {ABOUT} % off")
        return Judgement(verdict([*held.values()]), f"{listed(found)} %", reasons(held, why))

    return judge


def much_less(figure: str) -> Judge:
    """KS and KS' never reach a share of RST."""

    def judge(table: Table) -> Judgement:
        held, shown = {}, []
        for column, name in ENTRY.items():
            found = {setting: table.measured(figure, setting, column) for setting in curves(table, figure, column)}
            for setting, curve in found.items():
                held[f"{name} {setting}"] = every(value.below(HALF) for value in curve.values())
            most = {setting: max(value.mean for value in curve.values()) for setting, curve in found.items()}
            shown.append(f"{name}: at most {listed(most)} %")
        return Judgement(verdict([*held.values()]), "; ".join(shown), reasons(held, f"much less: below {HALF} %"))

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


def cheaper(figure: str, settings: Sequence[str] = (), by: float = 0) -> Judge:
    """KS' is below KS at all points, by so many per cent at least."""

    def judge(table: Table) -> Judgement:
        ratios = {setting: beside(table, figure, setting) for setting in curves(table, figure, "ks", settings)}
        most = {setting: max(ratio.mean for ratio in curve.values()) for setting, curve in ratios.items()}
        held = {
            setting: every(each.below(1 - by / 100) for each in curve.values()) for setting, curve in ratios.items()
        }
        why = f"noticeably: by more than {by} %" if by else ""
        return Judgement(verdict([*held.values()]), f"KS' / KS at most {listed(most, '.2f')}", reasons(held, why))

    return judge


# -- figure 3 ----------------------------------------------------------------------------------------------------------


def falls(table: Table) -> Judgement:
    """From each n to the next, and over all of them as rapidly as said."""
    held, shown, ns = {}, [], set[float]()
    for column, name in ENTRY.items():
        whole = {}
        for setting in curves(table, "3", column):
            curve = to_hundred(table, setting, column)
            ns |= {*curve}
            (fall,) = doubling({n: curve[n] for n in (min(curve), max(curve))})
            whole[setting] = 100 * (fall.mean - 1)
            steps = [step.below(1) for step in doubling(curve)]
            held[f"{name} {setting}"] = every([*steps, fall.below(1 - RAPID / 100)])
        shown.append(f"{name}: {listed(whole)} %")
    return Judgement(
        verdict([*held.values()]), f"as n doubles, from {min(ns):g} to {max(ns):g}: {'; '.join(shown)}",
        reasons(held, f"rapidly: by {RAPID} % at least as n doubles, and from each n to the next"),
    )  # fmt: skip


def linear(table: Table) -> Judgement:
    """The exponent of n, of integers and not of shares of n²."""
    held, shown, ns = {}, [], set[float]()
    for column, name in ENTRY.items():
        powers = {}
        for setting in curves(table, "3", column):
            curve = to_hundred(table, setting, column)
            ns |= {*curve}
            share = exponent(curve)
            power = Value(share.mean + 2, share.of)
            powers[setting] = power.mean
            held[f"{name} {setting}"] = power.within(1 - LINEAR, 1 + LINEAR)
        shown.append(f"{name}: {listed(powers, '.2f')}")
    return Judgement(
        verdict([*held.values()]), f"integers as powers of n = {min(ns):g} to {max(ns):g}: {'; '.join(shown)}",
        reasons(held, f"almost linearly: to the power 1 ± {LINEAR}"),
    )  # fmt: skip


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


def thresholds(table: Table) -> Judgement:
    for setting in ("S3", "S4"):
        table.at("3", setting, 100, "ks")
    shown, held = [], {}
    for setting, printed in (("S4", 45), ("S3", 62)):
        found = [crossing(table, setting, column) for column in ("ks", "ks_bare")]
        near = [n.within(0.9 * printed, 1.1 * printed) for n in found if n is not None]
        held[setting] = some(near)
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


def levels_off(table: Table) -> Judgement:
    """It rises, nowhere by leaps, and no further over the last decade."""
    late, held = {}, {}
    found = curves(table, "4", "ks")
    for setting in found:
        curve = table.measured("4", setting, "ks")
        ratio = last_decade(curve)
        late[setting] = 100 * (ratio.mean - 1)
        end = [value for x, value in curve.items() if x >= max(curve) / 10]
        steady = [ratio.within(1 - FLAT / 100, 1 + FLAT / 100), base.constant(end, FLAT)]
        gradual = [step.below(1 + FLAT / 100) for step in doubling(curve)]
        held[setting] = every([curve[min(curve)].below(curve[max(curve)]), *gradual, *steady])
    return Judgement(
        verdict([*held.values()]), f"{spans(found)} %; over the last decade of MTT: {listed(late, '+.1f')} %",
        reasons(held, f"gradually: by {FLAT} % at most as MTT doubles; steady: within {FLAT} % while it grows tenfold"),
    )  # fmt: skip


def near_and_far(table: Table) -> Judgement:
    gaps, held = {}, {}
    for setting in curves(table, "4", "ks"):
        ratios = beside(table, "4", setting).values()
        gaps[setting] = [100 * (1 - ratio.mean) for ratio in ratios]
        if setting == "S3":
            held[setting] = every(ratio.within(1 - CLOSE / 100, 1 + CLOSE / 100) for ratio in ratios)
        else:
            held[setting] = every(ratio.below(1 - CLOSE / 100) for ratio in ratios)
    return Judgement(
        verdict([*held.values()]), f"KS' below KS by {ranges(gaps, '.1f')} %",
        reasons(held, f"close: within {CLOSE} %; noticeably better: by more"),
    )  # fmt: skip


def busy(table: Table) -> Judgement:
    few, many = table.measured("4", "S1", "ks"), table.measured("4", "S4", "ks")
    ratios = {x: value / on_the_line(few, x) for x, value in many.items()}
    gaps = [100 * (ratio.mean - 1) for ratio in ratios.values()]
    held = {f"MTT = {x:g}": ratio.within(1 - FLAT / 100, 1 + FLAT / 100) for x, ratio in ratios.items()}
    drawn = [x for x in many if x not in few]
    why = f"the same: within {FLAT} %"
    if drawn:
        why += f"; S1 is taken from the line between its neighbours at MTT = {', '.join(f'{x:g}' for x in drawn)}"
    return Judgement(
        verdict([*held.values()]), f"S4 beside S1: {min(gaps):+.1f} to {max(gaps):+.1f} %", reasons(held, why)
    )  # fmt: skip


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def fluctuates(table: Table) -> Judgement:
    """S2 and S3 at low MIMT; the others do not."""
    spreads, held = {}, {}
    for setting in curves(table, "5", "ks"):
        curve = table.measured("5", setting, "ks")
        values, late = [*curve.values()], [value for x, value in curve.items() if x >= LOW]
        if not late:
            raise Missing(f"it needs {setting} from {LOW} on")
        spreads[setting] = 100 * (spread(values).mean - 1)
        if setting in ("S2", "S3"):
            moves = Value(1 + STILL / 100).below(spread(values))
            held[setting] = every([moves, base.constant(values, FLAT), base.constant(late, STILL)])
        else:
            held[setting] = base.constant(values, STILL)
    why = (
        f"not at all: within {STILL} %; slightly: by more, within {FLAT} %; low: below {LOW} ms, not at all from there"
    )
    return Judgement(verdict([*held.values()]), f"greatest above least: {listed(spreads)} %", reasons(held, why))


# -- figures 6 to 8 ----------------------------------------------------------------------------------------------------


def falls_slightly(table: Table) -> Judgement:
    held, shown = {}, {}
    for setting in ("S1", "S4"):
        values = [*table.measured("6", setting, "ks").values()]
        ratio = values[-1] / values[0]
        shown[setting] = 100 * (ratio.mean - 1)
        held[setting] = every((value / values[0]).within(1 - FLAT / 100, 1) for value in values[1:])
    return Judgement(
        verdict([*held.values()]), f"KS from the least M/T to 1: {listed(shown, '+.1f')} %",
        reasons(held, f"very slightly: by {FLAT} % at most"),
    )  # fmt: skip


def similar(figure: str) -> Judge:
    """To figure 6, point by point."""

    def judge(table: Table) -> Judgement:
        held, shown = {}, []
        for column, name in ENTRY.items():
            gaps = {}
            for setting in curves(table, figure, column):
                other = table.measured("6", setting, column)
                common = {x: value for x, value in table.measured(figure, setting, column).items() if x in other}
                if not common:
                    raise Missing("it needs the same ratios in figure 6")
                ratios = [value / other[x] for x, value in common.items()]
                gaps[setting] = [100 * (ratio.mean - 1) for ratio in ratios]
                held[f"{name} {setting}"] = every(ratio.within(1 - CLOSE / 100, 1 + CLOSE / 100) for ratio in ratios)
            shown.append(f"{name}: {ranges(gaps, '+.1f')} %")
        return Judgement(
            verdict([*held.values()]), f"beside figure 6: {'; '.join(shown)}",
            reasons(held, f"very similar: within {CLOSE} %"),
        )  # fmt: skip

    return judge


def ratio_of_s2(figure: str, least: float, most: float, words: str) -> Judge:
    """KS' over KS at all points of S2; with KS without its header, too, as the paper does not say what it counts."""

    def judge(table: Table) -> Judgement:
        ratios, bare = (beside(table, figure, "S2", column) for column in ("ks", "ks_bare"))
        held = {f"S2 at {x:g}": ratio.within(least, most) for x, ratio in ratios.items()}
        shown = [ranges({"KS' / KS": [ratio.mean for ratio in each.values()]}, ".2f") for each in (ratios, bare)]
        return Judgement(
            verdict([*held.values()]), f"{shown[0]}; without the header {shown[1]}", reasons(held, words)
        )  # fmt: skip

    return judge


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
        shown, held = [], {}
        for setting in curves(table, figure, "ks"):
            both = [[*table.measured(figure, setting, column).values()] for column in ("ks", "log")]
            if len(both[0]) < 3:
                raise Missing("it needs three points of a curve")
            still = every(base.constant(values, FLAT) for values in both)
            together = correlated(table, figure, setting)
            held[setting] = some([still, every([Value(ALIKE).below(together), kin(*both)])])
            shown.append(f"{setting} {'both constant' if still else f'{together.mean:.2f}'}")
        why = f"the same pattern: both within {FLAT} %, or above {ALIKE} and neither moves {KIN} times as far"
        return Judgement(verdict([*held.values()]), f"correlation: {', '.join(shown)}", reasons(held, why))

    return judge


def kin(sizes: Iterable[Value], logs: Iterable[Value]) -> bool | None:
    """Neither moves much further than the other, by logarithms."""
    one, other = (Value(log(each.mean), each.of / each.mean) for each in map(spread, (sizes, logs)))
    return every(a.below(Value(KIN * b.mean, KIN * b.of)) for a, b in ((one, other), (other, one)))


# what the paper says of several figures
MUCH_LESS = "the overhead is always much less than that of RST"
SIMILAR = "the overhead is very similar to that over M/T (figure 6)"
BUT_S2 = "KS' is lower than KS, but for S2"
ALMOST_EQUAL = "for S2 KS' is almost equal to KS, or marginally lower"
ALMOST = (
    1 - CLOSE / 100, 1 + EQUAL / 100,
    f"almost equal: {EQUAL} % above at most; marginally lower: by {CLOSE} % at most",
)  # fmt: skip

CLAIMS = [
    Claim("3", "§4.1", "the overhead, as a share of that of RST, falls rapidly as n rises", falls),
    Claim("3", "§4.1, §5", "KS and KS' scale almost linearly in n", linear),
    Claim("3", "§5", MUCH_LESS, much_less("3")),
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
    Claim("4", "§4.2, §5", MUCH_LESS, much_less("4")),
    Claim("4", "§4.2", "for n = 15 never more than 35 %", below("4", "ks", 35, 15, ["S1", "S2", "S4"])),
    Claim("4", "§4.2", "for n = 40 always less than 11 %", below("4", "ks", 11, 40, ["S3"])),
    Claim("4", "§4.2", "KS and KS' are very close for n = 40; KS' is noticeably better for n = 15", near_and_far),
    Claim("4", "§4.2", "more multicasts do not change the overhead appreciably (S1, S4)", busy),
    Claim("5", "§4.3", "the overhead is almost constant over MIMT, even where it is low", constant("5", "ks")),
    Claim("5", "§4.3", "in S2 and S3 it fluctuates slightly at low MIMT, in S1 and S4 not at all", fluctuates),
    Claim("5", "§4.3", "it stays almost constant beyond a MIMT of 1,200 ms (S3, S4)",
          constant("5", "ks", 1200, ["S3", "S4"])),
    Claim("5", "§4.3", "KS' is noticeably lower than KS in all cases", cheaper("5", by=CLOSE)),
    Claim("5", "§4.3, §5", MUCH_LESS, much_less("5")),
    Claim("5", "§4.3", "for n = 20 KS has less than 20 %", below("5", "ks", 20, 20, ["S2", "S3", "S4"])),
    Claim("5", "§4.3", "for n = 20 KS' has less than 12 %", below("5", "ks_bitmap", 12, 20, ["S2", "S3", "S4"])),
    Claim("6", "§4.4", "KS' is lower than KS in all simulations", cheaper("6")),
    Claim("6", "§4.4", ALMOST_EQUAL, ratio_of_s2("6", *ALMOST)),
    Claim("6", "§5", MUCH_LESS, much_less("6")),
    Claim("6", "§4.4, §5", "the overhead of KS is almost independent of M/T", constant("6", "ks")),
    Claim("6", "§4.4", "the overhead of KS' is, too", constant("6", "ks_bitmap")),
    Claim("6", "§4.4", "with few members (S1, S4) that of KS falls very slightly", falls_slightly),
    Claim("7", "§4.4", "varying |Dests|/n leads to the same: KS is constant", constant("7", "ks")),
    Claim("7", "§4.4", SIMILAR, similar("7")),
    Claim("7", "§4.4", BUT_S2, cheaper("7", ["S1", "S3", "S4"])),
    Claim("7", "§4.4", ALMOST_EQUAL, ratio_of_s2("7", *ALMOST)),
    Claim("8", "§4.4", "varying B/T leads to the same: KS is constant", constant("8", "ks")),
    Claim("8", "§4.4", SIMILAR, similar("8")),
    Claim("8", "§4.4", BUT_S2, cheaper("8", ["S1", "S3", "S4"])),
    Claim("8", "§4.4", "for S2 KS' has marginally more overhead than KS",
          ratio_of_s2("8", 1, 1 + CLOSE / 100, f"marginally: by {CLOSE} % at most")),
]  # fmt: skip
CLAIMS += [
    Claim(figure, "§4", "the size of the log follows the same pattern as that of a message", log_follows(figure))
    for figure in "345678"
]
CLAIMS += [
    Claim(figure, "§4", "the 10 runs of a point do not differ by more than a percent", seeds(figure))
    for figure in "345678"
]
