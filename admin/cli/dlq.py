"""`mom dlq`: messages of clients that could not be delivered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show

BRIEF = "server,queue,id,from,reason,count,time,body"


@click.group(cls=Group)
def dlq() -> None:
    """Dead letters of clients: list, retry."""


@dlq.command("list")
@options.file_option
@options.server_option("Only those on this server.")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@destinations.where_option
@destinations.limit_option(100, "At most so many of each queue, the oldest.")
@output_options
def list_letters(
    file: Path, server: str | None, queues: tuple[str, ...], where: str, limit: int, output: str, columns: str
) -> None:
    """List dead letters: where they died, why, when, and after how many deliveries.

    Without QUEUE those of all dead-letter queues: DLQ.* and whatever a policy names. Messages that agents could not
    take are in `mom agent deadletters list`.

    \b
    Example:
      mom dlq list
      mom dlq list DLQ.orders --where "customer = 'ann'"
      mom dlq list --where "hyphenated_props:dead-letter-reason = 'expired'"
    """
    rows: list[dict[str, Any]] = []
    for at, shown in _queues(file, server, queues):
        with destinations.connect(file, at, shown) as client:
            found = destinations.messages(client, shown, limit, output, where=where, bytes=1_000)
            rows += (_letter(at, shown, row) for row in found)
    show(rows, output, columns, BRIEF)


@dlq.command()
@options.file_option
@options.server_option("Only those on this server.")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many of each queue, the oldest.")
@output_options
def retry(
    file: Path, server: str | None, queues: tuple[str, ...], where: str, limit: int, output: str, columns: str
) -> None:
    """Send dead letters back to the queues and subscriptions where they died, as if never delivered.

    \b
    Example:
      mom dlq retry
      mom dlq retry DLQ.orders --where "customer = 'ann'"
    """
    rows = []
    for at, shown in _queues(file, server, queues):
        with destinations.connect(file, at, shown) as client:
            found = destinations.move(client, shown, limit, back=True, where=where)
        rows.append({"server": at, "queue": shown, **found})
    show(rows, output, columns)


def _queues(file: Path, server: str | None, named: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Server and name of the queues that are meant."""
    topology = options.load(file)
    if named:
        for shown in map(destinations.queue_of, named):
            yield destinations.home(topology, shown, server).name, shown
        return
    rows = list(destinations.listed(file, server, "queues", destinations.EVERY))
    letters: set[str] = set()
    if rows:
        policies = options.ask(topology, topology.servers[rows[0]["server"]], "policies")["policies"]
        letters = {each["dead_letter"] for each in policies}
    for row in rows:
        if row["destination"].startswith("queue:DLQ.") or row["destination"] in letters:
            yield row["server"], row["destination"]


def _letter(server: str, queue: str, row: dict[str, Any]) -> dict[str, Any]:
    told = {name.removeprefix("dead-letter-"): value for name, value in row["properties"].items()}
    brief = {name: told.get(name, "") for name in ("from", "reason", "count", "time")}
    if str(brief["time"]).isdecimal():
        brief["time"] = options.utc(int(brief["time"]))
    return {"server": server, "queue": queue, **brief, **row}
