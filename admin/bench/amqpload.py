"""Producers and consumers of any AMQP 1.0 broker in one thread, as those of stompload.py: made to cost next to nothing
beside the broker. Frames that go out are cut from one buffer, in which numbers and times change. Their messages are as
those of Qpid JMS, each with an id of its own and the time of its creation."""

import struct
import time
from collections.abc import Callable

from mombroker.admin.bench.stompload import DIGITS, FRAMES, Broker, Line, Sender, message_id
from mombroker.amqp import codec, performatives
from mombroker.amqp.codec import NULL, boolean, performative, string, symbol, symbols, ubyte, uint, ushort
from mombroker.amqp.frames import PLAIN, SASL, SASL_FRAME, frame
from mombroker.core.errors import MomError

WINDOW = 1 << 20  # frames that a session may have under way
ACCEPTED = performatives.described_outcome(performatives.Outcome(performatives.ACCEPTED))
_NUMBER = struct.Struct(">I").pack_into
_TIME = struct.Struct(">Q").pack_into
_SIZE = struct.Struct(">I").unpack_from


class AmqpLine(Line):
    """A connection with one session. `frames` are those that have come and nobody has taken."""

    def __init__(self, at: Broker):
        self.tail = b""
        super().__init__(at)

    def login(self) -> None:
        plain = f"\0{self.at.login}\0{self.at.passcode}".encode()
        mechanism, response = ("PLAIN", plain) if self.at.login else ("ANONYMOUS", b"")
        init = performative(performatives.INIT, [symbol(mechanism), codec.binary(response)])
        self.socket.sendall(SASL + frame(init, kind=SASL_FRAME))
        self._until(performatives.OUTCOME)
        opened = [string(f"bench-{time.monotonic_ns()}"), string(self.at.host), uint(65_536), ushort(10), NULL]
        begun = [NULL, uint(0), uint(WINDOW), uint(WINDOW)]
        self.socket.sendall(
            PLAIN + frame(performative(performatives.OPEN, opened)) + frame(performative(performatives.BEGIN, begun))
        )
        self._until(performatives.BEGIN)

    def _until(self, code: int) -> bytes:
        """What a frame says that has this code; the others are dropped."""
        while True:
            for found in self.split(self._checked(self.socket.recv(1 << 16))):
                if found[:4] != b"AMQP" and found[start(found) + 2] == code:
                    return found

    def attach(self, role: bool, source: bytes, target: bytes) -> bytes:
        """Wait until it is there."""
        parts = [string("l"), uint(0), boolean(role), ubyte(0), ubyte(0), source, target]
        self.socket.settimeout(30)
        self.socket.sendall(frame(performative(performatives.ATTACH, [*parts, NULL, NULL, uint(0)])))
        found = self._until(performatives.FLOW if role == performatives.SENDER else performatives.ATTACH)
        self.socket.setblocking(False)
        return found

    def split(self, data: bytes) -> list[bytes]:
        """The frames, and headers, that are whole by now."""
        data, at, found = self.tail + data, 0, []
        while len(data) - at >= 8:
            size = 8 if data[at : at + 4] == b"AMQP" else _SIZE(data, at)[0]
            if at + size > len(data):
                break
            found.append(data[at : at + size])
            at += size
        self.tail = data[at:]
        return found

    def _checked(self, data: bytes) -> bytes:
        if not data:
            raise MomError(f"{self.at.name} ends a connection")
        return data


def start(found: bytes) -> int:
    """Where the body of a frame begins."""
    return found[4] * 4


def said(found: bytes) -> tuple[int, list[object]]:
    """Code and fields of a performative."""
    described, _ = codec.value(found, start(found))
    return described.descriptor, described.value


def _kind(topic: bool) -> str:
    """The capability that brokers tell queues and topics by."""
    return "topic" if topic else "queue"


NUMBER_AT, TAG_AT = 16, 22  # in a frame


def _frame(address: str, topic: bool, size: int, durable: bool, named: bool) -> bytes:
    """A transfer of a BytesMessage as Qpid JMS 2 writes it, number, tag, time and the end of its id left at 0; or, not
    `named`, of a message without properties."""
    transfer = bytes((0x00, 0x53, 0x14, 0xC0, 15, 5, 0x43, 0x70, 0, 0, 0, 0, 0xA0, 4, 0, 0, 0, 0, 0x43, 0x42))
    header = performative(0x70, [boolean(durable)])
    body = b"\x00\x53\x75" + codec.binary(b"x" * size)
    if not named:
        return frame(transfer + header + body)
    annotations = [
        (symbol("x-opt-jms-dest"), b"\x51\x01" if topic else b"\x51\x00"),
        (symbol("x-opt-jms-msg-type"), b"\x51\x03"),
    ]
    id = string(message_id())
    kind = symbol("application/octet-stream")
    fields = b"".join([id, NULL, string(address), NULL, NULL, NULL, kind, NULL, NULL, codec.timestamp(0)])
    said = b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + (10).to_bytes(4, "big") + fields
    parts = [transfer, header, codec.described(0x72, codec.mapped(annotations)), b"\x00\x53\x73", said]
    return frame(b"".join(parts) + body)


class AmqpProducer(Sender):
    """Sends messages, which are to be accepted; `named`: each has an id of its own, and the time of its creation."""

    line: AmqpLine

    def __init__(
        self, at: Broker, address: str, topic: bool, size: int, durable: bool, window: int, named: bool = True
    ):
        self.line = AmqpLine(at)
        target = performative(performatives.TARGET, [string(address), *[NULL] * 5, symbols([_kind(topic)])])
        self.line.attach(performatives.SENDER, performative(performatives.SOURCE, []), target)
        one = _frame(address, topic, size, durable, named)
        self.length = len(one)
        self.frames = bytearray(one * FRAMES)
        self.named, self.number = named, 0
        if named:
            self.id_at, self.time_at = one.index(b"0" * DIGITS + b"@"), one.index(b"\x83" + bytes(8)) + 1
        super().__init__(FRAMES, min(window, FRAMES // 2))

    def cut(self, at: int, some: int) -> bytes:
        length, frames = self.length, self.frames
        now, number = int(time.time() * 1_000), self.number
        for place in range(at * length, (at + some) * length, length):
            _NUMBER(frames, place + NUMBER_AT, number)
            _NUMBER(frames, place + TAG_AT, number)
            if self.named:
                frames[place + self.id_at : place + self.id_at + DIGITS] = b"%08d" % number
                _TIME(frames, place + self.time_at, now)
            number += 1
        self.number = number
        return bytes(frames[at * length : (at + some) * length])

    def heard(self) -> None:
        some = 0
        for found in self.line.split(self.line.receive()):
            if found[start(found) + 2] == performatives.DISPOSITION:
                _, fields = said(found)
                first, last = fields[1], fields[2] if len(fields) > 2 and fields[2] is not None else fields[1]
                state = fields[4] if len(fields) > 4 else None
                if not isinstance(state, codec.Described) or state.descriptor != performatives.ACCEPTED:
                    raise MomError(f"{self.line.at.name} does not accept a message")
                assert isinstance(first, int) and isinstance(last, int), "numbers of deliveries"
                some += last - first + 1
        self.answered(some)


def _settled(first: int, last: int) -> bytes:
    return frame(performatives.disposition(performatives.RECEIVER, first, last, ACCEPTED))


class AmqpConsumer:
    """Takes messages and accepts them, each by itself, or with `client` each lot at once. `came(n)` is told of each
    lot."""

    def __init__(self, at: Broker, address: str, topic: bool, ack: str, prefetch: int, came: Callable[[int], None]):
        self.line = AmqpLine(at)
        self.each = ack != "client"
        self.came, self.prefetch = came, prefetch
        self.got = 0
        source = performative(performatives.SOURCE, [string(address), *[NULL] * 9, symbols([_kind(topic)])])
        self.line.attach(performatives.RECEIVER, source, performative(performatives.TARGET, []))
        self.left = 0
        self._grant()

    def _grant(self) -> None:
        self.left = self.prefetch
        self.line.send(frame(performatives.flow(0, WINDOW, 0, WINDOW, 0, self.got, self.prefetch)))

    def heard(self) -> None:
        first, some = -1, 0
        for found in self.line.split(self.line.receive()):
            at = start(found)
            if found[at + 2] == performatives.TRANSFER:
                if first < 0:  # the others follow it
                    number = said(found)[1][1]
                    assert isinstance(number, int), "a delivery has a number"
                    first = number
                some += 1
        if not some:
            return
        last = first + some - 1
        lots = [(number, number) for number in range(first, last + 1)] if self.each else [(first, last)]
        self.line.send(b"".join([_settled(*lot) for lot in lots]))
        self.got += some
        self.left -= some
        if self.left <= self.prefetch // 2:
            self._grant()
        self.came(some)

    def leave(self) -> None:
        """All that it has settled is so when this returns."""
        self.line.flush()
        self.line.socket.sendall(frame(performatives.detach(0, True)))
        self.line._until(performatives.DETACH)
