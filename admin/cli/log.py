"""`mom log`: the record of what every message did, read from the stores on this machine."""

import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mombroker import store
from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, text
from mombroker.core.trace import FIELDS, as_dict
from mombroker.store.reader import SqliteReader

COLUMNS = ("server", "seq", *FIELDS, "time", "message")
BRIEF = ("time", "server", "kind", "message", "agent", "dests", "domain", "peer", "out", "missing", "detail")
POLL_SECONDS = 0.3
PAGE = 1000


@click.group()
def log() -> None:
    """The record of what every message did."""


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
    readers = {each.name: store.read(each.data) for each in servers}
    after = {name: max(0, last(reader) - lines) for name, reader in readers.items()}
    while True:
        records = [record for name, reader in readers.items() for record in _new(name, reader, after)]
        for record in sorted(records, key=lambda record: record["done"] or record["received"] or record["sent"]):
            _print(record, output, chosen)
        if not follow:
            return
        time.sleep(POLL_SECONDS)


def last(reader: SqliteReader) -> int:
    """The sequence of the last record: the first number that no record is above of."""
    return bisect_left(range(1 << 48), True, key=lambda seq: not reader.log(seq, 1))


def _new(server: str, reader: SqliteReader, after: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Records after the last one that was shown, as dicts."""
    while page := reader.log(after[server], PAGE):
        for seq, record in page:
            yield {"server": server, "seq": seq, **as_dict(record)}
        after[server] = page[-1][0]


def _print(record: dict[str, Any], output: str, chosen: list[str]) -> None:
    at = record["done"] or record["received"] or record["sent"]
    record["time"] = datetime.fromtimestamp(at / 1e9).isoformat(timespec="microseconds")
    record["message"] = f"{record['origin']}#{record['number']}" if record["origin"] else ""
    if output == "json":
        echo_json({name: record[name] for name in chosen or ("server", "seq", *FIELDS)}, indent=None)
    elif chosen:
        click.echo("  ".join(text(record[name]) for name in chosen))
    else:
        time, server, kind, message, *_ = (record[name] for name in BRIEF)
        rest = (f"{name}={text(record[name])}" for name in BRIEF[4:] if record[name])
        click.echo(" ".join([time, server, kind, message, *rest]))
