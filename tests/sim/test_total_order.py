"""Domains of one total order in a bus under random faults, beside others; each rule broken on purpose."""

from collections import Counter
from random import Random

import pytest

from mombroker.core.domain_channel import DomainChannel
from mombroker.ordering import abcast
from mombroker.sim.domains import draw_domains
from mombroker.sim.faults import POINTS
from mombroker.sim.seeds import run
from tests import fakes_abcast as fakes

TOTAL = ("abcast",)
MIXED = ("abcast", "abcast", "", "matrix", "ks", "vector", "overlay", "daisy")


def all_clean(seeds: range, backends: tuple[str, ...] = TOTAL, **kind: object) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, backends=backends, **kind)  # type: ignore[arg-type]
        assert not result.wrong, "\n".join([f"seed {seed}, {backends}", *result.wrong, *result.tail])
        counts.update(result.deaths)
        counts.update(result.counts)
    return counts


def test_some_seeds_have_one_order():
    counts = all_clean(range(15))
    assert counts["held"] > 100 and sum(counts[point] for point in POINTS) > 30, counts


def test_some_seeds_of_mixed_domains_have_one_order():
    all_clean(range(15, 25), MIXED)


def test_some_seeds_have_one_order_while_the_domains_change():
    assert all_clean(range(8), MIXED, relayouts=True)["relayouts"] > 10
    all_clean(range(7, 8), ("abcast", "abcast", "", "matrix"), relayouts=True)


def test_some_seeds_have_one_order_while_agents_move():
    all_clean(range(6), TOTAL, travels=True)


def test_some_seeds_have_one_order_while_servers_are_lost():
    all_clean(range(8), MIXED, losses=True)


def test_some_seeds_of_clients_have_one_order():
    all_clean(range(6), TOTAL, program="everything")


@pytest.mark.long
def test_five_hundred_seeds_have_one_order():
    all_clean(range(15, 550))
    all_clean(range(25, 50), MIXED)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["relayouts", "losses", "travels", "groups"])
def test_many_seeds_have_one_order_whatever_else_happens(kind):
    all_clean(range(8, 150), MIXED, **{kind: True})


@pytest.mark.long
def test_many_seeds_of_clients_have_one_order():
    all_clean(range(6, 120), MIXED, program="everything")


def test_no_server_is_in_two_domains_that_order_its_own_copies():
    for seed in range(50):
        domains = draw_domains(Random(seed), 12, TOTAL)
        own = [domain for domain in domains.values() if domain.backend == "abcast"]
        assert own and len({member for each in own for member in each.members}) == sum(len(d.members) for d in own)


# -- controls ------------------------------------------------------------------------------------------------------


CONTROLS = [
    (fakes.NoWait, (3, 7, 8)),
    (fakes.Unnumbered, (1, 2, 3)),
    (fakes.TwoHolders, (0, 1, 3)),
    (fakes.NotDurable, (4, 8, 10)),
    (fakes.Silent, (0, 1, 3)),
    (fakes.TooSoon, (0, 1, 3)),
]


@pytest.mark.parametrize(("broken", "seeds"), CONTROLS, ids=[broken.__name__ for broken, _ in CONTROLS])
def test_a_broken_back_end_is_caught(monkeypatch, broken, seeds):
    monkeypatch.setattr(abcast, "Abcast", broken)
    for seed in seeds:
        assert run(seed, backends=TOTAL).wrong, f"seed {seed} does not show it: look for others"


def test_the_one_order_is_judged_by_itself(monkeypatch):
    """Without its number a message is delivered when it comes: causes first mostly, but in two orders."""
    monkeypatch.setattr(abcast, "Abcast", fakes.NoWait)
    assert any("no one order" in line for seed in range(6) for line in run(seed, backends=TOTAL).wrong)


def test_who_is_waited_for_has_room_whatever_is_held(monkeypatch):
    monkeypatch.setattr(DomainChannel, "_await", lambda part, member: None)
    assert any("held" in line for seed in (49, *range(100)) for line in run(seed, backends=("abcast", "matrix")).wrong)
