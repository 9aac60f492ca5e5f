"""A client on a broker in memory: the machine and the contexts, without sockets, threads or a clock."""

from __future__ import annotations

from typing import Any

from mombroker.broker.commands import Delivery
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote, Ready
from mombroker.core.topology import Topology
from mombroker.jms.connection import Connection
from mombroker.jms.context import Context
from mombroker.jms.errors import JmsError
from mombroker.jms.machine import Machine, Settings
from mombroker.stomp.session import Session
from tests.broker.bench import ALONE, Broker
from tests.core.bus import topology

SOON = 0.02  # s of waiting for what does not come


class Memory(Broker):
    """The broker; its clients' sessions are those of the gateway."""

    def __init__(self, topology: Topology = ALONE):
        self.cords: dict[int, Cord] = {}
        self.busy = False
        super().__init__(topology)

    def connect(self, server: str = "a", ack: str = "auto", client_id: str = "") -> Context:
        cord = Cord(self, server, client_id)
        cord.dial()
        return Context(cord.connection, ack)

    def release(self, name: str, ready: Ready) -> None:
        clients, ready.clients = ready.clients, []
        super().release(name, ready)
        for conn, replies in clients:
            if conn in self.cords:
                self.cords[conn].answer(replies)

    def crash(self, name: str) -> None:
        super().crash(name)
        for cord in list(self.cords.values()):
            if cord.server == name:
                cord.hang_up("it crashed")

    def later(self, seconds: float) -> None:
        super().later(seconds)
        self.carry()

    def carry(self) -> None:
        """To and fro, until nobody says anything."""
        if self.busy:
            return
        self.busy = True
        while any(cord.carry() for cord in list(self.cords.values())):
            pass
        self.busy = False


class Cord:
    """The carrier of one connection. `deaf`: what the server says is lost. `said`: the client's frames, by line one."""

    def __init__(self, broker: Memory, server: str, client_id: str):
        self.broker, self.server = broker, server
        self.faults: list[JmsError] = []
        self.machine = Machine(Settings(client_id))
        self.connection = Connection(self.machine, self.faults.append)
        self.connection.carrier = self
        self.session: Session | None = None
        self.conn = 0
        self.deaf = self.ended = False
        self.said: list[bytes] = []

    def dial(self, server: str = "") -> None:
        self.server, self.deaf = server or self.server, False
        self.conn = next(self.broker.numbers)
        self.broker.cords[self.conn] = self
        self.session = Session(f"{self.server}/s{self.conn}", lambda: self.broker.now)
        self.machine.opened("a", "", "")
        self.flush()

    def flush(self) -> None:
        if self.session is None:
            self.machine.output.clear()
        else:
            self.broker.carry()

    def carry(self) -> bool:
        """What the two sides say now; False if it was nothing."""
        session = self.session
        if session is None:
            return False
        self.said += self.machine.output
        data = b"".join(self.machine.output)
        self.machine.output.clear()
        if data:
            session.receive(data)
        self._obey(session)
        heard = b"".join(session.output)
        session.output.clear()
        if session.written:
            self.broker.servers[self.server].step(ClientWrote(self.conn, session.written), self.broker.now)
            session.written = 0
            self.broker.pump()
        if heard and not self.deaf:
            with self.connection.lock:
                self.machine.receive(heard)
                self.connection.changed()
        self.machine.check()
        session.check()
        if session.closed:
            self.hang_up(self.machine.farewell or "closed")
        return bool(data or heard)

    def _obey(self, session: Session) -> None:
        server = self.broker.servers[self.server]
        if session.login is not None:
            server.step(ClientOpened(self.conn, "user", session.login.client_id, session.id), self.broker.now)
            session.accept()
        if session.commands:
            commands = list(session.commands)
            session.commands.clear()
            server.step(ClientCommands(self.conn, commands), self.broker.now)
            self.broker.pump()

    def answer(self, replies: list[Any]) -> None:
        if self.session is not None:
            assert not any(isinstance(each, Delivery) and each.tag == 0 for each in replies), "a delivery without a tag"
            self.session.reply(replies)

    def hang_up(self, reason: str = "it was cut") -> None:
        """The connection is gone."""
        self.session = None
        self.broker.cords.pop(self.conn, None)
        if self.server in self.broker.servers:
            self.broker.servers[self.server].step(ClientClosed(self.conn), self.broker.now)
            self.broker.pump()
        with self.connection.lock:
            self.machine.lost(reason)
            self.connection.changed()

    def lose(self) -> None:
        """Cut it and connect again."""
        self.hang_up()
        self.dial()

    def end(self) -> None:
        self.ended = True

    def now(self) -> float:
        return self.broker.now / 1e9


def cord(context: Context) -> Cord:
    found = context.connection.carrier
    assert isinstance(found, Cord), "a context of this broker"
    return found


def texts(consumer, count=100):
    """What can be received now, up to some."""
    found = []
    while len(found) < count and (message := consumer.receive(0)) is not None:
        found.append(message.body)
    return found


def filled(broker, *bodies, queue="orders", **options):
    with broker.connect() as context:
        for body in bodies:
            context.send(queue, body, **options)


def left(broker, queue="queue:orders"):
    return broker.queue(queue).messages.count


def with_policy(match, **values):
    return Memory(topology({}, policies=[{"match": match, **values}]))
