"""Queue: messages on one home server, in the order in which it received them, each for one of its consumers.

Also the store of a durable or shared subscription, which is a queue that only its topics feed (topic/subscription.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.protocol import Cancel, Consume, Flow, Gone, Page, Passed, Ready, Refuse, Settle, Started, Taken
from mombroker.broker.queue import rounds
from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.browser import Browser
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dead_letter import EXPIRED, DeadLetters
from mombroker.broker.queue.dedup import ROWS_ARE, Dedup
from mombroker.broker.queue.departure import ASKED, Departure
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.queue.expiry import Expiry
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.limits import QueueLimits
from mombroker.broker.queue.messages import LANES, QueueMessages
from mombroker.broker.queue.movable import CLOSED, OPEN
from mombroker.broker.queue.schedule import Schedule
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.settings import Settings
from mombroker.broker.queue.settlement import Settlement
from mombroker.broker.queue.state import WITHOUT_HELD, arriving, move_of, source_of, state_of, values_of
from mombroker.broker.queue.work import Work
from mombroker.broker.selectors import message_filter
from mombroker.core.batch import Damage, HeldRow
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.names import CREATE


class Queue(Native):
    """Its parts do the work, and know the parts above them only. Here is what comes from outside.

    settings      its policy
    consumers     who wants messages
    work          how much it does at once
    schedule      what it keeps by time
    messages      where each message is
    dead_letters  where those go that cannot be delivered
    limits        what is let in, and what is not
    dispatcher    gives messages to consumers
    settlement    what comes back from consumers, and how
    expiry        what becomes of messages by time
    dedup         what its producers have sent; made when it is needed
    move          while it is on its way from or to another server
    """

    path: ClassVar[str] = "mombroker.agents.queue:Queue"
    deletable = True
    rows_are = ROWS_ARE
    one_lane: ClassVar[int | None] = None  # of all messages, if their priorities do not count
    by_topic: ClassVar[bool] = False  # may it have messages of several destinations? Then see producer_of

    __slots__ = (
        "name", "service", "settings", "consumers", "work", "schedule", "messages",
        "dead_letters", "limits", "dispatcher", "settlement", "move", "_dedup", "_unread", "_with_held",
    )  # fmt: skip

    def __init__(self, service: QueueService, id: str, state: bytes = b"", volatile: bool = False):
        super().__init__(service.natives, id, volatile)
        self.name = id[id.index("/") + 1 :]
        self.service = service
        self.settings = Settings(service.policies, service.shown(self.name))
        self.consumers = Consumers()
        self.work = work = Work(self)
        self.schedule = Schedule(self, volatile)
        self.messages = QueueMessages(self, service.pool, volatile, self.settings, self.schedule, self.consumers)
        self.dead_letters = DeadLetters(self, service, self.settings, self.messages)
        self.limits = QueueLimits(self, service, self.settings, self.messages, self.dead_letters, work)
        self.dispatcher = Dispatcher(self, self.messages, self.consumers, self.dead_letters, work)
        self.settlement = Settlement(
            self, self.settings, self.messages, self.consumers, self.dead_letters, self.dispatcher, work
        )
        self.messages.room = self.limits
        self.move: Departure | Arrival | None = None
        self._dedup: Dedup | None = None
        self._with_held = False  # the bytes of an older state are those of `held`, too
        self._unread = False  # what the store has of it, of which damage has to be found when the queue is used
        if state:
            self._load(state)

    @property
    def expiry(self) -> Expiry:
        return Expiry(self, self.messages, self.schedule, self.dead_letters, self.dispatcher, self.work)

    @property
    def dedup(self) -> Dedup:
        if self._dedup is None:
            self._dedup = Dedup(self.tx, self.id)
        return self._dedup

    # -- state ---------------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        return self.packed()

    def packed(self, more: Any = None) -> bytes:
        """Its state, with what a subscription adds to it. Consumers of other servers are in it: both may restart."""
        messages = self.messages
        rows = {number: rows for number, lane in messages.lanes.items() if (rows := len(lane) - lane.unstored)}
        draining = self.consumers.draining
        remote = [
            [c.key[0], c.credit, c.note.values(), *([True] if c.key in draining else ())]
            for c in self.consumers.consumers.values() if self.remote(c.key[0])
        ]  # fmt: skip
        returning = [session for session in self.settlement.returning if self.remote(session)]
        stale = [messages.stale, messages.stale_bytes, messages.stale_ready]
        return state_of(
            messages.bytes - messages.unstored - messages.held, rows, remote, self.limits.blocked_servers,
            messages.purged, more, returning, stale, WITHOUT_HELD, self.move.values() if self.move else None,
        )  # fmt: skip

    def _load(self, state: bytes) -> None:
        messages = self.messages
        messages.bytes, rows, remote, blocked, messages.purged, _, *last = values_of(state)
        self.settlement.returning = dict.fromkeys(last[0] if last else ())
        if self.settlement.returning:
            self.settlement.pause()
        self.limits.blocked_servers = tuple(blocked)
        for number, rest in rows.items():
            if rest:
                lane = messages.lane(number)
                lane.rest, lane.last = rest, self.tx.durable_id
                messages.ready += rest
        for session, credit, consume, *draining in remote:
            note = Consume(*consume)
            consumer = Consumer(session, note, message_filter(note.selector, note.no_local), remote=True)
            consumer.credit = credit
            self.consumers.add(consumer)
            if draining:
                self.consumers.draining += (consumer.key,)
        messages.count = messages.ready + self.schedule.take_up()
        if messages.purged:
            as_all = (messages.count, messages.bytes, messages.ready)  # an older state does not say it
            messages.stale, messages.stale_bytes, messages.stale_ready = last[1] if len(last) > 1 else as_all
        self._with_held = len(last) <= 2
        if self._with_held:
            self.change()
        self.move = move_of(self, last[3] if len(last) > 3 else None)
        self.touch()

    def regain(self, row: HeldRow) -> None:
        self.settlement.regain(row, self._with_held)

    def recovered(self, also: Sequence[str] = ()) -> None:
        """It is in memory again. What connections of this server had, or of one that has left the bus, comes back,
        unless it is settled in the inbox. `also`: sessions that may have had something, too."""
        self._unread = True
        self.limits.free()  # the file may have another policy for it than before the stop
        if isinstance(self.move, Departure):
            self.move.recovered()
        servers, home = self.tx.topology.servers, self.natives.names.homes.home
        for session in dict.fromkeys([*self.sessions(), *also]):
            if not self.remote(session) or home(session) not in servers:
                self.natives.post(session, self.id, Gone())

    def sessions(self) -> list[str]:
        """Those that have something of this queue, or may take from it."""
        return list(dict.fromkeys([*self.messages.unacked, *(session for session, _ in self.consumers.consumers)]))

    def remote(self, session: str) -> bool:
        """Does it outlive a restart of this server? A session of another one does, and an author's agent anywhere."""
        return session != "" and not session.startswith(f"{self.tx.name}/conn:")

    def damaged(self, damage: Damage) -> None:
        if damage.collection not in LANES:
            super().damaged(damage)
        self.messages.damaged(damage)

    def created(self) -> None:
        if isinstance(self.move, Arrival):
            self.post(self.move.source, Taken())

    def deleted(self) -> None:
        self.not_moving()
        self._end(f"{self.settings.destination} was deleted")
        if not self.volatile:
            self.natives.names.forget(self.name, self.id)
        super().deleted()

    def _end(self, reason: str) -> None:
        for session, number in [*self.consumers.consumers, *self.dispatcher.browsers]:
            self.post(session, Refuse(number, reason))
        self.messages.erase_held()

    # -- what comes from outside ---------------------------------------------------------------------------------

    def enqueue(self, message: ClientMessage, envelope: Message) -> None:
        if message.reserved:
            self.limits.reserved -= 1
        if self._unread:
            self._unread = False
            self.dedup  # noqa: B018
        if self.move is not None and self.move.keeps(message, envelope):
            return
        if message.producer:
            producer = self.producer_of(message) if self.by_topic else message.producer
            if not self.dedup.fresh(producer, message.counter):
                return
        if message.expires or message.due:
            self.service.set_by_our_clock(message, envelope)
        tx, messages = self.tx, self.messages
        item = QueuedMessage(
            tx.new_id(), 9 - message.priority if self.one_lane is None else self.one_lane,
            message.message or f"{envelope.origin}#{envelope.number}", message,
        )  # fmt: skip
        if message.expires and message.expires <= max(tx.now, message.due):
            self.dead_letters.send(item, EXPIRED)
            return
        if self.settings.limited and self.limits.over(self.settings.policy, 1, item.size):
            if not self.limits.overflow(item, envelope.source):
                return
        messages.count += 1
        messages.bytes += item.size
        if message.due > tx.now:
            self.schedule.postpone(item)
        else:
            self.dispatcher.enter(item)
        if not item.stored:
            messages.unstored += item.size

    def takes_any(self) -> bool:
        """Does it take a message by `put` now?"""
        return not (self._unread or self.move is not None or self.settings.limited)

    def put(self, message: ClientMessage, id: int, message_id: str) -> None:
        """As `enqueue` of one that has no producer, no group, and no time."""
        item = QueuedMessage(id, 9 - message.priority if self.one_lane is None else self.one_lane, message_id, message)
        messages = self.messages
        messages.count += 1
        messages.bytes += item.size
        self.dispatcher.enter(item)
        if not item.stored:
            messages.unstored += item.size

    def take_run(self, messages: list[ClientMessage], source: str) -> bool:
        """Messages alike that a client has sent in a row, in one piece; nothing comes of it but what comes of them one
        by one. False: they have to come so, and nothing was done."""
        first = messages[0]
        if (
            first.alike is None or first.producer or first.group or first.expires or first.due
            or self._unread or self.move is not None or self.settings.limited
        ):  # fmt: skip
            return False
        sizes = [message.size for message in messages]
        size = sum(sizes)
        dispatcher = self.dispatcher
        consumer = dispatcher.taker(len(sizes), size)
        if consumer is None and not dispatcher.keeps():
            return False
        if (ids := self.natives.run_now(source, self, ClientMessage.wire, sizes)) is None:
            return False
        lane = 9 - first.priority if self.one_lane is None else self.one_lane
        each, origin, items = iter(ids), self.tx.name, list[QueuedMessage]()
        stored = first.persistent and not self.volatile
        for message, number, id in zip(messages, each, each, strict=True):
            item = QueuedMessage(id, lane, message.message or f"{origin}#{number}", message)
            item.stored = stored
            items.append(item)
        there = self.messages
        there.count += len(items)
        there.bytes += size
        dispatcher.enter_all(items, size, consumer)
        there.unstored += sum([item.size for item in items if not item.stored])
        return True

    def producer_of(self, message: ClientMessage) -> str:
        """Who has numbered a message."""
        return message.producer

    def settle(self, note: Settle, envelope: Message) -> None:
        self.settlement.settle(note, envelope.source)
        if self.move is not None:
            self.touch()

    def consume(self, note: Consume, envelope: Message) -> None:
        if self.move is not None and self.move.redirects(note, envelope.source):
            return
        if self.take_on(note, envelope.source):
            self.post(envelope.source, Started(note.consumer))

    def take_on(self, note: Consume, session: str) -> bool:
        """A new consumer; False if it was not taken on."""
        if not self.remote(session) and session not in self.natives.agents:
            return False  # its connection has ended, perhaps with the last process
        try:
            matches = message_filter(note.selector, note.no_local)
        except MomError as error:  # its server has taken it, and may be of another version
            self.post(session, Refuse(note.consumer, str(error)))
            return False
        consumer = Consumer(session, note, matches, self.remote(session))
        self.settlement.begin(consumer.key)
        if note.browser:
            self.dispatcher.browsers[consumer.key] = Browser(consumer, self.tx.new_id())
        else:
            self.consumers.add(consumer)
            self.change()
        self.touch()
        return True

    def flow(self, note: Flow, envelope: Message) -> None:
        if isinstance(self.move, Departure) and (envelope.source, note.consumer) not in self.consumers.consumers:
            return  # it asks again where it was sent on to
        self.dispatcher.flow(note, envelope.source)

    def cancel(self, note: Cancel, envelope: Message) -> None:
        self.settlement.leave((envelope.source, note.consumer))

    def gone(self, note: Gone, envelope: Message) -> None:
        self.settlement.lost(envelope.source, note.failed)
        if self.move is not None:
            self.touch()

    def release(self, whose: Callable[[str], bool]) -> int:
        """Take back what these sessions hold, and let their consumers go. Returns how many messages that were."""
        return self.settlement.release(whose)

    # -- to another server -----------------------------------------------------------------------------------------

    @classmethod
    def check_new(cls, state: bytes) -> None:
        try:
            if state and not source_of(state)[0]:
                raise ValueError("it has one")
        except ValueError as error:
            raise UnknownNotification(f"a new queue came with a state that it cannot have: {error}") from None

    def not_moving(self) -> None:
        """Raises MomError. One that has come may have something left at its former home."""
        if self.move is not None and not (isinstance(self.move, Arrival) and self.move.step == OPEN):
            shown, way = self.settings.destination, self.move.shown()
            raise MomError(f"{shown} is on its way {way}: try again when it is there, see `mom queue list -c moving`")

    def depart(self, server: str) -> None:
        """Begin to move to another server, unless it does already. Raises MomError."""
        to = f"{server}/{self.name}"
        if isinstance(self.move, Departure) and self.move.to == to:
            return
        self.not_moving()
        if self.move is not None:
            raise MomError(f"{self.settings.destination} waits for {self.move.why()}: see `mom queue move --release`")
        self.move = Departure(self, to)
        self.invite(to)
        self.change()

    def invite(self, to: str) -> None:
        """Have the new home made."""
        payload = self.path.encode() + b"\n" + arriving(self.id, self.for_new_home())
        self.natives.send(new_message(self.tx, self.id, (to,), CREATE, payload, flags=BOUNCE))

    def repeated(self, source: str) -> bool:
        asks = isinstance(self.move, Arrival) and self.move.source == source
        if asks:
            self.created()
        return asks

    def hurry(self) -> int:
        """One that is to move waits no more for what consumers have: it is given out again. How much that was."""
        if not isinstance(self.move, Departure) or self.move.phase == ASKED:
            return 0
        self.move.redirect()
        return self.release(lambda session: True)

    def movable(self) -> bool:
        return not self.volatile

    def moving(self) -> dict[str, str]:
        """How far it is on its way, for an operator."""
        move = self.move
        return {"moving": move.shown() if move else "", "waits_for": move.why() if move else ""}

    def for_new_home(self) -> Any:
        """What a subscription adds to the state."""

    def at_rest(self) -> bool:
        """Nothing is on its way back, and no consumer has something that must come before what others get."""
        messages, exclusive = self.messages, any(each.note.exclusive for each in self.consumers)
        unacked = (item for items in messages.unacked.values() for item in items.values())
        return not (self.settlement.returning or messages.purged or any(exclusive or item.group for item in unacked))

    def page(self, note: Page, envelope: Message) -> None:
        if isinstance(self.move, Arrival):
            self.move.page(note, envelope)
        elif note.step != CLOSED:  # that may be told twice
            raise UnknownNotification(f"{self.settings.destination} does not move here")

    def taken(self, note: Taken, envelope: Message) -> None:
        if isinstance(self.move, Departure) and envelope.source == self.move.to:
            self.move.taken(note)
        else:  # it knows no better: it was to come here from a home that is lost, or would not be here at all
            self.post(envelope.source, Page(step=CLOSED))

    def refused(self, note: Refuse, envelope: Message) -> None:
        if isinstance(self.move, Departure) and envelope.source == self.move.to:
            self.move.refused(note.reason)

    def passed(self, note: Passed, envelope: Message) -> None:
        if self.move is not None:
            self.move.passed(envelope.origin)

    def ready(self, note: Ready, envelope: Message) -> None:
        if self.move is not None:
            self.move.answered(envelope.origin, note.passed)

    def dissolve(self, reason: str) -> None:
        """It was to come here, and does not."""
        self.leave()
        self._end(reason)
        self.natives.remove(self.id)

    def named(self) -> None:
        """What its name means is decided, perhaps anew."""
        if isinstance(self.move, Arrival):
            self.move.named()

    def follow(self) -> None: ...

    def arrived(self) -> None: ...

    def leave(self) -> None: ...

    # -- what goes on --------------------------------------------------------------------------------------------

    def alarm(self) -> None:
        self.schedule.rung()
        self.touch()

    def policy_changed(self) -> None:
        """Policies have changed, perhaps that of this queue. Whatever waits because of a setting is looked at again:
        here, or by `flush`, which follows."""
        self.limits.free()
        self.touch()

    def flush(self) -> None:
        self.work.begin()
        if self.settlement.returning:
            self.settlement.take_back()
        if self.schedule.ripe:
            self.expiry.ripen()
        if self.messages.purged:
            self.expiry.purge()
        if self.move is not None and self.move.run():
            return
        if self.settings.limited:
            self.limits.drop_surplus()
        self.dispatcher.run()

    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None:
        """Of each queue a consumer was given something, and that is all that has happened."""
        rounds.dispatch(parts)

    def describe(self) -> dict[str, Any]:
        messages = self.messages
        return {
            "destination": self.settings.destination, "home": self.tx.name,
            "messages": messages.count - messages.stale, "bytes": messages.bytes - messages.stale_bytes,
            "ready": messages.ready - messages.stale_ready, "unacked": messages.count_unacked(),
            "backing_off": sum(id > messages.purged for id in self.schedule.backing_off),
            "consumers": len(self.consumers.consumers), "dropped": messages.dropped,
            **self.moving(),
        }  # fmt: skip

    def check(self) -> None:
        """Assert the invariants. Whatever is to be done is being done, or waits for something from outside."""
        self.messages.check()
        self.limits.check()
        if self.turns.armed(self):
            return
        if self.move is not None:
            self.move.check()
        assert not self.settlement.returning, "what lost connections had is left lying"
        assert not self.messages.purged and not self.schedule.ripe, "a purge, or what was due, is left lying"
        self.schedule.check()
        self.dispatcher.check()


Queue.handlers = {
    ClientMessage.wire: Queue.enqueue,
    Settle.wire: Queue.settle,
    Consume.wire: Queue.consume,
    Flow.wire: Queue.flow,
    Cancel.wire: Queue.cancel,
    Gone.wire: Queue.gone,
    Page.wire: Queue.page,
    Taken.wire: Queue.taken,
    Refuse.wire: Queue.refused,
    Passed.wire: Queue.passed,
    Ready.wire: Queue.ready,
}
