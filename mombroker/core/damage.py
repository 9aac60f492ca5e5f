"""Damaged rows: what a store could not give back as it was written is set aside, and everything else goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mombroker.core.batch import Damage
from mombroker.core.collection import Collection

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

DAMAGED = "damaged"  # the collection of `<server>/_dead` that such rows are in


class Aside:
    """1. A row is set aside once: in one batch it leaves its table, and is kept with what can be read of it.
    2. Nobody ever gets a message from it."""

    def __init__(self, server: AgentServer, place: str):
        self.server = server
        self.kept = Collection(server, place, DAMAGED)
        self._known: set[tuple[str, int]] = set()

    def take(self) -> None:
        """Set aside what the store has named since the last time."""
        found, self.server.reader.damaged = self.server.reader.damaged, []
        for damage in found:
            if (damage.table, damage.id) not in self._known:
                self._known.add((damage.table, damage.id))
                self._take(damage)
        self.kept.accept()
        self.server.mark(2)

    def _take(self, damage: Damage) -> None:
        server, batch, agent = self.server, self.server.batch, damage.agent
        head = {"table": damage.table, "id": damage.id, "agent": agent, "collection": damage.collection}
        self.kept.add(server.now, json.dumps(head).encode(), damage.row)
        if damage.table == "queue_in":
            batch.queue_in[damage.id] = None
            if damage.payload:
                batch.spent.add(damage.payload)
        elif damage.table == "held":
            batch.held[damage.id] = None  # its queue met it, or never knew of it
        elif damage.table == "task":
            batch.tasks[damage.id] = None
        else:
            batch.items[damage.id] = None
            self._tell(damage)
        native = server.engine.natives.agents.get(agent)
        what = {"queue_in": "a message for", "task": "a timer or deferred function of"}.get(damage.table)
        what = what or (native.rows_are.get(damage.collection) if native else None) or "a message of"
        server.note(
            f"{what} {ascii(agent)[1:-1]} (row {damage.id} of table {damage.table}) is damaged in the store and was "
            "set aside; `mom store salvage` exports what can be read of it, `mom store verify` looks for more"
        )

    def _tell(self, damage: Damage) -> None:
        """Its owner counts it no more."""
        engine = self.server.engine
        native, resident = engine.natives.agents.get(damage.agent), engine.residents.get(damage.agent)
        if native is not None:
            native.damaged(damage)
            engine.dirty[damage.agent] = native
        elif resident is not None and damage.collection in resident.collections:
            resident.collections[damage.collection].lost(damage.id)
            engine.dirty[damage.agent] = resident
        elif damage.agent == engine.letters.agent and damage.collection == engine.letters.name:
            engine.letters.lost(damage.id)
