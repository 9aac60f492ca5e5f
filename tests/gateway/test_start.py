"""A server that has been at work starts: clients wait for a moment, since a neighbour may say that it is lost."""

import socket

import pytest

from mombroker.core.topology import Domain, Server, Topology
from mombroker.gateway.ports import Ports
from mombroker.net import node
from mombroker.stomp.frames import encode
from tests.gateway.live import ClientTown


class Beside(ClientTown):
    """a, and a neighbour b at an address of the test, which listens once `b` does."""

    def __init__(self, folder):
        super().__init__(folder)
        self.b = socket.socket()
        self.b.bind(("127.0.0.1", 0))
        self.b.setblocking(False)

    def topology(self, me):
        made = super().topology(me)
        other = Server("b", "127.0.0.1", self.b.getsockname()[1], None, str(self.folder / "b"))
        domain = Domain("d", ("a", "b"), "fifo")
        return Topology("town", made.servers | {"b": other}, {"d": domain}, made.agents, registry="a")

    def client(self):
        made = socket.create_connection(("127.0.0.1", self.stomp))
        made.setblocking(False)
        made.send(encode("CONNECT", [("accept-version", "1.2")]))
        return made

    def served(self, client):
        try:
            return bool(client.recv(1 << 16))
        except BlockingIOError:
            return False


@pytest.fixture
def town(tmp_path):
    made = Beside(tmp_path)
    made.up("a")  # the bus begins, and nobody is there yet
    made.down("a")
    made.b.listen()
    yield made
    made.b.close()
    made.end()


def called(town):
    """b, when a has called it."""
    found = []

    def look():
        try:
            found.append(town.b.accept()[0])
        except BlockingIOError:
            return False
        return True

    town.until(look)
    return found[0]


def waits(town, client):
    for _ in range(20):
        town.reactor.iterate(0.001)
        assert not town.served(client), "it is served, and nobody has said that a is not lost"


def test_clients_wait_until_a_neighbour_has_answered(town, monkeypatch):
    monkeypatch.setattr(node, "LOOK_S", 600.0)
    town.up("a")
    client, neighbour = town.client(), called(town)
    waits(town, client)
    neighbour.close()
    town.until(lambda: town.served(client))
    client.close()


def test_clients_wait_half_a_second_at_most_for_a_neighbour_that_says_nothing(town, monkeypatch):
    monkeypatch.setattr(node, "LOOK_S", 0.05)
    town.up("a")
    client, neighbour = town.client(), called(town)
    town.until(lambda: town.served(client))
    client.close()
    neighbour.close()


def test_nobody_waits_for_neighbours_that_are_down(town, monkeypatch):
    monkeypatch.setattr(node, "LOOK_S", 600.0)
    port = town.b.getsockname()
    town.b.close()
    monkeypatch.setattr(town, "b", type("Gone", (), {"getsockname": lambda self: port, "close": lambda self: None})())
    town.up("a")
    client = town.client()
    town.until(lambda: town.served(client))
    client.close()


def test_control_ports_that_are_open_at_once(town, monkeypatch):
    monkeypatch.setattr(node, "LOOK_S", 600.0)
    monkeypatch.setattr(Ports, "hold", lambda ports: None)
    town.up("a")
    client, neighbour = town.client(), called(town)
    with pytest.raises(AssertionError, match="nobody has said"):
        while True:
            waits(town, client)
    client.close()
    neighbour.close()
