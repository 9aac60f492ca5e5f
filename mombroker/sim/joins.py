"""Servers that are attached to a simulated bus while it works under faults, and clients that come to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from mombroker.core import newcomers, revision
from mombroker.core.meta import ATTACHED, JOINING, WAITING
from mombroker.core.topology import Domain, Server, Topology
from mombroker.sim.clients import REST, Client, ClientNode, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.domains import draw_options
from mombroker.sim.model import Stream
from mombroker.sim.operators import differences, request
from mombroker.sim.workers import TOPICS, Everything, Worker
from mombroker.sim.world import MS, SECOND
from mombroker.store.memory import MemoryStore

EVERYWHERE = "topic:all"
BACKENDS = ("", "", "matrix", "rst", "ks", "vector", "overlay", "daisy")
EVERY = 10 * MS  # an operator looks whether a newcomer can be started
DEEDS = (10, 30)  # that a newcomer's clients bring


class Newcomer(ClientNode):
    """A server whose store is made of an invitation."""

    def __init__(self, cluster: Cluster, name: str, mean_commit: int, invitation: dict[str, Any]):
        self.invitation = invitation
        super().__init__(cluster, name, mean_commit)

    def new_store(self, number: int) -> MemoryStore:
        topology, rows = newcomers.rows(self.name, self.invitation)
        made = MemoryStore(topology, self.name, f"{self.name}.{number}")
        made.disk.meta.update(rows)
        return made


class Visitor(Worker):
    work: Joins

    def listen(self, connection: Connection) -> None:
        topics = [EVERYWHERE] if self.rng.random() < 0.3 else self.rng.sample(TOPICS, self.rng.choice((1, 1, 2)))
        connection.listen(*topics, prefetch=self.rng.choice((1, 3, 0)), ack=self.rng.choice(("auto", "client")))


class Early(Client):
    """Subscribes on a newcomer as soon as that is there. With its receipt it lets all others know, who then publish."""

    work: Joins
    faithful = 1.0

    def begin(self, connection: Connection) -> None:
        connection.listen(EVERYWHERE)

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        if everywhere:
            self.work.world.after(1, self._tell)

    def _tell(self) -> None:
        for client in self.work.clients:
            if client.connection is not None and self.work.left > 0:
                client.connection.send(EVERYWHERE)


class Joins(Everything):
    """An operator attaches servers and domains, here and there and perhaps behind newcomers, and starts them at once,
    later, or when all is over. Others set policies and make names meanwhile. In the end every newcomer has what all
    have, and clients of it have missed nothing."""

    declared: ClassVar[list[dict[str, Any]]] = [
        {**Clients.declared[0], "match": EVERYWHERE, "announce": "everywhere"}, *Everything.declared,
    ]  # fmt: skip
    varied = ()
    destinations = [*Everything.destinations, EVERYWHERE, EVERYWHERE]
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Visitor.send: 62, Visitor.listen: 14, Visitor.take: 10, Visitor.keep: 4, Visitor.stop: 4, Visitor.transact: 4,
        Visitor.leave: 2,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.asked = 0

    def cast(self) -> Sequence[Client]:
        return [Visitor(self, each.client_id) for each in super().cast()]

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        self.late: dict[str, bool] = {}  # whether a newcomer is started after the faults only
        for _ in range(self.rng.randint(1, 5)):
            self.world.after(int(self.rng.random() * span), self._attach)
        for number in range(self.rng.choice((0, 20))):
            server, at = self.rng.choice(self.servers), int(self.rng.random() * span)
            self.world.after(at, cluster.ask, server, *request(self.rng, number))
        for at in range(0, span, EVERY):
            self.world.after(at, self._look)

    def _attach(self) -> None:
        node = self.rng.choice(list(self.cluster.nodes.values()))
        if node.up and not node.stopping:
            truth = node.server.truth
            self.asked += 1
            text = revision.text_of(grown(self.rng, revision.read(truth.text), self.asked))
            self.cluster.ask(node.name, "apply_topology", {"text": text, "revision": truth.number})

    def _look(self, late: bool = False) -> None:
        """Start newcomers whose sponsors are ready for them."""
        for node in list(self.cluster.nodes.values()):
            meta = node.disk.store.meta()
            for server in [key.removeprefix(JOINING) for key in meta if key.startswith(JOINING)]:
                if server in self.cluster.nodes:
                    continue
                if late or not self.late.setdefault(server, self.rng.random() < 0.2):
                    self._start(server, invited(meta, server))

    def _start(self, server: str, invitation: dict[str, Any]) -> None:
        cluster, world, faults = self.cluster, self.world, self.cluster.faults
        base = cluster.network.base
        for other in cluster.nodes:
            for ends in ((server, other), (other, server)):
                base[ends] = world.about(faults.latency * self.rng.choice((1, 1, 8)))
        node = cluster.nodes[server] = Newcomer(cluster, server, world.about(faults.commit) + MS // 20, invitation)
        for at in range(self.rng.randint(0, 3)) if cluster.faulty else ():
            world.after(self.rng.randrange(1, 50 * MS) * at, self._strike, node, invitation["sponsor"])
        node.boot()
        self.servers.append(server)
        self.left += self.rng.choice(DEEDS)
        clients = [Visitor(self, id, server) for id in self.rng.sample([*self.durables], self.rng.randint(1, 2))]
        early = Early(self, "", server)
        self.clients = [*self.clients, *clients, early]
        early.connect()
        for client in clients:
            world.after(world.about(10 * MS), client.connect)

    def _strike(self, node: Newcomer, sponsor: str) -> None:
        """A newcomer dies, or loses its sponsor, in its first moments."""
        if not self.cluster.faulty:
            return
        if self.rng.random() < 0.5:
            if node.up:
                self.cluster.down(node)
        elif sponsor in self.cluster.nodes:
            network = self.cluster.network
            network.cut(node.name, sponsor)
            self.world.after(self.world.about(self.cluster.faults.cut), network.heal, node.name, sponsor)

    def settle(self, cluster: Cluster) -> None:
        """The faults are over: one more change, which nothing is in the way of; whatever waits to be started is."""
        cluster.make_room()
        self.world.run(self.world.now + REST)
        self._attach()
        self.start_all()
        super().settle(cluster)

    def start_all(self) -> None:
        nodes = self.cluster.nodes
        for second in range(100):  # until the last newcomer is started: some links are very slow
            self.world.run(self.world.now + SECOND)
            self._look(late=True)
            servers = [node.server.topology.servers.keys() for node in nodes.values()]
            if second > 20 and all(each == nodes.keys() for each in servers):
                break

    def counts(self) -> dict[str, int]:
        return super().counts() | {"joins": sum(isinstance(node, Newcomer) for node in self.cluster.nodes.values())}

    def faults(self, cluster: Cluster) -> list[str]:
        nodes = list(cluster.nodes.values())
        wrong = super().faults(cluster) + differences(nodes)
        for node in nodes:
            meta, server = node.disk.store.meta(), node.server
            if left := [key for key in meta if key.startswith(JOINING) or key == WAITING]:
                wrong.append(f"{node.name} is left with {left}")
            if server.truth.text != nodes[0].server.truth.text:
                wrong.append(f"{node.name} is at revision {server.truth.number}, {nodes[0].name} at another")
            if missing := server.topology.servers.keys() - cluster.nodes.keys():
                wrong.append(f"{sorted(missing)} could not be started")
            if unmet := {name: each.unmet for name, each in server.newcomers.attached.items() if each.unmet}:
                wrong.append(f"at {node.name} there are newcomers that are not known: {unmet}")
        if self.asked and not any(isinstance(node, Newcomer) for node in nodes):
            wrong.append("no server was attached")
        return wrong


def invited(meta: dict[str, str | int], server: str) -> dict[str, Any]:
    """What a sponsor that has this on disk says to a newcomer."""
    attached = {
        key.removeprefix(ATTACHED): json.loads(str(row)) for key, row in meta.items() if key.startswith(ATTACHED)
    }
    number, sponsor, _, *epoch = attached[server]
    others = {name: row[:2] for name, row in attached.items()}
    found = {"revision": number, "sponsor": sponsor, "text": meta[f"{JOINING}{server}"], "attached": others}
    return {**found, "epoch": epoch[0]} if epoch else found


def grown(rng: Random, topology: Topology, number: int) -> Topology:
    """The same with new servers in new domains behind one or two of those that are there, or behind one another."""
    servers, domains = dict(topology.servers), dict(topology.domains)
    for lot in range(rng.choice((1, 1, 2))):
        behind = [rng.choice(list(topology.servers))]
        for at in range(rng.choice((1, 1, 2))):
            fresh = [f"n{number}{'abcd'[lot]}{'wxyz'[at]}{n}" for n in range(rng.choice((1, 1, 2)))]
            members = [rng.choice(behind), *fresh]
            rng.shuffle(members)
            name = f"j{number}{'abcd'[lot]}{at}"
            backend = rng.choice(BACKENDS)
            domains[name] = Domain(name, tuple(members), backend, draw_options(rng, backend, members))
            for server in fresh:
                servers[server] = Server(server, "127.0.0.1", free_port(servers.values()), None, server)
            behind += fresh
    return replace(topology, servers=servers, domains=domains, checked=True)


def free_port(servers: Iterable[Server]) -> int:
    return 1 + max(server.port for server in servers)
