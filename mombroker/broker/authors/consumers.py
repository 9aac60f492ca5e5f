"""What authors' agents take from queues and topics.

To a queue an agent is a consumer that outlives restarts, like one of another server: what it was given is on its way
to it, in its inbox, or settled in the commit of its reaction. So nothing is given twice, unless a reaction has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack

from mombroker.broker import destinations, properties
from mombroker.broker.authors.sending import AgentSender, Outgoing
from mombroker.broker.commands import MAX_PREFETCH
from mombroker.broker.message import ClientMessage
from mombroker.broker.names import name_of, subscription_name
from mombroker.broker.native import Native
from mombroker.broker.policies import Policies
from mombroker.broker.protocol import (
    Browsed,
    Cancel,
    Consume,
    Dispatch,
    Drained,
    End,
    Ended,
    Gone,
    Last,
    Moved,
    Refuse,
    Settle,
    Spec,
    Started,
)
from mombroker.broker.queue.queue import Queue
from mombroker.broker.selectors import message_filter
from mombroker.broker.session.deliveries import TOLD
from mombroker.broker.topic.routing import Topics
from mombroker.broker.topic.subscription import Subscription
from mombroker.broker.wire import note_of, pack
from mombroker.core.batch import ItemRow
from mombroker.core.destinations import RELEASED, Incoming, Source
from mombroker.core.errors import MomError, UnknownNotification, line
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

CONSUMERS = "_consumers"  # the collection of an agent with a row for each of its consumers


class AgentConsumer:
    """One consumer of an agent. Its row is one of the agent's own collection, and goes where the agent goes.

    number   to what it consumes from
    place    of its row; the same, unless the agent has moved
    name     of the queue or subscription on the bus
    home     its agent; empty while nobody of this name gives us anything
    reason   why that is so
    own      it is a subscription that nobody else has
    """

    __slots__ = ("agent", "number", "source", "name", "home", "reason", "own", "place")

    def __init__(self, agent: str, number: int, source: Source, name: str = "", home: str = "", place: int = 0):
        self.agent, self.number, self.source, self.home, self.reason = agent, number, source, home, ""
        self.place = place or number
        self.own = source.topics and not source.shared
        self.name = name or self._name()

    def _name(self) -> str:
        source = self.source
        if not source.topics:
            return name_of(destinations.several(source.destinations[0], "queue:")[0])
        if source.shared:
            return subscription_name("", source.shared)
        return subscription_name(f"agent:{self.agent}", source.method or str(self.number))

    @property
    def spec(self) -> Spec | None:
        """Of the subscription that it should be."""
        source = self.source
        topics = list(_topics(source, stored=True)) if source.topics else []
        return Spec(topics, source.selector, "", bool(source.shared)) if topics else None

    def row(self) -> ItemRow:
        head = bytes(pack([list(self.source), self.name, self.home, self.number]))
        return ItemRow(self.place, self.agent, CONSUMERS, 0, head, b"")

    @classmethod
    def of(cls, row: ItemRow) -> AgentConsumer:
        (method, names, *rest), name, home, *number = msgpack.unpackb(row.head)  # without: it has not moved
        return cls(row.agent, number[0] if number else row.id, Source(method, tuple(names), *rest), name, home, row.id)


class AgentConsumers(Native):
    """1. Each consumer has its row, which says what it is.
    2. One without a home waits for its name, or has been refused.
    3. What reactions have settled is told to destinations before the batch of these reactions closes.

    of        the consumers of each agent, by number
    waiting   those without a home, by the name that they wait for
    settled   outcomes that are not told yet: rows, by agent, destination, consumer and outcome
    """

    __slots__ = ("policies", "sender", "topics", "of", "waiting", "settled")

    types = frozenset(each.wire for each in (Dispatch, Started, Last, Ended, Browsed, Drained, Moved, Refuse))

    def __init__(self, natives: Natives, policies: Policies, topics: Topics):
        super().__init__(natives, f"{natives.tx.name}/_consumers")
        self.policies, self.topics = policies, topics
        self.sender = AgentSender(natives, policies, topics)
        self.of: dict[str, dict[int, AgentConsumer]] = {}
        self.waiting: dict[str, dict[AgentConsumer, None]] = {}
        self.settled: dict[tuple[str, str, int], dict[str, list[int]]] = {}
        natives.add(self)

    def recover(self) -> None:
        """Take up the consumers of this server's agents: their destinations know them still."""
        reader = self.tx.reader
        for agent, collection in reader.places():
            if collection == CONSUMERS:
                after = None
                while rows := reader.items(agent, collection, after, 100):
                    for row in rows:
                        self._add(AgentConsumer.of(row))
                    after = (rows[-1].key, rows[-1].id)
        for mine in list(self.of.values()):
            for each in list(mine.values()):
                if not each.home:
                    self._connect(each)

    def agents(self) -> Iterable[str]:
        return list(self.of)

    # -- what an agent sends -------------------------------------------------------------------------------------

    def outgoing(self, agent: str, kind: str, to: str, body: bytes, fields: Mapping[str, Any]) -> Outgoing:
        return self.sender.outgoing(agent, kind, to, body, fields)

    def in_order(self, outgoing: Outgoing) -> bool:
        where, message = outgoing
        return not where and self.topics.order.total(message.destination)

    def send(self, agent: str, outgoing: Outgoing) -> None:
        self.sender.send(agent, outgoing)

    # -- what an agent wants -------------------------------------------------------------------------------------

    def examine(self, source: Source) -> None:
        """Raises MomError for a source that nobody can take messages from."""
        message_filter(source.selector, "")
        if not 1 <= source.prefetch <= MAX_PREFETCH:
            raise MomError(f"an agent has 1 to {MAX_PREFETCH} messages at once, not {source.prefetch}")
        if source.topics:
            _topics(source, stored=False)
            return
        queue = destinations.several(source.destinations[0], "queue:")[0]
        if destinations.is_temporary(source.destinations[0]) or not queue.startswith("queue:"):
            raise MomError(f"an agent consumes from queues that last, not from {source.destinations[0][:80]!r}")

    def take(self, agent: str, number: int, source: Source) -> None:
        consumer = AgentConsumer(agent, number, source)
        self._add(consumer)
        self._connect(consumer)

    def stop(self, agent: str, number: int) -> None:
        consumer = self.of.get(agent, {}).get(number)
        if consumer is None:
            return
        self._forget(consumer)
        self._write(consumer.place, None)
        if consumer.home:
            self.flush()
            self.natives.post(agent, consumer.home, Cancel(number))
            if consumer.own:
                self.natives.post(agent, consumer.home, End(number))

    def declare(self, agent: str, sources: tuple[Source, ...]) -> None:
        mine = self.of.get(agent)
        if not (sources or mine):
            return
        wanted = {source.method: source for source in sources}
        for each in [each for each in (mine or {}).values() if each.source.method]:
            new = wanted.pop(each.source.method, None)
            if new is None:
                self.stop(agent, each.number)
            elif new != each.source and self._can_be(agent, new):
                self._change(each, new)
        for source in wanted.values():
            if self._can_be(agent, source):
                self.take(agent, self.tx.new_id(), source)

    def _can_be(self, agent: str, source: Source) -> bool:
        """Can anybody take messages from a source that a class declares? Else the operator is told."""
        try:
            self.examine(source)
        except MomError as error:
            self.tx.note(f"{agent} takes nothing from {', '.join(source.destinations)}: {error}")
            return False
        return True

    def _change(self, former: AgentConsumer, source: Source) -> None:
        """A class declares the source of a method otherwise."""
        if former.own and source.topics and not source.shared:  # the same subscription, with other topics
            new = AgentConsumer(former.agent, self.tx.new_id(), source, former.name, former.home)
            self._forget(former)
            self._write(former.place, None)
            if former.home:
                self.flush()
                self.natives.post(former.agent, former.home, Cancel(former.number))
            self._add(new)
            self._connect(new)
        else:
            self.stop(former.agent, former.number)
            self.take(former.agent, self.tx.new_id(), source)

    def gone(self, agent: str) -> None:
        """What it has not settled goes back, and its subscriptions end."""
        mine = list(self.of.get(agent, {}).values())
        if not mine:
            return
        self.flush()
        for home in dict.fromkeys(each.home for each in mine if each.home):
            self.natives.post(agent, home, Gone())
        for each in mine:
            self._forget(each)
            if each.own and each.home:
                self.natives.post(agent, each.home, End(each.number))

    # -- an agent that moves -------------------------------------------------------------------------------------

    def packed(self, agent: str) -> list[tuple[int, bytes]]:
        """Its consumers, by number, as they go along with it."""
        return [(number, each.row().head) for number, each in self.of.get(agent, {}).items()]

    def left(self, agent: str, number: int) -> None:
        """A consumer is with its agent, on another server. What it consumes from need not know."""
        self.flush()
        consumer = self.of[agent][number]
        self._forget(consumer)
        self._write(consumer.place, None)

    def brought(self, agent: str, packed: bytes) -> None:
        """A consumer has come with its agent. Raises UnknownNotification."""
        try:
            consumer = AgentConsumer.of(ItemRow(self.tx.new_id(), agent, CONSUMERS, 0, packed, b""))
        except (ValueError, TypeError) as error:
            raise UnknownNotification(f"a consumer of {agent} cannot be read: {error}") from None
        self._add(consumer)
        self._write(consumer.place, consumer.row())
        if not consumer.home or home_of(consumer.home) not in self.tx.topology.servers:
            consumer.home = ""
            self._connect(consumer)

    # -- what destinations say -----------------------------------------------------------------------------------

    def incoming(self, agent: str, message: Message) -> list[Incoming]:
        """Raises UnknownNotification."""
        note = note_of(message)
        if type(note) is Dispatch:
            return self._dispatched(agent, note, message)
        consumer = self.of.get(agent, {}).get(getattr(note, "consumer", -1))
        if type(note) is Last:
            self.flush()
            self.natives.post(agent, message.source, Settle(note.consumer, last=True))
        elif type(note) is Moved and consumer is not None and consumer.home == message.source:
            consumer.home = note.home
            self._consume(consumer)
        elif type(note) is Refuse and consumer is not None and consumer.home == message.source:
            self._wait(consumer, line(note.reason))
            self.tx.note(f"{agent} takes nothing from {consumer.name} any more: {consumer.reason}")
        return []

    def _dispatched(self, agent: str, note: Dispatch, message: Message) -> list[Incoming]:
        consumer = self.of.get(agent, {}).get(note.consumer)
        if consumer is None:  # what was under way goes back, and nothing more is to come
            self.natives.post(agent, message.source, Cancel(note.consumer))
            self.settle(agent, message, RELEASED)
            return []
        found, method = list[Incoming](), consumer.source.method
        for _, id, count, each in note.items:
            if each.expires and self.natives.clock.by_ours(each.expires, message) <= self.tx.now:
                self.settle(agent, message, RELEASED)  # its destination sees to it
                return []
            found.append(Incoming(method, each, id, count, _properties))
        return found

    def settle(self, agent: str, message: Message, outcome: str) -> None:
        if message.type != Dispatch.wire:
            return
        note: Dispatch = note_of(message)
        key = agent, message.source, note.consumer
        outcomes = self.settled.get(key)
        if outcomes is None:
            outcomes = self.settled[key] = {}
            self.touch()
        ids = outcomes.setdefault(outcome, [])
        for item in note.items:
            ids.append(item[0])
        self.tx.urgency = COMMIT

    def flush(self) -> None:
        """Tell destinations what was settled."""
        settled, self.settled = self.settled, {}
        for (agent, home, number), outcomes in settled.items():
            while max(map(len, outcomes.values())) > TOLD:  # not all of it in one reaction
                part = {name: ids[:TOLD] for name, ids in outcomes.items()}
                outcomes = {name: ids[TOLD:] for name, ids in outcomes.items()}
                credit = sum(map(len, part.values()))
                self.natives.post(agent, home, Settle(number, **part, credit=credit))  # type: ignore[arg-type]
            credit = sum(map(len, outcomes.values()))
            self.natives.post(agent, home, Settle(number, **outcomes, credit=credit))  # type: ignore[arg-type]

    # -- names -----------------------------------------------------------------------------------------------------

    def named(self, name: str) -> None:
        """It is known now, or no longer."""
        if name in self.waiting and name in self.natives.names.known:
            for each in list(self.waiting[name]):
                self._connect(each)

    def lost(self, server: str) -> None:
        """A server starts anew, or has left the bus: nobody there knows our consumers."""
        for mine in list(self.of.values()):
            for each in list(mine.values()):
                if each.home and home_of(each.home) == server:
                    self._wait(each, f"{server} has lost its store, or has left the bus")
                    self._connect(each)

    def _connect(self, consumer: AgentConsumer) -> None:
        """Consume, if its name is known; else that is asked for."""
        names, source = self.natives.names, consumer.source
        if not consumer.home and consumer.name not in names.known:
            self._wait(consumer, f"there is no {consumer.name} yet")
            if spec := consumer.spec:
                names.declare(consumer.name, Subscription.path, Subscription.new(spec))
            elif self.policies.of(destinations.several(source.destinations[0], "queue:")[0]).create:
                names.declare(consumer.name, Queue.path, b"")
            return  # where we decide ourselves it has been told by now
        consumer.home = consumer.home or names.known[consumer.name]
        if home_of(consumer.home) not in self.tx.topology.servers:
            self._wait(consumer, names.departed(consumer.home, consumer.name))
            return
        self._consume(consumer)

    def _consume(self, consumer: AgentConsumer) -> None:
        source, spec = consumer.source, consumer.spec
        self._leave_waiting(consumer)
        consumer.reason = ""
        self._write(consumer.place, consumer.row())
        note = Consume(
            consumer.number, source.prefetch, "" if spec else source.selector, source.exclusive, source.priority,
            spec=spec.values() if spec else None,
        )  # fmt: skip
        self.natives.post(consumer.agent, consumer.home, note)

    # -- rows ------------------------------------------------------------------------------------------------------

    def _add(self, consumer: AgentConsumer) -> None:
        self.of.setdefault(consumer.agent, {})[consumer.number] = consumer

    def _wait(self, consumer: AgentConsumer, reason: str) -> None:
        consumer.home, consumer.reason = "", reason
        self.waiting.setdefault(consumer.name, {})[consumer] = None
        self._write(consumer.place, consumer.row())

    def _leave_waiting(self, consumer: AgentConsumer) -> None:
        those = self.waiting.get(consumer.name)
        if those is not None:
            those.pop(consumer, None)
            if not those:
                del self.waiting[consumer.name]

    def _forget(self, consumer: AgentConsumer) -> None:
        self._leave_waiting(consumer)
        mine = self.of[consumer.agent]
        del mine[consumer.number]
        if not mine:
            del self.of[consumer.agent]

    def _write(self, place: int, row: ItemRow | None) -> None:
        self.tx.rows.items[place] = row
        self.tx.urgency = COMMIT

    def check(self) -> None:
        for agent, mine in self.of.items():
            for each in mine.values():
                assert self.tx.written("items", each.place) == each.row(), f"a consumer of {agent} has another row"
                assert bool(each.home) != (each in self.waiting.get(each.name, ())), f"{agent} waits for nothing"
        assert not self.settled or self in self.turns.touched, "what was settled is not told"

    def describe(self, agent: str) -> list[dict[str, Any]]:
        """What an agent takes messages from, for an operator."""
        return [
            {
                "number": each.number, "from": list(each.source.destinations), "selector": each.source.selector,
                "reaction": each.source.method, "home": each.home, "waits": each.reason,
            }
            for each in self.of.get(agent, {}).values()
        ]  # fmt: skip


def _properties(message: ClientMessage) -> Mapping[str, Any]:
    read = properties.read(message.properties)
    return {**read, **message.annotations} if message.annotations else read


def _topics(source: Source, stored: bool) -> tuple[str, ...]:
    """The topics of a subscription. Raises MomError."""
    each_of = (destinations.several(each, "topic:", stored) for each in source.destinations)
    found = dict.fromkeys(topic for topics in each_of for topic in topics)
    if not all(each.startswith("topic:") for each in found):
        raise MomError(f"{', '.join(source.destinations)[:80]!r}: agents subscribe to topics that last")
    return tuple(found)
