"""What is better than what, where a topology has four costs and no price turns one into another for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mombroker.admin.topology.costs import Cost
from mombroker.core.topology import Topology
from mombroker.lab.replay import Played
from mombroker.sim.world import MS

GAIN = 0.05  # less is nothing, on any axis
ALIKE = 0.01  # a difference that is none: the model's own error
WEIGHTS = tuple(2.0**at for at in range(-5, 6))  # of a packet, times what it weighs: where the front is looked at


@dataclass(slots=True)
class Option:
    """A topology, what the model says of it, and what its replay has counted."""

    topology: Topology
    cost: Cost
    fit: float | None = None  # how much cheaper than the same domains with servers dealt at random, as a share
    replayed: Played | None = None

    def error(self) -> float | None:
        """Of the model's control bytes against those of the replay, per message, as a share."""
        if self.replayed is None or not (counted := self.replayed.total.control_bytes):
            return None
        return self.cost.control_bytes / self.cost.messages / (counted / self.replayed.messages) - 1

    def replay_as_dict(self) -> dict[str, Any]:
        if (played := self.replayed) is None:
            return {}
        error = self.error()
        return {
            "replayed_bytes": round(played.total.control_bytes / max(played.messages, 1), 1),
            "replayed_rows": round(played.total.rows / max(played.last, 1), 2),
            "replayed_ms": round(played.delay_ns / MS, 2),
            "error_pct": None if error is None else round(100 * error, 1),
        }


AXES: dict[str, Callable[[Cost], float]] = {  # each by message or copy; less is better
    "control bytes": lambda cost: cost.control_bytes / max(cost.messages, 1),
    "packets": lambda cost: cost.packets / max(cost.messages, 1),
    "rows on disk": lambda cost: cost.rows / max(cost.messages, 1),
    "ms of delay": lambda cost: cost.delay_ms,
}


def changed(old: Cost, new: Cost) -> dict[str, float]:
    """By axis, as a share of the old: negative is a gain."""
    found = {}
    for name, of in AXES.items():
        before, after = of(old), of(new)
        found[name] = after / before - 1 if before else (1.0 if after else 0.0)
    return found


def gains(old: Cost, new: Cost) -> dict[str, float]:
    return {name: share for name, share in changed(old, new).items() if share <= -GAIN}


def dominates(new: Cost, old: Cost, alike: float = ALIKE) -> bool:
    """Better on an axis by GAIN, and nowhere worse."""
    return bool(gains(old, new)) and all(share <= alike for share in changed(old, new).values())


def front(options: Iterable[Option], packet: float, current: Option) -> list[Option]:
    """Of these options those of which none is worse than another one in all: the cheapest whatever a packet weighs, the
    best on each axis, and what is better than the current one in all. From few control bytes to few packets."""
    pool = list(options)
    best = [min(pool, key=lambda each: each.cost.price(packet * weight)) for weight in WEIGHTS]
    best += [min(pool, key=lambda each: (of(each.cost), each.cost.price(packet))) for of in AXES.values()]
    better = [each for each in pool if dominates(each.cost, current.cost)]
    best += sorted(better, key=lambda each: each.cost.price(packet))[:1]
    found: list[Option] = []
    for option in sorted({id(one): one for one in best}.values(), key=lambda one: one.cost.price(packet)):
        each = simplest(option, pool, current)
        if not any(_no_worse(other.cost, each.cost) for other in found):
            found.append(each)
    return sorted(found, key=lambda each: tuple(of(each.cost) for of in AXES.values()))


def simplest(option: Option, pool: Iterable[Option], current: Option) -> Option:
    """This one, or what costs as little and changes fewer domains, or has fewer."""
    old = _domains(current)

    def effort(each: Option) -> tuple[int, int]:
        return len(_domains(each) - old), len(each.topology.domains)

    return min((option, *(each for each in pool if _no_worse(each.cost, option.cost))), key=effort)


def _domains(option: Option) -> set[tuple[frozenset[str], str]]:
    return {(frozenset(each.members), each.backend) for each in option.topology.domains.values()}


def _no_worse(one: Cost, other: Cost) -> bool:
    return all(of(one) <= of(other) * (1 + ALIKE) for of in AXES.values())
