"""Homes of topics in total order are lost while clients publish and read; each rule of it, broken, must be noticed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mombroker.broker.topic.moving import TopicDeparture
from mombroker.broker.topic.order import Order
from mombroker.broker.topic.topic import Topic
from mombroker.sim.programs import ORDER_HEIRS
from mombroker.sim.seeds import Run, run
from tests import fakes_lost_orders as fakes
from tests.fakes_orders import published_here
from tests.fakes_travels import replaced

DIRECT = ("", "", "matrix", "rst", "ks", "vector")


def ran(seed: int) -> Run:
    return run(seed, backends=DIRECT, losses=True, program=ORDER_HEIRS)


class Control(NamedTuple):
    where: Any
    name: str
    make: Callable[..., Any]
    seed: int  # that shows it
    says: str


CONTROLS = {
    "each server sends out what its clients publish": Control(Order, "total", published_here, 2, "has two orders"),
    "a new home waits for a lost one": Control(Topic, "lost", fakes.waits_for_ever, 2, "still on its way"),
    "a lost new home is invited": Control(TopicDeparture, "lost", fakes.invites_again, 2, "still on its way"),
}


@pytest.mark.long
def test_fifty_seeds_are_clean():
    assert {seed: found for seed in range(50) if (found := ran(seed).wrong)} == {}


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    control = CONTROLS[name]
    clean = ran(control.seed)
    assert clean.wrong == [] and clean.counts["losses"] and clean.counts["ordered"], "clean without the fault"
    with replaced(control.where, control.name, control.make):
        assert any(control.says in line for line in ran(control.seed).wrong)
