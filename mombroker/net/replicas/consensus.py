"""One replica at work: time and messages go in; entries go to disk, messages out, and what is decided becomes rows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Protocol

from mombroker.core.batch import Batch
from mombroker.core.meta import NOW
from mombroker.core.raft.messages import Envelope
from mombroker.core.raft.ready import Ready, Times
from mombroker.core.raft.replica import LEADER, Replica
from mombroker.net.committer import Committer, Done, Split
from mombroker.store.packed import pack
from mombroker.store.replica import ReplicaStore

TIMES = Times(election=1_000_000_000, heartbeat=200_000_000)
TIDY_NS = 1_000_000_000  # between two looks at who needs a snapshot
KEPT, KEPT_BYTES = 1_000, 1 << 20  # entries that the log keeps, beside those that others need
MOST, MOST_BYTES = 100_000, 256 << 20  # and with those: with more, who is behind gets a snapshot
STEP, STEP_BYTES = 500, 256 << 10  # entries that go at once


class Served(Protocol):
    def stepped(self) -> None: ...  # the replica has taken a step, and what was decided is applied, as far as it is
    def failed(self, error: BaseException) -> None: ...


class Consensus:
    """1. The store's writing connection is used by one thread at a time: between two writes rows are applied.

    send       takes what is for another replica
    version    the newest of packed batches that all members can read
    hasty      decided entries become rows at once: another thread reads them
    proposed   the batch under way: its entry, term, and who waits for it
    """

    def __init__(
        self,
        reactor: Any,
        store: ReplicaStore,
        committer: Committer,
        split: Split,
        send: Callable[[Envelope], None],
        served: Served,
        version: Callable[[], int],
        times: Times = TIMES,
        now: Callable[[], int] = time.monotonic_ns,
        chance: Callable[[], float] = random.random,
    ):
        self.reactor, self.store, self.send, self.served, self.times = reactor, store, send, served, times
        self.version, self.committer, self.split, self.now, self.chance = version, committer, split, now, chance
        self.dead = self.hasty = False
        self.writing: Ready | None = None
        self._wrote = False  # since rows were put there, which the next write is not to pass
        self.taking = False  # a snapshot, in a thread
        self._pumping = False
        self._timer: Any = None
        self._soon: Any = None
        self._tidied = 0
        self._batch: Batch | None = None
        self._place = (0, 0)
        self._done: Done = lambda error: None
        self._leased: Callable[[], None] | None = None  # what waits until nobody else can lead
        self.begin()

    def begin(self) -> None:
        """As after a start: what is not on disk is forgotten."""
        assert self.writing is None, "a write is under way"
        self.replica = Replica(self.store.id, self.store, self.times, self.now(), self.chance())

    def start(self) -> None:
        self._tick()

    def stop(self) -> None:
        self.dead = True
        for call in (self._timer, self._soon):
            if call is not None:
                call.cancel()
        self._timer = self._soon = None

    def _tick(self) -> None:
        self._timer = self.reactor.callLater(self.times.heartbeat / 4e9, self._tick)
        now = self.now()
        if self.writing is None:
            self._guarded(self.store.catch_up)
        self._guarded(self.replica.tick, now, self.chance())
        if now - self._tidied > TIDY_NS and self.writing is None:
            self._tidied = now
            self._guarded(self._snapshots)
        self.pump()

    def hear(self, envelope: Envelope) -> None:
        if not self.dead and envelope.to == self.store.id:
            self._guarded(self.replica.step, envelope, self.now())
            self.pump()

    # -- for the server that runs here -----------------------------------------------------------------------------

    def submit(self, store: Any, batch: Batch, done: Done) -> None:
        """As a committer (net/committer.py): durable is what a majority has. Where we lead no more, nothing comes."""
        if self.replica.leads:
            self._place = self.replica.propose(pack(batch, self.version())), self.replica.term
            self._batch, self._done = batch, done
            self.pump()

    def when_leased(self, call: Callable[[], None]) -> None:
        """Call it when no other replica can lead yet."""
        if self.replica.leased(self.now()):
            call()
        else:
            self._leased = call
            self.replica.beat(self.now())
            self.pump()

    def forget(self) -> None:
        """Nobody waits any more."""
        self._batch, self._done, self._leased = None, lambda error: None, None

    # -- the loop --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do what the replica wants done."""
        if not self._pumping and not self.dead:
            self._pumping = True
            try:
                self._guarded(self._pump)
            finally:
                self._pumping = False

    def _pump(self) -> None:
        """What others wait for is written and said first, then what is decided becomes rows."""
        while self.writing is None and not self.dead:
            ready = None if self._wrote else self.replica.ready()
            if ready is None:
                self._wrote = False
                self._apply()
                self._cut()
                self.served.stepped()
                if self.dead or (ready := self.replica.ready()) is None:
                    break
            self.writing = ready
            for envelope in ready.early:
                self.send(envelope)
            if ready.install is not None:
                self.split.submit(Writes(self.store), ready, self._written)
            elif ready.state or ready.entries or ready.chunks:
                self.committer.submit(Writes(self.store), ready, self._written)
            else:
                self._written(None)
        if self._leased is not None and self.replica.leased(self.now()):
            call, self._leased = self._leased, None
            call()

    def _written(self, error: Exception | None) -> None:
        ready, self.writing = self.writing, None
        if self.dead:
            return
        if error is not None:
            self.served.failed(error)
            return
        assert ready is not None, "nothing was to be written"
        self._guarded(self.replica.written, ready, self.now())
        for envelope in ready.messages:
            self.send(envelope)
        self._wrote = True
        self.pump()

    def _apply(self) -> None:
        """What is decided and written becomes rows; not too much at once."""
        store, replica = self.store, self.replica
        if store.crowded:
            store.catch_up()
        first, last = store.taken() + 1, replica.settled
        if first > last:
            return
        entries = replica.log.slice(first, last, self.times.bytes)
        index, term = self._place
        mine = self._batch is not None and entries[0].index <= index <= entries[-1].index
        if mine and entries[index - entries[0].index].term == term:
            batch, done = self._batch, self._done
            assert batch is not None, "no batch is under way"
            self._batch = None
            store.apply(entries, {index: batch}, late=not (self.hasty or _is_told(batch)))
            done(None)
        else:
            store.apply(entries, late=not (self.hasty or replica.role == LEADER))
        if store.taken() < last and self._soon is None:
            self._soon = self.reactor.callLater(0, self._again)

    def _again(self) -> None:
        self._soon = None
        self.pump()

    def _guarded(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except BaseException as error:  # the reactor would go on
            self.served.failed(error)

    # -- the log ---------------------------------------------------------------------------------------------------

    def _snapshots(self) -> None:
        """One is made where somebody needs it, and goes when nobody does any more."""
        store, replica = self.store, self.replica
        sent = [other.snapshot for other in replica.others.values() if other.snapshot is not None]
        if replica.wants_snapshot and store.keeps and not self.taking:
            replica.wants_snapshot = False
            store.drop_snapshot()
            self.taking = True
            self.reactor.callInThread(self._take)
        elif store.offered() is not None and not sent and not replica.wants_snapshot:
            store.drop_snapshot()

    def _cut(self) -> None:
        """The log is not longer than it must be, and gets shorter in small steps."""
        store, cut, size = self.store, self.store.cut().index, self.store.log_bytes
        entries = store.last() - cut
        if entries <= KEPT and size <= KEPT_BYTES:
            return
        replica, index = self.replica, store.applied()
        if not store.keeps or (entries <= MOST and size <= MOST_BYTES):
            index = min(index, replica.everywhere)
        if (offered := store.offered()) is not None and replica.role == LEADER:
            index = min(index, offered.index)
        index = min(index, cut + min(STEP, 1 + STEP_BYTES * entries // (size + 1)))
        if index > cut:
            store.cut_to(index, replica.log.members_at(index))
            replica.log.cut(index)

    def _take(self) -> None:
        """In a thread: as of whichever entry it is then."""
        error: BaseException | None = None
        try:
            self.store.take_snapshot()
        except BaseException as failed:
            error = failed
        self.reactor.callFromThread(self._taken, error)

    def _taken(self, error: BaseException | None) -> None:
        self.taking = False
        if self.dead:
            return
        if error is not None:
            self.served.failed(error)
            return
        self.replica.wants_snapshot = False  # it was wanted again while it was taken
        if self.replica.role == LEADER:
            self._guarded(self.replica.beat, self.now())  # sends it, before it is dropped because nobody needs it
            self.pump()


def _is_told(batch: Batch) -> bool:
    """Do other servers, or operators, hear of it? Then it is in the rows: stores of a bus at work are compared."""
    return bool(batch.links or batch.queue_out or batch.acked or batch.core or batch.meta.keys() - {NOW})


class Writes:
    """The store as what a committer writes to: a Ready in place of a batch."""

    __slots__ = ("store",)

    def __init__(self, store: ReplicaStore):
        self.store = store

    def begin(self, ready: Any) -> None:
        self.store.stage(ready)

    def finish(self) -> None:
        self.store.finish()
