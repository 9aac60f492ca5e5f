"""Abcast with one of its rules broken on purpose, for the kit and for the simulator."""

from collections.abc import Iterable
from typing import Any

from mombroker.ordering import Packet, Rows, Step
from mombroker.ordering.abcast import COUNTS, Abcast


class Unchecked(Abcast):
    """The judge shall see what is wrong, not the core."""

    def check(self) -> None:
        pass


class NoWait(Unchecked):
    """Delivers what comes, without its number."""

    def receive(self, frm: int, packet: Packet) -> Step:
        wanted = self.me in packet.dests and packet.stamp.number > self.passed[packet.origin]
        fresh = frm == self.me or packet.stamp.number > self.received[frm]
        step = super().receive(frm, packet)
        if wanted and fresh:
            for held in [name for name, each in self._held.items() if each is packet]:
                del self._held[held]
            step.deliver = [packet]
        return step


class Unnumbered(Unchecked):
    """The holder's own messages have no number: each member delivers them when they come."""

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        if self.holder != self.me or tuple(dests) == (self.me,):
            return super().send(dests, body)
        self.holder = -1
        packets = super().send(dests, body)
        self.holder = self.me
        self.passed[self.me] = self.received[self.me]
        return packets

    def receive(self, frm: int, packet: Packet) -> Step:
        number = packet.stamp.number
        if frm != self._heir or frm == self.me or packet.stamp.start >= 0 or number <= self.received[frm]:
            return super().receive(frm, packet)
        self.received[frm] = self.passed[frm] = number
        self._touched.add((COUNTS, frm))
        return Step([], [packet] if self.me in packet.dests else [])

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> "Unnumbered":
        core = super().restore(me, size, rows, **options)
        core.at = core._known = core.at - core.passed[core._heir]
        return core


class TwoHolders(Unchecked):
    """Who gives the token away goes on numbering."""

    def announce(self) -> list[Packet]:
        packets = super().announce()
        if packets and self.holder != self.me:
            self.holder = self._heir = self.awaited = self.me
        return packets


class NotDurable(Unchecked):
    """The holder keeps what it has numbered in memory only: after a restart it begins to count before that."""

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = super().dirty()
        if self.holder == self.me:
            rows = {place: blob for place, blob in rows.items() if place[0] != COUNTS or place[1] == self.me}
        return rows, gone


class Silent(Unchecked):
    """Says who has the token, and not what it has numbered before."""

    def announce(self) -> list[Packet]:
        packets = super().announce()
        return packets if packets and self.holder == self.me else []


class TooSoon(Unchecked):
    """Numbers as soon as it hears that the token is its own, before it has delivered what came before."""

    def _learn(self) -> None:
        super()._learn()
        if self._heir == self.me != self.holder:
            self._order.clear()
            self.holder = self.me


class Dawdles(Abcast):
    """Passes on what it knows of the order when the next thing comes."""

    def receive(self, frm: int, packet: Packet) -> Step:
        if packet.stamp.number or frm == self.me or self.holder == self.me:
            return super().receive(frm, packet)
        late, self._pass = self._pass, lambda step: None
        step = super().receive(frm, packet)
        self._pass = late
        return step

    def check(self) -> None:
        """As above."""
