"""Paper 001, §5.1: processes on switched LANs, LANs on the backbones of buildings, buildings on that of a campus."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from mombroker.sim.world import MS, SECOND, World

LAN, BUILDING, CAMPUS = MS // 10, 2 * MS, 10 * MS  # the first is constant; of the others the means


class Tiers:
    """Members are numbered LAN by LAN, building by building. A packet between two takes one hop: over the LAN, if both
    are on it, else over the building's backbone, else over that of the campus. Delays do not depend on the load, and
    one packet may overtake another.
    """

    def __init__(self, world: World, lots: Random, lan: int, building: int, rate: int):
        """`lan` members on a LAN, `building` in a building; `rate` of the backbones in bits a second."""
        self.world, self.lots, self.lan, self.building, self.rate = world, lots, lan, building, rate

    def _over(self, mean: int, size: int) -> int:
        return int(self.lots.expovariate(1.0) * mean) + size * 8 * SECOND // self.rate

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        if frm // self.lan == to // self.lan:
            delay = LAN
        else:
            delay = self._over(BUILDING if frm // self.building == to // self.building else CAMPUS, size)
        self.world.after(delay, arrive, *args)


class Routed(Tiers):
    """The same wires with routers in the place of causal servers: one for each LAN, and one of each building on the
    campus. A packet for many is copied where their ways part, so that they share the hops before.

    So to another building a packet takes three hops, whoever sends it.
    """

    def __init__(self, world: World, lots: Random, lan: int, building: int, rate: int, joined: bool = False):
        """`joined`: the router of a building's first LAN is the one on the campus."""
        super().__init__(world, lots, lan, building, rate)
        self.joined = joined

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        self.world.after(self._time(frm, to // self.lan, size, {frm // self.lan: LAN}), arrive, *args)

    def cast(self, frm: int, size: int, arrive: Callable[..., Any], copies: Mapping[int, tuple[Any, ...]]) -> None:
        at = {frm // self.lan: LAN}  # by LAN, or ~building for the campus: when its router has the packet
        lans: dict[int, list[tuple[Any, ...]]] = {}
        for to, args in copies.items():
            lans.setdefault(to // self.lan, []).append(args)
        for lan, each in lans.items():
            self.world.after(self._time(frm, lan, size, at), self._come, arrive, each)

    @staticmethod
    def _come(arrive: Callable[..., Any], copies: list[tuple[Any, ...]]) -> None:
        """All of a LAN have a packet at the same moment."""
        for args in copies:
            arrive(*args)

    def _time(self, frm: int, lan: int, size: int, at: dict[int, int]) -> int:
        return LAN if lan == frm // self.lan else self._router(frm, lan, size, at) + LAN

    def _router(self, frm: int, to: int, size: int, at: dict[int, int]) -> int:
        if to not in at:
            home, there = frm // self.building, to * self.lan // self.building if to >= 0 else ~to
            if home == there:
                at[to] = at[frm // self.lan] + self._over(BUILDING, size)
            elif to == self._campus(there):
                at[to] = self._router(frm, self._campus(home), size, at) + self._over(CAMPUS, size)
            else:
                at[to] = self._router(frm, self._campus(there), size, at) + self._over(BUILDING, size)
        return at[to]

    def _campus(self, building: int) -> int:
        """The router between a building and the campus."""
        return building * self.building // self.lan if self.joined else ~building
