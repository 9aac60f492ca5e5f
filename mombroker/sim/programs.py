"""What the clients of a simulated bus are there for: each program is a promise of the broker, put to use.

All of them are judged alike, by model.py. What a program adds is that its situation comes up often.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from mombroker.broker.commands import Delivery, Uncommitted
from mombroker.broker.properties import pack
from mombroker.sim.clients import REST, Client, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.desks import Desks, MovingDesks, MovingSources
from mombroker.sim.guards import Guards
from mombroker.sim.heirs import Heirs
from mombroker.sim.joins import Joins
from mombroker.sim.model import Given, Sent, Stream
from mombroker.sim.moves import Moves, PulledMoves
from mombroker.sim.moving_heirs import MovingHeirs
from mombroker.sim.operators import Operators
from mombroker.sim.order_heirs import OrderHeirs
from mombroker.sim.orders import Orders
from mombroker.sim.pulls import Pulls
from mombroker.sim.questions import Questions
from mombroker.sim.revisions import Revisions
from mombroker.sim.rounds import Rounds
from mombroker.sim.wires.protocols import Protocols
from mombroker.sim.workers import MODES, QUEUES, TOPICS, A, B, Enduringly, Everything, Queues, Worker
from mombroker.sim.world import MS

SLOWEST = 200 * MS
PROOFS = 3
COLORS = ("red", "blue")


# -- causes before effects -----------------------------------------------------------------------------------------


class Asker(Client):
    """Publishes questions once there is somebody who answers, and a witness."""

    work: "Causes"

    def begin(self, connection: Connection) -> None:
        if connection.open and self.work.left > 0:
            if all(self.work.there.values()):
                self.work.left -= 1
                connection.send(A)
            self.work.world.after(self.pause(), self.begin, connection)


class Answerer(Client):
    """Answers each question on another topic."""

    work: "Causes"

    def begin(self, connection: Connection) -> None:
        connection.listen(A)

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        self.work.there[self] = True

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        connection.send(B)


class Witness(Client):
    """Must never see an answer before its question."""

    work: "Causes"

    def begin(self, connection: Connection) -> None:
        if self.work.kind == "durable":
            connection.subscribe(self.work.kept, "d", prefetch=1, ack="individual")
            self.work.world.after(8 * self.pause(), self._away, connection)
        elif self.work.kind == "one":
            connection.listen(A, B, prefetch=1, ack="individual")
        else:
            connection.listen(A, prefetch=1, ack="individual")
            connection.listen(B, prefetch=1, ack="individual")

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        self.work.there[self] = True

    def _away(self, connection: Connection) -> None:
        """It comes back, perhaps on another server."""
        if connection.open and self.work.left > 0:
            connection.leave()


class Causes(Clients):
    """A question, its answer, and a reader of both behind slow links: with one plain subscription, with two, or with a
    durable one that it leaves and comes back to."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.there: dict[Client, bool] = {}
        self.kind = self.rng.choice(("one", "two", "durable"))
        self.kept = Stream((A, B), "durable")
        self.left = self.rng.choice((10, 50))

    def cast(self) -> Sequence[Client]:
        asking, answering, reading = self.rng.sample(self.servers, 3)
        slow = self.rng.choice((1, 5, 20))
        base = self.cluster.network.base
        for ends in base:
            if reading in ends:
                base[ends] = min(slow * base[ends], SLOWEST)
        witness = Witness(self, "me" if self.kind == "durable" else "", reading)
        answerer = Answerer(self, home=answering)
        self.there = {answerer: False, witness: False}
        return [Asker(self, home=asking), answerer, witness]


# -- word by other means -------------------------------------------------------------------------------------------


class Listener(Client):
    """Subscribes; when it has the receipt, it lets somebody know, who then publishes. Then it does so again."""

    work: "Word"

    def begin(self, connection: Connection) -> None:
        if connection.open and self.work.left > 0:
            self.work.left -= 1
            self.awaited: set[Sent] | None = None
            self.name = connection.listen(self.rng.choice(TOPICS))

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        self.work.world.after(1, self._tell, connection, stream.destinations[0], everywhere)

    def _tell(self, connection: Connection, topic: str, everywhere: bool) -> None:
        there = [client.connection for client in self.work.publishers if client.connection is not None]
        self.awaited = {each.send(topic) for each in there} if everywhere else set()
        self._next(connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if self.awaited is not None:
            self.awaited.discard(given.sent)
            self._next(connection)

    def _next(self, connection: Connection) -> None:
        if connection.open and not self.awaited and self.work.left > 0:
            connection.unsubscribe(self.name)
            self.awaited = None
            self.work.world.after(self.pause(), self.begin, connection)


class Word(Clients):
    """Who has its receipt and tells another client by other means misses nothing of what that one publishes then."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((4, 12))

    def cast(self) -> Sequence[Client]:
        self.publishers = [Client(self) for _ in range(self.rng.randint(1, 3))]
        return [*self.publishers, *(Listener(self) for _ in range(self.rng.randint(1, 2)))]


# -- requests and replies ------------------------------------------------------------------------------------------


class Requester(Client):
    """Subscribes to the replies, sends a request at once, and waits for the reply."""

    work: "Requests"
    request: Sent | None = None

    def begin(self, connection: Connection) -> None:
        if connection.open and self.work.left > 0:
            self.work.left -= 1
            topic = self.rng.choice(TOPICS)
            self.name = connection.listen(topic)
            self.request = connection.send(QUEUES[0])
            self.work.topics[self.request] = topic

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if self.work.left > 0 and self.work.replies.get(given.sent) is self.request:
            self.request = None
            connection.unsubscribe(self.name)
            self.work.world.after(self.pause(), self.begin, connection)


class Replier(Client):
    """Takes requests, and replies to the topic that each of them asks for."""

    work: "Requests"

    def begin(self, connection: Connection) -> None:
        connection.subscribe(self.work.requests, ack="individual", prefetch=3)

    def settle(self, connection: Connection, tag: int) -> None:
        if connection.open and tag in connection.unsettled:
            request = connection.unsettled[tag].sent
            self.work.replies[connection.send(self.work.topics[request])] = request
        super().settle(connection, tag)


class Requests(Clients):
    """Who subscribes, and then requests something, never misses the reply."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((4, 12))
        self.topics: dict[Sent, str] = {}  # where each request wants its reply
        self.replies: dict[Sent, Sent] = {}

    def cast(self) -> Sequence[Client]:
        self.requests = self.queue(QUEUES[0])
        repliers = [Replier(self) for _ in range(self.rng.randint(1, 2))]
        return [*repliers, *(Requester(self) for _ in range(self.rng.randint(1, 3)))]


# -- new names -----------------------------------------------------------------------------------------------------


class Opener(Client):
    """Uses a queue that perhaps nobody has used before, and lets others know, who then use it, too."""

    work: "Openings"

    def begin(self, connection: Connection) -> None:
        if not connection.open or self.work.left <= 0:
            return
        self.work.left -= 1
        if not connection.subs:
            connection.listen(A)
        queue = self.rng.choice(self.work.queues)
        for _ in range(self.rng.choice((1, 2))):
            connection.send(queue, self.rng.random() < 0.5)
        self.work.meant[connection.send(A, False)] = queue
        self.work.world.after(self.pause(), self.begin, connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        connection.send(self.work.meant[given.sent], self.rng.random() < 0.5)


class Openings(Clients):
    """Queues that are made by being used have received what they were sent in causal order."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((10, 30))
        self.meant: dict[Sent, str] = {}  # the queue that a word is about

    def cast(self) -> Sequence[Client]:
        self.queues = [f"queue:n{n}" for n in range(self.rng.choice((4, 10)))]
        for name in self.queues:
            self.lasts(Stream((name,), "queue", received=True))
        return [Opener(self) for _ in range(self.rng.randint(2, 4))]


# -- what is chosen, urgent, late or mortal ------------------------------------------------------------------------


class Chooser(Worker):
    """Sends to queues what has a color, a priority, a delay, an end, and takes some of it by selectors."""

    work: "Choices"

    def send(self, connection: Connection) -> None:
        if self.rng.random() < 0.2:
            connection.send(self.rng.choice((A, B)))
            return
        color, priority, now = self.rng.choice(COLORS), self.rng.randrange(10), self.work.world.now
        delay, life = self.rng.choice((0, 0, 5, 300)) * MS, self.rng.choice((0, 0, 20, 400)) * MS
        sent = connection.send(
            self.rng.choice(QUEUES), self.rng.random() < 0.7, properties=pack({"color": color}), priority=priority,
            delay=delay, expires=now + life if life else 0, group=self.rng.choice(("", "", "g")),
        )  # fmt: skip
        sent.color, sent.mortal, sent.due = color, life > 0, now + delay if delay else 0

    def take(self, connection: Connection) -> None:
        queue, color, again = self.rng.choice(self.work.queues), self.rng.choice((*COLORS, "")), self.rng.random() < 0.2
        if queue in connection.subs.values():
            return
        wanted = [f"color = '{color}'"] * bool(color) + ["JMSXDeliveryCount > 1"] * again
        name = connection.subscribe(
            queue, selector=" AND ".join(wanted), prefetch=self.rng.choice((1, 3, 0)), ack=self.rng.choice(MODES),
            priority=self.rng.choice((0, 0, 1)),
        )  # fmt: skip
        self.work.wanted[connection.conn, name] = color, again

    def share(self, connection: Connection) -> None:
        """A shared subscription that ends with its last consumer."""
        if self.work.passing not in connection.subs.values():
            connection.subscribe(
                self.work.passing, "t", transient=True, prefetch=self.rng.choice((1, 3)), ack="individual"
            )

    def transact(self, connection: Connection) -> None:
        """Perhaps the transaction is aborted after more was received on its account."""
        for tag in [tag for tag in connection.unsettled if self.rng.random() < 0.5]:
            connection.do(Uncommitted(tag))
        if self.rng.random() < 0.8:
            super().transact(connection)

    def told(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Delivery):
            self.work.judge(connection, reply)
        super().told(connection, reply)


class Prover(Client):
    """Subscribes as others did before, publishes what must then be seen, and does so again."""

    work: "Choices"
    faithful = 1.0

    def begin(self, connection: Connection) -> None:
        if self.work.asked < PROOFS:
            connection.subscribe(self.work.passing, "t", transient=True, ack="individual")

    def subscribed(self, connection: Connection, stream: Stream, everywhere: bool) -> None:
        proof = connection.send(A)
        self.work.asked += 1
        if everywhere:  # else it may pass a server that does not know of the subscription
            self.work.proofs.append(proof)

    def acknowledge(self, connection: Connection, tag: int) -> None:
        super().acknowledge(connection, tag)
        if not connection.unsettled:
            connection.leave()


class Choices(Everything):
    """Selectors, priorities, delays, expiries, and a shared subscription that comes and goes: who has a selector gets
    nothing else, nothing comes before it is due, and what expires is among the dead letters."""

    varied = ()
    deeds = {
        Chooser.send: 60, Chooser.take: 16, Chooser.share: 6, Chooser.stop: 8, Chooser.transact: 8, Chooser.leave: 3,
    }  # fmt: skip

    def cast(self) -> Sequence[Client]:
        self.queues = [self.queue(name) for name in QUEUES]
        self.graves = [self.queue(name.replace("queue:", "queue:DLQ.")) for name in QUEUES]
        self.passing = Stream((A, B), "shared", complete=False)
        self.wanted: dict[tuple[int, str], tuple[str, bool]] = {}
        self.asked = 0
        self.proofs: list[Sent] = []
        return [Chooser(self) for _ in range(self.rng.randint(3, 6))]

    def judge(self, connection: Connection, reply: Delivery) -> None:
        sent = self.model.messages[int(reply.body)]
        color, again = self.wanted.get((connection.conn, reply.sub), ("", False))
        if (color and sent.color != color) or (again and reply.count < 2):
            self.model.wrong.append(f"{sent.id}, {sent.color}, count {reply.count}, came to who wants {color}, {again}")
        if self.world.now < sent.due - self.cluster.faults.skew:
            self.model.wrong.append(f"{sent.id} came before it was due")

    def taken(self) -> set[Stream]:
        """Most have selectors."""
        return set()

    def settle(self, cluster: Cluster) -> None:
        super().settle(cluster)
        for client in self.clients:  # so that the subscription ends with each proof
            if client.connection is not None:
                client.connection.leave()
        Prover(self).connect()
        self.world.run(self.world.now + REST)

    def faults(self, cluster: Cluster) -> list[str]:
        found = super().faults(cluster)
        if self.asked < PROOFS or any(proof.id not in self.passing.seen for proof in self.proofs):
            found.append(f"{self.passing} is no more")
        living, dead = ({id for stream in streams for id in stream.seen} for streams in (self.queues, self.graves))
        for sent in self.model.messages.values():
            if sent.mortal and sent.exists and not sent.losable and sent.id not in living | dead:
                found.append(f"{sent.id}, which may expire, is nowhere")
        consumed = {id for stream in self.queues for id in stream.settled}
        return found + [f"{id} is a dead letter though it was consumed" for id in consumed & dead]


HEIRS, MOVING_HEIRS, ORDER_HEIRS = LOSABLE = (
    "heirs",
    "moving-heirs",
    "order-heirs",
)  # those to which servers may be lost
PROGRAMS: dict[str, type[Clients]] = {
    "everything": Everything, "queues": Queues, "causes": Causes, "word": Word, "requests": Requests,
    "openings": Openings, "choices": Choices, "pulls": Pulls, "operators": Operators, "enduringly": Enduringly,
    "revisions": Revisions, "joins": Joins, "moves": Moves, "moving-pulls": PulledMoves, "rounds": Rounds,
    "questions": Questions, "desks": Desks, "moving-desks": MovingDesks,
    "moving-sources": MovingSources, "orders": Orders, "guards": Guards, "protocols": Protocols, HEIRS: Heirs,
    MOVING_HEIRS: MovingHeirs, ORDER_HEIRS: OrderHeirs,
}  # fmt: skip
