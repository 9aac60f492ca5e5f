"""The folded incomplete hypercube: the graph of an overlay of any number of members, and what is to know of a graph.

Everything about a hypercube can be computed from the number of its members; nothing is stored.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache, reduce
from operator import or_

Graph = Sequence[Collection[int]]  # the neighbours of each member; symmetric


def neighbours(u: int, n: int) -> tuple[int, ...]:
    """The neighbours of member u of n, in ascending order (protocols §5.1).

    The labels 0..2^D-1 of the full cube are played by n members: a label that is missing by its lower twin. This
    contracts the cube, so no member has few neighbours: each has D-1 of them or more, also at n = 2^k + 1, where a
    cube that merely lacks members leaves the last one with a single link.
    """
    assert 0 <= u < n, f"no member {u} of {n}"
    dimensions = (n - 1).bit_length()
    top = 1 << dimensions >> 1
    labels = (u, u + top) if u < top <= u + top and u + top >= n else (u,)
    near = (label ^ 1 << bit for label in labels for bit in range(dimensions))
    return tuple(sorted({label if label < n else label - top for label in near} - {u}))


def host(newcomer: int) -> int:
    """The member that has played the label of a newcomer, the next member of `newcomer` ones: it hands over its log."""
    return newcomer - (1 << newcomer.bit_length() >> 1)


@lru_cache(64)
def hypercube(n: int) -> tuple[tuple[int, ...], ...]:
    """The whole graph."""
    return tuple(neighbours(u, n) for u in range(n))


def reach(graph: Graph, start: int, without: Collection[int] = ()) -> dict[int, int]:
    """The distance of each member that can be reached from `start` past the members `without`."""
    distance = {start: 0}
    near = [start]
    for u in near:
        for v in graph[u]:
            if v not in distance and v not in without:
                distance[v] = distance[u] + 1
                near.append(v)
    return distance


def diameter(graph: Graph) -> int:
    """The longest way that a flood goes; the graph is connected."""
    heard = [1 << u for u in range(len(graph))]  # as a bit set: those whose message has come to each member by now
    rounds = 0
    while not all(each == (1 << len(graph)) - 1 for each in heard):
        heard = [reduce(or_, (heard[v] for v in graph[u]), heard[u]) for u in range(len(graph))]
        rounds += 1
    return rounds


def flood(graph: Graph) -> int:
    """The link messages of one flood, exactly: each member passes it on to all neighbours but the one it comes from."""
    return sum(map(len, graph)) - (len(graph) - 1)


def connectivity(graph: Graph) -> int:
    """How many members must be down to cut the others in two, or to leave but one (kappa)."""
    near = [frozenset(each) for each in graph]
    k = min(map(len, near))
    while not _survives(near, k):
        k -= 1
    return k


def _survives(near: list[frozenset[int]], k: int) -> bool:
    """True when no set of fewer than k members parts the graph (Even's algorithm).

    Suppose that one does, and let v be the first member that it parts from one before it. If v is among the first k,
    those two have no k disjoint ways. Else it parts v from all before it that it does not hold: then the ways from v
    to any of them, disjoint but for v, are fewer than k.
    """
    for v in range(len(near)):
        if v < k:
            fewest = min((_ways(near, u, v, k) for u in range(v) if u not in near[v]), default=k)
        else:
            fewest = _ways([*near, frozenset(range(v))], len(near), v, k)
        if fewest < k:
            return False
    return True


def _ways(near: list[frozenset[int]], start: int, end: int, enough: int) -> int:
    """Up to `enough` ways from `start` to `end` that share no member between them: a flow, raised way by way."""
    before = dict.fromkeys(near[start] & near[end], start)  # the member before, on the way through this one
    after = dict.fromkeys(before, end)
    ways = len(before)
    while ways < enough:
        trail = _raise(near, before, after, start, end)
        if trail is None:
            return ways
        ways += 1
        _lay(trail, before, after, start, end)
    return enough


Spot = tuple[int, bool]  # a member, and whether we are past it or have only come to it


def _raise(
    near: list[frozenset[int]], before: dict[int, int], after: dict[int, int], start: int, end: int
) -> list[Spot] | None:
    """A trail from `start` to `end` that may go back along ways that are laid: breadth first."""
    came: dict[Spot, Spot | None] = {(start, True): None}
    spots = [(start, True)]
    for spot in spots:
        u, past = spot
        if past:
            following = [(v, False) for v in near[u] if v != start and after.get(u) != v]
            if u in before:  # back from the member to its entrance
                following.append((u, False))
        elif u in before:
            following = [(before[u], True)] if before[u] != start else []
        else:
            following = [(u, True)]
        for each in following:
            if each not in came:
                came[each] = spot
                if each == (end, False):
                    return _trail(came, each)
                spots.append(each)
    return None


def _trail(came: dict[Spot, Spot | None], spot: Spot | None) -> list[Spot]:
    trail = []
    while spot is not None:
        trail.append(spot)
        spot = came[spot]
    return trail[::-1]


def _lay(trail: list[Spot], before: dict[int, int], after: dict[int, int], start: int, end: int) -> None:
    """Lay the trail over the ways: what it goes back along is taken up again."""
    steps = list(zip(trail, trail[1:], strict=False))
    for (u, past), (v, came_past) in steps:  # first take up
        if not past and came_past and u != v:
            del after[v], before[u]
    for (u, past), (v, came_past) in steps:
        if past and not came_past and u != v:
            if u != start:
                after[u] = v
            if v != end:
                before[v] = u
