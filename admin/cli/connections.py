"""`mom connections`: the clients that are connected now."""

from pathlib import Path

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import output_options, show

BRIEF = (
    "server,number,user,client_id,host,version,state,subscriptions,unsettled,transactions,dropped,bytes_in,bytes_out"
)


@click.command()
@options.file_option
@options.server_option("Only those of this server.")
@output_options
def connections(file: Path, server: str | None, output: str, columns: str) -> None:
    """The clients that are connected now.

    \b
    Example:
      mom connections
      mom connections --server paris -c user,host,paused
    """
    found = options.answers(options.load(file), server, "connections")
    rows = [{"server": each.name, **client} for each, answer in found for client in answer["connections"]]
    show(rows, output, columns, BRIEF)
