"""Advice: domains that fit the traffic that a log shows, beside the ones that are there, one for all, and √n of √n.

What is compared is what a message costs: its control bytes, and its packets at `costs.PACKET` bytes each. For a domain
more is a hop more on some way, and the message once more on disk and wire; control bytes alone would make of every bus
a star of pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from mombroker import ordering
from mombroker.admin.topology import costs, split
from mombroker.admin.topology.costs import DIRECT, PACKET, Cost, Load
from mombroker.core import layouts
from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, Topology, listed
from mombroker.lab.replay import Played, replay
from mombroker.sim.world import MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAIN = 0.1  # below that nothing is to be gained: of the price,
FIT = 0.2  # and of the ways alone, against servers dealt at random (any traffic of few messages has some pattern)
LEAN = (1, 2, 4, 8, 16)  # packets are made cheaper by so much, until a split has the fewest control bytes
OFF = 0.25  # share by which the model is off the log, from which on it is told
ALIKE = 0.02  # of two splits whose prices differ by less the one with fewer control bytes is taken
CANDIDATES = 3  # splits of each search that are judged by their traffic
CURRENT, FLAT, BUS, PROPOSED = "current", "flat", "bus", "proposed"
WORDS = {
    CURRENT: "the current domains",
    FLAT: "one domain for all",
    BUS: "√n domains of √n servers on a backbone",
}


@dataclass(slots=True)
class Option:
    """A topology, what the model says of it, and what its replay has counted."""

    topology: Topology
    cost: Cost
    replayed: Played | None = None

    def error(self) -> float | None:
        """Of the model's control bytes against those of the replay, per message, as a share."""
        if self.replayed is None or not (counted := self.replayed.total.control_bytes):
            return None
        return self.cost.control_bytes / self.cost.messages / (counted / self.replayed.messages) - 1


@dataclass(slots=True)
class Advice:
    """`options` are CURRENT, FLAT, BUS and PROPOSED; the last is the current one where nothing is to be gained, unless
    that has domains that are larger than allowed."""

    options: dict[str, Option]
    gain: float  # of a message's price, against the best of the others that are allowed, under their best back ends;
    # where it is proposed without regard to who talks to whom, against the current one alone
    fit: float  # against the same domains with servers dealt at random
    changes: list[str]  # in words
    remarks: list[str] = field(default_factory=list)
    forced: str = ""  # the changes are made for this reason alone
    kept: list[str] = field(default_factory=list)  # back ends that are not allowed, where nothing is changed
    packet: float = PACKET  # what a packet weighs in the price
    model: list[dict[str, Any]] = field(default_factory=list)  # of the current topology, against the log

    @property
    def worthwhile(self) -> bool:
        return bool(self.changes) and not self.forced

    def verdict(self) -> str:
        if not self.changes:
            kept = f"; kept, though not among the back ends allowed: {listed(self.kept)}" if self.kept else ""
            return f"nothing is to be gained: no split that follows this traffic is better than one that does not{kept}"
        new, old = self.options[PROPOSED].cost, self.options[CURRENT].cost
        return (f"{self.forced}; but for that nothing is to be gained. " if self.forced else "") + (
            f"{len(self.changes)} changes: {old.control_bytes / old.messages:.1f} control bytes a message become "
            f"{new.control_bytes / new.messages:.1f}, {old.packets / old.messages:.2f} packets "
            f"{new.packets / new.messages:.2f}, {old.hops:.2f} hops {new.hops:.2f}"
        )

    def as_dict(self) -> dict[str, Any]:
        rows = []
        for name, option in self.options.items():
            row = {"topology": name, "domains": len(option.topology.domains), **costs.as_dict(option.cost, self.packet)}
            if option.replayed is not None:
                played, error = option.replayed, option.error()
                row["replayed_bytes"] = round(played.total.control_bytes / max(played.messages, 1), 1)
                row["replayed_rows"] = round(played.total.rows / max(played.last, 1), 2)
                row["replayed_ms"] = round(played.delay_ns / MS, 2)
                row["error_pct"] = None if error is None else round(100 * error, 1)
            rows.append(row)
        return {
            "worthwhile": self.worthwhile, "verdict": self.verdict(), "gain_pct": round(100 * self.gain, 1),
            "fit_pct": round(100 * self.fit, 1), "options": rows, "model": self.model,
            "changes": self.changes, "remarks": self.remarks,
            "proposed": {
                name: {"servers": list(domain.members), "ordering": domain.backend}
                for name, domain in self.options[PROPOSED].topology.domains.items()
            },
        }  # fmt: skip


def advise(
    topology: Topology,
    load: Load,
    backends: Sequence[str] = DIRECT,
    largest: int = 0,
    packet: float = PACKET,
) -> Advice:
    """A better forest of domains for this traffic, if there is one.

    backends   those that a domain may have
    largest    servers of a domain, at most; 0: any number
    packet     what a packet weighs, in control bytes
    """
    check(topology, backends)
    servers = list(topology.servers)
    load, left_out = known(topology, load)
    if left_out and not load.sends:
        raise MomError(f"no message is left to go by: {left_out}")
    if not load.flows:
        raise MomError("no message in this log has left its server: there is nothing to go by")
    assert load.sends, "a load without messages that can be played"
    options = {
        CURRENT: Option(topology, costs.predict(topology, load)),
        FLAT: _option(topology, layouts.flat(servers), load),
        BUS: _option(topology, layouts.bus(servers), load),
    }
    can = costs.largest(backends, servers)
    most = min(largest or len(servers), can)
    fit_in = {name: each for name, each in options.items() if not _above(each.topology, most)}
    tuned = {name: _tuned(topology, each.topology, load, backends, packet) for name, each in fit_in.items()}
    others = [each.cost.price(packet) for each in [*tuned.values(), *(fit_in or options).values()]]
    found, fit = _search(topology, load, backends, most if most < len(servers) else 0, packet, options)
    price, model = found.cost.price(packet), costs.compared(options[CURRENT].cost, load.seen)
    doubts = [*_doubts(model, load), *([left_out] if left_out else [])]
    gain, large = 1 - price / min(others), _above(topology, most)
    least = min((each.cost.control_bytes for each in _to_be_had(fit_in, tuned, backends)), default=inf)
    candidates = [found, *(each for name, each in tuned.items() if name != CURRENT and _regrouped(topology, each))]
    light = [each for each in candidates if each.cost.control_bytes <= least]
    if found in light and gain >= GAIN and fit >= FIT and price < options[CURRENT].cost.price(packet):
        remarks = [*doubts, *_lighter(found, options, tuned, most, backends)]
        options[PROPOSED] = found
        return Advice(options, gain, fit, changes(topology, found.topology), remarks, packet=packet, model=model)
    if CURRENT in tuned:
        present = tuned[CURRENT]
    else:  # too large to stay, yet what it costs is what is saved
        present = options[CURRENT] if _above(topology, can) else _tuned(topology, topology, load, backends, packet)
    saved, better = _without_regard(options[CURRENT].cost, present.cost, light, packet)
    if better:
        remark = "which servers are together matters little for this traffic; how many are, does"
        remarks = [remark, *doubts, *_lighter(better, options, tuned, most, backends)]
        options[PROPOSED] = better
        return Advice(options, saved, fit, changes(topology, better.topology), remarks, packet=packet, model=model)
    remarks = doubts + _remarks(fit_in, options[CURRENT].cost, tuned.get(CURRENT), packet)
    if found not in light and not large and gain >= GAIN and fit >= FIT:
        n, now = load.messages, options[CURRENT].cost
        remarks.append(
            f"domains that follow the traffic would have {found.cost.packets / n:.2f} packets a message in place of "
            f"{now.packets / n:.2f}, but {found.cost.control_bytes / n:.1f} control bytes in place of "
            f"{now.control_bytes / n:.1f}"
        )
    if not large:
        options[PROPOSED] = options[CURRENT]
        kept = [f"{each.backend} in {name}" for name, each in topology.domains.items() if each.backend not in backends]
        return Advice(options, gain, fit, [], remarks, kept=kept, packet=packet, model=model)
    forced_to = min(light or candidates, key=lambda each: each.cost.price(packet))
    remarks += _lighter(forced_to, options, tuned, most, backends)
    options[PROPOSED] = forced_to
    words = changes(topology, options[PROPOSED].topology)
    verb = "has" if len(large) == 1 else "have"
    forced = f"{listed(large)} {verb} more than {most} servers"
    return Advice(options, gain, fit, words, remarks, forced, packet=packet, model=model)


def _tuned(topology: Topology, other: Topology, load: Load, backends: Sequence[str], packet: float) -> Option:
    """The domains of the second under the back ends that cost least there, as they would be in place of the first."""
    domains = _named(topology, [domain.members for domain in other.domains.values()])
    made, cost = costs.choose(replace(topology, domains=domains, checked=True), load, backends, packet)
    return Option(_kept(topology, made), cost)


def _to_be_had(fit_in: Mapping[str, Option], tuned: Mapping[str, Option], backends: Sequence[str]) -> Iterator[Option]:
    """What no proposal is to be dearer than: these, or under back ends that are allowed. The current one is there."""
    for name, each in fit_in.items():
        allowed = name == CURRENT or all(domain.backend in backends for domain in each.topology.domains.values())
        yield each if allowed else tuned[name]


def _regrouped(topology: Topology, option: Option) -> bool:
    """Whether it has other domains, and not other back ends alone."""
    before, after = ({frozenset(each.members) for each in one.domains.values()} for one in (topology, option.topology))
    return before != after


def _without_regard(
    current: Cost, tuned: Cost, candidates: Iterable[Option], packet: float
) -> tuple[float, Option | None]:
    """The cheapest of these, and its gain against the current domains under their best back ends, if it is a gain
    whatever a packet weighs: where messages go to all, domains cost no packet more."""
    fits = [each for each in candidates if each.cost.packets <= (1 + GAIN) * current.packets]
    best = min(fits, key=lambda each: each.cost.price(packet), default=None)
    gain = 1 - best.cost.price(packet) / tuned.price(packet) if best else 0.0
    return gain, best if gain >= GAIN else None


def _lighter(
    proposed: Option, options: Mapping[str, Option], tuned: Mapping[str, Option], most: int, backends: Sequence[str]
) -> Iterator[str]:
    """What would have fewer control bytes than what is proposed, and why it is not proposed."""
    for name, shown in options.items():
        each = min(shown, tuned.get(name, shown), key=lambda one: one.cost.control_bytes)
        n, domains = each.cost.messages, each.topology.domains.values()
        control = round(each.cost.control_bytes / n, 1)
        if control >= round(proposed.cost.control_bytes / n, 1):
            continue
        if _above(each.topology, most):
            why = "in domains that are larger than allowed"
        elif others := sorted({domain.backend for domain in domains} - {*backends}):
            why = f"under {listed(others)}, not among the back ends allowed"
        else:
            why = f"and {each.cost.packets / n:.2f} packets in place of {proposed.cost.packets / n:.2f}"
        yield f"{WORDS[name]} would have fewer control bytes than what is proposed, {control} a message, {why}"


def check(topology: Topology, backends: Sequence[str] = DIRECT) -> None:
    """Raise MomError where no advice can be had, whatever the log says."""
    for name in backends:
        ordering.backend(name)
    if len(topology.servers) == 1:
        raise MomError("nothing is to be gained: a bus of one server orders nothing between servers")
    costs.largest(backends, list(topology.servers))


def known(topology: Topology, load: Load) -> tuple[Load, str]:
    """The load without servers that the topology has not, as those of a log that began under an earlier one, and what
    was left out, in words. Of a load with such servers nothing is held against the model: it is of another topology."""
    strangers = {name for origin, to in load.flows for name in (origin, *to)} - topology.servers.keys()
    if not strangers:
        return load, ""

    def kept(to: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in to if name not in strangers)

    flows: dict[tuple[str, tuple[str, ...]], float] = {}
    lost = 0.0
    for (origin, to), count in load.flows.items():
        lost += 0 if origin not in strangers and kept(to) == to else count
        if origin not in strangers and kept(to):
            flows[origin, kept(to)] = flows.get((origin, kept(to)), 0.0) + count
    sends = [each._replace(dests=kept(each.dests)) for each in load.sends if each.origin not in strangers]
    text = (
        f"{lost:.0f} of {load.messages:.0f} messages came from or went to {listed(sorted(strangers), 12)}, which the "
        "topology file has not: these, or their copies there, are left out"
    )
    return Load(flows, [each for each in sends if each.dests], load.delays), text


def _above(topology: Topology, most: int) -> list[str]:
    return [name for name, domain in topology.domains.items() if len(domain.members) > most]


def _option(topology: Topology, domains: Mapping[str, Sequence[str]], load: Load) -> Option:
    made = replace(topology, domains={name: Domain(name, tuple(each)) for name, each in domains.items()}, checked=True)
    return Option(made, costs.predict(made, load))


def _search(
    topology: Topology, load: Load, backends: Sequence[str], largest: int, packet: float, others: Mapping[str, Option]
) -> tuple[Option, float]:
    """The best split, and how well it fits. It has fewer control bytes than the others, if that can be had."""
    least = min(other.cost.control_bytes for other in others.values())
    copies, found = costs.matrix(load.flows), list[tuple[Option, float]]()
    begin = [[domain.members for domain in topology.domains.values()]]
    for lean in LEAN:
        by_size = costs.BySize(backends, packet / lean)
        search = split.Search(list(topology.servers), copies, by_size, split.Bounds(largest), begin)
        for domains in search.best()[:CANDIDATES]:
            plain = replace(topology, domains=_named(topology, search.named(domains)), checked=True)
            made, cost = costs.choose(plain, load, backends, packet / lean)
            found.append((Option(_kept(topology, made), cost), search.fit(domains)))
        lighter = [each for each in found if each[0].cost.control_bytes < least]
        if lighter:
            found = lighter
            break
    cheapest = min(option.cost.price(packet) for option, _ in found)
    alike = [each for each in found if each[0].cost.price(packet) <= cheapest * (1 + ALIKE)]
    return min(alike, key=lambda each: each[0].cost.control_bytes)


def _named(topology: Topology, domains: Sequence[tuple[str, ...]]) -> dict[str, Domain]:
    """A domain keeps the name of the one that it has most of; the others get new names."""
    near = [
        (len(set(members) & set(old.members)) / len({*members, *old.members}), -at, name)
        for at, members in enumerate(domains)
        for name, old in topology.domains.items()
    ]
    names: dict[int, str] = {}
    for share, at, name in sorted(near, reverse=True):
        if share >= 0.5 and -at not in names and name not in names.values():
            names[-at] = name
    free = (name for number in range(1, len(domains) + len(topology.domains) + 1) if
            (name := f"d{number}") not in topology.domains)  # fmt: skip
    made = {name: members for at, members in enumerate(domains) if (name := names.get(at) or next(free))}
    order = {name: at for at, name in enumerate(topology.domains)}
    return {
        name: Domain(name, made[name]) for name in sorted(made, key=lambda name: (order.get(name, len(order)), name))
    }


def _kept(topology: Topology, made: Topology) -> Topology:
    """Domains that stay as they are, also in the order of their members: so that their clocks can stay."""
    domains = {}
    for name, domain in made.domains.items():
        old = topology.domains.get(name)
        same = old is not None and set(old.members) == set(domain.members) and old.backend == domain.backend
        domains[name] = old if same and old is not None else domain
    return replace(made, domains=domains, checked=True)


def _doubts(model: Iterable[Mapping[str, Any]], load: Load) -> list[str]:
    """Where what the model says of the current topology is not what the log says."""
    off = [f"{row['error_pct']:+.0f} % in {row['figure']}" for row in model if abs(row["error_pct"] or 0) > 100 * OFF]
    what = "play more messages (--messages)" if load.sampled else "is it the log of this topology?"
    return [f"the model does not fit the log of the current topology, {listed(off)}: {what}"] if off else []


def _remarks(others: Mapping[str, Option], current: Cost, tuned: Option | None, packet: float) -> list[str]:
    """What would cost less without regard to the traffic."""
    found = []
    if tuned and tuned.cost.price(packet) < (1 - GAIN) * current.price(packet):
        saved = 1 - tuned.cost.control_bytes / current.control_bytes
        wanted = [
            f"{new.ordering} in {new.domain}"
            for new, old in zip(tuned.cost.domains, current.domains, strict=True)
            if new.ordering != old.ordering
        ]
        found.append(f"other back ends would save {saved:.0%} of the control bytes: {listed(wanted)}")
    for name in sorted({FLAT, BUS} & others.keys(), reverse=True):
        other = others[name].cost
        if other.price(packet) < (1 - GAIN) * current.price(packet):
            saved = 1 - other.control_bytes / max(current.control_bytes, 1)
            hops = f"{current.hops:.2f} to {other.hops:.2f}"
            found.append(f"{WORDS[name]} would change control bytes by {-saved:+.0%} and hops from {hops}")
    return found


def changes(old: Topology, new: Topology) -> list[str]:
    """What is different in the second, in words."""
    found = []
    for name, domain in new.domains.items():
        before = old.domains.get(name)
        if before is None:
            found.append(f"new domain {name} under {domain.backend}: {', '.join(domain.members)}")
            continue
        parts = []
        if left := [server for server in before.members if server not in domain]:
            parts.append(f"loses {listed(left, 12)}")
        if joined := [server for server in domain.members if server not in before]:
            parts.append(f"gains {listed(joined, 12)}")
        if before.backend != domain.backend:
            parts.append(f"is ordered by {domain.backend} in place of {before.backend}")
        if parts:
            found.append(f"domain {name} {' and '.join(parts)}")
    found += [f"domain {name} goes" for name in old.domains if name not in new.domains]
    routers = set(old.routers), set(new.routers)
    if become := [server for server in new.routers if server not in routers[0]]:
        found.append(f"{listed(become, 12)} become{'s a router' if len(become) == 1 else ' routers'}")
    if cease := [server for server in old.routers if server not in routers[1]]:
        found.append(f"{listed(cease, 12)} need{'s' if len(cease) == 1 else ''} not route any more")
    return found


# -- replay ------------------------------------------------------------------------------------------------------------


def replay_all(advice: Advice, load: Load, spark: SparkSession | None = None) -> None:
    """Play the same messages as the model on every option; on Spark side by side, one task each."""
    load, _ = known(advice.options[CURRENT].topology, load)
    topologies = {id(option): option.topology for option in advice.options.values()}
    jobs = [(key, topology, load) for key, topology in topologies.items()]
    results: Iterable[tuple[int, Played | str]]
    if spark is None:
        results = [_play(job) for job in jobs]
    else:
        results = spark.sparkContext.parallelize(jobs, len(jobs)).map(_play).collect()
    for key, played in results:
        if isinstance(played, str):
            raise RuntimeError(f"a replay failed: {played}")
        for option in advice.options.values():
            if id(option) == key:
                option.replayed = played


def _play(job: tuple[int, Topology, Load]) -> tuple[int, Played | str]:
    """Errors are told as text: a task that raises is tried again, and fails again."""
    key, topology, load = job
    try:
        return key, replay(topology, load.played, load.delays, first=load.first)
    except Exception as error:
        return key, f"{type(error).__name__}: {error}"
