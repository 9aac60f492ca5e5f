"""What operators may ask about the messages in a queue or subscription. They come in pages: an answer says where the
next one begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest

from mombroker.broker import selectors
from mombroker.broker.names import name_of
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.work import LOOK, MOVE, WORK_BYTES
from mombroker.broker.verbs.base import MAX_PAGE, DestinationVerbs
from mombroker.core.errors import MomError
from mombroker.core.requests import LAST_INT, Reply, changes, reads

LOOKS = 1_000  # of work for one request: LOOKS / LOOK messages are looked at, or LOOKS / MOVE moved
PAGE_BYTES = 4 << 20  # of messages in one answer, or moved at once
DEAD = ("dead-letter-", "original-")  # how the annotations begin that a dead letter has got as such


@dataclass(slots=True)
class Page:
    """Which ready messages of a queue: behind `place` (a priority level's number and an id), up to an id, those with
    these ids if any are named, those that a selector fits, dead letters of one destination, those that may be `given`
    out now though an earlier one of their group was given back. What has expired is not ready any more.

    unread   the place where that begins which cannot be read yet; a page ends before it
    """

    place: list[int]
    limit: int
    where: str = ""
    ids: list[int] | None = None
    origin: str = ""
    upto: int = LAST_INT
    given: bool = False
    unread: list[int] = field(default_factory=list)

    def ready(self, queue: Queue) -> Iterator[tuple[int, QueuedMessage]]:
        """What is ready, in order, with its lane; for as long as nothing is taken."""
        lane_after, id_after = self.place
        if queue.settlement.returning or queue.schedule.ripe:  # what comes back may be the first
            self.unread = self.place
            return
        for number, lane in list(queue.messages.lanes.items()):
            if number < lane_after:
                continue
            behind = max(id_after if number == lane_after else 0, queue.messages.purged)
            if self.ids:
                named = (lane.get(id) for id in sorted(set(self.ids)) if id > behind)
                yield from ((number, item) for item in named if item is not None)
                continue
            for item in lane.after(behind, LOOKS // LOOK):
                behind = item.id
                yield number, item
            if lane.rest and queue.tx.durable_id < min(lane.last, self.upto):
                self.unread = [number, behind]
                return

    def of(self, queue: Queue, cost: int = LOOK) -> tuple[list[QueuedMessage], list[int]]:
        """These messages, and where the next page begins, if there is one. `cost` of what is done to one of them."""
        test = selectors.compile(self.where) if self.where else None
        looks, limit, size, now = LOOKS, min(self.limit, MAX_PAGE), 0, queue.tx.now
        late: dict[tuple[str, int], int] = {}
        found: list[QueuedMessage] = []
        for number, item in self.ready(queue):
            put = queue.messages.loaded(item)
            looks -= LOOK + item.size // WORK_BYTES
            fits = item.id <= self.upto and not (put.expires and put.expires <= now)
            fits = fits and (test is None or test(selectors.lookup(put, item.count + 1, item.message_id)))
            fits = fits and (not self.origin or put.annotations.get("dead-letter-from") == self.origin)
            if fits and self.given and item.group:
                if (item.group, number) not in late:
                    late[item.group, number] = _late(queue, item.group, number)
                fits = item.id <= late[item.group, number]
            if fits:
                found.append(item)
                size += item.size
                looks -= cost
            if looks <= 0 or len(found) >= limit or size >= PAGE_BYTES:
                return found, [number, item.id]
        return found, self.unread


def _late(queue: Queue, name: str, number: int) -> int:
    """Behind which id messages of a group in this lane wait for one that was given back, and is not ahead of them."""
    group = queue.consumers.groups.get(name)
    if group is None or not group.late:
        return LAST_INT
    ahead = [lane.items for each, lane in queue.messages.lanes.items() if each <= number]
    return min((id for id in group.late if not any(id in items for items in ahead)), default=LAST_INT)


class MessageVerbs(DestinationVerbs):
    @reads
    def browse(
        self,
        destination: str,
        after: list[int] | None = None,
        limit: int = MAX_PAGE,
        where: str | None = None,
        ids: list[int] | None = None,
        unacked: bool = False,
        bytes: int | None = None,
    ) -> Reply:
        """Ready messages in the order in which they are given out, or with `unacked` those that consumers have or that
        back off; none is taken. `bytes`: of each body at most, or the whole.

        The first is the one that a consumer gets next, if it takes everything and no other has its group. So what
        has expired is left out, and what waits for another of its group; and where something cannot be read yet,
        since it is not durable or comes back from a lost consumer, the page ends, perhaps without a message, and the
        next one goes on there: only a page with an empty `after` is the last. What comes after the first page was
        asked for is on none.
        """
        queue, most = self.find(destination), LAST_INT if bytes is None else bytes
        queue.not_moving()
        if unacked:
            return self._unacked(queue, _place(after, [0, 0])[1], limit, most)
        *place, upto = _place(after, [0, 0, 0])
        upto = upto or self.tx.new_id()
        page = Page(place, limit, where or "", ids, upto=upto, given=True)
        items, end = page.of(queue)
        rows = [_row(queue, item, "ready", most) for item in items]
        return {"messages": rows, "after": [*end, upto] if end else []}

    def _unacked(self, queue: Queue, last: int, limit: int, most: int) -> Reply:
        unacked = [item for items in queue.messages.unacked.values() for item in items.values()]
        states = {"unacked": unacked, "backing off": list(queue.schedule.backing_off.values())}
        limit = min(limit, MAX_PAGE, LOOKS // MOVE)
        both = ((item.id, state, item) for state, some in states.items() for item in some if item.id > last)
        page = nsmallest(limit + 1, both)
        more, page = len(page) > limit, page[:limit]
        rows = []
        for _, state, item in page:
            kept, put = item.message, queue.messages.loaded(item)
            rows.append(_row(queue, item, state, most))
            if kept is None and put is not None:
                item.message = None  # only the row has it, as before
        return {"messages": rows, "after": [0, page[-1][0]] if more else []}

    @changes
    def move(
        self,
        destination: str,
        target: str = "",
        back: bool = False,
        after: list[int] | None = None,
        limit: int = MAX_PAGE,
        where: str | None = None,
        ids: list[int] | None = None,
        from_: str | None = None,
        upto: int | None = None,
    ) -> Reply:
        """Move ready messages to another queue, or with `back` dead letters to where they came from; some at a time."""
        queue = self.find(destination)
        queue.not_moving()
        if not (target or back):
            raise MomError("messages are moved to a target, or back")
        if not back and name_of(target) == queue.name:
            raise MomError(f"{target} is where these messages are")
        upto = upto or self.tx.new_id()
        items, end = Page(_place(after, [0, 0]), limit, where or "", ids, from_ or "", upto).of(queue, MOVE)
        moved = 0
        for item in items:
            to = queue.messages.loaded(item).annotations.get("dead-letter-from", "") if back else target
            if to:
                self._move(queue, item, to)
                moved += 1
        if moved:
            queue.change()
        return {"moved": moved, "left": len(items) - moved, "after": end, "upto": upto}

    def _move(self, queue: Queue, item: QueuedMessage, where: str) -> None:
        put = queue.messages.loaded(item).copy()
        put.destination = where
        put.due = put.counter = 0
        put.producer = put.message = ""
        put.annotations = {name: value for name, value in put.annotations.items() if not name.startswith(DEAD)}
        id = self.home(where)
        queue.messages.withdraw(item)
        self.put(put, id, queue.id)


def _place(after: list[int] | None, start: list[int]) -> list[int]:
    """The place behind which a page begins."""
    if after and len(after) != len(start):
        raise MomError(f"a page of this begins where `after` of the one before says, not at {after!r:.64}")
    return after or start


def _row(queue: Queue, item: QueuedMessage, state: str, most: int) -> Reply:
    put = queue.messages.loaded(item)
    return {
        "id": item.id, "message": item.message_id, "state": state, "holder": item.holder, "deliveries": item.count,
        **put.told(), "due": item.due, "bytes": len(put.body), "body": put.body[:most],
    }  # fmt: skip
