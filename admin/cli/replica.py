"""`mom replica`: the replicas of a server."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin.cli import options
from mombroker.admin.cli.output import output_options, show
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology

POLL_S = 0.02
PATIENCE_S = 10.0  # for another one to lead


def _serves(topology: "Topology", at: "Server", to: str, term: int) -> bool:
    """Has this replica taken over, in a term after this one? One on another machine is known by what is told here."""
    view = next(view for view in at.views() if view.replica == to)
    try:
        found = options.ask(topology, view, "replicas")
        return bool(found["leads"]) and found["term"] > term
    except MomError:
        with suppress(MomError):
            found = _told(topology, at)
            return bool(found["leader"] == to and found["term"] > term)
    return False


timeout_option = click.option(
    "--timeout", type=options.Seconds(min=0), default=600.0, show_default=True, help="Wait at most so many seconds."
)


@click.group()
def replica() -> None:
    """The replicas of a server: status, transfer, add, remove, replace, begin, end."""


@replica.command()
@options.file_option
@options.server_option("Which server of the file, or which of its replicas as SERVER/REPLICA.")
@output_options
def status(file: Path, server: str | None, output: str, columns: str) -> None:
    """Who leads, and how many entries of the log the others are behind.

    The replica that leads knows; while none does, another one tells what it knows. A replica that has lost its disk is
    `no member`.

    \b
    Example:
      mom replica status
      mom replica status -s paris/p2
    """
    topology = options.load(file)
    found = _told(topology, _replicated(topology, server))
    show(found["replicas"], output, columns, "replica,role,up,behind,listen,id")
    if not found["leader"]:
        options.fail_at_end(f"no replica of {found['server']} leads, as far as {found['replica']} knows")


@replica.command()
@options.file_option
@options.server_option("Which server of the file.")
@click.argument("to", required=False, metavar="[REPLICA]")
def transfer(file: Path, server: str | None, to: str | None) -> None:
    """Let another replica lead, this one or the one that has come furthest.

    What is under way is made durable first, and clients connect again. Nothing is lost or repeated by it: so the
    machines of a server are restarted or upgraded one after the other.

    \b
    Example:
      mom replica transfer
      mom replica transfer p2 -s paris
    """
    topology = options.load(file)
    at = _replicated(topology, server)
    before = options.ask(topology, at, "replicas")
    options.ask(topology, at, "transfer_lead", to=to or "")
    able = [to] if to else [place.name for place in at.replicas if place.name != before["leader"] and not place.witness]
    deadline = time.monotonic() + PATIENCE_S
    while not (leads := [name for name in able if _serves(topology, at, name, before["term"])]):
        if time.monotonic() > deadline:
            raise MomError(f"{to or 'another one'} does not lead {at.name} yet: see `mom replica status`")
        time.sleep(POLL_S)
    click.echo(f"{leads[0]} leads {at.name}")


@replica.command()
@options.file_option
@options.server_option("Which server of the file.")
@click.argument("new", metavar="REPLICA")
@timeout_option
def add(file: Path, server: str | None, new: str, timeout: float) -> None:
    """Let one more replica join, which the topology file has and which runs.

    It gets all that the server has, and votes when it is not far behind. The file of all replicas must name it:
    those of this machine read it anew, for others there is `mom server reload`.

    \b
    Example:
      mom replica add p4
    """
    _change(file, server, "", new, timeout)


@replica.command()
@options.file_option
@options.server_option("Which server of the file.")
@click.argument("old", metavar="REPLICA")
@timeout_option
def remove(file: Path, server: str | None, old: str, timeout: float) -> None:
    """Let a replica leave for good, whether it runs or not. Then it can be stopped, and taken out of the file.

    \b
    Example:
      mom replica remove p3
    """
    _change(file, server, old, "", timeout)


@replica.command()
@options.file_option
@options.server_option("Which server of the file.")
@click.argument("old", metavar="REPLICA")
@click.argument("new", required=False, metavar="[NEW]")
@timeout_option
def replace(file: Path, server: str | None, old: str, new: str | None, timeout: float) -> None:
    """Put a replica in the place of one that is lost: under another name, or the same with an empty folder.

    The old one leaves first, then the new one votes, as soon as it has all; until then one more loss stops the server.

    \b
    Example:
      mom replica replace p3
      mom replica replace p3 p4
    """
    _change(file, server, old, new or old, timeout)


@replica.command()
@options.file_option
@options.server_option("Which server of the file, or which of its replicas as SERVER/REPLICA. [default: the first one]")
def begin(file: Path, server: str | None) -> None:
    """A server that has worked without replicas gets some: its store becomes that of the first one.

    The server is stopped, and the file names its replicas; `data` of the first one is the folder that the server has
    had. Start that one then, and let the others join one after the other, by `mom replica add`: each begins with an
    empty folder, and gets all that the server has. The other servers are told by `mom topology apply` where it is.

    \b
    Example:
      mom replica begin -s paris
      mom replica add p2 -s paris
    """
    from mombroker.net.joining import has_store
    from mombroker.store import converting

    topology, at = _stopped(file, server)
    others = [view for view in topology.servers[at.name].views() if view.replica != at.replica]
    for other in others:
        if has_store(other.data):
            raise MomError(
                f"{other.label} has a store in {other.data}: give it an empty folder, or begin with that one"
            )
    if at.place.witness:
        raise MomError(f"{at.label} is a witness, which keeps no rows: begin with another one")
    id = converting.begin(Path(at.data), topology, at.name, at.replica)
    click.echo(f"{at.label} has what {at.name} has had, as its only replica ({id})")
    names = ", ".join(other.replica for other in others)
    click.echo(f"start it, and let {names} join by `mom replica add`" if names else "start it", err=True)


@replica.command()
@options.file_option
@options.server_option("Which server of the file, or which of its replicas as SERVER/REPLICA. [default: the first one]")
def end(file: Path, server: str | None) -> None:
    """A server has no replicas any more: the store of the only one that is left becomes that of the server.

    The others have left by `mom replica remove`, and the last one is stopped. Take `replicas` out of the file then,
    and let `data` of the server be the folder of that one.

    \b
    Example:
      mom replica end -s paris/p1
    """
    from mombroker.store import converting

    topology, at = _stopped(file, server)
    converting.end(Path(at.data), topology, at.name)
    click.echo(f"{at.data} is of {at.name} without replicas: take `replicas` out of the topology file")


def _stopped(file: Path, name: str | None) -> "tuple[Topology, Server]":
    """The file, and the replica that is named, or the first one of the server."""
    topology = options.load(file)
    at = _replicated(topology, name)
    return topology, at if at.replica else at.views()[0]


def _change(file: Path, name: str | None, old: str, new: str, timeout: float) -> None:
    topology = options.load(file)
    at = _replicated(topology, name)
    for view in at.views() if new else ():
        with suppress(MomError):
            options.ask(topology, view, "reload")
    asked = options.ask(topology, at, "change_replicas", old=old, new=new)
    deadline, said = time.monotonic() + timeout, ""
    while True:
        try:
            found = options.ask(topology, at, "replicas")
        except MomError:  # another one is to lead
            found = {}
        if found and not found["changing"]:
            if _done(found, asked):
                break
            options.ask(topology, at, "change_replicas", old=old, new=new)
        if found and found["changing"] != said:
            said = found["changing"]
            click.echo(said, err=True)
        if time.monotonic() > deadline:
            raise MomError(f"it is not done within {timeout:g} s ({said}): it goes on; see `mom replica status`")
        time.sleep(POLL_S)
    what = [f"{asked['new']} has joined"] * bool(new) + [f"{asked['old']} has left"] * bool(asked["old"])
    click.echo(", ".join(what))


def _done(found: dict[str, Any], asked: dict[str, Any]) -> bool:
    members = [*found["voters"], *found["learners"]]
    return asked["old"] not in members and (not asked["new"] or asked["new"] in found["voters"])


def _replicated(topology: "Topology", name: str | None) -> "Server":
    if name is not None and "/" in name:
        return options.pick_process(topology, name)
    at = options.pick(topology, name)
    if not at.replicas:
        raise MomError(f"{at.name} has no replicas: see `replicas` in docs/topology.md")
    return at


def _told(topology: "Topology", at: "Server") -> dict[str, Any]:
    """What one replica, the one that leads, or any of this machine says. Raises MomError if none does."""
    why: MomError | None = None
    for each in [at] if at.replica else [at, *at.views()]:
        try:
            return options.ask(topology, each, "replicas")
        except MomError as error:
            why = why or error
    assert why is not None, "nobody was asked"
    raise why
