"""Order between two servers."""

import pytest

from mombroker.ordering.fifo import COUNTERS, HELD, Fifo
from tests import fakes
from tests.ordering.plain import Scene


def two() -> tuple[Fifo, Fifo]:
    return Fifo(0, 2), Fifo(1, 2)


def arrive(to: Fifo, *datas: bytes) -> list[bytes]:
    found = []
    for data in datas:
        found += [done.body for done in to.receive(to.peer, to.decode(to.peer, data)).deliver]
        to.check()
    return found


def test_packets_are_delivered_in_order_and_once():
    one, other = two()
    a, b, c = (one.encode(one.send((1,), body)[0]) for body in (b"a", b"b", b"c"))
    assert arrive(other, a, b, b, a, c, a) == [b"a", b"b", b"c"]
    assert arrive(one, other.encode(other.send((0,), b"back")[0])) == [b"back"]


def test_what_comes_out_of_order_waits_also_through_a_restart():
    one, other = two()
    a, b, c = (one.encode(one.send((1,), body)[0]) for body in (b"a", b"b", b"c"))
    assert arrive(other, c, c, b) == []
    rows, _ = other.dirty()
    other = Fifo.restore(1, 2, rows)
    assert [(packet.body, causes) for packet, causes in other.held()] == [(b"b", [(0, 1)]), (b"c", [(0, 2)])]
    assert arrive(other, b, a) == [b"a", b"b", b"c"]
    assert other.dirty() == ({(COUNTERS, 0): bytes(8) + b"\3" + bytes(7)}, {(HELD, 2 * 2), (HELD, 3 * 2)})


def test_a_number_takes_the_bytes_that_it_needs():
    core = Fifo(0, 2)
    assert [core.encode(core.send((1,), b"x")[0]) for _ in range(256)][::255] == [b"\1\1x", b"\2\0\1x"]
    assert core.control_ints(core.send((1,), b"")[0]) == 1


@pytest.mark.parametrize("data", [b"", b"\1", b"\0x", b"\1\0x", b"\7" + bytes(6) + b"\1"])
def test_bytes_that_no_member_sends_are_refused(data):
    with pytest.raises(ValueError, match="no numbered packet"):
        Fifo(0, 2).decode(1, data)


def test_only_two_members_may_choose_it():
    assert Fifo.validate(("a", "b"), {}) == []
    (fault,) = Fifo.validate(("a", "b", "c"), {})
    assert fault == "fifo keeps causal order between two servers, not among 3: choose matrix"


@pytest.mark.parametrize(
    ("core", "verdict"), [(Fifo, "fine"), (fakes.Hasty, "unsafe"), (fakes.Twice, "unsafe"), (fakes.Skips, "stuck")]
)
def test_a_broken_core_is_caught_by_a_vector_that_the_intact_one_stands(core, verdict):
    """Two messages change places on their way, and the first comes once more; then one in order."""
    scene = Scene(core, 2)
    scene.send("a", 0, 1)
    scene.send("b", 0, 1)
    for name in "baa":
        scene.arrive(name, 1)
    scene.send("c", 0, 1)
    scene.arrive("c", 1)
    assert scene.verdict() == verdict
