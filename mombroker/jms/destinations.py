"""Queues and topics, as a program names them and as they are written on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from mombroker.jms.errors import InvalidDestination
from mombroker.stomp import destinations
from mombroker.stomp.frames import FrameError


class Owner(Protocol):
    """The connection of a temporary destination; `session` changes with each connection to a server."""

    session: str


@dataclass(frozen=True, slots=True)
class Destination:
    """`wire` is what its own connection calls it, `public` what others must."""

    name: str
    prefix: ClassVar[str] = ""

    @property
    def wire(self) -> str:
        return self.prefix + self.name

    @property
    def public(self) -> str:
        return self.wire

    def seen_by(self, connection: object) -> str | Destination:
        """What a connection writes: `wire`, or itself if the name that others must write may still change."""
        return self.wire

    def __str__(self) -> str:
        return self.wire


@dataclass(frozen=True, slots=True)
class Queue(Destination):
    prefix: ClassVar[str] = "/queue/"


@dataclass(frozen=True, slots=True)
class Topic(Destination):
    """A consumer may name several with `*` for one part between dots, and `>` for all that follows."""

    prefix: ClassVar[str] = "/topic/"


@dataclass(frozen=True, slots=True)
class Temporary(Destination):
    """Of one connection, which alone may consume from it; anybody who was told of it may send. `owner` is None for
    another connection's."""

    owner: Owner | None = None
    kind: ClassVar[str] = ""

    @property
    def wire(self) -> str:
        return f"/{self.kind}/{self.name}" if self.owner else f"/remote-{self.kind}/{self.name}"

    @property
    def public(self) -> str:
        return f"/remote-{self.kind}/{self.owner.session}/{self.name}" if self.owner else self.wire

    def seen_by(self, connection: object) -> str | Destination:
        return self.wire if self.owner in (None, connection) else self


@dataclass(frozen=True, slots=True)
class TemporaryQueue(Temporary):
    kind: ClassVar[str] = "temp-queue"


@dataclass(frozen=True, slots=True)
class TemporaryTopic(Temporary):
    kind: ClassVar[str] = "temp-topic"


URLS = ("stomp:", "stomps:", "failover:")


def _no_url(text: str) -> None:
    """A queue could have such a name, but nobody means one. It is not repeated, as there may be a passcode in it."""
    if text.startswith(URLS):
        raise InvalidDestination("the address of a server stands where a destination like /queue/orders should")


def destination_of(text: str) -> Destination:
    """What is written so: `/queue/a`, `/topic/a`, or another connection's temporary one. Raises InvalidDestination."""
    _no_url(text)
    for temporary in (TemporaryQueue, TemporaryTopic):
        if text.startswith(start := f"/remote-{temporary.kind}/"):
            return temporary(text[len(start) :])
    try:
        kind, _, name = destinations.one(text).partition(":")
    except FrameError as error:
        raise InvalidDestination(str(error)) from None
    return Topic(name) if kind == "topic" else Queue(name)


def to_send(destination: Destination | str) -> Destination:
    """A destination that a message can go to. Raises InvalidDestination."""
    if isinstance(destination, str):
        return destination_of(destination)
    if not isinstance(destination, Temporary):
        destination_of(destination.wire)
    return destination


def to_consume(
    wanted: Destination | str | Sequence[Destination | str], connection: Owner | None = None
) -> tuple[str, bool]:
    """What SUBSCRIBE calls a destination or several topics on a connection, and whether they are topics. Raises
    InvalidDestination."""
    each = [wanted] if isinstance(wanted, str | Destination) else list(wanted)
    if len(each) == 1 and isinstance(only := each[0], Temporary):
        if only.owner is None or connection not in (None, only.owner):
            raise InvalidDestination(f"{only} belongs to another connection, which alone may consume from it")
        return only.wire, isinstance(only, TemporaryTopic)
    shown = ",".join(one if isinstance(one, str) else one.wire for one in each)
    _no_url(shown)
    try:
        return shown, destinations.several(shown)[0].startswith("topic:")
    except FrameError as error:
        raise InvalidDestination(str(error)) from None
