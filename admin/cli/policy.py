"""`mom policy`: what destinations do at their limits and with failures."""

import sys
from pathlib import Path
from typing import Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.agent import values
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one


@click.group(cls=Group)
def policy() -> None:
    """Policies of destinations, by pattern: list, set, delete."""


@policy.command("list")
@options.file_option
@options.server_option("Ask this server; any one knows them.")
@output_options
def list_policies(file: Path, server: str | None, output: str, columns: str) -> None:
    """List policies. The first whose pattern matches a destination counts; those set at run time come first.
    On a terminal the table has the settings that are no defaults; -c names others, -o json has all.

    \b
    Example:
      mom policy list
    """
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    found = options.ask(topology, at, "policies")["policies"]
    brief = output == "table" and not columns and sys.stdout.isatty()
    show(list(map(_brief, found)) if brief else found, output, columns)


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    """A policy as it is set: what it says that is no default."""
    from mombroker.broker.policy import DEFAULT

    usual = DEFAULT.as_dict()
    settings = {name: value for name, value in row.items() if name in usual and value != usual[name]}
    settings.pop("match", None)
    return {"match": row["match"], "from": row["from"], "settings": settings}


@policy.command("set")
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("match", metavar="PATTERN")
@click.argument("settings", metavar="SETTING=VALUE...", nargs=-1, required=True)
@output_options
def set_policy(
    file: Path, server: str | None, match: str, settings: tuple[str, ...], output: str, columns: str
) -> None:
    """Set the policy of all destinations that a pattern matches, on all servers, in place of a former one of it.

    PATTERN is queue:NAME, topic:NAME or sub:CLIENT:NAME, with * and ?. docs/stomp.md has the settings; those that are
    not named have their defaults.

    \b
    Example:
      mom policy set 'queue:orders*' max_messages=100000 overflow=reject
      mom policy set queue:jobs max_redeliveries=3 redelivery_delay=5 dead_letter=queue:jobs.failed
    """
    _change(file, server, output, columns, match=match, values=values(settings))


@policy.command()
@options.file_option
@options.server_option("Ask this server; all will know it.")
@click.argument("match", metavar="PATTERN")
@output_options
def delete(file: Path, server: str | None, match: str, output: str, columns: str) -> None:
    """Delete a policy that was set at run time. Those of the topology file are changed there.

    \b
    Example:
      mom policy delete 'queue:orders*'
    """
    _change(file, server, output, columns, match=match)


def _change(file: Path, server: str | None, output: str, columns: str, **args: Any) -> None:
    topology = options.load(file)
    at = options.pick(topology, server or topology.registry)
    show_one(options.ask(topology, at, "set_policy", **args), output, columns)
