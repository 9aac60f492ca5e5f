"""Groups at random, and the must-fail controls of protocols §12.2. One that passes means that the judge is blind."""

import pytest

from mombroker.lab.isis.member import Member
from mombroker.lab.isis.membership import Membership
from mombroker.lab.isis.messages import COORDINATOR, EACH
from tests.lab.isis import fakes, isis_world
from tests.lab.isis.isis_world import Table

# control -> (how it is broken, whom it flushes to, what the outsider says, a seed that shows it)
CONTROLS = {
    "sets-order in the delay queue": (fakes.InTheQueue, None, "stuck", 0),
    "no flush": (fakes.NoFlush, None, "differ", 1),
    "no wait": (fakes.NoWait, None, "differ", 1),
    "the holder's own without numbers": (fakes.Unnumbered, None, "orders", 11),
    "the holder says nothing before it flushes": (fakes.Silent, None, "orders", 5),
    "stable once it was said again": (fakes.Once, COORDINATOR, "differ", 20),
}


def test_whole_groups_pass():
    for seed in range(60):
        assert isis_world.run(seed) == [], seed


@pytest.mark.long
def test_two_thousand_groups_pass():
    for seed in range(2000):
        assert isis_world.run(seed) == [], seed


@pytest.mark.parametrize(("broken", "how", "shows", "seed"), CONTROLS.values(), ids=[*CONTROLS])
def test_a_control_is_caught_by_its_pinned_seed(broken, how, shows, seed):
    found = isis_world.run(seed, broken, how)
    assert shows in {fault.partition(":")[0] for fault in found}
    assert isis_world.run(seed, Member, how) == []


@pytest.mark.long
def test_controls_fail_in_the_measured_order_of_size():
    counts = [
        sum(isis_world.run(seed, broken, how) != [] for seed in range(300))
        for broken, how, *_ in CONTROLS.values()
    ]  # fmt: skip
    stuck, flush, wait, numbers, silent, once = counts
    assert stuck > flush > wait > numbers > silent > 0 and once > 0, counts


@pytest.mark.parametrize("broken", [fakes.Forgets, fakes.Once])
def test_a_coordinator_that_dies_after_one_has_installed_takes_nothing_along(broken):
    """1 alone has what 4 sent; 0, which leads the flush, tells 1 that it is over, and dies."""
    for make, good in ((Member, True), (broken, False)):
        table = Table(range(5), make, COORDINATOR)
        body = table.cast(4)
        table.give(4, 1)
        views = Membership((0, 1, 2, 3, 4))
        table.see(views.fail(4), 0, 1, 2, 3)
        for me in (1, 2, 3):
            table.give(me, 0, 9)
        table.give(0, 1, 9)
        assert table.members[1].installed == 2 and table.got(1) == [body]
        table.see(views.fail(0), 1, 2, 3)
        table.settle(1, 2, 3)
        assert (table.got(2) == table.got(3) == [body]) == good
        assert (table.log.faults([1, 2, 3]) == []) == good


def test_a_coordinator_passes_on_what_it_has_itself():
    """A copy that is forwarded once is stable for a flush to each other, since it went to all; not to a coordinator."""
    table = Table([0, 1, 2], how=EACH)
    body = table.cast(2)
    table.give(2, 1)
    table.see(Membership((0, 1, 2)).fail(2), 0, 1)
    table.settle(0, 1)
    assert table.got(0) == [body]


@pytest.mark.parametrize("make", [Member, fakes.Hasty])
def test_nothing_is_sent_in_a_view_before_what_is_of_the_one_before_is_safe(make):
    """1 has sent something that 0 lacks, and goes on into a view with 2; it dies, and 2 has what it sent there."""
    table = Table([0, 1], make)
    table.cast(1)
    table.members[2] = make(2)
    views = Membership((0, 1))
    table.see(views.join(2), 0, 1, 2)
    for link in ((0, 1), (2, 1), (1, 2), (0, 2), (2, 0)):
        table.give(*link, 9)
    assert table.members[1].installed == 2
    table.cast(1)
    table.give(1, 2, 9)
    table.see(views.fail(1), 0, 2)
    table.settle(0, 2)
    assert table.members[0].installed == table.members[2].installed == 3
    assert (table.log.faults([0, 2]) == []) == (make is Member)
