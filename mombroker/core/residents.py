"""Residents: the agents in memory, in order of their last use."""

from __future__ import annotations

from collections import OrderedDict

from mombroker.core.collection import Collection, Collections
from mombroker.core.reaction import Program, Reactive
from mombroker.core.table import Table
from mombroker.core.transaction import COMMIT, Transaction


class Resident:
    """An agent in memory. `state` is its row's blob: the undo image of a failed reaction."""

    __slots__ = ("id", "path", "reactive", "state", "fresh", "batch", "collections", "tables")

    def __init__(self, id: str, path: str, reactive: Reactive, state: bytes):
        self.id, self.path, self.reactive, self.state = id, path, reactive, state
        self.fresh = False  # it has no row yet
        self.batch = 0  # the batch that last wrote it: not to be evicted before that is durable
        self.collections: dict[str, Collection] = {}
        self.tables: dict[str, Table] = {}

    @property
    def parts(self) -> list[Collection | Table]:
        return [*self.collections.values(), *self.tables.values()]

    def undo(self) -> None:
        """A reaction failed."""
        self.reactive.unpack(self.state)
        for part in self.parts:
            part.reject()


class Residents:
    """1. Each change of a reaction is in the open batch, or undone.
    2. An agent with changes that are not durable stays in memory."""

    __slots__ = ("tx", "program", "collections", "loaded")

    def __init__(self, tx: Transaction, program: Program, collections: Collections):
        self.tx, self.program, self.collections = tx, program, collections
        self.loaded: OrderedDict[str, Resident] = OrderedDict()

    def load(self, agent: str) -> Resident | None:
        """Load an agent from the store; None if it does not exist. Raises MomError if its class cannot be loaded."""
        row = self.tx.written("agents", agent)
        if row is None:
            return None
        resident = Resident(agent, row[0], self.program.load(row[0], agent, row[1], self.tx.name), row[1])
        resident.batch = self.tx.rows.number
        self.loaded[agent] = resident
        return resident

    def make(self, agent: str, path: str, state: bytes) -> Resident:
        """One that does not exist yet, until its first reaction succeeds. Raises MomError as `load`."""
        resident = Resident(agent, path, self.program.load(path, agent, state, self.tx.name), state)
        resident.fresh = True
        resident.batch = self.tx.rows.number
        self.loaded[agent] = resident
        return resident

    def accept(self, resident: Resident, state: bytes) -> None:
        """A reaction succeeded, and left this state: its changes join the open batch."""
        rows = self.tx.rows
        if state != resident.state or resident.fresh:
            resident.state, resident.fresh = state, False
            rows.agents[resident.id] = (resident.path, state)
            self.tx.urgency = COMMIT
        resident.batch = rows.number
        if resident.collections or resident.tables:
            for part in resident.parts:
                if part.accept():
                    self.tx.urgency = COMMIT

    def collection(self, agent: str, name: str) -> Collection:
        """A collection of an agent in memory."""
        resident = self.loaded[agent]
        found = resident.collections.get(name)
        if found is None:
            found = resident.collections[name] = self.collections.open(agent, name)
        return found

    def table(self, agent: str, name: str) -> Table:
        """A table of an agent in memory."""
        resident = self.loaded[agent]
        found = resident.tables.get(name)
        if found is None:
            found = resident.tables[name] = self.collections.table(agent, name)
        return found

    def evict(self) -> None:
        """Idle agents beyond the limit leave memory."""
        excess = len(self.loaded) - self.tx.limits.max_residents
        if excess > 0:
            for agent in list(self.loaded)[:excess]:
                if self.loaded[agent].batch <= self.tx.durable_batch:
                    del self.loaded[agent]
