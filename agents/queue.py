"""Queue: messages for whoever takes them, on one home server, in the order in which it received them.

Also the store of a durable or shared subscription, which is a queue that only its topics feed (subscription.py).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, ClassVar

import msgpack

from mombroker.agents.browser import Browser
from mombroker.agents.lane import HELD, Item, Lane, item_of
from mombroker.agents.native import Native
from mombroker.agents.policy import Policy
from mombroker.agents.producers import Producers
from mombroker.agents.shelf import Shelf
from mombroker.agents.takers import Consumer, Key, Takers
from mombroker.agents.traffic import Cancel, Consume, Dispatch, Full, Gone, Put, Refuse, Settle, Started, pack
from mombroker.agents.wanted import wanted
from mombroker.core.message import BOUNCE, Message

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

VERSION = 1  # of the state blob
DISPATCH_BYTES = 1 << 20  # of one message to a consumer, unless one alone is larger
SEARCH = 10_000  # messages looked at by one search
SOON = 10_000_000  # ns: alarms are not closer than that
PURGE = 1_000  # messages purged at once
FREE = 0.9  # of its limit: a queue that was full takes work again below that


def _state(*values: Any) -> bytes:
    packed: bytes = pack([VERSION, *values])
    return packed


class Queue(Native):
    """1. A message is in exactly one place: a lane (its row in `p0` to `p9`), `out` or `later` (in HELD), or delayed.
    2. `count` and `bytes` are those of all messages, `ready` counts those in lanes.
    3. What a proxy of another server has, its row says, and its consumers are in the state: both servers may restart.
    4. Whatever was given is dispatched before the batch closes.
    """

    path = "mombroker.agents.queue:Queue"

    def __init__(self, server: AgentServer, id: str, state: bytes = b"", volatile: bool = False):
        super().__init__(server, id)
        self.name = id[id.index("/") + 1 :]
        self.volatile = volatile  # it has no rows at all
        self.service: Any = server.clients  # ClientService
        self.lanes: dict[int, Lane] = {}  # in order of urgency
        self.out: dict[str, dict[int, Item]] = {}  # proxy -> what it has
        self.later: dict[int, Item] = {}  # backing off, or volatile and not due
        self.times: list[tuple[int, int]] = []  # heap of (due, id) of those, and of some that have left
        self.takers = Takers()
        self.browsers: dict[Key, Browser] = {}
        self.count = self.ready = self.bytes = self.loose = 0  # loose: bytes without a row
        self.coming = 0  # messages that were let in and are on their way
        self.told: set[str] = set()  # servers that hold back their clients
        self.dropped = 0
        self.paused = False  # nothing is given at present
        self.purged = 0  # what waits up to this id is to go
        self._shelf: Shelf | None = None
        self._producers: Producers | None = None
        self._next = 0  # time of the next alarm
        self._version = 0
        self._policy = Policy()
        if state:
            self._load(state)

    @property
    def policy(self) -> Policy:
        policies = self.service.policies
        if self._version != policies.version:
            self._version, self._policy = policies.version, policies.of(self.service.shown(self.name))
        return self._policy

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = Producers(self.server, self.id)
        return self._producers

    @property
    def shelf(self) -> Shelf:
        if self._shelf is None:
            self._shelf = Shelf(self)
        return self._shelf

    def lane(self, number: int) -> Lane:
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(self.server, self.service.pool, self.id, number, whole=self.volatile)
            self.lanes = dict(sorted(self.lanes.items()))
        return found

    def change(self) -> None:
        if not self.volatile:
            super().change()

    # -- state ---------------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        rows = {number: len(lane) - lane.loose for number, lane in self.lanes.items()}
        remote = [[c.key[0], c.credit, c.note.values()] for c in self.takers if self._remote(c.key[0])]
        return _state(self.bytes - self.loose, rows, remote, sorted(self.told), self.purged, self.more_state())

    @staticmethod
    def blank(more: Any) -> bytes:
        """The state of an empty one."""
        return _state(0, {}, [], [], 0, more)

    def more_state(self) -> Any:
        return None

    def take_up(self, more: Any) -> None:
        """What `more_state` has kept."""

    def _load(self, state: bytes) -> None:
        _, self.bytes, rows, remote, told, self.purged, more = msgpack.unpackb(state, strict_map_key=False)
        self.take_up(more)
        self.told = set(told)
        for number, rest in rows.items():
            if rest:
                self.lane(number).rest = rest
                self.ready += rest
        for proxy, credit, values in remote:
            note = Consume(*values)
            consumer = Consumer(proxy, note, wanted(note.selector, note.no_local))
            consumer.credit = credit
            self.takers.add(consumer)
        self.count = self.ready + len(self.shelf.delayed)
        place = None
        while held := self.server.reader.items(self.id, HELD, place, 256):
            place = (held[-1].key, held[-1].id)
            for row in held:
                self.count += 1
                self._regain(item_of(row))
                self.change()
        if self.purged:
            self._alarm(0)
        if at := self.shelf.next():
            self._alarm(at)
        self.touch()

    def _regain(self, item: Item) -> None:
        """Somebody had this one, or it was backing off, when the server stopped."""
        if item.holder:
            self.out.setdefault(item.holder, {})[item.id] = item
            if item.group:
                owner = next((c for c in self.takers if c.key[0] == item.holder), None)
                self.takers.given(item, self.loaded(item), owner)
            item.put = None
        else:
            self._return(item, item.due)

    def recovered(self) -> None:
        """It is in memory again. What connections of this server had comes back, unless it is settled in the inbox."""
        for proxy in self.out:
            if not self._remote(proxy):
                self.server.send(self.server.note_to(proxy, (self.id,), Gone(), 0, BOUNCE))

    def _remote(self, proxy: str) -> bool:
        return proxy != "" and not proxy.startswith(f"{self.server.name}/")

    # -- in ------------------------------------------------------------------------------------------------------

    def admit(self, put: Put) -> bool:
        """May a client's message be let in? It counts as coming until it is here."""
        policy = self.policy
        if not (policy.max_messages or policy.max_bytes) or policy.full == "drop-oldest":
            return True
        if self._over(policy, self.coming + 1, put.size):
            return False
        self.coming += 1
        put.let_in = True
        return True

    def leave_out(self, put: Put) -> None:
        """It does not come after all."""
        self.coming -= 1
        put.let_in = False

    def _over(self, policy: Policy, more: int, size: int) -> bool:
        return bool(
            (policy.max_messages and self.count + more > policy.max_messages)
            or (policy.max_bytes and self.bytes + size > policy.max_bytes)
        )

    def put(self, put: Put, message: Message) -> None:
        if put.let_in:
            self.coming -= 1
        if put.producer and not self.producers.fresh(put.producer, put.counter):
            return
        now = self.server.now
        item = Item(self.server.new_id(), self.lane_of(put), put.message or f"{message.origin}#{message.number}", put)
        if put.expires and put.expires <= max(now, put.due):
            self._inter(item, "expired")
            return
        policy = self.policy
        if (policy.max_messages or policy.max_bytes) and self._over(policy, 1, item.size):
            if not self._squeeze(item, message.source):
                return
        self.count += 1
        self.bytes += item.size
        if put.due > now:
            self._postpone(item)
        else:
            self._enter(item)
        if not item.stored:
            self.loose += item.size
        self.change()

    def lane_of(self, put: Put) -> int:
        """0 is the most urgent."""
        return 9 - put.priority

    def _enter(self, item: Item) -> None:
        """A new message is given at once, or waits."""
        put = item.put
        assert put is not None, "a new message"
        item.stored = put.persistent and not self.volatile
        if put.expires and not self.volatile:
            self.shelf.expire(item, put.expires)
            self._alarm(put.expires)
        if not self.ready and not self.paused and (taker := self.takers.choose(item, put)):
            self._give(taker, item)
        else:
            lane = self.lane(item.lane)
            lane.put(item)
            self.ready += 1
            self._write(item, lane.name)
        if self.takers.consumers:
            self.touch()

    def _postpone(self, item: Item) -> None:
        assert item.put is not None, "a new message"
        if self.volatile:
            self._rest(item, item.put.due)
        else:
            self.shelf.delay(item)
            self._alarm(item.put.due)

    def _rest(self, item: Item, due: int) -> None:
        self.later[item.id] = item
        heappush(self.times, (due, item.id))
        self._alarm(due)

    def _write(self, item: Item, collection: str) -> None:
        if item.stored:
            batch = self.server.batch
            batch.items[item.id] = item.row(self.id, collection)
            batch.bytes += item.size

    def _squeeze(self, item: Item, source: str) -> bool:
        """A message came though the queue is full. False: it is refused."""
        policy = self.policy
        if policy.full == "drop-oldest":
            while self._over(policy, 1, item.size) and (oldest := self._oldest()):
                self._take(oldest)
                self._end(oldest)
                self.dropped += 1
            return True
        home = source[: source.index("/")]
        if home == self.server.name:
            return True  # our clients were let in, or stopped before
        if home not in self.told:  # let it hold back its clients
            self.told.add(home)
            self.post(f"{home}/_clients", Full(self.id, True))
            self.change()
        if policy.full == "block":
            return True  # what is under way is taken
        self._inter(item, f"{self.service.shown(self.name)} is full")
        return False

    def _oldest(self) -> Item | None:
        for lane in reversed(self.lanes.values()):
            if len(lane):
                return lane.first()
        return None

    # -- out -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._pump()
        for consumer in self.takers:
            if consumer.pending:
                self._dispatch(consumer)
        for browser in list(self.browsers.values()):
            if browser.show(self):
                del self.browsers[browser.key]

    def _pump(self) -> None:
        """Give what waits to whoever wants it."""
        takers, now = self.takers, self.server.now
        while self.ready and not self.paused and takers.hungry():
            item = self._first()
            if item is None or item.id <= self.purged:
                self.server.engine.natives.touch_late(self)
                return
            put = self.loaded(item)
            if put.expires and put.expires <= now:
                self._take(item)
                self._bury(item, "expired")
            elif taker := takers.choose(item, put):
                self._take(item)
                self._give(taker, item)
            else:
                for consumer in takers.waiting():
                    self._search(consumer)
                return

    def _first(self) -> Item | None:
        """The first that waits; None: there is none, or it is not durable yet and cannot be read."""
        for lane in self.lanes.values():
            if self.purged:
                self._clear(lane, PURGE)
            if len(lane):
                return lane.first()
        return None

    def _search(self, consumer: Consumer) -> None:
        """The first message is for nobody that wants one now: look further, for one of them."""
        looked = 0
        for number, lane in self.lanes.items():
            while consumer.credit > 0 and len(lane):
                found = None
                for item in lane.after(max(self.purged, consumer.dry.get(number, 0))):
                    looked += 1
                    if self.takers.may(consumer, item, self.loaded(item)):
                        found = item
                        break
                    consumer.dry[number] = item.id
                    if looked >= SEARCH:
                        self._alarm(self.server.now + 1)
                        return
                if found is None:
                    if lane.rest and self.server.durable_id < self.server.next_id:
                        self.server.engine.natives.touch_late(self)
                    break
                self._take(found)
                self._give(consumer, found)

    def _take(self, item: Item) -> None:
        self.lanes[item.lane].take(item)
        self.ready -= 1

    def _give(self, consumer: Consumer, item: Item) -> None:
        """The row says so before the message leaves: the count survives."""
        put = item.put
        assert put is not None, "a message in memory"
        item.count += 1
        item.holder = proxy = consumer.key[0]
        held = self.out.get(proxy)
        if held is None:
            held = self.out[proxy] = {}
        held[item.id] = item
        consumer.credit -= 1
        consumer.pending.append(item)
        self._write(item, HELD)
        if item.group:
            self.takers.given(item, put, consumer)

    def _dispatch(self, consumer: Consumer) -> None:
        pending, consumer.pending = consumer.pending, []
        items: list[tuple[int, str, int, Any]] = []
        size = 0
        for item in pending:
            items.append((item.id, item.message, item.count, item.put))
            size += item.size
            if item.stored:
                item.put = None
            if size >= DISPATCH_BYTES:
                self.post(consumer.key[0], Dispatch(consumer.key[1], items))
                items, size = [], 0
        if items:
            self.post(consumer.key[0], Dispatch(consumer.key[1], items))
        self.change()

    def loaded(self, item: Item) -> Put:
        if item.put is None:
            row = self.server.written_item(item.id)
            assert row is not None, "a message has lost its row"
            item.put = item_of(row).put
        assert item.put is not None, "a row has a message"
        return item.put

    # -- back ----------------------------------------------------------------------------------------------------

    def settle(self, note: Settle, message: Message) -> None:
        held = self.out.get(message.source, {})
        for id in note.taken:
            if item := held.pop(id, None):
                self._end(item, True)
        for id in note.back:
            if item := held.pop(id, None):
                item.count -= 1
                self._return(item)
        for id in note.failed:
            if item := held.pop(id, None):
                self._fail(item, self.policy.nack == "dead-letter")
        for id in note.again:
            if item := held.pop(id, None):
                self._fail(item, False)
        for id in note.refused:
            if item := held.pop(id, None):
                self._refuse(item)
        if note.credit:
            key = (message.source, note.consumer)
            if taker := self.takers.consumers.get(key) or self.browsers.get(key):
                taker.credit += note.credit
                self.touch()
        self.change()

    def _return(self, item: Item, due: int = 0) -> None:
        """Back to its place, at once or after a while."""
        put = self.loaded(item)
        item.holder, item.due = "", due
        if item.group:
            self.takers.returned(item)
        if item.id <= self.purged:
            self._end(item)
        elif put.expires and put.expires <= max(self.server.now, due):
            self._bury(item, "expired")
        elif due > self.server.now:
            self._write(item, HELD)
            self._rest(item, due)
            if item.stored:
                item.put = None
        else:
            self._wait_again(item)

    def _wait_again(self, item: Item) -> None:
        self.loaded(item)
        item.due = 0
        lane = self.lane(item.lane)
        lane.back(item)
        self.ready += 1
        self._write(item, lane.name)
        self.takers.undry(item.id)
        self.touch()

    def _fail(self, item: Item, at_once: bool) -> None:
        """Its consumer gave it back."""
        policy, dead = self.policy, "dead-letter-reason" in self.loaded(item).properties
        item.failures += 1
        if not dead and (at_once or item.failures > policy.redeliver):
            self._bury(item, f"given back {item.failures} times", True)
        else:
            self._return(item, self.server.now + policy.backoff_ns(item.failures))

    def _refuse(self, item: Item) -> None:
        self._bury(item, "refused by its consumer", True)

    def _end(self, item: Item, was_out: bool = False) -> None:
        """The message leaves the queue."""
        if item.stored:
            self.server.batch.items[item.id] = None
        else:
            self.loose -= item.size
        if item.x:
            self.shelf.forget(item)
        if item.group:
            self.takers.ended(item, was_out)
        self.count -= 1
        self.bytes -= item.size
        if self.told or self.service.waiting:
            self.free()

    def free(self) -> None:
        """Does a queue that was full take work again?"""
        policy = self.policy
        if (policy.max_messages and self.count > FREE * policy.max_messages) or (
            policy.max_bytes and self.bytes > FREE * policy.max_bytes
        ):
            return
        for home in self.told:
            self.post(f"{home}/_clients", Full(self.id, False))
        self.told = set()
        self.service.freed(self.id)

    # -- ends of messages ----------------------------------------------------------------------------------------

    def _bury(self, item: Item, reason: str, was_out: bool = False) -> None:
        """Out of the queue, to the dead letters."""
        self.loaded(item)
        self._end(item, was_out)
        self._inter(item, reason)
        self.change()

    def _inter(self, item: Item, reason: str) -> None:
        """To the dead-letter queue, with reason, time, count and origin; a dead letter does not get there again."""
        put, policy = item.put, self.policy
        assert put is not None, "a message in memory"
        if (reason == "expired" and policy.expired == "drop") or "dead-letter-reason" in put.properties:
            self.dropped += 1
            return
        dead = Put(*put.values())
        dead.properties = {
            **put.properties, "dead-letter-reason": reason,
            "dead-letter-time": str(self.server.now // 1_000_000), "dead-letter-count": str(item.count),
            "dead-letter-from": self.service.shown(self.name), "original-destination": put.shown,
            "original-message-id": item.message,
        }  # fmt: skip
        dead.expires = dead.due = dead.counter = dead.group_seq = 0
        dead.producer = dead.group = dead.message = ""
        dead.persistent = True
        shown = self.service.shown(self.name)
        dead.destination = policy.dead_letter or f"queue:DLQ.{shown[shown.index(':') + 1 :]}"
        self.service.send_to_queue(dead, self.id)

    # -- consumers -----------------------------------------------------------------------------------------------

    def consume(self, note: Consume, message: Message) -> None:
        if not self._remote(message.source) and message.source not in self.server.engine.natives.agents:
            return  # its connection has ended, perhaps with the last process
        consumer = Consumer(message.source, note, wanted(note.selector, note.no_local))
        if note.browser:
            self.browsers[consumer.key] = Browser(consumer, self.server.next_id)
        else:
            self.takers.add(consumer)
            self.change()
        self.started(message.source, note.consumer)
        self.touch()

    def started(self, proxy: str, number: int) -> None:
        self.post(proxy, Started(number))

    def cancel(self, note: Cancel, message: Message) -> None:
        self._leave((message.source, note.consumer))

    def _leave(self, key: Key) -> None:
        self.browsers.pop(key, None)
        consumer = self.takers.remove(key)
        if consumer:
            for item in consumer.pending:
                del self.out[key[0]][item.id]
                item.count -= 1
                self._return(item)
            self.change()
            self.touch()
            self.left()

    def left(self) -> None:
        """A consumer has gone."""

    def gone(self, note: Gone, message: Message) -> None:
        self.release(lambda proxy: proxy == message.source)

    def release(self, whose: Callable[[str], bool]) -> int:
        """Take back what these proxies hold, and let their consumers go. Returns how many messages that were."""
        for key in [key for key in [*self.takers.consumers, *self.browsers] if whose(key[0])]:
            self._leave(key)
        returned = 0
        for proxy in [proxy for proxy in self.out if whose(proxy)]:
            for item in self.out.pop(proxy).values():
                self._return(item)
                returned += 1
        self.change()
        return returned

    def deleted(self) -> None:
        for proxy, number in [*self.takers.consumers, *self.browsers]:
            self.post(proxy, Refuse(number, f"{self.service.shown(self.name)} was deleted"))
        self.service.forget(self)

    # -- time ----------------------------------------------------------------------------------------------------

    def _alarm(self, at: int) -> None:
        at = max(at, self.server.now + SOON)
        if not self._next or at < self._next:
            self._next = at
            self.server.engine.alarm(at, self)

    def alarm(self) -> None:
        """Something was due: delayed messages, backed-off ones, expiries."""
        now = self.server.now
        if not self._next or self._next > now:
            return  # an alarm that an earlier one has replaced
        self._next = 0
        if self.purged:
            self._purge()
        while self.times and self.times[0][0] <= now:
            if item := self.later.pop(heappop(self.times)[1], None):
                self._rested(item)
        if not self.volatile:
            for item in self.shelf.due(now):
                if item.id <= self.purged:
                    self._end(item)
                    continue
                item.id, item.stored = self.server.new_id(), False
                self._enter(item)
                self.loose += 0 if item.stored else item.size
            for id, number in self.shelf.expired(now):
                self._expire(id, number)
        times = [self.times[0][0] if self.times else 0, 0 if self.volatile else self.shelf.next()]
        if at := min(filter(None, times), default=0):
            self._alarm(at)
        self.change()
        self.touch()

    def _rested(self, item: Item) -> None:
        if item.due:
            self._wait_again(item)
        else:  # volatile and delayed: it comes only now
            item.id = self.server.new_id()
            self._enter(item)

    def _expire(self, id: int, number: int) -> None:
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
                item = item_of(row)
                self._take(item)
        else:
            self._take(item)
        item.x = 0
        self._bury(item, "expired")

    # -- for the operator ----------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Nobody gets what is here now; it goes, some at a time. Returns how many messages wait."""
        self.purged = self.server.next_id
        self._alarm(0)
        self.change()
        return self.ready

    def _purge(self) -> None:
        left = PURGE
        for lane in self.lanes.values():
            left = self._clear(lane, left)
        for id in [id for id in self.later if id <= self.purged]:
            self._end(self.later.pop(id))
        delayed = [] if self.volatile else self.shelf.drop(self.purged)
        for item in delayed:
            self._end(item)
        if delayed or any(len(lane) and self._stale(lane.first()) for lane in self.lanes.values()):
            self._alarm(0)
        else:
            self.purged = 0

    def withdraw(self, item: Item) -> None:
        """One that waits goes elsewhere."""
        self._take(item)
        self._end(item)

    def _stale(self, first: Item | None) -> bool:
        return first is None or first.id <= self.purged

    def _clear(self, lane: Lane, left: int) -> int:
        """Purge up to `left` messages of a lane; how many more might go."""
        while left > 0 and (item := lane.first()) is not None and item.id <= self.purged:
            self._take(item)
            self._end(item)
            self.change()
            left -= 1
        return left

    def describe(self) -> dict[str, Any]:
        return {
            "destination": self.service.shown(self.name), "home": self.server.name, "messages": self.count,
            "bytes": self.bytes, "waiting": self.ready, "held": sum(map(len, self.out.values())),
            "backing_off": len(self.later), "consumers": len(self.takers.consumers), "dropped": self.dropped,
        }  # fmt: skip

    def check(self) -> None:
        """Assert the invariants."""
        for lane in self.lanes.values():
            lane.check()
        assert self.ready == sum(len(lane) for lane in self.lanes.values()), "waiting messages miscounted"
        held, delayed = sum(map(len, self.out.values())), 0 if self._shelf is None else len(self.shelf.delayed)
        assert self.count == self.ready + held + len(self.later) + delayed, "messages miscounted"
        assert all(item.holder == proxy for proxy, items in self.out.items() for item in items.values()), "wrong holder"
        assert self.bytes >= self.loose >= 0, "bytes miscounted"

    handlers: ClassVar[Any] = {
        Put.wire: put, Settle.wire: settle, Consume.wire: consume, Cancel.wire: cancel, Gone.wire: gone,
    }  # fmt: skip
