"""Each rule of the bus, broken on purpose: the judge must object. A control that passes means that it is blind."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import pytest

from mombroker.core.link import Link
from mombroker.sim.faults import STORM, Faults
from mombroker.sim.node import Node
from mombroker.sim.seeds import run
from tests import fakes_bus as fakes

CALM = Faults()
replaced = fakes.replaced


class Control(NamedTuple):
    node: type[Node]
    patch: Callable[[], AbstractContextManager[None]]
    faults: Faults
    seeds: tuple[int, ...]  # that show it


CONTROLS = {
    "resend of packets that are not committed": Control(
        fakes.ResendsUncommitted,
        partial(replaced, Link, "acknowledged", fakes.ResendsUncommitted.believing),
        STORM,
        (3, 1, 4),
    ),
    "handshake tells the received number in memory": Control(
        Node, partial(replaced, Link, "numbers", fakes.remembering), STORM, (1, 3, 5)
    ),
    "duplicate acknowledged from memory": Control(fakes.AcknowledgesFromMemory, nullcontext, STORM, (6, 5, 4)),
    "received packets blocked by a full out-queue": Control(fakes.Blocked, nullcontext, CALM, (0, 1, 3)),
    "acknowledgements behind paused data": Control(
        Node, partial(replaced, Link, "frames", fakes.behind_data), CALM, (0, 1, 3)
    ),
    "creation by a factory agent that retries": Control(fakes.Retried, nullcontext, CALM, (1, 2, 3)),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    control = CONTROLS[name]
    with control.patch():
        shown = next((seed for seed in control.seeds if run(seed, control.node, control.faults).wrong), None)
    assert shown is not None, "look for other seeds"
    assert run(shown, faults=control.faults).wrong == [], "clean without the fault"


@pytest.mark.long
@pytest.mark.parametrize("name", CONTROLS)
def test_control_shows_within_two_thousand_seeds(name):
    """Not only in the pinned ones: by chance, with the faults that the seeds draw themselves."""
    control = CONTROLS[name]
    assert [run(seed, faults=control.faults).wrong for seed in control.seeds] == [[], [], []], "clean without the fault"
    with control.patch():
        assert any(run(seed, control.node).wrong for seed in range(2000))
