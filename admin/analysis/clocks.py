"""Servers whose clocks are off, from the times of packets both ways; delays are put right by them.

A packet from a to b seems to take its time and b's clock less a's, one back its time and a's less b's. Half of what the
quickest ones each way differ by is taken to be the clocks', half of their sum the time, as NTP does (RFC 5905, section
8). No way takes less than nothing, so that this is off by that time at most. Along the quickest ways from the server
that has the time of most, a clock is said to be off only where it must be: its offset is more than all that may be
wrong with it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Row

Least = Mapping[tuple[str, str], int]  # from one server to another: the quickest packet, ns
FINE = 1_000_000  # ns: what is quicker than this is no better known
AVOIDED = 1 << 60


def least(delays: Iterable["Row"]) -> Least:
    """From the rows of `cost.delays`."""
    found: dict[tuple[str, str], int] = {}
    for row in delays:
        if row.server and row.least is not None:
            way = (row.peer, row.server)
            found[way] = min(row.least, found.get(way, row.least))
    return found


class Other(NamedTuple):
    """Another server, as packets to it and from it tell of its clock."""

    server: str
    ahead: int
    took: int  # `ahead` is off by no more
    weight: int  # of the way to it


Near = Mapping[str, Sequence[Other]]


def ahead(quickest: Least) -> dict[str, int]:
    """How far the clocks of servers are ahead of those of most, ns; servers that agree with these are not in it."""
    near: dict[str, list[Other]] = defaultdict(list)
    for (a, b), there in sorted(quickest.items()):
        back = quickest.get((b, a))
        if back is not None and a < b:
            differs, took = (there - back) // 2, max(there + back, 0) // 2
            near[a].append(Other(b, differs, took, took))
            near[b].append(Other(a, -differs, took, took))
        elif back is None and there < 0:  # at least so much
            near[a].append(Other(b, there, 0, AVOIDED))
            near[b].append(Other(a, -there, 0, AVOIDED))
    found: dict[str, int] = {}
    for start in sorted(near):
        if start not in found:
            by_offset = sorted((offset, server) for server, (offset, _) in _walked(near, start).items())
            found |= _fine(near, _walked(near, by_offset[(len(by_offset) - 1) // 2][1]))
    return {server: offset for server, offset in found.items() if offset}


def _walked(near: Near, start: str) -> dict[str, tuple[int, int]]:
    """How far each clock is ahead of that of `start`, and what this may be off by; each along its quickest way."""
    found: dict[str, tuple[int, int]] = {}
    heap = [(0, start, 0, 0)]
    while heap:
        weight, server, offset, error = heappop(heap)
        if server not in found:
            found[server] = offset, error
            for other in near[server]:
                heappush(heap, (weight + other.weight, other.server, offset + other.ahead, error + other.took))
    return found


def _fine(near: Near, part: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Of clocks that must be off how far they are, by all their neighbours: the quicker the way, the more it counts."""
    found = {server: offset if abs(offset) > error else 0 for server, (offset, error) in part.items()}
    for server, (offset, error) in part.items():
        if found[server]:
            said = [(found[other.server] - other.ahead, (FINE + other.weight) ** -2) for other in near[server]]
            weights = sum(weight for _, weight in said)
            mean = round(sum(each * weight for each, weight in said) / weights)
            found[server] = mean if abs(mean - offset) <= error else offset
    return found
