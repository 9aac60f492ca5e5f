"""One order for all members of a domain: numbers, sets-orders, the token, what waits; each rule broken on purpose."""

import random

import pytest

from mombroker.ordering import Packet, Step
from mombroker.ordering.abcast import COUNTS, HEAD, HELD, LOCAL, SEGMENT, Abcast, Stamp
from mombroker.ordering.explore import Broken, explore
from mombroker.ordering.testing import Nonconforming, caught, conform, run, unordered
from tests.fakes_abcast import Dawdles, NotDurable, NoWait, Silent, TooSoon, TwoHolders, Unnumbered


class Members:
    """The cores of a domain; a packet goes to its receiver when it is told to."""

    def __init__(self, size: int, backend: type[Abcast] = Abcast, **options: int):
        self.cores = [backend(me, size, **options) for me in range(size)]
        self.ways: dict[tuple[int, int], list[bytes]] = {}
        self.got: list[list[bytes]] = [[] for _ in range(size)]

    def send(self, me: int, body: bytes, *dests: int) -> None:
        self._post(me, self.cores[me].send(dests, body))

    def close(self, me: int) -> None:
        """The batch of a member ends."""
        self._post(me, self.cores[me].announce())

    def _post(self, me: int, packets: list[Packet]) -> None:
        for packet in packets:
            if packet.to == me:
                self._deliver(me, self.cores[me].receive(me, packet))
            else:
                self.ways.setdefault((me, packet.to), []).append(self.cores[me].encode(packet))
        self.cores[me].check()

    def _deliver(self, me: int, step: Step) -> None:
        self.got[me] += [packet.body for packet in step.deliver]

    def arrive(self, frm: int, to: int) -> None:
        """All that is on its way between two."""
        for data in self.ways.pop((frm, to), []):
            self._deliver(to, self.cores[to].receive(frm, self.cores[to].decode(frm, data)))
            self.cores[to].check()

    def rest(self) -> None:
        """Everything arrives, and every batch ends."""
        while self.ways:
            for way in list(self.ways):
                self.arrive(*way)
            for me in range(len(self.cores)):
                self.close(me)


def test_the_holder_numbers_its_own_messages_when_it_sends_them():
    scene = Members(3)
    scene.send(0, b"a", 0, 1, 2)
    assert scene.got[0] == [b"a"] and not scene.cores[0].due
    scene.arrive(0, 1)
    assert scene.got[1] == [b"a"]


def test_a_member_waits_for_the_number_of_what_it_sends():
    scene = Members(3)
    scene.send(1, b"a", 0, 1, 2)
    scene.send(2, b"b", 0, 1, 2)
    assert scene.got[1] == scene.got[2] == []
    scene.arrive(2, 0)
    scene.arrive(1, 0)
    scene.arrive(1, 2)
    scene.arrive(2, 1)
    assert scene.got == [[b"b", b"a"], [], []]
    assert [causes for _, causes in scene.cores[2].held()] == [[(0, 1)], [(0, 1)]]  # what the holder says next
    scene.close(0)
    assert [len(packets) for packets in scene.ways.values()] == [1, 1]  # one sets-order for both
    scene.rest()
    assert scene.got == [[b"b", b"a"]] * 3


def test_what_the_holder_sends_tells_the_numbers_of_others_too():
    scene = Members(3)
    scene.send(1, b"a", 0, 2)
    scene.arrive(1, 0)
    scene.send(0, b"b", 1, 2)
    assert not scene.cores[0].due
    scene.arrive(0, 2)
    assert scene.got[2] == []
    ((packet, causes),) = scene.cores[2].held()
    assert (packet.body, causes) == (b"b", [(1, 1)])  # the message that is first in the order, and has not come
    assert scene.cores[2].missing(packet) == causes
    scene.arrive(1, 2)
    assert scene.got[2] == [b"a", b"b"]


def test_the_token_goes_to_whom_alone_sends():
    scene = Members(4, patience=3)
    for number in range(3):
        scene.send(2, b"%d" % number, 0, 1)
        scene.arrive(2, 0)
        scene.close(0)
        assert scene.cores[0].holder == (2 if number == 2 else 0)
    scene.arrive(0, 2)
    assert scene.cores[2].holder == 2 and scene.cores[1].holder == 0
    scene.send(2, b"own", 1, 2)
    assert scene.got[2] == [b"own"] and not scene.cores[2].due
    scene.send(3, b"other", 1)
    scene.arrive(3, 0)
    assert not scene.cores[0].due  # it has given the token away
    scene.rest()
    assert scene.got[1] == [b"0", b"1", b"2", b"own", b"other"] and {core.holder for core in scene.cores} == {2}


def test_who_gets_the_token_delivers_what_came_before_first():
    scene = Members(3, patience=1)
    scene.send(1, b"a", 0, 2)
    scene.send(2, b"b", 0, 1)
    scene.arrive(1, 0)
    scene.arrive(2, 0)
    scene.close(0)
    scene.arrive(0, 2)
    assert scene.cores[2].holder == 0  # a has not come to it
    scene.send(2, b"c", 0, 1)
    assert not scene.cores[2].due
    scene.arrive(1, 2)
    assert scene.cores[2].holder == 2 and scene.cores[2].due
    scene.rest()
    assert scene.got == [[b"a", b"b", b"c"], [b"b", b"c"], [b"a"]]


def test_an_order_of_the_next_holder_may_come_before_that_of_the_former():
    scene = Members(3, patience=1)
    scene.send(2, b"a", 0, 1)
    scene.arrive(2, 0)
    scene.close(0)
    scene.arrive(0, 2)
    scene.send(2, b"b", 0, 1)
    scene.arrive(2, 1)
    assert scene.got[1] == [] and scene.cores[1].dirty()[0].keys() == {
        (COUNTS, 2), (HELD, 1 * 3 + 2), (HELD, 2 * 3 + 2), (SEGMENT, 1)
    }  # fmt: skip
    scene.arrive(0, 1)
    assert scene.got[1] == [b"a", b"b"]
    put, gone = scene.cores[1].dirty()
    assert put.keys() == {(COUNTS, 2), (HEAD, 0)}
    assert gone == {(HELD, 1 * 3 + 2), (HELD, 2 * 3 + 2), (SEGMENT, 1)}


def test_what_is_for_the_sender_alone_costs_no_packet_and_overtakes_nothing():
    scene = Members(3)
    scene.send(1, b"first", 1)
    assert scene.got[1] == [b"first"] and not scene.ways
    scene.send(1, b"all", 0, 1, 2)
    scene.send(1, b"mine", 1)
    assert scene.got[1] == [b"first"] and len(scene.ways) == 2
    assert scene.cores[1].dirty()[0].keys() == {(COUNTS, 1), (HELD, 1 * 3 + 1), (LOCAL, 0)}
    scene.rest()
    assert scene.got[1] == [b"first", b"all", b"mine"]


def test_a_packet_of_who_has_no_token_is_refused_before_anything_changes():
    core = Abcast(1, 3)
    for stamp in (Stamp(0, 0, ((0, 1),)), Stamp(1, 0, ((2, 1),))):
        with pytest.raises(ValueError, match="member 2 orders what comes after message 0, not member 0"):
            core.receive(2, Packet(1, (1,) if stamp.number else (), b"", 2, stamp, 2))
    with pytest.raises(ValueError, match="packet 2 of member 2 came next after packet 0"):
        core.receive(2, Packet(1, (1,), b"", 2, Stamp(2), 2))
    assert core.dirty() == ({}, set())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no packet"),
        (b"\0", "no packet"),
        (b"\x80\1", "no packet"),
        (b"\x0c\0", "without a message or an order"),
        (b"\x0c\1x", "for nobody"),
        (b"\2" + bytes(4), "without a message or an order"),
        (b"\3" + b"\xff" * 8, "counts more than"),
        (b"\x04\1\2\1", "no destinations for member 1"),
        (b"\x2c\1\0\0\0\3\1", "names others than members"),
        (b"\x2c\2\0\0\0\2\0\2\1", "before its end"),
        (b"\x2c\1\0\0\0\2\0", "the token moves with no sets-order"),
        (b"\x2c\2\0\0\0\2\1\0\0", "or to nobody else"),
    ],
)
def test_what_no_member_sends_is_refused(data, why):
    with pytest.raises(ValueError, match=why):
        Abcast(1, 3).decode(0, data)


def test_what_a_packet_says_comes_back_from_its_bytes():
    sender, receiver = Abcast(0, 5), Abcast(1, 5)
    stamps = [
        Stamp(7), Stamp(70_000, 0, ((0, 1),)), Stamp(3, 1 << 33, ((4, 2), (0, 3))),
        Stamp(5, 9, ((2, 7), (3, 1), (0, 1))),
    ]  # fmt: skip
    for stamp in stamps:
        for dests in ((1,), (1, 0), (3, 1), (0, 1, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4), ()):
            packet = Packet(1, dests, b"body" if dests else b"", 0, stamp)
            back = receiver.decode(0, sender.encode(packet))
            assert (sorted(back.dests), back.body, back.origin) == (sorted(dests), packet.body, 0)
            assert (back.stamp.number, back.stamp.start, back.stamp.entries) == (
                stamp.number, stamp.start, stamp.entries,
            )  # fmt: skip
    order = Packet(1, (), b"", 0, Stamp(0, 4, ((2, 3), (1, 0))))
    assert receiver.decode(0, sender.encode(order)).stamp.entries == ((2, 3), (1, 0))


def test_the_options_are_checked():
    members = ("paris", "lyon", "nice")
    assert Abcast.validate(members, {"holder": "lyon", "patience": 1}) == []
    assert Abcast.resolve(members, {"holder": "lyon", "patience": 1}) == {"holder": 1, "patience": 1}
    assert Abcast.validate(members, {"holder": "rome", "patience": 0, "speed": 2}) == [
        "unknown option 'speed': it has holder, patience; take it out",
        "holder names a server of this domain: choose one of paris, lyon, nice",
        "patience is a number of messages, 16 if you do not say it: choose 1 or more",
    ]


# -- the kit -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_it_conforms_while_the_token_moves(patience):
    conform(Abcast, range(30), random.Random, options=lambda size: {"patience": patience, "holder": size - 1})


@pytest.mark.long
@pytest.mark.parametrize("patience", [1, 2, 5])
def test_it_conforms_on_many_schedules_while_the_token_moves(patience):
    conform(Abcast, range(30, 2_000), random.Random, options=lambda size: {"patience": patience})


def test_every_schedule_of_two_members_while_the_token_moves():
    for restarts in (False, True):
        explore(Abcast, size=2, sends=3, restarts=restarts, options={"patience": 1})


@pytest.mark.long
def test_every_schedule_of_three_members_while_the_token_moves():
    for restarts in (False, True):
        explore(Abcast, size=3, sends=2, restarts=restarts, options={"patience": 1})


def test_one_order_is_that_of_causes_too():
    """Two that nobody gets both, and a third one that tells that they were delivered in the wrong order."""
    sent = [("send", 0, "m", (1,)), ("send", 0, "n", (2,)), ("send", 3, "x", (1, 2))]
    good = [("deliver", 1, "m"), ("deliver", 1, "x"), ("deliver", 2, "x"), ("deliver", 2, "n")]
    bad = [("deliver", 1, "x"), ("deliver", 1, "m"), ("deliver", 2, "n"), ("deliver", 2, "x")]
    assert unordered([*sent, *good]) == [] and set(unordered([*sent, *bad])) == {"m", "n", "x"}


# -- controls ------------------------------------------------------------------------------------------------------


MOVING = {"options": lambda size: {"patience": 1}}


@pytest.mark.parametrize("broken", [NoWait, Unnumbered, TwoHolders, NotDurable, Silent, TooSoon])
def test_the_kit_catches_what_is_broken(broken):
    assert caught(broken, range(100), random.Random, **MOVING) < 100


@pytest.mark.parametrize("broken", [NoWait, Unnumbered])
def test_two_orders_are_found_by_the_one_order(broken):
    with pytest.raises(Nonconforming, match="no one order of messages"):
        for seed in range(200):
            try:
                run(broken, seed, random.Random, options=lambda size: {"patience": 1000})
            except Nonconforming as error:
                if "no one order" in str(error):
                    raise


@pytest.mark.parametrize("broken", [NoWait, TwoHolders, Silent])
def test_the_explorer_finds_them_too(broken):
    with pytest.raises(Broken):
        explore(broken, size=3, sends=2, options={"patience": 1})


def test_the_explorer_finds_a_needless_wait():
    with pytest.raises(Broken, match="though nothing is missing"):
        explore(Dawdles, size=3, sends=1)
