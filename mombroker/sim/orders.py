"""Clients and agents at topics in total order, while the homes of these, and of subscriptions, move.

Whoever reads such a topic, anywhere, has the same sequence. Beside that all must be true that is true of other topics,
causal order among them and all else: the model does not know which topics are in total order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from mombroker.broker.commands import Send
from mombroker.broker.topic.topic import Topic
from mombroker.core.times import MS
from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.desks import Customer, Desks
from mombroker.sim.model import Model, Sent
from mombroker.sim.moves import Moving
from mombroker.sim.workers import TOPICS, A, B

TOTAL = (A, B)
POLICY = {**Clients.declared[0], "match": "topic:t[01]", "order": "total"}


class Speaker(Customer):
    """Publishes, and then sends to wherever else. Who is confirmed what it has sent, and connects to the same server
    again, sends behind that."""

    work: Orders

    def __init__(self, work: Orders, client_id: str = "", home: str = ""):
        super().__init__(work, client_id, home)
        self.confirmed: dict[str, int] = {}  # what is before whatever it sends on a server

    def begin(self, connection: Connection) -> None:
        connection.past |= self.confirmed.get(connection.node.name, 0)
        super().begin(connection)

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        super()._confirmed(connection, meaning, everywhere)
        if isinstance(meaning, Sent):
            name = connection.node.name
            mine = [meaning] if meaning.id in self.work.orders else meaning.together  # the rest is what agents send
            for each in mine or [meaning]:
                self.confirmed[name] = self.confirmed.get(name, 0) | each.past | (0 if each.due else each.bit)

    def speak(self, connection: Connection) -> None:
        """Some messages in a row, mostly to one topic, perhaps in one piece, some of them late."""
        for _ in range(self.rng.choice((1, 2, 5))):
            dice = self.rng.random()
            if dice < 0.15:
                connection.send_run(self.rng.choice(TOTAL), self.rng.choice((2, 3, 7)))
            elif dice < 0.25 and not self.work.order_changes:
                self.delay(connection)
            else:
                connection.send(self.rng.choice((A, A, A, B)), self.rng.random() < 0.6)
        if self.rng.random() < 0.5:
            connection.send(self.rng.choice(self.work.destinations), self.rng.random() < 0.5)

    def delay(self, connection: Connection) -> None:
        """Publish what nothing that follows waits for, but what is sent by those who have seen it."""
        delay = self.rng.choice((5, 50, 300)) * MS
        sent = connection.send(self.rng.choice(TOTAL), self.rng.random() < 0.5, delay=delay)
        sent.due = self.work.world.now + delay
        connection.past &= ~sent.bit


class Hasty(Speaker):
    """Drops its connection at each receipt, and goes on with another one."""

    faithful = 1.0

    def begin(self, connection: Connection) -> None:
        connection.past |= self.confirmed.get(connection.node.name, 0)
        if connection.open and self.work.left > 0:
            self.work.left -= 1
            connection.send(self.rng.choice(TOPICS), False)
            connection.send(self.rng.choice(TOTAL))

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        super()._confirmed(connection, meaning, everywhere)
        self.lost(connection)


class Impatient(Speaker):
    """Drops its connection while it waits for receipts, and sends again what has none, by whichever server."""

    faithful = 0.5

    def __init__(self, work: Orders):
        super().__init__(work)
        self.name = str(self.rng.getrandbits(32))
        self.counters = Counter[str]()
        self.unanswered: dict[Sent, Send] = {}

    def begin(self, connection: Connection) -> None:
        connection.past |= self.confirmed.get(connection.node.name, 0)
        for sent in self.unanswered:
            self._again(connection, sent)
        if self.work.left > 0:
            self.work.left -= 1
            for _ in range(self.rng.choice((1, 2, 5))):
                self._publish(connection)
            self.work.world.after(self.pause(), self.lost, connection)

    def _publish(self, connection: Connection) -> None:
        topic = self.rng.choice(TOTAL)
        self.counters[topic] += 1
        sent, command = connection.message(topic, dedup=(self.name, self.counters[topic]))
        self.unanswered[sent] = command
        self._say(connection, sent)

    def _again(self, connection: Connection, sent: Sent) -> None:
        """What it has seen on former connections is before the former attempts alone."""
        self.work.repeats += 1
        sent.past &= connection.past
        connection.past |= sent.bit
        self._say(connection, sent)

    def _say(self, connection: Connection, sent: Sent) -> None:
        connection.do(replace(self.unanswered[sent], receipt=connection.receipt(sent)))

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        super()._confirmed(connection, meaning, everywhere)
        self.unanswered.pop(meaning, None)


class Orders(Moving, Desks):
    """On some seeds copies go everywhere; on others an operator takes the order away, and sets it again: then causal
    order is left. On some of the others clients repeat what they have published."""

    announced = ()
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Speaker.speak: 30, Speaker.order: 20, Speaker.send: 10, Speaker.listen: 16, Speaker.take: 6, Speaker.keep: 6,
        Speaker.stop: 3, Speaker.transact: 6, Speaker.leave: 3,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        more = {"announce": "everywhere"} if self.rng.random() < 0.3 else {}
        self.policies = [{**POLICY, **more}, *self.policies]
        self.topic_moves = self.rng.choice((0, 5, 20))
        self.order_changes = self.rng.choice((0, 0, 0, 10))
        self.impatient = 0 if self.order_changes else Random(f"impatient {self.seed}").choice((0, 0, 1, 3))
        self.repeats = 0

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        for _ in range(self.topic_moves):
            self.world.after(int(self.rng.random() * span), move_topic, self)
        for number in range(self.order_changes):
            self.world.after(int(self.rng.random() * span), self._change_order, "total" if number % 2 else "")

    def _change_order(self, order: str) -> None:
        match, values = POLICY["match"], {**self.policies[0], "order": order}
        del values["match"]
        self.cluster.ask(self.rng.choice(self.servers), "set_policy", {"match": match, "values": values})

    def cast(self) -> Sequence[Client]:
        hasty = [Hasty(self) for _ in range(self.rng.choice((0, 1, 2)))]
        impatient = [Impatient(self) for _ in range(self.impatient)]
        return [*(Speaker(self, client.client_id) for client in super().cast()), *hasty, *impatient]

    def counts(self) -> dict[str, int]:
        return super().counts() | {
            "topic_moves": self.topic_moves, "order_changes": self.order_changes, "repeats": self.repeats,
            "ordered": sum(map(len, sequences(self.model, A))),
        }  # fmt: skip

    def objections(self, cluster: Cluster) -> list[str]:
        judged = () if self.order_changes else TOTAL
        return super().objections(cluster) + [
            f"{topic} has two orders" for topic in judged if not alike(sequences(self.model, topic))
        ]

    def _on_the_way(self, cluster: Cluster) -> Iterator[str]:
        yield from super()._on_the_way(cluster)
        for node in cluster.nodes.values():
            for native in node.server.natives.agents.values():
                if isinstance(native, Topic) and native.move is not None:
                    yield f"the move of {native.id} ({native.move.values()})"


def move_topic(work: Clients) -> None:
    args = {"destination": work.rng.choice(TOTAL), "to": work.rng.choice(work.servers)}
    for name in work.servers:  # its home alone does it
        work.cluster.ask(name, "move_topic", args)


def sequences(model: Model, topic: str) -> list[list[int]]:
    """What each connection, and each subscription that is not shared, has seen of a topic, in its order."""
    found = {id(stream.order): stream for stream in model.streams if stream.kind in ("plain", "durable")}
    made = list[list[int]]()
    for stream in found.values():
        ids = [sent.id for _, sent in stream.order if sent.destination == topic]
        made.append(list(dict.fromkeys(ids)))
    return made


def alike(sequences: Iterable[Sequence[int]]) -> bool:
    """Are all these parts of one sequence?"""
    after: dict[int, set[int]] = {}
    for each in sequences:
        for one in each:
            after.setdefault(one, set())
        for one, other in zip(each, each[1:], strict=False):
            after[one].add(other)
    left = dict.fromkeys(after, 0)
    for those in after.values():
        for one in those:
            left[one] += 1
    free = deque(one for one, count in left.items() if not count)
    done = 0
    while free:
        done += 1
        for one in after[free.popleft()]:
            left[one] -= 1
            if not left[one]:
                free.append(one)
    return done == len(after)
