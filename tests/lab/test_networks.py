"""Networks whose delays depend on what else is under way, and on where members are."""

from functools import partial
from random import Random
from statistics import fmean

import pytest

from mombroker.lab import links
from mombroker.lab.campus import BUILDING, CAMPUS, LAN, Routed, Tiers
from mombroker.lab.networks import Multicast, Physical, Uniform, density, random_graph, tree
from mombroker.sim.world import EPOCH, MS, World

LINE = [[1], [0, 2], [1, 3], [2]]
BYTE = 800  # ns, at 10 Mbit/s


@pytest.fixture
def world():
    return World(1)


def made(world, near=LINE, kind=Physical, **more):
    """With links that take no time of their own."""
    return kind(world, near, Random(1), delay=1, **more)


def noted(world):
    came = []
    return came, lambda name: came.append((name, world.now - EPOCH))


def test_each_node_stores_and_forwards(world):
    """Three links, each for as long as the bytes with their header take."""
    network, (came, note) = made(world), noted(world)
    network.carry(0, 3, 100, note, "a")
    world.run()
    assert came == [("a", 3 * 132 * BYTE)]
    assert (network.messages, network.bytes, network.hops) == (1, 132, 3)


def test_packets_wait_for_those_before_them_on_a_link(world):
    network, (came, note) = made(world), noted(world)
    for name in "abc":
        network.carry(0, 1, 100, note, name)
    network.carry(1, 0, 100, note, "other way")
    world.run()
    assert came == [("a", 132 * BYTE), ("other way", 132 * BYTE), ("b", 264 * BYTE), ("c", 396 * BYTE)]
    found = network.queues(396 * BYTE)
    assert found["queue"] == pytest.approx((1 + 2 + 3 + 1) * 132 * BYTE / (396 * BYTE) / 6)
    assert found["queue_bytes"] == pytest.approx(132 * found["queue"])
    assert (found["queue_most"], found["queue_most_bytes"]) == (3, 396)


def test_a_large_message_is_cut_and_its_fragments_follow_each_other(world):
    """A message of nothing has a fragment, too. The second fragment is on the first link while the first is on the
    second, so that only the larger one counts twice."""
    network, (came, note) = made(world), noted(world)
    assert [network.cut(size) for size in (0, 1, 1500, 1501)] == [[32], [33], [1532], [1532, 33]]
    network.messages = network.bytes = 0
    network.carry(0, 2, 1600, note, "a")
    world.run()
    assert came == [("a", (2 * 1532 + 132) * BYTE)]
    assert (network.messages, network.bytes, network.hops) == (2, 1664, 4)


def test_a_multicast_takes_each_link_once_and_counts_for_each_receiver(world):
    star = [[1], [0, 2, 3], [1], [1]]
    network, (came, note) = made(world, star, Multicast), noted(world)
    network.cast(0, 100, note, {2: ("c",), 3: ("d",)})
    world.run()
    assert came == [("c", 264 * BYTE), ("d", 264 * BYTE)]
    assert (network.messages, network.bytes, network.hops) == (2, 264, 3)


def test_a_path_is_shortest_and_always_the_same(world):
    near = random_graph(Random(3), 60, density(60))
    network = made(world, near)
    for u in range(0, 60, 7):
        far = {u: 0}
        for v in far_first(near, u):
            far[v] = far[tree(near, u, Random(0))[v]] + 1
        for v in range(60):
            assert len(network.path(u, v)) == far[v] and network.path(u, v) is network.path(u, v)


def test_of_several_shortest_paths_each_carries_its_part(world):
    """Two ways lead to each of 200 nodes: all over the first would take twice as long."""
    near = [[1, 2], [0, *range(3, 203)], [0, *range(3, 203)], *([1, 2] for _ in range(200))]
    network = made(world, near)
    first = sum(network.path(0, node)[0].to == 1 for node in range(3, 203))
    assert 70 < first < 130


def far_first(near, root):
    """All other nodes, the near ones first."""
    found = [root]
    for node in found:
        found += [other for other in near[node] if other not in found]
    return found[1:]


def test_a_random_graph_is_whole_and_about_as_dense_as_asked():
    for seed in range(5):
        near = random_graph(Random(seed), 200, density(200))
        assert len(far_first(near, 0)) == 199 and all(u in near[v] for u, each in enumerate(near) for v in each)
        assert fmean(map(len, near)) == pytest.approx(density(200) * 199, rel=0.15)
    lonely = random_graph(Random(1), 10, 0.0)
    assert sum(map(len, lonely)) == 2 * 9 and len(far_first(lonely, 0)) == 9
    assert (density(100), density(600)) == (0.04, pytest.approx(0.0128, rel=0.01))


def test_uniform_delays_keep_the_order_of_a_link(world):
    network, (came, note) = Uniform(world, MS, 3 * MS), noted(world)
    for number in range(100):
        network.carry(0, 1, 0, note, number)
    world.run()
    assert [number for number, _ in came] == list(range(100))
    assert MS <= came[0][1] and came[-1][1] <= 3 * MS


ROUTED = {1: 2 * LAN + BUILDING, 6: LAN, 21: 2 * LAN + BUILDING + CAMPUS, 26: 2 * LAN + 2 * BUILDING + CAMPUS}


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (Tiers, {1: BUILDING, 6: LAN, 21: CAMPUS, 26: CAMPUS}),
        (partial(Routed, joined=True), ROUTED),
        (Routed, ROUTED | {21: ROUTED[26]}),
    ],
)
def test_hops_of_a_campus(network, expected):
    """LANs of 5, buildings of 20. With routers in between a packet takes all hops on its way, without only one; the
    router to the campus is one of its own, or that of the building's first LAN."""
    world = World(1)
    network, means = network(world, Random(1), 5, 20, 10**12), {}
    for to in (1, 6, 21, 26):
        came = []
        for _ in range(4000):
            begin = world.now
            network.carry(5, to, 0, came.append, begin)
            world.run()
            came[-1] = world.now - begin
        means[to] = fmean(came)
    assert means == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("joined", [False, True])
def test_copies_share_the_hops_before_their_ways_part(joined):
    """Two members of one far LAN have it at the same moment; those of two far LANs, not on the campus, as far apart
    as two hops over a building are: they share the campus."""
    world, apart = World(1), []
    network = Routed(world, Random(1), 5, 20, 10**8, joined)
    for _ in range(2000):
        came = {}
        network.cast(0, 100, lambda to, came=came: came.update({to: world.now}), {to: (to,) for to in (46, 47, 51, 52)})
        world.run()
        assert came[46] == came[47] and came[51] == came[52]
        apart.append(abs(came[46] - came[51]))
    assert fmean(apart) == pytest.approx(BUILDING, rel=0.1)


def test_what_is_too_early_waits_for_those_before_it():
    """Two members of different buildings: bare, packets overtake each other; in order, none does."""

    def come(wrap):
        world, got = World(1), []
        network = wrap(Tiers(world, Random(1), 1, 1, 10**7))
        for number in range(200):
            network.carry(0, 1, 100, got.append, number)
        world.run()
        return got

    assert come(links.InOrder) == list(range(200)) != come(lambda network: network)


def test_measured_delays_are_taken_in_turn():
    world, got = World(1), []
    network = links.Measured(world, ["a", "b", "c"], {("a", "b"): [5 * MS, 3 * MS], ("b", "c"): [9 * MS]})
    for frm, to in ((0, 1), (0, 1), (1, 0), (2, 1), (0, 2)):
        network.carry(frm, to, 0, lambda *link: got.append((*link, (world.now - EPOCH) // MS)), frm, to)
    world.run()
    assert got == [(0, 1, 5), (0, 1, 5), (1, 0, 5), (0, 2, 5), (2, 1, 9)]
