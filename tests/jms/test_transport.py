"""The thread with the socket, against servers that say what a test wants; and its beats, with a clock of the test."""

import asyncio
import socket
import ssl
import threading

import pytest

from mombroker.jms import ConnectionLost, IllegalState, InvalidUrl, LoginRefused, Refused, aio, connect, transport
from mombroker.jms.transport import Beats
from mombroker.stomp.frames import CLIENT, Limits, Parser, encode
from mombroker.stomp.headers import V12
from tests.gateway.test_sockets import pem  # noqa: F401

PATIENCE_S = 30


def test_when_to_speak_and_when_the_other_side_is_gone():
    beats = Beats(2.0, 4.0, now=100.0)
    assert not beats.must_speak(101.9) and beats.must_speak(102.0)
    assert not beats.silent(110.0) and beats.silent(110.1)
    assert beats.wait(100.0) == pytest.approx(2.001)
    beats.said = 109.0
    assert not beats.must_speak(110.0)
    assert beats.wait(109.5) == pytest.approx(0.501)
    assert beats.wait(120.0) == 0.001


def test_without_beats_nothing_has_to_be_said():
    beats = Beats(0, 0, now=100.0)
    assert not beats.must_speak(1e9) and not beats.silent(1e9) and beats.wait(1e9) is None


class Scripted:
    """A server: each connection gets the next of `scripts`, a function of the socket and its parser."""

    def __init__(self, *scripts, context=None):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.context = context
        self.url = f"stomp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, args=(scripts,), daemon=True)
        self.thread.start()

    def _serve(self, scripts):
        for script in scripts:
            sock, _ = self.listener.accept()
            try:
                if self.context:
                    sock = self.context.wrap_socket(sock, server_side=True)
                sock.settimeout(PATIENCE_S)
                script(Talk(sock))
            except OSError:
                pass
            sock.close()
        self.listener.close()


class Talk:
    def __init__(self, sock):
        self.sock, self.parser = sock, Parser(Limits(), V12, CLIENT)

    def read(self):
        while (frame := self.parser.next()) is None:
            data = self.sock.recv(65_536)
            if not data:
                return None
            self.parser.feed(data)
        return frame

    def say(self, command, body=b"", **headers):
        self.sock.sendall(encode(command, [(name.replace("_", "-"), text) for name, text in headers.items()], body))

    def welcome(self, beat="0,0"):
        assert self.read().command == "CONNECT"
        self.say("CONNECTED", version="1.2", session="s", heart_beat=beat)

    def answer_all(self):
        while (frame := self.read()) is not None:
            if "receipt" in frame.headers:
                self.say("RECEIPT", receipt_id=frame.headers["receipt"])


def once(talk):
    """A message is read, and not answered."""
    talk.welcome()
    talk.read()


def normal(talk):
    talk.welcome()
    talk.answer_all()


def used(url, **options):
    """Connect, send a message, close."""
    with connect(url, **options) as context:
        context.send("a", "x", timeout=PATIENCE_S)


def free_url():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"stomp://127.0.0.1:{probe.getsockname()[1]}"


def test_the_first_server_that_answers_is_taken():
    used(f"{free_url()},{Scripted(normal).url}")


def test_nobody_there_is_an_error_at_once():
    url = free_url()
    with pytest.raises(ConnectionLost, match=f"no server can be reached: {url}: .*refused"):
        connect(f"{free_url()},{url}")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (lambda talk: talk.read(), "the server closed the connection"),
        (lambda talk: talk.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "unknown command"),
        (lambda talk: talk.say("CONNECTED", heart_beat="x"), "heart-beat must be two numbers"),
    ],
)
def test_a_server_that_does_not_let_it_in(script, words):
    with pytest.raises(ConnectionLost, match=words):
        connect(Scripted(script).url)


def test_a_refusal_of_the_login_is_not_tried_elsewhere():
    refusing = Scripted(lambda talk: (talk.read(), talk.say("ERROR", message="access refused"), talk.read()))
    with pytest.raises(LoginRefused, match="access refused"):
        connect(f"{refusing.url},{Scripted(normal).url}")


def test_what_was_not_answered_is_sent_again_to_the_next():
    found = []

    def dying(talk):
        talk.welcome()
        found.append(talk.read())

    def living(talk):
        talk.welcome()
        found.append(talk.read())
        talk.say("RECEIPT", receipt_id=found[-1].headers["receipt"])
        talk.answer_all()

    used(f"{Scripted(dying).url},{Scripted(living).url}")
    assert found[0] == found[1] and found[0].command == "SEND"


def test_calls_wait_for_as_long_as_a_lost_connection_may_take_to_come_back():
    """And for what a server itself may wait for, as room in a queue, which is 30 s by default."""
    with connect(Scripted(normal).url, reconnect=100) as context:
        assert context.connection.patience == 100 + 60
    for wrong in ({"reconnect": float("nan")}, {"heartbeat": float("nan")}, {"heartbeat": -1}):
        with pytest.raises(IllegalState, match="seconds"):
            connect(Scripted(normal).url, **wrong)


@pytest.mark.parametrize("content, words", [(None, "No such file"), (b"no certificate", "no certificates in PEM form")])
def test_certificates_that_cannot_be_read_are_told_by_their_file(tmp_path, content, words):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidUrl, match=f"{file}.*{words}"):
        connect(f"stomps://localhost:1?ca={file}")


def test_a_server_that_falls_silent_is_left():
    silent = threading.Event()

    def mute(talk):
        talk.welcome("50,50")
        while talk.read() is not None:
            pass
        silent.set()

    used(f"{Scripted(mute).url},{Scripted(normal).url}", heartbeat=0.05)
    assert silent.is_set()


def test_it_beats():
    beaten = threading.Event()

    def listening(talk):
        talk.welcome("0,20")
        while talk.sock.recv(1) != b"\n":
            pass
        beaten.set()
        talk.answer_all()

    with connect(Scripted(listening).url, heartbeat=0.02):
        assert beaten.wait(PATIENCE_S)


def test_an_error_frame_ends_the_connection_and_the_next_goes_on():
    def refusing(talk):
        talk.welcome()
        frame = talk.read()
        talk.say("ERROR", message="full", receipt_id=frame.headers["receipt"])
        talk.read()

    server = Scripted(refusing, normal)
    with connect(server.url) as context:
        with pytest.raises(Refused, match="full"):
            context.send("a", "x")
        context.send("a", "y")


def test_a_large_message_goes_out_in_pieces():
    """It is more than the buffers of the system take."""
    sizes = []

    def taking(talk):
        talk.welcome()
        frame = talk.read()
        sizes.append(len(frame.body))
        talk.say("RECEIPT", receipt_id=frame.headers["receipt"])
        talk.answer_all()

    with connect(Scripted(taking).url) as context:
        context.send("a", b"x" * (6 << 20), timeout=PATIENCE_S)
    assert sizes == [6 << 20]


def test_tls(pem):  # noqa: F811
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem / "cert.pem", pem / "key.pem")
    body = bytes(range(256)) * 20_000

    def echo(talk):
        talk.welcome()
        subscribe = talk.read()
        talk.say("RECEIPT", receipt_id=subscribe.headers["receipt"])
        frame = talk.read()
        talk.say("RECEIPT", receipt_id=frame.headers["receipt"])
        size = str(len(frame.body))
        about = {"destination": "/queue/a", "message_id": "m/1", "subscription": subscribe.headers["id"]}
        talk.say("MESSAGE", frame.body, content_length=size, ack="m/1", **about)
        talk.answer_all()

    async def by_tasks(url):
        async with await aio.connect(url) as client:
            consumer = await client.consumer("a")
            await client.send("a", body)
            return (await consumer.receive(PATIENCE_S)).body

    server = Scripted(echo, echo, lambda talk: None, context=context)
    port = server.url.rpartition(":")[2]
    with connect(f"stomps://localhost:{port}?ca={pem / 'cert.pem'}") as client:
        consumer = client.consumer("a")
        client.send("a", body)
        assert consumer.receive(PATIENCE_S).body == body
    assert asyncio.run(by_tasks(f"stomps://localhost:{port}?ca={pem / 'cert.pem'}")) == body
    with pytest.raises(ConnectionLost, match="certificate"):
        connect(f"stomps://localhost:{port}")


def test_a_client_that_has_its_id_for_itself_returns_when_the_server_has_missed_it():
    """As long as that has not noticed the loss, the client's own former connection has the id."""

    def taken(talk):
        assert talk.read().headers["exclusive-client-id"] == "true"
        talk.say("ERROR", message="another connection has the client id 'ann'")
        talk.read()

    with connect(Scripted(once, taken, normal).url, client_id="ann", exclusive=True) as context:
        context.send("a", "x", timeout=PATIENCE_S)
    with pytest.raises(LoginRefused, match="another connection"):
        connect(Scripted(taken).url, client_id="ann", exclusive=True)
    with pytest.raises(IllegalState, match="exclusive needs a client_id"):
        connect("stomp://host.invalid", exclusive=True)


def test_a_server_that_takes_no_clients_now_sends_them_to_the_next_address():
    """Its ERROR comes behind CONNECTED, and nobody hears of it."""

    def drained(talk):
        talk.welcome()
        talk.say("ERROR", message="a is drained: connect to another server", elsewhere="true")
        talk.read()

    with connect(f"{Scripted(drained).url},{Scripted(normal).url}") as context:
        errors = []
        context.connection.on_error = errors.append
        context.send("a", "kept").wait(PATIENCE_S)
        assert not errors
    with pytest.raises(ConnectionLost, match="a is drained"):
        with connect(Scripted(drained).url) as context:
            context.send("a", "lost").wait(PATIENCE_S)


def test_a_connection_that_is_closed_while_it_is_dialled_again_ends_quietly(monkeypatch):
    """`close` finds it down, and the dial then succeeds all the same."""
    connected, dialling, closed = threading.Event(), threading.Event(), threading.Event()
    socks, dial = [], transport.dial

    def slow(url):
        sock = dial(url)
        if socks:
            dialling.set()
            assert closed.wait(PATIENCE_S)
        socks.append(sock)
        return sock

    def leaving(talk):
        talk.welcome()
        assert connected.wait(PATIENCE_S)

    monkeypatch.setattr(transport, "dial", slow)
    context = connect(Scripted(leaving, lambda talk: talk.read()).url)
    connected.set()
    assert dialling.wait(PATIENCE_S)
    context.close()
    closed.set()
    thread = context.connection.carrier.thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and socks[1].fileno() == -1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_ends_the_thread_is_the_reason_for_all_who_wait_and_who_come_later(monkeypatch):
    with connect(Scripted(normal, normal).url) as context:
        consumer, failed = context.consumer("a"), []

        def wait():
            with pytest.raises(ConnectionLost, match="own thread has failed: ZeroDivisionError: by nought"):
                consumer.receive()
            failed.append("receive")

        def fail(sock):
            raise ZeroDivisionError("by nought")

        waiting = threading.Thread(target=wait)
        waiting.start()
        monkeypatch.setattr(context.connection.carrier, "_read", fail)
        for call in (lambda: context.send("a", "x"), lambda: context.consumer("b"), context.flush):
            with pytest.raises(ConnectionLost, match="own thread has failed: ZeroDivisionError: by nought"):
                call()
        waiting.join(PATIENCE_S)
        context.connection.carrier.thread.join(PATIENCE_S)
        assert failed == ["receive"]


def test_a_function_for_errors_that_fails_itself_ends_nothing(caplog):
    def fail(error):
        raise SystemError("of the program")

    def refusing(talk):
        talk.welcome()
        talk.say("ERROR", message="no reason")
        talk.read()

    with connect(Scripted(refusing, normal).url, on_error=fail) as context:
        context.send("a", "x", timeout=PATIENCE_S)
    assert "on_error failed with Refused('no reason')" in caplog.text
