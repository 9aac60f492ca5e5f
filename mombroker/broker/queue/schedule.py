"""What a queue keeps by time: delayed messages and expiries on disk, what backs off in memory, and the next alarm."""

from __future__ import annotations

from collections.abc import Mapping, Set
from heapq import heappop, heappush
from struct import Struct
from types import MappingProxyType

from mombroker.broker.native import Native
from mombroker.broker.queue.item import QueuedMessage, readable
from mombroker.core.batch import ItemRow
from mombroker.core.collection import Collection

DELAYED, EXPIRING = "d", "x"
EXPIRY = Struct(">QB")  # id and lane of the message
PAGE = 64
NONE: Mapping[str, tuple[int, int]] = MappingProxyType({})  # an idle queue is small
SOON = 10_000_000  # ns: alarms are not closer than that


class Schedule:
    """Collections in order of time; their changes belong to the open batch at once.

    backing_off   by id: those that wait for their time in memory, and in a queue without rows the delayed ones, too
    next_alarm    its time, 0 = none
    ripe          an alarm has rung, and some of what was due is still to be done
    swept         how far a purge has come, by collection
    """

    __slots__ = ("queue", "volatile", "backing_off", "next_alarm", "ripe", "swept", "_times", "_delayed", "_expiring")

    def __init__(self, queue: Native, volatile: bool):
        self.queue, self.volatile = queue, volatile
        self.backing_off: dict[int, QueuedMessage] = {}
        self.next_alarm = 0
        self.ripe = False
        self.swept: Mapping[str, tuple[int, int]] = NONE
        self._times: list[tuple[int, int]] = []  # heap of (due, id) of `backing_off`, and of some that have left it
        self._delayed: Collection | None = None
        self._expiring: Collection | None = None

    @property
    def delayed(self) -> Collection:
        if self._delayed is None:
            self._delayed = self.queue.collection(DELAYED)
        return self._delayed

    @property
    def expiring(self) -> Collection:
        if self._expiring is None:
            self._expiring = self.queue.collection(EXPIRING)
        return self._expiring

    def take_up(self) -> int:
        """After a restart: how many messages are delayed."""
        count = len(self.delayed)
        if at := self._next_row():
            self._alarm_at(at)
        else:  # most have nothing there
            self._delayed = self._expiring = None
            self.queue.collections.clear()
        return count

    # -- alarms --------------------------------------------------------------------------------------------------

    def _alarm_at(self, at: int) -> None:
        """One alarm is enough: then, or earlier."""
        at = max(at, self.queue.tx.now + SOON)
        if not self.next_alarm or at < self.next_alarm:
            self.next_alarm = at
            self.queue.alarm_at(at)

    def rung(self) -> None:
        """An alarm; perhaps one that an earlier one has replaced."""
        if self.next_alarm and self.next_alarm <= self.queue.tx.now:
            self.next_alarm = 0
            self.ripe = True

    def alarm_next(self) -> None:
        """An alarm for what is due next."""
        times = [self._times[0][0] if self._times else 0, 0 if self.volatile else self._next_row()]
        if at := min(filter(None, times), default=0):
            self._alarm_at(at)

    def _next_row(self) -> int:
        firsts = [row.key for collection in (self.delayed, self.expiring) for row in collection.scan(None, 1)]
        return min(firsts, default=0)

    # -- delayed, and backing off --------------------------------------------------------------------------------

    def postpone(self, item: QueuedMessage) -> None:
        """A new message is not due yet."""
        message = item.message
        assert message is not None, "a new message"
        if self.volatile:
            self.back_off(item, message.due)
            return
        item.stored = True
        row = item.row(self.queue.id, DELAYED)
        self.delayed.add(message.due, row.head, row.body)
        self.queue.accept(self.delayed)
        self.queue.change()
        self._alarm_at(message.due)

    def back_off(self, item: QueuedMessage, due: int) -> None:
        self.backing_off[item.id] = item
        heappush(self._times, (due, item.id))
        self._alarm_at(due)

    def rested(self, now: int) -> QueuedMessage | None:
        """Take the next one whose time has come out of those that back off."""
        while self._times and self._times[0][0] <= now:
            if item := self.backing_off.pop(heappop(self._times)[1], None):
                return item
        return None

    def due(self, now: int) -> list[QueuedMessage]:
        """Take down delayed messages whose time has come. At most a page."""
        return self._take([row for row in self.delayed.scan(None, PAGE) if row.key <= now])

    def drop(self, upto: int) -> list[QueuedMessage] | None:
        """Take down delayed messages that came up to this id, of the next page; None after the last one."""
        rows = self._sweep(self.delayed)
        return self._take([row for row in rows if row.id <= upto]) if rows else None

    def _sweep(self, collection: Collection) -> list[ItemRow]:
        """The next page for a purge; none behind the last one."""
        rows = collection.scan(self.swept.get(collection.name), PAGE)
        if rows:
            self.swept = {**self.swept, collection.name: (rows[-1].key, rows[-1].id)}
        return rows

    def pop(self) -> QueuedMessage | None:
        """Take down one that backs off; else the delayed message that is due first."""
        if self.backing_off:
            return self.backing_off.pop(min(self.backing_off))
        return None if self.volatile else next(iter(self._take(self.delayed.scan(None, 1))), None)

    def _take(self, rows: list[ItemRow]) -> list[QueuedMessage]:
        found = readable(self.queue.tx.reader, rows)
        there = {item.id for item in found}
        for row in rows:
            if row.id in there:
                self.delayed.take(row)
        self.queue.accept(self.delayed)
        return found

    # -- expiries ------------------------------------------------------------------------------------------------

    def expire(self, item: QueuedMessage, at: int) -> None:
        item.expiry_row = self.expiring.add(at, EXPIRY.pack(item.id, item.lane))
        self.queue.accept(self.expiring)
        self._alarm_at(at)

    def expires(self) -> bool:
        """Does something expire here?"""
        return self._expiring is not None and len(self._expiring) > 0

    def forget(self, item: QueuedMessage) -> None:
        """It does not expire here any more."""
        self.expiring.remove(item.expiry_row)
        self.queue.accept(self.expiring)
        item.expiry_row = 0

    def forget_page(self, upto: int, but: Set[int]) -> bool:
        """Messages up to this id do not expire here any more, `but` for these: those of the next page. False: there was
        none."""
        rows = self._sweep(self.expiring)
        for row in rows:
            if len(row.head) == EXPIRY.size and (id := EXPIRY.unpack(row.head)[0]) <= upto and id not in but:
                self.expiring.take(row)
        self.queue.accept(self.expiring)
        return bool(rows)

    def expired(self, now: int) -> list[tuple[int, int]]:
        """Take down expiries whose time has come: (id, lane). At most a page."""
        found = []
        for row in self.expiring.scan(None, PAGE):
            if row.key > now:
                break
            self.expiring.take(row)
            if len(row.head) == EXPIRY.size:  # else it is damaged, and the message expires when it is to be given
                found.append(EXPIRY.unpack(row.head))
        self.queue.accept(self.expiring)
        return found

    def check(self) -> None:
        first = self._times[0][0] if self._times else 0
        assert not first or 0 < self.next_alarm <= max(first, self.queue.tx.now + SOON), "what is due has no alarm"

    def count_delayed(self) -> int:
        return 0 if self._delayed is None else len(self._delayed)
