"""AMQP on a bus: one message seen the same from all sides, and nothing told before it is durable."""

import json

import pytest

from mombroker.amqp import codec, performatives
from mombroker.amqp.codec import Symbol, Timestamp
from mombroker.amqp.inbound import Inbound
from mombroker.amqp.messages import ANNOTATIONS, APPLICATION, DATA, HEADER, PROPERTIES, VALUE
from mombroker.amqp.outbound import Outbound
from mombroker.broker import properties, wire
from mombroker.broker.commands import Send
from mombroker.jms import messages as jms
from mombroker.stomp.headers import V12, headers_of, text_of
from tests import fakes_wires
from tests.amqp.peer import flow, message
from tests.amqp.wired import Wired, read, sections
from tests.broker.bench import ALONE, THREE, Broker
from tests.core.bus import topology

ACCEPTED = performatives.ACCEPTED
Q = "queue:orders"
JSON_BODY = VALUE, '{"what": "hat"}'


def seen(payload):
    """What another client gets of what one of AMQP sends."""
    b = Broker(THREE)
    client = b.connect("c").subscribe("s", Q)
    Wired(b).sender("orders").send(payload)
    (found,) = client.got
    return found.message


@pytest.mark.parametrize(
    "section, kind, body",
    [
        ((VALUE, "grün"), "text", "grün"), ((DATA, b"\0\xff"), "bytes", b"\0\xff"), ((VALUE, b"\1"), "bytes", b"\1"),
        ((VALUE, {"a": 1, "b": [1.5, None]}), "map", {"a": 1, "b": [1.5, None]}), ((VALUE, None), "none", None),
        ((VALUE, [1, "a", True]), "stream", [1, "a", True]), ((VALUE, 7), "text", "7"),
    ],
)  # fmt: skip
def test_each_kind_of_body_is_that_of_other_clients_and_comes_back_as_it_was(section, kind, body):
    payload = sections((HEADER, [True]), (PROPERTIES, ["id-1"]), section)
    found = seen(payload)
    assert (found.kind, jms.decode(found.kind, found.body), found.message) == (kind, body, "id-1")
    b = Broker(THREE)
    receiver = Wired(b, "c").receiver("orders")
    Wired(b).sender("orders").send(payload)
    (got,) = receiver.hear().got
    assert got == payload


def test_messages_with_ids_of_their_own_that_come_together_are_seen_one_by_one():
    payloads = [sections((HEADER, [True]), (PROPERTIES, [f"id-{at}"]), (DATA, b"x")) for at in range(9)]
    b = Broker(THREE)
    receiver, other = Wired(b, "c").receiver("/topic/news"), b.connect("c").subscribe("s", "topic:news")
    Wired(b).sender("/topic/news").send(*payloads)
    assert receiver.hear().got == payloads
    assert [(each.id, each.message.message) for each in other.got] == [(f"id-{at}",) * 2 for at in range(9)]


def test_an_application_property_traceparent_is_the_parent_of_its_message_alone():
    parents = [f"00-4bf92f3577b34da6a3ce929d0e0e4736-{at:016x}-01" for at in (1, 2, 2)]
    b = Broker(THREE)
    client = b.connect("c").subscribe("s", Q)
    said = [(APPLICATION, {"traceparent": parent}) for parent in parents] + [(APPLICATION, {"traceparent": 7})]
    Wired(b).sender("orders").send(*(sections((HEADER, [True]), each, (DATA, b"x")) for each in said))
    assert [each["detail"] for each in b.records("a") if each["kind"] == "parent"] == parents
    assert [properties.read(each.message.properties)["traceparent"] for each in client.got] == [*parents, 7]


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NO_PARENTS = [
    "", "x", "\0", "\x1b[31m", PARENT.upper(), f" {PARENT}", f"{PARENT}\n", f"{PARENT}-more", f"{PARENT},{PARENT}",
    PARENT * 2, "0" * 30_000, "00-" + "-" * 30_000, f"{PARENT}{'-more' * 6_000}", PARENT.encode(), b"\xff", 1.5, True,
    None, Symbol("x"), 1 << 60, -1, "\U0001f600" * 1_000,
]  # fmt: skip


@pytest.mark.parametrize("address", ["orders", "/topic/news", "/agent/clerk"])
def test_what_is_no_traceparent_is_a_property_like_others_and_no_record(address):
    """Malformed, of another type, twice in one text or huge: what is sent with it arrives as without it."""
    b = Broker(topology({"x": "ab"}, {"b/clerk": "tests.core.sample_agents:Clerk"}))
    heard = b.connect("b").subscribe("s", Q).subscribe("t", "topic:news")
    client = Wired(b).sender(address)
    asked = [None, None, None, "tests.core.sample_agents.Count", "/queue/orders"]  # the reply to an agent's answer
    for said in (*NO_PARENTS, PARENT):
        client.send(sections((HEADER, [True]), (PROPERTIES, asked), (APPLICATION, {"traceparent": said}), JSON_BODY))
    assert client.outcomes == [(at, at, ACCEPTED) for at in range(len(NO_PARENTS) + 1)], client.why
    assert len(heard.got) == len(NO_PARENTS) + 1
    assert [each["detail"] for each in b.records("a") if each["kind"] == "parent"] == [PARENT]
    if address == "orders":
        found = [properties.read(each.message.properties)["traceparent"] for each in heard.got]
        assert found == [*NO_PARENTS, PARENT]


def test_a_receiver_with_a_wildcard_within_a_word_is_refused():
    client = Wired(Broker(THREE)).receiver("/topic/pri*")
    ((handle, _, why),) = client.detached
    assert handle == 1 and "a wildcard within a word" in why


def test_a_traceparent_that_is_given_twice_is_refused_with_its_message():
    b = Broker(THREE)
    twice = codec.mapped((codec.any_value("traceparent"), codec.any_value(each)) for each in (PARENT, PARENT))
    client = Wired(b).sender("orders")
    client.send(sections((HEADER, [True])) + codec.described(APPLICATION, twice) + sections((DATA, b"x")))
    assert "key twice" in str((client.why, client.detached, client.look()))
    assert not any(each["kind"] in ("parent", "send") for each in b.records("a"))
    other = Wired(b).sender("orders")
    other.send(sections((HEADER, [True]), (APPLICATION, {"traceparent": PARENT}), (DATA, b"x")))
    assert [each["detail"] for each in b.records("a") if each["kind"] == "parent"] == [PARENT]


def test_fields_and_properties_of_a_message_are_seen_by_clients_of_stomp_in_their_types():
    said = ["id-1", None, "orders", "order", "answers", "c-7", Symbol("text/plain"), None, None, None, "g", 3]
    application = {"size": 5, "new": True, "rate": 1.5, "raw": b"\1", "none": None, "text": "x"}
    found = seen(sections((HEADER, [True, None]), (PROPERTIES, said), (APPLICATION, application), (VALUE, "a")))
    assert (found.type, found.reply_to, found.correlation, found.content_type) == (
        "order", "/queue/answers", "c-7", "text/plain",
    )  # fmt: skip
    assert (found.group, found.group_seq, found.persistent) == ("g", 3, True)
    assert properties.read(found.properties) == application | {"JMSXGroupID": "g", "JMSXGroupSeq": "3"}
    shown = headers_of(text_of(found, V12))
    assert (shown["size"], shown["correlation-id"], shown["reply-to"]) == ("5", "c-7", "/queue/answers")
    assert "new=bool" in shown["property-types"]


@pytest.mark.parametrize(
    "kind, body, value, code",
    [
        ("text", b"a", "a", 5), ("bytes", b"\0", b"\0", 3), ("map", wire.pack({"a": 1}), {"a": 1}, 2),
        ("stream", wire.pack([1]), [1], 4), ("json", b'{"a": 1}', '{"a": 1}', 5), ("none", b"", None, 0),
        ("map", b"junk", b"junk", 2), ("text", b"\xff", b"\xff", 5), ("odd", b"x", b"x", None),
    ],
)  # fmt: skip
def test_what_other_clients_send_is_that_of_jms(kind, body, value, code):
    b = Broker(THREE)
    receiver = Wired(b, "c").receiver("orders")
    packed = properties.pack({"size": 5, "large": 1 << 40, "rate": 1.5, "new": True})
    more = {
        "properties": packed,
        "type": "t",
        "correlation": "ID:AMQP_ULONG:7",
        "reply_to": "/topic/news",
        "priority": 7,
    }
    client = b.connect("a")
    client.do(Send(Q, body, kind=kind, shown="/queue/orders", group="g", group_seq=-1, **more))
    (got,) = receiver.hear().got
    said, application, annotations, found = read(got)
    assert (found, annotations.get("x-opt-jms-msg-type")) == (value, code)
    assert (annotations["x-opt-jms-dest"], annotations["x-opt-jms-reply-to"]) == (0, 1)
    assert application == {"size": 5, "large": 1 << 40, "rate": 1.5, "new": True}
    assert (said[2], said[3], said[4], said[5], said[10], said[11]) == ("orders", "t", "news", 7, "g", (1 << 32) - 1)


def test_a_dead_letter_tells_why_among_the_properties_and_the_sender_has_said_the_rest():
    b = Broker()
    Wired(b).sender("orders").send(sections((HEADER, [True]), (APPLICATION, {"size": 5}), (VALUE, "a")))
    client = b.connect().subscribe("s", Q, ack="individual")
    client.nack("a", outcome="rejected")
    (got,) = Wired(b).receiver("DLQ.orders").got
    _, application, _, body = read(got)
    assert (body, application["size"], application["dead-letter-from"]) == ("a", 5, Q)


def crashed(durable):
    """What a client was told, and what is there, when the commit of its second and third message fails."""
    b = Broker(ALONE)
    client = Wired(b).sender("orders")
    client.send(message(b"one")).hear()
    b.death = ("a", 1, durable)
    client.send(message(b"two"), message(b"three"))
    return client.outcomes, b.connect().subscribe("s", Q).texts


@pytest.mark.parametrize("durable, kept", [(False, ["one"]), (True, ["one", "two", "three"])])
def test_an_outcome_that_a_crash_prevents_is_not_told_and_one_that_is_told_is_kept(durable, kept):
    assert crashed(durable) == ([(0, 0, ACCEPTED)], kept)


def test_a_session_that_told_outcomes_at_once_would_be_caught(monkeypatch):
    take = Inbound._take

    def early(self, link, transfer, payload):
        take(self, link, transfer, payload)
        if transfer.delivery_id in self.unanswered:
            self.outcome(transfer.delivery_id, performatives.described_outcome(performatives.Outcome(ACCEPTED)))

    monkeypatch.setattr(Inbound, "_take", early)
    told, kept = crashed(False)
    assert max(last for _, last, _ in told) >= len(kept), "it was told that a message is there that is not"


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("durable", [False, True])
def test_at_whatever_commit_it_crashes_no_more_is_told_than_is_kept(at, durable):
    b = Broker(ALONE)
    client = Wired(b).sender("orders")
    b.death = ("a", at, durable)
    for number in range(4):
        client.send(message(b"%d" % (2 * number)), message(b"%d" % (2 * number + 1)))
    assert {code for *_, code in client.outcomes} <= {ACCEPTED}
    told = [str(id) for first, last, _ in client.outcomes for id in range(first, last + 1)]
    kept = b.connect().subscribe("s", Q).texts
    assert told == kept[: len(told)] and len(told) == 2 * (at - 1) and len(kept) == len(told) + 2 * durable


def overtaken():
    """How many outcomes are told, and what is there, if a message arrives while the one before it is answered, and the
    server crashes before it has that."""
    b = Broker(ALONE)
    client = Wired(b).sender("orders").send(message(b"one"), pump=False)
    client.hand_over()
    client.send(message(b"two"), pump=False).hear()
    b.reboot("a")
    return sum(last - first + 1 for first, last, _ in client.outcomes), b.connect().subscribe("s", Q).texts


def test_an_answer_is_for_what_it_names_and_for_nothing_that_has_come_meanwhile():
    assert overtaken() == (1, ["one"])


def test_a_session_that_took_an_answer_for_all_that_has_come_would_be_caught(monkeypatch):
    accept = Inbound.accept

    def all_of_them(self, ids):
        if ids:
            ids[:] = sorted(self.unanswered)
        accept(self, ids)

    monkeypatch.setattr(Inbound, "accept", all_of_them)
    told, kept = overtaken()
    assert told > len(kept), "it was told that a message is there that is not"


def conversation(*windows):
    """What comes to two links of a session whose window is shut meanwhile, and then opens by so many frames each time.

    The answers are sent by a client of another protocol, at another server, who has seen the questions.
    """
    b = Broker(THREE)
    topic = {"capabilities": ["topic"]}
    reader = Wired(b, "c").receiver("questions", 1, **topic).receiver("answers", 2, **topic)
    if windows:
        reader.say(flow(window=0))
    other = b.connect("b").subscribe("s", "topic:questions")
    asker = Wired(b, "a").sender("questions", **topic)
    for number in range(5):
        asker.send(sections((VALUE, f"question {number}")))
        other.send("topic:answers", f"answer to {other.texts[-1]}")
    reader.hear()
    assert not (windows and reader.got)
    for window in windows:
        reader.say(flow(window=window, seen=len(reader.got)))
    texts = [read(each)[3] for each in reader.got]
    return [each.decode() if isinstance(each, bytes) else each for each in texts]


CAUSAL = [text for number in range(5) for text in (f"question {number}", f"answer to question {number}")]


@pytest.mark.parametrize("windows", [(), (100,), (1,) * 10, (3, 3, 4), (7, 1, 2)])
def test_topics_come_in_causal_order_to_the_links_of_a_session(windows):
    assert conversation(*windows) == CAUSAL


def test_links_that_came_one_after_the_other_when_the_window_opens_would_be_caught(monkeypatch):
    monkeypatch.setattr(Outbound, "_go_on", fakes_wires.link_by_link())
    found = conversation(100)
    assert sorted(found) == sorted(CAUSAL) and found != CAUSAL


def test_a_link_that_overtook_what_waits_for_the_window_would_be_caught(monkeypatch):
    monkeypatch.setattr(Outbound, "_go_on", fakes_wires.last_first())
    assert conversation(*(1,) * 10) != CAUSAL


def test_a_delay_is_the_brokers():
    b = Broker()
    client = b.connect().subscribe("s", Q)
    sender = Wired(b).sender("orders")
    sender.send(sections((HEADER, [True]), (ANNOTATIONS, {Symbol("x-opt-delivery-delay"): 5_000}), (VALUE, "late")))
    assert client.texts == []
    b.later(6)
    assert client.texts == ["late"]


def test_an_agent_is_asked_and_its_answer_is_a_text():
    b = Broker(topology({"x": "abc"}, {"c/clerk": "tests.core.sample_agents:Clerk"}))
    client = Wired(b).receiver("answers").sender("/agent/clerk")
    said = ["q-1", None, None, "tests.core.sample_agents.Count", "answers", "c-1"]
    client.send(sections((PROPERTIES, said), (VALUE, '{"what": "hat"}')))
    (got,) = client.hear().got
    found, _, annotations, body = read(got)
    assert json.loads(body) == {"what": "hat", "total": 1, "stamp": ""} and found[5] == "c-1"
    assert (found[3], found[6]) == ("tests.core.sample_agents.Counted", "application/json")
    assert annotations["x-opt-jms-msg-type"] == 5 and client.outcomes == [(0, 0, ACCEPTED)]


@pytest.mark.parametrize("home", "ac")
@pytest.mark.parametrize("waits", [False, True])
def test_messages_of_a_run_come_as_they_were_sent_on_whatever_server(home, waits):
    """From a session of one server through a queue of another one to a third, and after a restart."""
    b = Broker(THREE)
    reader = None if waits else Wired(b, "b").receiver("orders")
    b.connect(home).send(Q, "first")  # whose home it is
    sent = [
        sections(
            (HEADER, [True]),
            (PROPERTIES, [f"ID:x-{at}", None, "orders", *[None] * 6, Timestamp(10**12 + at)]),
            (DATA, b"x"),
        )
        for at in range(6)
    ]
    sender = Wired(b, "a").sender("orders").send(*sent)
    assert sender.outcomes[-1][1] == 5
    if reader is None:
        b.reboot(home)
        reader = Wired(b, "b").receiver("orders")
    reader.pump()
    assert [each.partition(b"\0Ss")[2] for each in reader.got if b"first" not in each] == [
        each.partition(b"\0Ss")[2] for each in sent
    ]
