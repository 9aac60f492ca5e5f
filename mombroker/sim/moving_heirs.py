"""Queues and durable subscriptions on the move while their old or new homes are lost, and clients go on."""

from __future__ import annotations

from collections.abc import Sequence

from mombroker.broker.commands import Disposition
from mombroker.broker.names import subscription_name
from mombroker.broker.queue.departure import Departure
from mombroker.broker.queue.queue import Queue
from mombroker.core.ids import home_of
from mombroker.sim.clients import Client, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.heirs import WORD, Heir, Heirs
from mombroker.sim.model import Given, Stream
from mombroker.sim.moves import Moving


class Keeper(Heir):
    """Has a durable subscription as well."""

    work: MovingHeirs

    def begin(self, connection: Connection) -> None:
        if connection.open and not connection.subs and not self.work.ended:
            connection.subscribe(
                self.work.kept[self.client_id], "d", prefetch=self.rng.choice((1, 3)), ack="individual"
            )
        super().begin(connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if given.stream.kind == "durable":
            self.work.world.after(self.pause() // 2, self.settle, connection, tag)
        else:
            super().given(connection, tag, given)


class Taker(Heir):
    """Takes from a queue that moves. Whether what it settles is settled is unknown: a router may be lost with that."""

    work: MovingHeirs

    def begin(self, connection: Connection) -> None:
        if connection.open and not connection.subs and not self.work.ended:
            connection.subscribe(self.rng.choice(self.work.taken_from), prefetch=3, ack="individual")
        super().begin(connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if given.stream.kind == "queue":
            self.work.world.after(self.pause() // 2, self.settle, connection, tag)
        else:
            super().given(connection, tag, given)

    def acknowledge(self, connection: Connection, tag: int) -> None:
        del connection.unsettled[tag]
        connection.do(Disposition(tag))


class MovingHeirs(Moving, Heirs):
    """What moves is in the end at one home, which all servers know, or nowhere."""

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        self.moves += 8
        for _ in range(8):
            self.world.after(int(self.rng.random() * span), self._move, False)
        if self.losses is not None:
            self.losses.rather = self._homes

    def cast(self) -> Sequence[Client]:
        clients = list(super().cast())
        self.kept = {f"c{n}": Stream((WORD,), "durable") for n in range(2)}
        for id, stream in self.kept.items():
            self.lasts(stream, id, "d")
        self.taken_from = [self.queue(f"queue:taken{n}") for n in range(2)]
        names = [name for stream in self.taken_from for name in stream.destinations]
        self.movable = [*self.queues, *names, *(subscription_name(id, "d") for id in self.kept)]
        self.queues += names
        return [*clients, *(Keeper(self, id) for id in self.kept), Taker(self), Taker(self)]

    def _homes(self) -> set[str]:
        """Of what moves now."""
        servers = [node.server for node in self.cluster.nodes.values() if node.up]
        moves = [
            (server.name, getattr(it, "move", None)) for server in servers for it in server.natives.agents.values()
        ]
        return {name for home, move in moves if isinstance(move, Departure) for name in (home, home_of(move.to))}

    def faults(self, cluster: Cluster) -> list[str]:
        servers = [node.server for node in cluster.nodes.values() if not node.gone]
        wrong = list[str]()
        for server in servers:
            names, first = server.names, servers[0].names
            if (names.known, names.others) != (first.known, first.others):
                wrong.append(f"{server.name} and {servers[0].name} differ in where queues live")
            wrong += [
                f"{id} is there, and nobody knows it" for id, it in server.natives.agents.items()
                if isinstance(it, Queue) and not it.volatile and names.known.get(it.name) != id
            ]  # fmt: skip
        for id in servers[0].names.known.values():
            if not any(id in server.natives.agents for server in servers):
                wrong.append(f"all know {id}, and it is nowhere")
        return super().faults(cluster) + wrong[:3]
