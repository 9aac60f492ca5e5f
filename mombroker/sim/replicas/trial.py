"""Some servers of a simulated bus are replicated, and things go wrong among their replicas, too."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Protocol

from mombroker.sim.clients import ClientNode
from mombroker.sim.cluster import Maker
from mombroker.sim.node import Node
from mombroker.sim.replicas.mishaps import Mishaps
from mombroker.sim.replicas.node import ReplicatedNode
from mombroker.sim.world import MS, SECOND, World


class Bus(Protocol):
    """What is known of the bus."""

    world: World
    nodes: dict[str, Node]


class Replicas:
    """`node` makes the nodes of a cluster, of which up to three have replicas."""

    def __init__(self, rng: Random, plain: type[Node] = ClientNode, replicated: type[ReplicatedNode] = ReplicatedNode):
        self.rng, self.plain, self.replicated = rng, plain, replicated
        self.bus: Bus
        self.nodes: list[ReplicatedNode] = []

    def choose(self, servers: list[str]) -> Maker:
        chosen = self.rng.sample(servers, min(len(servers), self.rng.randint(1, 3)))
        return lambda cluster, name, commit: (self.replicated if name in chosen else self.plain)(cluster, name, commit)

    def schedule(self, bus: Bus, span: int) -> None:
        self.bus = bus
        self.nodes = [node for node in bus.nodes.values() if isinstance(node, ReplicatedNode)]
        for node in self.nodes:
            Mishaps(node.group, Random(self.rng.getrandbits(32))).schedule(span)

    def settle(self) -> None:
        """The faults are over: until all serve again."""
        world = self.bus.world
        for node in self.nodes:
            node.group.faulty = False
            node.boot()
        until = world.now + 100 * SECOND
        while not all(node.up for node in self.nodes) and world.now < until:
            world.run(world.now + 10 * MS)

    def counts(self) -> dict[str, int]:
        found: Counter[str] = Counter({"replicated": len(self.nodes)})
        for node in self.nodes:
            found.update(node.group.counts)
        return dict(found)

    def faults(self) -> list[str]:
        return [fault for node in self.nodes for fault in node.faults()]
