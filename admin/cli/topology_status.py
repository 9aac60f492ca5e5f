"""`mom topology status` and `abort`: a change of the domains that is under way."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, form_option, output_options, show
from mombroker.core.errors import MomError
from mombroker.core.reconfiguration import ASKED
from mombroker.core.topology import listed

if TYPE_CHECKING:
    from mombroker.admin.topology.stand import Stand


@click.command()
@options.file_option
@output_options
def status(file: Path, output: str, columns: str) -> None:
    """Show how far a change of the domains is on each server.

    The phases are `ready` (it can do it), `frozen` (what enters the domains that change waits, `gate` messages so far),
    `draining` (it has switched, and lets these in), `switched` (others have not yet). Without a change there is none,
    but for `joining`: the server has joined the bus, and was not started yet.

    \b
    Example:
      mom topology status
    """
    from mombroker.admin.topology import under_way
    from mombroker.admin.topology.stand import UP

    stand = _look(file)
    silent = {name: seen.why for name, seen in stand.servers.items() if seen.state != UP}
    rows = under_way.statuses(stand.topology, silent)
    options.incomplete([row["server"] for row in rows if row["phase"] == "unknown"])
    if output != "json":
        for row in rows:
            row["waits_for"] = ", ".join(row["waits_for"])
    show(rows, output, columns, "server,revision,phase,gate,waits_for")


@click.command()
@options.file_option
@options.yes_option
@form_option("table")
def abort(file: Path, yes: bool, output: str) -> None:
    """Give up a change of the domains that has not begun: nothing has changed then.

    It begins as soon as all servers that it concerns have said that they can. From then on it goes on by itself; change
    the domains back when it is over. If none is under way, and a server has joined the bus and was never started, that
    is taken out again, as by `mom server lost NAME --remove`.

    \b
    Example:
      mom topology abort
      mom topology abort --yes
    """
    from mombroker.admin.topology import under_way

    stand = _look(file)
    topology = stand.topology
    registry = topology.registry or next(iter(topology.servers))
    if why := stand.servers[registry].why:
        raise MomError(f"only the registry {registry} can give a change up: {why}")
    bus = options.ask(topology, topology.servers[registry], "topology_status")["bus"]
    if not bus and (new := under_way.joining(under_way.statuses(topology))):
        from mombroker.admin.cli.lost import lost

        click.echo(f"{listed(new, 12)} joined the bus, and did not begin", err=True)
        click.get_current_context().invoke(lost, file=file, names=tuple(new), remove=True, yes=yes, output=output)
        return
    if bus.get("phase") == ASKED:
        options.confirm(yes, f"Give up the change to revision {bus['change']} of the topology?")
    done = options.ask(topology, topology.servers[registry], "topology_abort")
    if output == "json":
        echo_json(done)
    else:
        click.echo(f"the change to revision {done['change']} is given up: nothing has changed")


def _look(file: Path) -> "Stand":
    from mombroker.admin.topology import stand

    return stand.look(options.load(file))
