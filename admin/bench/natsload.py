"""A producer and a consumer of a JetStream, as those of stompload.py: they cost next to nothing beside the broker. The
stream is made anew for each round; servers of a cluster keep it in three copies, a server alone in one."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

from mombroker.admin.bench.stompload import CHUNK, FRAMES, Broker, Line, Sender
from mombroker.core.errors import MomError

STREAM, SUBJECT, INBOX, DELIVER = "mom-bench", "mom-bench.q", "_INBOX.mom-bench", "mom-bench-deliver"
COPIES = 3  # in a cluster
MESSAGE = re.compile(rb"MSG \S+ \S+ (\$JS\.ACK\S+) \d+\r\n[^\r]*\r\n")
PATIENCE_S = 30.0


class NatsLine(Line):
    def login(self) -> None:
        options = {"verbose": False, "pedantic": False, "user": self.at.login, "pass": self.at.passcode}
        self.socket.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        said = self.until(b"PONG\r\n")
        self.copies = COPIES if b'"cluster":' in said else 1

    def until(self, wanted: bytes) -> bytes:
        self.socket.settimeout(PATIENCE_S)
        came = b""
        while wanted not in came:
            came += self._checked(self.socket.recv(CHUNK))
        return came

    def api(self, verb: str, **said: Any) -> dict[str, Any]:
        """One request to the JetStream."""
        body, inbox = json.dumps(said).encode() if said else b"", f"{INBOX}.{time.monotonic_ns()}"
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(f"SUB {inbox} 9\r\nUNSUB 9 1\r\nPUB $JS.API.{verb} {inbox} {len(body)}\r\n".encode())
        self.socket.sendall(body + b"\r\n")
        came = b""
        while not (found := re.search(rb"MSG \S+ 9 (\d+)\r\n", came)) or len(came) < found.end() + int(found[1]) + 2:
            came += self._checked(self.socket.recv(CHUNK))
        answer: dict[str, Any] = json.loads(came[found.end() : found.end() + int(found[1])])
        return answer

    def must(self, verb: str, **said: Any) -> None:
        if "error" in (answer := self.api(verb, **said)):
            raise MomError(f"{self.at.name} refuses {verb}: {answer['error'].get('description')}")

    def _checked(self, data: bytes) -> bytes:
        if not data or b"-ERR" in data:
            raise MomError(f"{self.at.name} ends a connection: {data[-200:].decode(errors='replace').strip()}")
        if data.startswith(b"PING\r\n") or b"\r\nPING\r\n" in data:
            self.socket.sendall(b"PONG\r\n")
        return data


class NatsConsumer:
    """Makes the stream, which is kept on disk, and takes its messages, each with an ack."""

    def __init__(self, at: Broker, prefetch: int, came: Callable[[int], None]):
        self.came, self.got, self.tail = came, 0, b""
        self.line = NatsLine(at)
        self.line.api(f"STREAM.DELETE.{STREAM}")
        self.line.must(
            f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=[SUBJECT], storage="file", num_replicas=self.line.copies,
            retention="workqueue",
        )  # fmt: skip
        self.line.socket.sendall(f"SUB {DELIVER} 1\r\n".encode())
        config = {
            "durable_name": "c", "deliver_subject": DELIVER, "ack_policy": "explicit", "max_ack_pending": prefetch,
        }  # fmt: skip
        self.line.must(f"CONSUMER.DURABLE.CREATE.{STREAM}.c", stream_name=STREAM, config=config)
        self.line.socket.setblocking(False)

    def heard(self) -> None:
        data, end, replies = self.tail + self.line.receive(), 0, []
        for found in MESSAGE.finditer(data):
            replies.append(found[1])
            end = found.end()
        self.tail = data[end:]
        if replies:
            self.line.send(b"".join([b"PUB %b 0\r\n\r\n" % reply for reply in replies]))
            self.got += len(replies)
            self.came(len(replies))

    def leave(self) -> None:
        """All that it has settled is so when this returns."""
        self.line.flush()
        while (found := self.line.api(f"CONSUMER.INFO.{STREAM}.c")).get("num_ack_pending") or "error" in found:
            time.sleep(0.01)


class NatsProducer(Sender):
    """The stream's answer to a message is its receipt."""

    def __init__(self, at: Broker, size: int, window: int):
        self.line = NatsLine(at)
        self.line.socket.sendall(f"SUB {INBOX}.p 1\r\n".encode())
        self.line.socket.setblocking(False)
        self.frame = f"PUB {SUBJECT} {INBOX}.p {size}\r\n".encode() + b"x" * size + b"\r\n"
        super().__init__(FRAMES, window)

    def cut(self, at: int, some: int) -> bytes:
        return self.frame * some

    def heard(self) -> None:
        data = self.line.receive()
        if b'"error"' in data:
            raise MomError(f"{self.line.at.name} refuses a message: {data[-200:].decode(errors='replace')}")
        self.answered(data.count(b"}"))  # one an answer
