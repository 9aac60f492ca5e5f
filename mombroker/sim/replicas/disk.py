"""The disk of one replica: term, vote and log are durable when a write ends; rows follow, and are replayed."""

from __future__ import annotations

from typing import Protocol
from zlib import crc32

from mombroker.core.raft.log import Cut
from mombroker.core.raft.messages import BATCH, Entry, Members, Snapshot
from mombroker.core.raft.ready import Ready


class Rows(Protocol):
    """What the batches of a server act on."""

    def apply(self, data: bytes) -> None: ...
    def copy(self) -> Rows: ...
    def pack(self) -> bytes: ...
    def unpack(self, data: bytes) -> Rows: ...  # another one


class ReplicaDisk:
    """1. The log has no gap, and begins where the rows that a crash leaves have not got further.

    rows      as of entry `applied_to`; a crash takes some of the last entries out of them again
    """

    def __init__(self, rows: Rows, members: Members, keeps: bool = True):
        self.rows, self.keeps = rows, keeps  # a witness keeps none
        self.applied_to = 0
        self.writes = 0
        self._state = (0, "")
        self._cut = Cut(0, 0, members)
        self._log: list[Entry] = []
        self._synced, self._synced_to = rows.copy(), 0
        self._unsynced: list[Entry] = []
        self._snapshot: tuple[Snapshot, bytes] | None = None
        self._coming = bytearray()

    # -- reads (core/raft/log.py) ------------------------------------------------------------------------------------

    def state(self) -> tuple[int, str]:
        return self._state

    def cut(self) -> Cut:
        return self._cut

    def applied(self) -> int:
        return self.applied_to

    def last(self) -> int:
        return self._log[-1].index if self._log else self._cut.index

    def term(self, index: int) -> int:
        at = index - self._cut.index
        return self._log[at - 1].term if at else self._cut.term

    def entries(self, first: int, last: int, most: int) -> list[Entry]:
        found: list[Entry] = []
        for entry in self._log[first - self._cut.index - 1 : last - self._cut.index]:
            most -= len(entry.data)
            if found and most < 0:
                break
            found.append(entry)
        return found

    def offered(self) -> Snapshot | None:
        return self._snapshot[0] if self._snapshot is not None else None

    def chunk(self, offset: int, size: int) -> bytes:
        assert self._snapshot is not None, "no snapshot was made"
        return self._snapshot[1][offset : offset + size]

    def has(self, index: int, term: int) -> bool:
        """Is this entry durable here?"""
        return index <= self._cut.index or (index <= self.last() and self.term(index) == term)

    # -- writes --------------------------------------------------------------------------------------------------------

    def write(self, ready: Ready) -> None:
        """All of it is durable now, and whatever was applied before."""
        self.writes += 1
        self._sync(len(self._unsynced))
        if ready.state is not None:
            self._state = ready.state
        if ready.entries:
            first = ready.entries[0].index
            assert self._cut.index < first <= self.last() + 1, f"entry {first} leaves a gap in the log"
            del self._log[first - self._cut.index - 1 :]
            self._log += ready.entries
        for _, offset, data in ready.chunks:
            if not offset:
                self._coming.clear()
            assert offset == len(self._coming), "a chunk is not the next one"
            self._coming += data
        if ready.install is not None:
            self._install(ready.install)

    def _install(self, snapshot: Snapshot) -> None:
        if self.keeps:
            assert snapshot.sum == crc32(self._coming), "the snapshot is not what was sent"
            self.rows = self.rows.unpack(bytes(self._coming))
            self._coming.clear()
        self._cut, self._log = Cut(snapshot.index, snapshot.term, snapshot.members), []
        self.applied_to = self._synced_to = snapshot.index
        self._synced, self._unsynced, self._snapshot = self.rows.copy(), [], None

    def apply(self, entry: Entry) -> None:
        """Its rows are there from now on, for the process; for the disk when a write ends."""
        assert entry.index == self.applied_to + 1, f"entry {entry.index} is applied after {self.applied_to}"
        self.applied_to = entry.index
        self._unsynced.append(entry)
        if self.keeps and entry.kind == BATCH:
            self.rows.apply(entry.data)

    def _sync(self, count: int) -> None:
        for entry in self._unsynced[:count]:
            self._synced_to = entry.index
            if self.keeps and entry.kind == BATCH:
                self._synced.apply(entry.data)
        del self._unsynced[:count]

    def crash(self, chance: float) -> None:
        """Of what was applied since the last write some is there: the log has the rest."""
        self._sync(int(chance * (len(self._unsynced) + 1)))
        self._unsynced, self.applied_to = [], self._synced_to
        self.rows = self._synced.copy()
        self._snapshot = None
        self._coming.clear()

    def take_snapshot(self, members: Members) -> None:
        """Of the rows as they are, to send to others. `members` as of then."""
        data = self.rows.pack()
        term = self.term(self.applied_to)
        self._snapshot = (Snapshot(self.applied_to, term, members, len(data), crc32(data)), data)

    def drop_snapshot(self) -> None:
        self._snapshot = None

    def cut_to(self, index: int, members: Members) -> None:
        """The log begins behind `index`, if the rows have got so far. `members` as of then."""
        if self._cut.index < index <= self._synced_to:
            cut = Cut(index, self.term(index), members)
            del self._log[: index - self._cut.index]
            self._cut = cut

    @property
    def cuttable(self) -> int:
        """What may be cut at most."""
        return self._synced_to

    def check(self) -> None:
        indexes = [entry.index for entry in self._log]
        assert indexes == [*range(self._cut.index + 1, self._cut.index + 1 + len(indexes))], "the log has a gap"
        assert self._cut.index <= self._synced_to <= self.applied_to <= self.last(), "the rows and the log do not meet"
