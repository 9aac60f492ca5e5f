"""The simulator's loop of events, without anything in them."""

import time
from collections.abc import Callable, Sequence
from statistics import median

from mombroker.admin.bench.figures import Row, pace
from mombroker.sim.world import World


def rate(waiting: int, events: int) -> float:
    """Events a second of CPU time, while so many wait: each asks for the next one of its own."""
    world = World(seed=1)
    draw, after = world.rng.random, world.after

    def nothing() -> None:
        after(int(draw() * 1000), nothing)

    for _ in range(waiting):
        nothing()
    start = time.process_time()
    world.run(calls=events)
    return events / (time.process_time() - start)


def measure(
    waiting: Sequence[int], events: int, rounds: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Row]:
    """`rounds` times so many events with each number of waiting ones in turn."""
    rates: dict[int, list[float]] = {each: [] for each in waiting}
    paces: dict[int, list[float]] = {each: [] for each in waiting}
    for number in range(rounds):
        for at, each in enumerate(rates):
            progress(number * len(rates) + at, rounds * len(rates))
            paces[each].append(pace())
            rates[each].append(rate(each, events))
    progress(1, 1)
    return [
        {
            "waiting": each, "c_us": round(median(paces[each]) * 1e6, 3), "rate": round(median(rates[each])),
            "rate_best": round(max(rates[each])), "event_c": round(1 / median(rates[each]) / median(paces[each]), 1),
        }
        for each in rates
    ]  # fmt: skip
