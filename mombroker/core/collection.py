"""An agent's ordered collection: rows in order of (key, id) on disk, with what is not committed yet laid over them.

For state that is too large for one blob. Every change belongs to the reaction that made it: a failed reaction's
changes are undone, an accepted one's are rows of the same commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mombroker.core.batch import ItemRow

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

Place = tuple[int, int]  # (key, id)


class Collection:
    """1. `fresh` and `gone` hold exactly the changes that may not be visible in the store yet.
    2. `size` counts the rows as the running reaction sees them.
    3. All rows of the store up to `floor` are gone."""

    __slots__ = ("server", "agent", "name", "fresh", "gone", "size", "undo", "floor")

    def __init__(self, server: AgentServer, agent: str, name: str):
        self.server, self.agent, self.name = server, agent, name
        self.fresh: dict[int, ItemRow] = {}
        self.gone: set[int] = set()
        self.size = server.reader.item_count(agent, name)
        self.floor: Place | None = None
        self.undo: list[tuple[ItemRow, bool, bool]] = []  # (row, was added, was fresh) of the running reaction

    def __len__(self) -> int:
        return self.size

    def add(self, key: int, head: bytes, body: bytes = b"") -> int:
        row = ItemRow(self.server.new_id(), self.agent, self.name, key, head, body)
        self.fresh[row.id] = row
        self.size += 1
        self.undo.append((row, True, False))
        return row.id

    def get(self, id: int) -> ItemRow | None:
        if id in self.gone:
            return None
        row = self.fresh.get(id) or self.server.reader.item(id)
        return row if row and (row.agent, row.collection) == (self.agent, self.name) else None

    def remove(self, id: int) -> ItemRow | None:
        """Take a row out; None if it was not there."""
        row = self.get(id)
        if row:
            fresh = self.fresh.pop(id, None) is not None
            self.gone.add(id)
            self.size -= 1
            self.undo.append((row, False, fresh))
        return row

    def lost(self, id: int) -> None:
        """A row is damaged: the open batch deletes it."""
        self.gone.add(id)
        self.size -= 1

    def scan(self, after: Place | None = None, limit: int = 100) -> list[ItemRow]:
        """Up to `limit` rows in order of (key, id), strictly after a place."""
        found: dict[Place, ItemRow] = {}
        start, leading = after, after is None
        if self.floor is not None and (after is None or after < self.floor):
            start, leading = self.floor, True
        while self.size > len(self.fresh) and len(found) < limit:
            rows = self.server.reader.items(self.agent, self.name, start, limit)
            for row in rows:
                if row.id not in self.gone:
                    found[row.key, row.id] = row
                    leading = False
                elif leading:
                    self.floor = (row.key, row.id)
            if len(rows) < limit:
                break
            start = (rows[-1].key, rows[-1].id)
        for row in self.fresh.values():
            place = (row.key, row.id)
            if after is None or place > after:
                found[place] = row
        return [found[place] for place in sorted(found)[:limit]]

    def accept(self) -> bool:
        """The reaction succeeded: its changes join the open batch. True if there were any."""
        items = self.server.batch.items
        for row, added, _ in self.undo:
            items[row.id] = row if added else None
            self.server.batch.bytes += len(row.head) + len(row.body)
        changed = bool(self.undo)
        self.undo = []
        return changed

    def reject(self) -> None:
        self.floor = None
        for row, added, fresh in reversed(self.undo):
            if added:
                self.fresh.pop(row.id, None)
                self.gone.discard(row.id)
                self.size -= 1
            else:
                self.gone.discard(row.id)
                if fresh:
                    self.fresh[row.id] = row
                self.size += 1
        self.undo = []

    def committed(self, items: dict[int, ItemRow | None]) -> None:
        """These changes are in the store now; those of a later batch stay."""
        open_items = self.server.batch.items
        for id, row in items.items():
            if row is None:
                if id in self.gone and id not in open_items:
                    self.gone.discard(id)
            elif self.fresh.get(id) is row:
                del self.fresh[id]
                if self.floor is not None and (row.key, id) < self.floor:
                    self.floor = None
