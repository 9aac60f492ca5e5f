"""Clients of whole buses under random faults: queues, topics and subscriptions keep what the broker promises."""

from collections import Counter

import pytest

from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.sim.clients import Clients
from mombroker.sim.programs import PROGRAMS
from mombroker.sim.seeds import cluster, run
from tests.fakes_bus import replaced
from tests.fakes_clients import paced

SEEDS = {
    "everything": 8,
    "queues": 5,
    "pulls": 5,
    "moves": 5,
    "desks": 5,
    "orders": 5,
    "openings": 6,
    "choices": 4,
    "enduringly": 5,
    "joins": 3,
    "revisions": 5,
    "moving-pulls": 5,
    "moving-desks": 5,
    "moving-sources": 5,
    "protocols": 5,
    "moving-heirs": 5,
}  # of the others, each about one promise, 8


def all_clean(program: str, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, program=program)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


@pytest.mark.parametrize("program", PROGRAMS)
def test_some_seeds_are_clean(program):
    seeds = range(SEEDS.get(program, 8))
    counts = all_clean(program, seeds)
    for what in ("crashes", "breaks", "requests" if program in ("operators", "revisions") else "seen"):
        assert counts[what] > 1.5 * len(seeds), what


@pytest.mark.parametrize("program", ["queues", "pulls"])
def test_queues_that_pause_after_each_message_are_clean(program):
    with replaced(Dispatcher, "give", paced):
        all_clean(program, range(6))


@pytest.mark.parametrize("program", ["everything", "queues", "enduringly", "pulls"])
def test_on_some_seeds_policies_are_set_while_messages_wait(program):
    """On some of these, messages may come to nothing by that; on most seeds, nobody touches them."""
    works = [cluster(seed, program=program).workload for seed in range(40)]
    drawn = [work.drawn for work in works if isinstance(work, Clients)]
    assert [sum(bool(each) for each in them) > 2 for them in (
        [each.changes for each in drawn], [each.lossy for each in drawn], [not each.queues for each in drawn],
        [each.queues and not each.lossy for each in drawn],
    )] == [True] * 4  # fmt: skip


def test_seeds_that_have_failed_are_clean():
    """306: what came too late for a former consumer was taken for its session's new one."""
    all_clean("enduringly", range(306, 307))


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_thousand_seeds_are_clean(program):
    all_clean(program, range(2000))


def test_the_same_seed_gives_the_same_trace():
    for program in ("everything", "requests"):
        assert run(5, program=program).trace == run(5, program=program).trace
