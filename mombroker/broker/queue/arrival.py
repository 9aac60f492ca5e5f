"""A queue or subscription that arrives from another server, while clients use it (protocols §8.8)."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Consume, Page, Refuse, Taken
from mombroker.broker.queue.item import NOWHERE, QueuedMessage, item_of, readable
from mombroker.broker.queue.movable import CLOSED, ENDED, FILLS, FOLLOWS, OPEN, PAGE, Movable
from mombroker.broker.queue.work import MOVE
from mombroker.core.batch import ItemRow
from mombroker.core.errors import StoreError, UnknownNotification
from mombroker.core.ids import home_of
from mombroker.core.message import Message

FORMER = "it was for the former"
BEHIND = "b"  # what was sent to the new home directly


class Arrival:
    """1. What is sent here directly waits in BEHIND, in order, until the former home has said that all is here, or is
    lost. What comes before the name can mean this home was for a former one, which is lost or deleted: nobody has it.
    2. It ends with its name: without one, and without a former home, it takes nothing.

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
        """Keep what has not come by the former home until that has ended. Raises UnknownNotification."""
        if self.releasing or self.step == OPEN:
            return False
        queue = self.queue
        if self._early():
            raise UnknownNotification(f"{FORMER} {queue.id}, which is gone: send it again, by name")
        queue.service.set_by_our_clock(message, envelope)
        id = message.message or f"{envelope.origin}#{envelope.number}"
        item = QueuedMessage(0, 0, id, message)
        item.holder = envelope.source
        row, behind = item.row(queue.id, BEHIND), queue.collection(BEHIND)
        behind.add(0, row.head, row.body)
        queue.accept(behind)
        queue.touch()
        return True

    def _early(self) -> bool:
        """Does the name not mean this queue yet, and has nobody asked for that?"""
        queue = self.queue
        queues = queue.name.startswith("queue:")  # a subscription takes by its entries
        return queues and self.step == FILLS and queue.natives.names.known.get(queue.name) != queue.id

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
        if note.step == FOLLOWS and self.step < FOLLOWS:
            self.step = FOLLOWS
            queue.follow()
        if note.step == ENDED and self.step < ENDED:
            self.step = ENDED
        if note.step == CLOSED:
            self._close()
            return
        if not note.producers:
            queue.post(self.source, Taken(note.step, note.round))
        queue.change()
        queue.touch()

    def _close(self) -> None:
        """Nothing more comes from the former home. Before the end that means that the move is given up, or it is lost:
        then this is all, if the name means this home."""
        queue = self.queue
        self.closed = True
        if self.step < ENDED and queue.natives.names.known.get(queue.name) == queue.id:
            self.step = ENDED
        elif self.step < ENDED and not queue.messages.count:
            queue.dissolve(f"{queue.settings.destination} does not move to {queue.tx.name}: connect again")
            return
        queue.change()
        queue.touch()

    def lost(self, server: str) -> None:
        """A server is not there any more."""
        if home_of(self.source) == server:
            self._close()

    def named(self) -> None:
        """The name may mean this home from now on."""
        if self.closed and self.step < ENDED:
            self._close()

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

    def again(self, servers: Set[str]) -> None:
        """What was under way between this server and these may be lost: perhaps that nothing more comes."""
        if home_of(self.source) in servers and self.step == OPEN:
            self.queue.post(self.source, Taken(CLOSED))

    def passed(self, server: str) -> None:
        """It is the former home that counts them."""

    def answered(self, server: str, passed: bool = False) -> None:
        """Nor does it ask."""

    def shown(self) -> str:
        return f"from {home_of(self.source)}" if self.step != OPEN else ""

    def why(self) -> str:
        home = home_of(self.source)
        return f"messages that consumers have of {home}" if self.step == OPEN else f"the rest from {home}"

    def check(self) -> None:
        assert self.step != ENDED, "all is here, and it has not arrived"
        assert not (self.step == OPEN and self.closed), "it has arrived, and does not know"
