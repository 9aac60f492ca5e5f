"""The search for domains that fit a traffic: communities that talk a lot together, few routers on the heavy paths.

A split is a list of domains, each a set of servers, whose server-domain graph is a tree; every move keeps it one. What
a split costs is judged by the sizes of its domains (`costs.BySize`) and the copies that cross each: good enough to
find a few splits that `costs.predict` then judges by their traffic.

Needs networkx and numpy, which come with the extra `spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from mombroker.admin.topology.costs import Flows
from mombroker.core.errors import MomError

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np

Domains = tuple[frozenset[int], ...]

RESOLUTIONS = (0.3, 0.6, 1.0, 1.6, 2.5, 4.0)  # of the communities to begin with: the higher, the smaller
STARTS = 3  # splits that are bettered
MOVES = 4000  # splits that are looked at from each, at most
NEAR = 3  # servers or domains that a move looks at
DEALS = 8  # that a split is held against
SEVERAL = 200  # sets of servers that messages go to, the most frequent ones, are looked at as sets
PLAIN = 0.0005  # of the price, that one more domain has to save
DEAR = 100  # times the dearest domain: a copy that crosses more of them than it may
BACKBONE = 6  # domains joined by one, at most, before domains of these are made


@dataclass(slots=True)
class Bounds:
    largest: int = 0  # servers of a domain; 0: any number
    share: float = 1 / 3  # of all copies that one router may pass on without a penalty
    crossings: float = 0.0  # of domains, by one copy, without a penalty; 0: any number


class Search:
    """`copies[a, b]` are the messages from one server to another; those of them that are for several servers may be
    told, too, by (from, to): a router that many of these lie behind gets such a message once."""

    def __init__(
        self,
        servers: Sequence[str],
        copies: Mapping[tuple[str, str], float],
        cost: Callable[[int], float],
        bounds: Bounds,
        begin: Sequence[Iterable[Collection[str]]] = (),
        flows: Flows | None = None,
    ):
        """`begin`: splits to better, beside those that the search begins with."""
        try:
            import networkx as nx
            import numpy as np
        except ImportError:
            raise MomError("advice needs networkx; install it with: pip install 'mombroker[spark]'") from None
        self.nx, self.np = nx, np
        self.servers, self.cost, self.bounds = list(servers), cost, bounds
        index = {server: at for at, server in enumerate(self.servers)}
        self.size = len(self.servers)
        self.w = np.zeros((self.size, self.size))
        for (a, b), count in copies.items():
            self.w[index[a], index[b]] += count
        self.single = self.w.copy()  # without those of `several`
        several = [each for each in (flows or {}).items() if len(each[0][1]) > 1]
        several = sorted(several, key=lambda each: (-each[1], each[0]))[:SEVERAL]
        self.weights, self.origins = np.array([count for _, count in several]), np.zeros(len(several), dtype=int)
        self.several = np.zeros((len(several), self.size), dtype=int)
        for at, ((origin, to), count) in enumerate(several):
            self.origins[at] = index[origin]
            self.several[at, [index[name] for name in to]] = 1
            self.single[index[origin]] -= count * self.several[at]
        self.both = self.w + self.w.T
        self.total = float(self.w.sum()) or 1.0
        self.begin = [tuple(frozenset(index[server] for server in domain) for domain in split) for split in begin]

    # -- what a split costs ----------------------------------------------------------------------------------------

    def price(self, domains: Domains, bounded: bool = True) -> float:
        """Of one copy. With `bounded` a router that passes on too much makes it dear.

        The servers are put in an order in which all that hangs on a server, or on a domain, is a run: then what a run
        keeps to itself is read off the sums of a table.
        """
        at = self._members_of(domains)
        order, size, above = self._walk(domains, at)
        place = {server: number for number, server in enumerate(order)}
        single = self._sums(self.single, order)
        sums = self._sums(self.w, order) if len(self.several) and bounded else single
        below: list[tuple[int, int]] = []  # the runs of the servers that a domain brings in,
        brings: list[tuple[int, int]] = []  # and of all that it does
        for number, domain in enumerate(domains):
            runs = [(place[s], place[s] + size[s]) for s in domain if s != above[number]]
            below += runs
            brings.append((min(a for a, _ in runs), max(b for _, b in runs)))
        inside, outside = self._kept(single, below)[0], self._kept(single, brings)[1]
        came, left = self._crossed(order, below, brings)
        price, crossed, first, total = 0.0, 0.0, 0, single[-1, -1]
        for number, domain in enumerate(domains):
            end = first + len(domain) - 1
            crossing = total - inside[first:end].sum() - outside[number] + came[first:end].sum() + left[number]
            price += self.cost(len(domain)) * crossing
            crossed += crossing
            first = end
        if bounded and self.bounds.crossings:
            dear = DEAR * max(self.cost(len(domain)) for domain in domains)
            price += max(crossed - self.bounds.crossings * self.total, 0.0) * dear
        own = self._kept(sums, brings)[0]
        for router, mine in at.items() if bounded else ():
            if len(mine) > 1:
                passed = self.total - self.both[router].sum()
                for number in mine:
                    passed -= (
                        own[number] if above[number] == router else self._beyond(sums, place[router], size[router])
                    )
                excess = passed / self.total - self.bounds.share
                price += max(excess, 0.0) * 10 * self.total * self.cost(2)
        return float(price / self.total)

    def _walk(self, domains: Domains, at: Mapping[int, list[int]]) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """The servers in such an order, how many hang on each, itself included, and where each domain is entered."""
        order, parent, above = list[int](), dict[int, int](), dict[int, int]()
        stack = [0]
        while stack:
            server = stack.pop()
            order.append(server)
            for number in at[server]:
                if number not in above:
                    above[number] = server
                    for member in domains[number]:
                        if member != server:
                            parent[member] = server
                            stack.append(member)
        size = dict.fromkeys(order, 1)
        for server in reversed(order[1:]):
            size[parent[server]] += size[server]
        return order, size, above

    def _sums(self, w: np.ndarray, order: list[int]) -> np.ndarray:
        sums = self.np.zeros((self.size + 1, self.size + 1))
        sums[1:, 1:] = w[self.np.ix_(order, order)].cumsum(0).cumsum(1)
        return sums

    def _kept(self, sums: np.ndarray, runs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """The copies between servers of a run, and between those that are not in it."""
        a, b = self.np.array(runs).T
        own = sums[b, b] - sums[a, b] - sums[b, a] + sums[a, a]
        leaving, coming = sums[b, -1] - sums[a, -1], sums[-1, b] - sums[-1, a]
        return own, sums[-1, -1] - leaving - coming + own

    def _crossed(
        self, order: list[int], below: list[tuple[int, int]], brings: list[tuple[int, int]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of messages for several servers: how many come into each run of `below`, and leave each one of `brings`."""
        np = self.np
        if not len(self.several):
            return np.zeros(len(below)), np.zeros(len(brings))
        counts = np.zeros((len(self.several), self.size + 1), dtype=int)
        counts[:, 1:] = self.several[:, order].cumsum(1)
        at = np.argsort(order)[self.origins][:, None]
        a, b = np.array(below).T
        came = (counts[:, b] > counts[:, a]) & ((at < a) | (at >= b))
        a, b = np.array(brings).T
        left = (counts[:, -1:] > counts[:, b] - counts[:, a]) & (at >= a) & (at < b)
        return self.weights @ came, self.weights @ left

    def _beyond(self, sums: np.ndarray, place: int, size: int) -> float:
        """The copies between servers that are not in this run; as `_kept`, for one alone."""
        a, b, whole = place, place + size, sums[-1, -1]
        own = sums[b, b] - sums[a, b] - sums[b, a] + sums[a, a]
        return float(whole - (sums[b, -1] - sums[a, -1]) - (sums[-1, b] - sums[-1, a]) + own)

    def _members_of(self, domains: Domains) -> dict[int, list[int]]:
        at: dict[int, list[int]] = {server: [] for server in range(self.size)}
        for number, domain in enumerate(domains):
            for server in domain:
                at[server].append(number)
        return at

    def _branches(self, domains: Domains, at: Mapping[int, list[int]], number: int) -> np.ndarray:
        """For each server the member of this domain by which a message to it leaves the domain."""
        label = self.np.zeros(self.size, dtype=int)
        for member in domains[number]:
            stack = [(member, number)]
            while stack:
                server, came = stack.pop()
                label[server] = member
                for other in at[server]:
                    if other != came:
                        stack += [(each, other) for each in domains[other] if each != server]
        return label

    # -- to begin with ---------------------------------------------------------------------------------------------

    def starts(self) -> Iterator[Domains]:
        """As large as allowed: domains that are larger are cut."""
        for split in self._starts():
            yield tuple(part for domain in split for part in self._cut(domain))

    def _starts(self) -> Iterator[Domains]:
        yield from self.begin
        yield self._pairs()
        graph = self._graph(range(self.size))
        seen = set[frozenset[frozenset[int]]]()
        for resolution in RESOLUTIONS:
            found = self.nx.community.louvain_communities(graph, resolution=resolution, seed=1)
            groups = [part for group in found for part in self._bounded(frozenset(group))]
            groups = self._no_singles(groups)
            if frozenset(groups) not in seen:
                seen.add(frozenset(groups))
                yield self._backbones(groups)
                yield self._tree(groups)

    def _graph(self, servers: Sequence[int] | range) -> nx.Graph:
        graph = self.nx.Graph()
        graph.add_nodes_from(servers)
        for a in servers:
            for b in servers:
                if a < b and self.both[a, b]:
                    graph.add_edge(a, b, weight=self.both[a, b])
        return graph

    def _pairs(self) -> Domains:
        """Servers two by two along the heaviest ways; those that have none hang on the busiest one."""
        graph, hub = self._graph(range(self.size)), int(self.both.sum(0).argmax())
        others = (server for server in range(self.size) if server != hub and not graph.has_edge(hub, server))
        graph.add_weighted_edges_from((hub, server, 0.0) for server in others)
        return tuple(frozenset(edge) for edge in self.nx.maximum_spanning_tree(graph).edges)

    def _bounded(self, group: frozenset[int]) -> list[frozenset[int]]:
        """Room is left for a router of another domain."""
        if not self.bounds.largest or len(group) < max(self.bounds.largest, 3):
            return [group]
        return [part for half in self._halves(group) for part in self._bounded(half)]

    def _halves(self, group: frozenset[int]) -> list[frozenset[int]]:
        graph = self._graph(sorted(group))
        return [frozenset(half) for half in self.nx.community.kernighan_lin_bisection(graph, seed=1) if half]

    def _cut(self, domain: frozenset[int]) -> list[frozenset[int]]:
        """Domains of the size allowed, which hang together by servers that they share."""
        if not self.bounds.largest or len(domain) <= self.bounds.largest:
            return [domain]
        small, large = sorted(self._halves(domain), key=len)
        return [*self._cut(large), *self._cut(small | {self._gateway(large, small)})]

    def _no_singles(self, groups: list[frozenset[int]]) -> list[frozenset[int]]:
        """A server by itself joins the group that it talks with most."""
        large = [group for group in groups if len(group) > 1]
        for group in groups:
            if len(group) == 1 and large:
                (server,) = group
                best = max(range(len(large)), key=lambda at: self._between(group, large[at]) / len(large[at]))
                large[best] |= {server}
        return large or [frozenset(range(self.size))]

    def _between(self, a: frozenset[int], b: frozenset[int]) -> float:
        return float(self.both[sorted(a)][:, sorted(b)].sum())

    def _gateway(self, group: frozenset[int], beyond: frozenset[int]) -> int:
        """The member that talks most with others."""
        return max(sorted(group), key=lambda server: self._between(frozenset((server,)), beyond))

    def _backbones(self, groups: list[frozenset[int]]) -> Domains:
        """The groups joined by a domain of one router each; many groups first in bundles."""
        domains, level = list(groups), list(groups)
        everyone = frozenset(range(self.size))
        while len(level) > 1:
            bundles = [level]
            if len(level) > BACKBONE:
                graph = self.nx.Graph()
                graph.add_nodes_from(range(len(level)))
                for a in range(len(level)):
                    for b in range(a):
                        graph.add_edge(a, b, weight=self._between(level[a], level[b]) + 1e-9)
                found = self.nx.community.louvain_communities(graph, seed=1)
                if 1 < len(found) < len(level):
                    bundles = [[level[at] for at in sorted(bundle)] for bundle in found]
            joined = []
            for bundle in bundles:
                if len(bundle) > 1:
                    domains.append(frozenset(self._gateway(group, everyone - group) for group in bundle))
                joined.append(frozenset().union(*bundle))
            level = joined
        return tuple(domains)

    def _tree(self, groups: list[frozenset[int]]) -> Domains:
        """The groups in a tree along which they talk most; a router of each is in the domain above it."""
        domains, joined = list(groups), {0}
        while len(joined) < len(groups):
            pairs = [(a, b) for a in joined for b in range(len(groups)) if b not in joined]
            above, below = max(pairs, key=lambda pair: self._between(groups[pair[0]], groups[pair[1]]))
            domains[above] |= {self._gateway(groups[below], groups[above])}
            joined.add(below)
        return tuple(domains)

    # -- to better it ----------------------------------------------------------------------------------------------

    def best(self) -> list[Domains]:
        """The best splits that were found, the best first."""
        begun = sorted((self._effort(each), number, each) for number, each in enumerate(self.starts()))
        found = {each: price for price, each in (self._climb(each) for _, _, each in begun[:STARTS])}
        return sorted(found, key=lambda each: found[each])

    def fit(self, domains: Domains) -> float:
        """How much cheaper these domains are than the same ones with the servers dealt at random: 0 is no fit."""
        rng, dealt, price = Random(1), list(range(self.size)), self.price(domains, bounded=False)
        prices = []
        for _ in range(DEALS):
            rng.shuffle(dealt)
            others = tuple(frozenset(dealt[server] for server in domain) for domain in domains)
            prices.append(self.price(others, bounded=False))
        return 1 - price / (sum(prices) / DEALS)

    def named(self, domains: Domains) -> list[tuple[str, ...]]:
        return [tuple(self.servers[server] for server in sorted(domain)) for domain in domains]

    def _climb(self, domains: Domains) -> tuple[float, Domains]:
        moves = [self._moved, self._rerouted, self._reattached, self._merged, self._halved]
        if self.bounds.crossings:
            moves.append(self._hung)
        looked, better, price = 0, True, self._effort(domains)
        while better and looked < MOVES:
            better = False
            for move in moves:
                again = True
                while again and looked < MOVES:
                    again = False
                    for other in move(domains):
                        looked += 1
                        if self._allowed(other) and (cost := self._effort(other)) < price * (1 - 1e-6):
                            domains, price, better, again = other, cost, True, True
                            break
        return price, domains

    def _effort(self, domains: Domains) -> float:
        return self.price(domains) * (1 + PLAIN * len(domains))

    def _allowed(self, domains: Domains) -> bool:
        sizes = [len(domain) for domain in domains]
        return min(sizes) > 1 and (not self.bounds.largest or max(sizes) <= self.bounds.largest)

    def _moved(self, domains: Domains) -> Iterator[Domains]:
        """A server that is no router leaves its domain for one that it talks more with."""
        at = self._members_of(domains)
        for server, mine in at.items():
            if len(mine) == 1:
                own = domains[mine[0]]
                ties = [(self._between(frozenset((server,)), domain - {server}), n) for n, domain in enumerate(domains)]
                for tie, number in sorted(ties, reverse=True)[:NEAR]:
                    if number != mine[0] and tie and len(own) > 2:
                        yield _with(domains, {mine[0]: own - {server}, number: domains[number] | {server}})

    def _rerouted(self, domains: Domains) -> Iterator[Domains]:
        """Another server of a domain takes a router's place in the next one."""
        at = self._members_of(domains)
        for router, mine in at.items():
            if len(mine) > 1:
                for number in mine:
                    beyond = domains[number] - {router}
                    inner = frozenset().union(*(domains[each] for each in mine if each != number)) - {router}
                    ties = sorted(((self._between(frozenset((s,)), beyond), s) for s in inner), reverse=True)
                    for _, server in ties[:NEAR]:
                        yield _with(domains, {number: beyond | {server}})

    def _reattached(self, domains: Domains) -> Iterator[Domains]:
        """A router leaves a domain, with all that hangs on it, and it, or the server on its side that talks most with
        the rest, joins another one."""
        at = self._members_of(domains)
        for router, mine in at.items():
            if len(mine) > 1:
                for number in mine:
                    label = self._branches(domains, at, number)
                    side = frozenset(s for s in range(self.size) if label[s] == router)
                    rest = frozenset(range(self.size)) - side
                    left = domains[number] - {router}
                    gateways = {router, self._gateway(side, rest)}
                    ties = [
                        (self._between(side, domain & rest), n) for n, domain in enumerate(domains) if domain & rest
                    ]
                    for _, other in sorted(ties, reverse=True)[: NEAR + 1]:
                        if domains[other] <= side | {router}:
                            continue
                        for gateway in gateways:
                            into = left if other == number else domains[other]
                            changed = {number: left, other: into | {gateway}}
                            yield tuple(domain for domain in _with(domains, changed) if len(domain) > 1)

    def _merged(self, domains: Domains) -> Iterator[Domains]:
        """Two domains that share a router become one."""
        for mine in self._members_of(domains).values():
            for at, a in enumerate(mine):
                for b in mine[at + 1 :]:
                    kept = [domain for number, domain in enumerate(domains) if number not in (a, b)]
                    yield (*kept, domains[a] | domains[b])

    def _halved(self, domains: Domains) -> Iterator[Domains]:
        """A domain becomes two that share a server."""
        for number, domain in enumerate(domains):
            if len(domain) > 3:
                halves = self._halves(domain)
                if len(halves) == 2:
                    a, b = halves
                    for one, other in ((a, b), (b, a)):
                        yield (*_with(domains, {number: one}), other | {self._gateway(one, other)})

    def _hung(self, domains: Domains) -> Iterator[Domains]:
        """A server that is no router leaves its domain, and hangs on the one there that it talks most with."""
        for server, mine in self._members_of(domains).items():
            left = domains[mine[0]] - {server}
            if len(mine) == 1 and len(left) > 1:
                router = self._gateway(left, frozenset((server,)))
                yield (*_with(domains, {mine[0]: left}), frozenset((server, router)))


def _with(domains: Domains, changed: Mapping[int, frozenset[int]]) -> Domains:
    return tuple(changed.get(number, domain) for number, domain in enumerate(domains))
