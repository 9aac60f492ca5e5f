"""STOMP over WebSocket: the sessions of TCP, in frames."""

import pytest
from websocket import ABNF

from mombroker.broker.commands import Delivery, Send
from mombroker.broker.message import ClientMessage
from mombroker.core.events import ClientClosed, ClientCommands, ClientOpened, ClientWrote
from mombroker.gateway.connection import EARLY_BYTES
from mombroker.gateway.session import Session
from mombroker.gateway.web.session import MAX_EARLY_FRAMES, OverWebSocket
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V12
from tests.gateway.web.test_connection import idle
from tests.gateway.web.test_websocket import GOOD
from tests.gateway.web.world import WebWorld, request

HEADERS = {name.replace("-", "_"): value for name, value in GOOD.items() if name != "host"}


class Browser:
    """A client of the fake transport: its messages are frames of WebSocket."""

    def __init__(self, world, host="127.0.0.1", early=b"", **headers):
        self.world, self.socket = world, world.visit(host)
        headers = {"sec_websocket_protocol": "v11.stomp, v12.stomp", **HEADERS, **headers}
        self.socket.receive(request("/ws", **headers) + early)
        self.head, _, self.rest = self.socket.all().partition(b"\r\n\r\n")

    def send(self, data, opcode=ABNF.OPCODE_TEXT, last=1):
        self.socket.receive(ABNF(last, 0, 0, 0, opcode, 1, data).format())
        return self

    def stomp(self, command, body=b"", **headers):
        return self.send(encode(command, [(name.replace("_", "-"), value) for name, value in headers.items()], body))

    def read(self):
        """(opcode, payload) of what has come."""
        data, found = self.rest + self.socket.all(), []
        self.rest = b""
        while data:
            assert data[0] & 0x80 and not data[1] & 0x80
            size, at = data[1], 2
            if size == 126:
                size, at = int.from_bytes(data[2:4], "big"), 4
            elif size == 127:
                size, at = int.from_bytes(data[2:10], "big"), 10
            found.append((data[0] & 15, data[at : at + size]))
            data = data[at + size :]
        return found

    def frames(self):
        parser = Parser(Limits(), V12, SERVER)
        for opcode, payload in self.read():
            if opcode in (ABNF.OPCODE_TEXT, ABNF.OPCODE_BINARY):
                parser.feed(payload)
        found = []
        while (frame := parser.next()) is not None:
            found.append(frame)
        return found


@pytest.fixture
def world():
    return WebWorld()


def connected(world, **headers):
    made = Browser(world).stomp("CONNECT", accept_version="1.2", host="/", **headers)
    (frame,) = made.frames()
    assert frame.command == "CONNECTED"
    return made


def test_the_session_has_all_that_the_listener_asks_for(world):
    asked = {name for name in [*Session.__annotations__, *vars(Session)] if not name.startswith("_")}
    made = OverWebSocket(world.stomp).session("s1/1")
    assert [name for name in asked if not hasattr(made, name)] == []


def test_the_handshake_is_granted_with_the_best_subprotocol(world):
    browser = Browser(world)
    assert browser.head.startswith(b"HTTP/1.1 101 ")
    assert b"sec-websocket-protocol: v12.stomp" in browser.head.lower()
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in browser.head.lower().replace(
        b"s3pplmbitxaq9kygzzhzrbk+xoo=", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    )


def test_commands_and_replies_are_those_of_TCP(world):
    browser = connected(world)
    browser.stomp("SEND", b"one", destination="/queue/a", content_length="3")
    assert [type(each) for each in world.take()] == [ClientOpened, ClientCommands]
    world.gateway.reply(1, [Delivery("s", 1, "s1#1", ClientMessage("queue:a", "/queue/a", body="grün".encode()))])
    (frame,) = browser.frames()
    assert (frame.command, frame.body) == ("MESSAGE", "grün".encode())
    assert world.take() == [ClientWrote(1, 1)]
    status = world.gateway.connections()[0]
    assert (status["version"], status["state"]) == ("1.2", "open")


def test_a_frame_of_stomp_may_be_cut_into_messages_and_frames_of_any_kind(world):
    browser = connected(world)
    data = encode("SEND", [("destination", "/queue/a")], b"body")
    browser.send(data[:5], last=0).send(b"", ABNF.OPCODE_PING).send(data[5:9], ABNF.OPCODE_CONT)
    browser.send(data[9:], ABNF.OPCODE_BINARY)
    _, commands = world.take()
    (send,) = commands.commands
    assert isinstance(send, Send) and send.body == b"body"
    assert (ABNF.OPCODE_PONG, b"") in browser.read()


def test_a_body_that_is_no_text_goes_as_bytes(world):
    browser = connected(world)
    for body, opcode in ((b"\xff\0", ABNF.OPCODE_BINARY), (b"text", ABNF.OPCODE_TEXT)):
        world.gateway.reply(1, [Delivery("s", 1, "s1#1", ClientMessage("queue:a", "/queue/a", body=body))])
        ((found, payload),) = browser.read()
        assert found == opcode and payload.endswith(body + b"\0\n")


def test_what_comes_with_the_handshake_is_not_lost(world):
    connect = encode("CONNECT", [("accept-version", "1.2"), ("host", "/")])
    browser = Browser(world, early=ABNF(1, 0, 0, 0, ABNF.OPCODE_TEXT, 1, connect).format())
    assert [frame.command for frame in browser.frames()] == ["CONNECTED"]


def test_an_error_is_told_in_stomp_and_then_the_connection_ends(world):
    browser = connected(world)
    browser.stomp("NONSENSE")
    world.clock.advance(10.1)  # nobody answers what came before
    (frame,) = browser.frames()
    assert frame.command == "ERROR"
    assert browser.socket.ending
    world.clock.advance(2.1)
    assert not browser.socket.connected and idle(world)


def test_a_wrong_frame_ends_the_connection_with_its_code(world):
    browser = connected(world)
    browser.socket.receive(b"\xff\xff")
    (_, error), (opcode, close) = browser.read()
    assert error.startswith(b"ERROR") and b"reserved bit" in error
    assert opcode == ABNF.OPCODE_CLOSE and int.from_bytes(close[:2], "big") == 1002 and browser.socket.ending
    assert [type(each) for each in world.take()] == [ClientOpened, ClientClosed]
    assert "reserved bit" in world.lines[-1]


def test_a_client_that_closes_is_answered_and_gone(world):
    browser = connected(world).send((1001).to_bytes(2, "big") + b"tab closed", ABNF.OPCODE_CLOSE)
    ((opcode, payload),) = browser.read()
    assert (opcode, int.from_bytes(payload[:2], "big")) == (ABNF.OPCODE_CLOSE, 1001)
    assert [type(each) for each in world.take()] == [ClientOpened, ClientClosed] and world.lines == []
    browser.socket.lose()
    assert idle(world) and world.gateway.clients == {}


def test_a_disconnect_is_answered_before_the_end(world):
    browser = connected(world).stomp("DISCONNECT", receipt="bye")
    commands = world.take()[1].commands
    assert len(commands) == 1
    world.clock.advance(10.1)  # nobody answers
    (frame,) = browser.frames()
    assert (frame.command, frame.headers["receipt-id"]) == ("RECEIPT", "bye") and browser.socket.ending


def test_heart_beats_are_frames(world):
    browser = connected(world, heart_beat="1000,1000")
    for _ in range(4):
        world.clock.advance(0.5)
        browser.send(b"\n")
    beats = browser.read()
    assert set(beats) == {(ABNF.OPCODE_TEXT, b"\n")} and len(beats) == 1
    world.clock.pump([0.1] * 40)
    assert browser.socket.ending


def test_who_logs_in_late_is_cut_off(world):
    browser = Browser(world)
    world.clock.advance(10.1)
    (frame,) = browser.frames()
    assert "no CONNECT frame within 10 s" in frame.headers["message"]


def test_what_comes_before_the_login_is_bounded_as_on_TCP(world):
    browser = Browser(world)
    browser.send(b"CONNECT\n" + b"x" * EARLY_BYTES)
    assert [frame.command for frame in browser.frames()] == ["ERROR"] and browser.socket.ending


@pytest.mark.parametrize(("opcode", "last"), [(ABNF.OPCODE_PING, 1), (ABNF.OPCODE_PONG, 1), (ABNF.OPCODE_CONT, 0)])
def test_frames_before_the_login_are_few_whatever_they_are(world, opcode, last):
    """A read is full of empty ones, and each takes its time."""
    browser = Browser(world)
    browser.send(b"", ABNF.OPCODE_TEXT, 0)
    for _ in range(MAX_EARLY_FRAMES - 1):
        browser.send(b"", opcode, last)
    browser.read()
    assert not browser.socket.ending
    browser.send(b"", opcode, last)
    assert browser.read()[-1][0] == ABNF.OPCODE_CLOSE and browser.socket.ending


def test_frames_after_the_login_are_as_many_as_they_like(world):
    browser = connected(world)
    for _ in range(2 * MAX_EARLY_FRAMES):
        browser.send(b"\n")
    browser.read()
    assert not browser.socket.ending


def test_of_pings_that_come_together_the_last_is_answered(world):
    browser = connected(world)
    browser.socket.receive(
        b"".join(ABNF(1, 0, 0, 0, ABNF.OPCODE_PING, 1, each).format() for each in (b"1", b"2", b"3"))
    )
    assert browser.read() == [(ABNF.OPCODE_PONG, b"3")]


# -- who may --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8161", "https://shop.example"])
def test_pages_of_our_own_and_those_that_are_named_may(world, origin):
    assert Browser(world, origin=origin).head.startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8161", "null", "http://127.0.0.1", "x"])
def test_other_pages_may_not(world, origin):
    browser = Browser(world, origin=origin)
    assert browser.head.startswith(b"HTTP/1.1 403 ") and b"http_origins" in browser.rest
    assert world.take() == [] and world.gateway.clients == {}


def test_a_page_whose_name_leads_to_this_machine_may_not(world):
    visitor = world.visit()
    headers = {**HEADERS, "origin": "http://evil.example:8161"}
    visitor.receive(request("/ws", host="evil.example:8161", **headers))
    assert visitor.all().startswith(b"HTTP/1.1 421 ")


def test_a_plain_request_is_told_what_to_do(world):
    status, headers, body = world.visit().ask("/ws")
    assert (status, headers["upgrade"]) == (426, "websocket") and "ws://HOST:PORT/ws" in body


def test_users_log_in_by_stomp():
    world = WebWorld(anonymous=False)
    for passcode, command in (("b", "ERROR"), ("a", "CONNECTED")):
        browser = Browser(world, "10.0.0.9").stomp(
            "CONNECT", accept_version="1.2", host="/", login="ann", passcode=passcode
        )
        world.check_all()
        assert [frame.command for frame in browser.frames()] == [command]
