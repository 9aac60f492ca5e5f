"""Replicas that are wrong on purpose: each breaks one rule of Raft, and the five properties must show it."""

from __future__ import annotations

from typing import Any

from mombroker.core.raft.messages import Members, RequestVote, Snapshot
from mombroker.core.raft.ready import Ready
from mombroker.core.raft.replica import LEADER, Replica
from mombroker.sim.replicas.disk import ReplicaDisk
from mombroker.sim.replicas.group import Group
from mombroker.sim.replicas.host import Host


class CountsOlderTerms(Replica):
    """An entry of an older term is committed because a majority has it (figure 8 of the paper)."""

    def _may_commit(self, index: int) -> bool:
        return True


class IgnoresLeases(Replica):
    """It votes for another one while it has a leader that may rely on it."""

    def _bound(self, now: int) -> bool:
        return False


class LeasedForEver(Replica):
    """It takes itself for the leader as long as it has not heard otherwise."""

    def leased(self, now: int) -> bool:
        return self.role == LEADER


class CountsUnwritten(Replica):
    """A leader counts its own log before it is on disk."""

    def _match(self, id: str) -> int:
        return self.log.last if id == self.id else super()._match(id)


class VotesForAnyLog(Replica):
    """It votes for one whose log is behind its own."""

    def _asked(self, frm: str, asked: RequestVote, now: int) -> None:
        super()._asked(frm, asked._replace(last=1 << 40, last_term=1 << 40), now)


class ChangesBeforeItsOwnEntry(Replica):
    """Members change while nothing of the leader's term is committed."""

    @property
    def leads(self) -> bool:
        return self.role == LEADER and not self.target


class DropsItsTail(Replica):
    """A snapshot that comes late takes back entries that others count upon."""

    def _has(self, snapshot: Snapshot) -> bool:
        return snapshot.index <= self.storage.cut().index


class SnapshotOfAnotherEntry(ReplicaDisk):
    """A snapshot says it is as of another entry than its rows are."""

    def take_snapshot(self, members: Members) -> None:
        data = self.rows.pack()
        super().take_snapshot(members)
        assert self._snapshot is not None
        made, _ = self._snapshot
        index = max(self._cut.index, made.index - 2)
        self._snapshot = (Snapshot(index, self.term(index), made.members, made.size, made.sum), data)


class VoteNotSynced(ReplicaDisk):
    """Its term and its vote are on disk only when an entry is written, too."""

    before = (0, "")

    def write(self, ready: Ready) -> None:
        super().write(ready)
        if ready.entries:
            self.before = self._state

    def crash(self, chance: float) -> None:
        super().crash(chance)
        self._state = self.before


class AppliesFirst(Host):
    """What a leader appends is in its rows before anybody has it."""

    def _apply(self) -> None:
        log = self.replica.log
        while self.up and self.replica.role == LEADER and self.disk.applied_to < log.stable:
            (entry,) = log.slice(self.disk.applied_to + 1, self.disk.applied_to + 1, 0)
            self.disk.apply(entry)
            self.around.applied(self, entry)
        super()._apply()


class SameId(Group):
    """Whoever has lost its disk comes back under the id that it had."""

    def lose(self, host: Host) -> None:
        self.crash(host)
        host.disk = self.disks[host.id] = ReplicaDisk(self.rows(), host.replica.members, host.disk.keeps)
        self.properties.restarted(host.id)
        self.counts["replicas_lost"] += 1
        host.boot()


class OnDisks(Group):
    """A group with other disks, or hosts."""

    disk: Any = ReplicaDisk
    host: Any = Host

    def _add(self, id: str, members: Members, keeps: bool) -> Host:
        disk = self.disks[id] = self.disk(self.rows(), members, keeps)
        host = self.hosts[id] = self.host(self, id, disk, self.world.about(self.slow) + self.slow // 4)
        assert isinstance(host, Host)
        return host


class WithVotesThatAreNotSynced(OnDisks):
    disk = VoteNotSynced


class WithWrongSnapshots(OnDisks):
    disk = SnapshotOfAnotherEntry


class WithHostsThatApplyFirst(OnDisks):
    host = AppliesFirst


class TellsAtOnce(Group):
    """Outputs leave when the leader has the entry, whoever else has it."""

    def judge(self, host: Host) -> None:
        super().judge(host)
        if host is self.serving:
            log = host.replica.log
            for index in range(host.disk.applied_to + 1, log.stable + 1):
                self.served.applied(host, log.slice(index, index, 0)[0])
