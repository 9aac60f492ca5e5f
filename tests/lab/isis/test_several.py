"""Groups that overlap: rule 2', lemma 3, theorem 1, the conservative rule, epochs (paper 003, §6)."""

import pytest

from mombroker.lab.isis import patterns, structure
from mombroker.lab.isis.member import Member
from mombroker.lab.isis.messages import ABCAST, Cast, Flush, View
from mombroker.lab.isis.overlap import Overlap
from mombroker.lab.isis.several import ALL, CONSERVATIVE, OWN, STRUCTURE, Process
from mombroker.lab.networks import Exponential
from mombroker.sim.world import MS, World
from tests.lab.isis import fakes, overlap_world
from tests.lab.isis.overlap_world import FIGURE_4, RING, RING_4, SHAPES, STAR, TREE

ACYCLIC = {"figure 4": FIGURE_4, "tree": TREE, "star": STAR}
RING_AND_TAIL = {"a": (0, 1, 5), "b": (1, 2), "c": (2, 0), "d": (5, 3), "e": (3, 4)}


def process(me, groups, rule=ALL, excluded=(), make=Process):
    """One process with its members, and what it asks to be flushed."""
    views = {gid: View(1, members) for gid, members in groups.items()}
    mine = {gid: Member(me, view) for gid, view in views.items() if me in view.members}
    found = make(me, mine, rule, excluded, structure.carried(groups)[me])
    found.asked = []
    found.ask = found.asked.append
    return found


def packets(out):
    return [(gid, to, packet) for gid, step in out for to, packet in step.send]


def got(out):
    return [each.body for _, step in out for each in step.deliver if isinstance(each, Cast)]


@pytest.mark.parametrize(("rule", "safe"), [(ALL, True), (STRUCTURE, True), (OWN, False)])
def test_a_ring_needs_the_vectors_of_groups_that_a_process_is_not_in(rule, safe):
    """0 sends m1 to 2, slowly, and m2 to 1, which sends m3 to 2: there it must wait for m1 (vector V3)."""
    groups = {"a": (0, 2), "b": (0, 1), "c": (1, 2)}
    zero, one, two = (process(me, groups, rule) for me in range(3))
    ((_, _, slow),) = packets(zero.cast("a", "m1"))
    ((_, _, quick),) = packets(zero.cast("b", "m2"))
    one.receive("b", 0, quick)
    ((_, _, third),) = packets(one.cast("c", "m3"))
    early = got(two.receive("c", 1, third))
    assert early == ([] if safe else ["m3"])
    assert early + got(two.receive("a", 0, slow)) == (["m1", "m3"] if safe else ["m3", "m1"])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("rule", [ALL, STRUCTURE, CONSERVATIVE])
def test_a_rule_keeps_the_order_across_all_groups(name, rule):
    for seed in range(10):
        assert overlap_world.run(seed, SHAPES[name], rule=rule) == [], seed


@pytest.mark.parametrize("name", ACYCLIC)
def test_the_vectors_of_the_own_groups_are_enough_without_a_circle(name):
    for seed in range(15):
        assert overlap_world.run(seed, ACYCLIC[name], rule=OWN) == [], seed


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("rule", [ALL, STRUCTURE, CONSERVATIVE])
def test_many_seeds_keep_the_order_across_all_groups(name, rule):
    for seed in range(300):
        assert overlap_world.run(seed, SHAPES[name], rule=rule) == [], seed


@pytest.mark.parametrize(
    ("rule", "make", "groups", "shows"),
    [
        ("none", Process, FIGURE_4, "across"), (OWN, Process, RING, "across"),
        (ALL, fakes.ItsOwnToo, FIGURE_4, "stuck"), (CONSERVATIVE, fakes.InOrderOfReceipt, RING, "stuck"),
    ],
)  # fmt: skip
def test_broken_rules_are_caught(rule, make, groups, shows):
    """No vectors of others and no rule; the own groups' on a ring; the group of a multicast among those compared (IS6);
    delivery strictly in the order of receipt (IS7)."""
    found = [overlap_world.run(seed, groups, rule=rule, make=make) for seed in range(30)]
    assert shows in {fault.partition(":")[0] for faults in found for fault in faults}


@pytest.mark.parametrize("groups", [FIGURE_4, RING, RING_4, TREE])
def test_epochs_keep_the_order_on_rings(groups):
    for seed in range(15):
        assert overlap_world.run(seed, groups, rule=OWN, excluded=[*groups][2:]) == [], seed


def test_an_epoch_rises_for_anything_that_came_since_it_last_did():
    """p has m2 of g2, then x of g3, and sends in g3, which is excluded: the last that came was of no other group, and
    yet the epoch must rise (vector V4)."""
    groups = {"g2": (0, 1), "g3": (0, 2)}
    p, one, two = (process(me, groups, OWN, ["g3"]) for me in range(3))
    for gid, other, body in (("g2", one, "m2"), ("g3", two, "x")):
        ((_, _, packet),) = packets(other.cast(gid, body))
        p.receive(gid, other.me, packet)
    p.cast("g3", "m3")
    assert sorted(p.asked) == ["g2", "g3"] and p.epoch == 0 and p.queue
    for gid in ("g2", "g3"):
        p.see(gid, View(2, groups[gid]))
    p.receive("g2", 1, Flush(2))
    sent = packets(p.receive("g3", 2, Flush(2)))
    casts = [packet.cast for _, _, packet in sent if hasattr(packet, "stable")]
    assert [(cast.body, cast.epoch) for cast in casts] == [("m3", 1)] and p.epoch == 1


def test_the_conservative_rule_waits_until_nothing_of_another_group_is_unstable():
    world = World(1)
    groups = Overlap(world, Exponential(world, 10 * MS), {"a": (0, 1), "b": (0, 2)}, CONSERVATIVE)
    groups.cast(0, "a")
    groups.cast(0, "b")
    assert groups.packets["b"] == {} and groups.processes[0].waits
    world.run()
    assert groups.packets["b"]["cbcast"] == 1 and groups.faults() == []


def test_an_abcast_of_one_group_is_placed_before_another_group_hears_of_it():
    """Without, a process in both would deliver what depends on it before its number comes."""
    for seed in range(30):
        assert overlap_world.run(seed, FIGURE_4, rule=CONSERVATIVE, total=1) == [], seed


@pytest.mark.parametrize(
    ("groups", "bound"), [(FIGURE_4, 0), (TREE, 0), (RING, 3), (RING_4, 4), (RING_AND_TAIL, 3), (STAR, 3)]
)
def test_the_bound_of_a_structure(groups, bound):
    """A tree is 0-bounded; else the largest component with a circle counts (§6.6)."""
    found = structure.bound(groups)
    assert found == bound


def test_a_process_carries_its_own_groups_and_those_on_circles_with_them():
    carried = structure.carried(RING_AND_TAIL)
    assert carried[0] == {"a", "b", "c"} and carried[5] == {"a", "b", "c", "d"}
    assert carried[3] == {"d", "e"} and carried[4] == {"e"}
    for seed in range(20):
        assert overlap_world.run(seed, RING_AND_TAIL, rule=STRUCTURE) == [], seed


def test_styles_of_groups():
    assert patterns.client_server(2, 2) == {"client1": (0, 1, 2), "client2": (0, 1, 3)}
    assert patterns.hierarchical(2, 2) == {"root": (0, 2), "part1": (0, 1), "part2": (2, 3)}
    assert structure.bound(patterns.hierarchical(4, 3)) == 0 and structure.bound(patterns.client_server(2, 4)) == 4


def test_total_order_across_groups_is_that_of_each_group():
    """Each group has its own; none is promised between two groups (§6.2)."""
    found = overlap_world.overlap(3, FIGURE_4, total=1)
    assert found.faults() == [] and all(each[ABCAST] for each in found.packets.values())
