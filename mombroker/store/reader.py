"""Committed rows of a SQLite store, read on a connection of their own, beside its server or without one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from mombroker.core.batch import LINK_BITS, HeldRow, InRow, ItemRow, LinkRow, TaskRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.trace import Record
from mombroker.store import columns, folder
from mombroker.store.base import SCHEMA, Meta

REPAIR = "restore it from a backup, or run `mom domain reset` for this server"

# The items of a collection. For (key, id) > (?, ?) SQLite looks up `key` alone and reads all of that key from the
# start, so that what is left of a key, and the keys above it, are asked for one by one.
ITEMS = "SELECT id, agent, collection, key, head, body FROM message WHERE agent = ?1 AND collection = ?2"
SAME_KEY = f"{ITEMS} AND key = ?3 AND id > ?4 ORDER BY id LIMIT ?5"
AFTER = f"SELECT * FROM ({SAME_KEY}) UNION ALL SELECT * FROM ({ITEMS} AND key > ?3 ORDER BY key, id LIMIT ?5) LIMIT ?5"

Row = tuple[Any, ...]


class Commit(NamedTuple):
    """A row of the log, the records of one commit, and what the commits since the last such row wrote."""

    id: int  # sequence of the first record
    records: int
    last: int  # when the last was written, ns
    version: int  # of the trace
    columns: bytes
    commits: int | None  # None: written before these were counted
    rows: int | None
    bytes: int | None


def connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def refusal(path: Path, error: sqlite3.Error) -> StoreError:
    """Why SQLite cannot open this file, in one sentence."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
        return StoreError(f"{path} is damaged or not a store ({error}); {REPAIR}")
    return StoreError(f"cannot use {path}: {error}; see that this user can write its folder and the disk has room")


class SqliteReader:
    """Committed rows, each method as of one commit. Raises StoreFailed when the file cannot be read."""

    def __init__(self, path: str | PathLike[str]):
        self.path = Path(path)
        if self.path.is_dir():
            self.path /= folder.STORE
        if not self.path.exists():
            raise StoreError(f"there is no store at {self.path}; a server makes it at its first start")
        self._connect()

    def _connect(self) -> None:
        try:
            self.reader = connect(self.path, "ro")
            meta = self._known(self.reader)
            self._schema = int(meta.get("schema", 0))
            self._page = int(self.reader.execute("PRAGMA page_size").fetchone()[0])
        except sqlite3.Error as error:
            raise refusal(self.path, error) from None
        if not meta:
            raise StoreError(f"{self.path} is not a store; name the `data` folder of a server or a backup")

    def _known(self, conn: sqlite3.Connection) -> Meta:
        """The meta rows of a store that this program can read; none if the file has no tables yet."""
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not tables:
            return {}
        meta: Meta = dict(conn.execute("SELECT key, value FROM meta").fetchall()) if "meta" in tables else {}
        if "server" not in meta or "schema" not in meta:
            raise StoreError(f"{self.path} is a database of another program; give this server its own folder")
        if int(meta["schema"]) > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mombroker (schema {meta['schema']}, this one knows "
                f"{SCHEMA}); install that version"
            )
        return meta

    def select(self, sql: str, *args: object) -> list[Row]:
        try:
            return self.reader.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot read {self.path}: {error}; {REPAIR}") from error

    def tables_since(self, schema: int, *tables: str) -> tuple[str, ...]:
        """These tables, if the store is not older than they are."""
        return tables if self._schema >= schema else ()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside are as of one commit."""
        self.select("BEGIN")
        try:
            yield
        finally:
            self.select("ROLLBACK")

    def meta(self) -> Meta:
        return dict(self.select("SELECT key, value FROM meta"))

    def links(self) -> list[LinkRow]:
        sql = "SELECT id, domain, peer, sent, acked, received, incarnation FROM link ORDER BY id"
        return [LinkRow(*row) for row in self.select(sql)]

    def core(self, domain: str) -> dict[tuple[int, int], bytes]:
        rows = self.select("SELECT kind, key, blob FROM core WHERE domain = ?", domain)
        return {(kind, key): blob for kind, key, blob in rows}

    def tasks(self) -> list[TaskRow]:
        return [TaskRow(*row) for row in self.select("SELECT id, agent, kind, due, data FROM task ORDER BY id")]

    def inboxes(self) -> list[tuple[str, int, int]]:
        return self.select("SELECT agent, min(id), count(*) FROM queue_in GROUP BY agent ORDER BY agent")

    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]:
        rows = self.select(
            f"SELECT id, agent, {self.message_in()}, attempts, trying, domain, peer, received, delivered FROM queue_in"
            " WHERE agent = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
            agent, after, upto, limit,
        )  # fmt: skip
        return [
            InRow(id, name, data, tries, boots, tuple(info), shared)
            for id, name, data, shared, tries, boots, *info in rows
        ]

    def message_in(self) -> str:
        """The columns of queue_in that hold a message, with its payload, and the row that it shares this with."""
        if self._schema < 4:
            return "data, 0"
        shared = "(SELECT data FROM payload WHERE id = queue_in.payload)"
        return f"iif(payload, CAST(data || {shared} AS BLOB), data), payload"

    def queue_in_count(self, agent: str, after: int) -> int:
        return int(self.select("SELECT count(*) FROM queue_in WHERE agent = ? AND id > ?", agent, after)[0][0])

    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        base = link << LINK_BITS
        return self.select(
            "SELECT id - ?, data FROM queue_out WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            base, base + after, base + upto, limit,
        )  # fmt: skip

    def queue_out_size(self, link: int) -> tuple[int, int]:
        sql = "SELECT count(*), coalesce(sum(length(data)), 0) FROM queue_out WHERE id >= ? AND id < ?"
        rows, size = self.select(sql, link << LINK_BITS, (link + 1) << LINK_BITS)[0]
        return rows, size

    def agent(self, id: str) -> tuple[str, bytes] | None:
        return next(iter(self.select("SELECT class, state FROM agent WHERE id = ?", id)), None)

    def agents(self, after: str, limit: int) -> list[tuple[str, str]]:
        return self.select("SELECT id, class FROM agent WHERE id > ? ORDER BY id LIMIT ?", after, limit)

    def item(self, id: int) -> ItemRow | None:
        rows = self.select("SELECT id, agent, collection, key, head, body FROM message WHERE id = ?", id)
        return ItemRow(*rows[0]) if rows else None

    def items(self, agent: str, collection: str, after: tuple[int, int] | None, limit: int) -> list[ItemRow]:
        if after is None:
            rows = self.select(f"{ITEMS} ORDER BY key, id LIMIT ?3", agent, collection, limit)
        else:
            rows = self.select(SAME_KEY, agent, collection, *after, limit)
            if len(rows) < limit:
                rows = self.select(AFTER, agent, collection, *after, limit)
        return list(map(ItemRow._make, rows))

    def held(self, after: int, limit: int) -> list[HeldRow]:
        rows = self.select("SELECT id, agent, head, body FROM held WHERE id > ? ORDER BY id LIMIT ?", after, limit)
        return [HeldRow(*row) for row in rows]

    def held_row(self, id: int) -> HeldRow | None:
        rows = self.select("SELECT id, agent, head, body FROM held WHERE id = ?", id)
        return HeldRow(*rows[0]) if rows else None

    def item_count(self, agent: str, collection: str) -> int:
        sql = "SELECT count(*) FROM message WHERE agent = ? AND collection = ?"
        return int(self.select(sql, agent, collection)[0][0])

    def log(self, after: int, limit: int) -> list[tuple[int, Record]]:
        """Up to `limit` records with a sequence above `after`, in order."""
        found: list[tuple[int, Record]] = []
        first = self.select("SELECT coalesce(max(id), 0) FROM log WHERE id <= ?", after + 1)[0][0]
        while len(found) < limit:
            rows = self.select("SELECT id, count, columns FROM log WHERE id >= ? ORDER BY id LIMIT 1", first)
            if not rows:
                break
            id, count, data = rows[0]
            skip = max(0, after + 1 - id)
            records = columns.unpack(data, count)[skip : skip + limit - len(found)]
            found += enumerate(records, id + skip)
            first = id + count
        return found

    def commits(self, after: int, upto: int, limit: int) -> list[Commit]:
        """Up to `limit` commits whose first record has a sequence above `after` and not above `upto`, in order."""
        written = "commits, rows, bytes" if self._schema > 1 else "NULL, NULL, NULL"
        rows = self.select(
            f"SELECT id, count, last, version, columns, {written} FROM log"
            " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            after, upto, limit,
        )  # fmt: skip
        return [Commit(*row) for row in rows]

    def commit_before(self, seq: int) -> int:
        """The last sequence before the commit that holds `seq`, or before the first commit that is kept."""
        rows = self.select("SELECT coalesce((SELECT max(id) FROM log WHERE id <= ?), min(id), 1) - 1 FROM log", seq)
        return int(rows[0][0])

    def log_before(self, time: int) -> int:
        """A sequence that all records written at `time` (ns) or later are above of, and not many others.

        It steps back one commit: its first record may tell of a time after its last one, but before that of the next.
        """
        low, high = self.commit_before(1), self.log_end()
        while low < high:
            sql = "SELECT id, id + count - 1, last FROM log WHERE id <= ? ORDER BY id DESC LIMIT 1"
            id, end, last = self.select(sql, max((low + high) // 2, low + 1))[0]
            low, high = (end, high) if last < time else (low, id - 1)
        return self.commit_before(low)

    def log_cuts(self, after: int, upto: int, size: int) -> Iterator[int]:
        """Last sequences of commits, each the end of about `size` records, from `after` until `upto` is reached."""
        while after < upto:
            sql = "SELECT id + count - 1 FROM log WHERE id > ? AND id <= ? ORDER BY id DESC LIMIT 1"
            rows = self.select(sql, after, min(upto, after + size))
            if not rows:
                return
            after = int(rows[0][0])
            yield after

    def log_end(self) -> int:
        """The sequence of the last record; 0 before the first."""
        rows = self.select("SELECT id + count - 1 FROM log ORDER BY id DESC LIMIT 1")
        return int(rows[0][0]) if rows else 0

    def size(self) -> int:
        """Bytes in use: pages that hold rows, and the write-ahead log. The file itself never shrinks."""
        pages = self.select("SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count")
        wal = self.path.with_name(f"{self.path.name}-wal")
        return int(pages[0][0]) * self._page + (wal.stat().st_size if wal.exists() else 0)

    def close(self) -> None:
        self.reader.close()
