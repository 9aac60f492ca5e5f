"""What goes wrong with the replicas of one server: drawn from the seed, first which kinds, then how often each."""

from __future__ import annotations

from random import Random

from mombroker.sim.replicas.group import Group
from mombroker.sim.replicas.host import Host


class Mishaps:
    """Kills, cuts, processes that stand still, disks that are slow, full, or lost one at a time; meanwhile transfers,
    and replicas that join and leave."""

    def __init__(self, group: Group, rng: Random):
        self.group, self.world, self.rng = group, group.world, rng
        election = group.times.election
        self.down = rng.choice((election // 10, election, 4 * election))
        self.cut = rng.choice((election // 2, 2 * election, 6 * election))
        self.deeds = [
            (deed, rng.randint(1, most))
            for deed, most in (
                (self._kill, 6), (self._kill_leader, 6), (self._blackout, 2), (self._cut, 8), (self._cut_off, 4),
                (self._lose, 3), (self._lose_leader, 2), (self._transfer, 6),
                (self._pause, 6), (self._fill, 4), (self._grow, 3), (self._shrink, 3),
            )
            if rng.random() < 0.5
        ]  # fmt: skip
        if rng.random() < 0.5:
            group.loss, group.twice = rng.choice((0.01, 0.1, 0.3)), rng.choice((0.0, 0.1))
        if rng.random() < 0.3:
            rng.choice(list(group.hosts.values())).slow *= 20

    def schedule(self, span: int) -> None:
        for deed, times in self.deeds:
            for _ in range(times):
                self.world.after(int(self.rng.random() * span), self._do, deed)

    def _do(self, deed: object) -> None:
        if self.group.faulty and callable(deed):
            deed()

    def _any(self) -> Host:
        return self.rng.choice(list(self.group.hosts.values()))

    def _down(self, host: Host) -> None:
        if host.up:
            self.group.crash(host)
            self.world.after(self.world.about(self.down), self.group.boot)

    def _kill(self) -> None:
        self._down(self._any())

    def _kill_leader(self) -> None:
        self._down(self.group.serving or self._any())

    def _blackout(self) -> None:
        for host in list(self.group.hosts.values()):
            self._down(host)

    def _cut(self) -> None:
        a, b = self.rng.sample(list(self.group.hosts), 2)
        self.group.cut(a, b, self.world.about(self.cut))

    def _cut_off(self) -> None:
        """The one that serves, or another one, from all others."""
        one = self.group.serving or self._any()
        span = self.world.about(self.cut)
        for id in self.group.hosts:
            if id != one.id:
                self.group.cut(one.id, id, span)

    def _pause(self) -> None:
        """The process of the one that serves, or of another one, stands still."""
        (self.group.serving or self._any()).pause(self.world.about(self.cut))

    def _fill(self) -> None:
        """The disk of the one that serves, or of another one, is full for a while."""
        self.group.fill(self.group.serving or self._any(), self.world.about(self.down))

    def _grow(self) -> None:
        self.group.grow()

    def _shrink(self) -> None:
        self.group.shrink(self._any())

    def _lose(self) -> None:
        if self.group.whole():
            self.group.lose(self._any())

    def _lose_leader(self) -> None:
        if self.group.whole():
            self.group.lose(self.group.serving or self._any())

    def _transfer(self) -> None:
        self.group.transfer(self._any().id)
