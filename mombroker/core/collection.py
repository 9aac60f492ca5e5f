"""An agent's ordered collection: rows in order of (key, id) on disk, with what is not committed yet laid over them.

For state that is too large for one blob. Every change belongs to the reaction that made it: a failed reaction's
changes are undone, an accepted one's are rows of the same commit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from mombroker.core.batch import ItemRow
from mombroker.core.table import Table, Watch
from mombroker.core.transaction import COMMIT, Transaction

Place = tuple[int, int]  # (key, id)


class Collection:
    """1. `fresh` and `gone` hold exactly the changes that may not be visible in the store yet.
    2. `size` counts the rows as the running reaction sees them.
    3. All rows of the store up to `floor` are gone.
    4. `order` has the places of `fresh`, in order; None until somebody asks for it.
    5. It is in `changed`, the list of its server, while a change that was accepted is not durable."""

    __slots__ = ("tx", "changed", "agent", "name", "fresh", "gone", "size", "undo", "floor", "order")

    def __init__(self, tx: Transaction, changed: dict[Any, None], agent: str, name: str):
        self.tx, self.changed, self.agent, self.name = tx, changed, agent, name
        self.fresh: dict[int, ItemRow] = {}
        self.gone: set[int] = set()
        self.size = tx.reader.item_count(agent, name)
        self.floor: Place | None = None
        self.order: list[Place] | None = None
        self.undo: list[tuple[ItemRow, bool, bool]] = []  # (row, was added, was fresh) of the running reaction

    def __len__(self) -> int:
        return self.size

    def add(self, key: int, head: bytes, body: bytes = b"") -> int:
        row = ItemRow(self.tx.new_id(), self.agent, self.name, key, head, body)
        self._refresh(row)
        self.size += 1
        self.undo.append((row, True, False))
        return row.id

    def get(self, id: int) -> ItemRow | None:
        if id in self.gone:
            return None
        row = self.fresh.get(id) or self.tx.reader.item(id)
        return row if row and (row.agent, row.collection) == (self.agent, self.name) else None

    def remove(self, id: int) -> ItemRow | None:
        """Take a row out; None if it was not there."""
        row = self.get(id)
        if row:
            self.take(row)
        return row

    def take(self, row: ItemRow) -> None:
        """Take out a row that `scan` has just told of."""
        fresh = self._stale(row)
        self.gone.add(row.id)
        self.size -= 1
        self.undo.append((row, False, fresh))

    def lost(self, id: int) -> None:
        """A row is damaged: the open batch deletes it."""
        self.gone.add(id)
        self.size -= 1
        self.changed[self] = None

    def scan(self, after: Place | None = None, limit: int = 100) -> list[ItemRow]:
        """Up to `limit` rows in order of (key, id), strictly after a place."""
        found: dict[Place, ItemRow] = {}
        start, leading = after, after is None
        if self.floor is not None and (after is None or after < self.floor):
            start, leading = self.floor, True
        while self.size > len(self.fresh) and len(found) < limit:
            rows = self.tx.reader.items(self.agent, self.name, start, limit)
            for row in rows:
                if row.id not in self.gone:
                    found[row.key, row.id] = row
                    leading = False
                elif leading:
                    self.floor = (row.key, row.id)
            if len(rows) < limit:
                break
            start = (rows[-1].key, rows[-1].id)
        if self.fresh:
            if self.order is None:
                self.order = sorted((row.key, row.id) for row in self.fresh.values())
            first = bisect_right(self.order, after) if after is not None else 0
            found.update((place, self.fresh[place[1]]) for place in self.order[first : first + limit])
        return [found[place] for place in sorted(found)[:limit]]

    def accept(self) -> bool:
        """The reaction succeeded: its changes join the open batch. True if there were any."""
        if not self.undo:
            return False
        rows = self.tx.rows
        for row, added, _ in self.undo:
            rows.items[row.id] = row if added else None
            rows.bytes += len(row.head) + len(row.body)
        self.undo = []
        self.changed[self] = None
        return True

    def reject(self) -> None:
        self.floor = None
        for row, added, fresh in reversed(self.undo):
            if added:
                self._stale(row)
                self.gone.discard(row.id)
                self.size -= 1
            else:
                self.gone.discard(row.id)
                if fresh:
                    self._refresh(row)
                self.size += 1
        self.undo = []

    def committed(self, items: dict[int, ItemRow | None]) -> None:
        """These changes are in the store now; those of a later batch stay."""
        open_items = self.tx.rows.items
        self.order = None
        for id, row in items.items():
            if row is None:
                if id in self.gone and id not in open_items:
                    self.gone.discard(id)
            elif self.fresh.get(id) is row:
                del self.fresh[id]
                if self.floor is not None and (row.key, id) < self.floor:
                    self.floor = None

    @property
    def done(self) -> bool:
        return not (self.fresh or self.gone)

    def _refresh(self, row: ItemRow) -> None:
        self.fresh[row.id] = row
        if self.order is not None:
            place = (row.key, row.id)
            if self.order and place < self.order[-1]:
                self.order = None
            else:
                self.order.append(place)

    def _stale(self, row: ItemRow) -> bool:
        """It is not fresh any more. False if it was not."""
        if self.fresh.pop(row.id, None) is None:
            return False
        if self.order is not None:
            del self.order[bisect_left(self.order, (row.key, row.id))]
        return True


class Collections:
    """All collections of a server.

    changed   those with changes that are not durable yet
    watches   who is told what rows of a table were, by agent and table
    """

    __slots__ = ("tx", "changed", "watches")

    def __init__(self, tx: Transaction):
        self.tx = tx
        self.changed: dict[Collection | Table, None] = {}
        self.watches: dict[tuple[str, str], list[Watch]] = {}

    def open(self, agent: str, name: str) -> Collection:
        """An agent's collection, as it is in the store."""
        return Collection(self.tx, self.changed, agent, name)

    def table(self, agent: str, name: str) -> Table:
        """An agent's table, as it is in the store."""
        return Table(self.tx, self.changed, agent, name, self.watches)

    def drop(self, agent: str) -> None:
        """An agent was deleted: delete its row and its collections."""
        rows = self.tx.rows
        rows.agents[agent] = None
        rows.dropped[agent] = self.tx.new_id()
        items = rows.items
        for id in [id for id, row in items.items() if row and row.agent == agent]:
            del items[id]
        for collection in [collection for collection in self.changed if collection.agent == agent]:
            del self.changed[collection]
        self.tx.urgency = COMMIT

    def committed(self, items: dict[int, ItemRow | None]) -> None:
        """The batch that changed `items` is durable."""
        for collection in list(self.changed) if items else ():
            collection.committed(items)
            if collection.done:
                del self.changed[collection]
