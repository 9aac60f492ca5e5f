"""A disk damages rows of messages, while all else goes wrong too: they are set aside once, and all others are whole."""

from collections import Counter
from itertools import takewhile
from typing import Any
from unittest.mock import patch

import pytest

from mombroker.core.batch import Damage
from mombroker.core.damage import Aside
from mombroker.sim.faults import STORM, Faults
from mombroker.sim.seeds import run
from mombroker.sim.world import MS
from mombroker.store.memory import MemoryStore

take = Aside._take
DAMAGES = Faults(points={"in commit": 0.05, "half sent": 0.05}, crashes=6, kills=3, breaks=3, damage=60, down=20 * MS)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 600), marks=pytest.mark.long)])
@pytest.mark.parametrize("program", ["everything", "queues", "choices"])
def test_a_damaged_row_is_set_aside_once_and_nobody_else_loses_anything(seeds, program):
    counts: Counter[str] = Counter()
    for seed in seeds:
        done = run(seed, faults=DAMAGES, program=program)
        assert done.wrong == [], (seed, done.wrong)
        counts.update(done.counts)
    assert counts["damaged"] > 5 * len(seeds) and counts["aside"] > len(seeds)


def nothing_after(store: MemoryStore, table: str, ids: Any) -> list[int]:
    """Take a damaged row for the end."""
    return list(takewhile(lambda id: not store._bad(table, id), ids))


def take_twice(aside: Aside, damage: Damage) -> None:
    take(aside, damage)
    take(aside, damage)


def lose(aside: Aside) -> None:
    aside.server.reader.damaged.clear()


@pytest.mark.parametrize("owner, name, broken", [
    (MemoryStore, "_bad", lambda store, table, id: False),  # it is delivered
    (MemoryStore, "_good", nothing_after), (Aside, "take", lose),
    (Aside, "_take", take_twice),
])  # fmt: skip
def test_a_server_that_takes_damage_in_another_way_is_noticed(owner, name, broken):
    with patch.object(owner, name, broken):
        assert any(run(seed, faults=DAMAGES, program="everything").wrong for seed in range(60))
    assert STORM.damage == Faults().damage == 0
