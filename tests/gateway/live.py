"""Clients on real sockets, and a whole server for them: reactor, store, queues."""

import http.client
import json
import socket

import pytest

from mombroker.core.topology import AgentDecl, Server, Topology
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from tests.net.town import Town


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class ClientTown(Town):
    """One server with a port for STOMP and one for HTTP."""

    def __init__(self, folder, anonymous=True, **settings):
        super().__init__(folder, "a")
        self.stomp, self.port = free_port(), free_port()
        self.settings = {"anonymous": anonymous, "http": f"127.0.0.1:{self.port}", **settings}
        self.wires = []

    def topology(self, me):
        server = Server(
            me, "127.0.0.1", self.ports[me], f"127.0.0.1:{self.stomp}", str(self.folder / me), **self.settings
        )
        return Topology("town", {me: server}, {}, [AgentDecl("box-a", me, "tests.net.workers:Box")])

    def wire(self, **headers):
        made = Wire(self, **headers)
        self.wires.append(made)
        return made

    def get(self, *targets, context=None, port=None, changes=None, **headers):
        """(status, body) of each, over one connection; `changes`: these arguments are sent there."""
        method, body = ("GET", None) if changes is None else ("POST", json.dumps(changes))
        headers |= {"Content_Type": "application/json"} if body else {}

        def work():
            kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
            conn = kind("localhost", port or self.port, timeout=60, **({"context": context} if context else {}))
            found = []
            for target in targets:
                conn.request(
                    method, target, body, headers={name.replace("_", "-"): each for name, each in headers.items()}
                )
                answer = conn.getresponse()
                found.append((answer.status, answer.read().decode()))
            conn.close()
            return found

        return self.do(work)

    def end(self):
        """Its clients go, then it; nothing is left to be done."""
        for wire in self.wires:
            wire.socket.close()
        self.down()
        self.pass_time()
        assert self.reactor.getDelayedCalls() == []


class Wire:
    """A client whose every wait turns the reactor."""

    def __init__(self, town, host="127.0.0.1", **headers):
        self.town = town
        self.socket = socket.create_connection(("127.0.0.1", town.stomp), source_address=(host, 0))
        self.socket.setblocking(False)
        self.parser = Parser(Limits(), V12, SERVER)
        self.found, self.ended = [], False
        self.send("CONNECT", **{"accept-version": "1.2", **headers})
        self.connected = self.read()

    def send(self, command, body=b"", **headers):
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.socket.send(encode(command, pairs, body))
        return self

    def look(self):
        while not self.ended:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            self.ended = not data
            self.parser.feed(data)
        while (frame := self.parser.next()) is not None:
            self.found.append(frame)
        return bool(self.found) or self.ended

    def read(self):
        """The next frame; None at the end."""
        self.town.until(self.look)
        return self.found.pop(0) if self.found else None

    def ask(self, command, body=b"", **headers):
        """A frame with a receipt; what comes until the receipt does."""
        self.send(command, body, **headers, receipt="r")
        frames = []
        while (frame := self.read()) is not None:
            if frame.command == "RECEIPT":
                return frames
            frames.append(frame)
            if frame.command == "ERROR":
                break
        return frames


@pytest.fixture
def town(tmp_path):
    """Makes a server with these settings."""
    made = []

    def make(**how):
        made.append(ClientTown(tmp_path, **how))
        return made[-1]

    yield make
    for each in made:
        each.end()
