"""When everybody has a message, and those who keep it until then know that it may be forgotten (paper 001, §3.1.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from mombroker.lab.domain import Network, Observer, number_of
from mombroker.ordering import Packet, Step
from mombroker.ordering.daisy import Daisy
from mombroker.sim.world import MS

Broadcast = tuple[int, int]  # who sent a message to a group of its own, and the number of the message


@dataclass(slots=True)
class Open:
    """A broadcast that is not stable: since when, how many acknowledgements are missing, how many have received it, and
    the sum of the times when they did."""

    began: int
    missing: int = 0
    receipts: int = 0
    received: int = 0


class Stability(Observer):
    """A member acknowledges on receipt, also what it has already; one that passes a message on when all of those have
    acknowledged. So a message is stable when its origin has all its acknowledgements. They travel in a network of their
    own and change nothing.

    A member keeps a message from its sending or receipt until whoever sent it in the group knows that it is stable
    there; that the others learn it costs nothing.
    """

    def __init__(self, acks: Network, size: int, first: int = 0):
        """`size`: bytes of an acknowledgement."""
        super().__init__(first)
        self.acks, self.size = acks, size
        self.delays: list[int] = []  # of messages
        self.kept = self.kept_by_senders = 0  # times ns
        self._have: set[Broadcast] = set()
        self._open: dict[Broadcast, Open] = {}
        self._owed: dict[Broadcast, int] = {}  # to whom an acknowledgement goes when all of one's own have come

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._have.add((me, number))
        self._begin(me, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        if step.send:
            self._begin(me, step.send)
        if not packet.body:
            return
        number, frm = number_of(packet), packet.frm
        key = me, number
        if key not in self._have:
            self._have.add(key)
            at = self._open[frm, number]
            at.receipts += 1
            at.received += self.domain.world.now
            if key in self._open or self._will_pass_on(me, packet):
                self._owed[key] = frm
                return
        self._acknowledge(me, frm, number)

    def _will_pass_on(self, me: int, packet: Packet) -> bool:
        """Held at a member that connects two groups; all others pass on at once, or never."""
        core = self.domain.members[me]
        if not isinstance(core, Daisy) or not core.outboxes:
            return False
        seat = core.seats[core._group_of[packet.frm]]
        passes = any(way.connector == me and way.takes(packet) for way in seat.crossings)
        return passes and core.missing(packet) is not None

    def _begin(self, me: int, packets: Sequence[Packet]) -> None:
        for packet in packets:
            if packet.body:
                key = me, number_of(packet)
                if key not in self._open:
                    self._open[key] = Open(self.domain.world.now)
                self._open[key].missing += 1

    def _acknowledge(self, me: int, to: int, number: int) -> None:
        self.acks.carry(me, to, self.size, self._acknowledged, (to, number))

    def _acknowledged(self, key: Broadcast) -> None:
        at = self._open[key]
        at.missing -= 1
        if at.missing:
            return
        del self._open[key]
        (me, number), now, to = key, self.domain.world.now, self._owed.pop(key, None)
        if number > self.first:
            self.kept += at.receipts * now - at.received + (now - at.began if to is None else 0)
            self.kept_by_senders += now - at.began
            if to is None:
                self.delays.append(now - at.began)
        if to is not None:
            self._acknowledge(me, to, number)

    def result(self) -> dict[str, float]:
        """The delay in the mean, and for how long the copies of a message are kept in all, times their number."""
        count = max(len(self.delays), 1)
        return {
            "stable_ms": sum(self.delays) / count / MS, "kept_ms": self.kept / count / MS,
            "kept_by_senders_ms": self.kept_by_senders / count / MS,
        }  # fmt: skip
