"""Agents among the clients: they take from a queue, pass on, publish and answer, and read topics.

What a client sends to the agents' queue names the messages that it is to become. So the model knows them beforehand:
they exist if that one does, each once, behind all that it was sent behind, and all that the same agent took before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar
from zlib import crc32

from mombroker.agents import Delivered, Table, consumes, notification, reacts, subscribes
from mombroker.agents.notifications import unpack
from mombroker.agents.tables import key_of
from mombroker.broker.names import subscription_name
from mombroker.broker.properties import pack
from mombroker.core.batch import ROWS_BY_KEY
from mombroker.core.table import LAST
from mombroker.core.topology import AgentDecl
from mombroker.sim.clients import Client, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.model import Given, Sent, Stream
from mombroker.sim.moves import Moving
from mombroker.sim.travels import Moves
from mombroker.sim.workers import QUEUES, TOPICS, A, B, Everything, Worker
from mombroker.sim.workloads import Witness

WORK = "queue:work"


# -- agents --------------------------------------------------------------------------------------------------------


@notification(name="sim.cue")
class Cue:
    """Take from the queue, or stop."""

    on: bool


class Desk(Witness):
    """Does with each message what that says. Its reactions may fail, at the end, when all is done."""

    took: list[int]
    rows: Table

    @consumes("/queue/work", prefetch=3)
    def take(self, message: Delivered) -> None:
        self._pass_on(message)

    def _pass_on(self, message: Delivered) -> None:
        self.took.append(int(message.text))
        self.rows[int(message.text)] = len(self.took)
        self.rows.delete(self.took[len(self.took) // 2] if len(self.took) % 5 == 0 else -1)
        for verb, to, id in json.loads(message.properties["then"]):
            if verb == "reply":
                self.reply(str(id))
            elif verb == "publish":
                self.publish(to, str(id))
            else:
                self.put(to, str(id))
        self._saw()


class Clerk(Witness):
    """The same, when it is told to."""

    took: list[int]
    rows: Table
    consumer: int = 0

    @reacts
    def cue(self, note: Cue) -> None:
        if note.on and not self.consumer:
            self.consumer = self.consume("/queue/work", prefetch=2)
        elif not note.on and self.consumer:
            self.stop(self.consumer)
            self.consumer = 0
        self._saw()

    @reacts
    def take(self, message: Delivered) -> None:
        Desk._pass_on(self, message)  # type: ignore[arg-type]


class Reader(Witness):
    """Notes what it gets of two topics. It never fails: what is given again comes behind what was later."""

    took: list[int]

    @subscribes("/topic/t0", "/topic/t1", prefetch=5)
    def read(self, message: Delivered) -> None:
        self.took.append(int(message.text))
        self.reactions += 1
        self.chain = crc32(self.message_id.encode(), self.chain)


# -- clients -------------------------------------------------------------------------------------------------------


class Customer(Worker):
    """Gives the agents something to do, and uses the same destinations."""

    work: Desks

    def order(self, connection: Connection) -> None:
        sent, command = connection.message(WORK)
        then = list[tuple[str, str, int]]()
        sent.together = [sent]
        for verb, to in self.rng.sample(STEPS, self.rng.randint(1, 3)):
            made = self.work.model.sent(to, sent.past | sent.bit, self.work.world.now)
            made.together = sent.together
            sent.together.append(made)
            then.append((verb, f"/{to.replace(':', '/')}", made.id))
        self.work.orders[sent.id] = sent
        command.properties = pack({"then": json.dumps(then)})
        command.reply_to = "/queue/q1"
        command.group = self.rng.choice(("", "", "g"))
        command.receipt = connection.receipt(sent) if self.rng.random() < 0.7 else None
        connection.do(command)


STEPS = [*(("put", name) for name in QUEUES), *(("publish", name) for name in TOPICS), ("reply", QUEUES[1])]


class Desks(Everything):
    """Exactly once between queue, reaction and what the reaction sends; causes before effects through agents."""

    varied = ()
    patient = True
    deeds: ClassVar[dict[Callable[[Any, Connection], None], int]] = {
        Customer.order: 50, Customer.send: 14, Customer.listen: 10, Customer.take: 8, Customer.keep: 4,
        Customer.stop: 4, Customer.transact: 4, Customer.leave: 2,
    }  # fmt: skip

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.orders: dict[int, Sent] = {}

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        super().agents(servers, rng)
        kinds = ["Desk"] * rng.randint(1, 3) + ["Clerk"] * rng.randint(0, 2) + ["Reader"] * rng.randint(1, 2)
        made = [
            AgentDecl(f"{kind.lower()}{n}", rng.choice(servers), f"{__name__}:{kind}", {"took": []})
            for n, kind in enumerate(kinds)
        ]
        self.ids = {f"{each.server}/{each.name}": each.cls.partition(":")[2] for each in made}
        return made

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        for id in [id for id, kind in self.ids.items() if kind == "Clerk"]:
            for _ in range(self.rng.randint(1, 8)):
                args = {"to": [id], "type": "sim.cue", "fields": {"on": self.rng.random() < 0.6}}
                at, server = int(self.rng.random() * span), self.rng.choice(self.servers)
                self.world.after(at, cluster.ask, server, "send", args)

    def cast(self) -> Sequence[Client]:
        return [Customer(self, client.client_id) for client in super().cast()]

    def counts(self) -> dict[str, int]:
        return super().counts() | {"orders": len(self.orders)}

    def faults(self, cluster: Cluster) -> list[str]:
        took = {id: cluster.state(id)["took"] for id in self.ids}
        for id, kind in self.ids.items():
            if kind == "Reader":
                self._read(id, took[id])
            else:
                self._add_causes(took[id])
        desks = [number for id, kind in self.ids.items() if kind != "Reader" for number in took[id]]
        wrong = [*list(self._not_once(desks))[:2], *super().faults(cluster)]
        return wrong + [f"the table of {id} is not that of its reactions" for id in took if not self._fits(cluster, id)]

    def _fits(self, cluster: Cluster, id: str) -> bool:
        """Does an agent's table have what its reactions have set and deleted?"""
        wanted: dict[int, int] = {}
        took = cluster.state(id)["took"] if self.ids[id] != "Reader" else []
        for n, number in enumerate(took, 1):
            wanted[number] = n
            if n % 5 == 0:
                wanted.pop(took[n // 2], None)
        first = f"{ROWS_BY_KEY}rows:"
        (store,) = (node.disk.store for node in cluster.nodes.values() if node.disk.store.agent(id) is not None)
        rows = store.range(id, first, first + LAST, 1_000_000, False)
        return {key_of(row.collection[len(first) :]): unpack(row.body) for row in rows} == wanted

    def _read(self, id: str, took: list[int]) -> None:
        """To the model an agent that subscribes is a client that never leaves."""
        stream = Stream((A, B), "durable")
        for number in took:
            self.model.saw(Given(stream, self.model.messages[number], 1, "auto"))

    def _add_causes(self, took: list[int]) -> None:
        """Whatever an agent has taken, or sent, is before all that it sends later."""
        before = 0
        for number in took:
            order, *made = self.orders[number].together
            for each in made:
                each.past |= before
                before |= each.bit
            before |= order.past | order.bit

    def _not_once(self, took: list[int]) -> Iterator[str]:
        times = Counter(took)
        for number, order in self.orders.items():
            if times[number] > 1 or (order.exists and not times[number]):
                yield f"agents have taken {number} {times[number]} times"


class MovingDesks(Desks):
    """The same, while the agents move from server to server."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.journeys = Moves(self.rng)

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        self.journeys.begin(cluster, span)

    def counts(self) -> dict[str, int]:
        return super().counts() | {"agent_moves_asked": self.journeys.asked}

    def faults(self, cluster: Cluster) -> list[str]:
        return super().faults(cluster) + self.journeys.faults(cluster)


class MovingSources(Moving, Desks):
    """The same while the queues and subscriptions that agents take from move from server to server."""

    def cast(self) -> Sequence[Client]:
        made = super().cast()
        subscriptions = [subscription_name(f"agent:{id}", "read") for id, kind in self.ids.items() if kind == "Reader"]
        self.movable = [*QUEUES, WORK, WORK, *subscriptions]
        return made
