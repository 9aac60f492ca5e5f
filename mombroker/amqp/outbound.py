"""What a session delivers: transfers within credit and window, and what becomes of them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from mombroker.amqp import payloads, performatives
from mombroker.amqp.frames import frame
from mombroker.amqp.links import TAGGED, Outgoing
from mombroker.amqp.performatives import ACCEPTED, MODIFIED, REJECTED, RELEASED, SENDER, SPACE, Outcome
from mombroker.broker import commands
from mombroker.broker.commands import Command, Delivery

OUTCOMES = {
    ACCEPTED: commands.ACCEPTED, REJECTED: commands.REJECTED, RELEASED: commands.RELEASED, MODIFIED: commands.MODIFIED,
}  # fmt: skip


Given = tuple[int, int, Outgoing]  # delivery-id, the broker's tag, link


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
        self.unsettled: dict[int, Given] = {}  # by delivery-id
        self.next_out = self._next_delivery = 0
        self._order: deque[Outgoing] = deque()
        self._rest: deque[bytes] = deque()  # frames of a delivery that has begun
        self._auto = 0  # its tag, if that is settled by being written

    def add(self, link: Outgoing) -> None:
        self.links[link.handle] = self.subs[link.sub] = link

    def forget(self, link: Outgoing) -> None:
        """The link is no more: what its client has not settled goes back."""
        del self.links[link.handle], self.subs[link.sub]
        for id in [id for id, (*_, whose) in self.unsettled.items() if whose is link]:
            _, tag, _ = self.unsettled.pop(id)
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
        self.unsettled.clear()
        self._order.clear()
        self._rest.clear()

    # -- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, row: list[Delivery]) -> None:
        """Messages that come together."""
        at = 0
        while at < len(row):
            delivery = row[at]
            link = self.subs.get(delivery.sub)
            if link is None:
                self._give_back(delivery)
                at += 1
                continue
            count = 1
            if (
                link.credit > 0
                and self.window > 0
                and link.attached
                and not (self._order or link.pending or self._rest)
            ):
                count = self._transfer_alike(link, row, at) or self._transfer(link, delivery)
            else:
                link.pending.append(delivery)
                self._order.append(link)
                self._go_on()
            at += count
            link.granted = max(0, link.granted - count)
            if link.settled and not link.granted and link.credit > 0:  # no outcome of it brings the next credit
                self.grant(link)
        row.clear()

    def _transfer(self, link: Outgoing, delivery: Delivery) -> int:
        """One delivery, and that it is one."""
        owner, id, tag = self.owner, self._next_delivery, delivery.tag
        self._next_delivery = (id + 1) % SPACE
        if not link.settled:
            self.unsettled[id] = id, tag, link
            tag = 0
        link.gave(1)
        found = link.transfer(id, payloads.parts(delivery, owner.now), owner.most_out)
        if isinstance(found, bytes):
            self._put(found, tag)
        else:
            self._rest, self._auto = deque(found), tag
            self._put_rest()
        return 1

    def _transfer_alike(self, link: Outgoing, row: list[Delivery], at: int) -> int:
        """Those of a run that stand in a row from a place on, as far as credit and window go, each in one frame. How
        many these are; 0: the one there is for `_transfer`."""
        start = payloads.start_of(row[at])
        if start is None:
            return 0
        owner, id, settled, unsettled = self.owner, self._next_delivery, link.settled, self.unsettled
        sub, alike, form, named = link.sub, row[at].message.alike, start.form, start.shared is not None
        cut, sizes, count = len(form), (-1, -1), 0
        before = between = middle = behind = text = b""
        for to, tag, _, message, times, *_ in islice(row, at, at + min(link.credit, self.window)):
            if message.alike is not alike or to != sub or times != 1 or not message.form.startswith(form):
                break
            body = message.body
            if named:
                text = message.message.encode()
            if (len(text), len(body)) != sizes:
                sizes = len(text), len(body)
                lead, middle, behind = start.around(*sizes)
                before, between, size = link.around(
                    lead, len(middle) + len(message.form) - cut + len(behind) + sum(sizes)
                )
                if size > owner.most_out:
                    break
            number = id.to_bytes(4, "big")
            data = b"".join((before, number, TAGGED, number, between, text, middle, message.form[cut:], behind, body))
            if settled:
                owner.put_auto(data, self.part, tag)
            else:
                unsettled[id] = id, tag, link
                owner.output.append(data)
            id = (id + 1) % SPACE
            count += 1
        self._next_delivery = id
        self.window -= count
        self.next_out = (self.next_out + count) % SPACE
        link.gave(count)
        return count

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
                self._transfer(link, link.pending.popleft())
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

    def numbers(self, first: int, last: int) -> list[int]:
        """The numbers of a range, or those of them that are not settled yet."""
        count = (last - first) % SPACE + 1
        if count > len(self.unsettled):
            return [id for id in self.unsettled if (id - first) % SPACE < count]
        return [(first + at) % SPACE for at in range(count)]

    def settled(self, ids: list[int]) -> tuple[list[Given], list[Outgoing]]:
        """Take out those that are not settled yet, and which links had them."""
        take = self.unsettled.pop
        found = [given for id in ids if (given := take(id, None)) is not None]
        counts = Counter([link for *_, link in found])
        for link, count in counts.items():
            link.unsettled -= count
        return found, list(counts)

    def regrant(self, links: list[Outgoing]) -> None:
        """What they have settled may make room for credit that the broker has not taken."""
        for link in links:
            if link.credit > link.granted and self.links.get(link.handle) is link:
                self.grant(link)

    def tell(self, id: int, encoded: bytes) -> None:
        """Settle what the client has not."""
        self.owner.put(frame(performatives.disposition(SENDER, id, id, encoded), self.channel))

    def check(self) -> None:
        """Assert the invariants."""
        for link in self.links.values():
            mine = sum(whose is link for *_, whose in self.unsettled.values())
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
