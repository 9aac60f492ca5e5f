"""`mom subscription`: durable and shared subscriptions, and what waits for them."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one
from mombroker.admin.cli.queue_commands import Named, Noun

COLUMNS = "server,name,client_id,messages,topics,consumers,ready,unacked,selector,shared,durable,oldest,last_seen"


@click.group(cls=Group)
def subscription() -> None:
    """Durable and shared subscriptions: list, show, create, delete, purge, browse, move, retry, release."""


def _own(command: options.F) -> options.F:
    """NAME, and what else names a subscription."""
    client = click.option("--client-id", default="", metavar="ID", help="Of the client that made it, if it had one.")
    transient = click.option("--transient", is_flag=True, help="One that is shared but not durable.")
    return client(transient(click.argument("name")(command)))


NAMES = ("name", "client_id", "transient")
SUBSCRIPTION = Noun("subscription", "news --client-id ann", _own, NAMES, destinations.subscription_of)
SUBSCRIPTION.add_to(subscription)


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
@SUBSCRIPTION.named()
@destinations.where_option
@destinations.limit_option(destinations.EVERY, "At most so many, the first ones.")
@output_options
def retry(named: Named, where: str, limit: int, output: str, columns: str) -> None:
    """Send the dead letters of a subscription back to it, as if never delivered. Those of others stay.

    \b
    Example:
      mom subscription retry news --client-id ann
    """
    found = named.ask("destination")
    shown = found["destination"]
    letters = found["policy"]["dead_letter"] or f"queue:DLQ.{shown.partition(':')[2]}"
    with destinations.connect(named.file, None, letters) as client:
        moved = destinations.move(client, letters, limit, back=True, where=where, **{"from": shown})
    show_one({"destination": shown, "dead_letters": letters, "moved": moved["moved"]}, output, columns)
