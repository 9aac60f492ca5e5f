"""A client of AMQP without a socket, for tests: what it says are our own performatives, and what it hears is read."""

from collections import deque

from mombroker.amqp import codec, performatives
from mombroker.amqp.codec import NULL, boolean, listed, optional, string, symbol, symbols, ubyte, uint, ushort
from mombroker.amqp.connection import Connection, Settings
from mombroker.amqp.frames import EMPTY, PLAIN, SASL, SASL_FRAME, frame
from mombroker.amqp.performatives import ATTACH, FLOW, RECEIVER, SENDER, SOURCE, TARGET, Outcome, performative
from mombroker.broker.commands import Delivery, Flow, Receipt
from mombroker.broker.message import ClientMessage

NOW = 10**18
ACCEPTED = Outcome(performatives.ACCEPTED)


def init(mechanism="PLAIN", response=b"\0ann\0a"):
    return frame(performative(performatives.INIT, [symbol(mechanism), codec.binary(response)]), kind=SASL_FRAME)


def open_(container="box", idle=0, desired=(), max_frame=65_536):
    parts = [string(container), NULL, uint(max_frame), ushort(100), uint(idle), NULL, NULL, NULL]
    return performative(performatives.OPEN, [*parts, symbols(desired) if desired else NULL])


def begin(window=1_000):
    return performative(performatives.BEGIN, [NULL, uint(0), uint(window), uint(window)])


def terminus(code, address, **more):
    """`more`: durable, expiry, dynamic, capabilities, mode, filters (name -> value)."""
    filters = [
        (symbol(name), b"\0" + symbol(name) + codec.any_value(each)) for name, each in more.get("filters", {}).items()
    ]
    parts = [
        optional(string, address), uint(more.get("durable", 0)), symbol(more.get("expiry", "session-end")), uint(0),
        boolean(more.get("dynamic", False)), NULL,
    ]  # fmt: skip
    if code == performatives.SOURCE:
        parts += [optional(symbol, more.get("mode")), codec.mapped(filters) if filters else NULL, NULL, NULL]
    return performative(code, [*parts, symbols(more.get("capabilities", ()))])


def attach(handle, role, source=NULL, target=NULL, name=None, settles=0, desired=()):
    parts = [string(name or f"l{handle}"), uint(handle), boolean(role), ubyte(settles), ubyte(0), source, target]
    parts += [NULL, NULL, uint(0), NULL, NULL, symbols(desired) if desired else NULL]
    return performative(performatives.ATTACH, parts)


def transfer(handle, id, payload=b"", settled=False, more=False, aborted=False, state=NULL):
    parts = [uint(handle), uint(id), codec.binary(b"%d" % id), uint(0), boolean(settled), boolean(more), NULL, state]
    return performative(performatives.TRANSFER, [*parts, NULL, boolean(aborted)]) + payload


def flow(handle=None, credit=0, count=0, drain=False, window=1_000, seen=0, echo=False):
    parts = [uint(seen), uint(window), uint(0), uint(1_000)]
    if handle is not None:
        parts += [uint(handle), uint(count), uint(credit), NULL, boolean(drain), boolean(echo)]
    return performative(performatives.FLOW, parts)


def settle(first, last=None, state=None, settled=True, role=True):
    outcome = performatives.described_outcome(state) if not isinstance(state, bytes) else state
    parts = [boolean(role), uint(first), optional(uint, last), boolean(settled), outcome]
    return bytes((0, 0x53, performatives.DISPOSITION)) + listed(parts)


def message(body, **properties):
    """Data, durable."""
    head = b"\x00\x53\x70" + listed([boolean(True)])
    if properties:
        named = codec.mapped((string(name), codec.any_value(each)) for name, each in properties.items())
        head += b"\x00\x53\x74" + named
    return head + b"\x00\x53\x75" + codec.binary(body)


class Peer:
    """`heard`: (channel, (code, fields, payload)) of frames that nobody has taken; "header" and "empty", too."""

    def __init__(self, **settings):
        self.connection = Connection("s1/1", lambda: NOW, Settings(**settings))
        self.heard = deque()
        self._rest = b""

    def say(self, *bodies, channel=0):
        return self.raw(b"".join(frame(each, channel) for each in bodies))

    def raw(self, data):
        self.connection.receive(data)
        return self.look()

    def look(self):
        self._rest += b"".join(self.connection.output)
        self.connection.output.clear()
        while self._rest:
            if self._rest[:4] == b"AMQP":
                found, self._rest = "header", self._rest[8:]
            else:
                size = int.from_bytes(self._rest[:4], "big")
                found, self._rest = self._read(self._rest[:size]), self._rest[size:]
            self.heard.append(found)
        return self

    def _read(self, data):
        if data == EMPTY:
            return "empty"
        described, at = codec.value(data, 8)
        return described.descriptor, described.value, data[at:]

    def codes(self):
        """What was heard, without taking it."""
        return [each if isinstance(each, str) else each[0] for each in self.heard]

    def take(self):
        found, self.heard = list(self.heard), deque()
        return found

    def login(self, **more):
        self.raw(SASL + init())
        self.connection.accept()
        self.look()
        return self.opened(**more)

    def opened(self, **more):
        self.raw(PLAIN + frame(open_(**more)))
        self.connection.claimed("")
        self.look()
        self.take()
        return self

    def began(self, **more):
        self.login().say(begin(**more))
        self.take()
        return self

    def commands(self, part=1):
        return [each for number, asked in self.connection.asked if number == part for each in asked]

    def told(self, *replies, part=1):
        self.connection.reply_to(part, list(replies))
        self.connection.check()
        return self.look()


def sending(address="orders", **more):
    """A peer with a link to send by: handle 0."""
    peer = Peer(**more).began()
    peer.say(attach(0, SENDER, terminus(SOURCE, None), terminus(TARGET, address)))
    assert peer.codes() == [ATTACH, FLOW]
    peer.take()
    return peer


def receiving(address="orders", credit=10, settles=0, **more):
    """A peer with a link to receive by: handle 0."""
    peer = Peer().began()
    peer.say(attach(0, RECEIVER, terminus(SOURCE, address, **more), terminus(TARGET, None), settles=settles))
    (subscribe,) = peer.commands()
    peer.told(Receipt(subscribe.receipt))
    assert peer.codes() == [ATTACH]
    peer.take()
    if credit:
        peer.say(flow(0, credit))
        assert peer.commands() == [Flow(subscribe.sub, credit)]
    peer.sub = subscribe.sub
    return peer


def delivery(peer, tag, body=b"x", ack="individual", **more):
    return Delivery(
        peer.sub, tag, f"a#{tag}", ClientMessage("queue:orders", "/queue/orders", body=body, **more), ack=ack
    )


def last(peer):
    """What an error that was heard last says."""
    code, fields, _ = peer.take()[-1]
    return code, [str(each) for each in fields[-1].value[:2]]
