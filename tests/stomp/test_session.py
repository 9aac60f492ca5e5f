"""The rules of a session. The names of the tests are the rules: F of the frames, S of the session."""

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker import transactions
from mombroker.broker.commands import (
    MODIFIED,
    REJECTED,
    RELEASED,
    REQUEUED,
    AcceptRun,
    Ask,
    BrowseEnd,
    Delivery,
    Disconnect,
    Disposition,
    Login,
    Receipt,
    Refused,
    Send,
    SendRun,
    Subscribe,
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.message import BROKERS_OWN, ClientMessage
from mombroker.broker.properties import pack, unpack
from mombroker.core.times import LAST_NS
from mombroker.stomp import session as rules
from mombroker.stomp.frames import SERVER, Limits, Parser, encode
from mombroker.stomp.headers import V10, V11, V12
from mombroker.stomp.requests import ROWS, truth
from mombroker.stomp.session import LAST, MARK, Session, Settings

VERSIONS = (V10, V11, V12)
MS = 1_000_000
NOW = 1_700_000_000_000 * MS
ID = "s1/5f-7"


def singles(commands):
    """Runs as the messages that they are."""
    return [each for one in commands for each in (one.singles() if isinstance(one, SendRun | AcceptRun) else [one])]


class Client:
    """A session with what a client of it would see. The proxy is the test."""

    def __init__(self, id=ID, **settings):
        self.session = Session(id, lambda: NOW, Settings(**settings))
        self.parser = Parser(Limits(), V10, SERVER)

    def raw(self, data):
        self.session.receive(data)
        self.session.check()
        return self

    def connect(self, version=V12, accept=True, **headers):
        if version != V10:
            headers["accept-version"] = version
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.raw(encode("CONNECT", headers.items()))
        if accept:
            self.session.accept()
            (self.connected,) = self.frames()
            assert self.connected.command == "CONNECTED", self.connected
        return self

    def send(self, command, body=b"", **headers):
        """Send a frame; the commands that it makes."""
        pairs = [
            (name if name.startswith(("AMQ", "_")) else name.replace("_", "-"), value)
            for name, value in headers.items()
        ]
        self.raw(encode(command, pairs, body, self.session.version))
        return self.take()

    def take(self):
        commands, self.session.commands = self.session.commands, []
        return commands

    def frames(self):
        """What the client can read now."""
        data, self.session.output = b"".join(self.session.output), []
        self.parser.agree(self.session.version, self.parser.limits)
        self.parser.feed(data)
        frames = []
        while (frame := self.parser.next()) is not None:
            frames.append(frame)
        assert not self.parser.waiting
        return frames

    def say(self, *replies):
        """What the proxy says, as the client sees it."""
        self.session.reply(list(replies))
        self.session.check()
        return self.frames()

    def fails(self, command, text, body=b"", receipt=None, **headers):
        """The frame is a fault: ERROR after what came before, then the end."""
        if receipt is not None:
            headers["receipt"] = receipt
        before = self.send(command, body, **headers)
        assert before[-1] == Sync(LAST) and self.frames() == []
        return self.ended(text, receipt)

    def ended(self, text, receipt=None):
        if not self.session.closed:
            self.session.reply([Receipt(LAST)])
        (error,) = self.frames()
        assert (error.command, self.session.closed) == ("ERROR", True)
        assert text in error.headers["message"] and error.body.decode().startswith(error.headers["message"])
        assert error.headers.get("receipt-id") == receipt
        assert error.headers["content-type"] == "text/plain"
        assert error.headers["content-length"] == str(len(error.body))
        return error

    def give(self, tag, sub="a", ack="client", **fields):
        """A delivery; the frame that the client sees."""
        id, put = fields.pop("id", f"s1#{tag + 100}"), message(**fields)
        (frame,) = self.say(Delivery(sub, tag, id, put, ack=ack))
        return frame

    def settles(self, command, frame, **headers):
        """Settle a delivery in the client's version."""
        if self.session.version == V12:
            headers["id"] = frame.headers["ack"]
        else:
            headers["message-id"] = frame.headers["message-id"]
            if self.session.version == V11:
                headers["subscription"] = frame.headers["subscription"]
        return self.send(command, **headers)


def message(shown="/queue/a", body=b"x", **fields):
    return ClientMessage("queue:a", shown, body=body, **fields)


def client(version=V12, **settings):
    return Client(**settings).connect(version)


@pytest.fixture(params=VERSIONS)
def any_version(request):
    return client(request.param)


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


# -- SEND ----------------------------------------------------------------------------------------------------------


def sent(version=V12, body=b"", **headers):
    mine = client(version)
    (command,) = mine.send("SEND", body, destination="/queue/a", **headers)
    return command


def test_a_plain_send_is_persistent_text_of_middle_priority(any_version):
    (command,) = any_version.send("SEND", b"hello", destination="/queue/a", color="red")
    assert command == Send("queue:a", b"hello", properties=pack({"color": "red"}), kind="text", shown="/queue/a")


def test_a_send_with_a_length_has_bytes(any_version):
    (command,) = any_version.send("SEND", b"a\0b", destination="a", content_length="3")
    assert (command.kind, command.body) == ("bytes", b"a\0b")
    assert sent(content_length="0", amq_msg_type="text").kind == "text"


def test_sends_that_differ_in_body_and_receipt_alone_are_alike():
    """The second one is made after the first; not if a header may mean something else by then."""
    c = Client().connect()
    for number in range(3):
        (command,) = c.send("SEND", b"%d" % number, destination="/queue/a", priority="7", x="1", receipt=f"r{number}")
        assert command == Send(
            "queue:a", b"%d" % number, 7, shown="/queue/a", kind="text", receipt=f"r{number}",
            properties=pack({"x": "1"}),
        )  # fmt: skip
    expiries = set()
    assert [c.send("SEND", destination="a", JMSMessageID=id)[0].message for id in "xyy"] == ["x", "y", "y"]
    for number in range(3):
        c.session.now = lambda: NOW + number  # noqa: B023
        (command,) = c.send("SEND", destination="/queue/a", expiration="1000", receipt=str(number))
        expiries.add(command.expires)
    assert len(expiries) == 3
    c.send("BEGIN", transaction="t")
    assert [c.send("SEND", destination="/queue/a", transaction="t") for _ in range(2)] == [[], []]


@pytest.mark.interpreted
@pytest.mark.parametrize("name", [each.name for each in fields(Send) if each.name not in ("body", "receipt")])
def test_frames_that_are_alike_are_alike_in_each_field(name, monkeypatch):
    """The second and third are not parsed: a field that is left out there is obeyed once."""

    def options(command, headers, now):
        setattr(command, name, "set")

    monkeypatch.setattr(rules.requests, "options", options)
    mine = client()
    for number in range(3):
        (command,) = mine.send("SEND", b"%d" % number, destination="/queue/a", priority="7", receipt=f"r{number}")
        assert (getattr(command, name), command.body, command.receipt) == ("set", b"%d" % number, f"r{number}")


def test_S16_a_message_id_of_the_client_is_ignored():
    assert sent(message_id="mine", timestamp="5", redelivered="true", JMSXDeliveryCount="9", ack="1").properties == b""


@pytest.mark.parametrize("name", sorted(BROKERS_OWN))
def test_what_the_broker_alone_says_is_nothing_that_a_sender_can_say(name):
    assert sent(**{name: "root"}).properties == b""


@pytest.mark.parametrize("row", [row for row in ROWS if row.read is truth], ids=lambda row: row.name)
def test_an_option_of_send_that_is_true_or_false(row):
    for text, value in (("true", True), (" False", False)):
        assert getattr(sent(**{row.name: text}), row.field) is value
    client().fails("SEND", f"{row.name} must be true or false", destination="a", receipt="r", **{row.name: "ann"})


@pytest.mark.parametrize("headers, fields", [
    ({"priority": "9"}, {"priority": 9}), ({"priority": "0"}, {"priority": 0}), ({"priority": "99"}, {"priority": 9}),
    ({"persistent": "true"}, {"persistent": True}), ({"persistent": "false"}, {"persistent": False}),
    ({"expires": "0"}, {"expires": 0}), ({"expires": "5"}, {"expires": 5 * MS}),
    ({"expiration": "5"}, {"expires": NOW + 5 * MS}), ({"expires": "7", "expiration": "5"}, {"expires": 7 * MS}),
    ({"AMQ_SCHEDULED_DELAY": "5"}, {"delay": 5 * MS}), ({"AMQ_SCHEDULED_TIME": str(NOW // MS + 9)}, {"delay": 9 * MS}),
    ({"AMQ_SCHEDULED_TIME": "5"}, {"delay": 0}), ({"JMSXGroupID": "g"}, {"group": "g", "group_seq": 0}),
    ({"JMSXGroupID": "g", "JMSXGroupSeq": "-1"}, {"group": "g", "group_seq": -1}),
    ({"dedup-id": "p:q:7"}, {"dedup": ("p:q", 7)}), ({"JMSMessageID": "x#7.1"}, {"message": "x#7.1"}),
    ({"persistent": "False"}, {"persistent": False}), ({"priority": " 7"}, {"priority": 7}),
    ({"expires": " 5 "}, {"expires": 5 * MS}), ({"expires": f" {'9' * 30}"}, {"expires": LAST_NS}),
    ({"content-length": " 0"}, {"kind": "bytes"}),
    ({"amq-msg-type": "map"}, {"kind": "map"}),
    *(({name: digits}, {field: LAST_NS - (NOW if name == "AMQ_SCHEDULED_TIME" else 0)})
      for name, field in [("expires", "expires"), ("expiration", "expires"), ("AMQ_SCHEDULED_DELAY", "delay"),
                          ("AMQ_SCHEDULED_TIME", "delay")]
      for digits in ("9" * 13, "9" * 18, str(2**63 - 1), "9" * 5_000)),
])  # fmt: skip
def test_the_options_of_send(headers, fields):
    mine = client()
    (command,) = mine.send("SEND", destination="a", **headers)
    assert {name: getattr(command, name) for name in fields} == fields


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("said, parent", [(TRACEPARENT, TRACEPARENT), ("00-x", ""), (TRACEPARENT + " ", ""), ("", "")])
def test_a_traceparent_is_the_parent_and_a_property_and_no_fault_if_it_is_none(said, parent):
    command = sent(traceparent=said)
    assert (command.parent, command.properties) == (parent, pack({"traceparent": said}))


@pytest.mark.parametrize("name, value", [
    ("priority", "high"), ("priority", "-1"), ("persistent", "yes"), ("expires", "-5"), ("expires", ""),
    ("expiration", "1s"), ("AMQ_SCHEDULED_DELAY", "x"), ("AMQ_SCHEDULED_TIME", "-1"),
    ("AMQ_SCHEDULED_CRON", "* * * * *"),
    ("AMQ_SCHEDULED_PERIOD", "5"), ("AMQ_SCHEDULED_REPEAT", "5"), ("dedup-id", "7"), ("dedup-id", "p:x"),
    ("dedup-id", "p:"), ("dedup-id", ":5"), ("dedup-id", "p:" + "9" * 19), ("priority", "9" * 19),
    ("expires", "9" * 18 + "x"), ("JMSMessageID", ""), ("JMSMessageID", "a/b"), ("JMSMessageID", "a b"),
    ("JMSMessageID", "ID:1"), ("JMSMessageID", "x" * 101), ("JMSMessageID", "é"),
])  # fmt: skip
def test_an_option_of_send_that_makes_no_sense_is_a_fault(name, value):
    client().fails("SEND", name, destination="a", receipt="r", **{name: value})


def test_a_group_number_must_be_one():
    client().fails("SEND", "JMSXGroupSeq must be a number", destination="a", JMSXGroupID="g", JMSXGroupSeq="x")


@pytest.mark.parametrize("frame, name, value", [
    ("SEND", "JMSXGroupID", "{}"), ("SEND", "amq-msg-type", "{}"), ("SEND", "dedup-id", "{}:1"),
    ("SEND", "_AMQ_DUPL_ID", "{}"), ("SUBSCRIBE", "id", "{}"), ("BEGIN", "transaction", "{}"),
])  # fmt: skip
def test_what_a_server_keeps_to_find_something_again_is_short(frame, name, value):
    """A header line may have 64 KiB, and of some there are thousands."""
    for length, fault in ((1_000, ""), (1_001, f"{name} has at most 1000 characters, not 1001")):
        mine = client()
        headers = {"destination": "a", "id": "1", name: value.format("x" * length)}
        mine.raw(encode(frame, headers.items()))
        assert mine.session.fault == fault


def test_the_destinations_of_one_subscription_are_not_too_many():
    many = ",".join(f"/topic/{at:04}" for at in range(1_000))
    assert len(client().send("SUBSCRIBE", destination=many[: 800 * 12 - 1], id="1")[0].destinations) == 800
    client().fails("SUBSCRIBE", "at most 10000 characters", destination=many, id="1")


def test_the_group_travels_with_the_message():
    assert unpack(sent(JMSXGroupID="g", JMSXGroupSeq="2").properties) == {"JMSXGroupID": "g", "JMSXGroupSeq": "2"}


def test_what_a_listener_may_change():
    mine = client(persistent=False, type_headers=True)
    (command,) = mine.send("SEND", destination="a")
    assert (command.persistent, command.typed) == (False, True)
    assert mine.send("SEND", destination="a", persistent="true")[0].persistent is True


@pytest.mark.parametrize("destination", ["", "/foo/a", "/queue/", "/topic/a.*", "a,b"])
def test_a_destination_that_nothing_can_go_to_is_a_fault(destination):
    client().fails("SEND", "", destination=destination)


# -- temporary destinations ----------------------------------------------------------------------------------------


def test_a_temporary_queue_is_named_for_others_in_reply_to():
    mine = client()
    (command,) = mine.send("SUBSCRIBE", destination="/temp-queue/x", id="t", ack="client")
    assert command == Subscribe("t", (f"temp-queue:{ID}/x",), "client")
    (command,) = mine.send("SEND", destination="a", reply_to="/temp-queue/x", color="red")
    assert (command.reply_to, unpack(command.properties)) == (f"/remote-temp-queue/{ID}/x", {"color": "red"})
    (command,) = mine.send("SEND", destination="/temp-queue/x")
    assert command.destination == f"temp-queue:{ID}/x"
    (command,) = client().send("SEND", destination=f"/remote-temp-queue/{ID}/x")
    assert command.destination == f"temp-queue:{ID}/x"


def test_a_reply_to_alone_subscribes():
    mine = client()
    subscribe, send = mine.send("SEND", destination="a", reply_to="/temp-queue/x")
    assert subscribe == Subscribe("/temp-queue/x", (f"temp-queue:{ID}/x",))
    assert (send.reply_to, send.properties, send.form) == (f"/remote-temp-queue/{ID}/x", b"", b"")
    assert len(mine.send("SEND", destination="a", reply_to="/temp-queue/x")) == 1
    assert mine.give(1, "/temp-queue/x", "auto").headers["subscription"] == "/temp-queue/x"
    unsubscribe, subscribe = mine.send("SUBSCRIBE", destination="/temp-queue/x", id="t")
    assert unsubscribe == Unsubscribe("/temp-queue/x") and subscribe.sub == "t"
    assert len(mine.send("SEND", destination="a", reply_to="/temp-queue/x")) == 1


def test_other_reply_tos_are_the_users_own():
    assert sent(reply_to="/queue/b").reply_to == "/queue/b"
    mine = client()
    (command,) = mine.send("SEND", destination="a", reply_to="/temp-topic/x")
    assert command.reply_to == f"/remote-temp-topic/{ID}/x"


# -- SUBSCRIBE -----------------------------------------------------------------------------------------------------


def test_S12_subscribe_needs_a_destination_and_from_1_1_an_id():
    for version in VERSIONS:
        client(version).fails("SUBSCRIBE", "needs a destination", id="1")
        client(version).fails("SUBSCRIBE", "malformed destination", id="1", destination="/queue/")
        client(version).fails("SUBSCRIBE", "a wildcard within a word", id="1", destination="/topic/pri*")
    for version in (V11, V12):
        client(version).fails("SUBSCRIBE", "needs an id", destination="a")


def test_S12_an_id_is_active_once(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="1")
    mine.send("SUBSCRIBE", destination="a", id="2")
    mine.send("UNSUBSCRIBE", id="1")
    mine.send("SUBSCRIBE", destination="b", id="1")
    mine.fails("SUBSCRIBE", "there is a subscription '1' already", destination="c", id="1")


def test_S12_subscriptions_are_limited():
    mine = client(subscriptions=2)
    for name in "ab":
        mine.send("SUBSCRIBE", destination="a", id=name)
    mine.fails("SUBSCRIBE", "no more are taken", destination="a", id="c")


def test_S13_in_1_0_a_subscription_needs_no_id():
    mine = client(V10)
    (command,) = mine.send("SUBSCRIBE", destination="/queue/a", ack="client")
    assert command.destinations == ("queue:a",)
    frame = mine.give(1, command.sub)
    assert "subscription" not in frame.headers
    assert mine.settles("ACK", frame) == [Disposition(1)]
    assert mine.send("UNSUBSCRIBE", destination="/queue/a") == [Unsubscribe(command.sub)]
    for name in ("x", "y"):
        mine.send("SUBSCRIBE", destination="/queue/a", id=name)
    assert mine.give(2, "x").headers["subscription"] == "x"
    mine.fails("UNSUBSCRIBE", "UNSUBSCRIBE needs the id", destination="/queue/b")


def test_S13_two_subscriptions_of_1_0_without_id_on_one_destination_are_a_fault():
    mine = client(V10)
    mine.send("SUBSCRIBE", destination="/queue/a")
    mine.fails("SUBSCRIBE", "already", destination="/queue/a")


@pytest.mark.parametrize(
    "ack, mode", [(None, "auto"), ("auto", "auto"), ("client", "client"), ("client-individual", "individual")]
)
def test_S14_there_are_three_ack_modes(any_version, ack, mode):
    headers = {"ack": ack} if ack else {}
    assert any_version.send("SUBSCRIBE", destination="a", id="1", **headers)[0].ack == mode


@pytest.mark.parametrize("ack", ["", "Client", "none", "individual"])
def test_S14_other_ack_modes_are_faults(any_version, ack):
    any_version.fails("SUBSCRIBE", "ack must be", destination="a", id="1", ack=ack)


@pytest.mark.parametrize("headers, fields", [
    ({"selector": "a = 1"}, {"selector": "a = 1"}), ({"no-local": "true"}, {"no_local": True}),
    ({"activemq.noLocal": "true"}, {"no_local": True}), ({"prefetch-count": "5"}, {"prefetch": 5}),
    ({"activemq.prefetchSize": "7"}, {"prefetch": 7}), ({"prefetch-count": "99999999"}, {"prefetch": 10_000}),
    ({"exclusive": "true"}, {"exclusive": True}), ({"activemq.exclusive": "true"}, {"exclusive": True}),
    ({"activemq.priority": "3"}, {"priority": 3}), ({"x-priority": "-3"}, {"priority": -3}),
    ({"browser": "true"}, {"browser": True}), ({"exclusive": "TRUE"}, {"exclusive": True}),
    ({"ack": " client "}, {"ack": "client"}),
    ({"no-local": " False"}, {"no_local": False}), ({"prefetch-count": " 5 "}, {"prefetch": 5}),
    ({"take-over": "false"}, {"take_over": False}), ({"take-over": "True"}, {"take_over": True}),
    ({}, {"take_over": True}), ({}, {"prefetch": 0, "durable": "", "shared": False, "no_local": False}),
])  # fmt: skip
def test_the_options_of_subscribe(headers, fields):
    (command,) = client().send("SUBSCRIBE", destination="/queue/a", id="1", **headers)
    assert {name: getattr(command, name) for name in fields} == fields


@pytest.mark.parametrize("headers", [
    {"selector": "a = "}, {"selector": "1"}, {"no-local": "1"}, {"prefetch-count": "-1"}, {"prefetch-count": "many"},
    {"exclusive": "yes"}, {"take-over": ""}, {"browser": "true", "ack": "client"}, {"x-priority": "high"},
    {"activemq.retroactive": "true"},
])  # fmt: skip
def test_an_option_of_subscribe_that_makes_no_sense_is_a_fault(headers):
    client().fails("SUBSCRIBE", "", destination="/queue/a", id="1", receipt="r", **headers)


def test_a_malformed_selector_is_a_fault_with_the_position():
    client().fails("SUBSCRIBE", "at character 7", destination="/queue/a", id="1", selector="a = 1 b")


def test_several_topics_are_one_subscription():
    (command,) = client().send("SUBSCRIBE", destination="/topic/a,/topic/b.>", id="1")
    assert command.destinations == ("topic:a", "topic:b.>")


def test_arguments_of_other_brokers_are_noted_once():
    mine = client()
    for name in "ab":
        mine.send("SUBSCRIBE", destination="a", id=name, x_expires="1", x_message_ttl="2", x_priority="1")
    assert len(mine.session.notes) == 2 and "x-expires" in mine.session.notes[0]


DIALECTS = [
    {"durable-subscription-name": "d"}, {"durable-subscriber-name": "d"}, {"activemq.subscriptionName": "d"},
    {"activemq.subcriptionName": "d"},
]  # fmt: skip


def with_client_id():
    return Client().connect(V12, client_id="c")


@pytest.mark.parametrize("header", DIALECTS)
def test_a_durable_subscription_has_a_name_and_a_client_id(header):
    mine = with_client_id()
    (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert (command.durable, command.shared, command.transient) == ("d", False, False)
    client().fails("SUBSCRIBE", "needs a client-id in CONNECT", destination="/topic/a", id="1", **header)
    (command,) = client().send("SUBSCRIBE", destination="/topic/a", id="1", shared="true", **header)
    assert (command.durable, command.shared) == ("d", True)


@pytest.mark.parametrize("header", DIALECTS)
def test_only_unsubscribe_with_the_header_ends_a_durable_subscription(header):
    mine = with_client_id()
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert mine.send("UNSUBSCRIBE", id="1") == [Unsubscribe("1")]
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", **header)
    assert mine.send("UNSUBSCRIBE", id="1", **header) == [Unsubscribe("1", "d", True)]
    assert mine.send("UNSUBSCRIBE", id="1", receipt="r", **header) == [Unsubscribe("", "d", True, "r")]  # not active
    assert mine.send("UNSUBSCRIBE", **header) == [Unsubscribe("", "d", True)]


def test_a_durable_subscription_by_flags_is_named_by_id_and_destination_and_shared():
    for flags in (
        {"durable": "true"},
        {"durable": "true", "auto-delete": "false"},
        {"persistent": "true", "auto-delete": "false"},
        {"persistent": "True", "auto-delete": "False"},
        {"durable": "TRUE"},
    ):
        mine = client()
        (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **flags)
        assert (command.durable, command.shared, command.transient) == ("1@/topic/a", True, False)
        assert mine.send("UNSUBSCRIBE", id="1", **flags) == [Unsubscribe("1", "1@/topic/a", True)]
        ended = mine.send("UNSUBSCRIBE", id="1", destination="/topic/a", **flags)
        assert ended == [Unsubscribe("", "1@/topic/a", True)], "also when it is not active"
        mine.fails("UNSUBSCRIBE", "no subscription '1'", id="1", **flags)
    for flags in (
        {"durable": "false"}, {"durable": "true", "auto-delete": "true"}, {"durable": "true", "auto-delete": "True"},
        {"persistent": "true"},
    ):  # fmt: skip
        assert client().send("SUBSCRIBE", destination="/topic/a", id="1", **flags)[0].durable == ""


@pytest.mark.parametrize("made", [
    *DIALECTS, {"durable": "true"}, {"persistent": "true", "auto-delete": "false"},
])  # fmt: skip
@pytest.mark.parametrize("ended", [
    *DIALECTS, {"durable": "true"}, {"persistent": "true"}, {"persistent": "True", "auto-delete": "False"},
])  # fmt: skip
def test_whatever_header_made_a_subscription_durable_each_of_them_ends_it(made, ended):
    mine = with_client_id()
    (command,) = mine.send("SUBSCRIBE", destination="/topic/a", id="1", **made)
    ended = {name: command.durable if value == "d" else value for name, value in ended.items()}
    assert mine.send("UNSUBSCRIBE", id="1", destination="/topic/a", **ended) == [
        Unsubscribe("1", command.durable, True)
    ]


def test_a_header_of_durable_subscriptions_ends_another_one_as_any_unsubscribe_does():
    for made in ({}, {"shared_subscription_name": "s"}):
        mine = client()
        mine.send("SUBSCRIBE", destination="/topic/a", id="1", **made)
        assert mine.send("UNSUBSCRIBE", id="1", durable="true") == [Unsubscribe("1")]


def test_a_durable_subscription_by_a_flag_needs_an_id_in_1_0_too():
    mine = client(V10)
    mine.fails("SUBSCRIBE", "durable:true needs an id", destination="/topic/a", durable="true", receipt="r")
    (command,) = client(V10).send("SUBSCRIBE", destination="/topic/a", durable="true", id="mine")
    assert command.durable == "mine@/topic/a"


@pytest.mark.parametrize("header", [*(next(iter(each)) for each in DIALECTS), "shared-subscription-name"])
def test_the_name_of_a_subscription_is_as_long_as_that_of_a_destination(header):
    for name, fits in (("n" * 200, True), ("n" * 201, False), ("n\n", False)):
        mine = Client().connect(client_id="c")
        headers = {"id": "1", "destination": "/topic/a", header: name}
        if fits:
            mine.raw(encode("SUBSCRIBE", headers.items(), b"", V12))
            assert mine.take()[0].durable == name
        else:
            mine.raw(encode("SUBSCRIBE", headers.items(), b"", V12))
            assert "at most 200" in mine.session.fault


def test_an_exclusive_client_id_must_be_one():
    login = Client().connect(accept=False, client_id="c", exclusive_client_id="True").session.login
    assert (login.client_id, login.exclusive) == ("c", True)
    Client().connect(accept=False, exclusive_client_id="true").ended("exclusive-client-id needs a client-id")


def test_a_client_id_is_no_longer_than_a_name():
    mine = Client().connect(accept=False, client_id="c" * 201)
    mine.ended("a client-id has at most 200")


def test_a_shared_subscription_may_end_with_its_last_consumer():
    (command,) = client().send("SUBSCRIBE", destination="/topic/a", id="1", shared_subscription_name="s")
    assert (command.durable, command.shared, command.transient) == ("s", True, True)
    client().fails("SUBSCRIBE", "shared-subscription-name", destination="/topic/a", id="1", shared="true")


def test_a_queue_needs_no_durable_subscription():
    for headers in ({"durable": "true"}, {"activemq.subscriptionName": "d"}):
        (command,) = client().send("SUBSCRIBE", destination="/queue/a", id="1", **headers)
        assert (command.durable, command.shared) == ("", False)
    client().fails("SUBSCRIBE", "only a queue can be browsed", destination="/topic/a", id="1", browser="true")


def test_S28_unsubscribe_of_what_is_not_there_is_a_fault(any_version):
    any_version.fails("UNSUBSCRIBE", "no subscription '1'", id="1")
    for version in VERSIONS:
        client(version).fails("UNSUBSCRIBE", "needs the id")
    mine = with_client_id()
    mine.send("SUBSCRIBE", destination="/topic/a", id="1", durable_subscription_name="d")
    mine.fails("UNSUBSCRIBE", "not the durable 'other'", id="1", durable_subscription_name="other")


# -- MESSAGE and its settlement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_S15_what_a_message_tells(version):
    mine = client(version)
    mine.send("SUBSCRIBE", destination="/topic/a.>", id="s:1", ack="client")
    (frame,) = mine.say(
        Delivery(
            "s:1", 7, "s1#99", message(
                "/topic/a.b", b"bo\0dy", properties=pack({"color": "red", "x": "1:2"}), priority=8, timestamp=NOW,
                persistent=False, kind="bytes", annotations={"dead-letter-reason": "a:b"},
            ), count=3, expires=5 * MS, ack="client",
        )
    )  # fmt: skip
    expected = {
        "destination": "/topic/a.b", "message-id": "s1#99/5f-7.7", "subscription": "s:1", "timestamp": str(NOW // MS),
        "JMSXDeliveryCount": "3", "redelivered": "true", "priority": "8", "expires": "5", "persistent": "false",
        "dead-letter-reason": "a:b", "content-length": "5", "color": "red", "x": "1:2",
    }  # fmt: skip
    assert frame.headers == ({**expected, "ack": "s1#99/5f-7.7"} if version == V12 else expected)
    assert (frame.command, frame.body) == ("MESSAGE", b"bo\0dy")


def test_S15_a_plain_message_tells_little(any_version):
    any_version.send("SUBSCRIBE", destination="a", id="1")
    (frame,) = any_version.say(Delivery("1", 1, "s1#1", message("a", kind="text")))
    assert set(frame.headers) == {"destination", "message-id", "subscription", "timestamp", "JMSXDeliveryCount"}


def test_S15_two_subscriptions_get_different_ids_for_one_message():
    mine = client()
    for name in "ab":
        mine.send("SUBSCRIBE", destination="/topic/a", id=name, ack="client")
    ids = {mine.give(tag, sub, id="s1#1").headers["message-id"] for tag, sub in ((1, "a"), (2, "b"))}
    assert len(ids) == 2


@pytest.mark.parametrize("kind, body, length", [
    ("text", b"x", None), ("text", b"a\0b", "3"), ("bytes", b"x", "1"), ("bytes", b"", "0"), ("map", b"x", "1"),
])  # fmt: skip
def test_text_has_no_length_unless_it_must(kind, body, length):
    frame = client().give(1, kind=kind, body=body)
    assert (frame.headers.get("content-length"), frame.body) == (length, body)
    told = kind == "map" or (kind == "text" and length)
    assert frame.headers.get("amq-msg-type") == (kind if told else None)


def test_S17_a_missing_or_unknown_id_is_a_fault():
    key = {V10: "message-id", V11: "message-id", V12: "id"}
    for version in VERSIONS:
        for command in ("ACK", "NACK"):
            client(version).fails(command, "needs", subscription="a")
            for wrong in (
                "s1#101/5f-7.2",
                "s1#102/5f-7.1",
                "s1#101/5f-8.1",
                "s1#101/1",
                "1",
                "/5f-7.1",
                ".1",
                "s1#101/5f-7.",
                "s1#101/5f-7.x",
                "s1#101/5f-7.٣",
                "",
                "s1#101/5f-7." + "9" * 30,
                "s1#101/5f-7." + "9" * 5_000,
            ):
                mine = client(version)
                mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
                assert mine.give(1).headers["message-id"] == "s1#101/5f-7.1"
                headers = {key[version]: wrong, "subscription": "a"}
                mine.fails(command, "no delivery of this connection, or is settled already", **headers)


def test_S17_in_1_1_the_subscription_must_be_named_and_right():
    mine = client(V11)
    frame = mine.give(1)
    mine.fails("ACK", "ACK needs a subscription", message_id=frame.headers["message-id"])
    mine = client(V11)
    mine.give(1)
    words = "subscription 'a' has it, not 'b'"
    mine.fails("ACK", words, message_id=frame.headers["message-id"], subscription="b")


def test_S17_in_1_0_and_1_2_a_stray_subscription_is_ignored():
    for version, key in ((V10, "message-id"), (V12, "id")):
        mine = client(version)
        mine.give(7)
        assert mine.send("ACK", **{key: "s1#107/5f-7.7"}, subscription="of somebody") == [Disposition(7)]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("mode", ["client", "individual"])
@pytest.mark.parametrize("version", VERSIONS)
def test_S17_an_id_of_another_connection_settles_nothing(version, mode, command):
    """The message that it named comes again under the same number, behind another one."""
    former, mine = client(version), Client(id="s1/5f-8").connect(version)
    old = [former.give(tag, ack=mode) for tag in (1, 2)][1]
    mine.give(1, ack=mode, id="s1#999")
    mine.give(2, ack=mode)
    headers = {"id": old.headers.get("ack", ""), "message-id": old.headers["message-id"], "subscription": "a"}
    mine.fails(command, "is no delivery of this connection", **headers)
    assert sorted(mine.session.unsettled.given) == [1, 2]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
@pytest.mark.parametrize("mode", ["client", "individual"])
def test_S17_what_is_settled_cannot_be_settled_again(any_version, command, mode):
    frame = any_version.give(1, ack=mode)
    any_version.settles(command, frame)
    headers = {"id": frame.headers.get("ack", ""), "message-id": frame.headers["message-id"], "subscription": "a"}
    any_version.fails(command, "settled already", **headers)


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_S18_client_settles_all_earlier_ones_of_its_subscription(any_version, command):
    mine = any_version
    for tag, sub in enumerate("ababa"):
        mine.give(tag, sub)
    mine.settles(command, mine.give(5, "a", "individual"))
    third = mine.give(6, "a")
    mine.give(7, "a")
    mine.settles(command, third)
    assert sorted(mine.session.unsettled.given) == [1, 3, 7]


def test_S18_client_individual_settles_one(any_version):
    mine = any_version
    frames = [mine.give(tag, ack="individual") for tag in range(4)]
    assert mine.settles("ACK", frames[2]) == [Disposition(2)]
    assert mine.settles("NACK", frames[0], requeue="false") == [Disposition(0, REJECTED)]
    assert mine.settles("NACK", frames[1], requeue="true") == [Disposition(1, REQUEUED)]
    assert sorted(mine.session.unsettled.given) == [3]


def test_S18_a_nack_may_say_that_nobody_has_seen_the_message():
    mine = client()
    assert mine.settles("NACK", mine.give(1), unseen="true") == [Disposition(1, RELEASED)]
    mine.fails("NACK", "unseen must be true or false", id=mine.give(2).headers["ack"], unseen="maybe")


def test_S18_requeue_is_a_flag():
    mine = client()
    frame = mine.give(1)
    mine.fails("NACK", "requeue must be true or false", id=frame.headers["ack"], requeue="maybe")


def test_S19_what_was_delivered_can_be_settled_after_unsubscribe(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
    frame = mine.give(1)
    mine.send("UNSUBSCRIBE", id="a")
    late = mine.give(2)  # it was on its way
    assert mine.settles("ACK", frame) == [Disposition(1)]
    assert mine.settles("ACK", late) == [Disposition(2)]


def test_S20_the_mode_at_the_delivery_counts(any_version):
    mine = any_version
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client-individual")
    first, second = mine.give(1, ack="individual"), mine.give(2, ack="individual")
    mine.send("UNSUBSCRIBE", id="a")
    mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
    third, fourth = mine.give(3, ack="client"), mine.give(4, ack="client")
    mine.settles("ACK", second)
    mine.settles("ACK", fourth)
    assert sorted(mine.session.unsettled.given) == [1]
    mine.settles("ACK", first)
    assert third.headers["message-id"] == "s1#103/5f-7.3"


def test_what_a_session_keeps_of_deliveries_is_what_is_unsettled():
    """A million messages later nothing has grown."""
    for version in VERSIONS:
        mine = client(version)
        mine.send("SUBSCRIBE", destination="a", id="a", ack="client")
        for tag in range(2_000):
            mine.give(tag, ack="auto")
        for tag in range(2_000, 4_000, 10):
            frames = [
                mine.give(tag + each, "ab"[each % 2], ("client", "individual")[each % 3 == 0]) for each in range(10)
            ]
            individual = [frame for each, frame in enumerate(frames) if each % 3 == 0]
            for frame in [*individual, *[frame for each, frame in enumerate(frames) if each in (7, 8)]]:
                mine.settles("ACK", frame)
        assert (mine.session.unsettled.given, mine.session.unsettled.lines) == ({}, {})
        assert mine.session.subs.keys() == {"a"}


def test_S27_the_last_auto_delivery_in_the_output_is_known():
    mine = client()
    assert mine.session.written == 0
    mine.give(3, ack="auto")
    mine.give(4, ack="client")
    assert mine.session.written == 3


def test_a_browser_is_told_the_end():
    mine = client()
    mine.send("SUBSCRIBE", destination="/queue/a", id="b", browser="true")
    (frame,) = mine.say(BrowseEnd("b"))
    assert frame.headers == {"destination": "/queue/a", "message-id": "", "subscription": "b", "browser": "end"}
    mine.send("UNSUBSCRIBE", id="b")
    assert mine.say(BrowseEnd("b"))[0].headers["browser"] == "end"


# -- transactions --------------------------------------------------------------------------------------------------


def test_S21_a_transaction_is_open_once_and_its_name_free_again(any_version):
    mine = any_version
    for end in ("COMMIT", "ABORT"):
        mine.send("BEGIN", transaction="t")
        mine.send(end, transaction="t")
    mine.send("BEGIN", transaction="t")
    mine.fails("BEGIN", "transaction 't' is open already", transaction="t")


def test_S22_what_is_sent_in_a_transaction_waits_for_its_commit(any_version):
    mine = any_version
    mine.send("BEGIN", transaction="t")
    for body in (b"1", b"2"):
        assert mine.send("SEND", body, destination="/queue/a", transaction="t") == []
    assert [command.body for command in mine.send("SEND", b"3", destination="/queue/a")] == [b"3"]
    (transact,) = mine.send("COMMIT", transaction="t", receipt="r")
    assert [step.body for step in transact.commands] == [b"1", b"2"] and transact.receipt == "r"
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", b"4", destination="/queue/a", transaction="t")
    assert mine.send("ABORT", transaction="t") == []
    mine.send("BEGIN", transaction="t")
    assert mine.send("COMMIT", transaction="t") == [Transact([])]


def test_S23_after_an_abort_a_delivery_is_as_before(any_version):
    mine = any_version
    frames = [mine.give(tag) for tag in range(3)]
    mine.send("BEGIN", transaction="t")
    assert mine.settles("ACK", frames[1], transaction="t") == [Uncommitted(1)]
    assert mine.settles("NACK", frames[2], transaction="t") == [Uncommitted(2)]
    mine.send("ABORT", transaction="t")
    assert sorted(mine.session.unsettled.given) == [0, 1, 2]
    assert mine.settles("ACK", frames[1]) == [Disposition(1)]
    mine.send("BEGIN", transaction="t")
    mine.settles("NACK", frames[2], transaction="t", requeue="false")
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(2, REJECTED)])]


def test_S23_in_a_transaction_acks_may_come_out_of_order_and_twice():
    mine = client()
    frames = [mine.give(tag) for tag in range(4)]
    mine.send("BEGIN", transaction="t")
    for each in (2, 0, 2, 3):
        mine.settles("ACK", frames[each], transaction="t")
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(2), Disposition(3)])]
    assert mine.session.unsettled.given == {}


def test_S23_what_was_settled_outside_meanwhile_is_left_out():
    mine = client()
    frames = [mine.give(tag, ack="individual") for tag in range(2)]
    mine.send("BEGIN", transaction="t")
    for frame in frames:
        mine.settles("ACK", frame, transaction="t")
    mine.settles("ACK", frames[0])
    assert mine.send("COMMIT", transaction="t") == [Transact([Disposition(1)])]


ACKS = [
    b"ACK\nid:%s\n\n\0", b"NACK\nid:%s\n\n\0", b"ACK\nid:%s\nreceipt:r\n\n\0", b"\nACK\nid:%s\n\n\0",
    b"ACK\nreceipt:r\nid:%s\n\n\0",
]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from([ACKS[0], *ACKS]), st.integers(1, 9)), max_size=12),
    st.sampled_from(["client", "individual"]),
)
@settings(max_examples=100, deadline=None)
def test_a_row_of_acks_does_what_each_of_them_does(wanted, mode):
    """Read at once or byte by byte, with good ids, those that are settled already, and some that were never given."""
    outcomes = []
    for size in (1 << 20, 1):
        mine = client()
        ids = [mine.give(tag, ack=mode).headers["ack"] for tag in range(1, 7)] + ["s1#107/7", "x", "8"]
        data = b"".join(form % ids[number - 1].encode() for form, number in wanted)
        for at in range(0, len(data), size):
            mine.session.receive(data[at : at + size])
        mine.session.check()
        commands = mine.take()
        mine.session.reply([Receipt(LAST)])
        outcomes.append((commands, sorted(mine.session.unsettled.given), mine.session.state, mine.frames()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("command", ["COMMIT", "ABORT", "SEND", "ACK", "NACK"])
def test_S24_an_unknown_transaction_is_a_fault(command):
    mine = client()
    frame = mine.give(1)
    mine.fails(
        command, "no open transaction 't'", destination="a", id=frame.headers["ack"], transaction="t", receipt="r"
    )


@pytest.mark.parametrize("command", ["BEGIN", "COMMIT", "ABORT"])
def test_S24_a_transaction_must_be_named(command):
    client().fails(command, f"{command} needs a transaction")
    client().fails(command, f"{command} needs a transaction", transaction="")


def test_S24_transactions_are_limited_all_together():
    def limited(**limits):
        mine = client(transactions=transactions.Limits(**limits))
        for name in "tu":
            mine.send("BEGIN", transaction=name)
        return mine

    limited(open=2).fails("BEGIN", "2 transactions are open", transaction="v")
    mine = limited(frames=2)
    for name in "tu":
        mine.send("SEND", destination="a", transaction=name)
    mine.fails("SEND", "at most 2 frames", destination="a", transaction="t", receipt="r")
    mine = limited(bytes=10)
    mine.send("SEND", b"12345", destination="a", transaction="t")
    mine.send("SEND", b"12345", destination="a", transaction="u")
    mine.send("COMMIT", transaction="t")
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", b"12345", destination="a", transaction="t")
    mine.fails("SEND", "10 bytes", b"1", destination="a", transaction="t")


def test_S24_a_fault_aborts_all():
    mine = client()
    mine.send("BEGIN", transaction="t")
    mine.send("SEND", destination="a", transaction="t")
    mine.fails("SEND", "needs a destination")
    assert not mine.session.transactions.open and mine.session.transactions.bytes == 0


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


def test_a_temporary_queue_is_deleted_when_nobody_takes_from_it():
    mine = client()
    (command,) = mine.send("UNSUBSCRIBE", destination="/temp-queue/x", delete="true", receipt="r")
    assert command == Unsubscribe("", receipt="r", temporary=f"temp-queue:{ID}/x")
    mine.send("SEND", destination="a", reply_to="/temp-queue/x")
    implied, command = mine.send("UNSUBSCRIBE", destination="/temp-queue/x", delete="true")
    assert (implied, command.temporary) == (Unsubscribe("/temp-queue/x"), f"temp-queue:{ID}/x")
    mine.send("SUBSCRIBE", destination="/temp-queue/x", id="t")
    mine.fails("UNSUBSCRIBE", "has the subscription 't'", destination="/temp-queue/x", delete="true")
    for destination in ("/queue/a", "/remote-temp-queue/s/x", ""):
        client().fails("UNSUBSCRIBE", "deletes a destination /temp-queue/NAME", destination=destination, delete="true")


def test_a_message_to_an_agent_is_a_question_and_each_is_made_by_itself():
    mine = client()
    headers = {"destination": "/agent/greeter", "type": "Hello", "reply-to": "/queue/r", "dedup-id": "p:1"}
    for _ in range(3):
        (command,) = mine.send("SEND", b"{}", **headers)
        assert command == Ask(
            "agent:greeter", b"{}", shown="/agent/greeter", kind="text", type="Hello", reply_to="/queue/r",
            dedup=("p", 1),
        )  # fmt: skip
    mine.fails("SUBSCRIBE", "what an agent answers comes to the reply-to of a SEND", destination="/agent/a", id="1")


def test_questions_without_an_answer_that_come_in_a_row_stay_questions():
    mine = client()
    frame = encode("SEND", [("destination", "/agent/a"), ("type", "T"), ("receipt", "1")], b"{}")
    assert [type(command) for command in mine.raw(frame * 5).take()] == [Ask] * 5
