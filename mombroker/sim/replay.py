"""Traffic played on a topology by the ordering cores of the bus, in virtual time, without agents, disks or faults.

It counts what each domain puts on the wire. Routes, multicasts and router steps are those of core/channel.py.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from mombroker import ordering
from mombroker.core.topology import Domain, RoutingTable, Topology
from mombroker.ordering import Ordering, Packet
from mombroker.sim.world import EPOCH, MS, World

NUMBER = 8  # bytes: a body is the number of its message


class Send(NamedTuple):
    """A message: when (ns), from which server, to which others."""

    at: int
    origin: str
    dests: tuple[str, ...]
    payload: int = 0  # bytes


@dataclass(slots=True)
class Delays:
    """How long a packet takes from one server to the next, in the mean: the commit before it leaves, and the link.

    `links` has those of single pairs. The time itself is drawn, a half of the mean and an exponential rest.
    """

    mean: int = 10 * MS
    links: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def draw(self, world: World, a: str, b: str) -> int:
        mean = self.links.get((a, b), self.mean)
        return mean // 2 + world.about(mean - mean // 2)


@dataclass(slots=True)
class Tally:
    """What one domain, or all, had to do."""

    packets: int = 0
    control_bytes: int = 0
    control_ints: int = 0
    delivered: int = 0  # copies handed over, to go on or to stay
    held: int = 0  # of these, that waited for their causes
    held_ns: int = 0
    rows: int = 0  # of cores, where they were asked for,
    steps: int = 0  # in so many steps

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Played:
    domains: dict[str, Tally]
    messages: int = 0
    copies: int = 0  # of messages, at their final servers
    hops: int = 0  # links that these have crossed, relays not counted
    delay_ns: int = 0  # from send to final server, summed

    @property
    def total(self) -> Tally:
        total = Tally()
        for tally in self.domains.values():
            total.add(tally)
        return total


class Stage:
    """One domain: a core for each member, and links that keep the order of sending."""

    __slots__ = ("world", "domain", "cores", "delays", "tally", "rows", "deliver", "last", "came", "measuring")

    def __init__(self, world: World, domain: Domain, delays: Delays, rows: bool = False):
        self.world, self.domain, self.delays, self.rows = world, domain, delays, rows
        options = ordering.backend(domain.backend).resolve(domain.members, domain.options)
        size = len(domain.members)
        self.cores: list[Ordering] = [
            ordering.create(domain.backend, me=me, size=size, **options) for me in range(size)
        ]
        self.tally = Tally()
        self.measuring = True
        self.deliver = _nowhere
        self.last: dict[tuple[int, int], int] = {}  # by link: the latest arrival
        self.came: dict[Packet, int] = {}  # what is held, and since when

    def send(self, me: int, dests: Iterable[int], body: bytes) -> None:
        core = self.cores[me]
        self._post(me, core, core.send(dests, body))

    def _post(self, me: int, core: Ordering, packets: Sequence[Packet]) -> None:
        world, tally, members = self.world, self.tally, self.domain.members
        for packet in packets:
            data = core.encode(packet)
            if self.measuring:
                tally.packets += 1
                tally.control_bytes += len(data) - len(packet.body)
                tally.control_ints += core.control_ints(packet)
            link = me, packet.to
            at = max(world.now + self.delays.draw(world, members[me], members[packet.to]), self.last.get(link, 0))
            self.last[link] = at
            world.after(at - world.now, self._arrive, packet.to, me, data)
        if self.rows and self.measuring:
            tally.rows += len(packets) + len(core.dirty()[0])
            tally.steps += 1

    def _arrive(self, me: int, frm: int, data: bytes) -> None:
        core, now, tally = self.cores[me], self.world.now, self.tally
        packet = core.decode(frm, data)
        step = core.receive(frm, packet)
        if not step.deliver and me in packet.dests:
            self.came[packet] = now
        for done in step.deliver:
            since = self.came.pop(done, now)
            if self.measuring:
                tally.delivered += 1
                tally.held += since < now
                tally.held_ns += now - since
            self.deliver(me, done.body)
        self._post(me, core, step.send)


def _nowhere(me: int, body: bytes) -> None:
    """A domain by itself: its messages end here."""


class Bus:
    """All domains of a topology, and the routers' steps between them."""

    def __init__(self, topology: Topology, delays: Delays | None = None, seed: int = 0):
        self.world = World(seed)
        self.topology = topology
        self.routes = {server: RoutingTable(topology, server) for server in topology.servers}
        self.stages = {name: Stage(self.world, domain, delays or Delays()) for name, domain in topology.domains.items()}
        for name, stage in self.stages.items():
            stage.deliver = partial(self._delivered, name)
        self.sends: list[Send] = []
        self.played = Played({name: stage.tally for name, stage in self.stages.items()})

    def play(self, sends: Sequence[Send]) -> Played:
        """All of them, and until nothing is under way any more."""
        for send in sends:
            self.world.after(send.at - self.world.now, self._send, len(self.sends))
            self.sends.append(send)
        assert self.world.run(calls=sys.maxsize)
        assert self.played.copies == sum(len(send.dests) for send in self.sends), "a message was not delivered"
        return self.played

    def _send(self, number: int) -> None:
        send = self.sends[number]
        self.played.messages += 1
        self._pass_on(send.origin, number, "")

    def _pass_on(self, me: str, number: int, came: str) -> None:
        """Stamp it for all that are beyond `me`, seen from the domain that it came in; one multicast a domain."""
        send = self.sends[number]
        if me in send.dests:
            self._arrived(send, me)
        for into, peers in onward(self.routes[me], me, send.dests, came).items():
            stage = self.stages[into]
            index = stage.domain.index
            stage.send(index(me), [index(peer) for peer in peers], number.to_bytes(NUMBER, "little"))

    def _arrived(self, send: Send, me: str) -> None:
        self.played.copies += 1
        self.played.delay_ns += self.world.now - send.at
        self.played.hops += self.routes[me].distance(send.origin)

    def _delivered(self, domain: str, me: int, body: bytes) -> None:
        server = self.topology.domains[domain].members[me]
        self._pass_on(server, int.from_bytes(body[:NUMBER], "little"), domain)


def replay(topology: Topology, sends: Sequence[Send], delays: Delays | None = None, seed: int = 0) -> Played:
    """What this traffic costs on this topology, from new clocks on. Times of sends are moved to the start."""
    start = EPOCH - min((send.at for send in sends), default=EPOCH)
    return Bus(topology, delays, seed).play([send._replace(at=send.at + start) for send in sends])


Flows = Mapping[tuple[str, tuple[str, ...]], float]  # (from, to) -> how many


def flows(topology: Topology, traffic: Flows) -> dict[str, dict[tuple[str, tuple[str, ...]], float]]:
    """What each domain has to carry of this traffic: the multicasts of its members among themselves."""
    routes = {server: RoutingTable(topology, server) for server in topology.servers}
    found: dict[str, dict[tuple[str, tuple[str, ...]], float]] = {name: defaultdict(float) for name in topology.domains}
    memo: dict[tuple[str, tuple[str, ...], str], dict[str, dict[str, list[str]]]] = {}
    for (origin, dests), count in traffic.items():
        stack = [(origin, dests, "")]
        while stack:
            step = stack.pop()
            me = step[0]
            if step not in memo:
                memo[step] = onward(routes[me], *step)
            for into, peers in memo[step].items():
                found[into][me, tuple(peers)] += count
                stack += [(peer, tuple(beyond), into) for peer, beyond in peers.items() if beyond != [peer]]
    return {name: dict(each) for name, each in found.items()}


def onward(route: RoutingTable, me: str, dests: Iterable[str], came: str) -> dict[str, dict[str, list[str]]]:
    """The step of a router: domain -> next server there -> those of `dests` that are there or beyond it. Nothing goes
    back into the domain that it came in."""
    leaving: dict[str, dict[str, list[str]]] = {}
    for dest in dests:
        if dest != me:
            into, peer = route.hop(dest)
            if into != came:
                leaving.setdefault(into, {}).setdefault(peer, []).append(dest)
    return leaving
