"""The servers of a simulated bus, the network between them, and what is asked of them from outside."""

from collections.abc import Callable
from random import Random
from typing import Any

from mombroker.core.events import Admin, StoreSize
from mombroker.core.topology import AgentDecl, Topology
from mombroker.sim.faults import POINTS, Faults, Mood
from mombroker.sim.network import Network
from mombroker.sim.node import Node
from mombroker.sim.world import MS, World

Maker = Callable[["Cluster", str, int], Node]  # of a node, by its name and the mean time of a commit


class Workload:
    """Which agents a topology declares, what is sent to them from outside, and what must hold when all is at rest."""

    policies: list[dict[str, Any]] = []  # noqa: RUF012 - of destinations

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        raise NotImplementedError

    def begin(self, cluster: "Cluster", span: int) -> None:
        """Ask for what comes from outside during the next `span` ns."""

    def settle(self, cluster: "Cluster") -> None:
        """The faults are over: ask again for what an operator would ask for again."""

    def damaged(self, body: bytes) -> None:
        """A client's message with this body may come to nothing: its row is damaged."""

    def faults(self, cluster: "Cluster") -> list[str]:
        return []


class Cluster:
    """All nodes of a topology, the network between them, and what is done to them."""

    def __init__(self, world: World, topology: Topology, faults: Faults, workload: Workload, node: Maker = Node):
        self.world, self.topology, self.faults, self.workload = world, topology, faults, workload
        self.nodes: dict[str, Node] = {}
        self.network = Network(world, self.nodes, list(topology.servers), faults.latency)
        for name in topology.servers:
            self.nodes[name] = node(self, name, world.about(faults.commit) + MS // 20)
        self.faulty = False
        self.tickets = self.crashes = 0
        self.deaths = dict.fromkeys(POINTS, 0)
        Mood.rng, Mood.failing = Random(world.rng.getrandbits(32)), faults.failing

    def neighbours(self, name: str) -> list[str]:
        domains = self.topology.domains_of(name)
        return list(dict.fromkeys(member for domain in domains for member in domain.members if member != name))

    # -- from outside ----------------------------------------------------------------------------------------------

    def ask(self, server: str, verb: str, args: dict[str, Any]) -> None:
        """An operator's request; lost when the server is down."""
        node = self.nodes[server]
        if node.up and node.true_store is None:
            self.tickets += 1
            node.post(Admin(self.tickets, verb, args))

    def make_room(self) -> None:
        """The operator raises `max_store` everywhere."""
        for node in self.nodes.values():
            node.server.limits.max_store = 1 << 40
            node.post(StoreSize(node.disk.store.size()))

    def state(self, agent: str) -> dict[str, Any]:
        """The committed fields of an agent."""
        found = [(node, row) for node in self.nodes.values() if (row := node.disk.store.agent(agent)) is not None]
        assert len(found) == 1, f"{agent} does not exist, or more than once"
        node, row = found[0]
        return node.program.describe(*row)

    # -- deaths ----------------------------------------------------------------------------------------------------

    def dies(self, node: Node, point: str) -> bool:
        if not self.faulty or self.crashes >= self.faults.crashes or node.true_store is not None:
            return False
        probability = self.faults.points.get(point, 0.0)
        if not probability or not self.world.chance(probability):
            return False
        self.crashes += 1
        self.deaths[point] += 1
        self.down(node)
        return True

    def down(self, node: Node) -> None:
        """A crash, and the restart at once, soon, or late."""
        node.crash()
        self.world.after(self.world.about(self.faults.down), node.boot)
