"""Servers that leave a simulated bus between two runs, while clients, queues and subscriptions refer to them.

1. Clients are at work under faults; then all comes to rest with what they have left, and every server is stopped.
2. A topology without some of the servers is adopted: with their names withdrawn, or with names and entries left as an
   adoption left them that knew nothing of this.
3. The clients go on under faults, on the servers that are left, and so the run ends as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

import pytest

from mombroker.admin import leaving
from mombroker.admin.reset import adopt
from mombroker.broker.names import name_of
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError, TopologyError
from mombroker.core.ids import home_of
from mombroker.core.topology import Topology
from mombroker.sim import seeds
from mombroker.sim.checkers import judge
from mombroker.sim.clients import REST, Client, ClientNode, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.faults import draw
from mombroker.sim.mischief import Trial
from mombroker.sim.model import Stream
from mombroker.sim.workers import QUEUES, Everything, Worker
from mombroker.sim.workloads import Wander
from mombroker.sim.world import MS
from mombroker.store.memory import MemoryStore

GRAVE = "queue:grave"
LEFT = "has left this bus"


class Mortal(Worker):
    """Some of what it sends expires soon, and is then to go to the dead-letter queue."""

    def expire(self, connection: Connection) -> None:
        at = self.work.world.now + self.work.world.about(50 * MS)
        connection.send(self.rng.choice(QUEUES), expires=at).mortal = True


class Departures(Everything):
    declared: ClassVar[list[dict[str, Any]]] = [
        {"match": GRAVE, "redelivery_delay": 0.01, "max_redeliveries": 1000},
        *({**policy, "dead_letter": GRAVE} for policy in Everything.declared),
    ]
    varied = ()
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {**Everything.deeds, Mortal.expire: 12}
    lost: frozenset[Stream] = frozenset()  # streams that lived on a server that has left
    dropped = False  # their names were withdrawn

    def cast(self) -> Sequence[Client]:
        ids = [client.client_id for client in super().cast()]
        self.queue(GRAVE)
        return [Mortal(self, id) for id in ids]

    def go_on(self, cluster: Cluster, gone: set[str], dropped: bool) -> None:
        """On another bus, with what is known of this one."""
        self.dropped = dropped
        self.servers = list(cluster.topology.servers)
        self.lost = frozenset(stream for stream in self.lasting if self.home(stream) in gone)
        places = {place for stream in self.lost for place in stream.destinations}
        for given in self.model.last.values():
            given.passed_on = [sent for sent in given.passed_on if sent.destination not in places]
        for client in self.clients:
            client.home = client.home if client.home in self.servers else self.rng.choice(self.servers)
        self.left = self.rng.choice((40, 80))

    def home(self, stream: Stream) -> str:
        """Where a queue or a durable subscription lives; the names are those of any server."""
        client_id, durable = self.lasting[stream]
        name = f"sub:{client_id}:{durable}" if durable else name_of(stream.destinations[0])
        known = next(iter(self.cluster.nodes.values())).server.names.known
        return home_of(known[name]) if name in known else ""

    def begin(self, cluster: Cluster, span: int) -> None:
        if not self.clients:
            super().begin(cluster, span)
        self.cluster = cluster

    def settle(self, cluster: Cluster) -> None:
        for stream in self.lost if not self.dropped else ():
            del self.lasting[stream]  # there is nothing to be drained
        super().settle(cluster)

    def faults(self, cluster: Cluster) -> list[str]:
        for stream in self.lost:
            self.model.streams.pop(stream, None)
        for given in self.model.last.values():
            if given.stream in self.lost:  # nothing is given again by who is not there
                given.passed_on = []
        return super().faults(cluster)

    def _left(self, cluster: Cluster) -> list[str]:
        """Dead letters are left where the dead-letter queue was withdrawn from nobody, and is not there."""
        return [what for what in super()._left(cluster) if "/_dead letters" not in what]


def shrunk(topology: Topology, rng: Random) -> Topology:
    """Without one to three of its servers, in one piece still."""
    while True:
        gone = set(rng.sample(list(topology.servers), rng.randint(1, min(3, len(topology.servers) - 2))))
        servers = {name: server for name, server in topology.servers.items() if name not in gone}
        domains = {}
        for domain in topology.domains.values():
            members = tuple(member for member in domain.members if member not in gone)
            if len(members) > 1:
                domains[domain.name] = replace(domain, members=members)
        registry = topology.registry if topology.registry in servers else rng.choice(list(servers))
        try:
            agents = [agent for agent in topology.agents if agent.server not in gone]
            return replace(
                topology, servers=servers, domains=domains, registry=registry, agents=agents, checked=True
            )  # fmt: skip
        except TopologyError:
            continue


def run(seed: int) -> tuple[list[str], dict[str, int]]:
    """What is wrong, and counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(seeds.PROGRAMS, "departures", Departures)
        first = seeds.cluster(seed, program="departures")
    world, rng, work = first.world, first.world.rng, first.workload
    assert isinstance(work, Departures)
    _work(first, rng.choice((100, 400)) * MS)
    whole, rest = first.topology, shrunk(first.topology, rng)
    gone = set(whole.servers) - set(rest.servers)
    second = Trial(world, rest, replace(draw(rng), impostor=""), work, ClientNode)
    for node in first.nodes.values():
        node.crash()
    stores = {name: node.disk.store for name, node in first.nodes.items()}
    dropped = _adopt(rest, stores, gone, rng.random() < 0.5)
    work.go_on(second, gone, dropped)
    for name, node in second.nodes.items():
        node.disk.store = stores[name]
    wrong = second.run(rng.choice((100, 400)) * MS)
    wrong += judge(second)[0]
    return wrong, {
        "dropped": dropped, "gone": len(gone), "lost": len(work.lost), "crashes": second.crashes,
        "notices": sum(LEFT in refusal for refusal in work.refusals),
        "letters": sum("letters" == row.collection for node in second.nodes.values() for row in _rows(node)),
        **work.counts(),
    }  # fmt: skip


class Wanderers(Wander):
    """Walkers that know all others by id, and some by name; they make new ones on any server, and some have left."""

    def go_on(self, rest: Topology, known: set[str]) -> None:
        names = {*self.fields["names"], *self.late}
        self.servers, self.ids = list(rest.servers), [id for id in self.ids if home_of(id) in rest.servers]
        self.late = sorted(names - known)  # an operator deploys them anew


def run_agents(seed: int) -> tuple[list[str], dict[str, int]]:
    """The same with agents at work: all is at rest between the runs, and they know each other by what they keep."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds, "WORKLOADS", (Wanderers,))
        first = seeds.cluster(seed)
    world, rng, work = first.world, first.world.rng, first.workload
    assert isinstance(work, Wanderers)
    first.faults.impostor = ""
    wrong = first.run(rng.choice((100, 400)) * MS)
    rest = shrunk(first.topology, rng)
    gone = set(first.nodes) - set(rest.servers)
    for node in first.nodes.values():
        node.crash()
    stores = {name: node.disk.store for name, node in first.nodes.items()}
    dropped = _adopt(rest, stores, gone, rng.random() < 0.5)
    metas = [stores[name].meta() for name in rest.servers]
    known = {key.removeprefix("name:") for meta in metas for key in meta if key.startswith("name:")}
    work.go_on(rest, known | {agent.name for agent in rest.agents})
    second = Trial(world, rest, replace(draw(rng), impostor=""), work)
    for name, node in second.nodes.items():
        node.disk.store, node.trace, node.events = stores[name], first.nodes[name].trace, first.nodes[name].events
    wrong += second.run(rng.choice((100, 400)) * MS)
    notices = sum(
        record.kind == "dead" and home_of(record.agent) in gone
        for node in second.nodes.values()
        for record in node.trace
    )
    second.nodes.update({name: first.nodes[name] for name in gone})
    wrong += judge(second)[0]
    return wrong, {"dropped": dropped, "gone": len(gone), "crashes": second.crashes, "notices": notices}


def _rows(node: Any) -> Any:
    return node.disk.store.disk.items.values()


def _work(cluster: Trial, span: int) -> None:
    """Everybody is at work, and leaves off at what there is then."""
    for node in cluster.nodes.values():
        cluster.world.after(cluster.world.about(2 * MS), node.boot)
    cluster.workload.begin(cluster, span)
    cluster.mischief.schedule(span)
    cluster.faulty = True
    cluster.world.run(cluster.world.now + span)
    cluster.faulty = False
    for node in cluster.nodes.values():
        node.boot()
    cluster.network.heal_all()
    cluster.make_room()
    cluster.workload.left = 0  # type: ignore[attr-defined]
    cluster.world.run(cluster.world.now + 4 * REST)
    while any(link.waiting() for node in cluster.nodes.values() for link in _links(node)):  # wires may be slow
        cluster.world.run(cluster.world.now + REST)


def _links(node: Any) -> list[Any]:
    return [link for consumer in node.server.channel.domains.values() for link in consumer.links.values()]


def _adopt(rest: Topology, stores: dict[str, MemoryStore], gone: set[str], drop: bool) -> bool:
    """Says whether names and entries were withdrawn."""
    left = {name: stores[name] for name in gone}
    staying: dict[str, Any] = {name: stores[name] for name in rest.servers}
    metas = {name: store.meta() for name, store in staying.items()}
    holds = any(leaving.holdings(name, left[name], metas) for name in gone)
    try:
        adopt(rest, staying, left)
        assert not holds, "a server left with all that it held"
    except MomError as error:
        assert holds and "still holds" in str(error), error
        adopt(rest, staying, left, drop=True)
        if not drop:
            for name, meta in metas.items():
                stores[name].commit(Batch(meta={key: meta[key] for key in leaving.withdrawn(meta, sorted(gone))}))
    return drop
