"""Servers under names that follow from their traffic and topology alone: so no advice depends on how they are called,
or in which order a file has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from mombroker.admin.topology.costs import Cost, Load
from mombroker.core import layouts
from mombroker.core.topology import Domain, Topology
from mombroker.lab.replay import Delays

ROUNDS = 3  # in which servers that traffic does not tell apart take over what their domains' other members are


@dataclass(slots=True)
class Canonical:
    """A topology and its load under such names."""

    original: Topology
    topology: Topology
    load: Load
    names: dict[str, str]  # from these names to the original ones

    def back(self, made: Topology, cost: Cost) -> tuple[Topology, Cost]:
        """A topology of these servers, and its cost, under the original names. A domain that stays as it is stays so
        in the order of its members, too, so that its clocks can stay; others have theirs in the order of the file."""
        place = {name: at for at, name in enumerate(self.original.servers)}
        members = {
            each: tuple(sorted((self.names[one] for one in domain.members), key=place.__getitem__))
            for each, domain in made.domains.items()
        }
        named = _named(self.original, members)
        domains = {}
        for name, each in named.items():
            old, new = self.original.domains.get(name), made.domains[each]
            same = old is not None and set(old.members) == set(members[each]) and old.backend == new.backend
            domains[name] = old if same and old is not None else Domain(name, members[each], new.backend)
        real = {each: name for name, each in named.items()}
        costs = sorted(
            (replace(each, domain=real[each.domain]) for each in cost.domains),
            key=lambda one: [*named].index(one.domain),
        )
        told = replace(cost, busiest=self.names.get(cost.busiest, ""), domains=costs)
        return replace(self.original, domains=domains, checked=True), told


def of(topology: Topology, load: Load) -> Canonical:
    order = _order(topology, load)
    new = {name: f"s{at:05}" for at, name in enumerate(order)}

    def dests(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(new[name] for name in names))

    flows = {(new[a], dests(to)): count for (a, to), count in load.flows.items()}
    sends = sorted(each._replace(origin=new[each.origin], dests=dests(each.dests)) for each in load.sends)
    links = {(new[a], new[b]): mean for (a, b), mean in load.delays.links.items() if a in new and b in new}
    moved = replace(load, flows=dict(sorted(flows.items())), sends=sends, delays=Delays(load.delays.mean, links))
    ordered = sorted((dests(each.members), name) for name, each in topology.domains.items())
    made = layouts.build({f"d{at:05}": members for at, (members, _) in enumerate(ordered)}, servers=new.values())
    domains = {
        each: Domain(each, made.domains[each].members, topology.domains[old].backend, topology.domains[old].options)
        for each, (_, old) in zip(made.domains, ordered, strict=True)
    }
    return Canonical(topology, replace(made, domains=domains, checked=True), moved, {v: k for k, v in new.items()})


def _order(topology: Topology, load: Load) -> list[str]:
    """By the messages that each has part in: the times of these, and its part. Then by its links, and by who shares a
    domain with it. The name itself is asked last: only servers that are alike in all come to that."""
    seen: dict[str, list[Any]] = {name: [] for name in topology.servers}
    for send in load.sends:
        seen[send.origin].append((send.at, 0, len(send.dests)))
        for dest in send.dests:
            seen[dest].append((send.at, 1, len(send.dests)))
    if load.sampled:
        for (origin, to), count in load.flows.items():
            seen[origin].append((1 << 63, 0, len(to), count))
            for dest in to:
                seen[dest].append((1 << 63, 1, len(to), count))
    links: dict[str, list[tuple[int, int]]] = {name: [] for name in topology.servers}
    for (a, b), mean in load.delays.links.items():
        if a in links and b in links:
            links[a].append((0, mean))
            links[b].append((1, mean))
    keys: dict[str, Any] = {name: (not parts, sorted(parts), sorted(links[name])) for name, parts in seen.items()}
    rank = _ranked(keys)
    for _ in range(ROUNDS):
        shared: dict[str, list[Any]] = defaultdict(list)
        for domain in topology.domains.values():
            key = (domain.backend, len(domain.members), sorted(rank[name] for name in domain.members))
            for name in domain.members:
                shared[name].append(key)
        rank = _ranked({name: (rank[name], sorted(shared[name])) for name in topology.servers})
    return sorted(topology.servers, key=lambda name: (rank[name], name))


def _ranked(keys: dict[str, Any]) -> dict[str, int]:
    """Equal keys have equal ranks."""
    found, last, rank = dict[str, int](), None, 0
    for at, name in enumerate(sorted(keys, key=keys.__getitem__)):
        if at == 0 or keys[name] != last:
            last, rank = keys[name], at
        found[name] = rank
    return found


def _named(topology: Topology, domains: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Name of a domain -> which of `domains`: it keeps the name of the one that it has most of; others get new ones."""
    near = [
        (len(set(members) & set(old.members)) / len({*members, *old.members}), -at, each, name)
        for at, (each, members) in enumerate(domains.items())
        for name, old in topology.domains.items()
    ]
    names: dict[str, str] = {}
    for share, _, each, name in sorted(near, reverse=True):
        if share >= 0.5 and each not in names and name not in names.values():
            names[each] = name
    numbers = (f"d{number}" for number in range(1, len(domains) + len(topology.domains) + 1))
    free = (name for name in numbers if name not in topology.domains)
    made = {names.get(each) or next(free): each for each in domains}
    order = {name: at for at, name in enumerate(topology.domains)}
    return {name: made[name] for name in sorted(made, key=lambda name: (order.get(name, len(order)), name))}
