"""What a session delivers: transfers within credit and window, and what becomes of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from mombroker.amqp import payloads, performatives
from mombroker.amqp.frames import frame
from mombroker.amqp.links import Outgoing
from mombroker.amqp.performatives import ACCEPTED, MODIFIED, REJECTED, RELEASED, SENDER, SPACE, Outcome
from mombroker.broker import commands
from mombroker.broker.commands import Command, Delivery

OUTCOMES = {
    ACCEPTED: commands.ACCEPTED, REJECTED: commands.REJECTED, RELEASED: commands.RELEASED, MODIFIED: commands.MODIFIED,
}  # fmt: skip


class Owner(Protocol):
    """The connection."""

    now: Callable[[], int]
    most_out: int
    output: list[bytes]

    def put(self, data: bytes) -> None: ...
    def put_auto(self, data: bytes, part: int, tag: int) -> None: ...


class Outbound:
    """1. A delivery is in `unsettled` from when it is sent until its client, or the end of its link, settles it.
    2. What waits, is in `pending` of its link; `order` has the link for each that has credit, and waits for the window,
    for its link to be there, or behind others.

    next_out   number of the next frame; `window`, how many more the client takes
    """

    def __init__(self, owner: Owner, part: int, channel: int, window: int, ask: Callable[[Command], None]):
        self.owner, self.part, self.channel, self.window, self._ask = owner, part, channel, window, ask
        self.links: dict[int, Outgoing] = {}  # by the client's handle, which is ours, too
        self.subs: dict[str, Outgoing] = {}
        self.unsettled: dict[int, tuple[int, Outgoing]] = {}  # delivery-id -> the broker's tag, link
        self.next_out = self._next_delivery = 0
        self._order: deque[Outgoing] = deque()
        self._rest: deque[bytes] = deque()  # frames of a delivery that has begun
        self._auto = 0  # its tag, if that is settled by being written

    def add(self, link: Outgoing) -> None:
        self.links[link.handle] = self.subs[link.sub] = link

    def forget(self, link: Outgoing) -> None:
        """The link is no more: what its client has not settled goes back."""
        del self.links[link.handle], self.subs[link.sub]
        for id in [id for id, (_, whose) in self.unsettled.items() if whose is link]:
            tag, _ = self.unsettled.pop(id)
            self._ask(commands.Disposition(tag, commands.RELEASED))
        for each in link.pending:
            self._give_back(each)
        link.pending.clear()
        self._rest.clear()
        self._go_on()

    def _give_back(self, delivery: Delivery) -> None:
        if not delivery.sub.endswith(BROWSES):
            self._ask(commands.Disposition(delivery.tag, commands.RELEASED))

    def clear(self) -> None:
        self.links.clear()
        self.subs.clear()
        self._order.clear()
        self._rest.clear()

    # -- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, row: list[Delivery]) -> None:
        """Messages that come together."""
        subs, known = self.subs, payloads.Starts()
        for delivery in row:
            link = subs.get(delivery.sub)
            if link is None:
                self._give_back(delivery)
                continue
            if link.granted:
                link.granted -= 1
            if (
                link.credit > 0
                and self.window > 0
                and link.attached
                and not (self._order or link.pending or self._rest)
            ):
                self._transfer(link, delivery, known)
            else:
                link.pending.append(delivery)
                self._order.append(link)
                self._go_on()
            if link.settled and not link.granted and link.credit > 0:  # no outcome of it brings the next credit
                self.grant(link)
        row.clear()

    def _transfer(self, link: Outgoing, delivery: Delivery, known: payloads.Starts) -> None:
        owner, id, tag = self.owner, self._next_delivery, delivery.tag
        self._next_delivery = (id + 1) % SPACE
        if not link.settled:
            self.unsettled[id] = tag, link
            link.unsettled += 1
            tag = 0
        found = link.transfer(id, payloads.parts(delivery, owner.now, known), owner.most_out)
        if isinstance(found, bytes):
            if tag:
                self._put(found, tag)
            else:
                self.window -= 1
                self.next_out = (self.next_out + 1) % SPACE
                owner.output.append(found)
        else:
            self._rest, self._auto = deque(found), tag
            self._put_rest()

    def _put(self, data: bytes, auto: int) -> None:
        self.window -= 1
        self.next_out = (self.next_out + 1) % SPACE
        if auto:
            self.owner.put_auto(data, self.part, auto)
        else:
            self.owner.put(data)

    def _put_rest(self) -> None:
        rest = self._rest
        while rest and self.window > 0:
            self._put(rest.popleft(), 0 if rest else self._auto)

    def opened(self, window: int) -> None:
        """The client takes so many frames."""
        self.window = window
        self._put_rest()
        self._go_on()

    def _go_on(self) -> None:
        """Those that come first wait for their link, or the others might overtake what they depend on; those whose link
        has no credit are passed over."""
        order = self._order
        while order and self.window > 0 and not self._rest:
            link = order[0]
            ready = link.pending and link.credit > 0
            if ready and not link.attached:
                return
            order.popleft()
            if ready:
                self._transfer(link, link.pending.popleft(), {})
                self._drained_now(link)

    def flush(self, link: Outgoing) -> None:
        """It has credit, or is there, now."""
        self._order.extend([link] * (len(link.pending) - self._order.count(link)))
        self._go_on()

    # -- credit ----------------------------------------------------------------------------------------------------

    def say_flow(self, link: Outgoing, flow: Callable[[int, int, int, bool], bytes], drained: bool = False) -> None:
        self.owner.put(frame(flow(link.handle, link.count, link.credit, drained), self.channel))

    def grant(self, link: Outgoing) -> None:
        """Let the broker have the credit that the client gives."""
        if not link.draining and (more := link.lacks()):
            link.granted += more
            self._ask(commands.Flow(link.sub, more))

    def drain(self, link: Outgoing, flow: Callable[[int, int, int, bool], bytes]) -> None:
        if link.draining:
            return
        link.flow_said = flow
        if not link.credit:
            self.say_flow(link, flow, True)
            return
        more = link.lacks()
        link.granted += more
        link.draining = True
        self._ask(commands.Flow(link.sub, more, True))

    def is_drained(self, sub: str) -> None:
        """The broker has given what is there."""
        link = self.subs.get(sub)
        if link is not None:
            link.draining, link.granted, link.drained = False, 0, True
            self._drained_now(link)

    def _drained_now(self, link: Outgoing) -> None:
        """The rest of its credit is used up, once nothing waits."""
        if link.drained and not link.pending:
            link.drained = False
            link.count = (link.count + link.credit) % SPACE
            link.credit = 0
            assert link.flow_said is not None, "it is drained without being asked"
            self.say_flow(link, link.flow_said, True)

    # -- outcomes --------------------------------------------------------------------------------------------------

    def settled(self, first: int, last: int) -> list[tuple[int, int, Outgoing]]:
        """Take out those of a range that are not settled yet: delivery-id, tag, link."""
        count = (last - first) % SPACE + 1
        if count > len(self.unsettled):
            return self.each_settled([id for id in self.unsettled if (id - first) % SPACE < count])
        return self.each_settled([(first + at) % SPACE for at in range(count)])

    def each_settled(self, ids: list[int]) -> list[tuple[int, int, Outgoing]]:
        """As `settled`."""
        found, take = [], self.unsettled.pop
        for id in ids:
            if (known := take(id, None)) is not None:
                tag, link = known
                link.unsettled -= 1
                found.append((id, tag, link))
        return found

    def regrant(self, links: list[Outgoing]) -> None:
        """What they have settled may make room for credit that the broker has not taken."""
        for link in dict.fromkeys(links):
            if link.credit > link.granted and self.links.get(link.handle) is link:
                self.grant(link)

    def tell(self, id: int, encoded: bytes) -> None:
        """Settle what the client has not."""
        self.owner.put(frame(performatives.disposition(SENDER, id, id, encoded), self.channel))

    def check(self) -> None:
        """Assert the invariants."""
        for link in self.links.values():
            mine = sum(whose is link for _, whose in self.unsettled.values())
            assert mine == link.unsettled, "1: what is unsettled is counted wrong"
            ready = link.pending and link.credit > 0
            assert not ready or link in self._order, "2: it waits for nothing"


BROWSES = "b"  # at the end of the broker's name of a subscription that takes nothing


def step(tag: int, outcome: Outcome) -> commands.Disposition:
    """The command for an outcome."""
    command = commands.Disposition(tag, OUTCOMES[outcome.code])
    if outcome.code == MODIFIED:
        command.failed, command.undeliverable_here = outcome.failed, outcome.undeliverable_here
    return command
