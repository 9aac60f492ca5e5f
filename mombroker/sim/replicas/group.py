"""All replicas of one server: the ways between them, who of them serves, and what an operator does to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mombroker.core.raft.messages import Entry, Envelope, Members
from mombroker.core.raft.ready import Times
from mombroker.core.raft.replica import LEADER, NotNow, Replica
from mombroker.sim.replicas.disk import ReplicaDisk, Rows
from mombroker.sim.replicas.host import Host
from mombroker.sim.replicas.properties import Properties
from mombroker.sim.world import World

CUT_EVERY = 20  # entries that a log may have before it is cut
COUNTED = (
    "takeovers", "replica_messages", "transfers", "replicas_lost", "replicas_replaced", "replicas_added",
    "replicas_removed", "disks_filled",
)  # fmt: skip


class Served(Protocol):
    """What runs on the replica that leads."""

    def serves(self, host: Host) -> None:
        """It leads, and its rows are the newest."""

    def ends(self, host: Host) -> None:
        """It leads no more, or its process is gone."""

    def decided(self, entry: Entry) -> None: ...
    def applied(self, host: Host, entry: Entry) -> None: ...


class Group:
    """hosts   by the id of their disk
    disks      those that were lost, too
    """

    def __init__(
        self, world: World, name: str, rows: Callable[[], Rows], places: int, witnesses: int, times: Times,
        served: Served, slow: int, replica: type[Replica] = Replica,
    ):  # fmt: skip
        self.world, self.name, self.rows, self.times, self.served = world, name, rows, times, served
        self.slow, self.replica = slow, replica
        self.latency = times.election // 50
        self.loss = self.twice = 0.0  # the chance that a message is lost, comes twice
        self.faulty = False  # else ticks end when all is quiet
        self.made = 0
        self.changing = False  # the operator carries out a change of the members
        self.hosts: dict[str, Host] = {}
        self.disks: dict[str, ReplicaDisk] = {}
        self.cuts: dict[frozenset[str], int] = {}
        self.serving: Host | None = None
        self.term = 0  # of the last that served: whoever has stood still may think that it leads
        self.properties = Properties(served.decided)
        self.counts = dict.fromkeys(COUNTED, 0)
        self._asleep = False
        self._slept = self._since = 0
        ids = [self._new_id() for _ in range(places)]
        members = Members(tuple(ids), (), tuple(ids[places - witnesses :]))
        for id in ids:
            self._add(id, members, id not in members.witnesses)

    def _new_id(self) -> str:
        self.made += 1
        return f"{self.name}.{self.made}"

    def _add(self, id: str, members: Members, keeps: bool) -> Host:
        disk = ReplicaDisk(self.rows(), members, keeps)
        self.disks[id] = disk
        host = self.hosts[id] = Host(self, id, disk, self.world.about(self.slow) + self.slow // 4)
        return host

    # -- time ----------------------------------------------------------------------------------------------------------

    def time(self) -> int:
        """The clocks stand still while all sleep, so that a run comes to rest."""
        return (self._since if self._asleep else self.world.now) - self._slept

    def awake(self) -> bool:
        if not self._asleep and not self.faulty and self.quiet():
            self._asleep, self._since = True, self.world.now
        return not self._asleep

    def wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._slept += self.world.now - self._since
            for host in self.hosts.values():
                if host.up:
                    host.wake()

    def quiet(self) -> bool:
        """One leads, and nobody has anything to do or to learn."""
        if not all(host.up for host in self.hosts.values()) or self.serving is None:
            return False
        leader, last = self.serving.replica, self.serving.replica.log.last
        return leader.leads and set(leader.members.all) == self.hosts.keys() and all(
            host.disk.applied_to == host.replica.log.last == last and host.replica.leader == leader.id
            for host in self.hosts.values()
        )  # fmt: skip

    # -- the ways ------------------------------------------------------------------------------------------------------

    def carry(self, envelope: Envelope) -> None:
        self.counts["replica_messages"] += 1
        if not self.faulty:
            self._carry(envelope)
        elif not self.cuts.get(frozenset(envelope[:2])) and not self.world.chance(self.loss):
            for _ in range(1 + self.world.chance(self.twice)):
                self._carry(envelope)

    def _carry(self, envelope: Envelope) -> None:
        host = self.hosts.get(envelope.to)
        if host is not None and host.up:
            self.world.after(self.latency // 2 + self.world.about(self.latency), host.hear, host.epoch, envelope)

    def cut(self, a: str, b: str, span: int) -> None:
        pair = frozenset((a, b))
        self.cuts[pair] = self.cuts.get(pair, 0) + 1
        self.world.after(span, self._heal, pair)

    def _heal(self, pair: frozenset[str]) -> None:
        self.cuts[pair] -= 1

    # -- who serves ----------------------------------------------------------------------------------------------------

    def judge(self, host: Host) -> None:
        """A replica has taken a step."""
        self.properties.stepped(host.replica, self.disks)
        self.properties.one_lease([(each.replica, each.now()) for each in self.hosts.values() if each.up])

    def stepped(self, host: Host) -> None:
        """And has applied what is decided."""
        replica, disk = host.replica, host.disk
        if self.serving is host and replica.role != LEADER:
            self.ends(host)
        elif replica.leads and replica.term > self.term and disk.keeps and disk.applied_to == replica.log.commit:
            if self.serving is not None:
                self.ends(self.serving)
            self.serving, self.term = host, replica.term
            self.counts["takeovers"] += 1
            self.served.serves(host)
        self._tidy(host)

    def ends(self, host: Host) -> None:
        if self.serving is host:
            self.serving = None
            self.served.ends(host)

    def _tidy(self, host: Host) -> None:
        """Snapshots for those who need one; a log that is not longer than it must be."""
        replica, disk = host.replica, host.disk
        if replica.wants_snapshot and disk.keeps:
            replica.wants_snapshot = False
            disk.take_snapshot(replica.log.members_at(disk.applied_to))
        elif disk.last() - disk.cut().index > CUT_EVERY and self.world.chance(0.2):
            index = disk.cuttable if disk.keeps else min(disk.cuttable, replica.everywhere)
            if (snapshot := disk.offered()) is not None and replica.role == LEADER:
                if any(other.snapshot is not None for other in replica.others.values()):
                    index = min(index, snapshot.index)
            disk.cut_to(index, replica.log.members_at(index))
            replica.log.cut(disk.cut().index)

    def applies(self, host: Host, entry: Entry) -> None:
        self.properties.apply(host.id, entry)

    def applied(self, host: Host, entry: Entry) -> None:
        self.served.applied(host, entry)

    # -- what happens to them ------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """All that are down come back."""
        for host in self.hosts.values():
            if not host.up and not (self.faulty and host.full):
                host.boot()
                self.properties.restarted(host.id)
        self.wake()

    def fill(self, host: Host, span: int) -> None:
        """Its disk takes nothing more for a while: its next write ends its process."""
        host.full_until = self.world.now + span
        self.counts["disks_filled"] += 1

    def filled(self, host: Host) -> None:
        """A write has failed."""
        self.crash(host)
        self.world.after(host.full_until - self.world.now, self.boot)

    def crash(self, host: Host) -> None:
        self.wake()
        host.crash()
        self.ends(host)

    def lose(self, host: Host) -> None:
        """Its disk is gone for good, and nothing of that id comes back."""
        self.crash(host)
        del self.hosts[host.id]
        self.counts["replicas_lost"] += 1
        self._replace(host)

    def _replace(self, old: Host) -> None:
        """An operator has a new one in the place of the old: a learner first, then the old one goes, then it votes."""
        new = self._add(self._new_id(), Members(()), old.disk.keeps)
        new.boot()
        self._begin(old.id, new.id)

    def grow(self) -> None:
        """One more."""
        if self.whole() and len(self.hosts) < 5:
            new = self._add(self._new_id(), Members(()), True)
            new.boot()
            self._begin("", new.id)

    def shrink(self, host: Host) -> None:
        """One less, whose disk is thrown away when it has left."""
        if self.whole() and len(self.hosts) > 3 and host.disk.keeps:
            self._begin(host.id, "")

    def _begin(self, old: str, new: str) -> None:
        self.changing = True
        self._go_on(old, new)

    def _go_on(self, old: str, new: str) -> None:
        """The next step of a change of the members, until it is done: `old` leaves, `new` joins."""
        leader = self.serving.replica if self.serving is not None else None
        if leader is not None:
            log, wanted = leader.log, self._next(leader.members, old, new)
            if wanted is None:
                if log.changes[-1][0] <= log.commit:
                    self._changed(old, new)
                    return
            else:
                try:
                    leader.change(wanted)
                except NotNow:
                    pass
                else:
                    self.push()
        self.world.after(self.times.election // 2, self._go_on, old, new)

    def _next(self, now: Members, old: str, new: str) -> Members | None:
        """Who the members are to be after the next step; None if that was all."""
        if new and new not in now.all:
            return Members(now.voters, (*now.learners, new), now.witnesses)
        if old in now.voters:
            voters, witnesses = ([id for id in ids if id != old] for ids in (now.voters, now.witnesses))
            return Members(tuple(voters), now.learners, tuple(witnesses))
        if new and new not in now.voters:
            witnesses = [*now.witnesses, *([] if self.hosts[new].disk.keeps else [new])]
            others = tuple(id for id in now.learners if id != new)
            return Members((*now.voters, new), others, tuple(witnesses))
        return None

    def _changed(self, old: str, new: str) -> None:
        self.changing = False
        if old in self.hosts:
            self.crash(self.hosts[old])
            del self.hosts[old]
            self.counts["replicas_removed"] += 1
        elif old:
            self.counts["replicas_replaced"] += 1
        else:
            self.counts["replicas_added"] += 1
        self.wake()

    def transfer(self, to: str) -> None:
        if self.serving is not None:
            try:
                self.serving.replica.transfer(to, self.serving.now())
            except NotNow:
                return
            self.counts["transfers"] += 1
            self.push()

    def push(self) -> None:
        """Something was asked of the one that serves."""
        self.wake()
        if self.serving is not None:
            self.serving.pump()

    def whole(self) -> bool:
        """No disk that is lost is still a member, and all know that: another one may be lost."""
        if self.serving is None or self.changing:
            return False
        log = self.serving.replica.log
        members, decided = log.members, log.changes[-1][0] <= log.commit
        return decided and set(members.voters) == self.hosts.keys() and not members.learners
