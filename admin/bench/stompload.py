"""Producers and consumers of any STOMP 1.2 broker in one thread, made to cost next to nothing beside the broker.

Frames that go out are cut from one buffer that was built beforehand; of those that come in only the NULs are counted,
so no header that comes back and no body may hold one.
"""

import re
import selectors
import socket
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from mombroker.core.errors import MomError
from mombroker.stomp.frames import encode
from mombroker.stomp.headers import V12

CHUNK = 1 << 20
FRAMES = 4_096  # in the buffer, at least
SILENCE_S = 30.0  # then something was lost
ACK_IDS = re.compile(rb"\nack:([^\n]*)")
ACKS = ("auto", "client", "client-individual")


@dataclass(slots=True, frozen=True)
class Broker:
    host: str
    port: int
    login: str = ""
    passcode: str = ""
    amqp: bool = False
    nats: bool = False

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"


PORTS = {"stomp": 61613, "amqp": 5672, "nats": 4222}


def broker(url: str) -> Broker:
    """Of `stomp://USER:PASSCODE@HOST:PORT`, `amqp://...` or `nats://...`. Raises MomError."""
    try:
        parts = urlsplit(url if "://" in url else f"stomp://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in PORTS:
        raise MomError(f"{url!r} is no broker: write stomp://[USER:PASSCODE@]HOST[:PORT], amqp://... or nats://...")
    user, passcode = unquote(parts.username or ""), unquote(parts.password or "")
    scheme = parts.scheme
    return Broker(host, port or PORTS[scheme], user, passcode, scheme == "amqp", scheme == "nats")


class Line:
    """One logged-in connection. What does not fit into the socket waits in `rest`."""

    def __init__(self, at: Broker):
        try:
            self.socket = socket.create_connection((at.host, at.port), SILENCE_S)
        except OSError as error:
            raise MomError(f"no broker at {at.name}: {error.strerror or error}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.at = at
        self.login()

    def login(self) -> None:
        headers = [("accept-version", V12), ("host", "/"), ("heart-beat", "0,0")]
        if self.at.login:
            headers += [("login", self.at.login), ("passcode", self.at.passcode)]
        self.ask(encode("CONNECT", headers), b"CONNECTED")

    def ask(self, frame: bytes, answer: bytes) -> bytes:
        """Send a frame and wait for what it must be answered by. Returns what else has come."""
        self.socket.settimeout(SILENCE_S)
        came, start, end = b"", -1, -1
        try:
            self.socket.sendall(frame)
            while end < 0:
                came += self._checked(self.socket.recv(CHUNK))
                start = came.find(answer + b"\n") if start < 0 else start
                end = came.find(b"\0", start) if start >= 0 else -1
        except OSError as error:
            raise MomError(f"{self.at.name} does not answer: {error.strerror or error}") from None
        self.socket.setblocking(False)
        return came[:start] + came[end + 1 :]

    def receive(self) -> bytes:
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise MomError(f"{self.at.name} has cut a connection: {error.strerror}") from None
        return self._checked(data)

    def _checked(self, data: bytes) -> bytes:
        if not data or data.lstrip(b"\n").startswith(b"ERROR\n") or b"\0ERROR\n" in data or b"\0\nERROR\n" in data:
            raise MomError(f"{self.at.name} ends a connection: {data[-300:].decode(errors='replace').strip()}")
        return data

    def send(self, data: bytes | memoryview) -> bool:
        """False if some of it has to wait for room."""
        if self.rest:
            self.rest += data
            return False
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise MomError(f"{self.at.name} has cut a connection: {error.strerror}") from None
        self.rest = bytes(data[sent:])
        return not self.rest

    def more(self) -> bool:
        """There is room: send what waits."""
        data, self.rest = self.rest, b""
        return self.send(data)

    def flush(self) -> None:
        """Wait until all of it has gone; the connection blocks from now on."""
        self.socket.setblocking(True)
        if self.rest:
            self.socket.sendall(self.rest)

    def close(self) -> None:
        self.socket.close()


def sends(heads: Sequence[str], size: int, persistent: bool) -> tuple[bytes, int, int]:
    """Frames with receipts, all of one length, which take turns in these lines of headers, themselves of one length;
    how many, and that length."""
    count = -(-FRAMES // len(heads)) * len(heads)
    kept = "persistent:true\n" if persistent else "persistent:false\n"
    texts = [f"SEND\n{head}\n{kept}receipt:".encode() for head in heads]
    body = b"x" * size + b"\0"
    frames = b"".join([b"%b%06d\n\n%b" % (texts[number % len(texts)], number, body) for number in range(count)])
    assert len({len(text) for text in texts}) == 1, "heads of unlike lengths"
    return frames, count, len(frames) // count


class Sender(ABC):
    """Sends `count` messages, with at most `window` that nobody has answered for, from `round` frames."""

    line: Line

    def __init__(self, round: int, window: int):
        self.round, self.window = round, window
        self.count = self.sent = self.done = self.seen = 0
        self.under_way: deque[tuple[int, float]] = deque()  # (sent up to here, when)
        self.waits: list[tuple[float, int]] = []  # (seconds until the receipt, of so many messages)

    def start(self, count: int) -> None:
        self.count, self.sent, self.done, self.seen = count, 0, 0, 0
        self.under_way.clear()
        self.waits = []
        self.go(self.window)

    def go(self, room: int) -> None:
        left = min(room, self.count - self.sent)
        if left <= 0:
            return
        self.under_way.append((self.sent + left, time.perf_counter()))
        while left:
            at = self.sent % self.round
            some = min(left, self.round - at)
            self.line.send(self.cut(at, some))
            self.sent += some
            left -= some

    @abstractmethod
    def cut(self, at: int, some: int) -> bytes | memoryview:
        """So many frames from there on."""

    def answered(self, some: int) -> None:
        if not some:
            return
        now, under_way = time.perf_counter(), self.under_way  # it is there: what the next one takes is not its wait
        self.done += some
        self.go(some)
        while under_way and under_way[0][0] <= self.done:
            upto, since = under_way.popleft()
            self.waits.append((now - since, upto - self.seen))
            self.seen = upto

    @property
    def finished(self) -> bool:
        return self.done >= self.count


class Producer(Sender):
    """Sends with receipts. `heads`: lines of headers, as in `sends`."""

    def __init__(self, at: Broker, heads: Sequence[str], size: int, persistent: bool, window: int):
        self.line = Line(at)
        self.frames, round, self.length = sends(heads, size, persistent)
        super().__init__(round, min(window, round))
        self.view = memoryview(self.frames)

    def cut(self, at: int, some: int) -> bytes | memoryview:
        return self.view[at * self.length : (at + some) * self.length]

    def heard(self) -> None:
        self.answered(self.line.receive().count(0))


class PacedProducer(Producer):
    """One message each 1/`rate` seconds, whatever is not answered yet; its wait begins when it was due."""

    def __init__(self, at: Broker, head: str, size: int, persistent: bool, rate: float):
        super().__init__(at, [head], size, persistent, FRAMES)
        self.rate, self.began = rate, 0.0

    def start(self, count: int) -> None:
        self.began = time.perf_counter()
        super().start(count)

    def go(self, room: int) -> None:
        """It is not the answers that let it go on."""

    def pause(self) -> float:
        """Send what is due: seconds until there is more."""
        while self.sent < self.count:
            due = self.began + self.sent / self.rate
            if (left := due - time.perf_counter()) > 0:
                return left
            at = self.sent % self.round
            self.sent += 1
            self.under_way.append((self.sent, due))
            self.line.send(self.cut(at, 1))
        return SILENCE_S


DIGITS = 8  # of the number at the end of an id


def message_id() -> str:
    """As Qpid JMS makes it, its number left at 0."""
    return f"ID:{uuid.uuid4()}:1:1:1-{'0' * DIGITS}"


class NamingProducer(Producer):
    """Each message has an id of its own, without colons: STOMP takes none in it."""

    def __init__(self, at: Broker, head: str, size: int, persistent: bool, window: int):
        named = message_id().replace(":", "-")
        super().__init__(at, [f"{head}\nJMSMessageID:{named}"], size, persistent, min(window, FRAMES // 2))
        self.named = bytearray(self.frames)
        self.id_at, self.number = self.named.index(b"0" * DIGITS + b"\n"), 0

    def cut(self, at: int, some: int) -> bytes:
        length, frames, id_at, number = self.length, self.named, self.id_at, self.number
        for place in range(at * length, (at + some) * length, length):
            frames[place + id_at : place + id_at + DIGITS] = b"%08d" % number
            number += 1
        self.number = number
        return bytes(frames[at * length : (at + some) * length])


class Consumer:
    """Takes messages and settles them as its subscriptions say. `came(n)` is told of each lot.

    wanted   of each subscription its destination, and further headers
    """

    def __init__(
        self, at: Broker, wanted: Sequence[tuple[str, dict[str, str]]], ack: str, prefetch: int,
        came: Callable[[int], None],
    ):  # fmt: skip
        self.line = Line(at)
        self.ack, self.came = ack, came
        self.got = 0
        self.tail = b""
        frames = []
        for number, (destination, more) in enumerate(wanted):
            headers = {"id": str(number), "destination": destination, "ack": ack, "prefetch-count": str(prefetch)}
            last = {"receipt": "up"} if number == len(wanted) - 1 else {}
            frames.append(encode("SUBSCRIBE", {**headers, **more, **last}.items()))
        self._take(self.line.ask(b"".join(frames), b"RECEIPT"))

    def heard(self) -> None:
        self._take(self.line.receive())

    def _take(self, data: bytes) -> None:
        if self.tail:
            data = self.tail + data
        end = data.rfind(b"\0") + 1
        self.tail = data[end:]
        some = data.count(0, 0, end)
        if not some:
            return
        if self.ack != "auto":
            ids = ACK_IDS.findall(data, 0, end)
            if self.ack == "client":
                ids = ids[-1:]
            self.line.send(b"ACK\nid:" + b"\n\n\0ACK\nid:".join(ids) + b"\n\n\0")
        self.got += some
        self.came(some)

    def leave(self) -> None:
        """All that it has settled is so when this returns."""
        self.line.flush()
        self.line.ask(b"UNSUBSCRIBE\nid:0\nreceipt:down\n\n\0", b"RECEIPT")


class Side(Protocol):
    """A producer or a consumer."""

    @property
    def line(self) -> Line: ...

    def heard(self) -> None: ...


def drive(sides: Sequence[Side], done: Callable[[], bool]) -> None:
    """Let them work until `done`. Raises MomError when nothing comes for long."""
    paced = [side for side in sides if isinstance(side, PacedProducer)]
    # Epoll waits by whole milliseconds.
    with selectors.SelectSelector() if paced else selectors.DefaultSelector() as selector:
        for side in sides:
            selector.register(side.line.socket, selectors.EVENT_READ, side)
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        while not done():
            blocked = [side for side in sides if side.line.rest]
            for side in blocked:
                selector.modify(side.line.socket, both, side)
            patience = min((side.pause() for side in paced), default=SILENCE_S)
            ready = selector.select(patience)
            if not ready and patience >= SILENCE_S:
                raise MomError(
                    f"nothing has come from {sides[0].line.at.name} for {SILENCE_S:.0f} s: messages are lost"
                )
            for key, events in ready:
                if events & selectors.EVENT_WRITE:
                    key.data.line.more()
                if events & selectors.EVENT_READ:
                    key.data.heard()
            for side in blocked:
                selector.modify(side.line.socket, selectors.EVENT_READ, side)
