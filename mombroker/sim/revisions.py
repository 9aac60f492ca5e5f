"""Operators change the topology's settings on all servers at once, and send to agents as soon as these are declared."""

import json
from random import Random
from typing import Any

from mombroker.broker.policy import policy
from mombroker.broker.session.service import Sessions
from mombroker.core import revision
from mombroker.core.meta import HISTORY, REVISION, TOPOLOGY
from mombroker.sim.cluster import Cluster
from mombroker.sim.node import Node
from mombroker.sim.operators import Operators
from mombroker.sim.workloads import HERE

Content = dict[str, Any]


class Revisions(Operators):
    """Every change that was confirmed is part of the topology that all have in the end; and whoever knows of an agent
    finds it, since the decision that declares it comes to its home before whatever is sent because of it."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.requests //= 4
        self.changes = self.rng.choice((5, 20, 40))
        self.last = 0  # revision, at the end
        self.asked: dict[tuple[str, int], tuple[str, str]] = {}  # (server, ticket) -> "+" or "-", and an agent

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        for number in range(self.changes):
            for call in (self._apply, self._send, self._send, self._send):
                server, at = self.rng.choice(self.servers), int(self.rng.random() * span)
                self.world.after(at, call, cluster, server, number)

    def _apply(self, cluster: Cluster, server: str, number: int) -> None:
        node = cluster.nodes[server]
        if not node.up:
            return
        content: Content = json.loads(node.server.truth.text)
        sign, agent = self._change(content, number)
        args = {"text": json.dumps(content), "revision": node.server.truth.number}
        cluster.ask(server, "apply_topology", args)
        self.asked[server, cluster.tickets] = sign, agent

    def _change(self, content: Content, number: int) -> tuple[str, str]:
        dice, agents = self.rng.random(), content["agents"]
        if dice < 0.5:
            fields = {"known": [], "names": [], "servers": self.servers}
            agents[f"r{number}"] = [self.rng.choice(self.servers), f"{HERE}:Walker", fields]
            return "+", f"r{number}"
        if dice < 0.6 and agents:
            gone = self.rng.choice(sorted(agents))
            del agents[gone]
            return "-", gone
        if dice < 0.8:
            content["policies"] = [{"match": "queue:n0", "max_messages": number}]
        else:
            content["servers"][self.rng.choice(self.servers)] = f"127.0.0.{number + 2}:20000"
        return "", ""

    def _send(self, cluster: Cluster, server: str, number: int) -> None:
        """To an agent that the server knows of, and perhaps has known of for this moment only."""
        node = cluster.nodes[server]
        known = [name for name in node.server.names.known if name[0] == "r"] if node.up else []
        if known:
            fields = {"seed": 1, "left": 0}
            cluster.ask(server, "send", {"to": [known[-1]], "type": "sim.walk", "fields": fields})

    def counts(self) -> dict[str, int]:
        return super().counts() | {"revisions": self.last}

    def faults(self, cluster: Cluster) -> list[str]:
        nodes = list(cluster.nodes.values())
        wrong, metas = super().faults(cluster), [node.disk.store.meta() for node in nodes]
        self.last, text = revision.in_force(metas[0])
        for node, meta in zip(nodes, metas, strict=True):
            for key in (REVISION, TOPOLOGY, *(f"{HISTORY}{number}" for number in range(2, self.last + 1))):
                if meta.get(key) != metas[0].get(key):
                    wrong.append(f"{node.name} and {nodes[0].name} differ in {key}")
            wrong += _does_not_go_by(node, text)
            wrong += [
                f"{record.agent}, which its sender knew of, was not there"
                for record in node.trace if record.kind == "dead" and record.agent.partition("/")[2][:1] == "r"
            ]  # fmt: skip
        kept = {*json.loads(text)["agents"], *(agent for sign, agent in self.asked.values() if sign == "-")}
        lost = [agent for sign, agent in self._confirmed(cluster) if sign == "+" and agent not in kept]
        return wrong + [f"the declaration of {agent} was confirmed, and is lost" for agent in lost]

    def _confirmed(self, cluster: Cluster) -> list[tuple[str, str]]:
        replies = {(node.name, ticket): reply for node in cluster.nodes.values() for ticket, reply in node.replies}
        return [what for asked, what in self.asked.items() if isinstance(replies.get(asked), dict)]


def _does_not_go_by(node: Node, text: str) -> list[str]:
    """How a server differs, in memory, from the topology that it should go by."""
    made, now, sessions = revision.read(text), node.server.topology, node.server.clients
    assert isinstance(sessions, Sessions)
    wrong = []
    if sessions.policies.declared != [policy(values) for values in made.policies]:
        wrong.append(f"{node.name} goes by other policies than those of the topology")
    for name, server in made.servers.items():
        if name != node.name and now.servers[name].listen != server.listen:
            wrong.append(f"{node.name} looks for {name} at {now.servers[name].listen}")
    known = {agent.name for agent in made.agents} - node.server.names.known.keys()
    return wrong + [f"{node.name} does not know {name}" for name in sorted(known)]
