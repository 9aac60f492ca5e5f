"""Clients of whole buses under random faults: queues, topics and subscriptions keep what the broker promises."""

from collections import Counter

import pytest

from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.sim.clients import REST, Client, ClientNode, Clients
from mombroker.sim.faults import Faults
from mombroker.sim.mischief import Trial
from mombroker.sim.model import Stream
from mombroker.sim.programs import ORDER_HEIRS, PROGRAMS
from mombroker.sim.seeds import cluster, draw_topology, run
from mombroker.sim.world import MS, World
from tests.fakes_bus import replaced
from tests.fakes_clients import paced

SEEDS = {
    "everything": 6,
    "queues": 5,
    "pulls": 5,
    "moves": 5,
    "desks": 4,
    "orders": 5,
    "guards": 4,
    "heirs": 5,
    "openings": 6,
    "choices": 4,
    "enduringly": 5,
    "joins": 2,
    "revisions": 5,
    "moving-pulls": 5,
    "rounds": 9,
    "moving-desks": 5,
    "moving-sources": 5,
    "protocols": 5,
    "moving-heirs": 3,
}  # of the others, each about one promise, 8


def all_clean(program: str, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = run(seed, program=program)
        assert not result.wrong, "\n".join([f"seed {seed}", *result.wrong, *result.tail])
        counts.update(result.counts)
    return counts


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != ORDER_HEIRS])  # test_lost_orders.py has it
def test_some_seeds_are_clean(program):
    seeds = range(SEEDS.get(program, 8))
    counts = all_clean(program, seeds)
    for what in ("crashes", "breaks", "requests" if program in ("operators", "revisions") else "seen"):
        assert counts[what] > 1.5 * len(seeds), what


@pytest.mark.parametrize("program", ["queues", "pulls"])
def test_queues_that_pause_after_each_message_are_clean(program):
    with replaced(Dispatcher, "give", paced):
        all_clean(program, range(6))


@pytest.mark.parametrize("program", ["everything", "queues", "enduringly", "pulls"])
def test_on_some_seeds_policies_are_set_while_messages_wait(program):
    """On some of these, messages may come to nothing by that; on most seeds, nobody touches them."""
    works = [cluster(seed, program=program).workload for seed in range(40)]
    drawn = [work.drawn for work in works if isinstance(work, Clients)]
    assert [sum(bool(each) for each in them) > 2 for them in (
        [each.changes for each in drawn], [each.lossy for each in drawn], [not each.queues for each in drawn],
        [each.queues and not each.lossy for each in drawn],
    )] == [True] * 4  # fmt: skip


def test_seeds_that_have_failed_are_clean():
    """306: what came too late for a former consumer was taken for its session's new one."""
    all_clean("enduringly", range(306, 307))


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_thousand_seeds_are_clean(program):
    all_clean(program, range(2000))


class Leaver(Client):
    """Leaves with a message that it has not settled: what it says then arrives long after its last one."""

    def begin(self, connection):
        if self.work.left:
            self.work.left = 0
            connection.subscribe(self.work.kept, "d", ack="individual")

    def subscribed(self, connection, stream, everywhere):
        if connection.client is self:
            connection.send("topic:t0")

    def given(self, connection, tag, given):
        connection.arrivals[0] = self.work.world.now + 9 * REST
        connection.leave()


class Leaving(Clients):
    def cast(self):
        self.left = 1
        self.kept = self.lasts(Stream(("topic:t0",), "durable"), "me", "d")
        return [Leaver(self, "me")]


def test_who_leaves_late_leaves_what_it_has_to_be_taken():
    """1. A client has a message, and leaves. 2. For long nobody sees anything, and it seems to take all that comes.
    3. It has left, and its message is given out again: to somebody else, or it is left in the store."""
    world = World(1)
    work = Leaving(world.rng)
    made = Trial(world, draw_topology(world.rng, work), Faults(), work, ClientNode)
    assert made.run(100 * MS) == []
    assert work.faults(made) == []
    assert [*work.kept.seen.values()] == [{1, 2}]


@pytest.mark.long
def test_who_waits_for_its_turn_over_a_slow_link_leaves_late():
    """91456: a session waited for one place in total order after the other, and then left, 40 s after the last look."""
    all_clean("orders", range(91456, 91457))


def test_the_same_seed_gives_the_same_trace():
    for program in ("everything", "requests"):
        assert run(5, program=program).trace == run(5, program=program).trace
