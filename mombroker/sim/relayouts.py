"""Operators who change the domains of a simulated bus again and again, while it works under faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from mombroker.core import revision
from mombroker.core.changes import Kind, compare
from mombroker.core.errors import MomError
from mombroker.core.meta import CHANGE, DIGEST, MARK, PLAN
from mombroker.core.topology import Domain, Topology
from mombroker.sim.domains import draw_options, without_clashes
from mombroker.sim.node import Node
from mombroker.sim.world import SECOND, World

Members = dict[str, tuple[str, ...]]


class Around(Protocol):
    """What is known of the bus."""

    world: World
    nodes: dict[str, Node]

    def ask(self, server: str, verb: str, args: dict[str, Any]) -> None: ...
    def make_room(self) -> None: ...


class Relayouts:
    """Each change is worked out from the revision of the server that is asked, which may be an old one.

    asked   changes that were asked for
    """

    def __init__(self, around: Around, backends: Sequence[str]):
        self.around, self.world, self.backends = around, around.world, backends
        self.rng = Random(around.world.rng.getrandbits(32))
        self.asked = 0

    def schedule(self, span: int) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.world.after(int(self.rng.random() * span), self._ask)

    def settle(self) -> None:
        """The faults are over: two more changes. One is given up where links are so slow that not all answer in time,
        or a server is full."""
        self.around.make_room()
        self.world.after(80 * SECOND, self._ask)
        self.world.after(140 * SECOND, self._ask)

    def _ask(self) -> None:
        node = self.rng.choice(list(self.around.nodes.values()))
        if node.up and not node.stopping:
            truth = node.server.truth
            new = changed(self.rng, revision.read(truth.text), self.backends, truth.number, self.rng.random() < 0.2)
            self.asked += 1
            self.around.ask(node.name, "apply_topology", {"text": revision.text_of(new), "revision": truth.number})

    def left(self) -> set[str]:
        """Servers that have left the bus."""
        nodes = self.around.nodes
        newest = max(nodes.values(), key=lambda node: node.server.truth.number).server.truth
        return nodes.keys() - revision.read(newest.text).servers.keys()

    def counts(self) -> dict[str, int]:
        nodes = self.around.nodes.values()
        done = max(node.server.truth.number for node in nodes) - 1
        return {"relayouts_asked": self.asked, "relayouts": done, "servers_left": len(self.left())}

    def faults(self) -> list[str]:
        """At rest all servers are at one revision, and nothing is left of the changes, nor of the domains before."""
        gone, wrong = self.left(), []
        nodes = [node for node in self.around.nodes.values() if node.name not in gone]
        first = nodes[0].server.truth
        for node in nodes:
            server, disk, name = node.server, node.disk.store.disk, node.name
            truth, mine = server.truth, {domain.name for domain in server.topology.domains_of(name)}
            if (truth.number, truth.text) != (first.number, first.text):
                wrong.append(f"{name} is at revision {truth.number}, others at {first.number}")
            if server.change.plan is not None or server.coordinator.run is not None or len(server.channel.gate):
                wrong.append(f"{name} is still in {server.change.status()}, {server.coordinator.status()}")
            if left := [key for key in disk.meta if key.startswith((CHANGE, PLAN, MARK))]:
                wrong.append(f"{name} is left with {left}")
            if others := {key for key, rows in disk.core.items() if rows} - mine:
                wrong.append(f"{name} is left with clocks of {others}")
            if others := {row.domain for row in disk.links.values()} - mine:
                wrong.append(f"{name} is left with links in {others}")
            if {key.removeprefix(DIGEST) for key in disk.meta if key.startswith(DIGEST)} != mine:
                wrong.append(f"{name} has digests of other domains")
        return wrong


# -- what is changed -------------------------------------------------------------------------------------------------


def changed(rng: Random, topology: Topology, backends: Sequence[str], number: int, leave: bool = False) -> Topology:
    """Another valid topology, whose domains cannot change without a freeze. Its servers are the same, unless one may
    `leave`, which has no agents."""
    used = {topology.registry, *(agent.server for agent in topology.agents)}
    free = [name for name in topology.servers if name not in used]
    while True:
        members = rng.choice((_reforested, _reforested, _moved, _rerouted, _reordered))(rng, topology, number)
        domains, servers = {}, topology.servers
        if leave and free and rng.random() < 0.5:
            gone = rng.choice(free)
            servers = {name: server for name, server in servers.items() if name != gone}
            members = rng.choice((members, _members(topology)))
            members = {name: tuple(each for each in those if each != gone) for name, those in members.items()}
            members = {name: those for name, those in members.items() if len(those) > 1}
        for name, those in members.items():
            old = topology.domains.get(name)
            if old is not None and old.members == those and rng.random() < 0.9:
                domains[name] = old
            else:
                backend = rng.choice(backends)
                domains[name] = Domain(name, those, backend, draw_options(rng, backend, list(those)))
        try:
            domains = without_clashes(domains)
            new = replace(topology, servers=servers, domains=domains, secret_file="s", checked=True)
            if compare(topology, new).kind is Kind.FREEZE:
                return new
        except MomError:
            pass


def _members(topology: Topology) -> Members:
    return {name: domain.members for name, domain in topology.domains.items()}


def _reforested(rng: Random, topology: Topology, number: int) -> Members:
    """Some adjacent domains become others, over the same servers; names may stay."""
    members = _members(topology)
    chosen = [rng.choice(list(members))]
    for _ in range(rng.randint(0, 3)):
        inside = {server for name in chosen for server in members[name]}
        if near := [name for name in members if name not in chosen and inside & {*members[name]}]:
            chosen.append(rng.choice(near))
    servers = list(dict.fromkeys(server for name in chosen for server in members[name]))
    rng.shuffle(servers)
    for name in chosen:
        del members[name]
    names = rng.sample(chosen, len(chosen)) + [f"r{number}n{at}" for at in range(len(servers))]
    placed, left = servers[:1], servers[1:]
    while left:
        those = [rng.choice(placed), *left[: rng.choice((1, 2, 2, 3, 5))]]
        left = left[len(those) - 1 :]
        placed += those[1:]
        rng.shuffle(those)
        members[names.pop(0 if rng.random() < 0.5 else -1)] = tuple(those)
    return members


def _moved(rng: Random, topology: Topology, number: int) -> Members:
    """A server at an end goes to another domain, perhaps far away."""
    members = _members(topology)
    only = {server: topology.domains_of(server)[0] for server in topology.servers if server not in topology.routers}
    if ends := [server for server, domain in only.items() if len(domain.members) > 2]:
        server = rng.choice(ends)
        home, to = only[server].name, rng.choice(list(members))
        members[home] = tuple(each for each in members[home] if each != server)
        members[to] = (*members[to], server) if server not in members[to] else members[to]
    return members


def _rerouted(rng: Random, topology: Topology, number: int) -> Members:
    """Another member of a domain becomes the router to the next one."""
    members = _members(topology)
    if topology.routers:
        router = rng.choice(topology.routers)
        one, other = rng.sample([domain.name for domain in topology.domains_of(router)], 2)
        instead = rng.choice(members[one])
        members[other] = tuple(instead if each == router else each for each in members[other])
    return members


def _reordered(rng: Random, topology: Topology, number: int) -> Members:
    """One or two domains get other back ends, or list their members otherwise."""
    members = _members(topology)
    for name in rng.sample(list(members), min(len(members), rng.randint(1, 2))):
        members[name] = tuple(rng.sample(members[name], len(members[name])))
    return members
