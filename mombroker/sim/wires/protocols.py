"""Clients of both protocols on one bus, whose links and subscriptions hear of each other's messages in causal order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.model import Given, Stream
from mombroker.sim.wires.amqp import AmqpWire
from mombroker.sim.wires.stomp import StompWire

TOPICS = ("topic:t0", "topic:t1", "topic:t2")
QUEUES = ("queue:q0", "queue:q1")


class Speaker(Client):
    """Listens to several topics, each by a subscription of its own, takes from a queue, and answers what it hears."""

    work: Protocols

    def __init__(self, work: Protocols):
        super().__init__(work)
        amqp = self.rng.random() < 0.6
        self.wire, self.strict = (AmqpWire, False) if amqp else (StompWire, True)

    def begin(self, connection: Connection) -> None:
        if not connection.subs:
            for topic in self.rng.sample(TOPICS, self.rng.choice((2, 2, 3))):
                connection.listen(topic, ack="individual")
            if self.rng.random() < 0.5:
                connection.subscribe(self.rng.choice(self.work.queues), ack="individual")
        self._next(connection)

    def _next(self, connection: Connection) -> None:
        if not connection.open or self.work.left <= 0:
            return
        self.work.left -= 1
        dice = self.rng.random()
        if dice < 0.03:
            connection.leave()
            return
        topics = [name for name, stream in connection.subs.items() if stream.kind == "plain"]
        if dice < 0.08 and topics:  # what a link to a queue has not settled would come again as if nobody had seen it
            connection.unsubscribe(self.rng.choice(topics))
        else:
            for _ in range(self.rng.choice((1, 1, 2, 6))):
                self._send(connection)
        self.work.world.after(self.pause(), self._next, connection)

    def _send(self, connection: Connection) -> None:
        connection.send(self.rng.choice((*TOPICS, *TOPICS, *QUEUES)), self.rng.random() < 0.7)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if self.work.left > 0 and self.rng.random() < 0.3:
            self.work.left -= 1
            self._send(connection)
        super().given(connection, tag, given)


class Protocols(Clients):
    """What links of a session, or subscriptions of a connection, deliver is in causal order, whatever protocol brought
    it; what was accepted is there."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((30, 100))

    def cast(self) -> Sequence[Client]:
        self.queues: list[Stream] = [self.queue(name) for name in QUEUES]
        return [Speaker(self) for _ in range(self.rng.randint(3, 5))]
