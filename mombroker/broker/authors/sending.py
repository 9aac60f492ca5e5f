"""What an agent sends to a queue or topic: a client's message, as SEND makes one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from mombroker.broker import destinations, properties
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of
from mombroker.broker.policies import Policies
from mombroker.broker.queue.queue import Queue
from mombroker.broker.topic.routing import Topics
from mombroker.core import times
from mombroker.core.errors import MomError, UnknownName
from mombroker.core.natives import Natives

MAX_TEXT = 10_000  # characters of a standard field
MAX_GROUP = 1_000
TEXTS = frozenset(("content_type", "type", "correlation", "reply_to", "kind"))
MAX_SEQ = 10**18
Outgoing = tuple[str, ClientMessage]  # the agent of its queue, or nobody for a topic


class AgentSender:
    """Room is not asked for: back-pressure is where work enters the bus. What meets a full queue is treated as what
    another server has sent there: see QueueLimits.overflow."""

    def __init__(self, natives: Natives, policies: Policies, topics: Topics):
        self.natives, self.tx, self.names = natives, natives.tx, natives.names
        self.policies, self.topics = policies, topics

    def outgoing(self, agent: str, kind: str, to: str, body: bytes, fields: Mapping[str, Any]) -> Outgoing:
        """`kind` is "queue", "topic", or empty: then `to` says it. `fields` are those of ClientMessage, but for `ttl`
        and `delay`, in ns, and `properties`, by name. Raises UnknownName for what is being made, MomError."""
        if type(to) is not str:
            raise MomError(f"a destination is text, as '/queue/orders', not a {type(to).__name__}")
        destination = _destination(kind, to)
        queue = destination.startswith(("queue:", "temp-queue:"))
        if not queue and self.natives.newcomers.waiting:
            raise MomError(f"{self.tx.name} is new on the bus and has not been told its topics yet")
        where = self._where(destination) if queue else self._allowed(destination)
        return where, self._message(agent, destination, to, body, fields)

    def send(self, agent: str, outgoing: Outgoing) -> None:
        where, message = outgoing
        if not where:
            self.topics.publish(message, agent)
            return
        turns, queue = self.natives.turns, self.natives.agents.get(where)
        if queue is None or turns.work <= 0:
            self.natives.post(agent, where, message)
        else:  # one of this server takes it at once, as it does what a session sends
            turns.work -= 1
            self.natives.send_now(agent, queue, message)

    def _where(self, destination: str) -> str:
        if destination.startswith("temp-queue:"):
            home, *rest = destination.partition(":")[2].split("/", 2)
            self.names.distance(home)  # raises for a server that is not on this bus
            if len(rest) < 2:
                raise MomError(f"{destination} is nobody's: write it as the reply-to of a message has it")
            return f"{home}/{TEMPORARY}{name_of(destination.partition(':')[2])}"
        return self.queue(destination)

    def queue(self, destination: str) -> str:
        """The agent of a queue, which is made if its policy allows that. Raises UnknownName until it is there."""
        name = name_of(destination)
        id = self.names.known.get(name)
        if id is None:
            if not self.policies.of(destination).create:
                raise MomError(
                    f"{destination} does not exist, and its policy has create = false: see `mom queue create`"
                )
            self.names.declare(name, Queue.path, b"")
            id = self.names.known.get(name)  # where we decide ourselves it is known by now
        if id is None:
            raise UnknownName(name)
        return id

    def _allowed(self, topic: str) -> str:
        if topic.startswith("topic:") and not self.policies.of(topic).create and name_of(topic) not in self.names.known:
            raise MomError(f"{topic} does not exist, and its policy has create = false: see `mom topic create`")
        if self.topics.order.total(topic):
            self.topics.order.home(topic)
        return ""

    def _message(
        self, agent: str, destination: str, shown: str, body: bytes, fields: Mapping[str, Any]
    ) -> ClientMessage:
        now = self.tx.now
        message = ClientMessage(destination, shown, 4, now - self.natives.clock.ahead, sender=agent, body=body)
        for name, value in fields.items():
            if name == "ttl":
                message.expires = times.after(now, value) if value else 0
            elif name == "delay":
                message.due = times.after(now, value) if value else 0
            elif name == "properties":
                message.properties = properties.pack(value)
            else:
                setattr(message, name, value)
        if fields:
            _check(message, fields)
        return message


@lru_cache(10_000)
def _destination(kind: str, to: str) -> str:
    """The broker's name of where an agent sends to. Raises MomError."""
    if destinations.is_temporary(to):
        raise MomError(f"{to[:80]!r} belongs to a connection: write it as the reply-to of a message has it")
    if not kind:
        return destinations.one(to)
    try:
        return destinations.one(to, f"{kind}:")
    except destinations.DestinationError:
        found = destinations.one(to)  # raises if that is not what is wrong
        if found.startswith(f"temp-{kind}:"):
            return found
        verb = "publish" if kind == "queue" else "put"
        raise MomError(f"{to[:80]!r} is no {kind}: send to it by {verb}") from None


def _check(message: ClientMessage, fields: Iterable[str]) -> None:
    if not 0 <= message.priority <= 9:
        raise MomError(f"a priority is a whole number from 0 to 9, not {message.priority}")
    if len(message.group) > MAX_GROUP or abs(message.group_seq) > MAX_SEQ:
        raise MomError(f"a group has a name of up to {MAX_GROUP} characters, and numbers of up to 18 digits")
    for name in fields:
        if name in TEXTS:
            text = getattr(message, name)
            if len(text) > MAX_TEXT or "\0" in text:
                raise MomError(f"{name} is a text of up to {MAX_TEXT} characters, without NUL")
