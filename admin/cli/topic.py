"""`mom topic`: who listens to what."""

from pathlib import Path

import click

from mombroker.admin.cli import destinations, options
from mombroker.admin.cli.output import output_options, show


@click.group()
def topic() -> None:
    """Topics: list."""


@topic.command("list")
@options.file_option
@options.server_option("As this server knows them; without it as each one does.")
@destinations.limit_option(1_000, "At most so many of each server.")
@output_options
def list_topics(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List the topics and patterns that somebody listens to. A topic exists as long as it is used.

    servers have subscriptions of it; takers_here are those of the server that answers, and unknown_to are servers that
    have not said yet that they know of them.

    \b
    Example:
      mom topic list
      mom topic list --server paris -c topic,servers
    """
    show(list(destinations.listed(file, server, "topics", limit)), output, columns)
