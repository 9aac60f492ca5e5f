"""What can still be read of the messages of a damaged store, as plain data, one dict a message."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

import msgpack

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.item import item_of
from mombroker.broker.queue.messages import LANES
from mombroker.broker.queue.schedule import DELAYED
from mombroker.core.batch import HeldRow, ItemRow
from mombroker.core.damage import DAMAGED
from mombroker.core.errors import PeerError, StoreError, plain
from mombroker.core.message import decode
from mombroker.store import sums
from mombroker.store.reader import TABLES, Row, SqliteReader

MESSAGES = ("held", "message", "queue_in")  # the tables that are read
QUEUED = {*LANES, DELAYED}
Lines = Callable[[ClientMessage], list[str]]


def salvage(path: str | PathLike[str], lines: Lines | None = None) -> Iterator[dict[str, Any]]:
    """Each message: `table`, `id`, `agent`, whether it is `whole`, and as much of it as can be told.

    A message of a queue has destination, headers, the `lines` in which a protocol shows them, properties and body; one
    for an agent has source, type and body; of any other row, `columns`. Bytes that are no text are in base64, under
    `..._base64`. Where pages of the file cannot be read the last dict of a table has `error`.
    """
    with contextlib.closing(SqliteReader(path, damaged=True)) as store:
        for table in MESSAGES:
            if store.has(table):
                yield from Salvage(store, lines).table(table)


class Salvage:
    """Of one store. `lines`: how a protocol shows the headers of a message, if somebody wants to see that."""

    def __init__(self, store: SqliteReader, lines: Lines | None):
        self.store, self.lines = store, lines

    def table(self, table: str) -> Iterator[dict[str, Any]]:
        seen = yield from self._rows(table, "ASC", None)
        if seen is not None:  # a page cannot be read: go on from the other end
            _, error = seen
            yield from self._rows(table, "DESC", seen[0])
            yield {"table": table, "error": f"some rows cannot be read: {error}"}

    def _rows(self, table: str, way: str, upto: int | None) -> Any:
        """The rows of a table from one end. Returns the last id that was read, and why there was no more."""
        of, last = TABLES[table][1], 0
        where = "" if upto is None else f" WHERE id > {upto}"
        sql = f"SELECT {self.store.columns(table)}, {self.store.sum} FROM {table}{where} ORDER BY id {way}"
        try:
            for row in self.store.stream(sql):
                last = row[0]
                yield self._described(table, row[:-1], not sums.wrong(of, row))
        except sqlite3.Error as error:
            return last, error
        return None

    def _described(self, table: str, row: Row, whole: bool) -> dict[str, Any]:
        if table == "message" and row[2] == DAMAGED and str(row[1]).endswith("/_dead"):
            return self._set_aside(row)
        found: dict[str, Any] = {"table": table, "id": row[0], "agent": plain(str(row[1])), "whole": whole}
        try:
            if table == "queue_in":
                return found | self._for_agent(row)
            if table == "held" or row[2] in QUEUED:
                return found | self._queued(HeldRow(*row) if table == "held" else ItemRow(*row))
        except (StoreError, PeerError, TypeError, ValueError):
            found["whole"] = False
        return found | {"columns": [_value(value) for value in row]}

    def _set_aside(self, row: Row) -> dict[str, Any]:
        """A row that the server has set aside, as it was in its table."""
        try:
            head = json.loads(row[4])
            columns = msgpack.unpackb(row[5], use_list=False, unicode_errors="surrogateescape")
            columns = columns[: len(self.store.columns(head["table"]).split(", "))]
            return self._described(head["table"], columns, False) | {"set_aside": True}
        except (KeyError, TypeError, ValueError):
            return {"table": "message", "id": row[0], "whole": False, "columns": [_value(value) for value in row]}

    def _queued(self, row: HeldRow | ItemRow) -> dict[str, Any]:
        item = item_of(row)
        message = item.message
        assert message is not None, "it was just read"
        lines = {"lines": self.lines(message)} if self.lines else {}
        return {
            "message": item.message_id, **message.told(), **lines, "deliveries": item.count,
            **_bytes("body", message.body),
        }  # fmt: skip

    def _for_agent(self, row: Row) -> dict[str, Any]:
        data = row[2]
        if row[9]:
            shared = self.store.select("SELECT data FROM payload WHERE id = ?", row[9])
            data += shared[0][0] if shared else b""
        message = decode(data)
        return {
            "message": f"{message.origin}#{message.number}", "source": message.source, "type": message.type,
            "sent": message.sent, "expires": message.expires, **_bytes("body", message.payload),
        }  # fmt: skip


def _bytes(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}


def _value(value: object) -> object:
    if isinstance(value, bytes):
        return _bytes("bytes", value)
    return plain(value) if isinstance(value, str) else value
