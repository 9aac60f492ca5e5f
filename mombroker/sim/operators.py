"""Operators on all servers at once, and no clients: names are created and deleted, policies set and withdrawn."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from mombroker.broker.session.service import Sessions
from mombroker.core.meta import KEYS, NAME, POLICY
from mombroker.sim.clients import Client, Clients
from mombroker.sim.cluster import Cluster
from mombroker.sim.node import Node

REPLICATED = tuple(key.name for key in KEYS if key.replicated)
NAMES = [f"{kind}:n{number}" for kind in ("queue", "topic") for number in range(3)]


class Operators(Clients):
    """Whatever is decided is the same everywhere in the end, in memory and on disk."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.requests = self.rng.choice((20, 60))

    def cast(self) -> Sequence[Client]:
        return []

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        for number in range(self.requests):
            server, at = self.rng.choice(self.servers), int(self.rng.random() * span)
            self.world.after(at, cluster.ask, server, *request(self.rng, number))

    def counts(self) -> dict[str, int]:
        return super().counts() | {"requests": self.requests}

    def faults(self, cluster: Cluster) -> list[str]:
        return super().faults(cluster) + differences(list(cluster.nodes.values()))


def request(rng: Random, number: int) -> tuple[str, dict[str, Any]]:
    """A verb and its arguments: of names and policies that no client uses."""
    name = rng.choice(NAMES)
    kind = name.partition(":")[0]
    if rng.random() < 0.5:
        gone = rng.random() < 0.3
        return "set_policy", {"match": name, "values": None if gone else {"max_messages": number}}
    if rng.random() < 0.6:
        return f"create_{kind}", {"destination": name}
    return "delete_topic" if kind == "topic" else "delete_destination", {"destination": name}


def differences(nodes: Sequence[Node]) -> list[str]:
    """How replicated tables differ, from store to store, and from memory to store."""
    tables, wrong = [_table(node) for node in nodes], []
    for node, table in zip(nodes, tables, strict=True):
        different = {key for key, _ in table.items() ^ tables[0].items()}
        wrong += [f"{node.name} and {nodes[0].name} differ in {key}" for key in sorted(different)]
        if _known(node) != {key: row for key, row in table.items() if key.startswith((NAME, POLICY))}:
            wrong.append(f"{node.name} knows other names or policies than its store has")
    return wrong


def _table(node: Node) -> dict[str, Any]:
    """The replicated rows of a store, without what only the server itself knows of its entries."""
    meta = node.disk.store.meta()
    return {key: str(row).partition("\n")[0] for key, row in meta.items() if key.startswith(REPLICATED)}


def _known(node: Node) -> dict[str, Any]:
    """The same of what a server has in memory."""
    sessions = node.server.clients
    assert isinstance(sessions, Sessions)
    declared = {agent.name for agent in node.server.topology.agents}  # these are in no row
    names = {name: id for name, id in node.server.names.known.items() if name not in declared}
    policies = sessions.policies.set
    set_here = {
        f"{POLICY}{number}": json.dumps({"max_messages": each.max_messages, "match": each.match})
        for number, each in policies.items()
    }
    return {f"{NAME}{name}": id for name, id in names.items()} | set_here
