"""A bus in the memory of a test: the servers of production, in virtual time, on disks and links that fail on demand.

    from mombroker.agents.testing import Bus

    def test_greets():
        bus = Bus({"lyon/greeter": Greeter})
        bus.send("greeter", Hello("Ada"))
        bus.settle()
        assert bus.state("greeter")["greeted"] == 1
        bus.check()

Nothing waits for a clock, and the same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from mombroker.agents import notifications as notes
from mombroker.agents.agent import Agent, path_of
from mombroker.agents.messages import Delivered, encoded
from mombroker.broker import destinations, properties
from mombroker.broker.commands import Ask, Delivery, Disposition, Receipt, Refused, Send, Subscribe
from mombroker.broker.protocol import FAILURES
from mombroker.core import times
from mombroker.core.causality import check
from mombroker.core.destinations import Incoming
from mombroker.core.errors import MomError
from mombroker.core.events import ClientCommands, ClientOpened, Ready
from mombroker.core.ids import declared_id
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.sim.checkers import Fates, agent_events, server_events
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.faults import POINTS, Faults
from mombroker.sim.node import Around, Node
from mombroker.sim.world import MS, SECOND, World

LONGEST = 3_600.0  # virtual seconds until a bus must have come to rest
STEP = 100 * MS


class Received(Delivered):
    """A message as a client got it; its `destination` is that which its sender wrote."""


class _Fields(dict[str, Any]):
    """The fields of an agent, which say where all else is that a class has."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"there is no field {name}: collections (Items, Table) come by `show(agent)`")


class _Declared(Workload):
    def __init__(self, agents: list[AgentDecl]):
        self.declared = agents

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        return self.declared


class _Node(Node):
    """A server that tells clients what they are told."""

    def __init__(self, cluster: Around, name: str, mean_commit: int):
        super().__init__(cluster, name, mean_commit)
        self.told: dict[int, list[Any]] = {}  # what clients have been told, by connection

    def _leave(self, ready: Ready) -> None:
        epoch = self.epoch
        super()._leave(ready)
        if self.up and self.epoch == epoch:
            for conn, replies in ready.clients:
                self.told.setdefault(conn, []).extend(replies)


class Bus:
    """Servers, agents, and clients of one bus. Raises MomError for what production would refuse, too.

    agents     classes by `server/name`, or (class, {field: first value}); the classes are of modules
    servers    more of them, that have none of these agents
    domains    names of servers by domain; without, all are in one
    ordering   of the domains, as in a topology file
    policies   of destinations, as in a topology file
    seed       draws delays, and what fails
    crashes    so many times a server dies at a moment that is drawn, and starts again; `breaks` of connections
    """

    def __init__(
        self,
        agents: Mapping[str, type[Agent] | tuple[type[Agent], Mapping[str, Any]]],
        *,
        servers: Iterable[str] = (),
        domains: Mapping[str, Iterable[str]] | None = None,
        ordering: str = "matrix",
        policies: Iterable[Mapping[str, Any]] = (),
        seed: int = 0,
        crashes: int = 0,
        breaks: int = 0,
    ):
        declared = [_declared(where, what) for where, what in agents.items()]
        names = list(dict.fromkeys([*(each.server for each in declared), *servers]))
        if not names:
            raise MomError("a bus has at least one server: name an agent as 'lyon/greeter', or give servers")
        wanted = domains or ({"bus": names} if len(names) > 1 else {})
        topology = Topology(
            name="test",
            servers={name: Server(name, "127.0.0.1", 20_000 + at, None, name) for at, name in enumerate(names)},
            domains={name: Domain(name, tuple(members), ordering, {}) for name, members in wanted.items()},
            agents=declared, registry=names[0], policies=[dict(each) for each in policies],
            limits={"trying_boots": 1_000},  # a server that dies here does so by the test's will, and by no message's
            allow=tuple({each.cls.partition(":")[0].partition(".")[0] for each in declared}),
        )  # fmt: skip
        self.world = World(seed)
        faults = Faults(points=dict.fromkeys(POINTS, 0.05) if crashes else {}, crashes=crashes, breaks=breaks)
        self._cluster = Cluster(self.world, topology, faults, _Declared(declared), _Node)
        self._cluster.faulty = crashes > 0
        self._homes = {each.name: each.server for each in declared}
        self._clients: dict[str, tuple[int, int]] = {}  # connection and epoch of its server, by server
        self._inboxes: dict[str, tuple[str, list[Received]]] = {}  # server and messages, by destination
        self._conns = 0
        self._stopped: set[str] = set()  # servers that are down until the test starts them
        for node in self._cluster.nodes.values():
            node.boot()
        for number in range(breaks):
            self.world.after(number * SECOND + self.world.about(SECOND), self._break)
        self.settle()

    # -- time and faults -----------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Wall-clock ns of the bus."""
        return self.world.now

    def advance(self, seconds: float) -> None:
        """Let time pass: timers ring, what was delayed is delivered."""
        self.world.run(self.world.now + times.of_seconds(seconds))

    def settle(self, most: float = LONGEST) -> None:
        """Run until nothing is left to do but what waits for a later time. Raises AssertionError if that takes longer
        than `most` virtual seconds, and says what is left."""
        self._run(self._left, most)

    def _rest(self) -> None:
        """The same, but for what the test itself has stopped: servers that are down until it starts them, and links
        that it has cut. So clients go on meanwhile."""
        self._run(lambda: self._left(stopped=False), LONGEST)

    def _run(self, left_of: Callable[[], list[str]], most: float) -> None:
        until = self.world.now + times.of_seconds(most)
        while True:
            self.world.run(self.world.now + STEP)
            left = left_of()
            if not left:
                return
            assert self.world.now < until, f"after {most:g} virtual seconds {', '.join(left[:5])}"

    def kill(self, server: str, down: float = 0.05) -> None:
        """kill -9; it starts again after `down` seconds, unless that is infinite: then by `start`."""
        node = self._node(server)
        if node.up:
            node.crash()
        if down == float("inf"):
            self._stopped.add(server)
        else:
            self.world.after(times.of_seconds(down), node.boot)

    def start(self, server: str) -> None:
        self._node(server).boot()
        self._stopped.discard(server)

    def cut(self, one: str, other: str) -> None:
        """The connection between two servers is gone, until `heal`."""
        self._cluster.network.cut(one, other)

    def heal(self, one: str, other: str) -> None:
        self._cluster.network.heal_all(one, other)

    def _break(self) -> None:
        if conns := list(self._cluster.network.connections.values()):
            self._cluster.network.break_(self.world.rng.choice(conns))

    def _left(self, stopped: bool = True) -> list[str]:
        """What there is to do; what the test has stopped too, or not."""
        found, cuts, nodes = [], self._cluster.network.cuts, self._cluster.nodes
        away = {name for name in self._stopped if not nodes[name].up}
        for name, node in nodes.items():
            if name in away and not stopped:
                continue
            if not node.up:
                found.append(f"{name} is down")
                continue
            server = node.server
            server.tx.notes.clear()  # lines for an operator, which nobody reads here
            if server.busy or node.flying is not None:
                found.append(f"{name} is at work")
            found += [f"{box.agent} is to try again" for box in server.engine.inboxes.boxes.values() if box.until]
            for part in server.channel.domains.values():
                for peer in [link.peer for link in part.links.values() if link.waiting()]:
                    if stopped or not (peer in away or cuts.get((min(name, peer), max(name, peer)))):
                        found.append(f"{name} has something for {peer}")
        return found

    # -- agents --------------------------------------------------------------------------------------------------

    def send(self, to: str | Iterable[str], note: Any, *, server: str = "") -> None:
        """Send a notification to agents, as `mom agent send` does; it is durable at the return. Raises MomError for a
        refusal, and if there was no answer: then nobody knows whether it was sent."""
        wire, payload = notes.encode(note)
        fields = dict(zip(note.__wire_fields__, notes.unpack(payload), strict=True))
        self.ask("send", server=server, to=[to] if isinstance(to, str) else list(to), type=wire, fields=fields)

    def ask(self, verb: str, *, server: str = "", **arguments: Any) -> Any:
        """What an operator may ask a server, by the names in docs/tables.md. Raises MomError for a refusal, and if no
        answer comes, as of a server that dies meanwhile: what was asked may be done all the same."""
        node = self._node(server or next(iter(self._cluster.nodes)))
        if not node.up:
            raise MomError(f"{node.name} is down: start it, or ask another server")
        self._cluster.ask(node.name, verb, arguments)
        ticket = self._cluster.tickets
        for _ in range(100):
            for number, answer in node.replies:
                if number == ticket:
                    if isinstance(answer, str):
                        raise MomError(answer)
                    return answer
            self.world.run(self.world.now + 10 * MS)
        raise MomError(f"{node.name} gave no answer to {verb}: it may be done all the same")

    def state(self, agent: str) -> dict[str, Any]:
        """The fields of an agent, by name or id, as they are on disk. Its collections come by `show`."""
        return _Fields(self._cluster.state(self._id(agent)))

    def show(self, agent: str) -> dict[str, Any]:
        """What `mom agent show` has: fields, collections and tables, what it consumes."""
        id = self._id(agent)
        shown: dict[str, Any] = self.ask("agent", server=id.partition("/")[0], agent=id)
        return shown

    def deadletters(self) -> list[dict[str, Any]]:
        """The dead letters of agents, of all servers. Those of queues are in queues: receive("/queue/DLQ.NAME")."""
        found = (self.ask("deadletters", server=name)["letters"] for name in self._cluster.nodes)
        return [letter for letters in found for letter in letters]

    def _id(self, agent: str) -> str:
        if "/" in agent:
            return agent
        if agent in self._homes:
            return declared_id(self._homes[agent], agent)
        node = next(node for node in self._cluster.nodes.values() if node.up)
        return node.server.names.resolve(agent)

    # -- clients -------------------------------------------------------------------------------------------------

    def put(self, queue: str, body: Any, *, server: str = "", **options: Any) -> None:
        """A client of a server sends to a queue; body and options are those of `Agent.put`. Raises MomError."""
        self._send(destinations.one(queue, "queue:"), queue, body, server, options)

    def publish(self, topic: str, body: Any, *, server: str = "", **options: Any) -> None:
        """The same to a topic."""
        self._send(destinations.one(topic, "topic:"), topic, body, server, options)

    def receive(self, destination: str, *, server: str = "") -> list[Received]:
        """What a client gets of a queue or topics, since it asked last. The first call subscribes: for a topic, before
        anything is published that is to be seen."""
        if destination not in self._inboxes:
            name = server or next(iter(self._cluster.nodes))
            node, conn = self._client(name)
            self._inboxes[destination] = name, []
            node.post(ClientCommands(conn, [_subscribe(destination)]))
        self._rest()
        name, found = self._inboxes[destination]
        self._take(name)
        taken = list(found)
        found.clear()
        return taken

    def request(self, agent: str, note: Any, *, server: str = "") -> Any:
        """A client of a server asks an agent; its answer, a notification, or what JSON it has answered. The client asks
        again if its server has died meanwhile, as one does under the same dedup-id. Raises MomError for what the agent
        does not take, or does not answer."""
        type, body = notes.to_json(note)
        name = server or next(iter(self._cluster.nodes))
        answers = f"/queue/answers of {name}"
        self._conns += 1
        asked = Ask(
            f"agent:{agent}", body, type=type, reply_to=answers, correlation=f"c{self._conns}",
            dedup=(f"{name} {agent}", self._conns),
        )  # fmt: skip
        self.receive(answers, server=name)
        for _ in range(10):
            node, conn = self._client(name)
            node.post(ClientCommands(conn, [asked]))
            for _ in range(2):  # what the server has not told its client before it died comes when that is back
                for answer in self.receive(answers):
                    if answer.correlation_id == asked.correlation:
                        return _answer(answer)
        raise MomError(f"{agent} has not answered {note}")

    def _send(self, where: str, shown: str, body: Any, server: str, options: dict[str, Any]) -> None:
        packed, fields = encoded(body, options)
        fields["expires"] = self.world.now + fields.pop("ttl") if "ttl" in fields else 0
        fields["properties"] = properties.pack(fields.pop("properties", {}))
        name = server or next(iter(self._cluster.nodes))
        self._conns += 1
        receipt = f"r{self._conns}"
        node, conn = self._client(name)
        node.post(ClientCommands(conn, [Send(where, packed, shown=shown, receipt=receipt, **fields)]))
        for _ in range(1_000):
            for reply in node.told.get(conn, ()):
                if isinstance(reply, Refused):
                    del self._clients[name]
                    raise MomError(reply.message)
                if isinstance(reply, Receipt) and reply.receipt == receipt:
                    return
            if not self._is_there(name):
                raise MomError(f"the connection to {name} was lost, and nobody knows whether the message was sent")
            self.world.run(self.world.now + 10 * MS)
        raise AssertionError(f"{name} gives no receipt")

    def _is_there(self, name: str) -> bool:
        node = self._node(name)
        return node.up and name in self._clients and self._clients[name][1] == node.epoch

    def _client(self, name: str) -> tuple[_Node, int]:
        """A server, and the connection of its client, which comes back if it was lost."""
        node = self._node(name)
        if not node.up:
            raise MomError(f"{name} is down: its clients have to wait, or take another server")
        if not self._is_there(name):
            self._conns += 1
            self._clients[name] = self._conns, node.epoch
            node.post(ClientOpened(self._conns, "test", "", f"{name}/x{self._conns}"))
            mine = [_subscribe(each) for each, (where, _) in self._inboxes.items() if where == name]
            node.post(ClientCommands(self._conns, mine))
        return node, self._clients[name][0]

    def _take(self, name: str) -> None:
        """Take what has come for the client of a server, and acknowledge it."""
        if not self._is_there(name):
            self._client(name)
            self._rest()
        node, conn = self._client(name)
        told, node.told[conn] = node.told.get(conn, []), []
        for reply in told:
            if isinstance(reply, Delivery):
                incoming = Incoming("", reply.message, reply.id, reply.count, _properties)
                self._inboxes[reply.sub][1].append(Received(incoming))
                node.post(ClientCommands(conn, [Disposition(reply.tag)]))
            elif isinstance(reply, Refused):
                raise MomError(reply.message)
        self._rest()

    # -- verdict -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Let the bus come to rest, and judge it: the invariants of all servers, and, by the logs of all that was
        durable, causal order among agents and servers, each message once, and none lost. Raises AssertionError."""
        self._cluster.faulty = False
        self.settle()
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            node.server.check()
        logs = [node.trace for node in nodes]
        fates, wrong = Fates(logs), list[str]()
        servers = check(server_events([node.events for node in nodes], fates))
        agents = check(agent_events([(node.name, node.trace) for node in nodes], fates))
        for level, verdict in (("servers", servers), ("agents", agents)):
            for kind in ("violations", "duplicates", "unsent", "lost"):
                if found := getattr(verdict, kind):
                    wrong.append(f"{len(found)} {kind} among {level}, as {found[0]}")
        assert not wrong, "; ".join(wrong)

    def _node(self, server: str) -> _Node:
        node = self._cluster.nodes.get(server)
        if not isinstance(node, _Node):
            raise MomError(f"there is no server {server}: this bus has {', '.join(self._cluster.nodes)}")
        return node


def _answer(answer: Received) -> Any:
    said, cls = answer.json(), notes.TYPES.get(answer.type)
    if answer.type in FAILURES:
        raise MomError(f"{said['agent']}: {said['reason']}")
    return said if cls is None else notes.from_json(cls, answer.body)


def _declared(where: str, what: Any) -> AgentDecl:
    server, slash, name = where.partition("/")
    cls, fields = what if isinstance(what, tuple) else (what, {})
    if not slash or not (isinstance(cls, type) and issubclass(cls, Agent)):
        raise MomError(f"an agent is given as 'server/name': Class, not {where!r}: {cls!r}")
    if "<" in cls.__qualname__ or "." in cls.__qualname__:
        raise MomError(f"{cls.__qualname__} is no class of a module: a server that starts again could not import it")
    return AgentDecl(name, server, path_of(cls), dict(fields))


def _subscribe(destination: str) -> Subscribe:
    kind = "topic:" if destination.startswith(("/topic/", "topic:")) else "queue:"
    return Subscribe(destination, destinations.several(destination, kind), ack="individual")


def _properties(message: Any) -> dict[str, Any]:
    return {**properties.read(message.properties), **message.annotations}
