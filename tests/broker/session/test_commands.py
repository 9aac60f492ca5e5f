"""What a protocol may ask that STOMP does not: refusals that end no session, credit by Flow, drains, outcomes."""

import pytest

from mombroker.broker.commands import (
    COMMAND,
    CONNECTION,
    MAX_PREFETCH,
    MODIFIED,
    RELEASED,
    REQUEUED,
    SUBSCRIPTION,
    Disposition,
    Find,
    Flow,
    MakeTemporary,
    Refused,
    Send,
    Subscribe,
    Sync,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.properties import pack
from mombroker.broker.protocol import Settle
from mombroker.broker.queue import consumer as consumers
from mombroker.broker.session import deliveries
from mombroker.broker.topic.subscription import Subscription
from tests.broker.bench import ALONE, THREE, Broker, Client
from tests.core.bus import SECOND, topology

Q, R, T = "queue:in", "queue:out", "topic:t"
ROW = topology({"x": "ab", "y": "bc"})  # a decides names


def lasting(b: Broker, server: str = "a", client_id: str = "") -> Client:
    """A client whose session outlives refusals."""
    return b.connect(server, client_id, strict=False)


# -- refusals ------------------------------------------------------------------------------------------------------

REFUSED = {
    "a subscription again": Subscribe("s", (R,)),
    "a selector that is none": Subscribe("t", (Q,), selector="="),
    "too much credit": Subscribe("t", (Q,), credit=MAX_PREFETCH + 1),
    "settled already": Disposition(99),
    "a transaction that settles what is not there": Transact([Send(Q, b"never"), Disposition(99)]),
    "no such subscription": Unsubscribe("t"),
    "credit for no subscription": Flow("t", 1),
    "an own temporary queue of somebody else": Unsubscribe("", temporary="temp-queue:a/s99/x"),
    "too long": Send(Q, b"x" * 1_000_001),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_command_ends_only_itself(what):
    b = Broker()
    b.servers["a"].limits.max_message = 1_000_000
    client = lasting(b).subscribe("s", Q, ack="individual").send(Q, "1")
    command = REFUSED[what]
    command.receipt = "r"
    client.do(command, Send(Q, b"2", receipt="next"))
    assert client.scopes == [(COMMAND, "")] and client.told[-3].receipt == "r"
    assert client.texts == ["1", "2"] and client.receipts == ["next"]
    assert client.ack("1", "2").do(Sync("end")).receipts == ["next", "end"] and b.queue(Q).messages.count == 0


def test_where_the_protocol_wants_it_a_refusal_ends_the_connection():
    b = Broker()
    client = b.connect().do(Disposition(99), Sync("never"))
    assert client.scopes == [(CONNECTION, "")] and client.receipts == []


def test_what_waited_in_vain_is_refused_alone():
    b = Broker(ROW)
    b.cut("a", "b")
    client = lasting(b, "c").send("queue:new", "1", receipt="1").send("topic:x", "2", receipt="2")
    b.later(5.1)
    assert client.scopes == [(COMMAND, "")] and client.told[0].receipt == "1" and client.receipts == ["2"]


def test_a_full_queue_refuses_one_message_after_another():
    b = Broker(topology({}, policies=[{"match": Q, "max_messages": 1, "overflow": "reject"}]))
    client = lasting(b).send(Q, "1", "2", "3").subscribe("s", Q, ack="individual")
    assert client.texts == ["1"] and client.scopes == [(COMMAND, "")] * 2
    assert client.ack("1").send(Q, "4").texts == ["1", "4"]


@pytest.mark.parametrize("worker", "ab")
def test_a_subscription_whose_queue_is_deleted_ends_alone(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, "1", "2")
    client = lasting(b, worker).subscribe("s", Q, ack="individual").subscribe("t", R, ack="individual")
    b.ask("a", "delete_destination", destination=Q)
    assert client.scopes == [(SUBSCRIPTION, "s")]
    client.do(Disposition(client.tag("1"), receipt="late"))
    assert client.scopes[1:] == [(COMMAND, "")], "what it had is not its any more"
    client.subscribe("s", Q, ack="individual").send(Q, "3").send(R, "4")
    assert client.texts == ["1", "2", "3", "4"]
    client.ack("3", "4")
    assert b.queue(Q).messages.count == b.queue(R).messages.count == 0


@pytest.mark.parametrize("worker", "ab")
def test_a_subscription_that_is_taken_over_ends_alone_and_what_it_had_goes_to_the_new_one(worker):
    b = Broker(THREE)
    old = lasting(b, worker, "me").subscribe("s", T, durable="d", ack="individual", receipt="r")
    old.subscribe("t", Q, ack="individual")
    b.connect("a").send(T, "1")
    new = lasting(b, "a", "me").subscribe("s", T, durable="d", ack="individual")
    assert old.scopes == [(SUBSCRIPTION, "s")] and new.texts == ["1"]
    assert old.ack("1").scopes[1:] == [(COMMAND, "")]
    assert old.send(Q, "2").texts == ["1", "2"] and b.queue("sub:me:d").messages.count == 1
    new.ack("1")
    assert b.queue("sub:me:d").messages.count == 0


def test_what_is_settled_too_late_does_not_count_for_who_has_the_message_again():
    """1. b's client leaves, and subscribes anew. 2. a's client takes the subscription over before that comes. 3. b
    takes it over, and is sent the message again. 4. What b's session gives back for its former consumer comes."""
    b = Broker(THREE)
    ours = lasting(b, "a", "me").subscribe("s", T, durable="d", ack="individual").unsubscribe("s")
    theirs = lasting(b, "b", "me").subscribe("s", T, durable="d", ack="individual")
    b.cut("a", "b")
    b.connect("a").send(T, "1")
    theirs.unsubscribe("s").subscribe("t", T, durable="d", ack="individual")
    assert [each.count for each in ours.subscribe("t", T, durable="d", ack="individual").got] == [2]
    b.join("a", "b")
    b.pump()
    assert ours.scopes == [(SUBSCRIPTION, "t")] and [each.count for each in theirs.got] == [3]
    queue, session = b.queue("sub:me:d"), b.servers["b"].clients.sessions[theirs.conn]
    (row,) = session.subs["t"].unsettled.values()
    session.post(queue.id, Settle(1, released=[row]))
    b.pump()
    assert [each.count for each in theirs.got] == [3] and queue.describe()["unacked"] == 1
    theirs.ack("1")
    assert queue.messages.count == 0


def test_a_subscription_that_is_refused_lets_the_commands_behind_it_go_on():
    b = Broker(THREE)
    b.connect("b", "me").subscribe("s", T, durable="d")
    client = lasting(b, "a", "me").subscribe("s", T, durable="d", take_over=False, receipt="s", pump=False)
    client.do(Sync("behind"), Unsubscribe("", "d", True, "end"), Sync("last"))
    assert client.scopes == [(SUBSCRIPTION, "s"), (COMMAND, "")]
    assert [reply.receipt for reply in client.told] == ["s", "behind", "end", "last"]


@pytest.mark.parametrize("strict", [False, True])
def test_a_subscription_that_ends_before_it_has_begun_is_answered_too(strict):
    b = Broker(THREE)
    b.connect("a", "me").subscribe("s", T, durable="d")
    client = b.connect("a", "me", strict=strict)
    ends = [Unsubscribe("s", receipt="end"), Sync("behind")]
    b.connect("b").send(Q, "1")
    client.do(Subscribe("s", (Q,), receipt="begin"), *ends)
    assert sorted(client.receipts) == ["begin", "behind", "end"]
    client.do(Subscribe("s", (T,), durable="d", take_over=False, receipt="begin"), *ends)
    assert "begin" in [reply.receipt for reply in client.told[3:]] and client.scopes == [
        (CONNECTION if strict else COMMAND, "")
    ]


def test_what_an_open_transaction_settles_too_much_of_changes_nothing(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_UNCOMMITTED", 2)
    b = Broker()
    b.connect().send(Q, *"12345")
    client = lasting(b).subscribe("s", Q, ack="client", prefetch=3)
    client.do(Uncommitted(client.tag("3")))
    assert client.scopes == [(COMMAND, "")] and client.texts == [*"123"]
    assert client.do(Uncommitted(client.tag("2"))).texts == [*"12345"]


# -- credit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker", "ab")
def test_credit_comes_by_flow_alone_where_a_subscription_begins_with_some(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, *"123456")
    client = lasting(b, worker).subscribe("s", Q, ack="individual", credit=0)
    assert client.texts == []
    assert client.do(Flow("s", 2, receipt="r")).texts == ["1", "2"] and client.receipts == ["r"]
    assert client.ack("1", "2").texts == ["1", "2"]
    assert client.do(Flow("s", 1), Flow("s", 2)).texts == [*"12345"]


def test_flow_widens_a_window():
    b = Broker()
    b.connect().send(Q, *"1234567")
    client = lasting(b).subscribe("s", Q, ack="individual", prefetch=2).do(Flow("s", 1))
    assert client.texts == [*"123"]
    assert client.ack(*"123").texts == [*"123456"]


@pytest.mark.parametrize("worker", "ab")
def test_a_drain_brings_what_is_there_and_takes_the_rest_of_the_credit(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, *"12")
    client = lasting(b, worker).subscribe("s", Q, ack="individual", credit=0)
    client.do(Flow("s", 5, drain=True))
    assert client.texts == ["1", "2"] and client.drains == [("s", 2)]
    b.connect("a").send(Q, "3", "4")
    assert client.texts == ["1", "2"]
    client.do(Flow("s", 1, drain=True))
    assert client.texts == ["1", "2", "3"] and client.drains == [("s", 2), ("s", 3)]
    client.do(Flow("s", 0, drain=True)).do(Flow("s", 3))
    assert client.texts == [*"1234"] and client.drains[2:] == [("s", 3)]
    client.do(Flow("s", 0, drain=True))
    assert client.drains[3:] == [("s", 4)]
    client.ack(*"1234")
    assert b.queue(Q).messages.count == 0


def test_a_drain_ends_though_what_is_there_is_not_for_this_consumer():
    b = Broker()
    b.connect().send(Q, *"123", properties=pack({"x": "1"})).send(Q, "4", properties=pack({"x": "2"}))
    first = lasting(b).subscribe("s", Q, ack="individual", exclusive=True, credit=0)
    client = lasting(b).subscribe("s", Q, ack="individual", selector="x = '2'", credit=0)
    assert client.do(Flow("s", 9, drain=True)).drains == [("s", 0)], "another one is exclusive"
    first.unsubscribe("s")
    assert client.do(Flow("s", 9, drain=True)).drains[1:] == [("s", 1)] and client.texts == ["4"]


def test_a_drain_looks_through_a_long_queue_to_its_end():
    b = Broker()
    b.connect().send(Q, *map(str, range(5_000)), properties=pack({"x": "1"})).send(
        Q, "last", properties=pack({"x": "2"})
    )
    client = lasting(b).subscribe("s", Q, ack="individual", selector="x = '2'", credit=0)
    assert client.do(Flow("s", 9, drain=True)).drains == [("s", 1)]


def test_one_drain_at_a_time():
    b = Broker(THREE)
    client = lasting(b, "b").subscribe("s", Q, credit=0)
    b.cut("a", "b")
    b.connect("a").send(Q, "1")
    home = b.queue(Q).tx.name
    assert home == "b"
    client.do(Flow("s", 1, True, "1"), Flow("s", 1, receipt="2"), pump=False)
    b.pump()
    assert "is being drained" in client.refusals[0] and client.drains == [("s", 0)]


def test_a_drain_survives_the_queue_s_server():
    b = Broker(THREE)
    b.connect("a").send(Q, "1")
    client = lasting(b, "b").subscribe("s", Q, ack="individual", credit=0)
    server = b.servers["a"]
    limit, server.limits.turn_work = server.limits.turn_work, 0
    b.connect("a").send(Q, *map(str, range(2, 200)), pump=False)
    b.pump()
    b.death = ("a", 1, True)
    client.do(Flow("s", 500, drain=True))
    assert b.death is None
    b.servers["a"].limits.turn_work = limit
    b.later(2)
    assert client.drains == [("s", 199)] and len(client.got) == 199


def test_a_drain_does_not_wait_for_what_a_former_consumer_has():
    """A durable subscription gives nothing while that may come back."""
    b = Broker(THREE)
    client = lasting(b, "b", "me").subscribe("s", T, durable="d", ack="individual", credit=0)
    b.connect("a").send(T, "1")
    queue = b.queue("sub:me:d")
    assert isinstance(queue, Subscription)
    queue.draining.append(("c/conn:9", 1))
    queue._pause()
    assert client.do(Flow("s", 5, True)).drains == [("s", 0)]
    queue._drained(lambda key: True)
    assert client.texts == []
    assert client.do(Flow("s", 5, True)).texts == ["1"]


def test_a_closed_subscription_is_not_drained_any_more():
    b = Broker(THREE)
    b.connect("a").send(Q, "1")
    client = lasting(b, "b").subscribe("s", Q, credit=0)
    client.do(Flow("s", 1, True), Unsubscribe("s", receipt="r"))
    assert client.drains == [] and client.receipts == ["r"] and b.queue(Q).messages.ready == 1


def test_a_drain_of_topics_brings_what_may_come_now():
    """What waits for another subscription's credit holds up nothing: its client takes when it likes."""
    b = Broker()
    client = lasting(b).subscribe("s", T, credit=0).subscribe("t", "topic:u", ack="individual", credit=0)
    b.connect().send(T, "1", "2").send("topic:u", "3").send(T, "4")
    assert client.do(Flow("s", 1, True)).texts == ["1"] and client.drains == [("s", 1)]
    assert client.do(Flow("s", 9, True)).texts == [*"124"] and client.drains[1:] == [("s", 3)]
    assert client.do(Flow("t", 9)).texts == [*"1243"]


def test_settling_messages_of_topics_brings_no_credit_where_that_is_explicit():
    b = Broker()
    client = lasting(b).subscribe("s", T, ack="individual", credit=2)
    b.connect().send(T, *"1234")
    assert client.ack("1", "2").texts == ["1", "2"]
    client.do(Uncommitted(client.tag("2")))
    assert client.do(Flow("s", 1)).texts == [*"123"]
    client.do(Uncommitted(client.tag("3")), Disposition(client.tag("3")))
    assert client.do(Flow("s", 5, True)).texts == [*"1234"] and client.drains == [("s", 4)]


def test_a_browser_has_credit_of_its_own():
    b = Broker()
    b.connect().send(Q, *"12345")
    client = lasting(b).subscribe("s", Q, browser=True, credit=2)
    assert client.texts == ["1", "2"] and client.ends == []
    assert client.do(Flow("s", 2, True)).texts == [*"1234"] and client.drains == [("s", 4)]
    client.do(Flow("s", 9, True))
    assert client.texts == [*"12345"] and client.ends == ["s"] and client.drains[1:] == [("s", 5)]
    client.do(Flow("s", 9, True))
    assert client.drains[2:] == [("s", 5)]


def test_credit_is_bounded():
    b = Broker()
    client = lasting(b).subscribe("s", Q, credit=0).subscribe("w", Q, prefetch=10)
    client.do(Flow("s", MAX_PREFETCH), Flow("w", MAX_PREFETCH - 10)).do(Flow("s", 1), Flow("w", 1))
    assert len(client.refusals) == 2 and all("of at most 10000" in each for each in client.refusals)


# -- outcomes ------------------------------------------------------------------------------------------------------


def test_what_is_modified_and_not_failed_is_released():
    b = Broker()
    client = b.connect().send(Q, "1").subscribe("s", Q, ack="individual")
    client.do(Disposition(client.tag("1"), MODIFIED, failed=False))
    assert [each.count for each in client.got] == [1, 1]


@pytest.mark.parametrize("worker", "ab")
def test_what_is_undeliverable_here_goes_to_others(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, *"123")
    client = b.connect(worker).subscribe("s", Q, ack="individual")
    for text in "12":
        client.do(Disposition(client.tag(text), MODIFIED, failed=False, undeliverable_here=True))
    assert client.texts == [*"123"] and b.queue(Q).messages.ready == 2
    client.do(Disposition(client.tag("3"), REQUEUED, undeliverable_here=True))
    b.later(2)
    assert client.texts == [*"123"] and b.queue(Q).messages.ready == 3
    other = b.connect("c").subscribe("s", Q, ack="individual")
    assert sorted(other.texts) == [*"123"]
    assert client.send(Q, "4").texts == [*"1234"]
    other.ack(*other.texts).close()
    assert client.ack("4").texts == [*"1234"] and b.queue(Q).messages.count == 0


def test_a_cumulative_outcome_is_undeliverable_here_as_a_whole():
    b = Broker()
    texts = [f"{number}" for number in range(250)]
    b.connect("a").send(Q, *texts)
    client = b.connect().subscribe("s", Q, ack="client", prefetch=1000)
    client.do(Disposition(client.tag("249"), RELEASED, undeliverable_here=True))
    assert len(client.got) == 250 and b.queue(Q).messages.ready == 250
    assert b.connect().subscribe("s", Q, prefetch=1000).texts == texts


def test_too_much_that_is_undeliverable_here_goes_to_the_dead_letters(monkeypatch):
    monkeypatch.setattr(consumers, "MAX_SHUNNED", 2)
    b = Broker()
    client = b.connect().send(Q, *"123").subscribe("s", Q, ack="client")
    client.do(Disposition(client.tag("3"), MODIFIED, failed=False, undeliverable_here=True))
    assert b.queue(Q).messages.ready == 2 and b.queue("queue:DLQ.in").messages.count == 1


def test_of_a_topic_what_is_undeliverable_here_is_gone():
    b = Broker(ALONE)
    client = b.connect().subscribe("s", T, ack="individual", prefetch=1)
    b.connect().send(T, "1", "2")
    client.do(Disposition(client.tag("1"), MODIFIED, undeliverable_here=True))
    assert client.texts == ["1", "2"]
    b.now += SECOND
    b.pump()
    assert client.texts == ["1", "2"]


def test_a_subscription_with_explicit_credit_holds_up_no_other_of_its_session():
    b = Broker()
    client = b.connect("a", strict=False)
    client.subscribe("idle", "topic:one", credit=0, ack="individual")
    client.subscribe("busy", "topic:two", credit=1, ack="individual")
    sender = b.connect().send("topic:one", "1", "2").send("topic:two", "3", "4").send("topic:one", "5")
    assert client.texts == ["3"]
    client.do(Flow("idle", 2))
    assert client.texts == ["3", "1", "2"]
    client.do(Flow("busy", 5), Flow("idle", 5))
    assert client.texts == ["3", "1", "2", "4", "5"]
    sender.send("topic:one", "6").send("topic:two", "7")
    assert client.texts[-2:] == ["6", "7"]


def test_what_waits_for_explicit_credit_is_bounded_too():
    b = Broker()
    b.ask("a", "set_policy", match="topic:*", values={"max_pending": 3})
    client = (
        b.connect("a", strict=False).subscribe("idle", "topic:one", credit=0).subscribe("other", "topic:two", credit=0)
    )
    b.connect().send("topic:one", "1", "2", "3").send("topic:two", "4")
    assert b.servers["a"].clients.dropped == 1
    client.do(Flow("idle", 9), Flow("other", 9))
    assert client.texts == ["2", "3", "4"]


def test_a_durable_subscription_is_found_or_is_not_there():
    b = Broker()
    client = b.connect("a", "me", strict=False).subscribe("s", "topic:news", durable="d")
    client.do(Find("d", receipt="1"), Find("none", receipt="2"), Find("d", True, receipt="3"))
    assert (
        client.receipts == ["1"]
        and [reply.cause for reply in client.told if isinstance(reply, Refused)] == ["missing"] * 2
    )


def test_a_common_subscription_is_that_of_all_clients():
    b = Broker()
    for client_id in ("one", "two"):
        client = b.connect("a", client_id, strict=False)
        client.subscribe("s", "topic:news", durable="d", shared=True, common=True)
    b.connect().send("topic:news", "1", "2", "3", "4")
    assert len(client.texts) == 2 and b.queue("sub::d")
    client.unsubscribe("s", common=True).do(Unsubscribe("", "d", True, "x", common=True))
    assert "consumer" in client.refusals[-1]


def test_a_temporary_queue_is_there_before_anybody_uses_it_and_is_of_all_parts_of_its_connection():
    b = Broker()
    client, other = b.connect("a", strict=False), b.connect("a", strict=False)
    name = f"temp-queue:{client.session}/x"
    client.do(MakeTemporary(name, "1"))
    other.send(name, "early")
    client.do(MakeTemporary(name, "2")).subscribe("s", name)
    assert client.receipts == ["1", "2"] and client.texts == ["early"]
