"""A queue or subscription on its way from one server to another, while clients use it (protocols §8.8).

The old home sends consumers on, and what waits in pages, each in the transaction that deletes its rows; what still
comes to it goes the same way. When nothing waits, and all servers have said that they are there, the name is decided
anew; each server then says that it has passed, behind all that it has sent to the old home. What is sent to the new
home directly waits there until the old one has said, behind its last page, that this is all. What consumers have of the
old home is settled there, or comes after.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Any, Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Consume, Moved, Page, Passed, Ready, Refuse, Taken
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dedup import Dedup
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.queue.item import NOWHERE, QueuedMessage, item_of, readable
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.schedule import Schedule
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.settings import Settings
from mombroker.broker.queue.settlement import Settlement
from mombroker.broker.queue.work import MOVE, Work
from mombroker.core.batch import ItemRow
from mombroker.core.collection import Collection
from mombroker.core.errors import StoreError, UnknownNotification
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.transaction import Transaction
from mombroker.core.turns import Turns

ASKED, WAITS, SENDS, POLLS, TURNS, ENDS, LINGERS = range(7)  # how far one has come that leaves
FILLS, FOLLOWS, ENDED, OPEN, CLOSED = range(5)  # and one that arrives: the `step` of a page
PAGE, PAGE_BYTES = 128, 256 << 10
WINDOW = 16  # pages without a receipt
PRODUCERS = 100  # in a page
BEHIND = "b"  # what was sent to the new home directly
MOVING = "it moves to another server"


class Movable(Protocol):
    """What this needs of a queue, or of a subscription."""

    id: str
    name: str
    tx: Transaction
    turns: Turns
    natives: Natives
    service: QueueService
    settings: Settings
    messages: QueueMessages
    schedule: Schedule
    consumers: Consumers
    dispatcher: Dispatcher
    settlement: Settlement
    work: Work
    move: Departure | Arrival | None
    collections: dict[str, Collection]

    @property
    def dedup(self) -> Dedup: ...
    def post(self, to: str, note: Any) -> None: ...
    def touch(self) -> None: ...
    def flush(self) -> None: ...
    def change(self) -> None: ...
    def collection(self, name: str) -> Collection: ...
    def accept(self, collection: Collection) -> None: ...
    def at_rest(self) -> bool: ...  # consumers have nothing that must come before what others get
    def enqueue(self, message: ClientMessage, envelope: Message) -> None: ...
    def follow(self) -> None: ...  # what its topics bring is taken at the new home, by who knows of that
    def arrived(self) -> None: ...
    def leave(self) -> None: ...  # nothing more comes


class Departure:
    """1. From WAITS on nothing is given to consumers here, and a new one is sent on at once.
    2. It says that all is sent when the name is decided, all servers have passed, nothing waits and no receipt lacks.
    3. It has left when consumers have nothing of here, either.

    to          the id of the new home
    under_way   pages without a receipt
    waits       servers that have still to say that they are there, or to pass; then our own is the last
    horizon     what is not above this id was here when consumers were sent on
    """

    __slots__ = ("queue", "to", "phase", "under_way", "waits", "horizon")

    def __init__(
        self, queue: Movable, to: str, phase: int = ASKED, under_way: int = 0, waits: Any = (), horizon: int = 0
    ):
        self.queue, self.to, self.phase, self.under_way, self.horizon = queue, to, phase, under_way, horizon
        self.waits = set(waits)
        if phase >= WAITS:
            self._pause()

    def values(self) -> list[Any]:
        return ["to", self.to, self.phase, self.under_way, sorted(self.waits), self.horizon]

    def _pause(self) -> None:
        self.queue.dispatcher.pause(MOVING, expected=lambda: self.queue.move is self)

    # -- what comes ----------------------------------------------------------------------------------------------

    def keeps(self, message: ClientMessage, envelope: Message) -> bool:
        """What still comes to the old home goes on with the rest."""
        self.queue.touch()
        return False

    def redirects(self, note: Consume, session: str) -> bool:
        if self.phase == ASKED:
            return False
        if note.browser:
            self._refuse_browser(session, note.consumer)
        else:
            self.queue.post(session, Moved(note.consumer, self.to))
        return True

    def _refuse_browser(self, session: str, number: int) -> None:
        shown, home = self.queue.settings.destination, home_of(self.to)
        self.queue.post(session, Refuse(number, f"{shown} is on its way to {home}: browse it when it is there"))

    def taken(self, note: Taken, source: str) -> None:
        """A page is durable at the new home; at first, that it exists."""
        if source != self.to:
            raise UnknownNotification(f"{source} takes nothing of this")
        if self.phase == ASKED:
            self.phase = WAITS
            self._pause()
        else:
            self.under_way -= 1
            if note.step == FOLLOWS:
                self.queue.natives.names.move(self.queue.name, self.queue.id, self.to)
        self.queue.change()
        self.queue.touch()

    def answered(self, server: str) -> None:
        """A server is there."""
        if self.phase == POLLS and server in self.waits:
            self.waits.discard(server)
            self.queue.change()
            self.queue.touch()

    def decided(self) -> None:
        """The name is that of the new home from now on."""
        self.phase = ENDS
        self.waits = {*self.queue.tx.topology.servers}
        self.passed(self.queue.tx.name)

    def passed(self, server: str) -> None:
        """Nothing more comes from a server. Our own says so behind all others, and behind all that it has for us."""
        if self.phase == POLLS:
            self.answered(server)
        if self.phase != ENDS:
            return
        me = self.queue.tx.name
        last = self.waits == {me}
        if last or server != me:
            self.waits.discard(server)
        if self.waits == {me} and not last:
            self.queue.natives.post(f"{me}/_clients", self.queue.id, Passed(self.to))
        self.queue.change()
        self.queue.touch()

    # -- what goes on --------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Go on. True when it has left."""
        queue, messages = self.queue, self.queue.messages
        if self.phase == WAITS and queue.at_rest():
            self.redirect()
            self.phase, self.horizon = SENDS, queue.tx.new_id()
            self._send(Page(reserve=messages.count_unacked()))
        if self.phase < SENDS:
            return False
        while self.under_way < WINDOW and (items := self._items()):
            self._send(Page(items))
        unacked = messages.count_unacked()
        if messages.count > unacked or self.under_way:
            return False
        if self.phase == SENDS:  # what is sent directly waits for all: not while one is known to be down
            self.phase, self.waits = POLLS, {*queue.tx.topology.servers}
            queue.natives.cast(queue.id, tuple(f"{name}/_clients" for name in sorted(self.waits)), Ready(queue.id))
            queue.change()
        elif self.phase == POLLS and not self.waits:
            self.phase = TURNS
            queue.follow()
            self._send(Page(step=FOLLOWS))
        elif self.phase == ENDS and not self.waits:
            self._send_all()
            self.phase = LINGERS
            queue.leave()
        elif self.phase == LINGERS and not unacked:
            queue.post(self.to, Page(step=CLOSED))
            queue.natives.remove(queue.id)
            return True
        return False

    def redirect(self) -> None:
        """Consumers go on at the new home."""
        queue = self.queue
        for session, number in list(queue.consumers.consumers):
            queue.settlement.leave((session, number))
            queue.post(session, Moved(number, self.to))
        for session, number in list(queue.dispatcher.browsers):
            queue.settlement.leave((session, number))
            self._refuse_browser(session, number)

    def _send(self, page: Page) -> None:
        self.under_way += 1
        self.queue.post(self.to, page)
        self.queue.change()

    def _items(self) -> list[tuple[bytes, bytes, bool]]:
        """The next messages, which leave."""
        queue, messages, work = self.queue, self.queue.messages, self.queue.work
        late = iter(nsmallest(PAGE, queue.schedule.backing_off))
        items: list[tuple[bytes, bytes, bool]] = []
        size = 0
        while len(items) < PAGE and size < PAGE_BYTES and not (work.enough() or work.spent()):
            item = self._next(next(late, 0))
            if item is None:
                break
            messages.loaded(item)
            row = item.row(queue.id, "")
            items.append((row.head, row.body, self.phase > SENDS and item.id <= self.horizon))
            size += item.size
            work.spend(MOVE, item.size)
            work.moved += item.size
            messages.end(item)
        return items

    def _next(self, late: int) -> QueuedMessage | None:
        """Take what backs off or is delayed, then what is ready, in order; None: there is nothing that can be read."""
        messages, schedule = self.queue.messages, self.queue.schedule
        while late or schedule.count_delayed():
            item = schedule.backing_off.pop(late) if late else schedule.pop()
            if item is not None and messages.whole(item):
                return item
            if late:
                break
        item = messages.first()
        if item is not None:
            messages.take(item)
        elif messages.ready:
            self.queue.turns.late[self.queue] = None
        return item

    def _send_all(self) -> None:
        """What was sent to this home is on its way to the new one."""
        queue = self.queue
        seen = [(producer, ranges) for producer, (_, ranges) in queue.dedup.seen.items()]
        for at in range(0, len(seen), PRODUCERS):
            queue.post(self.to, Page(producers=seen[at : at + PRODUCERS]))
        self._send(Page(step=ENDED))

    def shown(self) -> str:
        return f"to {home_of(self.to)}"

    def why(self) -> str:
        """What it waits for, for an operator; empty: it is at work."""
        queue = self.queue
        if self.phase == ASKED:
            return f"{home_of(self.to)} has not answered"
        if self.phase in (WAITS, LINGERS):
            return f"{queue.messages.count_unacked()} messages that consumers have"
        others = ", ".join(sorted(self.waits - {queue.tx.name}))
        if not others:
            return ""
        return f"{others} to answer" if self.phase == POLLS else f"{others} to learn of it"

    def check(self) -> None:
        assert self.phase == ASKED or any(each.reason == MOVING for each in self.queue.dispatcher.pauses), "it gives"
        if self.phase >= SENDS:
            assert not self.queue.consumers.consumers, "a consumer was not sent on"
        waits = self.phase == WAITS and not self.queue.at_rest()
        waits = waits or (self.phase == LINGERS and self.queue.messages.count_unacked() > 0)
        ends = self.phase in (POLLS, ENDS) and self.waits
        assert waits or ends or self.phase in (ASKED, TURNS) or self.under_way, "a move goes no further"


class Arrival:
    """1. What is sent here directly waits in BEHIND, in order, until the former home has said that all is here.

    source     the id at the former home
    step       of its last page; OPEN: what has waited was let in
    closed     nothing more can come from there
    reserved   ids, from the first to before the last, for what comes back there and belongs before what is here
    releasing  what has waited is let in
    """

    __slots__ = ("queue", "source", "step", "closed", "reserved", "releasing")

    def __init__(self, queue: Movable, source: str, step: int = FILLS, closed: bool = False, reserved: Any = (0, 0)):
        self.queue, self.source, self.step, self.closed = queue, source, step, closed
        self.reserved: tuple[int, int] = (reserved[0], reserved[1])
        self.releasing = False
        queue.dispatcher.filling = step < OPEN

    def values(self) -> list[Any]:
        return ["from", self.source, self.step, self.closed, self.reserved]

    # -- what comes ----------------------------------------------------------------------------------------------

    def keeps(self, message: ClientMessage, envelope: Message) -> bool:
        """Keep what has not come by the former home until that has ended."""
        if self.releasing or self.step == OPEN:
            return False
        queue = self.queue
        queue.service.set_by_our_clock(message, envelope)
        id = message.message or f"{envelope.origin}#{envelope.number}"
        item = QueuedMessage(0, 0, id, message)
        item.holder = envelope.source
        row, behind = item.row(queue.id, BEHIND), queue.collection(BEHIND)
        behind.add(0, row.head, row.body)
        queue.accept(behind)
        queue.touch()
        return True

    def redirects(self, note: Consume, session: str) -> bool:
        refused = note.browser and self.step != OPEN
        if refused:
            shown, home = self.queue.settings.destination, home_of(self.source)
            self.queue.post(session, Refuse(note.consumer, f"{shown} is on its way from {home}: browse it in a moment"))
        return refused

    def page(self, note: Page, envelope: Message) -> None:
        """What the former home sends; what is wrong with it is found before anything changes."""
        queue = self.queue
        if envelope.source != self.source:
            raise UnknownNotification(f"{envelope.source} sends what only {self.source} has")
        try:
            items = [(item_of(ItemRow(0, queue.id, "", 0, head, body)), late) for head, body, late in note.items]
        except StoreError as error:
            raise UnknownNotification(f"messages that move cannot be read: {error}") from None
        if note.reserve:
            first = queue.tx.new_id()
            self.reserved = (first, first + note.reserve)
            for _ in range(note.reserve):
                queue.tx.new_id()
        for item, late in items:
            self._take(item, late, envelope)
        for producer, ranges in note.producers:
            queue.dedup.adopt(producer, ranges)
        if note.step == FOLLOWS:
            self.step = FOLLOWS
            queue.follow()
        if note.step == ENDED:
            self.step = ENDED
        if note.step == CLOSED:
            self.closed = True
        elif not note.producers:
            queue.post(self.source, Taken(note.step))
        queue.change()
        queue.touch()

    def _take(self, item: QueuedMessage, late: bool, envelope: Message) -> None:
        """A message from there is here, behind those before it, or at its place before these."""
        queue, messages, message = self.queue, self.queue.messages, item.message
        assert message is not None, "a row has a message"
        queue.service.set_by_our_clock(message, envelope)
        now, item.due = queue.tx.now, queue.natives.clock.by_ours(item.due, envelope)
        item.id, item.holder, item.expiry_row, item.stored, item.place = queue.tx.new_id(), "", 0, False, NOWHERE
        late = late and self.reserved[0] < self.reserved[1]
        if late:
            item.id, self.reserved = self.reserved[0], (self.reserved[0] + 1, self.reserved[1])
        messages.count += 1
        messages.bytes += item.size
        queue.work.spend(MOVE, item.size)
        if item.due > now or late:
            item.stored = message.persistent
            if message.expires:
                queue.schedule.expire(item, message.expires)
            if item.group:
                queue.consumers.returned(item)
            if item.due > now:
                messages.back_off(item, item.due)
            else:
                messages.ready_again(item)
        elif message.due > now:
            queue.schedule.postpone(item)
        else:
            item.due = 0
            queue.dispatcher.enter(item)
        if not item.stored:
            messages.unstored += item.size

    # -- what goes on --------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Let in what has waited, some at a time."""
        queue, work = self.queue, self.queue.work
        if self.step == OPEN and self.closed:
            queue.move = None
            queue.change()
        if self.step != ENDED:
            return False
        behind = queue.collection(BEHIND)
        while rows := behind.scan(None, PAGE):
            for row in rows:
                if work.enough() or work.spent():
                    queue.accept(behind)
                    return False
                behind.remove(row.id)
                for item in readable(queue.tx.reader, [row]):
                    self._let_in(item)
        queue.accept(behind)
        del queue.collections[BEHIND]
        self.step = OPEN
        queue.dispatcher.filling = False
        queue.arrived()
        queue.change()
        queue.touch()
        return False

    def _let_in(self, item: QueuedMessage) -> None:
        queue, message = self.queue, item.message
        assert message is not None, "a row has a message"
        message.message, source = item.message_id, item.holder
        queue.work.spend(MOVE, item.size)
        queue.work.moved += item.size
        self.releasing = True
        queue.enqueue(message, Message(queue.tx.name, 0, source, (queue.id,), message.wire, b""))
        self.releasing = False

    def passed(self, server: str) -> None:
        """It is the former home that counts them."""

    def shown(self) -> str:
        return f"from {home_of(self.source)}" if self.step != OPEN else ""

    def why(self) -> str:
        home = home_of(self.source)
        return f"messages that consumers have of {home}" if self.step == OPEN else f"the rest from {home}"

    def check(self) -> None:
        assert self.step != ENDED, "all is here, and it has not arrived"
        assert not (self.step == OPEN and self.closed), "it has arrived, and does not know"


def move_of(queue: Movable, values: Any) -> Departure | Arrival | None:
    """From its row."""
    if not values:
        return None
    way, *rest = values
    return Departure(queue, *rest) if way == "to" else Arrival(queue, *rest)
