"""Queues and topics, as far as the engine and authors' agents know of them: what they ask of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from mombroker.core.message import Message

# What became of a message that a destination has given to an agent: the outcomes of broker/commands.py.
ACCEPTED, RELEASED, FAILED, REJECTED = "accepted", "released", "modified", "rejected"


class Source(NamedTuple):
    """What an agent takes messages from, as its author writes it.

    method        of its class that takes them; empty: its reaction to Delivered
    destinations  one queue, or topics
    topics        it is a subscription, which lasts as long as the agent wants it
    prefetch      messages that it may have, before it has reacted to any of them
    shared        name of the subscription that it has together with others; empty: it has its own
    """

    method: str
    destinations: tuple[str, ...]
    topics: bool = False
    selector: str = ""
    prefetch: int = 100
    exclusive: bool = False
    priority: int = 0
    shared: str = ""


class Incoming(NamedTuple):
    """A message that a destination has given to an agent.

    method    that its Source names
    message   the client's message (broker/message.py), which nobody changes
    count     deliveries so far, this one included
    read      gives the message's properties by name
    """

    method: str
    message: Any
    id: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    read: Callable[[Any], Mapping[str, Any]]


class Destinations(Protocol):
    """Queues and topics, as far as authors' agents use them (broker/authors/)."""

    types: frozenset[str]  # of messages that tell an agent, as a consumer, something

    def agents(self) -> Iterable[str]: ...  # those that take messages
    def incoming(self, agent: str, message: Message) -> list[Incoming]: ...  # one of `types`; none: nothing to react to
    def settle(self, agent: str, message: Message, outcome: str) -> None: ...  # one of `types`
    def outgoing(self, agent: str, kind: str, to: str, body: bytes, fields: Mapping[str, Any]) -> Any: ...
    def in_order(self, outgoing: Any) -> bool: ...  # is it for a topic in total order?
    def send(self, agent: str, outgoing: Any) -> None: ...
    def examine(self, source: Source) -> None: ...  # raises MomError for what nobody can take messages from
    def take(self, agent: str, number: int, source: Source) -> None: ...  # which was checked
    def stop(self, agent: str, number: int) -> None: ...
    def declare(
        self, agent: str, sources: tuple[Source, ...]
    ) -> None: ...  # those of its class, which may have changed
    def describe(self, agent: str) -> list[dict[str, Any]]: ...  # what it takes, for an operator
    def gone(self, agent: str) -> None: ...  # it was deleted
    def packed(self, agent: str) -> list[tuple[int, bytes]]: ...  # what it takes, to go along with it: by number
    def left(self, agent: str, number: int) -> None: ...  # one of these has
    def brought(self, agent: str, packed: bytes) -> None: ...  # or has come; raises UnknownNotification
