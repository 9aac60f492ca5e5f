"""KS against the walk of its paper, the algorithm word by word, and the set that is necessary by definition."""

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.ordering import Ordering, Packet, create
from mombroker.ordering.holdback import Key, Need
from mombroker.ordering.ks import DELIVERED, HEAD, HELD, KS, LIMIT, LOG, Known, Stamp, _unpack_list
from mombroker.ordering.matrix import Matrix
from mombroker.ordering.rst import RST
from mombroker.ordering.testing import conform, twins
from mombroker.ordering.vector import Vector
from tests.ordering import plain
from tests.ordering.plain import Scene
from tests.ordering.plain_ks import Definition, PlainKS, log_of, o_of

WALK = json.loads((Path(__file__).parent.parent / "data" / "ks_fig1.json").read_text())
ENCODINGS = ["list", "bitmap"]


class Ticking(KS):
    """Its clock ticks on deliver too, as in the figure: only that it rises matters."""

    def _deliver(self, key: Key, packet: Packet) -> Need:
        self.clock += 1
        return super()._deliver(key, packet)


def named(log, names):
    """As in the file: by the name of the message, processes from 1."""
    return {names[key]: sorted(d + 1 for d in dests) for key, dests in log.items()}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_walk_of_figure_1(encoding):
    size = WALK["processes"]
    cores = [Ticking(me, size, encoding) for me in range(size)]
    names: dict[tuple[int, int], str] = {}
    flying: dict[tuple[str, int], bytes] = {}
    packets: dict[str, Packet] = {}
    rows = [{} for _ in range(size)]

    def arrived(core: Ordering, name: str) -> Packet:
        frm = int(name[1]) - 1
        return core.decode(frm, flying[name, core.me + 1])

    for step in WALK["steps"]:
        name, process = step.get("msg"), step.get("process", step.get("from"))
        core = cores[process - 1]
        match step["op"]:
            case "send":
                if (name, step["to"]) not in flying:
                    for packet in core.send([d - 1 for d in step["dests"]], name.encode()):
                        flying[name, packet.to + 1] = core.encode(packet)
                        packets[f"{name}->P{packet.to + 1}"] = packet
                    names[process - 1, core.clock] = name
                packet = arrived(cores[step["to"] - 1], name)
                assert o_of(packet) == o_of(packets[f"{name}->P{step['to']}"])
                assert named(o_of(packet), names) == step["O_M"]
                if encoding == "list":
                    assert core.control_ints(packet) == step["size_ints"]
            case "deliver":
                assert [done.body for done in core.receive(int(name[1]) - 1, arrived(core, name)).deliver] == [
                    name.encode()
                ]
            case "deliverable?":  # asked of a copy: in the figure it has not arrived yet
                copy = Ticking.restore(process - 1, size, rows[process - 1], encoding=encoding)
                packet = arrived(copy, name)
                assert (copy.receive(int(name[1]) - 1, packet).deliver == [packet]) == step["answer"]
                assert copy.missing(packet) == [(4, 1)]
        if "log" in step:
            assert named(log_of(core), names) == step["log"]
            e, d, _ = core.log_totals()
            assert 3 * e + d == step["log_ints"]
        if step["event"]:
            assert step["event"] == f"({process},{core.clock})"
        put, gone = core.dirty()
        assert not gone
        rows[process - 1] |= put
        core.check()

    for copy, dests in WALK["M5,1.Dests_on_wire"].items():
        assert sorted(d + 1 for d in o_of(packets[copy]).get((4, 1), ())) == dests
    assert {f"P{core.me + 1}": named(log_of(core), names) for core in cores} == WALK["final_logs"]


def compare(seed: int, kind: type[KS] = KS, encoding: str = "list", literal: bool = True) -> None:
    """A random run, any order of arrival, duplicates: every O is what the definition says, and what §3.1 makes."""
    lots = random.Random(seed)
    size = lots.randrange(3, 9)
    cores = [kind(me, size, encoding) for me in range(size)]
    words = [PlainKS(me, size) for me in range(size)]
    definition = Definition(size)
    ids: list[tuple[int, int]] = []  # by message: its sender and clock
    flying = []
    slow = lots.choice((0.3, 0.6, 0.9))
    multicast = lots.choice((0.1, 0.5, 1.0))
    for number in range(50):
        frm = lots.randrange(size)
        count = 1 + lots.randrange(size - 1) if lots.random() < multicast else 1
        dests = tuple(lots.sample([k for k in range(size) if k != frm], count))
        needed, copies = definition.send(frm, dests), words[frm].send(dests)
        packets = cores[frm].send(dests, b"%d" % number)
        ids.append((frm, cores[frm].clock))
        for packet, copy in zip(packets, copies, strict=True):
            o = o_of(packet)
            tells = {(key, d) for key, v in o.items() for d in v}
            assert tells == {(ids[m], d) for m, d in needed[packet.to]}, "not what the definition says"
            if literal:
                assert o == copy
                sizes = len(o), sum(map(len, o.values())), sum(not v for v in o.values())
                assert cores[frm].totals(packet) == sizes
                flying.append((frm, packet, cores[frm].encode(packet), copy))
            else:
                flying.append((frm, packet, b"", copy))
        while flying and (number == 49 or lots.random() < slow):
            frm, packet, data, copy = flying.pop(lots.randrange(len(flying)))
            core, word = cores[packet.to], words[packet.to]
            if literal:
                packet = core.decode(frm, data)
                assert o_of(packet) == copy
            delivered = [int(done.body) for done in core.receive(frm, packet).deliver]
            for message in delivered:
                definition.deliver(core.me, message)
            if literal:
                again = core.decode(frm, data)
                assert core.receive(frm, again).deliver == [] and core.missing(again) is None
                expected = word.receive(frm, packet.stamp.clock, packet.dests, copy, int(packet.body))
                assert sorted(delivered) == sorted(expected)
                assert log_of(core) == word.log and core.delivered == word.delivered
                core.check()
    assert not any(core.held() for core in cores)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_dependency_set_equals_the_definition_and_the_literal_algorithm(encoding):
    for seed in range(75) if encoding == "list" else range(75, 100):
        compare(seed, encoding=encoding)


@pytest.mark.long
def test_every_dependency_set_equals_the_definition_on_many_runs():
    for seed in range(1_000, 3_000):
        compare(seed, encoding=ENCODINGS[seed % 2])


def lockstep(seed: int, kinds: dict[str, tuple[type[Ordering], dict]], broadcast: bool = False) -> None:
    """One schedule for several back ends: each step delivers the same messages in all of them.

    Arrival is in any order, and with `broadcast` in the order of each link.
    """
    lots = random.Random(seed)
    size = lots.randrange(3, 9)
    domains = {name: [kind(me, size, **options) for me in range(size)] for name, (kind, options) in kinds.items()}
    flying: list[tuple[int, int, dict[str, bytes]]] = []
    for number in range(60):
        frm = lots.randrange(size)
        others = [k for k in range(size) if k != frm]
        dests = tuple(others if broadcast else sorted(lots.sample(others, lots.choice((1, 2, size - 1)))))
        copies: dict[int, dict[str, bytes]] = {d: {} for d in dests}
        for name, cores in domains.items():
            for packet in cores[frm].send(dests, b"%d" % number):
                copies[packet.to][name] = cores[frm].encode(packet)
        flying += [(frm, to, data) for to, data in copies.items()]
        while flying and (number == 59 or lots.random() < 0.7):
            at = lots.randrange(len(flying))
            frm, to, data = flying[at]
            if broadcast:
                at = next(i for i, copy in enumerate(flying) if copy[:2] == (frm, to))
                data = flying[at][2]
            del flying[at]
            delivered = {}
            for name, cores in domains.items():
                done = cores[to].receive(frm, cores[to].decode(frm, data[name])).deliver
                delivered[name] = sorted(packet.body for packet in done)
            first, *rest = delivered.values()
            assert all(each == first for each in rest), delivered
    assert not any(core.held() for cores in domains.values() for core in cores)


FOUR = {
    "rst": (RST, {}),
    "matrix": (Matrix, {}),
    "list": (KS, {"encoding": "list"}),
    "bitmap": (KS, {"encoding": "bitmap"}),
}
BROADCAST = {"rst": (RST, {}), "list": (KS, {}), "vector": (Vector, {})}


def test_rst_updates_and_both_encodings_take_the_same_decisions():
    for seed in range(40):
        lockstep(seed, FOUR)


def test_so_does_the_vector_clock_for_broadcasts():
    for seed in range(30):
        lockstep(seed, BROADCAST, broadcast=True)


@pytest.mark.long
def test_the_same_decisions_on_many_schedules():
    for seed in range(1_000, 3_000):
        lockstep(seed, FOUR)
        lockstep(seed, BROADCAST, broadcast=True)


def test_bitmaps_are_safe_and_live():
    conform(KS, range(50), random.Random, options=lambda size: {"encoding": "bitmap"})


@pytest.mark.long
def test_bitmaps_are_safe_and_live_on_many_schedules():
    conform(KS, range(50, 2_000), random.Random, options=lambda size: {"encoding": "bitmap"})


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_core_that_restarts_at_every_step_does_what_one_does_that_never_restarts(encoding):
    for seed in range(30):
        twins(KS, seed, random.Random, options=lambda size: {"encoding": encoding}, more=o_of)


@pytest.mark.parametrize("vector", [plain.overtaken, plain.multicast, plain.told, plain.in_line, plain.expired])
def test_the_vectors_of_updates_hold_for_ks_too(vector):
    scene = Scene(KS, 3)
    vector(scene)
    assert scene.verdict() == "fine"


def test_a_held_packet_names_what_it_waits_for():
    scene = Scene(KS, 4)
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    scene.arrive("b", 1)
    scene.send("x", 1, 3)
    scene.send("c", 1, 2)
    assert scene.arrive("c", 2) == []
    ((packet, causes),) = scene.cores[2].held()
    assert causes == scene.cores[2].missing(packet) == [(0, 1)]
    assert scene.arrive("a", 2) == ["a", "c"]
    assert scene.cores[2].missing(packet) is None and scene.cores[2].held() == []


def test_a_wait_for_what_was_never_for_this_member_ends_with_the_next_message_of_its_sender():
    """A peer that lies can cost order, but no packet waits for ever, and no row is left that cannot be read."""
    core, sender = KS(1, 4), KS(2, 4)
    sender.send((3,), b"")
    lie = core.decode(0, wire(clock=1, guards=((2, 1),), newest=(0, 0, 1, 0)))
    assert core.receive(0, lie).deliver == []
    (genuine,) = sender.send((1,), b"x")
    assert core.receive(2, core.decode(2, sender.encode(genuine))).deliver[1:] == [lie]
    core.check()
    assert KS.restore(1, 4, core.dirty()[0]).held() == []


def test_a_batch_writes_one_row_for_each_sender_that_changed_in_the_log_and_what_is_held():
    scene = Scene(KS, 4)
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    assert scene.cores[0].dirty()[0].keys() == {(HEAD, 0), (LOG, 0)}
    scene.arrive("b", 1)
    assert scene.cores[1].dirty()[0].keys() == {(DELIVERED, 0), (LOG, 0)}
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    rows, gone = scene.cores[2].dirty()
    assert [kind for kind, _ in rows] == [HELD] and gone == set()
    scene.arrive("a", 2)
    written, dropped = scene.cores[2].dirty()
    assert written.keys() == {(DELIVERED, 0), (DELIVERED, 1), (LOG, 0), (LOG, 1)} and dropped == rows.keys()
    scene.send("d", 3, 2)
    scene.arrive("d", 2)
    assert scene.cores[2].dirty()[0].keys() == {(DELIVERED, 3), (LOG, 3)}
    assert scene.cores[2].dirty() == ({}, set())


def test_a_multicast_prunes_for_each_destination_and_shares_the_rest():
    """Of m to {1, 2, 3}, what then goes to 1 and to 2 names the receiver, and 3 on both copies."""
    core = KS(0, 4)
    core.send((1, 2, 3), b"m")
    first, second = core.send((1, 2), b"x")
    assert o_of(first) == {(0, 1): {1, 3}} and o_of(second) == {(0, 1): {2, 3}}
    assert first.stamp.known is second.stamp.known
    assert log_of(core) == {(0, 1): {3}, (0, 2): {1, 2}}
    assert [core.control_ints(packet) for packet in (first, second)] == [4 + 2 + 3 + 2] * 2


def test_sizes_are_those_of_the_study():
    """KS: 4 + |Dests| + 3E + D. KS': n^2/32 bits, a clock for each member named and each empty newest entry."""
    for encoding, size_of in (
        ("list", lambda size, dests, e, d, n: 4 + dests + 3 * e + d),
        ("bitmap", lambda size, dests, e, d, n: -(-size * size // 32) + d + n),
    ):
        lots = random.Random(5)
        size = 12
        cores = [KS(me, size, encoding) for me in range(size)]
        empty = 0
        for _ in range(300):
            frm = lots.randrange(size)
            dests = tuple(lots.sample([k for k in range(size) if k != frm], 1 + lots.randrange(3)))
            for packet in cores[frm].send(dests, b""):
                o = o_of(packet)
                d, n = sum(map(len, o.values())), sum(not v for v in o.values())
                assert cores[frm].control_ints(packet) == size_of(size, len(dests), len(o), d, n)
                arrived = cores[packet.to].decode(frm, cores[frm].encode(packet))
                assert cores[packet.to].control_ints(arrived) == cores[frm].control_ints(packet)
                cores[packet.to].receive(frm, arrived)
                empty += n
        assert empty > 1_000


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [3, 256, 300])
def test_a_large_domain_and_large_clocks_come_back_from_the_wire(size, encoding):
    sender, receiver = KS(0, size, encoding), KS(1, size, encoding)
    sender.clock = 70_000
    last = size - 1
    sender.newest[2], sender.newest[last] = 5_000_000_000, 5_000_000_000
    sender.records[last] = ((4, 1 << 1), (300, 1 << 2 if size > 3 else 0), (5_000_000_000, 1 << 0))[
        : 3 if size > 3 else 1
    ]
    for dests in ((1,), (1, last), tuple(range(1, size))):
        packet = next(each for each in sender.send(dests, b"body") if each.to == 1)
        arrived = receiver.decode(0, sender.encode(packet))
        assert (arrived.dests, arrived.body, arrived.stamp.clock) == (dests, b"body", packet.stamp.clock)
        assert o_of(arrived) == o_of(packet)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [255, 256, 257])
def test_a_log_that_names_somebody_for_every_member_of_the_domain_fits(size, encoding):
    """256 indexes fit a byte, and their number does not. All have told all, and one is slow."""
    sender, receiver = KS(0, size, encoding), KS(7, size, encoding)
    sender.clock = receiver.clock = 1
    for s in range(size):
        sender.newest[s] = 1
        sender.records[s] = ((1, 1 << (5 if s != 5 else 6)),)
    (packet,) = sender.send((7,), b"body")
    arrived = receiver.decode(0, sender.encode(packet))
    assert arrived.stamp.known.records == sender.records | {0: ((1, 1 << 5),)}
    assert arrived.body == b"body"


def wire(clock=9, guards=(), newest=(3, 0, 7, 0), records=None, dests=(1,), encoding="list"):
    """What member 0 of four might send to member 1."""
    core = KS(0, 4, encoding)
    known = Known(list(newest), records or {}, core._newest(list(newest)) + core._pack(records or {}, 4))
    return core.encode(Packet(1, dests, b"", 0, Stamp(clock, guards, known)))


ONE = 1 << 3


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"clock": 0}, "not sent"),
        ({"clock": 3}, "not sent"),
        ({"clock": LIMIT}, "not sent"),
        ({"newest": (3, 0, LIMIT, 0)}, "not sent"),
        ({"newest": (3, 1, 0, 0)}, "not sent"),  # member 1 has sent nothing
        ({"guards": ((1, 1),), "newest": (0, 0, 0, 0)}, "no message"),
        ({"guards": ((2, 8),)}, "no message"),
        ({"guards": ((2, 0),)}, "no message"),
        ({"guards": ((4, 1),)}, "no packet"),
        ({"records": {2: ((8, ONE),)}}, "no record"),
        ({"records": {2: ((0, ONE),)}}, "no record"),
        ({"records": {2: ((4, 1 << 1),)}}, "no record"),  # names the receiver
        ({"records": {2: ((4, ONE),)}, "dests": (1, 3)}, "no record"),
        ({"records": {2: ((4, 1 << 2),)}}, "no record"),  # names its sender
        ({"records": {2: ((4, 1 << 4),)}}, "no record"),  # names nobody of the domain
        ({"records": {7: ((4, ONE),)}}, "no packet|no record"),
        ({"dests": (2, 3)}, "no destinations"),
    ],
)
def test_stamps_that_no_member_sends_are_refused(lie, why, encoding):
    assert KS(1, 4, encoding).decode(0, wire(encoding=encoding)).stamp.clock == 9
    with pytest.raises(ValueError, match=why):
        KS(1, 4, encoding).decode(0, wire(encoding=encoding, **lie))


@pytest.mark.parametrize(
    "entries", [((4, ONE), (3, 1)), ((4, ONE), (4, 1)), ((4, ONE), (5, ONE)), ((4, 0),), ((4, 0), (5, ONE)), ()]
)
def test_a_list_whose_clocks_fall_or_that_names_somebody_twice_or_nobody_is_refused(entries):
    data = wire(records={2: ((4, ONE),)}).replace(KS(0, 4)._pack({2: ((4, ONE),)}, 4), _list({2: entries}))
    with pytest.raises(ValueError, match="no record"):
        KS(1, 4).decode(0, data)


@pytest.mark.parametrize(("first", "length"), [(60_000, 1), (39, 0), (0, 39)])
def test_bits_that_lie_outside_the_domain_are_refused_before_a_mask_is_made_of_them(first, length):
    """38 bytes hold the bits of 300 members; 65,535 would be as easy to claim."""
    data = struct.pack("<B5HB", 0, 1, 2, 1, first, length, 4) + b"\1" * length
    assert _unpack_list(struct.pack("<B5HB", 0, 1, 2, 1, 37, 1, 4) + b"\1", 0, 300)[0] == {2: ((4, 1 << 8 * 37),)}
    with pytest.raises(ValueError, match="outside the domain"):
        _unpack_list(data, 0, 300)


def _list(records):
    """The list encoding of any entries at all."""
    data = [bytes((0, len(records), *records, *map(len, records.values())))]
    entries = [entry for each in records.values() for entry in each]
    data.append(
        bytes([0] * len(entries) + [1] * len(entries) + [t for t, _ in entries] + [mask for _, mask in entries])
    )
    return b"".join(data)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_packet_that_is_cut_short_is_refused(encoding):
    for data in (
        wire(newest=(1, 0, 7, 8), guards=((2, 3),), records={2: ((4, ONE), (7, 1))}, encoding=encoding),
        wire(newest=(0, 0, 7, 0), records={2: ((4, ONE),)}, dests=(1, 2), encoding=encoding),
    ):
        assert KS(1, 4, encoding).decode(0, data).body == b""
        for end in range(len(data)):
            with pytest.raises(ValueError):
                KS(1, 4, encoding).decode(0, data[:end])


@settings(max_examples=300)
@given(st.binary(max_size=40), st.sampled_from(ENCODINGS))
def test_any_bytes_are_read_or_refused(data, encoding):
    core = KS(1, 3, encoding)
    try:
        packet = core.decode(0, data)
    except ValueError:
        return
    core.receive(0, packet)
    core.dirty()
    core.check()


def test_options_of_the_file_are_judged():
    members = ("a", "b", "c")
    assert KS.validate(members, {}) == KS.validate(members, {"encoding": "bitmap"}) == []
    (fault,) = KS.validate(members, {"encoding": "tree"})
    assert 'write "list" or "bitmap"' in fault
    assert len(KS.validate(members, {"encoding": ["list"]})) == 1
    assert KS.validate(members, {"encodings": "list"}) == ["unknown option 'encodings': it has encoding; take it out"]
    assert create("ks", 0, 3, encoding="bitmap").control_ints(KS(0, 3, "bitmap").send((1,), b"")[0]) == 1
