"""The values of a report in few bytes: docs/papers.md is held against them, and the code against some of its runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from mombroker.lab.papers.base import CPU, JUDGED, Paper, Point, Row, Table, means

DIGITS = 4  # of a value


def values(paper: Paper, table: Table, figures: Sequence[str] = ()) -> dict[str, Any]:
    """figure -> column -> setting -> x -> [mean, standard error (None: not known), runs], of what was run."""
    found: dict[str, Any] = {}
    for name in figures or paper.figures:
        for row in means(table, name, paper.figures[name].columns):
            curve = found.setdefault(name, {}).setdefault(row["column"], {}).setdefault(row["setting"], {})
            curve[f"{row['x']:g}"] = [_short(row["mean"]), _short(row["standard_error"]), row["runs"]]
    return found


def claims(judged: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Of rows of `base.judge` what the document tells."""
    return [{column: row[column] for column in JUDGED if column != "place"} for row in judged]


def sample(paper: Paper, points: Sequence[Point], rows: Sequence[Row]) -> dict[str, Any]:
    """The cheapest run of a paper that its seed decides, with its parameters and all that it measured."""
    pairs = [(point.params, row) for point, row in zip(points, rows, strict=True)]
    decided = [pair for pair in pairs if not any(each.startswith(CPU) and each != "cpu_s" for each in pair[1])]
    params, row = min(decided, key=lambda pair: paper.cost(pair[0]))
    known = {"figure", "setting", "x", "cpu_s", *params}
    return {"params": params, "result": {column: value for column, value in row.items() if column not in known}}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
