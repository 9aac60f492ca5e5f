"""Must-fail controls of how a daisy delivers and passes on. One that passes means that the checks are blind.

`overtaken` and `passed_on` are played by hand; what each member delivers is compared.
"""

import random
from typing import Any

import pytest

from mombroker.core.causality import check
from mombroker.ordering import Ordering, Packet, Step
from mombroker.ordering.daisy import Daisy, Gid, Outbox, Stamp
from mombroker.ordering.testing import SIZES, Domain, Nonconforming, caught, run
from mombroker.ordering.waiting import Key, Need
from tests.ordering.test_daisy import Scene


class Unwatched(Daisy):
    """The judge shall see it, not the core."""

    def check(self) -> None: ...


class SenderOnly(Unwatched):
    """Looks at the sender's own number, and not at the rest of the vector."""

    def _need(self, key: Key, packet: Packet) -> Need | None:
        seat = self.seats[self._group_of[key[0]]]
        return (key[0], key[1] - 1) if key[1] != seat.counts[seat.place[key[0]]] + 1 else None


class OwnCountOnly(Unwatched):
    """Passes on under a vector that counts its own broadcasts, and not what it has delivered in the new group."""

    def _broadcast(self, gid: Gid, packet: Packet, step: Step) -> None:
        before, seat = len(step.send), self.seats[gid]
        super()._broadcast(gid, packet, step)
        for copy in step.send[before:]:
            own = [n if k == self.me else 0 for k, n in zip(seat.members, copy.stamp.vector, strict=True)]
            copy.stamp = Stamp(copy.stamp.number, tuple(own))


class OnReceipt(Unwatched):
    """Does not hold what is for others: it is passed on as it comes (DA1)."""

    def _need(self, key: Key, packet: Packet) -> Need | None:
        return super()._need(key, packet) if self.me in packet.dests else None


class Backwards(Outbox):
    def append(self, key: Key, packet: Packet) -> None:
        super().append(key, packet)
        self.packets = {key: packet, **self.packets}


class LastFirst(Unwatched):
    """Passes on the last delivered message first."""

    def __init__(self, me: int, size: int, **options: Any):
        super().__init__(me, size, **options)
        self.outboxes = {edge: Backwards() for edge in self.outboxes}


def overtaken(scene: Scene) -> list[bytes]:
    """m is for 1 and, slowly, for 2; the answer of 1 is for 2. What 2 delivers."""
    scene.send(0, 1, 2, body=b"m")
    scene.arrive(0, 1)
    scene.send(1, 2, body=b"r")
    return [done.body for frm in (1, 0) for done in scene.arrive(frm, 2).deliver]


def passed_on(scene: Scene) -> list[bytes]:
    """m is for 1 and 4, the answer of 1 for 4; 2, who connects, hears the answer first. What 4 delivers."""
    scene.send(0, 1, 4, body=b"m")
    scene.arrive(0, 1)
    scene.send(1, 4, body=b"r")
    scene.arrive(1, 2)
    return [body for me, body in scene.settle() if me == 4]


CONTROLS = [(SenderOnly, overtaken), (OwnCountOnly, overtaken), (OnReceipt, passed_on), (LastFirst, passed_on)]


@pytest.mark.parametrize(("broken", "vector"), CONTROLS, ids=[case[0].__name__ for case in CONTROLS])
def test_a_broken_core_is_caught_by_a_vector_that_the_intact_one_stands(broken, vector):
    def play(kind: type[Daisy]) -> list[bytes]:
        return vector(Scene([[0, 1, 2], [3, 4]], kind, connectors=[2, 3]))

    assert play(Daisy) == [b"m", b"r"]
    assert play(broken) == [b"r", b"m"]


# `mombroker.ordering.testing.caught` finds new ones when the kit's schedules change.
PINNED = {SenderOnly: 3, OwnCountOnly: 3, OnReceipt: 5, LastFirst: 1}


@pytest.mark.parametrize("broken", PINNED)
def test_a_broken_core_is_caught_by_its_pinned_seed(broken):
    with pytest.raises(Nonconforming, match=rf"seed {PINNED[broken]}, .*violations=\[\("):
        run(broken, PINNED[broken], random.Random)


@pytest.mark.long
@pytest.mark.parametrize("broken", PINNED)
def test_many_schedules_catch_a_broken_core(broken):
    seed, found = 0, 0
    while seed < 500:
        seed = 1 + caught(broken, range(seed, 2_000), random.Random)
        found += 1
    assert found > 10


class Halves(Domain):
    """What a step delivers and what it passes on are two commits, and a member may die between them: then what it
    would have passed on is gone (PROTOCOLS §6.6)."""

    relaying = False

    def receive(self, frm: int, me: int, packet: Packet) -> bool:
        self.relaying = True
        try:
            return super().receive(frm, me, packet)
        finally:
            self.relaying = False

    def post(self, me: int, packets: list[Packet]) -> None:
        if self.relaying and packets and self.lots.random() < 0.1:
            self.store(me)
            return
        super().post(me, packets)


def played(seed: int, kind: type[Domain], backend: type[Ordering]) -> str:
    """ "fine", or what has come of it."""
    lots = random.Random(seed)
    domain = kind(backend, lots.choice(SIZES), {}, lots)
    try:
        domain.disturb()
        domain.heal()
    except AssertionError as error:
        assert "still holds packets" in str(error)
        return "stuck"
    verdict = check(domain.events)
    return "lost" if verdict.lost else "fine" if verdict.safe else "unsafe"


def test_delivery_and_relay_in_two_commits_lose_messages():
    assert [played(seed, Halves, Daisy) for seed in range(8)].count("fine") < 2
    assert [played(seed, Domain, Daisy) for seed in range(8)] == ["fine"] * 8
