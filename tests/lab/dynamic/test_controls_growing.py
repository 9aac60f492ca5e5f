"""The must-fail controls of protocols §12.2 for an overlay that changes. One that passes means: the judge is blind."""

import pytest

from tests.lab.dynamic import fakes_growing as fakes
from tests.lab.dynamic.growing_world import growth, reconnects
from tests.ordering.test_controls_overlay import fault

# control -> (how it is broken, how it is whole, what it shows, a seed that shows it)
CONTROLS = {
    "a lossy link without exchange": (lambda seed: reconnects(seed, fakes.NoExchange), reconnects, "gap", 0),
    "resent in another order": (lambda seed: reconnects(seed, fakes.SortsResent), reconnects, "unsafe", 0),
    "a newcomer without the log": (lambda seed: growth(seed, fakes.NoLogForNewcomers), growth, "gap", 0),
    "a newcomer without exchange": (lambda seed: growth(seed, fakes.NoExchange), growth, "gap", 0),
}
every_control = pytest.mark.parametrize(("broken", "whole", "shows", "seed"), CONTROLS.values(), ids=[*CONTROLS])


@every_control
def test_a_control_is_caught_by_its_pinned_seed(broken, whole, shows, seed):
    assert fault(broken, seed) == shows
    assert fault(whole, seed) == "fine"


@pytest.mark.long
@every_control
def test_many_seeds_catch_a_control(broken, whole, shows, seed):
    found = sum(fault(broken, seed) != "fine" for seed in range(400))
    assert found > 10
