"""What was published to a topic in total order, and is not due yet: it waits at the home, in rows.

Readers would wait by their own clocks, and what comes meanwhile would be before it for one and behind it for another.
"""

from __future__ import annotations

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.queue.departure import PAGE_BYTES
from mombroker.broker.queue.item import QueuedMessage, readable
from mombroker.broker.queue.schedule import DELAYED, PAGE, SOON
from mombroker.core.batch import ItemRow


class Delays:
    """1. An alarm is set for what is due first.

    at   when that is, 0 = nothing waits
    """

    __slots__ = ("topic", "rows", "at")

    def __init__(self, topic: Native):
        self.topic, self.rows, self.at = topic, topic.collection(DELAYED), 0
        self.await_next()

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, message: ClientMessage, source: str, id: str) -> None:
        """`source` has published it, by the message `id`."""
        item = QueuedMessage(0, 0, id, message)
        item.holder = source
        row = item.row(self.topic.id, DELAYED)
        self.rows.add(message.due, row.head, row.body)
        self.topic.accept(self.rows)
        if not self.at or message.due < self.at:
            self._alarm_at(message.due)

    def due(self) -> list[ClientMessage]:
        """Take out what is due, in its order; at most a page."""
        now = self.topic.tx.now
        found = self._take(now) if 0 < self.at <= now else []
        return [item.message for item in found if item.message is not None]

    def page(self) -> list[QueuedMessage]:
        """Take out the next page, due or not; `holder` of each has published it."""
        return self._take(None)

    def _take(self, until: int | None) -> list[QueuedMessage]:
        rows, size = list[ItemRow](), 0
        for row in self.rows.scan(None, PAGE):
            if (until is None or row.key <= until) and size < PAGE_BYTES:
                rows.append(row)
                size += len(row.body)
        found = readable(self.topic.tx.reader, rows)
        for item in found:
            self.rows.remove(item.id)
        self.topic.accept(self.rows)
        self.await_next()
        return found

    def await_next(self) -> None:
        first = self.rows.scan(None, 1)
        self.at = 0
        if first:
            self._alarm_at(first[0].key)

    def _alarm_at(self, at: int) -> None:
        self.at = at
        self.topic.alarm_at(max(at, self.topic.tx.now + SOON))

    def check(self) -> None:
        first = self.rows.scan(None, 1)
        assert self.at == (first[0].key if first else 0), "1: no alarm for what is due first"
