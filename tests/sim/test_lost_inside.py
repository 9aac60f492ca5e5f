"""Servers die with their disks in the middle of a change of the domains, which is given up or carried out without them;
each rule of that, broken on purpose."""

from collections import Counter
from unittest.mock import patch

import pytest

from mombroker.core import lost_inside, undelivered
from mombroker.sim.seeds import run
from tests import fakes_lost_inside as fakes

DIRECT = ("", "", "matrix", "rst", "ks", "vector")
RELAYING = ("overlay", "daisy")
ENDED = 259  # in which some cannot switch by themselves, and are told to


def all_clean(seeds, backends):
    counts = Counter()
    for seed in seeds:
        result = run(seed, backends=backends, relayouts=True, losses=True)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


def test_some_seeds_are_clean():
    counts = all_clean((13, 113, 232, ENDED), DIRECT)
    assert counts["in_change"] and counts["told"] and counts["came_back"]


def test_who_has_switched_does_not_declare_a_loss_that_has_not_begun_there():
    """Else what a successor is told first is lost when it begins."""
    all_clean((325, 345), DIRECT)


def test_one_that_comes_back_and_lets_a_change_begin_is_lost_in_that():
    """And a loss that had been asked for before does not begin in it."""
    all_clean((239,), DIRECT)


def test_a_copy_for_one_that_has_left_is_told_too_though_nobody_knows_its_way_any_more():
    all_clean((312,), DIRECT)
    with patch.object(undelivered, "copies", fakes.only_who_is_there(undelivered.copies)):
        assert run(312, backends=DIRECT, relayouts=True, losses=True).wrong


@pytest.mark.long
def test_two_hundred_seeds_are_clean():
    assert all_clean(range(150), DIRECT)["in_change"] > 10
    assert all_clean(range(60), RELAYING)["in_change"] > 5


CONTROLS = {
    "ended with packets under way": (lost_inside, "_quiet", fakes.never_quiet),
    "nobody is told of what was under way": (undelivered, "without", fakes.nobody_is_told),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control(name):
    where, method, make = CONTROLS[name]
    with patch.object(where, method, make(getattr(where, method))):
        assert run(ENDED, backends=DIRECT, relayouts=True, losses=True).wrong
