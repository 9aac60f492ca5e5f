"""`mom subscription`: durable and shared subscriptions, and what waits for them."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.output import output_options, show, show_one

COLUMNS = "server,name,client_id,topics,selector,shared,durable,messages,waiting,held,consumers"


@click.group()
def subscription() -> None:
    """Durable and shared subscriptions: list, show, delete, purge, browse."""


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
@which
@click.confirmation_option(prompt="Delete the subscription with all messages that wait for it?")
@output_options
def delete(
    file: Path, server: str | None, client_id: str, transient: bool, name: str, output: str, columns: str
) -> None:
    """Delete a subscription with what waits for it. Its consumers get an error.

    \b
    Example:
      mom subscription delete news --client-id ann --yes
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(destinations.ask(file, server, shown, "delete_destination"), output, columns)


@subscription.command()
@which
@click.confirmation_option(prompt="Drop all messages that wait for it?")
@output_options
def purge(
    file: Path, server: str | None, client_id: str, transient: bool, name: str, output: str, columns: str
) -> None:
    """Drop all messages of a subscription that nobody holds.

    \b
    Example:
      mom subscription purge news --client-id ann --yes
    """
    shown = destinations.subscription_of(name, client_id, transient)
    show_one(destinations.ask(file, server, shown, "purge"), output, columns)


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
