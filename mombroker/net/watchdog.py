"""A thread that says, while it lasts, which reaction holds up the whole server, or that the disk does."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

LIMIT_S = 5.0  # of one reaction or commit, before it is said
EVERY_S = 0.5


class Running(Protocol):
    """What an engine shows of the reaction under way; the counts move on with every reaction."""

    @property
    def running(self) -> str: ...
    @property
    def reactions(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def parked(self) -> int: ...


class Committing(Protocol):
    """What a driver shows of the commit under way: its number, 0 if there is none."""

    @property
    def committing(self) -> int: ...


class Watched:
    """One thing that lasts. It is to be said when it has lasted LIMIT_S, and again each time that has doubled."""

    __slots__ = ("_seen", "_since", "_next")

    def __init__(self) -> None:
        self._seen: object = None
        self._since, self._next = 0.0, LIMIT_S

    def lasted(self, seen: object, now: float) -> float:
        """The seconds since `seen` is under way, if they are to be said, else 0."""
        if seen != self._seen:
            self._seen, self._since, self._next = seen, now, LIMIT_S
        elif seen is not None and now - self._since >= self._next:
            self._next *= 2
            return now - self._since
        return 0.0


class Watchdog:
    """Looks at the servers of a process from outside; what holds them up cannot be asked. At most one reaction is under
    way, since all run in one thread, and at most one commit of each server.

    nodes   each server's engine, its driver, and where its lines go
    """

    def __init__(
        self,
        nodes: Sequence[tuple[Running, Committing, Callable[[str], None]]],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.nodes, self.clock = nodes, clock
        self._reaction = Watched()
        self._commits = [Watched() for _ in nodes]
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        now = self.clock()
        for engine, _, log in self.nodes:
            agent = engine.running
            if agent:
                self._react(agent, engine.reactions + engine.failures + engine.parked, log, now)
                return  # the end of a commit is seen only after it
        self._reaction.lasted(None, now)
        for (_, driver, log), commit in zip(self.nodes, self._commits, strict=True):
            if seconds := commit.lasted(driver.committing or None, now):
                log(
                    f"a commit has taken {seconds:.0f} s: the disk does not answer, or is kept busy by others, and "
                    "nothing leaves this server before it does"
                )

    def _react(self, agent: str, count: int, log: Callable[[str], None], now: float) -> None:
        if seconds := self._reaction.lasted((agent, count), now):
            log(f"the reaction of {agent} has been running for {seconds:.0f} s: all else waits for it")
