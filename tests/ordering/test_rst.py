"""The full matrix: rows as byte strings do what elementwise arithmetic does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.ordering import Packet
from mombroker.ordering.rst import HELD, LIMIT, ROW, RST, pack, unpack
from tests.ordering import plain
from tests.ordering.plain import PlainRST, Scene

rows = st.lists(st.integers(0, 1 << 40) | st.integers(0, 300), min_size=1, max_size=8)


@given(rows)
def test_a_row_comes_back(row):
    assert unpack(pack(row)) == row


@given(
    rows.flatmap(
        lambda row: st.tuples(st.just(row), st.lists(st.integers(0, 1 << 33), min_size=len(row), max_size=len(row)))
    )
)
def test_the_later_of_two_versions_of_a_row_is_the_greater_string(rows):
    before, more = rows
    after = [x + y for x, y in zip(before, more, strict=True)]
    assert (pack(before) < pack(after)) == any(more)
    assert (pack(before) == pack(after)) == (not any(more))


@pytest.mark.parametrize("seed", range(30))
def test_matrices_and_decisions_equal_those_of_elementwise_arithmetic(seed):
    """Any order of arrival, multicasts, duplicates."""
    lots = random.Random(seed)
    size = lots.randrange(3, 9)
    cores, scan = [RST(me, size) for me in range(size)], [PlainRST(me, size) for me in range(size)]
    flying = []
    for number in range(80):
        frm = lots.randrange(size)
        others = [k for k in range(size) if k != frm]
        dests = tuple(lots.sample(others, lots.choice((1, 1, 1 + lots.randrange(size - 1)))))
        stamp = scan[frm].send(dests)
        for packet in cores[frm].send(dests, b"%d" % number):
            assert [unpack(row) for row in packet.stamp] == stamp
            flying.append((frm, packet, stamp))
        while flying and (number == 79 or lots.random() < 0.6):
            frm, packet, stamp = flying.pop(lots.randrange(len(flying)))
            to, data = packet.to, cores[frm].encode(packet)
            delivered = [done.body for done in cores[to].receive(frm, cores[to].decode(frm, data)).deliver]
            assert cores[to].receive(frm, cores[to].decode(frm, data)).deliver == []
            assert sorted(delivered) == sorted(scan[to].receive(frm, packet.dests, stamp, packet.body))
            assert [unpack(row) for row in cores[to].sent] == scan[to].sent
            assert cores[to].delivered == scan[to].delivered
            cores[to].check()
    assert not any(core.held() for core in cores)


def test_v1_says_what_it_waits_for():
    scene = Scene(RST, 3)
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    scene.arrive("b", 1)
    scene.send("c", 1, 2)
    assert scene.arrive("c", 2) == []
    assert [causes for _, causes in scene.cores[2].held()] == [[(0, 1)]]
    assert scene.arrive("a", 2) == ["a", "c"]


@pytest.mark.parametrize("vector", [plain.overtaken, plain.multicast, plain.told, plain.in_line, plain.expired])
def test_the_vectors_of_updates_hold_for_the_full_matrix_too(vector):
    scene = Scene(RST, 3)
    vector(scene)
    assert scene.verdict() == "fine"


def test_a_packet_carries_the_whole_matrix():
    core = RST(0, 10)
    (packet,) = core.send((1,), b"body")
    assert core.control_ints(packet) == 100
    assert len(core.encode(packet)) == 1 + 10 * (1 + 10) + 4
    for _ in range(255):
        (packet,) = core.send((1,), b"body")
    assert len(core.encode(packet)) == 1 + 10 * (1 + 10) + 4
    (packet,) = core.send((1,), b"body")  # the row that counts 256 messages takes two bytes a cell
    assert len(core.encode(packet)) == 1 + 9 * (1 + 10) + (1 + 20) + 4


def test_a_batch_writes_the_rows_that_changed_and_what_is_held():
    scene = Scene(RST, 4)
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    assert scene.cores[0].dirty()[0].keys() == {(ROW, 0)}
    scene.arrive("b", 1)
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(HELD, 1)} and gone == set()
    scene.arrive("a", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(ROW, 0), (ROW, 1)} and gone == {(HELD, 1)}


ZERO = pack([0] * 3)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no packet"),
        (b"\2" + ZERO * 3, "no packet"),
        (b"\0" + ZERO * 2, "cut short"),
        (b"\0" + ZERO * 2 + ZERO[:-1], "cut short"),
        (b"\0" + ZERO * 2 + b"\4" + bytes(48), "no row"),
        (b"\0" + ZERO * 2 + b"\1" + bytes(6), "too wide"),
        (b"\0" + ZERO * 2 + pack([LIMIT, 0, 0]), "too much"),
        (b"\0" + ZERO + pack([1, 0, 0]) + ZERO, "never sent"),
        (b"\1" + ZERO * 3, "no destinations"),
        (b"\1\2\1", "cut short in its destinations"),
        (b"\1\2\1\1" + ZERO * 3, "no destinations"),
    ],
)
def test_bytes_that_no_member_sends_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        RST(1, 3).decode(0, data)


@settings(max_examples=200)
@given(st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(data):
    core = RST(1, 3)
    try:
        packet = core.decode(0, data)
    except ValueError:
        return
    assert isinstance(packet, Packet)
    core.receive(0, packet)
