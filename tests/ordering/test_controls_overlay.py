"""The must-fail controls of protocols §12.2 for the overlay. One that passes means that the judge is blind."""

from collections.abc import Callable

import pytest

from mombroker.core.causality import Verdict
from mombroker.ordering.hypercube import connectivity, hypercube
from mombroker.ordering.overlay import Overlay
from tests.ordering import fakes_overlay as fakes
from tests.ordering.overlay_world import World, stops

GAP = "came next after packet"  # what the core says when its link has a gap


def flooded(seed: int, backend: type[Overlay] = Overlay, deliver_first: bool = False) -> Verdict:
    world = World(seed, [backend(me, 9) for me in range(9)], deliver_first)
    world.run(30)
    world.settle()
    return world.verdict()


def fault(play: Callable[[int], Verdict], seed: int) -> str:
    """ "fine", "unsafe", "lost", or "gap"."""
    try:
        verdict = play(seed)
    except ValueError as error:
        assert GAP in str(error)
        return "gap"
    return "unsafe" if not verdict.safe else "lost" if verdict.lost else "fine"


def deterministic(backend: type[Overlay]) -> list[int]:
    """Members 0 - 1 - 2 - 0: 0 sends m, and 1 answers it; what 2 delivers."""
    a, b, c = (backend(me, 3) for me in range(3))
    to_b, to_c = a.send((1, 2), b"m")
    step = b.receive(0, b.decode(0, a.encode(to_b)))
    answer = [packet for packet in b.send((2,), b"r") if packet.to == 2]
    out = answer + step.send if backend is fakes.AnyOrder else step.send + answer
    got = [done.body for packet in out for done in c.receive(1, c.decode(1, b.encode(packet))).deliver]
    got += [done.body for done in c.receive(0, c.decode(0, a.encode(to_c))).deliver]
    return got


def test_an_answer_that_overtakes_its_cause_on_a_link_is_delivered_first():
    assert deterministic(Overlay) == [b"m", b"r"]
    assert deterministic(fakes.AnyOrder) == [b"r", b"m"]


# control -> (how it is broken, how it is whole, what it shows, a seed that shows it)
CONTROLS = {
    "links that are not FIFO": (lambda seed: flooded(seed, fakes.AnyOrder), flooded, "unsafe", 0),
    "deliver before forward": (lambda seed: flooded(seed, deliver_first=True), flooded, "unsafe", 0),
    "kappa members stop": (
        lambda seed: stops(seed, hypercube(9), connectivity(hypercube(9))),
        lambda seed: stops(seed, hypercube(9), connectivity(hypercube(9)) - 1),
        "lost",
        33,
    ),
    "a cube that lacks members": (
        lambda seed: stops(seed, fakes.plain_hypercube(9), 1),
        lambda seed: stops(seed, hypercube(9), 1),
        "lost",
        15,
    ),
}
every_control = pytest.mark.parametrize(("broken", "whole", "shows", "seed"), CONTROLS.values(), ids=[*CONTROLS])


@every_control
def test_a_control_is_caught_by_its_pinned_seed(broken, whole, shows, seed):
    assert fault(broken, seed) == shows
    assert fault(whole, seed) == "fine"


@pytest.mark.long
@every_control
def test_many_seeds_catch_a_control(broken, whole, shows, seed):
    found = sum(fault(broken, seed) != "fine" for seed in range(400))
    assert found > 10
