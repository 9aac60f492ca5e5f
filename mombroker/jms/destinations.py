"""Queues and topics, as a program names them and as they are written on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from mombroker.broker import destinations
from mombroker.broker.destinations import DestinationError
from mombroker.jms.errors import InvalidDestination


class Owner(Protocol):
    """The connection of a temporary destination; `session` changes with each connection to a server. `deleted`: names
    of those that were."""

    deleted: set[str]

    @property
    def session(self) -> str: ...
    def delete(self, temporary: Temporary) -> None: ...


@dataclass(frozen=True, slots=True)
class Destination:
    """`wire` is what its own connection calls it, `public` what others must."""

    name: str
    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Raises InvalidDestination."""
        if not isinstance(self.name, str):
            raise InvalidDestination(f"the name of a destination must be text, not {type(self.name).__name__}")

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

    def __post_init__(self) -> None:
        Destination.__post_init__(self)
        if self.owner is not None and not isinstance(getattr(self.owner, "session", None), str):
            raise InvalidDestination("a temporary destination is made by Context.temporary_queue or temporary_topic")

    @property
    def wire(self) -> str:
        return f"/{self.kind}/{self.name}" if self.owner else f"/remote-{self.kind}/{self.name}"

    @property
    def public(self) -> str:
        return f"/remote-{self.kind}/{self.owner.session}/{self.name}" if self.owner else self.wire

    def seen_by(self, connection: object) -> str | Destination:
        return self.wire if self.owner in (None, connection) else self

    def delete(self) -> None:
        """It is gone, with what is in it. Raises IllegalState as long as it has a consumer, or has brought what is not
        acknowledged; InvalidDestination for that of another connection."""
        if self.owner is None:
            raise InvalidDestination(f"{self} belongs to another connection, which alone may delete it")
        self.check()
        self.owner.delete(self)

    def check(self) -> None:
        """Raises InvalidDestination if it was deleted."""
        if self.owner is not None and self.name in self.owner.deleted:
            raise InvalidDestination(f"{self} was deleted: make another one")


@dataclass(frozen=True, slots=True)
class TemporaryQueue(Temporary):
    kind: ClassVar[str] = "temp-queue"


@dataclass(frozen=True, slots=True)
class TemporaryTopic(Temporary):
    kind: ClassVar[str] = "temp-topic"


@dataclass(frozen=True, slots=True)
class Agent(Destination):
    """An agent, by its name or id. It takes messages that are notifications as JSON: see Context.ask."""

    prefix: ClassVar[str] = "/agent/"


KINDS: dict[str, type[Destination]] = {
    "queue": Queue, "topic": Topic, "agent": Agent,
    TemporaryQueue.kind: TemporaryQueue, TemporaryTopic.kind: TemporaryTopic,
}  # fmt: skip
NOT_OURS = "belongs to another connection, which alone may consume from it"
URLS = ("stomp:", "stomps:", "failover:")


def _no_url(text: str) -> None:
    """A queue could have such a name, but nobody means one. It is not repeated, as there may be a passcode in it."""
    if text.startswith(URLS):
        raise InvalidDestination("the address of a server stands where a destination like /queue/orders should")


def destination_of(text: str) -> Destination:
    """What is written so: `/queue/a`, `/topic/a`, `/agent/a`, or another connection's temporary one. Raises
    InvalidDestination."""
    _no_url(text)
    try:
        kind, _, name = destinations.one(text).partition(":")
    except DestinationError as error:
        raise InvalidDestination(str(error)) from None
    return KINDS[kind](name)


def to_send(destination: Destination | str) -> Destination:
    """A destination that a message can go to. Raises InvalidDestination."""
    if isinstance(destination, str):
        return destination_of(destination)
    if not isinstance(destination, Destination):
        raise InvalidDestination(f"a destination is a Queue, a Topic or a text, not {type(destination).__name__}")
    if isinstance(destination, Temporary):
        destination.check()
        destination_of(f"/remote-{destination.kind}/{destination.name}")
    else:
        destination_of(destination.wire)
    return destination


def to_consume(
    wanted: Destination | str | Sequence[Destination | str], connection: Owner | None = None
) -> tuple[str, bool]:
    """What SUBSCRIBE calls a destination or several topics on a connection, and whether they are topics. Raises
    InvalidDestination."""
    each = [wanted] if isinstance(wanted, str | Destination) else list(wanted) if isinstance(wanted, Iterable) else []
    if not each or not all(isinstance(one, str | Destination) for one in each):
        raise InvalidDestination(
            "a consumer takes from a Queue, a Topic, a text such as /queue/orders, or several topics"
        )
    if len(each) == 1 and isinstance(only := each[0], Temporary):
        if only.owner is None or connection not in (None, only.owner):
            raise InvalidDestination(f"{only} {NOT_OURS}")
        only.check()
        return only.wire, isinstance(only, TemporaryTopic)
    shown = ",".join(one if isinstance(one, str) else one.wire for one in each)
    _no_url(shown)
    try:
        first = destinations.several(shown)[0]
    except DestinationError as error:
        raise InvalidDestination(str(error)) from None
    if first.startswith("temp-"):
        raise InvalidDestination(f"{shown} {NOT_OURS}")
    return shown, first.startswith("topic:")
