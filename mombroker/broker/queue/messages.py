"""The messages of a queue: where each of them is, and what becomes of it by time. Who gets it: see queue.py."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import msgpack

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.policy import Policy
from mombroker.broker.protocol import Consume
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dead_letter import dead_letter
from mombroker.broker.queue.item import HELD, NOWHERE, WAITING, QueuedMessage, item_of
from mombroker.broker.queue.lane import Lane, readable
from mombroker.broker.queue.schedule import DELAYED, PAGE, Schedule
from mombroker.broker.selectors import message_filter
from mombroker.broker.wire import pack
from mombroker.core.natives import Natives

if TYPE_CHECKING:
    from mombroker.core.batch import Damage, HeldRow

VERSION = 1  # of the state blob
UNKNOWN = Policy()  # of a queue that has not looked for its own yet
LANES = {f"p{number}": number for number in range(10)}  # collection -> priority
SOON = 10_000_000  # ns: alarms are not closer than that
WORK_BYTES = 1_024  # of a message that cost as much as giving a short one
# What a message costs of a turn's work: given from memory; looked at or ended; moved, with its row.
GIVE, LOOK, MOVE = 1, 4, 8
SHARE = 4  # of what is left of a turn's work one queue does at once, before others have theirs


def _state(*values: Any) -> bytes:
    packed: bytes = pack([VERSION, *values])
    return packed


class QueueMessages(Native):
    """1. A message is in exactly one place: a lane (its row in `p0` to `p9`), `out` or `later` (its row in `held`), or
    delayed.
    2. `count` and `bytes` are those of all messages, `ready` counts those in lanes.
    3. What a proxy of another server has, its row says, and its consumers are in the state: both servers may restart.
    """

    __slots__ = (
        "name", "volatile", "service", "lanes", "out", "out_bytes", "leaving", "later", "times", "takers", "count",
        "ready", "bytes", "unstored", "blocked_servers", "dropped", "purged", "stale", "stale_bytes", "stale_ready",
        "ripe", "_until", "_shelf", "_next", "_version", "_policy", "_limited",
    )  # fmt: skip

    def __init__(self, natives: Natives, id: str, state: bytes = b"", volatile: bool = False):
        super().__init__(natives, id)
        self.name = id[id.index("/") + 1 :]
        self.volatile = volatile  # it has no rows at all
        self.service: Any = natives.server.clients  # Sessions
        self.lanes: dict[int, Lane] = {}  # in order of urgency
        self.out: dict[str, dict[int, QueuedMessage]] = {}  # proxy -> what it has
        self.out_bytes = 0  # of all that
        self.leaving: dict[str, None] = {}  # proxies that have gone, and some of what they had is still in `out`
        self.later: dict[int, QueuedMessage] = {}  # backing off, or volatile and not due
        self.times: list[tuple[int, int]] = []  # heap of (due, id) of those, and of some that have left
        self.takers = Consumers()
        self.count = self.ready = self.bytes = self.unstored = 0  # unstored: bytes without a row
        self.blocked_servers: dict[str, None] = {}  # they hold back their clients, in this order
        self.dropped = 0
        self.purged = 0  # what waits up to this id is to go:
        self.stale = self.stale_bytes = self.stale_ready = 0  # so much of `count`, `bytes` and `ready`
        self.ripe = False  # an alarm has rung, and not everything that was due is done
        self._until = 0  # so much of it is left to others
        self._shelf: Schedule | None = None
        self._next = 0  # time of the next alarm
        self._version = 0
        self._policy = UNKNOWN
        self._limited = False
        if state:
            self._load(state)

    @property
    def policy(self) -> Policy:
        if self._version != self.service.policies.version:
            self._look_up()
        return self._policy

    @property
    def limited(self) -> bool:
        """Is there a limit that could keep a message out?"""
        if self._version != self.service.policies.version:
            self._look_up()
        return self._limited

    def _look_up(self) -> None:
        policies = self.service.policies
        self._version, self._policy = policies.version, policies.of(self.service.shown(self.name))
        self._limited = bool(self._policy.max_messages or self._policy.max_bytes)

    @property
    def shelf(self) -> Schedule:
        if self._shelf is None:
            self._shelf = Schedule(self)
        return self._shelf

    def lane(self, number: int) -> Lane:
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(self.server, self.service.pool, self.id, number, whole=self.volatile)
            self.lanes = dict(sorted(self.lanes.items()))
        return found

    def change(self) -> None:
        if not self.volatile:
            self.server.natives.change(self)

    # -- state ---------------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        rows = {number: len(lane) - lane.unstored for number, lane in self.lanes.items()}
        draining = self.takers.draining
        remote = [
            [c.key[0], c.credit, c.note.values(), *([True] if c.key in draining else ())]
            for c in self.takers if self._remote(c.key[0])
        ]  # fmt: skip
        leaving = [proxy for proxy in self.leaving if self._remote(proxy)]
        stale = [self.stale, self.stale_bytes, self.stale_ready]
        return _state(
            self.bytes - self.unstored, rows, remote, list(self.blocked_servers), self.purged, self.more_state(),
            leaving, stale,
        )  # fmt: skip

    @staticmethod
    def blank(more: Any) -> bytes:
        """The state of an empty one."""
        return _state(0, {}, [], [], 0, more)

    def more_state(self) -> Any:
        return None

    def take_up(self, more: Any) -> None:
        """What `more_state` has kept."""

    def _load(self, state: bytes) -> None:
        values = msgpack.unpackb(state, strict_map_key=False)
        _, self.bytes, rows, remote, blocked, self.purged, more = values[:7]
        self.take_up(more)
        self.leaving = dict.fromkeys(values[7] if len(values) > 7 else ())
        self.blocked_servers = dict.fromkeys(blocked)
        for number, rest in rows.items():
            if rest:
                lane = self.lane(number)
                lane.rest, lane.last = rest, self.server.next_id
                self.ready += rest
        for proxy, credit, values, *draining in remote:
            note = Consume(*values)
            consumer = Consumer(proxy, note, message_filter(note.selector, note.no_local))
            consumer.credit = credit
            self.takers.add(consumer)
            if draining:
                self.takers.draining[consumer.key] = None
        self.count = self.ready + len(self.shelf.delayed)
        if self.purged:
            as_all = (self.count, self.bytes, self.ready)  # an older state does not say it
            self.stale, self.stale_bytes, self.stale_ready = values[8] if len(values) > 8 else as_all
        if at := self.shelf.next():
            self._alarm(at)
        else:  # most have nothing there
            self._shelf = None
            self.collections.clear()
        self.touch()

    def regain(self, row: HeldRow) -> None:
        """Somebody had this one, or it was backing off, when the server stopped."""
        found = readable(self.server, [row])
        if not found:
            return
        item = found[0]
        self.count += 1
        self.change()
        if item.holder:
            self.out.setdefault(item.holder, {})[item.id] = item
            self.out_bytes += item.size
            if item.group:
                owner = next((c for c in self.takers if c.key[0] == item.holder), None)
                self.takers.given(item, self.loaded(item), owner)
            item.put = None
        else:
            self._return(item, item.due)

    def _remote(self, proxy: str) -> bool:
        return proxy != "" and not proxy.startswith(f"{self.server.name}/")

    # -- places --------------------------------------------------------------------------------------------------

    def _first(self) -> QueuedMessage | None:
        """The first that waits; None: there is none, or it is not durable yet and cannot be read."""
        return next((lane.first() for lane in self.lanes.values() if len(lane)), None)

    def _drop_oldest(self) -> bool:
        """Of the least urgent that wait; else one that backs off; else the delayed one that is due first."""
        item = None
        for lane in reversed(self.lanes.values()):
            if len(lane):
                item = lane.first()
                if item is None:
                    return False
                self._take(item)
                break
        else:
            if self.later:
                item = self.later.pop(min(self.later))
            elif not self.volatile:
                item = self.shelf.pop()
        if item is None:
            return False
        self._end(item)
        self.dropped += 1
        return True

    def _take(self, item: QueuedMessage) -> None:
        self.lanes[item.lane].take(item)
        self.ready -= 1
        self.stale_ready -= item.id <= self.purged

    def loaded(self, item: QueuedMessage) -> ClientMessage:
        if item.put is None:
            find = self.server.written_held if item.place == HELD else self.server.written_item
            row = find(item.id)
            assert row is not None, "a message has lost its row"
            item.put = item_of(row).put
        assert item.put is not None, "a row has a message"
        return item.put

    def whole(self, item: QueuedMessage, was_out: bool = False) -> bool:
        """Can it be read? One whose row is damaged leaves the queue."""
        if item.put is None:
            find = self.server.written_held if item.place == HELD else self.server.written_item
            row = find(item.id)
            if row is None or not (found := readable(self.server, [row])):
                self._end(item, was_out)
                self.change()
                return False
            item.put = found[0].put
        return True

    def damaged(self, damage: Damage) -> None:
        """The store has lost a row of one of our collections."""
        name = damage.collection
        if name in LANES:
            lane = self.lane(LANES[name])
            if item := lane.items.get(damage.id):
                self._write(item, lane)  # it is whole in memory
            if item or not lane.rest or damage.id in lane.taken:
                return
            lane.rest -= 1
            self.ready -= 1
        else:
            super().damaged(damage)
        if name in LANES or name == DELAYED:
            self.count -= 1
            self.bytes -= min(damage.size, self.bytes - self.unstored)
        self._fewer_stale()
        self.change()
        self.touch()

    def lacks(self, lane: Lane) -> None:
        """The store has fewer messages of a lane than it should: nobody waits for them."""
        self.server.note(
            f"{lane.rest} messages of {self.service.shown(self.name)} are not in the store any more, which is damaged: "
            "see `mom store verify`"
        )
        self.count -= lane.rest
        self.ready -= lane.rest
        lane.rest = 0
        self._fewer_stale()
        self.change()

    def _fewer_stale(self) -> None:
        """Of what is lost nobody knows whether it was to be purged."""
        self.stale_ready = min(self.stale_ready, self.ready)
        self.stale = min(self.stale, self.count - sum(map(len, self.out.values())))

    def _write(self, item: QueuedMessage, lane: Lane) -> None:
        """The row of one that waits."""
        if item.stored:
            batch = self.server.batch
            if item.place == HELD:
                batch.held[item.id] = None
            item.place = WAITING
            batch.items[item.id] = item.row(self.id, lane.name)
            batch.bytes += item.size

    def _write_held(self, item: QueuedMessage) -> None:
        """The row of one that somebody has, or that is backing off."""
        if item.stored:
            batch = self.server.batch
            if item.place == WAITING:
                batch.items[item.id] = None
            item.place = HELD
            batch.held[item.id] = item.held_row(self.id)
            batch.bytes += item.size

    def _erase(self, item: QueuedMessage) -> None:
        batch = self.server.batch
        if item.place == HELD:
            batch.held[item.id] = None
        else:
            batch.items[item.id] = None

    def _postpone(self, item: QueuedMessage) -> None:
        assert item.put is not None, "a new message"
        if self.volatile:
            self._rest(item, item.put.due)
        else:
            self.shelf.delay(item)
            self._alarm(item.put.due)

    def _rest(self, item: QueuedMessage, due: int) -> None:
        self.later[item.id] = item
        heappush(self.times, (due, item.id))
        self._alarm(due)

    def _return(self, item: QueuedMessage, due: int = 0) -> None:
        """Back to its place, at once or after a while."""
        if not self.whole(item, True):
            return
        put = self.loaded(item)
        item.holder, item.due = "", due
        if item.group:
            self.takers.returned(item)
            self.touch()
        if item.id <= self.purged:
            self._stale(1, item)
            self._end(item)
        elif put.expires and put.expires <= max(self.server.now, due):
            self._dead_letter(item, "expired")
        elif due > self.server.now:
            self._write_held(item)
            self._rest(item, due)
            if item.stored:
                item.put = None
        else:
            self._wait_again(item)

    def _wait_again(self, item: QueuedMessage) -> None:
        self.loaded(item)
        item.due = 0
        lane = self.lane(item.lane)
        lane.back(item)
        self.ready += 1
        self._write(item, lane)
        self.takers.came_back(item.lane, item.id)
        self.touch()

    def _stale(self, more: int, item: QueuedMessage) -> None:
        self.stale += more
        self.stale_bytes += more * item.size

    def _end(self, item: QueuedMessage, was_out: bool = False) -> None:
        """The message leaves the queue."""
        if item.id <= self.purged and not was_out:
            self._stale(-1, item)
        if item.stored:
            self._erase(item)
        else:
            self.unstored -= item.size
        if item.x:
            self.shelf.forget(item)
        if item.group:
            self.takers.ended(item, was_out)
            self.touch()  # another one of its group may be for somebody now
        self.count -= 1
        self.bytes -= item.size
        if not self.count:
            self.bytes = self.unstored = 0  # what a damaged row has left
        elif self.bytes < self.unstored:
            self.bytes = self.unstored  # a damaged row seemed larger than it was
        if self.blocked_servers or self.service.waiting:
            self.free()

    def _dead_letter(self, item: QueuedMessage, reason: str, was_out: bool = False) -> None:
        """Out of the queue, to the dead letters."""
        if not self.whole(item, was_out):
            return
        self._end(item, was_out)
        self._send_dead_letter(item, reason)
        self.change()

    def _send_dead_letter(self, item: QueuedMessage, reason: str) -> None:
        """To the dead-letter queue; a dead letter does not get there again."""
        put, policy = item.put, self.policy
        assert put is not None, "a message in memory"
        if (reason == "expired" and policy.on_expiry == "drop") or "dead-letter-reason" in put.properties:
            self.dropped += 1
            return
        shown = self.service.shown(self.name)
        dead = dead_letter(item, put, reason, shown, self.server.now - self.server.ahead)
        dead.destination = policy.dead_letter or f"queue:DLQ.{shown[shown.index(':') + 1 :]}"
        self.service.send_to_queue(dead, self.id)

    # -- time ----------------------------------------------------------------------------------------------------

    def _alarm(self, at: int) -> None:
        at = max(at, self.server.now + SOON)
        if not self._next or at < self._next:
            self._next = at
            self.server.natives.alarm(at, self)

    # -- how much at once ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Take a share of what is left of the turn's work."""
        work = self.server.natives.work
        self._until = work - max(1, work // SHARE) if work > 0 else work

    def spend(self, cost: int, size: int) -> None:
        self.server.natives.work -= cost + size // WORK_BYTES

    def share(self) -> int:
        """How many messages, when they have been looked at, have used up what is left of it."""
        return max(1, -(-(self.server.natives.work - self._until) // LOOK))

    def spent(self) -> bool:
        """Has the share been used up? Then it goes on when others had theirs."""
        natives = self.server.natives
        if natives.work > self._until:
            return False
        natives.go_on(self)
        return True

    # -- what was due --------------------------------------------------------------------------------------------

    def alarm(self) -> None:
        """Something was due: delayed messages, backed-off ones, expiries."""
        if self._next and self._next <= self.server.now:  # else an earlier alarm has replaced it
            self._next = 0
            self.ripe = True
            self.touch()

    def _ripen(self) -> None:
        now = self.server.now
        while self.times and self.times[0][0] <= now:
            if self.spent():
                return
            if item := self.later.pop(heappop(self.times)[1], None):
                self.spend(MOVE, item.size)
                self.change()
                self._rested(item)
        if not self.volatile:
            while due := self.shelf.due(now):
                for item in due:
                    self._ripened(item)
                if self.spent():
                    return
            while expired := self.shelf.expired(now):
                for id, number in expired:
                    self._expire(id, number)
                if self.spent():
                    return
        self.ripe = False
        times = [self.times[0][0] if self.times else 0, 0 if self.volatile else self.shelf.next()]
        if at := min(filter(None, times), default=0):
            self._alarm(at)

    def _ripened(self, item: QueuedMessage) -> None:
        """It was delayed."""
        self.spend(MOVE, item.size)
        self.change()
        if item.id <= self.purged:
            self._end(item)
            return
        item.id, item.stored, item.place = self.server.new_id(), False, NOWHERE
        self.enter(item)
        self.unstored += 0 if item.stored else item.size

    def _rested(self, item: QueuedMessage) -> None:
        if item.id <= self.purged:
            self._end(item)
        elif item.due:
            if self.whole(item):
                self._wait_again(item)
        else:  # volatile and delayed: it comes only now
            item.id = self.server.new_id()
            self.enter(item)

    def _expire(self, id: int, number: int) -> None:
        self.spend(MOVE, 0)
        self.change()
        lane = self.lane(number)
        item = lane.items.get(id)
        if item is None:
            for held in self.out.values():
                if id in held:
                    held[id].x = 0  # it is with a consumer: expired only if it comes back
                    return
            item = self.later.pop(id, None)
            if item is None:
                row = self.server.written_item(id)
                if row is None:
                    return
                if not (found := readable(self.server, [row])):
                    return
                item = found[0]
                self._take(item)
        else:
            self._take(item)
        item.x = 0
        self._dead_letter(item, "expired")

    # -- for the operator ----------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Nobody gets what is here now; it goes, some at a time. Returns how many messages wait."""
        waiting = self.ready - self.stale_ready
        self.purged = self.server.next_id
        self.stale = self.count - sum(map(len, self.out.values()))
        self.stale_bytes, self.stale_ready = self.bytes - self.out_bytes, self.ready
        self.shelf.swept = None
        self.change()
        self.touch()
        return waiting

    def _purge(self) -> None:
        self.change()
        for lane in self.lanes.values():
            while len(lane):
                item = lane.first()
                if item is None:
                    self.server.natives.touch_late(self)
                    return
                if item.id > self.purged:
                    break
                if self.spent():
                    return
                self.spend(LOOK, 0)
                self._take(item)
                self._end(item)
        for id in [id for id in self.later if id <= self.purged]:
            if self.spent():
                return
            self.spend(LOOK, 0)
            self._end(self.later.pop(id))
        while not self.volatile and (delayed := self.shelf.drop(self.purged)) is not None:
            for item in delayed:
                self._end(item)
            self.spend(PAGE * LOOK, 0)
            if self.spent():
                return
        self.purged = self.stale = self.stale_bytes = self.stale_ready = 0

    def withdraw(self, item: QueuedMessage) -> None:
        """One that waits goes elsewhere."""
        self._take(item)
        self._end(item)

    def describe(self) -> dict[str, Any]:
        return {
            "destination": self.service.shown(self.name), "home": self.server.name,
            "messages": self.count - self.stale, "bytes": self.bytes - self.stale_bytes,
            "ready": self.ready - self.stale_ready, "unacked": sum(map(len, self.out.values())),
            "backing_off": sum(id > self.purged for id in self.later), "consumers": len(self.takers.consumers),
            "dropped": self.dropped,
        }  # fmt: skip

    def check(self) -> None:
        """Assert the invariants."""
        for lane in self.lanes.values():
            lane.check()
        assert self.ready == sum(len(lane) for lane in self.lanes.values()), "waiting messages miscounted"
        held, delayed = sum(map(len, self.out.values())), 0 if self._shelf is None else len(self.shelf.delayed)
        assert self.count == self.ready + held + len(self.later) + delayed, "messages miscounted"
        assert all(item.holder == proxy for proxy, items in self.out.items() for item in items.values()), "wrong holder"
        assert self.bytes >= self.unstored >= 0, "bytes miscounted"
        sizes = sum(item.size for items in self.out.values() for item in items.values())
        assert self.out_bytes == sizes, "bytes that somebody has miscounted"
        assert 0 <= self.stale_ready <= min(self.stale, self.ready) and self.stale <= self.count - held, "stale"
        assert self.purged or not self.stale, "nothing is purged, and yet something is stale"
        self._check_busy()

    def _check_busy(self) -> None:
        """Whatever is to be done is being done, or waits for something from outside."""
        if self.server.natives.armed(self):
            return
        assert not self.leaving, "what lost connections had is left lying"
        assert not self.purged and not self.ripe, "a purge, or what was due, is left lying"
        first = self.times[0][0] if self.times else 0
        assert not first or 0 < self._next <= max(first, self.server.now + SOON), "what is due has no alarm"

    # -- what queue.py does with it ------------------------------------------------------------------------------

    def enter(self, item: QueuedMessage) -> None:
        """A new message is given at once, or waits."""
        raise NotImplementedError

    def free(self) -> None:
        """There is more room than before."""
        raise NotImplementedError
