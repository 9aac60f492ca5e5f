"""Every rule of the protocol once more, over a socket, against a whole server with its store and queues.

F, E and S are the rules of grammar, escapes and sessions, all of them; the finer points of each are in test_frames
and in test_session, test_subscribe, test_settlement and test_transactions, and of the listener in tests/gateway.
"""

import re
import time

import pytest

from mombroker.gateway.users import hashed
from mombroker.stomp.frames import encode
from mombroker.stomp.headers import V10, V11, V12
from tests.gateway.live import ClientTown
from tests.stomp.wire import NUMBERS, Wire, bodies


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    made = ClientTown(tmp_path_factory.mktemp("wire"))
    made.up()
    yield made
    made.down()


@pytest.fixture
def wire(town):
    """Makes clients; `wire("1.1")` has logged in."""
    made = []

    def make(version=V12, login=True, **headers):
        made.append(Wire(town, version))
        if login:
            made[-1].login(**headers)
        return made[-1]

    yield make
    for each in made:
        each.socket.close()


@pytest.fixture
def queue():
    """A queue of the test's own."""
    return f"/queue/q{next(NUMBERS)}"


VERSIONS = pytest.mark.parametrize("version", [V10, V11, V12])


# -- grammar -------------------------------------------------------------------------------------------------------


@VERSIONS
def test_F1_bytes_one_at_a_time_and_many_frames_in_one_segment(wire, queue, version):
    mine = wire(version)
    frame = f"SEND\ndestination:{queue}\n\nhello\0".encode()
    for at in range(len(frame)):
        mine.raw(frame[at : at + 1])
        mine.town.pass_time(1)
    mine.raw(frame * 50)
    mine.subscribe(queue, ack="auto")
    assert bodies(mine.take(51)) == [b"hello"] * 51


def test_F2_line_ends_between_frames_are_skipped(wire, queue):
    mine = wire(login=False)
    mine.raw(b"\n\r\n\nCONNECT\naccept-version:1.2\n\n\0\n\n\r\n")
    assert mine.read().command == "CONNECTED"
    mine.raw(b"\n" * 10_000).fill(queue, b"x")


def test_F3_both_line_ends_in_1_2_and_on_the_first_frame(wire, queue):
    mine = wire(login=False)
    mine.raw(b"CONNECT\r\naccept-version:1.2\r\n\r\n\0")
    assert mine.read().command == "CONNECTED"
    mine.raw(f"SEND\r\ndestination:{queue}\nx:1\r\n\nb\0".encode()).subscribe(queue)
    assert mine.read().headers["x"] == "1"
    old = wire(V10, login=False).raw(b"CONNECT\r\n\r\n\0")
    assert old.read().command == "CONNECTED"
    old.raw(b"SEND\r\ndestination:a\r\n\r\n\0").error("a line ends in LF alone here")


def test_F4_case_matters(wire):
    wire().raw(b"send\ndestination:/queue/a\n\n\0").error("unknown command 'send'")
    wire().raw(b"SEND\nDestination:/queue/a\n\n\0").error("SEND needs a destination")


@VERSIONS
def test_F5_the_first_colon_splits(wire, queue, version):
    mine = wire(version).raw(f"SEND\ndestination:{queue}\nurl:http://h:80\n\n\0".encode()).subscribe(queue)
    assert mine.read().headers["url"] == "http://h:80"


@VERSIONS
def test_F6_a_line_without_colon_or_name(wire, version):
    for line in (b"nocolon", b":value"):
        wire(version).raw(b"SEND\ndestination:/queue/a\n" + line + b"\n\n\0").error("a header is name:value")


@VERSIONS
def test_F7_utf_8(wire, queue, version):
    mine = wire(version).fill(queue)
    mine.send("SEND", destination=queue, name="grün-𝄞").subscribe(queue)
    assert mine.read().headers["name"] == "grün-𝄞"
    wire(version).raw(b"SEND\ndestination:/queue/a\nx:\xff\n\n\0").error("UTF-8")


@VERSIONS
def test_F8_content_length(wire, queue, version):
    mine = wire(version).send("SEND", b"a\0b", destination=queue, content_length="3").subscribe(queue)
    frame = mine.read()
    assert (frame.body, frame.headers["content-length"]) == (b"a\0b", "3")
    wire(version).raw(b"SEND\ndestination:/queue/a\ncontent-length:2\n\nabc\0").error("no NUL after the body")


@pytest.mark.parametrize("length", ["-1", "x", "99999999999999", "8388609"])
def test_F9_a_bad_content_length_before_its_body(wire, length):
    wire().raw(f"SEND\ndestination:/queue/a\ncontent-length:{length}\n\n".encode()).error()
    wire(login=False).raw(f"CONNECT\ncontent-length:{length}\n\n".encode()).error()


def test_F10_without_length_the_first_nul_ends_the_body(wire, queue):
    mine = wire().raw(f"SEND\ndestination:{queue}\n\na\0SEND\ndestination:{queue}\n\nb\0".encode()).subscribe(queue)
    assert bodies(mine.take(2)) == [b"a", b"b"]


def test_F11_bodies_where_none_belong(wire, queue):
    old = wire(V10).send("SUBSCRIBE", b"body", destination=queue, id="s")
    old.fill(queue, b"x")
    for version in (V11, V12):
        wire(version).send("SUBSCRIBE", b"body", destination=queue, id="s").error("a SUBSCRIBE frame has no body")


@VERSIONS
def test_F12_the_first_of_repeated_headers_wins(wire, queue, version):
    mine = wire(version).raw(f"SEND\ndestination:{queue}\nx:1\nx:2\ndestination:/queue/z\n\n\0".encode())
    assert mine.subscribe(queue).read().headers["x"] == "1"


def test_F13_limits_while_a_frame_is_read(wire):
    many = b"".join(b"h%d:1\n" % at for at in range(1_001))
    for head, words in (
        (many, "more than 1000 headers"),
        (b"x:" + b"y" * 70_000, "a header line is over"),
        (b"".join(b"h%d:%b\n" % (at, b"y" * 60_000) for at in range(5)), "the headers of a frame are over"),
        (b"\n" + b"x" * (9 << 20), "a body is over"),
    ):
        wire().raw(b"SEND\ndestination:/queue/a\n" + head).error(words)


def test_F13_a_body_of_the_limit_is_taken_with_all_its_headers(wire, queue):
    mine = wire()
    mine.raw(
        encode("SUBSCRIBE", [("destination", queue), ("id", "1")])
        + encode("SEND", [("destination", queue), *((f"h{at}", "v" * 200) for at in range(990))], b"x" * (8 << 20))
    )
    frame = mine.read()
    assert (len(frame.body), frame.headers["h989"]) == (8 << 20, "v" * 200)


def test_F14_smaller_limits_before_a_login(wire):
    wire(login=False).raw(b"CONNECT\n" + b"".join(b"h%d:1\n" % at for at in range(50))).error("more than 20 headers")
    wire(login=False).raw(b"CONNECT\n\n" + b"x" * 5000).error("a body is over 1024 bytes")


def test_F15_unknown_commands_and_stomp_for_connect(wire):
    wire().raw(b"FOO\n\n\0").error("unknown command 'FOO'")
    mine = wire(login=False).raw(b"STOMP\naccept-version:1.2\nhost:x\n\n\0")
    assert mine.read().command == "CONNECTED"


def test_F16_connect_comes_first_and_once(wire):
    wire(login=False).raw(b"SEND\ndestination:/queue/a\n\n\0").error("the first frame must be CONNECT")
    wire().raw(b"CONNECT\naccept-version:1.2\n\n\0").error("open already")


# -- escapes -------------------------------------------------------------------------------------------------------


def test_E1_to_E3_and_E5_each_receiver_gets_the_escapes_of_its_version(wire):
    topic = f"/topic/t{next(NUMBERS)}"
    receivers = {version: wire(version).subscribe(topic, ack="auto") for version in (V10, V11, V12)}
    for receiver in receivers.values():
        receiver.sync()
    wire(V12).raw(f"SEND\ndestination:{topic}\nx:a\\cb\\\\c\\n\\r\n\n\0".encode()).sync()
    shown = {V10: b"x:a:b\\c \r\n", V11: b"x:a\\cb\\\\c\\n\r\n", V12: b"x:a\\cb\\\\c\\n\\r\n"}
    for version, receiver in receivers.items():
        receiver.read()
        assert shown[version] in receiver.data
    wire(V10).raw(f"SEND\ndestination:{topic}\nx:C:\\new\n\n\0".encode()).sync()
    assert receivers[V10].read().headers["x"] == receivers[V12].read().headers["x"] == "C:\\new"


def test_E2_and_E3_undefined_escapes(wire):
    for version, escape in ((V11, "\\r"), (V11, "\\t"), (V12, "\\t"), (V12, "\\:"), (V12, "\\")):
        wire(version).raw(f"SEND\ndestination:/queue/a\nx:{escape}\n\n\0".encode()).error("undefined escape")


def test_E4_connect_is_literal(wire, town):
    mine = wire(login=False).raw(b"CONNECT\naccept-version:1.2\nclient-id:a:b\\c\\t\n\n\0")
    assert mine.read().command == "CONNECTED"
    assert "a:b\\c\\t" in [shown["client_id"] for shown in town.node("a").gateway.connections()]


def test_E6_spaces(wire, queue):
    old = wire(V10).raw(f"SEND\ndestination: {queue} \nx: y \n\n\0".encode())
    assert old.subscribe(queue).read().headers["x"] == "y"
    mine = wire(V12).raw(f"SEND\ndestination:{queue}2\nx: y \n\n\0".encode())
    assert mine.subscribe(f"{queue}2").read().headers["x"] == " y "
    wire(V12).raw(b"SEND\ndestination: /queue/a\n\n\0").error("malformed destination")


@VERSIONS
def test_E7_ids_come_back_as_they_were(wire, queue, version):
    name = {V10: "a b", V11: "a\\cb\\\\", V12: "a\\cb\\r\\\\"}[version]
    mine = wire(version).raw(f"SUBSCRIBE\nid:{name}\ndestination:{queue}\nreceipt:{name}\n\n\0".encode())
    assert mine.read().command == "RECEIPT"
    mine.fill(queue).send("SEND", destination=queue).read()
    assert f"receipt-id:{name}\n".encode() in mine.data and f"subscription:{name}\n".encode() in mine.data


# -- sessions ------------------------------------------------------------------------------------------------------


def test_S1_versions(wire):
    for asked, version in ((None, V10), ("1.0,1.1,1.2", V12), ("1.1, 1.0", V11), ("1.2,9.0", V12)):
        mine = wire(login=False).raw(encode("CONNECT", [("accept-version", asked)] if asked else []))
        assert mine.read().headers["version"] == version
    mine = wire(login=False).raw(b"CONNECT\naccept-version:9.9\n\n\0")
    assert mine.error("this server speaks").headers["version"] == "1.0,1.1,1.2"


@VERSIONS
def test_S2_connected(wire, version):
    headers = wire(version).connected.headers
    assert set(headers) == {"version", "session", "server", "heart-beat", "limits", "time"}
    assert headers["version"] == version
    assert headers["server"].startswith("mombroker/") and "body=8388608" in headers["limits"]


def test_S3_a_refused_login_says_no_more_than_it_must(wire, town):
    town.ask("a", "set_user", user="ann", hash=hashed("open sesame", 4), new=True)
    for passcode in ("", "sesame"):
        mine = wire(login=False)
        mine.raw(f"CONNECT\naccept-version:1.2\nlogin:ann\npasscode:{passcode}\n\n\0".encode())
        error = mine.error("access refused for user 'ann'")
        assert error.body == b"access refused for user 'ann'\n"
    assert not any("sesame" in line for line in town.lines["a"])
    wire(login="ann", passcode="open sesame")


def test_S4_heart_beats(wire):
    assert wire(heart_beat="5000,5000").connected.headers["heart-beat"] == "1000,1000"
    for wrong in ("x", "-1,0", "1"):
        wire(login=False).raw(encode("CONNECT", [("heart-beat", wrong)])).error("heart-beat")


@pytest.fixture
def beats(town):
    """The server asks for a beat every 40 ms, and can send one as often."""
    settings = town.node("a").stomp.settings
    before = settings.beat_send, settings.beat_expect
    settings.beat_send = settings.beat_expect = 40
    yield
    settings.beat_send, settings.beat_expect = before


def test_S5_silence_ends_a_connection_and_any_byte_is_a_sign_of_life(wire, queue, beats):
    silent, slow = wire(heart_beat="40,0"), wire(heart_beat="40,0")
    for byte in f"SEND\ndestination:{queue}\nreceipt:r\n\nx\0".encode():
        slow.raw(bytes([byte]))
        until = time.monotonic() + 0.01
        slow.town.until(lambda until=until: time.monotonic() > until)
    assert slow.read().headers == {"receipt-id": "r"}
    silent.error("no heart-beat or other byte for")


def test_S6_beats_come_when_nothing_else_does_and_never_inside_a_frame(wire, queue, beats):
    mine = wire(heart_beat="0,40")
    mine.data = b""
    mine.town.until(lambda: mine._look() or mine.data.count(b"\n") > 2)
    assert set(mine.data) == {10}
    body = bytes(range(256)) * 4_096
    mine.subscribe(queue, ack="auto")
    for _ in range(3):
        wire().send("SEND", body, destination=queue, content_length=str(len(body)))
        assert mine.read().body == body


def test_S7_no_timer_is_left_when_a_connection_has_gone(wire, town, beats):
    gateway = town.node("a").gateway
    before = set(gateway.clients)
    silent, leaving, faulty, broken = (wire(heart_beat="40,40") for _ in range(4))
    made = [client for number, client in gateway.clients.items() if number not in before]
    assert len(made) == 4 and all(client._timers for client in made)
    leaving.send("DISCONNECT", receipt="bye")
    faulty.raw(b"FOO\n\n\0").error("unknown command")
    broken.socket.close()
    silent.error("no heart-beat")
    assert leaving.read().headers == {"receipt-id": "bye"} and leaving.read() is None
    for each in (silent, leaving, faulty):
        each.socket.close()
    town.until(lambda: all(client.lost for client in made))
    assert not any(client._timers for client in made)


def test_S8_without_heart_beats_nothing_is_sent(wire):
    assert wire(V10).quiet()


@VERSIONS
def test_S9_receipts(wire, queue, version):
    mine = wire(version).subscribe(queue, receipt="1")
    assert mine.read().headers == {"receipt-id": "1"}  # that of SUBSCRIBE may come behind others
    mine.send("SEND", b"x", destination=queue, receipt="2")
    mine.send("BEGIN", transaction="t", receipt="3")
    mine.send("SEND", b"y", destination=queue, transaction="t", receipt="4")
    mine.send("COMMIT", transaction="t", receipt="5")
    mine.send("BEGIN", transaction="t").send("ABORT", transaction="t", receipt="6")
    frames = mine.sync()
    receipts = [frame.headers["receipt-id"] for frame in frames if frame.command == "RECEIPT"]
    assert receipts == ["2", "3", "4", "5", "6"]
    message = next((frame for frame in frames if frame.command == "MESSAGE"), None) or mine.read()
    mine.settle("ACK", message, receipt="7").send("UNSUBSCRIBE", id="s", receipt="8")
    assert [frame.headers["receipt-id"] for frame in mine.sync() if frame.command == "RECEIPT"] == ["7", "8"]


def test_S10_receipts_in_the_order_of_frames(wire, queue):
    mine = wire()
    for at in range(200):
        mine.send("SEND", destination=queue, receipt=str(at))
    assert [frame.headers["receipt-id"] for frame in mine.take(200)] == [str(at) for at in range(200)]


def test_S11_disconnect(wire, queue):
    mine = wire().fill(queue, b"x").subscribe(queue)
    assert mine.read().body == b"x"
    mine.send("BEGIN", transaction="t").send("SEND", b"never", destination=queue, transaction="t")
    mine.send("DISCONNECT", receipt="bye").send("SEND", b"ignored", destination=queue)
    assert mine.read().headers == {"receipt-id": "bye"} and mine.read() is None
    other = wire().subscribe(queue)
    frame = other.read()
    assert (frame.body, frame.headers["redelivered"]) == (b"x", "true")
    other.settle("ACK", frame)
    assert other.sync() == []


def test_S12_subscribe_needs(wire, queue):
    for headers, words in (
        ({"id": "s"}, "needs a destination"),
        ({"destination": queue}, "needs an id"),
        ({"destination": "/queue/", "id": "s"}, "malformed destination"),
        ({"destination": "/nowhere/x", "id": "s"}, "no destination begins like"),
    ):
        wire().send("SUBSCRIBE", receipt="r", **headers).error(words, "r")
    mine = wire().subscribe(queue)
    mine.subscribe(queue).error("already")


def test_S13_subscriptions_of_1_0_without_id(wire, queue):
    mine = wire(V10).send("SUBSCRIBE", destination=queue, ack="client").fill(queue, b"x")
    mine.send("SEND", b"y", destination=queue)
    frame = mine.read()
    assert "subscription" not in frame.headers
    mine.send("ACK", message_id=frame.headers["message-id"]).send("UNSUBSCRIBE", destination=queue, receipt="r")
    assert "r" in [frame.headers.get("receipt-id") for frame in mine.sync()]


@VERSIONS
def test_S14_ack_modes(wire, queue, version):
    for ack in ("auto", "client", "client-individual"):
        wire(version).subscribe(f"{queue}-{ack}", ack=ack).fill(queue)
    wire(version).subscribe(queue, ack="maybe").error("ack must be")


def test_S15_what_a_message_tells(wire):
    topic = f"/topic/a{next(NUMBERS)}"
    mine = wire().send("SUBSCRIBE", destination=f"{topic}.*", id="s1", ack="client")
    mine.send("SUBSCRIBE", destination=f"{topic}.>", id="s2", ack="auto").sync()
    mine.send("SEND", b"x", destination=f"{topic}.b", color="red", content_type="text/plain", receipt="r")
    frames = [frame for frame in mine.sync() if frame.command == "MESSAGE"]
    assert {frame.headers["subscription"] for frame in frames} == {"s1", "s2"}
    assert len({frame.headers["message-id"] for frame in frames}) == 2
    for frame in frames:
        assert frame.headers["destination"] == f"{topic}.b" and frame.headers["color"] == "red"
        assert ("ack" in frame.headers) == (frame.headers["subscription"] == "s1")


def test_S16_the_message_id_is_ours(wire, queue):
    mine = wire().fill(queue)
    mine.send("SEND", destination=queue, message_id="mine").subscribe(queue)
    assert mine.read().headers["message-id"].startswith("a#")


@VERSIONS
def test_S17_acks_that_name_nothing(wire, queue, version):
    for command in ("ACK", "NACK"):
        wire(version).send(command, receipt="r").error("needs", "r")
        wire(version).send(command, id="x", message_id="x", subscription="s").error("is no delivery of this connection")
    mine = wire(version).fill(queue, b"x").subscribe(queue)
    frame = mine.read()
    mine.settle("ACK", frame)
    mine.settle("ACK", frame).error("settled already")


@VERSIONS
def test_S18_cumulative_and_individual(wire, queue, version):
    mine = wire(version).fill(queue, b"1", b"2", b"3").subscribe(queue, ack="client")
    frames = mine.take(3)
    mine.settle("ACK", frames[1]).sync()
    mine.socket.close()
    other = wire(version).subscribe(queue)
    (frame,) = other.take(1)
    assert frame.body == b"3"
    wire().fill(queue, b"4", b"5")
    four, five = other.take(2)
    other.settle("ACK", five).settle("ACK", frame).sync()
    other.socket.close()
    last = wire(version).subscribe(queue)
    assert last.read().body == b"4"
    assert four.body == b"4"


def test_S19_acks_after_unsubscribe_and_the_order_of_what_returns(wire, queue):
    mine = wire().fill(queue, b"1", b"2", b"3").subscribe(queue)
    first, *_ = mine.take(3)
    mine.send("UNSUBSCRIBE", id="s").settle("ACK", first).sync()
    mine.send("DISCONNECT")
    assert mine.read() is None
    frames = wire().subscribe(queue).take(2)
    assert bodies(frames) == [b"2", b"3"]
    assert [frame.headers["redelivered"] for frame in frames] == ["true", "true"]


def test_S20_the_ack_mode_at_the_delivery(wire, queue):
    mine = wire().fill(queue, b"1", b"2").subscribe(queue)
    one, two = mine.take(2)
    mine.send("UNSUBSCRIBE", id="s").subscribe(queue, ack="client")
    mine.settle("ACK", two).sync()  # were it cumulative, `one` would be settled, too
    mine.settle("ACK", one).sync()


def test_S21_transactions_are_open_once(wire):
    mine = wire()
    for end in ("COMMIT", "ABORT", "COMMIT"):
        mine.send("BEGIN", transaction="t").send(end, transaction="t")
    mine.sync()
    mine.send("BEGIN", transaction="t").send("BEGIN", transaction="t", receipt="r").error("open already", "r")


@VERSIONS
def test_S22_a_send_in_a_transaction_is_seen_after_its_commit(wire, queue, version):
    mine = wire(version).subscribe(queue, ack="auto")
    mine.send("BEGIN", transaction="t").send("SEND", b"1", destination=queue, transaction="t")
    assert mine.sync() == []
    mine.send("COMMIT", transaction="t")
    assert mine.read().body == b"1"
    mine.send("BEGIN", transaction="t").send("SEND", b"2", destination=queue, transaction="t")
    mine.send("ABORT", transaction="t")
    assert mine.sync() == []


def test_S23_an_ack_in_a_transaction_that_is_aborted(wire, queue):
    mine = wire().fill(queue, b"1", b"2").subscribe(queue, ack="client")
    one, two = mine.take(2)
    mine.send("BEGIN", transaction="t").settle("ACK", two, transaction="t").send("ABORT", transaction="t").sync()
    mine.send("BEGIN", transaction="t").settle("ACK", two, transaction="t").settle("ACK", one, transaction="t")
    mine.send("COMMIT", transaction="t", receipt="r")
    assert [frame.headers.get("receipt-id") for frame in mine.sync()] == ["r"]
    mine.settle("ACK", one).error("settled already")


def test_S24_unknown_transactions_and_lost_connections(wire, queue):
    for command in ("COMMIT", "ABORT", "SEND"):
        wire().send(command, destination=queue, transaction="t", receipt="r").error("no open transaction", "r")
    mine = wire().send("BEGIN", transaction="t").send("SEND", b"x", destination=queue, transaction="t")
    mine.sync()
    mine.socket.close()
    other = wire().subscribe(queue)
    assert other.sync() == []
    many = wire()
    for at in range(1_001):
        many.send("BEGIN", transaction=str(at))
    many.error("1000 transactions are open")


@VERSIONS
def test_S25_error_is_the_last_frame(wire, queue, version):
    mine = wire(version).send("SEND", destination=queue, receipt="1").raw(b"FOO\n\n\0")
    mine.send("SEND", destination=queue, receipt="2")
    assert mine.read().headers == {"receipt-id": "1"}
    error = mine.error("unknown command")
    assert error.headers["content-type"] == "text/plain"
    assert error.headers["content-length"] == str(len(error.body))


def test_S26_a_failing_send(wire):
    wire().send("SEND", destination="/temp-queue/", receipt="r").error("malformed", "r")
    wire().send("SEND", destination="/remote-temp-queue/elsewhere/x/y", receipt="r").error("elsewhere", "r")
    wire().send("SEND", destination="/queue/a", receipt="r", content_length=str(1 << 30)).error("a body is over", "r")


def test_S27_auto_ack_settles_what_was_handed_to_a_live_socket(wire, town, queue):
    """What is written is settled; what a client that has gone was to get is not."""
    mine = wire().fill(queue, b"one", b"two")
    mine.subscribe(queue, ack="auto", prefetch_count="1")
    assert bodies(mine.take(2)) == [b"one", b"two"]
    other = wire()
    mine.socket.close()
    other.fill(queue, b"three").subscribe(queue, ack="auto")
    assert other.read().body == b"three"


def test_S28_after_the_receipt_of_unsubscribe_nothing_comes(wire, queue):
    mine = wire().subscribe(queue, ack="auto")
    other = wire()
    for at in range(20):
        other.send("SEND", str(at).encode(), destination=queue)
    mine.send("UNSUBSCRIBE", id="s", receipt="r")
    while mine.read().command != "RECEIPT":
        pass
    other.fill(queue, b"late")
    assert mine.quiet()
    mine.send("UNSUBSCRIBE", id="s").error("no subscription 's'")


def test_S29_a_client_that_returns_at_once(wire, queue):
    for _ in range(5):
        wire(client_id="c").subscribe(queue).sync()


def test_S30_tls_on_this_port(wire):
    wire(login=False).raw(bytes.fromhex("16030100fd010000f90303")).error("these bytes are TLS")


def test_every_rule_is_tested_here():
    """By name: F1 to F16, E1 to E7, S1 to S30."""
    named = set()
    for test in filter(re.compile("test_[FES][0-9]").match, globals()):
        parts = re.findall(r"(?:^|_)([FES])(\d+)(?:_to_\1(\d+))?", test.removeprefix("test"))
        for kind, first, last in parts:
            named |= {f"{kind}{number}" for number in range(int(first), int(last or first) + 1)}
    rules = {f"{kind}{number}" for kind, count in (("F", 16), ("E", 7), ("S", 30)) for number in range(1, count + 1)}
    assert rules - named == set()
