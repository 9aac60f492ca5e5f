"""SEND: its options, and its destinations, temporary queues and agents among them."""

from dataclasses import fields

import pytest

from mombroker.broker.commands import Ask, Send, Subscribe, Unsubscribe
from mombroker.broker.message import BROKERS_OWN
from mombroker.broker.properties import pack, unpack
from mombroker.core.times import LAST_NS
from mombroker.stomp import session as rules
from mombroker.stomp.frames import encode
from mombroker.stomp.headers import V12
from mombroker.stomp.requests import ROWS, truth
from tests.stomp.peer import ID, MS, NOW, Client, client

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


# -- questions -----------------------------------------------------------------------------------------------------


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
