"""The HTTP port of a replica that does not lead: probes, and what it knows of itself. Nobody's login is looked at, and
nothing is told that is anybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import protocol

from mombroker.gateway.times import Times
from mombroker.gateway.web import metrics
from mombroker.gateway.web.connection import Visitor
from mombroker.gateway.web.http import Request, said

MOST = 64  # connections


class Health:
    """says      who leads, in a sentence
    figures   of this replica, see metrics.of_replica
    """

    times = Times()

    def __init__(self, reactor: Any, server: str, says: Callable[[], str], figures: Callable[[], dict[str, Any]]):
        self.reactor, self.server, self.says, self.figures = reactor, server, says, figures
        self.visitors: set[Visitor] = set()

    def close(self) -> None:
        for visitor in list(self.visitors):
            visitor.abort()

    def serve(self, visitor: Visitor, request: Request) -> None:
        if request.method not in ("GET", "HEAD"):
            visitor.answer(said(405, f"{request.method} is not for a standby", allow="GET, HEAD"))
        elif request.path == "/healthz":
            visitor.answer(said(200, "works"))
        elif request.path == "/metrics":
            visitor.answer(metrics.of_replica(self.server, self.figures()))
        else:  # /readyz, and all that the server has
            visitor.answer(said(503, self.says()))

    def large(self, request: Request) -> bool:
        """Nothing with a body is for a standby."""
        return False

    def closed(self, visitor: Visitor) -> None:
        self.visitors.discard(visitor)

    def say(self, host: str, line: str) -> None:
        """Whoever cannot speak TLS is not worth a line here: where the server runs it gets one."""


class Visits(protocol.Factory):
    noisy = False

    def __init__(self, health: Health, tls: bool):
        self.health, self.tls = health, tls

    def buildProtocol(self, addr: Any) -> Visitor | None:
        if len(self.health.visitors) >= MOST:
            return None
        visitor = Visitor(self.health, getattr(addr, "host", ""), self.tls)
        self.health.visitors.add(visitor)
        return visitor
