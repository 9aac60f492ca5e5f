"""Clocks that are off are found from the quickest packets both ways, and no others."""

import random

import pytest

from mombroker.admin.analysis import clocks

MS = 1_000_000


def quickest(edges, off=(), asymmetry=0.0, seed=1):
    """Of each way the quickest packet, as clocks that are `off` show it."""
    chance, known, found = random.Random(seed), dict(off), {}
    for a, b in edges:
        took = chance.uniform(1, 20) * MS
        for one, other in ((a, b), (b, a)):
            true = took * (1 + chance.uniform(-asymmetry, asymmetry))
            found[one, other] = int(true + known.get(other, 0) - known.get(one, 0))
    return found


RING = [(f"s{at}", f"s{(at + 1) % 8}") for at in range(8)]


def test_clocks_that_agree_are_left_alone_though_ways_are_not_equally_quick():
    assert clocks.ahead(quickest(RING, asymmetry=0.9)) == {}


def test_clocks_that_are_off_are_found_by_how_much():
    off = {"s2": -120 * MS, "s5": 40 * MS}
    found = clocks.ahead(quickest(RING, off))
    assert found.keys() == off.keys() and all(abs(found[name].ahead - off[name]) <= 1 for name in off)


@pytest.mark.parametrize("asymmetry", [0.2, 0.9])
def test_what_is_wrong_by_it_is_half_of_what_the_ways_differ_by_and_never_more_than_is_told(asymmetry):
    off = {"s2": -120 * MS, "s3": -119 * MS, "s5": 400 * MS}
    chords = [(f"s{at}", f"s{(at + 3) % 8}") for at in range(8)]
    for seed in range(100):
        found = clocks.ahead(quickest([*RING, *chords], off, asymmetry, seed))
        assert found.keys() == off.keys()
        for name, clock in found.items():
            assert abs(clock.ahead - off[name]) <= clock.within <= 20 * MS
            assert abs(clock.ahead - off[name]) <= 20 * MS * asymmetry


def test_a_clock_is_known_as_well_as_the_quickest_packets_to_it_and_from_it_allow_over_whatever_links():
    """To b they are quick over a, from b over c: each way by itself leaves much, both together little."""
    took = {("a", "b"): 1, ("b", "a"): 30, ("c", "b"): 30, ("b", "c"): 1, ("a", "c"): 1, ("c", "a"): 1}
    off = {"b": 100 * MS}
    seen = {(x, y): ms * MS + off.get(y, 0) - off.get(x, 0) for (x, y), ms in took.items()}
    assert clocks.ahead(seen) == {"b": (100 * MS, MS)}


def test_a_clock_that_was_set_while_the_log_was_written_ends_no_search():
    assert clocks.ahead({("a", "b"): -50 * MS, ("b", "a"): -60 * MS, ("b", "c"): MS, ("c", "b"): MS})


def test_a_whole_part_that_is_off_is_told_against_the_larger_one():
    line = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    found = clocks.ahead(quickest(line, {"d": 100 * MS, "e": 100 * MS}))
    assert found.keys() == {"d", "e"} and all(abs(each.ahead - 100 * MS) <= 1 for each in found.values())


def test_of_one_way_alone_the_least_is_known():
    found = clocks.ahead({("a", "b"): -50 * MS, ("b", "c"): 5 * MS})
    assert found in ({"a": (50 * MS, None)}, {"b": (-50 * MS, None), "c": (-45 * MS, None)})
    assert clocks.ahead({("a", "b"): 50 * MS}) == {} == clocks.ahead({})
