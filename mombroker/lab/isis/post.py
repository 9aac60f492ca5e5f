"""Links between processes that crash: each keeps its order, and a crash loses a random end of what is on it."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from mombroker.lab.domain import Network
from mombroker.sim.world import World

MEMBERSHIP = -1  # who tells the views


class Post:
    def __init__(self, world: World, network: Network):
        self.world, self.network = world, network
        self.crashed: set[int] = set()
        self._flying: defaultdict[tuple[int, int], dict[int, None]] = defaultdict(dict)  # by link: packets under way
        self._sent = 0

    def send(self, frm: int, to: int, arrive: Callable[..., Any], *args: Any) -> None:
        self._sent += 1
        self._flying[frm, to][self._sent] = None
        self.network.carry(frm, to, 0, self._arrive, frm, to, self._sent, arrive, *args)

    def _arrive(self, frm: int, to: int, number: int, arrive: Callable[..., Any], *args: Any) -> None:
        if number in self._flying[frm, to]:
            del self._flying[frm, to][number]
            if to not in self.crashed:
                arrive(*args)

    def crash(self, me: int) -> None:
        self.crashed.add(me)
        for (frm, _), flying in self._flying.items():
            if frm == me and flying:
                for packet in [*flying][self.world.rng.randint(0, len(flying)) :]:
                    del flying[packet]
