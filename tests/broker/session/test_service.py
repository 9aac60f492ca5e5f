"""Connections: commands in order, what waits before the proxy, temporary destinations, and the end."""

import json
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import pytest

from mombroker.broker.commands import (
    REJECTED,
    Ask,
    Delivery,
    Disconnect,
    Disposition,
    Receipt,
    Send,
    SendRun,
    Subscribe,
    Sync,
    Transact,
    Unsubscribe,
)
from mombroker.broker.native import Native
from mombroker.broker.properties import pack
from mombroker.broker.protocol import ASK, Consume
from mombroker.broker.session.service import SHARE
from mombroker.broker.session.session import Session
from mombroker.core.limits import Limits
from tests.broker.bench import ALONE, THREE, Broker, Client
from tests.broker.samples import others
from tests.broker.session.inout import Q, R, send, waiting
from tests.core.bus import SECOND, topology

ROW = topology({"x": "ab", "y": "bc"})  # a decides names


def session_of(b: Broker, client: Client) -> Session:
    return b.servers[client.server].clients.sessions[client.conn]


@pytest.mark.parametrize(("name", "value"), others(Send, "destination", "receipt", "parent").items())
def test_each_option_of_a_send_reaches_its_destination(name, value):
    b = Broker()
    session, handlers = session_of(b, b.connect()), b.servers["a"].clients.commands
    plain = Send(Q, b"x", group="of a number" if name == "group_seq" else "")
    asked = replace(plain, **{name: value})
    assert handlers._message(session, plain) != handlers._message(session, asked)


def test_a_session_knows_who_has_logged_in():
    b = Broker()
    assert session_of(b, b.connect()).user == "user"


def test_a_message_says_who_has_sent_it_if_its_sender_asks_for_that():
    """Of a queue and a topic, in a transaction, on another server, as a dead letter and back."""
    b = Broker(THREE)
    reader = b.connect("c").subscribe("s", Q, ack="individual").subscribe("t", "topic:t")
    client = b.connect("a")
    session_of(b, client).user = "ann"
    client.send(Q, "alone", stamp_user=True).send(Q, "not").send("topic:t", "published", stamp_user=True)
    client.do(Transact([replace(send(Q, "in it"), stamp_user=True)]))
    said = {each.body.decode(): each.message.annotations for each in reader.got}
    assert said == {**dict.fromkeys(("alone", "published", "in it"), {"JMSXUserID": "ann"}), "not": {}}
    reader.nack("alone", outcome=REJECTED)
    home = b.queue(Q).id.partition("/")[0]
    (letter,) = b.connect(home).subscribe("dead", "queue:DLQ.in", browser=True).got
    assert letter.message.annotations["JMSXUserID"] == "ann" and "dead-letter-reason" in letter.message.annotations
    b.ask(home, "move", destination="queue:DLQ.in", back=True)
    b.pump()
    assert (reader.got[-1].body, reader.got[-1].message.annotations) == (b"alone", {"JMSXUserID": "ann"})


def test_a_message_of_somebody_who_has_not_logged_in_says_nobody():
    b = Broker()
    client = b.connect().subscribe("s", Q)
    session_of(b, client).user = ""
    client.send(Q, "1", stamp_user=True)
    assert client.got[0].message.annotations == {}


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sent(b: Broker, server: str = "a") -> list[str]:
    """Of what clients have sent, as the log of their server tells: its parent, or nothing."""
    found: list[str] = []
    last = None
    for each in b.records(server):
        if each["kind"] == "parent":
            assert last == (each["origin"], each["number"], each["agent"]), "it stands behind its send"
            found[-1] = each["detail"]
        elif each["kind"] == "send" and (
            each["detail"] == ASK
            or (each["detail"] in ("q.put", "t.publish") and each["agent"].startswith(f"{server}/conn:"))
        ):
            found.append("")
        last = each["origin"], each["number"], each["agent"]
    return found


def test_the_log_tells_the_parent_of_what_a_client_sends_if_it_has_given_one():
    """To a queue here and on another server, to a topic, an agent, in a row and in a transaction; of nothing else."""
    b = Broker(topology({"x": "ab", "y": "bc"}, {"c/clerk": "tests.core.sample_agents:Clerk"}))
    b.connect("c").subscribe("s", "queue:there").subscribe("t", "topic:t")
    client = b.connect("a").subscribe("s", Q)
    assert (b.queue(Q).id, b.queue("queue:there").id) == ("a/queue:in", "c/queue:there")
    traced = replace(send(Q, "x"), parent=PARENT)
    there, topic = replace(traced, destination="queue:there"), replace(traced, destination="topic:t")
    asked = Ask("agent:clerk", b'{"what": "hat"}', type="tests.core.sample_agents.Count", parent=PARENT)
    for command, parents in (
        (send(Q, "plain"), [""]), (traced, [PARENT]), (there, [PARENT]), (topic, [PARENT]),
        (SendRun(traced, [b"1", b"2"], ["r1", "r2"]), [PARENT, PARENT]), (asked, [PARENT]),
        (replace(asked, reply_to="/queue/in"), [PARENT]),
        (Transact([traced, send(Q, "not"), topic, asked]), [PARENT, "", PARENT, PARENT]),
    ):  # fmt: skip
        before = len(sent(b))
        client.do(command)
        assert sent(b)[before:] == parents, command
    got = [each.body.decode() for each in client.got if each.message.kind != "json"]
    assert got == ["plain", "x", "1", "2", "x", "not"]
    assert not any(sent(b, "c"))


def test_a_message_with_a_parent_waits_for_room_like_others():
    b = Broker()
    b.ask("a", "set_policy", match=Q, values={"max_messages": 1})
    client = b.connect().send(Q, "1").send(Q, "2", parent=PARENT)
    assert sent(b) == [""] and client.open
    b.connect().subscribe("s", Q)
    assert sent(b) == ["", PARENT]


@pytest.mark.interpreted
@pytest.mark.parametrize("name", [each.name for each in fields(Subscribe) if each.name not in ("sub", "receipt")])
def test_each_option_of_a_subscribe_reaches_its_destination(name):
    """A queue's, or a durable subscription's, which alone knows `shared` and `transient`."""
    value = {
        "destinations": ("topic:b",), "ack": "client", "selector": "x = 1", "durable": "e", "shared": True,
        "transient": True, "priority": 7, "prefetch": 7, "credit": 7, "take_over": False,
    }.get(name, True)  # fmt: skip
    durable = "d" if name in ("durable", "shared", "transient", "destinations", "common") else ""

    def asked(command):
        b = Broker()
        client = b.connect(client_id="c").do(command)
        (consumer,) = session_of(b, client).consumers.values()
        posted = [args[2] for args in notes if isinstance(args[2], Consume)]
        notes.clear()
        return consumer.ack, consumer.home, posted

    notes: list[Any] = []
    post = Native.post
    with patch.object(Native, "post", lambda *args, **more: (notes.append(args), post(*args, **more))[1]):
        plain = Subscribe("s", ("topic:a",) if durable else (Q,), durable=durable)
        assert asked(plain) != asked(replace(plain, **{name: value}))


def test_the_log_says_who_a_session_is_of():
    b = Broker()
    b.connect(client_id="till-3").send(Q, "1")
    records = [record for _, record in b.stores["a"].log(0, 1000)]
    (client,) = [record for record in records if record.kind == "client"]
    assert json.loads(client.detail) == {"user": "user", "client_id": "till-3"} and client.done > 0
    assert client.agent in {record.agent for record in records if record.kind == "send"}


def test_a_delivery_has_all_its_fields():
    """It is made as a bare tuple."""
    (got,) = Broker().connect().subscribe("s", Q).send(Q, "1").got
    assert len(got) == len(Delivery._fields)


# -- names ---------------------------------------------------------------------------------------------------------


def test_commands_behind_a_name_that_is_being_decided_wait_in_order():
    """Else what is sent to a known queue would overtake what was sent to the new one before."""
    b = Broker(ROW)
    reader = b.connect("c").subscribe("s", "queue:known")
    b.cut("a", "b")
    client = b.connect("c").send("queue:new", "1", receipt="1").send("queue:known", "2", receipt="2")
    client.subscribe("s", "queue:new", receipt="3")
    assert client.receipts == [] and reader.texts == []
    b.join("a", "b")
    b.pump()
    assert client.receipts == ["1", "2", "3"] and client.texts == ["1"] and reader.texts == ["2"]


def test_an_acknowledgement_does_not_overtake_what_waits_for_a_name():
    """Else a client that passes messages on would lose one with its connection."""
    b = Broker(ROW)
    client = b.connect("c").send(Q, "1").subscribe("s", Q, ack="individual")
    b.cut("a", "b")
    client.do(send("queue:new", "passed on"), Disposition(client.tag("1")))
    client.close()
    assert b.queue(Q).messages.count == 1


def test_a_name_that_nobody_decides_is_an_error_after_five_seconds():
    b = Broker(ROW)
    b.cut("a", "b")
    client = b.connect("c").send("queue:new", "1", receipt="r")
    other = b.connect("c").send("queue:new", "2")
    b.later(4.9)
    assert client.refusals == []
    b.later(0.2)
    assert client.told[-1].receipt == "r" and "a, which decides names, does not answer" in client.refusals[0]
    assert other.refusals
    b.join("a", "b")
    b.pump()
    assert b.connect("b").send("queue:new", "3", receipt="r").receipts == ["r"]
    assert b.queue("queue:new").tx.name == "c" and b.queue("queue:new").messages.count == 1


def test_a_name_is_decided_once_though_two_servers_ask():
    b = Broker(THREE)
    b.cut("a", "b"), b.cut("a", "c")
    clients = [b.connect(name).send("queue:new", name) for name in "bc"]
    b.join("a", "b")
    b.pump()
    b.join("a", "c")
    b.pump()
    assert b.queue("queue:new").tx.name == "b" and b.stores["c"].agent("c/queue:new") is None
    assert sorted(b.connect("a").subscribe("s", "queue:new").texts) == ["b", "c"]
    assert [client.refusals for client in clients] == [[], []]


def test_a_policy_may_forbid_to_create_by_use():
    b = Broker(topology({}, policies=[{"match": "queue:x.*", "create": False}]))
    assert "create = false" in b.connect().send("queue:x.y", "1").refusals[0]
    assert b.connect().send("queue:y", "1", receipt="r").receipts == ["r"]


def test_any_text_can_name_a_queue():
    b = Broker(THREE)
    names = ["queue:a/b", "queue:ü %41\t", "queue:a:b", "queue:" + "é" * 200]
    for name in names:
        assert b.connect("a").send(name, name, receipt="r").receipts == ["r"]
        assert b.connect("b").subscribe("s", name).texts == [name]
    assert [b.servers["a"].clients.shown(name) for name in b.servers["a"].names.known] == names
    b.reboot("a")
    assert b.connect("c").send(names[0], "again", receipt="r").receipts == ["r"]


# -- the end -------------------------------------------------------------------------------------------------------


def test_disconnect_returns_what_is_unsettled_and_is_answered_last():
    b = Broker()
    b.connect().send(Q, "1").close()
    client = b.connect().subscribe("s", Q, ack="individual")
    client.do(send(Q, "2"), Sync("s"), Disconnect("bye"), send(Q, "never"))
    assert client.receipts == ["s", "bye"] and b.queue(Q).messages.ready == 2
    client.close()
    assert b.servers["a"].clients.sessions == {}


def test_a_refused_command_ends_the_connection():
    b = Broker()
    client = b.connect().subscribe("s", Q, ack="individual").send(Q, "1")
    client.do(Subscribe("s", (R,), receipt="r"), send(R, "never"))
    assert client.told[-1].receipt == "r" and b.queue(Q).messages.ready == 1
    assert R not in b.servers["a"].names.known
    client.do(send(R, "never"))
    client.close()


def test_too_large_a_message_is_refused():
    b = Broker()
    b.servers["a"].limits.max_message = 100_000
    client = b.connect().do(Send(Q, b"x" * 100_000, properties=pack({"h": "h" * 50_000}), receipt="r"))
    assert client.told[-1].receipt == "r", "a body of max_message is taken, whatever its headers"
    client.do(Send(Q, b"x" * 100_001))
    assert "a body is over 100000 bytes: send less, or raise max_message" in client.refusals[0]


# -- temporary destinations ----------------------------------------------------------------------------------------


def test_request_and_reply_through_a_temporary_queue():
    b = Broker(THREE)
    asker = b.connect("c")
    replies = f"temp-queue:{asker.session}/replies"
    asker.subscribe("r", replies, ack="individual").send(Q, "ask")
    worker = b.connect("a").subscribe("s", Q)
    worker.send(replies, "1", "2")
    assert asker.texts == ["1", "2"]
    asker.ack("1").close()
    worker.send(replies, "late", receipt="r")
    assert worker.receipts == ["r"] and list(b.stores["c"].disk.agents) == ["c/queue:in"]
    assert {record["detail"] for record in b.records("c", "drop")} == {"nobody is there"}
    assert b.ask("c", "deadletters")["count"] == 0


def test_a_temporary_queue_is_deleted_before_its_connection_ends():
    b = Broker(THREE)
    client, other = b.connect("a"), b.connect("b")
    name = f"temp-queue:{client.session}/x"
    client.subscribe("s", name, ack="individual")
    other.send(name, "1", "2")
    client.ack("1")
    client.unsubscribe("s").do(Unsubscribe("", receipt="r", temporary=name))
    assert "a consumer, or messages that are not acknowledged" in client.refusals[0]
    client = b.connect("a")
    name = f"temp-queue:{client.session}/x"
    client.send(name, "1").do(Unsubscribe("", receipt="r", temporary=name))
    other.send(name, "late", receipt="late")
    assert client.receipts == ["r"] and other.receipts == ["late"]
    assert not any("_temp" in id for id in b.servers["a"].natives.agents)
    client.subscribe("again", name).close()
    assert client.texts == [] and b.ask("a", "deadletters")["count"] == 0


def test_a_temporary_destination_has_one_owner():
    b = Broker(THREE)
    owner, other = b.connect("a"), b.connect("a")
    for kind in ("temp-queue", "temp-topic"):
        refused = b.connect("b").subscribe("s", f"{kind}:{owner.session}/x")
        assert "belongs to another connection" in refused.refusals[0]
    owner.subscribe("s", f"temp-topic:{owner.session}/x")
    other.send(f"temp-topic:{owner.session}/x", "1").send("topic:x", "2")
    assert owner.texts == ["1"]
    assert "not a server" in other.send("temp-queue:nowhere/s1/x", "1").refusals[0]


@pytest.mark.parametrize("name", ["a", "a/", "a/x"])
@pytest.mark.parametrize("kind", ["temp-queue", "temp-topic"])
def test_a_temporary_destination_that_no_connection_can_have_is_refused(kind, name):
    client = Broker(ALONE).connect().send(f"{kind}:{name}", "1", receipt="r")
    assert "is nobody's" in client.refusals[0] and client.receipts == []


def test_a_temporary_queue_is_there_from_the_first_message_that_its_connection_sends_to_it():
    b = Broker(ALONE)
    client = b.connect()
    name = f"temp-queue:{client.session}/x"
    client.send(name, "1", receipt="r").subscribe("s", name)
    assert client.receipts == ["r"] and client.texts == ["1"]
    client.do(Transact([send(name + "y", "2")])).subscribe("t", name + "y")
    assert client.texts == ["1", "2"]


def test_temporary_queues_of_a_connection_are_limited(monkeypatch):
    monkeypatch.setattr("mombroker.broker.session.handlers.MAX_TEMPORARY", 2)
    client = Broker(ALONE).connect()
    for name in "xyx":
        client.send(f"temp-queue:{client.session}/{name}", "1")
    assert client.refusals == []
    assert "no more are made" in client.send(f"temp-queue:{client.session}/z", "1").refusals[0]


def test_a_temporary_queue_delays_expires_and_is_bounded():
    b = Broker(ALONE)
    client = b.connect(writes=False)
    name = f"temp-queue:{client.session}/x"
    client.subscribe("s", name, prefetch=1)
    other = b.connect().send(name, "0").send(name, "late", delay=2 * SECOND)
    other.send(name, "short", expires=b.now + SECOND).send(name, "stays")
    b.later(3)
    for _ in range(4):
        client.wrote()
    assert client.texts == ["0", "stays", "late"]
    queue = b.servers["a"].natives.agents[f"a/_temp:a%2Fs{client.conn}%2Fx"]
    other.send(name, *map(str, range(10_050)), pump=False)
    b.pump(5000)
    assert queue.messages.count == 10_000 and queue.messages.dropped == 1 + 50
    assert b.stores["a"].disk.items == {}


# -- order through a connection (G1) -------------------------------------------------------------------------------


def test_what_a_client_sends_follows_what_it_was_given():
    """c reads the question at a's queue and answers to b's; the question's copy to b is slow, and the answer waits."""
    b = Broker(topology({"x": "abc"}))
    reader = b.connect("b", "me").subscribe("s", "topic:q", "topic:r", durable="d", ack="individual")
    middle = b.connect("c").subscribe("s", "topic:q")
    b.cut("a", "b")
    b.connect("a").send("topic:q", "question")
    middle.send("topic:r", "answer " + middle.texts[0])
    assert reader.texts == []
    b.join("a", "b")
    b.pump()
    assert reader.texts == ["question", "answer question"]


def test_receipts_leave_after_the_commit():
    b = Broker()
    client = b.connect().send(Q, "1")
    client.do(send(Q, "2"), Sync("r"), pump=False)
    ready = b.commit("a")
    assert client.receipts == [] and (client.conn, [Receipt("r")]) in ready.clients
    b.crash("a")


def test_a_batch_that_is_full_is_closed_at_once_though_nobody_waits_for_it():
    b = Broker(limits=Limits(batch_bytes=100))
    b.connect().send("queue:q", "1")
    b.connect().send("queue:q", "2" * 200, "3", pump=False)
    server = b.servers["a"]
    server.turn(b.now)
    assert server.more and server.urgency == 2


# -- many at once ------------------------------------------------------------------------------------------------------

FLOOD = [f"{number}" for number in range(3 * SHARE + 500)]


def test_a_client_that_sends_very_much_at_once_is_obeyed_a_share_a_turn_and_others_between():
    b = Broker()
    b.ask("a", "create_queue", destination=Q)
    b.ask("a", "create_queue", destination=R)
    flooder, other, server = b.connect(), b.connect(), b.servers["a"]
    flooder.send(Q, *FLOOD, pump=False)
    other.send(R, "one", pump=False)
    assert waiting(b) == {Q: SHARE, R: 1}
    flooder.send(Q, "last", pump=False)  # behind what it has sent before
    for turn in (2, 3):
        server.turn(b.now)
        assert b.queue(Q).messages.count == turn * SHARE and server.more and server.busy
    b.pump()
    assert not server.busy
    assert b.connect().subscribe("s", Q, prefetch=10_000).texts == [*FLOOD, "last"]


def test_two_clients_that_send_very_much_have_the_same_share():
    b = Broker()
    for destination in (Q, R):
        b.ask("a", "create_queue", destination=destination)
    for destination in (Q, R):
        b.connect().send(destination, *FLOOD, pump=False)
    for counts in ((1, 2), (2, 2), (2, 3), (3, 3)):
        b.servers["a"].turn(b.now)
        assert sorted(waiting(b).values()) == [count * SHARE for count in counts], counts
    b.pump()
    assert waiting(b) == {Q: len(FLOOD), R: len(FLOOD)}


@pytest.mark.parametrize("polite", [False, True])
def test_what_a_client_has_sent_before_it_left_is_obeyed(polite):
    b = Broker()
    b.ask("a", "create_queue", destination=Q)
    client, service = b.connect(), b.servers["a"].clients
    client.send(Q, *FLOOD, pump=False)
    if polite:
        client.do(Disconnect("bye"), pump=False)
    client.close()
    assert b.queue(Q).messages.count == len(FLOOD) and not service.sessions and not service.going


def test_who_has_left_waits_for_nothing_any_more():
    b = Broker()
    b.ask("a", "create_queue", destination=Q)
    b.ask("a", "set_policy", match=Q, values={"max_messages": SHARE + 10})
    client, service = b.connect(), b.servers["a"].clients
    client.send(Q, *FLOOD, pump=False)
    client.close()
    assert b.queue(Q).messages.count == SHARE + 10 and not service.sessions and not service.waiting


@pytest.mark.interpreted
def test_what_has_waited_for_a_name_is_obeyed_a_share_a_turn_too():
    b = Broker(ROW)
    client, server = b.connect("c"), b.servers["c"]
    client.send(Q, *FLOOD, pump=False)
    service = server.clients
    most, obey = [0], service._obey

    def watched(session, left):
        before = len(session.commands)
        rest = obey(session, left)
        most.append(before - len(session.commands))
        return rest

    service._obey = watched
    b.pump()
    assert max(most) == SHARE and sum(most) == len(FLOOD) and b.queue(Q).messages.count == len(FLOOD)
