"""`mom up` and `mom down`: all servers of a topology file as processes of this machine."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from mombroker.admin import supervisor
from mombroker.admin.cli import options
from mombroker.admin.cli.output import echo_json, form_option
from mombroker.admin.cli.progress import Bar
from mombroker.admin.cli.serve import makes
from mombroker.core.errors import MomError
from mombroker.net import hangup
from mombroker.net.exit_codes import ExitCode
from mombroker.store import folder as folders

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology

POLL = 0.1  # seconds between two looks at what a server does
PATIENCE = 3  # failed starts of a server, until `up` no longer waits for it
ANSWER = 1.0  # seconds for a starting server to tell its status
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")

# What the supervisor tells: ("ready", server), ("again" or "over", sentence), ("settled", "").
Tell = Callable[[str, str], None]


@click.command()
@options.file_option
@click.option("-s", "--server", "names", metavar="NAME", multiple=True, help="Only this server; can be repeated.")
@click.option("-d", "--detach", is_flag=True, help="Return once all are ready; `mom down` stops them.")
@form_option("text")
def up(file: Path, names: tuple[str, ...], detach: bool, output: str) -> None:
    """Run all servers of a topology file on this machine.

    Each is a process of its own that logs to log.txt in its data folder; a log of 10 MiB becomes log.txt.1, and five of
    these are kept. One that dies is started again, with growing
    pauses, but not one that refused to start or that cannot write its store. In the foreground their logs are shown,
    and Ctrl-C stops them all in good order.

    \b
    Example:
      mom up etc/two-sites.toml
      mom up etc/two-sites.toml --detach
    """
    hangup.hold()
    if output == "json" and not detach:
        raise click.UsageError("-o json goes with --detach: in the foreground the servers' logs are shown")
    topology = options.load(file)
    servers = [options.pick_process(topology, name) for name in names] or options.processes(topology)
    options.importable(file)
    _check_secret(topology)
    code = detached(file, topology, servers, output) if detach else attached(file, topology, servers)
    raise SystemExit(code)


def _check_secret(topology: "Topology") -> None:
    """Raises MomError once for all servers, which would each refuse to start."""
    from mombroker.net.secret import secret_of

    secret_of(topology, lambda line: None)


@click.command()
@options.file_option
@form_option("text")
def down(file: Path, output: str) -> None:
    """Stop the servers that `mom up` started.

    They make durable what they have and then end; what waits for delivery goes on at the next start. Servers of FILE
    that run here without `mom up` are stopped too.

    \b
    Example:
      mom down etc/two-sites.toml
    """
    stopped = _end({each.label: Path(each.data) for each in options.processes(options.load_for_addresses(file))})
    if output == "json":
        echo_json({"stopped": stopped})
    else:
        click.echo(f"stopped {', '.join(stopped)}" if stopped else f"no server of {file} runs here")


def _end(data: dict[str, Path]) -> list[str]:
    """Stop the servers in these data folders with those who look after them, and wait for their end; which of them ran.

    Raises MomError for those that take too long, and those that somebody starts meanwhile.
    """
    ran: set[str] = set()

    def held(file: str) -> dict[str, int]:
        ran.update(name for name, folder in data.items() if folders.holder(folder / folders.LOCK))
        return {name: pid for name, folder in data.items() if (pid := folders.holder(folder / file))}

    with Bar("stopped") as bar:
        for file in (supervisor.LOCK, folders.LOCK):  # a supervisor stops its own servers; then those of none
            first = left = held(file)
            for pid in set(first.values()):
                with suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + supervisor.GRACE + 5.0
            while left := {name: pid for name, pid in held(file).items() if first.get(name) == pid}:
                bar.at(len(first) - len(left), len(first))
                if time.monotonic() > deadline:
                    raise MomError(f"{', '.join(left)} did not stop; see its log.txt, or kill it")
                time.sleep(POLL)
    if again := held(supervisor.LOCK) | held(folders.LOCK):
        raise MomError(f"{', '.join(again)} was started meanwhile and runs: run `mom down` again")
    return [name for name in data if name in ran]


# -- in the foreground -------------------------------------------------------------------------------------------------


def attached(file: Path, topology: "Topology", servers: "list[Server]") -> int:
    ready: list[str] = []
    tails = Tails({server.label: Path(server.data) / supervisor.LOG for server in servers})
    with Bar("servers are up") as bar:
        bar.at(0, len(servers))

        def tell(kind: str, text: str) -> None:
            if kind == "ready":
                ready.append(text)
                bar.at(len(ready), len(servers))
            elif kind == "settled":
                bar.close()
                click.echo(f"{len(ready)} of {len(servers)} servers are up; Ctrl-C stops them", err=True)
                watch.tails = tails
            else:
                bar.say(text)

        watch = Watch(topology, [server.label for server in servers], tell)
        return _supervisor(file, topology, servers, watch).run()


# -- in the background -------------------------------------------------------------------------------------------------


def detached(file: Path, topology: "Topology", servers: "list[Server]", output: str) -> int:
    """Fork a supervisor that stays, and wait until it says that its servers are ready, or why they are not."""
    hangup.hold()
    ours, its = os.pipe()
    if not os.fork():
        os.close(ours)
        _stay(file, topology, servers, its)
    os.close(its)
    ready: list[str] = []
    with Bar("servers are up") as bar, open(ours) as lines:
        for kind, text in map(json.loads, lines):
            ready += [text] * (kind == "ready")
            bar.at(len(ready), len(servers))
            if kind in ("again", "over"):
                bar.say(text)
    if output == "json":
        echo_json({"up": ready, "not_up": [server.label for server in servers if server.label not in ready]})
    elif ready:
        click.echo(f"{len(ready)} of {len(servers)} servers are up; `mom down` stops them")
    return ExitCode.DONE if len(ready) == len(servers) else ExitCode.REFUSED


def _stay(file: Path, topology: "Topology", servers: "list[Server]", pipe: int) -> None:
    """The supervisor's process: away from the terminal, and never back into the caller's."""
    code: int = ExitCode.REFUSED
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(folders.make(servers[0].data) / supervisor.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream, target in ((0, null), (1, log), (2, log)):
            os.dup2(target, stream)

        def tell(kind: str, text: str) -> None:
            nonlocal pipe
            if pipe >= 0:
                with suppress(BrokenPipeError):  # nobody waits any more
                    os.write(pipe, json.dumps([kind, text]).encode() + b"\n")
            if pipe >= 0 and kind == "settled":
                running.private.remove(pipe)
                os.close(pipe)
                pipe = -1

        watch = Watch(topology, [server.label for server in servers], tell)
        running = _supervisor(file, topology, servers, watch)
        running.private.append(pipe)
        running.reloads = True
        try:
            code = running.run()
        except MomError as error:
            tell("over", str(error))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


# -- both --------------------------------------------------------------------------------------------------------------


def _supervisor(file: Path, topology: "Topology", servers: "list[Server]", watch: "Watch") -> supervisor.Supervisor:
    from mombroker.net import service  # loaded once, before the servers are forked

    logs = {server.label: Path(server.data) / supervisor.LOG for server in servers}

    def serve(name: str) -> int:
        now = _as_written(file, topology, name)
        return service.serve(now, name, load=lambda: options.load(file), file=logs[name], makes=makes(file))

    children = [supervisor.Child(server.label, Path(server.data)) for server in servers]
    return supervisor.Supervisor(children, serve, watch)


def _as_written(file: Path, former: "Topology", name: str) -> "Topology":
    """The file as it is at this start of a server. What is wrong with it is told, and the former is kept."""
    try:
        topology = options.load(file)
        at, was = topology.process(name), former.process(name)
        if at is None:
            raise MomError(f"the topology file has no server {name!r} any more")
        if was is not None and at.data != was.data:
            raise MomError(f"its data folder is {was.data}, and another one needs `mom down` and `mom up`")
    except MomError as error:
        print(f"{name} keeps the settings that it had: {error}", file=sys.stderr)
        return former
    return topology


class Tails:
    """What is added to log files from now on, line by line, under the name of the server."""

    def __init__(self, logs: dict[str, Path]):
        self.logs = logs
        self.files: dict[str, BinaryIO] = {}
        self.parts = dict.fromkeys(logs, b"")  # of a line that is not whole yet
        self.width = max(map(len, logs))
        for name, log in logs.items():
            if log.exists():
                self.files[name] = log.open("rb")
                self.files[name].seek(0, os.SEEK_END)

    def show(self) -> None:
        for number, name in enumerate(self.logs):
            *whole, self.parts[name] = (self.parts[name] + self._read(name)).split(b"\n")
            prefix = click.style(f"{name:{self.width}} |", fg=COLOURS[number % len(COLOURS)])
            for line in whole:
                click.echo(f"{prefix} {line.decode(errors='replace')}")

    def _read(self, name: str) -> bytes:
        """What is new; a file that was full goes on in one of the same name."""
        found = self.files[name].read() if name in self.files else b""
        log = self.logs[name]
        with suppress(FileNotFoundError):  # just now it may have no file of this name
            if name not in self.files or not os.path.samestat(os.fstat(self.files[name].fileno()), log.stat()):
                if name in self.files:
                    self.files.pop(name).close()
                self.files[name] = log.open("rb")
                found += self.files[name].read()
        return found


class Watch:
    """Looks when the servers are ready, tells what happens to them, and shows their logs once `tails` is set."""

    def __init__(self, topology: "Topology", names: list[str], tell: Tell):
        self.topology, self.tell = topology, tell
        self.unsettled = dict.fromkeys(names, 0)  # server -> process, until it is ready or has failed
        self.failures = dict.fromkeys(names, 0)
        self.tails: Tails | None = None

    def started(self, server: str, pid: int) -> None:
        if server in self.unsettled:
            self.unsettled[server] = pid

    def ended(self, server: str, text: str, again: bool) -> None:
        if text != "stopped" and self.tails is None:  # the logs tell it too
            self.tell("again" if again else "over", f"{server} {text}")
        self.failures[server] += 1
        if not again or self.failures[server] == PATIENCE:
            self._settle(server)

    def tick(self) -> float:
        for name in [name for name, pid in self.unsettled.items() if pid and self._answers(name)]:
            self.tell("ready", name)
            self._settle(name)
        if self.tails:
            self.tails.show()
        return POLL if self.unsettled or self.tails else supervisor.NEVER

    def _settle(self, server: str) -> None:
        if self.unsettled.pop(server, None) is not None and not self.unsettled:
            self.tell("settled", "")

    def _answers(self, server: str) -> bool:
        from mombroker.net import adminclient

        return adminclient.ready(self.topology, server, ANSWER)
