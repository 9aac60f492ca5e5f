"""A neighbour says what cannot be, now and then, while all else goes wrong too: nothing is lost or done twice."""

from unittest.mock import patch

import pytest

from mombroker.core.channel import Channel
from mombroker.core.neighbours import Neighbours
from mombroker.sim.faults import STORM, Faults
from mombroker.sim.seeds import run
from mombroker.sim.world import MS

LIARS = Faults(points={"in commit": 0.05, "half sent": 0.05}, crashes=6, breaks=5, lies=60, down=5 * MS)
BACKENDS = ("matrix", "rst", "ks", "vector", "overlay", "daisy")


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 300), marks=pytest.mark.long)])
@pytest.mark.parametrize("program", ["agents", "everything"])
def test_lies_of_a_neighbour_end_its_connection_and_nothing_else(seeds, program):
    lies = 0
    for seed in seeds:
        done = run(seed, faults=LIARS, backends=BACKENDS, program=program)
        assert done.wrong == [], (seed, done.wrong)
        lies += done.counts["lies"]
    assert lies > 10 * len(seeds)


def test_a_server_that_believes_its_neighbour_is_noticed():
    with patch.object(Channel, "_check", lambda *_: None):
        assert any("believed" in line for seed in range(5) for line in run(seed, faults=LIARS).wrong)
    with patch.object(Neighbours, "admit", lambda *_: None):
        assert any("judged wrongly" in line for seed in range(5) for line in run(seed, faults=LIARS).wrong)
    assert STORM.lies == 0
