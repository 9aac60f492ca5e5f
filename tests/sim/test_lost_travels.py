"""Servers are lost while agents move from and to them; each rule of that, broken on purpose, must be noticed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mombroker.core.departures import Departures
from mombroker.core.server import AgentServer
from mombroker.sim.seeds import run
from tests import fakes_lost_travels as fakes
from tests.fakes_travels import replaced


class Control(NamedTuple):
    where: Any
    name: str
    make: Callable[..., Any]
    seed: int  # that shows it


CONTROLS = {
    "who takes it hears nothing": Control(Departures, "_nothing", fakes.waits_for_ever, 16),
    "what is left of it goes on": Control(Departures, "left", fakes.stays_in_pieces, 46),
    "its successor has its agents": Control(AgentServer, "_lost", fakes.moved_to_the_lost_one, 11),
}


def test_some_seeds_are_clean():
    for seed in range(16):
        assert run(seed, losses=True, travels=True).wrong == []


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    control = CONTROLS[name]
    assert run(control.seed, losses=True, travels=True).wrong == [], "clean without the fault"
    with replaced(control.where, control.name, control.make):
        assert run(control.seed, losses=True, travels=True).wrong
