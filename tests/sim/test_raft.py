"""Replicas under random mishaps: the properties of Raft hold after every step, and each broken rule shows."""

from __future__ import annotations

from collections import Counter as Counts
from typing import Any

import pytest

from tests import fakes_raft as fakes
from tests.sim.raft_world import Counter, Coups


def all_clean(seeds: range) -> Counts[str]:
    counts: Counts[str] = Counts()
    for seed in seeds:
        run = Counter(seed)
        assert run.run() == [], f"seed {seed}"
        counts.update(run.group.counts)
        counts["decided"] += len(run.decisions)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean(range(16, 32))
    assert counts["takeovers"] > 40 and counts["replicas_replaced"] == counts["replicas_lost"] > 5
    assert min(counts[what] for what in ("replicas_added", "replicas_removed", "disks_filled", "transfers")) > 0
    assert counts["decided"] > 3_000


def test_who_was_just_elected_is_cut_off_and_its_voters_crash():
    for seed in range(8):
        assert Counter(seed, mishaps=Coups).run() == [], f"seed {seed}"


def test_a_seed_is_one_run():
    def digest() -> int:
        run = Counter(5)
        run.run()
        return run.digest()

    assert digest() == digest()


@pytest.mark.long
def test_two_thousand_seeds_are_clean():
    all_clean(range(2000))


CONTROLS: dict[str, tuple[dict[str, Any], str, tuple[int, ...]]] = {
    "votes while a leader relies on it": ({"replica": fakes.IgnoresLeases}, "has a lease in term", (17,)),
    "leased for ever": ({"replica": fakes.LeasedForEver}, "has a lease in term", (3, 5)),
    "counts what is not written": ({"replica": fakes.CountsUnwritten}, "is decided, and on", (0, 1)),
    "votes for any log": ({"replica": fakes.VotesForAnyLog}, "leader completeness", (4, 6)),
    "a snapshot takes entries back": ({"replica": fakes.DropsItsTail}, "is decided, and on", (18, 23)),
    "a lost disk under its old id": ({"group": fakes.SameId}, "is decided, and on", (5, 23)),
    "snapshot and tail do not meet": ({"group": fakes.WithWrongSnapshots}, "the rows of", (2, 3)),
    "apply before append": ({"group": fakes.WithHostsThatApplyFirst}, "the log is cut behind what is decided", (0, 1)),
    "outputs before a majority": ({"group": fakes.TellsAtOnce}, "that were told are lost", (4, 5)),
    "a vote is not synced": ({"group": fakes.WithVotesThatAreNotSynced, "mishaps": Coups}, "election safety", (2, 5)),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    broken, says, seeds = CONTROLS[name]
    assert any(says in line for seed in seeds for line in wrong(Counter(seed, **broken)))


def wrong(run: Counter) -> list[str]:
    try:
        return run.run()
    except AssertionError as error:
        return [str(error)]
