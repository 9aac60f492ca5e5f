"""Subscription: a durable or shared subscription is a queue that only its topics feed. It lives where it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgpack

from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.protocol import Cancel, Consume, End, Ended, Gone, Last, Refuse, Settle, Spec, Started
from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import LINGERS, TURNS, Departure
from mombroker.broker.queue.movable import FILLS, OPEN
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.state import source_of, state_of, values_of
from mombroker.broker.selectors import Required, message_filter, required
from mombroker.core import times
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.times import SECOND
from mombroker.core.words import many

LONELY_NS = 10 * SECOND  # a shared one that is not durable waits so long for its first consumer
GRACE_NS = 3_600 * SECOND  # none is ended for being idle so soon after a start: clients come back, clocks are set right
DRAINING = "a former consumer is not done"


class Entries(Protocol):
    """The server's own entries of the subscription table; see routing.py."""

    agent: str
    moving: dict[Any, None]

    def hold(self, taker: Subscription, patterns: Iterable[str]) -> list[int]: ...
    def release(self, taker: Subscription, epochs: Iterable[int]) -> None: ...
    def unknown(self, epochs: Iterable[int]) -> list[str]: ...
    def epoch_of(self, server: str, pattern: str) -> int: ...


class SubscriptionService(QueueService, Protocol):
    """What a subscription asks of the sessions of its server."""

    @property
    def topics(self) -> Entries: ...
    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None: ...


class Subscription(Queue):
    """1. It holds its entries of the table from its creation to its deletion; while it moves, at the home that takes
       what is published.
    2. Its messages are in the order in which its server delivered them: priorities do not count here.
    3. One that is not shared has one consumer at most: a new one takes it over.
    4. One that is not shared dispatches nothing while messages of its former consumer may come back as released.
    """

    path: ClassVar[str] = "mombroker.agents.subscription:Subscription"
    one_lane = 5
    by_topic = True

    __slots__ = ("spec", "epochs", "draining", "lonely", "seen", "_idle_at", "_grace", "matches", "host")

    def __init__(self, service: SubscriptionService, id: str, state: bytes = b""):
        super().__init__(service, id, state)
        self.host = service
        self.spec = Spec([])
        self.epochs: list[int] = []
        self.draining: list[tuple[str, int]] = []  # former consumers
        self.lonely = self.tx.now + LONELY_NS
        self.seen = self.tx.now  # when it last had a consumer, at first when it was made; 0 = it has one
        self._idle_at = 0  # when it may have been idle for too long
        self._grace = 0  # it is not ended before
        if state:
            self.take_up(values_of(state)[5])
        self.matches = message_filter(self.spec.selector, self.spec.no_local)

    def pack(self) -> bytes:
        return self.packed([self.spec.values(), self.draining, self.seen])

    def take_up(self, more: Any) -> None:
        """What `pack` has added to the state of a queue."""
        self.spec = Spec(*more[0])
        self.draining = [(session, number) for session, number in more[1]]
        if self.draining:
            self._pause()
        if len(more) > 2 and more[2]:  # else it had a consumer when the server stopped, which is now
            self.seen = min(more[2], self.tx.now)
        else:
            self.change()

    @classmethod
    def new(cls, spec: Spec) -> bytes:
        """The state of a new one."""
        return state_of(more=[spec.values(), []])

    @classmethod
    def check_new(cls, state: bytes) -> None:
        try:
            _, state = source_of(state)
            *blank, (spec, _) = msgpack.unpackb(state, strict_map_key=False)
            made = Spec.of(spec)
            message_filter(made.selector, made.no_local)
            fits = blank == msgpack.unpackb(cls.new(made), strict_map_key=False)[:-1]
        except (ValueError, TypeError, MomError) as error:
            raise UnknownNotification(f"a new subscription came with a state that cannot be read: {error}") from None
        if not fits:
            raise UnknownNotification("a new subscription came with more than it can have")

    # -- feed ----------------------------------------------------------------------------------------------------

    def producer_of(self, message: ClientMessage) -> str:
        """Producers number what they send to each topic by itself."""
        topics = self.spec.topics
        one = len(topics) == 1 and message.destination == topics[0]
        return message.producer if one else f"{message.destination}\n{message.producer}"

    def created(self) -> None:
        super().created()
        self._hold()
        if not self.spec.durable:
            self.alarm_at(self.tx.now + LONELY_NS)
        self.idle()

    def recovered(self, also: Sequence[str] = ()) -> None:
        super().recovered([session for session, _ in self.draining])
        self._grace = self.natives.clock.started + GRACE_NS
        if self.consumers.consumers:
            self.seen = 0
        self._hold()
        self._left()

    # -- to another server -----------------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Hold the entries that it needs. One that arrives has another one, by which publishers are told apart. Before
        that it has one alone: who knows it knows those of the former home, and consumers are told when all do."""
        topics, move, patterns = self.host.topics, self.move, self.spec.topics
        if isinstance(move, Arrival) and move.step < OPEN:
            name = self.tx.name
            patterns = [*patterns, self._mark(name)] if move.step > FILLS else [f"temp-topic:{name}/_comes/{self.name}"]
        elif isinstance(move, Departure) and move.phase == LINGERS:
            patterns = []
        if patterns:
            former, self.epochs = self.epochs, topics.hold(self, patterns)
            topics.release(self, [epoch for epoch in former if epoch not in self.epochs])
        if move is not None and (move.step > FILLS if isinstance(move, Arrival) else move.phase >= TURNS):
            topics.moving[self] = None
        if move is None or (isinstance(move, Arrival) and move.step == OPEN):
            topics.moving.pop(self, None)

    def _mark(self, home: str) -> str:
        return f"temp-topic:{home}/_moved/{self.name}"

    def takes(self, knew: Mapping[str, int]) -> bool:
        """Is what somebody has published who knew these entries taken here, not at the other home?"""
        move = self.move
        home = home_of(move.to) if isinstance(move, Departure) else self.tx.name
        epoch = self.host.topics.epoch_of(home, self._mark(home))
        known = bool(epoch) and knew.get(home, 0) >= epoch
        return known if isinstance(move, Arrival) else not known

    def follow(self) -> None:
        self._hold()

    def arrived(self) -> None:
        self._hold()
        self.idle()

    def leave(self) -> None:
        self.host.topics.release(self, self.epochs)
        self.host.topics.moving.pop(self, None)
        self.epochs = []

    def movable(self) -> bool:
        return self.spec.durable

    def for_new_home(self) -> Any:
        return [self.spec.values(), []]

    def at_rest(self) -> bool:
        alone = not self.spec.shared and (self.draining or self.messages.count_unacked())
        return not alone and super().at_rest()

    def alarm(self) -> None:
        super().alarm()
        if self.tx.now >= self.lonely:
            self._left()
        self.idle()

    def policy_changed(self) -> None:
        super().policy_changed()
        self.idle()

    @property
    def dropped(self) -> int:
        return self.messages.dropped

    @property
    def requires(self) -> Required:
        return required(self.spec.selector)

    @property
    def feed(self) -> None:
        """It takes one by one."""
        return None

    def copy_run(self, run: MessageRun) -> None:
        raise AssertionError("a run for one that takes one by one")

    def copy(self, message: ClientMessage, message_id: str) -> None:
        """A message of one of its topics."""
        if self.matches is None or self.matches(message, message_id, 1):
            mine = message.copy()
            mine.message = message_id
            if not self.spec.shared:  # one consumer: a group would only let others overtake what waits for its turn
                mine.group = ""
            self.natives.post(self.host.topics.agent, self.id, mine)

    # -- consumers -----------------------------------------------------------------------------------------------

    def consume(self, note: Consume, envelope: Message) -> None:
        shown = self.settings.destination
        try:
            spec = Spec.of(note.spec) if note.spec is not None else self.spec
            message_filter(spec.selector, spec.no_local)
        except (ValueError, MomError) as error:
            self._refuse_consumer(note, envelope, f"{shown} cannot be as asked for: {error}")
            return
        if spec.shared != self.spec.shared:
            kind = "shared" if self.spec.shared else "not shared"
            self._refuse_consumer(note, envelope, f"{shown} is {kind}: subscribe as such, or take another name")
            return
        active = bool(self.consumers.consumers)
        if self.move is not None and spec != self.spec:
            self._refuse_consumer(
                note, envelope, f"{shown} is on its way to another server: change it when it is there"
            )
            return
        if spec != self.spec and spec.shared and active:
            self._refuse_consumer(note, envelope, f"{shown} is in use with other topics or another selector")
            return
        if active and not spec.shared and not note.take_over:
            self._refuse_consumer(note, envelope, f"{shown} is in use, and the SUBSCRIBE has take-over:false")
            return
        if active and not spec.shared:
            self._take_over()
        if self.move is not None and self.move.redirects(note, envelope.source):
            return
        if spec != self.spec:
            self._change(spec)
        if self.take_on(note, envelope.source):
            self._started(envelope.source, note.consumer)
        if self.consumers.consumers:
            self.seen = 0

    def _refuse_consumer(self, note: Consume, envelope: Message, reason: str) -> None:
        self.post(envelope.source, Refuse(note.consumer, reason))

    def _take_over(self) -> None:
        """The old consumer's connection may be a broken one that nobody has noticed yet."""
        old = list(self.consumers.consumers)
        self.release(lambda each: True)
        for other, number in old:
            self.post(other, Refuse(number, f"{self.settings.destination} was taken over by another consumer"))

    def cancel(self, note: Cancel, envelope: Message) -> None:
        if not self.spec.shared and self.messages.unacked.get(envelope.source):
            self.draining.append((envelope.source, note.consumer))
            self.change()
            self._pause()
            self.post(envelope.source, Last(note.consumer))
        super().cancel(note, envelope)
        self._left()

    def settle(self, note: Settle, envelope: Message) -> None:
        if note.last:
            self._drained(lambda key: key == (envelope.source, note.consumer))
        super().settle(note, envelope)

    def gone(self, note: Gone, envelope: Message) -> None:
        self._drained(lambda key: key[0] == envelope.source)
        super().gone(note, envelope)
        self._returned()

    def release(self, whose: Callable[[str], bool]) -> int:
        self._drained(lambda key: whose(key[0]))
        count = super().release(whose)
        self._returned()
        return count

    def flush(self) -> None:
        returning = bool(self.settlement.returning)
        super().flush()
        if returning:
            self._returned()

    def _pause(self) -> None:
        """A drain does not wait: nobody knows when the former consumer's client settles what it has."""
        self.dispatcher.pause(DRAINING, expected=lambda: bool(self.draining), drains_wait=False)

    def _drained(self, whose: Callable[[tuple[str, int]], bool]) -> None:
        left = [key for key in self.draining if not whose(key)]
        if left != self.draining:
            self.draining = left
            self.change()
        if not left:
            self.dispatcher.resume(DRAINING)

    def _returned(self) -> None:
        """What lost sessions had is back at its place, perhaps."""
        if not self.settlement.returning:
            self._left()

    def _change(self, spec: Spec) -> None:
        """Other topics or another selector: as if it was deleted and made anew."""
        self.expiry.start_purge()
        topics, former = self.host.topics, self.epochs
        self.spec, self.matches = spec, message_filter(spec.selector, spec.no_local)
        self.epochs = topics.hold(self, spec.topics)
        topics.release(self, [epoch for epoch in former if epoch not in self.epochs])
        self.change()

    def _started(self, session: str, number: int) -> None:
        """The consumer is told at once, and again when all servers know the entries, or after a while who may not."""
        if self.host.topics.unknown(self.epochs):
            self.post(session, Started(number, None))
        self.host.when_known(self.epochs, lambda unknown: self.post(session, Started(number, unknown)))

    def _left(self) -> None:
        """Consumers may have gone."""
        if self.consumers.consumers:
            return
        if not self.seen:
            self.seen = self.tx.now
            self.change()
        if not self.spec.durable:
            self._end_it()
        else:
            self.idle()

    def idle(self) -> None:
        """End it if nobody has consumed from it for longer than its policy allows."""
        timeout, tx = self.settings.policy.idle_timeout, self.tx
        if not timeout or not self.seen or self.move is not None or self.natives.agents.get(self.id) is not self:
            return
        at = max(times.after(self.seen, times.of_seconds(timeout)), self._grace)
        if at <= tx.now and self.natives.clock.ahead <= times.FAR:
            idle, shown, count = times.shown(tx.now - self.seen), self.settings.destination, self.messages.count
            tx.note(f"{shown} ended: nobody has consumed from it for {idle}; {many(count, 'message')} went with it")
            self._end_it()
        elif at != self._idle_at:
            self._idle_at = at
            self.alarm_at(at)

    def end(self, note: End, envelope: Message) -> None:
        if self.move is not None:
            reason = f"{self.settings.destination} is on its way to another server: delete it when it is there"
            self.post(envelope.source, Refuse(note.number, reason))
        elif self.consumers.consumers:
            reason = f"{self.settings.destination} has a consumer: let it leave before it is deleted"
            self.post(envelope.source, Refuse(note.number, reason))
        else:
            self.post(envelope.source, Ended(note.number))
            self._end_it()

    def _end_it(self) -> None:
        if self.natives.agents.get(self.id) is self:
            self.deleted()

    def deleted(self) -> None:
        self.host.topics.release(self, self.epochs)
        super().deleted()


Subscription.handlers = {
    **Queue.handlers,
    End.wire: Subscription.end,
    Consume.wire: Subscription.consume,
    Cancel.wire: Subscription.cancel,
    Settle.wire: Subscription.settle,
    Gone.wire: Subscription.gone,
}
