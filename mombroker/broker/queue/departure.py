"""A queue or subscription that leaves for another server, while clients use it (protocols §8.8)."""

from __future__ import annotations

from collections.abc import Set
from heapq import nsmallest
from typing import Any

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Consume, Moved, Page, Passed, Ready, Refuse, Taken
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.movable import CLOSED, ENDED, FOLLOWS, PAGE, Movable
from mombroker.broker.queue.work import MOVE
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.words import many

ASKED, WAITS, SENDS, POLLS, TURNS, ENDS, LINGERS = range(7)  # how far it has come
PAGE_BYTES = 256 << 10
WINDOW = 16  # pages without a receipt
MOVING = "it moves to another server"


class Departure:
    """1. From WAITS on nothing is given to consumers here, and a new one is sent on at once.
    2. Nothing is sent before all servers are told of both homes.
    3. It says that all is sent when the name is decided, all servers have passed, nothing waits and no receipt lacks.
    4. It has left when consumers have nothing of here, either.
    5. Where the new home is lost it ends, and the queue stays here, with what is still here.

    to          the id of the new home
    under_way   pages without a receipt
    waits       servers that have still to say that they are there, or to pass; then our own is the last
    horizon     what is not above this id was here when consumers were sent on
    round       counts servers on the way to the new home that were lost, from 1; only receipts of the last round count
    """

    __slots__ = ("queue", "to", "phase", "under_way", "waits", "horizon", "round")

    def __init__(
        self, queue: Movable, to: str, phase: int = ASKED, under_way: int = 0, waits: Any = (), horizon: int = 0,
        round: int = 1,
    ):  # fmt: skip
        self.queue, self.to, self.phase, self.under_way, self.horizon = queue, to, phase, under_way, horizon
        self.round = round
        self.waits = set(waits)
        if phase >= WAITS:
            self._pause()

    def values(self) -> list[Any]:
        return ["to", self.to, self.phase, self.under_way, sorted(self.waits), self.horizon, self.round]

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

    def recovered(self) -> None:
        """A restart, perhaps of an older program, which did not tell of both homes."""
        if self.phase == WAITS:
            self._pair()

    def _pair(self) -> None:
        """All are to know both homes."""
        self.queue.natives.names.pair(self.queue.name, self.queue.id, self.to)

    def _paired(self) -> bool:
        names = self.queue.natives.names
        return names.others.get(self.queue.name) == self.to

    def taken(self, note: Taken) -> None:
        """A page is durable at the new home; at first, that it exists."""
        if note.step == CLOSED:  # it does not know how far we are, and hears of it
            return
        if self.phase == ASKED:
            self.phase = WAITS
            self._pause()
            self._pair()
        elif note.round != self.round:
            return
        else:
            self.under_way -= 1
            if note.step == FOLLOWS:
                self.queue.natives.names.move(self.queue.name, self.queue.id, self.to)
        self.queue.change()
        self.queue.touch()

    def answered(self, server: str, passed: bool = False) -> None:
        """A server is there, or has `passed`: behind all that it has sent to this home it says so."""
        if passed:
            self.passed(server)
        elif self.phase == POLLS and server in self.waits:
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

    def lost(self, server: str) -> None:
        """A server is not there any more. Without the new home the name means this one, again or still."""
        if home_of(self.to) != server:
            self.passed(server)
            return
        self._stays(f"{server}, to which it moved, is lost")

    def refused(self, reason: str) -> None:
        """The new home is not made."""
        if self.phase == ASKED:
            self._stays(reason)

    def _stays(self, reason: str) -> None:
        queue = self.queue
        queue.move = None
        queue.dispatcher.resume(MOVING)
        queue.arrived()
        queue.tx.note(f"{queue.settings.destination} stays on {queue.tx.name}: {reason}")
        queue.change()
        queue.touch()

    def again(self, servers: Set[str]) -> None:
        """What was under way between this server and these may be lost with one between them: it is asked anew. The
        messages of pages that are lost are dead letters."""
        queue = self.queue
        lost = home_of(self.to) in servers
        if lost:
            self.round, self.under_way = self.round + 1, 0
        if self.phase == ASKED and lost:
            queue.invite(self.to)
        elif self.phase == WAITS:
            self._pair()
        elif self.phase == TURNS and (lost or queue.tx.topology.registry in servers):
            self._send(Page(step=FOLLOWS))
        elif self.phase == LINGERS and lost:
            self._send_all()
        elif self.phase in (POLLS, ENDS):
            self._ask(self.waits & servers)
        queue.change()
        queue.touch()

    def _ask(self, servers: Set[str]) -> None:
        queue = self.queue
        if servers:
            asked = tuple(f"{name}/_clients" for name in sorted(servers))
            queue.natives.cast(queue.id, asked, Ready(queue.id, self.phase == ENDS))

    # -- what goes on --------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Go on. True when it has left."""
        queue, messages = self.queue, self.queue.messages
        if self.phase == WAITS and queue.at_rest() and self._paired():
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
            self._ask(self.waits)
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
            queue.natives.names.unpair(queue.name, queue.id)
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
        page.round = self.round
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
        for page in queue.dedup.pages():
            queue.post(self.to, Page(producers=page))
        self._send(Page(step=ENDED))

    def shown(self) -> str:
        return f"to {home_of(self.to)}"

    def why(self) -> str:
        """What it waits for, for an operator; empty: it is at work."""
        queue = self.queue
        if self.phase == ASKED:
            return f"{home_of(self.to)} has not answered"
        if self.phase == WAITS and self.queue.at_rest():
            return "all to learn that it moves"
        if self.phase in (WAITS, LINGERS):
            return f"{many(queue.messages.count_unacked(), 'message')} that consumers have"
        others = ", ".join(sorted(self.waits - {queue.tx.name}))
        if not others:
            return ""
        return f"{others} to answer" if self.phase == POLLS else f"{others} to learn of it"

    def check(self) -> None:
        assert self.phase == ASKED or any(each.reason == MOVING for each in self.queue.dispatcher.pauses), "it gives"
        if self.phase >= SENDS:
            assert not self.queue.consumers.consumers, "a consumer was not sent on"
        early = SENDS <= self.phase < ENDS and self.queue.natives.names.known.get(self.queue.name) == self.queue.id
        assert not early or self._paired(), "2: not all know both homes"
        waits = self.phase == WAITS and not (self.queue.at_rest() and self._paired())
        waits = waits or (self.phase == LINGERS and self.queue.messages.count_unacked() > 0)
        ends = self.phase in (POLLS, ENDS) and self.waits
        assert waits or ends or self.phase in (ASKED, TURNS) or self.under_way, "a move goes no further"
