"""The overlay: one flood, exactly as many link messages as it must be, causal without a clock."""

import random

import pytest

from mombroker.ordering import Ordering, Packet, Step
from mombroker.ordering.envelope import LIMIT, seal, unseal
from mombroker.ordering.hypercube import connectivity, flood, hypercube
from mombroker.ordering.overlay import SEEN, Overlay, graph
from mombroker.ordering.testing import conform
from tests.ordering import overlay_world
from tests.ordering.overlay_world import World

NAMES = ("a", "b", "c", "d")
GRAPHS = {
    "ring": lambda size: [[k, (k + 1) % size] for k in range(size)],
    "tree": lambda size: [[k, (k - 1) // 2] for k in range(1, size)],
    "star": lambda size: [[0, k] for k in range(1, size)],
    "complete": lambda size: [[k, x] for k in range(size) for x in range(k)],
}


@pytest.mark.parametrize("links", GRAPHS.values(), ids=[*GRAPHS])
def test_any_connected_graph_will_do(links):
    conform(Overlay, range(20), random.Random, sizes=range(3, 9), options=lambda size: {"links": links(size)})


@pytest.mark.long
@pytest.mark.parametrize("links", GRAPHS.values(), ids=[*GRAPHS])
def test_any_connected_graph_will_do_on_many_schedules(links):
    conform(Overlay, range(20, 500), random.Random, options=lambda size: {"links": links(size)})


@pytest.mark.parametrize("size", [2, 3, 5, 8, 9, 16, 33, 100])
def test_a_flood_takes_the_sum_of_degrees_less_n_minus_1_link_messages(size):
    world = World(1, [Overlay(me, size) for me in range(size)])
    world.quiet = True
    for count in (1, 2):
        world.send(count % size)
        world.settle()
        assert world.link_messages == count * flood(hypercube(size))
    assert world.verdict().safe and not world.verdict().lost


@pytest.mark.parametrize("links", GRAPHS.values(), ids=[*GRAPHS])
def test_so_it_does_on_a_given_graph(links):
    pairs = links(7)
    world = World(1, [Overlay(me, 7, pairs) for me in range(7)])
    world.quiet = True
    world.send(3)
    world.settle()
    assert world.link_messages == flood(graph(7, pairs)) == 2 * len({frozenset(pair) for pair in pairs}) - 6


def hand_over(frm: Ordering, to: Ordering, packet: Packet) -> Step:
    return to.receive(frm.me, to.decode(frm.me, frm.encode(packet)))  # type: ignore[attr-defined]


def test_a_member_passes_on_to_all_but_the_one_it_heard_from_and_delivers_what_is_for_it():
    pairs = [[0, 1], [1, 2], [1, 3]]
    a, b, c, d = (Overlay(me, 4, pairs) for me in range(4))
    (packet,) = a.send((2,), b"x")
    step = hand_over(a, b, packet)
    assert ([(p.to, p.body, p.dests) for p in step.send], step.deliver) == ([(2, b"x", (2,)), (3, b"x", (2,))], [])
    to_c, to_d = step.send
    assert hand_over(b, d, to_d) == Step([], [])
    step = hand_over(b, c, to_c)
    assert (step.send, [(p.body, p.origin, p.frm) for p in step.deliver]) == ([], [(b"x", 0, 1)])


def test_a_packet_that_comes_twice_is_dropped():
    a, b, c = (Overlay(me, 3) for me in range(3))
    to_b, to_c = a.send((1, 2), b"x")
    step = hand_over(a, b, to_b)
    assert len(step.deliver) == 1
    assert hand_over(a, b, to_b) == Step([], [])
    (on,) = step.send
    assert len(hand_over(b, c, on).deliver) == 1
    assert hand_over(a, c, to_c) == Step([], [])


def test_a_link_that_is_not_fifo_is_found_out():
    sender, receiver = Overlay(0, 3), Overlay(1, 3)
    _, second = (sender.send((1,), body)[0] for body in (b"a", b"b"))
    with pytest.raises(ValueError, match="packet 2 of member 0 came next after packet 0"):
        hand_over(sender, receiver, second)
    assert receiver.dirty() == ({}, set())


def test_what_came_goes_on_byte_for_byte():
    a, b = Overlay(0, 3, [[0, 1], [1, 2]]), Overlay(1, 3, [[0, 1], [1, 2]])
    data = a.encode(a.send((2,), b"x")[0])
    (on,) = b.receive(0, b.decode(0, data)).send
    assert b.encode(on) == data


def test_one_small_row_an_origin_is_all_that_is_stored():
    core = Overlay(0, 9)
    for _ in range(100):
        core.send((1,), b"x" * 1000)
    rows, gone = core.dirty()
    assert rows == {(SEEN, 0): (100).to_bytes(8, "little")} and not gone
    assert core.dirty() == ({}, set())
    again = Overlay.restore(0, 9, rows)
    assert again.send((1,), b"")[0].stamp.number == 101


def test_a_packet_of_a_new_core_can_be_decoded_by_a_new_core():
    """Audits decode the out-queues of others: nothing may depend on what a core has seen."""
    a = Overlay(0, 4)
    for _ in range(300):
        packets = a.send((1, 2), b"x")
    b = Overlay(packets[0].to, 4)
    assert b.decode(0, a.encode(packets[0])).stamp.number == 300


def test_control_information_does_not_grow_with_the_domain():
    for size in (3, 300):
        (packet, *_) = Overlay(0, size).send((1,), b"x")
        assert Overlay(0, size).control_ints(packet) == 2
        assert len(Overlay(0, size).encode(packet)) - 1 == 4
    everybody = tuple(range(1, 1024))
    assert len(Overlay(0, 1024).encode(Overlay(0, 1024).send(everybody, b"")[0])) == 6
    some = tuple(range(1, 1024, 3))
    assert len(Overlay(0, 1024).encode(Overlay(0, 1024).send(some, b"")[0])) == 6 + 128


# -- bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_an_envelope_comes_back(seed):
    lots = random.Random(seed)
    for _ in range(200):
        size = lots.choice((2, 3, 17, 100, 256, 257, 300, 1024))
        origin = lots.randrange(size)
        others = [k for k in range(size) if k != origin]
        dests = tuple(lots.sample(others, lots.choice((1, len(others), 1 + lots.randrange(len(others))))))
        number, flags = lots.choice((1, 255, 256, 70_000, LIMIT - 1)), lots.choice((0, 32, 64, 224))
        data = seal(flags, number, origin, dests) + b"body"
        found_flags, found, back, found_origin, at = unseal(data, size)
        assert (found_flags, found, found_origin, data[at:]) == (flags, number, origin, b"body")
        assert sorted(back) == sorted(dests)
        for cut in range(at):
            with pytest.raises(ValueError, match="cut short|no origin and destinations"):
                unseal(data[:cut], size)


MALFORMED = {
    "nothing": b"",
    "number 0": seal(0, 1, 0, (1,)).replace(b"\1", b"\0", 1),
    "a number beyond the limit": seal(0, LIMIT, 0, (1,)),
    "an origin that is no member": seal(0, 1, 9, (1,)),
    "a destination that is no member": seal(0, 1, 0, (9,)),
    "the origin as destination": seal(0, 1, 0, (1,))[:-1] + b"\0",
    "no destinations": b"\x08\x01\x00\x00",
    "an empty bitmap": b"\x10\x01\x00\x01\x00",
    "a destination twice": b"\x08\x01\x00\x02\x01\x01",
    "more members than there are": b"\x18\x01\x00\xff",
    "a flag": seal(32, 1, 0, (1,)),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=[*MALFORMED])
def test_bytes_that_no_member_sends_are_refused(data):
    with pytest.raises(ValueError):
        Overlay(1, 4).decode(0, data)


def test_a_packet_from_a_member_that_is_no_neighbour_is_refused():
    core = Overlay(0, 4, [[0, 1], [1, 2], [2, 3]])
    with pytest.raises(ValueError, match="member 2 is no neighbour"):
        core.decode(2, seal(0, 1, 2, (0,)))


# -- options ------------------------------------------------------------------------------------------------------

FAULTS = {
    "no list": ("ring", "links is a list of pairs of servers: write links = "),
    "a triple": ([["a", "b", "c"]], "links is a list of pairs of servers: write links = "),
    "numbers": ([[0, 1]], "links is a list of pairs of servers: write links = "),
    "a stranger": ([["a", "x"], ["a", "b"], ["b", "c"], ["c", "d"]], "'x' in links is no server of this domain"),
    "a loop": ([["a", "a"], ["a", "b"], ["b", "c"], ["c", "d"]], "connects a server with itself"),
    "twice": ([["a", "b"], ["b", "a"], ["b", "c"], ["c", "d"]], "the link between a and b is listed twice"),
    "in pieces": ([["a", "b"], ["c", "d"]], "no links lead from a to c, d: add a link between them"),
    "none": ([], "no links lead from a to b, c, d"),
}


@pytest.mark.parametrize(("links", "sentence"), FAULTS.values(), ids=[*FAULTS])
def test_faults_of_a_graph_are_named(links, sentence):
    (fault,) = Overlay.validate(NAMES, {"links": links})
    assert sentence in fault


def test_an_overlay_needs_two():
    assert "an overlay of one member connects nobody" in Overlay.validate(("a",), {})[0]
    assert Overlay.validate(("a",), {"links": []}) == Overlay.validate(("a",), {})
    assert Overlay.validate(("a", "b"), {}) == []
    assert Overlay.validate(NAMES, {"link": []}) == ["unknown option 'link': it has links; take it out"]


def test_names_become_indexes():
    options = {"links": [["d", "a"], ["a", "c"], ["b", "c"]]}
    assert Overlay.validate(NAMES, options) == []
    assert Overlay.resolve(NAMES, options) == {"links": [[3, 0], [0, 2], [1, 2]]}
    assert Overlay(0, 4, **Overlay.resolve(NAMES, options)).neighbours == (2, 3)
    assert Overlay.resolve(NAMES, {}) == {}


# -- members that stop ----------------------------------------------------------------------------------------------


def assert_fine(verdict) -> None:
    assert verdict.safe and not verdict.lost, verdict


@pytest.mark.parametrize("size", [5, 9, 12])
def test_all_running_members_get_everything_while_fewer_than_kappa_are_down(size):
    for seed in range(30):
        assert_fine(overlay_world.stops(seed, hypercube(size), connectivity(hypercube(size)) - 1))


@pytest.mark.long
@pytest.mark.parametrize("size", [*range(3, 18), 33])
def test_all_running_members_get_everything_on_many_schedules(size):
    for seed in range(200):
        assert_fine(overlay_world.stops(seed, hypercube(size), connectivity(hypercube(size)) - 1))
