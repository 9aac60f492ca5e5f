"""`mom subscription`: durable and shared subscriptions, and what waits for them."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one

COLUMNS = "server,name,client_id,messages,topics,consumers,waiting,held,selector,shared,durable,oldest,last_seen"


@click.group(cls=Group)
def subscription() -> None:
    """Durable and shared subscriptions: list, show, create, delete, purge, browse, move, retry, release."""


def which(command: options.F) -> options.F:
    """NAME, and what else names a subscription."""
    client = click.option("--client-id", default="", metavar="ID", help="Of the client that made it, if it had one.")
    transient = click.option("--transient", is_flag=True, help="One that is shared but not durable.")
    server = options.server_option("Ask this server; without it the subscription's home.")
    return options.file_option(server(client(transient(click.argument("name")(command)))))


@subscription.command("list")
@options.file_option
@options.server_option("Only those of this server.")
@destinations.limit_option(1_000, "At most so many of each server.")
@output_options
def list_subscriptions(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List durable and shared subscriptions. Plain ones are in `mom topic list` and `mom connections`.

    \b
    Example:
      mom subscription list
    """
    show(list(destinations.listed(file, server, "subscriptions", limit)), output, columns, COLUMNS)


@subscription.command("show")
@which
@output_options
def show_subscription(
    file: Path, server: str | None, client_id: str, transient: bool, name: str, output: str, columns: str
) -> None:
    """Show one subscription with its consumers and its policy.

    \b
    Example:
      mom subscription show news --client-id ann
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(destinations.ask(file, server, shown, "destination"), output, columns)


@subscription.command()
@options.file_option
@options.server_option("Where it is to live; not needed if there is only one server.")
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="Or a pattern; one or several.")
@click.option("--selector", default="", metavar="SELECTOR", help="Only messages that this fits.")
@click.option("--client-id", default="", metavar="ID", help="Of the client that is to consume from it.")
@click.option("--shared", is_flag=True, help="Several consumers may take turns; needs no client id.")
@click.argument("name")
@output_options
def create(
    file: Path,
    server: str | None,
    topics: tuple[str, ...],
    selector: str,
    client_id: str,
    shared: bool,
    name: str,
    output: str,
    columns: str,
) -> None:
    """Create a durable subscription before its client comes: from now on it keeps what its topics bring.

    A client that subscribes to it with other topics or another selector makes it anew.

    \b
    Example:
      mom subscription create news --topic news.* --client-id ann --server lyon
      mom subscription create jobs --topic jobs --selector "size > 5" --shared
    """
    if not (client_id or shared):
        raise click.UsageError("give --client-id ID, or --shared if several may have it")
    topology = options.load(file)
    at = options.pick(topology, server)
    asked = {"topics": destinations.topics_of(topics), "selector": selector, "client_id": client_id, "shared": shared}
    found = options.ask(topology, at, "create_subscription", name=name, **asked)
    show_one({"server": at.name, **found}, output, columns)


@subscription.command()
@which
@options.yes_option
@output_options
def delete(
    file: Path, server: str | None, client_id: str, transient: bool, name: str, yes: bool, output: str, columns: str
) -> None:
    """Delete a subscription with what waits for it. Its consumers get an error.

    \b
    Example:
      mom subscription delete news --client-id ann --yes
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(
        destinations.confirmed(file, server, shown, "delete_destination", yes),
        output,
        columns,
    )


@subscription.command()
@which
@options.yes_option
@output_options
def purge(
    file: Path, server: str | None, client_id: str, transient: bool, name: str, yes: bool, output: str, columns: str
) -> None:
    """Drop all messages of a subscription that nobody holds.

    \b
    Example:
      mom subscription purge news --client-id ann --yes
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(
        destinations.confirmed(file, server, shown, "purge", yes),
        output,
        columns,
    )


@subscription.command()
@which
@destinations.where_option
@click.option("--held", is_flag=True, help="Those that consumers hold or that back off, instead of those that wait.")
@destinations.limit_option(100, "At most so many.")
@output_options
def browse(
    file: Path,
    server: str | None,
    client_id: str,
    transient: bool,
    name: str,
    where: str,
    held: bool,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Look at the messages that wait for a subscription; none is taken.

    \b
    Example:
      mom subscription browse news --client-id ann
    """
    shown = destinations.subscription_of(name, client_id, transient)
    with destinations.connect(file, server, shown) as client:
        rows = list(destinations.messages(client, shown, limit, where=where, held=held, bytes=200))
    show(rows, output, columns, destinations.BRIEF)


@subscription.command()
@which
@click.argument("target")
@click.argument("ids", metavar="[ID]...", type=options.ROW, nargs=-1)
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def move(
    file: Path,
    server: str | None,
    client_id: str,
    transient: bool,
    name: str,
    target: str,
    ids: tuple[int, ...],
    where: str,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Move messages that wait for a subscription to a queue: all, some by selector, or some by id.

    \b
    Example:
      mom subscription move news news.old --client-id ann
      mom subscription move jobs urgent --where "JMSPriority > 7"
    """
    shown = destinations.subscription_of(name, client_id, transient)
    args = {"target": destinations.queue_of(target), "where": where, "ids": list(ids)}
    with destinations.connect(file, server, shown) as client:
        found = destinations.move(client, shown, limit, **args)
    show_one({"subscription": name, "target": args["target"], "moved": found["moved"]}, output, columns)


@subscription.command()
@which
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def retry(
    file: Path,
    server: str | None,
    client_id: str,
    transient: bool,
    name: str,
    where: str,
    limit: int,
    output: str,
    columns: str,
) -> None:
    """Send the dead letters of a subscription back to it, as if never delivered. Those of others stay.

    \b
    Example:
      mom subscription retry news --client-id ann
    """
    found = destinations.ask(file, server, destinations.subscription_of(name, client_id, transient), "destination")
    shown = found["destination"]
    letters = found["policy"]["dead_letter"] or f"queue:DLQ.{shown.partition(':')[2]}"
    with destinations.connect(file, None, letters) as client:
        moved = destinations.move(client, letters, limit, back=True, where=where, **{"from": shown})
    show_one({"subscription": name, "dead_letters": letters, "moved": moved["moved"]}, output, columns)


@subscription.command()
@options.file_option
@click.option("-s", "--server", "holder", metavar="NAME", required=True, help="The server that is gone.")
@click.option("--client-id", default="", metavar="ID", help="Of the client that made it, if it had one.")
@click.option("--transient", is_flag=True, help="One that is shared but not durable.")
@click.argument("name")
@output_options
def release(file: Path, holder: str, client_id: str, transient: bool, name: str, output: str, columns: str) -> None:
    """Give out again what clients of a dead server hold. If that server lives after all, some may be handled twice.

    \b
    Example:
      mom subscription release news --client-id ann --server lyon
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(destinations.ask(file, None, shown, "release", holder=holder), output, columns)
