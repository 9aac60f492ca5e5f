"""`mom agent deadletters`: messages that no agent could take."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import output_options, show, show_one

if TYPE_CHECKING:
    from mombroker.core.topology import Server
    from mombroker.net.adminclient import AdminClient

PAGE = 1_000
BRIEF = "server,id,agent,type,source,attempts,reason"


@click.group(cls=Group)
def deadletters() -> None:
    """Messages that no agent could take: list, show, retry, drop.

    Those of clients are in dead-letter queues: `mom dlq`.
    """


@deadletters.command("list")
@options.file_option
@options.server_option("Only those of this server.")
@click.option("--limit", default=100, show_default=True, help="At most so many of each server, the oldest.")
@output_options
def list_letters(file: Path, server: str | None, limit: int, output: str, columns: str) -> None:
    """List dead letters: whom they were for, and why they are dead.

    \b
    Example:
      mom agent deadletters list
      mom agent deadletters list --server lyon -o json
    """
    rows: list[dict[str, Any]] = []
    for each, found in options.answers(options.load(file), server, "deadletters", limit=limit):
        rows += ({"server": each.name, **letter} for letter in found["letters"])
        if found["count"] > len(found["letters"]):
            click.echo(f"mom: {each.name} has {found['count']}, {limit} are shown; see --limit", err=True)
    show(rows, output, columns, BRIEF)


@deadletters.command("show")
@options.file_option
@options.server_option("The server that has it.")
@click.argument("id", type=options.ROW)
@output_options
def show_letter(file: Path, server: str | None, id: int, output: str, columns: str) -> None:
    """Show one dead letter with its content and, if a reaction raised, the traceback.

    \b
    Example:
      mom agent deadletters show --server lyon 4711
    """
    show_one(_ask(file, server, "deadletter", id), output, columns)


@deadletters.command()
@options.file_option
@options.server_option("The server that has them.")
@click.argument("ids", metavar="ID...", type=options.ROW, nargs=-1)
@click.option("--all", "every", is_flag=True, help="All that are there now; without --server those of all servers.")
@click.option("--to", metavar="QUEUE", default="", help="Another queue; for what no client has sent, another agent.")
@output_options
def retry(
    file: Path, server: str | None, ids: tuple[int, ...], every: bool, to: str, output: str, columns: str
) -> None:
    """Send dead letters again, as new messages: they come late by nature.

    Each goes to whoever has the name by now that its agent or queue had; a queue that is gone is made anew.

    \b
    Example:
      mom agent deadletters retry --server lyon 4711 4712
      mom agent deadletters retry --server lyon 4711 --to orders.late
      mom agent deadletters retry --all
    """
    if every == bool(ids):
        raise click.UsageError("name dead letters by ID, or --all")
    if not every:
        show([{"id": id, **_ask(file, server, "retry", id, target=to)} for id in ids], output, columns)
        return
    topology = options.load(file)
    rows: list[dict[str, Any]] = []

    def all_of(at: "Server") -> None:
        with options.connect(topology, at) as client:
            for id in _all(client):
                rows.append({"server": at.name, "id": id, **client.request("retry", id=id, target=to)})

    for _ in options.visits(topology, server, all_of):
        pass
    show(rows, output, columns)


def _all(client: "AdminClient") -> list[int]:
    """The ids of the dead letters that a server has now, not of those that come of trying these again."""
    found: list[int] = []
    after: list[int] | None = None
    while letters := client.request("deadletters", after=after, limit=PAGE)["letters"]:
        found += [letter["id"] for letter in letters]
        after = [letters[-1]["time"], letters[-1]["id"]]
    return found


@deadletters.command()
@options.file_option
@options.server_option("The server that has them.")
@click.argument("ids", metavar="ID...", type=options.ROW, nargs=-1, required=True)
@options.yes_option
@output_options
def drop(file: Path, server: str | None, ids: tuple[int, ...], yes: bool, output: str, columns: str) -> None:
    """Drop dead letters for good.

    \b
    Example:
      mom agent deadletters drop --server lyon 4711 --yes
    """
    for id in ids:
        _ask(file, server, "deadletter", id)  # it is there
    options.confirm(yes, f"Drop {'it' if len(ids) == 1 else f'all {len(ids)}'} for good?")
    show([_ask(file, server, "drop", id) for id in ids], output, columns)


def _ask(file: Path, server: str | None, verb: str, id: int, **more: str) -> dict[str, Any]:
    topology = options.load(file)
    return options.ask(topology, options.pick(topology, server), verb, id=id, **more)
