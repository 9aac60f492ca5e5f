"""Clients that send to queues in turn, in one piece, while these are used by others, are full, and move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.model import Stream
from mombroker.sim.moves import Moving
from mombroker.sim.workers import Everything, Worker

OWN = 2  # queues that a client is the first to use, and that are thus mostly where it is; of another one nobody takes
FULL = "queue:r0"


class Rounder(Worker):
    """Sends to its own queues in turn, at times to others', too."""

    work: Rounds
    own: Sequence[str] = ()

    def round(self, connection: Connection) -> None:
        names = list(self.own)
        if self.rng.random() < 0.2:
            names.append(self.rng.choice(self.work.destinations))
        self.rng.shuffle(names)
        count = self.rng.choice((2, 3, 7))
        connection.send_round([names[at % len(names)] for at in range(count)])

    def send(self, connection: Connection) -> None:
        connection.send(self.rng.choice((*self.own, *self.work.destinations)), self.rng.random() < 0.7)

    def settle(self, connection: Connection, tag: int) -> None:
        """It keeps what it takes: only what it sends in one transaction with that is passed on."""
        Client.settle(self, connection, tag)


class Rounds(Moving, Everything):
    """What is sent in turn is there, once, and each queue has its messages in causal order."""

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
        Rounder.round: 40, Rounder.send: 20, Rounder.take: 20, Rounder.stop: 6, Rounder.transact: 10,
        Rounder.leave: 4,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.moves = self.rng.choice((0, 2, 6))

    def cast(self) -> Sequence[Client]:
        count = self.rng.randint(2, 5)
        self.destinations = [f"queue:r{n}" for n in range(OWN * count)]
        self.queues = [self.queue(name) for name in self.destinations]
        kept = [f"queue:kept{n}" for n in range(count)]
        for name in kept:
            self.lasts(Stream((name,), "queue", received=True))
        self.movable = [*self.destinations, *kept]
        made = []
        for n in range(count):
            client = Rounder(self)
            client.own = (*self.destinations[OWN * n : OWN * (n + 1)], kept[n])
            made.append(client)
        return made
