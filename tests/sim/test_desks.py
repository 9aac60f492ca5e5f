"""Agents that take, send and answer, under faults: the rules are kept, and what breaks one is noticed."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import pytest

from mombroker.broker.authors.consumers import AgentConsumers
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.queue import Queue
from mombroker.core.engine import Engine
from mombroker.core.reaction import Reaction
from mombroker.sim.faults import Faults
from mombroker.sim.seeds import run
from mombroker.sim.world import MS
from tests import fakes_desks as fakes
from tests.fakes_bus import replaced

FAILING = Faults(failing=0.1, latency=MS)
KILLS = Faults(kills=40, latency=MS, down=MS, notice=MS)


class Control(NamedTuple):
    patch: Callable[[], AbstractContextManager[None]]
    seeds: tuple[int, ...]  # that show it
    faults: Faults | None = None


CONTROLS = {
    "acknowledged before the reaction": Control(
        partial(replaced, AgentConsumers, "incoming", fakes.acknowledged_before), (0, 1, 2), FAILING
    ),
    "acknowledged in a later batch": Control(fakes.acknowledged_later, (0, 2, 3), KILLS),
    "a failed reaction acknowledges": Control(
        partial(replaced, Engine, "_give_back", fakes.not_given_back), (0, 1, 2), FAILING
    ),
    "put and published before the commit": Control(
        partial(replaced, Reaction, "put", fakes.sent_at_once), (0, 1, 2), FAILING
    ),
    "what agents have gets no row": Control(
        partial(replaced, QueueMessages, "write", fakes.never_written), (0, 1, 2), FAILING
    ),
    "sent in another order": Control(partial(replaced, Reaction, "apply", fakes.overtaking), (0, 1, 2)),
    "a restart gives back what agents have": Control(
        partial(replaced, Queue, "remote", fakes.given_again), (0, 1, 2), KILLS
    ),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", CONTROLS)
def test_what_is_broken_is_noticed(name):
    control = CONTROLS[name]
    with control.patch():
        shown = any(run(seed, faults=control.faults, program="desks").wrong for seed in control.seeds)
    assert shown, f"nothing was noticed; look for seeds that show it: {name}"


@pytest.mark.parametrize("faults", [FAILING, KILLS])
def test_what_is_not_broken_is_clean_under_the_same_faults(faults):
    for seed in range(3):
        result = run(seed, faults=faults, program="desks")
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])


@pytest.mark.long
def test_a_thousand_seeds_are_clean():
    counts: Counter[str] = Counter()
    for seed in range(1000):
        result = run(seed, program="desks", relayouts=seed % 4 == 3)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    assert counts["orders"] > 10_000 and counts["crashes"] > 2_000
