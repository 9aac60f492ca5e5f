"""Whether who talks to whom has changed while the log was written: an advice is then of a traffic that is no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev

from mombroker.lab.bus_workloads import Send

PARTS = 8  # of equally many messages
SHUFFLES = 12  # what parts of an unchanging traffic differ by is told by these
LEAST = 0.15  # share of the messages that go other ways, beyond chance, from which on it is a change
SURE = 4.0  # standard deviations of what chance makes
FEW = 15  # messages of a part: with fewer nothing is told

Ways = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the traffic. `share` of the messages go other ways than before, beyond what chance makes of it."""

    at: int  # ns: the first message of the part that differs most from the one before
    share: float
    times: int  # how many parts differ so from the one before; 0: it drifts, by little from part to part
    before: list[Send]
    since: list[Send]

    def __str__(self) -> str:
        how = "it drifts all the time" if not self.times else "once" if self.times == 1 else f"{self.times} times"
        return f"{self.share:.0%} of the messages go other ways than before ({how})"


def shift(sends: Sequence[Send]) -> Shift | None:
    """The greatest change among messages in order of time; None where traffic stays as it is, or they are too few."""
    size = len(sends) // PARTS
    if size < FEW:
        return None
    steps, ends = _steps(sends, size)
    rng, mixed, chance = Random(1), list(sends), list[float]()
    for _ in range(SHUFFLES):
        rng.shuffle(mixed)
        some, one = _steps(mixed, size)
        chance += [*some, one]
    usual = fmean(chance)
    least = max(usual + SURE * stdev(chance), usual + LEAST * (1 - usual))
    jumps, drifted = [at for at, each in enumerate(steps) if each >= least], ends >= least
    if not jumps and not drifted:
        return None
    top = max(range(len(steps)), key=steps.__getitem__) if jumps else len(steps) // 2
    cut = (top + 1) * size
    share = ((steps[top] if jumps else ends) - usual) / (1 - usual)
    return Shift(sends[cut].at, share, len(jumps), list(sends[:cut]), list(sends[cut:]))


def _steps(sends: Sequence[Send], size: int) -> tuple[list[float], float]:
    """How far each part is from the one before, and the last from the first."""
    parts = [_ways(sends[at * size : (at + 1) * size]) for at in range(PARTS)]
    return [_apart(a, b) for a, b in zip(parts, parts[1:], strict=False)], _apart(parts[0], parts[-1])


def _ways(sends: Sequence[Send]) -> Ways:
    found = Counter[tuple[str, str]]()
    for send in sends:
        for dest in send.dests:
            found[send.origin, dest] += 1
    total = found.total() or 1
    return {way: count / total for way, count in found.items()}


def _apart(a: Ways, b: Ways) -> float:
    """The share that goes other ways (total variation)."""
    return sum(abs(a.get(way, 0.0) - b.get(way, 0.0)) for way in {*a, *b}) / 2
