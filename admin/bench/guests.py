"""STOMP clients as processes that may be killed at any moment. What they do, and are told, they write down first.

Each line of the journal is one write to a file that is open for appending, so the lines of all of them are in one
order, which agrees with what caused what: a message is written down before it is sent, and before it is acknowledged.
"""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from mombroker.stomp.frames import SERVER, Frame, Limits, Parser, encode
from mombroker.stomp.headers import V12

COLORS = ("red", "blue")
RETRY_S = 0.05
TURN_S = 0.05  # how long a client looks for what has come
PACE_S = 0.005  # and one that sends without being asked
WINDOW = 10  # messages of a producer without a receipt
PREFETCH = 5
LONG_S = 0.02
LATE_S = 1.0  # what was due longer ago is not made up for
MOST_OUT = 400  # messages of a producer with a rate without a receipt
PROBE_S = 0.04  # between two messages of a probe


class Lost(Exception):
    """The connection is gone."""


@dataclass(slots=True)
class Place:
    """Where the clients are: the ports of the servers, whose each is, and the journal."""

    ports: Mapping[int, str]
    journal: Path


class Guest:
    """Connects to any server, does its work, and connects again when that one is killed, until it gets SIGTERM.

    retry    s from the end of a connection to the next try
    turn     s that it looks for what has come before it works again: more often it would only keep the machine busy
    """

    retry, turn = RETRY_S, TURN_S

    def __init__(self, place: Place, name: str, lots: Random, **how: Any):
        self.ports, self.lots = place.ports, lots
        self.name = f"{name}.{os.getpid()}"
        self.journal = os.open(place.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.how = how
        self.conns = self.count = 0
        self.ending = False
        self.port, self.since = 0, 0.0  # of the server, and since when it is connected to that
        self.parent = os.getppid()

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        while not self.over():
            try:
                self.connect()
                self.begin()
                while not self.over():
                    self.work()
                    self.poll(self.turn)
            except (Lost, OSError):
                if self.since:
                    self.note("lost", self.conn, self.port, self.since, time.time())
                signal.sigtimedwait((), self.retry)

    def _end(self, *_: Any) -> None:
        self.ending = True

    def over(self) -> bool:
        return self.ending or self.orphan()

    def orphan(self) -> bool:
        return os.getppid() != self.parent

    def note(self, *record: Any) -> None:
        os.write(self.journal, json.dumps(record).encode() + b"\n")

    def connect(self) -> None:
        self.conns += 1
        self.port, self.since = self.choose([*self.ports]), 0.0
        self.conn = f"{self.name}.{self.conns}"
        self.socket = socket.create_connection(("127.0.0.1", self.port), 5.0)
        self.parser = Parser(Limits(), V12, SERVER)
        self.note("open", self.conn)
        self.write("CONNECT", accept_version=V12, client_id=self.how.get("client_id", ""))
        while (frame := self.parser.next()) is None:
            self._feed()
        if frame.command != "CONNECTED":
            self.refused(frame)
        self.since = time.time()
        self.known(frame.headers["session"])

    def choose(self, ports: list[int]) -> int:
        return self.lots.choice(ports)

    def known(self, session: str) -> None:
        """It begins with the name of the server: while that is down, somebody else may listen there."""
        if (server := session.partition("/")[0]) != self.ports[self.port]:
            self.note("refused", self.conn, f"{server} answers where {self.ports[self.port]} was expected")
            self.since = 0.0
            raise Lost

    def write(self, command: str, body: bytes = b"", **headers: Any) -> None:
        pairs = [(name.replace("_", "-"), str(value)) for name, value in headers.items() if value != ""]
        self.socket.sendall(encode(command, pairs, body))

    def _feed(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise Lost
        self.parser.feed(data)

    def poll(self, seconds: float) -> None:
        """Whatever has come is taken, the end of the connection last."""
        if select.select([self.socket], (), (), seconds)[0]:
            self._feed()
        while (frame := self.parser.next()) is not None:
            if frame.command == "MESSAGE":
                self._saw(frame)
            elif frame.command == "RECEIPT":
                of, _, name = frame.headers["receipt-id"].partition(":")
                self.note("receipt", self.conn, of, name, "unconfirmed" not in frame.headers)
                self.told(of, name)
            else:
                self.refused(frame)

    def refused(self, frame: Frame) -> None:
        self.since = 0.0  # it knows why
        self.note("refused", self.conn, frame.headers.get("message", ""))
        raise Lost

    def subscribe(self, stream: str, destination: str, sub: str = "0", **headers: Any) -> None:
        """`stream` is its name in the ledger."""
        self.note("subscribe", self.conn, sub, stream)
        self.write(
            "SUBSCRIBE", id=sub, destination=destination, receipt=f"subscribe:{sub}", prefetch_count=PREFETCH, **headers
        )

    def _saw(self, frame: Frame) -> None:
        headers, key = frame.headers, frame.body.decode()
        id, count = headers["message-id"], int(headers["JMSXDeliveryCount"])
        self.note("saw", self.conn, headers["subscription"], id, key, count, headers.get("redelivered") == "true")
        self.given(id, key)

    def fresh(self) -> str:
        """The key of a new message."""
        self.count += 1
        return f"{self.name}.{self.count}"

    def send(self, key: str, destination: str, color: str, **headers: Any) -> None:
        self.note("send", self.conn, key, f"{destination}?{color}")
        self.write("SEND", key.encode(), destination=destination, color=color, **headers)

    # -- what each kind of client does in its own way ----------------------------------------------------------------

    def begin(self) -> None:
        """It is connected, perhaps again."""

    def work(self) -> None: ...
    def told(self, of: str, name: str) -> None: ...
    def given(self, id: str, key: str) -> None: ...


class Producer(Guest):
    """Sends, and sends again what had no receipt when the connection was lost. With a `rate` it sends so much a second,
    unless very much has no receipt yet.
    """

    window, turn = WINDOW, PACE_S

    def __init__(self, *args: Any, **how: Any):
        super().__init__(*args, **how)
        self.out: dict[str, tuple[str, str, str]] = {}
        self.numbers: dict[str, int] = {}  # each destination has its own
        self.last = self.due = 0.0

    def over(self) -> bool:
        return self.orphan() or (self.ending and not self.out)

    def begin(self) -> None:
        for key, (destination, color, dedup_id) in self.out.items():
            self._send(key, destination, color, dedup_id)

    def work(self) -> None:
        if not self.how.get("rate"):
            self._next(self.window)
            return
        now = time.monotonic()
        self.due += self.how["rate"] * min(now - self.last, LATE_S) if self.last else 0.0
        self.last = now
        while self.due >= 1.0 and self._next(MOST_OUT):
            self.due -= 1.0

    def _next(self, window: int) -> bool:
        """Send one more, unless so many have no receipt."""
        sends = len(self.out) < window and not self.ending
        if sends:
            key, destination = self.fresh(), self.lots.choice(self.how["to"])
            number = self.numbers[destination] = self.numbers.get(destination, 0) + 1
            self.out[key] = destination, self.lots.choice(COLORS), f"{self.name}{destination}:{number}"
            self._send(key, *self.out[key])
        return sends

    def _send(self, key: str, destination: str, color: str, dedup_id: str) -> None:
        self.send(key, destination, color, receipt=f"send:{key}", dedup_id=dedup_id)

    def told(self, of: str, name: str) -> None:
        self.out.pop(name, None)


class Beat(Producer):
    """Has one message at a time on its way to a server, whose addresses it tries in turn, and writes down when a
    receipt took long after the last one."""

    retry = 0.01
    window = 1
    last = 0.0

    def choose(self, ports: list[int]) -> int:
        return ports[self.conns % len(ports)]

    def told(self, of: str, name: str) -> None:
        super().told(of, name)
        now = time.time()
        if self.last and now - self.last > LONG_S:
            self.note("pause", self.how["server"], self.last, now)
        self.last = now


class Probe(Guest):
    """Sends to a queue of its own on one server, now and then, and takes that; writes down how long the receipt and the
    message took, in ms."""

    retry = 0.2
    sent: float | None = None
    next = at = 0.0

    def note(self, *record: Any) -> None:
        if record[0] in ("latency", "lost", "refused"):
            super().note(*record)

    def begin(self) -> None:
        self.write("SUBSCRIBE", id="0", destination=self.how["queue"], ack="auto")
        self.sent, self.took = None, dict[str, float]()

    def work(self) -> None:
        now = time.monotonic()
        if self.sent is None and now >= self.next:
            self.sent, self.next, self.at, self.took = now, now + PROBE_S, time.time(), {}
            self.write("SEND", self.fresh().encode(), destination=self.how["queue"], receipt="send:")
        self.turn = TURN_S if self.sent is not None else max(0.0, self.next - now)

    def told(self, of: str, name: str) -> None:
        self._came("receipt")

    def given(self, id: str, key: str) -> None:
        self._came("message")

    def _came(self, what: str) -> None:
        if self.sent is None:
            return  # of an earlier connection
        self.took[what] = round(1000 * (time.monotonic() - self.sent), 2)
        if len(self.took) == 2:
            self.note("latency", self.how["server"], self.at, self.took["receipt"], self.took["message"])
            self.sent = None


class Taker(Guest):
    """Takes from one subscription or several; gives some back, and of some acknowledgements wants to be sure."""

    def begin(self) -> None:
        for number, (stream, destination) in enumerate(self.how["of"]):
            self.subscribe(stream, destination, str(number), ack=self.how["ack"], **self.how.get("headers", {}))

    def given(self, id: str, key: str) -> None:
        dice = self.lots.random()
        if self.how["ack"] == "auto":
            return
        if dice < 0.05:
            self.write("NACK", id=id)
        else:
            self.write("ACK", id=id, receipt=f"ack:{id}" if dice < 0.5 else "")


class Mover(Guest):
    """Passes each message on to two queues in one transaction with its acknowledgement; some transactions it aborts."""

    def begin(self) -> None:
        self.subscribe("in", "/queue/in", ack="client-individual")

    def given(self, id: str, key: str) -> None:
        if self.lots.random() < 0.2:
            keys = self._transact(id)
            self.note("abort", self.conn, keys)
            self.write("ABORT", transaction=id)
        keys = self._transact(id)
        self.note("commit", self.conn, keys, id)
        self.write("COMMIT", transaction=id, receipt=f"send:{keys[0]}")

    def _transact(self, id: str) -> list[str]:
        keys = [self.fresh(), self.fresh()]
        self.write("BEGIN", transaction=id)
        for key, queue in zip(keys, ("/queue/left", "/queue/right"), strict=True):
            self.send(key, queue, "red", transaction=id)
        self.write("ACK", id=id, transaction=id)
        return keys
