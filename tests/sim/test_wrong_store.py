"""A server that comes back with a new disk, or with an old copy of its own: refused, by name, with the remedy."""

import re

import pytest

from mombroker.core.topology import Domain, Server, Topology
from mombroker.sim.checkers import judge
from mombroker.sim.faults import BACKUP, NEW_DISK, Faults
from mombroker.sim.mischief import Trial
from mombroker.sim.workloads import HERE, Wander
from mombroker.sim.world import SECOND, World

LEAF, ROUTER = "s1", "s2"


def bus(kind: str, victim: str) -> Trial:
    world = World(5)
    names = [f"s{n}" for n in range(5)]
    workload = Wander(world.rng, 300)
    topology = Topology(
        "sim",
        servers={name: Server(name, "127.0.0.1", 2000 + at, None, name) for at, name in enumerate(names)},
        domains={"d0": Domain("d0", ("s0", "s1", "s2")), "d1": Domain("d1", ("s2", "s3", "s4"))},
        agents=workload.agents(names, world.rng),
        registry="s0",
        allow=(HERE,),
    )
    return Trial(world, topology, Faults(impostor=kind, victim=victim), workload)


@pytest.mark.parametrize("kind, victim, neighbours", [
    (NEW_DISK, LEAF, 2), (NEW_DISK, ROUTER, 4), (BACKUP, LEAF, 2), (BACKUP, ROUTER, 3)
])  # fmt: skip
def test_a_wrong_store_is_refused_by_all_that_must_know(kind, victim, neighbours):
    """All others go on; and when the right store is back, nothing is lost."""
    cluster = bus(kind, victim)
    assert cluster.run(SECOND) == []
    assert cluster.mischief.masked is cluster.nodes[victim]
    assert len(cluster.mischief.refusing) == neighbours
    said = cluster.mischief.said
    assert len(said) == 2 * neighbours, "both sides say so"
    reason = rf"the store of {victim} (is not the one that s\d knew|was wiped or restored from an old copy)"
    assert all(re.search(reason, line) and f"run `mom domain reset` for {victim}" in line for line in said)
    assert any("packets wait for it here" in line for line in said)
    assert judge(cluster)[0] == []
