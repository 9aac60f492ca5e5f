"""Clients at topics in total order while the homes of these are lost, perhaps on the move, and others take over."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mombroker.broker.topic.moving import TopicDeparture
from mombroker.broker.topic.topic import Topic
from mombroker.core.ids import home_of
from mombroker.sim.clients import Client, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.heirs import WORD, Heir, Heirs
from mombroker.sim.model import Given, Stream
from mombroker.sim.orders import POLICY, TOTAL, alike, move_topic, sequences
from mombroker.sim.workers import A, B


class Reporter(Heir):
    """Reads topics in total order, and publishes there: some in a row, then to a queue and all others, behind that.
    Some have a durable subscription."""

    work: OrderHeirs

    def begin(self, connection: Connection) -> None:
        if connection.open and not connection.subs and not self.work.ended:
            connection.listen(A, B, WORD)
            if stream := self.work.kept.get(self.client_id):
                connection.subscribe(stream, "d", prefetch=self.rng.choice((1, 3)), ack="individual")
        if connection.open and not self.work.ended:
            for _ in range(self.rng.choice((0, 1, 2, 5))):
                self.work.given_up(connection.send(self.rng.choice((A, A, A, B)), self.rng.random() < 0.6))
        super().begin(connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if given.stream.kind == "durable":
            self.work.world.after(self.pause() // 2, self.settle, connection, tag)
        elif given.sent.destination == WORD:
            super().given(connection, tag, given)
        elif given.sent.destination == A and self.rng.random() < 0.1:  # by all who read A once in a while
            self.work.given_up(connection.send(B, self.rng.random() < 0.5))


class OrderHeirs(Heirs):
    """A topic that is lost with its home has another one made by whoever publishes next. Some readers lack the last of
    the lost one; what they have is of one sequence all the same, in causal order with all else, and nothing twice."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.policies = [POLICY, *self.policies]
        self.topic_moves = self.rng.choice((0, 0, 5, 20))
        self.eager = self.rng.random() < 0.5
        self.kept: dict[str, Stream] = {}

    def begin(self, cluster: Cluster, span: int) -> None:
        super().begin(cluster, span)
        for _ in range(self.topic_moves):
            self.world.after(int(self.rng.random() * span), move_topic, self)
        if self.losses is not None:
            self.losses.rather = self._homes

    def cast(self) -> Sequence[Client]:
        clients = [Reporter(self, home=client.home) for client in super().cast()]
        for client, name in zip(clients, self.queues, strict=True):
            client.own = name
        self.kept = {f"c{n}": Stream((A, B), "durable") for n in range(2)}
        for id, stream in self.kept.items():
            self.lasts(stream, id, "d")
        return [*clients, *(Reporter(self, id) for id in self.kept)]

    def _homes(self) -> set[str]:
        """Of the topics, and where these are to move; or those by which publishers wait for a place just now."""
        servers = [node.server for node in self.cluster.nodes.values() if node.up]
        if self.eager:
            waits = [(server.name, each) for server in servers for each in server.clients.why()]
            return {each["home"] for name, each in waits if each["kind"] == "place" and each["home"] != name}
        topics = [it for server in servers for it in server.natives.agents.values() if isinstance(it, Topic)]
        moves = [topic.move for topic in topics if isinstance(topic.move, TopicDeparture)]
        return {home_of(id) for id in [*(topic.id for topic in topics), *(move.to for move in moves)]}

    def counts(self) -> dict[str, int]:
        return super().counts() | {
            "topic_moves": self.topic_moves, "ordered": sum(map(len, sequences(self.model, A))),
        }  # fmt: skip

    def objections(self, cluster: Cluster) -> list[str]:
        wrong = [f"{topic} has two orders" for topic in TOTAL if not alike(sequences(self.model, topic))]
        return super().objections(cluster) + wrong + self._homeless(cluster)[:2]

    def _homeless(self, cluster: Cluster) -> list[str]:
        """Topics that are not at the one home that all know; and who still waits for a place."""
        wrong = list[str]()
        for node in [node for node in cluster.nodes.values() if not node.gone]:
            server = node.server
            for id, it in server.natives.agents.items():
                if isinstance(it, Topic) and any(
                    each.server.names.known.get(id.partition("/")[2]) != id
                    for each in cluster.nodes.values() if not each.gone
                ):  # fmt: skip
                    wrong.append(f"{id} is there, and some do not know it")
                if isinstance(it, Topic) and it.move is not None:
                    wrong.append(f"{id} is still on its way {it.move.shown()}")
            wrong += [f"{server.name} waits: {each}" for each in server.clients.why() if each["kind"] == "place"]
        return wrong
