"""What a queue keeps by time, on disk: its delayed messages, and when which of its messages expires."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.lane import readable
from mombroker.core.batch import ItemRow

if TYPE_CHECKING:
    from mombroker.broker.queue.messages import QueueMessages

DELAYED, EXPIRING = "d", "x"
EXPIRY = Struct(">QB")  # id and lane of the message
PAGE = 64


class Schedule:
    """Collections in order of time; their changes belong to the open batch at once."""

    __slots__ = ("queue", "delayed", "expiring", "swept")

    def __init__(self, queue: QueueMessages):
        self.queue = queue
        self.swept: tuple[int, int] | None = None  # how far a purge of the delayed ones has come
        self.delayed, self.expiring = queue.collection(DELAYED), queue.collection(EXPIRING)

    def delay(self, item: QueuedMessage) -> None:
        assert item.put is not None, "a new message"
        item.stored = True
        row = item.row(self.queue.id, DELAYED)
        self.delayed.add(item.put.due, row.head, row.body)
        self.queue.accept(self.delayed)

    def due(self, now: int) -> list[QueuedMessage]:
        """Take down delayed messages whose time has come. At most a page."""
        return self._take([row for row in self.delayed.scan(None, PAGE) if row.key <= now])

    def drop(self, upto: int) -> list[QueuedMessage] | None:
        """Take down delayed messages that came up to this id, of the next page; None after the last one."""
        rows = self.delayed.scan(self.swept, PAGE)
        self.swept = (rows[-1].key, rows[-1].id) if rows else None
        return self._take([row for row in rows if row.id <= upto]) if rows else None

    def pop(self) -> QueuedMessage | None:
        """Take down the delayed message that is due first."""
        return next(iter(self._take(self.delayed.scan(None, 1))), None)

    def _take(self, rows: list[ItemRow]) -> list[QueuedMessage]:
        found = readable(self.queue.server, rows)
        for item in found:
            self.delayed.remove(item.id)
        self.queue.accept(self.delayed)
        return found

    def expire(self, item: QueuedMessage, at: int) -> None:
        item.x = self.expiring.add(at, EXPIRY.pack(item.id, item.lane))
        self.queue.accept(self.expiring)

    def forget(self, item: QueuedMessage) -> None:
        if item.x:
            self.expiring.remove(item.x)
            self.queue.accept(self.expiring)
            item.x = 0

    def expired(self, now: int) -> list[tuple[int, int]]:
        """Take down expiries whose time has come: (id, lane). At most a page."""
        found = []
        for row in self.expiring.scan(None, PAGE):
            if row.key > now:
                break
            self.expiring.remove(row.id)
            if len(row.head) == EXPIRY.size:  # else it is damaged, and the message expires when it is to be given
                found.append(EXPIRY.unpack(row.head))
        self.queue.accept(self.expiring)
        return found

    def next(self) -> int:
        """When something is due next; 0 = never."""
        firsts = [row.key for collection in (self.delayed, self.expiring) for row in collection.scan(None, 1)]
        return min(firsts, default=0)
