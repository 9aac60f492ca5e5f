"""Questions on one topic, answers on another, over three domains of real servers: nobody sees an answer first.

The publisher is on s1, who answers on s2, who hears both on s3. Questions go from s1 to the router r3 by a line that
the test holds up; answers go by s2 and the router r2, and are there first.
"""

from collections import deque

import pytest
from twisted.internet import protocol

from mombroker.core.topology import Domain, Server, Topology
from tests import fakes_clients
from tests.gateway.live import Wire, free_port
from tests.net.town import Town

SERVERS = ("s1", "s2", "s3", "r2", "r3")
DOMAINS = {"middle": ("s1", "r2", "r3"), "west": ("r2", "s2"), "east": ("r3", "s3")}
QUESTIONS = 20
BOTH = {"destination": "/topic/a,/topic/b", "ack": "client-individual", "prefetch_count": "1"}


class Line(protocol.Factory):
    """A TCP line to a port, which can be shut: what comes from either side then waits in it."""

    def __init__(self, reactor, port):
        self.reactor, self.port = reactor, port
        self.shut, self.waiting = False, deque()
        self.listening = reactor.listenTCP(0, self, interface="127.0.0.1")

    def buildProtocol(self, address):
        near, far = End(self), End(self)
        near.other, far.other = far, near
        there = protocol.ClientFactory()
        there.buildProtocol = lambda address: far
        there.clientConnectionFailed = lambda connector, reason: near.transport.abortConnection()
        self.reactor.connectTCP("127.0.0.1", self.port, there)
        return near

    def open(self):
        self.shut = False
        while self.waiting:
            end, data = self.waiting.popleft()
            end.pass_on(data)


class End(protocol.Protocol):
    def __init__(self, line):
        self.line, self.early = line, []

    def connectionMade(self):
        early, self.early = self.early, []
        for data in early:
            self.transport.write(data)

    def dataReceived(self, data):
        if self.line.shut:
            self.line.waiting.append((self.other, data))
        else:
            self.other.pass_on(data)

    def pass_on(self, data):
        if self.connected:
            self.transport.write(data)
        else:
            self.early.append(data)

    def connectionLost(self, reason):
        if self.other.connected:
            self.other.transport.loseConnection()


class Sites(Town):
    """Five servers in three domains, with clients on three of them."""

    def __init__(self, folder):
        super().__init__(folder, SERVERS, domains=DOMAINS)
        self.stomps = {name: free_port() for name in SERVERS if name.startswith("s")}
        self.wires = []
        self.up()
        self.line = Line(self.reactor, self.ports["r3"])
        self.hosts["s1"].shared.topology.servers["r3"].port = self.line.listening.getHost().port
        back = Line(self.reactor, self.ports["s1"])  # whoever dials: it is the line's
        back.waiting, self.back = self.line.waiting, back
        self.hosts["r3"].shared.topology.servers["s1"].port = back.listening.getHost().port

    def topology(self, me):
        servers = {
            name: Server(
                name, "127.0.0.1", self.ports[name], f"127.0.0.1:{self.stomps[name]}" if name in self.stomps else None,
                str(self.folder / name), anonymous=True,
            )
            for name in SERVERS
        }  # fmt: skip
        return Topology("sites", servers, {name: Domain(name, each) for name, each in DOMAINS.items()}, [], "s2")

    def wire(self, name, **headers):
        self.stomp = self.stomps[name]
        self.wires.append(Wire(self, **headers))
        return self.wires[-1]

    def shut(self):
        self.line.shut = self.back.shut = True

    def open(self):
        self.back.shut = False
        self.line.open()

    def held(self):
        """Messages that wait at r3 for one that they depend on."""
        return len(self.node("r3").server.channel.domains["middle"].core.held())

    def end(self):
        self.open()
        for wire in self.wires:
            wire.socket.close()
        self.line.listening.stopListening()
        self.back.listening.stopListening()
        self.down()


@pytest.fixture
def sites(tmp_path):
    made = []

    def make():
        made.append(Sites(tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.end()


def listen(wire, how):
    """Subscribe to both topics; there when it returns."""
    if how == "two plain":
        assert wire.ask("SUBSCRIBE", **{**BOTH, "destination": "/topic/a"}, id="a") == []
        assert wire.ask("SUBSCRIBE", **{**BOTH, "destination": "/topic/b"}, id="b") == []
    else:
        durable = {"durable_subscription_name": "d"} if how == "durable" else {}
        assert wire.ask("SUBSCRIBE", **BOTH, **durable, id="ab") == []


def ask_all(publisher, reader):
    """Questions, of which the last is answered: the reader has answered, and the publisher is confirmed."""
    for number in range(QUESTIONS):
        publisher.ask("SEND", f"question {number}".encode(), destination="/topic/a")
    for number in range(QUESTIONS):
        assert reader.read().body == f"question {number}".encode()
    reader.ask("SEND", b"answer", destination="/topic/b")


def hear_all(wire):
    """What comes, each settled when it was looked at."""
    heard = []
    while len(heard) <= QUESTIONS:
        frame = wire.read()
        heard.append(frame.body.decode())
        wire.send("ACK", id=frame.headers["ack"])
    return heard


IN_ORDER = [*(f"question {number}" for number in range(QUESTIONS)), "answer"]


def conversation(sites, how):
    """What the witness hears."""
    reader, publisher = sites.wire("s2"), sites.wire("s1")
    assert reader.ask("SUBSCRIBE", destination="/topic/a", id="1") == []
    witness = sites.wire("s3", client_id="w")
    listen(witness, how)
    if how == "durable":
        witness.ask("DISCONNECT")
    sites.shut()
    ask_all(publisher, reader)
    sites.until(sites.held)  # the answer is at r3
    if how == "durable":
        witness = sites.wire("s3", client_id="w")
        witness.send("SUBSCRIBE", **BOTH, durable_subscription_name="d", id="ab")
    sites.pass_time(20)
    assert not witness.look() and sites.held() == 1
    sites.open()
    return hear_all(witness)


@pytest.mark.parametrize("how", ["one", "two plain", "durable"])
def test_an_answer_that_is_there_first_waits_for_its_question(sites, how):
    assert conversation(sites(), how) == IN_ORDER


def test_a_backlog_of_a_detached_subscription_is_in_order(sites):
    """All of it comes while nobody takes."""
    t = sites()
    reader, publisher, witness = t.wire("s2"), t.wire("s1"), t.wire("s3", client_id="w")
    assert reader.ask("SUBSCRIBE", destination="/topic/a", id="1") == []
    listen(witness, "durable")
    witness.ask("DISCONNECT")
    t.shut()
    ask_all(publisher, reader)
    t.until(t.held)
    t.open()
    t.until(lambda: t.ask("s3", "subscriptions")["subscriptions"][0]["messages"] == QUESTIONS + 1)
    witness = t.wire("s3", client_id="w")
    witness.send("SUBSCRIBE", **BOTH, durable_subscription_name="d", id="ab")
    assert hear_all(witness) == IN_ORDER


@pytest.mark.interpreted
def test_control_an_agent_for_each_topic_shows_the_answer_first(sites):
    with fakes_clients.agent_per_topic():
        heard = conversation(sites(), "one")
    assert sorted(heard) == sorted(IN_ORDER) and heard != IN_ORDER
