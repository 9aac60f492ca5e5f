"""Clocks that are off are found from the quickest packets both ways, and no others."""

import random

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
    assert found.keys() == off.keys() and all(abs(found[name] - off[name]) <= 1 for name in off)


def test_what_is_wrong_by_it_is_half_of_what_the_ways_differ_by():
    off = {"s2": -120 * MS, "s5": 400 * MS}
    for seed in range(50):
        found = clocks.ahead(quickest(RING, off, 0.2, seed))
        assert found.keys() == off.keys() and all(abs(found[name] - off[name]) <= 4 * MS for name in off)


def test_a_whole_part_that_is_off_is_told_against_the_larger_one():
    line = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    found = clocks.ahead(quickest(line, {"d": 100 * MS, "e": 100 * MS}))
    assert found.keys() == {"d", "e"} and all(abs(each - 100 * MS) <= 1 for each in found.values())


def test_of_one_way_alone_the_least_is_known():
    assert clocks.ahead({("a", "b"): -50 * MS, ("b", "c"): 5 * MS}) in ({"a": 50 * MS}, {"b": -50 * MS, "c": -50 * MS})
    assert clocks.ahead({("a", "b"): 50 * MS}) == {} == clocks.ahead({})
