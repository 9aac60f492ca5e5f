"""How long a group is without a leader, in virtual time: replicas that tick, write and talk as processes do."""

import heapq
from random import Random

import pytest

from mombroker.core.raft.messages import Members
from mombroker.core.raft.ready import Times
from mombroker.core.raft.replica import Replica
from mombroker.sim.replicas.disk import ReplicaDisk
from tests.sim.raft_world import Numbers

T = 1_000_000
TIMES = Times(T, T // 5)
TICK, LATE, SYNC = T // 20, T // 30, T // 50  # between ticks; of a message, and of a write, at most
PATIENCE = 60 * T


class Cluster:
    """Replicas with a heap of what happens next. `hasty`: one that always draws the shortest wait."""

    hasty = ""

    def __init__(self, ids, seed, kind):
        self.lots, self.count, self.events = Random(seed), 0, []
        members = Members(tuple(ids))
        self.disks = {id: ReplicaDisk(Numbers(), members, True) for id in ids}
        self.all = {id: kind(id, disk, TIMES, 0, self.lots.random()) for id, disk in self.disks.items()}
        self.writing = set()
        for id in ids:
            self.later(self.lots.randrange(TICK), self.tick, id)
        self.now = 0

    def later(self, at, call, *args):
        self.count += 1
        heapq.heappush(self.events, (at, self.count, call, args))

    def run(self, over):
        while not over() and self.now < PATIENCE:
            self.now, _, call, (id, *args) = heapq.heappop(self.events)
            if id in self.all:
                call(id, *args)
                self.pump(id)
        return self.now

    def tick(self, id):
        self.all[id].tick(self.now, 0.0 if id == self.hasty else self.lots.random())
        self.later(self.now + TICK, self.tick, id)

    def hear(self, id, envelope):
        if envelope.frm in self.all:
            self.all[id].step(envelope, self.now)

    def written(self, id, ready):
        self.disks[id].write(ready)
        self.writing.discard(id)
        self.all[id].written(ready, self.now)
        self.send(ready.messages)

    def send(self, envelopes):
        for each in envelopes:
            self.later(self.now + self.lots.randrange(1, LATE), self.hear, each.to, each)

    def pump(self, id):
        one, disk = self.all[id], self.disks[id]
        if id in self.writing:
            return
        while disk.applied_to < one.settled:
            disk.apply(one.log.slice(disk.applied_to + 1, disk.applied_to + 1, 0)[0])
        if (ready := one.ready()) is not None:
            self.writing.add(id)
            self.send(ready.early)
            takes = self.lots.randrange(1, SYNC) if ready.state or ready.entries else 0
            self.later(self.now + takes, self.written, id, ready)

    def leaders(self):
        return [id for id, one in self.all.items() if one.leads]


def without(seed, ids="abc", kind=Replica):
    """From the loss of the leader until another one leads, in election timeouts."""
    cluster = Cluster(ids, seed, kind)
    began = 4 * T + cluster.lots.randrange(T)
    cluster.run(lambda: cluster.now > began and cluster.leaders())
    since = cluster.now
    del cluster.all[cluster.leaders()[0]]
    return (cluster.run(cluster.leaders) - since) / T


class Patient(Replica):
    """Waits after each try as at first, and stands whoever else wants to."""

    def _again(self, now):
        self._wait(now)

    def _give_way(self, now): ...


@pytest.mark.parametrize("ids", ["abc", "abcde"])
def test_another_one_leads_within_two_and_a_half_election_timeouts(ids):
    times = sorted(without(seed, ids) for seed in range(200))
    assert 1 < times[100] < 1.5 and times[-1] < 2.5


def test_control_replicas_that_wait_as_long_after_each_try():
    assert max(without(seed, kind=Patient) for seed in range(200)) > 2.9


class Yielding(Replica):
    """Gives way to whoever asks, each time."""

    def _give_way(self, now):
        self._patience = max(self._patience, now + T // 2)


@pytest.mark.parametrize(("kind", "leads"), [(Replica, ["b"]), (Yielding, [])])
def test_one_that_is_never_elected_does_not_keep_others_from_standing(kind, leads):
    """a and b hear each other, b and c do, d and e are gone: b alone is heard by a majority."""
    cluster = Cluster("abcde", 1, kind)
    del cluster.all["d"], cluster.all["e"]
    cluster.hasty, cluster.send = "a", lambda sent: Cluster.send(cluster, [e for e in sent if {*e[:2]} != {"a", "c"}])
    cluster.run(cluster.leaders)
    assert cluster.leaders() == leads
