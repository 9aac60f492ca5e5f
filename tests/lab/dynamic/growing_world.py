"""A small world for overlays that change: links lose what is on them, members join, while everybody talks. The same
seed gives the same world."""

import random

from mombroker.core.causality import Verdict
from mombroker.lab.dynamic.growing_overlay import Close, GrowingOverlay, Open, Stable
from mombroker.ordering.hypercube import host, neighbours
from tests.ordering.overlay_world import World


class Changing(World):
    """Links that lose what is on them, and members that join."""

    def __init__(self, seed: int, size: int, backend: type[GrowingOverlay] = GrowingOverlay):
        super().__init__(seed, [backend(me, size) for me in range(size)])
        self.backend = backend
        for me in self.cores:
            self.commit(me)

    def change(self, me: int, event: Open | Close | Stable) -> None:
        self.act(me, self.cores[me].change(event))

    def cut(self, a: int, b: int) -> None:
        """The link between two members loses what is on it; after a while it is up again."""
        self.close(a, b)
        self.open(a, b)

    def close(self, a: int, b: int) -> None:
        self.change(a, Close(b))
        self.change(b, Close(a))
        for link in (a, b), (b, a):
            self.links.pop(link, None)

    def open(self, a: int, b: int) -> None:
        """One end may be told long before the other."""
        ends = self.lots.sample([(a, b), (b, a)], 2)
        self.change(ends[0][0], Open(ends[0][1]))
        for _ in range(self.lots.randrange(6)):
            self.pass_on()
        self.change(ends[1][0], Open(ends[1][1]))

    def restart(self, me: int) -> None:
        """The store is whole; what was on its links is lost."""
        self.cores[me] = self.backend.restore(me, self.cores[me].size, self.rows[me], links=[])
        self.cores[me].check()
        for peer in self.cores[me].neighbours:
            self.cut(me, peer)

    def join(self) -> None:
        """A newcomer n takes its links; its host drops those to the newcomer's upper neighbours."""
        n = len(self.cores)
        self.rows[n] = {}
        self.cores[n] = self.backend(n, n + 1, links=[])
        mine = neighbours(n, n + 1)
        self.open(host(n), n)
        for peer in self.lots.sample(mine, len(mine)):
            if peer != host(n):
                self.open(peer, n)
        for peer in set(neighbours(host(n), n)) & set(mine):
            self.close(host(n), peer)

    def stabilise(self) -> None:
        """All learn what all have."""
        seen = [core.seen for core in self.cores.values()]
        numbers = [min(each[k] if k < len(each) else 0 for each in seen) for k in self.cores]
        for me in self.cores:
            self.change(me, Stable(numbers))


def reconnects(seed: int, backend: type[GrowingOverlay] = GrowingOverlay) -> Verdict:
    """Links are cut and members restart while messages are on their way."""
    lots = random.Random(seed)
    world = Changing(seed, lots.randrange(3, 10), backend)

    def disturb() -> None:
        chance = world.lots.random()
        if chance < 0.05:
            link = world.lots.choice([*world.links]) if world.links else None
            if link:
                world.cut(*link)
        elif chance < 0.07:
            world.restart(world.lots.choice([*world.cores]))
        elif chance < 0.09:
            world.stabilise()

    world.run(40, disturb)
    world.settle()
    return world.verdict()


def growth(seed: int, backend: type[GrowingOverlay] = GrowingOverlay) -> Verdict:
    """Members join while messages are on their way. A newcomer gets what is addressed to it, from then on."""
    lots = random.Random(seed)
    world = Changing(seed, lots.randrange(2, 9), backend)
    for _ in range(lots.randrange(1, 5)):
        world.run(lots.randrange(1, 15), lambda: world.stabilise() if world.lots.random() < 0.02 else None)
        world.join()
    world.run(10)
    world.settle()
    return world.verdict()
