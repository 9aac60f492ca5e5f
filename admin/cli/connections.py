"""`mom connections`: the clients that are connected now."""

from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import DefaultGroup
from mombroker.admin.cli.output import output_options, show

BRIEF = (
    "server,number,user,client_id,host,version,state,subscriptions,unsettled,transactions,dropped,bytes_in,bytes_out"
)
CLOSED = "server,number,user,client_id,host"


@click.group(cls=DefaultGroup, default="list")
def connections() -> None:
    """The clients that are connected now: list, close."""


@connections.command("list")
@options.file_option
@options.server_option("Only those of this server.")
@output_options
def list_connections(file: Path, server: str | None, output: str, columns: str) -> None:
    """The clients that are connected now.

    \b
    Example:
      mom connections list
      mom connections --server paris -c user,host,paused
    """
    found = options.answers(options.load(file), server, "connections")
    rows = [{"server": each.name, **client} for each, answer in found for client in answer["connections"]]
    show(rows, output, columns, BRIEF)


@connections.command()
@options.file_option
@options.server_option("Only on this server.")
@click.option("--number", type=options.ROW, default=None, help="The connection with this number; see --server.")
@click.option("--user", metavar="NAME", default="", callback=options.filled, help="Those of this user.")
@click.option("--client-id", metavar="ID", default="", callback=options.filled, help="That with this client id.")
@click.option("--host", metavar="ADDRESS", default="", callback=options.filled, help="Those from this address.")
@click.option("--reason", metavar="TEXT", default="", help="What the clients are told.")
@output_options
def close(
    file: Path, server: str | None, number: int | None, user: str, client_id: str, host: str, reason: str, output: str,
    columns: str,
) -> None:  # fmt: skip
    """Close connections: all that are as the options say. What a client had not settled goes back to its queues. It may
    come back; who must not, is kept out by `mom user delete` or `mom permission`. Exit code 6 if there was none; 5 if
    some server did not answer.

    \b
    Example:
      mom connections close --user ann
      mom connections close --server paris --number 17 --reason 'maintenance'
    """
    if number is not None and server is None:
        raise click.UsageError("connections are numbered by each server: name one by --server")
    asked = {"number": number or 0, "user": user, "client_id": client_id, "host": host, "reason": reason}
    found = options.answers(options.load(file), server, "close_connections", **asked)
    rows = [{"server": each.name, **client} for each, answer in found for client in answer["closed"]]
    show(rows, output, columns, CLOSED)
    if not rows:
        raise options.nothing("connection like that", "mom connections")
