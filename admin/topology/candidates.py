"""Topologies that may fit a traffic: the current one, one domain for all and √n of √n, each under its best back ends
too, and what the search finds for a packet that weighs much, little, and what it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mombroker.admin.topology import costs, split
from mombroker.admin.topology.costs import Load
from mombroker.admin.topology.front import Option
from mombroker.core import layouts
from mombroker.core.topology import Domain, Topology

SPREAD = (1.0, 4.0, 16.0, 0.25, 1 / 16)  # what a packet weighs in a search, times what it does
FREE = (0.25, 1 / 16)  # for these it is made again, however much a router passes on
CANDIDATES = 3  # splits of each search that are judged by their traffic
CURRENT, FLAT, BUS, PROPOSED = "current", "flat", "bus", "proposed"


@dataclass(slots=True)
class Candidates:
    shown: dict[str, Option]  # CURRENT, FLAT and BUS, as they are
    allowed: list[Option]  # all that may be proposed
    free: list[Option]  # may be picked, but not proposed: in these a router passes on as much as it likes
    tuned: Option | None  # the current domains under the back ends that cost least there, if they are allowed
    fit: float  # of the cheapest split that was found, against the same domains with servers dealt at random


def candidates(topology: Topology, load: Load, backends: Sequence[str], most: int, packet: float) -> Candidates:
    """`most`: servers of a domain, at most."""
    servers = list(topology.servers)
    shown = {
        CURRENT: Option(topology, costs.predict(topology, load)),
        FLAT: _option(topology, layouts.flat(servers), load),
        BUS: _option(topology, layouts.bus(servers), load),
    }
    allowed, tuned = list[Option](), None
    for name, each in shown.items():
        if any(len(domain.members) > most for domain in each.topology.domains.values()):
            continue
        if name == CURRENT or all(domain.backend in backends for domain in each.topology.domains.values()):
            allowed.append(each)
        for weight in SPREAD[:1] if name == CURRENT else SPREAD:
            other = Option(*costs.choose(each.topology, load, backends, packet * weight))
            allowed.append(other)
            tuned = other if name == CURRENT else tuned
    found, free = _found(topology, load, backends, most if most < len(servers) else 0, packet)
    fit = min(found, key=lambda each: each.cost.price(packet)).fit or 0.0
    return Candidates(shown, allowed + found, free, tuned, fit)


def _option(topology: Topology, domains: Mapping[str, Sequence[str]], load: Load) -> Option:
    made = replace(topology, domains={name: Domain(name, tuple(each)) for name, each in domains.items()}, checked=True)
    return Option(made, costs.predict(made, load))


def _found(
    topology: Topology, load: Load, backends: Sequence[str], largest: int, packet: float
) -> tuple[list[Option], list[Option]]:
    """Of all searches but those in FREE; of those."""
    begin = [_domains(topology)]
    judged = set[tuple[frozenset[frozenset[int]], float]]()
    found, free = list[Option](), list[Option]()
    bounded, open_ = split.Bounds(largest), split.Bounds(largest, share=1.0)
    searches = [(each, bounded, found) for each in SPREAD] + [(each, open_, free) for each in FREE]
    for weight, bounds, options in searches:
        search = _search(topology, load, backends, packet * weight, bounds, begin)
        best = search.best()[:CANDIDATES]
        begin += [search.named(best[0])]  # the next search may better it
        for domains in best:
            if (key := (frozenset(domains), weight)) not in judged:
                judged.add(key)
                options.append(_judged(topology, load, backends, packet * weight, search, domains))
    return found, free


def beside(
    topology: Topology, load: Load, backends: Sequence[str], most: int, packet: float, loss: float
) -> list[Option]:
    """What costs least where a copy crosses no more domains than in the current topology, but for so much as a share:
    whatever a packet weighs, searches for the price alone may pass over it."""
    copies, begin = costs.matrix(load.flows), [_domains(topology)]
    counted = split.Search(list(topology.servers), copies, lambda size: 1.0, split.Bounds(), begin, load.flows)
    crossings = counted.price(counted.begin[0], bounded=False) * (1 + loss)
    bounds = split.Bounds(most if most < len(topology.servers) else 0, crossings=crossings)
    search = _search(topology, load, backends, packet, bounds, begin)
    return [_judged(topology, load, backends, packet, search, each) for each in search.best()[:CANDIDATES]]


def _domains(topology: Topology) -> list[tuple[str, ...]]:
    return [domain.members for domain in topology.domains.values() if len(domain.members) > 1]


def _search(
    topology: Topology, load: Load, backends: Sequence[str], packet: float, bounds: split.Bounds,
    begin: Sequence[Sequence[tuple[str, ...]]],
) -> split.Search:  # fmt: skip
    by_size = costs.BySize(backends, packet)
    return split.Search(list(topology.servers), costs.matrix(load.flows), by_size, bounds, begin, load.flows)


def _judged(
    topology: Topology, load: Load, backends: Sequence[str], packet: float, search: split.Search, domains: split.Domains
) -> Option:
    named = ((f"d{at:05}", members) for at, members in enumerate(sorted(search.named(domains))))
    plain = {name: Domain(name, members) for name, members in named}
    made = replace(topology, domains=plain, checked=True)
    return Option(*costs.choose(made, load, backends, packet), fit=search.fit(domains))
