"""Who sends when, and to whom. A workload has a generator of its own: it is the same under every ordering."""

from collections.abc import Callable, Sequence
from random import Random

from mombroker.lab.domain import Domain

Choose = Callable[[Random, int, int], tuple[int, ...]]  # (chance, sender, members) -> destinations


def multicasts(ratio: float, itself: bool = False) -> Choose:
    """So many of all sends are multicasts, of a uniform number, from 1 on, of random members; the others are unicasts.

    With `itself` a multicast may go to its sender, too.
    """

    def choose(lots: Random, me: int, size: int) -> tuple[int, ...]:
        if lots.random() >= ratio:
            return one(lots, me, size)
        members = [k for k in range(size) if itself or k != me]
        return tuple(lots.sample(members, 1 + lots.randrange(len(members))))

    return choose


def shares(part: float) -> Choose:
    """Every send goes to this part of the members, rounded, but not to the sender: 1 to n - 1 random others."""

    def choose(lots: Random, me: int, size: int) -> tuple[int, ...]:
        others = [k for k in range(size) if k != me]
        return tuple(lots.sample(others, min(max(round(part * size), 1), size - 1)))

    return choose


def broadcasts(ratio: float) -> Choose:
    """So many of all sends go to all others; the rest are unicasts."""

    def choose(lots: Random, me: int, size: int) -> tuple[int, ...]:
        return tuple(k for k in range(size) if k != me) if lots.random() < ratio else one(lots, me, size)

    return choose


def one(lots: Random, me: int, size: int) -> tuple[int, ...]:
    return ((me + 1 + lots.randrange(size - 1)) % size,)


def everybody(lots: Random, me: int, size: int) -> tuple[int, ...]:
    """All others."""
    return (*range(me), *range(me + 1, size))


class Constant:
    """Each of the `senders` sends at even gaps of `gap` ns, the first somewhere in the first gap, `sends` messages."""

    def __init__(self, seed: int, senders: Sequence[int], gap: int, choose: Choose, sends: int):
        self.lots = Random(f"constant {seed}")
        self.senders, self.gap, self.choose, self.sends = senders, gap, choose, sends

    def start(self, domain: Domain) -> None:
        for me in self.senders:
            domain.world.after(self.lots.randrange(self.gap), self._act, domain, me, self.sends)

    def _act(self, domain: Domain, me: int, left: int) -> None:
        domain.send(me, self.choose(self.lots, me, len(domain.members)))
        if left > 1:
            domain.world.after(self.gap, self._act, domain, me, left - 1)


class Poisson:
    """Each member sends at exponential gaps of the mean `gap` (ns), until `sends` messages are sent in all; with
    `copies`, until they have so many copies.
    """

    def __init__(self, seed: int, gap: int, choose: Choose, sends: int, copies: bool = False):
        self.lots = Random(f"poisson {seed}")
        self.gap, self.choose, self.sends, self.copies = gap, choose, sends, copies

    def start(self, domain: Domain) -> None:
        for me in range(len(domain.members)):
            self._plan(domain, me)

    def _plan(self, domain: Domain, me: int) -> None:
        domain.world.after(int(self.lots.expovariate(1.0) * self.gap), self._act, domain, me)

    def _act(self, domain: Domain, me: int) -> None:
        if (domain.copies if self.copies else len(domain.born) - 1) < self.sends:
            domain.send(me, self.choose(self.lots, me, len(domain.members)))
            self._plan(domain, me)
