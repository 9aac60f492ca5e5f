"""`mom analyze`: what ordering has cost, from the servers' logs, and how that has changed."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from mombroker import store
from mombroker.admin.analysis import extra
from mombroker.admin.cli import books, options
from mombroker.admin.cli.check import absent, at_hand, partly
from mombroker.admin.cli.group import DefaultGroup
from mombroker.admin.cli.output import Target, echo_json, form_option, show, show_one, write
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mombroker.core.topology import Topology

TABLES = ("domains", "orderings", "servers", "waits", "anomalies", "clocks", "findings", "hot")  # shown without -o json
LONG = ("waits", "findings", "hot")  # of which the first TOP are shown
TOP = 20
NO_ADVICE: dict[str, Any] = {  # and why, as its verdict
    "worthwhile": False, "gain_pct": None, "fit_pct": None, "options": [], "model": [], "changes": [], "remarks": [],
    "proposed": {},
}  # fmt: skip
KINDS = "an export, a topology file, a data folder, or a folder of data folders"


class Source(click.ParamType[str | Path]):
    """A path, or the address of an export on a file system of Spark's."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | Path:
        return value if "://" in str(value) else Path(value)


SOURCE = click.argument("source", type=Source(), envvar="MOM_FILE", default=options.DEFAULT_FILE)
MASTER = click.option(
    "--master", default="", help="Where Spark runs, as it takes it. [default: this machine, or as spark-submit says]"
)
MEMORY = click.option("--memory", default="1g", show_default=True, help="Of Spark's driver.")
SINCE = click.option(
    "--since", type=options.Time(), help="Messages sent then or later, as 2026-03-01T12:00:00, UTC. [default: all]"
)
UNTIL = click.option("--until", type=options.Time(), help="Messages sent before. [default: all]")
TOPOLOGY = click.option(
    "-f", "--file", "file", type=click.Path(path_type=Path),
    help="The topology file, to name members and silent servers; not needed where SOURCE is one.",
)  # fmt: skip


@click.group(cls=DefaultGroup, default="report")
def analyze() -> None:
    """What ordering has cost, from the logs: report, trend, compare.

    Without one of these words it is `report`: `mom analyze exported` is `mom analyze report exported`.
    """


analyze.add_command(books.trend)
analyze.add_command(books.compare)


@analyze.command()
@SOURCE
@TOPOLOGY
@click.option("--html", type=Target("html", "htm"), help="Write the report as one page, with pictures.")
@click.option("--advise", is_flag=True, help="With advice, as `mom topology advise` gives it; needs a topology file.")
@click.option("--check", is_flag=True, help="With what `mom check` finds, by link; needs a topology file.")
@books.PRICE
@SINCE
@UNTIL
@MASTER
@MEMORY
@form_option("table")
def report(
    source: str | Path,
    file: Path | None,
    html: Path | None,
    advise: bool,
    check: bool,
    price: float | None,
    since: datetime | None,
    until: datetime | None,
    master: str,
    memory: str,
    output: str,
) -> None:
    """Tell from the logs what ordering has cost: bytes, disk, time, and who waited for whom.

    SOURCE is an export (see `mom log export`), also by an address that Spark can read, a topology file, a data folder,
    or a folder of data folders; the servers may run. Spark does the work, on this machine unless --master names
    another. Of a message that --since and --until choose all records are read, also those that were written later.

    \b
    Example:
      mom analyze report bus.toml
      mom analyze exported --since 2026-03-01 --until 2026-03-02
      mom analyze exported --file bus.toml --html report.html
      mom analyze s3a://bucket/exported
      mom analyze exported -o json > costs.json
    """
    reports, page = extra("analysis.report"), extra("analysis.page")
    if file and click.get_current_context().get_parameter_source("source") is not ParameterSource.COMMANDLINE:
        source = file
    topology = topology_of(source, file)
    if advise and topology is None:
        raise click.UsageError("advice needs the topology: name its file by --file")
    if check and topology is None:
        raise click.UsageError("a check needs the topology: name its file by --file")
    if check and isinstance(source, str):
        raise click.UsageError(f"a check needs an export on this machine: copy {source}")
    if check and (since or until):
        raise click.UsageError("a check needs the whole log: leave --since and --until away")
    if advise and topology is not None:
        from mombroker.admin.topology import advise as advising
    with exported(source) as folder:
        holes = lacking(folder)
        log = chosen(folder, master, memory, since, until)
        found = None
        if check and topology is not None and isinstance(folder, Path):
            with Bar("log records") as bar:
                found = extra("audit.export").audit(topology, folder, at_hand(topology), progress=bar.at)
            for sentence in [*absent(found), *([partly(found)] if found.unjudged else [])]:
                click.echo(f"mom: {sentence}", err=True)
        figures, load = reports.analyse(log, topology, found, messages=reports.SAMPLE if advise else 0)
        figures["holes"] = holes
        if found and topology is not None and isinstance(folder, Path):
            extra("audit.chains").explain(figures["findings"], topology, folder)
    for row in [figures["totals"], *figures["domains"], *figures["links"]] if price is not None else ():
        row["price"] = None if row["wire_bytes"] is None else round(row["wire_bytes"] / books.GB * price, 6)
    if advise and topology is not None:
        try:
            figures["advice"] = advising.advise(topology, load).as_dict()
        except MomError as error:  # the rest of the report stands
            figures["advice"] = {**NO_ADVICE, "verdict": str(error)}
    if html:
        write(html, page.page(figures, topology, figures.get("advice")))
    if output == "json":
        echo_json(figures)
        return
    show_one(figures["totals"], output)
    tables = {name: figures[name] for name in TABLES[:2]} | percentiles(figures)
    notes = {
        "time of a copy": extra("analysis.figures").TIMES, "time by domain": "of crossings of links",
        "time by hops": "of copies",
    }  # fmt: skip
    for name, rows in (tables | {name: figures[name] for name in TABLES}).items():
        if rows:
            click.echo(f"\n{name}")
            most = TOP if name in LONG else len(rows)
            show(
                [{key: row[key] for key in row if key != "causes"} for row in rows[:most]],
                output,
                "",
                BRIEF.get(name, ""),
            )
            for row in rows[:most] if name == "findings" else ():
                click.echo(f"- {page.sentence(row)}")
            if name in notes:
                click.echo(notes[name])
            if len(rows) > most:
                click.echo(f"and {len(rows) - most} more: -o json has all")
    if advise:
        click.echo(f"\nadvice\n{figures['advice']['verdict']}")


def percentiles(figures: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Of the parts of the time in all and by domain, and of the whole way by hops."""
    by_domain = [
        {
            "domain": row["domain"], "part": part, "mean_ms": row[f"{part}_ms"],
            **{f"{each}_ms": row[f"{part}_{each}_ms"] for each in ("p50", "p95", "p99")},
        }
        for row in figures["domains"]
        for part in ("store", "link", "hold")
    ]  # fmt: skip
    return {
        "time of a copy": figures["latency"]["parts"] + figures["latency"]["whole"],
        "time by domain": by_domain,
        "time by hops": figures["latency"]["by_hops"],
    }


BRIEF = {
    "domains": "domain,ordering,members,packets,control_bytes,control_pct,wire_bytes,ints_per_packet,formula_ints,"
    "store_ms,link_ms,hold_ms,held",
    "servers": "server,sent,forwarded,reactions,control_bytes,control_pct,commits,messages_per_commit,rows_per_message,"
    "bytes_per_message,commit_ms",
}


def topology_of(source: str | Path, file: Path | None) -> "Topology | None":
    """The one that is named; else SOURCE, if that is a file."""
    if file is not None:
        return options.load(file)
    if isinstance(source, str):
        return None
    source = options.source(source, KINDS)
    return None if source.is_dir() else options.load(source)


@contextmanager
def records(
    sources: Sequence[str | Path], master: str, memory: str, since: datetime | None, until: datetime | None
) -> "Iterator[DataFrame]":
    """The log as a DataFrame: that of one source, or of several together, which may not have records of one store."""
    with ExitStack() as stack:
        folders = [stack.enter_context(exported(source)) for source in sources]
        for folder in folders:
            lacking(folder)
        yield chosen(folders if len(folders) > 1 else folders[0], master, memory, since, until)


def chosen(
    folder: str | Path | Sequence[str | Path],
    master: str,
    memory: str,
    since: datetime | None,
    until: datetime | None,
) -> "DataFrame":
    """The log of an export, or of several; of a time, the messages that were sent then. Raises MomError if there are
    none."""
    one = isinstance(folder, str | Path)
    folders = [folder] if isinstance(folder, str | Path) else folder
    here = [each for each in folders if isinstance(each, Path)]
    count = sum(file.records for each in here for file in extra("analysis.files").chosen(each))
    spark = extra("analysis.session").session(master, memory, count)
    windows, source = extra("analysis.windows"), extra("analysis.source")
    if not since and not until:
        return cast("DataFrame", source.read(spark, folder))
    # Every figure reads it: found once, it is kept.
    found = (
        windows.read(spark, folder, since, until) if one else windows.within(source.read(spark, folder), since, until)
    )
    found = found.persist()
    if not (records := found.count()):
        raise MomError("the log has nothing that was sent in this time; see --since and --until")
    return cast("DataFrame", extra("analysis.partitions").kept(spark, found, records))


@contextmanager
def exported(source: str | Path) -> Iterator[str | Path]:
    """An export of the log. What is none yet is exported to a folder that goes away: one pass over the stores is
    cheaper than one for each table."""
    files = extra("analysis.files")
    if isinstance(source, str):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="mombroker-log-") as folder:
        source = options.source(source, KINDS)
        if not (source.is_dir() and files.is_export(source)):
            places = extra("analysis.stores").find(source, None if source.is_dir() else options.load(source))
            readers = {name: store.read(data) for name, data in places.items()}
            with Bar("log records") as bar:
                for _ in extra("analysis.export").export(readers, Path(folder), bar.at):
                    pass
            for reader in readers.values():
                reader.close()
            if not files.is_export(Path(folder)):
                raise MomError(f"the logs of {source} are empty")
            source = Path(folder)
        try:
            yield source
        except extra("analysis.session").errors() as error:
            for file in files.chosen(source):
                if file.path.name in str(error):  # it may be damaged, and then this has a remedy
                    files.verify(file)
            raise


def lacking(folder: str | Path) -> list[str]:
    """A sentence on each run of records that an export lacks; they are told, and the command fails at its end. Of one
    that is not on this machine nothing is known."""
    holes: list[str] = [] if isinstance(folder, str) else extra("analysis.files").holes(folder)
    for sentence in holes:
        click.echo(f"mom: {sentence}", err=True)
    if holes:
        options.fail_at_end("the export lacks records: this is not all")
    return holes
