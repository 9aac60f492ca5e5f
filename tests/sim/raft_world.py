"""Replicas that agree on numbers and nothing else: many random schedules in little time."""

from __future__ import annotations

from zlib import crc32

from mombroker.core.raft.messages import BATCH, Entry
from mombroker.core.raft.ready import Times
from mombroker.core.raft.replica import Replica
from mombroker.sim.replicas.group import Group
from mombroker.sim.replicas.host import Host
from mombroker.sim.replicas.mishaps import Mishaps
from mombroker.sim.world import MS, SECOND, World


class Numbers:
    """All numbers that were applied, in order."""

    def __init__(self, numbers: list[int] | None = None):
        self.numbers = numbers or []

    def apply(self, data: bytes) -> None:
        self.numbers.append(int(data))

    def copy(self) -> Numbers:
        return Numbers([*self.numbers])

    def pack(self) -> bytes:
        return b" ".join(b"%d" % number for number in self.numbers)

    def unpack(self, data: bytes) -> Numbers:
        return Numbers([*map(int, data.split())])


class Coups(Mishaps):
    """Beside all else: who has just been elected is cut off, and those that have elected it crash."""

    term = 0

    def schedule(self, span: int) -> None:
        super().schedule(span)
        self._look()

    def _look(self) -> None:
        group, leaders = self.group, self.group.properties.leaders
        if (newest := max(leaders, default=0)) > self.term:
            self.term, one = newest, leaders[newest]
            if self.world.chance(0.5) and one in group.hosts:
                for host in [host for host in group.hosts.values() if host.id != one]:
                    group.cut(one, host.id, 4 * group.times.election)
                    self._down(host)
        if group.faulty:
            self.world.after(group.latency // 4, self._look)


class Counter:
    """A client that proposes one number after the other to whoever serves, and notes what it is told is decided."""

    def __init__(
        self, seed: int, replica: type[Replica] = Replica, group: type[Group] = Group,
        mishaps: type[Mishaps] = Mishaps,
    ):  # fmt: skip
        world = self.world = World(seed)
        rng = world.rng
        election = rng.choice((20, 100)) * MS
        places, witnesses = rng.choice(((3, 0), (3, 0), (5, 0), (3, 1)))
        times = Times(election, election // rng.choice((3, 6)), rng.choice((40, 1 << 20)))
        self.group = group(world, "s", Numbers, places, witnesses, times, self, election // 20, replica)
        self.group.faulty = True
        self.mishaps = mishaps(self.group, rng)
        self.last, self.most = 0, 400
        self.open: dict[tuple[int, int], int] = {}  # (index, term): number
        self.told: list[int] = []
        self.decisions: list[int] = []

    def serves(self, host: Host) -> None:
        self.propose(host, host.epoch)

    def ends(self, host: Host) -> None:
        pass

    def decided(self, entry: Entry) -> None:
        if entry.kind == BATCH:
            self.decisions.append(int(entry.data))

    def applied(self, host: Host, entry: Entry) -> None:
        if host is self.group.serving and (entry.index, entry.term) in self.open:
            self.told.append(self.open.pop((entry.index, entry.term)))

    def propose(self, host: Host, epoch: int) -> None:
        if self.group.serving is host and host.epoch == epoch and self.last < self.most:
            if host.replica.leads:
                self.last += 1
                index = host.replica.propose(b"%d" % self.last)
                self.open[index, host.replica.term] = self.last
                self.group.push()
            self.world.after(self.world.about(self.group.times.election // 20), self.propose, host, epoch)

    def run(self) -> list[str]:
        """Work under mishaps; then heal, and come to rest. What is wrong then."""
        group, world = self.group, self.world
        group.boot()
        span = 40 * group.times.election
        self.mishaps.schedule(span)
        world.run(world.now + span)
        group.faulty = False
        group.boot()
        self.most += 10
        wrong = [] if world.run(world.now + 600 * SECOND, 100_000) and not world.queue else ["no rest"]
        rows = [host.disk.rows.numbers for host in group.hosts.values() if host.disk.keeps]
        if any(numbers != self.decisions for numbers in rows):
            wrong.append(f"the rows of {[*map(len, rows)]} differ from {len(self.decisions)} decisions")
        if lost := set(self.told) - set(self.decisions):
            wrong.append(f"{len(lost)} that were told are lost")
        if len(set(self.decisions)) != len(self.decisions):
            wrong.append("one is decided twice")
        if self.told != sorted(self.told) or self.decisions != sorted(self.decisions):
            wrong.append("not in order")
        return wrong

    def digest(self) -> int:
        return crc32(repr((self.decisions, self.told, self.group.counts)).encode())
