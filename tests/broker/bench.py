"""A bus with clients, by hand: what each connection asks, is told, and when that is written, is up to the test."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mombroker.broker.commands import (
    MODIFIED,
    BrowseEnd,
    Delivery,
    DeliveryRun,
    Disposition,
    Drained,
    Receipt,
    Refused,
    Send,
    Subscribe,
    Unsubscribe,
    singles,
)
from mombroker.broker.queue.queue import Queue
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote, Ready
from mombroker.core.limits import Limits
from mombroker.core.topology import Topology
from tests.core.bus import Bus, topology

ALONE = topology({})
THREE = topology({"x": "abc"})


class Client:
    """One connection. `writes`: what it is told counts as written at once."""

    def __init__(self, broker: Broker, server: str, conn: int, writes: bool):
        self.broker, self.server, self.conn, self.writes = broker, server, conn, writes
        self.session = f"{server}/s{conn}"
        self.told: list[Any] = []  # all replies, in order
        self.open = True
        self.asked = 0

    @property
    def got(self) -> list[Delivery]:
        return [reply for reply in self.told if isinstance(reply, Delivery)]

    @property
    def texts(self) -> list[str]:
        return [delivery.body.decode() for delivery in self.got]

    @property
    def receipts(self) -> list[str]:
        return [reply.receipt for reply in self.told if isinstance(reply, Receipt)]

    @property
    def refusals(self) -> list[str]:
        return [reply.message for reply in self.told if isinstance(reply, Refused)]

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """What each refusal ended, and whose subscription."""
        return [(reply.scope, reply.sub) for reply in self.told if isinstance(reply, Refused)]

    @property
    def drains(self) -> list[tuple[str, int]]:
        """Subscriptions that were drained, and how many messages had come before."""
        found = [(at, reply) for at, reply in enumerate(self.told) if isinstance(reply, Drained)]
        return [(reply.sub, sum(isinstance(each, Delivery) for each in self.told[:at])) for at, reply in found]

    @property
    def ends(self) -> list[str]:
        return [reply.sub for reply in self.told if isinstance(reply, BrowseEnd)]

    def do(self, *commands: Any, pump: bool = True) -> Client:
        if self.open:
            self.broker.servers[self.server].step(ClientCommands(self.conn, list(commands)), self.broker.now)
        if pump:
            self.broker.pump()
        return self

    def send(self, destination: str, *texts: str, pump: bool = True, **more: Any) -> Client:
        sends = [Send(destination, text.encode(), shown=destination, **more) for text in texts]
        return self.do(*sends, pump=pump)

    def subscribe(self, sub: str, *destinations: str, pump: bool = True, **more: Any) -> Client:
        return self.do(Subscribe(sub, destinations, **more), pump=pump)

    def unsubscribe(self, sub: str, **more: Any) -> Client:
        return self.do(Unsubscribe(sub, **more))

    def ack(self, *texts: str, **more: Any) -> Client:
        return self.do(*(Disposition(self.tag(text), **more) for text in texts))

    def nack(self, *texts: str, outcome: str = MODIFIED, **more: Any) -> Client:
        return self.do(*(Disposition(self.tag(text), outcome, **more) for text in texts))

    def tag(self, text: str) -> int:
        """Of the last delivery of a text."""
        return next(each.tag for each in reversed(self.got) if each.body == text.encode())

    def wrote(self) -> Client:
        if self.got:
            self.broker.servers[self.server].step(ClientWrote(self.conn, self.got[-1].tag), self.broker.now)
            self.broker.pump()
        return self

    def close(self) -> None:
        self.open = False
        self.broker.servers[self.server].step(ClientClosed(self.conn), self.broker.now)
        self.broker.pump()

    def forget(self) -> Client:
        self.told.clear()
        return self


class Died(Exception):
    """A server has crashed where the test wanted it to."""


class Broker(Bus):
    """`death`: (server, its how manieth commit from now on, whether that is durable); it then starts again at once."""

    def __init__(self, topology: Topology = ALONE, limits: Limits | None = None):
        self.clients: dict[int, Client] = {}
        self.death: tuple[str, int, bool] | None = None
        super().__init__(topology, limits)
        self.pump()

    def connect(self, server: str = "a", client_id: str = "", writes: bool = True, strict: bool = True) -> Client:
        client = Client(self, server, next(self.numbers), writes)
        self.clients[client.conn] = client
        self.servers[server].step(ClientOpened(client.conn, "user", client_id, client.session, strict), self.now)
        return client

    def crash(self, name: str) -> None:
        super().crash(name)
        for client in self.clients.values():
            if client.server == name:
                client.open = False

    def reboot(self, name: str) -> None:
        self.crash(name)
        self.boot(name)
        self.pump()

    def commit(self, name: str) -> Ready:
        if self.death is None or self.death[0] != name or self.death[1] > 1:
            if self.death is not None and self.death[0] == name:
                self.death = (name, self.death[1] - 1, self.death[2])
            return super().commit(name)
        _, _, durable = self.death
        self.death = None
        server = self.servers[name]
        server.turn(self.now)
        ready = server.ready(self.now)
        if durable:
            self.stores[name].commit(ready.batch)
        self.crash(name)
        self.boot(name)
        raise Died

    def pump(self, rounds: int = 500) -> None:
        try:
            super().pump(rounds)
        except Died:
            super().pump(rounds)

    def release(self, name: str, ready: Ready) -> None:
        super().release(name, ready)
        for conn, replies in ready.clients:
            client = self.clients[conn]
            if client.open and client.server == name:
                client.told += singles(replies)
                tags = [reply.tag for reply in replies if isinstance(reply, Delivery | DeliveryRun)]
                if tags and client.writes:
                    self.servers[name].step(ClientWrote(conn, tags[-1]), self.now)

    def queue(self, name: str) -> Queue:
        """The queue or subscription of this name, wherever it lives."""
        id = next(iter(self.servers.values())).names.known[name]
        found = self.servers[id.partition("/")[0]].natives.agents[id]
        assert isinstance(found, Queue), f"{name} is no queue"
        return found

    def stored(self, name: str, server: str = "a") -> dict[str, int]:
        """Rows of a queue, by collection, and those that are held."""
        disk, agent = self.stores[server].disk, f"{server}/{name}"
        counts = Counter(row.collection for row in disk.items.values() if row.agent == agent)
        counts.update("held" for row in disk.held.values() if row.agent == agent)
        return dict(counts)
