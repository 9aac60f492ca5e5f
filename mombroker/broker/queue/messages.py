"""The messages of a queue: where each of them is, its row, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.item import HELD, WAITING, QueuedMessage, held_rows, item_of, item_rows, readable
from mombroker.broker.queue.lane import Lane, Pool
from mombroker.broker.queue.schedule import DELAYED, Schedule
from mombroker.broker.queue.settings import Settings
from mombroker.core.batch import Damage
from mombroker.core.words import many

LANES = {f"p{number}": number for number in range(10)}  # collection -> priority


class Room(Protocol):
    @property
    def wanted(self) -> bool: ...
    def made(self) -> None: ...


class QueueMessages:
    """1. A message is in exactly one place: a lane (its row in `p0` to `p9`), `unacked` or the schedule's `backing_off`
    (its row in `held`), or delayed (its row in the schedule's collection).
    2. `count` and `bytes` are those of all messages, `ready` counts those in lanes.
    3. `late` are those that were given to agents of this server in the open batch: most are settled in it, too, and
       need no row. The others get theirs when it closes.

    lanes      by number, in order of urgency
    unacked    session -> what its consumers have, by id; `unacked_bytes` of all that
    unstored   bytes without a row, and `held` those of rows in `held`. The rest is in the queue's state, which so
               changes with the rows in `message` alone, and not for a message that is delivered at once
    purged     what waits up to this id is to go: `stale` of `count`, so much of `ready`, and `stale_bytes` of `bytes`,
               with those of what has gone already unread
    dropped    messages that have gone for want of room or time
    volatile   they have no rows at all
    room       is told when a message has left
    """

    __slots__ = (
        "queue", "tx", "volatile", "lanes", "unacked", "unacked_bytes", "count", "ready", "bytes", "unstored",
        "held", "purged", "stale", "stale_bytes", "stale_ready", "dropped", "settings", "schedule", "consumers", "pool",
        "room", "late",
    )  # fmt: skip

    def __init__(
        self, queue: Native, pool: Pool, volatile: bool, settings: Settings, schedule: Schedule, consumers: Consumers
    ):
        self.queue, self.tx, self.pool, self.volatile = queue, queue.tx, pool, volatile
        self.settings, self.schedule, self.consumers = settings, schedule, consumers
        self.lanes: dict[int, Lane] = {}
        self.unacked: dict[str, dict[int, QueuedMessage]] = {}
        self.count = self.ready = self.bytes = self.unstored = self.held = self.unacked_bytes = 0
        self.purged = self.stale = self.stale_bytes = self.stale_ready = self.dropped = 0
        self.late: dict[int, QueuedMessage] = {}
        self.room: Room  # the limits, which are made behind it

    def lane(self, number: int) -> Lane:
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(self.tx, self.pool, self.queue.id, number, self._lacks, self.volatile)
            self.lanes = dict(sorted(self.lanes.items()))
        return found

    def count_unacked(self) -> int:
        return sum(map(len, self.unacked.values()))

    # -- reading -------------------------------------------------------------------------------------------------

    def first(self) -> QueuedMessage | None:
        """The first that is ready; None: there is none, or it is not durable yet and cannot be read."""
        for lane in self.lanes.values():
            if lane.items or lane.rest:
                return lane.first()
        return None

    def loaded(self, item: QueuedMessage) -> ClientMessage:
        if item.message is None:
            row = self.tx.written("held" if item.place == HELD else "items", item.id)
            assert row is not None, "a message has lost its row"
            item.message = item_of(row).message
        assert item.message is not None, "a row has a message"
        return item.message

    def whole(self, item: QueuedMessage, was_unacked: bool = False) -> bool:
        """Can it be read? One whose row is damaged leaves the queue."""
        if item.message is None:
            row = self.tx.written("held" if item.place == HELD else "items", item.id)
            if row is None or not (found := readable(self.tx.reader, [row])):
                self.end(item, was_unacked)
                self.queue.change()
                return False
            item.message = found[0].message
        return True

    # -- from place to place -------------------------------------------------------------------------------------

    def append(self, item: QueuedMessage) -> None:
        """A new message is ready, behind all others of its lane."""
        lane = self.lane(item.lane)
        lane.append(item)
        self.ready += 1
        self._write(item, lane)

    def append_all(self, items: Sequence[QueuedMessage]) -> None:
        """As `append` of each; they are alike."""
        lane = self.lane(items[0].lane)
        for item in items:
            lane.append(item)
        self.ready += len(items)
        if not items[-1].stored:  # nor is any other: one that only the disk has is followed by such
            return
        stored = items if items[0].stored else [item for item in items if item.stored]
        rows, size = self.tx.rows, 0
        for item, row in zip(stored, item_rows(stored, self.queue.id, lane.name), strict=True):
            item.place = WAITING
            rows.items[item.id] = row
            size += item.size
        rows.bytes += size
        self.queue.change()

    def take_all(self, items: Sequence[QueuedMessage]) -> None:
        """As `take` of each; they are alike, in memory, and not to be purged."""
        self.lanes[items[0].lane].take_all(items)
        self.ready -= len(items)

    def take(self, item: QueuedMessage) -> None:
        """It is not ready any more."""
        self.lanes[item.lane].take(item)
        self.ready -= 1
        if item.id <= self.purged:
            self.stale_ready -= 1
            self.queue.change()

    def hand_over(self, item: QueuedMessage, session: str, late: bool = False) -> None:
        """A consumer of this session has it. The row says so before the message leaves: the count survives. `late`: it
        does not leave this server."""
        item.count += 1
        item.holder = session
        held = self.unacked.get(session)
        if held is None:
            held = self.unacked[session] = {}
        held[item.id] = item
        self.unacked_bytes += item.size
        if not item.stored:
            return
        if late:
            self.late[item.id] = item
            self.queue.natives.unwritten[self] = None
        self._write_held(item)

    def hand_over_all(self, items: Sequence[QueuedMessage], session: str, size: int) -> None:
        """A consumer of this session has all of these, which are alike, and of so many bytes together; they have rows
        of waiting ones, or none."""
        held, count = self.unacked.setdefault(session, {}), items[0].count + 1
        for item in items:
            item.count, item.holder = count, session
            held[item.id] = item
        self.unacked_bytes += size
        if not items[0].stored:
            return
        rows, queue = self.tx.rows, self.queue.id
        if items[0].place == WAITING:
            for item in items:
                self._erase(item)
        self.held += size
        if self.bytes < self.unstored + self.held:
            self._put_right()
        rows.bytes += size
        put = rows.held
        for item, row in zip(items, held_rows(items, queue), strict=True):
            item.place = HELD
            put[item.id] = row

    def back_off(self, item: QueuedMessage, due: int) -> None:
        """It was given back, and waits for its time."""
        self.late.pop(item.id, None)
        self._write_held(item)
        self.schedule.back_off(item, due)
        if item.stored:
            item.message = None

    def ready_again(self, item: QueuedMessage) -> None:
        """It was given back, and is ready at its former place."""
        self.loaded(item)
        item.due = 0
        lane = self.lane(item.lane)
        lane.back(item)
        self.ready += 1
        self._write(item, lane)
        self.consumers.came_back(item.lane, item.id)
        self.queue.touch()

    def end(self, item: QueuedMessage, was_unacked: bool = False) -> None:
        """The message leaves the queue."""
        if item.id <= self.purged and not was_unacked:
            self.add_stale(-1, item)
        if not item.stored:
            self.unstored -= item.size
        elif item.place == HELD:
            if self.late.pop(item.id, None) is None:
                self.tx.rows.held[item.id] = None
            self.held -= item.size
        else:
            self._erase(item)
        if item.expiry_row:
            self.schedule.forget(item)
        if item.group:
            self.consumers.ended(item, was_unacked)
            self.queue.touch()  # another one of its group may be for somebody now
        self.count -= 1
        self.bytes -= item.size
        self._counted()
        self.room.made()

    def _counted(self) -> None:
        if not self.count:
            self.unstored = self.held = 0
        if self.bytes < self.unstored + self.held or (self.bytes and not self.count):
            self._put_right()

    def end_all(self, items: Sequence[QueuedMessage]) -> int:
        """As `end` of each, which its consumer had. Returns their bytes."""
        one_by_one = self.room.wanted  # each may let somebody in
        late, put, size, count, others = self.late, self.tx.rows.held, 0, 0, 0
        for item in items:
            if one_by_one or item.place != HELD or item.expiry_row or item.group:
                self.end(item, True)
                others += item.size
                continue
            if not late or late.pop(item.id, None) is None:
                put[item.id] = None
            size += item.size
            count += 1
        if count:
            self.held -= size
            self.bytes -= size
            self.count -= count
            self._counted()
        return size + others

    def withdraw(self, item: QueuedMessage) -> None:
        """One that is ready goes elsewhere."""
        self.take(item)
        self.end(item)

    def drop_oldest(self) -> bool:
        """Of the least urgent that are ready; else one that backs off; else the delayed one that is due first."""
        for lane in reversed(self.lanes.values()):
            if len(lane):
                item = lane.first()
                if item is not None:
                    self.take(item)
                break
        else:
            item = self.schedule.pop()
        if item is None:
            return False
        self.end(item)
        self.dropped += 1
        return True

    def discard(self, lane: Lane, most: int) -> int:
        """Of what is to be purged the next messages leave that are on disk alone, at most so many. They are not read:
        their bytes go at `purge_ended`. Returns how many."""
        ids = lane.discard(self.purged, most)
        self.tx.rows.items.update(dict.fromkeys(ids))
        gone = len(ids)
        self.count -= gone
        self.ready -= gone
        self.stale -= gone
        self.stale_ready -= gone
        return gone

    def purge_ended(self) -> None:
        """Nothing is left of what was to be purged."""
        self.bytes = max(self.bytes - self.stale_bytes, self.unstored + self.held)
        self.purged = self.stale = self.stale_bytes = self.stale_ready = 0
        self.room.made()

    def add_stale(self, more: int, item: QueuedMessage) -> None:
        self.stale += more
        self.stale_bytes += more * item.size
        self.queue.change()

    # -- rows ----------------------------------------------------------------------------------------------------

    def _write(self, item: QueuedMessage, lane: Lane) -> None:
        """The row of one that is ready."""
        if item.stored:
            rows = self.tx.rows
            if item.place == HELD:
                if self.late.pop(item.id, None) is None:
                    rows.held[item.id] = None
                self.held -= item.size
            item.place = WAITING
            self.queue.change()
            rows.items[item.id] = item.row(self.queue.id, lane.name)
            rows.bytes += item.size

    def _erase(self, item: QueuedMessage) -> None:
        """The row of one that was ready, which may be in no batch but this one."""
        rows = self.tx.rows
        if item.id > rows.above:
            rows.items.pop(item.id, None)
        else:
            rows.items[item.id] = None
        self.queue.change()

    def _write_held(self, item: QueuedMessage) -> None:
        """The row of one that somebody has, or that is backing off."""
        if item.stored:
            rows = self.tx.rows
            if item.place == WAITING:
                self._erase(item)
            if item.place != HELD:
                self.held += item.size
                if self.bytes < self.unstored + self.held:
                    self._put_right()
            item.place = HELD
            rows.bytes += item.size
            if not self.late or item.id not in self.late:
                rows.held[item.id] = item.held_row(self.queue.id)

    def write(self) -> None:
        """The batch closes: what agents of this server still have gets its row."""
        late, self.late = self.late, {}
        for id, item in late.items():
            self.tx.rows.held[id] = item.held_row(self.queue.id)
            item.message = None

    def erase_held(self) -> None:
        """The rows in `held`, which are no collection's: the queue is deleted."""
        self.late = {}
        held = [item for items in self.unacked.values() for item in items.values()]
        for item in [*self.schedule.backing_off.values(), *held]:
            if item.stored:
                self.tx.rows.held[item.id] = None

    # -- damage --------------------------------------------------------------------------------------------------

    def damaged(self, damage: Damage) -> None:
        """The store has lost a row of one of the queue's collections."""
        name = damage.collection
        if name in LANES:
            lane = self.lane(LANES[name])
            if item := lane.items.get(damage.id):
                self._write(item, lane)  # it is whole in memory
            if item or not lane.rest or damage.id in lane.taken:
                return
            lane.rest -= 1
            self.ready -= 1
        if name in LANES or name == DELAYED:
            self.count -= 1
            self.bytes = max(self.bytes - damage.size, self.unstored + self.held)
        self._fewer_stale()
        self.room.made()
        self.queue.change()
        self.queue.touch()

    def _put_right(self) -> None:
        """A damaged row seemed of another size than its message: what is surely there counts."""
        self.bytes = self.unstored + self.held
        self.queue.change()

    def _lacks(self, lane: Lane) -> None:
        """The store has fewer messages of a lane than it should: nobody waits for them."""
        lacks = many(lane.rest, "message is", "messages are")
        self.tx.note(f"of {self.settings.destination} {lacks} not in the store any more; see `mom store verify`")
        self.count -= lane.rest
        self.ready -= lane.rest
        lane.rest = 0
        self._fewer_stale()
        self.room.made()
        self.queue.change()

    def _fewer_stale(self) -> None:
        """Of what is lost nobody knows whether it was to be purged."""
        self.stale_ready = min(self.stale_ready, self.ready)
        self.stale = min(self.stale, self.count - self.count_unacked())

    def check(self) -> None:
        for lane in self.lanes.values():
            lane.check()
        unacked, schedule = self.count_unacked(), self.schedule
        assert self.ready == sum(len(lane) for lane in self.lanes.values()), "ready messages miscounted"
        elsewhere = unacked + len(schedule.backing_off) + schedule.count_delayed()
        assert self.count == self.ready + elsewhere, "messages miscounted"
        holders = [(session, item) for session, items in self.unacked.items() for item in items.values()]
        assert all(item.holder == session for session, item in holders), "wrong holder"
        assert self.unacked_bytes == sum(item.size for _, item in holders), "bytes that somebody has miscounted"
        assert not self.late or self in self.queue.natives.unwritten, "what agents have gets no row"
        assert all(item.place == HELD and item.message for item in self.late.values()), "what has no row is lost"
        assert self.late.keys() <= {item.id for _, item in holders}, "what is late is nobody's"
        mine = [*(item for _, item in holders), *schedule.backing_off.values()]
        assert self.held == sum(item.size for item in mine if item.place == HELD), "bytes of rows in `held` miscounted"
        assert self.bytes >= self.unstored + self.held and self.unstored >= 0, "bytes miscounted"
        assert 0 <= self.stale_ready <= min(self.stale, self.ready) and self.stale <= self.count - unacked, "stale"
        assert self.purged or not self.stale, "nothing is purged, and yet something is stale"
