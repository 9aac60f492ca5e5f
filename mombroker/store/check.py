"""Looking a store over and copying it, beside a running server: only reads, as of one commit, without the lock."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path

from mombroker import ordering
from mombroker.broker.queue.item import item_of
from mombroker.broker.queue.messages import LANES
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.schedule import DELAYED
from mombroker.broker.topic.subscription import Subscription
from mombroker.core.batch import EVERY, LINK_BITS, HeldRow, ItemRow
from mombroker.core.errors import MomError, StoreError, StoreFailed, plain
from mombroker.core.message import decode
from mombroker.core.meta import DROPPED, EPOCH, NEXT, ORDER, SERVER
from mombroker.core.revision import resets
from mombroker.core.words import many
from mombroker.store import columns, folder, mark, schema
from mombroker.store.reader import TABLES, Row, SqliteReader, connect, refusal

QUEUED = {*LANES, DELAYED}  # collections of queues that hold messages
SHOWN = 20  # faults of one kind that are named one by one
PAGE = 1000  # rows, or pages of the file, in one go


def verify(path: str | PathLike[str]) -> list[str]:
    """One sentence per fault; none if the store is whole. A million messages take about ten seconds."""
    faults: list[str] = []
    try:
        left = mark.read(Path(path)) if Path(path).is_dir() else None  # before its server commits once more
        store = SqliteReader(path, damaged=True)
    except StoreError as error:
        return [str(error)]
    with contextlib.closing(store), store.snapshot():
        for check in (
            partial(_end, left),
            _pages,
            _migrations,
            _sums,
            _links,
            _queue_out,
            _queue_in,
            _items,
            _tasks,
            _cores,
            _log,
        ):
            try:
                found = check(store)
                faults += islice(found, SHOWN)
                if more := sum(1 for _ in found):
                    faults.append(f"and {more} more of this kind")
            except StoreFailed as error:
                faults.append(str(error))
            except StoreError as error:  # a row that _sums has named
                assert faults, error
            except (
                AttributeError,
                KeyError,
                TypeError,
                ValueError,
            ) as error:  # values of other types than were written
                faults.append(f"what is damaged cannot be checked further: {type(error).__name__}: {error}")
    return faults


def _end(left: tuple[str, int] | None, store: SqliteReader) -> Iterator[str]:
    """Of a store that lacks what its mark tells of."""
    if left == mark.UNREADABLE:
        yield f"the file {mark.MARK} beside the store cannot be read: whether the store ends too early is not known"
    had = store.last_commit()
    if left and had < left[1]:
        yield f"the store ends at {mark.said(had)}, and its server wrote to it until {mark.said(left[1])}"


def _pages(store: SqliteReader) -> Iterator[str]:
    return (f"the file is damaged: {text}" for (text,) in store.select("PRAGMA integrity_check") if text != "ok")


def _migrations(store: SqliteReader) -> Iterator[str]:
    found = store.select(f"SELECT name FROM {schema.LIST} WHERE migration_set = 'mombroker'")
    if sorted(str(name) for (name,) in found) != schema.names(store.schema):
        yield f"table {schema.LIST} is damaged: it does not list the migrations of schema {store.schema}"


def _sums(store: SqliteReader) -> Iterator[str]:
    """Rows that are not what was written, and messages of queues that cannot be read."""
    queues = {id for id, path in store.select("SELECT id, class FROM agent") if path in (Queue.path, Subscription.path)}
    for table in TABLES:
        for row, whole in store.rows(table):
            if not whole:
                yield f"row {_place(table, row)} of table {table} is damaged: it is not what was written"
            elif row[1] in queues and (table == "held" or (table == "message" and row[2] in QUEUED)):
                try:
                    item_of(HeldRow(*row) if table == "held" else ItemRow(*row))
                except StoreError as error:
                    yield f"row {_place(table, row)} of table {table} is damaged: {error}"


def _place(table: str, row: Row) -> str:
    """The key of a row, and of a message whose it is."""
    if table in ("queue_in", "message", "held", "task"):
        return f"{row[0]} of {plain(str(row[1]))}"
    return " ".join(plain(str(value)) for value in row[: {"core": 3}.get(table, 1)])


def _own(store: SqliteReader) -> dict[str, tuple[list[str], str, dict[str, object]]]:
    """The domains of this server: members, back end, options, as its clocks were made under."""
    order = json.loads(str(store.meta()[ORDER]))
    return {name: (d["members"], d["backend"], d["options"]) for name, d in order.items() if "backend" in d}


def _links(store: SqliteReader) -> Iterator[str]:
    own = _own(store)
    for link in store.links():
        if link.domain not in own or link.peer not in own[link.domain][0]:
            yield f"link {link.id} is to {link.peer} in domain {link.domain}, which is no neighbour"


def _queue_out(store: SqliteReader) -> Iterator[str]:
    links = {link.id: link for link in store.links()}
    counted = store.select(
        "SELECT id >> ?, min(id), max(id), count(*) FROM queue_out GROUP BY id >> ?", LINK_BITS, LINK_BITS
    )
    queues = {link: (low - (link << LINK_BITS), high - (link << LINK_BITS), rows) for link, low, high, rows in counted}
    for id in sorted(queues.keys() - links.keys()):
        yield f"the out-queue of link {id} has {many(queues[id][2], 'packet')}, but there is no such link"
    for id, link in links.items():
        name = f"the out-queue to {link.peer} in domain {link.domain}"
        low, high, rows = queues.get(id, (link.sent + 1, link.sent, 0))
        if link.acked > link.sent:
            yield f"{name}: {many(link.acked, 'packet is', 'packets are')} acknowledged, but only {link.sent} were sent"
        elif (low, high) != (link.acked + 1, link.sent):
            yield f"{name} holds {_range(low, high)}, but not acknowledged is {_range(link.acked + 1, link.sent)}"
        if rows != high - low + 1:
            yield f"{name} lacks {many(high - low + 1 - rows, 'packet')} between {low} and {high}"


def _range(low: int, high: int) -> str:
    return f"{low}..{high}" if low <= high else "nothing"


def _queue_in(store: SqliteReader) -> Iterator[str]:
    meta, after = store.meta(), 0
    sql = f"SELECT id, agent, {store.message_in()} FROM queue_in WHERE id > ? ORDER BY id LIMIT ?"
    while rows := store.select(sql, after, PAGE):
        for id, agent, data, shared in rows:
            if data is None:
                yield f"message {id} for {agent} has lost its payload {shared}, which it shared with others"
                continue
            if agent.partition("/")[0] != meta[SERVER]:
                yield f"message {id} waits for {agent}, which does not live here"
            try:
                decode(data)
            except MomError as error:
                yield f"message {id} for {agent} cannot be read: {error}"
        after = rows[-1][0]
    for table in ("queue_in", "message", "task", *store.tables_since(3, "held"), *store.tables_since(4, "payload")):
        last = store.select(f"SELECT max(id) FROM {table}")[0][0] or 0
        if last > int(meta.get(NEXT, 0)):
            yield f"id {last} in table {table} is above the mark of used ids, {meta.get(NEXT, 0)}"


def _strangers(store: SqliteReader, table: str) -> list[tuple[str, int]]:
    """Agents with rows in a table that are not there; those whose name starts with `_` are the server itself."""
    gone = f" AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '{DROPPED}' || agent AND value >= {table}.id)"
    rows = store.select(
        f"SELECT agent, count(*) FROM {table} WHERE agent NOT IN (SELECT id FROM agent)"
        f"{gone if table == 'message' else ''} GROUP BY agent ORDER BY agent"
    )
    return [(agent, count) for agent, count in rows if "/_" not in agent]


def _items(store: SqliteReader) -> Iterator[str]:
    for table in ("message", *store.tables_since(3, "held")):
        for agent, count in _strangers(store, table):
            yield f"{many(count, 'item')} of agent {agent} without such an agent"


def _tasks(store: SqliteReader) -> Iterator[str]:
    for agent, count in _strangers(store, "task"):
        tasks = many(count, "timer or deferred function", "timers or deferred functions")
        yield f"{tasks} of agent {agent} without such an agent"
    for task in store.tasks():
        if task.kind == "timer" or task.kind.startswith(EVERY):
            try:
                decode(task.data)
            except MomError as error:
                yield f"timer {task.id} of {task.agent} cannot be read: {error}"


def _cores(store: SqliteReader) -> Iterator[str]:
    own, meta = _own(store), store.meta()
    server = str(meta[SERVER])
    for (name,) in store.select("SELECT DISTINCT domain FROM core ORDER BY domain"):
        if name not in own:
            yield f"there are clocks of domain {name}, which this server is not in"
    for name, (members, backend, options) in own.items():
        me = members.index(server)
        try:
            times = resets(int(meta.get(EPOCH + name, 0)))
            resolved = ordering.resolved(backend, tuple(members), options, times)
            core = ordering.restore(backend, me, len(members), store.core(name), **resolved)
            core.check()
            for packet, missing in core.held():
                if not missing:
                    yield f"domain {name} holds a message from {members[packet.origin]} that waits for nothing"
                if me in packet.dests:
                    decode(packet.body)
        except Exception as error:  # a back end may stumble over damaged rows in any way
            yield f"the clocks of domain {name} ({backend}) are damaged: {type(error).__name__}: {error}"


def _log(store: SqliteReader) -> Iterator[str]:
    due, after = 0, 0
    while rows := store.select("SELECT id, count, columns FROM log WHERE id > ? ORDER BY id LIMIT 100", after):
        for id, count, data in rows:
            if due and id != due:
                yield f"log records {due}..{id - 1} are missing"
            try:
                columns.unpack(data, count)
            except ValueError as error:
                yield f"log records {id}..{id + count - 1} cannot be read: {error}"
            due = id + count
        after = rows[-1][0]


def backup(
    path: str | PathLike[str], target: str | PathLike[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Copy a store, as of one commit, into the new file `target`, which appears when it is whole."""
    goal = Path(target)
    draft = goal.with_name(f"{goal.name}.part")
    if goal.exists():
        raise StoreError(f"{goal} exists already; name a new file")
    with contextlib.closing(SqliteReader(path)) as store, store.snapshot(), contextlib.ExitStack() as undo:
        store.meta()  # from here on: as of this commit
        try:
            os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
            undo.callback(draft.unlink)
            with contextlib.closing(connect(draft, "rw")) as copy:
                store.reader.backup(
                    copy, pages=PAGE, progress=lambda _, left, total: progress and progress(total - left, total)
                )
                copy.execute("PRAGMA journal_mode = DELETE")  # one plain file
            os.link(draft, goal)  # never over another file
            folder.sync(goal.parent)
        except FileExistsError:
            raise StoreError(f"{goal} exists already; name a new file") from None
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise StoreError(f"cannot write {goal}: {reason}; name a file in a folder with room") from None


def compact(home: Path) -> tuple[int, int]:
    """Write the store of a stopped server anew: indexes too, and so that it can shrink by itself later."""
    file = home / folder.STORE
    lock = folder.Lock(home)
    try:
        SqliteReader(home).close()  # raises for what is no store of ours
        before = file.stat().st_size
        with contextlib.closing(connect(file, "rw")) as conn:
            conn.execute("PRAGMA synchronous = FULL")
            conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
            conn.execute("REINDEX")
            conn.execute("VACUUM")
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return before, file.stat().st_size
    except sqlite3.Error as error:
        raise refusal(file, error) from None
    finally:
        lock.release()
