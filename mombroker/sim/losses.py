"""Servers of a simulated bus that die with their disks, and operators who declare them lost and start others in their
place, while all works under faults; some die in the middle of a change of the domains."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterator
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from mombroker import ordering
from mombroker.core import lost_inside, newcomers, revision, undelivered
from mombroker.core.gate import GATE
from mombroker.core.ids import identity
from mombroker.core.message import Message, decode
from mombroker.core.meta import EPOCH, JOINING, LOSS, NEXT
from mombroker.core.passage import AGENT, PAGE, waiting
from mombroker.core.reconfiguration import ASKED
from mombroker.core.topology import Topology
from mombroker.sim.joins import invited
from mombroker.sim.network import Network
from mombroker.sim.node import Node
from mombroker.sim.world import MS, SECOND, World
from mombroker.store.memory import MemoryStore

EVERY = 20 * MS  # an operator tries again
ALL = 1 << 40
PATIENCE = 10  # looks for an answer
MessageId = tuple[str, int]


class Around(Protocol):
    """What is known of the bus."""

    world: World
    topology: Topology
    nodes: dict[str, Node]
    network: Network
    tickets: int

    def ask(self, server: str, verb: str, args: dict[str, Any]) -> None: ...
    def make_room(self) -> None: ...


class Losses:
    """ghosts    servers whose disks are gone
    dead      the last ones that were lost together, and `epoch`, that their domains begin under
    waiting   lost servers in whose place nobody has begun
    behind    those that can be declared lost only by another lost one's successor, under the next epoch in all domains
    removes   nobody is to begin in their places, where that can be; and so many were `taken_out`
    carried_out, given_up   changes that the lost ones held up
    rather    says who dies rather than others, as soon as there is somebody
    """

    def __init__(self, around: Around):
        self.around, self.world = around, around.world
        self.rng = Random(around.world.rng.getrandbits(32))
        self.ghosts: list[Node] = []
        self.dead: list[str] = []
        self.epoch = 0
        self.waiting: list[str] = []
        self.behind: set[str] = set()
        self.late: set[str] = set()  # of these, those whose place is free for a while
        self._then: list[tuple[MessageId, str]] = []  # what they had when they died first
        self.removes = False
        self.rather: Callable[[], Container[str]] | None = None
        self.came_back = self.carried_out = self.given_up = self.taken_out = 0

    def schedule(self, span: int, changing: bool) -> None:
        """With `changing` the domains change meanwhile, and most are lost in the middle of that."""
        self.end = self.world.now + span
        self.changing, self.inside = changing, changing and self.rng.random() < 0.8
        self.world.after(int(self.rng.random() * span / (2 if self.inside else 1)), self._lose)

    @property
    def topology(self) -> Topology:
        """The one of the newest revision that is durable anywhere."""
        metas = [node.disk.store.meta() for node in self.around.nodes.values() if not node.gone]
        number, text = max(revision.in_force(meta) for meta in metas)
        return revision.read(text) if number else self.around.topology

    def _lose(self) -> None:
        """One or two servers die, with their disks."""
        nodes, registry = self.around.nodes, self.around.topology.registry
        known = self.topology.servers
        free = [name for name in known if name != registry and nodes[name].up and not nodes[name].stopping]
        if self.inside and self.world.now < self.end:
            plans = [node.server.change.plan for node in nodes.values() if node.up]
            begun = {name for plan in plans if plan is not None and plan.phase != ASKED for name in plan.inside}
            free = [name for name in free if name in begun]
            if not free or self.rng.random() < 0.5:  # else always at its first moment
                self.world.after(self.world.about(MS), self._lose)
                return
        if self.rather is not None and self.world.now < self.end:
            those = self.rather()
            free = [name for name in free if name in those]
            if not free or self.rng.random() < 0.5:
                self.world.after(self.world.about(MS), self._lose)
                return
        if self.waiting or not free:
            return
        self.dead = self.rng.sample(free, min(len(free), self.rng.choice((1, 1, 1, 2))))
        for name in self.dead:
            node = nodes[name]
            node.crash()
            node.gone = True
            self.ghosts.append(node)
            self._then += self._had(node)
            self.waiting.append(name)
            if self.rng.random() < 0.3:
                self.late.add(name)
        self.world.after(int(self.rng.random() * 100 * MS), self._work, self._in_change())

    def _in_change(self) -> Iterator[None]:
        """What a change needs that they hold up; goes on at each look."""
        steps = lost_inside.carry_out(self.around.topology.registry or "", self.dead)
        answer: dict[str, Any] | None = None
        while self.changing:
            try:
                server, verb, args = steps.send(answer)
            except StopIteration as end:
                self.carried_out += end.value[1] == lost_inside.CARRIED_OUT
                self.given_up += end.value[1] == lost_inside.GIVEN_UP
                return
            answer = yield from self._answer(server, verb, args)

    def _answer(self, server: str, verb: str, args: dict[str, Any]) -> Generator[None, None, dict[str, Any] | None]:
        node, before = self.around.nodes[server], self.around.tickets
        self.around.ask(server, verb, args)
        ticket = self.around.tickets
        for _ in range(PATIENCE if ticket > before else 1):
            yield
            for number, reply in node.replies:
                if number == ticket:
                    return reply if isinstance(reply, dict) else None
        return None

    def _work(self, steps: Iterator[None]) -> None:
        for _ in steps:
            self.world.after(self.world.about(2 * MS), self._work, steps)
            return
        known = self.topology.servers
        self.dead = [name for name in self.dead if name in known]  # the change has taken the others out
        self.waiting = [name for name in self.waiting if name in known]
        self.epoch = 1 + max(
            (self._epoch(name, domain) for name in known for dead in self.dead for domain in self._domains(dead)),
            default=0,
        )
        self.behind = set()
        self._declare()

    def _domains(self, server: str) -> list[str]:
        return [domain.name for domain in self.topology.domains_of(server)]

    def _epoch(self, server: str, domain: str) -> int:
        return int(self.around.nodes[server].disk.store.meta().get(EPOCH + domain, 0))

    def _declare(self) -> None:
        """As often as it takes; and whoever comes back with its old disk meanwhile is refused."""
        nodes, done = self.around.nodes, True
        for domain in self.topology.domains.values():
            lost = [name for name in domain.members if name in self.dead]
            left = [name for name in domain.members if name not in self.dead]
            if lost and not left:  # whoever comes first has lost the others
                done = done and not self._orphaned(domain.name, lost)
            epoch = self.epoch + (not self.behind.isdisjoint(lost))
            if lost and any(self._epoch(name, domain.name) < epoch for name in left):
                done = False
                up = [name for name in left if nodes[name].up and not nodes[name].stopping]
                if up and self.rng.random() < 0.5:
                    args = {"domain": domain.name, "servers": lost, "epoch": epoch}
                    self.around.ask(self.rng.choice(up), "lose", args)
        if self.changing and self._held_up():
            self._work(self._in_change())  # the operator asks for all of it again
            return
        there = self.topology.servers
        self.taken_out += sum(name not in there for name in self.waiting)
        self.waiting = [name for name in self.waiting if name in there]
        without = _without(self.topology, self.waiting) if self.removes and self.waiting else None
        if without is None:
            self._start(done)
        elif done:
            self._take_out(without)
        for name in self.waiting:
            if self.rng.random() < 0.25:
                self._haunt(nodes[name])
        if self.waiting or not done:
            self.world.after(EVERY, self._declare)

    def _held_up(self) -> bool:
        """One that came back with its old disk has let a change begin, and is gone again."""
        registry = self.around.nodes[self.around.topology.registry or ""]
        run = registry.server.coordinator.run if registry.up else None
        inside = {} if run is None or run.phase == ASKED else {*run.inside}
        return any(name in inside and self.around.nodes[name].gone for name in self.waiting)

    def _haunt(self, ghost: Node) -> None:
        """It comes back with its old disk, for a moment."""
        if ghost.gone:
            self.came_back += 1
            ghost.gone = False
            ghost.boot()
            self.world.after(self.world.about(40 * MS), self._lay, ghost)

    def _lay(self, ghost: Node) -> None:
        if ghost.up:
            ghost.crash()
        ghost.gone = True

    def _orphaned(self, domain: str, lost: list[str]) -> bool:
        """All members of a domain are lost, and some have no place yet."""
        here = [name for name in lost if name not in self.waiting]
        missing = [name for name in lost if name in self.waiting]
        if here and missing:
            known = self.around.nodes[here[0]].server.lost
            missing = [name for name in missing if known.fenced(name) <= self.epoch or not known.decided(name)]
        if here:
            self.behind |= {*missing}
        if here and missing and self.around.nodes[here[0]].up:
            args = {"domain": domain, "servers": missing, "epoch": self.epoch + 1}
            self.around.ask(here[0], "lose", args)
        return bool(missing)

    def _start(self, done: bool) -> None:
        """Another one in the place of each that the others know to be lost."""
        for name in [name for name in self.waiting if self.around.nodes[name].gone]:
            for node in list(self.around.nodes.values()):
                meta = node.disk.store.meta()
                if (
                    name not in self.late
                    and f"{JOINING}{name}" in meta
                    and invited(meta, name).get("epoch", 0) >= self.epoch
                ):
                    self.waiting.remove(name)
                    invitation = invited(meta, name)
                    node = self.around.nodes[name] = successor(self.around, self.around.nodes[name], invitation)
                    node.boot()
                    break
        if done and self.rng.random() < 0.2:
            self.late.clear()

    def _take_out(self, without: Topology) -> None:
        """Nobody in their places: the bus goes by a topology without them, once the registry has begun anew."""
        node = self.around.nodes[self.around.topology.registry or ""]
        if node.up and not node.server.losses.losses and all(node.server.lost.decided(name) for name in self.waiting):
            args = {"text": revision.text_of(without), "revision": node.server.truth.number, "lost": self.waiting}
            self.around.ask(node.name, "apply_topology", args)

    def settle(self) -> None:
        """The faults are over: every place is taken."""
        self.late.clear()
        self.around.make_room()
        for _ in range(100):
            if not self.waiting:
                break
            self.world.run(self.world.now + SECOND)
        self.world.run(self.world.now + 20 * SECOND)

    # -- what is told of it ------------------------------------------------------------------------------------------

    def had(self) -> Iterator[tuple[MessageId, str]]:
        """What only the lost disks had, as copies for an agent each."""
        yield from self._then
        for ghost in self.ghosts:
            yield from self._had(ghost)

    def _had(self, ghost: Node) -> Iterator[tuple[MessageId, str]]:
        store, channel = ghost.disk.store, ghost.server.channel
        for row in store.disk.queue_in.values():
            yield _copy(row.data, row.agent)
            yield from _handed_over(decode(row.data))
        for entry in store.disk.items.values():
            if entry.agent.endswith(f"/{GATE}"):
                yield from _copies(decode(entry.body))
            elif entry.agent.endswith(f"/{AGENT}") and not entry.collection.startswith("rest "):
                yield _copy(entry.body, entry.collection)
        for part in channel.domains.values():
            core = channel.core(part.domain, store.core(part.name), channel.neighbours.epochs[part.name])
            for packet, _ in [*core.held(), *core.parked()]:
                yield from _copies(decode(packet.body))
            for link in part.links.values():
                link.durable = ALL
                for _, packet in undelivered.page(part, link, 0, ALL):
                    if packet.body:
                        yield from _copies(decode(packet.body))

    def counts(self) -> dict[str, int]:
        dead = [record for node in self.around.nodes.values() for record in node.trace if record.kind == "dead"]
        told = [record for record in dead if "which is lost" in record.detail]
        return {
            "losses": len(self.ghosts), "taken_out": self.taken_out, "told": len(told),
            "in_change": self.carried_out, "given_up": self.given_up,
            "came_back": self.came_back, "told_unknown": sum("unknown" in record.detail for record in told),
        }  # fmt: skip

    def faults(self) -> list[str]:
        """At rest each place is taken, and nothing is left of the losses."""
        wrong = [f"nobody is in the place of {self.waiting}"] if self.waiting else []
        for node in [node for node in self.around.nodes.values() if node not in self.ghosts]:
            meta = node.disk.store.meta()
            if left := [key for key in meta if key.startswith((LOSS, JOINING))]:
                wrong.append(f"{node.name} is left with {[f'{key} {meta[key]}' for key in left]}")
            if len(node.server.channel.gate):
                wrong.append(f"{node.name} has something at its gate")
            if node.server.newcomers.unmet:
                wrong.append(f"{node.server.newcomers.unmet} do not know {node.name}")
        return wrong


def successor(cluster: Any, former: Node, invitation: dict[str, Any]) -> Node:
    """A server in the place of a lost one, of the same kind."""
    kind = type(former)
    mixed = kind if issubclass(kind, Successor) else type(f"{kind.__name__}Again", (Successor, kind), {})
    made: Node = mixed(cluster, former, invitation)
    return made


class Successor(Node):
    """What is different with its store."""

    def __init__(self, cluster: Any, former: Node, invitation: dict[str, Any]):
        after = int(former.disk.store.meta().get(NEXT, 0)) + 1_000_000
        self.invitation = {**invitation, "now": after * 1000}
        super().__init__(cluster, former.name, cluster.world.about(cluster.faults.commit) + MS // 20)
        self.epoch = former.epoch  # what is on its way to that does not come here

    def new_store(self, number: int) -> MemoryStore:
        topology, rows = newcomers.rows(self.name, self.invitation)
        made = MemoryStore(topology, self.name, f"{self.name}.again{self.cluster.world.now}.{number}")
        made.disk.meta.update(rows)
        return made


def _without(topology: Topology, lost: list[str]) -> Topology | None:
    """The same with nobody in the places of those that are lost; None if the others need somebody there."""
    its = [domain for name in lost for domain in topology.domains_of(name)]
    if any(len(topology.domains_of(name)) > 1 for name in lost):
        return None
    if any(len(domain.members) > 2 and ordering.backend(domain.backend).relays for domain in its):
        return None
    domains = {}
    for domain in topology.domains.values():
        members = tuple(member for member in domain.members if member not in lost)
        if len(members) > 1:
            plain = domain if len(members) > 2 else replace(domain, backend="", options={})
            domains[domain.name] = replace(plain, members=members)
    servers = {name: server for name, server in topology.servers.items() if name not in lost}
    agents = [agent for agent in topology.agents if agent.server not in lost]
    return replace(topology, servers=servers, domains=domains, agents=agents, checked=True)


def _copy(data: bytes, agent: str) -> tuple[MessageId, str]:
    message = decode(data)
    return (message.origin, message.number), agent


def _copies(message: Message) -> Iterator[tuple[MessageId, str]]:
    for agent in message.dests:
        yield (message.origin, message.number), agent
    yield from _handed_over(message)


def _handed_over(message: Message) -> Iterator[tuple[MessageId, str]]:
    """What waited for an agent that has moved."""
    if message.type == PAGE:
        for each in waiting(message):
            yield from ((id, identity(agent)) for id, agent in _copies(each))
