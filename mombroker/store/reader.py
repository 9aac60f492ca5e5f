"""Committed rows of a SQLite store, read on a connection of their own, beside its server or without one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from mombroker.core.batch import LINK_BITS, ROWS_BY_KEY, Damage, HeldRow, InRow, ItemRow, LinkRow, TaskRow
from mombroker.core.errors import StoreError, StoreFailed, plain
from mombroker.core.meta import DROPPED, NOW, SERVER, VERSION
from mombroker.core.trace import Record
from mombroker.store import columns, folder, sums
from mombroker.store.base import SCHEMA, Meta

REPAIR = (
    "restore it from a backup, or run `mom domain reset` for this server; `mom store salvage` exports what can be read"
)

# The items of a collection. For (key, id) > (?, ?) SQLite looks up `key` alone and reads all of that key from the
# start, so that what is left of a key, and the keys above it, are asked for one by one.
ITEMS = "SELECT id, agent, collection, key, head, body, {0} FROM message WHERE agent = ?1 AND collection = ?2"
RANGE = (
    "SELECT id, agent, collection, key, head, body, {0} FROM message"
    " WHERE agent = ?1 AND collection >= ?2 AND collection < ?3"
)
IDS = "SELECT id FROM message WHERE agent = ? AND collection = ? AND key = 0 AND id > ? AND id <= ? ORDER BY id LIMIT ?"
KEYED_ID = "SELECT id FROM message WHERE agent = ?1 AND collection = ?2"
SAME_KEY = f"{ITEMS} AND key = ?3 AND id > ?4 ORDER BY id LIMIT ?5"
AFTER = (
    f"SELECT * FROM ({SAME_KEY}) UNION ALL SELECT * FROM ({ITEMS} AND key > ?3{{1}} ORDER BY key, id LIMIT ?5) LIMIT ?5"
)

LAST_COMMIT = (
    f"SELECT (SELECT last FROM log ORDER BY id DESC LIMIT 1) UNION ALL SELECT value FROM meta WHERE key = '{NOW}'"
)

# Whose store it is, and of which form: what each reader asks, however many names there are beside that.
IDENTITY = f" WHERE key IN ('{SERVER}', '{VERSION}') OR key >= '{DROPPED}' AND key < '{DROPPED[:-1]};'"

# Python's module looks for an adapter of each `bytes` that it writes, and finds out by an exception that there is none.
sqlite3.register_adapter(bytes, bytes.__bytes__)

LEAST_ROOM = 1 << 20  # with less on its disk, an error of input or output is for lack of room

Row = tuple[Any, ...]
_row = tuple.__new__  # half the time of ItemRow(...)

# Each table: its columns, their checksum, and the schema that it came with.
TABLES: dict[str, tuple[str, Callable[..., int], int]] = {
    "meta": ("key, value", sums.row, 1),
    "link": ("id, domain, peer, sent, acked, received, incarnation", sums.row, 1),
    "core": ("domain, kind, key, blob", sums.row, 1),
    "agent": ("id, class, state", sums.row, 1),
    "queue_out": ("id, data", sums.packet, 1),
    "queue_in": ("id, agent, data, attempts, trying, domain, peer, received, delivered, payload", sums.row, 1),
    "payload": ("id, last, data", sums.row, 4),
    "message": ("id, agent, collection, key, head, body", sums.item, 1),
    "held": ("id, agent, head, body", sums.held, 3),
    "task": ("id, agent, kind, due, data", sums.row, 1),
    "log": ("id, count, first, last, offset, version, columns, commits, rows, bytes", sums.row, 1),
    "replica_log": ("idx, term, kind, data", sums.row, 9),
}
JOURNAL = "-journal"  # behind the name of a file that SQLite does not write ahead yet


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


def _lenient(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


def connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def disk_is_full(path: Path, error: sqlite3.Error) -> bool:
    """SQLite tells a full disk from others only where it writes rows, not where it makes its files."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and folder.room(path) < LEAST_ROOM)


def refusal(path: Path, error: sqlite3.Error) -> StoreError | StoreFailed:
    """Why SQLite cannot open this file, in one sentence."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if disk_is_full(path, error):
        return folder.full(path)
    if code == sqlite3.SQLITE_READONLY and path.with_name(f"{path.name}{JOURNAL}").exists():
        return StoreError(f"{path} has nothing in it yet: its server was killed at its first start; start it again")
    if code == sqlite3.SQLITE_NOTADB and path.name != folder.STORE and _is_text(path):
        return StoreError(
            f"{path} is a text file, not a store: name the `data` folder of a server or a backup; a topology file goes "
            "behind --file"
        )
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
        return StoreError(f"{path} is damaged or not a store ({error}); {REPAIR}")
    return StoreError(f"cannot use {path}: {error}; see that this user can write its folder and the disk has room")


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(4096)
    return b"\0" not in start and start[:6] != b"SQLite"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and plain(value) == value


def _raw(value: object) -> object:
    """Text as its bytes, so that damaged text can be looked for."""
    return value.encode(errors="surrogateescape") if isinstance(value, str) else value


class SqliteReader:
    """Committed rows, each method as of one commit. Raises StoreFailed when the file cannot be read.

    damaged   rows of messages and tasks that are not what was written, each once: they are left out; as an argument:
              open a store that is damaged in its very identity, too
    """

    def __init__(self, path: str | PathLike[str], *, damaged: bool = False):
        self._strict = not damaged
        self.path = Path(path)
        if self.path.is_dir():
            self.path /= folder.STORE
        if not self.path.exists():
            raise StoreError(f"there is no store at {self.path}; a server makes it at its first start")
        self._connect()

    def _connect(self) -> None:
        self.damaged: list[Damage] = []
        self._bad: set[tuple[str, int]] = set()  # the ids of those that were ever named
        try:
            self.reader = connect(self.path, "ro")
            meta = self._known(self.reader, IDENTITY)
            self.schema = int(meta.get(VERSION, 0))
            self._dropped = {key.removeprefix(DROPPED): int(meta[key]) for key in meta if key.startswith(DROPPED)}
            self._page = int(self.reader.execute("PRAGMA page_size").fetchone()[0])
        except sqlite3.Error as error:
            raise refusal(self.path, error) from None
        if not meta:
            raise StoreError(f"{self.path} is not a store; name the `data` folder of a server or a backup")

    def _known(self, conn: sqlite3.Connection, where: str = "") -> Meta:
        """The meta rows of a store that this program can read; none if the file has no tables yet. Those that `where`
        leaves out are looked at only where what tells whose store it is cannot be read."""
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if not tables:
            return {}
        meta: Meta = {}
        if "meta" in tables:
            summed = conn.execute("SELECT 1 FROM pragma_table_info('meta') WHERE name = 'sum'").fetchone()
            self.sum = "sum" if summed else "NULL"
            conn.text_factory = _lenient
            rows = conn.execute(f"SELECT key, value, {self.sum} FROM meta{where}").fetchall()
            meta = dict(row[:2] for row in rows)
            strange = SERVER not in meta or not 1 <= int(meta.get(VERSION, 0)) <= SCHEMA
            if strange and where:
                rows = conn.execute(f"SELECT key, value, {self.sum} FROM meta").fetchall()
            conn.text_factory = str
            if self._strict or strange:
                self._whole("its entry {0!r}", sums.row, rows)
        if SERVER not in meta or VERSION not in meta:
            raise StoreError(f"{self.path} is a database of another program; give this server its own folder")
        if int(meta[VERSION]) > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer mombroker (schema {meta[VERSION]}, this one knows "
                f"{SCHEMA}); install that version"
            )
        if now := _latest(conn.execute(LAST_COMMIT).fetchall()):
            meta[NOW] = now
        return meta

    def select(self, sql: str, *args: object) -> list[Row]:
        try:
            try:
                return self.reader.execute(sql, args).fetchall()
            except sqlite3.OperationalError as error:
                if "decode" not in str(error):
                    raise
            self.reader.text_factory = _lenient  # a row has damaged text
            try:
                return self.reader.execute(sql, args).fetchall()
            finally:
                self.reader.text_factory = str
        except UnicodeEncodeError as error:  # an argument is damaged text that came from here
            raise StoreError(f"{self.path} is damaged: it names {error.object!a}; {REPAIR}") from None
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot read {self.path}: {error}; {REPAIR}") from error

    def _whole(self, what: str, of: Callable[..., int], rows: list[Row]) -> list[Row]:
        """The rows without their checksums. Raises StoreError for one that is damaged."""
        for row in rows:
            if sums.wrong(of, row):
                raise StoreError(f"{self.path} is damaged: {what.format(*row)} is not what was written; {REPAIR}")
        return [row[:-1] for row in rows]

    def _good(self, table: str, of: Callable[..., int], rows: list[Row]) -> list[Row]:
        """The rows without their checksums; a damaged one is left out, and named."""
        for row in rows:
            if sums.wrong(of, row):
                self._damage(table, row)
        return [row[:-1] for row in rows if (table, row[0]) not in self._bad] if self._bad else [r[:-1] for r in rows]

    def _garbled(self, table: str, where: str, *names: object) -> None:
        """Name the rows of what can be nobody's name."""
        for row in self.select(f"SELECT {self.columns(table)}, NULL FROM {table} WHERE {where}", *names):
            self._damage(table, row)

    def _damage(self, table: str, row: Row) -> None:
        if (table, row[0]) in self._bad:
            return
        self._bad.add((table, row[0]))
        size = len(row[-2]) if isinstance(row[-2], bytes) else 0
        collection = str(row[2]) if table == "message" else ""
        packed = msgpack.packb(row, unicode_errors="surrogateescape")
        payload = row[9] if table == "queue_in" and isinstance(row[9], int) else 0
        self.damaged.append(Damage(table, row[0], str(row[1]), collection, size, packed, payload))

    def has(self, table: str) -> bool:
        return self.schema >= TABLES[table][2]

    def stream(self, sql: str) -> Iterator[Row]:
        """Rows one by one, with text that may be damaged. Raises sqlite3.Error."""
        self.reader.text_factory = _lenient
        try:
            yield from self.reader.execute(sql)
        finally:
            self.reader.text_factory = str

    def rows(self, table: str) -> Iterator[tuple[Row, bool]]:
        """All rows of a table, in no order, and whether each is as it was written. For a reader of one's own."""
        of = TABLES[table][1]
        if not self.has(table):
            return
        try:
            for row in self.stream(f"SELECT {self.columns(table)}, {self.sum} FROM {table}"):
                yield row[:-1], not sums.wrong(of, row)
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot read table {table} of {self.path} to its end: {error}; {REPAIR}") from error

    def tables_since(self, schema: int, *tables: str) -> tuple[str, ...]:
        """These tables, if the store is not older than they are."""
        return tables if self.schema >= schema else ()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside are as of one commit."""
        self.select("BEGIN")
        try:
            yield
        finally:
            self.select("ROLLBACK")

    def meta(self, prefix: str = "") -> Meta:
        sql = f"SELECT key, value, {self.sum} FROM meta"
        if prefix:
            end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            rows = self.select(f"{sql} WHERE key >= ? AND key < ?", prefix, end)
        else:
            rows = self.select(sql)
        found: Meta = dict(self._whole("its entry {0!r}", sums.row, rows))
        if NOW.startswith(prefix) and (now := self.last_commit()):
            found[NOW] = now
        return found

    def last_commit(self) -> int:
        """Its time, ns: that of the last row of the log, or of a later commit without records, which is in `meta`."""
        return _latest(self.select(LAST_COMMIT))

    def links(self) -> list[LinkRow]:
        sql = f"SELECT id, domain, peer, sent, acked, received, incarnation, {self.sum} FROM link ORDER BY id"
        return [LinkRow(*row) for row in self._whole("the link {0} to {2}", sums.row, self.select(sql))]

    def core(self, domain: str) -> dict[tuple[int, int], bytes]:
        rows = self.select(f"SELECT domain, kind, key, blob, {self.sum} FROM core WHERE domain = ?", domain)
        rows = self._whole("the clock of domain {0} (row {1}, {2})", sums.row, rows)
        return {(kind, key): blob for _, kind, key, blob in rows}

    def tasks(self) -> list[TaskRow]:
        rows = self.select(f"SELECT id, agent, kind, due, data, {self.sum} FROM task ORDER BY id")
        return [TaskRow(*row) for row in self._good("task", sums.row, rows)]

    def inboxes(self) -> list[tuple[str, int, int]]:
        found = self.select("SELECT agent, min(id), count(*) FROM queue_in GROUP BY agent ORDER BY agent")
        for agent, _, _ in found:
            if not _is_name(agent):
                self._garbled(
                    "queue_in", f"agent IS {'CAST(? AS TEXT)' if isinstance(agent, str) else '?'}", _raw(agent)
                )
        return [row for row in found if _is_name(row[0])]

    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]:
        found: list[InRow] = []
        names = self.columns("queue_in")
        while len(found) < limit:
            left = limit - len(found)
            rows = self.select(
                f"SELECT {names}, {self.sum} FROM queue_in WHERE agent = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?",
                agent, after, upto, left,
            )  # fmt: skip
            found += self._messages_in(rows)
            if len(rows) < left:
                break
            after = rows[-1][0]
        return found

    def _messages_in(self, rows: list[Row]) -> list[InRow]:
        found: list[InRow] = []
        for row in self._good("queue_in", sums.row, rows):
            id, agent, data, tries, boots, *info, shared = row
            if shared:
                payload = self._payload(shared)
                if payload is None:
                    self._damage("queue_in", (*row, None))
                    continue
                data += payload
            found.append(InRow(id, agent, data, tries, boots, tuple(info), shared))
        return found

    def _payload(self, id: int) -> bytes | None:
        """What several messages have in common; None if it is damaged."""
        rows = self.select(f"SELECT id, last, data, {self.sum} FROM payload WHERE id = ?", id)
        return rows[0][2] if rows and not sums.wrong(sums.row, rows[0]) else None

    def columns(self, table: str) -> str:
        """The columns of a table, as this store has them."""
        names = TABLES[table][0]
        if self.schema < 2:
            names = names.replace(", commits, rows, bytes", "")
        return names if self.schema > 3 else names.replace(", payload", ", 0 AS payload")

    def message_in(self) -> str:
        """The columns of queue_in that hold a message, with its payload, and the row that it shares this with."""
        if self.schema < 4:
            return "data, 0"
        shared = "(SELECT data FROM payload WHERE id = queue_in.payload)"
        return f"iif(payload, CAST(data || {shared} AS BLOB), data), payload"

    def queue_in_count(self, agent: str, after: int) -> int:
        return int(self.select("SELECT count(*) FROM queue_in WHERE agent = ? AND id > ?", agent, after)[0][0])

    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        base = link << LINK_BITS
        rows = self.select(
            f"SELECT id, data, {self.sum} FROM queue_out WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            base + after, base + upto, limit,
        )  # fmt: skip
        return [(id - base, data) for id, data in self._whole("packet {0} for a neighbour", sums.packet, rows)]

    def queue_out_size(self, link: int) -> tuple[int, int]:
        sql = "SELECT count(*), coalesce(sum(length(data)), 0) FROM queue_out WHERE id >= ? AND id < ?"
        rows, size = self.select(sql, link << LINK_BITS, (link + 1) << LINK_BITS)[0]
        return rows, size

    def agent(self, id: str) -> tuple[str, bytes] | None:
        rows = self.select(f"SELECT id, class, state, {self.sum} FROM agent WHERE id = ?", id)
        return next(((path, state) for _, path, state in self._whole("the state of {0}", sums.row, rows)), None)

    def agents(self, after: str, limit: int) -> list[tuple[str, str]]:
        return self.select("SELECT id, class FROM agent WHERE id > ? ORDER BY id LIMIT ?", after, limit)

    def item(self, id: int) -> ItemRow | None:
        rows = self.select(
            f"SELECT id, agent, collection, key, head, body, {self.sum} FROM message WHERE id = ?", id
        )  # fmt: skip
        return next((ItemRow(*row) for row in self._good("message", sums.item, rows)), None)

    def items(self, agent: str, collection: str, after: tuple[int, int] | None, limit: int) -> list[ItemRow]:
        found: list[ItemRow] = []
        hidden = self._hidden(agent)
        while len(found) < limit:
            left = limit - len(found)
            if after is None:
                sql = f"{ITEMS}{hidden} ORDER BY key, id LIMIT ?3".format(self.sum)
                rows = self.select(sql, agent, collection, left)
            else:
                key, id = after
                place = (key, max(id, self._dropped.get(agent, 0)))
                rows = self.select(SAME_KEY.format(self.sum), agent, collection, *place, left)
                if len(rows) < left:
                    rows = self.select(AFTER.format(self.sum, hidden), agent, collection, *place, left)
            good = self._good("message", sums.item, rows) if self._bad or not sums.whole(rows) else rows
            found += [_row(ItemRow, row[:6]) for row in good]
            if len(rows) < left:
                break
            after = (rows[-1][3], rows[-1][0])
        return found

    def item_ids(self, agent: str, collection: str, after: int, upto: int, limit: int) -> list[int]:
        """Those with key 0 and after < id <= upto, in order. The index alone tells."""
        after, bad = max(after, self._dropped.get(agent, 0)), self._bad
        if bad:
            limit += sum(table == "message" for table, _ in bad)
        rows = self.select(IDS, agent, collection, after, upto, limit)
        return [id for (id,) in rows if ("message", id) not in bad] if bad else [id for (id,) in rows]

    def keyed(self, agent: str, collection: str) -> int:
        """The index alone tells: the row itself is not looked at."""
        sql = KEYED_ID + self._hidden(agent) if self._dropped else KEYED_ID
        rows, bad = self.select(sql, agent, collection), self._bad
        if bad:
            rows = [row for row in rows if ("message", row[0]) not in bad]
        return int(rows[0][0]) if rows else 0

    def _hidden(self, agent: str) -> str:
        """Leave out what is to go of an agent that is no more: one of the same name may have come since."""
        upto = self._dropped.get(agent)
        return "" if upto is None else f" AND id > {upto}"

    def range(self, agent: str, first: str, last: str, limit: int, reverse: bool) -> list[ItemRow]:
        found: list[ItemRow] = []
        hidden, down = self._hidden(agent), " DESC" if reverse else ""
        sql = f"{RANGE}{hidden} ORDER BY collection{down} LIMIT ?4".format(self.sum)
        while len(found) < limit and first < last:
            left = limit - len(found)
            rows = self.select(sql, agent, first, last, left)
            found += map(ItemRow._make, self._good("message", sums.item, rows))
            if len(rows) < left:
                break
            first, last = (first, rows[-1][2]) if reverse else (rows[-1][2] + "\0", last)
        return found

    def range_count(self, agent: str, first: str, last: str) -> int:
        sql = "SELECT count(*) FROM message WHERE agent = ? AND collection >= ? AND collection < ?"
        return int(self.select(sql + self._hidden(agent), agent, first, last)[0][0])

    def collections(self, agent: str) -> list[str]:
        found, after = list[str](), ""
        sql = f"SELECT collection FROM message WHERE agent = ? AND collection > ?{self._hidden(agent)}"
        while rows := self.select(f"{sql} ORDER BY collection LIMIT 1", agent, after):
            after = rows[0][0]
            if after.startswith(ROWS_BY_KEY):
                after = ROWS_BY_KEY + "\U0010ffff"
            else:
                found.append(after)
        return found

    def places(self) -> Iterator[tuple[str, str]]:
        """The agents' collections that have rows, without tables."""
        agent: object = b""
        collection: object = b""
        same = "SELECT agent, collection FROM message WHERE agent = CAST(? AS TEXT) AND collection > CAST(? AS TEXT)"
        next = "SELECT agent, collection FROM message WHERE agent > CAST(? AS TEXT)"
        while rows := (
            self.select(f"{same} ORDER BY collection LIMIT 1", agent, collection)
            or self.select(f"{next} ORDER BY agent, collection LIMIT 1", agent)
        ):
            agent, collection = map(_raw, rows[0])
            if _is_name(rows[0][1]) and rows[0][1].startswith(ROWS_BY_KEY):
                collection = (ROWS_BY_KEY + "\U0010ffff").encode()
            elif all(map(_is_name, rows[0])):
                yield rows[0]
            else:
                self._garbled("message", "agent = CAST(? AS TEXT) AND collection = CAST(? AS TEXT)", agent, collection)

    def held(self, after: int, limit: int) -> list[HeldRow]:
        found: list[HeldRow] = []
        while len(found) < limit:
            left = limit - len(found)
            sql = f"SELECT id, agent, head, body, {self.sum} FROM held WHERE id > ? ORDER BY id LIMIT ?"
            rows = self.select(sql, after, left)
            found += [HeldRow(*row) for row in self._good("held", sums.held, rows)]
            if len(rows) < left:
                break
            after = rows[-1][0]
        return found

    def held_row(self, id: int) -> HeldRow | None:
        rows = self.select(f"SELECT id, agent, head, body, {self.sum} FROM held WHERE id = ?", id)
        return next((HeldRow(*row) for row in self._good("held", sums.held, rows)), None)

    def item_count(self, agent: str, collection: str) -> int:
        sql = f"SELECT count(*) FROM message WHERE agent = ? AND collection = ?{self._hidden(agent)}"
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
        written = "commits, rows, bytes" if self.schema > 1 else "NULL, NULL, NULL"
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
        """Bytes in use: pages that hold rows, and the write-ahead log. The file may have free pages, too."""
        pages = self.select("SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count")
        return int(pages[0][0]) * self._page + self._log_size()

    def file_size(self) -> int:
        """Bytes that the file takes, with its free pages, and the write-ahead log."""
        return self.path.stat().st_size + self._log_size()

    def _log_size(self) -> int:
        wal = self.path.with_name(f"{self.path.name}-wal")
        return wal.stat().st_size if wal.exists() else 0

    def close(self) -> None:
        self.reader.close()


def _latest(rows: list[Row]) -> int:
    return max((value for (value,) in rows if isinstance(value, int)), default=0)
