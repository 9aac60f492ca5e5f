"""Overlays that are broken on purpose: what the tests must catch (protocols §12.2). Nothing here is for use."""

from typing import Any

from mombroker.ordering import Packet, Step
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
