"""Paper 003 again: a group on one Ethernet, in a model of the printed costs of a packet."""

import pytest

from mombroker.lab.ethernet import Ethernet
from mombroker.lab.papers import groups
from mombroker.lab.papers.base import FAILS, HOLDS, UNKNOWN, Table, judge
from mombroker.sim.world import EPOCH, MS, World

COMMON = {"rounds": 40, "bytes": 0, "transit": 20, "burst": 1, "seed": 1}


def run(kind, n, **more):
    return groups.run({"kind": kind, "n": n} | COMMON | more)


def test_a_packet_takes_two_processors_and_the_wire():
    """Milliseconds of a processor for a packet and for 1,024 bytes; one byte takes 0.8 µs on the wire."""
    world, came = World(1), []
    network = Ethernet(world, 2 * MS, MS, header=24)
    for name in "ab":
        network.carry(0, 1, 1000, lambda name: came.append((name, (world.now - EPOCH) / MS)), name)
    world.run()
    wire = 1024 * 0.0008
    assert came == [("a", pytest.approx(3 + wire + 3)), ("b", pytest.approx(3 + 3 + wire + 3))]


def test_messages_that_are_sent_together_share_a_packet_until_it_is_full():
    world, came = World(1), []
    network = Ethernet(world, MS, 0, header=0, pack=3)
    for name in "abcd":
        network.carry(0, 1, 10, came.append, name)
    network.carry(0, 1, 9000, came.append, "large")
    world.run()
    assert came == ["a", "b", "c", "d", "large"] and network.packets == 2


def test_a_call_takes_about_as_long_as_printed():
    """Table II, null packets: the model knows one destination from table V, the others follow from it."""
    printed = {1: 6.51, 3: 10.7, 7: 22.9}
    assert {n: run(groups.RPC, n)["ms"] for n in printed} == pytest.approx(printed, rel=0.2)
    assert run(groups.RPC, 2, rounds=10) == run(groups.RPC, 2, rounds=10)


def test_a_stream_packs_messages_and_slows_with_destinations():
    one, seven = (run(groups.STREAM, n, rounds=200) for n in (1, 7))
    assert one["packed"] > 20 and one["per_s"] > seven["per_s"]
    assert run(groups.STREAM, 1, rounds=50, bytes=8192)["packed"] == 1
    assert one["fields"] == seven["fields"] == 0


def test_bursts_carry_few_fields():
    eager, lazy = (run(groups.FIELDS, 5, rounds=400, burst=burst) for burst in (1, 10))
    assert 30 < eager["fields_pct"] < 70 and lazy["fields_pct"] < 15
    assert run(groups.FIELDS, 5, rounds=400)["fields"] * 25 == pytest.approx(eager["fields_pct"])


def test_claims_are_judged():
    points = groups.points(groups.RPC, False, (1,), {})
    rows = [
        {"figure": point.figure, "setting": point.setting, "x": point.x, **groups.run(point.params | {"rounds": 5})}
        for point in points
    ]
    found = {row["claim"]: row["verdict"] for row in judge(groups.CLAIMS, groups.RPC, Table(rows))}
    calls = "a null multicast to 7 that all reply to costs less than 7 successive null calls of SUN RPC"
    assert found["the cost of a CBCAST grows roughly linearly with the group"] == found[calls] == HOLDS
    for row in rows:
        row["ms"] = 1 / row["ms"]
    again = {row["claim"]: row["verdict"] for row in judge(groups.CLAIMS, groups.RPC, Table(rows))}
    assert again[calls] == HOLDS and again["the size of packets dominates the cost"] == FAILS
    assert again["the cost of a CBCAST grows roughly linearly with the group"] == FAILS
    assert {row["verdict"] for row in judge(groups.CLAIMS, groups.CORE, Table([]))} == {UNKNOWN}


def test_the_core_costs_more_than_the_order_of_a_link():
    found = run(groups.CORE, 1, rounds=300)
    assert found["cpu_vector_us"] > found["cpu_fifo_us"] > 0


@pytest.mark.parametrize("figure", groups.PAPER.figures)
def test_every_table_has_points_and_claims(figure):
    assert figure in {point.figure for point in groups.points(figure, False, (1, 2), {})}
    assert any(claim.figure == figure for claim in groups.CLAIMS)
