"""Agent servers as a process: all of its servers started and stopped together, signals obeyed, lines on stderr."""

import gc
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from twisted.internet import defer, threads
from twisted.internet.error import ReactorNotRunning
from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogBeginner

from mombroker.core.errors import DeclaredLost, MomError, StoreError, StoreFailed
from mombroker.core.topology import Topology
from mombroker.net import hangup
from mombroker.net.aside import Make
from mombroker.net.committer import Committer
from mombroker.net.connection import Times
from mombroker.net.exit_codes import ExitCode
from mombroker.net.files import Log, LogFile, stderr
from mombroker.net.loop import steady, straight
from mombroker.net.node import Node, Shared
from mombroker.net.pages import enlarge
from mombroker.net.replicas.node import ReplicatedNode
from mombroker.net.watchdog import Watchdog

GC_THRESHOLDS = (20_000, 20, 50)  # a full pass over a deep queue stops the reactor for long


class Host:
    """Several agent servers of one bus in this process, or one. They speak TCP to each other, as separate ones do.

    code   for the process to exit with
    log    from a server's name to where its lines go
    opened   called when stores and ports are this process's own, before they are used; may raise MomError
    load     reads the topology file anew; may raise MomError
    makes    what HTTP ports are asked beside the verbs (aside.py)
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
        makes: Mapping[str, Make] | None = None,
    ):
        self.reactor, self._opened, self._load = reactor, opened, load
        labels = list(topology.servers if names is None else names)
        if any(server.replicas for server in topology.servers.values()):
            topology = topology.seen_by(labels)
        self.shared = Shared(reactor, topology, committer)
        self.shared.makes = makes or {}
        self.code = ExitCode.DONE
        self.nodes: dict[str, Node | ReplicatedNode] = {}
        for name in labels:
            make = ReplicatedNode if "/" in name else Node
            self.nodes[name] = make(self.shared, name, log(name), self._failed, self.quit, self.reload, times)
        self.shared.alone = len(self.nodes) == 1
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
        self._watchdog = Watchdog([node.watched for node in opened])
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

    def _failed(self, node: Node | ReplicatedNode, error: BaseException) -> None:
        if isinstance(error, DeclaredLost):
            self.code = ExitCode.REFUSED
        else:
            self.code = ExitCode.UNWRITABLE if isinstance(error, StoreFailed | StoreError) else ExitCode.CRASHED
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
            if any("/" in name for name in self.nodes):
                new = new.seen_by(self.nodes)
            for name in self.nodes:
                if new.process(name) is None and name not in new.servers:
                    raise MomError(f"the topology file has no server {name!r} any more")
        except MomError as error:
            notes.append(f"keeps the settings that it has: {error}")
            new = old
        else:
            old.limits, old.log = new.limits, new.log
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
        enlarge()

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


def serve(
    topology: Topology,
    *names: str,
    opened: Callable[[], None] = lambda: None,
    load: Callable[[], Topology] | None = None,
    file: Path | None = None,
    makes: Mapping[str, Make] | None = None,
) -> int:
    """Run these servers in this process until SIGTERM; the exit code. Raises MomError if they cannot start.

    At SIGHUP the settings are read anew by `load`, and the log file `file`, where there is one, is opened anew. Without
    `load`, and when the terminal has gone, SIGHUP is SIGTERM. One that comes during the start is obeyed after it.

    `opened` is called when nobody else can have their stores and ports.
    """
    from twisted.internet import reactor

    hangup.hold()
    steady(reactor)
    straight(reactor)
    log_file = None if file is None else LogFile(file)
    log = partial(stderr, file=log_file)
    observer = cast(ILogObserver, partial(_twisted, log(names[0])))
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
    host = Host(reactor, topology, names, log, opened=opened, load=load, makes=makes)
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


def _twisted(log: Log, event: dict[str, Any]) -> None:
    """What goes wrong inside the reactor is our error; its notices of sockets are not news."""
    if event.get("log_level", LogLevel.info) >= LogLevel.error:
        failure = event.get("log_failure")
        log(formatEvent(event) + (": " + failure.getTraceback() if failure is not None else ""))
