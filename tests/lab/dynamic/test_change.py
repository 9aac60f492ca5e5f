"""A change under load, by the paper's protocol and by the freeze: both are clean, and what is broken is caught."""

from collections import deque
from dataclasses import replace

import pytest

from mombroker.lab.dynamic import change as changes
from mombroker.lab.dynamic.change import CHANGES, DAISY, OVERLAY, WAYS, Wrong, course, measure
from mombroker.lab.dynamic.course import Course, Load
from mombroker.lab.dynamic.freezing import Frozen
from mombroker.ordering.groups import even
from mombroker.ordering.hypercube import hypercube
from mombroker.sim.world import MS

LOAD = Load(1, 100 * MS, 100, 20 * MS)
BUSY = replace(LOAD, gap=20 * MS)
every_change = pytest.mark.parametrize("change", CHANGES)


class Hasty(Frozen):
    """Does not wait for what is under way: under load, and without a gate, there is always something."""

    def look(self, me):
        self.under_way[me] = 0
        super().look(me)


class NoMarks(Hasty):
    """Who delivers FREEZE switches."""

    marks = False


class NoGate(Hasty):
    """What is sent after the mark goes on in the old domains."""

    def _say(self, me, dests, what, size):
        self._stamp(me, dests, what, size)


class Backwards(deque):
    append = deque.appendleft


class LastFirst(Frozen):
    """Lets in what waits in the other order."""

    def close(self, me):
        super().close(me)
        self.gates[me] = Backwards()


@every_change
@pytest.mark.parametrize("way", WAYS)
def test_a_change_under_load_is_causal_and_loses_nothing(change, way):
    figures = measure(change, way, 7, LOAD, 2)
    assert figures.took > 0 and figures.packets > 0 and figures.bytes > 10 * figures.packets
    assert figures.p99_before <= figures.slowest and figures.p99 <= figures.slowest


@every_change
def test_the_same_seed_gives_the_same_run(change):
    for way in WAYS:
        runs = [course(change, way, 6, LOAD) for _ in range(2)]
        for run in runs:
            run.play()
        assert runs[0].events == runs[1].events and runs[0].figures() == runs[1].figures()


def test_a_freeze_pauses_all_and_a_join_by_the_overlay_nobody():
    assert measure("join", "freeze", 8, LOAD).paused == 9
    assert measure("join", "protocol", 8, LOAD).paused == 0


def test_a_group_is_after_the_change_what_was_asked_for():
    for change in DAISY:
        run = course(change, "protocol", 9, LOAD)
        run.play()
        groups = run.coordinator.groups  # type: ignore[attr-defined]
        _, after, connectors = changes.plan(change, even(9))
        assert sorted(sorted(each.members) for each in groups.values() if each.leaf) == sorted(map(sorted, after))
        assert set(connectors) <= groups[0].members
    for change in OVERLAY:
        run = course(change, "protocol", 9, LOAD)
        run.play()
        size = 10 if change == "join" else 8
        near = {me: core.neighbours for me, core in run.cores.items()}  # type: ignore[attr-defined]
        assert near == dict(enumerate(hypercube(size)))


def broken(kind: type[Frozen], seed: int) -> Course:
    run = course("join", "freeze", 8, replace(BUSY, seed=seed))
    run.__class__ = kind
    return run


@pytest.mark.parametrize("kind", [NoMarks, NoGate, LastFirst])
def test_a_freeze_that_is_broken_is_caught(kind):
    def fails(seed: int) -> bool:
        run = broken(kind, seed)
        try:
            run.play()
        except (AssertionError, ValueError):
            return True
        verdict = run.verdict()
        return bool(verdict.violations or verdict.lost or verdict.duplicates)

    assert any(fails(seed) for seed in range(6))


def test_a_wrong_run_is_told_with_its_seed(monkeypatch):
    monkeypatch.setattr(changes, "course", lambda change, way, members, load: broken(LastFirst, load.seed))
    with pytest.raises(Wrong, match=r"join by freeze, seed \d"):
        measure("join", "freeze", 8, BUSY, 6)
