"""Questions of clients to agents, and the way of the answers.

The source of a question is an address of the client's server, `SERVER/reply:CORRELATION:DESTINATION`. Nobody of that
name is kept: whatever comes for it, at any time and from any agent, becomes a message to that destination. So an agent
answers a client as it answers an agent, and no server remembers the question. A question that asks for no answer has
its session as the source, which drops answers, and tells its client of a fault.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote, unquote

import msgpack

from mombroker.broker import destinations
from mombroker.broker.commands import Ask
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import TEMPORARY, name_of
from mombroker.broker.native import Native
from mombroker.broker.protocol import FAILED, FAILURES, UNKNOWN, Answer, Failure
from mombroker.broker.protocol import Ask as Question
from mombroker.broker.queue.dedup import Dedup
from mombroker.broker.shapes import Count, reader_of, shown
from mombroker.broker.wire import note_of, pack
from mombroker.core.errors import MomError, UnknownNotification, line
from mombroker.core.ids import ADDRESS_CHARS, OURS, home_of, is_id
from mombroker.core.message import TYPE_CHARS, Message, new_message
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

REPLY = "reply:"
ASKED = "_asked"  # the collection of an agent with the producers that have asked it
MAX_ASKED = 1_000  # agents whose producers are in memory, but for those that are being written
JSON = "application/json"


class Service(Protocol):
    """What an answer needs of the broker around it."""

    topics: Any

    def send_by_name(self, message: ClientMessage, source: str) -> None: ...


def agent_of(natives: Natives, destination: str) -> str:
    """The id of the agent that is asked. Raises MomError."""
    name = destination.partition(":")[2]
    if not is_id(name):
        id = natives.names.id_of(name)
        if not id or name.startswith(OURS):
            raise MomError(f"no agent is named {name!r} on this bus: see `mom agent list`")
        natives.names.present(id, name)
        return id
    id = natives.names.address(name)
    if id.partition("/")[2].startswith(("_", *OURS)):
        raise MomError(f"{name!r} is the server's own: an author's agent can be asked, see `mom agent list`")
    return id


def question(natives: Natives, session: str, command: Ask, expires: int) -> Message:
    """What the agent gets. Raises MomError."""
    if not command.type:
        raise MomError("a message to an agent needs the header type: the name of a notification, as examples.Hello")
    if len(command.type) > TYPE_CHARS:
        raise MomError(f"a type has at most {TYPE_CHARS} characters, as the name of a notification has")
    if command.delay:
        raise MomError("an agent gets what it is sent at once: leave the delay out, or let the agent set a timer")
    agent = agent_of(natives, command.destination)
    source = address(natives.tx.name, command) if command.reply_to else session
    producer, counter = command.dedup or ("", 0)
    note = Question(command.type, command.body, producer, counter)
    return new_message(natives.tx, source, (agent,), note.wire, note.pack(), expires)


def address(server: str, command: Ask) -> str:
    """Where the answers to a question go, as the id of an agent. Raises MomError."""
    destination = destinations.answered(command.reply_to)
    correlation = command.correlation or command.message
    found = f"{server}/{REPLY}{quote(correlation, safe='')}:{name_of(destination)}"
    if len(found) > ADDRESS_CHARS:
        raise MomError(f"reply-to and correlation-id are too long for an agent to write: {len(found)} characters")
    return found


class Asker(Native):
    """The address that an agent answers to; made for each message that comes for it."""

    def __init__(self, natives: Natives, id: str, service: Service):
        super().__init__(natives, id, volatile=True)
        self.service = service
        _, _, rest = id.partition(REPLY)
        correlation, _, name = rest.partition(":")
        self.correlation, self.destination = unquote(correlation), unquote(name)

    def answered(self, note: Answer, message: Message) -> None:
        self._say(note.type, note.body)

    def failed(self, note: Failure, message: Message) -> None:
        self.refuse(message.type, note.agent, note.reason)

    def refuse(self, kind: str, agent: str, reason: str) -> None:
        """Answer with what an agent would be told: one of FAILURES."""
        self._say(kind, json.dumps({"agent": agent, "reason": line(reason)}, ensure_ascii=False).encode())

    def _say(self, type: str, body: bytes) -> None:
        destination = self.destination
        answer = ClientMessage(
            destination, destinations.shown_as(destination), timestamp=self.tx.now - self.natives.clock.ahead,
            kind="json", content_type=JSON, type=type, correlation=self.correlation, body=body,
        )  # fmt: skip
        kind, _, name = destination.partition(":")
        if kind == "queue":
            self.service.send_by_name(answer, self.id)
        elif kind == "temp-queue":
            self.post(f"{home_of(name)}/{TEMPORARY}{name_of(name)}", answer)
        else:
            self.service.topics.publish(answer, self.id)


Asker.handlers = {Answer.wire: Asker.answered, **dict.fromkeys(FAILURES, Asker.failed)}


class Questions:
    """At the home of the agents that are asked: a question that was sent again, since its client did not know that it
    had arrived, is dropped.

    seen   by agent: what it was asked by whom, and the id of when that was changed last
    """

    __slots__ = ("natives", "tx", "seen")

    def __init__(self, natives: Natives):
        self.natives, self.tx = natives, natives.tx
        self.seen: OrderedDict[str, tuple[Dedup, int]] = OrderedDict()
        natives.types.entering[Question.wire] = self.enters

    def enters(self, message: Message, agent: str) -> bool:
        """False for a repeat, which the log knows as dropped."""
        tx = self.tx
        try:
            note: Question = note_of(message)
        except UnknownNotification:  # the agent will say so
            return True
        if not note.producer or not self._is_there(agent):
            return True
        if self._of(agent).fresh(note.producer, note.counter):
            return True
        tx.record(
            "drop", origin=message.origin, number=message.number, agent=agent, payload=message.size,
            sent=message.sent, done=tx.now, detail="a repeat",
        )  # fmt: skip
        return False

    def _of(self, agent: str) -> Dedup:
        tx, seen = self.tx, self.seen
        dedup = seen[agent][0] if agent in seen else Dedup(tx, agent, ASKED)
        seen[agent] = dedup, tx.new_id()
        seen.move_to_end(agent)
        if len(seen) > MAX_ASKED and next(iter(seen.values()))[1] <= tx.durable_id:
            seen.popitem(last=False)
        return dedup

    # -- of an agent that moves ------------------------------------------------------------------------------------

    def packed(self, agent: str) -> Iterator[tuple[str, bytes, Callable[[], object]]]:
        """What its new home is to be told of it, by producer, and what deletes that here; nothing is asked here any
        more. In the same order after a restart."""
        dedup = self.seen[agent][0] if agent in self.seen else Dedup(self.tx, agent, ASKED)
        for producer, (row, ranges) in sorted(dedup.seen.items(), key=lambda each: each[1][0]):
            yield producer, pack(ranges), partial(self._forget, dedup, producer, row)

    def _forget(self, dedup: Dedup, producer: str, row: int) -> None:
        del dedup.seen[producer]
        self.tx.rows.items[row] = None
        self.tx.urgency = COMMIT

    def left(self, agent: str) -> None:
        self.seen.pop(agent, None)

    def brought(self, agent: str, producer: str, packed: bytes) -> None:
        """Raises UnknownNotification."""
        try:
            ranges = read_ranges(msgpack.unpackb(packed))
        except (ValueError, TypeError) as error:
            raise UnknownNotification(f"what {agent} was asked cannot be read: {error}") from None
        self._of(agent).merge(producer, ranges)

    def _is_there(self, agent: str) -> bool:
        """Nobody is to fill the store with what was asked of agents that never were."""
        names = self.natives.names
        return names.id_of(agent.partition("/")[2]) == agent or self.tx.written("agents", agent) is not None


def read_ranges(values: Any) -> list[int]:
    """Raises ValueError for what are no ranges of counters."""
    found: list[int] = reader_of(list[Count])(values)
    if len(found) % 2 or found != sorted(found):
        raise ValueError(f"{shown(values)} is no list of ranges")
    return found


def refusal(natives: Natives, service: Service, command: Ask, error: MomError) -> bool:
    """Answer a question that cannot be asked; False if it does not say where to."""
    if not command.reply_to:
        return False
    try:
        where, kind = address(natives.tx.name, command), FAILED
    except MomError:
        return False
    try:
        agent_of(natives, command.destination)
    except MomError:
        kind = UNKNOWN
    Asker(natives, where, service).refuse(kind, command.destination.partition(":")[2], str(error))
    return True
