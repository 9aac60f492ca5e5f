"""A domain in the laboratory: the same seed gives the same trace, and the cores are those of the bus."""

import pytest

from mombroker import ordering
from mombroker.lab import domain as lab
from mombroker.lab.domain_workloads import Poisson, broadcasts, everybody, multicasts, shares
from mombroker.lab.networks import Exponential, Uniform
from mombroker.lab.observers import Control, Delay, Held, LogSize, Trace, Waits
from mombroker.lab.stability import Stability
from mombroker.ordering.ks import KS
from mombroker.sim.world import EPOCH, MS, World
from tests.fakes import UncountedRST

SIZE, SENDS = 6, 300


def made(backend="ks", seed=1, size=SIZE, observers=(), choose=None, transit=50, members=(), **more):
    """A domain after its run, and its trace."""
    world = World(seed)
    members = members or lab.cores(backend, size)
    trace = Trace()
    domain = lab.Domain(world, members, Exponential(world, transit * MS), [trace, *observers], **more)
    Poisson(seed, 100 * MS, choose or multicasts(0.3), SENDS).start(domain)
    domain.finish()
    return domain, trace


def causal(trace: Trace) -> bool:
    """By definition, from the events alone: who delivers m knows of all that was before it."""
    past: dict[int, set[int]] = {}  # by number: what was before it
    known: dict[int, set[int]] = {}  # by member
    got: dict[int, list[int]] = {}
    for _, what, me, number in trace.rows:
        mine = known.setdefault(me, set())
        if what == "send":
            past[number] = set(mine)
        else:
            got.setdefault(me, []).append(number)
            mine |= past[number]
        mine.add(number)
    return all(
        later not in past[number]
        for order in got.values()
        for at, number in enumerate(order)
        for later in order[at + 1 :]
    )


@pytest.mark.parametrize("backend", [name for name in ordering.names() if name != "fifo"])
def test_the_same_seed_gives_the_same_trace_and_every_back_end_keeps_order(backend):
    (_, first), (_, again), (_, other) = (made(backend, seed) for seed in (1, 1, 2))
    assert first.digest() == again.digest() != other.digest()
    assert sum(what == "send" for _, what, _, _ in first.rows) == SENDS
    assert causal(first)


def test_a_core_that_keeps_no_order_is_seen():
    _, trace = made(members=[UncountedRST(me, SIZE) for me in range(SIZE)])
    assert not causal(trace)


def test_ks_and_rst_wait_for_exactly_the_same():
    """Both deliver as soon as causal order lets them, so that nothing but the size of what they carry differs."""
    (_, ks), (_, rst) = made("ks"), made("rst")
    assert ks.rows == rst.rows


@pytest.mark.parametrize("backend", ["ks", "daisy"])
def test_on_the_wire_and_handed_over_are_the_same(backend):
    sizes = []
    for wire in (True, False):
        control, held = Control(encode=True), Held()
        _, trace = made(backend, observers=[control, held], wire=wire)
        sizes.append((trace.digest(), control.result(), held.result()))
    assert sizes[0] == sizes[1]


def test_ks_and_its_bitmap_decide_the_same():
    sizes = []
    for encoding in ("list", "bitmap"):
        log = LogSize(lambda core: sum(core.log_totals()))
        _, trace = made(members=[KS(me, SIZE, encoding) for me in range(SIZE)], observers=[log])
        sizes.append((trace.digest(), log.result()))
    assert sizes[0] == sizes[1]


def test_rst_carries_the_whole_matrix():
    control = Control(first=100)
    domain, trace = made("rst", observers=[control])
    sent = [number for _, what, _, number in trace.rows if what == "deliver" and number > 100]
    assert control.packets == len(sent) < domain.copies
    assert control.result()["integers"] == SIZE**2


@pytest.mark.parametrize(("backend", "packets"), [("vector", 5), ("matrix", 5), ("overlay", None)])
def test_packets_of_a_broadcast(backend, packets):
    """One to each of the others; in a flood one on every link but back, so the sum of degrees - (n - 1)."""
    control = Control()
    domain, _ = made(backend, observers=[control], choose=broadcasts(1.0))
    if packets is None:
        degrees = sum(len(core.neighbours) for core in domain.members)
        packets = degrees - (SIZE - 1)
    assert control.packets == SENDS * packets


def test_delays_are_those_of_the_network_and_of_waiting():
    delay, held = Delay(), Held()
    domain, trace = made(observers=[delay, held])
    assert len(delay.delays) == domain.delivered == held.arrived
    born = {number: at for at, what, _, number in trace.rows if what == "send"}
    total = sum(at - born[number] for at, what, _, number in trace.rows if what == "deliver")
    assert delay.result()["delay_ms"] == pytest.approx(total / domain.delivered / MS)
    assert 0 < held.held < held.arrived and held.waited > 0 and not held.came
    at_once, none = Delay(), Held()
    made(observers=[at_once, none], transit=0)
    assert at_once.result()["delay_max_ms"] == 0 and none.held == 0


class Lengths:
    """Each link has a length, which tells how long a packet takes."""

    def __init__(self, world):
        self.world = world

    @staticmethod
    def ns(frm, to):
        return (7 * frm + 11 * to) % 13 * 10 * MS

    def carry(self, frm, to, size, arrive, *args):
        self.world.after(self.ns(frm, to), arrive, *args)


@pytest.mark.parametrize("backend", ["vector", "daisy"])
def test_a_delay_is_what_the_network_takes_and_what_is_waited_on_the_way(backend):
    """A daisy of three and three, connected by 0 and 3, which pass on what they have waited for."""
    groups = 3 if backend == "daisy" else SIZE

    def under_way(origin, me):
        one, other = origin // groups * groups, me // groups * groups
        way = [origin, me] if one == other else [origin, one, other, me]
        return sum(Lengths.ns(a, b) for a, b in zip(way, way[1:], strict=False) if a != b)

    world = World(1)
    delay, waits, held = Delay(20), Waits(20, lambda origin, me: True, under_way), Held(20)
    options = {"groups": [[0, 1, 2], [3, 4, 5]]} if backend == "daisy" else {}
    domain = lab.Domain(world, lab.cores(backend, SIZE, **options), Lengths(world), [delay, waits, held])
    Poisson(1, 50 * MS, everybody, 100).start(domain)
    domain.finish()
    assert waits.copies == 80 * (SIZE - 1) and held.held > 20
    assert waits.delay_ms() == pytest.approx(delay.result()["delay_ms"], rel=1e-12)


def test_what_comes_is_looked_at_when_the_slot_begins():
    slot = 500 * MS
    _, trace = made(slot=slot)
    delivered = [at for at, what, _, _ in trace.rows if what == "deliver"]
    assert {(EPOCH + at) % slot for at in delivered} == {0} and causal(trace)


def test_the_same_load_under_other_orderings_and_of_the_right_shape():
    """As many sends as asked for, at about the mean gap; parts and ratios of destinations as said."""
    loads = []
    for backend in ("ks", "vector"):
        _, trace = made(backend)
        loads.append([row for row in trace.rows if row[1] == "send"])
    assert loads[0] == loads[1]
    lasts = [made(seed=seed)[0].born[-1] - EPOCH for seed in range(10)]
    assert sum(lasts) / len(lasts) / MS == pytest.approx(SENDS / SIZE * 100, rel=0.1)
    assert [made(choose=shares(part))[0].copies / SENDS for part in (0.1, 0.5, 1.0)] == [1, 3, SIZE - 1]
    assert made(choose=broadcasts(0.0))[0].copies == SENDS
    assert made(choose=multicasts(1.0))[0].copies / SENDS == pytest.approx(SIZE / 2, rel=0.1)
    assert made(choose=multicasts(1.0, itself=True))[0].copies / SENDS == pytest.approx(
        (SIZE + 1) / 2 * (SIZE - 1) / SIZE, rel=0.1
    )


def test_none_overtakes_on_its_link_and_who_would_comes_a_millisecond_later():
    world = World(1)
    network, came = Exponential(world, 50 * MS), []
    for number in range(200):
        network.carry(0, 1, 0, lambda number: came.append((world.now, number)), number)
    world.run()
    assert [number for _, number in came] == list(range(200))
    gaps = [b - a for (a, _), (b, _) in zip(came, came[1:], strict=False)]
    assert gaps.count(MS) == network.repaired > 0


def test_the_loop_asks_little_of_an_empty_event():
    """A count, not a time: one call of the loop per event, and none left behind. `docs/papers.md` has the speed."""
    world = World(1)

    def again(left: int) -> None:
        if left:
            world.after(1, again, left - 1)

    again(1000)
    assert world.run() and world.calls == 1000 and not world.queue


@pytest.mark.parametrize("backend", ["matrix", "rst", "ks", "vector", "overlay", "daisy", "abcast", "fifo"])
def test_a_message_becomes_stable_under_every_back_end(backend):
    """Links take 10 ms: where members talk directly, an origin has its acknowledgements after twice that time."""
    world = World(1)
    stability = Stability(Uniform(world, 10 * MS, 10 * MS), 20)
    members = lab.cores(backend, 2 if backend == "fifo" else SIZE)
    domain = lab.Domain(world, members, Uniform(world, 10 * MS, 10 * MS), [stability])
    Poisson(1, 50 * MS, everybody, 50).start(domain)
    domain.finish()
    assert len(stability.delays) == 50 and not stability._open and not stability._owed
    direct = set(stability.delays) == {20 * MS}
    assert direct != (backend in ("overlay", "daisy")) and min(stability.delays) >= 20 * MS
