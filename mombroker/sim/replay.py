"""Traffic played on a topology by the ordering cores of the bus, in virtual time, without agents, disks or faults: what
each domain puts on the wire.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mombroker.core.topology import RoutingTable, Topology
from mombroker.sim.lab.bus import Bus, onward
from mombroker.sim.lab.loads import Send, play
from mombroker.sim.lab.observers import Control, Held
from mombroker.sim.world import EPOCH, MS, World


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


class Links:
    """Links that take as long as `delays` says, and keep the order of sending."""

    def __init__(self, world: World, servers: Sequence[str], delays: Delays):
        self.world, self.servers, self.delays = world, servers, delays
        self.last: dict[tuple[int, int], int] = {}  # by link: the latest arrival

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        world, link = self.world, (frm, to)
        at = max(world.now + self.delays.draw(world, self.servers[frm], self.servers[to]), self.last.get(link, 0))
        self.last[link] = at
        world.after(at - world.now, arrive, *args)


@dataclass(slots=True)
class Tally:
    """What one domain, or all, had to do."""

    packets: int = 0
    control_bytes: int = 0
    held: int = 0  # copies that waited for their causes
    held_ns: int = 0


@dataclass(slots=True)
class Played:
    domains: dict[str, Tally]
    messages: int
    copies: int  # of messages, at their final servers
    hops: int  # links that these have crossed, relays not counted

    @property
    def total(self) -> Tally:
        each = self.domains.values()
        return Tally(*(sum(getattr(tally, name) for tally in each) for name in Tally.__slots__))


def replay(topology: Topology, sends: Sequence[Send], delays: Delays | None = None, seed: int = 0) -> Played:
    """What this traffic costs on this topology, from new clocks on. Times of sends are moved to the start."""
    world = World(seed)
    links = Links(world, list(topology.servers), delays or Delays())
    watchers = {name: (Control(), Held()) for name in topology.domains}
    bus = Bus(world, topology, lambda domain: links, watchers.__getitem__)
    start = EPOCH - min((send.at for send in sends), default=EPOCH)
    play(bus, [send._replace(at=send.at + start) for send in sends])
    tallies = {
        name: Tally(control.packets, control.bytes, held.held, held.waited)
        for name, (control, held) in watchers.items()
    }
    return Played(tallies, len(sends), len(bus.delays), bus.hops())


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
