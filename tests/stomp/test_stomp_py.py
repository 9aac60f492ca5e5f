"""stomp.py, a client that many use, with a server of its own process, in all three versions."""

import queue

import pytest
import stomp

from tests.admin.processes import Processes, free_ports
from tests.snippets import fenced, program

PATIENCE_S = 60  # before a test gives up; nothing is measured by it
VERSIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


def one_server(folder):
    """A server with a STOMP port, running."""
    listen, port, http = free_ports(3)
    (folder / "bus.toml").write_text(
        f'[bus]\nname = "solo"\n[servers.main]\nlisten = "127.0.0.1:{listen}"\nstomp = "127.0.0.1:{port}"\n'
        f'http = "127.0.0.1:{http}"\n'
        'anonymous = true\ndata = "main"\n'
    )
    made = Processes(folder / "bus.toml")
    made.port, made.http = port, http
    made.up()
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = one_server(tmp_path_factory.mktemp("solo"))
    yield made
    made.down()


class Mailbox(stomp.ConnectionListener):
    """What the library hands out."""

    def __init__(self):
        self.messages, self.receipts, self.errors, self.lost = (queue.Queue() for _ in range(4))

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame):
        self.errors.put(frame)

    def on_disconnected(self):
        self.lost.put(None)

    def take(self, count):
        return [self.messages.get(timeout=PATIENCE_S) for _ in range(count)]


class Client:
    """A connection of the library, with the differences between its versions."""

    def __init__(self, version, port, **options):
        self.version, self.mail = version, Mailbox()
        self.connection = VERSIONS[version]([("127.0.0.1", port)], **options)
        self.connection.set_listener("mail", self.mail)
        self.connection.connect(wait=True)

    def subscribe(self, destination, ack, **headers):
        self.connection.subscribe(destination=destination, id="s", ack=ack, headers=headers)

    def settle(self, what, frame, **more):
        method = getattr(self.connection, what)
        if self.version == "1.2":
            method(frame.headers["ack"], **more)
        elif self.version == "1.1":
            method(frame.headers["message-id"], "s", **more)
        else:
            method(frame.headers["message-id"], **more)

    def receipt(self, name):
        assert self.mail.receipts.get(timeout=PATIENCE_S) == name

    def send(self, destination, body, receipt="sent", **headers):
        self.connection.send(destination, body, headers={"receipt": receipt, **headers})
        self.receipt(receipt)


@pytest.fixture(params=VERSIONS)
def client(request, server):
    made = []

    def make(**options):
        made.append(Client(request.param, server.port, **options))
        return made[-1]

    yield make
    for each in made:
        if each.connection.is_connected():
            each.connection.disconnect()


@pytest.fixture
def place(request):
    """A queue of the test's own."""
    return "/queue/" + request.node.name.replace("[", "-").replace("]", "")


def test_send_subscribe_and_all_headers(client, place):
    c = client()
    c.send(place, "grün", color="red", **{"content-type": "text/plain"})
    c.subscribe(place, "auto")
    (frame,) = c.mail.take(1)
    assert (frame.body, frame.headers["color"], frame.headers["content-type"]) == ("grün", "red", "text/plain")
    assert frame.headers["destination"] == place


def test_ack_and_nack(client, place):
    c = client()
    for body in ("1", "2", "3"):
        c.send(place, body)
    c.subscribe(place, "client-individual")
    one, two, three = c.mail.take(3)
    c.settle("ack", one)
    if c.version == "1.0":
        c.connection.disconnect()
        c = client()
        c.subscribe(place, "client-individual")
        assert [frame.body for frame in c.mail.take(2)] == ["2", "3"]
    else:
        c.settle("nack", two)
        c.settle("ack", three)
        (again,) = c.mail.take(1)
        assert (again.body, again.headers["redelivered"], again.headers["JMSXDeliveryCount"]) == ("2", "true", "2")
        c.settle("ack", again)


def test_transactions(client, place):
    c = client()
    c.subscribe(place, "auto")
    c.connection.begin(transaction="t")
    c.connection.send(place, "never", transaction="t")
    c.connection.abort("t")
    c.connection.begin(transaction="t")
    c.connection.send(place, "1", transaction="t")
    c.send(place, "0")
    c.connection.commit("t")
    assert [frame.body for frame in c.mail.take(2)] == ["0", "1"]


def test_a_megabyte(client, place):
    c = client()
    c.subscribe(place, "auto")
    body = "0123456789abcdef" * (1 << 16)
    c.send(place, body)
    assert c.mail.take(1)[0].body == body


def test_an_error_is_told(client):
    c = client()
    c.connection.send("/nowhere/x", "body", headers={"receipt": "r"})
    error = c.mail.errors.get(timeout=PATIENCE_S)
    assert "no destination begins like" in error.headers["message"] and error.headers["receipt-id"] == "r"
    c.mail.lost.get(timeout=PATIENCE_S)


def test_disconnect_with_a_receipt(client):
    c = client()
    c.connection.disconnect(receipt="bye")
    c.receipt("bye")
    c.mail.lost.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_heart_beats_keep_a_connection_that_is_idle(server, version):
    """The server closes a connection that it hears nothing of for 0.9 s, the library one for 1.5 s."""
    c = Client(version, server.port, heartbeats=(300, 300), heart_beat_receive_scale=5)
    assert c.mail.lost.empty()
    with pytest.raises(queue.Empty):
        c.mail.lost.get(timeout=2.5)
    c.send("/queue/beats", "still here")
    c.connection.disconnect()


def test_a_client_returns_to_a_server_that_was_restarted(tmp_path):
    server = one_server(tmp_path)
    try:
        c = Client("1.2", server.port)
        c.send("/queue/a", "kept")
        server.down()
        c.mail.lost.get(timeout=PATIENCE_S)
        server.up()
        c.connection.connect(wait=True)
        c.subscribe("/queue/a", "auto")
        assert c.mail.take(1)[0].body == "kept"
        c.connection.disconnect()
    finally:
        server.down()


def test_what_docs_stomp_md_shows(server, tmp_path):
    code = fenced("docs/stomp.md", "python")
    assert program(code, tmp_path, _61613=server.port) == "/queue/orders ann one pizza\n"
    assert server.json("queue", "show", "orders")["messages"] == 0


def test_the_same_library_over_websocket(server):
    mail, connection = Mailbox(), stomp.WSStompConnection([("127.0.0.1", server.http)], ws_path="/ws")
    connection.set_listener("mail", mail)
    connection.connect(wait=True)
    connection.subscribe("/queue/by-websocket", id="1", ack="client-individual")
    connection.send("/queue/by-websocket", "grün", headers={"color": "red"})
    (frame,) = mail.take(1)
    assert (frame.body, frame.headers["color"]) == ("grün", "red")
    connection.ack(frame.headers["ack"])
    connection.disconnect(receipt="bye")
    assert mail.receipts.get(timeout=PATIENCE_S) == "bye"
    assert server.json("queue", "show", "by-websocket")["messages"] == 0
