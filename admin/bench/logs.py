"""Logs of any size to measure and test on: a run of the simulator, written to stores as the broker writes them.

A run of the whole bus takes a fifth of a millisecond of work a record, so a large log repeats one: each repetition
begins when the one before has come to rest, with message ids, sequences and times that go on. (Only what a hold names
as missing is the same in each.) Everything that an auditor or an analyst looks at holds in it, as in one long run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mombroker import store
from mombroker.core.batch import Batch
from mombroker.core.topology import Domain, Server, Topology
from mombroker.core.trace import STATIONS, VERSION, Record, records
from mombroker.sim.cluster import Workload
from mombroker.sim.faults import Faults
from mombroker.sim.mischief import Trial
from mombroker.sim.node import Node
from mombroker.sim.workloads import HERE, Wander
from mombroker.sim.world import MS, World
from mombroker.store import columns
from mombroker.store.base import written
from mombroker.store.sqlite import LOG, summed

SERVERS = 16
DOMAINS = {  # on a line, with a matrix domain in their middle
    "north": ("matrix", range(5)),
    "core": ("matrix", (4, 5, 9, 12)),
    "east": ("ks", range(5, 9)),
    "south": ("vector", range(9, 12)),
    "west": ("rst", range(12, 16)),
}


class Written(NamedTuple):
    """What one commit wrote."""

    records: list[Record]
    commits: int  # with those before it that had no records
    rows: int
    bytes: int


Played = dict[str, list[Written]]  # of each server


def topology(workload: Workload, world: World, folder: Path) -> Topology:
    """Sixteen servers in five domains, with four back ends."""
    names = [f"s{n:02}" for n in range(SERVERS)]
    return Topology(
        name="logs",
        servers={
            name: Server(name, "127.0.0.1", 20_000 + at, data=str(folder / name)) for at, name in enumerate(names)
        },
        domains={
            name: Domain(name, tuple(names[at] for at in members), backend)
            for name, (backend, members) in DOMAINS.items()
        },
        agents=workload.agents(names, world.rng),
        registry=names[0],
        allow=(HERE,),
    )


class _Recorder(Node):
    """Keeps what each commit wrote."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.written: list[Written] = []
        self._unlogged = (1, 0, 0)

    def _durable(self, batch: Batch) -> None:
        super()._durable(batch)
        self.trace, self.events = [], []
        rows, size = written(batch)
        commits, rows, size = self._unlogged[0], self._unlogged[1] + rows, self._unlogged[2] + size
        if batch.log:
            self.written.append(Written(records(batch.log), commits, rows, size))
            commits = rows = size = 0
        self._unlogged = (commits + 1, rows, size)


def play(folder: Path, messages: int, seed: int = 1, faults: Faults | None = None) -> tuple[Topology, Played]:
    """Agents that wander, on a calm bus unless told otherwise; about so many messages."""
    world = World(seed)
    workload = Wander(world.rng, messages)
    made = topology(workload, world, folder)
    cluster = Trial(world, made, faults or Faults(), workload, _Recorder)
    wrong = cluster.run(messages * MS // 5)
    assert not wrong, wrong
    return made, {name: node.written for name, node in cluster.nodes.items() if isinstance(node, _Recorder)}


def write(made: Topology, played: Played, copies: int = 1, pause: int = MS) -> int:
    """Make the stores of this topology, with this run so many times in their logs, `pause` ns apart.

    Returns the number of records.
    """
    last = max(columns.time(each.records[-1]) for commits in played.values() for each in commits)
    begin = min(columns.time(each.records[0]) for commits in played.values() for each in commits)
    step = last - begin + pause
    numbers = {
        server: 1 + max((r[2] for c in commits for r in c.records), default=0) for server, commits in played.items()
    }
    count = 0
    for server, commits in played.items():
        opened = store.open(made.servers[server].data, made, server)
        conn = opened.db.conn
        conn.execute("BEGIN")
        seq = offset = 0
        rows = []
        for copy in range(copies):
            for each in commits:
                records = (
                    [_later(record, copy * step, copy, numbers) for record in each.records] if copy else each.records
                )
                packed = columns.pack(records)
                first, end = columns.time(records[0]), columns.time(records[-1])
                done = (each.commits, each.rows + 1, each.bytes + len(packed))
                rows.append((seq + 1, len(records), first, end, offset, VERSION, packed, *done))
                seq += len(records)
                offset += len(packed)
            conn.executemany(LOG, summed(rows))
            rows.clear()
        conn.execute("COMMIT")
        opened.close()
        count += seq
    return count


def _later(record: Record, step: int, copy: int, numbers: Mapping[str, int]) -> Record:
    moved = {name: at and at + step for name in STATIONS if (at := getattr(record, name))}
    number = record.number + (copy * numbers[record.origin] if record.origin else 0)
    return record._replace(number=number, **moved)
