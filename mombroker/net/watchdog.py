"""A thread that says, while it lasts, which agent's reaction holds up the whole server."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

LIMIT_S = 5.0  # of one reaction, before it is said
EVERY_S = 0.5


class Running(Protocol):
    """What an engine shows of the reaction under way; the counts move on with every reaction."""

    running: str
    reactions: int
    failures: int
    dead: int


class Watchdog:
    """Looks at the engines of a process from outside; the reaction itself cannot be asked. At most one is under way,
    since all run in one thread. Said again each time the duration has doubled.

    engines   with each, where its server's lines go
    """

    def __init__(
        self, engines: Sequence[tuple[Running, Callable[[str], None]]], clock: Callable[[], float] = time.monotonic
    ):
        self.engines, self.clock = engines, clock
        self._seen: tuple[str, int] = ("", 0)
        self._since = 0.0
        self._next = LIMIT_S
        self._stop = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.look()

    def look(self) -> None:
        for engine, log in self.engines:
            agent = engine.running
            if agent:
                self._running((agent, engine.reactions + engine.failures + engine.dead), log)
                return
        self._seen = ("", 0)

    def _running(self, seen: tuple[str, int], log: Callable[[str], None]) -> None:
        now = self.clock()
        if seen != self._seen:
            self._seen, self._since, self._next = seen, now, LIMIT_S
        elif now - self._since >= self._next:
            log(f"the reaction of {seen[0]} has been running for {now - self._since:.0f} s: all else waits for it")
            self._next *= 2
