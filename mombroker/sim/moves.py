"""Queues, durable and shared subscriptions on the move, from server to server and on, while clients use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.broker.names import subscription_name
from mombroker.broker.queue.queue import Queue
from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.model import Stream
from mombroker.sim.pulls import Pulls
from mombroker.sim.workers import QUEUES, A, Everything, Worker

ORDERED = "queue:ordered"  # of which nobody takes anything before all is sent


class Traveller(Worker):
    """Tells the others by a topic what it has just sent to a queue, which is then behind that for them, too."""

    work: Moves

    def begin(self, connection: Connection) -> None:
        if connection.open and not any(stream.kind == "plain" for stream in connection.subs.values()):
            connection.listen(A)
        super().begin(connection)

    def tell(self, connection: Connection) -> None:
        for _ in range(self.rng.choice((1, 2))):
            connection.send(ORDERED, self.rng.random() < 0.5)
        connection.send(A, False)


class Moving(Clients):
    """What the clients use moves. Each move comes to an end.

    moves     so many are asked for
    movable   what they are of, by the names that an operator uses
    """

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.moves = self.rng.choice((2, 6, 12))
        self.movable: list[str] = []

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        self.movable += [subscription_name(id, name) for id, name in self.lasting.values() if name]
        for _ in range(self.moves):
            self.world.after(int(self.rng.random() * span), self._move, self.rng.random() < 0.2)

    def _move(self, release: bool) -> None:
        destination, to = self.way()
        for stream, (id, durable) in self.lasting.items() if release else ():
            if destination in stream.destinations or (durable and destination == subscription_name(id, durable)):
                self.model.released(stream)
        for name in self.servers:  # its home alone does it
            args = {"destination": destination, "to": to, "release": release}
            self.cluster.ask(name, "move_destination", args)

    def way(self) -> tuple[str, str]:
        """What moves, and to where."""
        return self.rng.choice(self.movable), self.rng.choice(self.servers)

    def counts(self) -> dict[str, int]:
        return super().counts() | {"moves": self.moves}

    def faults(self, cluster: Cluster) -> list[str]:
        return super().faults(cluster) + [f"{what} has not come to its end" for what in self._on_the_way(cluster)][:3]

    def _on_the_way(self, cluster: Cluster) -> Iterator[str]:
        for node in [node for node in cluster.nodes.values() if not node.gone]:
            for native in node.server.natives.agents.values():
                if isinstance(native, Queue) and native.move is not None:
                    yield f"the move of {native.id} ({native.move.values()})"


class Moves(Moving, Everything):
    """What moves loses nothing, repeats nothing unsaid and keeps its order."""

    varied = ()
    patient = True
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Traveller.send: 40, Traveller.tell: 20, Traveller.take: 12, Traveller.keep: 10, Traveller.stop: 6,
        Traveller.transact: 8, Traveller.leave: 4,
    }  # fmt: skip

    def cast(self) -> Sequence[Client]:
        made = super().cast()
        self.lasts(Stream((ORDERED,), "queue", received=True))
        self.movable = [*QUEUES, ORDERED, ORDERED]
        return [Traveller(self, client.client_id) for client in made]


class PulledMoves(Moving, Pulls):
    """Credit and drains hold while queues move."""

    varied = ()

    def cast(self) -> Sequence[Client]:
        made = super().cast()
        self.movable = [name for stream in self.lasting for name in stream.destinations]
        return made
