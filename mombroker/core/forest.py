"""The server-domain incidence graph: is it a forest, and if not, what to take out.

Causal order inside each domain is causal order on the whole bus exactly when this graph has no cycle (paper 004 §4,
with the stricter cycle of DO3: a domain inside another, or two domains that share two servers, is one too).
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

Node = tuple[str, bool]  # (name, is a domain): a server and a domain may have the same name
Members = dict[str, list[str]]


class Overlap(NamedTuple):
    """Two domains share two or more servers: all of `surplus` must leave `domain`, or `domain` must go (`inside`)."""

    domain: str
    other: str
    shared: list[str]
    surplus: list[str]
    inside: bool  # every server of `domain` is in `other` too


class Cycle(NamedTuple):
    """A cycle through three or more domains: `path` holds a domain, a server, a domain, ... a server."""

    path: list[str]
    server: str  # the cheapest to take out,
    domain: str  # of this domain
    alone: bool  # the domain then holds one server, and can go


class UnionFind:
    """Disjoint sets, merged by `join`."""

    def __init__(self) -> None:
        self.parent: dict[Node, Node] = {}

    def find(self, node: Node) -> Node:
        parent = self.parent
        root = parent.setdefault(node, node)
        while root != parent[root]:
            parent[root] = root = parent[parent[root]]
        parent[node] = root
        return root

    def join(self, a: Node, b: Node) -> bool:
        """Merge the sets of a and b; False if they are one already."""
        a, b = self.find(a), self.find(b)
        self.parent[a] = b
        return a != b


def is_forest(domains: Mapping[str, Collection[str]]) -> bool:
    return _closing_edge(domains) is None


def pieces(domains: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The connected parts of the bus, each as its domains in order of the file."""
    sets, parts = UnionFind(), dict[Node, list[str]]()
    for domain, server in _edges(domains):
        sets.join((domain, True), (server, False))
    for domain, members in domains.items():
        if members:
            parts.setdefault(sets.find((domain, True)), []).append(domain)
    return list(parts.values())


def faults(domains: Mapping[str, Collection[str]]) -> list[Overlap | Cycle]:
    """Everything that keeps the graph from being a forest; taking out all that is named makes it one."""
    members = {domain: list(dict.fromkeys(servers)) for domain, servers in domains.items()}
    found: list[Overlap | Cycle] = []
    for a, b in _pairs(members):
        if overlap := _overlap(members, a, b):
            found.append(overlap)
            members[overlap.domain] = [s for s in members[overlap.domain] if s not in overlap.surplus]
    while edge := _closing_edge(members):
        path = _around(members, *edge)
        server, domain = _cheapest(members, path)
        members[domain].remove(server)
        found.append(Cycle([name for name, _ in path], server, domain, len(members[domain]) == 1))
    return found


def _edges(domains: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    return ((domain, server) for domain, members in domains.items() for server in members)


def _domains_of(domains: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for domain, server in _edges(domains):
        index.setdefault(server, []).append(domain)
    return index


def _closing_edge(domains: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
    """The first (domain, server) whose ends are already joined by those before it."""
    sets = UnionFind()
    for domain, server in _edges(domains):
        if not sets.join((domain, True), (server, False)):
            return domain, server
    return None


def _pairs(members: Members) -> list[tuple[str, str]]:
    """The pairs of domains that share two servers or more, in order of the file."""
    shared: dict[tuple[str, str], int] = {}
    for domains in _domains_of(members).values():
        for at, a in enumerate(domains):
            for b in domains[at + 1 :]:
                shared[a, b] = shared.get((a, b), 0) + 1
    place = {domain: at for at, domain in enumerate(members)}
    return sorted((pair for pair, count in shared.items() if count > 1), key=lambda p: (place[p[0]], place[p[1]]))


def _overlap(members: Members, a: str, b: str) -> Overlap | None:
    """What a and b share, if it is too much: the smaller one gives up all but the server that routes most."""
    small, big = sorted((a, b), key=lambda domain: len(members[domain]) - (domain == b))
    other = set(members[big])
    shared = [server for server in members[small] if server in other]
    if len(shared) < 2:
        return None  # an earlier overlap has taken them out
    index = _domains_of(members)
    keep = max(shared, key=lambda server: len(index[server]))
    inside = len(shared) == len(members[small])
    return Overlap(small, big, shared, [s for s in shared if inside or s != keep], inside)


def _neighbours(members: Members) -> dict[Node, list[Node]]:
    graph: dict[Node, list[Node]] = {
        (domain, True): [(s, False) for s in servers] for domain, servers in members.items()
    }
    graph.update({(s, False): [(d, True) for d in domains] for s, domains in _domains_of(members).items()})
    return graph


def _around(members: Members, domain: str, server: str) -> list[Node]:
    """The shortest cycle through one edge, from the domain to the server."""
    graph, start, end = _neighbours(members), (domain, True), (server, False)
    came = {start: start}
    queue = deque([start])
    while end not in came:
        node = queue.popleft()
        for neighbour in graph[node]:
            if neighbour not in came and (node, neighbour) != (start, end):
                came[neighbour] = node
                queue.append(neighbour)
    path = [end]
    while path[-1] != start:
        path.append(came[path[-1]])
    return _as_told(members, path)


def _as_told(members: Members, path: list[Node]) -> list[Node]:
    """The same cycle from its first domain of the file on, towards the earlier of that one's neighbours."""
    place = {(domain, True): at for at, domain in enumerate(members)}
    first = min((at for at, node in enumerate(path) if node in place), key=lambda at: place[path[at]])
    path = path[first:] + path[:first]
    return path if place[path[2]] < place[path[-2]] else path[:1] + path[:0:-1]


def _cheapest(members: Members, path: list[Node]) -> tuple[str, str]:
    """The (server, domain) of a cycle whose separation costs the fewest hops, summed over all pairs of servers.

    Without one edge the cycle is a line, on which each server hangs at the node of the cycle that is nearest to it:
    a piece of the line costs one half hop for each pair of servers that it parts. Among equals the largest domain
    gives its server up, since there a clock shrinks most, and then the last of the file.
    """
    graph, queue = _neighbours(members), deque(path)
    nearest = {node: at for at, node in enumerate(path)}
    weight = [int(not is_domain) for _, is_domain in path]
    while queue:
        node = queue.popleft()
        for neighbour in graph[node]:
            if neighbour not in nearest:
                nearest[neighbour] = nearest[node]
                weight[nearest[node]] += not neighbour[1]
                queue.append(neighbour)

    def cost(at: int) -> tuple[int, int, int]:
        """Of the edge between path[at - 1] and path[at]."""
        before = hops = 0
        for each in weight[at:] + weight[:at]:
            before += each
            hops += before * (total - before)
        domain = ends(at)[1]
        return hops, -len(members[domain]), -order.index(domain)

    def ends(at: int) -> tuple[str, str]:
        (a, a_is_domain), (b, _) = path[at - 1], path[at]
        return (b, a) if a_is_domain else (a, b)

    total, order = sum(weight), list(members)
    return ends(min(range(len(path)), key=cost))
