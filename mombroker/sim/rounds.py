"""Clients that send to queues in turn, take from several and settle what these have given, each in one piece, while the
queues are used by others, are full, and move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.broker.commands import MODIFIED, Disposition
from mombroker.sim.clients import Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.model import Given, Stream
from mombroker.sim.moves import Moving
from mombroker.sim.workers import Everything, Worker

OWN = 2  # queues of each kind that a client is the first to use, and that are thus mostly where it is
FULL = "queue:full"


class Rounder(Worker):
    """Sends to its own queues in turn, at times to others', too, and takes from them on one connection. It keeps what
    it takes: only what it sends in one transaction with that is passed on.

    own    that others take from, too
    kept   that nobody else takes from
    found  those of them that are known to be there
    """

    faithful = 1.0  # so its queues hear that its connection is gone before they hear of its next one
    work: Rounds
    own: Sequence[Stream] = ()
    kept: Sequence[Stream] = ()
    settling: Connection | None = None  # where some of what has come is settled soon

    def __init__(self, work: Rounds):
        super().__init__(work)
        self.found: set[Stream] = set()

    def begin(self, connection: Connection) -> None:
        if connection.open and not connection.names:
            for stream in (*self.kept, *self.own):
                connection.subscribe(stream, prefetch=self.rng.choice((0, 0, 4, 1)), ack="individual")
        super().begin(connection)

    def round(self, connection: Connection) -> None:
        names = [name for each in (*self.own, *self.kept) if each in self.found for name in each.destinations]
        if not names:
            self.work.left += 1  # for later
            return
        if self.rng.random() < 0.2:
            names.append(self.rng.choice(self.work.destinations))
        self.rng.shuffle(names)
        count = self.rng.choice((2, 3, 7))
        connection.send_round([names[at % len(names)] for at in range(count)])

    def send(self, connection: Connection) -> None:
        connection.send(self.rng.choice(self.work.destinations), self.rng.random() < 0.7)

    def stop(self, connection: Connection) -> None:
        """What is under way then goes back behind what its next consumer has: not where the order counts."""
        if names := [name for name, stream in connection.subs.items() if not stream.received]:
            connection.unsubscribe(self.rng.choice(names))

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        if stream in self.own or stream in self.kept:
            self.found.add(stream)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if given.stream.destinations != (given.sent.destination,):
            self.work.model.wrong.append(f"{given.stream} saw {given.sent.id} to {given.sent.destination}")
        if given.ack != "individual":
            super().given(connection, tag, given)
        elif self.settling is not connection:
            self._settle_soon(connection)

    def _settle_soon(self, connection: Connection) -> None:
        self.settling = connection
        self.work.world.after(self.pause(), self._settle_some, connection)

    def _settle_some(self, connection: Connection) -> None:
        """Of all queues, in one piece; perhaps one of them is not accepted, and comes again."""
        if not connection.open:
            return
        self.settling = None
        tags = [tag for tag, given in connection.unsettled.items() if given.ack == "individual"]
        if self.work.left > 0:
            self.rng.shuffle(tags)
            tags = tags[: self.rng.choice((3, 10, len(tags)))]
            if tags and self.rng.random() < 0.1:
                tag = tags.pop()
                del connection.unsettled[tag]
                connection.do(Disposition(tag, MODIFIED))
        if tags:
            connection.accept_all(tags, self.rng.choice((True, False)))
        if any(given.ack == "individual" for given in connection.unsettled.values()):
            self._settle_soon(connection)


class Rounds(Moving, Everything):
    """What is sent in turn is there, once, and each queue has its messages in causal order; what a client has and does
    not accept comes again, what it has accepted does not."""

    declared: ClassVar[list[dict[str, Any]]] = [
        {
            "match": FULL, "max_messages": 5, "block_seconds": 1.0, "redelivery_delay": 0.01,
            "max_redeliveries": 1000,
        },
        *Clients.declared,
    ]  # fmt: skip
    varied = announced = ()
    patient = True
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Rounder.round: 50, Rounder.send: 20, Rounder.take: 10, Rounder.stop: 6, Rounder.transact: 10,
        Rounder.leave: 4,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.moves = self.rng.choice((0, 2, 6))

    def cast(self) -> Sequence[Rounder]:
        made = [Rounder(self) for _ in range(self.rng.randint(2, 5))]
        self.homes: dict[str, str] = {}
        for n, client in enumerate(made):
            client.own = [self.queue(f"queue:r{n}-{at}") for at in range(OWN)]
            client.kept = [
                self.lasts(Stream((f"queue:kept{n}-{at}",), "queue", received=True)) for at in range(OWN)
            ]  # fmt: skip
            self.homes |= {name: client.home for each in (*client.own, *client.kept) for name in each.destinations}
        self.queues = [*(stream for client in made for stream in client.own), self.queue(FULL)]
        self.kept = {stream for client in made for stream in client.kept}
        self.movable = [*self.homes]
        self.destinations = [*self.homes, FULL]
        return made

    def way(self) -> tuple[str, str]:
        """Half of what moves goes where its first user is."""
        destination, to = super().way()
        return destination, self.rng.choice((to, self.homes[destination]))

    def taken(self) -> set[Stream]:
        """Who has these to itself comes back."""
        return super().taken() | self.kept

    def objections(self, cluster: Cluster) -> list[str]:
        lost = [
            f"{stream} did not see {id} again, which was not accepted"
            for (stream, id), given in self.model.last.items()
            if stream.kind == "queue" and given.ack == "individual" and not given.accepted
        ]
        return super().objections(cluster) + lost[:2]
