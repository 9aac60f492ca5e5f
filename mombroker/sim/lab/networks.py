"""Models of the network: how long a packet is on its way."""

from collections.abc import Callable
from typing import Any

from mombroker.sim.world import MS, World


class Exponential:
    """Paper 002, §3.2: exponential with the same mean for all, drawn for each copy by itself; what would overtake on
    its link comes 1 ms after the one before.

    1. On each link packets arrive in the order of sending.
    """

    def __init__(self, world: World, mean: int):
        self.world, self.mean = world, mean
        self.last: dict[tuple[int, int], int] = {}  # by link: the latest arrival
        self.repaired = 0

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        now = self.world.now
        at = now + self.world.about(self.mean)
        last = self.last.get((frm, to), 0)
        if at < last:
            at = last + MS
            self.repaired += 1
        self.last[frm, to] = at
        self.world.after(at - now, arrive, *args)
