"""A gateway without sockets, for tests: time and transport are theirs."""

from twisted.internet import task

from mombroker.broker.commands import Delivery
from mombroker.broker.message import ClientMessage
from mombroker.gateway.listener import Gateway
from mombroker.gateway.users import Logins, hashed
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from mombroker.stomp.protocol import Stomp
from mombroker.stomp.settings import Settings

SEND = encode("SEND", [("destination", "/queue/a")], b"x")


class Socket:
    """What Twisted's TCP transport does, as far as the gateway relies on it. `drain` is the system taking the bytes."""

    disconnecting = False

    def __init__(self, protocol):
        self.protocol, self.producer = protocol, None
        self.buffer, self.writes, self.options = b"", [], {}
        self.reading, self.connected, self.ending, self.ended = True, True, False, False
        self.client = Parser(Limits(), V12, SERVER)
        protocol.makeConnection(self)

    def setTcpNoDelay(self, on):
        self.options["nodelay"] = on

    def setTcpKeepAlive(self, on):
        self.options["keepalive"] = on

    def getHandle(self):
        return self

    def setsockopt(self, level, name, value):
        self.options[name] = value

    def registerProducer(self, producer, streaming):
        assert not streaming
        self.producer = producer
        producer.resumeProducing()

    def unregisterProducer(self):
        self.producer = None

    def pauseProducing(self):
        self.reading = False

    def resumeProducing(self):
        self.reading = True

    def write(self, data):
        assert self.connected and not self.ended
        self.writes.append(data)
        self.buffer += data

    def loseWriteConnection(self):
        self.ending = True

    def abortConnection(self):
        self.lose()

    # for the test
    def receive(self, data):
        assert self.reading, "bytes come in that nobody reads"
        self.protocol.dataReceived(data)

    def drain(self):
        """The frames that are with the system now, with `beat` for a line end between them."""
        data, self.buffer = self.buffer, b""
        self.client.feed(data.lstrip(b"\n"))
        frames = ["beat"] * (len(data) - len(data.lstrip(b"\n")))
        while (frame := self.client.next()) is not None:
            frames.append(frame)
        if self.ending:
            self.ended = True
        elif self.producer is not None:
            self.producer.resumeProducing()
        return frames

    def commands(self):
        return [frame if frame == "beat" else frame.command for frame in self.drain()]

    def lose(self):
        if self.connected:
            self.connected = False
            self.protocol.connectionLost()


class Raw(Socket):
    """Of which the test takes the bytes as they are."""

    def drain(self):
        data, self.buffer = self.buffer, b""
        if self.ending:
            self.ended = True
        elif self.producer is not None:
            self.producer.resumeProducing()
        return data


class World:
    def __init__(self, anonymous=True, times=None, max_unfinished=64 << 20, **settings):
        self.clock = task.Clock()
        self.events, self.lines, self.checks = [], [], []
        self.users = {"ann": hashed("a", 4)}
        self.stomp = Stomp(lambda: 10**18, Settings(**settings))
        self.gateway = Gateway(
            self.clock, "s1", self.events.append, self.lines.append,
            Logins(self.users.get, lambda work, answer: self.checks.append((work, answer)), self.clock), lambda: 10**18,
            anonymous, times, max_unfinished,
        )  # fmt: skip
        self.gateway.logins._nobody = hashed("", 4)

    def accepted(self, host, sessions=None):
        return self.gateway.accepted(sessions or self.stomp, host, tls=False)

    def socket(self, host="127.0.0.1", sessions=None):
        return Socket(self.accepted(host, sessions))

    def connect(self, host="127.0.0.1", drain=True, **headers):
        made = self.socket(host)
        headers = {"accept-version": "1.2", **{name.replace("_", "-"): value for name, value in headers.items()}}
        made.receive(encode("CONNECT", headers.items()))
        if drain:
            (made.connected_frame,) = made.drain()
            assert made.connected_frame.command == "CONNECTED"
        return made

    def take(self):
        self.clock.advance(0)
        events, self.events[:] = list(self.events), []
        return events

    def check_all(self):
        while self.checks:
            work, answer = self.checks.pop(0)
            answer(work())

    def idle(self):
        """No timer is left."""
        self.clock.advance(0)
        return not self.clock.getDelayedCalls()


def delivery(tag, ack="auto", body=b"x"):
    return Delivery("a", tag, f"s1#{tag}", ClientMessage("queue:a", "/queue/a", body=body), ack=ack)
