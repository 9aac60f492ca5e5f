"""When everybody has a message, and those who keep it until then know that it may be forgotten (paper 001, §3.1.2)."""

from collections.abc import Sequence

from mombroker.ordering import Packet, Step
from mombroker.ordering.daisy import Daisy
from mombroker.sim.lab.domain import Network, Observer, number_of
from mombroker.sim.world import MS

Broadcast = tuple[int, int]  # who sent a message to a group of its own, and the number of the message


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
        self._open: dict[Broadcast, set[int]] = {}  # who has not acknowledged
        self._began: dict[Broadcast, int] = {}
        self._receipts: dict[Broadcast, list[int]] = {}
        self._owed: dict[Broadcast, int] = {}  # to whom an acknowledgement goes when all of one's own have come

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._have.add((me, number))
        self._begin(me, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        if not packet.body:
            self._begin(me, step.send)
            return
        number, now = number_of(packet), self.domain.world.now
        if (me, number) in self._have:
            self._begin(me, step.send)
            self.acks.carry(me, packet.frm, self.size, self._acknowledged, (packet.frm, number), me)
            return
        self._have.add((me, number))
        self._receipts[packet.frm, number].append(now)
        self._owed[me, number] = packet.frm
        self._begin(me, step.send)
        if (me, number) not in self._open and not self._will_pass_on(me, packet):
            self._acknowledge(me, number)

    def _will_pass_on(self, me: int, packet: Packet) -> bool:
        """Held at a member that connects two groups; all others pass on at once, or never."""
        core = self.domain.members[me]
        if not isinstance(core, Daisy) or core.missing(packet) is None:
            return False
        seat = core.seats[core._group_of[packet.frm]]
        return any(way.connector == me and way.takes(packet) for way in seat.crossings)

    def _begin(self, me: int, packets: Sequence[Packet]) -> None:
        for packet in packets:
            if not packet.body:
                continue
            key = me, number_of(packet)
            if key not in self._open:
                self._open[key], self._began[key], self._receipts[key] = set(), self.domain.world.now, []
            self._open[key].add(packet.to)

    def _acknowledge(self, me: int, number: int) -> None:
        to = self._owed.pop((me, number))
        self.acks.carry(me, to, self.size, self._acknowledged, (to, number), me)

    def _acknowledged(self, key: Broadcast, frm: int) -> None:
        missing = self._open[key]
        missing.discard(frm)
        if missing:
            return
        me, number = key
        del self._open[key]
        now, began, receipts = self.domain.world.now, self._began.pop(key), self._receipts.pop(key)
        origin = key not in self._owed
        if number > self.first:
            self.kept += sum(now - at for at in receipts) + (now - began if origin else 0)
            self.kept_by_senders += now - began
            if origin:
                self.delays.append(now - began)
        if not origin:
            self._acknowledge(me, number)

    def result(self) -> dict[str, float]:
        """The delay in the mean, and for how long the copies of a message are kept in all, times their number."""
        count = max(len(self.delays), 1)
        return {
            "stable_ms": sum(self.delays) / count / MS, "kept_ms": self.kept / count / MS,
            "kept_by_senders_ms": self.kept_by_senders / count / MS,
        }  # fmt: skip
