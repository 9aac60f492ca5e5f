"""Faults in logs that were without any, in an export or in the stores themselves: what a broker that breaks its
promises would have logged."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mombroker import store
from mombroker.admin.analysis import files
from mombroker.core.trace import FIELDS
from mombroker.store import columns
from mombroker.store.folder import STORE

Rows = dict[str, list[dict[str, Any]]]  # of each server
NOTHING = {"kind": "relay", "origin": "", "number": 0, "agent": "", "dests": []}
Id = tuple[str, int]


def read(target: Path) -> Rows:
    found: Rows = defaultdict(list)
    if not files.is_export(target):
        for folder in sorted(path.parent for path in target.glob(f"*/{STORE}")):
            reader = store.read(folder)
            found[folder.name] = [
                {**record._asdict(), "dests": list(record.dests)} for _, record in reader.log(0, 1 << 40)
            ]
            reader.close()
        return found
    for file in files.chosen(target):
        found[file.server] += pq.ParquetFile(file.path).read(["kind", "origin", "number", "agent", "dests"]).to_pylist()
    return found


def change(target: Path, server: str, at: int, row: dict[str, Any]) -> None:
    """Record `at` + 1 of this server's log becomes this one."""
    if not files.is_export(target):
        _change_store(target / server / STORE, at, row)
        return
    file = next(file for file in files.chosen(target) if file.server == server and file.lo <= at + 1 <= file.hi)
    table = pq.ParquetFile(file.path).read()
    place = at + 1 - file.lo
    for name, value in row.items():
        column = table.column(name)
        new = pa.chunked_array(
            [column[:place].combine_chunks(), pa.array([value], column.type), column[place + 1 :].combine_chunks()]
        )
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), new)
    pq.write_table(table, file.path)


def _change_store(path: Path, at: int, row: dict[str, Any]) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        sql = "SELECT id, count, columns FROM log WHERE id <= ? ORDER BY id DESC LIMIT 1"
        id, count, data = db.execute(sql, (at + 1,)).fetchone()
        records = columns.unpack(data, count)
        values = {**dict(zip(FIELDS, records[at + 1 - id], strict=True)), **row}
        records[at + 1 - id] = tuple(values[name] for name in FIELDS)
        db.execute("UPDATE log SET columns = ?, sum = NULL WHERE id = ?", (columns.pack(records), id))


def cut_out(target: Path, server: str, at: int) -> None:
    """The records of one commit, that of record `at` + 1, are gone from a store."""
    with closing(sqlite3.connect(target / server / STORE)) as db, db:
        db.execute("DELETE FROM log WHERE id = (SELECT max(id) FROM log WHERE id <= ?)", (at + 1,))


def _id(row: dict[str, Any]) -> Id:
    return row["origin"], row["number"]


def _ended(rows: Rows) -> set[tuple[str, Id]]:
    kinds = ("expire", "dead", "drop", "redeliver")
    return {(row["agent"], _id(row)) for log in rows.values() for row in log if row["kind"] in kinds}


def _reactions(log: list[dict[str, Any]], rows: Rows) -> list[int]:
    """Places of reactions that an auditor judges."""
    ended = _ended(rows)
    return [
        at for at, row in enumerate(log)
        if row["kind"] == "react" and "/_" not in row["agent"] and (row["agent"], _id(row)) not in ended
    ]  # fmt: skip


def lost(target: Path, server: str) -> tuple[str, Id]:
    """A message to this server is sent, and never reacted to."""
    rows = read(target)
    at = _reactions(rows[server], rows)[-1]
    change(target, server, at, NOTHING)
    return rows[server][at]["agent"], _id(rows[server][at])


def duplicate(target: Path, server: str) -> tuple[str, Id]:
    """A message is reacted to again, later."""
    rows = read(target)
    log = rows[server]
    reactions = _reactions(log, rows)
    at = reactions[len(reactions) // 3]
    later = next(place for place in range(at + 1, len(log)) if log[place]["kind"] == "commit")
    change(target, server, later, log[at])
    return log[at]["agent"], _id(log[at])


def unsent(target: Path, server: str) -> tuple[str, Id]:
    """A message is reacted to that nobody has sent."""
    rows = read(target)
    judged = {
        _id(rows[each][at]): rows[each][at]["agent"]
        for each in rows
        if each != server
        for at in _reactions(rows[each], rows)
    }
    log = rows[server]
    sends = [
        at for at, row in enumerate(log) if row["kind"] == "send" and len(row["dests"]) == 1 and _id(row) in judged
    ]
    at = sends[len(sends) // 2]
    change(target, server, at, NOTHING)
    return judged[_id(log[at])], _id(log[at])


def swapped(target: Path, server: str) -> tuple[str, Id, Id]:
    """Two messages of one sender are reacted to in the wrong order: (agent, the late one, the one before it)."""
    rows = read(target)
    log = rows[server]
    senders = {_id(row): row["agent"] for each in rows.values() for row in each if row["kind"] == "send"}
    reactions = set(_reactions(log, rows))
    last: dict[str, int] = {}  # the last event of each agent
    found: list[tuple[int, int]] = []
    for at, row in enumerate(log):
        if row["kind"] not in ("send", "react"):
            continue
        before = last.get(row["agent"])
        if before in reactions and at in reactions:
            one, other = _id(log[before]), _id(row)
            if senders.get(one, 1) == senders.get(other, 2) and one[1] < other[1]:
                found.append((before, at))
        last[row["agent"]] = at
    one, other = found[len(found) // 2]
    change(target, server, one, log[other])
    change(target, server, other, log[one])
    return log[one]["agent"], _id(log[one]), _id(log[other])


def unforwarded(target: Path, server: str) -> None:
    """What a router has passed on is not in its log."""
    log = read(target)[server]
    forwards = [at for at, row in enumerate(log) if row["kind"] == "forward"]
    change(target, server, forwards[len(forwards) // 2], NOTHING)


def cyclic(target: Path, server: str) -> bool:
    """What answers an agent comes to it before what it has answered by that; False where there is no such pair."""
    rows = read(target)
    log, reactions = rows[server], set(_reactions(rows[server], rows))
    events = {each: [row for row in rows[each] if row["kind"] in ("send", "react")] for each in rows}
    cause: dict[Id, Id] = {}  # of a message: the one whose reaction has sent it
    for each in events.values():
        last: dict[str, Id] = {}
        for row in each:
            if row["kind"] == "react":
                last[row["agent"]] = _id(row)
            elif row["agent"] in last:
                cause[_id(row)] = last[row["agent"]]
    taken = {(log[at]["agent"], _id(log[at])): at for at in reactions}
    for (agent, id), at in taken.items():
        first = cause.get(cause.get(id, ("", 0)), ("", 0))
        if before := taken.get((agent, first)):
            one, other = log[before], log[at]
            change(target, server, before, other)
            change(target, server, at, one)
            return True
    return False
