"""Overlays that are broken on purpose: what the tests must catch (protocols §12.2). Nothing here is for use."""

from typing import Any

from mombroker.ordering import Packet, Step
from mombroker.ordering.dynamic.growing_overlay import OPEN, GrowingOverlay
from mombroker.ordering.overlay import Overlay


def plain_hypercube(n: int) -> list[tuple[int, ...]]:
    """A cube that lacks members: nobody plays the missing labels."""
    return [tuple(v for bit in range((n - 1).bit_length()) if (v := u ^ 1 << bit) < n) for u in range(n)]


class AnyOrder(Overlay):
    """Takes what comes, in whatever order links bring it; it remembers all that came."""

    fifo = False

    def __init__(self, me: int, size: int, **options: Any):
        super().__init__(me, size, **options)
        self.came: set[tuple[int, int]] = set()

    def receive(self, frm: int, packet: Packet) -> Step:
        name = packet.origin, packet.stamp.number
        if name in self.came or packet.origin == self.me:
            return Step([], [])
        self.came.add(name)
        return Step(self._record(packet, frm), [packet] if self.me in packet.dests else [])

    def check(self) -> None:
        """The judge shall see it, not the core."""


class NoExchange(GrowingOverlay):
    """A link that opens goes on with what comes next."""

    def _open(self, peer: int) -> list[Packet]:
        self._set(peer, OPEN)
        return []


class SortsResent(GrowingOverlay):
    """Sends what a peer lacks in the order of origins and numbers."""

    def _resend(self, peer: int, theirs: list[int]) -> list[Packet]:
        out = super()._resend(peer, theirs)
        return sorted(out, key=lambda p: (p.origin, p.stamp.number) if p.dests else (-1, 0))


class NoLogForNewcomers(GrowingOverlay):
    """Tells a newcomer the numbers, and keeps the log to itself."""

    def _resend(self, peer: int, theirs: list[int]) -> list[Packet]:
        out = super()._resend(peer, theirs)
        return out if any(theirs) else [self._tell(peer, self.seen, need_not=True)]
