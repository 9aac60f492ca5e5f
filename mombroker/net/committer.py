"""Where a batch is committed: inline, or its COMMIT in a writer thread while the reactor goes on.

The rows are always staged in the reactor thread (`Store.begin`); only `Store.finish`, which waits for the disk, may
run elsewhere. `done(error)` is called in the reactor thread, with None when the batch is durable.
"""

import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from time import perf_counter, thread_time
from typing import Any, Protocol

from twisted.python.threadpool import ThreadPool

Done = Callable[[Exception | None], None]
Clock = Callable[[], float]

SWITCH_S = 0.0005  # a writer waits for the interpreter twice per commit, 5 ms each time by default
SLOW_S = 0.002  # of waiting for the disk: from here on a writer thread is worth a quarter more CPU time per message,
WORTH = 1 / 6  # if the reactor works for so much of it meanwhile: a COMMIT that is handed over takes longer itself,
DEAF_S = 0.1  # or would hear nobody for so long
PROBE = 64  # so many commits in a row go one way before the other one is tried: it takes a quarter more CPU time
WEIGHT = 1 / 8  # of the newest judgement in the moving average


class Writer(Protocol):
    """The part of a store that commits: a Batch, or what replicas write (net/replicas/consensus.py)."""

    def begin(self, batch: Any) -> None: ...
    def finish(self) -> None: ...


class Committer(Protocol):
    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        """Make `batch` durable; one at a time per store."""


class Pool(ThreadPool):
    """Threads for commits and deferred functions, shared by all servers of a process. They never keep it alive: what
    is not committed, or not done, is done again after the next start."""

    def __init__(self, size: int, name: str):
        super().__init__(0, size, name)

    threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]

    def leave(self) -> None:
        """Let idle threads end; do not wait for busy ones."""
        self.threads.clear()
        self.stop()


class Inline:
    """Commits in the reactor thread."""

    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        try:
            store.begin(batch)
            store.finish()
        except Exception as error:
            failed: Exception | None = error
        else:
            failed = None
        done(failed)


class Split:
    """Hands each COMMIT to a writer thread."""

    def __init__(self, reactor: Any, pool: Pool):
        self.reactor, self.pool = reactor, pool
        if sys.getswitchinterval() > SWITCH_S:
            sys.setswitchinterval(SWITCH_S)

    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        try:
            store.begin(batch)
        except Exception as error:
            done(error)
            return
        self.pool.callInThread(self._finish, store, done)

    def _finish(self, store: Writer, done: Done) -> None:
        failed: Exception | None = None
        try:
            store.finish()
        except Exception as error:
            failed = error
        self.reactor.callFromThread(done, failed)


def waited() -> float:
    """Seconds that this thread did not compute: the difference between two calls is what it waited."""
    return perf_counter() - thread_time()


class Adaptive:
    """Inline while the disk answers fast, and on a slow one while the reactor has little to do during a COMMIT, as with
    one message under way; else split. The other way is tried now and then: what COMMIT waits is known inline alone,
    what the reactor does meanwhile of a thread alone. Both are moving averages.

    What a writer thread waits says little: most of it is for the interpreter.
    """

    def __init__(self, reactor: Any, pool: Pool, clock: Clock = waited, cpu: Clock = thread_time):
        self.clock, self.cpu = clock, cpu
        self.mean_s = self.worked_s = 0.0
        self._inline = Inline()
        self._split = Split(reactor, pool)
        self._row = 0  # commits since the other way was tried

    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        split = False
        if self.mean_s > SLOW_S:
            split, self._row = self.worked_s > self.mean_s * WORTH or self.mean_s > DEAF_S, self._row + 1
            if self._row > PROBE:
                split, self._row = not split, 0
        if split:
            self._split.submit(store, batch, partial(self._worked, self.cpu(), done))
        else:
            self._inline.submit(_Timed(store, self), batch, done)

    def _worked(self, since: float, done: Done, error: Exception | None) -> None:
        self.worked_s += (self.cpu() - since - self.worked_s) * WEIGHT
        done(error)

    def took(self, seconds: float) -> None:
        self.mean_s += (seconds - self.mean_s) * WEIGHT


class _Timed:
    """A store whose COMMIT is timed."""

    __slots__ = ("store", "committer")

    def __init__(self, store: Writer, committer: Adaptive):
        self.store, self.committer = store, committer

    def begin(self, batch: Any) -> None:
        self.store.begin(batch)

    def finish(self) -> None:
        clock = self.committer.clock
        start = clock()
        self.store.finish()
        self.committer.took(clock() - start)
