"""What a topology costs under a traffic: a model, in which no domain waits for another.

What a message's stamp weighs does not follow from a formula: it depends on who talks to whom in a domain, and in which
order. So each domain is played by itself, by its own ordering cores, under its part of a log's own messages; what a
router has to send on comes when it would if nothing were held on the way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import log
from typing import Any

from mombroker import ordering
from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, RoutingTable, Topology
from mombroker.lab import domain as lab
from mombroker.lab.bus_workloads import Send
from mombroker.lab.communities import uniform
from mombroker.lab.observers import Control, Held, Rows
from mombroker.lab.replay import WRITES, Act, Delays, Links, acts
from mombroker.sim.world import MS, World

PACKET = 200.0  # what one more packet weighs, in control bytes, where no log has counted it: envelope, frame, message
SAMPLE = 8000  # messages that are played on each topology
SEEN = ("control_bytes", "packets", "hops", "delay_ms")  # figures of a cost that a log has, too
DIRECT = ("fifo", "matrix", "ks")  # back ends that send to nobody else, and let nobody pass on

Flows = Mapping[tuple[str, tuple[str, ...]], float]  # (from, to) -> how many


@dataclass(slots=True)
class Load:
    """The traffic that a log shows. `flows` counts messages by (from, to); `sends` are the messages themselves, all or
    a sample, in order of time."""

    flows: Flows
    sends: Sequence[Send]
    delays: Delays = field(default_factory=Delays)
    seen: dict[str, float] = field(default_factory=dict)  # by a message: what the log says of some of SEEN
    packet: float = 0.0  # bytes of a packet on the wire that are no control bytes, as links have counted; 0: not known

    def faster(self, times: float) -> "Load":
        """The same messages, in a time that is shorter so many times."""
        start = self.sends[0].at if self.sends else 0
        sends = [send._replace(at=start + round((send.at - start) / times)) for send in self.sends]
        return replace(self, sends=sends)

    @property
    def messages(self) -> float:
        return sum(self.flows.values())

    @property
    def sampled(self) -> bool:
        return self.messages > len(self.sends)

    @property
    def first(self) -> int:
        """How many are played before it counts."""
        return len(self.sends) if self.sampled else 0

    @property
    def played(self) -> list[Send]:
        """A sample is played twice, and counts the second time: the clocks of a bus that has run for long are not new,
        and each part of the log is to count."""
        if not self.sampled:
            return list(self.sends)
        later = self.sends[-1].at - self.sends[0].at + self.delays.mean
        return [*self.sends, *(send._replace(at=send.at + later) for send in self.sends)]


@dataclass(slots=True)
class DomainCost:
    domain: str
    ordering: str
    members: int
    messages: float  # sends of members, routers' steps included
    packets: float
    control_bytes: float
    control_ints: float
    rows: float  # of out-queues and clocks, without those of messages and agents
    held_ms: float  # summed over all that was held


@dataclass(slots=True)
class Cost:
    """Of all messages together, but for the means."""

    messages: float
    packets: float
    control_bytes: float
    rows: float
    hops: float  # mean of a copy
    delay_ms: float  # mean of a copy, what it is held included
    busiest: str  # the router that passes on most
    busiest_share: float  # of all copies
    domains: list[DomainCost]

    def price(self, packet: float = PACKET) -> float:
        """One figure for a message: its control bytes, and its packets at so many bytes each. With what a packet has on
        the wire beside its control bytes these are the bytes on all links."""
        return (self.control_bytes + packet * self.packets) / max(self.messages, 1)


def predict(topology: Topology, load: Load) -> Cost:
    """What this traffic costs on this topology."""
    carried = acts(topology, load.played, load.delays)
    domains = [domain_cost(topology.domains[name], each, load) for name, each in carried.items()]
    return _sum(topology, load, domains)


def choose(
    topology: Topology, load: Load, backends: Iterable[str] = DIRECT, packet: float = PACKET
) -> tuple[Topology, Cost]:
    """The same domains, each with the one of these back ends that costs least there; and what that costs."""
    carried, domains, costs = acts(topology, load.played, load.delays), {}, []
    for name, domain in topology.domains.items():
        fit = [Domain(name, domain.members, each) for each in backends if not _unfit(each, domain.members)]
        if not fit:
            raise MomError(f"none of these back ends can order {name}: add matrix")
        found = [domain_cost(each, carried[name], load) for each in fit]
        cost, domains[name] = min(zip(found, fit, strict=True), key=lambda one: _price(one[0], packet))
        costs.append(cost)
    made = replace(topology, domains=domains, checked=True)
    return made, _sum(made, load, costs)


def largest(backends: Iterable[str], servers: Sequence[str]) -> int:
    """Servers of a domain that one of these back ends can order, at most."""
    sizes = range(len(servers), 1, -1)
    found = next((size for size in sizes if any(not _unfit(each, tuple(servers[:size])) for each in backends)), 0)
    if not found:
        raise MomError("none of these back ends can order a domain: add matrix")
    return found


def _unfit(backend: str, members: tuple[str, ...]) -> list[str]:
    return ordering.backend(backend).validate(members, {})


def _price(cost: DomainCost, packet: float) -> float:
    return cost.control_bytes + packet * cost.packets


def domain_cost(domain: Domain, carried: Sequence[Act], load: Load) -> DomainCost:
    """`carried` is what comes of `load.played` in this domain."""
    index = domain.index
    pattern = tuple((act.at, index(act.server), tuple(map(index, act.peers))) for act in carried)
    first = sum(act.number <= load.first for act in carried)
    options = tuple(sorted((key, repr(value)) for key, value in domain.options.items()))
    links = tuple(load.delays.links.get((a, b), 0) for a in domain.members for b in domain.members)
    size, mean = len(domain.members), load.delays.mean
    sample = _Sample(domain, domain.backend, size, options, pattern, first, mean, links if any(links) else ())
    share = load.messages / max(len(load.sends), 1)
    figures = _play(sample) if pattern else (0.0,) * 5
    messages = share * (len(carried) - first)
    return DomainCost(domain.name, domain.backend, len(domain.members), messages, *(share * each for each in figures))


@dataclass(frozen=True)
class _Sample:
    """A domain under its own traffic; two that are alike in everything that matters are played once."""

    domain: Domain = field(compare=False)
    backend: str
    size: int
    options: tuple[tuple[str, str], ...]
    pattern: tuple[tuple[int, int, tuple[int, ...]], ...]  # when, from which member, to which
    first: int  # how many do not count
    mean: int
    links: tuple[int, ...]


@lru_cache(256)
def _play(sample: _Sample) -> tuple[float, float, float, float, float]:
    """Packets, control bytes, control integers, rows, and ms held."""
    world, domain, pattern = World(0), sample.domain, sample.pattern
    members, size = domain.members, len(domain.members)
    pairs = [(a, b) for a in members for b in members]
    means = dict(zip(pairs, sample.links, strict=True)) if sample.links else {}
    links = Links(world, members, Delays(sample.mean, {pair: mean for pair, mean in means.items() if mean}))
    options = ordering.backend(sample.backend).resolve(members, domain.options)
    begin = max(len(pattern) - WRITES, 0)
    control, held, rows = Control(sample.first), Held(sample.first), Rows(begin)
    played = lab.Domain(world, lab.cores(sample.backend, size, **options), links, [control, held, rows])
    for at, me, dests in pattern:
        world.after(at - pattern[0][0], played.send, me, dests)
    played.finish()
    return (
        control.packets, control.bytes, control.integers,
        rows.rows * (len(pattern) - sample.first) / (len(pattern) - begin), held.waited / MS,
    )  # fmt: skip


def _sum(topology: Topology, load: Load, domains: list[DomainCost]) -> Cost:
    routes = {server: RoutingTable(topology, server) for server in topology.servers}
    paths: dict[tuple[str, str], list[tuple[str, str]]] = {}
    passed = dict.fromkeys(topology.servers, 0.0)
    copies = hops = delay = 0.0
    for (origin, dests), count in load.flows.items():
        for dest in dests:
            path = paths.get((origin, dest)) or paths.setdefault((origin, dest), routes[origin].path(dest))
            copies += count
            hops += count * len(path)
            here = origin
            for _, server in path:
                delay += count * load.delays.of(here, server)
                here = server
            for _, router in path[:-1]:
                passed[router] += count
    held = sum(each.held_ms for each in domains)
    busiest = max(passed, key=lambda server: passed[server])
    copies = copies or 1.0
    return Cost(
        load.messages, sum(each.packets for each in domains), sum(each.control_bytes for each in domains),
        sum(each.rows for each in domains), hops / copies, (delay / MS + held) / copies,
        busiest if passed[busiest] else "", passed[busiest] / copies, domains,
    )  # fmt: skip


# -- by size alone -----------------------------------------------------------------------------------------------------

SIZES = (2, 3, 4, 6, 9, 13, 19, 28)
EACH = 30  # messages of each member


class BySize:
    """What a message to one member costs in a domain of so many, all of which talk to each other: the cheapest of
    some back ends, in control bytes and packets. Measured at SIZES, and between and beyond them on a line in the
    logarithms: good enough to look for a split, not to judge it."""

    def __init__(self, backends: Sequence[str], packet: float):
        self.backends, self.packet = tuple(backends), packet
        self._known: dict[int, float] = {}

    def __call__(self, size: int) -> float:
        found = self._known.get(size)
        if found is None:
            found = self._known[size] = min(
                self._one(each, size)
                for each in self.backends
                if not _unfit(each, tuple(f"s{at}" for at in range(size)))
            )
        return found

    def _one(self, backend: str, size: int) -> float:
        small = max((each for each in SIZES[:-1] if each <= size), default=2)
        if backend == "fifo" or size == small:
            packets, control = _uniform(backend, small)
        else:
            large = SIZES[SIZES.index(small) + 1]
            (p, c), (q, d) = _uniform(backend, small), _uniform(backend, large)
            share = log(size / small) / log(large / small)
            packets, control = p * (q / p) ** share, c * (d / c) ** share
        return control + self.packet * packets


@cache
def _uniform(backend: str, size: int) -> tuple[float, float]:
    """(packets, control bytes) of a message from any to any other."""
    any_to_any = uniform(size, 0)
    sends = any_to_any.sends(EACH * size)
    flat = any_to_any.flat()
    made = replace(flat, domains={"d1": Domain("d1", any_to_any.servers, backend)}, checked=True)
    cost = predict(made, Load(traffic((send.origin, send.dests) for send in sends), sends))
    return cost.packets / cost.messages, cost.control_bytes / cost.messages


def as_dict(cost: Cost, packet: float = PACKET) -> dict[str, Any]:
    """By message, as it is shown."""
    n = max(cost.messages, 1)
    return {
        "control_bytes": round(cost.control_bytes / n, 1), "packets": round(cost.packets / n, 2),
        "rows": round(cost.rows / n, 2), "hops": round(cost.hops, 2), "delay_ms": round(cost.delay_ms, 2),
        "busiest": cost.busiest, "busiest_pct": round(100 * cost.busiest_share, 1),
        "price": round(cost.price(packet), 1),
    }  # fmt: skip


def compared(cost: Cost, seen: Mapping[str, float]) -> list[dict[str, Any]]:
    """The model against what the log says of the same topology."""
    found = []
    for name in (name for name in SEEN if name in seen):
        said = getattr(cost, name) / (max(cost.messages, 1) if name in ("control_bytes", "packets") else 1)
        error = round(100 * (said / seen[name] - 1), 1) if seen[name] else None
        found.append({"figure": name, "log": round(seen[name], 2), "model": round(said, 2), "error_pct": error})
    return found


def traffic(sends: Iterable[tuple[str, tuple[str, ...]]]) -> Flows:
    """Flows, of single messages."""
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for origin, dests in sends:
        key = origin, tuple(sorted(dests))
        found[key] = found.get(key, 0.0) + 1
    return found


def matrix(flows: Flows) -> dict[tuple[str, str], float]:
    """Copies from server to server."""
    found: dict[tuple[str, str], float] = {}
    for (origin, dests), count in flows.items():
        for dest in dests:
            found[origin, dest] = found.get((origin, dest), 0.0) + count
    return found
