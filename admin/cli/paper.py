"""`mom paper`: what the papers measured, measured again with the broker's own ordering cores, in virtual time."""

import atexit
import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

import mombroker
from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, choose, output_options, show, whole, write
from mombroker.admin.cli.progress import Bar, duration
from mombroker.core.errors import MomError
from mombroker.core.words import many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mombroker.lab.papers.base import Figure, Paper, Point, Row, Table
    from mombroker.lab.papers.sweep import Cache

LOCAL = "local[*]"  # what Spark calls this machine, with all its cores
ADOPTED = "adopted"  # the reading of a paper, where no other is asked for
CACHE, LIVE = "cache", "pingpong.json"  # in the folder of the results
# What papers say that their runs cost was fitted where C of `bench.figures` was so many seconds. It is looked at so
# often, for some hundredths of a second, before the cost is told.
FITTED_C, LOOKS = 0.4e-6, 20


@click.group(cls=Group)
def paper() -> None:
    """Measure again what the papers measured: list, run, spread, report.

    The same ordering cores as on the bus run under virtual time, in the network and under the load of the paper. Each
    claim that is listed gets a verdict: it holds, holds in part, does not hold, or cannot be judged by what was run.

    \b
    Example:
      mom paper list
      mom paper run ks --figure 3 --quick
      mom paper report
    """


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """How much is run, where, and where the results go."""
    for option in (
        click.option(
            "--folder",
            type=Target(folder=True),
            default="mom-papers",
            show_default=True,
            help="Where results go: CSV, PNG (with matplotlib), and every point that was run, so that none is run "
            "twice.",
        ),
        click.option(
            "--spark",
            is_flag=False,
            flag_value=LOCAL,
            default=None,
            metavar="[MASTER]",
            help=f"Run the points on Spark, on this master. [without a value: {LOCAL}]",
        ),
        click.option(
            "--processes", type=click.IntRange(1), default=None, help="Runs at a time. [default: one for each CPU]"
        ),
        click.option(
            "--quick/--full",
            "quick",
            default=True,
            show_default=True,
            help="Few points and short runs, or all as in the paper: that takes long, and says so before it begins.",
        ),
    ):
        command = option(command)
    return command


@paper.command("list")
@output_options
def list_(output: str, columns: str) -> None:
    """The papers that can be run, their figures, and readings of the paper other than the adopted.

    \b
    Example:
      mom paper list
    """
    from mombroker.lab.papers import sweep

    rows = [
        {
            "paper": each.name, "number": each.number, "figure": name, "shows": figure.title,
            "claims": sum(claim.figure == name for claim in each.claims), "readings": ", ".join(each.readings),
        }
        for each in map(sweep.load, sweep.PAPERS)
        for name, figure in each.figures.items()
    ]  # fmt: skip
    show(rows, output, columns)


@paper.command()
@click.argument("name", metavar="PAPER")
@click.option("--figure", "figures", default=None, help="Figures, with commas between. [default: all]")
@click.option("--seeds", type=click.IntRange(1), default=None, help="Runs of each point. [default: 2 to 5, by paper]")
@click.option(
    "--reading",
    default=None,
    help="Other readings than the adopted, with commas between; they are in `mom paper list`.",
)
@sweep_options
@output_options
def run(
    name: str,
    figures: str | None,
    quick: bool,
    seeds: int | None,
    reading: str | None,
    processes: int | None,
    spark: str | None,
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
      mom paper run ks --full --spark spark://head:7077
    """
    from mombroker.lab.papers import base, summary, sweep

    choose(columns, list(base.JUDGED))
    chosen = sweep.load(_known("paper", name, sweep.PAPERS))
    wanted = [_known("figure", each, [*chosen.figures]) for each in _words(figures)] or [*chosen.figures]
    changed: base.Params = {}
    readings = _words(reading)
    for each in readings:
        changed |= chosen.readings[_known("reading", each, [*chosen.readings])]
    points = sweep.points(chosen, wanted, not quick, seeds or chosen.seeds, changed)
    kept = sweep.Cache(folder / CACHE, name)
    drawn = sweep.drawn(chosen, wanted, not quick, changed)
    table = base.Table(_run(chosen, points, kept, processes, spark), drawn)
    usual = seeds in (None, chosen.seeds)
    stem = "-".join([name, "quick" if quick else "full", *readings, *([] if usual else [f"seeds-{seeds}"])])
    hint = _hint()
    _write(folder, stem, chosen, wanted, table, not hint, reading="+".join(readings) or ADOPTED)
    claims = [claim for figure in wanted for claim in base.judge(chosen.claims, figure, table)]
    values = {"values": summary.values(chosen, table, wanted), "claims": summary.claims(claims)}
    which = f"-figure-{'-'.join(wanted)}" if figures else ""
    write(folder / f"{stem}{which}.json", json.dumps({name: values}) + "\n")
    show(claims, output, columns)
    if hint:
        click.echo(hint, err=True)


@paper.command()
@sweep_options
@click.option(
    "--to", "target", type=Target("html", "htm"), default=None,
    help="The page; its values are written beside it, as JSON. "
    "[default: report-quick.html or report-full.html among the results]",
)  # fmt: skip
def report(quick: bool, processes: int | None, spark: str | None, folder: Path, target: Path | None) -> None:
    """Run all papers, and write one HTML page: every figure, and every claim with its verdict.

    Pictures need matplotlib: pip install 'mombroker[plots]'; without it the page has none. After Ctrl-C the same
    command goes on where it stopped. The page tells of live round trips, too, if the folder has a pingpong.json, made
    by mom bench pingpong -o json.

    \b
    Example:
      mom paper report
      mom paper report --full --processes 8
    """
    from mombroker.admin.bench import pingpong
    from mombroker.lab.papers import base, summary, sweep
    from mombroker.lab.papers.report import Chapter, page

    kind = "quick" if quick else "full"
    target = target or folder / f"report-{kind}.html"
    values_to = None if target.exists() and not target.is_file() else target.with_suffix(".json")  # no file by a device
    if values_to and values_to.exists():
        Target().convert(str(values_to), None, None)
    live = pingpong.live(folder / LIVE) if (folder / LIVE).exists() else {}
    work = []
    for chosen in map(sweep.load, sweep.PAPERS):
        points = sweep.points(chosen, [*chosen.figures], not quick, chosen.seeds, {})
        work.append((chosen, points, sweep.Cache(folder / CACHE, chosen.name)))
    click.echo(f"{many(len(work), 'paper')}: {_told([_costs(*each) for each in work], processes, spark)}", err=True)
    chapters, values, hint = [], {}, _hint()
    for chosen, points, kept in work:
        click.echo(f"{chosen.number} {chosen.title}", err=True)
        table = base.Table(_run(chosen, points, kept, processes, spark))
        pictures = _write(folder, f"{chosen.name}-{kind}", chosen, [*chosen.figures], table, not hint, quiet=True)
        claims = [claim for figure in chosen.figures for claim in base.judge(chosen.claims, figure, table)]
        took = {str(kept.path(point.params)): row["cpu_s"] for point, row in zip(points, table.rows, strict=True)}
        note = f"{len(took)} runs, which took {duration(sum(took.values()))} of CPU time"
        values[chosen.name] = {
            "values": summary.values(chosen, table), "claims": summary.claims(claims),
            "sample": summary.sample(chosen, points, table.rows),
        }  # fmt: skip
        images = {name: path.read_bytes() for name, path in pictures.items()}
        chapters.append(Chapter(chosen, claims, images, note, live if chosen.name == "domains" else {}))
    said = f"{kind.capitalize()} runs of mombroker {mombroker.__version__}, with the ordering cores of the bus."
    write(target, page(chapters, "The papers, measured again", said))
    if values_to:
        write(values_to, json.dumps(values) + "\n")
    if hint:
        click.echo(hint, err=True)


@paper.command()
@click.argument("name", metavar="PAPER")
@click.option("--figure", "figures", default=None, help="Figures, with commas between. [default: all]")
@click.option("--runs", type=click.IntRange(1), default=None, help="In each half. [default: half of the usual]")
@click.option(
    "--above", type=options.Number(0), default=5.0, show_default=True,
    help="Show what differs by more: per cent of the mean of both halves.",
)  # fmt: skip
@sweep_options
@output_options
def spread(
    name: str, figures: str | None, runs: int | None, above: float, quick: bool, processes: int | None,
    spark: str | None, folder: Path, output: str, columns: str,
) -> None:  # fmt: skip
    """Run each point of a paper twice, from different seeds, and show where the two halves differ.

    What the report has run is not run again.

    \b
    Example:
      mom paper spread ks
      mom paper spread daisy --figure 6 --runs 5
    """
    from mombroker.lab.papers import base, sweep

    choose(columns, list(base.HALVES))
    chosen = sweep.load(_known("paper", name, sweep.PAPERS))
    wanted = [_known("figure", each, [*chosen.figures]) for each in _words(figures)] or [*chosen.figures]
    drawn = {figure for figure, _ in sweep.drawn(chosen, wanted, not quick, {})}
    sure = [figure for figure in wanted if figure not in drawn]
    if sure:
        told = f"nothing in {', '.join(sure)} of {name} is drawn by chance: other seeds give the same"
        if sure == wanted:
            raise MomError(f"{told}, so there are no halves to compare")
        click.echo(told, err=True)
    wanted = [figure for figure in wanted if figure in drawn]
    runs = runs or max(chosen.seeds // 2, 1)
    points = sweep.points(chosen, wanted, not quick, 2 * runs, {})
    table = base.Table(_run(chosen, points, sweep.Cache(folder / CACHE, name), processes, spark))
    rows = [
        row
        for figure in wanted
        for column in chosen.figures[figure].columns
        for row in base.halves(table, figure, column, runs)
    ]
    apart = sorted((row for row in rows if row["off_pct"] > above), key=lambda row: -row["off_pct"])
    show([row | {key: float(f"{row[key]:.4g}") for key in ("one", "two", "off_pct")} for row in apart], output, columns)
    click.echo(f"{len(apart)} of {len(rows)} values are apart by more than {above:g} %", err=True)


def _words(text: str | None) -> list[str]:
    """Of an option, each once."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise click.UsageError(f"{text!r} names nothing; leave the option out for the default")
    return [*dict.fromkeys(words)]


def _known(what: str, word: str, known: Sequence[str]) -> str:
    if word not in known:
        others = f"there are {', '.join(known)}" if known else "there are none but the adopted"
        raise click.UsageError(f"there is no {what} {word!r}; {others}")
    return word


def _costs(chosen: "Paper", points: "Sequence[Point]", kept: "Cache") -> tuple[list[float], int]:
    """Of each run that is missing; and how many are there."""
    from mombroker.lab.papers import sweep

    left = sweep.missing(chosen, points, kept)
    return [*map(chosen.cost, left)], len({str(kept.path(point.params)) for point in points}) - len(left)


def _told(sweeps: Sequence[tuple[Sequence[float], int]], processes: int | None, spark: str | None) -> str:
    """How much there is to run, one sweep after the other, and how long it will take on this machine as it is now."""
    from mombroker.admin.bench.figures import pace

    runs, there = sum(len(costs) for costs, _ in sweeps), sum(there for _, there in sweeps)
    if not runs:
        return f"0 runs; {there} are there already"
    slow = median(pace() for _ in range(LOOKS)) / FITTED_C
    took = f"{duration(slow * sum(sum(costs) for costs, _ in sweeps))} of CPU time"
    if spark is None:
        cpus = os.cpu_count() or 1
        beside = min(processes or cpus, max(len(costs) for costs, _ in sweeps))
        wall = sum(max(sum(costs) / min(beside, cpus), max(costs)) for costs, _ in sweeps if costs)
        by = "one process" if beside == 1 else f"{beside} processes"
        took += f", {duration(slow * wall)} by {by}"
    return f"{runs} runs, about {took}; {there} are there already"


def _run(
    chosen: "Paper", points: "Sequence[Point]", kept: "Cache", processes: int | None, spark: str | None
) -> "list[Row]":
    from concurrent.futures import BrokenExecutor

    from mombroker.lab.papers import sweep

    left = sweep.missing(chosen, points, kept)
    click.echo(_told([_costs(chosen, points, kept)], processes, spark), err=True)
    given_up: tuple[type[BaseException], ...] = (KeyboardInterrupt, BrokenExecutor)
    found = None
    if spark is not None and left:
        from mombroker.admin.analysis.session import session

        found = session(spark)
        from py4j.protocol import Py4JError

        atexit.register(_end, found)
        given_up += (Py4JError,)
    with Bar("runs") as bar:
        try:
            return sweep.run(chosen, points, kept, processes or os.cpu_count() or 1, bar.at, found)
        except given_up as error:
            bar.close()
            done = len(left) - len(sweep.missing(chosen, points, kept))
            why = "Spark has given up, and says above why"
            if isinstance(error, KeyboardInterrupt):
                why = "stopped"
            elif isinstance(error, BrokenExecutor):
                why = "a process was killed that did the runs"
            raise MomError(f"{why}; {done} of {len(left)} runs are kept: the same command goes on from here") from None


def _end(spark: "SparkSession") -> None:
    """Quietly: the parts of a cluster in one process tell of each other's end by stacks of Java."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # Spark itself has ended before
        spark.sparkContext.setLogLevel("OFF")
        spark.stop()


def _write(
    folder: Path, stem: str, chosen: "Paper", figures: Sequence[str], table: "Table", draw: bool,
    quiet: bool = False, reading: str = ADOPTED,
) -> dict[str, Path]:  # fmt: skip
    """CSV of all runs of a figure, each with its paper and the reading, CSV of its values with how sure they are, and
    with `draw` its picture. The pictures by figure."""
    from mombroker.lab.papers import base, plot

    pictures: dict[str, Path] = {}
    for figure in figures:
        rows = [row for row in table.rows if row["figure"] == figure]
        named = [{"paper": chosen.name, "reading": reading, **row} for row in rows]
        path = folder / f"{stem}-figure-{figure}.csv"
        written = [path, path.with_name(f"{path.stem}-means.csv")]
        _write_rows(path, named)
        _write_rows(written[1], [{"paper": chosen.name, "reading": reading, **row}
                                 for row in base.means(table, figure, chosen.figures[figure].columns)])  # fmt: skip
        if draw:
            pictures[figure] = picture = path.with_suffix(".png")
            with whole(picture) as draft:
                plot.draw(draft, figure, chosen.figures[figure], table, note(stem, chosen.figures[figure], rows))
            written.append(picture)
        for each in [] if quiet else written:
            click.echo(f"wrote {each}", err=True)
    return pictures


def _hint() -> str:
    """Why there will be no pictures, and what to do; empty if there will be."""
    from mombroker.lab.papers import plot

    try:
        plot.need()
    except MomError as error:
        return f"mom: {error}"
    return ""


def _write_rows(path: Path, rows: "Sequence[Row]") -> None:
    with whole(path) as draft, draft.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)


def note(stem: str, figure: "Figure", rows: "Sequence[Row]") -> str:
    """How much was run."""
    counts = Counter((row["setting"], row["x"]) for row in rows).values()
    least, runs = min(counts), max(counts)
    sizes = sorted({row[figure.unit] for row in rows}) if figure.unit else []
    size = f" of {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} {figure.unit}" if sizes else ""
    many = "one run" if runs == 1 else f"{runs} runs" if least == runs else f"{least} to {runs} runs"
    return f"{stem}: {many} a point{size}"
