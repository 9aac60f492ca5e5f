"""Servers whose clocks are off, from the times of packets both ways; delays are put right by them.

No packet takes less than nothing. So one from a to b, which seems to take its time and b's clock less a's, says that b
is ahead of a by what it seems to take at most, and one back, by how much at least. Along links such bounds add up, each
way along its own quickest links, and leave of each clock an interval around that of most (the shortest paths of a
system of difference constraints: Cormen, Leiserson, Rivest, Stein, Introduction to Algorithms, section 22.4). A clock
is said to be off only where 0 is not in it, and then by its middle, which is off by half of its length at most; if ways
there and back are equally quick it is exact, as that of NTP (RFC 5905, section 8).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Row

Least = Mapping[tuple[str, str], int]  # from one server to another: the quickest packet, ns
Near = Mapping[str, Sequence[tuple[str, int]]]  # of each server the next ones, with the quickest packet to them


def least(delays: Iterable["Row"]) -> Least:
    """From the rows of `times.delays`."""
    found: dict[tuple[str, str], int] = {}
    for row in delays:
        if row.server and row.least is not None:
            way = (row.peer, row.server)
            found[way] = min(row.least, found.get(way, row.least))
    return found


class Clock(NamedTuple):
    """ns. Without packets both ways it is ahead by so much at least, and nobody knows `within` what."""

    ahead: int
    within: int | None


class Bounds(NamedTuple):
    """Between which a clock is ahead; None: nobody knows."""

    low: int | None
    high: int | None

    @property
    def off(self) -> bool:
        return (self.low is not None and self.low > 0) or (self.high is not None and self.high < 0)

    @property
    def clock(self) -> Clock:
        if self.low is None or self.high is None:
            return Clock(max(self.low or 0, 0) + min(self.high or 0, 0), None)
        return Clock((self.low + self.high) // 2, (abs(self.high - self.low) + 1) // 2)


def ahead(quickest: Least) -> dict[str, Clock]:
    """How far the clocks of servers are ahead of those of most; servers that agree with these are not in it."""
    there: dict[str, list[tuple[str, int]]] = defaultdict(list)
    back: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for (a, b), took in sorted(quickest.items()):
        there[a].append((b, took))
        back[b].append((a, took))
    found: dict[str, Clock] = {}
    seen: set[str] = set()
    for start in sorted(there.keys() | back.keys()):
        if start not in seen:
            part = _connected(there, back, start)
            seen |= part
            by_offset = sorted(
                (each.clock.ahead, server) for server, each in _bounds(there, back, part, {start}).items()
            )
            most = by_offset[(len(by_offset) - 1) // 2][1]
            found |= _off(there, back, part, most)
    return found


def _off(there: Near, back: Near, part: set[str], most: str) -> dict[str, Clock]:
    """The clocks of this part that are not right: by that of one server, and closer by all those that are."""
    known = _bounds(there, back, part, {most})
    right = {server for server in part if not known[server].off}
    closer = _bounds(there, back, part, right)
    found = {}
    for server in part - right:
        low, high = closer[server]
        agree = (
            low is None or high is None or low <= high
        )  # else one of those clocks is off, too, by less than is found
        found[server] = (closer if agree else known)[server].clock
    return {server: clock for server, clock in found.items() if clock.ahead}


def _bounds(there: Near, back: Near, part: set[str], right: set[str]) -> dict[str, Bounds]:
    """Of each clock, if those of `right` are."""
    high, low = _reach(there, part, right), _reach(back, part, right)
    return {server: Bounds(-low[server] if server in low else None, high.get(server)) for server in part}


def _reach(near: Near, part: set[str], right: set[str]) -> dict[str, int]:
    """The quickest way to each server from one of `right`, through others (Bellman and Ford). What is quicker than
    nothing along the way is the clocks'; around a circle they cancel each other."""
    found = dict.fromkeys(right, 0)
    for _ in part:
        before = dict(found)
        for server, took in before.items():
            for other, more in near.get(server, ()):
                if other not in right:
                    found[other] = min(took + more, found.get(other, took + more))
        if found == before:
            break
    return found


def _connected(there: Near, back: Near, start: str) -> set[str]:
    found, left = {start}, [start]
    while left:
        server = left.pop()
        for other, _ in (*there.get(server, ()), *back.get(server, ())):
            if other not in found:
                found.add(other)
                left.append(other)
    return found
