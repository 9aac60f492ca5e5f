"""What a reproduced paper is made of: figures of points, a run that measures one point, and claims to be judged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
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
class Figure:
    """`x` and `y` label the axes; `lines` are the columns that are drawn, with what the legend calls them."""

    title: str
    x: str
    y: str
    lines: Mapping[str, str]
    log_x: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: str
    measured: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    figure: str
    place: str  # in the paper
    text: str
    judge: Callable[["Table"], Judgement]


@dataclass(frozen=True, slots=True)
class Paper:
    """`points(figure, full, seeds, reading)` are all runs that a figure and its claims need; `cost(params)` are the CPU
    seconds of one, about. `readings`: other ones than the adopted, with what they change in the parameters.
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


class Missing(MomError):
    """A claim is about a point that was not run."""


class Table:
    """The rows of a figure, and of what its claims need beside; a value is the mean over the seeds."""

    def __init__(self, rows: Iterable[Row]):
        self.rows = list(rows)

    def settings(self, figure: str) -> list[str]:
        return list(dict.fromkeys(row["setting"] for row in self.rows if row["figure"] == figure))

    def curve(self, figure: str, setting: str, column: str) -> dict[float, float]:
        """x -> mean, by rising x. Raises Missing if there is none."""
        found: dict[float, list[float]] = {}
        for row in self.rows:
            if row["figure"] == figure and row["setting"] == setting:
                found.setdefault(row["x"], []).append(row[column])
        if not found:
            raise Missing(f"it needs setting {setting} of figure {figure}")
        return {x: fmean(values) for x, values in sorted(found.items())}

    def at(self, figure: str, setting: str, x: float, column: str) -> float:
        """Raises Missing where no point is."""
        curve = self.curve(figure, setting, column)
        if x not in curve:
            raise Missing(f"it needs {setting} at {x:g}; run it with --full")
        return curve[x]

    def spread(self, figure: str, column: str) -> float:
        """Per cent between the least and the greatest of the seeds' values at one point, at the worst point."""
        found: dict[tuple[str, float], list[float]] = {}
        for row in self.rows:
            if row["figure"] == figure:
                found.setdefault((row["setting"], row["x"]), []).append(row[column])
        if not found or min(map(len, found.values())) < 2:
            raise Missing("it needs two seeds")
        return max(100 * (max(values) / min(values) - 1) for values in found.values())


def judge(claims: Sequence[Claim], figure: str, table: Table) -> list[dict[str, str]]:
    """A row for each claim about a figure."""
    rows = []
    for claim in claims:
        if claim.figure == figure:
            try:
                found = claim.judge(table)
            except Missing as error:
                found = Judgement(UNKNOWN, "", str(error))
            rows.append({
                "figure": figure, "place": claim.place, "claim": claim.text, "verdict": found.verdict,
                "measured": found.measured, "why": found.why,
            })  # fmt: skip
    return rows


def verdict(held: Sequence[bool]) -> str:
    return HOLDS if all(held) else PARTLY if any(held) else FAILS
