"""A figure of a paper as a picture: the paper's axes, every curve, a legend, and what its settings are."""

import math
import textwrap
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mombroker.core.errors import MomError
from mombroker.lab.papers.base import Figure, Table

LINES = ("-o", "--s", ":^", "-.d")  # one for each column; where there is one column, for each curve, as some coincide
WIDE, HIGH, DPI = 6.2, 4.6, 100
COLOURS = 128
COLUMNS = 2  # panels beside each other
APART = 0.07  # of the axis, between the middles of two numbers below it, at least
DIGIT, BLANK = 0.0165, 0.02  # of the axis: a digit of these, and what is left between two
ROUND = (0, 1, 2, 5)  # times a power of ten: numbers that people look for
SMALL, LINE, LETTERS = 7, 0.14, 15  # small print: points, inches of a line, letters an inch
NO_BREAK = "\u00a0"


def need() -> None:
    """Raises MomError where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise MomError("matplotlib is not installed, so there is no picture: pip install 'mombroker[plots]'")


def draw(path: Path, name: str, figure: Figure, table: Table, note: str) -> None:
    """Raises MomError where matplotlib is not installed."""
    need()
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn(name, figure, table, note).savefig(path)
    with Image.open(path) as picture:  # a palette halves the file
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def drawn(name: str, figure: Figure, table: Table, note: str) -> Any:
    """As a figure of matplotlib."""
    from matplotlib.figure import Figure as Canvas

    across = min(len(figure.panels), COLUMNS)
    down = -(-len(figure.panels) // across)
    fig = Canvas(figsize=(WIDE * across, HIGH * down), dpi=DPI)
    grid = fig.subplots(down, across, squeeze=False)
    for axes, panel in zip(grid.flat, figure.panels, strict=True):
        for number, setting in enumerate(table.settings(name)):
            if setting in panel.without:
                continue
            lines = LINES if len(panel.lines) > 1 else LINES[number % len(LINES) :]
            for (column, label), line in zip(panel.lines.items(), lines, strict=False):
                points = table.measured(name, setting, column)
                means, bars = [value.mean for value in points.values()], [value.of for value in points.values()]
                sure = any(bar > 0 for bar in bars)  # one run of each point: no bars
                axes.errorbar(
                    [*points], means, bars if sure else None, fmt=line, color=f"C{number}", markersize=4,
                    capsize=3 if sure else 0, label=f"{setting} {label}".strip(),
                )  # fmt: skip
        axes.set(xlabel=figure.x, ylabel=panel.y)
        if panel.log_y:
            axes.set_yscale("log")
            _plain(axes.yaxis)
        else:
            axes.update_datalim([(axes.dataLim.x0, 0)])  # so that room is left above a curve that is level, too
            axes.autoscale_view(scalex=False)
            axes.set_ylim(0, None)
        if figure.log_x:
            axes.set_xscale("log")
            _plain(axes.xaxis)
        axes.set_xticks(_ticks({row["x"] for row in table.rows if row["figure"] == name}, figure.log_x))
        axes.grid(alpha=0.3)
    fig.suptitle(
        "\n".join(filter(None, [f"Figure {name}. {figure.title}" if name.isdigit() else figure.title, note])),
        fontsize=10,
    )
    handles, labels = grid[0][0].get_legend_handles_labels()
    columns = min(4, max(1, int(across * WIDE * 12 // max(map(len, labels)))), len(labels))
    rows = -(-len(labels) // columns)
    told = _wrapped(figure.curves, int(across * WIDE * LETTERS))
    below = LINE * len(told) / (HIGH * down)
    fig.text(0.5, 0.3 * below, "\n".join(told), fontsize=SMALL, ha="center", va="bottom")
    fig.legend(
        handles, labels, fontsize=8, ncols=columns, loc="lower center", frameon=False, bbox_to_anchor=(0.5, below)
    )  # fmt: skip
    fig.set_layout_engine("tight", w_pad=2, rect=(0, below + (0.1 + 0.2 * rows) / (HIGH * down), 1, 1))
    return fig


def _wrapped(pieces: Sequence[str], letters: int) -> list[str]:
    """Lines of whole pieces, where they are not longer than a line."""
    kept = "; ".join(piece.replace(" ", NO_BREAK) for piece in pieces)
    return [line.replace(NO_BREAK, " ") for line in textwrap.wrap(kept, letters)]


def _plain(axis: Any) -> None:
    """Numbers as they are, at 1, 2 and 5 times each power of ten: an axis may have one power, or none."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _number(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _ticks(xs: Collection[float], log: bool = False) -> list[float]:
    """The points that were run, but for those too near to others: round ones go first, then the lesser."""
    found: list[float] = []
    place = math.log if log else float
    whole = place(max(xs)) - place(min(xs))

    def apart(x: float, other: float) -> bool:
        least = max(APART, BLANK + DIGIT * (len(_number(x)) + len(_number(other))) / 2)
        return abs(place(x) - place(other)) >= least * whole

    for x in sorted(xs, key=lambda x: (not _round(x), x)):
        if all(apart(x, other) for other in found):
            found.append(x)
    return sorted(found)


def _number(x: float) -> str:
    return f"{x:,.10g}"


def _round(x: float) -> bool:
    return float(f"{x:e}".partition("e")[0]) in ROUND
