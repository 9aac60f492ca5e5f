"""An agent's table: rows by key, in the order of their keys on disk, with what is not committed yet laid over them.

Each row is a collection of its own, `=NAME:KEY`, so that the index of collections finds it by its key, and what is
true of an agent's items is true of it: it is committed, checked, deleted and moved with its agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from mombroker.core.batch import ROWS_BY_KEY, ItemRow
from mombroker.core.transaction import Transaction

FIRST, LAST = "\0", "\U0010ffff"


class Change(NamedTuple):
    """What a row is to be; None: it goes."""

    id: int
    row: ItemRow | None


class Watch(Protocol):
    """Somebody who reads a table over many turns as it was at one moment."""

    def before(
        self, key: str, row: ItemRow | None
    ) -> None: ...  # what a row was that has changed; None: there was none


class Table:
    """1. `fresh` holds exactly the changes that may not be visible in the store yet, by key.
    2. `size`, once somebody has asked for it, counts the rows as the running reaction sees them.
    3. It is in `changed`, the list of its server, while a change that was accepted is not durable.

    watches  by agent and table, of the whole server
    seen   key and id of the row that the running reaction has read last: often it is the next to be put"""

    __slots__ = ("tx", "changed", "agent", "name", "prefix", "fresh", "size", "undo", "seen", "watches")

    def __init__(
        self, tx: Transaction, changed: dict[Any, None], agent: str, name: str,
        watches: dict[tuple[str, str], list[Watch]] | None = None,
    ):  # fmt: skip
        self.tx, self.changed, self.agent, self.name = tx, changed, agent, name
        self.watches = watches
        self.prefix = f"{ROWS_BY_KEY}{name}:"
        self.fresh: dict[str, Change] = {}
        self.size: int | None = None
        self.seen = ("", 0)
        self.undo: list[tuple[str, Change | None, int]] = []  # key, former change, by how much the size changed

    def __len__(self) -> int:
        """A commit that lands between two reads changes the rows of `fresh` alone: what is between these is counted."""
        if self.size is None:
            size, low = sum([change.row is not None for change in self.fresh.values()]), ""
            for key in (*sorted(self.fresh), LAST):
                size += self.tx.reader.range_count(self.agent, self.prefix + low, self.prefix + key)
                low = key + FIRST
            self.size = size
        return self.size

    def get(self, key: str) -> ItemRow | None:
        change = self.fresh.get(key)
        if change is not None:
            return change.row
        row = self._stored(key)
        if row is not None:
            self.seen = key, row.id
        return row

    def _stored(self, key: str) -> ItemRow | None:
        return next(iter(self.tx.reader.items(self.agent, self.prefix + key, None, 1)), None)

    def put(self, key: str, body: bytes) -> None:
        change, collection = self.fresh.get(key), self.prefix + key
        if change is not None:  # one that was removed keeps its id: its row may still be there
            id, more = change.id, int(change.row is None)
        else:
            seen, there = self.seen
            id = there if seen == key else self.tx.reader.keyed(self.agent, collection)
            more = int(not id)
        id = id or self.tx.new_id()
        self._change(key, Change(id, ItemRow(id, self.agent, collection, 0, b"", body)), more)

    def remove(self, key: str) -> bool:
        """False if there was no such row."""
        old = self.get(key)
        if old is None:
            return False
        self._change(key, Change(old.id, None), -1)
        return True

    def _change(self, key: str, change: Change, more: int) -> None:
        self.undo.append((key, self.fresh.get(key), more))
        self.fresh[key] = change
        if self.size is not None:
            self.size += more

    def range(self, low: str, high: str, limit: int, reverse: bool = False) -> list[tuple[str, ItemRow]]:
        """Up to `limit` rows with low <= key < high in the order of their keys, or from the end."""
        found: dict[str, ItemRow] = {}
        skip, first, last = len(self.prefix), low, high
        while first < last:
            rows = self.tx.reader.range(self.agent, self.prefix + first, self.prefix + last, limit, reverse)
            for row in rows:
                key = row.collection[skip:]
                if key not in self.fresh:
                    found[key] = row
            if len(rows) < limit or len(found) >= limit:
                break
            end = rows[-1].collection[skip:]
            first, last = (first, end) if reverse else (end + "\0", last)
        for key, change in self.fresh.items():
            if change.row is not None and low <= key < high:
                found[key] = change.row
        return [(key, found[key]) for key in sorted(found, reverse=reverse)[:limit]]

    # -- for the reaction and the batch ----------------------------------------------------------------------------

    def lost(self, id: int) -> None:
        """A row is damaged: the open batch deletes it. What is to stand in its place needs another one."""
        self.size = None
        for key, change in self.fresh.items():
            if change.id == id and change.row is not None:
                new = self.tx.new_id()
                row = self.tx.rows.items[new] = change.row._replace(id=new)
                self.fresh[key] = Change(new, row)
                return

    def accept(self) -> bool:
        """The reaction succeeded: its changes join the open batch. True if there were any."""
        self.seen = ("", 0)
        if not self.undo:
            return False
        if self.watches and (watches := self.watches.get((self.agent, self.name))):
            self._tell(watches)
        rows = self.tx.rows
        for key in {key: None for key, _, _ in self.undo}:
            id, row = self.fresh[key]
            rows.items[id] = row
            rows.bytes += len(key) + len(row.body) if row else 0
        self.undo = []
        self.changed[self] = None
        return True

    def _tell(self, watches: list[Watch]) -> None:
        """What each row was that this reaction has changed."""
        former: dict[str, Change | None] = {}
        for key, change, _ in self.undo:
            former.setdefault(key, change)
        for key, change in former.items():
            row = self._stored(key) if change is None else change.row
            for watch in watches:
                watch.before(key, row)

    def reject(self) -> None:
        self.seen = ("", 0)
        for key, former, more in reversed(self.undo):
            if former is None:
                del self.fresh[key]
            else:
                self.fresh[key] = former
            if self.size is not None:
                self.size -= more
        self.undo = []

    def committed(self, items: dict[int, ItemRow | None]) -> None:
        """These changes are in the store now; those of a later batch stay."""
        later = self.tx.rows.items
        for key, (id, row) in list(self.fresh.items()):
            if id in items and items[id] is row and id not in later:
                del self.fresh[key]

    @property
    def done(self) -> bool:
        return not self.fresh
