"""Clients that go on sending to queues while the servers where these live are lost, and others take over the names."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mombroker.sim.clients import Client, Clients, Connection
from mombroker.sim.cluster import Cluster
from mombroker.sim.mischief import Trial
from mombroker.sim.model import Given, Sent, Stream
from mombroker.sim.world import MS, SECOND

WORD = "topic:word"
PATIENCE = 5 * SECOND  # after the faults: the slowest bus is to catch up


class Heir(Client):
    """Sends to one queue after the other, and tells all others by a topic, whose messages are behind its own then."""

    work: Heirs
    faithful = 0.9
    own = ""  # the queue that it uses first, which is made on its server if nobody was there before

    def pause(self) -> int:
        """Much is sent from a fence on until somebody is in the place of the lost server, little before, and seldom
        something later."""
        work = self.work
        if work.left > 0 and work.fenced():
            work.left -= 1
            return work.world.about(work.pace)
        return work.world.about(work.usual if work.world.now < work.ends else 2 * SECOND)

    def begin(self, connection: Connection) -> None:
        if not connection.open or self.work.ended or self.work.world.now > self.work.ends + PATIENCE:
            return
        if not connection.subs:
            connection.listen(WORD)
        queue, self.own = self.own or self.rng.choice(self.work.queues), ""
        for _ in range(self.rng.choice((1, 2))):
            self.work.given_up(connection.send(queue, self.rng.random() < 0.5))
        if self.rng.random() < 0.3:
            self.work.meant[self.work.given_up(connection.send(WORD, False))] = queue
        self.work.world.after(self.pause(), self.begin, connection)

    def given(self, connection: Connection, tag: int, given: Given) -> None:
        if self.rng.random() < 0.3:
            self.work.given_up(connection.send(self.work.meant[given.sent], self.rng.random() < 0.5))


class Heirs(Clients):
    """A queue that is lost with its server is made anew by whoever sends to its name next. What each of its lives has
    been sent is in causal order there, and nothing comes twice; what was sent meanwhile may be lost."""

    def __init__(self, rng: Random):
        super().__init__(rng)
        self.left = self.rng.choice((50, 150))  # in a hurry
        self.pace = self.rng.choice((1, 3)) * MS
        self.ended = False
        self.meant: dict[Sent, str] = {}  # the queue that a word is about

    def begin(self, cluster: Cluster, span: int) -> None:
        assert isinstance(cluster, Trial), "servers may be lost"
        self.losses = cluster.losses
        if self.losses is not None:
            self.losses.removes = self.rng.random() < 0.5
        self.ends, self.usual = cluster.world.now + span, span // 15
        super().begin(cluster, span)

    def fenced(self) -> bool:
        free = self.losses.waiting if self.losses is not None else ()
        up = [node.server for node in self.cluster.nodes.values() if node.up]
        return any(name in server.lost.known for name in free for server in up)

    def cast(self) -> Sequence[Client]:
        homes = self.rng.sample(self.servers, min(len(self.servers), 8))
        clients = [Heir(self, home=home) for home in homes]
        self.queues = [f"queue:n{n}" for n in range(len(clients))]
        for client, name in zip(clients, self.queues, strict=True):
            self.lasts(Stream((name,), "queue", received=True))
            client.own = name
        return clients

    def given_up(self, sent: Sent) -> Sent:
        """A message that may be lost."""
        sent.losable = True
        return sent

    def settle(self, cluster: Cluster) -> None:
        self.ended = True
        super().settle(cluster)

    def _left(self, cluster: Cluster) -> list[str]:
        """What was on the way to a lost server is kept for an operator."""
        return [what for what in super()._left(cluster) if "/_dead letters" not in what]
