"""Who gets a message: what is ready is given to consumers, and sent to their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop
from itertools import islice
from typing import Any, NamedTuple

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.protocol import Dispatch, Drained, Flow
from mombroker.broker.queue.browser import Browser
from mombroker.broker.queue.consumer import Consumer, Key
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dead_letter import EXPIRED, DeadLetters
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.work import GIVE, LOOK, MOVE, Work

DISPATCH_BYTES = 1 << 20  # of one message to a consumer, unless one alone is larger
RETURNING = "what lost sessions had is not back yet"
RUN_BYTES = 64 << 10  # that are given in one piece: with more it ends
CHECKED = 1_000  # messages of a lane that a check looks at
Items = list[tuple[int, str, int, Any]]  # of a Dispatch


class Pause(NamedTuple):
    """Why nothing is given, and what ends that; see `Dispatcher.pause`."""

    reason: str
    until: int
    expected: Callable[[], bool] | None
    drains_wait: bool


class Dispatcher:
    """1. `give` alone gives a message to a consumer.
    2. While there are `pauses`, nothing is given. Each has its own reason, and something that will end it.
    3. Whatever was given is dispatched before the batch closes.

    browsers   are shown what is ready
    searches   those that did not end in one turn
    filling    more is on its way from another server, for which drains wait
    """

    __slots__ = (
        "queue",
        "tx",
        "turns",
        "messages",
        "consumers",
        "dead_letters",
        "work",
        "pauses",
        "browsers",
        "searches",
        "filling",
    )

    def __init__(
        self, queue: Native, messages: QueueMessages, consumers: Consumers, dead_letters: DeadLetters, work: Work
    ):
        self.queue, self.tx, self.turns = queue, queue.tx, queue.turns
        self.messages, self.consumers = messages, consumers
        self.dead_letters, self.work = dead_letters, work
        self.pauses: tuple[Pause, ...] = ()
        self.browsers: dict[Key, Browser] = {}
        self.searches = 0
        self.filling = False

    def pause(
        self, reason: str, *, until: int = 0, expected: Callable[[], bool] | None = None, drains_wait: bool = True
    ) -> None:
        """Give nothing; what was given already is dispatched. A former pause for the same reason is replaced.

        Who pauses says what ends it. Either a time, `until`: then it ends by itself. Or an event, at which he calls
        `resume(reason)`: then `expected` tells whether that is still to come, and `check` asserts that it is.

        A drain waits for the end of a pause that may hold back something: until a time, what is ready; until an event,
        what that may bring, too. With `drains_wait=False` it is answered as if nothing of that was there.

        Pauses are in memory only. After a restart there is none, unless who pauses does so again: see `Queue._load`.
        """
        assert bool(until) != bool(expected), "a pause ends at a time, or with an event"
        others = tuple(each for each in self.pauses if each.reason != reason)
        self.pauses = (*others, Pause(reason, until, expected, drains_wait))
        if until:
            self.queue.alarm_at(until)

    def resume(self, reason: str) -> None:
        left = tuple(each for each in self.pauses if each.reason != reason)
        if left != self.pauses:
            self.pauses = left
            self.turns.touched[self.queue] = None

    def run(self) -> None:
        """Give, and send what was given."""
        if self.pauses:
            now = self.tx.now
            self.pauses = tuple(each for each in self.pauses if not each.until or each.until > now)
        if self.messages.ready:
            self._pump()
        for consumer in self.consumers.consumers.values():
            if consumer.pending:
                self.dispatch(consumer)
        if self.browsers:
            self._show()
        if self.consumers.draining:
            self._answer_drains()

    def _show(self) -> None:
        for browser in list(self.browsers.values()):
            if browser.show(self.queue, self.messages, self.work):
                del self.browsers[browser.key]

    # -- giving --------------------------------------------------------------------------------------------------

    def enter(self, item: QueuedMessage) -> None:
        """A new message is given at once, or is ready behind all others."""
        message, messages, consumers = item.message, self.messages, self.consumers
        assert message is not None, "a new message"
        item.stored = message.persistent and not messages.volatile
        if message.expires and not messages.volatile:
            messages.schedule.expire(item, message.expires)
        offered = not self.pauses and (not messages.ready or (consumers.selective and self._unwanted(item)))
        if offered and (consumer := consumers.choose(item, message)):
            if not consumer.pending:
                self._touch_for(consumer)
            self.give(consumer, item, message)
            return
        messages.append(item)
        if offered and not item.group:
            for consumer in consumers.waiting():
                consumer.searched_to[item.lane] = item.id
        elif consumers.consumers:
            self.turns.touched[self.queue] = None

    def _touch_for(self, consumer: Consumer) -> None:
        """Have sent what this consumer is given; if nothing else is to be done, that alone."""
        touched = self.turns.touched
        touched[self.queue] = None if self.queue in touched else consumer

    def give(self, consumer: Consumer, item: QueuedMessage, message: ClientMessage) -> None:
        """A consumer gets a message that is in no lane; `run` sends it."""
        session = consumer.key[0]
        self.messages.hand_over(item, session, consumer.single and session.startswith(f"{self.tx.name}/"))
        consumer.credit -= 1
        consumer.room -= item.size
        consumer.pending.append(item)
        if item.group:
            self.consumers.given(item, message, consumer)

    def taker(self, count: int, size: int) -> Consumer | None:
        """Who would get all of so many new messages, of so many bytes together, at once; None: it may be several."""
        return None if self.pauses or self.messages.ready else self.consumers.taker(count, size)

    def keeps(self) -> bool:
        """Do all new messages that are of no group have to wait now, whatever they are?"""
        consumers = self.consumers
        return not consumers.consumers or bool(self.pauses or (self.messages.ready and not consumers.selective))

    def enter_all(self, items: list[QueuedMessage], size: int, consumer: Consumer | None) -> None:
        """New messages that are alike, and of no group, are given to their `taker`; without one all of them wait."""
        if consumer is None:
            self.messages.append_all(items)
            if self.consumers.consumers:
                self.turns.touched[self.queue] = None
            return
        if not consumer.pending:
            self._touch_for(consumer)
        self._give_all(consumer, items, size)

    def _give_all(self, consumer: Consumer, items: list[QueuedMessage], size: int) -> None:
        self.messages.hand_over_all(items, consumer.key[0], size)
        consumer.credit -= len(items)
        consumer.room -= size
        consumer.pending += items

    def _pump(self) -> None:
        """Give what is ready to whoever wants it."""
        messages, consumers, work, now = self.messages, self.consumers, self.work, self.tx.now
        while messages.ready and not self.pauses and consumers.hungry():
            if work.enough() or work.spent():
                return
            item = messages.first()
            if item is None:
                self.turns.late[self.queue] = None
                return
            if item.id <= messages.purged:
                return  # it goes first
            work.spend(GIVE if item.message else LOOK, item.size)
            message = messages.loaded(item)
            if message.expires and message.expires <= now:
                messages.take(item)
                self.dead_letters.take(item, EXPIRED)
            elif message.alike and not (item.group or message.expires) and (consumer := consumers.taker(1, 1)):
                self._give_run(consumer, item)
            elif consumer := consumers.choose(item, message):
                messages.take(item)
                self.give(consumer, item, message)
                work.moved += item.size
            else:
                self._search()
                return

    def _give_run(self, consumer: Consumer, first: QueuedMessage) -> None:
        """Who alone takes what is ready gets the first message and those behind it that are alike, in one piece."""
        messages, work = self.messages, self.work
        most = min(consumer.credit, work.gives() + 1)
        items = messages.lanes[first.lane].run(first, most, min(consumer.room, RUN_BYTES))
        size = sum([item.size for item in items])
        messages.take_all(items)
        self._give_all(consumer, items, size)
        work.spend(GIVE * (len(items) - 1), size - first.size)
        work.moved += size

    def dispatch(self, consumer: Consumer) -> None:
        """Send it what it was given."""
        session, number = consumer.key
        sizes = [item.size for item in consumer.pending]
        items, size = Items(), 0
        for item, more in zip(self.taken(consumer), sizes, strict=True):
            items.append(item)
            size += more
            if size >= DISPATCH_BYTES or consumer.single:
                self.queue.tell(session, Dispatch(number, items))
                items, size = [], 0
        if items:
            self.queue.tell(session, Dispatch(number, items))
        if consumer.remote:
            self.queue.change()

    def taken(self, consumer: Consumer) -> Items:
        """What it was given, to be sent: whoever asks sends it."""
        pending, consumer.pending = consumer.pending, []
        late, items = self.messages.late, Items()
        for item in pending:
            items.append((item.id, item.message_id, item.count, item.message))
            if item.stored and not (late and item.id in late):
                item.message = None
        return items

    # -- credit --------------------------------------------------------------------------------------------------

    def flow(self, note: Flow, session: str) -> None:
        """More credit for a consumer, or a browser."""
        key = (session, note.consumer)
        consumer = self.consumers.consumers.get(key) or self.browsers.get(key)
        if consumer is None:  # it has ended
            if note.drain:
                self.queue.post(session, Drained(note.consumer))
            return
        consumer.credit += note.credit
        if note.drain:
            self.consumers.drained(key)
            self.consumers.draining += (key,)
        self.queue.change()
        self.turns.touched[self.queue] = None

    def _answer_drains(self) -> None:
        """Who is to have what was there, and no more, has it: take its credit."""
        if self.filling:
            return
        for key in self.consumers.draining:
            consumer = self.consumers.consumers.get(key) or self.browsers.get(key)
            if consumer is None or self._has_all(consumer):
                self.consumers.drained(key)
                if consumer is not None:
                    consumer.credit = 0
                self.queue.post(key[0], Drained(key[1]))
                self.queue.change()

    def _has_all(self, consumer: Consumer | Browser) -> bool:
        """Is there nothing that it may have at present?"""
        if consumer.credit <= 0 or consumer.room <= 0:
            return True
        if isinstance(consumer, Browser) or (self.pauses and self._drains_wait()):
            return False
        if self.pauses or not self.messages.ready or consumer not in self.consumers.waiting():
            return True
        return self._all_searched((consumer,))

    def _drains_wait(self) -> bool:
        """May there be something that a pause holds back?"""
        return any(each.drains_wait and (each.expected or self.messages.ready) for each in self.pauses)

    # -- searching for those who do not want everything -----------------------------------------------------------

    def _unwanted(self, new: QueuedMessage) -> bool:
        """Is what is ready for nobody that wants one now? Then a new message need not wait behind it."""
        return not new.group and self._all_searched(self.consumers.waiting())

    def _all_searched(self, consumers: Iterable[Consumer]) -> bool:
        lanes = self.messages.lanes
        return all(
            each.searched_to.get(number, 0) >= lane.last and not each.again.get(number)
            for each in consumers
            for number, lane in lanes.items()
        )

    def _search(self) -> None:
        """The first message is for nobody that wants one now: look further, for one of them.

        Each of them has its own place, and never sees the same again unless things have changed. A search that is not
        at its end goes on when others had their turn: that of another consumer of the same priority, too.
        """
        self.consumers.changed = False
        for consumer in self.consumers.waiting(self.searches):
            for number in list(self.messages.lanes):
                if not self._search_lane(consumer, number):
                    self.searches += 1
                    return

    def _search_lane(self, consumer: Consumer, number: int) -> bool:
        """Look through one lane. False: this is to go on."""
        lane, searched_to = self.messages.lanes[number], consumer.searched_to
        while consumer.hungry and (again := consumer.again.get(number)):
            item = lane.items.get(heappop(again))
            if item is not None:
                self._offer(consumer, item)
                if self._interrupted():
                    return False
        at = searched_to.get(number, 0)
        if at >= lane.last or not consumer.hungry:
            return True
        for item in lane.after(max(self.messages.purged, at), self.work.looks()):
            searched_to[number] = item.id
            self._offer(consumer, item)
            if self._interrupted():
                return False
            if not consumer.hungry:
                return True
        if lane.rest and self.tx.durable_id < lane.last:
            self.turns.late[self.queue] = None
        else:
            searched_to[number] = lane.last
        return True

    def _interrupted(self) -> bool:
        """A search cannot go on at once."""
        if self.pauses:
            return True
        if self.consumers.changed:
            self.queue.turns.go_on(self.queue)
            return True
        return self.work.enough() or self.work.spent()

    def _offer(self, consumer: Consumer, item: QueuedMessage) -> None:
        self.work.spend(LOOK, item.size)
        message = self.messages.loaded(item)
        if self.consumers.may(consumer, item, message):
            self.work.spend(MOVE, item.size)
            self.messages.take(item)
            self.give(consumer, item, message)
            self.work.moved += item.size

    def check(self) -> None:
        """A queue is never idle while it has something to give and a consumer that wants it."""
        messages, consumers, browsers = self.messages, self.consumers, self.browsers.values()
        assert not any(consumer.pending for consumer in consumers), "what was given is not dispatched"
        assert not any(each.credit > 0 and each.room > 0 for each in browsers), "a browser waits in vain"
        for pause in self.pauses:
            ends = pause.expected() if pause.expected else pause.until > self.tx.now
            assert ends, f"nothing ends a pause: {pause.reason}"
        assert not consumers.draining or self.filling or self._drains_wait(), "a drain comes to no end"
        if self.pauses or not messages.ready or not consumers.hungry():
            return
        for lane in messages.lanes.values():
            assert not lane.rest or self._all_searched(consumers.waiting()), "a search has come to no end"
            for item in islice(lane.items.values(), CHECKED):
                message = messages.loaded(item)
                if not message.expires or message.expires > self.tx.now:
                    assert not consumers.could(item, message), "idle, with something to give and somebody to take it"
