"""A replica takes over: whoever was handed the lead lets clients in at once, others ask a neighbour first. And one that
leads no more: no client takes it for its server."""

import gc
import socket

import pytest

from mombroker.admin.demo import free_ports
from mombroker.broker import selectors
from mombroker.core.places import Place
from mombroker.core.raft.replica import FOLLOWER
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net import node
from mombroker.net.replicas.node import ReplicatedNode
from mombroker.ordering import registry
from mombroker.stomp.frames import encode
from tests.net.town import Town

REPLICAS = ("a/a1", "a/a2", "a/a3")


class Trio(Town):
    """Three replicas of a, each a host of its own, and a neighbour b, a socket of the test that says nothing."""

    def __init__(self, folder):
        super().__init__(folder, REPLICAS)
        self.b = socket.socket()
        self.b.bind(("127.0.0.1", 0))
        ports = free_ports(6)
        self.places = tuple(
            Place(label[2:], "127.0.0.1", listen, str(folder / label[2:]), f"127.0.0.1:{stomp}")
            for label, listen, stomp in zip(REPLICAS, ports[:3], ports[3:], strict=True)
        )

    def topology(self, me):
        at = self.places[0]
        a = Server("a", at.host, at.port, at.stomp, at.data, anonymous=True, replicas=self.places)
        b = Server("b", "127.0.0.1", self.b.getsockname()[1], None, str(self.folder / "b"))
        return Topology("town", {"a": a, "b": b}, {"d": Domain("d", ("a", "b"), "fifo")}, [], registry="a")

    def up(self, *names):
        started = [self._host(name).start() for name in names or REPLICAS]
        self.until(lambda: all(each.called for each in started))
        self.b.listen()  # not before: a new server asks who is there
        return self

    def leader(self):
        """The replica whose server runs, once there is one."""
        found = []

        def look():
            found[:] = [label for label in self.hosts if self.node(label).leads]
            return found

        self.until(look)
        return found[0]

    def crash(self, label):
        host = self.hosts.pop(label)
        gone = host.nodes[label]
        gone.abort()
        self.until(lambda: gone.consensus.writing is None)
        gone.store.close()
        host._watchdog.stop()
        host.shared.stop()

    def client(self, label):
        where = next(place.stomp for place in self.places if place.name == label[2:])
        made = socket.create_connection(("127.0.0.1", int(where.rpartition(":")[2])))
        made.setblocking(False)
        made.send(encode("CONNECT", [("accept-version", "1.2")]))
        return made


def served(client):
    try:
        return client.recv(1 << 16).startswith(b"CONNECTED")
    except BlockingIOError:
        return False


@pytest.fixture
def trio(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "LOOK_S", 600.0)  # whoever waits for b does so for ever
    made = Trio(tmp_path).up()
    yield made
    made.down()
    made.b.close()


def follow(trio, label):
    """Another one than this leads."""
    trio.until(lambda: label not in trio.hosts or not trio.node(label).leads)
    return trio.leader()


def test_who_was_handed_the_lead_lets_clients_in_at_once_and_who_was_elected_waits_for_a_neighbour(trio):
    first = trio.leader()
    trio.node(first).transfer("")
    second = follow(trio, first)
    client = trio.client(second)
    trio.until(lambda: served(client))
    trio.crash(second)
    third = follow(trio, second)
    waits = trio.client(third)
    for _ in range(20):
        trio.reactor.iterate(0.001)
        assert not served(waits), "nobody has said that a is not lost"
    assert not trio.node(third).node.serves
    trio.b.close()  # and what it has not accepted
    trio.until(lambda: served(waits))
    client.close()
    waits.close()


def test_a_leader_that_has_not_let_clients_in_hands_nothing_over(trio):
    trio.crash(trio.leader())
    second = trio.leader()
    with pytest.raises(node.MomError, match="has just begun to lead"):
        trio.node(second).transfer("")
    trio.b.close()
    trio.until(lambda: trio.node(second).node.serves)
    trio.node(second).transfer("")
    assert follow(trio, second) != second


def test_what_takes_long_at_first_is_made_before_a_replica_leads(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(selectors, "prepare", lambda: asked.append("selectors"))
    monkeypatch.setattr(registry, "backend", lambda name, known=registry.backend: asked.append(name) or known(name))
    made = Trio(tmp_path)
    made.up(*REPLICAS[:1])
    assert [*dict.fromkeys(asked)] == ["selectors", "fifo"] and not made.node(REPLICAS[0]).leads, "there is no majority"
    made.down()
    made.b.close()


def test_the_last_server_of_a_process_is_not_collected_while_the_next_one_begins(trio, monkeypatch):
    collected, take_over = [], ReplicatedNode._take_over

    def take_over_and_collect(at):
        take_over(at)
        at._collect()

    first = trio.leader()
    monkeypatch.setattr(ReplicatedNode, "_take_over", take_over_and_collect)
    monkeypatch.setattr(gc, "collect", lambda: collected.append("all"))
    trio.node(first).transfer("")
    follow(trio, first)
    assert collected == []
    trio.node(first)._collecting.cancel()
    trio.node(first)._collect()
    assert collected == ["all"]


def test_it_is_whoever_has_come_furthest_when_the_server_has_ended(trio, monkeypatch):
    first = trio.leader()
    at = trio.node(first)
    early, late = sorted(at.handover.able().values())
    bests = iter([early, late])
    monkeypatch.setattr(at.handover, "best", lambda: next(bests))
    assert at.ways.names[early] == at.transfer("")
    assert follow(trio, first)[2:] == at.ways.names[late]


def test_who_was_to_lead_and_cannot_any_more_is_no_end(trio):
    """The server has ended here by then, so somebody has to."""
    first = trio.leader()
    at = trio.node(first)
    at.handover.begin("gone")
    assert at.consensus.replica.target, "it is another one"
    second = follow(trio, first)
    at = trio.node(second)
    at.ways.told = list  # none has told that it could
    at.handover.begin("gone")
    assert at.consensus.replica.role == FOLLOWER, "somebody is elected"
    assert follow(trio, second)


def gone(client):
    """The connection has ended, after whatever was said there."""
    try:
        return client.recv(1 << 16) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_who_leads_no_more_ends_the_connections_of_its_clients_in_whatever_state_they_are(trio):
    """A client that stayed with it would wait for ever for what others are given."""
    first = trio.leader()
    trio.until(lambda: trio.node(first).node.serves)
    open_, silent = trio.client(first), trio.client(first)
    trio.until(lambda: served(open_))
    at = trio.node(first)
    waits = trio.client(first)  # in the system's queue, when it ends
    at.consensus.replica.resign(at.consensus.now())
    at.consensus.pump()
    assert at.node is None and at.links.server is at.doors
    for client in (open_, silent, waits):
        trio.until(lambda client=client: gone(client))
    with pytest.raises(ConnectionRefusedError):
        trio.client(first)
    assert trio.leader()
