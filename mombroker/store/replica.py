"""The store of one replica of a server: the log that the replicas agree on, and rows as of an entry of it.

An entry is appended and synced first (`stage` and `finish`), and applied when it is decided; that need not be synced,
since what a crash takes of it the log still has. Both are in one file, so the next append syncs it, too. Nor need it be
at once: entries may wait until somebody reads, and become rows together, without what only one of them needs.
"""

from __future__ import annotations

import json
import os
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from os import PathLike
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING
from zlib import crc32

from mombroker.core.batch import Batch, HeldRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.meta import APPLIED, CLEAN, CUT, INCARNATION, REPLICA, SERVER, TERM, VERSION, VOTE
from mombroker.core.raft.log import Cut
from mombroker.core.raft.messages import BATCH, MEMBERS, Entry, Members, Snapshot, members_of
from mombroker.core.raft.ready import Ready
from mombroker.store import check, folder, mark, schema, sums
from mombroker.store.base import SCHEMA, Meta
from mombroker.store.packed import unpack
from mombroker.store.reader import Row, SqliteReader, connect
from mombroker.store.schema import Database
from mombroker.store.sqlite import META, SqliteStore, summed

if TYPE_CHECKING:
    from mombroker.core.topology import Topology

PUT = "INSERT INTO replica_log VALUES (?, ?, ?, ?, ?)"
GONE_FROM = "DELETE FROM replica_log WHERE idx >= ?"
GONE_TO = "DELETE FROM replica_log WHERE idx <= ?"
ENTRIES = "SELECT idx, term, kind, data, sum FROM replica_log WHERE idx BETWEEN ? AND ? ORDER BY idx"
TERMS = "SELECT min(idx), term FROM replica_log GROUP BY term ORDER BY term"  # of a log they rise with the entries

OWN = frozenset({TERM, VOTE, CUT, APPLIED, REPLICA, VERSION})  # keys of meta that are of one replica's store alone
LOG_BYTES = "SELECT coalesce(sum(length(data)), 0) FROM replica_log WHERE idx <= ?"
OUT, IN = "snapshot.sqlite", "snapshot.part"  # beside the store: what is sent to others, what comes in
BLOCK = 1 << 20
LATE, LATE_BYTES = 32, 512 << 10  # entries that wait to become rows, and bytes of them: with so many it is time
CHECKPOINT = 4_000  # pages of the write-ahead log: each batch is in it twice, and most pages change again and again


class ReplicaStore(SqliteStore):
    """What core/raft/log.py asks of a disk, and the rows of the server.

    1. The log goes on from `cut` without a gap.
    2. The rows are as of an entry that the log has, or its cut.
    3. The entries that wait follow upon that of the rows, and no reader of this process sees that they do.

    members     of a new store: who the replicas are at first; nobody, for one that is to learn it
    keeps       False: a witness, which has no rows
    id          of a new store
    log_bytes   of the entries that the log has
    """

    replica = True

    def __init__(
        self, path: str | PathLike[str], topology: Topology, server: str, members: Members = Members(()),  # noqa: B008
        *, keeps: bool = True, id: str = "", first: Meta | None = None,
    ):  # fmt: skip
        self._late: list[Batch] = []
        self._late_bytes = self._applied = self._taken = 0
        self._was_read = False  # since the last write
        self._writing = Lock()  # held from `stage` to the end of `finish`
        super().__init__(path, topology, server, first=first)
        self.db.conn.execute("PRAGMA secure_delete = FAST").fetchall()  # entries that are cut are not written once more
        self.db.conn.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}").fetchall()
        self.keeps = keeps
        self._ready: Ready | None = None  # that is staged
        self._snapshot: Snapshot | None = None
        self._home = self.path.parent
        for left in (OUT, IN):
            (self._home / left).unlink(missing_ok=True)
        meta = self.meta()
        if CUT not in meta:
            if CLEAN in meta:
                self.close()
                raise StoreError(
                    f"{self.path} is of a server without replicas: give the replica an empty folder, or let its "
                    "server begin with this store, by `mom replica begin`"
                )
            self._set((CUT, _packed(Cut(0, 0, members))), (APPLIED, 0), (TERM, 0), (VOTE, ""), (REPLICA, id))
        self.id = str(self.meta(REPLICA).get(REPLICA, ""))
        self._look()

    def _set(self, *pairs: tuple[str, str | int]) -> None:
        """Entries of meta, in a transaction of their own or in the open one."""
        self.db.conn.executemany(META, summed(pairs))

    def _look(self) -> None:
        meta = self.meta()
        self._state = (int(meta[TERM]), str(meta[VOTE]))
        self._cut, self._applied = _cut_of(meta[CUT]), int(meta[APPLIED])
        self._taken = self._applied
        self._terms = [(self._cut.index, self._cut.term), *self.select(TERMS)]  # from which entry on
        self._last = int(self.select("SELECT coalesce(max(idx), ?) FROM replica_log", self._cut.index)[0][0])
        self.log_bytes = self._size_to(self._last)

    def _size_to(self, index: int) -> int:
        """Bytes of the entries up to here."""
        return int(super().select(LOG_BYTES, index)[0][0])

    # -- reads (core/raft/log.py) ------------------------------------------------------------------------------------

    def state(self) -> tuple[int, str]:
        return self._state

    def cut(self) -> Cut:
        return self._cut

    def applied(self) -> int:
        return self._applied

    def taken(self) -> int:
        """The entry that the rows will be as of when somebody reads them."""
        return self._taken

    def last(self) -> int:
        return self._last

    def term(self, index: int) -> int:
        terms = self._terms  # which another thread replaces
        found: int = terms[bisect_right(terms, index, key=lambda each: each[0]) - 1][1]
        return found

    def entries(self, first: int, last: int, most: int) -> list[Entry]:
        """Raises StoreError for one that is damaged."""
        found: list[Entry] = []
        try:
            for row in self.reader.execute(ENTRIES, (first, last)):
                most -= len(row[3])
                if found and most < 0:
                    break
                found += map(_entry, self._whole("entry {0} of the log of its replicas", sums.row, [row]))
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot read {self.path}: {error}") from error
        return found

    def offered(self) -> Snapshot | None:
        return self._snapshot

    def chunk(self, offset: int, size: int) -> bytes:
        with (self._home / OUT).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    # -- the log -----------------------------------------------------------------------------------------------------

    def stage(self, ready: Ready) -> None:
        """What a replica wants to be durable, which it is when `finish` has ended. Raises StoreFailed."""
        self._usable()
        assert not self._staged, "the last write is not finished"
        if self._was_read or ready.install is not None:  # else whoever reads again would wait for this write
            self.catch_up()
            self._was_read = False
        try:
            self.db.conn.execute("BEGIN IMMEDIATE")
            if ready.state is not None:
                self._set((TERM, ready.state[0]), (VOTE, ready.state[1]))
            if ready.entries:
                first = ready.entries[0].index
                assert self._cut.index < first <= self._last + 1, f"entry {first} leaves a gap in the log"
                if first <= self._last:
                    self.log_bytes = self._size_to(first - 1)
                    self._put(GONE_FROM, [(first,)])
                self._put(PUT, summed((e.index, e.term, e.kind, e.data) for e in ready.entries))
        except sqlite3.Error as error:
            raise self._fail(error) from error
        self._staged, self._ready = True, ready
        self._writing.acquire()

    def finish(self) -> None:
        try:
            self._finish()
        finally:
            self._writing.release()

    def _finish(self) -> None:
        super().finish()
        ready, self._ready = self._ready, None
        if ready is None:
            return
        self._state = ready.state or self._state
        if ready.entries:
            terms = [each for each in self._terms if each[0] < ready.entries[0].index]
            for entry in ready.entries:
                if terms[-1][1] != entry.term:
                    terms.append((entry.index, entry.term))
                self.log_bytes += len(entry.data)
            self._terms, self._last = terms, ready.entries[-1].index
        for _, offset, data in ready.chunks:
            with (self._home / IN).open("ab" if offset else "wb") as file:
                file.write(data)
        if ready.install is not None:
            self._install(ready.install)

    def write(self, ready: Ready) -> None:
        """`stage` and `finish`."""
        self.stage(ready)
        self.finish()

    def found(self, members: Members) -> None:
        """Who the replicas are at first, for a store that has nothing yet. Raises StoreFailed."""
        assert self._cut.index == 0 and not self._cut.members.all, "it knows its members"
        cut = Cut(0, 0, members)
        self._later([], (CUT, _packed(cut)), synced=True)
        self._cut = cut

    @property
    def founded(self) -> bool:
        return bool(self._cut.index or self._cut.members.all)

    def first_rows(self) -> Batch:
        """What a store has when it is made, for the first entry: with it all replicas have the same."""
        return Batch(meta={key: value for key, value in self.meta().items() if key not in OWN})

    def cut_to(self, index: int, members: Members) -> None:
        """The log begins behind `index`, up to which the rows have got. `members` as of then."""
        if not self._cut.index < index <= self._applied:
            return
        cut, size = Cut(index, self.term(index), members), self._size_to(index)
        self._later([], (CUT, _packed(cut)), gone=index)
        self._cut = cut
        self.log_bytes -= size
        self._terms = [(index, cut.term), *(each for each in self._terms if each[0] > index)]

    # -- the rows ----------------------------------------------------------------------------------------------------

    def apply(
        self, entries: Sequence[Entry], known: Mapping[int, Batch] = MappingProxyType({}), late: bool = False
    ) -> None:
        """The rows of these entries, which are the next ones and decided; `known` are batches that need not be
        unpacked, by their entries. `late`: they may wait until there is time. Raises StoreFailed; StoreError for a
        batch that a newer program has written."""
        assert entries[0].index == self._taken + 1, f"entry {entries[0].index} is applied after {self._taken}"
        batches = [entry for entry in entries if entry.kind == BATCH] if self.keeps else []
        rows = [known.get(entry.index) or self._batch(entry) for entry in batches]
        self._late += rows
        self._late_bytes += sum([len(entry.data) for entry in batches])
        self._taken = entries[-1].index
        if anew := any(INCARNATION in batch.meta for batch in rows):
            self._unmark()
        if anew or not late:
            self.catch_up(anew)
        if anew:
            self._mark = mark.Mark(self._home, str(self.meta()[INCARNATION]), self._now)

    @property
    def crowded(self) -> bool:
        """No more should wait."""
        return len(self._late) >= LATE or self._late_bytes >= LATE_BYTES

    def catch_up(self, synced: bool = False) -> None:
        """The entries that wait become rows. Raises StoreFailed."""
        if self._applied == self._taken:
            return
        with self._writing:
            self._later(self._late, (APPLIED, self._taken), synced=synced)
            self._late, self._late_bytes, self._applied = [], 0, self._taken

    def select(self, sql: str, *args: object) -> list[Row]:
        self._was_read = True
        if self._applied != self._taken:
            self.catch_up()
        return super().select(sql, *args)

    def tidy(self) -> bool:
        self.catch_up()
        return super().tidy()

    def close(self) -> None:
        if not (self._staged or self._failed):
            with suppress(StoreFailed):  # the log has it
                self.catch_up()
        super().close()

    def _batch(self, entry: Entry) -> Batch:
        try:
            return unpack(entry.data)
        except ValueError as error:
            raise StoreError(f"entry {entry.index} of the log of {self.path} cannot be read: {error}") from None

    def _unmark(self) -> None:
        """The mark is of a store that is not there any more."""
        self._mark.close()
        (self._home / mark.MARK).unlink(missing_ok=True)

    def _later(self, batches: list[Batch], pair: tuple[str, str | int], gone: int = 0, synced: bool = False) -> None:
        """A transaction that is durable when a later one is synced, or at once."""
        self._usable()
        assert not self._staged, "the last write is not finished"
        conn = self.db.conn
        try:
            if not synced:
                conn.execute("PRAGMA synchronous = NORMAL")
            conn.execute("BEGIN IMMEDIATE")
            for batch in batches[:-1]:
                self._stage(batch, {})
            for batch in batches[-1:]:
                self._stage(batch, batch.held if len(batches) == 1 else _held(batches))
            if gone:
                self._put(GONE_TO, [(gone,)])
            self._set(pair)
            conn.execute("COMMIT")
            conn.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise self._fail(error) from error

    def leave(self) -> None:
        """All that was decided is in the rows, and nobody else is a member: a store without replicas. It keeps its
        term, which is a new one: neighbours know leaders by it. Raises StoreFailed."""
        assert self._applied == self._last, "the log has more than the rows"
        own = Batch(meta={CUT: None, VOTE: None, APPLIED: None, REPLICA: None})
        self._later([own], (TERM, self._state[0] + 1), gone=self._last, synced=True)

    # -- snapshots ---------------------------------------------------------------------------------------------------

    def take_snapshot(self) -> Snapshot:
        """A copy of the store as of one entry, to send to others: which one, the copy itself tells. Raises
        StoreError."""
        file = self._home / OUT
        self.drop_snapshot()
        check.backup(self._home, file)
        with closing(SqliteReader(file)) as copy:
            meta = copy.meta()
            cut, index = _cut_of(meta[CUT]), int(meta[APPLIED])
            rows = copy.select(ENTRIES, cut.index + 1, index)
        entries = [_entry(row) for row in rows]
        changes = [cut.members, *(members_of(entry.data) for entry in entries if entry.kind == MEMBERS)]
        term = entries[-1].term if entries else cut.term
        self._snapshot = Snapshot(index, term, changes[-1], *_measured(file))
        return self._snapshot

    def drop_snapshot(self) -> None:
        self._snapshot = None
        (self._home / OUT).unlink(missing_ok=True)

    def _install(self, snapshot: Snapshot) -> None:
        """Put the rows that have come in place of ours, in one transaction; the log begins behind them."""
        file = self._home / IN
        pairs: list[tuple[str, str | int]] = [
            (TERM, self._state[0]), (VOTE, self._state[1]), (CUT, _packed(_end_of(snapshot))),
            (APPLIED, snapshot.index), (REPLICA, self.id),
        ]  # fmt: skip
        try:
            if self.keeps:
                self._ours(file, snapshot, pairs)
                self._unmark()
                with closing(connect(file, "ro")) as copy:
                    copy.backup(self.db.conn)
                file.unlink()
            else:
                self.db.conn.execute("BEGIN IMMEDIATE")
                self._put(GONE_TO, [(self._last,)])
                self._set(*pairs)
                self.db.conn.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._fail(error) from error
        self.wal.committed()
        self.drop_snapshot()
        self._connect_anew()
        self._look()

    def _ours(self, file: Path, snapshot: Snapshot, pairs: list[tuple[str, str | int]]) -> None:
        """The copy that has come is made one of our own."""
        if _measured(file) != (snapshot.size, snapshot.sum):
            raise self._broken(f"the snapshot {file} is not what was sent")
        with closing(SqliteReader(file)) as copy:
            meta = copy.meta()
        if meta[SERVER] != self.meta()[SERVER] or meta.get(APPLIED) != snapshot.index:
            raise self._broken(f"the snapshot {file} is of another server, or another entry")
        with closing(connect(file, "rw")) as copy_:
            copy_.execute("BEGIN IMMEDIATE")
            made = Database(copy_, recursive_triggers=False, execute_plugins=False)
            schema.migrate(made, int(meta[VERSION]), SCHEMA)  # its leader may be of an older program
            copy_.execute("DELETE FROM replica_log")
            copy_.executemany(META, summed([*pairs, (VERSION, SCHEMA)]))
            copy_.execute("COMMIT")

    def _broken(self, sentence: str) -> StoreFailed:
        self._failed = sentence
        return StoreFailed(sentence)

    def _connect_anew(self) -> None:
        """The reader forgets what it knows of the rows that were there."""
        self.reader.close()
        self._connect()
        self._cleared, self._prune, self._written = [], (0, 0), (0, 0, 0)
        self._take()
        if self.keeps:
            self._mark = mark.Mark(self._home, str(self.meta()[INCARNATION]), self._now)

    def check(self) -> None:
        """Assert the invariants."""
        late = self._taken - self._applied
        assert 0 <= len(self._late) <= late and self._taken <= self._last, f"{late} entries wait"
        found = self.select("SELECT min(idx), max(idx), count(*) FROM replica_log")[0]
        if found[2]:
            assert found == (self._cut.index + 1, self._last, self._last - self._cut.index), f"the log has {found}"
        else:
            assert self._last == self._cut.index, "the log has no entries"
        assert self._cut.index <= self._applied <= self._last, f"rows as of {self._applied}, the log has {found}"
        rows = super().select("SELECT value FROM meta WHERE key = ?", APPLIED)
        assert rows == [(self._taken,)] and not self._late, f"who reads sees rows as of {rows} of {self._taken}"


def _held(batches: Iterable[Batch]) -> dict[int, HeldRow | None]:
    """As all of them leave it: what most put there, the next one takes away again."""
    held: dict[int, HeldRow | None] = {}
    for batch in batches:
        held |= batch.held
    return held


def _packed(cut: Cut) -> str:
    return json.dumps([cut.index, cut.term, cut.members])


def _cut_of(value: str | int) -> Cut:
    index, term, members = json.loads(str(value))
    return Cut(index, term, members_of(json.dumps(members).encode()))


def _end_of(snapshot: Snapshot) -> Cut:
    return Cut(snapshot.index, snapshot.term, snapshot.members)


def _entry(row: Row) -> Entry:
    return Entry(*row[:4])


def _measured(file: Path) -> tuple[int, int]:
    """Bytes of a file, and their crc32."""
    sum = 0
    try:
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                sum = crc32(block, sum)
            return os.fstat(stream.fileno()).st_size, sum
    except OSError as error:
        raise folder.unusable(file, error) from None
