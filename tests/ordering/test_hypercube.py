"""The folded incomplete hypercube: golden lists, degrees, connectivity, diameter."""

import random
from itertools import combinations

import pytest

from mombroker.ordering.hypercube import connectivity, diameter, flood, host, hypercube, neighbours, reach
from tests.ordering.fakes_overlay import plain_hypercube

GOLDEN = {
    5: [[1, 2, 4], [0, 3, 4], [0, 3, 4], [1, 2], [0, 1, 2]],
    9: [[1, 2, 4, 8], [0, 3, 5, 8], [0, 3, 6, 8], [1, 2, 7], [0, 5, 6, 8], [1, 4, 7], [2, 4, 7], [3, 5, 6],
        [0, 1, 2, 4]],
}  # fmt: skip
TABLE = {5: (2, 3, 2), 9: (3, 4, 3), 17: (4, 5, 4), 33: (5, 6, 5), 65: (6, 7, 6), 100: (7, 8, 7), 129: (7, 8, 7)}
FEW = [*range(2, 131), 200, 255, 256, 257, 512, 513, 1000, 1023, 1024]


def dimensions(n: int) -> int:
    return (n - 1).bit_length()


@pytest.mark.parametrize("n", GOLDEN)
def test_golden_lists(n):
    assert [list(each) for each in hypercube(n)] == GOLDEN[n]


def test_a_hundred_members_have_356_links():
    assert sum(map(len, hypercube(100))) == 2 * 356


@pytest.mark.parametrize("n", TABLE)
def test_golden_degrees_and_connectivity(n):
    graph = hypercube(n)
    degrees = [*map(len, graph)]
    assert (min(degrees), max(degrees), connectivity(graph)) == TABLE[n]


def assert_shape(n: int) -> None:
    graph, d, top = hypercube(n), dimensions(n), 1 << dimensions(n) >> 1
    assert all(u != v and u in graph[v] for u in range(n) for v in graph[u]), "symmetric"
    assert all(len(each) >= d - 1 for each in graph)
    assert all(len(each) == d for each in graph[top:])
    assert all(len(each) <= max(d, 2 * (d - 1)) for each in graph[:top])
    assert diameter(graph) <= d


@pytest.mark.parametrize("n", FEW)
def test_degrees_and_diameter(n):
    assert_shape(n)


@pytest.mark.long
def test_degrees_and_diameter_of_every_size():
    for n in range(2, 1025):
        assert_shape(n)


@pytest.mark.parametrize("bits", range(1, 11))
def test_a_full_cube_is_the_cube(bits):
    n = 1 << bits
    assert all(set(neighbours(u, n)) == {u ^ 1 << bit for bit in range(bits)} for u in range(n))
    assert flood(hypercube(n)) == n * (bits - 1) + 1


def test_connectivity_is_the_least_degree():
    """kappa - 1 members may be down; protocols §5.1 proves D - 1 or more."""
    for n in range(2, 50):
        assert connectivity(hypercube(n)) == min(map(len, hypercube(n))) >= dimensions(n) - 1 + (n == 2)


@pytest.mark.long
def test_connectivity_is_the_least_degree_up_to_200():
    for n in range(50, 201):
        assert connectivity(hypercube(n)) == min(map(len, hypercube(n)))


@pytest.mark.long
@pytest.mark.parametrize("n", sorted({*range(250, 1025, 50), 255, 256, 257, 511, 512, 513, 1023, 1024}))
def test_connectivity_is_the_least_degree_of_large_ones(n):
    assert connectivity(hypercube(n)) == min(map(len, hypercube(n))) >= dimensions(n) - 1


def test_a_cube_that_lacks_members_hangs_by_one_link():
    """The control: without folding, the last of 2^k + 1 members has one neighbour."""
    for n in (5, 9, 17, 33):
        assert connectivity(plain_hypercube(n)) == len(plain_hypercube(n)[-1]) == 1 < connectivity(hypercube(n))


def test_connectivity_of_small_graphs_is_what_trying_all_sets_gives():
    def tried(graph):
        for k in range(len(graph)):
            for down in combinations(range(len(graph)), k):
                rest = [u for u in range(len(graph)) if u not in down]
                if len(rest) == 1 or len(reach(graph, rest[0], down)) < len(rest):
                    return k
        raise AssertionError("one member alone is left at last")

    for seed in range(300):
        lots = random.Random(seed)
        n, density = lots.randrange(1, 9), lots.random()
        graph = [set() for _ in range(n)]
        for u, v in combinations(range(n), 2):
            if lots.random() < density:
                graph[u].add(v)
                graph[v].add(u)
        assert connectivity(graph) == tried(graph)


def test_distances():
    ring = [((u - 1) % 6, (u + 1) % 6) for u in range(6)]
    assert reach(ring, 0) == {0: 0, 5: 1, 1: 1, 4: 2, 2: 2, 3: 3}
    assert reach(ring, 0, {1, 4}) == {0: 0, 5: 1}
    assert diameter(ring) == 3 and connectivity(ring) == 2 and flood(ring) == 7


@pytest.mark.parametrize("n", range(2, 70))
def test_a_newcomer_takes_links_from_its_host_alone(n):
    """§5.3: the newcomer gets D links; its host drops those to the newcomer's upper neighbours; nobody else changes."""
    before, after = hypercube(n), hypercube(n + 1)
    d = dimensions(n + 1)
    lost = {(u, v) for u in range(n) for v in before[u] if v not in after[u]}
    won = {(u, v) for u in range(n + 1) for v in after[u] if u == n or v not in before[u]}
    assert all(n in link for link in won)
    assert len(after[n]) == d and host(n) in after[n]
    top = 1 << d >> 1
    uppers = {v for v in after[n] if v >= top}
    assert lost == {link for v in uppers for link in ((host(n), v), (v, host(n)))}
