"""Maps of the page: how servers and domains hang together, with names that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil
from typing import NamedTuple

import numpy as np

from mombroker.admin.analysis.pictures import NAME, Figures, colour, key, short, svg
from mombroker.core.words import many

Node = tuple[str, bool]  # of a map: its name, and whether it is a domain
Letter = tuple[float, float]  # its width, at most, and its height, in units of a map


class Spot(NamedTuple):
    x: float
    y: float
    leftwards: bool  # its name
    room: int  # of its name: 0 none, 1 on a screen, 2 on a phone, too


Spots = Mapping[Node, Spot]

MOST = 400  # links in a picture, the heaviest
WIDE, HIGH, TALL = 560, 440, 700  # of a map; the second at most, the third where names need the room
SIDE, EDGE = 30, 24  # of it, left free
DOT = 5  # half of one, about
LETTERS: tuple[Letter, Letter] = (7.4, 13.0), (11.0, 19.0)  # on a screen, on a phone
PAIRS = 10_000_000  # of names that are held against each other to move them apart,
STEP = 0.8  # each by so much of what lies on another


def placed(domains: Mapping[str, Iterable[str]]) -> Spots:
    """Where the domains and servers of a map are. It is as wide as a picture, and not higher than it has to be; no name
    that has room lies on another."""
    import networkx as nx

    graph = nx.Graph()
    for domain, servers in domains.items():
        graph.add_edges_from(((domain, True), (server, False)) for server in servers)
    if not graph:
        return {}
    found = nx.spring_layout(graph, seed=1, iterations=80)
    at = np.array([*found.values()])
    if (at[:, 0].max() - at[:, 0].min()) < (at[:, 1].max() - at[:, 1].min()):
        at = at[:, ::-1]
    left, long = at.min(0), (at[:, 0].max() - at[:, 0].min()) or 1
    at = (SIDE, EDGE) + (at - left) * ((WIDE - 2 * SIDE) / long, (HIGH - 2 * EDGE) / long)
    names = _Names([*found], at[:, 0] > WIDE / 2)
    at = names.apart(at, LETTERS[0])
    wider = names.apart(at, LETTERS[1])
    at = max(at, wider, key=lambda each: tuple(sum(names.free(each, letter)) for letter in LETTERS))
    screen, phone = (names.free(at, letter) for letter in LETTERS)
    rooms = [1 + far if near else 0 for near, far in zip(screen, phone, strict=True)]
    return {
        node: Spot(float(x), float(y), bool(leftwards), room)
        for node, (x, y), leftwards, room in zip(found, at, names.leftwards, rooms, strict=True)
    }


class _Names:
    """The names of a map beside their nodes, or on them, as those of domains."""

    def __init__(self, nodes: Sequence[Node], leftwards: np.ndarray):

        self.leftwards = leftwards
        self.letters = np.array([min(len(name), NAME) for name, _ in nodes])
        self.domains = np.array([is_domain for _, is_domain in nodes])
        self.least = np.array([(SIDE, EDGE)] * len(nodes), float)
        self.most = np.array([(WIDE - SIDE, TALL - EDGE)] * len(nodes), float)
        phone = 6 + LETTERS[-1][0] * self.letters  # a name is within the picture
        self.least[:, 0] = np.where(leftwards & ~self.domains, np.maximum(phone, SIDE), SIDE)
        self.most[:, 0] = np.where(leftwards | self.domains, WIDE - SIDE, WIDE - np.maximum(phone, SIDE))

    def boxes(self, at: np.ndarray, letter: Letter) -> np.ndarray:
        """What each node takes with its name: left, top, right, bottom."""
        (x, y), (wide, high) = at.T, letter
        long = wide * self.letters
        before = np.where(self.domains, long / 2, np.where(self.leftwards, 6 + long, 6))
        behind = np.where(self.domains, long / 2, np.where(self.leftwards, 6, 6 + long))
        above, below = np.where(self.domains, 0.8 * high, 5 + 0.8 * high), np.where(self.domains, 0.3 * high, 6)
        return np.array([x - before, y - above, x + behind, y + below]).T

    def shared(self, at: np.ndarray, letter: Letter) -> np.ndarray:
        """Of each two what lies on each other, across and down; below 0 where nothing does."""
        low, high = np.split(self.boxes(at, letter), 2, axis=1)
        found: np.ndarray = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)
        return found

    def apart(self, at: np.ndarray, letter: Letter) -> np.ndarray:
        """The nodes moved until no name lies on another, or for so long as that may take."""
        upper = np.triu(np.ones((len(at), len(at)), bool), 1)
        for _ in range(PAIRS // len(at) ** 2):
            shared = self.shared(at, letter) + 1
            a, b = np.nonzero((shared > 1).all(2) & upper)
            if not len(a):
                break
            low, high = np.split(self.boxes(at, letter), 2, axis=1)
            axis, centre = shared[a, b].argmin(1), (low + high) / 2
            step = np.where(centre[a, axis] <= centre[b, axis], -STEP, STEP) * shared[a, b, axis]
            at = at.copy()
            np.add.at(at, (a, axis), step)
            np.add.at(at, (b, axis), -step)
            at = np.clip(at, self.least, self.most)
        return at

    def free(self, at: np.ndarray, letter: Letter) -> list[bool]:
        """Which names have room, between the dots of all servers: those of servers first."""
        low, high = np.split(self.boxes(at, letter), 2, axis=1)
        covers = np.logical_and(low[:, None] < at + DOT, at - DOT < high[:, None]).all(2) & ~self.domains
        np.fill_diagonal(covers, False)
        taken, free = np.all(self.shared(at, letter) > 0, axis=2), np.zeros(len(at), bool)
        for node in np.argsort(self.domains, kind="stable"):
            free[node] = not covers[node].any() and not (taken[node] & free).any()
        return [bool(each) for each in free]


def _map(spots: Spots, lines: Iterable[str], caption: str) -> str:
    if hidden := sum(not spot.room for spot in spots.values()):
        caption += f"; {many(hidden, 'name')} without room, which a mouse tells"
    return svg(WIDE, ceil(max(spot.y for spot in spots.values()) + EDGE), lines, caption, "map")


def links(rows: Sequence[Figures], value: str, caption: str, unit: str, steps: tuple[float, float, float]) -> str:
    """Servers and domains as they hang together; a link has the colour of the worse of its two directions."""
    domains: dict[str, set[str]] = {}
    both: dict[tuple[str, str], tuple[float, int]] = {}
    for link in rows:
        domains.setdefault(link["domain"], set()).update((link["from"], link["to"]))
        pair = min(link["from"], link["to"]), max(link["from"], link["to"])
        worst, packets = both.get(pair, (0.0, 0))
        both[pair] = max(worst, link[value] or 0.0), packets + link["packets"]
    spots = placed({name: sorted(domains[name]) for name in sorted(domains)})
    if not spots:
        return ""
    heavy = max(packets for _, packets in both.values()) or 1
    drawn = []
    for (a, b), (worst, packets) in sorted(both.items(), key=lambda one: -one[1][1])[:MOST]:
        title = f"{a} – {b}: {worst:,}{unit}, {packets:,} packets"
        drawn.append(_line(spots[a, False], spots[b, False], colour(worst, steps), 1 + 4 * packets / heavy, title))
    drawn += _nodes(spots, set())
    return _map(spots, drawn, f"{caption}: {key(steps, unit)}; thick links carry many packets")


def topology(domains: Mapping[str, Figures], caption: str) -> str:
    """Domains, with their servers around them; routers are larger."""
    spots = placed({name: each["servers"] for name, each in domains.items()})
    count: dict[str, int] = {}
    for each in domains.values():
        for server in each["servers"]:
            count[server] = count.get(server, 0) + 1
    drawn = [
        _line(spots[name, True], spots[server, False], "var(--soft)", 1, f"{server} is in {name}, {each['ordering']}")
        for name, each in domains.items()
        for server in each["servers"]
    ]
    routers = {server for server, times in count.items() if times > 1}
    return _map(spots, [*drawn, *_nodes(spots, routers)], f"{escape(caption)}; routers are larger")


def _line(a: Spot, b: Spot, stroke: str, width: float, title: str) -> str:
    return (
        f'<line x1="{a.x:.0f}" y1="{a.y:.0f}" x2="{b.x:.0f}" y2="{b.y:.0f}" stroke="{stroke}" '
        f'stroke-width="{width:.1f}"><title>{escape(title)}</title></line>'
    )


def _nodes(spots: Spots, routers: set[str]) -> Iterable[str]:
    for (name, is_domain), spot in spots.items():
        if not is_domain:
            size, told = 6 if name in routers else 4, escape(name)
            yield f'<circle cx="{spot.x:.0f}" cy="{spot.y:.0f}" r="{size}" class="dot"><title>{told}</title></circle>'
        if spot.room:
            shift, up, anchor = (0, 0, "middle") if is_domain else (-6, 5, "end") if spot.leftwards else (6, 5, "start")
            kinds = " ".join(["name", *["soft"] * is_domain, *["screen"] * (spot.room == 1)])
            where = f'x="{spot.x + shift:.0f}" y="{spot.y - up:.0f}" text-anchor="{anchor}"'
            yield f'<text {where} class="{kinds}">{short(name)}</text>'
