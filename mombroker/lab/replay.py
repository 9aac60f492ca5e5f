"""Traffic played on a topology by the ordering cores of the bus, in virtual time, without agents, disks or faults: what
each domain puts on the wire.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mombroker.core.topology import RoutingTable, Topology
from mombroker.lab.bus import Bus, onward
from mombroker.lab.bus_workloads import Send, play
from mombroker.lab.observers import Control, Held, Rows
from mombroker.sim.world import EPOCH, MS, World

WRITES = 400  # messages at the end whose rows are counted


@dataclass(slots=True)
class Delays:
    """How long a packet takes from one server to the next, in the mean: the commit before it leaves, and the link.

    `links` has those of single pairs. The time itself is drawn, a half of the mean and an exponential rest.
    """

    mean: int = 10 * MS
    links: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def of(self, a: str, b: str) -> int:
        return self.links.get((a, b), self.mean)


class Links:
    """Links that take as long as `delays` says, and keep the order of sending. A delay that is drawn holds for a while,
    for as long as one takes in the mean: if each were drawn by itself, all on a busy link would wait for the slowest,
    and it would take much longer in the mean than `delays` says.
    """

    def __init__(self, world: World, servers: Sequence[str], delays: Delays):
        self.world, self.servers, self.delays = world, servers, delays
        self.drawn: dict[tuple[int, int], tuple[int, int]] = {}  # by link: a delay, and until when it holds
        self.last: dict[tuple[int, int], int] = {}  # by link: the latest arrival

    def arrival(self, frm: int, to: int) -> int:
        """When what is sent now is there."""
        now, link = self.world.now, (frm, to)
        took, until = self.drawn.get(link, (0, 0))
        if now >= until:
            mean = self.delays.of(self.servers[frm], self.servers[to])
            took = mean // 2 + self.world.about(mean - mean // 2)
            self.drawn[link] = took, now + mean
        at = self.last[link] = max(now + took, self.last.get(link, 0))
        return at

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        self.world.after(self.arrival(frm, to) - self.world.now, arrive, *args)


@dataclass(slots=True)
class Tally:
    """What one domain, or all, had to do."""

    packets: int = 0
    control_bytes: int = 0
    held: int = 0  # copies that waited for their causes
    held_ns: int = 0
    rows: int = 0  # of out-queues and clocks, that the last messages write


@dataclass(slots=True)
class Played:
    domains: dict[str, Tally]
    messages: int
    copies: int  # of messages, at their final servers
    hops: int  # links that these have crossed, relays not counted
    delay_ns: float  # mean of a copy
    last: int  # how many messages have their rows counted

    @property
    def total(self) -> Tally:
        each = self.domains.values()
        return Tally(*(sum(getattr(tally, name) for tally in each) for name in Tally.__slots__))


def replay(
    topology: Topology, sends: Sequence[Send], delays: Delays | None = None, seed: int = 0, first: int = 0
) -> Played:
    """What this traffic costs on this topology, from new clocks on; the `first` messages are not counted. Times of
    sends are moved to the start."""
    world = World(seed)
    links = Links(world, list(topology.servers), delays or Delays())
    begin = max(len(sends) - WRITES, first)
    watchers = {name: (Control(first), Held(first), Rows(begin)) for name in topology.domains}
    bus = Bus(world, topology, lambda domain: links, watchers.__getitem__)
    play(bus, _from_the_start(sends))
    tallies = {
        name: Tally(control.packets, control.bytes, held.held, held.waited, rows.rows)
        for name, (control, held, rows) in watchers.items()
    }
    took = [ns for number, _, ns in bus.delays if number > first]
    delay = sum(took) / max(len(took), 1)
    return Played(tallies, len(sends) - first, len(took), bus.hops(first), delay, len(sends) - begin)


def _from_the_start(sends: Sequence[Send]) -> list[Send]:
    start = EPOCH - min((send.at for send in sends), default=EPOCH)
    return [send._replace(at=send.at + start) for send in sends]


class Act(NamedTuple):
    """What a domain has to carry: a multicast of one of its members to others. `number` is that of the message."""

    at: int  # ns
    number: int
    server: str
    peers: tuple[str, ...]


def acts(
    topology: Topology, sends: Sequence[Send], delays: Delays | None = None, seed: int = 0
) -> dict[str, list[Act]]:
    """By domain, in order of time, what its members have to send of this traffic, if nothing is held on the way: links
    keep their order, so that what a router has to send on comes in bursts. Messages are numbered from 1 on."""
    world, servers = World(seed), list(topology.servers)
    links, places = Links(world, servers, delays or Delays()), {name: at for at, name in enumerate(servers)}
    routes = {server: RoutingTable(topology, server) for server in servers}
    found: dict[str, list[Act]] = {name: [] for name in topology.domains}
    memo: dict[tuple[str, tuple[str, ...], str], dict[str, dict[str, list[str]]]] = {}

    def step(number: int, me: str, dests: tuple[str, ...], came: str) -> None:
        key = me, dests, came
        if key not in memo:
            memo[key] = onward(routes[me], me, dests, came)
        for into, peers in memo[key].items():
            found[into].append(Act(world.now, number, me, tuple(peers)))
            for peer, beyond in peers.items():
                at = links.arrival(places[me], places[peer])
                if beyond != [peer]:
                    world.after(at - world.now, step, number, peer, tuple(beyond), into)

    for number, send in enumerate(_from_the_start(sends), 1):
        world.after(send.at - EPOCH, step, number, send.origin, send.dests, "")
    world.run(calls=sys.maxsize)
    return found
