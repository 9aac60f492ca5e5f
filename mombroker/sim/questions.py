"""Clients that ask agents, which answer at once, later, or through each other: each question takes effect once, has one
answer, and is asked after all that has caused it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from mombroker.agents import notification, reacts
from mombroker.broker.commands import Ask, Delivery, Transact
from mombroker.core.topology import AgentDecl
from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.model import Given, Sent, Stream
from mombroker.sim.workloads import Witness

NEWS = "topic:news"
NOW, LATER, ELSEWHERE = WAYS = ("now", "later", "elsewhere")
LATE_S = 0.005


@notification(name="sim.question", expose=True)
class Question:
    """`way`: how it is to be answered; `to`: by whom, if elsewhere."""

    number: int
    way: str = NOW
    to: str = ""


@notification(name="sim.answer")
class Answer:
    """`known`: the questions that happened before it; `desk` and `place`: who says so, and where in its log."""

    number: int
    known: list[int]
    desk: str
    place: int


@notification(name="sim.pass")
class Pass:
    client: str
    number: int
    known: list[int]


class Desk(Witness):
    """A reaction may fail at its end. `log`: [number, known], of questions that clients have asked, and of those that
    desks have passed on."""

    log: list[list[Any]]
    known: list[int]

    @reacts
    def asked(self, note: Question) -> None:
        self._learn(note.number, [])
        if note.way == NOW:
            self._answer(self.sender, note.number)
        else:
            passed = Pass(self.sender, note.number, self.known)
            if note.way == LATER:
                self.timer(LATE_S, passed)
            else:
                self.send(note.to, passed)
        self._saw()

    @reacts
    def passed(self, note: Pass) -> None:
        self._learn(note.number, note.known)
        self._answer(note.client, note.number)
        self._saw()

    def _learn(self, number: int, known: list[int]) -> None:
        self.log.append([number, known])
        self.known = sorted({*self.known, *known, number})

    def _answer(self, client: str, number: int) -> None:
        self.send(client, Answer(number, self.known, self.id, len(self.log)))


class Inquirer(Client):
    """Asks several desks at a time, tells others what it has heard, and hears of them. What has no receipt when a
    connection is lost is asked again on the next one.

    asked   commands without a receipt, and what they are, in order
    """

    work: Questions

    def __init__(self, work: Questions, number: int):
        super().__init__(work)
        self.name = f"inquirer{number}"
        self.stream = Stream((f"queue:{self.name}",), "queue")
        self.ack = self.rng.choice(("client", "individual"))
        self.asked: list[tuple[Sent, Ask | Transact]] = []
        self.counters: dict[str, int] = {}

    def begin(self, connection: Connection) -> None:
        if not connection.subs:
            connection.subscribe(self.stream, ack=self.ack, prefetch=3)
            connection.listen(NEWS)
            for sent, command in self.asked:
                self._again(connection, sent)
                self._do(connection, sent, command)
        self._next(connection)

    def _next(self, connection: Connection) -> None:
        if not connection.open or self.work.left <= 0:
            return
        self.work.left -= 1
        dice = self.rng.random()
        if dice < 0.2:
            connection.send(NEWS)
        elif dice < 0.4:
            pair = [self._question(connection), self._question(connection)]
            first, second = (sent for sent, _ in pair)
            first.together = [first, second]
            self._ask(connection, first, Transact([command for _, command in pair]))
        else:
            self._ask(connection, *self._question(connection))
        if dice > 0.9:  # before it has the receipt
            self.lost(connection)
        else:
            self.work.world.after(self.pause(), self._next, connection)

    def _question(self, connection: Connection) -> tuple[Sent, Ask]:
        desk, other = self.rng.sample(self.work.desks, 2)
        sent = self.work.model.sent(f"agent:{desk}", connection.past, self.work.world.now)
        connection.past |= sent.bit
        self.counters[desk] = counter = self.counters.get(desk, 0) + 1
        body = json.dumps({"number": sent.id, "way": self.rng.choice(WAYS), "to": other}).encode()
        return sent, Ask(
            sent.destination, body, type="sim.question", correlation=f"c{sent.id}", reply_to=f"/queue/{self.name}",
            dedup=(self.name, counter),
        )  # fmt: skip

    def _again(self, connection: Connection, sent: Sent) -> None:
        """On another connection nothing precedes it but what is asked there before; which of both will count?"""
        for each in sent.together or [sent]:
            each.past &= connection.past
            connection.past |= each.bit

    def _ask(self, connection: Connection, sent: Sent, command: Ask | Transact) -> None:
        self.asked.append((sent, command))
        self._do(connection, sent, command)

    def _do(self, connection: Connection, sent: Sent, command: Ask | Transact) -> None:
        command.receipt = connection.receipt(sent)
        connection.do(command)

    def _confirmed(self, connection: Connection, meaning: Any, everywhere: bool) -> None:
        super()._confirmed(connection, meaning, everywhere)
        self.asked = [each for each in self.asked if each[0] is not meaning]

    def told(self, connection: Connection, reply: Any) -> None:
        if isinstance(reply, Delivery) and connection.names[reply.sub] is self.stream:
            self._answered(connection, reply)
        else:
            super().told(connection, reply)

    def _answered(self, connection: Connection, reply: Delivery) -> None:
        message, model = reply.message, self.work.model
        if message.type != "sim.answer":
            model.wrong.append(f"{self.name} was told {message.body!r}")
            return
        said = Answer(**json.loads(message.body))
        sent = model.messages[said.number]
        if message.correlation != f"c{sent.id}":
            model.wrong.append(f"the answer to {sent.id} came as one to {message.correlation}")
        given = Given(self.stream, sent, reply.count, reply.ack, connection.conn)
        self.work.heard(sent, said, given)
        for number in said.known:
            connection.past |= model.messages[number].past | model.messages[number].bit
        connection.unsettled[reply.tag] = given
        self.given(connection, reply.tag, given)


class Questions(Clients):
    """answers   by question: the desk and the place in its log that was told, and how often it came"""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((15, 60))
        self.answers: dict[int, tuple[str, int]] = {}
        self.counted: dict[int, set[int]] = {}
        self.desks: list[str] = []

    def agents(self, servers: list[str], rng: Random) -> list[AgentDecl]:
        self.servers = servers
        homes = rng.choices(servers, k=rng.randint(2, 5))
        self.desks = [f"{home}/desk{at}" for at, home in enumerate(homes)]
        fields: dict[str, Any] = {"log": [], "known": []}
        return [AgentDecl(f"desk{at}", home, f"{__name__}:Desk", fields) for at, home in enumerate(homes)]

    def begin(self, cluster: Cluster, span: int) -> None:
        """On half of the seeds desks move from server to server meanwhile."""
        super().begin(cluster, span)
        dice = Random(f"moves {self.seed}")
        for _ in range(dice.choice((0, 0, 3, 10))):
            desk, to = dice.choice(self.desks).partition("/")[2], dice.choice(self.servers)
            asked = dice.choice(self.servers), "move_agent", {"agent": desk, "to": to}
            cluster.world.after(int(dice.random() * span), cluster.ask, *asked)

    def cast(self) -> Sequence[Client]:
        return [Inquirer(self, number) for number in range(self.rng.randint(1, 4))]

    def damaged(self, body: bytes) -> None:
        said = json.loads(body)
        number = said["number"] if isinstance(said, dict) else said
        self.model.messages[number].losable = True

    def heard(self, sent: Sent, said: Answer, given: Given) -> None:
        """An answer has come: the only one, and marked if it has come before."""
        wrong, now = self.model.wrong, (said.desk, said.place)
        self.model.exists(sent)
        if self.answers.setdefault(sent.id, now) != now:
            wrong.append(f"{sent.id} was answered as {self.answers[sent.id]}, and then as {now}")
        counts = self.counted.setdefault(sent.id, set())
        if given.count in counts:
            wrong.append(f"the answer to {sent.id} came again with the count {given.count}")
        if (settled := given.stream.settled.get(sent.id)) and given.count > settled.count:
            wrong.append(f"the answer to {sent.id} came again after its acknowledgement was confirmed")
        counts.add(given.count)

    def counts(self) -> dict[str, int]:
        asked = sum(sent.destination.startswith("agent:") for sent in self.model.messages.values())
        details = [record.detail for node in self.cluster.nodes.values() for record in node.trace]
        more = {"repeats": details.count("a repeat"), "desks_moved": details.count("came")}
        return {**super().counts(), "asked": asked, "answered": len(self.answers), **more}

    def objections(self, cluster: Cluster) -> list[str]:
        return [*super().objections(cluster), *list(self._unanswered())[:3], *list(self._disorder(cluster))[:3]]

    def _unanswered(self) -> Iterator[str]:
        for sent in self.model.messages.values():
            if sent.destination.startswith("agent:") and sent.exists and sent.id not in self.answers:
                if not sent.losable:
                    yield f"{sent.id} to {sent.destination} was not answered"

    def _disorder(self, cluster: Cluster) -> Iterator[str]:
        """Each desk was asked each question once, after all those of its questions that happened before it, and before
        it is told of any that happened later."""
        messages = self.model.messages
        for desk in self.desks:
            asked, past = set[int](), 0
            for number, known in cluster.state(desk)["log"]:
                if not known:
                    if number in asked:
                        yield f"{desk} was asked {number} twice"
                    elif past & messages[number].bit:
                        yield f"{desk} was asked {number} after what it has caused"
                    asked.add(number)
                for each in known or [number]:
                    past |= messages[each].past | messages[each].bit
