"""The must-fail controls of protocols §12.2 for RST and Updates. One that passes means that the judge is blind."""

import random

import pytest

from mombroker.ordering import Ordering
from mombroker.ordering.matrix import Matrix
from mombroker.ordering.rst import RST
from mombroker.ordering.testing import Eager, Nonconforming, caught, conform, run
from tests import fakes
from tests.ordering import plain

CONTROLS = [
    (fakes.UncountedRST, RST, plain.multicast, "unsafe"),
    (fakes.SelfCountedRST, RST, plain.one, "stuck"),
    (fakes.AsPrinted, Matrix, plain.overtaken, "unsafe"),
    (fakes.SourceIsReceiver, Matrix, plain.told, "stuck"),
    (fakes.StartsAtZero, Matrix, plain.one, "stuck"),
    (fakes.Implicit, fakes.HeadOfLine, plain.in_line, "unsafe"),
    (fakes.Unicasts, Matrix, plain.multicast, "unsafe"),
    (fakes.Restamps, Matrix, plain.again, "unsafe"),
    (fakes.DropsExpired, Matrix, plain.expired, "unsafe"),
    (fakes.NeverSendsExpired, Matrix, plain.expired, "stuck"),
]


@pytest.mark.parametrize(("broken", "intact", "vector", "fault"), CONTROLS, ids=[case[0].__name__ for case in CONTROLS])
def test_a_broken_core_is_caught_by_a_vector_that_the_intact_one_stands(broken, intact, vector, fault):
    def play(backend: type[Ordering]) -> str:
        scene = plain.Scene(backend, 3)
        vector(scene)
        return scene.verdict()

    assert play(intact) == "fine"
    assert play(broken) == fault


# `mombroker.ordering.testing.caught` finds new ones when the kit's schedules change.
PINNED = {fakes.UncountedRST: 0, fakes.SelfCountedRST: 0, fakes.Unicasts: 0, Eager: 0}


@pytest.mark.parametrize("broken", PINNED)
def test_a_broken_core_is_caught_by_its_pinned_seed(broken):
    with pytest.raises(Nonconforming, match=f"seed {PINNED[broken]},"):
        run(broken, PINNED[broken], random.Random)


def test_the_source_that_is_not_recorded_is_safe_but_costs_entries():
    """UP4. The two run the same schedule, so that only the stamps differ."""
    conform(fakes.ForgetsSource, range(20), random.Random)

    def entries(backend: type[Ordering]) -> int:
        lots, size, total = random.Random(1), 6, 0
        cores = [backend(me, size) for me in range(size)]
        for _ in range(300):
            frm, to = lots.sample(range(size), 2)
            (packet,) = cores[frm].send((to,), b"")
            total += len(packet.stamp)
            cores[to].receive(frm, packet)
        return total

    assert entries(fakes.ForgetsSource) > 1.1 * entries(Matrix)


def test_the_kit_says_so_when_no_schedule_shows_a_fault():
    with pytest.raises(AssertionError, match="RST is broken, and no schedule showed it"):
        caught(RST, range(3), random.Random)


@pytest.mark.long
@pytest.mark.parametrize("broken", PINNED)
def test_many_schedules_catch_a_broken_core(broken):
    seed, found = 0, 0
    while seed < 500:
        seed = 1 + caught(broken, range(seed, 1_000), random.Random)
        found += 1
    assert found > 150
