"""Advice: domains that fit the traffic that a log shows, beside the ones that are there, one for all, and √n of √n.

A topology has four costs (`front.AXES`), and an operator who has other prices than we may choose any of the front. What
is proposed is what has the fewest bytes on all links: control bytes, and each packet at what it weighs beside these.
Servers are looked at under names that follow from their traffic (`canonical`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mombroker import ordering
from mombroker.admin.topology import canonical, costs, drift, words
from mombroker.admin.topology.candidates import BUS, CURRENT, FLAT, PROPOSED, Candidates, beside, candidates
from mombroker.admin.topology.costs import DIRECT, PACKET, Cost, Load
from mombroker.admin.topology.front import AXES, GAIN, Option, dominates, front, gains, simplest
from mombroker.core.errors import MomError
from mombroker.core.topology import Topology, listed
from mombroker.core.words import many
from mombroker.lab.replay import Played, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIT = 0.2  # of the ways alone, against servers dealt at random: any traffic of few messages has some pattern
ALIKE = 0.02  # of two splits whose prices differ by less the one with fewer control bytes is taken
LOSS = GAIN / 2  # on an axis: what is better on another one by GAIN or more may have so much, if it is no dearer
HEAVY = 1 / 3  # of all copies: a router that passes on more is told
TRADES = 3  # that a verdict tells
GROWTH = 2.0  # times the traffic of the log: what is forecast
WORDS = {
    CURRENT: "the current domains",
    FLAT: "one domain for all",
    BUS: "√n domains of √n servers on a backbone",
}


@dataclass(slots=True)
class Advice:
    """`options` are CURRENT, FLAT, BUS and PROPOSED; the last is the current one where that is to stay."""

    options: dict[str, Option]
    front: list[Option]  # none is worse than another one in all; from few control bytes to few packets
    gain: float  # of the price of what there is: that of the proposal, or of the cheapest that was found
    fit: float  # of the cheapest split, against the same domains with servers dealt at random
    changes: list[str]  # in words
    remarks: list[str] = field(default_factory=list)
    forced: str = ""  # the changes are made for this reason alone
    kept: list[str] = field(default_factory=list)  # back ends that are not allowed, where nothing is changed
    packet: float = PACKET  # what a packet weighs in the price
    model: list[dict[str, Any]] = field(default_factory=list)  # of the current topology, against the log
    forecast: list[dict[str, Any]] = field(default_factory=list)  # current and proposed, now and with more traffic
    shift: drift.Shift | None = None  # the greatest change of the traffic

    @property
    def worthwhile(self) -> bool:
        return bool(self.changes) and not self.forced

    @property
    def trades(self) -> list[tuple[int, Option]]:
        """What is better than the current topology in something, and worse in something else; numbers from 1 on."""
        old = self.options[CURRENT].cost
        return [(at, each) for at, each in enumerate(self.front, 1) if gains(old, each.cost)]

    def verdict(self) -> str:
        current, proposed = self.options[CURRENT], self.options[PROPOSED]
        if self.changes:
            text = f"{many(len(self.changes), 'change')}: {words.figures(current.cost, proposed.cost)}"
            dear = "; but for that nothing is to be gained. " if self.gain < GAIN else ". "
            return f"{self.forced}{dear}{text}" if self.forced else text
        kept = f"; kept, though not among the back ends allowed: {listed(self.kept)}" if self.kept else ""
        if not self.trades:
            return (
                f"nothing is to be gained: nothing that was found is {GAIN:.0%} better than what there is, in "
                f"{listed(list(AXES))}{kept}"
            )
        told = [f"#{at} {words.trade(current, each)}" for at, each in self.trades]
        more = f"; and {len(told) - TRADES} more" if len(told) > TRADES else ""
        return (
            f"what there is may stay: with a packet at {self.packet:.0f} bytes nothing is {GAIN:.0%} cheaper. What is "
            f"better in one thing is worse in another: {'; '.join(told[:TRADES])}{more}{kept}"
        )

    def as_dict(self) -> dict[str, Any]:
        current, proposed = self.options[CURRENT], self.options[PROPOSED]
        rows = [{"topology": name, **self._row(each)} for name, each in self.options.items()]
        points = [
            {
                "number": at, **self._row(each),
                "changes": len(words.changes(current.topology, each.topology)),
                "is": PROPOSED if each is proposed else CURRENT if each is current else "",
            }
            for at, each in enumerate(self.front, 1)
        ]  # fmt: skip
        return {
            "worthwhile": self.worthwhile, "verdict": self.verdict(), "gain_pct": round(100 * self.gain, 1),
            "fit_pct": round(100 * self.fit, 1), "packet_bytes": round(self.packet, 1), "options": rows,
            "front": points, "forecast": self.forecast, "model": self.model,
            "changes": self.changes, "remarks": self.remarks, "changed_at": self.shift and when(self.shift),
            "current": _domains(current.topology), "proposed": _domains(proposed.topology),
        }  # fmt: skip

    def _row(self, each: Option) -> dict[str, Any]:
        return {"domains": len(each.topology.domains), **costs.as_dict(each.cost, self.packet), **each.replay_as_dict()}


def _domains(topology: Topology) -> dict[str, dict[str, Any]]:
    return {name: {"servers": list(each.members), "ordering": each.backend} for name, each in topology.domains.items()}


def when(shift: drift.Shift) -> str:
    """The first full second after it: what was sent then or later is of the new traffic."""
    return f"{datetime.fromtimestamp(-(-shift.at // 10**9), UTC):%Y-%m-%dT%H:%M:%S}"


def advise(
    topology: Topology,
    load: Load,
    backends: Sequence[str] = DIRECT,
    largest: int = 0,
    packet: float | None = None,
    growth: float = GROWTH,
) -> Advice:
    """A better forest of domains for this traffic, if there is one, and what can be had for what.

    backends   those that a domain may have
    largest    servers of a domain, at most; 0: any number
    packet     what a packet weighs, in control bytes; None: as the log has it, or PACKET
    growth     times the traffic, for the forecast
    """
    check(topology, backends)
    load, left_out = known(topology, load)
    if left_out and not load.sends:
        raise MomError(f"no message is left to go by: {left_out}")
    if not load.flows:
        raise MomError("no message in this log has left its server: there is nothing to go by")
    assert load.sends, "a load without messages that can be played"
    packet = (load.packet or PACKET) if packet is None else packet
    servers = list(topology.servers)
    same = canonical.of(topology, load)
    most = min(largest or len(servers), costs.largest(backends, servers))
    large = _above(topology, most)
    pool = candidates(same.topology, same.load, backends, most, packet)
    current = pool.shown[CURRENT]
    chosen = _chosen(pool, packet)
    if not chosen:
        near = beside(same.topology, same.load, backends, most, packet, LOSS)
        pool.allowed += [each for each in near if _regards(each)]
        chosen = _chosen(pool, packet)
    if chosen:
        chosen = simplest(chosen, pool.allowed, current)
    best = chosen or min(pool.allowed, key=lambda each: each.cost.price(packet))
    gain = 1 - best.cost.price(packet) / current.cost.price(packet)
    edge = front(pool.allowed + pool.free, packet, current)
    if chosen and not any(each is chosen for each in edge):
        edge = _in_place(edge, chosen)
    proposed = chosen or current
    forecast = _forecast(same, {CURRENT: current, **({PROPOSED: chosen} if chosen else {})}, growth)
    shift = drift.shift(same.load.sends)
    remarks = [words.shifted(shift, when(shift), _either_side(same, current, chosen, shift, packet))] if shift else []
    back: dict[int, Option] = {id(current): Option(topology, same.back(current.topology, current.cost)[1])}
    for each in [*pool.shown.values(), *edge, proposed]:
        if id(each) not in back:
            back[id(each)] = Option(*same.back(each.topology, each.cost), fit=each.fit)
    options = {name: back[id(each)] for name, each in (*pool.shown.items(), (PROPOSED, proposed))}
    model = costs.compared(options[CURRENT].cost, load.seen)
    advice = Advice(
        options, [back[id(each)] for each in edge], gain, pool.fit, [], packet=packet, model=model,
        forecast=[{**row, "busiest": same.names.get(row["busiest"], "")} for row in forecast], shift=shift,
    )  # fmt: skip
    if chosen:
        advice.changes = words.changes(topology, options[PROPOSED].topology)
        verb = "has" if len(large) == 1 else "have"
        advice.forced = f"{listed(large)} {verb} more than {most} servers" if large and gain < GAIN else ""
        if gain >= GAIN and not _regards(chosen) and _regrouped(current, chosen):
            remarks.insert(0, "which servers are together matters little for this traffic; how many are, does")
    else:
        named = topology.domains.items()
        advice.kept = [f"{each.backend} in {name}" for name, each in named if each.backend not in backends]
    advice.remarks = [
        *remarks, *words.doubts(model, load), *([left_out] if left_out else []), *_heavy(options),
        *_forbidden(options, most, backends),
    ]  # fmt: skip
    return advice


def _chosen(pool: Candidates, packet: float) -> Option | None:
    """What is proposed; None where the current topology may stay."""

    def price(each: Option) -> float:
        return each.cost.price(packet)

    def cheapest(some: Sequence[Option]) -> Option | None:
        least = min(map(price, some), default=0.0)
        alike = [each for each in some if price(each) <= least * (1 + ALIKE)]
        return min(alike, key=lambda each: each.cost.control_bytes, default=None)

    current = pool.shown[CURRENT]
    others = [each for each in pool.allowed if each is not current]
    if not any(each is current for each in pool.allowed):
        return cheapest(others)
    tuned = pool.tuned
    plain = tuned if tuned and price(tuned) <= (1 - GAIN) * price(current) else current
    better = [
        each for each in others if price(each) <= (1 - _needed(each)) * price(plain) and _regrouped(current, each)
    ]
    if found := cheapest(better):
        return found
    if plain is not current:
        return plain
    free = [
        each
        for each in others
        if dominates(each.cost, current.cost, LOSS)
        and min(gains(current.cost, each.cost).values()) <= -_needed(each)
        and price(each) <= price(current)
    ]
    return cheapest(free)


def _regards(option: Option) -> bool:
    """Whether the traffic says which servers are together."""
    return option.fit is not None and option.fit >= FIT


def _needed(option: Option) -> float:
    """The gain from which on it is proposed: what may be chance has to be more."""
    return GAIN if _regards(option) else 2 * GAIN


def _regrouped(current: Option, option: Option) -> bool:
    """Whether it has other domains, and not other back ends alone."""
    one, other = ({frozenset(d.members) for d in each.topology.domains.values()} for each in (current, option))
    return one != other


def _in_place(edge: list[Option], chosen: Option) -> list[Option]:
    """The front with the proposal, in place of what is alike."""
    kept = [each for each in edge if not _near(each.cost, chosen.cost)]
    return sorted([*kept, chosen], key=lambda each: tuple(of(each.cost) for of in AXES.values()))


def _near(one: Cost, other: Cost) -> bool:
    return all(abs(of(one) - of(other)) <= ALIKE * of(other) for of in AXES.values())


def _forecast(same: canonical.Canonical, options: Mapping[str, Option], growth: float) -> list[dict[str, Any]]:
    """By second: what links and routers carry now, and what they would with more of the same traffic."""
    sends, rows = same.load.sends, []
    span = max((sends[-1].at - sends[0].at) / 1e9, 1e-9)
    for name, option in options.items():
        later = costs.predict(option.topology, same.load.faster(growth))
        for times, cost in ((1.0, option.cost), (growth, later)):
            rate = times / span
            copies = sum(count * len(to) for (_, to), count in same.load.flows.items())
            rows.append({
                "topology": name, "times": times, "messages_s": round(cost.messages * rate, 2),
                "packets_s": round(cost.packets * rate, 2), "control_bytes_s": round(cost.control_bytes * rate, 1),
                "rows_s": round(cost.rows * rate, 2), "busiest": cost.busiest,
                "passes_on_s": round(cost.busiest_share * copies * rate, 2), "delay_ms": round(cost.delay_ms, 2),
            })  # fmt: skip
    return rows


def _either_side(
    same: canonical.Canonical, current: Option, chosen: Option | None, shift: drift.Shift, packet: float
) -> tuple[float, float] | None:
    """What the proposal saves of the price, before and since the traffic has changed."""
    if chosen is None:
        return None
    found = []
    for sends in (shift.before, shift.since):
        part = Load(costs.traffic((send.origin, send.dests) for send in sends), sends, same.load.delays)
        old, new = (costs.predict(each.topology, part).price(packet) for each in (current, chosen))
        found.append(1 - new / old)
    return found[0], found[1]


def _heavy(options: Mapping[str, Option]) -> Iterator[str]:
    old, new = options[CURRENT].cost, options[PROPOSED].cost
    if new.busiest_share > max(HEAVY, old.busiest_share):
        yield f"{new.busiest} would pass on {new.busiest_share:.0%} of all copies"


def _forbidden(options: Mapping[str, Option], most: int, backends: Sequence[str]) -> Iterator[str]:
    """What would have fewer control bytes than what is proposed, if it were allowed."""
    proposed = options[PROPOSED].cost
    for name, each in options.items():
        control = round(each.cost.control_bytes / each.cost.messages, 1)
        if control >= round(proposed.control_bytes / proposed.messages, 1):
            continue
        if _above(each.topology, most):
            why = "in domains that are larger than allowed"
        elif others := sorted({domain.backend for domain in each.topology.domains.values()} - {*backends}):
            why = f"under {listed(others)}, not among the back ends allowed"
        else:
            continue  # it is on the front, or worse than what is
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
    return Load(flows, [each for each in sends if each.dests], load.delays, packet=load.packet), text


def _above(topology: Topology, most: int) -> list[str]:
    return [name for name, domain in topology.domains.items() if len(domain.members) > most]


# -- replay ------------------------------------------------------------------------------------------------------------


def replay_all(advice: Advice, load: Load, spark: SparkSession | None = None) -> None:
    """Play the same messages as the model on every option; on Spark side by side, one task each."""
    load, _ = known(advice.options[CURRENT].topology, load)
    options = [*advice.options.values(), *advice.front]
    topologies = {id(option): option.topology for option in options}
    jobs = [(key, topology, load) for key, topology in topologies.items()]
    results: Iterable[tuple[int, Played | str]]
    if spark is None:
        results = [_play(job) for job in jobs]
    else:
        results = spark.sparkContext.parallelize(jobs, len(jobs)).map(_play).collect()
    for key, played in results:
        if isinstance(played, str):
            raise RuntimeError(f"a replay failed: {played}")
        for option in options:
            if id(option) == key:
                option.replayed = played


def _play(job: tuple[int, Topology, Load]) -> tuple[int, Played | str]:
    """Errors are told as text: a task that raises is tried again, and fails again."""
    key, topology, load = job
    try:
        return key, replay(topology, load.played, load.delays, first=load.first)
    except Exception as error:
        return key, f"{type(error).__name__}: {error}"
