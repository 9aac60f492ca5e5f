"""`mom check`: did the bus keep its promises? Judged from the stores of all its servers, also while they run."""

import math
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from mombroker import store
from mombroker.admin.audit import bus as audit
from mombroker.admin.audit import routes
from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, output_options, show, show_one
from mombroker.admin.cli.progress import Bar
from mombroker.core.errors import MomError
from mombroker.core.words import many
from mombroker.net.exit_codes import ExitCode
from mombroker.store.folder import STORE

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology
    from mombroker.store.reader import SqliteReader

SHOWN = 20  # findings of each kind in the table


@click.command()
@options.file_option
@click.option("--log", "exported", type=click.Path(path_type=Path), help="Read the logs from this export instead.")
@click.option("--at-rest", is_flag=True, help="With --log: all had arrived by then, or is lost; ask no store.")
@output_options
def check(file: Path, exported: Path | None, at_rest: bool, output: str, columns: str) -> None:
    """Judge from the logs alone whether the bus kept its promises.

    The logs of all servers of FILE are read as one consistent cut: whatever the rest of the bus did later is left out.
    Reported are messages that an agent took before one of their causes (violations), took twice (duplicates), took
    although nobody sent them (unsent), or that are in no log and no store any more (lost); and casts that a member of a
    group missed in a view in which others had them, or took out of order or outside of their view (views). Exit code 4
    if there are any, if a log has a hole, or if an export has no record of a server of FILE or lacks records that it
    had. Exit code 5 if there are none, but not all could be judged: the log of a server has lost its beginning, or the
    store of one is not at hand, which may say what was logged after the export, or of a server that has not begun yet
    is not there.

    An export (mom log export) is judged in memory that does not grow with it, and may go back further than the stores
    do. What had not arrived is searched for in the stores that are on this machine.

    \b
    Example:
      mom check bus.toml
      mom check bus.toml --log exported
      mom check bus.toml -o json
    """
    topology = options.load(file, f"it says which servers and domains the export {exported} is of" if exported else "")
    if not topology.log.get("enabled", True):
        raise MomError(f"{file} switches the log off, so there is nothing to judge; set enabled = true in [log]")
    if at_rest and not exported:
        raise click.UsageError("--at-rest says something about an export: name it by --log")
    with Bar("log records") as bar:
        found = _exported(topology, exported, at_rest, bar) if exported else _live(topology, bar)
    report = describe(found)
    if output == "json":
        echo_json(report)
    else:
        _tables(report, columns)
    for sentence in [*absent(found), *_unseen(topology, found), *found.holes, *found.restored]:
        click.echo(f"mom: {sentence}", err=True)
    if found.unjudged:
        click.echo(f"mom: {partly(found)}", err=True)
    if not found.clean or found.unjudged or found.unseen:
        raise SystemExit(ExitCode.INCOMPLETE if found.clean else ExitCode.WRONG)


def partly(found: audit.Findings) -> str:
    """One sentence on how much a verdict rests on."""
    percent = f"{math.floor(1000 * found.judged) / 10:g} %"  # never 100 while something is left out
    return f"{'clean as far as it' if found.clean else 'that'} could be judged, which is {percent}: see not_judged"


def _live(topology: "Topology", bar: Bar) -> audit.Findings:
    found = audit.audit(topology, at_hand(topology) or _readers(topology, topology.servers.values()), bar.at)
    for server in topology.servers.values():
        found.restored += _apart(server)
    return found


def _exported(topology: "Topology", exported: Path, at_rest: bool, bar: Bar) -> audit.Findings:
    from mombroker.admin.analysis import extra

    stores = {} if at_rest else at_hand(topology)
    found: audit.Findings = extra("audit.export").audit(topology, exported, stores, at_rest, bar.at)
    return found


def at_hand(topology: "Topology") -> "dict[str, SqliteReader]":
    """The stores that are on this machine."""
    there = [each for each in topology.servers.values() if (Path(store.folder_of(each)) / STORE).exists()]
    return _readers(topology, there)


def _readers(topology: "Topology", servers: "Iterable[Server]") -> "dict[str, SqliteReader]":
    from mombroker.admin.analysis.stores import check_owner

    readers = {server.name: store.read(_folder(topology, server)) for server in servers}
    for name, reader in readers.items():
        check_owner(reader, name, reader.path.parent)
    return readers


def _folder(topology: "Topology", server: "Server") -> str:
    """Where to read what a server has. Of replicas that nobody leads now the rows may lack what is decided: then what
    the next leader will have, which the logs say."""
    from mombroker.net import adminclient
    from mombroker.store import converting

    if not server.replicas:
        return server.data
    try:
        adminclient.connect(topology, server.name).close()
    except MomError:
        if there := _kept(server):
            target = click.get_current_context().with_resource(TemporaryDirectory())
            return str(converting.as_next_leader(there.values(), topology, server.name, Path(target)))
    return store.folder_of(server)


def _kept(server: "Server") -> dict[str, Path]:
    """The folders of its replicas that are on this machine, but for witnesses."""
    views = [view for view in server.views() if view.replica and not view.place.witness]
    return {view.label: Path(view.data) for view in views if (Path(view.data) / STORE).exists()}


def _apart(server: "Server") -> list[str]:
    """A sentence where the logs of two replicas differ in what both hold for decided: that of each leader goes on where
    that of the one before has ended."""
    from mombroker.store import converting

    there = list(_kept(server).items())
    return [
        f"entry {entry} of the logs of {one} and {other} differs: the store of one of them is an old copy, or of "
        "another group; give it an empty folder, and run `mom replica replace`"
        for at, (one, folder) in enumerate(there)
        for other, others in there[at + 1 :]
        if (entry := converting.differing(folder, others))
    ]


def absent(found: audit.Findings) -> list[str]:
    """A sentence on the servers of which an export has nothing."""
    if not found.absent:
        return []
    names = ", ".join(found.absent)
    return [
        f"the export has no record of {names}, so what they did is not judged: export their logs, too (mom log "
        "export); of one that never logged anything, check where its store is, without --at-rest"
    ]


def _unseen(topology: "Topology", found: audit.Findings) -> list[str]:
    """A sentence on the servers whose stores are not here, while those of others are."""
    return [
        f"there is no store of {name} in {store.folder_of(topology.servers[name])}, so what it did is not judged: "
        "start it if it has not begun yet, or run this where its folder is"
        for name in found.unseen
    ]


def describe(found: audit.Findings) -> dict[str, Any]:
    """The findings as plain values; a message is written `server#number`."""

    def name(id: routes.MessageId) -> str:
        return f"{id[0]}#{id[1]}"

    def pairs(findings: list[tuple[str, routes.MessageId]]) -> list[dict[str, str]]:
        return [{"agent": str(agent), "message": name(id)} for agent, id in findings]

    return {
        "clean": found.clean,
        "judged_pct": math.floor(1000 * found.judged) / 10,
        "records": found.records,
        "sends": found.sends,
        "reactions": found.reactions,
        "violations": [
            {"agent": agent, "late": name(late), "before": name(before)} for agent, late, before in found.violations
        ],
        "duplicates": pairs(found.duplicates),
        "unsent": pairs(found.unsent),
        "lost": pairs(found.lost),
        "views": [
            {"agent": agent, "group": group, "view": number, "cast": name(id), "wrong": wrong}
            for agent, group, number, id, wrong in found.views
        ],
        "waiting": found.waiting,
        "ended": found.ended,
        "outside_the_cut": found.uncut,
        "not_judged": found.unjudged,
        "logs_without_beginning": found.retired,
        "servers_without_log": found.absent,
        "servers_without_store": found.unseen,
        "holes": found.holes,
        "restored": found.restored,
        "agents": found.agents,
    }


def _tables(report: dict[str, Any], columns: str) -> None:
    findings = ("violations", "duplicates", "unsent", "lost", "views")
    show_one({k: len(v) if k in (*findings, "agents") else v for k, v in report.items()}, "table", columns)
    for name in findings:
        if report[name]:
            click.echo(f"\n{name}:")
            show(report[name][:SHOWN], "table", "")
            if len(report[name]) > SHOWN:
                click.echo(f"... {len(report[name]) - SHOWN} more; see -o json")
    if report["agents"] and not columns:
        click.echo()
        most = sorted(report["agents"].items(), key=lambda pair: (-pair[1], pair[0]))
        show([{"agent": agent, "reactions": count} for agent, count in most[:SHOWN]], "table", "")
        if len(most) > SHOWN:
            click.echo(f"... {many(len(most) - SHOWN, 'agent')} more; see -o json")
