"""Agent servers as a process: files opened, sockets bound, signals obeyed, one line on stderr for all that matters."""

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar, cast

from twisted.internet import defer, threads
from twisted.internet.error import ReactorNotRunning
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogBeginner

from mombroker import agents
from mombroker.broker import selectors
from mombroker.broker.attach import attach
from mombroker.core.errors import MomError, StoreError, StoreFailed, line, sentence
from mombroker.core.events import LinkFrame, TaskDone
from mombroker.core.limits import Limits
from mombroker.core.meta import USER
from mombroker.core.server import AgentServer
from mombroker.core.status import clock_trouble
from mombroker.core.topology import WILDCARD, Server, Topology, address, is_loopback
from mombroker.gateway.listener import Gateway
from mombroker.gateway.users import Logins
from mombroker.net import hangup
from mombroker.net.adminport import AdminPort
from mombroker.net.committer import Adaptive, Committer, Pool
from mombroker.net.connection import Times
from mombroker.net.driver import Driver
from mombroker.net.files import Files, LogFile
from mombroker.net.links import Links
from mombroker.net.resources import resources
from mombroker.net.verbs import ProcessVerbs
from mombroker.net.watchdog import Watchdog
from mombroker.stomp.protocol import Stomp
from mombroker.stomp.session import Settings
from mombroker.store import folder
from mombroker.store.sqlite import SqliteStore

DONE, FAILED, BROKEN = 0, 3, 70  # exit codes: a commit failed, an error of the program; 1, a refusal, is the CLI's

COMMITTERS = 8  # writer threads of a process
TASKS = 8  # deferred functions that run at once in a process
LOGINS = 2  # passcodes that are checked at once in a process; each takes 128 MiB
SECRET_LEAST = 16  # bytes
PRUNE_EVERY_S = 60.0
TIDY_S, TIDY_WAIT_S = 0.005, 0.02  # of work on a log or file that is too large, and then for clients at least
LOG_BYTES, LOG_DAYS = 1_000_000_000, 30  # kept of a server's log, unless [log] says otherwise
LINE_CHARS = 20_000  # of a line of the server's own log: tracebacks are long
DAY_NS = 86_400_000_000_000
GC_THRESHOLDS = (20_000, 20, 50)  # a full pass over a deep queue stops the reactor for long

Log = Callable[[str], None]
T = TypeVar("T")


def stderr(name: str, file: LogFile | None = None) -> Log:
    """Lines of server `name` on stderr, which is `file`, if there is one. A text of several lines becomes one; what a
    terminal would obey is told in escapes."""

    def log(text: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        flat = " | ".join(part.strip() for part in text.splitlines() if part.strip())
        said = line(flat, LINE_CHARS)
        with suppress(OSError):  # the terminal may be gone, the disk full: a line is not worth the server
            print(f"{stamp}.{int(now * 1000) % 1000:03d}Z {name} {said}", file=sys.stderr, flush=True)
            if file is not None:
                file.turn()

    return log


def secret_of(topology: Topology, log: Log) -> bytes:
    """The secret of the bus, empty if it has none."""
    if topology.secret_file is None:
        return b""
    path = Path(topology.secret_file)
    remedy = (
        f"make one by `(umask 077; head -c 32 /dev/urandom | base64 > {quote(str(path))})` and give it to all servers"
    )
    try:
        secret = path.read_bytes().strip()
        if folder.readable_by_others(path):
            log(f"other users may read the secret in {path}; run chmod 600 {path}")
    except FileNotFoundError:
        raise MomError(f"there is no secret_file {path}: {remedy}") from None
    except OSError as error:
        raise MomError(f"cannot read secret_file {path} ({error.strerror}): let the servers' user read it") from None
    if not secret:
        raise MomError(f"secret_file {path} is empty: {remedy}")
    if len(secret) < SECRET_LEAST:
        raise MomError(f"secret_file {path} has {len(secret)} bytes, less than {SECRET_LEAST}: {remedy}")
    return secret


class Shared:
    """What all servers of a process have in common: reactor, threads, program."""

    def __init__(self, reactor: Any, topology: Topology, committer: Callable[[], Committer] | None = None):
        self.reactor, self.topology = reactor, topology
        self.program = agents.program(topology)
        self.commits = Pool(COMMITTERS, "commit")
        self.tasks = Pool(TASKS, "task")
        self.logins = Pool(LOGINS, "login")
        self.files = Files()
        self.committer = committer or (lambda: Adaptive(reactor, self.commits))

    def start(self) -> None:
        self.commits.start()
        self.tasks.start()
        self.logins.start()

    def stop(self) -> None:
        self.commits.leave()
        self.tasks.leave()
        self.logins.leave()
        self.files.close()


class Node:
    """One agent server of this process, from its open store to its open port.

    failed   called once, with the error, when it cannot go on; it has closed everything by then
    quit     called when the operator asks for the end of the process
    reload   called when the operator asks for the settings to be read anew; what there is to say about it
    """

    def __init__(
        self,
        shared: Shared,
        name: str,
        log: Log,
        failed: Callable[["Node", BaseException], None],
        quit: Callable[[], None],
        reload: Callable[[], list[str]],
        times: Times | None = None,
    ):
        if name not in shared.topology.servers:
            known = ", ".join(shared.topology.servers)
            raise MomError(f"the topology file has no server {name!r}; it has {known}")
        self.shared, self.name, self.log, self.times = shared, name, log, times
        self._failed, self._quit, self._reload = failed, quit, reload
        self._prune: Any = None

    def open(self) -> None:
        """Open the store and recover. Blocks; needs no reactor thread. Raises MomError."""
        shared, topology = self.shared, self.shared.topology
        data = topology.servers[self.name].data
        secret = secret_of(topology, self.log)
        self.store = SqliteStore(data, topology, self.name)
        try:
            token = folder.token(data).encode()
            if folder.readable_by_others(file := Path(data) / folder.TOKEN):
                self.log(f"other users may read the token in {file}; run chmod 600 {file}")
            self.server = AgentServer(topology, self.name, self.store, shared.program, attach, time.time_ns())
            for warning in self.server.alarms.warnings():
                self.log(warning)
        except BaseException:
            self.store.close()
            raise
        self.driver = Driver(
            shared.reactor,
            self.server,
            self.store,
            shared.committer(),
            self,
            self._fail,
            resources=lambda: resources(data),
        )
        self.users = {
            key.removeprefix(USER): str(row) for key, row in self.store.meta().items() if key.startswith(USER)
        }
        at, limits = topology.servers[self.name], self.server.limits
        self.stomp = Stomp(self.driver.wall, _stomp_settings(at, limits))
        self.gateway = Gateway(
            shared.reactor, self.name, self.driver.post, self.log,
            Logins(self.users.get, self._check, shared.reactor, self._renew), self.driver.wall, at.anonymous,
            max_unfinished=limits.max_unfinished, files=shared.files, max_transactions=limits.max_transactions,
        )  # fmt: skip
        requests = self.server.requests
        requests.add(ProcessVerbs(self.name, self._stop, self._reload, self._connections))
        requests.after |= {
            "status": self._complete, "set_user": self._user_set, "renew_user": self._user_renewed,
            "delete_user": self._user_deleted,
        }  # fmt: skip
        self.admin = AdminPort(self.driver.post, requests.after)
        self.links = Links(
            shared.reactor, self.name, topology, self.server.channel, self.driver.post, self.log, self.admin, secret,
            token, self.times,
        )  # fmt: skip

    def _check(self, work: Callable[[], T], answer: Callable[[T], None]) -> None:
        """Look at a passcode, in a thread."""
        reactor, pool = self.shared.reactor, self.shared.logins
        threads.deferToThreadPool(reactor, pool, work).addCallback(answer)

    def listen(self) -> None:
        """Open the ports. Raises MomError."""
        self.links.listen()
        at = self.shared.topology.servers[self.name]
        plain, tls = (_interface(where) for where in (at.stomp, at.stomp_tls))
        if plain is not None and not (is_loopback(plain[0]) or tls is not None):
            self.log(f"passcodes and messages travel in plain text to {at.stomp}; set stomp_tls and a certificate")
        if plain or tls:
            self.shared.tasks.callInThread(selectors.prepare)
        self.gateway.listen(self.stomp, plain, tls, at.certificate, at.private_key)

    def start(self) -> None:
        """Let the work begin; all servers of the process that can be reached should listen by now."""
        at = self.shared.topology.servers[self.name]
        clients = "".join(f", {what} {where}" for what, where in (("STOMP", at.stomp), ("TLS", at.stomp_tls)) if where)
        self.log(f"serves {at.listen}{clients}, store {at.data}")
        if trouble := clock_trouble(self.server):
            self.log(trouble)
        self._tidy()
        self.driver.start()

    async def stop(self) -> None:
        """Take no new work, make durable what is there, let it leave, close everything."""
        self.gateway.deaf()
        await self.driver.stop()
        self._still()
        if not self.driver.dead:
            await self.gateway.stop()
            await self.links.stop()
            self.store.close()
            self.log("stopped")

    def _fail(self, error: BaseException) -> None:
        """Nothing more may leave. What was promised is in the store."""
        self.abort()
        self._still()
        if isinstance(error, StoreFailed | StoreError):
            self.log(str(error))
        else:
            self.log("stopped by an error of the program: " + "".join(traceback.format_exception(error)))
        self._failed(self, error)

    def abort(self) -> None:
        """Close all sockets at once."""
        self.gateway.abort()
        self.links.abort()

    def _still(self) -> None:
        if self._prune is not None:
            self._prune.cancel()
            self._prune = None

    def _tidy(self) -> None:
        """Keep the log within the bounds of the topology file's [log] table."""
        log, room = self.shared.topology.log, self.server.limits.max_store
        max_bytes, days = int(log.get("max_bytes", min(LOG_BYTES, room // 4))), int(log.get("max_age_days", LOG_DAYS))
        start, more = time.monotonic(), True
        try:
            while more and time.monotonic() - start < TIDY_S:
                more = self.store.prune_log(max_bytes, days * DAY_NS, self.driver.now()) > 0
                if self.driver.committing:
                    more = True  # the prune goes with the next batch; whether the file is to shrink is asked then
                    break
                more = self.store.tidy() or more
            if not more:
                self.store.sync_mark()
        except (StoreFailed, StoreError) as error:
            self.driver.fail(error)
            return
        near = self.server.alarms.bytes > room // 2  # then the log may be what takes the room
        wait = max(TIDY_WAIT_S, 4 * (time.monotonic() - start)) if more else 1.0 if near else PRUNE_EVERY_S
        self._prune = self.shared.reactor.callLater(wait, self._tidy)

    # -- outputs of the driver ---------------------------------------------------------------------------------------

    def send(self, number: int, frames: list[LinkFrame]) -> None:
        self.links.send(number, frames)

    def client(self, number: int, replies: list[Any]) -> None:
        self.gateway.reply(number, replies)

    def reply(self, ticket: int, result: dict[str, Any] | str) -> None:
        self.admin.reply(ticket, result)

    def dial(self, peer: str) -> None:
        self.links.dial(peer)

    def note(self, line: str) -> None:
        self.log(line)

    def run(self, id: int, function: str, payload: bytes) -> None:
        self.shared.tasks.callInThread(self._run, id, function, payload)

    def _run(self, id: int, function: str, payload: bytes) -> None:
        """A deferred function, in its thread. Whatever it raises is its result."""
        try:
            done = TaskDone(id, self.shared.program.run(function, payload))
        except BaseException as error:  # an exit ends its thread, not the server
            done = TaskDone(id, None, sentence(error))
        self.shared.reactor.callFromThread(self.driver.post, done)

    def reload(self, topology: Topology) -> list[str]:
        """Take over what may change while a server runs: certificate, limits, bounds of the log. Sentences about it."""
        at = topology.servers[self.name]
        self.server.limits.take(Limits(**topology.limits))
        self.stomp.settings.limits.body = self.server.limits.max_message
        self.gateway.room.unfinished.most = self.server.limits.max_unfinished
        self.gateway.room.max_transactions = self.server.limits.max_transactions
        try:
            self.gateway.reload(at.certificate, at.private_key)
        except MomError as error:
            return [f"keeps the certificate that it has: {error}"]
        return []

    # -- requests about the process ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.shared.reactor.callLater(0, self._quit)

    def _complete(self, status: dict[str, Any]) -> None:
        status["faults"] = self.links.faults
        status["peers"] = self.links.peers()
        status["store_file_bytes"] = self.store.file_size()
        status["turns"] = self.driver.turns()
        status["stomp"] = {**self.gateway.status(), "dropped": self.server.clients.dropped}
        status["problems"] += self.gateway.problems()

    def _connections(self) -> list[dict[str, Any]]:
        describe = self.server.clients.describe
        return [{**row, **describe(row["number"])} for row in self.gateway.connections()]

    def _user_set(self, reply: dict[str, Any]) -> None:
        """The change is durable; from now on it counts."""
        self._user_renewed(reply)
        self.gateway.withdraw(reply["user"], f"the passcode of {reply['user']!r} was changed: log in again")

    def _user_renewed(self, reply: dict[str, Any]) -> None:
        self.users[reply["user"]] = reply.pop("hash")

    def _user_deleted(self, reply: dict[str, Any]) -> None:
        self.users.pop(reply["user"], None)
        self.gateway.withdraw(reply["user"], f"the user {reply['user']!r} was deleted")

    def _renew(self, user: str, was: str, hash: str) -> None:
        """A right passcode has a weak hash: store a stronger one, unless it is changed meanwhile."""
        self.admin.post_own("renew_user", {"user": user, "hash": hash, "was": was})


def _stomp_settings(at: Server, limits: Limits) -> Settings:
    settings = Settings(type_headers=at.type_headers)
    settings.limits.body = limits.max_message
    if at.hide_version:
        settings.server = ""
    return settings


def _interface(where: str | None) -> tuple[str, int] | None:
    """Where to listen; all addresses of the machine may be written in several ways."""
    if where is None:
        return None
    host, port = address(where)
    return ("" if host in WILDCARD - {"::"} else host), port


class Host:
    """Several agent servers of one bus in this process, or one. They speak TCP to each other, as separate ones do.

    code   for the process to exit with
    log    from a server's name to where its lines go
    opened   called when stores and ports are this process's own, before they are used; may raise MomError
    load     reads the topology file anew; may raise MomError
    """

    def __init__(
        self,
        reactor: Any,
        topology: Topology,
        names: Iterable[str] | None = None,
        log: Callable[[str], Log] = stderr,
        committer: Callable[[], Committer] | None = None,
        times: Times | None = None,
        opened: Callable[[], None] = lambda: None,
        load: Callable[[], Topology] | None = None,
    ):
        self.reactor, self._opened, self._load = reactor, opened, load
        self.shared = Shared(reactor, topology, committer)
        self.code = DONE
        self.nodes: dict[str, Node] = {}
        for name in topology.servers if names is None else names:
            self.nodes[name] = Node(self.shared, name, log(name), self._failed, self.quit, self.reload, times)
        self._watchdog: Watchdog | None = None
        self._refusal: Exception | None = None
        self._started: defer.Deferred[None] | None = None
        self._stopped: defer.Deferred[None] | None = None

    def start(self) -> "defer.Deferred[None]":
        """Open all stores, then all ports, then let them work. Fails with MomError, everything closed again."""
        self._started = defer.Deferred.fromCoroutine(self._start())
        return self._started

    def once_started(self, call: Callable[[], object]) -> None:
        """Call this now, or when all servers have started; not if they cannot."""
        assert self._started is not None, "before the start"
        _end_of(self._started).addCallback(lambda _: call() if self.nodes else None)

    async def _start(self) -> None:
        self.shared.start()
        pool = self.shared.commits
        opening = [threads.deferToThreadPool(self.reactor, pool, node.open) for node in self.nodes.values()]
        results: list[tuple[bool, Any]] = await defer.DeferredList(opening, consumeErrors=True)
        opened = [node for node, (done, _) in zip(self.nodes.values(), results, strict=True) if done]
        try:
            for done, result in results:
                if not done:
                    result.raiseException()
            for node in opened:
                node.listen()
            self._opened()
        except BaseException:
            self.nodes.clear()
            for node in opened:
                node.abort()
                node.store.close()
            raise
        self._watchdog = Watchdog([(node.server.engine, node.driver, node.log) for node in opened])
        self._watchdog.start()
        for node in opened:
            node.start()

    def stop(self) -> "defer.Deferred[None]":
        """Stop all servers in good order, once they have started."""
        if self._stopped is None:
            self._stopped = defer.Deferred.fromCoroutine(self._stop())
        return self._stopped

    async def _stop(self) -> None:
        if self._started is not None:
            await _end_of(self._started)
        ends = [defer.Deferred.fromCoroutine(node.stop()) for node in self.nodes.values()]
        results: list[tuple[bool, Any]] = await defer.DeferredList(ends, consumeErrors=True)
        for node, (done, result) in zip(self.nodes.values(), results, strict=True):
            if not done:
                node.log("stopped badly: " + result.getTraceback())
        if self._watchdog is not None:
            self._watchdog.stop()
        self.shared.stop()

    def _failed(self, node: Node, error: BaseException) -> None:
        self.code = FAILED if isinstance(error, StoreFailed | StoreError) else BROKEN
        self.quit()

    def quit(self) -> None:
        if self._stopped is None and self.reactor.running:
            with suppress(ReactorNotRunning):  # it is told already
                self.reactor.stop()

    def run(self) -> int:
        """Run the reactor until a signal or a failure ends it; the exit code. Raises MomError if it cannot start."""
        self.reactor.addSystemEventTrigger("before", "shutdown", self.stop)
        self.reactor.callWhenRunning(lambda: self.start().addCallbacks(self._settled, self._refused))
        self.reactor.run()
        if self._refusal is not None:
            raise self._refusal
        return self.code

    def reload(self) -> list[str]:
        """Read the topology file and certificates anew. What is wrong stays as it is, and is told."""
        old = self.shared.topology
        notes: list[str] = []
        try:
            new = self._load() if self._load is not None else old
            for name in self.nodes:
                if name not in new.servers:
                    raise MomError(f"the topology file has no server {name!r} any more")
        except MomError as error:
            notes.append(f"keeps the settings that it has: {error}")
            new = old
        else:
            old.limits, old.log = new.limits, new.log
            notes += _fixed(old, new)
        for node in self.nodes.values():
            mine = notes + node.reload(new)
            for note in mine or ["has read its settings anew"]:
                node.log(note)
            notes += [note for note in mine if note not in notes]
        return notes

    def _settled(self, _: None) -> None:
        """What recovery has built stays: no need to look at it for garbage again and again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    def _refused(self, failure: Any) -> None:
        self._refusal = failure.value
        self.reactor.stop()


def _end_of(other: "defer.Deferred[None]") -> "defer.Deferred[None]":
    """Fires when `other` has fired, whatever its result, and leaves that to others."""
    end: defer.Deferred[None] = defer.Deferred()

    def fire(result: Any) -> Any:
        end.callback(None)
        return result

    other.addBoth(fire)
    return end


def _fixed(old: Topology, new: Topology) -> list[str]:
    """A sentence about what has changed in the file and does not change in a server that runs."""
    tables = {"servers": "[servers]", "domains": "[domains]", "agents": "[[agents]]", "policies": "[[policies]]"}
    changed = [shown for name, shown in tables.items() if _lasting(old, name) != _lasting(new, name)]
    return [f"reads {', '.join(changed)} at its next start only"] if changed else []


def _lasting(topology: Topology, name: str) -> Any:
    """A table of a topology without what a reload changes."""
    found = getattr(topology, name)
    if name != "servers":
        return found
    return {key: replace(server, certificate="", private_key="") for key, server in found.items()}


def serve(
    topology: Topology,
    *names: str,
    opened: Callable[[], None] = lambda: None,
    load: Callable[[], Topology] | None = None,
    file: Path | None = None,
) -> int:
    """Run these servers in this process until SIGTERM; the exit code. Raises MomError if they cannot start.

    At SIGHUP the settings are read anew by `load`, and the log file `file`, where there is one, is opened anew. Without
    `load`, and when the terminal has gone, SIGHUP is SIGTERM. One that comes during the start is obeyed after it.

    `opened` is called when nobody else can have their stores and ports.
    """
    from twisted.internet import reactor

    hangup.hold()
    steady(reactor)
    log_file = None if file is None else LogFile(file)
    log = partial(stderr, file=log_file)
    observer = cast(ILogObserver, partial(_twisted, log(names[0])))
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    host = Host(reactor, topology, names, log, opened=opened, load=load)
    terminal = _terminal()

    def obey() -> None:
        if load is None or (terminal is not None and not os.isatty(terminal)):
            host.quit()
            return
        if log_file is not None:
            log_file.open()
        host.reload()

    if load is not None or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as by nohup
        signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(host.once_started, obey))
    reactor.callWhenRunning(hangup.let_go)
    return host.run()


def _terminal() -> int | None:
    """The terminal that the process was started from, to see whether it is still there."""
    try:
        return os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return None


def steady(reactor: Any) -> None:
    """Let the reactor's calls come due by a clock that nobody can set. By the wall clock, which is Twisted's choice,
    all of them, a linger of 3 ms too, would wait for an hour when that is set back by one."""
    reactor.seconds = time.monotonic


def _twisted(log: Log, event: dict[str, Any]) -> None:
    """What goes wrong inside the reactor is our error; its notices of sockets are not news."""
    if event.get("log_level", LogLevel.info) >= LogLevel.error:
        failure = event.get("log_failure")
        log(formatEvent(event) + (": " + failure.getTraceback() if failure is not None else ""))
