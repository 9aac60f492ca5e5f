"""Advice in words: what changes, and what may be doubted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mombroker.admin.topology import drift
from mombroker.admin.topology.costs import Cost, Load
from mombroker.admin.topology.front import ALIKE, AXES, GAIN, Option, changed
from mombroker.core.topology import Topology, listed

OFF = 0.25  # share by which the model is off the log, from which on it is told


def changes(old: Topology, new: Topology) -> list[str]:
    """What is different in the second, in words."""
    found = []
    for name, domain in new.domains.items():
        before = old.domains.get(name)
        if before is None:
            found.append(f"new domain {name} under {domain.backend}: {', '.join(domain.members)}")
            continue
        parts = []
        if left := [server for server in before.members if server not in domain]:
            parts.append(f"loses {listed(left, 12)}")
        if joined := [server for server in domain.members if server not in before]:
            parts.append(f"gains {listed(joined, 12)}")
        if before.backend != domain.backend:
            parts.append(f"is ordered by {domain.backend} in place of {before.backend}")
        if parts:
            found.append(f"domain {name} {' and '.join(parts)}")
    found += [f"domain {name} goes" for name in old.domains if name not in new.domains]
    routers = set(old.routers), set(new.routers)
    if become := [server for server in new.routers if server not in routers[0]]:
        found.append(f"{listed(become, 12)} become{'s a router' if len(become) == 1 else ' routers'}")
    if cease := [server for server in old.routers if server not in routers[1]]:
        found.append(f"{listed(cease, 12)} need{'s' if len(cease) == 1 else ''} not route any more")
    return found


def trade(current: Option, other: Option) -> str:
    """What one gets, and what one gives for it."""
    shares = changed(current.cost, other.cost)
    got = [f"{share:+.0%} {name}" for name, share in shares.items() if share <= -GAIN]
    given = [f"{share:+.0%} {name}" for name, share in shares.items() if share > ALIKE]
    return f"{listed(got)} for {listed(given) if given else 'nothing'}"


def figures(old: Cost, new: Cost) -> str:
    """What a message, or copy, costs before and after."""
    parts = [f"{_shown(name, old)} {name} {_shown(name, new)}" for name in AXES]
    parts[0] = f"{_shown('control bytes', old)} control bytes a message become {_shown('control bytes', new)}"
    return f"{', '.join(parts)}, {old.hops:.2f} hops {new.hops:.2f}"


def _shown(axis: str, cost: Cost) -> str:
    return f"{AXES[axis](cost):.{1 if axis in ('control bytes', 'ms of delay') else 2}f}"


def doubts(model: Iterable[Mapping[str, Any]], load: Load) -> list[str]:
    """Where what the model says of the current topology is not what the log says."""
    off = [f"{row['error_pct']:+.0f} % in {row['figure']}" for row in model if abs(row["error_pct"] or 0) > 100 * OFF]
    what = "play more messages (--messages)" if load.sampled else "is it the log of this topology?"
    return [f"the model does not fit the log of the current topology, {listed(off)}: {what}"] if off else []


def shifted(shift: drift.Shift, when: str, gain: tuple[float, float] | None) -> str:
    """That traffic has changed, and what this says of a proposal that saves so much before and since."""
    text = f"traffic has changed in this log: {shift}, most at {when}"
    if gain is not None:
        text += f"; the proposal would make a message cheaper by {gain[0]:.0%} before and by {gain[1]:.0%} since"
    return f"{text}; for advice on what came since then: --since {when}"
