"""One message of a queue, in memory and as a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError

import msgpack

from mombroker.broker.message import PUT, Alike, ClientMessage, row_of
from mombroker.broker.wire import array, pack
from mombroker.core.batch import Damage, HeldRow, ItemRow, Reader
from mombroker.core.errors import StoreError

NOWHERE, WAITING, HELD = 0, 1, 2  # where an item's row is: tables `message`, in the collection of its lane, and `held`
_row = tuple.__new__  # half the time of ItemRow(...)
ROW = array(len(PUT) + 1)  # message id and lane, and a message without its body
PREFIX = Struct(">IIQQH")  # count, failures, due, row of its expiry, bytes of the holder's name


class QueuedMessage:
    """One message of a queue.

    id          its row; ids are in the order in which the queue received them
    message     what the client sent; None while only the row has it
    message_id  the id of the message that brought it
    count       deliveries so far; `failures` are those that its consumers gave back
    due         not to be given before, ns
    expiry_row  row of its expiry, 0 = none
    holder      session that has it, "" = none
    stored      it has a row, or gets one in the open batch; `place` says where
    """

    __slots__ = (
        "id", "lane", "message_id", "message", "group", "size", "count", "failures", "due", "expiry_row", "holder",
        "stored", "place",
    )  # fmt: skip

    def __init__(self, id: int, lane: int, message_id: str, message: ClientMessage):
        self.id, self.lane, self.message_id = id, lane, message_id
        self.message: ClientMessage | None = message
        self.group, self.size = message.group, message.size
        self.count = self.failures = self.due = self.expiry_row = self.place = 0
        self.holder = ""
        self.stored = False

    def row(self, queue: str, collection: str) -> ItemRow:
        return _row(ItemRow, (self.id, queue, collection, 0, *self._packed()))

    def held_row(self, queue: str) -> HeldRow:
        return _row(HeldRow, (self.id, queue, *self._packed()))

    def _packed(self) -> tuple[bytes, bytes]:
        """Head and body of its row."""
        message = self.message
        assert message is not None, "a message in memory"
        holder = self.holder.encode()
        head = PREFIX.pack(self.count, self.failures, self.due, self.expiry_row, len(holder))
        alike = message.alike
        if alike is None:
            return b"".join((head, holder, pack((self.message_id, self.lane) + row_of(message)))), message.body
        return b"".join(
            (head, holder, ROW, pack(self.message_id), pack(self.lane), *alike.packed(message, message.form))
        ), message.body


def alike(one: QueuedMessage, other: QueuedMessage) -> bool:
    """Of two that are ready in a lane: do their rows, if they have any, differ in id and message alone, and their
    messages as `Alike` says?"""
    first, second = one.message, other.message
    return (
        first is not None and second is not None and first.alike is not None and first.alike is second.alike
        and one.count == other.count and one.failures == other.failures and one.expiry_row == other.expiry_row
        and one.stored == other.stored and one.place == other.place
    )  # fmt: skip


def item_rows(items: Sequence[QueuedMessage], queue: str, collection: str) -> Iterator[ItemRow]:
    """As `row` of each. They are `alike`."""
    for item, (head, body) in zip(items, _all_packed(items), strict=True):
        yield _row(ItemRow, (item.id, queue, collection, 0, head, body))


def held_rows(items: Sequence[QueuedMessage], queue: str) -> Iterator[HeldRow]:
    """As `held_row` of each. They are `alike`."""
    for item, (head, body) in zip(items, _all_packed(items), strict=True):
        yield _row(HeldRow, (item.id, queue, head, body))


def _all_packed(items: Sequence[QueuedMessage]) -> Iterator[tuple[bytes, bytes]]:
    """As `_packed` of each: what all heads begin and end with is made once."""
    message = items[0].message
    assert message is not None and message.alike is not None, "messages alike in memory"
    alike, one = message.alike, items[0]
    holder = one.holder.encode()
    start = PREFIX.pack(one.count, one.failures, one.due, one.expiry_row, len(holder)) + holder + ROW
    end = pack(one.lane)
    if not alike.own:
        end += b"".join(alike.packed(message, b""))
    for item in items:
        message = item.message
        assert message is not None, "a message in memory"
        head = start + pack(item.message_id) + end
        if alike.own:
            head += b"".join(alike.packed(message, message.form))
        yield head, message.body


# Of rows that are read together, by all that is behind id and lane: a message of such, or what several have in common.
Known = dict[bytes, ClientMessage | Alike]


def item_of(row: ItemRow | HeldRow, known: Known | None = None) -> QueuedMessage:
    """Raises StoreError for a row that is no message."""
    try:
        count, failures, due, expiry_row, named = PREFIX.unpack_from(row.head)
        start = PREFIX.size + named
        behind = _behind(row.head, start) if known is not None else 0
        alike = _alike(known, row.head[behind:]) if known is not None and behind else None
        if alike is not None:
            message_id, lane = msgpack.unpackb(row.head[start + len(ROW) : behind - 1]), row.head[behind - 1]
            message = alike.message(row.body)
        else:
            message_id, lane, *values = msgpack.unpackb(row.head[start:], strict_map_key=False)
            message = ClientMessage.of_row(values, row.body)
            if known is not None and behind and not (message.expires or message.due):  # which others may change
                known[row.head[behind:]] = message
        item = QueuedMessage(row.id, lane, message_id, message)
        item.holder = row.head[PREFIX.size : start].decode()
    except (StructError, TypeError, ValueError, IndexError) as error:
        raise StoreError(f"message {row.id} of {row.agent} cannot be read: {error}") from None
    item.count, item.failures, item.due, item.expiry_row = count, failures, due, expiry_row
    item.stored, item.place = True, HELD if isinstance(row, HeldRow) else WAITING
    return item


def _behind(head: bytes, start: int) -> int:
    """Where id and lane end in a row that is as `_packed` makes it; 0 in another one."""
    if not head.startswith(ROW, start):
        return 0
    at = start + len(ROW)
    kind = head[at]
    if kind & 0xE0 == 0xA0:  # a text of up to 31 bytes,
        at += 1 + (kind & 0x1F)
    elif kind == 0xD9:  # or 255
        at += 2 + head[at + 1]
    else:
        return 0
    return at + 1 if head[at] < 0x80 else 0  # a lane is a small number


def _alike(known: Known, packed: bytes) -> Alike | None:
    """What messages of which all but body and id is packed so have in common, if there was one before."""
    found = known.get(packed)
    if isinstance(found, ClientMessage):
        found = known[packed] = Alike(found)
    return found


def readable(reader: Reader, rows: Iterable[ItemRow | HeldRow]) -> list[QueuedMessage]:
    """The messages of these rows; one that cannot be read is named as damaged, and set aside soon."""
    found: list[QueuedMessage] = []
    known: Known = {}
    for row in rows:
        try:
            found.append(item_of(row, known))
        except StoreError:
            table, collection = ("held", "") if isinstance(row, HeldRow) else ("message", row.collection)
            packed = msgpack.packb(tuple(row))
            reader.damaged.append(Damage(table, row.id, row.agent, collection, len(row.body), packed))
    return found
