import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.message import BROKERS_OWN
from mombroker.jms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, destination_of, to_consume, to_send
from mombroker.jms.errors import InvalidDestination, MessageFormat
from mombroker.jms.messages import Message, decode, encode, property_headers
from mombroker.stomp.frames import Frame

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SMALL = (
    st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none()
)


@given(TEXTS | st.binary() | st.none() | st.dictionaries(TEXTS, TEXTS | st.binary() | SMALL))
def test_a_body_is_what_it_was(body):
    kind, data = encode(body)
    assert decode(kind, data) == body


@settings(max_examples=30)
@given(st.recursive(TEXTS | SMALL, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_json_is_what_it_was(value):
    if value is not None:
        assert decode(*encode(None, value)) == value


@pytest.mark.parametrize(
    ("body", "json", "words"),
    [
        ({1}, None, "a body is text, bytes, a map or a list, not set: use json="),
        ([[1]], None, "a stream is a list of .*, not list: use json="),
        (["\ud800"], None, "cannot be in a stream"),
        ((1 << 64,), None, "cannot be in a stream"),
        ({"a": [1]}, None, "a map has texts, bytes, numbers and booleans by name, not 'a'"),
        ({1: "a"}, None, "not 1"),
        ({"a": 1 << 64}, None, "cannot be in a map"),
        ({"a": "\ud800"}, None, "cannot be in a map"),
        ("\ud800", None, "must have a form in UTF-8"),
        (None, "\ud800", "cannot be written as JSON"),
        ("a", {"b": 1}, "a message has one body"),
        (None, {1, 2}, "cannot be written as JSON"),
        (None, float("nan"), "cannot be written as JSON"),
    ],
)
def test_what_no_body_can_be(body, json, words):
    with pytest.raises(MessageFormat, match=words):
        encode(body, json)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text", b"\xff"),
        ("json", b"{"),
        ("map", b"\xc1"),
        ("map", msgpack.packb([1])),
        ("stream", msgpack.packb({})),
        ("map", b""),
    ],
)
def test_a_body_that_is_not_what_the_message_says(kind, data):
    message = Message(Frame("MESSAGE", {"amq-msg-type": kind}, data), 0)
    with pytest.raises(MessageFormat, match=f"this message says {kind}"):
        _ = message.body
    assert message.raw == data


def test_a_kind_of_others_is_bytes():
    assert decode("xml", b"<a/>") == b"<a/>"


@pytest.mark.parametrize("values", [
    {"": 1}, {"a=b": 1}, {"a,b": 1}, {"destination": "x"}, {"type": "x"}, {"x": b"y"}, {"x": None}, {"x": "\0"},
    {"x": "\ud800"}, {"receipt": "1"}, {"transaction": "1"}, {"AMQ_SCHEDULED_CRON": "1"}, {1: "x"},
    {"a b": 1}, {"1a": 1}, {"a.b": 1}, {"JMSFoo": 1}, {"JMSX": 1}, {"JMS_x": 1}, {"Null": 1}, {"not": 1}, {"a:": 1},
    {"n": 2**63}, {"n": -(2**63) - 1}, {"n": 10**5_000},
])  # fmt: skip
def test_what_no_property_can_be(values):
    with pytest.raises(MessageFormat):
        property_headers(values)


def test_properties_keep_their_types():
    values = {
        "i": -5,
        "big": (1 << 63) - 1,
        "f": 0.1,
        "b": True,
        "no": False,
        "s": "5",
        "t": "true",
        "content-md5": "x:y\n",
    }
    message = Message(Frame("MESSAGE", {"destination": "/queue/a", **property_headers(values)}, b""), 0)
    assert message.properties == {**values, "JMSXDeliveryCount": 1}
    assert [type(value) for value in message.properties.values()] == [*map(type, values.values()), int]


def test_a_message_of_any_client():
    message = Message(Frame("MESSAGE", {"destination": "/queue/a", "message-id": "a#1/2", "x": "5"}, b"hi"), 0)
    assert (message.kind, message.body, message.properties, message.id) == (
        "text",
        "hi",
        {"x": "5", "JMSXDeliveryCount": 1},
        "a#1",
    )
    assert (message.priority, message.persistent, message.redelivered, message.delivery_count) == (4, True, False, 1)
    assert (message.expires, message.reply_to, message.correlation_id, message.group) == (None, None, "", "")
    message.acknowledge()
    message.reject()
    headers = {
        "destination": "/topic/a.b", "content-length": "2", "priority": "9", "persistent": "false", "expires": "1500",
        "timestamp": "2500", "JMSXDeliveryCount": "3", "redelivered": "true", "reply-to": "/remote-temp-queue/s/1/t",
        "correlation-id": "c", "type": "t", "JMSXGroupID": "g", "content-type": "text/html",
    }  # fmt: skip
    message = Message(Frame("MESSAGE", headers, b"hi"), 0)
    assert (message.kind, message.body, message.content_type) == ("bytes", b"hi", "text/html")
    assert message.properties == {"JMSXDeliveryCount": 3, "JMSXGroupID": "g", "JMSXGroupSeq": 0}
    assert (message.priority, message.persistent, message.redelivered, message.delivery_count) == (9, False, True, 3)
    assert (message.expires, message.timestamp, message.type, message.group) == (1.5, 2.5, "t", "g")
    assert (message.destination, message.reply_to) == (Topic("a.b"), TemporaryQueue("s/1/t"))


@pytest.mark.parametrize("name", sorted(BROKERS_OWN))
def test_what_the_broker_alone_says_is_text_whatever_types_a_sender_gives(name):
    headers = {"destination": "/queue/a", name: "007", "property-types": f"{name}=int"}
    message = Message(Frame("MESSAGE", headers, b""), 0)
    assert message.properties == {"JMSXDeliveryCount": 1, name: "007"}
    assert property_headers(message.properties) == {}, "it may be sent on"


def test_destinations_are_written_and_read():
    for text, meant in (
        ("/queue/a b", Queue("a b")),
        ("a", Queue("a")),
        ("/topic/a", Topic("a")),
        ("/remote-temp-topic/s/1/x", TemporaryTopic("s/1/x")),
    ):
        assert destination_of(text) == meant == to_send(text)
        assert destination_of(str(meant)) == meant
    assert to_consume([Topic("a"), "/topic/b.*"]) == ("/topic/a,/topic/b.*", True)
    assert to_consume("a") == ("a", False)


class Here:
    session, deleted = "main/1", frozenset()


def test_a_temporary_one_has_two_names():
    queue = TemporaryQueue("t", Here())
    assert (queue.wire, queue.public) == ("/temp-queue/t", "/remote-temp-queue/main/1/t")
    assert to_consume(queue) == ("/temp-queue/t", False)
    assert destination_of(queue.public).wire == queue.public


@pytest.mark.parametrize("wrong", ["", "/nowhere/a", "/topic/a.*", Queue(""), Topic("a,b"), Topic("a.>"), "a\nb"])
def test_where_nothing_can_be_sent(wrong):
    with pytest.raises(InvalidDestination):
        to_send(wrong)


@pytest.mark.parametrize("wrong", [[], "", ["a", "b"], [Queue("a"), Topic("b")], TemporaryQueue("s/t"), "/queue/a.*"])
def test_what_cannot_be_consumed(wrong):
    with pytest.raises(InvalidDestination):
        to_consume(wrong)
