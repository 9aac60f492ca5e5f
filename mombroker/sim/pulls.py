"""Clients of another protocol than STOMP: they take messages by credit that they give, and outlive what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.broker.commands import (
    COMMAND,
    MODIFIED,
    Delivery,
    Disposition,
    Drained,
    Flow,
    Refused,
    Subscribe,
    Sync,
    Transact,
    Unsubscribe,
)
from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.model import Sent, Stream

TOPICS = ("topic:t0", "topic:t1")
NOBODY = 1 << 40  # a tag that no delivery has
WRONG, BEHIND = "wrong", "behind"  # receipts: of a command that cannot be obeyed, and of one behind it


class Pull:
    """What a client knows of one subscription: how many messages may still come, and while it is drained, what must be
    among those that come before the end of that."""

    def __init__(self, stream: Stream):
        self.stream = stream
        self.credit = 0
        self.draining = False
        self.awaited: set[Sent] = set()


class Puller(Client):
    """Fills a queue of its own, and takes from it, and from topics, so many messages as it asks for."""

    work: Pulls
    strict = False

    def __init__(self, work: Pulls, queue: Stream):
        super().__init__(work)
        self.queue = queue
        self.connections = 0
        self.pulls: dict[str, Pull] = {}  # of the connection, by subscription
        self.waiting: set[Sent] = set()  # sent to the queue on this connection, and not come back yet
        self.behind = 0  # commands behind refused ones that are not answered yet

    def begin(self, connection: Connection) -> None:
        if not connection.subs:
            self.connections += 1
            self.pulls, self.waiting, self.behind = {}, set(), 0
            self._listen(connection, self.queue, self.rng.choice((0, 0, 3)))
        self._next(connection)

    def _next(self, connection: Connection) -> None:
        if connection.open and self.work.left > 0:
            self.work.left -= 1
            deeds = self.work.deeds
            self.rng.choices([*deeds], [*deeds.values()])[0](self, connection)
            self.work.world.after(self.pause(), self._next, connection)

    def _listen(self, connection: Connection, stream: Stream, credit: int) -> None:
        ack = "individual" if stream is self.queue else self.rng.choice(("auto", "client", "individual"))
        pull = self.pulls[connection.subscribe(stream, ack=ack, credit=credit)] = Pull(stream)
        pull.credit = credit

    # -- deeds -----------------------------------------------------------------------------------------------------

    def fill(self, connection: Connection) -> None:
        for _ in range(self.rng.choice((1, 1, 4))):
            told = self.rng.random() < 0.5 or self.work.drawn.queues != ()  # else a refusal would say of nothing
            self.waiting.add(connection.send(self.queue.destinations[0], told))

    def publish(self, connection: Connection) -> None:
        connection.send(self.rng.choice(TOPICS))

    def listen(self, connection: Connection) -> None:
        """Nothing says that it takes all of it. What a subscription has no credit for waits alone, so that each has an
        order of its own."""
        stream = Stream((self.rng.choice(TOPICS),), "plain", complete=False)
        self._listen(connection, stream, self.rng.choice((0, 2)))

    def pull(self, connection: Connection) -> None:
        """Ask for some more, or for what is there."""
        free = [name for name, pull in self.pulls.items() if not pull.draining]
        if not free:
            return
        name = self.rng.choice(free)
        pull = self.pulls[name]
        more = self.rng.choice((0, 1, 3, 8))
        pull.credit += more
        pull.draining = self.rng.random() < 0.6
        if pull.draining:
            pull.awaited = set(self.waiting) if pull.stream is self.queue else set()
        connection.do(Flow(name, more, pull.draining))

    def stop(self, connection: Connection) -> None:
        names = [name for name, pull in self.pulls.items() if pull.stream is not self.queue]
        if names:
            name = self.rng.choice(names)
            del self.pulls[name]
            connection.unsubscribe(name)

    def err(self, connection: Connection) -> None:
        """Ask for what cannot be done, and for something that can behind it."""
        other = f"temp-queue:{connection.node.name}/other/x"
        command = self.rng.choice((
            Disposition(NOBODY), Flow("none", 1), Unsubscribe("none"), Subscribe("x", (other,)),
            Subscribe("x", TOPICS, "auto", "="),
        ))  # fmt: skip
        command.receipt = connection.receipt(WRONG)
        self.behind += 1
        connection.do(command, Sync(connection.receipt(BEHIND)))

    def fail(self, connection: Connection) -> None:
        """A transaction that cannot be done: nothing of it is."""
        sent, command = connection.message(self.queue.destinations[0])
        self.work.never.add(sent)
        connection.do(Transact([command, Disposition(NOBODY)], connection.receipt(WRONG)))

    def leave(self, connection: Connection) -> None:
        connection.leave()

    # -- what it is told -------------------------------------------------------------------------------------------

    def told(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Delivery):
            self._judge(connection, reply)
        if isinstance(reply, Refused) and reply.scope == COMMAND:
            self._refused(connection, connection.receipts.get(reply.receipt or ""), reply.message)
        elif isinstance(reply, Drained):
            self._drained(reply.sub)
        else:
            super().told(connection, reply)

    def _judge(self, connection: Connection, reply: Delivery) -> None:
        sent, pull = self.work.model.messages[int(reply.body)], self.pulls.get(reply.sub)
        if sent in self.work.never:
            self.work.model.wrong.append(f"{sent.id} came, though all that it was sent with was refused")
        self.waiting.discard(sent)
        if pull is not None:
            pull.awaited.discard(sent)
            pull.credit -= 1
            if pull.credit < 0:
                self.work.model.wrong.append(f"{pull.stream} saw {sent.id} without credit")

    def _drained(self, sub: str) -> None:
        pull = self.pulls.get(sub)
        if pull is None:  # it has ended
            return
        missed = [sent.id for sent in pull.awaited - self.work.never if not sent.losable]
        if missed and pull.credit > 0 and self.connections == 1 and self.work.left > 0:  # nobody else takes from it
            self.work.model.wrong.append(f"{pull.stream} was drained before {missed[:3]} came")
        pull.credit, pull.draining, pull.awaited = 0, False, set()

    def _refused(self, connection: Connection, meaning: Any, reason: str) -> None:
        if meaning != WRONG:
            self.work.refusals.append(reason)
        if isinstance(meaning, Sent):
            self.work.never.add(meaning)
            self.waiting.discard(meaning)
        elif isinstance(meaning, tuple):  # a subscription: what is waited for is a name
            for name in [name for name, stream in connection.subs.items() if stream is meaning[0]]:
                del connection.subs[name], self.pulls[name]

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        if meaning == WRONG:
            self.work.model.wrong.append("a command was obeyed that cannot be")
        elif meaning == BEHIND:
            self.behind -= 1
        else:
            super()._confirmed(connection, meaning, everywhere)

    def acknowledge(self, connection: Connection, tag: int) -> None:
        given = connection.unsettled[tag]
        dice = self.rng.random()
        if given.ack == "individual" and given.stream.kind == "queue" and dice < 0.2 and self.work.left > 0:
            del connection.unsettled[tag]
            connection.do(Disposition(tag, MODIFIED, undeliverable_here=dice < 0.1))
        else:
            super().acknowledge(connection, tag)

    def unanswered(self) -> list[str]:
        """What is still owed to it at the end."""
        connection = self.connection
        if connection is None or not connection.open:
            return []
        owed = [f"{pull.stream} is being drained for ever" for pull in self.pulls.values() if pull.draining]
        return owed + ["what is behind a refused command is not obeyed"] * (self.behind > 0)


class Pulls(Clients):
    """Nothing comes that no credit was given for; what is there comes before the end of a drain, which does come; and
    what is refused does nothing and ends nothing else."""

    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Puller.fill: 30, Puller.pull: 40, Puller.publish: 10, Puller.listen: 6, Puller.stop: 3, Puller.err: 8,
        Puller.fail: 4, Puller.leave: 1,
    }  # fmt: skip

    varied = tuple(f"queue:own{n}" for n in range(4))

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((40, 80, 160))
        self.never: set[Sent] = set()  # was refused

    def cast(self) -> Sequence[Client]:
        return [Puller(self, self.queue(f"queue:own{n}")) for n in range(self.rng.randint(2, 4))]

    def taken(self) -> set[Stream]:
        """Nobody takes all of anything."""
        return set()

    def faults(self, cluster: Any) -> list[str]:
        owed = [what for each in self.clients if isinstance(each, Puller) for what in each.unanswered()]
        return super().faults(cluster) + owed[:2]
