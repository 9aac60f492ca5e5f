"""The delta matrix clock against the algorithm word by word, against the full matrix, and against the paper's laws."""

import random
import sys
import tracemalloc
from operator import le
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.ordering import Ordering, Packet, create
from mombroker.ordering.matrix import BITMAP, FULL, HEAD, HELD, LIMIT, LIST, MANY, OWN, ROW, Matrix
from mombroker.ordering.rst import RST, unpack
from tests.ordering import plain
from tests.ordering.plain import PlainUpdates, Scene


def cells(size: int, stamp: dict[int, int]) -> list[tuple[int, int, int]]:
    """A stamp as the paper writes it: (k, l, value)."""
    return sorted((*divmod(cell, size), value) for cell, value in stamp.items())


def passed(source: Matrix, target: Matrix, packet: Packet) -> list[Packet]:
    """The packet goes over the wire; what is delivered."""
    return target.receive(source.me, target.decode(source.me, source.encode(packet))).deliver


def test_v1_a_message_waits_for_its_cause_at_a_third_member():
    scene = Scene(Matrix, 3)
    (a,), (b,) = scene.send("a", 0, 2), scene.send("b", 0, 1)
    assert cells(3, a) == [(0, 2, 1)]
    assert cells(3, b) == [(0, 1, 1), (0, 2, 1)]
    assert scene.arrive("b", 1) == ["b"]
    (c,) = scene.send("c", 1, 2)
    assert cells(3, c) == [(0, 1, 1), (0, 2, 1), (1, 2, 1)]
    assert scene.arrive("c", 2) == []
    assert [causes for _, causes in scene.cores[2].held()] == [[(0, 1)]]
    assert scene.arrive("a", 2) == ["a", "c"]


def test_v2_a_multicast_is_counted_for_all_before_it_is_stamped():
    scene = Scene(Matrix, 3)
    assert [cells(3, stamp) for stamp in scene.send("m", 0, 1, 2)] == [[(0, 1, 1), (0, 2, 1)]] * 2
    assert scene.arrive("m", 1) == ["m"]
    scene.send("x", 1, 2)
    assert scene.arrive("x", 2) == []
    assert scene.arrive("m", 2) == ["m", "x"]


def test_v2_with_a_router_in_the_place_of_the_sender():
    outer, scene = Scene(Matrix, 2), Scene(Matrix, 3)  # the router is member 1 there, member 0 here
    outer.send("m", 0, 1)
    assert outer.arrive("m", 1) == ["m"]
    plain.multicast(scene)
    assert scene.verdict() == "fine"
    assert scene.events[-2:] == [("deliver", 2, "m"), ("deliver", 2, "x")]


@pytest.mark.parametrize("own_column", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_stamps_decisions_and_matrices_equal_those_of_the_plain_scan_and_of_the_full_matrix(seed, own_column):
    """Any order of arrival, multicasts, duplicates. With own columns left out a member may know of less."""
    lots = random.Random(seed)
    size = lots.randrange(3, 9)
    fast = [Matrix(me, size, own_column) for me in range(size)]
    scan = [PlainUpdates(me, size) for me in range(size)]
    full = [RST(me, size) for me in range(size)]
    flying = []
    for number in range(60):
        frm = lots.randrange(size)
        dests = tuple(
            lots.sample([k for k in range(size) if k != frm], lots.choice((1, 1, 1 + lots.randrange(size - 1))))
        )
        body = b"%d" % number
        for packet, stamp, other in zip(
            fast[frm].send(dests, body), scan[frm].send(dests), full[frm].send(dests, body), strict=True
        ):
            if not own_column:
                stamp = {cell: value for cell, value in stamp.items() if cell[1] != frm}
            assert cells(size, packet.stamp) == sorted((*cell, value) for cell, value in stamp.items())
            flying.append((frm, packet, stamp, other))
        while flying and (number == 59 or lots.random() < 0.6):
            frm, packet, stamp, other = flying.pop(lots.randrange(len(flying)))
            to = packet.to
            bodies = [done.body for done in passed(fast[frm], fast[to], packet)]
            assert passed(fast[frm], fast[to], packet) == []
            scan[to].receive(frm, stamp, packet.body, bodies)
            again = full[to].decode(frm, full[frm].encode(other))
            assert sorted(done.body for done in full[to].receive(frm, again).deliver) == sorted(bodies)
            assert len(fast[to].held()) == len(scan[to].buffer) == len(full[to].held())
            fast[to].check()
            for k in range(size):
                row = fast[to].value[k * size : k * size + size].tolist()
                assert row == scan[to].value[k]
                rst = unpack(full[to].sent[k])
                assert row == rst if own_column else all(map(le, row, rst))
    assert not any(core.held() for core in fast)


def traffic(size: int, **options):
    """Members, and a function that sends a message, lets it arrive, and tells how many entries its stamp had."""
    cores = [Matrix(me, size, **options) for me in range(size)]

    def message(frm: int, *dests: int) -> list[int]:
        counts = []
        for packet in cores[frm].send(dests, b""):
            counts.append(len(packet.stamp))
            assert cores[packet.to].receive(frm, packet).deliver == [packet]
        return counts

    return message


@pytest.mark.parametrize("size", [3, 10, 150])
def test_a_ping_pong_between_two_costs_exactly_one_entry(size):
    message = traffic(size)
    assert [message(0, size - 1) + message(size - 1, 0) for _ in range(20)] == [[1, 1]] * 20


def test_a_ping_pong_with_all_costs_2n_minus_3_out_and_1_back():
    size = 20
    message = traffic(size)
    others = range(1, size)
    rounds = [(message(0, *others), [message(k, 0) for k in others]) for _ in range(5)]
    for out, back in rounds[1:]:
        assert out == [2 * size - 3] * (size - 1)
        assert back == [[1]] * (size - 1)
        assert mean(out + sum(back, [])) == size - 1


def test_a_ping_pong_with_a_random_partner_costs_about_half_of_n():
    size, lots = 30, random.Random(1)
    message = traffic(size)
    partners = [lots.randrange(1, size) for _ in range(2_000)]
    counts = [message(0, k) + message(k, 0) for k in partners]
    assert mean(sum(counts[500:], [])) == pytest.approx(size / 2, rel=0.1)


def test_dense_traffic_costs_a_little_less_than_half_of_the_matrix():
    size, lots = 24, random.Random(1)
    message = traffic(size)
    counts = [message(*lots.sample(range(size), 2)) for _ in range(4_000)]
    assert 0.45 < mean(sum(counts[1_500:], [])) / size**2 < 0.5


def test_pruning_the_own_column_saves_entries():
    def dense(own_column: bool) -> float:
        size, lots = 8, random.Random(1)
        message = traffic(size, own_column=own_column)
        return mean(sum((message(*lots.sample(range(size), 2)) for _ in range(2_000)), []))

    assert dense(False) < 0.9 * dense(True)


def smallest(size: int, stamp: dict[int, int], most: int) -> int:
    """Bytes of the smallest form; most = the largest value in the sender's matrix."""

    def width(value: int) -> int:
        return next(w for w in (1, 2, 4, 8) if value < 1 << 8 * w)

    count, cell = len(stamp), width(size * size - 1)
    values = count * width(max(stamp.values()))
    bitmap = (size * size + 7) // 8
    own = values if count == 1 else size**3
    return 1 + min(own, cell + count * cell + values, bitmap + values, size * size * width(most))


@pytest.mark.parametrize("size", [3, 10, 16, 17, 40, 256, 257])
def test_a_stamp_takes_the_smallest_form_and_comes_back_whole(size):
    lots, seen = random.Random(size), set()
    for _ in range(60):
        frm, to = lots.sample(range(size), 2)
        source, target = Matrix(frm, size), Matrix(to, size)
        count = (
            lots.choice((1, 2, size, size * size // 2, size * size - size)) if size < 100 else lots.choice((1, 5, size))
        )
        top = lots.choice((1, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0xFFFF_FFFF, 0x1_0000_0000, LIMIT - 1))
        own = frm * size + to
        target.value[to * size : to * size + size] = target.value[:size] = source.value[:size]
        stamp = {own: 1 + lots.randrange(top)}
        stamp |= {c: 1 + lots.randrange(top) for c in lots.sample(range(size * size), count - 1) if c // size != to}
        packet = Packet(to, (to,), b"body", frm, stamp)
        data = source.encode(packet)
        again = target.decode(frm, data)
        assert (again.stamp, again.body, again.dests, again.origin) == (stamp, b"body", (to,), frm)
        assert len(data) - 4 == smallest(size, stamp, LIMIT)
        seen.add(data[0] & ~3)
    assert seen == ({OWN, LIST} if size > 100 else {OWN, BITMAP} if size == 3 else {OWN, LIST, BITMAP})


def test_a_stamp_of_nearly_all_cells_becomes_the_whole_matrix():
    """And a full stamp is delivered like any other: what is too much in it, its receiver knows already."""
    size, last = 12, 11
    cores = [Matrix(me, size) for me in range(size)]
    to_last = []
    for frm in (last, 2, 0, 3, 4, 5, 6, 7, 8, 9, 10):
        # Member 1 hears of what `last` sends through member 2 only.
        dests = [k for k in range(size) if k != frm and (frm, k) != (last, 1)]
        for packet in cores[frm].send(dests, b"%d" % frm):
            if packet.to == 1 or (frm, packet.to) == (last, 2):
                assert passed(cores[frm], cores[packet.to], packet)
            elif packet.to == last:
                to_last.append((frm, packet))
    cores[1].send([k for k in range(size) if k not in (1, last)], b"")
    (packet,) = cores[1].send((last,), b"full")
    data = cores[1].encode(packet)
    assert (data[0], len(data)) == (FULL, 1 + size * size + 4)
    assert cells(size, packet.stamp) == cells(size, dict(enumerate(cores[1].value)))
    assert cores[1].control_ints(packet) == size * size
    assert passed(cores[1], cores[last], packet) == []
    bodies = [done.body for frm, each in to_last for done in passed(cores[frm], cores[last], each)]
    assert len(bodies) == size - 1 and bodies[-1] == b"full"
    assert cores[last].value == cores[1].value
    cores[last].check()


def test_control_ints_are_the_papers_measure():
    core = Matrix(0, 10)

    def ints(count: int) -> int:
        return core.control_ints(Packet(1, (1,), b"", 0, dict.fromkeys(range(count), 1)))

    assert [ints(count) for count in (1, 2, 3, 50, 96, 97, 100)] == [3, 6, 7, 54, 100, 100, 100]


MULTICAST = bytes((OWN + MANY, 2, 1, 2, 7))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut short"),
        (bytes((OWN,)), "cut short"),
        (bytes((OWN + 1, 1)), "cut short"),
        (bytes((OWN, 0)), "no number"),
        (bytes((OWN + 3,)) + LIMIT.to_bytes(8, "little"), "no number"),
        (bytes((LIST, 2, 1)), "cut short"),
        (bytes((LIST, 0)), "no number"),
        (bytes((LIST, 1, 2, 9)), "no number"),
        (bytes((LIST, 2, 1, 1, 9, 9)), "listed twice"),
        (bytes((LIST, 2, 1, 25, 9, 9)), "or is none"),
        (bytes((LIST, 2, 1, 7, 9, 9)), "never sent"),
        (bytes((LIST + 3, 2, 1, 3)) + bytes(7) + b"\1" + bytes(7) + b"\1", "more than"),
        (bytes((BITMAP, 0, 0, 0)), "cut short"),
        (bytes((BITMAP, 0, 0, 0, 0)), "no number"),
        (bytes((BITMAP, 2, 0, 0, 0)) + bytes(9), "none"),
        (bytes((FULL,)) + bytes(24), "cut short"),
        (bytes((FULL,)) + bytes(25), "no number"),
        (bytes((FULL,)) + bytes((1,)) * 25, "never sent"),
        (bytes((64,)) + bytes(25), "no form"),
        (bytes((OWN + MANY,)), "cut short in its destinations"),
        (bytes((OWN + MANY, 3, 1, 2)), "cut short in its destinations"),
        (bytes((OWN + MANY, 2, 2, 3, 7)), "no destinations"),
        (bytes((OWN + MANY, 2, 1, 1, 7)), "no destinations"),
        (bytes((OWN + MANY, 2, 1, 0, 7)), "no destinations"),
        (bytes((OWN + MANY, 2, 1, 5, 7)), "no destinations"),
        (bytes((OWN + MANY, 1, 1, 7)), "no destinations"),
    ],
)
def test_bytes_that_no_member_sends_are_refused(data, why):
    core = Matrix(1, 5)
    with pytest.raises(ValueError, match=why):
        core.decode(0, data)
    assert core.decode(0, MULTICAST).dests == (1, 2)


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    core = Matrix(1, 5)
    try:
        packet = core.decode(0, data)
    except ValueError:
        return
    core.receive(0, packet)
    core.check()


def test_a_batch_writes_the_head_the_rows_that_changed_and_what_is_held():
    scene = Scene(Matrix, 4)
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    assert scene.cores[0].dirty()[0].keys() == {(HEAD, 0), (ROW, 0)}
    scene.arrive("b", 1)
    assert scene.cores[1].dirty()[0].keys() == {(ROW, 0)}
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(HELD, 1 * 4 + 1)} and gone == set()
    scene.arrive("c", 2)
    assert scene.cores[2].dirty() == ({}, set())
    scene.arrive("a", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(ROW, 0), (ROW, 1)} and gone == {(HELD, 1 * 4 + 1)}


def test_a_packet_that_is_held_and_delivered_in_one_batch_leaves_no_row():
    scene = Scene(Matrix, 3)
    plain.overtaken(scene)
    rows, gone = scene.cores[2].dirty()
    assert {kind for kind, _ in rows} == {ROW} and gone == set()


def test_counters_pass_32_bits():
    size, high = 3, 1 << 40
    one, two = Matrix(0, size), Matrix(1, size)
    for core in (one, two):
        core.value[1] = high
        core.since[1] = one.state = high
        core.source[1] = 0
        core.journal[1] = None
        core._changed.add(1)
        core.state = high
        core.told[1] = high - 1
    rows, _ = one.dirty()
    one = Matrix.restore(0, size, rows)
    (packet,) = one.send((1,), b"x")
    assert packet.stamp == {1: high + 1}
    assert passed(one, two, packet)[0].body == b"x"
    assert (one.state, one.told[1]) == (high + 1, high)
    one.check()


def send(core: Ordering, count: int) -> None:
    for k in range(count):
        core.encode(core.send((1 + k % 4,), b"x")[0])
        if k % 100 == 99:
            core.dirty()


def test_sends_do_not_grow_memory():
    """The least of some rounds: other threads of the tests may take memory meanwhile."""
    core, grown = create("matrix", 0, 5), []
    send(core, 4_000)  # so that caches are full
    for _ in range(5):
        tracemalloc.start()
        try:
            send(core, 4_000)
            grown.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert min(grown) < 1_000


@pytest.mark.long
def test_a_million_sends_do_not_grow_memory():
    """Counted in blocks: tracing makes it minutes."""
    core = create("matrix", 0, 5)
    send(core, 100_000)
    before = sys.getallocatedblocks()
    send(core, 1_000_000)
    assert sys.getallocatedblocks() - before < 1_000


def test_options_are_checked():
    assert Matrix.validate(("a", "b", "c"), {"own_column": False}) == []
    assert Matrix.validate(("a", "b", "c"), {"own_column": 0}) == ["own_column is a switch: write true or false"]
    assert Matrix.validate(("a", "b", "c"), {"own": True}) == ["unknown option 'own': it has own_column; take it out"]
