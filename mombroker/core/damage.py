"""Damaged rows: a row that the store cannot return as it was written is set aside, and everything else goes on."""

from __future__ import annotations

import json

from mombroker.core.batch import ROWS_BY_KEY, Damage
from mombroker.core.collection import Collection, Collections
from mombroker.core.gate import Gate
from mombroker.core.natives import Natives
from mombroker.core.residents import Residents
from mombroker.core.transaction import COMMIT, Transaction

DAMAGED = "damaged"  # the collection of `<server>/_dead` that such rows are in


class Aside:
    """1. A row is set aside once: in one batch it leaves its table, and is kept with what can be read of it.
    2. Nobody ever gets a message from it."""

    def __init__(
        self, tx: Transaction, collections: Collections, natives: Natives, residents: Residents, letters: Collection,
        gate: Gate,
    ):  # fmt: skip
        self.tx, self.natives, self.residents, self.letters, self.gate = tx, natives, residents, letters, gate
        self.kept = collections.open(letters.agent, DAMAGED)
        self._known: set[tuple[str, int]] = set()

    def take(self) -> None:
        """Set aside what the store has named since the last time."""
        found, self.tx.reader.damaged = self.tx.reader.damaged, []
        for damage in found:
            if (damage.table, damage.id) not in self._known:
                self._known.add((damage.table, damage.id))
                self._take(damage)
        self.kept.accept()
        self.tx.urgency = COMMIT

    def _take(self, damage: Damage) -> None:
        tx, rows, agent = self.tx, self.tx.rows, damage.agent
        head = {"table": damage.table, "id": damage.id, "agent": agent, "collection": damage.collection}
        self.kept.add(tx.now, json.dumps(head).encode(), damage.row)
        if damage.table == "queue_in":
            rows.queue_in[damage.id] = None
            if damage.payload:
                rows.spent.add(damage.payload)
        elif damage.table == "held":
            rows.held[damage.id] = None  # its queue met it, or never knew of it
        elif damage.table == "task":
            rows.tasks[damage.id] = None
        else:
            counted = rows.items.get(damage.id, damage) is not None
            rows.items[damage.id] = None
            if counted:  # else it was taken meanwhile, from memory
                self._tell(damage)
        native = self.natives.agents.get(agent)
        what = {"queue_in": "a message for", "task": "a timer or deferred function of"}.get(damage.table)
        what = what or (native.rows_are.get(damage.collection) if native else None) or "a message of"
        tx.note(
            f"{what} {ascii(agent)[1:-1]} (row {damage.id} of table {damage.table}) is damaged in the store and was "
            "set aside; `mom store salvage` exports what can be read of it, `mom store verify` looks for more"
        )

    def _tell(self, damage: Damage) -> None:
        """Have its owner take it out of its counts."""
        agent, name = damage.agent, damage.collection
        native, resident = self.natives.agents.get(agent), self.residents.loaded.get(agent)
        if native is not None:
            native.damaged(damage)
        elif resident is not None and name in resident.collections:
            resident.collections[name].lost(damage.id)
        elif resident is not None and name.startswith(ROWS_BY_KEY):
            if table := resident.tables.get(name[len(ROWS_BY_KEY) :].partition(":")[0]):
                table.lost(damage.id)
        elif (agent, name) == (self.letters.agent, self.letters.name):
            self.letters.lost(damage.id)
        elif (agent, name) == (self.gate.waiting.agent, self.gate.waiting.name):
            self.gate.lost(damage.id)
