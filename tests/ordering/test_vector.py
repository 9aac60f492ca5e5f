"""The vector clock with compressed stamps against plain vectors, and what a member does with messages for others."""

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.ordering import Packet
from mombroker.ordering.testing import conform, twins
from mombroker.ordering.vector import HEAD, HELD, LIMIT, OWED, RECEIVED, Stamp, Vector
from mombroker.ordering.wire import from_bytes
from tests.ordering.plain import Scene


class PlainVector:
    """protocols §4 for one member: every message is a broadcast and carries the whole vector."""

    def __init__(self, me: int, size: int):
        self.me = me
        self.t = [0] * size
        self.buffer: list[tuple[int, list[int], bytes]] = []

    def send(self) -> list[int]:
        self.t[self.me] += 1
        return self.t[:]

    def receive(self, source: int, t: list[int], body: bytes) -> list[bytes]:
        if t[source] <= self.t[source] or any((source, t[source]) == (k, u[k]) for k, u, _ in self.buffer):
            return []
        self.buffer.append((source, t, body))
        delivered = []
        while ready := [held for held in self.buffer if self.deliverable(held[0], held[1])]:
            source, t, body = ready[0]
            self.buffer.remove(ready[0])
            self.t[source] = t[source]
            delivered.append(body)
        return delivered

    def deliverable(self, source: int, t: list[int]) -> bool:
        others = all(t[k] <= mine for k, mine in enumerate(self.t) if k != source)
        return t[source] == self.t[source] + 1 and others


def full(base: list[int], origin: int, stamp: Stamp) -> list[int]:
    """The whole vector of a packet, from that of its origin's packet before."""
    t = base[:]
    t[origin] = stamp.number
    for k, value in zip(stamp.names, stamp.values, strict=True):
        t[k] = value
    return t


def compare(seed: int) -> None:
    """Broadcasts over FIFO links, with duplicates: the vectors and the decisions are those of whole vectors."""
    lots = random.Random(seed)
    size = lots.randrange(3, 9)
    cores, words = [Vector(me, size) for me in range(size)], [PlainVector(me, size) for me in range(size)]
    last = [[0] * size for _ in range(size)]  # by origin: the vector of its packet before
    links: dict[tuple[int, int], list[tuple[bytes, list[int]]]] = {}
    pace = lots.choice((0.5, 0.8, 0.95))
    for number in range(40):
        frm = lots.randrange(size)
        t = words[frm].send()
        packets = cores[frm].send([k for k in range(size) if k != frm], b"%d" % number)
        stamp = packets[0].stamp
        assert stamp.names == [k for k in range(size) if k != frm and t[k] != last[frm][k]]
        last[frm] = full(last[frm], frm, stamp)
        assert last[frm] == t
        for packet in packets:
            links.setdefault((frm, packet.to), []).append((cores[frm].encode(packet), t))
        while any(links.values()) and (number == 39 or lots.random() < pace):
            frm, to = lots.choice([link for link, waiting in links.items() if waiting])
            data, t = links[frm, to].pop(0)
            packet = cores[to].decode(frm, data)
            delivered = [done.body for done in cores[to].receive(frm, packet).deliver]
            assert cores[to].receive(frm, cores[to].decode(frm, data)).deliver == []
            assert sorted(delivered) == sorted(words[to].receive(frm, t, packet.body))
            assert cores[to].counted == words[to].t
            assert len(cores[to].held()) == len(words[to].buffer)
            cores[to].check()
    assert not any(core.held() for core in cores)


def test_vectors_and_decisions_equal_those_of_plain_vectors():
    for seed in range(60):
        compare(seed)


@pytest.mark.long
def test_vectors_and_decisions_equal_those_of_plain_vectors_on_many_runs():
    for seed in range(1_000, 3_000):
        compare(seed)


def test_a_core_that_restarts_at_every_step_does_what_one_does_that_never_restarts():
    """The bases of compression too: the fields that a restarted member sends are the same."""
    for seed in range(40):
        twins(
            Vector,
            seed,
            random.Random,
            more=lambda packet: (packet.stamp.number, packet.stamp.names, packet.stamp.values),
        )


@pytest.mark.long
def test_small_domains_are_safe_and_live_on_many_schedules():
    """Few members and many messages: the shapes in which a field is owed."""
    conform(Vector, range(2_000, 4_000), random.Random, sizes=(3, 4, 5))


def test_a_relay_waits_for_the_direct_message():
    scene = Scene(Vector, 3)
    scene.send("a", 0, 1, 2)
    assert scene.arrive("a", 1) == ["a"]
    scene.send("b", 1, 0, 2)
    assert scene.arrive("b", 2) == []
    ((packet, causes),) = scene.cores[2].held()
    assert causes == scene.cores[2].missing(packet) == [(0, 1)]
    assert scene.arrive("a", 2) == ["a", "b"]
    assert scene.cores[2].missing(packet) is None


def test_every_member_gets_a_packet_and_only_the_destinations_its_body():
    core = Vector(1, 4)
    packets = core.send((3,), b"body")
    assert [(packet.to, packet.dests, packet.body) for packet in packets] == [
        (0, (), b""),
        (2, (), b""),
        (3, (3,), b"body"),
    ]
    sizes = {packet.to: len(core.encode(packet)) - len(packet.body) for packet in packets}
    assert sizes == {0: 3, 2: 3, 3: 3}  # form, no names, number
    other = Vector(2, 4)
    assert other.receive(1, other.decode(1, core.encode(packets[1]))).deliver == []
    assert other.counted == [0, 1, 0, 0]
    last = Vector(3, 4)
    (done,) = last.receive(1, last.decode(1, core.encode(packets[2]))).deliver
    assert (done.dests, done.body, done.origin) == ((3,), b"body", 1)


def numbers(row: bytes) -> list[int]:
    return list(from_bytes("Q", row))


def owed(scene: Scene) -> None:
    """a (slow) causes m, which goes to others; x follows m from the same member and does not repeat what m tells."""
    scene.send("a", 0, 1, 2)
    scene.arrive("a", 1)
    scene.send("m", 1, 3)
    scene.send("x", 1, 2)
    scene.arrive("m", 2)
    scene.arrive("x", 2)
    scene.arrive("a", 2)
    scene.arrive("a", 3)
    scene.arrive("m", 3)


def test_the_next_packet_takes_over_what_one_for_others_owes():
    scene = Scene(Vector, 4)
    scene.send("a", 0, 1, 2)
    scene.arrive("a", 1)
    scene.send("m", 1, 3)
    (stamp, *_) = scene.send("x", 1, 2)
    assert not stamp.names
    assert scene.arrive("m", 2) == []
    assert scene.cores[2].owed == {1: {0: 1}} and scene.cores[2].counted == [0, 1, 0, 0]
    assert scene.cores[2].held() == []  # a packet for others is never held
    assert scene.arrive("x", 2) == []
    assert [causes for _, causes in scene.cores[2].held()] == [[(0, 1)]]
    assert scene.arrive("a", 2) == ["a", "x"]
    assert scene.cores[2].owed == {}


def test_a_packet_for_others_counts_behind_a_held_one_of_its_origin_when_that_is_delivered():
    scene = Scene(Vector, 4)
    scene.send("a", 0, 1, 2)
    scene.arrive("a", 1)
    scene.send("x", 1, 2)
    scene.send("m", 1, 0, 3)  # number 2 of member 1, not for member 2
    scene.arrive("x", 0)
    scene.arrive("m", 0)
    scene.send("y", 0, 2)  # knows of both
    assert scene.arrive("x", 2) == scene.arrive("m", 2) == []
    assert scene.cores[2].counted == [0, 0, 0, 0]
    scene.send("z", 1, 2)
    assert scene.arrive("z", 2) == []
    assert {packet.body: causes for packet, causes in scene.cores[2].held()} == {b"x": [(0, 1)], b"z": [(1, 1)]}
    assert scene.arrive("a", 2) == ["a", "x", "z"]
    assert scene.cores[2].counted == [1, 3, 0, 0]
    assert scene.arrive("y", 2) == ["y"]


def test_what_waits_for_a_number_that_turns_out_to_be_for_others_waits_for_the_held_one_before_it():
    """1. Member 3 has delivered x and m of member 1, and sends y, which waits at 2 for number 2 of member 1.
    2. x, its number 1, comes to 2 and must wait for a; then m comes, which is number 2 and not for member 2.
    3. y waits for x now, and is delivered with it."""
    scene = Scene(Vector, 4)
    scene.send("a", 0, 1, 2)
    scene.arrive("a", 1)
    scene.arrive("a", 3)
    scene.send("x", 1, 2)
    scene.send("m", 1, 0, 3)
    scene.arrive("x", 3)
    scene.arrive("m", 3)
    scene.send("y", 3, 2)
    assert scene.arrive("y", 2) == []
    assert sorted(scene.cores[2].held()[0][1]) == [(0, 1), (1, 2)]
    assert scene.arrive("x", 2) == scene.arrive("m", 2) == []
    assert {packet.body: sorted(causes) for packet, causes in scene.cores[2].held()} == {
        b"x": [(0, 1)], b"y": [(0, 1), (1, 1)],
    }  # fmt: skip
    assert scene.arrive("a", 2) == ["a", "x", "y"]


def test_a_series_of_sends_carries_no_fields():
    """Lemma 1: what has not changed since the own multicast before is left out."""
    cores = [Vector(me, 40) for me in range(40)]
    for frm in range(1, 11):
        for packet in cores[frm].send([k for k in range(40) if k != frm], b""):
            cores[packet.to].receive(frm, packet)
    fields = [core_packets[0].stamp.names for core_packets in (cores[0].send((1,), b"") for _ in range(3))]
    assert fields == [list(range(1, 11)), [], []]
    assert cores[0].control_ints(cores[0].send((1,), b"")[0]) == 1


def test_control_integers_are_those_of_the_smallest_form():
    core = Vector(0, 40)
    for count, ints in ((0, 1), (1, 3), (2, 5), (3, 6), (30, 33), (39, 40)):
        packet = Packet(1, (1,), b"", 0, Stamp(1, range(1, 1 + count), (5,) * count))
        assert core.control_ints(packet) == ints


@pytest.mark.parametrize("size", [3, 40, 256, 300])
def test_a_stamp_comes_back_from_the_wire(size):
    sender, receiver = Vector(0, size), Vector(1, size)
    lots = random.Random(size)
    for count in (0, 1, 2, size // 8, size // 2, size - 2):
        for top in (200, 60_000, 4_000_000_000, LIMIT - 1):
            names = sorted(lots.sample(range(2, size), min(count, size - 2)))
            stamp = Stamp(top, names, [1 + lots.randrange(top) for _ in names])
            for dests in ((1,), tuple(range(1, size)), ()):
                body = b"body" if dests else b""
                arrived = receiver.decode(0, sender.encode(Packet(1, dests, body, 0, stamp)))
                assert (arrived.dests, arrived.body, arrived.frm, arrived.origin) == (dests, body, 0, 0)
                assert arrived.stamp.number == top
                assert (list(arrived.stamp.names), list(arrived.stamp.values)) == (stamp.names, stamp.values)


def test_a_batch_writes_the_origins_received_from_and_what_is_held():
    scene = Scene(Vector, 4)
    scene.send("a", 0, 1, 2)
    assert scene.cores[0].dirty()[0].keys() == {(HEAD, 0)}
    scene.arrive("a", 1)
    assert scene.cores[1].dirty()[0] == {(RECEIVED, 0): (1).to_bytes(8, "little")}
    scene.send("m", 1, 3)
    scene.send("x", 1, 2)
    rows = scene.cores[1].dirty()[0]
    assert numbers(rows[HEAD, 0]) == [2, 1, 0, 0, 0]  # own number, what the others were told
    scene.arrive("m", 2)
    rows, gone = scene.cores[2].dirty()
    assert numbers(rows[RECEIVED, 1]) == [1, 0] and rows[OWED, 1] == b"\x10\x08\1\1" and not gone  # m owes a
    scene.arrive("x", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(RECEIVED, 1), (HELD, 2 * 4 + 1)} and gone == {(OWED, 1)}
    assert numbers(rows[RECEIVED, 1]) == [2, 0]
    scene.arrive("a", 2)
    rows, gone = scene.cores[2].dirty()
    assert rows.keys() == {(RECEIVED, 0), (RECEIVED, 1)} and gone == {(HELD, 2 * 4 + 1)}
    assert numbers(rows[RECEIVED, 0]) == [1] and numbers(rows[RECEIVED, 1]) == [2]  # all that has come is past


def test_what_has_only_come_is_told_to_nobody():
    """m is for member 3; that member 1 has a packet of it is no cause of what member 1 sends."""
    scene = Scene(Vector, 4)
    scene.send("m", 0, 3)
    scene.arrive("m", 1)
    assert scene.cores[1].counted == [1, 0, 0, 0] and scene.cores[1].past == [0, 0, 0, 0]
    (packet, *_) = scene.send("x", 1, 2)
    assert not packet.names
    assert scene.arrive("x", 2) == ["x"]


def test_a_member_whose_rows_are_of_an_older_version_tells_all_that_it_has_counted():
    """Those rows have what is received and, in pairs, what is owed; older members told what they had counted."""
    rows = {(HEAD, 0): array("Q", [3, 0, 0, 1, 0]).tobytes(), (RECEIVED, 2): array("Q", [4]).tobytes(),
            (RECEIVED, 3): array("Q", [2, 0, 5]).tobytes()}  # fmt: skip
    core = Vector.restore(1, 4, rows)
    core.check()
    assert core.past == core.counted == [0, 3, 4, 2] and core.owed == {3: {0: 5}}
    (packet, *_) = core.send((0,), b"")
    assert dict(zip(packet.stamp.names, packet.stamp.values, strict=True)) == {2: 4, 3: 2}


def test_a_link_that_is_not_fifo_is_found_out():
    sender, receiver = Vector(0, 3), Vector(1, 3)
    _, second = (sender.send((1,), body)[0] for body in (b"a", b"b"))
    with pytest.raises(ValueError, match="packet 2 of member 0 came next after packet 0"):
        receiver.receive(0, second)
    assert receiver.dirty() == ({}, set())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no packet"),
        (b"\0", "no packet"),
        (b"\0\0", "no packet"),
        (b"\x20\0\1", "no packet"),
        (b"\0\0\0", "counts no messages"),
        (b"\0\1\2\1\0", "counts no messages"),
        (b"\3\0" + LIMIT.to_bytes(8, "little"), "more than"),
        (b"\0\1\0\1\1", "of no other member"),  # its own field
        (b"\0\1\4\1\1", "of no other member"),
        (b"\0\2\2\2\1\1\1", "a field twice"),
        (b"\0\1\1\1\1", "never sent"),
        (b"\0\1\2\1", "no packet"),
        (b"\x10\x10\1\1", "of no other member"),  # a bit beyond the domain
        (b"\x10\x08\1\1", "of no other member"),
        (b"\x10\x02\1", "no packet"),
        (b"\x0c\0\1x", "for others"),
        (b"\x08\1\2\1", "no packet"),
        (b"\x04\2\2\3\0\1", "no destinations"),
    ],
)
def test_bytes_that_no_member_sends_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        Vector(1, 4).decode(0, data)


@settings(max_examples=300)
@given(st.binary(max_size=30))
def test_any_bytes_are_read_or_refused(data):
    core = Vector(1, 3)
    try:
        packet = core.decode(0, data)
    except ValueError:
        return
    if packet.stamp.number == 1:
        core.receive(0, packet)
        core.dirty()
        core.check()
