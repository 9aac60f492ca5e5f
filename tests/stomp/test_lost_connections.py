"""Consumers that are lost with thousands of unsettled messages, and a server of its own process."""

import socket

import pytest

from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from tests.stomp.test_stomp_py import one_server

PATIENCE_S = 60  # before a test gives up; nothing is measured by it


class Raw:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.parser = Parser(Limits(), V12, SERVER)
        self.send("CONNECT", **{"accept-version": "1.2"})
        self.read(1)

    def send(self, command, body=b"", **headers):
        self.socket.sendall(encode(command, list(headers.items()), body))

    def read(self, count):
        """The bodies of so many frames."""
        found = []
        while len(found) < count:
            while (frame := self.parser.next()) is not None:
                found.append(frame.body)
            if len(found) < count:
                data = self.socket.recv(1 << 16)
                assert data, "the server has closed the connection"
                self.parser.feed(data)
        return found


def lose_all(port, queue, count):
    """A consumer takes all and is lost; what the next one gets."""
    how = {"destination": queue, "id": "1", "ack": "client-individual", "prefetch-count": str(count)}
    sender, first, second = Raw(port), Raw(port), Raw(port)
    for number in range(count):
        sender.send("SEND", b"%d" % number, destination=queue)
    sender.send("SEND", b"one more", destination=queue, receipt="r")
    sender.read(1)
    first.send("SUBSCRIBE", **how)
    first.read(count)
    first.socket.close()
    second.send("SUBSCRIBE", **how)
    found = second.read(count)
    sender.socket.close()
    second.socket.close()
    return found


def trials(folder, times, count):
    server = one_server(folder)
    try:
        for trial in range(times):
            assert lose_all(server.port, f"/queue/q{trial}", count) == [b"%d" % number for number in range(count)]
    finally:
        server.down()


def test_what_a_lost_connection_had_is_given_to_the_next_one_at_once(tmp_path):
    trials(tmp_path, 1, 1_500)


@pytest.mark.long
def test_what_a_lost_connection_had_is_given_to_the_next_one_in_a_hundred_trials(tmp_path):
    trials(tmp_path, 100, 2_500)
