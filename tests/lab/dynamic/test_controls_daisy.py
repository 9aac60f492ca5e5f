"""The must-fail controls of protocols §12.2 for changes of the daisy. One that passes means that the judge is blind."""

import pytest

from tests.lab.dynamic import daisy_world as world
from tests.lab.dynamic import fakes_daisy as fakes

# control -> (what happens, how it is broken, how it is whole, kinds of faults, a seed that shows it)
CONTROLS = {
    "a split without the marker": (world.split, {"backend": fakes.NoMarker}, {}, "order", 14),
    "a split by the letter of the paper": (world.split, {"coordinator": fakes.LiteralSplit}, {}, "lost", 8),
    "a vacant seat that does not count": (world.crash, {"backend": fakes.VacantIsStable}, {}, "order", 0),
    "eager relays, and several losses with what is on their links": (
        world.concurrent, {"relay": "eager", "harsh": True}, {"relay": "stable", "harsh": True}, "order", 38,
    ),
    "delivered and passed on in two transactions": (
        world.calm, {"backend": fakes.SeparateCommits, "restarts": 0.05}, {"restarts": 0.05}, "order", 0,
    ),
}  # fmt: skip
every_control = pytest.mark.parametrize(
    ("kind", "broken", "whole", "shows", "seed"), CONTROLS.values(), ids=[*CONTROLS]
)


@every_control
def test_a_control_is_caught_by_its_pinned_seed(kind, broken, whole, shows, seed):
    found = world.run(seed, kind, **broken)
    assert shows in [fault.split()[0] for fault in found]
    assert world.run(seed, kind, **whole) == []


@pytest.mark.long
@every_control
def test_many_seeds_catch_a_control(kind, broken, whole, shows, seed):
    assert sum(world.run(seed, kind, **broken) != [] for seed in range(400)) > 3
