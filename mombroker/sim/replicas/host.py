"""One replica's process, which comes and goes, and its disk, which stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mombroker.core.raft.messages import Entry, Envelope
from mombroker.core.raft.ready import Ready, Times
from mombroker.core.raft.replica import Replica
from mombroker.sim.replicas.disk import ReplicaDisk
from mombroker.sim.world import World


class Around(Protocol):
    """What a host knows of its group."""

    world: World
    times: Times
    replica: type[Replica]

    def time(self) -> int: ...
    def awake(self) -> bool: ...
    def carry(self, envelope: Envelope) -> None: ...
    def judge(self, host: Host) -> None: ...
    def stepped(self, host: Host) -> None: ...
    def applies(self, host: Host, entry: Entry) -> None: ...
    def applied(self, host: Host, entry: Entry) -> None: ...
    def filled(self, host: Host) -> None: ...


class Host:
    """Its clock runs a little too fast or too slow.

    id      of its disk
    slow    a write takes so long, in the mean, ns
    """

    def __init__(self, around: Around, id: str, disk: ReplicaDisk, slow: int):
        self.around, self.world, self.id, self.disk, self.slow = around, around.world, id, disk, slow
        self.rate = 1 + (self.world.rng.random() - 0.5) / 20
        self.epoch = 0
        self.up = False
        self.until = 0  # when its process goes on, if it stands still
        self.full_until = 0  # when its disk takes something again
        self.replica: Replica
        self._writing: Ready | None = None

    @property
    def full(self) -> bool:
        return self.world.now < self.full_until

    def now(self) -> int:
        return int(self.around.time() * self.rate)

    def boot(self) -> None:
        if not self.up:
            self.up = True
            self.epoch += 1
            self._writing, around = None, self.around
            self.replica = around.replica(self.id, self.disk, around.times, self.now(), self.world.rng.random())
            self.wake()

    def crash(self) -> None:
        if not self.up:
            return
        self.up = False
        if self._writing is not None and self.world.chance(0.5):
            self.disk.write(self._writing)
        self.disk.crash(self.world.rng.random())
        self.disk.check()

    def pause(self, span: int) -> None:
        """Its process stands still; what it hears waits."""
        self.until = max(self.until, self.world.now + span)

    def _stands(self, call: Callable[..., None], *args: Any) -> bool:
        """If it does, `call` comes later."""
        if stands := self.world.now < self.until:
            self.world.after(self.until - self.world.now, call, *args)
        return stands

    def wake(self) -> None:
        self.world.after(self.world.about(self.around.times.heartbeat // 4), self._tick, self.epoch)

    def _tick(self, epoch: int) -> None:
        if self._stands(self._tick, epoch):
            return
        if self.up and epoch == self.epoch and self.around.awake():
            self.replica.tick(self.now(), self.world.rng.random())
            self.pump()
            self.world.after(self.around.times.heartbeat // 4, self._tick, epoch)

    def hear(self, epoch: int, envelope: Envelope) -> None:
        if self._stands(self.hear, epoch, envelope):
            return
        if self.up and epoch == self.epoch:
            self.replica.step(envelope, self.now())
            self.pump()

    def pump(self) -> None:
        """Do what the replica wants done."""
        self.around.judge(self)
        self._apply()
        if self.up:
            self.around.stepped(self)
        if not self.up or self._writing is not None or (ready := self.replica.ready()) is None:
            return
        for envelope in ready.early:
            self.around.carry(envelope)
        if ready.state or ready.entries or ready.chunks or ready.install:
            self._writing = ready
            self.world.after(self.world.about(self.slow), self._written, self.epoch, ready)
        else:
            self._done(ready)
            self.pump()

    def _written(self, epoch: int, ready: Ready) -> None:
        if self._stands(self._written, epoch, ready):
            return
        if self.up and epoch == self.epoch and self.full:
            self._writing = None
            self.around.filled(self)
        elif self.up and epoch == self.epoch:
            self._writing = None
            self.disk.write(ready)
            self._done(ready)
            self.pump()

    def _done(self, ready: Ready) -> None:
        self.replica.written(ready, self.now())
        for envelope in ready.messages:
            self.around.carry(envelope)

    def _apply(self) -> None:
        while self.up and self.disk.applied_to < self.replica.settled:
            (entry,) = self.replica.log.slice(self.disk.applied_to + 1, self.disk.applied_to + 1, 0)
            self.around.applies(self, entry)
            self.disk.apply(entry)
            self.disk.check()
            self.around.applied(self, entry)
