"""Models of the network: how long a packet is on its way."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import log
from random import Random
from typing import Any

from mombroker.sim.lab.observers import Backlog
from mombroker.sim.world import MS, SECOND, World

Graph = Sequence[Sequence[int]]  # by node: its neighbours


class Exponential:
    """Paper 002, §3.2: exponential with the same mean for all, drawn for each copy by itself; what would overtake on
    its link comes 1 ms after the one before.

    1. On each link packets arrive in the order of sending.
    """

    def __init__(self, world: World, mean: int):
        self.world, self.mean = world, mean
        self.last: dict[tuple[int, int], int] = {}  # by link: the latest arrival
        self.repaired = 0

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        now = self.world.now
        at = now + self.world.about(self.mean)
        last = self.last.get((frm, to), 0)
        if at < last:
            at = last + MS
            self.repaired += 1
        self.last[frm, to] = at
        self.world.after(at - now, arrive, *args)


class Uniform:
    """Uniform between two delays, and in order on each link: what would overtake comes with the one before.

    1. On each link packets arrive in the order of sending.
    """

    def __init__(self, world: World, least: int, most: int):
        self.world, self.least, self.most = world, least, most
        self.last: dict[tuple[int, int], int] = {}

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        now = self.world.now
        at = max(now + self.world.rng.randint(self.least, self.most), self.last.get((frm, to), 0))
        self.last[frm, to] = at
        self.world.after(at - now, arrive, *args)


# -- store and forward ---------------------------------------------------------------------------------------------


class Link:
    """One direction of a wire: one fragment at a time, the others wait in order.

    1. Of the fragments that are under way the first alone has an event, so that there are few.
    """

    __slots__ = ("to", "delay", "free", "leaves", "under_way", "backlog")

    def __init__(self, to: int, delay: int):
        self.to, self.delay = to, delay
        self.free = 0  # when all that was put on it has left
        self.leaves: deque[int] = deque()  # of fragments that wait or are being sent: when the last byte leaves
        self.under_way: deque[tuple[int, Callable[..., Any], tuple[Any, ...]]] = deque()  # when each is there, and then
        self.backlog = Backlog()


class Physical:
    """Paper 000, §5.1: nodes with duplex links of one rate and each its own delay. A message is cut into fragments, and
    each node sends a fragment on when it has all of it, on a shortest path, always the same for a pair of nodes.

    1. Between two nodes packets arrive in the order of sending.
    """

    def __init__(
        self, world: World, near: Graph, lots: Random, rate: int = 10_000_000, delay: int = MS,
        fragment: int = 1500, header: int = 32,
    ):  # fmt: skip
        """`rate` in bits a second; delays are uniform up to `delay`. A fragment takes up to `fragment` bytes of a
        message, and a header of its own."""
        self.world, self.near, self.fragment, self.header = world, near, fragment, header
        self.byte = 8 * SECOND // rate  # ns
        self.links: dict[tuple[int, int], Link] = {}
        for u, others in enumerate(near):
            for v in others:
                known = self.links.get((v, u))
                self.links[u, v] = Link(v, known.delay if known else lots.randrange(delay))
        self.messages = self.bytes = self.hops = 0  # fragments, and their bytes, from end to end; fragments on links
        self._ties = lots.getrandbits(64)
        self._paths: dict[tuple[int, int], list[Link]] = {}
        self._parents: dict[int, list[int]] = {}

    def parents(self, root: int) -> list[int]:
        """The tree of shortest paths from a node: who is before whom; -1 before the root."""
        found = self._parents.get(root)
        if found is None:
            found = self._parents[root] = tree(self.near, root, Random(f"{self._ties} {root}"))
        return found

    def path(self, frm: int, to: int) -> list[Link]:
        found = self._paths.get((frm, to))
        if found is None:
            found, parents, at = [], self.parents(frm), to
            while at != frm:
                found.append(self.links[parents[at], at])
                at = parents[at]
            found.reverse()
            self._paths[frm, to] = found
        return found

    def cut(self, size: int) -> list[int]:
        """The bytes of each fragment."""
        most = self.fragment
        parts = [most] * (size // most) + ([size % most] if size % most or not size else [])
        self.messages += len(parts)
        self.bytes += size + self.header * len(parts)
        return [part + self.header for part in parts]

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        path, parts = self.path(frm, to), self.cut(size)
        for part in parts[:-1]:
            self._hop(path, 0, part, _nothing, ())
        self._hop(path, 0, parts[-1], arrive, args)

    def _hop(self, path: list[Link], at: int, size: int, arrive: Callable[..., Any], args: tuple[Any, ...]) -> None:
        link = path[at]
        at += 1
        if at == len(path):
            self._put(link, size, arrive, args)
        else:
            self._put(link, size, self._hop, (path, at, size, arrive, args))

    def _put(self, link: Link, size: int, then: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """A fragment on a link, `then(*args)` when it is at the other end."""
        self.hops += 1
        now, leaves = self.world.now, link.leaves
        while leaves and leaves[0] <= now:
            leaves.popleft()
        start = link.free if link.free > now else now
        link.free = left = start + size * self.byte
        leaves.append(left)
        link.backlog.add(len(leaves), (left - now) // self.byte, left - now, size)
        there = left + link.delay
        if not link.under_way:
            self.world.after(there - now, self._come, link)
        link.under_way.append((there, then, args))

    def _come(self, link: Link) -> None:
        there, then, args = link.under_way.popleft()
        if link.under_way:
            self.world.after(link.under_way[0][0] - there, self._come, link)
        then(*args)

    def backlogs(self) -> list[Backlog]:
        return [link.backlog for link in self.links.values()]


class Multicast(Physical):
    """The network copies a packet for many where their paths part: once over each link of the sender's tree."""

    def cast(self, frm: int, size: int, arrive: Callable[..., Any], copies: Mapping[int, tuple[Any, ...]]) -> None:
        """To each node `arrive(*args)` of its own. Messages are counted for each of them, as if sent to it alone."""
        branches: dict[int, list[Link]] = {}
        parents = self.parents(frm)
        for node in copies:
            while node != frm and (below := self.links[parents[node], node]) not in branches.setdefault(
                parents[node], []
            ):
                branches[parents[node]].append(below)
                node = parents[node]
        parts = self.cut(size)
        self.messages += len(parts) * (len(copies) - 1)
        self.bytes += sum(parts) * (len(copies) - 1)
        for at, part in enumerate(parts, 1):
            self._fan(frm, branches, part, arrive, copies if at == len(parts) else {})

    def _fan(
        self, node: int, branches: Mapping[int, list[Link]], size: int, arrive: Callable[..., Any],
        copies: Mapping[int, tuple[Any, ...]],
    ) -> None:  # fmt: skip
        for link in branches.get(node, ()):
            self._put(link, size, self._fan, (link.to, branches, size, arrive, copies))
        if node in copies:
            arrive(*copies[node])


def _nothing() -> None:
    """At the end of a fragment that is not the last."""


def tree(near: Graph, root: int, lots: Random) -> list[int]:
    """Shortest paths by hops: the parent of each node, -1 for the root and for what is not connected.

    Of several parents any may be it: were it always the first, its links would carry the part of the others, too.
    """
    parents, front = [-1] * len(near), [root]
    seen = {root}
    while front:
        after: dict[int, list[int]] = {}
        for u in front:
            for v in near[u]:
                if v not in seen:
                    after.setdefault(v, []).append(u)
        for v, before in after.items():
            parents[v] = lots.choice(before)
        seen.update(after)
        front = [*after]
    return parents


def random_graph(lots: Random, size: int, chance: float) -> list[list[int]]:
    """Every pair is linked by this chance; then each stray component gets one random link to the first."""
    near: list[set[int]] = [set() for _ in range(size)]

    def link(u: int, v: int) -> None:
        near[u].add(v)
        near[v].add(u)

    for u, v in combinations(range(size), 2):
        if lots.random() < chance:
            link(u, v)
    whole = _component(near, 0)
    for node in range(size):
        if node not in whole:
            stray = _component(near, node)
            link(lots.choice(sorted(stray)), lots.choice(sorted(whole)))
            whole |= stray
    return [sorted(each) for each in near]


def _component(near: Sequence[Iterable[int]], node: int) -> set[int]:
    found, todo = {node}, [node]
    while todo:
        for other in near[todo.pop()]:
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def density(size: int) -> float:
    """Paper 000 has 0.01 to 0.04; in between what connects almost all nodes."""
    return min(0.04, max(0.01, 1.2 * log(size) / size))
