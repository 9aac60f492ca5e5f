"""Clients of a simulated bus: they drive the real service of each server, without STOMP and sockets between.

A connection is two streams in order, each with its delays. When its server dies, what was written may still arrive;
then the client notices, and comes back after a while, to the same server or another one.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

from mombroker.broker.authors.consumers import CONSUMERS
from mombroker.broker.commands import (
    Delivery,
    DeliveryRun,
    Disconnect,
    Disposition,
    Receipt,
    Receipts,
    Refused,
    Send,
    SendRound,
    SendRun,
    Subscribe,
    Unsubscribe,
    accepted,
    singles,
)
from mombroker.broker.queue.dedup import PRODUCERS
from mombroker.broker.session.questions import ASKED
from mombroker.core.batch import ROWS_BY_KEY
from mombroker.core.damage import DAMAGED
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote, Ready
from mombroker.core.topology import AgentDecl
from mombroker.sim.cluster import Cluster, Workload
from mombroker.sim.model import Given, Model, Sent, Stream
from mombroker.sim.node import Node
from mombroker.sim.policies import QueuePolicies
from mombroker.sim.world import MS, SECOND

REST = 10 * SECOND  # until connections have come back, and what backs off has been offered again
ROUNDS, CALLS = 200, 100_000  # of that length, and in all, until the bus has nothing to do: a livelock never has


class ClientNode(Node):
    """A server that has clients."""

    def __init__(self, cluster: Cluster, name: str, mean_commit: int):
        super().__init__(cluster, name, mean_commit)
        work = cluster.workload
        self.answered = work.answered if isinstance(work, Clients) else lambda ticket, reply: None
        self.connections: dict[int, Connection] = {}

    def crash(self) -> None:
        super().crash()
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.broken()

    def _leave(self, ready: Ready) -> None:
        epoch = self.epoch
        super()._leave(ready)
        if self.up and self.epoch == epoch:
            for conn, replies in ready.clients:
                self.write(conn, replies)
            for ticket, reply in ready.replies:
                self.answered(ticket, reply)

    def write(self, conn: int, replies: list[Any]) -> None:
        """Hand replies to the socket."""
        connection = self.connections.get(conn)
        if connection is not None:
            connection.to_client(replies)
            tags = [reply.tag for reply in replies if isinstance(reply, Delivery | DeliveryRun)]
            if tags:
                self.post(ClientWrote(conn, tags[-1]))


class Connection:
    """Both ends. `past`: what happened before whatever comes next on it."""

    def __init__(self, client: "Client", node: ClientNode, conn: int):
        self.client, self.node, self.conn, self.epoch = client, node, conn, node.epoch
        self.world, self.model = client.work.world, client.work.model
        self.past = 0
        self.open = True  # for the client
        self.arrivals = [0, 0]  # of the last thing to the server, to the client
        self.subs: dict[str, Stream] = {}  # those that were not ended
        self.names: dict[str, Stream] = {}  # all
        self.order: list[tuple[Stream, Sent]] = []  # of its plain subscriptions
        self.unsettled: dict[int, Given] = {}
        self.receipts: dict[str, Any] = {}  # what is confirmed by each: a Sent, Given ones, a Stream with its bit

    def _later(self, way: int, call: Any, *args: Any) -> None:
        """In order, after a while."""
        at = self.arrivals[way] = max(self.arrivals[way], self.world.now + self.world.about(MS))
        self.world.after(at - self.world.now, call, *args)

    def to_server(self, event: Any) -> None:
        self._later(0, self._arrive, event)

    def _arrive(self, event: Any) -> None:
        if self.node.up and self.node.epoch == self.epoch:
            self.node.post(event)

    def to_client(self, replies: list[Any]) -> None:
        self._later(1, self._told, replies)

    def _told(self, replies: list[Any]) -> None:
        for reply in singles(replies):
            if self.open:
                self.client.told(self, reply)

    def broken(self) -> None:
        """The server's end is gone; the client notices after what is still under way to it."""
        self._later(1, self.client.lost, self)

    # -- what the client does ----------------------------------------------------------------------------------------

    def do(self, *commands: Any) -> None:
        self.to_server(ClientCommands(self.conn, list(commands)))

    def receipt(self, meaning: Any) -> str:
        name = f"r{len(self.receipts)}"
        self.receipts[name] = meaning
        return name

    def message(self, destination: str, **more: Any) -> tuple[Sent, Send]:
        """A message to send: its body is its number."""
        sent = self.model.sent(destination, self.past, self.world.now)
        sent.losable = destination in self.client.work.drawn.lossy
        self.past |= sent.bit
        return sent, Send(destination, str(sent.id).encode(), shown=destination, **more)

    def send(self, destination: str, receipt: bool = True, **more: Any) -> Sent:
        sent, command = self.message(destination, **more)
        command.receipt = self.receipt(sent) if receipt else None
        if command.receipt is not None and sent.id % 2:
            self.do(SendRun(command, [command.body], [command.receipt]))
        else:
            self.do(command)
        return sent

    def send_run(self, destination: str, count: int) -> None:
        """Several in one piece."""
        made = [self.message(destination) for _ in range(count)]
        bodies, receipts = [command.body for _, command in made], [self.receipt(sent) for sent, _ in made]
        self.do(SendRun(made[0][1], bodies, receipts))

    def send_round(self, destinations: Sequence[str]) -> None:
        """One message to each, in turn, in one piece."""
        made = [self.message(destination) for destination in destinations]
        places = [(command.destination, command.shown) for _, command in made]
        bodies, receipts = [command.body for _, command in made], [self.receipt(sent) for sent, _ in made]
        self.do(SendRound(made[0][1], places, bodies, receipts))

    def subscribe(self, stream: Stream, durable: str = "", **more: Any) -> str:
        """Its name on this connection."""
        name = f"s{len(self.names)}"
        self.subs[name] = self.names[name] = stream
        shared = stream.kind == "shared"
        command = Subscribe(name, stream.destinations, durable=durable, shared=shared, **more)
        begins = self.model.event()
        if stream.kind != "queue":
            self.model.subscribed(stream, self.past)
            self.past |= begins
        if stream.kind == "plain":
            stream.begun |= begins
        command.receipt = self.receipt((stream, begins))
        self.do(command)
        return name

    def listen(self, *topics: str, **more: Any) -> str:
        """A plain subscription."""
        return self.subscribe(Stream(topics, "plain", self.order), **more)

    def accept_all(self, tags: list[int], run: bool) -> None:
        """Several in one piece, of which the last is confirmed, and thus all; as one `run`, or one by one."""
        given = [self.unsettled.pop(tag) for tag in tags]
        for each in given:
            each.accepted = True
        before = accepted(tags[:-1]) if run and tags[1:] else [Disposition(tag) for tag in tags[:-1]]
        self.do(*before, Disposition(tags[-1], receipt=self.receipt(given)))

    def unsubscribe(self, name: str) -> None:
        self._ended(self.subs.pop(name))
        self.do(Unsubscribe(name))

    def _ended(self, stream: Stream) -> None:
        if stream.kind == "plain":
            stream.complete = False

    def leave(self) -> None:
        """In good order."""
        self.do(Disconnect(self.receipt("bye")))

    def close(self) -> None:
        self.open = False
        for stream in self.subs.values():
            self._ended(stream)
        self.to_server(ClientClosed(self.conn))


class Client:
    """A user of the broker, which comes back when it has lost its connection. What it does there, others say."""

    faithful = 0.7  # the chance that it comes back to the same server
    user = "user"
    strict = True  # its protocol knows no refusal that does not end the connection
    wire: type[Connection] = Connection  # what it is connected by

    def __init__(self, work: "Clients", client_id: str = "", home: str = ""):
        self.work, self.client_id = work, client_id
        self.rng = Random(work.rng.getrandbits(32))
        self.home = home or self.rng.choice(work.servers)
        self.connection: Connection | None = None

    def pause(self) -> int:
        return self.work.world.about(self.work.pace)

    def connect(self) -> None:
        work = self.work
        name = self.home if self.rng.random() < self.faithful else self.rng.choice(work.servers)
        node = work.cluster.nodes[name]
        assert isinstance(node, ClientNode), "a server that has clients"
        if not node.up or node.stopping:
            work.world.after(20 * MS, self.connect)
            return
        work.conns += 1
        self.connection = connection = self.wire(self, node, work.conns)
        node.connections[connection.conn] = connection
        opened = ClientOpened(connection.conn, self.user, self.client_id, f"{name}/x{connection.conn}", self.strict)
        connection.to_server(opened)
        work.world.after(self.pause(), self._begin, connection)

    def _begin(self, connection: Connection) -> None:
        if connection.open:
            self.begin(connection)

    def begin(self, connection: Connection) -> None:
        """It is connected, perhaps again."""

    def lost(self, connection: Connection) -> None:
        if connection.open:
            connection.close()
            self.connection = None
            self.work.world.after(self.pause(), self.connect)

    # -- what it is told ---------------------------------------------------------------------------------------------

    def told(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Delivery):
            stream, sent = connection.names[reply.sub], self.work.model.messages[int(reply.body)]
            given = Given(stream, sent, reply.count, reply.ack, connection.conn)
            self.work.model.saw(given)
            connection.past |= sent.past | sent.bit
            if reply.ack != "auto":
                connection.unsettled[reply.tag] = given
            self.given(connection, reply.tag, given)
        elif isinstance(reply, Receipt):
            self._confirmed(connection, connection.receipts[reply.receipt], not reply.unconfirmed)
        elif isinstance(reply, Receipts):
            for receipt in reply.receipts:
                self._confirmed(connection, connection.receipts[receipt], True)
        elif isinstance(reply, Refused):
            self.work.refusals.append(reply.message)
            self.lost(connection)

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        if isinstance(meaning, Sent):
            self.work.model.exists(meaning)
        elif isinstance(meaning, Given):
            self.work.model.settled(meaning)
        elif isinstance(meaning, list):
            for given in meaning:
                self.work.model.settled(given)
        elif meaning == "bye":
            self.lost(connection)
        else:
            stream, begins = meaning
            if everywhere:  # else it may have begun later, if it is on another server
                stream.begun |= begins
                stream.known = stream.known or self.work.world.now
            self.subscribed(connection, stream, everywhere)

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        """The receipt has come, and says whether all servers know of it."""

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        """A message has come."""
        if given.ack != "auto":
            self.work.world.after(self.pause() // 2, self.settle, connection, tag)

    def settle(self, connection: Connection, tag: int) -> None:
        if connection.open and tag in connection.unsettled:
            self.acknowledge(connection, tag)

    def acknowledge(self, connection: Connection, tag: int) -> None:
        given = connection.unsettled.pop(tag)
        given.accepted = True
        if given.ack == "client":
            for each, other in list(connection.unsettled.items()):
                if each < tag and other.stream is given.stream:
                    del connection.unsettled[each]
        sure = given.ack == "individual" and self.rng.random() < 0.5
        connection.do(Disposition(tag, receipt=connection.receipt(given) if sure else None))


class Drain(Client):
    """Takes everything that is left of a stream."""

    def __init__(self, work: "Clients", stream: Stream):
        client_id, self.durable = work.lasting[stream]
        super().__init__(work, client_id)
        self.stream = stream

    def begin(self, connection: Connection) -> None:
        connection.subscribe(self.stream, self.durable, ack="individual")


class Clients(Workload):
    """Some clients on all servers."""

    declared: ClassVar[list[dict[str, Any]]] = [  # behind those that are drawn
        {
            "match": "*", "redelivery_delay": 0.01, "max_redelivery_delay": 0.1, "max_redeliveries": 1000,
            "max_pending": 100_000,
        },
    ]  # fmt: skip
    varied: ClassVar[tuple[str, ...]] = ()  # queues whose policies are drawn, on some seeds; see policies.py
    announced: ClassVar[tuple[str, ...]] = ()  # topics; copies of one of them go everywhere, on a third of the seeds
    patient = True  # it may go on for a while when the faults are over

    def __init__(self, rng: Random):
        seed = self.seed = rng.getrandbits(32)
        self.rng = Random(seed)
        self.drawn = QueuePolicies(Random(f"policies {seed}"), self.varied)
        self.policies = [*self._announced(Random(f"announced {seed}")), *self.drawn.at_start, *self.declared]
        self.model = Model()
        self.pace = self.rng.choice((2, 5, 20)) * MS
        self.conns = 0
        self.left = 0  # deeds; nothing new is begun when there are none
        self.lasting: dict[Stream, tuple[str, str]] = {}  # streams that outlive connections: client id, durable name
        self.refusals: list[str] = []
        self.clients: Sequence[Client] = []
        self.servers: list[str] = []
        self.cluster: Cluster

    def _announced(self, dice: Random) -> list[dict[str, Any]]:
        if not self.announced or dice.random() > 1 / 3:
            return []
        return [{**Clients.declared[0], "match": dice.choice(self.announced), "announce": "everywhere"}]

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        self.servers = servers
        return []

    def begin(self, cluster: Cluster, span: int) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.clients = self.cast()
        self.drawn.begin(cluster, span)
        for name in self.drawn.dead_letters:
            self.queue(name)
        for client in self.clients:
            self.world.after(int(self.rng.random() * span / 8), client.connect)

    def cast(self) -> Sequence[Client]:
        raise NotImplementedError

    def queue(self, name: str) -> Stream:
        return self.lasts(Stream((name,), "queue"))

    def lasts(self, stream: Stream, client_id: str = "", durable: str = "") -> Stream:
        """A stream that outlives connections."""
        self.model.streams[stream] = None
        self.lasting[stream] = client_id, durable
        return stream

    def settle(self, cluster: Cluster) -> None:
        """What is left to do is done, or not begun. Whatever nobody takes is drained, until the bus has nothing to do:
        over a slow link much may be under way while no client sees any of it, and who has left all that while seemed to
        take its streams to the end."""
        cluster.make_room()
        if self.patient:
            self.world.run(self.world.now + REST)
        self.left = 0
        drains: dict[Stream, Drain] = {}
        rounds, most = 0, self.world.calls + CALLS
        while rounds < 4 or (self.world.queue and rounds < ROUNDS and self.world.calls < most):
            rounds += 1
            self.world.run(self.world.now + REST)
            taken = self.taken()
            for stream in [each for each in self.lasting if each not in taken and each not in drains]:
                drains[stream] = Drain(self, stream)
                drains[stream].connect()

    def taken(self) -> set[Stream]:
        """What somebody takes all of, as things stand."""
        there = [client.connection for client in self.clients if client.connection is not None]
        return {stream for connection in there for stream in connection.subs.values()}

    def answered(self, ticket: int, reply: dict[str, Any] | str) -> None:
        """An operator has the answer to a request."""

    def damaged(self, body: bytes) -> None:
        self.model.messages[int(body)].losable = True

    def counts(self) -> dict[str, int]:
        seen = sum(len(stream.seen) for stream in self.model.streams)
        return {
            "connections": self.conns, "sent": len(self.model.messages), "seen": seen, "refused": len(self.refusals),
            "policies": self.drawn.changes,
        }  # fmt: skip

    def objections(self, cluster: Cluster) -> list[str]:
        """What the clients have to say."""
        return self.model.faults()

    def faults(self, cluster: Cluster) -> list[str]:
        return self.objections(cluster) + [f"left in the store: {what}" for what in self._left(cluster)][:3]

    def _left(self, cluster: Cluster) -> list[str]:
        """Rows of messages, and of connections that are gone."""
        found = []
        for name, node in cluster.nodes.items():
            if node.gone:
                continue
            disk, alive = node.disk.store.disk, node.server.natives.agents
            kept = (DAMAGED, ASKED, CONSUMERS, PRODUCERS)
            items = disk.items.values()
            rows = (row for row in items if row.collection not in kept and row.collection[:1] != ROWS_BY_KEY)
            found += [f"{row.agent} {row.collection} of {name}" for row in rows]
            found += [f"{row.agent} held by {name}" for row in disk.held.values()]
            found += [agent for agent in disk.agents if "/conn:" in agent and agent not in alive]
        return found
