"""An operator who removes groups while they live; then they are made anew, on the same server or on another one."""

from __future__ import annotations

from random import Random

from mombroker.broker.groups.group import Group
from mombroker.core.ids import home_of
from mombroker.sim.cluster import Cluster
from mombroker.sim.partners import NAMES
from mombroker.sim.world import MS, SECOND


class Removals:
    """ids   of the agents that join again"""

    def __init__(self, rng: Random):
        self.rng = rng
        self.ids: list[str] = []

    def begin(self, cluster: Cluster, span: int) -> None:
        """At random times."""
        for _ in range(self.rng.choice((1, 2, 4))):
            cluster.world.after(int(self.rng.random() * span), self._remove, cluster, self.rng.choice(NAMES))

    def settle(self, cluster: Cluster) -> None:
        """Once more, each by itself, while all else is well."""
        world, step = cluster.world, _step(cluster)
        for group in self.rng.sample(NAMES, 2):
            for agent in self.ids:
                self._bid(cluster, agent, group, self.rng.choice(("join", "leave")), 0)
            world.run(world.now + SECOND + 100 * step)
            self._remove(cluster, group)
            world.run(world.now + SECOND + 300 * step)

    def _remove(self, cluster: Cluster, group: str) -> None:
        """Some ask once more before they know of it, one of them in vain. Behind it one is the first to join, others
        follow, and they cast; some leave."""
        rng, step = self.rng, _step(cluster)
        for agent in rng.sample(self.ids, rng.randint(0, len(self.ids))):
            for what in rng.choice((["join"], ["join", "join"], ["leave", "join"], ["join", "leave", "join"])):
                self._bid(cluster, agent, group, what, int(rng.random() * step))
        stray = self._cut_off(cluster, group)
        at = int(rng.random() * rng.choice((3, 30)) * step)
        for server in cluster.nodes:
            cluster.world.after(at, cluster.ask, server, "remove_group", {"group": group})
        again = rng.sample(self.ids, rng.randint(1, len(self.ids)))
        again += [agent for agent in stray if agent not in again]
        at += int(rng.random() * rng.choice((5, 100)) * step)
        for agent in again:
            self._bid(cluster, agent, group, "join", at)
            at += int(rng.random() * rng.choice((0, 1, 4)) * step)
        for _ in range(2 * len(again)):
            what = rng.choice(("cast", "cast", "total", "leave"))
            self._bid(cluster, rng.choice(again), group, what, at + int(rng.random() * 20 * step))

    def _cut_off(self, cluster: Cluster, group: str) -> list[str]:
        """One that is no member asks, and its home does not hear of it until later."""
        network, step = cluster.network, _step(cluster)
        for home, node in cluster.nodes.items():
            if not node.epoch:  # it has never been up
                continue
            found = node.server.natives.agents.get(f"{home}/group:{group}")
            if isinstance(found, Group):
                members = {home_of(agent) for agent in found.home.members}
                near = [each for each in cluster.neighbours(home) if each not in members]
                for agent in [id for id in self.ids if home_of(id) in near][-1:]:
                    network.cut(home_of(agent), home)
                    cluster.world.after(200 * step, network.heal, home_of(agent), home)
                    self._bid(cluster, agent, group, "join", 0)
                    return [agent]
        return []

    def _bid(self, cluster: Cluster, agent: str, group: str, what: str, at: int) -> None:
        args = {"to": [agent], "type": "sim.bid", "fields": {"group": group, "what": what}}
        cluster.world.after(at, cluster.ask, home_of(agent), "send", args)


def _step(cluster: Cluster) -> int:
    return 2 * (cluster.faults.latency + cluster.faults.commit) + MS
