"""Groups that overlap, at random: rings, trees and others, under each rule. Every run is judged by the outsider."""

from random import Random

from mombroker.lab.isis.overlap import Overlap, play
from mombroker.lab.isis.several import ALL, Process
from mombroker.lab.networks import Exponential
from mombroker.sim.world import MS, World

FIGURE_4 = {"a": (1, 2, 3), "b": (2, 3, 4)}
RING = {"a": (0, 1), "b": (1, 2), "c": (2, 0)}
RING_4 = {"a": (0, 1, 4), "b": (1, 2), "c": (2, 3, 5), "d": (3, 0)}
TREE = {"a": (0, 1, 2), "b": (2, 3), "c": (3, 4, 5), "d": (5, 6)}
STAR = {"a": (0, 1, 2), "b": (2, 3), "c": (2, 4, 5), "d": (5, 6)}  # groups and processes as nodes make a forest
TRIPLE = {"a": (0, 1, 2, 3), "b": (1, 2, 3, 4), "c": (0, 2, 4)}
SHAPES = {
    "figure 4": FIGURE_4,
    "ring": RING,
    "ring of four": RING_4,
    "tree": TREE,
    "star": STAR,
    "three that overlap": TRIPLE,
}


def overlap(seed, groups, rule=ALL, excluded=(), make=Process, crashes=0, total=None):
    lots, world = Random(f"overlap {seed}"), World(seed)
    how, batch = lots.choice(["each", "coordinator"]), lots.choice([1, 2, 4])
    linger = lots.choice([0, 5, 30]) * MS
    found = Overlap(world, Exponential(world, 10 * MS), groups, rule, excluded, how, batch, linger, make)
    share = lots.choice([0, 0.3, 0.6]) if total is None else total
    play(found, lots.randint(10, 40), share, lots.choice([1, 3, 10]) * MS, crashes, lots.choice([0, 0.8]))
    return found


def run(seed, groups, **more):
    return overlap(seed, groups, **more).faults()
