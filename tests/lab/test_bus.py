"""Several domains in the laboratory: messages find their way, in causal order from end to end."""

from random import Random

import pytest

from mombroker.core.layouts import build, generate
from mombroker.core.topology import RoutingTable
from mombroker.lab.bus import Bus
from mombroker.lab.networks import Exponential
from mombroker.lab.observers import Control, Written
from mombroker.sim.world import EPOCH, MS, World


def played(topology, seed=1, sends=60, backends=None, observers_of=lambda domain: ()):
    """Every server sends at random to random others. The bus after it, and (what, server, number) in order."""
    world, lots, rows = World(seed), Random(seed), []
    network = Exponential(world, 20 * MS)
    bus = Bus(world, topology, lambda domain: network, observers_of, backends)
    bus.on_arrival = lambda number, origin, me: rows.append(("deliver", me, number))
    servers = range(len(bus.names))

    def send(me):
        others = [k for k in servers if k != me]
        rows.append(("send", me, bus.send(me, lots.sample(others, lots.randrange(1, len(others))))))

    for _ in range(sends):
        world.after(lots.randrange(500 * MS), send, lots.choice(servers))
    bus.finish()
    return bus, rows


def causal(rows):
    past, known, got = {}, {}, {}
    for what, me, number in rows:
        mine = known.setdefault(me, set())
        if what == "send":
            past[number] = set(mine)
        else:
            got.setdefault(me, []).append(number)
            mine |= past[number]
        mine.add(number)
    return all(
        b not in past[a] for order in got.values() for at, a in enumerate(order) for b in order[at + 1 :]
    )  # fmt: skip


@pytest.mark.parametrize("layout", ["bus", "chain", "tree", "flat"])
def test_order_holds_from_end_to_end(layout):
    bus, rows = played(generate(layout, 9))
    assert causal(rows) and len(bus.delays) == sum(map(len, bus.finals))
    assert rows == played(generate(layout, 9))[1] != played(generate(layout, 9), seed=2)[1]


@pytest.mark.parametrize("backend", ["ks", "rst", "vector", "overlay", "daisy"])
def test_other_back_ends_in_the_place_of_those_of_the_topology(backend):
    topology = generate("bus", 9)
    bus, rows = played(topology, backends=dict.fromkeys(topology.domains, backend))
    assert causal(rows) and {domain.members.backend for domain in bus.domains.values()} == {backend}


def test_the_check_sees_what_comes_the_other_way_round():
    """A ring of domains keeps no order (the loader would refuse it): messages overtake each other around it."""
    ring = build({"x": "ab", "y": "bc", "z": "ca"}, checked=False)
    assert not all(causal(played(ring, seed)[1]) for seed in range(40))


def test_packets_are_those_of_the_routes_and_each_step_says_what_it_writes():
    topology = generate("bus", 9, ordering="rst")
    watchers = {}

    def watch(domain):
        watchers[domain] = Control(), Written()
        return watchers[domain]

    world = World(1)
    network = Exponential(world, 20 * MS)
    bus = Bus(world, topology, lambda domain: network, watch)
    bus.send(1, [8])
    bus.finish()
    path = RoutingTable(topology, "s2").path("s9")
    assert [watchers[domain][0].packets for domain, _ in path] == [1] * len(path) == [1, 1, 1]
    assert sum(control.packets for control, _ in watchers.values()) == 3
    assert all((written.rows > 0) == (control.packets > 0) for control, written in watchers.values())
    assert bus.delays == [(1, 8, world.now - EPOCH)]
    bus.send(4, [4])
    assert bus.delays[-1] == (2, 4, 0)


def test_a_network_is_told_what_the_ordering_adds_and_the_size_of_the_message():
    """On every link of its way; s2 to s9 is three."""
    world, sizes, control = World(1), [], {}

    class Scales:
        def carry(self, frm, to, size, arrive, *args):
            sizes.append(size)
            world.after(MS, arrive, *args)

    def watch(domain):
        control[domain] = Control()
        return (control[domain],)

    bus = Bus(world, generate("bus", 9, ordering="rst"), lambda domain: Scales(), watch, payload=1000)
    for size in (60_000, 0, 3, None):
        bus.send(1, [8], size)
        bus.finish()
    added = sum(each.bytes for each in control.values())
    assert len(sizes) == 12 and sum(sizes) == added + 3 * (60_000 + 0 + 3 + 1000)
    assert [size - sizes[3 + at % 3] for at, size in enumerate(sizes)] == [60_000] * 3 + [0] * 3 + [3] * 3 + [1000] * 3


def test_it_tells_how_many_copies_have_arrived():
    bus = Bus(world := World(1), generate("flat", 3), lambda domain: Exponential(world, MS))
    for _ in range(300):
        bus.send(0, [1, 2])
    told = []
    bus.finish(told.append)
    assert told == [100, 200, 300, 400, 500]


def test_only_cores_that_take_part_are_made():
    bus = Bus(world := World(1), generate("flat", 500), lambda domain: Exponential(world, MS))
    bus.send(0, [499])
    bus.finish()
    assert sorted(bus.domains["d1"].members.made) == [0, 499]
