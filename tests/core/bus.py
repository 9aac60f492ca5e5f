"""A whole bus by hand: agent servers over memory stores, with every link and commit under the test's control."""

from __future__ import annotations

import itertools
from typing import Any

from mombroker.agents import program
from mombroker.broker.attach import attach
from mombroker.core import revision
from mombroker.core.batch import Batch
from mombroker.core.errors import NotYet, Switched
from mombroker.core.events import Admin, LinkDown, LinkFrames, LinkUp, PeerSwitched, Ready, TaskDone, Tick
from mombroker.core.hello import Hello
from mombroker.core.identity import identity
from mombroker.core.limits import Limits
from mombroker.core.server import AgentServer
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.store.memory import MemoryStore
from tests.core.sample_agents import Put

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def topology(
    domains: dict[str, str],
    agents: dict[str, str] | None = None,
    orderings: dict[str, tuple[str, dict[str, Any]]] | None = None,
    **more: Any,
) -> Topology:
    """`domains` maps a name to its servers, one letter each; `agents` maps server/name to a class path; `orderings` a
    domain to its back end and options, `matrix` if it is not named."""
    names = sorted({server for members in domains.values() for server in members}) or ["a"]
    return Topology(
        "test",
        servers={name: Server(name, "127.0.0.1", 1000 + at) for at, name in enumerate(names)},
        domains={
            name: Domain(name, tuple(members), *(orderings or {}).get(name, ("matrix", {})))
            for name, members in domains.items()
        },
        agents=[AgentDecl(id.partition("/")[2], id.partition("/")[0], path, {}) for id, path in (agents or {}).items()],
        registry=names[0],
        **more,
    )


def adopt(store: MemoryStore, topology: Topology, name: str) -> None:
    """What `mom topology adopt` writes for a server whose clocks go on."""
    number, _ = revision.in_force(store.meta())
    rows = revision.rows(number + 1, revision.text_of(topology), START, [])
    store.commit(Batch(meta={**rows, **identity(topology, name)}))


class Bus:
    """`pump` runs to a standstill; `cut` and `join` break and make links; `crash` loses what is not durable."""

    def __init__(self, topology: Topology, limits: Limits | None = None):
        self.topology, self.limits = topology, limits
        self.now = START
        self.program = program(topology)
        self.stores = {name: MemoryStore(topology, name, f"store of {name}") for name in topology.servers}
        self.servers: dict[str, AgentServer] = {}
        self.conns: dict[int, tuple[str, str, int]] = {}  # conn -> (owner, peer, the peer's conn)
        self.numbers = itertools.count(1)
        self.down: set[frozenset[str]] = set()
        self.again: dict[tuple[str, str], int] = {}  # dials to be tried again, and how often they were
        self.replies: dict[int, dict[str, Any] | str] = {}
        for name in topology.servers:
            self.boot(name)

    def boot(self, name: str) -> AgentServer:
        server = AgentServer(self.topology, name, self.stores[name], self.program, attach, self.now, self.limits)
        self.servers[name] = server
        return server

    def crash(self, name: str) -> None:
        """The process is gone; so is every batch that was not committed."""
        for conn, (owner, _, _) in list(self.conns.items()):
            if owner == name:
                self._close(conn)
        self.servers.pop(name)

    def _close(self, conn: int) -> None:
        owner, peer, other = self.conns.pop(conn)
        self.conns.pop(other, None)
        for name, far, number in ((owner, peer, conn), (peer, owner, other)):
            if name in self.servers:
                self.servers[name].step(LinkDown(far, number), self.now)

    def cut(self, a: str, b: str) -> None:
        self.down.add(frozenset((a, b)))
        for conn, (owner, peer, _) in list(self.conns.items()):
            if {owner, peer} == {a, b} and conn in self.conns:
                self._close(conn)

    def join(self, a: str, b: str) -> None:
        self.down.discard(frozenset((a, b)))
        self._dial(a, b)

    def _dial(self, a: str, b: str) -> None:
        if frozenset((a, b)) in self.down or not {a, b} <= set(self.servers):
            return
        if any({owner, peer} == {a, b} for owner, peer, _ in self.conns.values()):
            return
        one, two = next(self.numbers), next(self.numbers)
        try:
            hello_a, hello_b = self.servers[a].neighbours.greet(b), self.servers[b].neighbours.greet(a)
        except NotYet:
            self.again[a, b] = self.again.get((a, b), 0) + 1
            return
        if not (self._admits(a, hello_b) and self._admits(b, hello_a)):
            return
        self.conns[one], self.conns[two] = (a, b, two), (b, a, one)
        self.servers[a].step(LinkUp(b, one, hello_b), self.now)
        self.servers[b].step(LinkUp(a, two, hello_a), self.now)

    def _admits(self, name: str, hello: Hello) -> bool:
        try:
            self.servers[name].neighbours.admit(hello)
        except Switched:
            self.servers[name].step(PeerSwitched(hello.server), self.now)
        except NotYet:
            pass
        else:
            return True
        return False

    def commit(self, name: str) -> Ready:
        """One batch of one server, durable, its outputs not sent yet."""
        server = self.servers[name]
        server.turn(self.now)
        ready = server.ready(self.now)
        if not ready.batch.empty():
            self.stores[name].commit(ready.batch)
        return ready

    def release(self, name: str, ready: Ready) -> None:
        server = self.servers[name]
        for conn, frames in ready.frames:
            if conn in self.conns:
                _, peer, other = self.conns[conn]
                self.servers[peer].step(LinkFrames(name, other, frames), self.now)
        for conn in ready.hang_up:
            if conn in self.conns:
                self._close(conn)
        self.replies.update(ready.replies)
        for id, path, arguments in ready.tasks:
            try:
                server.step(TaskDone(id, self.program.run(path, arguments)), self.now)
            except Exception as error:
                server.step(TaskDone(id, None, str(error)), self.now)
        server.committed(ready, self.now)
        for peer in [*ready.meet, *ready.dial]:
            self._dial(name, peer)

    def pump(self, rounds: int = 500) -> None:
        for _ in range(rounds):
            busy = False
            for name in list(self.servers):
                server = self.servers[name]
                server.turn(self.now)
                if server.urgency or server.more:
                    busy = True
                    self.release(name, self.commit(name))
                server.check()
            for pair in [pair for pair, times in self.again.items() if times < 4] if not busy else ():
                busy = True
                self._dial(*pair)
                self.again[pair] += 1
            if not busy:
                self.again.clear()
                return
        raise AssertionError("the bus does not come to rest")

    def later(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        for server in self.servers.values():
            server.step(Tick(), self.now)
        self.pump()

    def ask(self, server: str, verb: str, /, **args: Any) -> Any:
        """An operator's request and its answer, with everything that it sets off."""
        ticket = next(self.numbers)
        self.servers[server].step(Admin(ticket, verb, args), self.now)
        self.pump()
        return self.replies.get(ticket)

    def send(self, server: str, to: str | list[str], note: Any) -> Any:
        cls = type(note)
        fields = {name: getattr(note, name) for name in cls.__wire_fields__}
        to = [to] if isinstance(to, str) else to
        return self.ask(server, "send", to=to, type=cls.__wire_name__, fields=fields)

    def fields(self, agent: str) -> dict[str, Any]:
        """An agent's state as its store has it."""
        row = self.stores[agent.partition("/")[0]].agent(agent)
        return self.program.describe(*row) if row else {}

    def records(self, server: str, *kinds: str) -> list[dict[str, Any]]:
        rows = [record._asdict() for _, record in self.stores[server].log(0, 1_000_000)]
        return [row for row in rows if not kinds or row["kind"] in kinds]


def everyone_hears(bus: Bus, text: str) -> None:
    """Each server, with a Sink of its name, tells all Sinks, and each of these has it once."""
    for server in bus.servers:
        bus.send(server, [f"{other}/{other}" for other in bus.servers], Put(f"{server} {text}"))
    bus.pump()
    for server, store in bus.stores.items():
        got = bus.fields(f"{server}/{server}")["got"]
        assert {f"{other} {text}" for other in bus.servers} <= set(got), server
        assert len(got) == len(set(got))
        store.check()
