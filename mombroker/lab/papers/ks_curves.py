"""What is read off the curves of paper 002's figures, before anything is judged."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import hypot, log, log2
from statistics import correlation, fmean

from mombroker.lab.papers.base import Missing, Row, Table, Value

LARGEST = 100  # members in the paper; more are run, too


def spans(curves: Mapping[str, Mapping[float, float]]) -> str:
    """The first and the last value of each curve."""
    ends = {name: [*curve.values()] for name, curve in curves.items()}
    return ", ".join(f"{name} {values[0]:.1f} to {values[-1]:.1f}" for name, values in ends.items())


def ranges(curves: Mapping[str, Iterable[float]], form: str) -> str:
    """The least and the greatest value of each curve."""
    ends = {name: sorted(values) for name, values in curves.items()}
    return ", ".join(f"{name} {values[0]:{form}} to {values[-1]:{form}}" for name, values in ends.items())


def spread(curve: Iterable[Value]) -> Value:
    """The greatest over the least."""
    values = sorted(curve, key=lambda value: value.mean)
    return values[-1] / values[0]


def doubling(curve: Mapping[float, Value]) -> list[Value]:
    """By what factor a curve goes on from each point to the next, as x doubles."""
    found = []
    for (a, before), (b, after) in pairwise(curve.items()):
        ratio, power = after / before, 1 / log2(b / a)
        mean = ratio.mean**power
        found.append(Value(mean, power * mean * ratio.of / ratio.mean))
    return found


def beside(table: Table, figure: str, setting: str, column: str = "ks") -> dict[float, Value]:
    """x -> KS' over KS, run by run: one run measures both, so that chance moves their ratio less."""
    chosen = (row for row in table.rows if (row["figure"], row["setting"]) == (figure, setting))
    ratios = Table([row | {"beside": row["ks_bitmap"] / row[column]} for row in chosen], table.drawn)
    found = ratios.measured(figure, setting, "beside")
    table.untold |= ratios.untold
    return found


# -- figure 3 ----------------------------------------------------------------------------------------------------------


def to_hundred(table: Table, setting: str, column: str) -> dict[float, Value]:
    """A curve as far as the paper has it. Raises Missing where two points are not."""
    found = {n: value for n, value in table.measured("3", setting, column).items() if n <= LARGEST}
    if len(found) < 2:
        raise Missing("it needs several n")
    return found


def exponent(curve: Mapping[float, Value]) -> Value:
    """The power of x as which a curve grows, by least squares of logarithms, and what chance leaves of it."""
    middle = fmean(map(log, curve))
    weights = {x: log(x) - middle for x in curve}
    square = sum(weight**2 for weight in weights.values())
    slope = sum(weights[x] * log(value.mean) for x, value in curve.items()) / square
    return Value(slope, hypot(*(weights[x] * value.of / value.mean for x, value in curve.items())) / square)


def at_hundred(found: Mapping[str, Mapping[float, Value]]) -> dict[str, Value]:
    """Raises Missing where no such point is."""
    for setting, curve in found.items():
        if 100 not in curve:
            raise Missing(f"it needs {setting} at 100; run it with --full")
    return {setting: curve[100] for setting, curve in found.items()}


def crossing(table: Table, setting: str, column: str) -> Value | None:
    """The n from which on KS' is not smaller any more, between two points by a straight line."""
    plain, packed = table.curve("3", setting, column), table.curve("3", setting, "ks_bitmap")
    ratios = beside(table, "3", setting, column)
    gaps = [(n, packed[n] - plain[n], plain[n] * ratios[n].of) for n in plain]
    if gaps[-1][1] < 0:
        return None
    for (a, before, off), (b, after, then) in reversed([*pairwise(gaps)]):
        if before < 0:
            slope = (after - before) / (b - a)
            return Value(a - before / slope, max(off, then) / slope)
    return Value(gaps[0][0])


def crossed(table: Table, setting: str, n: Value | None) -> str:
    return f"not up to {max(table.curve('3', setting, 'ks')):g}" if n is None else f"{n.mean:.0f}"


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


def on_the_line(curve: Mapping[float, Value], x: float) -> Value:
    """As `between`, with how sure it is."""
    means, halves = ({at: value.mean for at, value in curve.items()}, {at: value.of for at, value in curve.items()})
    return Value(between(means, x), between(halves, x))


def last_decade(curve: Mapping[float, Value]) -> Value:
    """By what factor a curve rises while x grows tenfold, at its end: little depends on which points were run."""
    last = max(curve)
    return curve[last] / on_the_line(curve, last / 10)


# -- figures 6 to 8 ----------------------------------------------------------------------------------------------------


def correlated(table: Table, figure: str, setting: str) -> Value:
    """Of the sizes of the log and of a message over a curve, run by run: 0 where one does not move."""
    runs: dict[int, list[Row]] = {}
    for row in table.rows:
        if (row["figure"], row["setting"]) == (figure, setting):
            runs.setdefault(row["seed"], []).append(row)
    found = []
    for seed, rows in runs.items():
        sizes, logs = [row["ks"] for row in rows], [row["log"] for row in rows]
        alike = correlation(sizes, logs) if len({*sizes}) > 1 < len({*logs}) else 0.0
        found.append({"figure": figure, "setting": setting, "x": 0, "seed": seed, "alike": alike})
    return Table(found, table.drawn).measured(figure, setting, "alike")[0]
