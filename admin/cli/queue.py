"""`mom queue`: the queues of the bus, and what waits in them."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.admin.cli.queue_commands import Named, Noun

COLUMNS = "server,destination,messages,ready,unacked,consumers,bytes,backing_off,dropped"


@click.group(cls=Group)
def queue() -> None:
    """Queues: list, show, create, delete, purge, browse, move, retry, release."""


QUEUE = Noun("queue", "orders", destinations.queue_argument, ("queue",), destinations.queue_of)
QUEUE.add_to(queue)


@queue.command("list")
@options.file_option
@options.server_option("Only the queues of this server.")
@destinations.limit_option(1_000, "At most so many of each server.")
@output_options
def list_queues(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List queues with what is in them.

    messages counts all: those that are ready, that consumers have and did not acknowledge yet (unacked), that back off
    after a failure, and that are delayed.

    \b
    Example:
      mom queue list
      mom queue list --server lyon -c destination,messages
    """
    show(list(destinations.listed(file, server, "queues", limit)), output, columns, COLUMNS)


@queue.command()
@options.file_option
@options.server_option("Where the queue is to live; not needed if there is only one server.")
@destinations.queue_argument
@output_options
def create(file: Path, server: str | None, queue: str, output: str, columns: str) -> None:
    """Create a queue. Only needed where a policy has create = false, or to choose its home.

    \b
    Example:
      mom queue create orders --server lyon
    """
    topology = options.load(file)
    at = options.pick(topology, server)
    found = options.ask(topology, at, "create_queue", destination=destinations.queue_of(queue))
    show_one({"server": at.name, **found}, output, columns)


@queue.command()
@QUEUE.named()
@click.argument("ids", metavar="[ID]...", type=options.ROW, nargs=-1)
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def retry(named: Named, ids: tuple[int, ...], where: str, limit: int, output: str, columns: str) -> None:
    """Send dead letters in a queue back to the queues and subscriptions where they died, as if never delivered.

    Other messages stay (`left`). `mom dlq retry` does this for all dead-letter queues.

    \b
    Example:
      mom queue retry DLQ.orders
    """
    with named.connect() as client:
        found = destinations.move(client, named.shown, limit, back=True, where=where, ids=list(ids))
    show_one({"destination": named.shown, **found}, output, columns)
