"""Sockets without a system: a network in memory, whose bytes move when the test says so."""

from collections import deque
from random import Random

from twisted.internet import task
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.python.failure import Failure

from mombroker.core.errors import PeerRefused
from mombroker.core.hello import Hello
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net.links import Links

END = b""


class End:
    """One end of a connection, as Twisted's transport. What is written waits in `out` for `Net.step`."""

    bufferSize = 65536
    disconnecting = False

    def __init__(self, host):
        self.host = host
        self.out = deque()
        self.protocol = None
        self.other = None
        self.open = True
        self.reading = True
        self.producer = None

    def write(self, data):
        assert isinstance(data, bytes) and data
        if self.open and not self.disconnecting:
            self.out.append(data)
            if self.producer and sum(map(len, self.out)) > self.bufferSize:
                self.producer.pauseProducing()

    def loseConnection(self):
        if self.open and not self.disconnecting:
            self.disconnecting = True
            self.out.append(END)

    def abortConnection(self):
        self.out.clear()
        self.lost()
        self.other.lost()

    def lost(self):
        if self.open:
            self.open = False
            self.protocol.connectionLost(Failure(ConnectionDone()))

    def getPeer(self):
        return IPv4Address("TCP", self.other.host, 1)

    def setTcpNoDelay(self, on): ...
    def setTcpKeepAlive(self, on): ...
    def registerProducer(self, producer, streaming):
        self.producer = producer

    def unregisterProducer(self):
        self.producer = None

    def pauseProducing(self):
        self.reading = False

    def resumeProducing(self):
        self.reading = True


class Reactor(task.Clock):
    """A clock of its own and the network of all."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def listenTCP(self, port, factory, backlog, interface):
        self.net.ports[port] = factory
        return Port(self.net, port)

    def connectTCP(self, host, port, factory, timeout):
        connector = Connector()
        self.net.dials.append((connector, port, factory))
        return connector


class Port:
    def __init__(self, net, number):
        self.net, self.number = net, number

    def getHost(self):
        return IPv4Address("TCP", "127.0.0.1", self.number)

    def stopListening(self):
        self.net.ports.pop(self.number, None)


class Connector:
    stopped = False

    def disconnect(self):
        self.stopped = True


class Net:
    def __init__(self, seed=0):
        self.random = Random(seed)
        self.ports = {}
        self.dials = []
        self.ends = []
        self.reactors = []

    def reactor(self):
        self.reactors.append(Reactor(self))
        return self.reactors[-1]

    def step(self):
        """Do one thing that can happen next; False if there is none."""
        choices = [(self._dial, each) for each in self.dials]
        choices += [(self._move, end) for end in self.ends if end.open and end.out and end.other.reading]
        if not choices:
            return False
        act, what = self.random.choice(choices)
        act(what)
        return True

    def settle(self, seconds=0.0):
        """Until nothing moves, with the clocks going on for a while."""
        while self.step():
            pass
        ticks = int(seconds * 10)
        for _ in range(ticks):
            for reactor in self.reactors:
                reactor.advance(0.1)
            while self.step():
                pass

    def _dial(self, dial):
        self.dials.remove(dial)
        connector, port, factory = dial
        accepting = self.ports.get(port)
        if connector.stopped or accepting is None:
            factory.clientConnectionFailed(connector, Failure(ConnectionRefusedError()))
            return
        server = accepting.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        if server is None:
            factory.clientConnectionFailed(connector, Failure(ConnectionRefusedError()))
            return
        self.join(factory.buildProtocol(None), server)

    def join(self, *protocols):
        ends = [End("127.0.0.1"), End("127.0.0.1")]
        for end, other, protocol in zip(ends, reversed(ends), protocols, strict=True):
            end.other, end.protocol, protocol.transport = other, protocol, end
        self.ends += ends
        for protocol in protocols:
            protocol.connectionMade()
        return ends

    def _move(self, end):
        data = end.out.popleft()
        if data == END:
            end.lost()
            end.other.lost()
        elif end.other.open:
            end.other.protocol.dataReceived(data)
        if not end.out and end.producer and end.open:
            end.producer.resumeProducing()


class Recorder:
    """A server's side of the links: an open door, and all that it is told, in one list."""

    def __init__(self, name, topology):
        self.name, self.topology = name, topology
        self.trouble = {}
        self.events = []
        self.lines = []
        self.refuse = ""
        self.refuse_events = None

    def greet(self, peer):
        return Hello(self.name, "i", "d", "x", 0, "g", 0, 0, 0, 0, 0, 10)

    def admit(self, hello):
        if self.refuse:
            raise PeerRefused(self.refuse)

    def post(self, event):
        self.events.append(event)
        if self.refuse_events and isinstance(event, self.refuse_events):
            raise PeerRefused("the event is refused")


class Desk:
    """An owner of admin connections."""

    def __init__(self):
        self.opened_ = []
        self.frames = []

    def opened(self, conn, login):
        self.opened_.append(conn)

    def received(self, conn, frames):
        self.frames += frames

    def closed(self, conn): ...


def topology(*names, host="127.0.0.1"):
    servers = {name: Server(name, host, at + 1) for at, name in enumerate(names)}
    return Topology("t", servers, {"d": Domain("d", names)}, registry=names[0], secret_file="s")


def links(net, bus, name, secret=b"secret", token=b"token", chance=lambda: 0.5, listen=True, **rest):
    recorder = Recorder(name, bus)
    made = Links(
        net.reactor(), name, recorder, recorder.post, recorder.lines.append, Desk(), secret, token,
        chance=chance, **rest,
    )  # fmt: skip
    if listen:
        made.listen()
    return made
