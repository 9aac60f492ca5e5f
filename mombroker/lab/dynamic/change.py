"""One change of a group under load, by the paper's own protocol and by the freeze of the bus, in the same network."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from mombroker.core import layouts
from mombroker.core.topology import Topology
from mombroker.lab.dynamic.coordinator import HandOver, Merge, Operation, Split
from mombroker.lab.dynamic.course import Course, Figures, Load
from mombroker.lab.dynamic.daisy_change import DaisyChange
from mombroker.lab.dynamic.freezing import Frozen
from mombroker.lab.dynamic.overlay_change import OverlayChange
from mombroker.lab.networks import Exponential
from mombroker.ordering.groups import even
from mombroker.ordering.hypercube import host
from mombroker.sim.world import World

DAISY, OVERLAY = ("split", "merge", "handover"), ("join", "leave")
CHANGES = (*DAISY, *OVERLAY)
WAYS = ("protocol", "freeze")
LEAST, MOST = 6, 64  # members
Groups = list[list[int]]


class Wrong(Exception):
    """A run is not causal, loses or repeats something, or does not end."""


def course(change: str, way: str, members: int, load: Load) -> Course:
    """It is ready to be played. Groups of a daisy are about as many as each has members."""
    assert change in CHANGES and way in WAYS and LEAST <= members <= MOST, "not a change"
    world = World(load.seed)
    network = Exponential(world, load.delay)
    if change in OVERLAY:
        joins = change == "join"
        if way == "protocol":
            return OverlayChange(world, members, load, network, joins)
        last = members if joins else members - 1
        whole, apart = _overlay(last + 1), _overlay(last, pair=(host(last), last))
        old, new = (apart, whole) if joins else (whole, apart)
        return Frozen(
            world, members, load, network, old, new, None if joins else last, last if joins else None
        )  # fmt: skip
    groups = even(members)
    operation, after, connectors = plan(change, groups)
    if way == "protocol":
        return DaisyChange(world, members, load, network, groups, operation)
    return Frozen(world, members, load, network, _daisy(groups, ()), _daisy(after, connectors))


def plan(change: str, groups: Groups) -> tuple[Operation, Groups, tuple[int, ...]]:
    """What is done to the last group, the groups afterwards, and their connectors where they are not the first."""
    *others, last = groups
    gid = len(groups)  # 0 is the group above
    if change == "split":
        stay = last[: (len(last) + 1) // 2]
        leave = last[len(stay) :]
        return Split(gid, tuple(leave)), [*others, stay, leave], ()
    if change == "merge":
        return Merge(gid, gid - 1), [*others[:-1], others[-1] + last], ()
    return HandOver(gid, last[1]), groups, (last[1],)


def _daisy(groups: Groups, connectors: Sequence[int]) -> Topology:
    size = sum(map(len, groups))
    names = [_name(at) for at in range(size)]
    options: dict[str, object] = {"groups": [[names[at] for at in group] for group in groups]}
    if connectors:
        options["connectors"] = [names[at] for at in connectors]
    topology = layouts.build({"d1": names}, ordering="daisy")
    domain = replace(topology.domains["d1"], options=options)
    return replace(topology, domains={"d1": domain}, checked=True)


def _overlay(size: int, pair: tuple[int, int] | None = None) -> Topology:
    domains = {"d1": [_name(at) for at in range(size)]}
    apart = {"d2": [_name(at) for at in pair]} if pair else {}
    return layouts.build(domains | apart, ordering="overlay")


def _name(at: int) -> str:
    return f"s{at + 1}"


def measure(
    change: str, way: str, members: int, load: Load, runs: int = 1, told: Callable[[], None] = lambda: None
) -> Figures:
    """The means over the seeds from that of the load on. Raises Wrong with the seed of a run that is."""
    found = []
    for seed in range(load.seed, load.seed + runs):
        run = course(change, way, members, replace(load, seed=seed))
        try:
            run.play()
        except AssertionError as error:
            raise Wrong(f"{change} by {way}, seed {seed}: {error}") from None
        verdict = run.verdict()
        if faults := {name: each for name in ("violations", "duplicates", "unsent", "lost")
                      if (each := getattr(verdict, name))}:  # fmt: skip
            raise Wrong(f"{change} by {way}, seed {seed}: {faults}")
        found.append(run.figures())
        told()
    means = [sum(getattr(each, field.name) for each in found) / runs for field in fields(Figures)]
    return Figures(*means)
