"""Virtual time: one queue of calls and one seeded generator. The same seed gives the same run, in any process."""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MS, SECOND = 1_000_000, 1_000_000_000  # ns
EPOCH = 1_700_000_000_000 * MS  # what a wall clock shows when a run starts

Call = tuple[int, int, Callable[..., Any], tuple[Any, ...]]


class World:
    """1. Time never goes back. 2. Calls of one moment run in the order in which they were asked for."""

    __slots__ = ("now", "rng", "calls", "queue", "_asked")

    def __init__(self, seed: int):
        self.now = EPOCH
        self.rng = random.Random(seed)
        self.calls = 0
        self.queue: list[Call] = []
        self._asked = 0

    def after(self, delay: int, call: Callable[..., Any], *args: Any) -> None:
        """`call(*args)` in `delay` ns."""
        self._asked += 1
        heappush(self.queue, (self.now + delay, self._asked, call, args))

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def about(self, mean: int) -> int:
        """A delay that is often short and seldom long."""
        return int(self.rng.expovariate(1.0) * mean)

    def run(self, until: int | None = None, calls: int = 10_000_000) -> bool:
        """Run what is due up to `until` (all, without). False if more than `calls` were not enough."""
        queue = self.queue
        while queue and (until is None or queue[0][0] <= until):
            if not calls:
                return False
            calls -= 1
            self.calls += 1
            self.now, _, call, args = heappop(queue)
            call(*args)
        if until is not None and until > self.now:
            self.now = until
        return True
