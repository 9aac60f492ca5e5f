"""The waiting messages of one queue and one priority: the oldest in memory, the rest on disk, always in order of id."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mombroker.broker.queue.item import QueuedMessage, alike, readable
from mombroker.core.transaction import Transaction

PAGE, PAGE_LEAST, PAGE_BYTES = 256, 8, 1 << 20  # of messages read from disk at once
MEMORY = 16 << 20  # bytes of one lane in memory
MEMORY_ALL, MEMORY_LEAST = 256 << 20, 64 << 10  # of all lanes; and of each one even then
OVERHEAD = 1_000  # bytes of an item beside headers and body


class Pool:
    """The memory of all lanes of a server."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class Lane:
    """1. `items` is the window in memory: all ready messages up to `cursor`, and later ones that a consumer returned.
    2. `rest` more, all above `cursor`, are only on disk.
    3. `ids` from `start` on is sorted; it names those in `items`, and some that have left.
    4. `taken` are ids above `cursor` that do not wait, but may still be read from disk as if they did.
    5. `unstored` of those in memory have no row.

    last    nothing in it has a higher id
    lacks   is told when the store has fewer than `rest`
    whole   everything stays in memory
    """

    __slots__ = (
        "tx", "pool", "queue", "number", "name", "ids", "start", "items", "cursor", "last", "rest", "taken",
        "bytes", "page", "unstored", "lacks", "whole",
    )  # fmt: skip

    def __init__(
        self, tx: Transaction, pool: Pool, queue: str, number: int, lacks: Callable[[Lane], None], whole: bool = False
    ):
        self.tx, self.pool, self.queue, self.number, self.name = tx, pool, queue, number, f"p{number}"
        self.ids: list[int] = []
        self.start = 0
        self.items: dict[int, QueuedMessage] = {}
        self.cursor = 0
        self.last = 0
        self.rest, self.lacks, self.whole = 0, lacks, whole
        self.unstored = 0
        self.taken: dict[int, int] = {}  # id -> batch that changes its row
        self.bytes = 0
        self.page = PAGE_LEAST

    def __len__(self) -> int:
        return len(self.items) + self.rest

    def append(self, item: QueuedMessage) -> None:
        """A new message, behind all others. One that is not kept in memory is `stored`: it needs a row in any case."""
        self.last = item.id
        if self.rest or (not self.whole and self._full()):
            item.stored = True
            self.rest += 1
            return
        self.cursor = item.id
        self.ids.append(item.id)
        self._keep(item)

    def _full(self) -> bool:
        return self.bytes >= MEMORY or (self.bytes >= MEMORY_LEAST and self.pool.bytes >= MEMORY_ALL)

    def _keep(self, item: QueuedMessage) -> None:
        self.items[item.id] = item
        self.unstored += not item.stored
        self.bytes += item.size + OVERHEAD
        self.pool.bytes += item.size + OVERHEAD

    def back(self, item: QueuedMessage) -> None:
        """A message that was taken waits again, at its place."""
        at = bisect_left(self.ids, item.id, self.start)
        if at == len(self.ids) or self.ids[at] != item.id:
            self.ids.insert(at, item.id)
        self.last = max(self.last, item.id)
        self._keep(item)

    def take(self, item: QueuedMessage) -> None:
        """It waits no more."""
        if self.items.pop(item.id, None) is None:
            self.rest -= 1
        else:
            self.unstored -= not item.stored
            self.bytes -= item.size + OVERHEAD
            self.pool.bytes -= item.size + OVERHEAD
        if item.id > self.cursor:
            self.taken[item.id] = self.tx.rows.number

    def take_all(self, items: Sequence[QueuedMessage]) -> None:
        """As `take` of each; they are in memory, in order."""
        waiting, size, unstored = self.items, 0, 0
        for item in items:
            del waiting[item.id]
            size += item.size + OVERHEAD
            unstored += not item.stored
        self.unstored -= unstored
        self.bytes -= size
        self.pool.bytes -= size
        if items[-1].id > self.cursor:
            number = self.tx.rows.number
            self.taken.update((item.id, number) for item in items if item.id > self.cursor)

    def run(self, first: QueuedMessage, most: int, size: int) -> list[QueuedMessage]:
        """The first message, and what is behind it in memory and alike: at most so many, and with less than so many
        bytes before the last of them."""
        ids, items, found = self.ids, self.items, [first]
        size -= first.size
        for at in range(self.start + 1, min(self.start + most, len(ids))):
            item = items.get(ids[at])
            if item is None:
                continue
            if size <= 0 or (self.rest and item.id > self.cursor) or not alike(first, item):
                break
            found.append(item)
            size -= item.size
        return found

    def first(self) -> QueuedMessage | None:
        """The first message; None if there is none, or it is not durable yet and thus cannot be read."""
        items = self.items
        while True:
            ids = self.ids
            while self.start < len(ids) and ids[self.start] not in items:
                self.start += 1
            if self.start > 1_000 and self.start > len(ids) // 2:
                del ids[: self.start]
                self.start = 0
            if self.start < len(ids) and (not self.rest or ids[self.start] <= self.cursor):
                return items[ids[self.start]]
            if not self.rest or not self._refill():
                return None

    def _refill(self) -> bool:
        """Take up the next page from disk; False if it cannot be read yet."""
        page = self._page(self.cursor)
        if page:
            for item in page:
                self._keep(item)
            self.rest -= len(page)
            self.cursor = page[-1].id
            self.ids = sorted({*self.ids[self.start :], *(item.id for item in page)})
            self.start = 0
            self.taken = {id: batch for id, batch in self.taken.items() if id > self.cursor}
        elif self.last <= self.tx.durable_id and not self.tx.reader.damaged:
            self.lacks(self)  # they could be read, and are not there
        return bool(page)

    def discard(self, upto: int, most: int) -> list[int]:
        """Those that are on disk alone, up to this id, and can be known now, wait no more: the ids of the next ones, at
        most so many. They are not read. There are none up to `cursor`."""
        known = min(upto, self.tx.durable_id)
        ids = self.tx.reader.item_ids(self.queue, self.name, self.cursor, known, most)
        found = [id for id in ids if id not in self.taken and id not in self.items]
        self.rest -= len(found)
        self.cursor = ids[-1] if len(ids) == most else max(self.cursor, known)
        return found

    def get(self, id: int) -> QueuedMessage | None:
        """One that waits, in memory or, if it can be read now, on disk."""
        item = self.items.get(id)
        if item is None and self.rest and self.cursor < id <= self.tx.durable_id and id not in self.taken:
            row = self.tx.written("items", id)
            if row is not None and (row.agent, row.collection) == (self.queue, self.name):
                return next(iter(readable(self.tx.reader, [row])), None)
        return item

    def _page(self, after: int, most: int = PAGE) -> list[QueuedMessage]:
        """Some of those on disk, the next ones above `after`, which is not below `cursor`."""
        if len(self.taken) > 4 * PAGE:
            durable = self.tx.durable_batch
            self.taken = {id: batch for id, batch in self.taken.items() if batch > durable}
        upto = self.tx.durable_id
        while after < upto:
            limit = min(self.page, most)
            rows = self.tx.reader.items(self.queue, self.name, (0, after), limit)
            if rows:
                mean = sum(len(row.head) + len(row.body) for row in rows) // len(rows)
                self.page = max(PAGE_LEAST, min(PAGE, PAGE_BYTES // (mean + 1)))
            wanted = [row for row in rows if row.id <= upto and row.id not in self.taken and row.id not in self.items]
            found = readable(self.tx.reader, wanted)
            if found or len(rows) < limit:
                return found
            after = rows[-1].id
        return []

    def after(self, id: int, most: int) -> Iterator[QueuedMessage]:
        """At most so many of those above `id`, in order, as far as they can be read now. Those that it has given may be
        taken meanwhile, and nothing else may change."""
        return islice(self._after(id, most), most)

    def _after(self, id: int, most: int) -> Iterator[QueuedMessage]:
        near = bisect_right(self.ids, self.cursor, self.start)
        for at in range(bisect_right(self.ids, id, self.start), near):
            if item := self.items.get(self.ids[at]):
                yield item
        ahead = [self.items[each] for each in self.ids[near:] if each > id and each in self.items]
        after, page = max(id, self.cursor), list[QueuedMessage]()
        while self.rest and (page := self._page(after, most)):
            after = page[-1].id
            while ahead and ahead[0].id < after:
                page.append(ahead.pop(0))
            page.sort(key=lambda item: item.id)
            yield from page
        yield from (item for item in ahead if not self.rest or item.id <= self.tx.durable_id)  # not before its turn

    def check(self) -> None:
        ids = self.ids[self.start :]
        assert ids == sorted(set(ids)), "a lane is not in order"
        assert set(self.items) <= set(ids), "a lane lost a message"
        assert not ids or ids[-1] <= self.last, "a lane has more than it knows of"
        assert self.rest >= 0, "a lane has less than nothing on disk"
        assert self.unstored == sum(not item.stored for item in self.items.values()), "rows miscounted"
        assert self.bytes == sum(item.size + OVERHEAD for item in self.items.values()), "bytes miscounted"
