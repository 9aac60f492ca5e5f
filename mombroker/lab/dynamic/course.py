"""A group under load that changes once, seen from outside: who sends, what is delivered when, who may not send."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from mombroker.core.causality import Event, Verdict, check
from mombroker.sim.world import EPOCH, World

BEFORE, LOAD = 50, 200  # delays of a link from the start on: when the change is asked for, and when the load ends


@dataclass(slots=True, frozen=True)
class Load:
    """Each member sends at exponential gaps of this mean, one in ten messages to several; times in ns, bytes without
    what the ordering adds. `delay` is the mean of a link."""

    seed: int
    gap: int
    payload: int
    delay: int


@dataclass(slots=True)
class Figures:
    """What a change has cost; times are in delays of a link.

    took             from the order until whoever gave it knows that it is over
    packets, bytes   of the change alone: orders, answers, marks or flushes, state, and what is said again for it
    paused           members that may not send meanwhile, and pause, for how long at most
    p99_before       from send to delivery of what was sent before the change, and p99 of what was sent in the 50 delays
                     after the order; slowest of these
    message_packets  on links, of a message before the change, acknowledgements included; message_bytes without its body
    """

    took: float
    packets: float
    bytes: float
    paused: float
    pause: float
    p99_before: float
    p99: float
    slowest: float
    message_packets: float
    message_bytes: float


class Course(ABC):
    """One way to carry out a change. Members talk from the start until LOAD; whoever leaves is silent once the change
    is asked for, and so is a newcomer until it is over."""

    def __init__(self, world: World, members: int, load: Load, leaver: int | None = None):
        self.world, self.load, self.leaver = world, load, leaver
        self.talkers = list(range(members))
        self.events: list[Event] = []
        self.born: list[int] = []  # by number, ns
        self.delays: list[tuple[int, int]] = []  # (number, ns) of each copy
        self.asked = self.over = 0  # ns; 0 until then
        self.packets = self.bytes = 0  # of the change
        self.usual = self.usual_bytes = 0  # packets and bytes of all else before the change
        self.closed: dict[int, int] = {}  # member -> since when it may not send
        self.pauses: dict[int, int] = {}  # member -> the longest, ns

    # -- what a way does ---------------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, me: int, dests: tuple[int, ...], number: int) -> None: ...

    @abstractmethod
    def begin(self) -> None:
        """Ask for the change."""

    @abstractmethod
    def settled(self) -> Iterable[str]:
        """What is not at rest in the end, in words."""

    # -- the course ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Raises AssertionError for a change that never ends, or something that is left."""
        for me in self.talkers:
            self._talk(me, Random(f"load {self.load.seed} {me}"))
        self.world.after(BEFORE * self.load.delay, self._begin)
        self.world.run(EPOCH + 10 * LOAD * self.load.delay)
        assert self.over, "the change does not end"
        left = [*self.settled()]
        assert not left, f"not at rest: {'; '.join(left)}"

    @property
    def talking(self) -> bool:
        return self.world.now < EPOCH + LOAD * self.load.delay

    def _talk(self, me: int, lots: Random) -> None:
        def say() -> None:
            if not self.talking or me not in self.talkers:
                return
            others = [each for each in self.talkers if each != me]
            count = 1 + lots.randrange(len(others)) if lots.random() < 0.1 else 1
            dests, number = tuple(lots.sample(others, count)), len(self.born)
            self.events.append(("send", me, number, dests))
            self.born.append(self.world.now)
            self.send(me, dests, number)
            self._talk(me, lots)

        self.world.after(int(lots.expovariate(1.0) * self.load.gap), say)

    def _begin(self) -> None:
        self.asked = self.world.now
        if self.leaver is not None:
            self.talkers.remove(self.leaver)
        self.begin()

    def end(self, newcomer: int | None = None) -> None:
        """The change is over."""
        self.over = self.world.now
        if newcomer is not None:
            self.talkers.append(newcomer)
            self._talk(newcomer, Random(f"load {self.load.seed} {newcomer}"))

    def heard(self, me: int, number: int) -> None:
        self.events.append(("deliver", me, number))
        self.delays.append((number, self.world.now - self.born[number]))

    def may_send(self, me: int, may: bool) -> None:
        """Whether what a member sends leaves it now."""
        if not may:
            self.closed.setdefault(me, self.world.now)
        elif me in self.closed:
            self.pauses[me] = max(self.pauses.get(me, 0), self.world.now - self.closed.pop(me))

    def count(self, size: int, of_change: bool) -> None:
        """A packet on a link."""
        if of_change:
            self.packets += 1
            self.bytes += size
        elif not self.asked:
            self.usual += 1
            self.usual_bytes += size

    # -- what it was ---------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        return check(self.events)

    def figures(self) -> Figures:
        delay = self.load.delay
        before = sorted(ns for number, ns in self.delays if self.born[number] < self.asked) or [0]
        until = self.asked + 50 * delay
        after = sorted(ns for number, ns in self.delays if self.asked <= self.born[number] < until) or [0]
        sent = max(sum(born < self.asked for born in self.born), 1)
        return Figures(
            (self.over - self.asked) / delay, self.packets, self.bytes,
            len(self.pauses), max(self.pauses.values(), default=0) / delay,
            before[(len(before) - 1) * 99 // 100] / delay, after[(len(after) - 1) * 99 // 100] / delay,
            after[-1] / delay, self.usual / sent, self.usual_bytes / sent,
        )  # fmt: skip
