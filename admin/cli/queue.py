"""`mom queue`: the queues of the bus, and what waits in them."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one

COLUMNS = "server,destination,messages,waiting,held,consumers,bytes,backing_off,dropped"
SERVER = "Ask this server; without it the queue's home."


@click.group(cls=Group)
def queue() -> None:
    """Queues: list, show, create, delete, purge, browse, move, retry, release."""


@queue.command("list")
@options.file_option
@options.server_option("Only the queues of this server.")
@destinations.limit_option(1_000, "At most so many of each server.")
@output_options
def list_queues(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List queues with what is in them.

    messages counts all: those that wait, that consumers hold, that back off after a failure, and that are delayed.

    \b
    Example:
      mom queue list
      mom queue list --server lyon -c destination,messages
    """
    show(list(destinations.listed(file, server, "queues", limit)), output, columns, COLUMNS)


@queue.command("show")
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@output_options
def show_queue(file: Path, server: str | None, queue: str, output: str, columns: str) -> None:
    """Show one queue with its consumers and its policy.

    \b
    Example:
      mom queue show orders
      mom queue show /queue/orders -o json
    """
    show_one(destinations.ask(file, server, destinations.queue_of(queue), "destination"), output, columns)


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
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@options.yes_option
@output_options
def delete(file: Path, server: str | None, queue: str, yes: bool, output: str, columns: str) -> None:
    """Delete a queue with what is in it. Its consumers get an error.

    \b
    Example:
      mom queue delete orders --yes
    """
    found = destinations.confirmed(file, server, destinations.queue_of(queue), "delete_destination", yes)
    show_one(found, output, columns)


@queue.command()
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@options.yes_option
@output_options
def purge(file: Path, server: str | None, queue: str, yes: bool, output: str, columns: str) -> None:
    """Drop all messages of a queue that nobody holds.

    From the answer on nobody gets them; a large queue needs a while until they are gone from the disk.

    \b
    Example:
      mom queue purge orders --yes
    """
    show_one(
        destinations.confirmed(file, server, destinations.queue_of(queue), "purge", yes),
        output,
        columns,
    )


@queue.command()
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@destinations.where_option
@click.option("--held", is_flag=True, help="Those that consumers hold or that back off, instead of those that wait.")
@click.option("--bytes", "most", type=options.AMOUNT, default=200, show_default=True, help="Of each body, at most.")
@destinations.limit_option(100, "At most so many.")
@output_options
def browse(
    file: Path,
    server: str | None,
    queue: str,
    where: str,
    held: bool,
    most: int,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Look at messages in the order in which they will be given out; none is taken.

    \b
    Example:
      mom queue browse orders
      mom queue browse orders --where "customer = 'ann'" -o json
    """
    shown = destinations.queue_of(queue)
    with destinations.connect(file, server, shown) as client:
        rows = list(destinations.messages(client, shown, limit, where=where, held=held, bytes=most))
    show(rows, output, columns, destinations.BRIEF)


@queue.command()
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@click.argument("target")
@click.argument("ids", metavar="[ID]...", type=options.ROW, nargs=-1)
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def move(
    file: Path,
    server: str | None,
    queue: str,
    target: str,
    ids: tuple[int, ...],
    where: str,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Move messages that wait to another queue, which may live anywhere: all, some by selector, or some by id.

    What comes while this runs stays. Each message is moved once, whatever stops on the way.

    \b
    Example:
      mom queue move orders orders.old
      mom queue move orders urgent --where "JMSPriority > 7"
    """
    shown = destinations.queue_of(queue)
    args = {"target": destinations.queue_of(target), "where": where, "ids": list(ids)}
    with destinations.connect(file, server, shown) as client:
        found = destinations.move(client, shown, limit, **args)
    show_one({"destination": shown, "target": args["target"], "moved": found["moved"]}, output, columns)


@queue.command()
@options.file_option
@options.server_option(SERVER)
@destinations.queue_argument
@click.argument("ids", metavar="[ID]...", type=options.ROW, nargs=-1)
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def retry(
    file: Path,
    server: str | None,
    queue: str,
    ids: tuple[int, ...],
    where: str,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Send dead letters in a queue back to the queues and subscriptions where they died, as if never delivered.

    Other messages stay (`left`). `mom dlq retry` does this for all dead-letter queues.

    \b
    Example:
      mom queue retry DLQ.orders
    """
    shown = destinations.queue_of(queue)
    with destinations.connect(file, server, shown) as client:
        found = destinations.move(client, shown, limit, back=True, where=where, ids=list(ids))
    show_one({"destination": shown, **found}, output, columns)


@queue.command()
@options.file_option
@click.option("-s", "--server", "holder", metavar="NAME", required=True, help="The server that is gone.")
@destinations.queue_argument
@output_options
def release(file: Path, holder: str, queue: str, output: str, columns: str) -> None:
    """Give out again what clients of a dead server hold. If that server lives after all, some may be handled twice.

    \b
    Example:
      mom queue release orders --server lyon
    """
    show_one(destinations.ask(file, None, destinations.queue_of(queue), "release", holder=holder), output, columns)
