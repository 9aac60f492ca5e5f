"""What a replica that does not lead says to STOMP clients, if it is to answer them: an ERROR that names the leader.

Without it their port is closed, and a client with a list of addresses takes the next one by that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import protocol
from twisted.internet.error import CannotListenError

from mombroker.core.errors import MomError
from mombroker.core.topology import WILDCARD, Server, address
from mombroker.gateway import tls
from mombroker.stomp.frames import encode

MOST = 64  # clients that have not said anything yet
PATIENCE_S = 5.0  # for the first bytes


class Redirect:
    """says   who leads, and where clients find it; the second is empty if that is not known"""

    def __init__(self, reactor: Any, at: Server, says: Callable[[], tuple[str, str]]):
        self.reactor, self.at, self.says = reactor, at, says
        self.waiting: set[_Answer] = set()
        self._ports: list[Any] = []

    def listen(self) -> None:
        """Raises MomError."""
        at = self.at
        if at.stomp:
            self._open("stomp", at.stomp, _Answering(self))
        if at.stomp_tls:
            certified = tls.Certified(at.certificate, at.private_key)
            self._open("stomp_tls", at.stomp_tls, tls.secured(_Answering(self), certified, self.reactor))

    def _open(self, setting: str, where: str, factory: Any) -> None:
        host, port = address(where)
        try:
            listening = self.reactor.listenTCP(port, factory, interface="" if host in WILDCARD - {"::"} else host)
        except CannotListenError as error:
            raise MomError(
                f"{self.at.label} cannot listen on {where}: {error.socketError}; stop whoever uses that address, or "
                f"change `{setting}`"
            ) from None
        self._ports.append(listening)

    def close(self) -> None:
        for listening in self._ports:
            listening.stopListening()
        self._ports.clear()
        for answer in list(self.waiting):
            answer.transport.abortConnection()

    def error(self) -> bytes:
        """The frame."""
        said, where = self.says()
        return encode("ERROR", [("message", said), ("elsewhere", "true"), *([("leader", where)] if where else [])], b"")


class _Answer(protocol.Protocol):
    transport: Any

    def __init__(self, redirect: Redirect):
        self.redirect = redirect
        self._late: Any = None

    def connectionMade(self) -> None:
        if len(self.redirect.waiting) >= MOST:
            self.transport.abortConnection()
            return
        self.redirect.waiting.add(self)
        self._late = self.redirect.reactor.callLater(PATIENCE_S, self.transport.abortConnection)

    def dataReceived(self, data: bytes) -> None:
        if self in self.redirect.waiting:
            self.redirect.waiting.discard(self)
            self.transport.write(self.redirect.error())
            self.transport.loseConnection()

    def connectionLost(self, reason: Any = protocol.connectionDone) -> None:
        self.redirect.waiting.discard(self)
        if self._late is not None and self._late.active():
            self._late.cancel()


class _Answering(protocol.Factory):
    noisy = False

    def __init__(self, redirect: Redirect):
        self.redirect = redirect

    def buildProtocol(self, addr: Any) -> _Answer:
        return _Answer(self.redirect)
