"""`mom topology plan`, `apply`, `export`, `history`: the topology that a bus goes by, and how it is changed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.following import PATIENCE_S, wait_for, when_they_run
from mombroker.admin.cli.output import Target, echo_json, form_option, new_topology, output_options, show
from mombroker.admin.cli.renewing import Applied
from mombroker.core.errors import MomError
from mombroker.core.topology import listed
from mombroker.net.exit_codes import ExitCode

if TYPE_CHECKING:
    from mombroker.admin.topology.plan import Plan
    from mombroker.admin.topology.stand import Stand
    from mombroker.core.topology import Topology

NOW = click.option(
    "--now", "current", type=click.Path(path_type=Path), metavar="FILE",
    help="The file by which the servers on this machine run, if FILE lies elsewhere or leaves some of them out.",
)  # fmt: skip
DROP = click.option("--drop", is_flag=True, help="Servers leave with all that they hold.")


@click.command()
@options.file_option
@NOW
@DROP
@click.option("--detailed-exitcode", "detailed", is_flag=True, help="Exit code 7 if there is something to be changed.")
@form_option("table")
def plan(file: Path, current: Path | None, drop: bool, detailed: bool, output: str) -> None:
    """Show what FILE would change on the bus, and change nothing.

    FILE is held against the topology that the bus goes by, which its stores have. `+` is new, `-` goes, `~` changes. It
    says which servers pause, what is under way there and who is down; what a server that leaves still holds; and, of a
    change of domains, what a message costs now and would cost then, by the model of `mom topology advise` under the
    last messages in the logs on this machine. A file that cannot follow is refused, with what to write; the registry is
    asked whether it would take the change now.

    Exit code 7 if there is something to be changed and --detailed-exitcode is given; else 0.

    \b
    Example:
      mom topology plan bus.toml
      mom topology plan bus.toml -o json
    """
    _, found = _planned(_wanted(file), current, drop)
    if output == "json":
        echo_json(found.as_dict())
    else:
        _tell(found)
    if found.refused:
        raise MomError(f"this cannot be applied now: {found.refused}")
    if detailed and found.lines:
        raise SystemExit(ExitCode.CHANGES)


@click.command("apply")
@options.file_option
@NOW
@DROP
@options.yes_option
@click.option("--no-wait", "wait", is_flag=True, flag_value=False, default=True, help="Do not wait for its end.")
@click.option(
    "--timeout",
    type=options.Seconds(min=0),
    default=PATIENCE_S,
    show_default=True,
    help="Wait at most so many seconds for new servers to be started, and as many for the end.",
)
@form_option("table")
def apply_plan(
    file: Path, current: Path | None, drop: bool, yes: bool, wait: bool, timeout: float, output: str
) -> None:
    """Have the bus go by the topology in FILE. Shows the plan, and asks.

    The registry decides it, and all servers are told in one multicast: nobody pauses for addresses, policies, declared
    agents and `allow`. A server that is down has them when it is back. What is of one server alone (folders, listeners
    of clients, certificates, `[limits]`, `[log]`) is in its own file: `mom server reload`, or a restart.

    Where domains change, all servers of these must be up, or it is refused and nothing has changed. Then what enters
    these domains waits until all have switched; clients keep their connections, and other servers notice nothing. Who
    dies meanwhile is only waited for: `mom topology status` tells. Asked again, it waits for the end, too.

    New servers that are to be in domains which change are attached first, which pauses nobody; once they have been
    started, the domains change. It says whom it waits for. What was cut short in between, by --timeout or Ctrl-C, goes
    on when FILE is applied again.

    A server that leaves must hold nothing, or it is refused with what there is. With --drop it leaves all the same:
    its queues, subscriptions and agents are gone, their names are free again everywhere, its clients are sent away,
    and what is sent to it from then on is a dead letter where it comes from.

    Exit code 5 if it is not over within the timeout.

    \b
    Example:
      mom topology apply bus.toml
      mom topology apply bus.toml --yes
      mom topology apply bus.toml --drop
    """
    from mombroker.admin.topology import stand as stands
    from mombroker.core import revision
    from mombroker.net.adminclient import NoAnswer

    applied, wanted = Applied(file), _wanted(file)
    stand, found = _planned(wanted, current, drop)
    if output != "json":
        _tell(found)
    if not found.lines or found.under_way:
        _nothing_more(applied, stand, wanted, found, timeout if wait else None, output)
        return
    asked = next(stands.answering(stand, stand.topology.registry), None)
    if asked is None:
        raise MomError("no server of this bus answers here: start it, or run this on the machine of one")
    if found.refused:
        raise MomError(f"this cannot be applied now: {found.refused}")
    options.confirm(yes, f"Change the bus {wanted.name}?")
    at = stand.topology.servers[asked]
    dropped = {"drop": True} if drop else {}  # servers of an older version do not know it

    def change(to: "Topology", number: int) -> dict[str, Any]:
        args = {"text": revision.text_of(to), "revision": number, **dropped}
        try:
            return options.ask(stand.topology, at, "apply_topology", **args)
        except NoAnswer as error:
            raise MomError(f"{error}; it may be done all the same: `mom topology history` tells") from None

    number, newcomers = stand.number, _joined(stand, found)
    if found.first is not None:
        newcomers = list(found.change.newcomers)
        number = change(found.first, number)["revision"]
        applied.renew(number)
    if newcomers and wait:
        goes_on = (
            f"revision {number} is in force, with {listed(newcomers, 12)}: start what is not, and apply {file} again"
        )
        done = when_they_run(stand.topology, newcomers, lambda: change(wanted, number), goes_on, timeout)
    elif found.first is not None:
        click.echo(f"revision {number} is in force: start {', '.join(newcomers)}, and apply {file} again")
        return
    else:
        done = change(wanted, number)
    applied.renew(done["revision"])
    if done.get("begun") and wait:
        wait_for(_at_hand(stand, wanted), done["revision"], timeout)
    if output == "json":
        echo_json({"revision": done["revision"], "changes": found.lines, "over": wait or not done.get("begun")})
    elif done.get("begun") and not wait:
        click.echo(f"the change to revision {done['revision']} has begun: see `mom topology status`")
    else:
        click.echo(f"revision {done['revision']} is in force")


def _joined(stand: "Stand", found: "Plan") -> list[str]:
    """The servers that a change needs, that have joined the bus and were not started yet."""
    from mombroker.admin.topology import under_way

    if not (unseen := [name for name in found.needed if not stand.servers[name].number]):
        return []
    silent = {name: seen.why for name, seen in stand.servers.items() if seen.why}
    joining = under_way.joining(under_way.statuses(stand.topology, silent))
    return [name for name in unseen if name in joining]


def _nothing_more(
    applied: Applied, stand: "Stand", wanted: "Topology", found: "Plan", timeout: float | None, output: str
) -> None:
    """What is wanted is in force, or about to be: a change that is under way is waited for, as by who began it, unless
    `timeout` is None."""
    if found.refused:
        raise MomError(f"this cannot be applied now: {found.refused}")
    number = found.under_way or stand.number
    applied.renew(number)
    if found.under_way and timeout is not None:
        wait_for(_at_hand(stand, wanted), number, timeout)
    if output == "json":
        over = {"over": timeout is not None} if found.under_way else {}
        echo_json({"revision": number, "changes": found.lines, **over})
    elif found.under_way and timeout is not None:
        click.echo(f"revision {number} is in force")


@click.command()
@options.file_option
@click.option("--out", type=Target("toml", new=True), help="Write the file here instead of printing it.")
def export(file: Path, out: Path | None) -> None:
    """Print the topology that the bus goes by, as a file. What is of one server alone is as in FILE.

    \b
    Example:
      mom topology export --out now.toml
    """
    from mombroker.net import config

    file = options.found(file)
    stand = _look(options.load(file))
    base = (out.parent if out else Path.cwd()).absolute()
    same = base.resolve() == file.parent.resolve()
    stand.topology.revision = stand.number
    new_topology(config.dumps(stand.topology, base if same else None), out)


@click.command()
@options.file_option
@output_options
def history(file: Path, output: str, columns: str) -> None:
    """Show the last revisions of the topology of a bus, the newest first.

    \b
    Example:
      mom topology history
    """
    from mombroker.admin.topology import stand as stands

    rows = [
        {"revision": row["revision"], "time": row["since_ns"], "changes": row["changes"], "digest": row["digest"]}
        for row in stands.past(_look(options.load(file)))
    ]
    show(rows, output, columns, "revision,time,changes")


def _look(file: "Topology") -> "Stand":
    from mombroker.admin.topology import stand

    return stand.look(file)


def _at_hand(stand: "Stand", wanted: "Topology") -> "Topology":
    """The topology that is wanted, whose servers are asked where they are: its file may lie elsewhere than they do."""
    now = stand.topology.servers
    return replace(
        wanted, servers={name: now.get(name, server) for name, server in wanted.servers.items()}, checked=False
    )


def _wanted(file: Path) -> "Topology":
    return options.load(file, "the topology that is wanted is in it")


def _planned(wanted: "Topology", current: Path | None, drop: bool) -> "tuple[Stand, Plan]":
    from mombroker.admin.topology import plan as plans

    stand = _look(options.load(current) if current else wanted)
    return stand, plans.make(stand, wanted, drop)


def _tell(found: "Plan") -> None:
    for line in found.words():
        click.echo(line)
    if found.costs:
        click.echo("\nwhat a message costs")
        show(found.costs, "table", "", "topology,control_bytes,packets,rows,hops,delay_ms,price")
