"""Agents on the move, from server to server and on, while they work."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from mombroker.core import revision
from mombroker.core.departures import Departures
from mombroker.core.meta import ARRIVING, DEPARTING, HOME
from mombroker.core.topology import AgentDecl
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.node import Node, Watched
from mombroker.sim.workloads import HERE, Pilgrim, Walker


class SmallPages(Departures):
    """Even small agents take several turns."""

    page, window = 2, 2


class TravelServer(Watched):
    departs = SmallPages


class TravelNode(Node):
    machine = TravelServer


class Travels(Workload):
    """What another workload does, while its agents move."""

    def __init__(self, rng: Random, work: Workload):
        self.rng, self.work = Random(rng.getrandbits(32)), work
        self.journeys = Moves(self.rng)

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        walker, pilgrim = f"{HERE}:{Walker.__name__}", f"{HERE}:{Pilgrim.__name__}"
        made = self.work.agents(servers, rng)
        for agent in made:
            if agent.cls == walker:
                agent.cls = pilgrim
        return made

    def begin(self, cluster: Cluster, span: int) -> None:
        self.work.begin(cluster, span)
        self.journeys.begin(cluster, span)

    def settle(self, cluster: Cluster) -> None:
        self.work.settle(cluster)

    def counts(self, cluster: Cluster) -> dict[str, int]:
        return self.journeys.counts(cluster)

    def faults(self, cluster: Cluster) -> list[str]:
        found = self.work.faults(cluster) + self.journeys.faults(cluster)
        for node in cluster.nodes.values():
            for path, state in node.disk.store.disk.agents.values():
                if path.startswith(HERE):
                    found += node.program.describe(path, state).get("wrong", [])[:1]
        return found


class Moves:
    """Authors' agents move, those too that are made meanwhile. Each move comes to an end, all servers know where each
    agent lives, and it lives there alone."""

    def __init__(self, rng: Random):
        self.rng, self.moves, self.asked = rng, rng.choice((2, 6, 12, 30)), 0

    def begin(self, cluster: Cluster, span: int) -> None:
        for _ in range(self.moves):
            cluster.world.after(int(self.rng.random() * span), self._move, cluster)

    def _move(self, cluster: Cluster) -> None:
        nodes = [node for node in cluster.nodes.values() if node.up]
        if nodes and (mine := list(_authors(node := self.rng.choice(nodes)))):
            self.asked += 1
            args = {"agent": self.rng.choice(mine), "to": self.rng.choice(list(cluster.nodes))}
            cluster.ask(node.name, "move_agent", args)

    def counts(self, cluster: Cluster) -> dict[str, int]:
        nodes = cluster.nodes.values()
        came = sum(record.kind == "move" and record.detail == "came" for node in nodes for record in node.trace)
        return {"moves_asked": self.asked, "agent_moves": came}

    def faults(self, cluster: Cluster) -> list[str]:
        wrong, homes = list[str](), dict[str, set[str]]()
        newest = max(cluster.nodes.values(), key=lambda node: node.server.truth.number).server.truth
        there = revision.read(newest.text).servers
        nodes = [node for node in cluster.nodes.values() if node.name in there]
        tables = [node.disk.store.meta() for node in nodes]
        moved = [_rows(meta) for meta in tables]
        for node, meta, rows in zip(nodes, tables, moved, strict=True):
            if left := [key for key in meta if key.startswith((ARRIVING, DEPARTING))]:
                wrong.append(f"{node.name} is left with {[(key, meta[key]) for key in left[:3]]}")
            if rows != moved[0] or node.server.homes.moved != rows:
                wrong.append(f"{node.name} and {nodes[0].name} differ in where agents live")
            if any(agent.endswith("/_moves") for agent, _ in node.disk.store.places()):
                wrong.append(f"{node.name} keeps what waited for an agent")
            for id in _authors(node):
                homes.setdefault(id, set()).add(node.name)
        for id, where in homes.items():
            if where != {moved[0].get(id, id.partition("/")[0])}:
                wrong.append(f"{id} lives on {sorted(where)}, and all are told another home")
        return wrong


def _authors(node: Node) -> Iterator[str]:
    """The agents of authors that live there."""
    for id, (path, _) in node.disk.store.disk.agents.items():
        if not node.server.clients.owns(path):
            yield id


def _rows(meta: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(HOME): row for key, row in meta.items() if key.startswith(HOME)}
