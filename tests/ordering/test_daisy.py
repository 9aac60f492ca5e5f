"""The daisy on the bus: groups, vectors, relays."""

import random
from struct import pack

import pytest

from mombroker.ordering import Packet, Step
from mombroker.ordering.daisy import ACK, ACKS, HELD, ORIGIN, OUT, SEAT, Ack, Daisy
from mombroker.ordering.envelope import FLAG, LIMIT, seal
from mombroker.ordering.testing import conform


def nested(levels: int):
    """For every size: groups of so many levels, of all shapes, groups of one among them."""

    def split(members: list[int], left: int):
        if left == 1:
            return members
        parts = min(len(members), 2 if len(members) < 9 else 3)
        cuts = [len(members) * k // parts for k in range(parts + 1)]
        return [split(members[a:b], left - 1) for a, b in zip(cuts, cuts[1:], strict=False)]

    return lambda size: split([*range(size)], levels)


KINDS = [(levels, relay) for levels in (1, 2, 3, 4) for relay in ("eager", "stable")]


@pytest.mark.parametrize(("levels", "relay"), KINDS)
def test_trees_of_any_depth_are_safe_and_live(levels, relay):
    options = nested(levels)
    kind = {"sizes": range(3, 12), "options": lambda size: {"groups": options(size), "relay": relay}}
    conform(Daisy, range(25), random.Random, **kind)


@pytest.mark.long
@pytest.mark.parametrize(("levels", "relay"), KINDS)
def test_trees_of_any_depth_are_safe_and_live_on_many_schedules(levels, relay):
    options = nested(levels)
    conform(Daisy, range(2_000), random.Random, options=lambda size: {"groups": options(size), "relay": relay})


class Scene:
    """Cores, and the packets between them by (sender, receiver), first one first."""

    def __init__(self, groups, kind=Daisy, **options):
        size = 1 + max(member for group in groups for member in group)
        self.cores = [kind(me, size, groups=groups, **options) for me in range(size)]
        self.flying: dict[tuple[int, int], list[bytes]] = {}

    def post(self, me: int, packets: list[Packet]) -> None:
        for packet in packets:
            self.flying.setdefault((me, packet.to), []).append(self.cores[me].encode(packet))

    def send(self, me: int, *dests: int, body: bytes = b"x") -> list[Packet]:
        packets = self.cores[me].send(dests, body)
        self.post(me, packets)
        return packets

    def arrive(self, frm: int, me: int) -> Step:
        step = self.cores[me].receive(frm, self.cores[me].decode(frm, self.flying[frm, me].pop(0)))
        self.cores[me].check()
        self.post(me, step.send)
        return step

    def settle(self) -> list[tuple[int, bytes]]:
        """Everything arrives; what is delivered where."""
        got = []
        while ways := [way for way, queue in self.flying.items() if queue]:
            got += [(ways[0][1], done.body) for done in self.arrive(*ways[0]).deliver]
        return got


TWO = [[0, 1, 2], [3, 4]]  # connectors 0 and 3


def test_a_message_goes_to_the_home_group_then_up_then_down():
    scene = Scene(TWO)
    assert [packet.to for packet in scene.send(1, 4)] == [0, 2]
    step = scene.arrive(1, 0)
    assert ([packet.to for packet in step.send], step.deliver) == ([3], [])
    step = scene.arrive(0, 3)
    assert ([packet.to for packet in step.send], step.deliver) == ([4], [])
    step = scene.arrive(3, 4)
    assert (step.send, [(done.origin, done.dests, done.frm) for done in step.deliver]) == ([], [(1, (4,), 3)])


def test_a_message_stays_in_the_home_group_if_nobody_else_is_meant():
    scene = Scene(TWO)
    scene.send(1, 0, 2)
    assert sorted(scene.settle()) == [(0, b"x"), (2, b"x")]


def test_groups_without_destinations_are_not_entered():
    scene = Scene([[0, 1], [2, 3], [4, 5]])
    scene.send(1, 5)
    entered = set()
    while ways := [way for way, queue in scene.flying.items() if queue]:
        entered.add(ways[0])
        scene.arrive(*ways[0])
    assert entered == {(1, 0), (0, 2), (0, 4), (4, 5)}


def test_a_connector_delivers_when_it_passes_on_into_its_home_group():
    scene = Scene(TWO)
    scene.send(4, 0, 1)
    scene.arrive(4, 3)
    step = scene.arrive(3, 0)
    assert [done.body for done in step.deliver] == [b"x"] and [packet.to for packet in step.send] == [1, 2]


def test_an_answer_that_comes_by_another_way_waits_for_its_cause():
    """0 sends m to its group (slowly to 2) and beyond; the answer of 4 comes back through 0."""
    scene = Scene([[0, 1, 2], [3, 4]], connectors=[1])
    scene.send(0, 2, 4, body=b"m")
    scene.arrive(0, 1)
    scene.arrive(1, 3)
    scene.arrive(3, 4)
    scene.send(4, 2, body=b"r")
    scene.arrive(4, 3)
    scene.arrive(3, 1)
    assert scene.arrive(1, 2).deliver == []
    ((packet, causes),) = scene.cores[2].held()
    assert (packet.body, causes, scene.cores[2].missing(packet)) == (b"r", [(0, 1)], [(0, 1)])
    assert [done.body for done in scene.arrive(0, 2).deliver] == [b"m", b"r"]
    assert scene.cores[2].held() == []


def test_vectors_are_as_long_as_a_group():
    scene = Scene([[*range(g * 10, g * 10 + 10)] for g in range(10)])
    (packet, *_) = scene.send(1, 99)
    core = scene.cores[1]
    assert core.control_ints(packet) == 10
    assert len(core.encode(packet)) - 1 == 4 + 10
    assert len(packet.stamp.vector) == 10


def test_stable_relays_wait_until_all_of_the_group_have_stored_the_message():
    scene = Scene(TWO, relay="stable")
    scene.send(1, 4, 0, body=b"m")
    assert [done.body for done in scene.arrive(1, 0).deliver] == [b"m"]
    assert (0, 3) not in scene.flying
    step = scene.arrive(1, 2)
    assert [(packet.to, type(packet.stamp)) for packet in step.send] == [(0, Ack)]
    assert [packet.to for packet in scene.arrive(2, 0).send] == [3]


def test_what_waits_for_acknowledgements_says_whose():
    """Groups {0,1}, {2,3}, {4}: 2 has m for itself, and may not deliver it before 4 has it."""
    scene = Scene([[0, 1], [2, 3], [4]], relay="stable")
    scene.send(0, 2, 3, body=b"m")
    scene.arrive(0, 1)
    scene.arrive(1, 0)  # the acknowledgement
    step = scene.arrive(0, 2)
    assert (step.send, step.deliver) == ([], [])
    core = scene.cores[2]
    ((packet, lacking),) = core.parked()
    assert lacking == [(4, 1)] and core.held() == [] and core.missing(packet) is None
    scene.arrive(0, 4)
    assert [done.body for done in scene.arrive(4, 2).deliver] == [b"m"]
    assert core.parked() == []


def test_nobody_acknowledges_what_nobody_waits_for():
    scene = Scene(TWO, relay="stable")
    scene.send(1, 2)
    assert scene.arrive(1, 0).send == scene.arrive(1, 2).send == []


@pytest.mark.parametrize("relay", ["eager", "stable"])
def test_a_packet_that_comes_twice_is_dropped(relay):
    scene = Scene(TWO, relay=relay)
    scene.send(4, 0, 2)
    scene.arrive(4, 3)
    data = scene.flying[3, 0][0]
    assert len(scene.arrive(3, 0).send) == 2
    core = scene.cores[0]
    assert core.receive(3, core.decode(3, data)) == Step([], [])


def test_a_held_packet_that_comes_twice_is_dropped():
    scene = Scene([[0, 1, 2]])
    scene.send(0, 2)
    scene.send(0, 2)
    core = scene.cores[2]
    later = scene.flying[0, 2].pop()
    for _ in range(2):
        assert core.receive(0, core.decode(0, later)) == Step([], [])
    assert len(core.held()) == 1
    assert len(scene.arrive(0, 2).deliver) == 2


# -- rows ---------------------------------------------------------------------------------------------------------


def test_rows_do_not_grow_with_the_messages():
    scene = Scene(TWO)
    rows: dict[int, dict] = {me: {} for me in range(5)}
    sizes = []
    for _ in range(3):
        for _ in range(50):
            for me in range(5):
                scene.send(me, *[k for k in range(5) if k != me], body=b"x" * 1000)
            scene.settle()
        for me, core in enumerate(scene.cores):
            put, gone = core.dirty()
            rows[me] = {key: blob for key, blob in (rows[me] | put).items() if key not in gone}
        sizes.append([sum(map(len, each.values())) for each in rows.values()])
    assert sizes[0] == sizes[1] == sizes[2] and max(sizes[0]) < 200
    assert rows[4].keys() == {(SEAT, 2), *((ORIGIN, k) for k in range(5))}


def test_a_step_puts_only_what_it_changed():
    scene = Scene(TWO)
    scene.send(1, 4)
    scene.arrive(1, 0)
    assert scene.cores[0].dirty()[0].keys() == {(SEAT, 0), (SEAT, 1), (ORIGIN, 1)}
    assert scene.cores[0].dirty() == ({}, set())


def test_what_waits_comes_back_from_the_rows():
    scene = Scene([[0, 1], [2, 3], [4]], relay="stable")
    scene.send(0, 2, 3, body=b"m")
    scene.settle()
    scene.send(1, 2, body=b"n")
    scene.arrive(1, 0)
    scene.arrive(0, 2)
    core = scene.cores[2]
    rows, gone = core.dirty()
    assert not gone and {kind for kind, _ in rows} == {SEAT, ORIGIN, ACKS, OUT + 1}
    again = Daisy.restore(2, 5, rows, groups=[[0, 1], [2, 3], [4]], relay="stable")
    again.check()
    assert [(p.body, p.frm, lacking) for p, lacking in again.parked()] == [(b"n", 0, [(4, 2)])]
    assert again.dirty() == ({}, set())
    scene.cores[2] = again
    assert (2, b"n") in scene.settle()
    assert again.dirty()[1] == {(OUT + 1, 2 * 5 + 0)}


def test_a_held_packet_comes_back_from_the_rows():
    scene = Scene([[0, 1, 2]])
    scene.send(0, 2)
    scene.send(0, 1, 2)
    scene.flying[0, 2].reverse()
    scene.arrive(0, 2)
    rows, _ = scene.cores[2].dirty()
    assert rows.keys() == {(HELD, 2 * 3)}
    again = Daisy.restore(2, 3, rows, groups=[[0, 1, 2]])
    assert [(packet.dests, causes) for packet, causes in again.held()] == [((1, 2), [(0, 1)])]


# -- bytes --------------------------------------------------------------------------------------------------------

HEAD = seal(0, 1, 1, (2,))
MALFORMED = {
    "nothing": b"",
    "no vector": HEAD,
    "a vector that is cut short": HEAD + bytes((0, 1)),
    "a vector that does not count the packet": HEAD + bytes((0, 0, 0)),
    "a vector that counts too much": seal(3 * FLAG, 1, 1, (2,)) + pack("<3Q", LIMIT, 1, 0),
    "a destination that is no member": seal(0, 1, 1, (9,)) + bytes((0, 1, 0)),
    "a message with the flag of acknowledgements": seal(ACK + FLAG, 1, 1, (2,)) + bytes(6),
    "a message of ours that we never sent": seal(0, 1, 0, (2,)) + bytes((0, 1, 0)),
    "a vector that counts what we never sent": seal(0, 1, 1, (2,)) + bytes((1, 1, 0)),
    "an acknowledgement that is cut short": pack("<BHI", ACK, 1, 1),
    "an acknowledgement of nothing": pack("<BHQ", ACK, 1, 0),
    "an acknowledgement of a stranger": pack("<BHQ", ACK, 4, 1),
    "an acknowledgement of too much": pack("<BHQ", ACK, 1, LIMIT),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=[*MALFORMED])
def test_bytes_that_no_member_sends_are_refused(data):
    core = Daisy(0, 5, groups=TWO)
    with pytest.raises(ValueError):
        core.decode(1, data)


def test_a_packet_from_another_group_is_refused():
    with pytest.raises(ValueError, match="member 4 is in no group with member 0"):
        Daisy(0, 5, groups=TWO).decode(4, HEAD + bytes(3))


def test_a_packet_can_be_decoded_by_a_new_core():
    """Audits decode the out-queues of others: nothing may depend on what a core has seen."""
    scene = Scene(TWO, relay="stable")
    for _ in range(300):
        scene.send(1, 4)
        scene.settle()
    core = Daisy(0, 5, groups=TWO)
    (packet, _) = scene.cores[1].send((4,), b"x")
    assert core.decode(1, scene.cores[1].encode(packet)).stamp.number == 301
