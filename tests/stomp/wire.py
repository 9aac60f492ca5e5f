"""A client of STOMP at a socket, for tests: what it sends as it stands, and what must come of it."""

import itertools
import socket

from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V10, V12

NUMBERS = itertools.count()


class Wire:
    def __init__(self, town, version):
        self.town, self.version = town, version
        self.socket = socket.create_connection(("127.0.0.1", town.stomp))
        self.socket.setblocking(False)
        self.parser = Parser(Limits(), version, SERVER)
        self.data, self.found, self.ended = b"", [], False

    def login(self, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.version != V10:
            headers["accept-version"] = self.version
        self.raw(encode("CONNECT", headers.items()))
        self.connected = self.read()
        assert self.connected.command == "CONNECTED"

    def raw(self, data):
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self.town.pass_time()
            except ConnectionError:
                break
        return self

    def send(self, command, body=b"", **headers):
        return self.raw(encode(command, [(n.replace("_", "-"), v) for n, v in headers.items()], body, self.version))

    def _look(self):
        while not self.ended:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            self.ended = not data
            self.data += data
            self.parser.feed(data)
        while (frame := self.parser.next()) is not None:
            self.found.append(frame)
        return bool(self.found) or self.ended

    def read(self):
        """The next frame; None at the end."""
        self.town.until(self._look)
        return self.found.pop(0) if self.found else None

    def quiet(self):
        """Nothing comes."""
        self.town.pass_time(10)
        self._look()
        return not self.found and not self.ended

    def sync(self):
        """What came until the server has obeyed all that was sent."""
        name = f"sync-{next(NUMBERS)}"
        self.send("BEGIN", transaction=name, receipt=name).send("ABORT", transaction=name)
        frames = []
        while (frame := self.read()) is not None and frame.headers.get("receipt-id") != name:
            frames.append(frame)
        assert frame is not None, frames
        return frames

    def error(self, words="", receipt=None):
        """What comes is an ERROR, and then the end."""
        while (frame := self.read()) is not None and frame.command != "ERROR":
            pass
        assert frame is not None, "the end without an ERROR"
        assert words in frame.headers["message"] and frame.headers.get("receipt-id") == receipt
        assert self.read() is None
        return frame

    def subscribe(self, destination, ack="client-individual", **headers):
        return self.send("SUBSCRIBE", destination=destination, id="s", ack=ack, **headers)

    def settle(self, command, frame, **headers):
        if self.version == V12:
            return self.send(command, id=frame.headers["ack"], **headers)
        return self.send(command, message_id=frame.headers["message-id"], subscription="s", **headers)

    def fill(self, queue, *bodies):
        for body in bodies:
            self.send("SEND", body, destination=queue)
        self.sync()
        return self

    def take(self, count):
        return [self.read() for _ in range(count)]


def bodies(frames):
    return [frame.body for frame in frames]
