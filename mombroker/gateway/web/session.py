"""A protocol of clients over WebSocket: its own sessions, in frames."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

from mombroker.broker.commands import Command, Login, Reply
from mombroker.gateway.session import Session, Sessions
from mombroker.gateway.web import websocket
from mombroker.gateway.web.websocket import Broken, Frames

MAX_EARLY_FRAMES = 250  # before the login: each takes its time, and a stranger's read is full of empty ones


def _inner(name: str) -> Any:
    """An attribute that is the inner session's."""
    return property(attrgetter(f"inner.{name}"))


class OverWebSocket:
    """Makes sessions of `inner` that are spoken over WebSocket."""

    setting = "http"
    parted = False

    def __init__(self, inner: Sessions):
        self.inner = inner
        self.name = f"{inner.name} over WebSocket"

    def session(self, id: str) -> WebSocketSession:
        return WebSocketSession(self.inner.session(id))


class WebSocketSession:
    """A session as the gateway wants it (gateway/session.py), around the protocol's own."""

    login: Login | None = _inner("login")
    notes: list[str] = _inner("notes")
    written: int = _inner("written")
    fault: str = _inner("fault")
    send_every: int = _inner("send_every")
    expect_every: int = _inner("expect_every")
    version: str = _inner("version")
    client_id: str = _inner("client_id")
    full: bool = _inner("full")
    unfinished: int = _inner("unfinished")
    uncommitted: int = _inner("uncommitted")

    def __init__(self, inner: Session):
        self.inner = inner
        self._frames = Frames(MAX_EARLY_FRAMES)
        self._out: list[bytes] = []
        self._code = 0  # with which we end, once we do
        self._ended = False  # our last frame is in the output
        self.beat = websocket.message(inner.beat)
        self.id, self.first = inner.id, inner.first

    @property
    def state(self) -> str:
        return "closed" if self._code else self.inner.state

    @property
    def commands(self) -> list[Command]:
        return self.inner.commands

    @commands.setter
    def commands(self, rest: list[Command]) -> None:
        self.inner.commands = rest

    @property
    def output(self) -> list[bytes]:
        """With what the session inside has to say in frames."""
        inside, out = self.inner.output, self._out
        if inside:
            out.append(websocket.message(inside[0] if len(inside) == 1 else b"".join(inside)))
            inside.clear()
        if not self._ended and self.closed:
            self._ended = True
            refused = websocket.REFUSED if self.fault else websocket.NORMAL
            out.append(websocket.closing(self._code or refused, self.fault))
        return out

    @property
    def closed(self) -> bool:
        return bool(self._code) or self.inner.closed

    def receive(self, data: bytes) -> None:
        frames, inner = self._frames, self.inner
        try:
            if payload := frames.feed(data):
                inner.receive(payload)
            if frames.ping is not None:  # of several that came together the last is answered
                self._out.append(websocket.frame(websocket.PONG, frames.ping))
                frames.ping = None
        except Broken as error:
            inner.end(str(error))
            self._code = error.code
        else:
            if frames.closed and not self.closed:
                self._code = frames.closed

    def accept(self) -> None:
        self._frames.most = math.inf
        self.inner.accept()

    def reply(self, said: list[Reply]) -> None:
        self.inner.reply(said)

    def end(self, reason: str) -> None:
        self.inner.end(reason)

    def hurry(self) -> None:
        self.inner.hurry()

    def forget(self) -> None:
        self.inner.forget()

    def counts(self) -> dict[str, Any]:
        return self.inner.counts()
