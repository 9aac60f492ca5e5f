"""`mom paper`: what the papers measured, measured again with the broker's own ordering cores, in virtual time."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin.cli.output import output_options, show
from mombroker.admin.cli.progress import Bar, duration
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from mombroker.sim.papers.base import Figure, Paper, Point, Row, Table
    from mombroker.sim.papers.sweep import Cache

CACHE = "cache"  # in the folder of the results


@click.group()
def paper() -> None:
    """Measure again what the papers measured: list, run.

    The same ordering cores as on the bus run under virtual time, in the network and under the load of the paper. Each
    claim of the paper gets a verdict: it holds, holds in part, does not hold, or cannot be judged by what was run.

    \b
    Example:
      mom paper list
      mom paper run ks --figure 3 --quick
    """


@paper.command("list")
@output_options
def list_(output: str, columns: str) -> None:
    """The papers that can be run, and their figures.

    \b
    Example:
      mom paper list
    """
    from mombroker.sim.papers import sweep

    rows = [
        {
            "paper": each.name, "number": each.number, "figure": name, "shows": figure.title,
            "claims": sum(claim.figure == name for claim in each.claims),
        }
        for each in map(sweep.load, sweep.PAPERS)
        for name, figure in each.figures.items()
    ]  # fmt: skip
    show(rows, output, columns)


@paper.command()
@click.argument("name", metavar="PAPER")
@click.option("--figure", "figures", default="", help="Figures, with commas between. [default: all]")
@click.option(
    "--quick/--full", "quick", default=True, show_default=True,
    help="Few points and short runs, or all as in the paper: that takes long, and says so before it begins.",
)  # fmt: skip
@click.option("--seeds", type=click.IntRange(1), default=None, help="Runs of each point. [default: 2 to 5, by paper]")
@click.option("--reading", default="", help="Other readings of the paper than the adopted, with commas between.")
@click.option("--processes", type=click.IntRange(1), default=None, help="Runs at a time. [default: one for each CPU]")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default="mom-papers", show_default=True,
    help="Where results go: CSV, PNG (with matplotlib), and every point that was run, so that none is run twice.",
)  # fmt: skip
@output_options
def run(
    name: str,
    figures: str,
    quick: bool,
    seeds: int | None,
    reading: str,
    processes: int | None,
    folder: Path,
    output: str,
    columns: str,
) -> None:
    """Run the figures of a paper, and judge its claims.

    Every point that is done is kept: after Ctrl-C the same command goes on where it stopped.

    \b
    Example:
      mom paper run ks --figure 3 --quick
      mom paper run ks --full --processes 2
    """
    from mombroker.sim.papers import base, sweep

    chosen = sweep.load(_known("paper", name, sweep.PAPERS))
    wanted = [_known("figure", each, [*chosen.figures]) for each in _words(figures)] or [*chosen.figures]
    changed: base.Params = {}
    for each in _words(reading):
        changed |= chosen.readings[_known("reading", each, [*chosen.readings])]
    points = sweep.points(chosen, wanted, not quick, seeds or chosen.seeds, changed)
    kept = sweep.Cache(folder / CACHE, name)
    rows = _run(chosen, points, kept, processes or os.cpu_count() or 1)
    table = base.Table(rows)
    stem = "-".join([name, "quick" if quick else "full", *_words(reading)])
    _write(folder, stem, chosen, wanted, table)
    claims = [claim for figure in wanted for claim in base.judge(chosen.claims, figure, table)]
    show(claims, output, columns)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _known(what: str, word: str, known: Sequence[str]) -> str:
    if word not in known:
        raise click.UsageError(f"there is no {what} {word!r}; there are {', '.join(known)}")
    return word


def _run(chosen: "Paper", points: "Sequence[Point]", kept: "Cache", processes: int) -> "list[Row]":
    from mombroker.sim.papers import sweep

    left = sweep.missing(chosen, points, kept)
    seconds = sum(map(chosen.cost, left))
    there = len({str(kept.path(point.params)) for point in points}) - len(left)
    click.echo(f"{len(left)} runs, about {duration(seconds)} of CPU time; {there} are there already", err=True)
    with Bar("runs") as bar:
        try:
            return sweep.run(chosen, points, kept, processes, bar.at)
        except KeyboardInterrupt:
            bar.close()
            done = len(left) - len(sweep.missing(chosen, points, kept))
            raise MomError(
                f"stopped; {done} of {len(left)} runs are kept: the same command goes on from here"
            ) from None


def _write(folder: Path, stem: str, chosen: "Paper", figures: Sequence[str], table: "Table") -> None:
    """CSV of all rows of a figure, and its picture."""
    from mombroker.sim.papers import plot

    pictures = True
    for figure in figures:
        rows = [row for row in table.rows if row["figure"] == figure]
        path = folder / f"{stem}-figure-{figure}.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        click.echo(f"wrote {path}", err=True)
        if pictures:
            try:
                path = path.with_suffix(".png")
                plot.draw(path, figure, chosen.figures[figure], table, note(stem, chosen.figures[figure], rows))
                click.echo(f"wrote {path}", err=True)
            except MomError as error:
                pictures = False
                click.echo(f"mom: {error}", err=True)


def note(stem: str, figure: "Figure", rows: "Sequence[Row]") -> str:
    """How much was run."""
    runs = len({row["seed"] for row in rows})
    return f"{stem}: {'one run' if runs == 1 else f'{runs} runs'} a point" + (
        f" of {rows[0][figure.unit]} {figure.unit}" if figure.unit else ""
    )
