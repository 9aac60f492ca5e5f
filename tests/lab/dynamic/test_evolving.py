"""The daisy whose groups change: nothing is lost, repeated or out of order; bytes and rows."""

import random
from collections.abc import Callable

import pytest

from mombroker.lab.dynamic.codec import pack, unpack
from mombroker.lab.dynamic.coordinator import Coordinator, HandOver, Merge, Split
from mombroker.lab.dynamic.evolving import EvolvingDaisy
from mombroker.lab.dynamic.views import Clear, Flushed, Heard, Hold, Pool, Report, Said, State
from mombroker.ordering import Packet
from mombroker.ordering.testing import conform
from tests.lab.dynamic import daisy_world as world

KINDS = [world.crash, world.split, world.merge, world.hand_over, world.two_crashes, world.mixture]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
TWO = [[0, 1, 2], [3, 4]]


def faults(seed: int, kind: Callable[[world.World], None]) -> list[str]:
    """Two to four levels, eager and stable relays."""
    return world.run(seed, kind, 2 + seed % 3, relay=("eager", "stable")[seed // 3 % 2])


@every_kind
def test_nothing_is_lost_repeated_or_out_of_order(kind):
    assert {seed: found for seed in range(12) if (found := faults(seed, kind))} == {}


@pytest.mark.long
@every_kind
def test_nothing_is_lost_repeated_or_out_of_order_in_many_worlds(kind):
    assert {seed: found for seed in range(2_000) if (found := faults(seed, kind))} == {}


@pytest.mark.long
@pytest.mark.parametrize("levels", [2, 3, 4])
def test_stable_relays_stand_several_losses_at_once(levels):
    found = {seed: bad for seed in range(700) if (bad := world.run(seed, world.concurrent, levels, relay="stable"))}
    assert found == {}


def test_without_changes_it_is_an_ordering_like_the_others():
    conform(EvolvingDaisy, range(5), random.Random, sizes=range(3, 8))


# -- stability ----------------------------------------------------------------------------------------------------


def settle(cores: list[EvolvingDaisy], packets: list[tuple[int, Packet]]) -> None:
    while packets:
        frm, packet = packets.pop(0)
        core = cores[packet.to]
        packets += [(core.me, each) for each in core.receive(frm, core.decode(frm, cores[frm].encode(packet))).send]


def test_the_log_forgets_what_all_have():
    cores = [EvolvingDaisy(me, 5, groups=TWO) for me in range(5)]
    settle(cores, [(1, packet) for packet in cores[1].send((2, 4), b"m")])
    assert [len(group.log) for core in cores for group in core.groups.values()] == [1] * 7
    for _ in range(5):
        for core in cores:
            settle(cores, [(core.me, packet) for packet in core.change(Report()).send])
    assert [len(group.log) for core in cores for group in core.groups.values()] == [0] * 7
    assert all(core.change(Report()).send == [] for core in cores)


def test_a_stable_relay_waits_for_the_reports_of_its_group():
    cores = [EvolvingDaisy(me, 5, groups=TWO, relay="stable") for me in range(5)]
    settle(cores, [(1, packet) for packet in cores[1].send((4,), b"m")])
    assert [core.last.get(1, 0) for core in cores] == [0, 1, 0, 0, 0]
    for _ in range(3):
        for core in cores:
            settle(cores, [(core.me, packet) for packet in core.change(Report()).send])
    assert cores[4].last[1] == 1


def test_what_is_said_on_hold_is_sent_later():
    core = EvolvingDaisy(1, 5, groups=TWO)
    core.change(Hold(True))
    assert core.send((0, 4), b"m") == []
    assert [packet.to for packet in core.change(Hold(False)).send] == [0, 2]


# -- rows ---------------------------------------------------------------------------------------------------------


def test_only_rows_that_have_changed_are_written():
    core = EvolvingDaisy(0, 5, groups=TWO)  # in both groups
    core.send((1,), b"m")
    rows, _ = core.dirty()
    core.send((1,), b"m")
    put, gone = core.dirty()
    assert len(rows) == 3 and len(put) == 2 and gone == set() and core.dirty() == ({}, set())


def test_a_world_of_restarts_goes_on_as_one_without():
    """A step that is done again after a restart, from the rows of the step before, sends and delivers the same."""

    class Twice(EvolvingDaisy):
        steps = 0

        def change(self, event):
            return self._again(lambda core: EvolvingDaisy.change(core, event))

        def receive(self, frm, packet):
            data = self.encode(packet)
            return self._again(lambda core: EvolvingDaisy.receive(core, frm, core.decode(frm, data)))

        def _again(self, act):
            put, gone = self.dirty()
            assert not put.keys() & gone
            core = self.restore(self.me, self.size, dict(self._saved), groups=self.nested, relay=self.relay)
            mine, its = act(self), act(core)
            assert [self.encode(each) for each in mine.send] == [core.encode(each) for each in its.send]
            assert [each.body for each in mine.deliver] == [each.body for each in its.deliver]
            assert core.dirty() == self.dirty()
            Twice.steps += 1
            return mine

        def __init__(self, me, size, groups, relay):
            super().__init__(me, size, groups, relay=relay)
            self.nested = groups

    for kind in (world.split, world.merge, world.crash):
        assert world.run(4, kind, 2, relay="stable", backend=Twice, restarts=0.0) == []
    assert Twice.steps > 500


# -- bytes --------------------------------------------------------------------------------------------------------

SAID = Said(1, 1, 1, (1, 1), {0: 0, 1: 1, 2: 0})
MESSAGE = Packet(0, (0, 2), b"\0\xff", 1, SAID, 1)
STAMPS = [
    SAID,
    Heard(1, 1, {0: 1}, {-1: {0: 1}}),
    Flushed(1, 2),
    State(1, 2, {0: 1}, {0: 1}, {}, {}, {3}, True, set(), [MESSAGE], []),
    Pool(1, [MESSAGE]),
    Clear(1, [(1, 1)]),
]


@pytest.mark.parametrize("stamp", STAMPS, ids=lambda stamp: type(stamp).__name__)
def test_what_is_encoded_is_decoded(stamp):
    core = EvolvingDaisy(0, 5, groups=TWO)
    dests, body = ((0, 2), b"\0\xff") if stamp is SAID else ((), b"")
    data = core.encode(Packet(0, dests, body, 1, stamp))
    packet = core.decode(1, data)
    assert (packet.to, packet.dests, packet.body, packet.origin, packet.frm) == (0, dests, body, 1, 1)
    assert type(packet.stamp) is type(stamp) and core.encode(packet) == data


def wire(dests=(0, 2), body=b"", origin=1, stamp: object = SAID) -> bytes:
    return pack([dests, body, origin, stamp])


MALFORMED = {
    "nothing": b"",
    "no JSON": b"\xff{",
    "nested too deep": b"[" * 100_000,
    "a number": b"1",
    "cut short": wire()[:-3],
    "a field too many": pack([(0,), b"", 1, SAID, 1]),
    "no stamp": wire(stamp=None),
    "a stamp that is unknown": wire(stamp=["View", 1]),
    "a packet for a stamp": wire(stamp=MESSAGE),
    "a stamp that lacks fields": wire(stamp=["Flushed", 1]),
    "a text for a number": wire(stamp=["Flushed", 1, "2"]),
    "a truth for a number": wire(stamp=["Flushed", 1, True]),
    "a number that is too big": wire(stamp=Flushed(1, 1 << 70)),
    "a body of other letters": pack([(0, 2), "\u20ac", 1, SAID]),
    "a destination that is no member": wire(dests=(0, 5)),
    "a destination below all": wire(dests=(0, -1)),
    "a destination twice": wire(dests=(0, 0)),
    "a message for its origin": wire(dests=(0, 1)),
    "an origin that is no member": wire(origin=5),
    "a message for nobody": wire(dests=()),
    "a message without a number": wire(stamp=Said(0, 1, 1, (1, 1))),
    "a broadcast without a number": wire(stamp=Said(1, 1, 1, (1, 0))),
    "a marker with destinations": wire(stamp=Said(0, 1, 1, (1, 1), {}, False, 3)),
    "a log of acknowledgements": wire(
        dests=(), stamp=State(1, 2, {}, {}, {}, {}, set(), False, set(), [Packet(0, (0,), b"", 1, STAMPS[1])], [])
    ),
    "a pool of strangers' messages": wire(dests=(), stamp=Pool(1, [Packet(0, (9,), b"", 1, SAID)])),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=[*MALFORMED])
def test_bytes_that_no_member_sends_are_refused(data):
    with pytest.raises(ValueError):
        EvolvingDaisy(0, 5, groups=TWO).decode(1, data)


def test_unpacked_values_are_of_the_types_that_were_asked_for():
    for kind, value in ((dict[int, set[int]], {1: {2}}), (tuple[int, ...], (1, 2)), (int | None, None)):
        assert unpack(pack(value), kind) == value


# -- what a coordinator is asked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (Split(7, (1,)), "no group 7"),
        (Split(0, (1,)), "no group 0 that has a connector"),
        (Split(1, ()), "no leaf group of"),
        (Split(1, (3,)), r"group 1 is no leaf group of \[3\]"),
        (Split(1, (0, 1)), "connector 0 stays"),
        (Merge(1, 1), "no two leaf groups"),
        (Merge(1, 0), "no two leaf groups"),
        (HandOver(1, 3), "member 3 is not in group 1"),
    ],
)
def test_a_steward_says_what_cannot_be_done(operation, why):
    coordinator = Coordinator(TWO, lambda me: None)
    with pytest.raises(ValueError, match=why):
        coordinator.ask(operation)
