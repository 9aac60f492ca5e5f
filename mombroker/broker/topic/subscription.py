"""Subscription: a durable or shared subscription is a queue that only its topics feed. It lives where it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import msgpack

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Cancel, Consume, End, Ended, Last, Refuse, Settle, Spec, Started
from mombroker.broker.queue.queue import Queue
from mombroker.broker.selectors import message_filter
from mombroker.core import times
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.times import SECOND

if TYPE_CHECKING:
    pass

LANE = 5
LONELY_NS = 10 * SECOND  # a shared one that is not durable waits so long for its first consumer
GRACE_NS = (
    3_600 * SECOND
)  # none is ended for being idle so soon after a start: clients come back, and clocks are set right


class Subscription(Queue):
    """1. It holds its entries of the table from its creation to its deletion.
    2. Its messages are in the order in which its server delivered them: priorities do not count here.
    3. One that is not shared has one consumer at most: a new one takes it over.
    4. Such a one gives nothing while what it gave to a former consumer may come back unseen.
    """

    path = "mombroker.agents.subscription:Subscription"

    __slots__ = ("spec", "epochs", "draining", "lonely", "seen", "_idle_at", "_grace", "wants")

    def __init__(self, natives: Natives, id: str, state: bytes = b""):
        self.spec = Spec([])
        self.epochs: list[int] = []
        self.draining: list[tuple[str, int]] = []  # former consumers
        self.lonely = natives.tx.now + LONELY_NS
        self.seen = natives.tx.now  # when it last had a consumer, at first when it was made; 0 = it has one
        self._idle_at = 0  # when it may have been idle for too long
        self._grace = 0  # it is not ended before
        super().__init__(natives, id, state)
        self.wants = message_filter(self.spec.selector, self.spec.no_local)

    def more_state(self) -> Any:
        return [self.spec.values(), self.draining, self.seen]

    def take_up(self, more: Any) -> None:
        self.spec = Spec(*more[0])
        self.draining = [(proxy, number) for proxy, number in more[1]]
        if len(more) > 2 and more[2]:  # else it had a consumer when the server stopped, which is now
            self.seen = min(more[2], self.server.now)

    @classmethod
    def new(cls, spec: Spec) -> bytes:
        """The state of a new one."""
        return cls.blank([spec.values(), []])

    @classmethod
    def check_new(cls, state: bytes) -> None:
        try:
            *blank, (spec, _) = msgpack.unpackb(state, strict_map_key=False)
            made = Spec.of(spec)
            message_filter(made.selector, made.no_local)
            fits = blank == msgpack.unpackb(cls.new(made), strict_map_key=False)[:-1]
        except (ValueError, TypeError, MomError) as error:
            raise UnknownNotification(f"a new subscription came with a state that cannot be read: {error}") from None
        if not fits:
            raise UnknownNotification("a new subscription came with more than it can have")

    # -- feed ----------------------------------------------------------------------------------------------------

    def created(self) -> None:
        self.epochs = self.service.topics.hold(self, self.spec.topics)
        if not self.spec.durable:
            self.server.natives.alarm(self.server.now + LONELY_NS, self)
        self.idle()

    def recovered(self) -> None:
        super().recovered()
        self._grace = self.server.started + GRACE_NS
        if self.takers.consumers:
            self.seen = 0
        self.epochs = self.service.topics.hold(self, self.spec.topics)
        self.left()

    def alarm(self) -> None:
        super().alarm()
        if self.server.now >= self.lonely:
            self.left()
        self.idle()

    def copy(self, put: ClientMessage, message: str) -> None:
        """A message of one of its topics."""
        if self.wants is None or self.wants(put, message, 1):
            mine = put.copy()
            mine.message = message
            if not self.spec.shared:  # one consumer: a group would only let others overtake what waits for its turn
                mine.group = ""
            self.server.send(self.server.note_to(self.service.topics.agent, (self.id,), mine))

    def lane_of(self, put: ClientMessage) -> int:
        return LANE

    # -- consumers -----------------------------------------------------------------------------------------------

    def consume(self, note: Consume, message: Message) -> None:
        shown = self.service.shown(self.name)
        try:
            spec = Spec.of(note.spec) if note.spec is not None else self.spec
            message_filter(spec.selector, spec.no_local)
        except (ValueError, MomError) as error:
            self._refuse_consumer(note, message, f"{shown} cannot be as asked for: {error}")
            return
        if spec.shared != self.spec.shared:
            kind = "shared" if self.spec.shared else "not shared"
            self._refuse_consumer(note, message, f"{shown} is {kind}: subscribe as such, or take another name")
            return
        active = bool(self.takers.consumers)
        if spec != self.spec and spec.shared and active:
            self._refuse_consumer(note, message, f"{shown} is in use with other topics or another selector")
            return
        if active and not spec.shared and not note.take_over:
            self._refuse_consumer(note, message, f"{shown} is in use, and the SUBSCRIBE has take-over:false")
            return
        if active and not spec.shared:
            self._take_over(message.source)
        if spec != self.spec:
            self._change(spec)
        super().consume(note, message)
        if self.takers.consumers:
            self.seen = 0

    def _refuse_consumer(self, note: Consume, message: Message, reason: str) -> None:
        self.post(message.source, Refuse(note.consumer, reason))

    def _take_over(self, proxy: str) -> None:
        """The old consumer's connection may be a broken one that nobody has noticed yet."""
        old = list(self.takers.consumers)
        self.release(lambda each: True)
        for other, number in old:
            self.post(other, Refuse(number, f"{self.service.shown(self.name)} was taken over by another consumer"))

    def cancel(self, note: Cancel, message: Message) -> None:
        if not self.spec.shared and self.out.get(message.source):
            self.draining.append((message.source, note.consumer))
            self.pause()
            self.post(message.source, Last(note.consumer))
        super().cancel(note, message)

    def settle(self, note: Settle, message: Message) -> None:
        if note.last:
            self._drained(lambda key: key == (message.source, note.consumer))
        super().settle(note, message)

    def release(self, whose: Callable[[str], bool]) -> int:
        self._drained(lambda key: whose(key[0]))
        return super().release(whose)

    def _drained(self, whose: Callable[[tuple[str, int]], bool]) -> None:
        self.draining = [key for key in self.draining if not whose(key)]
        self.pause()
        self.touch()

    def proxies(self) -> list[str]:
        return list(dict.fromkeys([*super().proxies(), *(proxy for proxy, _ in self.draining)]))

    def pause(self) -> None:
        self.paused = bool(self.draining or self.leaving)

    def _change(self, spec: Spec) -> None:
        """Other topics or another selector: as if it was deleted and made anew."""
        self.purge()
        topics, former = self.service.topics, self.epochs
        self.spec, self.wants = spec, message_filter(spec.selector, spec.no_local)
        self.epochs = topics.hold(self, spec.topics)
        topics.release(self, [epoch for epoch in former if epoch not in self.epochs])
        self.change()

    def started(self, proxy: str, number: int) -> None:
        """The consumer is told at once, and again when all servers know the entries, or after a while who may not."""
        if self.service.topics.unknown(self.epochs):
            self.post(proxy, Started(number, None))
        self.service.when_known(self.epochs, lambda unknown: self.post(proxy, Started(number, unknown)))

    def left(self) -> None:
        if self.takers.consumers:
            return
        if not self.seen:
            self.seen = self.server.now
            self.change()
        if not self.spec.durable:
            self._end_it()
        else:
            self.idle()

    def idle(self) -> None:
        """End it if nobody has consumed from it for longer than its policy allows."""
        timeout, server = self.policy.idle_timeout, self.server
        if not timeout or not self.seen or server.natives.agents.get(self.id) is not self:
            return
        at = max(times.after(self.seen, times.of_seconds(timeout)), self._grace)
        if at <= server.now and server.ahead <= times.FAR:
            idle = times.shown(server.now - self.seen)
            shown = self.service.shown(self.name)
            server.note(f"{shown} ended: nobody has consumed from it for {idle}; {self.count} messages went with it")
            self._end_it()
        elif at != self._idle_at:
            self._idle_at = at
            server.natives.alarm(at, self)

    def end(self, note: End, message: Message) -> None:
        if self.takers.consumers:
            shown = self.service.shown(self.name)
            self.post(message.source, Refuse(note.number, f"{shown} has a consumer: let it leave before it is deleted"))
        else:
            self.post(message.source, Ended(note.number))
            self._end_it()

    def _end_it(self) -> None:
        natives = self.server.natives
        if natives.agents.get(self.id) is self:
            self.deleted()
            natives.remove(self)

    def deleted(self) -> None:
        self.service.topics.release(self, self.epochs)
        super().deleted()

    handlers: ClassVar[Any] = {
        **Queue.handlers, End.wire: end, Consume.wire: consume, Cancel.wire: cancel, Settle.wire: settle,
    }  # fmt: skip
