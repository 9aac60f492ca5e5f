"""One message of a queue, in memory and as a row."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

import msgpack

from mombroker.broker.message import ClientMessage, row_of
from mombroker.broker.wire import pack
from mombroker.core.batch import HeldRow, ItemRow
from mombroker.core.errors import StoreError

NOWHERE, WAITING, HELD = 0, 1, 2  # where an item's row is: tables `message`, in the collection of its lane, and `held`
_row = tuple.__new__  # half the time of ItemRow(...)
PREFIX = Struct(">IIQQH")  # count, failures, due, x, bytes of the holder's name


class QueuedMessage:
    """One message of a queue.

    id, message   its row, and the id of the message that brought it
    put           None while only the row has it
    count         deliveries so far; `failures` are those that its consumers gave back
    due           not to be given before, ns
    x             row of its expiry, 0 = none
    holder        proxy that has it, "" = none
    stored        it has a row, or gets one in the open batch; `place` says where
    """

    __slots__ = (
        "id", "lane", "message", "put", "group", "size", "count", "failures", "due", "x", "holder", "stored", "place",
    )  # fmt: skip

    def __init__(self, id: int, lane: int, message: str, put: ClientMessage):
        self.id, self.lane, self.message = id, lane, message
        self.put: ClientMessage | None = put
        self.group, self.size = put.group, put.size
        self.count = self.failures = self.due = self.x = self.place = 0
        self.holder = ""
        self.stored = False

    def row(self, queue: str, collection: str) -> ItemRow:
        return _row(ItemRow, (self.id, queue, collection, 0, *self._packed()))

    def held_row(self, queue: str) -> HeldRow:
        return _row(HeldRow, (self.id, queue, *self._packed()))

    def _packed(self) -> tuple[bytes, bytes]:
        """Head and body of its row."""
        put = self.put
        assert put is not None, "a message in memory"
        holder = self.holder.encode()
        head = PREFIX.pack(self.count, self.failures, self.due, self.x, len(holder))
        return b"".join((head, holder, pack((self.message, self.lane) + row_of(put)))), put.body


def item_of(row: ItemRow | HeldRow) -> QueuedMessage:
    """Raises StoreError for a row that is no message."""
    try:
        count, failures, due, x, named = PREFIX.unpack_from(row.head)
        start = PREFIX.size + named
        message, lane, *values = msgpack.unpackb(row.head[start:], strict_map_key=False)
        item = QueuedMessage(row.id, lane, message, ClientMessage.of_row(values, row.body))
        item.holder = row.head[PREFIX.size : start].decode()
    except (StructError, TypeError, ValueError) as error:
        raise StoreError(f"message {row.id} of {row.agent} cannot be read: {error}") from None
    item.count, item.failures, item.due, item.x = count, failures, due, x
    item.stored, item.place = True, HELD if isinstance(row, HeldRow) else WAITING
    return item
