"""The overlay whose links lose what is on them, and whose members join."""

import pytest

from mombroker.lab.dynamic.growing_overlay import HAVE, Close, GrowingOverlay, Open, Stable, Told
from mombroker.ordering import Step
from mombroker.ordering.envelope import MOST, seal
from mombroker.ordering.overlay import Number
from tests.lab.dynamic import growing_world
from tests.ordering.test_overlay import assert_fine, hand_over


@pytest.mark.parametrize("seed", range(40))
def test_links_that_lose_packets_and_open_again_keep_order_and_lose_nothing(seed):
    assert_fine(growing_world.reconnects(seed))


@pytest.mark.parametrize("seed", range(40))
def test_members_join(seed):
    assert_fine(growing_world.growth(seed))


@pytest.mark.long
def test_links_and_members_on_many_schedules():
    for seed in range(40, 2_000):
        assert_fine(growing_world.reconnects(seed))
        assert_fine(growing_world.growth(seed))


def test_the_ends_of_a_link_that_opens_tell_what_they_have_and_send_what_is_lacking():
    a, b = GrowingOverlay(0, 2), GrowingOverlay(1, 2)
    a.send((1,), b"lost")
    a.change(Close(1))
    b.change(Close(0))
    assert a.send((1,), b"later") == []
    (told,) = a.change(Open(1)).send
    assert hand_over(a, b, told) == Step([], []), "our end has not opened yet"
    (back,) = b.change(Open(0)).send
    assert isinstance(back.stamp, Told) and back.stamp.numbers == [0, 0]
    resent = hand_over(b, a, back).send
    assert [hand_over(a, b, packet).deliver[0].body for packet in resent] == [b"lost", b"later"]
    assert [packet.to for packet in a.send((1,), b"new")] == [1]


def test_the_log_forgets_what_all_have_and_a_newcomer_begins_after_it():
    a = GrowingOverlay(0, 2)
    for body in (b"1", b"2", b"3"):
        a.send((1,), body)
    a.change(Stable([2, 0]))
    assert [packet.body for packet in a.log.values()] == [b"3"]
    c = GrowingOverlay(2, 3, links=[])
    (hello,) = c.change(Open(0)).send
    out = a.change(Open(2)).send + hand_over(c, a, hello).send
    steps = [hand_over(a, c, packet) for packet in out]
    assert c.seen == [3, 0, 0][: len(c.seen)] and not any(step.deliver for step in steps)
    assert [packet.body for packet in c.log.values()] == [b"3"]
    c.check()


def test_a_growing_overlay_comes_back_from_its_rows():
    a = GrowingOverlay(0, 3)
    rows = a.dirty()[0]
    for number in range(5):
        a.send((1,), b"%d" % number)
        a.change(Stable([number // 2, 0, 0]))
        put, gone = a.dirty()
        assert not put.keys() & gone
        rows = {key: blob for key, blob in (rows | put).items() if key not in gone}
    a.change(Close(1))
    rows |= a.dirty()[0]
    b = GrowingOverlay.restore(0, 3, rows)
    b.check()
    assert (b.seen, b.stable, b.neighbours) == (a.seen, a.stable, a.neighbours) == ([5, 0, 0], [2, 0, 0], (2,))
    assert (
        [packet.body for packet in b.log.values()] == [packet.body for packet in a.log.values()] == [b"2", b"3", b"4"]
    )
    assert b.dirty() == ({}, set())


def test_told_numbers_are_checked():
    core = GrowingOverlay(0, 3)
    for data in HAVE + b"\1", HAVE + b"\xff" * 8, HAVE + bytes(8 * MOST + 8), seal(128, 1, 1, (0,)):
        with pytest.raises(ValueError):
            core.decode(1, data)
    assert core.decode(1, HAVE + bytes(16)).stamp.numbers == [0, 0]
    assert isinstance(core.decode(1, seal(0, 1, 1, (0,))).stamp, Number)
