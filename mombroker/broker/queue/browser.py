"""A browser of a queue is shown the ready messages, in order and within its credit, and takes none."""

from __future__ import annotations

from collections import deque
from typing import Any

from mombroker.broker.native import Native
from mombroker.broker.protocol import Browsed, Dispatch, Settle
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.work import LOOK, Work

SHOW_BYTES = 1 << 20  # at once


class Browser:
    """It has seen everything up to `id` in lane `lane`; what came after `upto` is not for it.

    credit, room  as of a Consumer; `sizes` of what it was shown and has not settled
    """

    __slots__ = ("key", "matches", "credit", "room", "sizes", "lane", "id", "upto")

    def __init__(self, consumer: Consumer, upto: int):
        self.key, self.matches, self.credit = consumer.key, consumer.matches, consumer.credit
        self.room, self.sizes = consumer.room, deque[int]()
        self.lane = self.id = 0
        self.upto = upto

    def settled(self, note: Settle) -> None:
        self.credit += note.credit
        count = sum(map(len, (note.accepted, note.released, note.modified, note.requeued, note.rejected)))
        self.room += sum(self.sizes.popleft() for _ in range(min(count + len(note.uncommitted), len(self.sizes))))

    def show(self, queue: Native, messages: QueueMessages, work: Work) -> bool:
        """Go on. True when it has seen all."""
        items: list[tuple[int, str, int, Any]] = []
        size = 0
        ended = True
        for number, lane in messages.lanes.items():
            if number < self.lane:
                continue
            if number > self.lane:
                self.lane, self.id = number, 0
            left = work.looks()
            for item in lane.after(self.id, left):
                if item.id > self.upto:
                    break
                if self.credit <= 0 or self.room <= 0 or size >= SHOW_BYTES:
                    ended = False
                    break
                work.spend(LOOK, item.size)
                left -= 1
                self.id = item.id
                message = messages.loaded(item)
                count = max(1, item.count)
                if self.matches is None or self.matches(message, item.message_id, count):
                    items.append((0, item.message_id, count, message))
                    self.credit -= 1
                    self.room -= item.size
                    self.sizes.append(item.size)
                    size += item.size
            if not ended or not left:
                ended = False
                break
            if lane.rest and queue.tx.durable_id < self.upto:
                ended = False  # some of it cannot be read yet
                queue.turns.late[queue] = None
                break
        if items:
            queue.post(self.key[0], Dispatch(self.key[1], items))
        if ended:
            queue.post(self.key[0], Browsed(self.key[1]))
        elif self.credit > 0 and self.room > 0 and not queue.turns.armed(queue):
            queue.turns.go_on(queue)
        return ended
