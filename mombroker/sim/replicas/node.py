"""A replicated server on a simulated bus: what is durable is durable on a majority of its replicas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mombroker.core.batch import Batch
from mombroker.core.causality import Event
from mombroker.core.events import Ready
from mombroker.core.raft.messages import BATCH, Entry
from mombroker.core.raft.ready import Times
from mombroker.core.raft.replica import Replica
from mombroker.sim.clients import ClientNode
from mombroker.sim.cluster import Cluster
from mombroker.sim.disk import Disk
from mombroker.sim.replicas.group import Group
from mombroker.sim.replicas.host import Host
from mombroker.sim.world import MS
from mombroker.store.columns import records_of
from mombroker.store.memory import Disk as Stored
from mombroker.store.memory import MemoryStore
from mombroker.store.packed import pack, unpack


class StoreRows:
    """The rows of a server in the simulator's store."""

    def __init__(self, store: MemoryStore):
        self.store = store

    def apply(self, data: bytes) -> None:
        self.store.commit(unpack(data))

    def copy(self) -> StoreRows:
        return StoreRows(self.store.copy())

    def pack(self) -> bytes:
        return pack(self.store.disk.rows())

    def unpack(self, data: bytes) -> StoreRows:
        store = self.store.copy()
        store.disk = Stored()
        store.commit(unpack(data))
        return StoreRows(store)

    def sorted(self) -> list[object]:
        """All of it, in one order whatever it was written in."""
        rows = self.store.disk.rows()
        tables = (rows.queue_in, rows.payloads, rows.agents, rows.items, rows.held, rows.links, rows.core, rows.tasks)
        return [*(sorted(table.items()) for table in tables), sorted(rows.queue_out), rows.meta, rows.log]


Place = tuple[int, int]  # of an entry: index, term


class MajorityDisk(Disk):
    """What the process of a replicated server takes for its disk.

    proposed   what was done in each batch that was ever proposed
    """

    def __init__(self, node: ReplicatedNode, store: MemoryStore):
        super().__init__(node.world, store, 0, node._durable, node._die)
        self.node = node
        self.proposed: dict[Place, list[Event]] = {}
        self.place: Place | None = None  # of the batch in COMMIT
        self.done: Callable[[], None]

    def submit(self, batch: Batch, done: Callable[[], None]) -> None:
        host = self.node.group.serving
        assert host is not None, "a server runs where no replica leads"
        if host.replica.leads:  # else it hands over, and what is not decided comes to nothing
            self.commits += 1
            self.place, self.done = (host.replica.propose(pack(batch)), host.replica.term), done
            self.proposed[self.place] = self.node.server.closed
            self.world.after(0, self.node.group.push)
            self.world.after(self.world.about(host.slow // 2), self._midway, self.place)

    def _midway(self, place: Place) -> None:
        if self.place == place:
            self.die("in commit")

    def applied(self, place: Place) -> None:
        """The rows of an entry are in the store that the process reads."""
        if self.place == place:
            self.place = None
            if not self.die("durable, unseen"):
                self.world.after(0, self.done)

    def crash(self) -> None:
        self.place = None


class ReplicatedNode(ClientNode):
    """Its process runs where the replica that leads is; when it leads no more, or its process ends, the next one
    begins from the rows of the new leader, as after a restart."""

    replica: type[Replica] = Replica
    replicas: type[Group] = Group

    def __init__(self, cluster: Cluster, name: str, mean_commit: int):
        super().__init__(cluster, name, mean_commit)
        rng = self.world.rng
        election = max(20 * MS, 20 * mean_commit)
        times = Times(election, election // 5, rng.choice((400, 1 << 20)))
        places, witnesses = rng.choice(((3, 0), (3, 0), (5, 0), (3, 1)))
        first = self.disk.store
        self.group = self.replicas(
            self.world, name, lambda: StoreRows(first.copy()), places, witnesses, times, self, mean_commit,
            self.replica,
        )  # fmt: skip
        self.group.faulty = True
        self.majority = MajorityDisk(self, first)
        self.disk = self.majority

    # -- the process ---------------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """All its hosts that are down come back; the process begins when one of them leads."""
        self.group.boot()

    def serves(self, host: Host) -> None:
        rows = host.disk.rows
        assert isinstance(rows, StoreRows)
        self.majority.store = rows.store
        super().boot()
        self.server.neighbours.term = self.group.term

    def ends(self, host: Host) -> None:
        if self.up:
            super().crash()

    def crash(self) -> None:
        host = self.group.serving
        if host is not None:
            self.group.crash(host)  # which ends the process, too

    def _commit(self) -> None:
        """What has nothing to persist leaves when nobody else can lead."""
        ready = self.flying = self.server.ready(self.now())
        if ready.batch.empty():
            self._when_leased(self.epoch, ready)
        else:
            self.disk.submit(ready.batch, partial(self._seen, ready))

    def _when_leased(self, epoch: int, ready: Ready) -> None:
        host = self.group.serving
        if epoch != self.epoch or not self.up or host is None:
            return
        if host.replica.leased(host.now()):
            self._leave(ready)
        else:
            self.group.wake()
            host.replica.beat(host.now())
            self.world.after(0, self.group.push)
            self.world.after(self.group.times.heartbeat, self._when_leased, epoch, ready)

    # -- what the replicas say -----------------------------------------------------------------------------------------

    def decided(self, entry: Entry) -> None:
        if entry.kind == BATCH:
            self.trace += records_of(unpack(entry.data))
            self.events += self.majority.proposed[entry.index, entry.term]

    def applied(self, host: Host, entry: Entry) -> None:
        if host is self.group.serving:
            self.majority.applied((entry.index, entry.term))

    def faults(self) -> list[str]:
        """At rest all replicas have the same rows."""
        found = [host.disk.rows for host in self.group.hosts.values() if host.disk.keeps]
        rows = [row.sorted() for row in found if isinstance(row, StoreRows)]
        wrong = [] if all(each == rows[0] for each in rows) else [f"the replicas of {self.name} have different rows"]
        return wrong + ([] if self.group.quiet() else [f"the replicas of {self.name} have not come to rest"])
