"""The traffic of a real bus, from its logs, played again on other back ends and other domains.

A server sends a message when it did, but not before it has delivered what it had delivered by then: so an answer stays
an answer, however long the question is on its way.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from mombroker import ordering
from mombroker.core.errors import TopologyError
from mombroker.core.layouts import generate
from mombroker.core.topology import Domain, Topology
from mombroker.core.trace import Record
from mombroker.lab.bus import Bus, Progress
from mombroker.lab.domain import Observer, number_of
from mombroker.lab.observers import Control, Held
from mombroker.ordering import Packet, Step
from mombroker.sim.world import EPOCH, MS, World

Id = tuple[str, int]
Passed = tuple[int, int]  # from one server to the next: when a message left, and how long it took, ns
Delays = Mapping[tuple[str, str], Mapping[Id, Passed]]
FEW = 3  # members from which on a domain can have any back end


@dataclass(slots=True)
class Sent:
    """A message: when it was sent, where, to which other servers, what its server had delivered between its send before
    and this, and its bytes."""

    id: Id
    at: int
    origin: str
    dests: tuple[str, ...]
    after: frozenset[Id] = frozenset()
    payload: int = 0


@dataclass(slots=True)
class Traffic:
    """What the logs say; all but `sends` and `delays` are of the messages `counted`. `control_bytes` and `packets` are
    of all packets that were stamped. `whole`: all there is of these messages is in the logs."""

    sends: list[Sent] = field(default_factory=list)
    delays: Delays = field(default_factory=dict)
    counted: frozenset[Id] = frozenset()
    control_bytes: int = 0
    packets: int = 0
    hops: int = 0
    held: int = 0
    state_bytes: int = 0  # of clocks in the stores, now
    latencies: list[int] = field(default_factory=list)  # ns from send to delivery at another server
    gone: int = 0  # messages whose send is not in the log of their server, though something else is in the logs
    missed: int = 0  # messages that are not counted, as a log that they must be in does not have them
    empty: frozenset[str] = frozenset()  # servers whose log has nothing, but which others name
    members: frozenset[tuple[str, str]] = frozenset()  # domains, and a server in each
    whole: bool = True


def read(logs: Mapping[str, Iterable[Record]], cut: Collection[str] = ()) -> Traffic:
    """Of messages whose send is in the logs. The servers' clocks are taken as they are, but that one which was set back
    goes on from where it was.

    `cut`: servers whose old records are gone. Then only what was sent once all logs had begun is counted, and not the
    first tenth, so that there is something before it. What is before is played, from clocks that are new.

    A message that has passed through a server whose log does not have it is not counted: that log has ended before the
    others, or there was none for a while.
    """
    traffic, left = Traffic(), dict[tuple[Id, str], int]()
    came: list[tuple[Id, str, str, int]] = []  # message, from, to, when
    seen: set[tuple[Id, str]] = set()  # a server may have to pass a message on, and be one that it is for
    sends: dict[str, list[Sent]] = defaultdict(list)
    delivered: dict[str, dict[Id, int]] = defaultdict(dict)
    paid: dict[Id, _Paid] = defaultdict(_Paid)
    told: list[tuple[int, int, int]] = []  # of packets about no message: when, how many, their control bytes
    begun = 0  # when the last of the logs that are cut begins
    wrote: dict[Id, set[str]] = defaultdict(set)  # servers whose logs have the message
    passed: dict[Id, set[str]] = defaultdict(set)  # servers that it came from, or is for
    stopped: set[Id] = set()  # it did not come to all that it is for
    members: set[tuple[str, str]] = set()
    there: set[str] = set()
    for server, records in logs.items():
        last = back = 0
        for at, record in enumerate(records):
            kind, domain, peer, out = record.kind, record.domain, record.peer, record.out
            id = record.origin, record.number
            there.add(server)
            wrote[id].add(server)
            if domain:
                passed[id].add(peer)
                members |= {(domain, server), (domain, peer)}
            for into, to, _, _ in out:
                members |= {(into, server), (into, to)}
            if kind in ("expire", "dead", "drop"):
                stopped.add(id)
            if at == 0 and server in cut:
                begun = max(begun, record.done or record.received or record.sent)
            if kind in ("send", "react", "forward"):  # others are told of later, or have no such time
                if record.done + back < last:
                    back = last + 1 - record.done
                last = record.done + back
            received, done = record.received + back, record.done + back
            control = sum(each[2] for each in out)
            if record.origin:
                paid[id].packets += len(out)
                paid[id].control_bytes += control
            elif out:
                told.append((done, len(out), control))
            if kind == "send":
                dests = dict.fromkeys(agent.partition("/")[0] for agent in record.dests)
                passed[id].update(dests)
                others = tuple(d for d in dests if d != server)
                sends[server].append(Sent(id, record.sent + back, server, others, payload=record.payload))
                left[id, server] = record.sent + back
            elif kind == "hold":
                paid[id].held += 1
            elif domain and kind in ("react", "forward", "dead", "drop", "expire"):
                if (id, server) not in seen and record.received:  # 0: its server has died while it waited
                    seen.add((id, server))
                    came.append((id, peer, server, received))
                if kind == "forward":
                    left[id, server] = done
                elif id not in delivered[server]:
                    delivered[server][id] = record.delivered + back if record.delivered else done
                    paid[id].latencies.append((record.delivered or record.done) - record.sent)
                    paid[id].hops += record.hops
    known = {send.id for each in sends.values() for send in each}
    for server, each in sends.items():
        each.sort(key=lambda send: (send.at, send.id))
        order = sorted((at, id) for id, at in delivered[server].items() if id in known)
        before = 0
        for send in each:
            start = before
            while before < len(order) and order[before][0] <= send.at:
                before += 1
            send.after = frozenset(id for _, id in order[start:before])
    traffic.sends = sorted((send for each in sends.values() for send in each), key=lambda send: (send.at, send.id))
    traffic.delays = _delays(came, left)
    if begun and known:
        begun = max(begun, traffic.sends[len(known) // 10].at)
    late = {send.id for send in traffic.sends if send.at >= begun}
    missed = {id for id in late - stopped if not passed[id] & there <= wrote[id]}
    traffic.counted, traffic.missed = frozenset(late - missed), len(missed)
    traffic.gone = sum(1 for id in wrote if id[0] in there and id not in known)
    named = {server for _, server in members}.union(*passed.values())
    traffic.empty, traffic.members = frozenset(named & logs.keys() - there), frozenset(members)
    if not traffic.counted:
        traffic.counted, traffic.missed, traffic.whole = frozenset(known), 0, False
    for id in traffic.counted:
        paid[id].add(traffic)
    for at, packets, control in told:
        if at >= begun:
            traffic.packets += packets
            traffic.control_bytes += control
    return traffic


@dataclass(slots=True)
class _Paid:
    """For one message, as the logs have it."""

    packets: int = 0
    control_bytes: int = 0
    held: int = 0
    hops: int = 0
    latencies: list[int] = field(default_factory=list)

    def add(self, traffic: Traffic) -> None:
        traffic.packets += self.packets
        traffic.control_bytes += self.control_bytes
        traffic.held += self.held
        traffic.hops += self.hops
        traffic.latencies += self.latencies


def _delays(
    came: Iterable[tuple[Id, str, str, int]], left: Mapping[tuple[Id, str], int]
) -> dict[tuple[str, str], dict[Id, Passed]]:
    """Of all that passed from one server to the next, where both ends are in the logs."""
    links: dict[tuple[str, str], dict[Id, Passed]] = defaultdict(dict)
    for id, frm, to, at in came:
        if (id, frm) in left:
            links[frm, to][id] = left[id, frm], max(at - left[id, frm], 0)
    return links


class Links(Observer):
    """The links of a domain, which keep their order. A message takes as long as in the logs.

    What has not gone there, or is not in the logs, such as what an ordering tells those that a message is not for,
    takes as long as the next that has: so it holds up nothing. Where none has, as long as what is nearest in time out
    of its sender, or into its receiver, whichever takes longer: a server that is slow at that moment is slow on this
    link, too. Draws from all there is would do more: on a link that keeps its order all wait for the longest.
    """

    def __init__(self, world: World, names: Sequence[str], delays: Delays, ids: Sequence[Id], start: int):
        """`ids`: of messages, by number in the bus. `start`: what the servers' clocks show at the first send."""
        super().__init__()
        self.world, self.names, self.delays, self.ids, self.start = world, names, delays, ids, start
        self.passed = {link: sorted(some.values()) for link, some in delays.items()}
        self.out: dict[str, list[Passed]] = defaultdict(list)
        self.into: dict[str, list[Passed]] = defaultdict(list)
        for (frm, to), some in self.passed.items():
            self.out[frm] += some
            self.into[to] += some
        self.any = sorted(each for some in self.passed.values() for each in some) or [(0, MS)]
        for some in (*self.out.values(), *self.into.values()):
            some.sort()
        self.last: dict[tuple[int, int], int] = {}
        self.number = 0  # of the message that is now put on links

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self.number = number

    def received(self, me: int, packet: Packet, step: Step) -> None:
        self.number = number_of(packet) if packet.body else 0

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        now = self.world.now
        delay = self._delay((self.names[frm], self.names[to]), self.ids[self.number])
        at = self.last[frm, to] = max(now + delay, self.last.get((frm, to), 0))
        self.world.after(at - now, arrive, *args)

    def _delay(self, link: tuple[str, str], id: Id) -> int:
        now = self.world.now - EPOCH + self.start
        if link not in self.passed:
            ends = [some for some in (self.out.get(link[0]), self.into.get(link[1])) if some]
            return max(_nearest(some, now) for some in ends or [self.any])
        if id in self.delays[link]:
            return self.delays[link][id][1]
        passed = self.passed[link]
        return passed[min(bisect_left(passed, (now, 0)), len(passed) - 1)][1]


def _nearest(passed: Sequence[Passed], now: int) -> int:
    """How long that took which left nearest to this time; the earlier of two."""
    at = bisect_left(passed, (now, 0))
    return min(passed[max(at - 1, 0) : at + 1], key=lambda each: abs(each[0] - now))[1]


class Paid(Control):
    """Control bytes of some messages; of what is about none, once the first of these is sent."""

    def __init__(self, ids: Sequence[Id], only: Collection[Id]):
        super().__init__()
        self.ids, self.only, self.on = ids, only, False

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        if self.ids[number] in self.only:
            self.on = True
            self._count(me, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        counts = [self.ids[number_of(each)] in self.only if each.body else self.on for each in step.send]
        self._count(me, [*compress(step.send, counts)])


class Waited(Held):
    """Packets of some messages that came before their causes."""

    def __init__(self, ids: Sequence[Id], only: Collection[Id]):
        super().__init__()
        self.ids, self.only = ids, only

    def received(self, me: int, packet: Packet, step: Step) -> None:
        if packet.body and self.ids[number_of(packet)] in self.only:
            super().received(me, packet, step)
        else:
            self.duplicates[me] = self.domain.members[me].duplicates


class Kept(Observer):
    """The rows of the cores' state that a store would have now."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[tuple[int, int, int], int] = {}  # by member and row: bytes

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        rows, gone = self.domain.members[me].dirty()
        self.sizes.update({(me, *key): len(blob) for key, blob in rows.items()})
        for key in gone:
            self.sizes.pop((me, *key), None)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        self.sent(me, 0, ())


class Player:
    """Sends a bus its traffic; each server in its order."""

    def __init__(self, bus: Bus, sends: Sequence[Sent], ids: list[Id]):
        self.bus, self.ids = bus, ids
        self.start = min(send.at for send in sends)
        self.queues: dict[int, deque[Sent]] = defaultdict(deque)  # by server
        self.here: dict[int, set[Id]] = defaultdict(set)
        self.timed: set[int] = set()  # servers that wait for a time
        for send in sends:
            self.queues[bus.places[send.origin]].append(send)
        bus.on_arrival = self._arrived

    def play(self, progress: Progress = lambda arrived: None) -> None:
        for server in list(self.queues):
            self.bus.world.after(0, self._next, server)
        self.bus.finish(progress)
        assert not any(self.queues.values()), "a message was never sent: it answers one that the log does not have"

    def _arrived(self, number: int, origin: int, me: int) -> None:
        self.here[me].add(self.ids[number])
        if me not in self.timed:
            self._next(me)

    def _next(self, me: int) -> None:
        self.timed.discard(me)
        queue, world = self.queues[me], self.bus.world
        while queue and queue[0].after <= self.here[me]:
            due = queue[0].at - self.start + EPOCH
            if due > world.now:
                self.timed.add(me)
                world.after(due - world.now, self._next, me)
                return
            send = queue.popleft()
            self.ids.append(send.id)
            self.bus.send(me, [self.bus.places[dest] for dest in send.dests], send.payload)


def replay(topology: Topology, traffic: Traffic, backends: Mapping[str, str] | None = None) -> "Row":
    """What this traffic costs on this topology, from new clocks on."""
    world = World(1)  # nothing is drawn
    names = list(topology.servers)
    ids: list[Id] = [("", 0)]
    start = traffic.sends[0].at
    links = {name: Links(world, names, traffic.delays, ids, start) for name in topology.domains}
    only = traffic.counted
    watchers = {name: (Paid(ids, only), Waited(ids, only), Kept()) for name in topology.domains}
    bus = Bus(world, topology, links.__getitem__, lambda domain: (*watchers[domain], links[domain]), backends)
    Player(bus, traffic.sends, ids).play()
    delays = [each for each in bus.delays if ids[each[0]] in only]
    return row(
        len(only),
        sum(control.packets for control, _, _ in watchers.values()),
        sum(control.bytes for control, _, _ in watchers.values()),
        sum(bus.routes(bus.origins[number]).distance(names[me]) for number, me, _ in delays),
        sum(held.held for _, held, _ in watchers.values()),
        [ns for _, _, ns in delays],
    ) | {
        "state_bytes": sum(sum(kept.sizes.values()) for _, _, kept in watchers.values())
    }  # fmt: skip


def fit(topology: Topology, backends: Mapping[str, str]) -> None:
    """Whether these domains can have these back ends, without options. Raises TopologyError that says why not."""
    faults = [
        f"domain {name}: {fault}"
        for name, backend in backends.items()
        for fault in ordering.backend(backend).validate(topology.domains[name].members, {})
    ]
    if faults:
        raise TopologyError(faults)


Row = dict[str, object]


def row(messages: int, packets: int, control: int, hops: int, held: int, latencies: Sequence[int]) -> Row:
    """Per message, but for the delays in ms, and the state at the end."""
    ordered, last = sorted(latencies), len(latencies) - 1
    return {
        "packets": round(packets / messages, 2), "control_bytes": round(control / messages, 2),
        "hops": round(hops / max(len(ordered), 1), 2), "p50_ms": round(ordered[last // 2] / MS, 2) if ordered else 0.0,
        "p99_ms": round(ordered[last * 99 // 100] / MS, 2) if ordered else 0.0,
        "held_pct": round(100 * held / max(packets, 1), 2),
    }  # fmt: skip


def recorded(traffic: Traffic) -> Row:
    """The same of the logs themselves."""
    copies = max(len(traffic.latencies), 1)
    found = row(len(traffic.counted), traffic.packets, traffic.control_bytes, 0, traffic.held, traffic.latencies)
    return found | {"hops": round(traffic.hops / copies, 2), "state_bytes": traffic.state_bytes}


Plan = tuple[Topology, dict[str, str]]  # and other back ends for some of its domains


def plans(topology: Topology, orderings: Sequence[str], layouts: Sequence[str]) -> dict[str, Plan]:
    """By name: the topology as it is, other back ends in its domains of three or more, other domains of its servers.
    Raises MomError for what cannot be."""
    found: dict[str, Plan] = {"as it is": (topology, {})}
    for backend in orderings:
        large = {name: backend for name, domain in topology.domains.items() if len(domain.members) >= FEW}
        fit(topology, large)
        found[f"under {backend}"] = topology, large
    for layout in layouts:
        names = list(topology.servers)
        made = generate(layout, len(names))
        called = dict(zip(made.servers, names, strict=True))
        domains = {name: Domain(name, tuple(called[m] for m in each.members)) for name, each in made.domains.items()}
        found[f"domains as {layout}"] = replace(topology, domains=domains, checked=True), {}
    return found
