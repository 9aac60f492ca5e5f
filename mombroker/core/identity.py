"""The rows of table `meta` that tie a store to its server and to the order that its clocks are made under."""

from __future__ import annotations

import json
from typing import Any

from mombroker.core.meta import DIGEST, GRAPH, ORDER, SERVER
from mombroker.core.topology import Topology


def identity(topology: Topology, server: str) -> dict[str, str | int]:
    """The meta rows that tie a store to its server and to the order that its clocks are made under."""
    order: dict[str, dict[str, Any]] = {name: {"members": d.members} for name, d in topology.domains.items()}
    meta: dict[str, str | int] = {SERVER: server, GRAPH: topology.graph()}
    for domain in topology.domains_of(server):
        order[domain.name] |= {"backend": domain.backend, "options": domain.options}
        meta[DIGEST + domain.name] = domain.digest()
    return meta | {ORDER: json.dumps(order, sort_keys=True)}
