"""`mom log`: the record of what every message did, read from the stores on this machine."""

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker import store
from mombroker.admin.analysis import extra
from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, echo_json, output_options, show, text, write
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError, StoreError, StoreFailed
from mombroker.core.requests import DONE, LATER
from mombroker.core.trace import FIELDS
from mombroker.core.words import many
from mombroker.net.exit_codes import ExitCode
from mombroker.store.reader import SqliteReader

if TYPE_CHECKING:
    from mombroker.core.topology import Topology
    from mombroker.core.trace import Record

COLUMNS = ("server", "seq", *FIELDS, "time", "message")
BRIEF = ("time", "server", "kind", "message", "agent", "dests", "domain", "peer", "out", "missing", "detail")
ADMIN = "admin"  # the kind of the records of changes
TIMES = ("sent", "received", "delivered", "done")
POLL_SECONDS = 0.3
POST_SECONDS = 30.0
PAGE = 1000


@click.group(cls=Group)
def log() -> None:
    """The record of what every message did: tail, diagram, shiviz, trace, audit, export, compact."""


@log.command()
@options.file_option
@options.server_option("Only the log of this server; without it those of all, by time.")
@click.option("-n", "--lines", default=20, show_default=True, help="So many records of each log first.")
@click.option("-F", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("-o", "--output", type=click.Choice(["line", "json"]), default="line", help="JSON: one object a line.")
@click.option("-c", "--columns", metavar="A,B", default="", help="Only these columns, in this order.")
def tail(file: Path, server: str | None, lines: int, follow: bool, output: str, columns: str) -> None:
    """Show the last records of the log; also while the servers run.

    \b
    Example:
      mom log tail -n 100
      mom log tail --server lyon -F -o json
      mom log tail -c server,seq,kind,message
    """
    chosen = [name.strip() for name in columns.split(",") if name.strip()]
    for name in chosen:
        if name not in COLUMNS:
            raise click.UsageError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}")
    servers = options.chosen(options.load(file), server)
    readers = {each.name: store.read(store.folder_of(each)) for each in servers}
    after = {name: max(0, last(reader) - lines) for name, reader in readers.items()}
    while True:
        records = [record for name, reader in readers.items() for record in _new(name, reader, after)]
        for record in sorted(records, key=lambda record: record["done"] or record["received"] or record["sent"]):
            _print(record, output, chosen)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


@log.command()
@options.file_option
@click.argument("message", metavar="MSGID")
@click.option("--to", "target", type=Target("svg"), required=True, help="The SVG file.")
def diagram(message: str, file: Path, target: Path) -> None:
    """Draw what happened around a message: its ways, what it waited for, what waited for it, and what was near.

    MSGID is as in the column `message` of `mom log tail`: the server of the send, #, and a number. Times are those of
    the servers' clocks; at most 50 events are drawn. Of packets with the same ends and times, as those of one commit,
    one stands for all: its name says "and 7 more", and hovering tells which. Where a member of a group comes into a
    view, a line says so. Servers whose stores are not on this
    machine are named, and what only they know is left out. So is, under vector, what came only to be counted, unless
    something waited for it.

    \b
    Example:
      mom log diagram 'paris#17' --to why.svg
    """
    from mombroker.lab import diagram as drawing
    from mombroker.lab import stories

    topology = options.load(file)
    places = _places(options.found(file), topology)
    readers = {name: store.read(data) for name, data in places.items()}
    cut = [name for name, reader in readers.items() if beginning(reader) > 1]
    story = stories.logged({name: every(reader) for name, reader in readers.items()}, topology, cut)
    if message not in {arrow.message for arrow in story.arrows}:
        raise MomError(f"no packet of {message!r} is in the logs: it never left its server, or its records are gone")
    write(target, drawing.svg(story.around(message), f"around {message}", message, clock=True))


@log.command()
@options.file_option
@click.option("--to", "target", type=Target("log", "txt"), required=True, help="The file.")
@click.option(
    "-n", "--lines", type=click.IntRange(1), default=1000, show_default=True, help="The last so many of each."
)
def shiviz(file: Path, target: Path, lines: int) -> None:
    """Write the logs as ShiViz reads them, which draws who caused what: events with vector clocks.

    Open https://bestchai.bitbucket.io/shiviz/, choose "Upload" and the file. The clocks are made from the logs of all
    servers whose stores are on this machine. What was caused by records before the last --lines is shown without its
    cause.

    \b
    Example:
      mom log shiviz --to bus.log
      mom log shiviz -n 200 --to last.log
    """
    from mombroker.lab import shiviz as drawing

    readers = {name: store.read(data) for name, data in _places(options.found(file), options.load(file)).items()}
    logs = {
        name: [each for _, each in reader.log(max(0, last(reader) - lines), lines)] for name, reader in readers.items()
    }
    write(target, "".join(drawing.text(logs)))


@log.command()
@options.file_option
@options.server_option("Only what this server was asked.")
@click.option("--all", "everything", is_flag=True, help="Also what was refused, and what was still to be decided.")
@output_options
def audit(file: Path, server: str | None, everything: bool, output: str, columns: str) -> None:
    """List what operators have changed: when, where, who, and what; as long as the log keeps it, and an export after.

    WHO is the name that the system gave the operator, or the user of another port; whoever has the token of a server
    can give another one. Passcodes and messages are not in it. RESULT is `done`, or `asked for` where the registry did
    not answer: then it is done once it does, unless that refuses. With --all also what was refused at once.

    \b
    Example:
      mom log audit
      mom log audit --server paris --all -o json
    """
    servers = options.chosen(options.load(file), server)
    readers = {each.name: store.read(store.folder_of(each)) for each in servers}
    found = [(name, record) for name, reader in readers.items() for record in every(reader) if record.kind == ADMIN]
    rows = []
    for name, record in sorted(found, key=lambda pair: pair[1].done):
        said = json.loads(record.detail)
        if everything or said["result"] in (DONE, LATER):
            rows.append({"time": options.utc(record.done // 1_000_000), "server": name, **said})
    show(rows, output, columns, "time,server,who,from,verb,args,result")


@log.command()
@options.file_option
@click.option("--otlp", metavar="URL", help="A collector of OpenTelemetry, as http://localhost:4318.")
@click.option("--to", "target", type=Target("jsonl", "json"), help="A file, with one request a line.")
def trace(file: Path, otlp: str | None, target: Path | None) -> None:
    """Give the ways of messages to OpenTelemetry, as traces.

    A message is a trace, each of its ways from a server to the next a span. One whose client has given it a property
    traceparent is in the trace of that, below that span. One that had to wait for its causes has a link to the message
    that it waited for. Messages that never left their server are left out. Run again, it gives what is there by then;
    equal messages have equal ids.

    \b
    Example:
      mom log trace --otlp http://localhost:4318
      mom log trace --to traces.jsonl
    """
    from mombroker.lab import otlp as traces
    from mombroker.lab import stories

    if (otlp is None) is (target is None):
        raise click.UsageError("name a collector by --otlp, or a file by --to")
    topology = options.load(file)
    readers = {name: store.read(data) for name, data in _places(options.found(file), topology).items()}
    cut = [name for name, reader in readers.items() if beginning(reader) > 1]
    story = stories.logged({name: every(reader) for name, reader in readers.items()}, topology, cut)
    found = traces.batches(story, topology.name)
    if target is not None:
        write(target, "".join(f"{json.dumps(batch)}\n" for batch in found))
        return
    spans = 0
    for batch in found:
        _post(f"{str(otlp).rstrip('/')}{traces.PATH}", json.dumps(batch).encode())
        spans += traces.count(batch)
    click.echo(many(spans, "span"), err=True)


def _post(url: str, body: bytes) -> None:
    """Raises MomError if it is not taken."""
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=POST_SECONDS):
            pass
    except ValueError:
        raise click.UsageError(f"{url} is no address: write http://HOST:PORT") from None
    except (URLError, OSError) as error:
        raise MomError(f"the collector at {url} does not take traces: {getattr(error, 'reason', error)}") from None


def beginning(reader: SqliteReader) -> int:
    """The sequence of the oldest record: above 1 if older ones are gone."""
    return next((seq for seq, _ in reader.log(0, 1)), 1)


def every(reader: SqliteReader) -> "Iterator[Record]":
    """All records, in order."""
    after = 0
    while page := reader.log(after, PAGE):
        yield from (record for _, record in page)
        after = page[-1][0]


@log.command()
@options.either("source", "The same as SOURCE.")
@click.option("--to", "target", type=Target(folder=True), required=True, help="The folder of the export.")
@options.server_option("Only the log of this server; without it those of all whose stores are here.")
@click.option("--copy", is_flag=True, help="Do not tell the servers: what is exported is not kept for this folder.")
@output_options
def export(source: Path, target: Path, server: str | None, copy: bool, output: str, columns: str) -> None:
    """Write what is new in the logs to Parquet files.

    SOURCE is a topology file, a data folder, or a folder of data folders; the servers may run. Run it again, by cron
    for example, and it goes on where it stopped; a run that was cut off loses nothing and writes nothing twice. From
    the first run on a server keeps old records until they are exported, unless max_bytes in [log] leaves no room: those
    that went unexported are counted (lost). Exit code 5 if not all could be exported.

    \b
    Example:
      mom log export bus.toml --to exported
      mom log export var --to exported -o json
    """
    exporting = extra("analysis.export")
    source, topology = options.source(source, "a topology file, a data folder, or a folder of data folders"), None
    if not source.is_dir():
        topology = options.load(source)
    rows, untold, refused = [], [], []

    def refuse(error: MomError | StoreFailed) -> None:
        click.echo(f"mom: {error}", err=True)
        refused.append(error)

    places = _places(source, topology, refuse)
    if server and server not in places:
        if refused:  # it may be one of these
            raise MomError(f"no store of {server} can be read here")
        raise click.UsageError(f"there is no store of {server!r} here; there are {', '.join(places)}")
    readers = {name: store.read(data) for name, data in places.items() if name == (server or name)}
    with Bar("log records") as bar:
        for result in exporting.export(readers, target, bar.at, refuse):
            if not copy and result.mark:
                try:
                    _register(topology, result.server, places[result.server], result.mark)
                except MomError as error:  # its records are exported, and those of the others are to be
                    click.echo(f"mom: {error}", err=True)
                    untold.append(result.server)
            for hole in result.holes:
                refuse(
                    MomError(
                        f"the records {hole} of {result.server} are missing in its log, and nobody let them go: `mom "
                        "store verify` says more"
                    )
                )
            rows.append({name: value for name, value in result._asdict().items() if name != "holes"})
    show(rows, output, columns)
    if untold:
        raise MomError(f"{', '.join(untold)} could not be told what is exported: run it again, or old records stay")
    if refused:
        raise SystemExit(ExitCode.INCOMPLETE)


def _places(
    source: Path, topology: "Topology | None", refuse: Callable[[StoreError], None] | None = None
) -> dict[str, Path]:
    """The stores on this machine. Of servers of the file that have none here, a line says so.

    `refuse` hears why a store cannot be read; without it that is raised.
    """
    from mombroker.admin.analysis import stores

    broken = []

    def note(data: Path, error: StoreError) -> None:
        assert refuse, "it was raised"
        broken.append(data)
        refuse(error)

    places = stores.find(source, topology, note if refuse else None)
    for name, each in topology.servers.items() if topology else ():
        if name not in places and Path(store.folder_of(each)) not in broken:
            click.echo(f"mom: the store of {name} is not on this machine", err=True)
    return places


def _register(topology: "Topology | None", server: str, data: Path, mark: int) -> None:
    """Tell a server, or the store of one that does not run, what is exported."""
    from mombroker.net.adminclient import NotRunning
    from mombroker.store.sqlite import register_export

    try:
        register_export(data, mark)
    except StoreError as error:  # it runs, as a rule
        if topology is None:
            click.echo(f"mom: {error}; {server} was not told: name the topology file", err=True)
        else:
            try:
                options.ask(topology, topology.servers[server], "exported", seq=mark)
            except NotRunning:
                raise error from None  # then this is why


@log.command()
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--now", is_flag=True, help="Remove the files that were joined at once: nobody reads the export.")
@output_options
def compact(target: Path, now: bool, output: str, columns: str) -> None:
    """Join the small files of an export.

    Those of each server and day that is over become one file. An export joins its last files itself as it goes on, but
    leaves some dozens a day. The files that were joined stay for an hour, for those who read them, and go with the
    next export or compaction after that.

    \b
    Example:
      mom log compact exported
    """
    from mombroker.admin.analysis import files

    rows = []
    with Bar("days") as bar:
        for done in extra("analysis.export").compact(target, 0.0 if now else files.SPARE_SECONDS):
            rows.append(done._asdict())
            bar.at(len(rows))
    show(rows, output, columns)


def last(reader: SqliteReader) -> int:
    """The sequence of the last record: the first number that no record is above of."""
    return bisect_left(range(1 << 48), True, key=lambda seq: not reader.log(seq, 1))


def _new(server: str, reader: SqliteReader, after: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Records after the last one that was shown, as dicts."""
    while page := reader.log(after[server], PAGE):
        for seq, record in page:
            yield {"server": server, "seq": seq, **record._asdict()}
        after[server] = page[-1][0]


def _utc(ns: int) -> str:
    """To the microsecond; nothing for a station that was not passed."""
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns // 1000 % 10**6:06d}Z" if ns else ""


def _print(record: dict[str, Any], output: str, chosen: list[str]) -> None:
    at = record["done"] or record["received"] or record["sent"]
    record["time"] = _utc(at)
    record["message"] = f"{record['origin']}#{record['number']}" if record["origin"] else ""
    if output == "json":
        echo_json({name: record[name] for name in chosen or ("server", "seq", *FIELDS)}, indent=None)
    elif chosen:
        times = {name: _utc(record[name]) for name in TIMES}
        click.echo("  ".join(text((record | times)[name]) for name in chosen))
    else:
        time, server, kind, message, *_ = (record[name] for name in BRIEF)
        rest = (f"{name}={text(record[name])}" for name in BRIEF[4:] if record[name])
        click.echo(" ".join([time, server, kind, message, *rest]))
