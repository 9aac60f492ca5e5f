"""`mom server lost`: a server whose store is gone for good."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.following import wait_for
from mombroker.admin.cli.output import echo_json, form_option, show
from mombroker.core.errors import MomError
from mombroker.core.topology import listed

if TYPE_CHECKING:
    from mombroker.admin.topology.losing import Plan
    from mombroker.admin.topology.stand import Stand
    from mombroker.core.topology import Topology

LETTERS = "server,id,agent,type,source,reason"


@click.command()
@options.file_option
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Nobody begins in its place: take it out of the bus.")
@options.yes_option
@form_option("table")
def lost(file: Path, names: tuple[str, ...], remove: bool, yes: bool, output: str) -> None:
    """Go on for good without a server whose store is gone. The others work on.

    Its store is fenced: should it come back, nobody takes anything of it. Its neighbours, which must all be up, find
    out what they have of each other, while what enters the domains that they share with it waits; then these begin
    anew. What lived on NAME is gone: its queues, subscriptions and agents, whose names are free again. What was on the
    way to it or through it is a dead letter, and its sender is told whether it was delivered, or that nobody knows:
    `mom agent deadletters retry` sends it again, to whoever has the name then. What NAME alone had is lost with it,
    also what it kept for topics in total order until that is due.

    Another server begins in its place: start NAME with an empty data folder. With --remove nobody does, which a router
    cannot do without: it is taken out of the topology, as by `mom topology apply`. Servers that are lost together are
    named together.

    A change of the domains that NAME is inside of, and that has not begun, is given up first, and nothing of it has
    changed. One that has begun is carried out without NAME by the others inside, which must all be up.

    Asked again, it goes on where it was. For the registry there is `mom domain reset`.

    \b
    Example:
      mom server lost lyon
      mom server start lyon
      mom server lost nancy --remove
    """
    from mombroker.admin.topology import losing, stand

    wanted = list(dict.fromkeys(names))
    shown = listed(wanted, 12)
    seen = stand.look(options.load(file))
    asker = losing.Asker(seen.topology)
    made = losing.plan(asker, wanted)
    if remove:
        losing.without(seen.topology, wanted)  # which may be refused
    if change := losing.change_of(asker, wanted):
        click.echo(change, err=output == "json")
    else:
        _tell(made, output)
    options.confirm(yes, f"Go on without {shown} for good?")
    if change:
        losing.end_change(asker, wanted)
        seen = stand.look(options.load(file))
        asker.topology = seen.topology
        wanted = [name for name in wanted if name in seen.topology.servers]
        made = losing.plan(asker, wanted) if wanted else losing.Plan(0, {})
        _tell(made, output)
    losing.carry_out(asker, made, wanted)
    if remove and wanted:
        _take_out(seen, losing.without(seen.topology, wanted), wanted)
    found = losing.letters(asker, list(names))
    if output == "json":
        lost = list(dict.fromkeys(names))
        echo_json({"lost": lost, "epoch": made.epoch, "domains": list(made.left), "letters": found, "change": change})
        return
    if found:
        show(found, "table", "", LETTERS)
    click.echo(f"{shown} lost, with all that lived there; {len(found)} messages on their way are dead letters here")
    if remove or not wanted:
        click.echo(f"{shown} is out of the bus; `mom topology export` writes a file without it")
    else:
        click.echo(f"another one begins in its place with an empty folder: `mom server start {wanted[0]}`")


def _tell(made: "Plan", output: str) -> None:
    for domain, members in made.left.items() if output != "json" else ():
        done = "has begun anew already" if domain in made.done else "stops for a moment, and begins anew"
        click.echo(f"domain {domain} of {listed(members, 12)} {done}")


def _take_out(seen: "Stand", rest: "Topology", wanted: list[str]) -> None:
    from mombroker.admin.topology import stand
    from mombroker.core import revision

    asked = next(stand.answering(seen, seen.topology.registry), None)
    if asked is None:
        raise MomError("no server of this bus answers here: start it, or run this on the machine of one")
    at, text = seen.topology.servers[asked], revision.text_of(rest)
    done = options.ask(seen.topology, at, "apply_topology", text=text, revision=seen.number, lost=wanted)
    if done.get("begun"):
        wait_for(rest, done["revision"])
