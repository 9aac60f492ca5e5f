"""`mom server`: one server of a topology file on this machine."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mombroker.admin import supervisor
from mombroker.admin.cli import options
from mombroker.admin.cli.join import join
from mombroker.admin.cli.lost import lost
from mombroker.admin.cli.output import output_options, show
from mombroker.core.errors import MomError
from mombroker.store import folder

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology

POLL = 0.1  # seconds between two looks at what a server does
STAYS = ("dead letters", "group", "user")  # what nobody moves
PATIENCE = 60.0  # for one to be ready
ANSWER = 1.0  # for it to answer, at one look
CLOSED = 2.0  # it runs, and lets us not in, which at its begin may be for a moment


@click.group()
def server() -> None:
    """One server of a bus: join, lost, start, stop, restart, reload, drain."""


server.add_command(join)
server.add_command(lost)


@server.command()
@options.file_option
@click.argument("name")
def start(file: Path, name: str) -> None:
    """Start a server that does not run.

    The `mom up` that looks after it does so, also after an end for good; where there is none, this is `mom up --server
    NAME --detach`.

    \b
    Example:
      mom server start lyon
    """
    topology = options.load(file)
    at = options.pick_process(topology, name)
    if _process(at):
        click.echo(f"{name} runs already")
    elif _ordered(topology, at, supervisor.START):
        click.echo(f"started {name}")
    else:
        _alone(file, topology, at)


@server.command()
@options.file_option
@click.argument("name")
def stop(file: Path, name: str) -> None:
    """Stop one server in good order; the others go on.

    `mom up` does not start it again until `mom server start`.

    \b
    Example:
      mom server stop lyon
    """
    at = options.pick_process(options.load_for_addresses(file), name)
    ran = _process(at)
    if not supervisor.order(Path(at.data), supervisor.STOP) and ran:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(ran, signal.SIGTERM)
    _await_end(at)
    click.echo(f"stopped {name}" if ran else f"{name} does not run here")


@server.command()
@options.file_option
@click.argument("name")
def restart(file: Path, name: str) -> None:
    """Stop one server in good order and start it again; the others go on.

    It is for servers that `mom up` started; one under systemd is restarted by `systemctl restart`.

    \b
    Example:
      mom server restart lyon
    """
    topology = options.load(file)
    at = options.pick_process(topology, name)
    ran = _process(at)
    if _ordered(topology, at, supervisor.RESTART):
        click.echo(f"restarted {name}" if ran else f"started {name}")
    elif ran:
        raise MomError(
            f"{name} runs without `mom up` (process {ran}): stop it by `mom server stop {name}`, and start it as it was"
        )
    else:
        _alone(file, topology, at)


@server.command()
@options.file_option
@click.argument("name")
def reload(file: Path, name: str) -> None:
    """Let a server read its settings anew: certificates, [limits] and [log] of its topology file.

    SIGHUP does the same. What is wrong stays as it was; then, or if more has changed in the file, a line tells so.

    \b
    Example:
      mom server reload lyon
    """
    topology = options.load(file)
    notes = options.ask(topology, options.pick_process(topology, name), "reload")["notes"]
    for note in notes:
        click.echo(f"{name} {note}")
    if any(note.startswith("keeps") for note in notes):
        raise MomError(f"{name} has not taken over all of it")
    click.echo(f"{name} has read its settings anew")


@server.command()
@options.file_option
@click.argument("name")
@click.option("--to", metavar="SERVER", default="", help="Where its queues, durable subscriptions and agents move.")
@click.option("--release", is_flag=True, help="Do not wait for what consumers have; give it out again.")
@click.option("--end", is_flag=True, help="It takes new work again.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Wait at most so many seconds.")
@output_options
def drain(file: Path, name: str, to: str, release: bool, end: bool, timeout: float, output: str, columns: str) -> None:
    """Have a server hold nothing any more: it lets no client in, makes nothing new, and its queues, subscriptions
    and agents move while they are used. Prints what is left.

    It waits until its clients have gone, too, up to the timeout; what is under way then goes on. The
    server is drained, also after a restart, until --end. Exit code 5 if something is left.

    \b
    Example:
      mom server drain lyon --to paris
      mom server drain lyon --end
    """
    from mombroker.net.adminclient import NoAnswer, NotRunning

    topology = options.load(file)
    at = options.pick(topology, name)

    def ask(verb: str, **args: Any) -> dict[str, Any]:
        try:
            return options.ask(topology, at, verb, **args)
        except (NoAnswer, NotRunning) as error:
            raise MomError(f"{error}; then drain it again, which goes on where it was") from None

    ask("drain", to=to, release=release, end=end)
    deadline = time.monotonic() + timeout
    while not end and (left := ask("holdings")["holdings"]):
        if time.monotonic() > deadline or all(_stays(each) for each in left):
            show(left, output, columns, "kind,name,messages,waits_for")
            options.fail_at_end(f"{name} still holds this")
            return
        time.sleep(5 * POLL)
        ask("drain", to=to, release=release)
    click.echo(f"{name} {'takes new work' if end else 'holds nothing'}", err=True)


def _stays(held: dict[str, Any]) -> bool:
    """Nobody moves it, or its new home has refused it."""
    refused = held["kind"] == "agent" and held["waits_for"] and not held["moving"]
    return held["kind"] in STAYS or bool(refused)


def _process(at: "Server") -> int:
    """The process that the server runs in, 0 if it does not run."""
    return folder.holder(Path(at.data) / folder.LOCK)


def _ordered(topology: "Topology", at: "Server", order: str) -> bool:
    """Let the `mom up` that looks after a server start it, and wait until it answers; False if there is none.

    Raises MomError if it does not come up.
    """
    from mombroker.net import adminclient

    was, log = _process(at), Path(at.data) / supervisor.LOG
    begin = log.stat().st_size if log.exists() else 0
    if not supervisor.order(Path(at.data), order):
        return False
    deadline, closed = time.monotonic() + PATIENCE, 0.0
    while True:
        if _process(at) not in (0, was):
            if adminclient.ready(topology, at.label, ANSWER):
                return True
            if not (why := adminclient.no_access(topology, at.label)):
                closed = 0.0
            elif time.monotonic() - (closed := closed or time.monotonic()) > CLOSED:
                raise MomError(f"{at.label} runs, and cannot be asked: {why}")
        if log.exists() and log.stat().st_size > begin and supervisor.GAVE_UP in supervisor.last_line(log):
            raise MomError(f"{at.label} did not start: {supervisor.last_line(log, before=1) or f'see {log}'}")
        if time.monotonic() > deadline:
            raise MomError(f"{at.label} does not answer; see {log}, or `mom status`")
        time.sleep(POLL)


def _alone(file: Path, topology: "Topology", at: "Server") -> None:
    from mombroker.admin.cli.up import detached

    options.importable(file)
    raise SystemExit(detached(file, topology, [at], "text"))


def _await_end(at: "Server") -> None:
    deadline = time.monotonic() + supervisor.GRACE + 5.0
    while _process(at):
        if time.monotonic() > deadline:
            raise MomError(f"{at.label} did not stop; see its log.txt, or kill it")
        time.sleep(POLL)
