"""The rules of a session, login to end. The names of the tests are the rules: F of the frames, S of the session."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.commands import (
    MODIFIED,
    BrowseEnd,
    Delivery,
    Disconnect,
    Disposition,
    Login,
    Receipt,
    Refused,
    Send,
    Sync,
    Unsubscribe,
)
from mombroker.broker.properties import pack, unpack
from mombroker.stomp import session as rules
from mombroker.stomp.frames import SERVER, encode
from mombroker.stomp.headers import V10, V11, V12
from mombroker.stomp.session import LAST, MARK
from tests.stomp.peer import ID, VERSIONS, Client, client, message, singles

# -- before the session is open ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "DISCONNECT", "ACK"])
def test_F16_the_first_frame_must_be_connect(command):
    mine = Client()
    mine.raw(f"{command}\ndestination:/queue/a\nid:1\n\n\0".encode())
    mine.ended("the first frame must be CONNECT or STOMP")
    assert mine.take() == []


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_F16_a_second_connect_is_a_fault(any_version, command):
    any_version.fails(command, f"{command} in a session that is open already")


@pytest.mark.parametrize("command", ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR", "FOO"])
def test_F15_a_command_that_clients_do_not_have_is_a_fault(any_version, command):
    any_version.fails(command, "unknown command")


def test_F15_stomp_is_connect():
    mine = Client()
    mine.raw(b"STOMP\naccept-version:1.2\nhost:/\nlogin:ann\n\n\0")
    assert mine.session.login.user == "ann"


def test_F11_a_body_on_connect_is_for_1_0_alone():
    mine = Client()
    mine.raw(b"CONNECT\naccept-version:1.1\n\nbody\0").ended("a CONNECT frame has no body")
    assert Client().raw(b"CONNECT\n\nbody\0").session.login is not None


def test_F14_little_is_kept_before_a_login():
    mine = Client().connect(accept=False)
    for _ in range(1000):
        mine.raw(b"SEND\ndestination:/queue/a\n\n" + b"x" * 500 + b"\0")
        assert mine.session.parser.waiting < 200_000
    mine.ended("before the login was answered")
    Client().raw(b"CONNECT\nx:" + b"y" * 9000).ended("a header line is over")
    Client().raw(b"x" * 100).ended("unknown command")


def test_a_fault_in_the_first_frame_ends_the_session_at_once():
    mine = Client().raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    mine.ended("these bytes are TLS")
    mine.raw(b"CONNECT\n\n\0")
    assert mine.frames() == [] and mine.session.login is None


@pytest.mark.parametrize("asked, version", [
    (None, V10), ("1.0", V10), ("1.1", V11), ("1.2", V12), ("1.0,1.1,1.2", V12), ("1.2,1.0", V12), ("1.1, 1.0", V11),
    ("1.0 , 1.1 ,2.0", V11), ("3.0,1.0", V10), ("1.2,1.2", V12),
])  # fmt: skip
def test_S1_the_highest_common_version_is_spoken(asked, version):
    mine = Client()
    mine.raw(encode("CONNECT", [("accept-version", asked)] if asked else []))
    mine.session.accept()
    assert mine.session.version == version
    assert mine.frames()[0].headers["version"] == version


@pytest.mark.parametrize("asked", ["2.0", "", "1.3,1.4", "1", "1.2.0"])
def test_S1_without_a_common_version_there_is_an_error_that_lists_ours(asked):
    mine = Client().raw(encode("CONNECT", [("accept-version", asked)]))
    assert mine.ended("this server speaks STOMP").headers["version"] == "1.0,1.1,1.2"


@pytest.mark.parametrize("version", VERSIONS)
def test_S2_connected_tells_version_session_server_and_heart_beat(version):
    headers = Client(server="mombroker/9").connect(version).connected.headers
    beats = "0,0" if version == V10 else "1000,1000"
    limits = "headers=1000,line=65536,head=262144,body=8388608,transactions=1000,subscriptions=1000"
    assert headers == {
        "version": version, "session": ID, "server": "mombroker/9", "heart-beat": beats, "limits": limits,
        "time": headers["time"],
    }  # fmt: skip
    assert headers["time"].isdigit()
    assert "server" not in Client(server="").connect(version).connected.headers


def test_S3_a_refused_login_says_no_more_than_it_must():
    mine = Client().connect(accept=False, login="ann", passcode="s3cret")
    assert mine.session.login == Login("ann", "s3cret", "")
    assert "s3cret" not in repr(mine.session.login)
    mine.session.end("access refused for user 'ann'")
    error = mine.ended("access refused for user 'ann'")
    assert error.body == b"access refused for user 'ann'\n"
    assert mine.session.login is None


def test_the_login_of_1_0_is_trimmed_and_others_are_not():
    mine = Client().raw(b"CONNECT\nlogin: ann \npasscode:a:b\\c \n\n\0")
    assert mine.session.login == Login("ann", "a:b\\c", "")
    mine = Client().raw(b"CONNECT\naccept-version:1.2\nlogin: ann \npasscode:a:b\\c \nclient-id:c\n\n\0")
    assert mine.session.login == Login(" ann ", "a:b\\c ", "c")


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_what_follows_connect_is_obeyed_after_the_login(pieces):
    data = b"CONNECT\naccept-version:1.2\n\n\0\nSEND\ndestination:/queue/a\nx:1\\c2\n\nhello\0SEND\ndest"
    mine = Client()
    for at in range(0, len(data), pieces):
        mine.raw(data[at : at + pieces])
    assert mine.take() == [] and mine.frames() == []
    mine.session.accept()
    (command,) = mine.take()
    assert (command.destination, unpack(command.properties), command.body) == ("queue:a", {"x": "1:2"}, b"hello")
    mine.raw(b"ination:/queue/b\n\n\0")
    assert [command.destination for command in mine.take()] == ["queue:b"]


def test_a_fault_behind_connect_follows_connected():
    mine = Client().raw(b"CONNECT\naccept-version:1.2\n\n\0FOO\n\n\0")
    mine.session.accept()
    assert mine.take() == [Sync(LAST)]
    connected, error = mine.say(Receipt(LAST))
    assert (connected.command, error.command) == ("CONNECTED", "ERROR")


@pytest.mark.parametrize("asked, ours, expect, send", [
    ("0,0", (10, 10), 0, 0), ("5,0", (10, 10), 10, 0), ("0,5", (10, 10), 0, 10), ("50,40", (10, 20), 50, 40),
    ("5,4", (10, 20), 20, 10), ("5,4", (0, 20), 20, 0), ("5,4", (10, 0), 0, 10), (" 5 , 4 ", (1, 1), 5, 4),
    (None, (10, 10), 0, 0), ("999999999999999999,1", (1, 1), 86_400_000, 1),
])  # fmt: skip
def test_S4_heart_beats_are_agreed_on(asked, ours, expect, send):
    mine = Client(beat_send=ours[0], beat_expect=ours[1])
    headers = {"heart_beat": asked} if asked is not None else {}
    mine.connect(V12, **headers)
    assert (mine.session.expect_every, mine.session.send_every) == (expect, send)
    assert mine.connected.headers["heart-beat"] == "{},{}".format(*ours)


@pytest.mark.parametrize("asked", ["", "5", "5,", "a,b", "-1,5", "5,-1", "1.5,2", "1,2,3", "1e3,1", "9" * 30 + ",1"])
def test_S4_a_malformed_heart_beat_is_a_fault(asked):
    Client().connect(accept=False, heart_beat=asked).ended("heart-beat")


@pytest.mark.parametrize("asked, agreed", [("1000,1000", 1_000), ("10000,10000", 10_000), ("5,5", 1_000)])
def test_S4_by_default_a_client_has_the_heart_beats_that_it_asks_for(asked, agreed):
    mine = Client().connect(V12, **{"heart-beat": asked})
    assert (mine.session.expect_every, mine.session.send_every) == (agreed, agreed)


def test_S8_there_are_no_heart_beats_in_1_0():
    mine = Client().connect(V10, heart_beat="5,5")
    assert (mine.session.expect_every, mine.session.send_every) == (0, 0)


# -- receipts and ends ---------------------------------------------------------------------------------------------


def test_S9_any_frame_may_ask_for_a_receipt(any_version):
    mine = any_version
    assert [c.receipt for c in mine.send("SEND", destination="a", receipt="r1")] == ["r1"]
    assert [c.receipt for c in mine.send("SUBSCRIBE", destination="a", id="a", ack="client", receipt="r2")] == ["r2"]
    first, second = mine.give(1), mine.give(2)
    assert mine.settles("ACK", first, receipt="r3") == [Disposition(1, receipt="r3")]
    assert mine.settles("NACK", second, receipt="r4") == [Disposition(2, MODIFIED, "r4")]
    assert mine.send("BEGIN", transaction="t", receipt="r5") == [Sync("r5")]
    assert mine.send("SEND", destination="a", transaction="t", receipt="r6") == [Sync("r6")]
    (transact,) = mine.send("COMMIT", transaction="t", receipt="r7")
    assert transact.receipt == "r7" and [step.receipt for step in transact.commands] == [None]
    mine.send("BEGIN", transaction="t")
    assert mine.send("ABORT", transaction="t", receipt="r8") == [Sync("r8")]
    assert mine.send("UNSUBSCRIBE", id="a", receipt="r9") == [Unsubscribe("a", receipt="r9")]
    assert mine.send("DISCONNECT", receipt="r10") == [Disconnect(LAST)]


@pytest.mark.parametrize("version", VERSIONS)
def test_S9_receipts_are_told_as_the_proxy_says_them(version):
    mine = client(version)
    frames = mine.say(Receipt("1"), Receipt("a:b"), Receipt("", "s4,s7"))
    assert [frame.command for frame in frames] == ["RECEIPT"] * 3
    assert [frame.headers for frame in frames] == [
        {"receipt-id": "1"}, {"receipt-id": "a:b"}, {"receipt-id": "", "unconfirmed": "s4,s7"},
    ]  # fmt: skip


def test_S9_an_empty_receipt_is_one(any_version):
    assert any_version.send("SEND", destination="a", receipt="")[0].receipt == ""
    any_version.send("DISCONNECT", receipt="")
    assert any_version.say(Receipt(LAST))[0].headers == {"receipt-id": ""}


def test_S10_commands_keep_the_order_of_their_frames():
    mine = client()
    mine.raw(b"".join(encode("SEND", [("destination", "a"), ("receipt", str(n))]) for n in range(100)))
    assert [command.receipt for command in singles(mine.take())] == [str(n) for n in range(100)]


def test_S11_the_receipt_of_disconnect_is_the_last_frame(any_version):
    mine = any_version
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", destination="a", transaction="t")
    mine.raw(encode("SEND", [("destination", "a"), ("receipt", "1")]))
    assert mine.send("DISCONNECT", receipt="bye")[-1] == Disconnect(LAST)
    assert mine.send("SEND", destination="a") == []  # what follows is ignored
    assert mine.send("FOO") == []
    assert not mine.session.transactions.open
    frames = mine.say(Receipt("1"), Delivery("a", 1, "s1#1", message()), Receipt(LAST), Receipt("2"))
    assert [frame.headers for frame in frames] == [{"receipt-id": "1"}, {"receipt-id": "bye"}]
    assert mine.session.closed


def test_S11_disconnect_without_a_receipt_closes_when_all_is_answered(any_version):
    any_version.send("DISCONNECT")
    assert not any_version.session.closed
    assert any_version.say(Receipt(LAST)) == [] and any_version.session.closed


def test_a_client_that_leaves_does_not_wait_for_ever():
    mine = client()
    mine.session.hurry()
    assert not mine.session.closed
    mine.send("DISCONNECT", receipt="bye")
    mine.session.hurry()
    assert [frame.command for frame in mine.frames()] == ["RECEIPT"] and mine.session.closed


def test_S25_error_is_the_last_frame_and_follows_the_answers_to_what_came_before(any_version):
    mine = any_version
    mine.raw(encode("SEND", [("destination", "a"), ("receipt", "1")], version=mine.session.version) + b"BAD\n\n\0")
    assert [type(command) for command in mine.take()] == [Send, Sync]
    frames = mine.say(Receipt("1"), Receipt(LAST), Receipt("2"))
    assert [frame.command for frame in frames] == ["RECEIPT", "ERROR"]
    mine.raw(encode("SEND", [("destination", "a")]))
    mine.session.end("again")
    assert mine.take() == [] and mine.frames() == []


def test_S25_an_error_of_many_lines_is_one_header(any_version):
    mine = any_version
    mine.session.end("one\ntwo\0three")
    (error,) = mine.frames()
    assert error.headers["message"] == "one"
    assert error.body == b"one\ntwo\0three\n"


def test_S26_what_the_proxy_refuses_is_an_error_with_the_receipt(any_version):
    mine = any_version
    mine.send("SEND", destination="a", receipt="r")
    mine.session.reply([Refused("queue a is full", "r"), Receipt("next")])
    mine.ended("queue a is full", receipt="r")


def test_S25_an_error_names_the_subscription_that_cannot_go_on(any_version):
    any_version.session.reply([Refused("taken over", sub="s")])
    (error,) = any_version.frames()
    assert (error.headers["message"], error.headers["subscription"]) == ("taken over", "s")
    assert "receipt-id" not in error.headers


@pytest.mark.parametrize("version", VERSIONS)
def test_S26_a_fault_tells_the_receipt_of_its_frame(version):
    client(version).fails("SEND", "SEND needs a destination", receipt="r")
    client(version).fails("SUBSCRIBE", "malformed", receipt="r", destination="/queue/", id="1")
    mine = client(version)
    mine.raw(encode("SEND", [("destination", "a"), ("receipt", "fine")]) + b"FOO\nreceipt:x\n\n\0")
    mine.ended("unknown command")


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:99999999\n\n", "a body is over"),
        (b"SEND\ndestination:/queue/a\nreceipt:r\n\n" + b"x" * (9 << 20), "a body is over"),
        (b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:1\n\nxx\0", "no NUL after the body"),
        (b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:-1\n\n", "content-length must be"),
        (b"ACK\nid:1\nreceipt:r\n\nbody\0", "an? ACK frame has no body"),
    ],
)
def test_S25_a_fault_in_a_body_tells_the_receipt_that_was_read_before_it(frame, words):
    mine = client(V12)
    mine.raw(frame)
    mine.ended(words.replace("an? ", "a "), receipt="r")


# -- what waits ----------------------------------------------------------------------------------------------------


def test_a_client_that_sends_faster_than_it_is_answered_is_read_no_more():
    mine = client()
    data = encode("SEND", [("destination", "a")], b"x" * 1000)
    marks = 0
    for _ in range(10_000):
        mine.raw(data)
        marks += sum(command == Sync(MARK) for command in mine.take())
        if mine.session.full:
            break
    assert marks == rules.MAX_MARKS
    assert mine.say(Receipt(MARK)) == []
    assert not mine.session.full


def test_a_client_that_holds_deliveries_is_read_for_longer_since_its_acks_may_be_behind_what_waits():
    mine = client()
    frame = mine.give(1)
    data = encode("SEND", [("destination", "a")], b"x" * 100_000)
    read = 0
    while not mine.session.full:
        mine.raw(data)
        read += len(data)
    assert 10 << 20 < read < 20 << 20
    for _ in range(rules.MAX_MARKS):
        mine.say(Receipt(MARK))
    mine.settles("ACK", frame)
    assert mine.session.full


def test_small_traffic_is_not_marked():
    mine = client()
    for _ in range(100):
        assert len(mine.send("SEND", destination="a")) == 1


# -- any frames at all ---------------------------------------------------------------------------------------------


HEADERS = [
    ("destination", "/queue/a"), ("destination", "/topic/a,/topic/b"), ("destination", "/temp-queue/x"), ("id", "1"),
    ("id", "s1#101/1"), ("message-id", "s1#101/1"), ("subscription", "a"), ("ack", "client"), ("ack", "bad"),
    ("receipt", "r"), ("transaction", "t"), ("selector", "a = 1"), ("selector", "a ="), ("reply-to", "/temp-queue/x"),
    ("content-length", "3"), ("persistent", "false"), ("expires", "x"), ("durable", "true"), ("requeue", "false"),
    ("browser", "true"), ("heart-beat", "5,5"), ("accept-version", "1.1,1.2"), ("dedup-id", "p:1"), ("x", "\\c"),
]  # fmt: skip
FRAMES = st.builds(
    encode, st.sampled_from(sorted(rules._HANDLERS) + ["CONNECT", "FOO"]),
    st.lists(st.sampled_from(HEADERS), max_size=6), st.sampled_from([b"", b"abc"]), st.sampled_from(VERSIONS),
)  # fmt: skip
REPLIES = st.sampled_from([
    Receipt("r"), Receipt(LAST), Refused("no", "r"), BrowseEnd("1"),
    Delivery("a", 1, "s1#101", message("a"), ack="client"),
    Delivery("1", 2, "s1#102", message("a", properties=pack({"a": "b"}))),
])  # fmt: skip


@given(st.sampled_from(VERSIONS), st.lists(FRAMES | REPLIES | st.binary(max_size=5), max_size=30))
@settings(max_examples=100)
def test_whatever_a_client_sends_the_session_answers_or_ends(version, events):
    mine = client(version)
    given_tags = set()
    for event in events:
        if isinstance(event, bytes):
            mine.raw(event)
        else:
            if isinstance(event, Delivery) and (event.tag in given_tags or mine.session.state != "open"):
                continue  # tags rise
            given_tags.add(getattr(event, "tag", None))
            mine.session.reply([event])
        mine.session.check()
        for frame in mine.frames():
            assert frame.command in SERVER
        commands = mine.take()
        assert all(command.receipt not in (MARK,) for command in commands)
    assert len(mine.session.unsettled.given) <= 2
