"""The store of one server in one SQLite file: a write-ahead log, synchronous=FULL, one transaction per batch.

sqlite-utils makes and migrates the tables; a commit runs fixed SQL on the same connection. All reads go through a
second connection (reader.py), because the first may be inside COMMIT in another thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from mombroker.core.batch import LINK_BITS, ROWS_BY_KEY, Batch, HeldRow, LogRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.identity import identity
from mombroker.core.meta import (
    CUT,
    DIGEST,
    DROPPED,
    EXPORTED,
    GRAPH,
    INCARNATION,
    LOST,
    NOW,
    ORDER,
    SERVER,
    TOPOLOGY,
    VERSION,
)
from mombroker.core.trace import VERSION as TRACE_VERSION
from mombroker.store import columns, folder, mark, schema, sums
from mombroker.store.base import LAST, SCHEMA, Meta, Span, difference, prune, written
from mombroker.store.reader import JOURNAL, Row, SqliteReader, connect, disk_is_full, refusal
from mombroker.store.schema import Database
from mombroker.store.wal import Wal

if TYPE_CHECKING:
    from mombroker.core.topology import Topology

JOURNAL_LIMIT = 64 << 20  # a write-ahead log that a long reader let grow shrinks to this again

INCREMENTAL = 2  # auto_vacuum
PRUNED, SHRUNK = 64, 256  # rows of the log, and pages of the file, that go in one step
DROP_ROWS, DROP_BYTES = 256, 1 << 20  # items of agents that are no more, that go in one step
FREE_LEAST = 1024  # pages that the file keeps free

ACCEPT = "or run `mom store accept`, and the next start goes on with what there is"

# What a commit runs, in this order: a batch's own acknowledgements and deletions come before what it adds.
ACKED = "DELETE FROM queue_out WHERE id > ? AND id <= ?"
QUEUE_OUT = "INSERT INTO queue_out VALUES (?, ?, ?)"
QUEUE_IN = "INSERT OR REPLACE INTO queue_in VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
QUEUE_IN_GONE = "DELETE FROM queue_in WHERE id = ?"
PAYLOAD = "INSERT INTO payload VALUES (?, ?, ?, ?)"
PAYLOAD_SPENT = (
    "DELETE FROM payload WHERE id = ? AND NOT EXISTS"
    " (SELECT 1 FROM queue_in WHERE queue_in.id > payload.id AND queue_in.id <= payload.last)"
)
ITEM = "INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?, ?)"
# A row of a table keeps its place: where it is there already, the index stays as it is.
KEYED = (
    "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET head = excluded.head, body = excluded.body, sum = excluded.sum"
)
ITEM_GONE = "DELETE FROM message WHERE id = ?"
ITEMS_LEFT = "SELECT id, length(head) + length(body) FROM message WHERE agent = ? AND id <= ? LIMIT ?"
HELD = "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)"
HELD_GONE = "DELETE FROM held WHERE id = ?"
MANY = 64  # rows of the tables that change most: one statement for so many takes a third less time than one for each
ITEM_MANY = ITEM + ", (?, ?, ?, ?, ?, ?, ?)" * (MANY - 1)
ITEM_GONE_MANY = f"DELETE FROM message WHERE id IN (?{', ?' * (MANY - 1)})"
HELD_MANY = HELD + ", (?, ?, ?, ?, ?)" * (MANY - 1)
HELD_GONE_MANY = f"DELETE FROM held WHERE id IN (?{', ?' * (MANY - 1)})"
AGENT = "INSERT OR REPLACE INTO agent VALUES (?, ?, ?, ?)"
AGENT_GONE = "DELETE FROM agent WHERE id = ?"
LINK = "INSERT OR REPLACE INTO link VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
LINK_GONE = "DELETE FROM link WHERE id = ?"
CORE = "INSERT OR REPLACE INTO core VALUES (?, ?, ?, ?, ?)"
CORE_GONE = "DELETE FROM core WHERE domain = ? AND kind = ? AND key = ?"
CORE_ENDED = "DELETE FROM core WHERE domain = ?"
TASK = "INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?, ?, ?)"
TASK_GONE = "DELETE FROM task WHERE id = ?"
META = "INSERT OR REPLACE INTO meta VALUES (?, ?, ?)"
META_GONE = "DELETE FROM meta WHERE key = ?"
LOG = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LOG_PRUNED = "DELETE FROM log WHERE id < ?"


def used(meta: Meta) -> bool:
    """Has a store more than it was made with? Else its server was refused before its first commit: it knows nothing,
    and is bound to no order."""
    made = (SERVER, GRAPH, ORDER, VERSION, INCARNATION)
    return int(meta.get(VERSION, 0)) < SCHEMA or any(key not in made and not key.startswith(DIGEST) for key in meta)


class SqliteStore(SqliteReader):
    """The store of one server. Its folder is locked for this process until `close`.

    1. The writing connection is touched by `begin`, `finish`, `tidy` and `close` alone, one at a time.
    2. `_staged` holds from a whole `begin` to the end of `finish`.
    3. Once `_failed` is set nothing is written any more.
    """

    replica = False  # replica.py

    def __init__(
        self, path: str | PathLike[str], topology: Topology, server: str, *, adopt: bool = False,
        first: Meta | None = None,
    ):  # fmt: skip
        home = folder.make(path)
        self.path = home / folder.STORE
        self._strict = True
        self._staged = False
        self._failed = ""
        self._written = (0, 0, 0)  # commits, rows and bytes since the last log row
        self._row_now = self._log_now = 0  # the times that `meta` and the newest row of the log say
        self._shrinks = False  # free pages leave the file
        self._cleared: list[str] = []  # of `_dropped`: the last batch deletes their last items
        self._prune = (0, 0)  # log rows below this id go with the next batch; records lost by then
        with contextlib.ExitStack() as undo:
            self._lock = folder.Lock(home)
            undo.callback(self._lock.release)
            try:
                self._as_left(mark.read(home))
                self._create()
                self.db = Database(connect(self.path, "rw"), recursive_triggers=False, execute_plugins=False)
                undo.callback(self.db.conn.close)
                self._prepare(identity(topology, server) | (first or {}), adopt)
                self._connect()
                undo.callback(self.reader.close)
                self.wal = Wal(self.path, self._page)
                self._take()
                self._mark = mark.Mark(home, str(self.meta().get(INCARNATION, "")), self._now)
                undo.callback(self._mark.close)
            except sqlite3.Error as error:
                raise refusal(self.path, error) from None
            except OSError as error:
                raise folder.unusable(self.path, error) from None
            undo.pop_all()

    def _take(self) -> None:
        """What the next commits go on from. Raises StoreError for a row that a server cannot do without."""
        self._now = _time(self.meta().get(NOW))  # of the last commit, or of the staged batch
        said = self.select("SELECT value FROM meta WHERE key = ?", NOW)
        self._row_now = _time(said[0][0]) if said else 0
        natives = "SELECT id, class, state, sum FROM agent WHERE class LIKE 'mombroker.%'"
        self._whole("the state of {0}", sums.row, self.select(natives))
        clocks = "SELECT domain, kind, key, blob, sum FROM core"
        self._whole("the clock of domain {0} (row {1}, {2})", sums.row, self.select(clocks))
        newest = "SELECT id + count, offset + length(columns), last FROM log ORDER BY id DESC LIMIT 1"
        row: tuple[int, int, object] = self.reader.execute(newest).fetchone() or (1, 0, 0)
        self._log_next, self._log_bytes, self._log_now = *row[:2], _time(row[2])

    def _as_left(self, left: tuple[str, int] | None) -> None:
        """Refuse a store that is not as its server left it, before anything is written."""
        meta: Meta = {}
        there = self.path.exists()
        if there and self.path.with_name(f"{folder.STORE}{JOURNAL}").exists():  # killed at its first start
            with contextlib.closing(connect(self.path, "rw")) as conn:
                conn.execute("PRAGMA schema_version")  # rolls back, which none can that only reads
        if there and self.path.stat().st_size:
            with contextlib.closing(connect(self.path, "ro")) as conn:
                meta = self._known(conn)
        incarnation, now = left or mark.UNREADABLE
        if not meta:
            if left is None and not self.path.with_name(folder.TOKEN).exists():
                return
            how = "not there" if not there else "without tables" if self.path.stat().st_size else "empty"
            lacks = f"is {how}, and its server had one here"
            if now:
                lacks += f", last written {mark.said(now)}"
        elif not incarnation:
            return
        elif meta.get(INCARNATION, "") != incarnation:
            lacks = f"is not the store that its server had here, last written {mark.said(now)}"
        elif _time(meta.get(NOW)) < now:
            had = _time(meta.get(NOW))
            lacks = f"ends at {mark.said(had)}, and its server wrote to it until {mark.said(now)}"
        else:
            return
        log = f"{self.path.name}-wal"
        raise StoreError(f"{self.path} {lacks}: bring back the true one with its write-ahead log ({log}); {ACCEPT}")

    def _create(self) -> None:
        """An empty file, for this user alone; SQLite gives the files beside it the same mode."""
        if not self.path.exists():
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            folder.sync(self.path.parent)

    def _prepare(self, wanted: Meta, adopt: bool) -> None:
        """Refuse a store that is not ours; make the tables in a new file, migrate those of an old one."""
        conn = self.db.conn
        meta = self._known(conn)
        if meta and meta[SERVER] != wanted[SERVER]:
            raise StoreError(
                f"{self.path} is the store of server {meta[SERVER]}, not of {wanted[SERVER]}; "
                "give each server its own folder"
            )
        if CUT in meta and not self.replica:
            raise StoreError(f"{self.path} is of one replica of {meta[SERVER]}: nobody else may write to it")
        unused = bool(meta) and not adopt and not used(meta)  # its server was refused before its first commit
        older = bool(meta) and not unused and TOPOLOGY not in meta  # then the file is all that tells of its order
        if older and not adopt and (changes := difference(meta, wanted)):
            raise StoreError(
                f"{self.path} was made under another order than that of the topology file: {changes}; "
                "start with the former file, or run `mom topology adopt`"
            )
        if not meta:
            conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before there is anything in it
        (journal,) = conn.execute("PRAGMA journal_mode = WAL").fetchone()
        conn.execute("PRAGMA synchronous = FULL")
        conn.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}")
        if journal != "wal" or conn.execute("PRAGMA synchronous").fetchone() != (2,):
            raise StoreError(f"{self.path} cannot be made durable on its file system; use a local disk")
        conn.execute("BEGIN IMMEDIATE")
        try:
            schema.migrate(self.db, int(meta.get(VERSION, 0)), SCHEMA)
            if not meta or unused:
                meta = wanted | {INCARNATION: meta.get(INCARNATION) or secrets.token_hex(8)}
                conn.execute("DELETE FROM meta")
                conn.executemany(META, summed(meta.items()))
            conn.executemany(META, summed([(VERSION, SCHEMA)]))  # always: it is found out now if it cannot be written
            conn.execute("COMMIT")
        except BaseException:
            self.db.rollback()
            raise

    # -- commit ------------------------------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """Stage the rows in the open transaction (cheap). Raises StoreFailed."""
        self._usable()
        assert not self._staged, "the last batch is not finished"
        try:
            self.db.conn.execute("BEGIN IMMEDIATE")
            self._stage(batch)
        except sqlite3.Error as error:
            raise self._fail(error) from error
        self._staged = True

    def finish(self) -> None:
        """Make the staged batch durable; may run in another thread. Raises StoreFailed."""
        self._usable()
        assert self._staged, "no batch is staged"
        try:
            self.db.conn.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._fail(error) from error
        self._staged = False
        self.wal.committed()
        self._write_mark(self._mark.at, self._now)

    def commit(self, batch: Batch) -> None:
        """`begin` and `finish`."""
        self.begin(batch)
        self.finish()

    def _stage(self, batch: Batch, held: Mapping[int, HeldRow | None] | None = None) -> None:
        """`held` in place of that of the batch, which goes with others."""
        many = self.db.conn.executemany
        if batch.acked:
            many(ACKED, [(link << LINK_BITS, link << LINK_BITS | upto) for link, upto in batch.acked.items()])
        if batch.queue_out:
            packet = sums.packet
            many(QUEUE_OUT, [(id, data, packet(id, data)) for id, data in batch.queue_out])
        if batch.queue_in:
            rows = [(*row[:5], *row.info, row.payload) for row in batch.queue_in.values() if row is not None]
            self._put(QUEUE_IN, summed(rows))
            self._put(QUEUE_IN_GONE, [(id,) for id, row in batch.queue_in.items() if row is None])
            self._put(PAYLOAD, summed(batch.payloads.values()))
            self._put(PAYLOAD_SPENT, [(id,) for id in batch.spent])
        if batch.dropped or self._dropped:
            self._drop(batch.dropped)
        if batch.items:
            keyed = [row for row in batch.items.values() if row is not None and row.collection.startswith(ROWS_BY_KEY)]
            if keyed:
                self._put(KEYED, sums.with_items(keyed))
            plain = (row for row in batch.items.values() if row is not None)
            if keyed:
                plain = (row for row in plain if not row.collection.startswith(ROWS_BY_KEY))
            self._put_many(ITEM, ITEM_MANY, sums.with_items(plain))
            self._put_many(ITEM_GONE, ITEM_GONE_MANY, [(id,) for id, row in batch.items.items() if row is None])
        if held is None:
            held = batch.held
        if held:
            self._put_many(HELD, HELD_MANY, sums.with_held([row for row in held.values() if row is not None]))
            self._put_many(HELD_GONE, HELD_GONE_MANY, [(id,) for id, row in held.items() if row is None])
        if batch.agents:
            self._put(AGENT, summed((id, *row) for id, row in batch.agents.items() if row is not None))
            self._put(AGENT_GONE, [(id,) for id, row in batch.agents.items() if row is None])
        if batch.links:
            self._put(LINK, summed(row for row in batch.links.values() if row is not None))
            self._put(LINK_GONE, [(id,) for id, row in batch.links.items() if row is None])
        if batch.ended:
            self._put(CORE_ENDED, [(domain,) for domain in batch.ended])
        if batch.core:
            self._put(CORE, summed((*key, blob) for key, blob in batch.core.items() if blob is not None))
            self._put(CORE_GONE, [key for key, blob in batch.core.items() if blob is None])
        if batch.tasks:
            self._put(TASK, summed(row for row in batch.tasks.values() if row is not None))
            self._put(TASK_GONE, [(id,) for id, row in batch.tasks.items() if row is None])
        meta = batch.meta
        now = self._now
        if NOW in meta:
            now = _time(meta[NOW])
            if (batch.log or batch.row) and meta[NOW] == now >= self._row_now:  # its log row says it
                meta = {key: value for key, value in meta.items() if key != NOW}
            else:
                self._row_now = now
        if meta:
            self._put(META, summed(pair for pair in meta.items() if pair[1] is not None))
            self._put(META_GONE, [(key,) for key, value in meta.items() if value is None])
        count, size = written(batch)
        count -= len(batch.meta) - len(meta)
        self._written = (self._written[0] + 1, self._written[1] + count, self._written[2] + size)
        if (row := batch.row or columns.row(batch.log)) is not None:
            self._log(row, now)
        self._now = max(self._row_now, self._log_now)
        if self._prune[0]:
            self._prune_staged()

    def _drop(self, dropped: dict[str, int]) -> None:
        """Delete some items of agents that are no more. While there are others an entry of meta says so, and no reader
        sees them, even if an agent of that name comes again."""
        for agent in self._cleared:
            del self._dropped[agent]  # the commit that deleted the last is durable
        self._cleared = []
        for agent, upto in (dict(islice(self._dropped.items(), 1)) | dropped).items():
            known = agent in self._dropped
            if self._drop_some(agent, upto):
                if known:
                    self._put(META_GONE, [(DROPPED + agent,)])
                    self._cleared.append(agent)
            elif self._dropped.get(agent) != upto:
                self._put(META, summed([(DROPPED + agent, upto)]))
                self._dropped[agent] = upto

    def _drop_some(self, agent: str, upto: int) -> bool:
        """True if these were the last."""
        rows = self.db.conn.execute(ITEMS_LEFT, (agent, upto, DROP_ROWS + 1)).fetchall()
        ids, size = [], 0
        for id, length in rows[:DROP_ROWS]:
            ids.append((id,))
            size += length
            if size > DROP_BYTES:
                break
        self._put(ITEM_GONE, ids)
        return len(ids) == len(rows)

    def _prune_staged(self) -> None:
        self._put(LOG_PRUNED, [self._prune[:1]])
        self._put(META, summed([(LOST, self._prune[1])]))
        self._prune = (0, 0)

    def _put(self, sql: str, rows: Sequence[Row]) -> None:
        if rows:
            self.db.conn.executemany(sql, rows)

    def _put_many(self, sql: str, sql_many: str, rows: Sequence[Row]) -> None:
        """`sql_many` does what `sql` does, for MANY rows."""
        if len(rows) >= MANY:
            whole = len(rows) - len(rows) % MANY
            for at in range(0, whole, MANY):
                self.db.conn.execute(sql_many, [*chain.from_iterable(rows[at : at + MANY])])
            rows = rows[whole:]
        self._put(sql, rows)

    def _log(self, packed: LogRow, now: int) -> None:
        records, first, last, data = packed
        self._log_now = last = max(last, now)
        commits, rows, size = self._written
        done = (commits, rows + 1, size + len(data))
        row = (self._log_next, records, first, last, self._log_bytes, TRACE_VERSION, data, *done)
        self.db.conn.execute(LOG, (*row, sums.log(row)))
        self._written = (0, 0, 0)
        self._log_next += records
        self._log_bytes += len(data)

    def _usable(self) -> None:
        if self._failed:
            raise StoreFailed(self._failed)

    def _fail(self, error: sqlite3.Error) -> StoreFailed:
        failed = StoreFailed(f"cannot write {self.path}: {error}; see to the disk, then start again")
        if disk_is_full(self.path, error):
            failed = folder.full(self.path)
        self._failed = str(failed)
        return failed

    def sync_mark(self) -> None:
        """Now and then: the mark outlives a power failure, too. Raises StoreFailed."""
        self._write_mark(self._mark.sync)

    def _write_mark(self, write: Callable[..., None], *now: int) -> None:
        try:
            write(*now)
        except OSError as error:
            self._failed = f"cannot write {mark.MARK} beside {self.path}: {error}; see to the disk, then start again"
            raise StoreFailed(self._failed) from error

    # -- log ---------------------------------------------------------------------------------------------------

    def prune_log(self, max_bytes: int, max_age: int, now: int) -> int:
        """Let old log records go with the next commit; returns how many."""
        first, last, end = self.select(
            "SELECT coalesce(min(id), 0), max(id), max(offset + length(columns)) FROM log WHERE id IN"
            " ((SELECT min(id) FROM log), (SELECT max(id) FROM log))"
        )[0]
        if not first:
            return 0
        far = self.select("SELECT id FROM log WHERE id >= ? ORDER BY id LIMIT 1 OFFSET ?", first, PRUNED)
        step = far[0][0] if far else LAST
        cut = partial(self._log_cut, first, last)
        self._prune = prune(self.meta(EXPORTED) | self.meta(LOST), first, end, cut, max_bytes, now - max_age, step)
        return self._prune[0] - int(first)

    def tidy(self) -> bool:
        """A small step between two batches: prune the log as was asked for, delete items of agents that are no more,
        let free pages leave the file. True if more of these are to go. Raises StoreFailed."""
        self._usable()
        assert not self._staged, "a batch is staged"
        conn = self.db.conn
        try:
            if self._prune[0] or self._dropped:
                conn.execute("BEGIN IMMEDIATE")
                if self._prune[0]:
                    self._prune_staged()
                self._drop({})
                conn.execute("COMMIT")
                self.wal.committed()
            pages, free, kind = self.select(
                "SELECT page_count, freelist_count, auto_vacuum"
                " FROM pragma_page_count, pragma_freelist_count, pragma_auto_vacuum"
            )[0]
            shrank = self._shrinks
            self._shrinks = kind == INCREMENTAL and free > FREE_LEAST and free > pages // (8 if shrank else 4)
            if shrank and not self._shrinks:
                conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # which cuts the file
            if self._shrinks:
                conn.executescript(f"PRAGMA incremental_vacuum({SHRUNK})")  # `execute` would let one page go
        except sqlite3.Error as error:
            raise self._fail(error) from error
        return self._shrinks or bool(self._dropped)

    def _log_cut(self, first: int, last: int, keep: Callable[[Span], bool]) -> int:
        """The first record of the oldest row to keep; of the newest, if of no other."""
        while first < last:
            middle = (first + last) // 2
            rows = self.select("SELECT id, id + count, last, offset FROM log WHERE id >= ? ORDER BY id LIMIT 1", middle)
            if keep(span := Span(*rows[0])):
                last = middle
            else:
                first = span.next
        return first

    def close(self) -> None:
        """What is staged but not finished is given up."""
        self.wal.close()
        self.reader.close()
        with contextlib.suppress(sqlite3.Error):  # after a failure: there is nothing left to save
            self.db.conn.close()
        with contextlib.suppress(OSError):
            self._mark.close()
        self._lock.release()


def _time(value: object) -> int:
    return value if isinstance(value, int) else 0


def summed(rows: Iterable[Row]) -> list[Row]:
    """Rows with their checksums."""
    of = sums.row
    return [(*row, of(*row)) for row in rows]


def register_export(path: str | PathLike[str], seq: int) -> None:
    """Tell the store of a stopped server that its log is exported up to this record.

    Raises StoreError: its server runs, or the file cannot be written.
    """
    home = Path(path)
    lock = folder.Lock(home)
    try:
        known = SqliteReader(home)
        mark = max(seq, int(known.meta().get(EXPORTED, 0)))
        known.close()
        conn = connect(home / folder.STORE, "rw")
        conn.execute("PRAGMA synchronous = FULL")
        conn.executemany(META, summed([(EXPORTED, mark)]))
        conn.close()
    except sqlite3.Error as error:
        raise refusal(home / folder.STORE, error) from None
    finally:
        lock.release()
