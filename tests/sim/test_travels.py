"""Agents move under load and faults: each rule of that, broken on purpose, must be noticed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import pytest

from mombroker.core.arrivals import Arrivals
from mombroker.core.departures import Departures
from mombroker.core.homes import Homes
from mombroker.core.timers import Timers
from mombroker.sim.seeds import run
from tests import fakes_travels as fakes

replaced = fakes.replaced


class Control(NamedTuple):
    patch: Callable[[], AbstractContextManager[None]]
    seeds: tuple[int, ...]  # that show it


CONTROLS = {
    "what is sent directly does not wait": Control(
        partial(replaced, Arrivals, "admit", fakes.not_behind_the_end), (4, 6, 8)
    ),
    "passed, and the table is late": Control(partial(replaced, Homes, "_relocated", fakes.passes_before), (1, 2, 4)),
    "its state is moved twice": Control(partial(replaced, Departures, "_gone", fakes.stays_too), (1, 2, 4)),
    "it goes on while it leaves": Control(
        partial(replaced, Departures, "_freeze", fakes.goes_on_while_it_leaves), (4, 8, 14)
    ),
    "it leaves without its inbox": Control(
        partial(replaced, Departures, "_pieces", fakes.leaves_without_its_inbox), (30, 35, 86)
    ),
    "it reacts before all is here": Control(
        partial(replaced, Arrivals, "_hold", fakes.reacts_before_all_is_here), (86,)
    ),
    "timers by the ids of here": Control(
        partial(replaced, Timers, "cancel", fakes.brought_ids_are_those_of_here), (4, 39, 49)
    ),
    "items by the ids of here": Control(fakes.items_without_their_ids, (4, 14, 31)),
}


@pytest.mark.parametrize("relayouts", (False, True))
def test_agents_move_while_they_work(relayouts):
    runs = [run(seed, relayouts=relayouts, travels=True) for seed in range(8 if relayouts else 20)]
    assert [result.wrong for result in runs] == [[]] * len(runs)
    assert sum(result.counts["agent_moves"] for result in runs) > 20


@pytest.mark.interpreted
@pytest.mark.parametrize("some", [slice(1), pytest.param(slice(1, None), marks=pytest.mark.long)], ids=["one", "rest"])
@pytest.mark.parametrize("name", CONTROLS)
def test_control(name, some):
    control = CONTROLS[name]
    for seed in control.seeds[some]:
        assert run(seed, travels=True).wrong == [], "clean without the fault"
        with control.patch():
            assert run(seed, travels=True).wrong, f"seed {seed} does not show it: look for others"


@pytest.mark.long
@pytest.mark.parametrize("relayouts", (False, True))
def test_a_thousand_seeds(relayouts):
    assert not [seed for seed in range(1000) if run(seed, relayouts=relayouts, travels=True).wrong]
