"""The listening sockets of a gateway, which rest while the process is short of file descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet import tcp
from twisted.internet.error import CannotListenError

from mombroker.core.errors import MomError

Address = tuple[str, int]

BACKLOG = 1_024
TICK_S = 1.0  # between two looks at the file descriptors
SHORT = (
    "{} is short of file descriptors (it has {}): new clients wait until others leave; raise the limit of open files "
    "(LimitNOFILE, ulimit -n)"
)


class Files(Protocol):
    """The process's file descriptors (net/files.py)."""

    limit: int
    reserve: int

    def crowded(self) -> bool: ...
    def eased(self) -> bool: ...


class Ports:
    """Where clients come in, until `close`.

    name    of the server
    say     logs a line about a host
    numbers   setting -> the port that listens
    """

    def __init__(self, reactor: Any, name: str, say: Callable[[str, str], None], files: Files | None):
        self.reactor, self.name, self.say, self.files = reactor, name, say, files
        self.numbers: dict[str, int] = {}
        self._listening: list[Any] = []
        self._closed = self._held = False
        self._short: Any = None  # of file descriptors: the call that looks whether they suffice again

    def listen(self, what: str, where: Address, protocol: str, factory: Any) -> None:
        """Open the port of the setting `what`. Raises MomError."""
        host, port = where
        try:
            listening: Any = _Port(self, port, factory, host)
            listening.startListening()
        except CannotListenError as error:
            raise MomError(
                f"{self.name} cannot listen on {host}:{port} for {protocol}: {error.socketError}; stop whoever uses "
                f"that address, or change `{what}`"
            ) from None
        self._listening.append(listening)
        if self._held:
            listening.stopReading()
        self.numbers[what] = listening.getHost().port

    def hold(self) -> None:
        """Let new clients wait, in the system's queue, until `let_in`."""
        self._held = True
        for listening in self._listening:
            listening.stopReading()

    def let_in(self) -> None:
        if self._held and not self._closed:
            self._held = False
            if self._short is None:
                self._read()

    def _read(self) -> None:
        for listening in self._listening:
            listening.startReading()

    def no_room(self) -> bool:
        """Whether so few file descriptors are left that new clients must wait, in the system's queue."""
        if self.files is None or not self.files.crowded():
            return False
        for listening in self._listening:
            listening.stopReading()
        if self._short is None:
            self.say("", SHORT.format(self.name, self.files.limit))
            self._short = self.reactor.callLater(TICK_S, self._look)
        return True

    def _look(self) -> None:
        assert self.files is not None, "nobody looked for files"
        self._short = None
        if self._closed:
            return
        if not self.files.crowded():
            if not self._held:
                self._read()
            if self.files.eased():
                self.say("", f"{self.name} has file descriptors again: new clients come in")
                return
        self._short = self.reactor.callLater(TICK_S, self._look)

    def problems(self) -> list[str]:
        """One sentence for each thing that an operator should act on."""
        if self._short is None or self.files is None:
            return []
        return [SHORT.format(self.name, self.files.limit)]

    def close(self) -> None:
        self._closed = True
        for listening in self._listening:
            listening.stopListening()
        self._listening.clear()


class _Port(tcp.Port):
    """A listening socket that stops while there is no room, and takes few at once, so that it is known in time."""

    def __init__(self, ports: Ports, port: int, factory: Any, host: str):
        super().__init__(port, factory, BACKLOG, host, ports.reactor)
        self.ports = ports

    def doRead(self) -> None:
        if not self.ports.no_room():
            if self.ports.files is not None:
                self.numberAccepts = min(self.numberAccepts, self.ports.files.reserve // 2)
            super().doRead()  # type: ignore[no-untyped-call]
