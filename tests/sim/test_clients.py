"""Clients of whole buses under random faults: queues, topics and subscriptions keep what the broker promises."""

from collections import Counter

import pytest

from mombroker.sim.programs import PROGRAMS
from mombroker.sim.seeds import run

SEEDS = {"everything": 12, "queues": 5, "openings": 6, "choices": 6}  # of the others, each about one promise, 8


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
    for what in ("crashes", "breaks", "requests" if program == "operators" else "seen"):
        assert counts[what] > 1.5 * len(seeds), what


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
