"""`mom topology`: look at topology files, make them, import them; what a bus goes by is in topology_change.py."""

from pathlib import Path
from typing import Any

import click

from mombroker import agents, ordering
from mombroker.admin.cli import options
from mombroker.admin.cli.advise import advise
from mombroker.admin.cli.domain import adopt
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import Target, echo_json, new_topology, output_options, show, show_one
from mombroker.admin.cli.topology_change import apply_plan, export, history, plan
from mombroker.admin.cli.topology_status import abort, status
from mombroker.admin.topology import joram, render
from mombroker.core import layouts
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.topology import RoutingTable, Topology, suggestion
from mombroker.net import config
from mombroker.net.exit_codes import ExitCode

OUT = click.option("--out", type=Target("toml", new=True), help="Write the file here instead of printing it.")


ABOUT = (
    "Topologies: plan, apply, status, abort, export, history, validate, show, render, route, generate, import, adopt, "
    "advise."
)


@click.group("topology", cls=Group, help=ABOUT)
def topology() -> None: ...


topology.add_command(adopt)
topology.add_command(advise)
for change in (plan, apply_plan, status, abort, export, history):
    topology.add_command(change)


@topology.command("validate")
@options.file_option
@output_options
def validate(file: Path, output: str, columns: str) -> None:
    """Check a topology file, and tell all that is wrong with it at once.

    The classes of its agents are imported, from beside the file or the current folder: a server starts without one that
    cannot be, and what is for that agent waits. Exit code 4 if something is wrong.

    \b
    Example:
      mom topology validate etc/two-sites.toml
    """
    file = options.source(file, "a topology file")
    try:
        bus = config.load(file)
        options.importable(file)
        if faults := agents.faults(bus):
            raise TopologyError([f"{file}: {fault}" for fault in faults])
    except TopologyError as error:
        if output != "json":
            raise options.Failure(ExitCode.WRONG, str(error)) from None
        show_one({"file": str(file), "valid": False, "errors": error.errors}, output, columns)
        raise SystemExit(ExitCode.WRONG) from None
    record = {"file": str(file), "valid": True, "servers": len(bus.servers), "domains": len(bus.domains)}
    show_one({**record, "routers": len(bus.routers), "agents": len(bus.agents)}, output, columns)


@topology.command("show")
@options.file_option
@output_options
def show_topology(file: Path, output: str, columns: str) -> None:
    """Show the servers, domains and agents of a topology file, and what domains cost. Columns are those of the whole.

    Control bytes are those of one packet on one link, by the formulas of the papers (docs/orderings.md), under the back
    end's typical traffic and at worst; real ones are fewer, since integers are packed, and are in the log. Packets are
    those of a message that goes to one member of the domain, and of one that goes to all.

    \b
    Example:
      mom topology show etc/two-sites.toml -c servers,notes
      mom topology show etc/mixed.toml -c costs
    """
    whole = describe(config.load(file))
    if output == "json" or columns:
        show_one(whole, output, columns)
        return
    show_one({name: value for name, value in whole.items() if value}, output)


def describe(bus: Topology) -> dict[str, Any]:
    """All that a topology file says, and what follows from it."""
    servers = [
        {
            "server": server.label,
            "listen": server.listen,
            "stomp": server.stomp,
            "amqp": server.amqp,
            "data": server.data,
            "domains": [domain.name for domain in bus.domains_of(server.name)],
        }
        for each in bus.servers.values()
        for server in each.views()
    ]
    domains = [
        {
            "domain": domain.name,
            "ordering": domain.backend,
            "options": domain.options,
            "servers": list(domain.members),
            "routers": [server for server in domain.members if len(bus.domains_of(server)) > 1],
        }
        for domain in bus.domains.values()
    ]
    costs = [
        {"domain": domain.name, **ordering.backend(domain.backend).describe(domain.members, domain.options)}
        for domain in bus.domains.values()
    ]
    agents = [
        {"agent": agent.name, "server": agent.server, "class": agent.cls, "fields": agent.fields}
        for agent in bus.agents
    ]
    notes = [
        {
            "domain": domain.name,
            "note": f"{domain.backend}: a member that stays down costs the others disk for all traffic",
        }
        for domain in bus.domains.values()
        if ordering.backend(domain.backend).spreads
    ]
    return {
        "bus": bus.name,
        "revision": bus.revision or None,
        "registry": bus.registry,
        "secret_file": bus.secret_file,
        "allow": list(bus.allow),
        "limits": bus.limits,
        "log": bus.log,
        "servers": servers,
        "domains": domains,
        "costs": costs,
        "agents": agents,
        "notes": notes,
    }


@topology.command("render")
@options.file_option
@click.option("--as", "form", type=click.Choice(list(render.FORMS)), default="ascii", show_default=True, help="Form.")
def render_topology(file: Path, form: str) -> None:
    """Draw a topology as text, for Graphviz, or for Mermaid.

    \b
    Example:
      mom topology render etc/two-sites.toml --as dot | dot -Tsvg > bus.svg
    """
    click.echo(render.FORMS[form](config.load(file)))


@topology.command("route")
@options.file_option
@click.argument("a")
@click.argument("b")
@output_options
def route(a: str, b: str, file: Path, output: str, columns: str) -> None:
    """Show the hops of a message from server A to server B.

    \b
    Example:
      mom topology route paris nancy --file etc/two-sites.toml
    """
    bus = config.load(file)
    for name in (a, b):
        if name not in bus.servers:
            hint = suggestion(name, bus.servers) or f"its servers are {', '.join(bus.servers)}"
            raise MomError(f"{file} has no server {name!r}: {hint}")
    hops = RoutingTable(bus, a).path(b) if a != b else []
    starts = [a, *(server for _, server in hops)]
    rows = [
        {"hop": at + 1, "from": starts[at], "domain": domain, "ordering": bus.domains[domain].backend, "to": server}
        for at, (domain, server) in enumerate(hops)
    ]
    show(rows, output, columns)
    if not hops:
        click.echo(f"{a} is {b}: its messages to itself take no hop", err=True)


@topology.command("generate")
@click.argument("layout", type=click.Choice(list(layouts.LAYOUTS)))
@click.argument("n", type=click.IntRange(1))
@click.option("--size", type=int, help="Servers of a domain (chain, tree).")
@click.option("--children", type=int, help="Domains below each domain (tree).")
@click.option("--name", default="", help="Name of the bus; the layout's unless given.")
@click.option("--ordering", default="", help="Back end of all domains; fifo between two and matrix unless given.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=layouts.PORT, show_default=True, help="Of the first server."
)
@click.option("--stomp", type=click.IntRange(1, 65535), help="Port for clients of the first server.")
@OUT
def generate(
    layout: str,
    n: int,
    size: int | None,
    children: int | None,
    name: str,
    ordering: str,
    port: int,
    stomp: int | None,
    out: Path | None,
) -> None:
    """Make a topology of N servers on this machine.

    bus: √N domains on a backbone; chain: one domain after another; tree: domains below domains; flat: one domain.

    \b
    Example:
      mom topology generate bus 16 --out topology.toml
    """
    bus = layouts.generate(
        layout, n, size=size, children=children, name=name, ordering=ordering, port=port, stomp=stomp
    )
    new_topology(config.dumps(bus), out)


@topology.command("import")
@click.argument("a3servers", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["toml", "json"]), default="toml", show_default=True, help="Form.")
@OUT
def import_joram(a3servers: Path, output: str, out: Path | None) -> None:
    """Make a topology of JORAM's a3servers.xml; names that had to change, and what has no counterpart, are listed.

    \b
    Example:
      mom topology import a3servers.xml --out topology.toml
    """
    found = joram.read(a3servers)
    text = config.dumps(found.topology, remarks=found.remarks())
    if output == "json":
        renamed = [{"what": what, "old": old, "new": new} for what, old, new in found.renamed]
        record = {**describe(found.topology), "renamed": renamed, "left_out": found.left_out}
        if out:
            new_topology(text, out)
        echo_json(record)
        return
    new_topology(text, out)
    for remark in found.remarks():
        click.echo(remark, err=True)
