"""Queue: messages for whoever takes them, on one home server, in the order in which it received them.

Also the store of a durable or shared subscription, which is a queue that only its topics feed (subscription.py).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from mombroker.broker.message import ClientMessage
from mombroker.broker.policy import Policy
from mombroker.broker.protocol import Cancel, Consume, Dispatch, Drained, Flow, Full, Gone, Refuse, Settle, Started
from mombroker.broker.queue.browser import Browser
from mombroker.broker.queue.consumer import Consumer, Key
from mombroker.broker.queue.dedup import PRODUCERS, Dedup
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.messages import GIVE, LOOK, MOVE, QueueMessages
from mombroker.broker.selectors import message_filter
from mombroker.core.errors import MomError
from mombroker.core.ids import home_of
from mombroker.core.message import BOUNCE, Message
from mombroker.core.natives import Natives

if TYPE_CHECKING:
    pass

DISPATCH_BYTES = 1 << 20  # of one message to a consumer, unless one alone is larger
SETTLED = 8  # messages that cost as much as looking at one
CHECKED = 1_000  # messages of a lane that a check looks at
FREE = 0.9  # of its limit: a queue that was full takes work again below that


class Queue(QueueMessages):
    """1. Whatever was given is dispatched before the batch closes.
    2. While something of `leaving` proxies is not back at its place, nothing is given.
    """

    path = "mombroker.agents.queue:Queue"
    deletable = True
    rows_are = {PRODUCERS: "what a producer has sent, of which a repeat is not noticed now, in the duplicate list of"}

    __slots__ = ("browsers", "reserved", "paused", "_counted", "_moved", "_searches", "_producers", "_unread")

    def __init__(self, natives: Natives, id: str, state: bytes = b"", volatile: bool = False):
        self.browsers: dict[Key, Browser] = {}
        self.reserved = 0  # messages that were let in and are on their way
        self.paused = False  # nothing is given at present
        self._counted = self._moved = 0  # a batch, and bytes that were given and taken back in it
        self._searches = 0  # that did not come to their end at once
        self._producers: Dedup | None = None
        self._unread = False  # what the store has of them, of which damage has to be found when the queue is used
        super().__init__(natives, id, state, volatile)
        self.pause()

    @property
    def producers(self) -> Dedup:
        if self._producers is None:
            self._producers = Dedup(self.server, self.id)
        return self._producers

    # -- in ------------------------------------------------------------------------------------------------------

    def admit(self, put: ClientMessage) -> bool:
        """May a client's message be let in? It counts as coming until it is here."""
        policy = self.policy
        if not self.limited or policy.overflow == "drop-head":
            return True
        if self._over(policy, self.reserved + 1, put.size):
            return False
        self.reserved += 1
        put.reserved = True
        return True

    def release_room(self, put: ClientMessage) -> None:
        """It does not come after all."""
        self.reserved -= 1
        put.reserved = False

    def _over(self, policy: Policy, more: int, size: int) -> bool:
        return bool(
            (policy.max_messages and self.count + more > policy.max_messages)
            or (policy.max_bytes and self.bytes + size > policy.max_bytes)
        )

    def put(self, put: ClientMessage, message: Message) -> None:
        if put.reserved:
            self.reserved -= 1
        if self._unread:
            self._unread = False
            self.producers  # noqa: B018
        if put.producer and not self.producers.fresh(put.producer, put.counter):
            return
        now = self.server.now
        if put.expires or put.due:
            self.service.set_by_our_clock(put, message)
        item = QueuedMessage(
            self.server.new_id(), self.lane_of(put), put.message or f"{message.origin}#{message.number}", put
        )
        if put.expires and put.expires <= max(now, put.due):
            self._send_dead_letter(item, "expired")
            return
        if self.limited and self._over(self.policy, 1, item.size) and not self._overflow(item, message.source):
            return
        self.count += 1
        self.bytes += item.size
        if put.due > now:
            self._postpone(item)
        else:
            self.enter(item)
        if not item.stored:
            self.unstored += item.size
        self.change()

    def lane_of(self, put: ClientMessage) -> int:
        """0 is the most urgent."""
        return 9 - put.priority

    def enter(self, item: QueuedMessage) -> None:
        """A new message is given at once, or waits."""
        put = item.put
        assert put is not None, "a new message"
        item.stored = put.persistent and not self.volatile
        if put.expires and not self.volatile:
            self.shelf.expire(item, put.expires)
            self._alarm(put.expires)
        offered = not self.paused and (not self.ready or (self.takers.selective and self._unwanted(item)))
        if offered and (taker := self.takers.choose(item, put)):
            if not taker.pending:
                self.touch()
            self._give(taker, item)
            return
        lane = self.lane(item.lane)
        lane.put(item)
        self.ready += 1
        self._write(item, lane)
        if offered and not item.group:
            for consumer in self.takers.waiting():
                consumer.seen[item.lane] = item.id
        elif self.takers.consumers:
            self.touch()

    def _unwanted(self, new: QueuedMessage) -> bool:
        """Is what waits for nobody that wants one now? Then a new message need not wait behind it."""
        return not new.group and all(map(self._seen_all, self.takers.waiting()))

    def _seen_all(self, consumer: Consumer) -> bool:
        seen, again = consumer.seen, consumer.again
        return all(seen.get(number, 0) >= lane.last and not again.get(number) for number, lane in self.lanes.items())

    def _overflow(self, item: QueuedMessage, source: str) -> bool:
        """A message came though the queue is full. False: it is refused."""
        policy = self.policy
        if policy.overflow == "drop-head":
            if policy.max_bytes and item.size > policy.max_bytes:
                self.dropped += 1
                return False
            self._begin()
            self._drop_head(1, item.size)
            return True
        home = source[: source.index("/")]
        if home == self.server.name:
            return True  # our clients were let in, or stopped before
        if home not in self.blocked_servers:  # let it hold back its clients
            self.blocked_servers[home] = None
            self.post(f"{home}/_clients", Full(self.id, True))
            self.change()
        if policy.overflow == "block":
            return True  # what is under way is taken
        self._send_dead_letter(item, f"{self.service.shown(self.name)} is full")
        return False

    def _drop_head(self, more: int, size: int) -> None:
        """Drop the oldest, as far as nobody has them, until so much more has room."""
        policy = self.policy
        while self._over(policy, more, size) and not self.spent():
            self.spend(LOOK, 0)
            if not self._drop_oldest():
                if self.ready:  # it is not durable yet, and cannot be read
                    self.server.natives.touch_late(self)
                return

    def free(self) -> None:
        """Does a queue that was full take work again?"""
        policy = self.policy
        if (policy.max_messages and self.count > FREE * policy.max_messages) or (
            policy.max_bytes and self.bytes > FREE * policy.max_bytes
        ):
            return
        for home in self.blocked_servers:
            self.post(f"{home}/_clients", Full(self.id, False))
        self.blocked_servers = {}
        self.service.freed(self.id)

    # -- out -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._begin()
        if self.leaving:
            self._take_back()
        if self.ripe:
            self._ripen()
        if self.purged:
            self._purge()
        if self.limited and self._policy.overflow == "drop-head":
            self._drop_head(-sum(map(len, self.out.values())), -self.out_bytes)  # has too much come back?
        self._pump()
        for consumer in self.takers:
            if consumer.pending:
                self._dispatch(consumer)
        for browser in list(self.browsers.values()):
            if browser.show(self):
                del self.browsers[browser.key]
        if self.takers.draining:
            self._answer_drains()

    def _begin(self) -> None:
        """Count anew for a new batch."""
        super()._begin()
        if self._counted != self.server.batch.number:
            self._counted, self._moved = self.server.batch.number, 0

    def _pump(self) -> None:
        """Give what waits to whoever wants it."""
        takers, now = self.takers, self.server.now
        while self.ready and not self.paused and takers.hungry():
            if self._enough() or self.spent():
                return
            item = self._first()
            if item is None:
                self.server.natives.touch_late(self)
                return
            if item.id <= self.purged:
                return  # it goes first
            self.spend(GIVE if item.put else LOOK, item.size)
            put = self.loaded(item)
            if put.expires and put.expires <= now:
                self._take(item)
                self._dead_letter(item, "expired")
            elif taker := takers.choose(item, put):
                self._take(item)
                self._give(taker, item)
                self._moved += item.size
            else:
                self._search()
                return

    def _enough(self) -> bool:
        """So much was moved in this batch that the rest waits for the next one, lest proxies have no room in it to
        react. When others have filled it this queue still moves something, or it would stand still as long as they do.
        """
        if self._moved < self.server.limits.batch_bytes // (8 if self.server.batch_full() else 2):
            return False
        self.server.natives.touch_late(self)
        self.server.mark(2)
        return True

    def _search(self) -> None:
        """The first message is for nobody that wants one now: look further, for one of them.

        Each of them has its own place, and never sees the same again unless things have changed. A search that is not
        at its end goes on when others had their turn: that of another consumer of the same priority, too.
        """
        self.takers.changed = False
        for consumer in self.takers.waiting(self._searches):
            for number in list(self.lanes):
                if not self._look(consumer, number):
                    self._searches += 1
                    return

    def _look(self, consumer: Consumer, number: int) -> bool:
        """Look through one lane. False: this is to go on."""
        lane, seen = self.lanes[number], consumer.seen
        while consumer.hungry and (again := consumer.again.get(number)):
            item = lane.items.get(heappop(again))
            if item is not None:
                self._offer(consumer, item)
                if self._interrupted():
                    return False
        at = seen.get(number, 0)
        if at >= lane.last or not consumer.hungry:
            return True
        for item in lane.after(max(self.purged, at), self.share()):
            seen[number] = item.id
            self._offer(consumer, item)
            if self._interrupted():
                return False
            if not consumer.hungry:
                return True
        if lane.rest and self.server.durable_id < lane.last:
            self.server.natives.touch_late(self)
        else:
            seen[number] = lane.last
        return True

    def _interrupted(self) -> bool:
        """A search cannot go on at once."""
        if self.takers.changed:
            self.server.natives.go_on(self)
            return True
        return self._enough() or self.spent()

    def _offer(self, consumer: Consumer, item: QueuedMessage) -> None:
        self.spend(LOOK, item.size)
        if self.takers.may(consumer, item, self.loaded(item)):
            self.spend(MOVE, item.size)
            self._take(item)
            self._give(consumer, item)
            self._moved += item.size

    def _give(self, consumer: Consumer, item: QueuedMessage) -> None:
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
        consumer.room -= item.size
        self.out_bytes += item.size
        consumer.pending.append(item)
        self._write_held(item)
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

    # -- back ----------------------------------------------------------------------------------------------------

    def settle(self, note: Settle, message: Message) -> None:
        held, freed = self.out.get(message.source, {}), 0
        if note.undeliverable_here:
            freed += self._shun(note, held, (message.source, note.consumer))
        for id in note.accepted:
            if item := held.pop(id, None):
                freed += item.size
                self._end(item, True)
        if len(note.accepted) > SETTLED:
            self.spend(len(note.accepted) // SETTLED, 0)
        for id in note.released:
            if item := held.pop(id, None):
                freed += item.size
                item.count -= 1
                self.spend(MOVE, item.size)
                self._return(item)
        for id in note.modified:
            if item := held.pop(id, None):
                freed += item.size
                self._fail(item, self.policy.on_nack == "dead-letter")
        for id in note.requeued:
            if item := held.pop(id, None):
                freed += item.size
                self._fail(item, False)
        for id in note.rejected:
            if item := held.pop(id, None):
                freed += item.size
                self._refuse(item)
        self.out_bytes -= freed
        key = (message.source, note.consumer)
        if taker := self.takers.consumers.get(key):
            taker.settled(note, freed, held)
            self.touch()
        elif browser := self.browsers.get(key):
            browser.settled(note)
            self.touch()
        self.change()

    def _shun(self, note: Settle, held: dict[int, QueuedMessage], key: Key) -> int:
        """Not for this consumer again; to the dead letters what is too much to be remembered. Returns their bytes."""
        freed, consumer = 0, self.takers.consumers.get(key)
        if consumer is None:
            return 0
        self.takers.selective = True
        for id in note.undeliverable_here:
            if id in held and not consumer.shun(held[id].message):
                item = held.pop(id)
                freed += item.size
                self._refuse(item)
        return freed

    def flow(self, note: Flow, message: Message) -> None:
        """More credit for a consumer, or a browser."""
        key = (message.source, note.consumer)
        consumer = self.takers.consumers.get(key) or self.browsers.get(key)
        if consumer is None:  # it has ended
            if note.drain:
                self.post(message.source, Drained(note.consumer))
            return
        consumer.credit += note.credit
        if note.drain:
            self.takers.draining[key] = None
        self.change()
        self.touch()

    def _answer_drains(self) -> None:
        """Who is to have what was there, and no more, has it: take its credit."""
        for key in list(self.takers.draining):
            consumer = self.takers.consumers.get(key) or self.browsers.get(key)
            if consumer is None or self._has_all(consumer):
                del self.takers.draining[key]
                if consumer is not None:
                    consumer.credit = 0
                self.post(key[0], Drained(key[1]))
                self.change()

    def _has_all(self, consumer: Consumer | Browser) -> bool:
        """Is there nothing that it may have at present?"""
        if consumer.credit <= 0 or consumer.room <= 0:
            return True
        if isinstance(consumer, Browser) or self.leaving:
            return False
        if self.paused or not self.ready or consumer not in self.takers.waiting():
            return True
        return self._seen_all(consumer)

    def _fail(self, item: QueuedMessage, at_once: bool, lost: bool = False) -> None:
        """Its consumer gave it back, or was lost with it: then it is offered again at once."""
        self.spend(MOVE, item.size)
        if not self.whole(item, True):
            return
        policy, dead = self.policy, "dead-letter-reason" in self.loaded(item).properties
        item.failures += 1
        if not dead and (at_once or item.failures > policy.max_redeliveries):
            last = ", at last by the loss of its consumer's connection" if lost else ""
            self._dead_letter(item, f"given back {item.failures} times{last}", True)
        else:
            self._return(item, 0 if lost else self.server.now + policy.backoff_ns(item.failures))

    def _refuse(self, item: QueuedMessage) -> None:
        self.spend(MOVE, item.size)
        self._dead_letter(item, "refused by its consumer", True)

    # -- consumers -----------------------------------------------------------------------------------------------

    def consume(self, note: Consume, message: Message) -> None:
        if not self._remote(message.source) and message.source not in self.server.natives.agents:
            return  # its connection has ended, perhaps with the last process
        try:
            test = message_filter(note.selector, note.no_local)
        except MomError as error:  # its server has taken it, and may be of another version
            self.post(message.source, Refuse(note.consumer, str(error)))
            return
        consumer = Consumer(message.source, note, test)
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
        self.left()

    def _leave(self, key: Key) -> None:
        self.browsers.pop(key, None)
        consumer = self.takers.remove(key)
        if consumer:
            for item in consumer.pending:
                del self.out[key[0]][item.id]
                self.out_bytes -= item.size
                item.count -= 1
                self._return(item)
            self.change()
            self.touch()

    def left(self) -> None:
        """Consumers have gone, and what was taken back from them is at its place."""

    def gone(self, note: Gone, message: Message) -> None:
        held = self.out.get(message.source, {})
        for id in note.failed:
            if item := held.pop(id, None):
                self.out_bytes -= item.size
                self._fail(item, False, lost=True)
        self.release(lambda proxy: proxy == message.source)

    def release(self, whose: Callable[[str], bool]) -> int:
        """Take back what these proxies hold, and let their consumers go. Returns how many messages that were."""
        for key in [key for key in [*self.takers.consumers, *self.browsers] if whose(key[0])]:
            self._leave(key)
        leaving = [proxy for proxy in self.out if whose(proxy)]
        returning = sum(len(self.out[proxy]) for proxy in leaving)
        self.leaving.update(dict.fromkeys(leaving))
        self._begin()
        self._take_back()
        return returning

    def _take_back(self) -> None:
        """What lost connections had returns to its place, some of it at a time."""
        for proxy in list(self.leaving):
            held = self.out.get(proxy, {})
            while held:
                if self._enough() or self.spent():
                    self.pause()
                    self.change()
                    return
                item = held.pop(next(iter(held)))
                self.spend(MOVE, item.size)
                self.out_bytes -= item.size
                self._return(item)
                self._moved += item.size
            self.out.pop(proxy, None)
            del self.leaving[proxy]
        self.pause()
        self.change()
        self.left()

    def pause(self) -> None:
        """Is anything given at present?"""
        self.paused = bool(self.leaving)

    def recovered(self) -> None:
        """It is in memory again. What connections of this server had, or of one that has left the bus, comes back,
        unless it is settled in the inbox."""
        self._unread = True
        servers = self.server.topology.servers
        for proxy in self.proxies():
            if not self._remote(proxy) or home_of(proxy) not in servers:
                self.server.send(self.server.note_to(proxy, (self.id,), Gone(), 0, BOUNCE))

    def proxies(self) -> list[str]:
        """Those that have something of this queue, or may take from it."""
        return list(dict.fromkeys([*self.out, *(proxy for proxy, _ in self.takers.consumers)]))

    def deleted(self) -> None:
        for proxy, number in [*self.takers.consumers, *self.browsers]:
            self.post(proxy, Refuse(number, f"{self.service.shown(self.name)} was deleted"))
        for item in [*self.later.values(), *(item for held in self.out.values() for item in held.values())]:
            if item.stored:
                self._erase(item)
        self.service.forget(self)

    def _check_busy(self) -> None:
        super()._check_busy()
        natives = self.server.natives
        if natives.armed(self):
            return
        assert not any(consumer.pending for consumer in self.takers), "what was given is not dispatched"
        assert not any(each.credit > 0 and each.room > 0 for each in self.browsers.values()), "a browser waits in vain"
        assert not self.takers.draining, "a drain comes to no end"
        if self.paused or not self.ready or not self.takers.hungry():
            return
        for lane in self.lanes.values():
            assert not lane.rest or all(map(self._seen_all, self.takers.waiting())), "a search has come to no end"
            for item in islice(lane.items.values(), CHECKED):
                put = self.loaded(item)
                if not put.expires or put.expires > self.server.now:
                    assert not self.takers.could(item, put), "idle, with something to give and somebody to take it"

    handlers: ClassVar[Any] = {
        ClientMessage.wire: put, Settle.wire: settle, Consume.wire: consume, Cancel.wire: cancel, Gone.wire: gone,
        Flow.wire: flow,
    }  # fmt: skip
