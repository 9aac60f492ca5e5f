"""Clients that do everything at random, with what each of the servers' sessions may know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.broker.commands import COMMAND, MODIFIED, Delivery, Disposition, Refused, Send, Transact
from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.model import Given, Sent, Stream

QUEUES = [f"queue:q{n}" for n in range(3)]
TOPICS = [f"topic:t{n}" for n in range(3)]
A, B = TOPICS[:2]
MODES = ("auto", "client", "individual", "individual")


class Worker(Client):
    """Does one thing after another, as long as there is something left to do."""

    work: Everything

    def begin(self, connection: Connection) -> None:
        if not connection.open or self.work.left <= 0:
            return
        self.work.left -= 1
        deeds = self.work.deeds
        self.rng.choices([*deeds], [*deeds.values()])[0](self, connection)
        self.work.world.after(self.pause(), self.begin, connection)

    def send(self, connection: Connection) -> None:
        group = self.rng.choice(("", "", "g"))
        connection.send(self.rng.choice(self.work.destinations), self.rng.random() < 0.7, group=group)

    def listen(self, connection: Connection) -> None:
        several = ["topic:*"] if self.rng.random() < 0.1 else self.rng.sample(TOPICS, self.rng.choice((1, 1, 2)))
        connection.listen(*several, prefetch=self.rng.choice((1, 3, 0)), ack=self.rng.choice(MODES[:3]))

    def take(self, connection: Connection) -> None:
        queue = self.rng.choice(self.work.queues)
        if queue not in connection.subs.values():
            connection.subscribe(queue, prefetch=self.rng.choice((1, 3, 0)), ack=self.rng.choice(MODES))

    def keep(self, connection: Connection) -> None:
        """The durable subscription of this client, or one that is shared by all that have no client id."""
        stream = self.work.durables[self.client_id]
        if stream not in connection.subs.values():
            durable = self.work.lasting[stream][1]
            connection.subscribe(stream, durable, prefetch=self.rng.choice((1, 3)), ack="individual")

    def stop(self, connection: Connection) -> None:
        if connection.subs:
            connection.unsubscribe(self.rng.choice(list(connection.subs)))

    def transact(self, connection: Connection) -> None:
        """Settle some of what was delivered by sending something: all of it or nothing."""
        given = [tag for tag, given in connection.unsettled.items() if given.ack == "individual"]
        tags = given[: self.rng.randint(0, 2)]
        settles = [connection.unsettled.pop(tag) for tag in tags]
        together: list[Sent] = []
        commands: list[Send | Disposition] = []
        destinations = self.work.destinations
        for destination in self.rng.sample(destinations, self.rng.randint(1, min(3, len(destinations)))):
            sent, command = connection.message(destination)
            sent.together, sent.settles = together, settles
            together.append(sent)
            commands.append(command)
        for tag, each in zip(tags, settles, strict=True):
            each.accepted = True
            each.passed_on = [sent for sent in together if sent.destination in QUEUES]
            commands.insert(self.rng.randint(0, len(commands)), Disposition(tag))
        connection.do(Transact(commands, connection.receipt(together[0])))

    def leave(self, connection: Connection) -> None:
        connection.leave()

    def settle(self, connection: Connection, tag: int) -> None:
        if not connection.open or tag not in connection.unsettled:
            return
        given = connection.unsettled[tag]
        if given.ack == "individual" and self.work.left > 0:
            dice = self.rng.random()
            if dice < 0.15:
                connection.do(Disposition(tag, MODIFIED))
                del connection.unsettled[tag]
                return
            if dice < 0.3:
                other = [name for name in QUEUES if name not in given.stream.destinations]
                given.passed_on = [connection.send(self.rng.choice(other), receipt=False)]
        self.acknowledge(connection, tag)


class Everything(Clients):
    """Queues, topics, transactions and whatever subscriptions there are, one of the queues often full."""

    declared: ClassVar[list[dict[str, Any]]] = [
        {
            "match": "queue:q2", "max_messages": 5, "block_seconds": 1.0, "redelivery_delay": 0.01,
            "max_redeliveries": 1000,
        },
        *Clients.declared,
    ]  # fmt: skip
    varied = tuple(QUEUES)
    announced = tuple(TOPICS)
    patient = False
    destinations = [*QUEUES, *TOPICS, *TOPICS]
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Worker.send: 62, Worker.listen: 10, Worker.take: 10, Worker.keep: 4, Worker.stop: 4, Worker.transact: 4,
        Worker.leave: 2,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((40, 80, 160))

    def cast(self) -> Sequence[Client]:
        ids = [f"c{n}" if n % 2 else "" for n in range(self.rng.randint(3, 7))]
        self.queues = [self.queue(name) for name in QUEUES]
        shared = self.lasts(Stream((A, B), "shared"), "", "shared")
        self.durables = {id: self.lasts(Stream((A, B), "durable"), id, "d") if id else shared for id in ids}
        return [Worker(self, id) for id in ids]


class Queues(Everything):
    """Nothing but queues."""

    destinations = QUEUES
    deeds = {Worker.send: 60, Worker.take: 20, Worker.stop: 6, Worker.transact: 10, Worker.leave: 4}


# -- refused, and not ended ----------------------------------------------------------------------------------------


class Enduring(Worker):
    """Its session outlives what is refused, and it tries no further."""

    work: Enduringly
    strict = False

    def begin(self, connection: Connection) -> None:
        if not connection.receipts:
            self.settles: dict[int, dict[int, Given]] = {}  # of transactions, by the message that names each
        super().begin(connection)

    def transact(self, connection: Connection) -> None:
        before = dict(connection.unsettled)
        super().transact(connection)
        sent = list(connection.receipts.values())[-1]
        self.settles[sent.id] = {tag: before[tag] for tag in before if tag not in connection.unsettled}

    def keep(self, connection: Connection) -> None:
        """Perhaps somebody else has the subscription, and keeps it, or loses it."""
        stream = self.work.durables[self.client_id]
        if stream not in connection.subs.values():
            durable, take_over = self.work.lasting[stream][1], self.rng.random() < 0.3
            connection.subscribe(stream, durable, prefetch=2, ack="individual", take_over=take_over)

    def settle(self, connection: Connection, tag: int) -> None:
        """Nothing is passed on but in a transaction: it might be refused."""
        if not connection.open or tag not in connection.unsettled:
            return
        if connection.unsettled[tag].ack == "individual" and self.work.left > 0 and self.rng.random() < 0.15:
            connection.do(Disposition(tag, MODIFIED, failed=True))
            del connection.unsettled[tag]
        else:
            self.acknowledge(connection, tag)

    def told(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Delivery) and int(reply.body) in self.work.never:
            self.work.model.wrong.append(f"{int(reply.body)} came, though it was refused")
        if not isinstance(reply, Refused):
            super().told(connection, reply)
        elif reply.scope == COMMAND:
            self._refused(connection, connection.receipts.get(reply.receipt or ""))
        else:
            self._over(connection, reply.sub)

    def _refused(self, connection: Connection, meaning: Any) -> None:
        self.work.refusals.append(f"a command of {self.home}")
        if isinstance(meaning, Sent):
            self.work.never |= {each.id for each in meaning.together or [meaning]}
            for tag, given in self.settles.pop(meaning.id, {}).items():  # it still has these
                given.passed_on = []
                if given.stream in connection.subs.values():
                    connection.unsettled[tag] = given
                    self.work.world.after(self.pause(), self.settle, connection, tag)
        elif isinstance(meaning, tuple):
            for name in [name for name, stream in connection.subs.items() if stream is meaning[0]]:
                del connection.subs[name]

    def _over(self, connection: Connection, sub: str) -> None:
        """A subscription has ended, and what it had goes to others."""
        self.work.refusals.append(f"a subscription of {self.home}")
        stream = connection.subs.pop(sub, None)
        for tag in [tag for tag, given in connection.unsettled.items() if given.stream is stream]:
            del connection.unsettled[tag]


class Enduringly(Everything):
    """The same promises where a refusal ends only what it says; and what is refused has changed nothing."""

    declared: ClassVar[list[dict[str, Any]]] = [
        {**Clients.declared[0], "match": "queue:*", "max_messages": 3, "block_seconds": 0.03}, *Clients.declared,
    ]  # fmt: skip
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Enduring.send: 52, Enduring.listen: 8, Enduring.take: 12, Enduring.keep: 8, Enduring.stop: 6,
        Enduring.transact: 14, Enduring.leave: 2,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.never: set[int] = set()  # messages that were refused

    def cast(self) -> Sequence[Client]:
        """Those with a client id share it, and thus one durable subscription."""
        return [Enduring(self, each.client_id and "c1") for each in super().cast()]
