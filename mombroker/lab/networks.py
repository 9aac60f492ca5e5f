"""Models of the network: how long a packet is on its way."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log
from random import Random
from typing import Any

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

Fragment = tuple[int, Any, Callable[..., Any], Any]  # bytes, its way, and what is called at the end of it, with what


class Link:
    """One direction of a wire: one fragment at a time, the others wait in order.

    1. Of the fragments that are under way the first alone has an event, so that there are few.
    """

    __slots__ = ("to", "delay", "free", "under_way")

    def __init__(self, to: int, delay: int):
        self.to, self.delay = to, delay
        self.free = 0  # when all that was put on it has left
        self.under_way: deque[tuple[int, Fragment]] = deque()  # when each is at the other end


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
        self._waited = self._waited_bytes = 0  # fragments that wait or are being sent, times ns; and their bytes
        self._most = self._longest = 0  # of them at once on a link, and ns until the last of them has left
        self._ties = lots.getrandbits(64)
        self._paths: dict[tuple[int, int], list[Link]] = {}
        self._cuts: dict[int, list[int]] = {}
        self._parents: dict[int, dict[int, int]] = {}

    def parents(self, root: int) -> dict[int, int]:
        """The tree of shortest paths from a node."""
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
        parts = self._cuts.get(size)
        if parts is None:
            most, header = self.fragment, self.header
            rest = [size % most + header] if size % most or not size else []
            parts = self._cuts[size] = [most + header] * (size // most) + rest
        return parts

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        path, parts = self.path(frm, to), self.cut(size)
        self.messages += len(parts)
        self.bytes += size + self.header * len(parts)
        for part in parts[:-1]:
            way = iter(path)
            self._put(next(way), (part, way, _nothing, ()))
        way = iter(path)
        self._put(next(way), (parts[-1], way, arrive, args))

    def _put(self, link: Link, fragment: Fragment) -> None:
        self.hops += 1
        size, now, under_way = fragment[0], self.world.now, link.under_way
        stays = size * self.byte
        if link.free > now:
            stays += link.free - now
        link.free = now + stays
        self._waited += stays
        self._waited_bytes += stays * size
        if stays > self._longest:
            self._longest = stays
        if len(under_way) >= self._most:
            last = now + link.delay  # of what has left by now, and does not wait any more
            gone = next((at for at, (there, _) in enumerate(under_way) if there > last), len(under_way))
            self._most = max(self._most, len(under_way) - gone + 1)
        stays += link.delay
        if not under_way:
            self.world.after(stays, self._come, link)
        under_way.append((now + stays, fragment))

    def _come(self, link: Link) -> None:
        there, fragment = link.under_way.popleft()
        if link.under_way:
            self.world.after(link.under_way[0][0] - there, self._come, link)
        self._pass(link, fragment)

    def _pass(self, link: Link, fragment: Fragment) -> None:
        """What is at the end of a link goes on, or has arrived."""
        following = next(fragment[1], None)
        if following:
            self._put(following, fragment)
        else:
            fragment[2](*fragment[3])

    def queues(self, ns: int) -> dict[str, float]:
        """What waits on a link or is being sent: in the mean over so long a time, and the most on any."""
        whole = max(ns * len(self.links), 1)
        return {
            "queue": self._waited / whole, "queue_bytes": self._waited_bytes / whole, "queue_most": self._most,
            "queue_most_bytes": self._longest // self.byte,
        }  # fmt: skip


class Multicast(Physical):
    """The network copies a packet for many where their paths part: once over each link of the sender's tree."""

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        self.cast(frm, size, arrive, {to: args})

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
        self.messages += len(parts) * len(copies)
        self.bytes += (size + self.header * len(parts)) * len(copies)
        for part in parts[:-1]:
            self._fan(frm, (part, branches, _nothing, {}))
        self._fan(frm, (parts[-1], branches, arrive, copies))

    def _pass(self, link: Link, fragment: Fragment) -> None:
        self._fan(link.to, fragment)

    def _fan(self, node: int, fragment: Fragment) -> None:
        _, branches, arrive, copies = fragment
        for link in branches.get(node, ()):
            self._put(link, fragment)
        if node in copies:
            arrive(*copies[node])


def _nothing() -> None:
    """At the end of a fragment that is not the last."""


def tree(near: Graph, root: int, lots: Random) -> dict[int, int]:
    """Shortest paths by hops: the parent of each node, the near ones first, -1 for the root.

    Of several parents any may be it: were it always the first, its links would carry the part of the others, too.
    """
    parents, front, choice = {root: -1}, [root], lots.choice
    while front:
        after: dict[int, list[int]] = {}
        for u in front:
            for v in near[u]:
                if v in after:
                    after[v].append(u)
                elif v not in parents:
                    after[v] = [u]
        for v, before in after.items():
            parents[v] = choice(before)
        front = [*after]
    return parents


def random_graph(lots: Random, size: int, chance: float) -> list[list[int]]:
    """Every pair is linked by this chance; then each stray component gets one random link to the first."""
    near: list[set[int]] = [set() for _ in range(size)]

    def link(u: int, v: int) -> None:
        near[u].add(v)
        near[v].add(u)

    random = lots.random
    for u in range(size):
        for v in [v for v in range(u + 1, size) if random() < chance]:
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
