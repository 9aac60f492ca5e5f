"""Expiry of messages, and purges by an operator: some messages at a time."""

from __future__ import annotations

from mombroker.broker.native import Native
from mombroker.broker.queue.dead_letter import EXPIRED, DeadLetters
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.queue.item import NOWHERE, QueuedMessage, readable
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.schedule import NONE, PAGE, Schedule
from mombroker.broker.queue.work import GIVE, LOOK, MOVE, Work


class Expiry:
    """It has no state of its own, and is made when there is something to do."""

    __slots__ = ("queue", "messages", "schedule", "dead_letters", "dispatcher", "work")

    def __init__(
        self, queue: Native, messages: QueueMessages, schedule: Schedule, dead_letters: DeadLetters,
        dispatcher: Dispatcher, work: Work,
    ):  # fmt: skip
        self.queue, self.messages, self.schedule = queue, messages, schedule
        self.dead_letters, self.dispatcher, self.work = dead_letters, dispatcher, work

    # -- what is due ---------------------------------------------------------------------------------------------

    def ripen(self) -> None:
        """See to what is due."""
        now, schedule, work = self.queue.tx.now, self.schedule, self.work
        while item := schedule.rested(now):
            work.spend(MOVE, item.size)
            self.queue.change()
            self._rested(item)
            if work.spent():
                return
        if not schedule.volatile:
            while due := schedule.due(now):
                for item in due:
                    self._delayed(item)
                if work.spent():
                    return
            while expired := schedule.expired(now):
                for id, number in expired:
                    self._expire(id, number)
                if work.spent():
                    return
        schedule.ripe = False
        schedule.alarm_next()

    def _rested(self, item: QueuedMessage) -> None:
        """It has backed off for long enough."""
        if item.id <= self.messages.purged:
            self.messages.end(item)
        elif item.due:
            if self.messages.whole(item):
                self.messages.ready_again(item)
        else:  # volatile and delayed: it comes only now
            item.id = self.queue.tx.new_id()
            self.dispatcher.enter(item)

    def _delayed(self, item: QueuedMessage) -> None:
        """It was delayed, and comes only now."""
        self.work.spend(MOVE, item.size)
        self.queue.change()
        if item.id <= self.messages.purged:
            self.messages.end(item)
            return
        item.id, item.stored, item.place = self.queue.tx.new_id(), False, NOWHERE
        self.dispatcher.enter(item)
        self.messages.unstored += 0 if item.stored else item.size

    def _expire(self, id: int, number: int) -> None:
        messages = self.messages
        self.work.spend(MOVE, 0)
        self.queue.change()
        lane = messages.lane(number)
        if not lane.items:
            lane.first()  # most expire in their order: they are read by pages
        item = lane.items.get(id)
        if item is not None:
            messages.take(item)
        else:
            for held in messages.unacked.values():
                if id in held:
                    held[id].expiry_row = 0  # it is with a consumer: expired only if it comes back
                    return
            item = self.schedule.backing_off.pop(id, None) or self._on_disk(id)
        if item is not None:
            item.expiry_row = 0
            self.dead_letters.take(item, EXPIRED)

    def _on_disk(self, id: int) -> QueuedMessage | None:
        """Take one that is ready, and not in memory."""
        row = self.queue.tx.written("items", id)
        found = readable(self.queue.tx.reader, [row]) if row is not None else []
        for item in found:
            self.messages.take(item)
        return found[0] if found else None

    # -- purge ---------------------------------------------------------------------------------------------------

    def start_purge(self) -> int:
        """Nobody gets what is here now; it goes, some at a time. Returns how many messages are ready."""
        messages = self.messages
        ready = messages.ready - messages.stale_ready
        messages.purged = self.queue.tx.new_id()
        messages.stale = messages.count - messages.count_unacked()
        messages.stale_bytes, messages.stale_ready = messages.bytes - messages.unacked_bytes, messages.ready
        self.schedule.swept = NONE
        self.queue.change()
        self.queue.touch()
        return ready

    def purge(self) -> None:
        messages, schedule, work = self.messages, self.schedule, self.work
        self.queue.change()
        if not (self._forget() and self._discard()):
            return
        for lane in messages.lanes.values():
            while len(lane):
                item = lane.first()
                if item is None:
                    self.queue.turns.late[self.queue] = None
                    return
                if item.id > messages.purged:
                    break
                if work.spent():
                    return
                work.spend(LOOK, 0)
                item.expiry_row = 0
                messages.withdraw(item)
        for id in [id for id in schedule.backing_off if id <= messages.purged]:
            if work.spent():
                return
            work.spend(LOOK, 0)
            item = schedule.backing_off.pop(id)
            item.expiry_row = 0
            messages.end(item)
        while not schedule.volatile and (delayed := schedule.drop(messages.purged)) is not None:
            for item in delayed:
                messages.end(item)
            work.spend(PAGE * LOOK, 0)
            if work.spent():
                return
        messages.purge_ended()

    def _forget(self) -> bool:
        """What is to be purged does not expire any more; what somebody has may come back. False: this is to go on."""
        messages, work = self.messages, self.work
        if not self.schedule.expires():
            return True
        unacked = {id for held in messages.unacked.values() for id in held}
        while self.schedule.forget_page(messages.purged, unacked):
            work.spend(PAGE * GIVE, 0)
            if work.spent():
                return False
        return True

    def _discard(self) -> bool:
        """What is on disk alone goes, unread. False: this is to go on."""
        messages, work = self.messages, self.work
        for lane in messages.lanes.values():
            while lane.rest and lane.cursor < messages.purged:
                if lane.cursor >= self.queue.tx.durable_id:
                    self.queue.turns.late[self.queue] = None
                    return False
                if work.spent():
                    return False
                gone = messages.discard(lane, max(1, self.queue.turns.work - work.until))
                work.spend(max(1, gone) * GIVE, 0)
        return True
