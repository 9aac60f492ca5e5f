"""One member of a process group beside others: stamps, total order, flush, copies (paper 003, §5)."""

import pytest

from mombroker.lab.isis.group import Group
from mombroker.lab.isis.membership import Membership
from mombroker.lab.isis.messages import ABCAST, CBCAST, COORDINATOR, EACH, SETS_ORDER, Multicast, View
from mombroker.lab.networks import Exponential
from mombroker.sim.world import MS, SECOND, World
from tests.lab.isis import isis_world
from tests.lab.isis.isis_world import Table

HOW = pytest.mark.parametrize("how", [EACH, COORDINATOR])


def quiet(size, how=EACH, **more):
    world = World(1)
    return Group(world, Exponential(world, 10 * MS), size, how, **more)


@pytest.mark.parametrize(("how", "flushes"), [(EACH, 56), (COORDINATOR, 14)])
def test_a_flush_of_eight_takes_n_times_n_minus_one_packets_or_two_n_minus_one(how, flushes):
    group = quiet(7, how)
    group.join()
    group.world.run()
    assert group.packets == {"flush": flushes} and group.faults() == []
    assert {member.installed for member in group.members.values()} == {2}


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_a_batch_of_k_takes_one_sets_order_for_k_abcasts(k):
    """The holder of the token, the first member, sends nothing of its own."""
    group = quiet(5, batch=k, linger=SECOND)
    for at in range(200):
        group.world.after(at * MS, group.cast, 1 + at % 4, ABCAST)
    group.world.run()
    assert group.packets[ABCAST] == 4 * 200 and group.packets[SETS_ORDER] == 4 * 200 // k and group.faults() == []


def test_a_token_that_follows_the_sender_saves_what_tells_the_order():
    """One member alone sends: once it has the token, its multicasts carry their numbers (§5.2)."""
    group = quiet(4, batch=1, follow=True)
    for at in range(50):
        group.world.after(at * 100 * MS, group.cast, 2, ABCAST)
    group.world.run()
    assert group.packets[SETS_ORDER] == 3 and group.packets[ABCAST] == 3 * 50 and group.faults() == []


def test_a_multicast_carries_what_has_changed_since_the_one_before():
    table = Table([0, 1, 2])
    for sender in (0, 0, 1):
        table.cast(sender)
    table.settle(0, 1, 2)
    step = table.members[0].cast("last")
    again = table.members[0].cast("very last")
    vectors = [each.send[0][1].cast.vector for each in (step, again)]
    assert vectors == [{1: 1}, {}]


def test_a_third_to_two_fifths_of_the_fields_are_sent_under_random_traffic():
    group, seen = quiet(5, batch=2), []

    def look(me, step):
        seen.extend(len(packet.cast.vector) for _, packet in step.send if isinstance(packet, Multicast))

    group.observe = look
    isis_world.play(group, 400, 0, 0.45, 5 * MS)
    assert 0.3 < sum(seen) / len(seen) / 5 < 0.42 and group.faults() == []


def test_an_own_abcast_waits_for_its_number_and_what_is_sent_behind_it_waits_too():
    table = Table([0, 1, 2])
    first, second = table.cast(1, ABCAST), table.cast(1, CBCAST)
    assert table.got(1) == []
    table.give(1, 0, 2)
    assert table.got(0) == [first, second]
    table.settle(0, 1, 2)
    table.after(0, table.members[0].tick())
    table.settle(0, 1, 2)
    assert table.got(1) == table.got(2) == [first, second]


def test_numbers_count_on_receipt_and_move_the_token_on_delivery():
    """2 has the sets-order before what it puts in order, and delivers it behind that."""
    table = Table([0, 1, 2])
    table.members[0].follow = True
    table.cast(1, ABCAST)
    table.give(1, 0)
    table.give(0, 2, 9)
    assert table.got(2) == [] and table.members[2].order.holder == 0
    table.give(1, 2)
    assert table.got(2) == [1] and table.members[2].order.holder == 1
    assert table.members[2].order.numbers == {(1, 1, 1): 1}


@HOW
def test_who_leaves_takes_part_in_the_flush_that_removes_it(how):
    """It alone has what a process that died had sent."""
    table = Table([0, 1, 2, 3], how=how)
    body = table.cast(3)
    table.give(3, 2)
    views = Membership((0, 1, 2, 3))
    left, dead = views.leave(2), views.fail(3)
    for view in (left, dead):
        table.see(view, 0, 1, 2)
    table.settle(0, 1, 2)
    assert table.got(0) == table.got(1) == table.got(2) == [body]
    assert table.members[2].left and table.log.faults([0, 1, 2]) == []


def test_a_member_that_left_is_asked_for_nothing_once_all_have_gone_on():
    views = Membership((0, 1, 2))
    assert views.leave(2).leaving == {2: 2}
    assert views.join(3).leaving == {2: 2}
    for me in (0, 1, 3):
        views.has_installed(me, 3)
    assert views.join(4).leaving == {} and views.fail(2) is None


@HOW
def test_copies_are_kept_until_all_have_them_and_no_longer(how):
    group = quiet(4, how)
    for at in range(20):
        group.cast(at % 4, ABCAST if at % 3 else CBCAST)
    group.join()
    assert any(member.copies.kept for member in group.members.values())
    group.world.run()
    assert group.faults() == [] and not any(member.copies.kept for member in group.members.values())


def test_an_orphan_is_dropped():
    """1 has what 0 sent, and sends behind it; both die, and only the second comes to others."""
    table = Table([0, 1, 2, 3])
    table.cast(0)
    table.give(0, 1)
    orphan = table.cast(1)
    table.give(1, 2)
    views = Membership((0, 1, 2, 3))
    for dead in (0, 1):
        table.see(views.fail(dead), 2, 3)
    table.settle(2, 3)
    assert orphan not in table.got(2) + table.got(3) and table.members[2].orphans == table.members[3].orphans == 1
    assert table.log.faults([2, 3]) == []


def test_what_nobody_has_put_in_order_gets_one_order_all_the_same():
    """The holder dies with two ABCASTs that only it has ordered."""
    table = Table([0, 1, 2, 3])
    late, early = table.cast(2, ABCAST), table.cast(1, ABCAST)
    table.give(2, 3), table.give(1, 3), table.give(1, 2)
    table.see(Membership((0, 1, 2, 3)).fail(0), 1, 2, 3)
    table.settle(1, 2, 3)
    assert table.got(1) == table.got(2) == table.got(3) == [early, late]


def test_views_come_in_order_to_who_is_in_them():
    table = Table([0, 1])
    view = View(2, (0, 1))
    table.see(view, 0, 1)
    table.settle(0, 1)
    assert table.log.of[0][-1] == ("view", 2, (0, 1)) and table.members[0].installed == 2
