"""Replicated servers on a simulated bus, beside plain ones: a fail-over is a restart, whatever machine is lost."""

from collections import Counter

import pytest

from mombroker.sim.replicas.node import ReplicatedNode
from mombroker.sim.seeds import AGENTS, run
from tests import fakes_raft as fakes


def all_clean(seeds: range, program: str = AGENTS, relayouts: bool = False) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, program=program, relayouts=relayouts, replicated=ReplicatedNode)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean(range(8))
    assert counts["takeovers"] > counts["replicated"] + 10
    assert counts["replicas_lost"] == counts["replicas_replaced"] > 2


def test_some_seeds_with_clients_are_clean():
    assert all_clean(range(3), "everything")["takeovers"] > 8


def test_the_domains_change_under_replicated_servers():
    counts = all_clean(range(3), relayouts=True)
    assert counts["relayouts"] > 3 and counts["takeovers"] > counts["replicated"]


def test_a_newcomer_votes_only_once_it_has_rows():
    """Else the loss of the last one that has them, beside a witness, is the loss of the server."""
    assert not run(40158, replicated=ReplicatedNode).wrong


@pytest.mark.parametrize("seed", [27, 29])
def test_a_second_machine_is_lost_only_when_the_first_has_its_place_for_good(seed):
    assert not run(seed, program="everything", replicated=ReplicatedNode).wrong


def test_a_leader_may_begin_so_late_that_a_newer_one_has_decided_something():
    """It leads nobody; what was decided before its own term it has."""
    assert not run(3096, replicated=ReplicatedNode).wrong


def test_a_seed_is_one_run():
    first, again = (run(3, program="queues", replicated=ReplicatedNode) for _ in range(2))
    assert (first.trace, first.counts) == (again.trace, again.counts)


@pytest.mark.long
def test_a_thousand_seeds_are_clean():
    all_clean(range(500))
    for program in ("everything", "queues", "enduringly", "pulls", "moves"):
        all_clean(range(100), program)
    all_clean(range(100), relayouts=True)


class TellsAtOnce(ReplicatedNode):
    replicas = fakes.TellsAtOnce


class AppliesFirst(ReplicatedNode):
    replicas = fakes.WithHostsThatApplyFirst


class SameId(ReplicatedNode):
    replicas = fakes.SameId


class WrongSnapshots(ReplicatedNode):
    replicas = fakes.WithWrongSnapshots


class IgnoresLeases(ReplicatedNode):
    replica = fakes.IgnoresLeases


class LeasedForEver(ReplicatedNode):
    replica = fakes.LeasedForEver


CONTROLS: dict[type[ReplicatedNode], tuple[int, ...]] = {
    TellsAtOnce: (4, 7), AppliesFirst: (7, 10), SameId: (6,), WrongSnapshots: (17, 19),
    IgnoresLeases: (6,), LeasedForEver: (24, 26),
}  # fmt: skip


@pytest.mark.parametrize("broken", CONTROLS)
def test_control(broken):
    assert any(run(seed, replicated=broken).wrong for seed in CONTROLS[broken])
