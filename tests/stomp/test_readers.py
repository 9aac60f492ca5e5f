"""Clients on threads of their own, over blocking sockets: what they read, how, and how fast they answer."""

import socket
from threading import Thread

import pytest

from mombroker.stomp.frames import encode
from tests.gateway.live import ClientTown

QUEUE = "/queue/a"


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    made = ClientTown(tmp_path_factory.mktemp("readers"))
    made.up()
    yield made
    made.down()


class Php:
    """Reads as the stomp extension of PHP does: by lines, and one more line end behind each NUL."""

    def __init__(self, port, **headers):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")
        self.send("CONNECT", **headers)
        assert self.read()[0] == "CONNECTED"

    def send(self, command, body=b"", **headers):
        self.socket.sendall(encode(command, [(n.replace("_", "-"), v) for n, v in headers.items()], body))

    def line(self):
        return self.file.readline()[:-1].decode()

    def read(self):
        command, headers = self.line(), {}
        assert command, "a frame begins with an empty line"
        while line := self.line():
            name, _, value = line.partition(":")
            headers[name] = value
        if "content-length" in headers:
            body = self.file.read(int(headers["content-length"]) + 1)
        else:
            body = b""
            while not body.endswith(b"\0"):
                body += self.file.read(1)
        assert (body[-1:], self.file.read(1)) == (b"\0", b"\n"), "a frame ends in NUL and a line end"
        return command, headers, body[:-1]

    def ask(self, command, body=b"", **headers):
        """What comes before the receipt."""
        self.send(command, body, **headers, receipt="r")
        found = []
        while (frame := self.read())[0] != "RECEIPT":
            found.append(frame)
        return found

    def leave(self):
        self.ask("DISCONNECT")
        self.file.close()
        self.socket.close()


def play(town, work):
    """What `work` returns, while the server runs."""
    found = []
    thread = Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    town.until(lambda: not thread.is_alive())
    assert found, "the client has failed"
    return found[0]


@pytest.mark.parametrize("length", [{}, {"content_length": "2"}])
def test_a_client_that_reads_a_line_end_behind_each_frame_gets_them_all(town, length):
    def work():
        php = Php(town.stomp)
        for at in range(100):
            php.ask("SEND", b"%02d" % at, destination=QUEUE, **length)
        found = php.ask("SUBSCRIBE", destination=QUEUE, id="1", ack="auto", prefetch_count="50")
        while len(found) < 100:
            found.append(php.read())
        php.send("SUBSCRIBE", destination="/queue/empty", id="2", browser="true")
        assert php.read()[1]["browser"] == "end"
        php.send("FOO")
        assert php.read()[0] == "ERROR"
        return [body for _, _, body in found]

    assert play(town, work) == [b"%02d" % at for at in range(100)]


@pytest.mark.parametrize("rounds", [60, pytest.param(800, marks=pytest.mark.long)])
def test_what_an_auto_client_has_read_never_comes_again(town, rounds):
    """It leaves as soon as it has read its message."""

    def work():
        again = 0
        for _ in range(rounds):
            client = Php(town.stomp, accept_version="1.2")
            client.send("SUBSCRIBE", destination="/queue/again", id="1", ack="auto")
            client.send("SEND", b"x", destination="/queue/again")
            again += client.read()[1]["JMSXDeliveryCount"] != "1"
            client.leave()
        return again

    assert play(town, work) == 0


def test_an_ack_that_comes_late_by_another_connection_settles_nothing(town):
    def take(client, count):
        client.send("SUBSCRIBE", destination="/queue/late", id="1", ack="client")
        return [client.read() for _ in range(count)]

    def work():
        first = Php(town.stomp, accept_version="1.2")
        for body in (b"A", b"B"):
            first.ask("SEND", body, destination="/queue/late")
        a, b = take(first, 2)
        first.ask("ACK", id=a[1]["ack"])
        first.socket.shutdown(socket.SHUT_RDWR)
        second = Php(town.stomp, accept_version="1.2")
        second.ask("SEND", b"URGENT", destination="/queue/late", priority="9")
        assert [body for _, _, body in take(second, 2)] == [b"URGENT", b"B"]
        second.send("ACK", id=b[1]["ack"])
        assert second.read()[0] == "ERROR"
        third = Php(town.stomp, accept_version="1.2")
        return {body for _, _, body in take(third, 2)}

    assert play(town, work) == {b"URGENT", b"B"}
