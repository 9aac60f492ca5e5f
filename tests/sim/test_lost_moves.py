"""Old and new homes of queues that move are lost; each rule of that, broken on purpose, must be noticed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import Departure
from mombroker.core.names import Names
from mombroker.sim.programs import MOVING_HEIRS
from mombroker.sim.seeds import run
from tests import fakes_lost_moves as fakes
from tests.fakes_travels import replaced

DIRECT = ("", "", "matrix", "rst", "ks", "vector")


def wrong(seed: int) -> list[str]:
    return run(seed, backends=DIRECT, losses=True, program=MOVING_HEIRS).wrong


class Control(NamedTuple):
    where: Any
    name: str
    make: Callable[..., Any]
    seed: int  # that shows it


CONTROLS = {
    "who has lost the new home goes on": Control(Departure, "lost", fakes.goes_on, 7),
    "who has lost the old home waits": Control(Arrival, "lost", fakes.waits_for_ever, 8),
    "what was for a former queue is let in": Control(Arrival, "_early", fakes.takes_all, 29),
    "nobody knows both homes": Control(Names, "_left_to_other", fakes.one_home, 33),
}


@pytest.mark.parametrize("seed", [2, 10, 17, 19, 20, 25, 42, 80, 7025])
def test_some_seeds_are_clean(seed):
    assert wrong(seed) == []


@pytest.mark.long
def test_a_hundred_seeds_are_clean():
    assert {seed: found for seed in range(100) if (found := wrong(seed))} == {}


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    control = CONTROLS[name]
    assert wrong(control.seed) == [], "clean without the fault"
    with replaced(control.where, control.name, control.make):
        assert wrong(control.seed)
