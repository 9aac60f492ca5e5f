"""What a replica that does not lead says to clients, if it is to answer them: who leads. That is an ERROR of STOMP, and
for AMQP a close with the error amqp:connection:redirect. Nobody's login is looked at.

Without it their port is closed, and a client with a list of addresses takes the next one by that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from twisted.internet import protocol
from twisted.internet.error import CannotListenError

from mombroker.amqp.connection import Connection, Settings
from mombroker.core.errors import MomError
from mombroker.core.topology import WILDCARD, Server, address
from mombroker.gateway import tls
from mombroker.stomp.frames import encode

MOST = 64  # clients that are not answered yet
PATIENCE_S = 5.0  # for what a client says


def listen(reactor: Any, at: Server, setting: str, factory: Any) -> Any:
    """The port that this setting of a server names, open; behind TLS if it is one of those. Raises MomError."""
    where = getattr(at, setting)
    if setting.endswith("_tls"):
        factory = tls.secured(factory, tls.Certified(at.certificate, at.private_key), reactor)
    host, port = address(where)
    try:
        return reactor.listenTCP(port, factory, interface="" if host in WILDCARD - {"::"} else host)
    except CannotListenError as error:
        raise MomError(
            f"{at.label} cannot listen on {where}: {error.socketError}; stop whoever uses that address, or "
            f"change `{setting}`"
        ) from None


class Redirect:
    """says   who leads, and where clients of a setting find it; the second is empty if that is not known"""

    def __init__(self, reactor: Any, at: Server, says: Callable[[str], tuple[str, str]]):
        self.reactor, self.at, self.says = reactor, at, says
        self.waiting: set[_Answer] = set()
        self._ports: list[Any] = []

    def listen(self) -> None:
        """Raises MomError."""
        for setting, kind in KINDS.items():
            if getattr(self.at, setting):
                self._ports.append(listen(self.reactor, self.at, setting, _Answering(self, setting, kind)))

    def close(self) -> None:
        for listening in self._ports:
            listening.stopListening()
        self._ports.clear()
        for answer in list(self.waiting):
            answer.transport.abortConnection()


class _Answer(protocol.Protocol, ABC):
    transport: Any

    def __init__(self, redirect: Redirect, setting: str):
        self.redirect, self.setting = redirect, setting
        self._late: Any = None

    def connectionMade(self) -> None:
        if len(self.redirect.waiting) >= MOST:
            self.transport.abortConnection()
            return
        self.redirect.waiting.add(self)
        self._late = self.redirect.reactor.callLater(PATIENCE_S, self.transport.abortConnection)

    @abstractmethod
    def answer(self, data: bytes) -> bool:
        """To what came; whether that was all."""

    def dataReceived(self, data: bytes) -> None:
        if self in self.redirect.waiting and self.answer(data):
            self.redirect.waiting.discard(self)
            self.transport.loseConnection()

    def connectionLost(self, reason: Any = protocol.connectionDone) -> None:
        self.redirect.waiting.discard(self)
        if self._late is not None and self._late.active():
            self._late.cancel()


class _OfStomp(_Answer):
    def answer(self, data: bytes) -> bool:
        said, where = self.redirect.says(self.setting)
        more = [("leader", where)] if where else []
        self.transport.write(encode("ERROR", [("message", said), ("elsewhere", "true"), *more], b""))
        return True


class _OfAmqp(_Answer):
    def __init__(self, redirect: Redirect, setting: str):
        super().__init__(redirect, setting)
        self._session = Connection("standby", lambda: 0, Settings(server="", anonymous=True, external=True))

    def answer(self, data: bytes) -> bool:
        session = self._session
        session.receive(data)
        if session.login is not None:
            session.accept()
        if session.claim is not None:
            said, where = self.redirect.says(self.setting)
            session.redirect(said, *(address(where) if where else ("", 0)))
        self.transport.write(b"".join(session.output))
        session.output.clear()
        return session.closed


KINDS: dict[str, Callable[[Redirect, str], _Answer]] = {
    "stomp": _OfStomp, "stomp_tls": _OfStomp, "amqp": _OfAmqp, "amqp_tls": _OfAmqp,
}  # fmt: skip


class _Answering(protocol.Factory):
    noisy = False

    def __init__(self, redirect: Redirect, setting: str, kind: Callable[[Redirect, str], _Answer]):
        self.redirect, self.setting, self.kind = redirect, setting, kind

    def buildProtocol(self, addr: Any) -> _Answer:
        return self.kind(self.redirect, self.setting)
