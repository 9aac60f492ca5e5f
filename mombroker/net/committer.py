"""Where a batch is committed: inline, or its COMMIT in a writer thread while the reactor goes on.

The rows are always staged in the reactor thread (`Store.begin`); only `Store.finish`, which waits for the disk, may
run elsewhere. `done(error)` is called in the reactor thread, with None when the batch is durable.
"""

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any, Protocol

Done = Callable[[Exception | None], None]
Clock = Callable[[], float]

SWITCH_S = 0.0005  # a writer waits for the interpreter twice per commit, 5 ms each time by default
SLOW_S = 0.002  # of waiting for the disk: from here on a writer thread is worth a quarter more CPU time per message,
WORTH = 1 / 6  # if the reactor works for so much of it meanwhile: a COMMIT that is handed over takes longer itself,
DEAF_S = 0.1  # or would hear nobody for so long
PROBE = 64  # so many commits in a row go one way before the other one is tried: it takes a quarter more CPU time
WEIGHT = 1 / 8  # of the newest judgement in the moving average
SHORT_S = SLOW_S / 2  # of a COMMIT whose CPU time is not worth a look, which takes a system call


class Writer(Protocol):
    """The part of a store that commits: a Batch, or what replicas write (net/replicas/consensus.py)."""

    def begin(self, batch: Any) -> None: ...
    def finish(self) -> None: ...


class Committer(Protocol):
    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        """Make `batch` durable; one at a time per store."""


class Inline:
    """Commits in the reactor thread."""

    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        try:
            store.begin(batch)
            self._finish(store)
        except Exception as error:
            failed: Exception | None = error
        else:
            failed = None
        done(failed)

    def _finish(self, store: Writer) -> None:
        store.finish()


class Split:
    """Hands each COMMIT to a writer thread."""

    def __init__(self, reactor: Any, pool: Any):
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


class Adaptive(Inline):
    """Inline while the disk answers fast, and on a slow one while the reactor has little to do during a COMMIT, as with
    one message under way; else split. The other way is tried now and then: what COMMIT waits is known inline alone,
    what the reactor does meanwhile of a thread alone. Both are moving averages.

    What a writer thread waits says little: most of it is for the interpreter. Inline a COMMIT has waited for what it
    took beyond its CPU time.
    """

    def __init__(self, reactor: Any, pool: Any, clock: Clock = perf_counter, cpu: Clock = thread_time):
        self.clock, self.cpu = clock, cpu
        self.mean_s = self.worked_s = 0.0
        self._split = Split(reactor, pool)
        self._row = 0  # commits since the other way was tried
        self._looks = 0  # commits to come whose CPU time is looked at, since one took long

    def submit(self, store: Writer, batch: Any, done: Done) -> None:
        split = False
        if self.mean_s > SLOW_S:
            split, self._row = self.worked_s > self.mean_s * WORTH or self.mean_s > DEAF_S, self._row + 1
            if self._row > PROBE:
                split, self._row = not split, 0
        if split:
            self._split.submit(store, batch, partial(self._worked, self.cpu(), done))
        else:
            Inline.submit(self, store, batch, done)

    def _worked(self, since: float, done: Done, error: Exception | None) -> None:
        self.worked_s += (self.cpu() - since - self.worked_s) * WEIGHT
        done(error)

    def _finish(self, store: Writer) -> None:
        clock, looks = self.clock, self._looks
        cpu = self.cpu() if looks else 0.0
        start = clock()
        store.finish()
        took = clock() - start
        if took > SHORT_S:
            self._looks = PROBE
            if not looks:  # it may have computed
                return
        if looks:
            self._looks -= 1
            took -= self.cpu() - cpu
        self.mean_s += (took - self.mean_s) * WEIGHT
