"""Setting the time of a stopped server back, which was once far ahead: it is kept with the store and never goes back.

What is due or expires by that time is moved with it, one batch after the other; the time itself goes last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mombroker.broker.queue.item import QueuedMessage, item_of
from mombroker.broker.queue.schedule import DELAYED, EXPIRING
from mombroker.core import times
from mombroker.core.batch import Batch, HeldRow, ItemRow, TaskRow
from mombroker.core.errors import MomError
from mombroker.core.meta import NOW
from mombroker.core.trace import Record
from mombroker.store.base import Store

PAGE = 1_000
LANES = tuple(f"p{number}" for number in range(10))


@dataclass(slots=True)
class Shift:
    """By how much, and which times: those that are nearer to the time of the store than to the true one."""

    ahead: int
    now: int

    def of(self, at: int) -> int:
        """A run that was cut short may be repeated: what has been moved is not moved again."""
        return at - self.ahead if at > self.now - self.ahead // 2 and at < times.LAST_NS else at

    def item(self, item: QueuedMessage) -> bool:
        """Move the times of a message; False if there is nothing to be moved."""
        message = item.message
        assert message is not None, "a message that was read"
        before = (item.due, message.due, message.expires)
        item.due, message.due, message.expires = map(self.of, before)
        return before != (item.due, message.due, message.expires)


def set_back(store: Store, wall: int) -> dict[str, int]:
    """Raises MomError if the store's time is not ahead of `wall`."""
    now = int(store.meta().get(NOW, 0))
    shift = Shift(now - wall, now)
    if shift.ahead <= times.FAR:
        raise MomError("the time of the store is not over a minute ahead of the clock: there is nothing to be set back")
    moved = 0
    for batch in _batches(store, shift):
        moved += len(batch.tasks) + len(batch.items) + len(batch.held)
        store.commit(batch)
    store.commit(
        Batch(meta={NOW: wall}, log=[Record("commit", sent=wall, done=wall)])
    )  # the newest record says it, too
    return {"ahead_ns": shift.ahead, "moved": moved}


def _batches(store: Store, shift: Shift) -> Iterator[Batch]:
    batch = Batch()
    for task in list(store.tasks()):
        if (due := shift.of(task.due)) != task.due:
            batch.tasks[task.id] = TaskRow(task.id, task.agent, task.kind, due, task.data)
    yield batch
    for agent in list(_queues(store)):
        for collection in (DELAYED, EXPIRING, *LANES):
            yield from _pages(store, shift, agent, collection)
    after = 0
    while held := store.held(after, PAGE):
        after, batch = held[-1].id, Batch()
        for row in held:
            if shift.item(item := item_of(row)):
                batch.held[row.id] = HeldRow(*item.held_row(row.agent))
        yield batch


def _queues(store: Store) -> Iterator[str]:
    after = ""
    while rows := store.agents(after, PAGE):
        yield from (id for id, _ in rows if id.partition("/")[2].startswith(("queue:", "sub:", "share:")))
        after = rows[-1][0]


def _pages(store: Store, shift: Shift, agent: str, collection: str) -> Iterator[Batch]:
    """Rows are read in order of their times: what was moved is behind the place where the next page begins."""
    after = None
    while rows := store.items(agent, collection, after, PAGE):
        after, batch = (rows[-1].key, rows[-1].id), Batch()
        for row in rows:
            key = shift.of(row.key)
            if collection == EXPIRING:
                moved = key != row.key
                new = ItemRow(row.id, agent, collection, key, row.head, row.body)
            else:
                moved = shift.item(item := item_of(row))
                _, _, _, _, head, body = item.row(agent, collection)
                new = ItemRow(row.id, agent, collection, key, head, body)
            if moved:
                batch.items[row.id] = new
        yield batch
