"""Causal order inside one domain by constrained flooding on a fixed graph of links (paper 000), without any clock.

Everything that decides delivery order in such a domain is in this file.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.envelope import MOST, seal, unseal
from mombroker.ordering.hypercube import connectivity, diameter, flood, hypercube, neighbours, reach

SEEN = 0  # the kind of rows in the store


class Number:
    """The stamp: the number of a message among those of its origin. Its bytes are the same on every link."""

    __slots__ = ("number", "data")

    def __init__(self, number: int, data: bytes | None = None):
        self.number, self.data = number, data


class Overlay(Ordering):
    """A member hands every new message on to its neighbours, and delivers it if it is for this member.

    Record, forward, deliver, in this order (OV1; fakes_overlay: DeliversFirst): could the application send between
    delivery and forwarding, its answer would overtake the cause on every link. A link keeps the order of what is on
    it, so nothing ever waits here. The out-queues of the links are the log.

    1. No number decreases.
    """

    fifo = True
    relays = True
    spreads = True
    floods = True
    prompt = True
    options = ("links",)

    def __init__(self, me: int, size: int, links: Sequence[Sequence[int]] | None = None):
        """`links` are pairs of members; by default those of the folded incomplete hypercube."""
        assert 0 <= me < size <= MOST, f"no member {me} in a domain of {size}"
        self.me, self.size = me, size
        self.graph = None if links is None else graph(size, links)
        self.neighbours = neighbours(me, size) if self.graph is None else self.graph[me]
        self.seen = [0] * size  # by origin: the number of the last message that was recorded
        self._changed: set[int] = set()  # origins since the last `dirty`
        self._floor = self.seen[:]  # numbers at the last `check`

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if len(members) < 2:
            faults.append("an overlay of one member connects nobody: add a server, or leave the domain out")
        elif "links" in options:
            faults += _faults(members, options["links"])
        return faults

    @classmethod
    def resolve(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        resolved = dict(options)
        if "links" in options:
            resolved["links"] = [[members.index(name) for name in link] for link in options["links"]]
        return resolved

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """One flood a message, whomever it is for (protocols §5.1)."""
        links = cls.resolve(members, options).get("links")
        near = hypercube(len(members)) if links is None else graph(len(members), links)
        degrees = sorted(map(len, near))
        spare = (degrees[0] if links is None else connectivity(near)) - 1
        passing = f"all among the others while any {spare} are down" if spare else "all that need not pass who is down"
        return super().describe(members, options) | {
            "links": [degrees[0], degrees[-1]], "diameter": diameter(near), "packets": flood(near),
            "packets_to_all": flood(near), "control_bytes": 2 * INTEGER, "control_bytes_worst": 2 * INTEGER,
            "survives": passing,
        }  # fmt: skip

    def reach(self, without: Collection[int]) -> set[int]:
        return {*reach(self.graph or hypercube(self.size), self.me, without)}

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        me = self.me
        return self._record(Packet(me, tuple(dests), body, me, Number(self.seen[me] + 1), me), me)

    def receive(self, frm: int, packet: Packet) -> Step:
        """Raises ValueError for a packet that came before an earlier one: the link is no FIFO link."""
        number, have = packet.stamp.number, self.seen[packet.origin]
        if number <= have:
            self.duplicates += 1  # it came on another link before
            return Step([], [])
        if number != have + 1:
            raise ValueError(f"packet {number} of member {packet.origin} came next after packet {have}")
        return Step(self._record(packet, frm), [packet] if self.me in packet.dests else [])

    def _record(self, packet: Packet, frm: int) -> list[Packet]:
        """Note a new message. What goes to the neighbours, but not back."""
        dests, body, origin, stamp = packet.dests, packet.body, packet.origin, packet.stamp
        self.seen[origin] = stamp.number
        self._changed.add(origin)
        return [Packet(to, dests, body, origin, stamp) for to in self.neighbours if to != frm]

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        return []

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        return None

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows = {(SEEN, k): self.seen[k].to_bytes(8, "little") for k in self._changed}
        self._changed.clear()
        return rows, set()

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        core._load(rows)
        return core

    def _load(self, rows: Rows) -> None:
        for (kind, k), blob in rows.items():
            if kind == SEEN:
                self.seen[k] = int.from_bytes(blob, "little")

    def encode(self, packet: Packet) -> bytes:
        """The envelope, then the body. What came from a neighbour goes on as it is."""
        stamp: Number = packet.stamp
        if stamp.data is None:
            stamp.data = seal(0, stamp.number, packet.origin, packet.dests) + packet.body
        return stamp.data

    def decode(self, frm: int, data: bytes) -> Packet:
        if frm not in self.neighbours:
            raise ValueError(f"member {frm} is no neighbour in this overlay")
        flags, number, dests, origin, at = unseal(data, self.size)
        if flags:
            raise ValueError("no packet of an overlay")
        if origin == self.me and number > self.seen[origin] and not self.forgetful:
            raise ValueError(f"message {number} of member {origin} was never sent")
        return Packet(self.me, dests, data[at:], origin, Number(number, data), frm)

    def control_ints(self, packet: Packet) -> int:
        """Origin and number: all that tells a duplicate."""
        return 2

    def check(self) -> None:
        assert all(map(int.__ge__, self.seen, self._floor)), "1: a number decreased"
        self._floor = self.seen[:]


def graph(size: int, links: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The neighbours of each member."""
    near: list[set[int]] = [set() for _ in range(size)]
    for u, v in links:
        near[u].add(v)
        near[v].add(u)
    return [tuple(sorted(each)) for each in near]


def _faults(members: tuple[str, ...], links: Any) -> list[str]:
    """One sentence per fault of the option `links`."""
    if not isinstance(links, list) or not all(
        isinstance(link, list) and len(link) == 2 and all(isinstance(name, str) for name in link) for link in links
    ):
        return ['links is a list of pairs of servers: write links = [["a", "b"], ["b", "c"]]']
    faults = []
    strangers = {name: None for link in links for name in link if name not in members}
    faults += [
        f"{name!r} in links is no server of this domain: take it out, or name it in `servers`" for name in strangers
    ]
    faults += [f"the link [{u!r}, {u!r}] connects a server with itself: take it out" for u, v in links if u == v]
    seen = set()
    for link in map(frozenset, links):
        if link in seen and len(link) == 2:
            faults.append(f"the link between {' and '.join(sorted(link))} is listed twice: take one out")
        seen.add(link)
    if not faults:
        found = reach(graph(len(members), [[members.index(name) for name in link] for link in links]), 0)
        lonely = [name for k, name in enumerate(members) if k not in found]
        if lonely:
            faults.append(f"no links lead from {members[0]} to {', '.join(lonely)}: add a link between them")
    return faults
