"""`mom domain reset` and `mom topology adopt`: done to all stores of a bus at once, while none of its servers runs."""

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path

import click

from mombroker import agents
from mombroker import store as stores
from mombroker.admin import leaving
from mombroker.admin import reset as surgery
from mombroker.admin.cli import options
from mombroker.admin.cli.group import Group
from mombroker.admin.cli.output import echo_json, output_options, show, whole
from mombroker.admin.cli.renewing import Applied
from mombroker.core.batch import Reader
from mombroker.core.errors import MomError, StoreError
from mombroker.core.meta import GRAPH, SERVER
from mombroker.core.topology import Topology, listed
from mombroker.store.base import Store
from mombroker.store.folder import STORE, Lock

REPORT = "reset.json"  # beside what is left of a lost store
ROWS = 20  # of each list of a report that are printed


@click.group(cls=Group)
def domain() -> None:
    """Domains of causality: reset."""


def open_all(
    stack: contextlib.ExitStack, topology: Topology, names: Iterable[str], *, adopt: bool = False
) -> dict[str, Store]:
    """Stores, locked until the stack unwinds. Raises StoreError while one of their servers runs."""
    return {
        name: stack.enter_context(
            contextlib.closing(stores.open(topology.servers[name].data, topology, name, adopt=adopt))
        )
        for name in names
    }


def _present(topology: Topology, names: set[str]) -> None:
    """Opening would make a store; here a missing one is most likely on another machine."""
    missing = [f"{name} ({topology.servers[name].data})" for name in sorted(names) if not _store_of(topology, name)]
    if missing:
        raise MomError(
            f"no store of {', '.join(missing)}: bring the data folders of all servers to this machine, stopped, "
            "and put them back afterwards"
        )


def _store_of(topology: Topology, name: str) -> bool:
    return (Path(topology.servers[name].data) / STORE).exists()


@domain.command("reset")
@options.file_option
@click.argument("server")
@options.yes_option
@output_options
def reset(file: Path, server: str, yes: bool, output: str, columns: str) -> None:
    """Go on after the store of SERVER was lost for good, or was restored from an old copy.

    All servers must be stopped. Before that, let the survivors run until only what waits for SERVER is left. What can
    still be delivered is delivered; the rest of what was under way in SERVER's domains becomes dead letters; the
    clocks of those domains start anew. What is left of SERVER's own store is set aside, and it gets a new one.

    \b
    Example:
      mom down && mom domain reset lyon && mom up
    """
    topology = options.load(file)
    options.importable(file)
    lost = options.pick(topology, server)
    program = agents.program(topology)
    _present(topology, set(topology.servers) - {server})
    options.confirm(yes, f"Give up the store of {server} in {lost.data}, with its agents and queues?")
    with contextlib.ExitStack() as stack:
        found = open_all(stack, topology, [name for name in topology.servers if name != server])
        plan = surgery.plan(topology, server, found, program, time.time_ns())
        report, aside = plan.report, _set_aside(Path(lost.data))
        # Should this be cut short, a second run would not find again what the first one has buried.
        with whole(aside / REPORT) as draft:
            draft.write_text(json.dumps(report.as_dict(), indent=1))
        plan.commit(found | open_all(stack, topology, [server]))
    show_report(report, output, columns, aside / REPORT)


def _set_aside(data: Path) -> Path:
    """The folder that what is left of a lost store is in from now on."""
    stem = f"{data.name}.lost-{time.strftime('%Y%m%d-%H%M%S')}"
    names = chain([stem], (f"{stem}.{number}" for number in count(2)))  # one may be repeated within a second
    aside = next(path for path in map(data.with_name, names) if not path.exists())
    if data.exists():
        Lock(data).release()  # raises while its server runs
        data.rename(aside)
        click.echo(f"what was in {data} is now in {aside}", err=True)
    else:
        aside.mkdir(parents=True)
    return aside


def show_report(report: surgery.Report, output: str, columns: str, saved: Path) -> None:
    if output == "json":
        echo_json(report.as_dict())
        return
    click.echo(f"new clocks in {', '.join(report.domains)}")
    for title, rows in (("dead letters", report.dead), ("lost, or possibly half delivered", report.lost)):
        click.echo(f"{title}: {len(rows)}")
        if rows:
            show(rows[:ROWS], output, columns)
        if len(rows) > ROWS:
            click.echo(f"... {len(rows) - ROWS} more are in {saved}")
    if report.names:
        click.echo(f"names forgotten: {', '.join(report.names)}")
    for note in report.notes:
        click.echo(note)


@click.command("adopt")
@options.file_option
@click.option("--drop", is_flag=True, help="Give up all that servers hold which the file does not have any more.")
@options.yes_option
@output_options
def adopt(file: Path, drop: bool, yes: bool, output: str, columns: str) -> None:
    """Put the stores of all servers under the domains of the topology file FILE. All servers must be stopped.

    New servers and domains can be attached at any time. Any other change of the domains needs a bus in which nothing
    is under way, and starts all clocks anew.

    A server that FILE does not have any more must hold nothing: no queue, subscription, agent, message or dead letter.
    Its store is looked for beside those of the others. With --drop it may, and what the others know of it is withdrawn,
    so that its names can be taken again. Its own store is left as it is.

    \b
    Example:
      mom topology adopt mombroker.toml
      mom topology adopt mombroker.toml --drop --yes
    """
    applied, topology = Applied(file), options.load(file)
    metas: dict[str, leaving.Meta] = {}
    for name, server in topology.servers.items():
        if _store_of(topology, name):
            with contextlib.closing(stores.read(server.data)) as store:
                metas[name] = store.meta()
    if not metas:
        raise MomError("none of the servers has a store of a bus yet: there is nothing to adopt, start them")
    _present(topology, leaving.members(metas) & set(topology.servers))
    with contextlib.ExitStack() as stack:
        found = open_all(stack, topology, topology.servers, adopt=True)
        left = _left(stack, topology, metas)
        options.confirm(yes, f"Put the stores of {listed(topology.servers, 12)} under the domains of {file}?")
        report = surgery.adopt(topology, found, left, drop)
        applied.renew(report.revision)
    if output == "json":
        echo_json(report.as_dict())
    else:
        click.echo("; ".join(report.notes))
        if report.names:
            click.echo(f"names withdrawn: {', '.join(report.names)}")


def _left(stack: contextlib.ExitStack, topology: Topology, metas: Mapping[str, leaving.Meta]) -> dict[str, Reader]:
    """The stores of servers that leave the bus, as far as they lie beside those of the others; none of them runs."""
    gone = leaving.departed(topology.servers, metas)
    graphs = {meta[GRAPH] for meta in metas.values()}
    found: dict[str, Reader] = {}
    for parent in {Path(server.data).parent for server in topology.servers.values()} if gone else ():
        for folder in sorted(path.parent for path in parent.glob(f"*/{STORE}")):
            with contextlib.suppress(StoreError):  # of whatever else lies there
                store = stack.enter_context(contextlib.closing(stores.read(folder)))
                meta = store.meta()
                if meta.get(SERVER) in gone and meta.get(GRAPH) in graphs:
                    found[str(meta[SERVER])] = store
                    stack.callback(_lock(folder).release)
    return found


def _lock(folder: Path) -> Lock:
    """Raises MomError while its server runs."""
    try:
        return Lock(folder)
    except StoreError as error:
        raise MomError(str(error)) from None
