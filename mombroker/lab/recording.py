"""A bus under virtual time whose servers leave real stores behind: traffic to analyse, and the truth about it.

`record` makes a data folder for each server, as if they had run and been stopped (examples/cost_analysis does it from
the command line). What is counted beside, in `Truth`, is seen from outside of the servers: at the wire, at the disk,
and in the agents.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from mombroker.agents import Agent, notification, reacts
from mombroker.core import layouts
from mombroker.core.batch import LINK_BITS, Batch
from mombroker.core.engine import Engine
from mombroker.core.events import Ready
from mombroker.core.message import Message, ident
from mombroker.core.meta import INCARNATION
from mombroker.core.topology import AgentDecl, Domain, Topology
from mombroker.lab.bus_workloads import Send
from mombroker.lab.communities import Traffic
from mombroker.ordering import Ordering, Packet, Step
from mombroker.ordering.base import Rows
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.faults import Faults
from mombroker.sim.mischief import Trial
from mombroker.sim.node import Node, Watched, WatchedChannel
from mombroker.sim.world import EPOCH, MS, SECOND, World
from mombroker.store.sqlite import SqliteStore

MIXED = ("matrix", "ks", "vector", "rst", "daisy", "overlay")  # back ends of the domains, in turn
LISTENER = "listener"
READY = 100 * MS  # until all servers have started
LAST = (1 << LINK_BITS) - 1
NEVER = 1 << 63  # the size of the store is not asked for: it has no limit here

Hop = tuple[str, str, str]  # domain, from, to
Id = tuple[str, int]


@dataclass(slots=True)
class Passage:
    """One packet over one link, as seen from outside, in ns."""

    stamped: int
    durable: int = 0  # its commit was, from when on it could leave
    arrived: int = 0
    ordered: int = 0  # its causes were there; 0: it was passed on, or came twice
    id: Id = ("", 0)
    control: int = 0  # bytes


@dataclass(slots=True)
class Truth:
    messages: int = 0
    payload: int = 0
    passages: dict[Hop, list[Passage]] = field(default_factory=lambda: defaultdict(list))
    heard: dict[tuple[str, Id], tuple[int, int]] = field(default_factory=dict)  # (agent, message) -> handed over, heard
    commits: dict[str, int] = field(default_factory=dict)

    def domains(self) -> dict[str, dict[str, int]]:
        """Packets and control bytes of each domain."""
        found: dict[str, dict[str, int]] = {}
        for (domain, _, _), each in self.passages.items():
            row = found.setdefault(domain, {"packets": 0, "control_bytes": 0})
            row["packets"] += len(each)
            row["control_bytes"] += sum(passage.control for passage in each)
        return found


@notification(name="sim.said")
class Said:
    """Something, of any length."""

    text: str


class Listener(Agent):
    """Hears, and does nothing about it."""

    truth: ClassVar[Truth]
    world: ClassVar[World]

    @reacts
    def said(self, note: Said) -> None:
        origin, _, number = self.message_id.partition("#")
        key = self.id, (origin, int(number))
        self.truth.heard[key] = (self.truth.heard[key][0], self.world.now)


class Spoken(Workload):
    """A listener on each server, and messages to it, from outside, at given times."""

    def __init__(self, sends: Sequence[Send]):
        self.sends = sends

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        return [AgentDecl(f"{LISTENER}-{server}", server, f"{__name__}:Listener") for server in servers]

    def begin(self, cluster: Cluster, span: int) -> None:
        for send in self.sends:
            cluster.world.after(send.at - cluster.world.now + READY, self._say, cluster, send)

    def _say(self, cluster: Cluster, send: Send) -> None:
        to = [f"{dest}/{LISTENER}-{dest}" for dest in send.dests]
        cluster.ask(send.origin, "send", {"to": to, "type": "sim.said", "fields": {"text": "x" * send.payload}})


class SeenChannel(WatchedChannel):
    """Its cores tell when they stamp, are given, and let go a packet."""

    truth: ClassVar[Truth]

    def core(self, domain: Domain, rows: Rows, epoch: int) -> Ordering:
        core: Any = super().core(domain, rows, epoch)
        watch = _Watch(self, domain, core)
        core.send, core.decode, core.receive = watch.send, watch.decode, watch.receive
        return core  # type: ignore[no-any-return]

    def send(self, message: Message) -> None:
        self.truth.messages += 1
        self.truth.payload += len(message.payload)
        super().send(message)


class Seen(Watched):
    def check(self) -> None:
        """Not here: a calm run of many messages is to be quick, and runs with faults are checked."""


class _Watch:
    """One member's core. Links keep order: the nth packet that was stamped for a neighbour is the nth to arrive."""

    def __init__(self, channel: SeenChannel, domain: Domain, core: Ordering):
        self.tx, self.domain, self.truth = channel.tx, domain, channel.truth
        self._send, self._decode, self._receive = core.send, core.decode, core.receive
        self.came: dict[int, int] = defaultdict(int)
        self.passages: dict[Packet, Passage] = {}

    def _stamped(self, packets: Sequence[Packet]) -> None:
        name, members, now = self.domain.name, self.domain.members, self.tx.now
        for packet in packets:
            self.truth.passages[name, self.tx.name, members[packet.to]].append(Passage(now))

    def send(self, dests: Any, body: bytes) -> list[Packet]:
        packets = self._send(dests, body)
        self._stamped(packets)
        return packets

    def decode(self, frm: int, data: bytes) -> Packet:
        packet = self._decode(frm, data)
        hop = self.domain.name, self.domain.members[frm], self.tx.name
        passage = self.truth.passages[hop][self.came[frm]]
        self.came[frm] += 1
        passage.arrived, passage.control = self.tx.now, len(data) - len(packet.body)
        passage.id = ident(packet.body) if packet.body else ("", 0)
        self.passages[packet] = passage
        return packet

    def receive(self, frm: int, packet: Packet) -> Step:
        step = self._receive(frm, packet)
        self._stamped(step.send)
        for done in step.deliver:
            self.passages[done].ordered = self.tx.now
        if packet in step.deliver or self.domain.index(self.tx.name) not in packet.dests:
            self.passages.pop(packet)
        for done in step.deliver:
            self.passages.pop(done, None)
        return step


class Recorder(Node):
    """Keeps all that becomes durable in a SQLite store, too."""

    machine = Seen
    folder: ClassVar[Path]
    truth: ClassVar[Truth]

    def __init__(self, cluster: Cluster, name: str, mean_commit: int):
        super().__init__(cluster, name, mean_commit)
        self.kept = SqliteStore(self.folder / name, cluster.topology, name)
        self.kept.db.conn.execute("PRAGMA synchronous = OFF")  # a copy, which can be made again

    def _durable(self, batch: Batch) -> None:
        self.kept.commit(batch)

    def boot(self) -> None:
        super().boot()
        self.sized_at = NEVER
        engine: Engine = self.server.engine
        hand_over = engine.deliver

        def deliver(message: Message, agents: list[str], *where: Any, **when: Any) -> None:
            if message.type == "sim.said":
                for agent in agents:
                    self.truth.heard[agent, (message.origin, message.number)] = (self.world.now, 0)
            hand_over(message, agents, *where, **when)

        engine.deliver = deliver  # type: ignore[method-assign]

    def _leave(self, ready: Ready) -> None:
        hops = {
            link.id: (link.domain, self.name, link.peer)
            for c in self.server.channel.domains.values()
            for link in c.links.values()
        }
        for key, _ in ready.batch.queue_out:
            self.truth.passages[hops[key >> LINK_BITS]][(key & LAST) - 1].durable = self.world.now
        super()._leave(ready)


def record(
    topology: Topology, sends: Sequence[Send], folder: Path, faults: Faults | None = None, seed: int = 0
) -> Truth:
    """Let a bus of this topology carry these messages, in a calm world; its stores are in `folder`."""
    truth, world, workload = Truth(), World(seed), Spoken(sends)
    topology.agents = workload.agents(list(topology.servers), world.rng)
    for server in topology.servers.values():
        server.data = str(folder / server.name)
    Listener.truth, Listener.world = truth, world
    transport = type("Transport", (SeenChannel,), {"truth": truth})
    machine = type("Machine", (Seen,), {"transport": transport})
    node = type("Recording", (Recorder,), {"folder": folder, "truth": truth, "machine": machine})
    cluster = Trial(world, topology, faults or Faults(), workload, node)
    wrong = cluster.run(max(send.at for send in sends) - world.now + 1000 * MS)
    assert not wrong, wrong
    for name, each in cluster.nodes.items():
        each.stop()
        truth.commits[name] = each.disk.commits
    world.run()
    kept: dict[str, SqliteStore] = {name: each.kept for name, each in cluster.nodes.items()}  # type: ignore[attr-defined]
    made = {name: str(store.meta()[INCARNATION]) for name, store in kept.items()}
    for store in kept.values():  # as under virtual time, each has met its neighbours' stores, but by other names
        met = [row._replace(incarnation=made[row.peer]) for row in store.links() if row.incarnation]
        store.commit(Batch(links={row.id: row for row in met}))
    for store in kept.values():
        store.close()
    return truth


def mixed(traffic: Traffic, backends: Sequence[str] = MIXED) -> Topology:
    """The √n bus of its servers, each domain under another back end."""
    topology = layouts.build(layouts.bus(traffic.servers), name="recorded", servers=traffic.servers)
    large = [domain for domain in topology.domains.values() if len(domain.members) > 2]
    for at, domain in enumerate(large):
        topology.domains[domain.name] = Domain(domain.name, domain.members, backends[at % len(backends)])
    return Topology(topology.name, topology.servers, topology.domains, registry=topology.registry)


def paced(sends: Sequence[Send], rate: int) -> list[Send]:
    """The same messages, so many a second."""
    span = sends[-1].at - EPOCH
    return [send._replace(at=EPOCH + (send.at - EPOCH) * len(sends) * SECOND // (rate * span)) for send in sends]
