"""What a reproduced paper is made of: figures of points, a run that measures one point, and claims to be judged."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, isnan, log, nan
from statistics import correlation, fmean, linear_regression, stdev
from typing import Any

from mombroker.core.errors import MomError

Params = dict[str, Any]  # plain values: the name of a result in the cache, too
Result = dict[str, float]
Row = dict[str, Any]  # figure, setting, x, seed, the other parameters, and the result

HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "holds in part", "does not hold", "cannot be judged"


@dataclass(frozen=True, slots=True)
class Point:
    """One run: where it stands in a figure, and what it is a run of."""

    figure: str
    setting: str  # the curve
    x: float
    params: Params


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes: `lines` are the columns that are drawn, with what the legend calls them beside the setting;
    `without`: settings that have nothing to show there."""

    y: str
    lines: Mapping[str, str]
    log_y: bool = False
    without: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    x: str
    panels: Sequence[Panel]
    log_x: bool = False
    unit: str = ""  # a column that says how much was run: "sends", say, for the note below the title
    curves: Sequence[str] = ()  # what the curves stand for, piece by piece, where the legend does not say it

    @property
    def columns(self) -> list[str]:
        """Each once, in however many panels it is."""
        return list(dict.fromkeys(column for panel in self.panels for column in panel.lines))


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: str
    measured: str
    why: str = ""


Judge = Callable[["Table"], Judgement]


@dataclass(frozen=True, slots=True)
class Claim:
    figure: str
    place: str  # in the paper
    text: str
    judge: Judge


@dataclass(frozen=True, slots=True)
class Paper:
    """`points(figure, full, seeds, reading)` are all runs that a figure and its claims need; `cost(params)` are the CPU
    seconds of one, about. `readings`: other ones than the adopted, with what they change in the parameters. `seeds`: so
    many runs of a point are usual; from three on, pictures show the 95 % interval of the mean. `backends`: the cores.
    """

    name: str
    number: str
    title: str
    figures: Mapping[str, Figure]
    points: Callable[[str, bool, Sequence[int], Params], list[Point]]
    run: Callable[[Params], Result]
    cost: Callable[[Params], float]
    claims: Sequence[Claim]
    readings: Mapping[str, Params]
    backends: Sequence[str]
    seeds: int = 2


@dataclass(frozen=True, slots=True)
class Value:
    """A mean, and half of its 95 % interval: 0 where nothing is left to chance, not a number where nothing tells how
    much is: then values are compared as they are."""

    mean: float
    of: float = 0.0

    def __truediv__(self, other: "Value") -> "Value":
        """Of two that are independent, to the first order. Nothing is as much as nothing."""
        if not other.mean:
            return Value(inf if self.mean else 1.0)
        mean = self.mean / other.mean
        return Value(mean, hypot(self.of, mean * other.of) / abs(other.mean))

    def below(self, other: "Value | float") -> bool | None:
        """None where chance decides: the intervals overlap."""
        if not isinstance(other, Value):
            other = Value(other)
        if abs(self.mean - other.mean) < self.of + other.of:
            return None
        return self.mean < other.mean

    def within(self, least: float, most: float) -> bool | None:
        return every([Value(least).below(self), self.below(most)])


class Missing(MomError):
    """A claim is about a point that was not run."""


ENOUGH = 3  # runs of a point that tell by themselves how far runs are apart
ONE_RUN = "by value alone: one run of each point tells nothing of chance"
CPU = "cpu_"  # before the name of a column that no seed decides, but the machine
CONTROL, FORETOLD = "control", "foretold "  # a figure that is none; before the name of a column


class Table:
    """The rows of a figure, and of what its claims need beside; a value is the mean over the seeds.

    Where chance decides less by what happens in a run than by what was drawn before, a run may also say what that
    alone foretells of a column, up to a factor (`FORETOLD`), and rows of the figure `CONTROL` what it foretells in the
    mean of very many draws, and its standard error. Then every value is corrected by what its own draw was off (a
    control variate, as a ratio): the mean over few runs becomes about that over the many draws.

    `drawn`: the curves, by figure and setting, of which chance decides the runs. `untold`: some value was asked for of
    which nothing tells how sure it is.
    """

    def __init__(self, rows: Iterable[Row], drawn: Collection[tuple[str, str]] = ()):
        self.rows, self.drawn, self.untold = list(rows), drawn, False
        self.controls = {
            (row["setting"], row["x"], row["seed"]): row for row in self.rows if row["figure"] == CONTROL
        }  # fmt: skip

    def settings(self, figure: str) -> list[str]:
        return list(dict.fromkeys(row["setting"] for row in self.rows if row["figure"] == figure))

    def curve(self, figure: str, setting: str, column: str) -> dict[float, float]:
        """x -> mean, by rising x. Raises Missing if there is none."""
        return {x: fmean(values) for x, values in self.values(figure, setting, column).items()}

    def values(self, figure: str, setting: str, column: str) -> dict[float, list[float]]:
        """x -> the value of each run, by seed. Raises Missing if there is none."""
        found = {x: self._corrected(rows, column) for x, rows in self._runs(figure, setting).items()}
        self.untold |= (figure, setting) in self.drawn and all(len(values) == 1 for values in found.values())
        return found

    def errors(self, figure: str, setting: str, column: str) -> dict[float, float]:
        """x -> the standard error of the mean. Of one or two runs by how far the runs of all points of the curve are
        apart, as a share of their means; where no point has two it is not a number, or 0 if nothing is drawn by chance.
        Of CPU time it is not a number: it is the least of several, and swings with the machine.
        Raises Missing if there is none."""
        found = {}
        curve = self.values(figure, setting, column)
        alone = (figure, setting) in self.drawn and all(len(values) == 1 for values in curve.values())
        if alone or column.startswith(CPU):
            return dict.fromkeys(curve, nan)
        for x, rows in self._runs(figure, setting).items():
            values = curve[x]
            if len(values) >= ENOUGH:
                own = stdev(values) / len(values) ** 0.5
            else:
                own = abs(fmean(values)) * _share(curve.values()) / len(values) ** 0.5
            share = 0.0  # of the mean: what the means of the many draws are off
            if any(values) and FORETOLD + column in rows[0]:
                controls = [
                    self.controls[key] for key in {self._key(row): None for row in rows} if key in self.controls
                ]
                squares = ((each[f"{column}_error"] / each[column]) ** 2 for each in controls)
                share = sum(squares) ** 0.5 / max(len(controls), 1)
            found[x] = (own**2 + (share * fmean(values)) ** 2) ** 0.5
        return found

    def intervals(self, figure: str, setting: str, column: str) -> dict[float, float]:
        """x -> half of the 95 % confidence interval of the mean, by Student's t; 0 or not a number as the error is."""
        errors, runs = self.errors(figure, setting, column), self._runs(figure, setting)
        pooled = sum(len(rows) - 1 for rows in runs.values())
        return {
            x: student(max(len(runs[x]) - 1 if len(runs[x]) >= ENOUGH else pooled, 1)) * error
            for x, error in errors.items()
        }  # fmt: skip

    def measured(self, figure: str, setting: str, column: str) -> dict[float, Value]:
        """x -> the mean, and how sure it is. Raises Missing if there is none."""
        curve, intervals = self.curve(figure, setting, column), self.intervals(figure, setting, column)
        return {x: Value(mean, intervals[x]) for x, mean in curve.items()}

    def _runs(self, figure: str, setting: str) -> dict[float, list[Row]]:
        found: dict[float, list[Row]] = {}
        for row in self.rows:
            if row["figure"] == figure and row["setting"] == setting:
                found.setdefault(row["x"], []).append(row)
        if not found:
            raise Missing(f"it needs setting {setting} of figure {figure}")
        return dict(sorted(found.items()))

    @staticmethod
    def _key(row: Row) -> tuple[str, float, int]:
        return row["setting"], row["x"], row["seed"]

    def _corrected(self, rows: Sequence[Row], column: str) -> list[float]:
        values = [row[column] for row in rows]
        foretold = FORETOLD + column
        if foretold not in rows[0] or not all(self._key(row) in self.controls for row in rows):
            return values
        factor = sum(values) / sum(row[foretold] for row in rows)
        return [
            row[column] - factor * (row[foretold] - self.controls[self._key(row)][column]) for row in rows
        ]  # fmt: skip

    def at(self, figure: str, setting: str, x: float, column: str) -> float:
        """Raises Missing where no point is."""
        curve = self.curve(figure, setting, column)
        if x not in curve:
            raise Missing(f"it needs {setting} at {x:g}; run it with --full")
        return curve[x]

    def spread(self, figure: str, column: str) -> float:
        """Per cent between the least and the greatest of the seeds' values at one point, at the worst point."""
        found = [
            values
            for setting in self.settings(figure)
            for values in self.values(figure, setting, column).values()
        ]  # fmt: skip
        if not found or min(map(len, found)) < 2:
            raise Missing("it needs two seeds")
        return max(map(spread_of, found))


HALVES = ("figure", "setting", "x", "column", "one", "two", "off_pct")


def halves(table: Table, figure: str, column: str, runs: int) -> list[Row]:
    """For each point with so many seeds: the mean of the runs of the first `runs` seeds, that of the next as many, and
    by how many per cent of the mean of both they are apart."""
    found = []
    for setting in table.settings(figure):
        rows = [row for row in table.rows if row["figure"] in (figure, CONTROL) and row["setting"] == setting]
        seeds = sorted({row["seed"] for row in rows if row["figure"] == figure})
        if len(seeds) < 2 * runs:
            continue  # its seed decides nothing
        one, two = (
            Table(row for row in rows if row["seed"] in chosen).curve(figure, setting, column)
            for chosen in (seeds[:runs], seeds[runs : 2 * runs])
        )
        for x in one:
            off = 200 * abs(one[x] - two[x]) / abs(one[x] + two[x]) if one[x] != two[x] else 0.0
            found.append(dict(zip(HALVES, (figure, setting, x, column, one[x], two[x], off), strict=True)))
    return found


def means(table: Table, figure: str, columns: Iterable[str]) -> list[Row]:
    """A row for each value of a figure: the mean, on how many runs it rests, and how sure it is (None: not known)."""
    return [
        {
            "figure": figure, "setting": setting, "x": x, "column": column, "runs": len(values), "mean": fmean(values),
            "standard_error": _told(table.errors(figure, setting, column)[x]),
            "interval_95": _told(table.intervals(figure, setting, column)[x]),
        }
        for setting in table.settings(figure)
        for column in columns
        for x, values in table.values(figure, setting, column).items()
    ]  # fmt: skip


def _told(error: float) -> float | None:
    return None if isnan(error) else error


# 97.5 % quantiles of Student's t, by degrees of freedom from 1 on, and the normal one
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
NORMAL = 1.959964


def student(free: int) -> float:
    """The 97.5 % quantile of Student's t; beyond the table by the expansion of Cornish and Fisher, which is off by less
    than 0.001 there."""
    if free <= len(STUDENT):
        return STUDENT[free - 1]
    z = NORMAL
    second, third = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    fourth = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + second / free + third / free**2 + fourth / free**3


def _share(points: Iterable[Sequence[float]]) -> float:
    """The standard deviation of one run, as a share of the mean of its point."""
    pairs = [(values, fmean(values)) for values in points if len(values) > 1 and fmean(values)]
    squares = sum((value / mean - 1) ** 2 for values, mean in pairs for value in values)
    return float((squares / max(sum(len(values) - 1 for values, _ in pairs), 1)) ** 0.5)


def power(curve: Mapping[float, float]) -> tuple[float, float]:
    """The power of x as which a curve grows, by least squares of logarithms, and half of its 95 % confidence interval.
    Raises Missing if it has less than three points, or values that are not above 0."""
    enough(curve, 3)
    if min(curve.values()) <= 0:
        raise Missing("it needs values above 0")
    xs, ys = [*map(log, curve)], [*map(log, curve.values())]
    line = linear_regression(xs, ys)
    free, middle = len(xs) - 2, fmean(xs)
    rest = sum((y - line.intercept - line.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = (rest / free / sum((x - middle) ** 2 for x in xs)) ** 0.5
    return line.slope, student(free) * error


def straight(curve: Mapping[float, float], scale: Callable[[float], float] = float) -> float:
    """R² of a straight line over this scale of x; 0 for a curve that does not rise. Raises Missing if it has less than
    three points."""
    enough(curve, 3)
    if len({*curve.values()}) == 1:
        return 0.0
    return max(correlation([*map(scale, curve)], [*curve.values()]), 0.0) ** 2


def enough(curve: Collection[float], least: int = 2) -> None:
    """Raises Missing where a curve has too few points to tell how it runs."""
    if len(curve) < least:
        raise Missing(f"it needs {least} points of each curve or more")


JUDGED = ("figure", "place", "claim", "verdict", "measured", "why")


def judge(claims: Sequence[Claim], figure: str, table: Table) -> list[dict[str, str]]:
    """A row for each claim about a figure."""
    rows = []
    for claim in claims:
        if claim.figure == figure:
            table.untold = False
            try:
                found = claim.judge(table)
            except Missing as error:
                found = Judgement(UNKNOWN, "", str(error))
            if table.untold and found.verdict != UNKNOWN:
                found = replace(found, why=joined(ONE_RUN, found.why))
            told = figure, claim.place, claim.text, found.verdict, found.measured, found.why
            rows.append(dict(zip(JUDGED, told, strict=True)))
    return rows


def every(held: Iterable[bool | None]) -> bool | None:
    """Of statements of which all must be true, and of which chance leaves some open: None."""
    held = list(held)
    return False if False in held else None if None in held else True


def some(held: Iterable[bool | None]) -> bool | None:
    """Of statements of which one must be true, and of which chance leaves some open: None."""
    held = list(held)
    return True if True in held else None if None in held else False


def constant(curve: Iterable[Value], most: float) -> bool | None:
    """The greatest is at most so many per cent above the least. Chance only drives them further apart: so if they are
    not, it leaves nothing open."""
    values = sorted(curve, key=lambda value: value.mean)
    ratio, limit = values[-1] / values[0], 1 + most / 100
    return ratio.mean <= limit or ratio.below(limit)


def verdict(held: Sequence[bool | None]) -> str:
    """None: chance leaves it open."""
    decided = [each for each in held if each is not None]
    if not decided:
        return UNKNOWN
    return HOLDS if all(held) else PARTLY if any(decided) else FAILS


def reasons(held: Mapping[str, bool | None], why: str = "") -> str:
    """What chance leaves open, then why the rest is not so; without a reason where it is not."""
    open_, off = ([name for name, each in held.items() if each is answer] for answer in (None, False))
    if off and not why:
        why = "so of none" if len(off) == len(held) > 1 else f"not so: {_grouped(off)}"
    return joined(f"within chance, by 95 % intervals: {_grouped(open_)}" if open_ else "", why)


def joined(*parts: str) -> str:
    """Those that are not empty."""
    return "; ".join(filter(None, parts))


def _grouped(names: Sequence[str]) -> str:
    """Names such as "bytes at n = 100": each thing once, with all its sizes."""
    found: dict[str, list[str]] = {}
    for name in names:
        what, _, size = name.partition(" at n = ")
        found.setdefault(what, []).append(size)
    return ", ".join(f"{what} at n = {' / '.join(sizes)}" if sizes[0] else what for what, sizes in found.items())


def listed(values: Mapping[str, float], form: str = ".1f") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


def spread_of(values: Sequence[float]) -> float:
    return 100 * ((Value(max(values)) / Value(min(values))).mean - 1)


def curves(table: Table, figure: str, column: str, settings: Sequence[str] = ()) -> dict[str, dict[float, float]]:
    chosen = settings or table.settings(figure)
    if not chosen:
        raise Missing(f"it needs figure {figure}")
    return {setting: table.curve(figure, setting, column) for setting in chosen}
