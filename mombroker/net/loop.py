"""The loop of Twisted's reactor, as a server wants it: by a clock that nobody can set, and shorter where it can be."""

import time
from collections import deque
from collections.abc import Callable
from select import EPOLLIN
from typing import Any

from twisted.python import log

NEEDED = (
    "_poller", "_selectables", "_doReadOrWrite", "_disconnectSelectable", "threadCallQueue", "_justStopped", "running",
)  # fmt: skip


def steady(reactor: Any) -> None:
    """Let the reactor's calls come due by a clock that nobody can set. By the wall clock, which is Twisted's choice,
    all of them, a linger of 3 ms too, would wait for an hour when that is set back by one."""
    reactor.seconds = time.monotonic


def straight(reactor: Any) -> None:
    """Let what has come at a socket be read without a context of Twisted's log for each time, which takes a dozen
    calls: nothing that we log asks for it. And let `at_end` call something when all of it is read: this takes a third
    of the time of `callLater(0, ...)`. Where there is no epoll all stays as it is."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        return
    if not isinstance(reactor, EPollReactor):
        return
    ours: Any = reactor
    if not all(hasattr(ours, name) for name in NEEDED):  # another Twisted
        return
    loop = Loop(ours)
    ours.doIteration, ours.doPoll, ours.at_end = loop.look, loop.look, loop.at_end


class AtEnd:
    """A call at the end of a turn of the loop."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], object]):
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Turns of a reactor that uses epoll: one after the other, while it has nothing else to do between them."""

    def __init__(self, reactor: Any):
        self.reactor, self.poller, self.sockets = reactor, reactor._poller, reactor._selectables
        self._ends = deque[AtEnd]()

    def look(self, timeout: float | None) -> None:
        """What the reactor does between two turns is left out while it would do nothing."""
        reactor = self.reactor
        self._turn(timeout)
        while reactor.running and not (reactor.threadCallQueue or reactor._justStopped):
            timeout = reactor.timeout()
            if timeout is not None and timeout <= 0:  # a call is due
                break
            self._turn(timeout)

    def _turn(self, timeout: float | None) -> None:
        ends, sockets = self._ends, self.sockets
        for fd, event in self.poller.poll(0 if ends else timeout, len(sockets)):
            each = sockets.get(fd)
            if each is None:  # those before it may have closed it
                continue
            if event == EPOLLIN:
                self._read(each)
            else:
                self.reactor._doReadOrWrite(each, fd, event)
        for _ in range(len(ends)):
            if (call := ends.popleft().call) is not None:
                call()

    def _read(self, socket: Any) -> None:
        """As `_doReadOrWrite`, where bytes have come and nothing else has happened, in half the time."""
        try:
            why = socket.doRead()
        except BaseException as error:
            log.err()  # type: ignore[no-untyped-call]
            why = error
        if why:
            self.reactor._disconnectSelectable(socket, why, True)

    def at_end(self, call: Callable[[], object]) -> AtEnd:
        made = AtEnd(call)
        self._ends.append(made)
        return made
