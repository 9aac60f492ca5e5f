"""Topics: the table that all servers have, one copy a server, and who sees what (G4)."""

import pytest

from mombroker.broker.commands import RELEASED
from mombroker.broker.properties import pack
from mombroker.broker.session import consumer, topic_feed
from tests.broker.bench import THREE, Broker
from tests.broker.topic.table import A, B, entries
from tests.core.bus import SECOND, topology

ROW = topology({"x": "ab", "y": "bc"})


def publishes(b: Broker, server: str) -> list[tuple[str, ...]]:
    return [row["dests"] for row in b.records(server, "send") if row["detail"] == "t.publish"]


# -- subscriptions of a connection ---------------------------------------------------------------------------------


def test_every_subscription_gets_what_is_published_after_it():
    b = Broker(THREE)
    publisher = b.connect("a").send(A, "early")
    readers = [b.connect(name).subscribe("s", A) for name in "aabc"]
    publisher.send(A, "one")
    readers[0].unsubscribe("s")
    publisher.send(A, "two").send(B, "other")
    assert [reader.texts for reader in readers] == [["one"], ["one", "two"], ["one", "two"], ["one", "two"]]


def test_one_copy_goes_to_each_server_that_has_subscriptions():
    b = Broker(THREE)
    for name in "bbb":
        b.connect(name).subscribe("s", A)
    publisher = b.connect("a").send(A, "1")
    b.connect("c").subscribe("s", "topic:*")
    publisher.send(A, "2").send(B, "3").send("topic:x.y", "4")
    assert publishes(b, "a") == [("b/_topics",), ("b/_topics", "c/_topics"), ("c/_topics",)]


def test_the_table_is_everywhere_and_ends_with_its_last_subscription():
    b = Broker(ROW)
    one, two = b.connect("a").subscribe("s", A), b.connect("a").subscribe("s", A, B)
    assert [entries(b, name) for name in "abc"] == [[A, B]] * 3
    two.close()
    assert entries(b, "c") == [A]
    one.unsubscribe("s")
    assert entries(b, "c") == entries(b, "a") == []


def test_plain_subscriptions_end_with_their_server():
    b = Broker(THREE)
    b.connect("a").subscribe("s", A)
    b.crash("a")
    assert entries(b, "b") == [A]
    b.boot("a")
    b.pump()
    assert [entries(b, name) for name in "abc"] == [[]] * 3
    assert not any(key.startswith("topic:") for key in b.stores["a"].meta())


def test_several_topics_of_one_subscription_are_one_message_each():
    b = Broker(THREE)
    reader = b.connect("b").subscribe("s", A, "topic:*", "topic:a")
    b.connect("a").send(A, "1").send(B, "2")
    assert reader.texts == ["1", "2"]
    assert [each.message.shown for each in reader.got] == [A, B]


def test_a_selector_and_no_local():
    b = Broker(THREE)
    reader = b.connect("a").subscribe("s", A, selector="kind = 'x'").subscribe("t", A, no_local=True)
    b.connect("b").send(A, "1", properties=pack({"kind": "x"})).send(A, "2")
    reader.send(A, "mine", properties=pack({"kind": "x"}))
    assert [(each.sub, each.body) for each in reader.got] == [("s", b"1"), ("t", b"1"), ("t", b"2"), ("s", b"mine")]


def test_messages_may_expire_or_be_delayed():
    b = Broker(THREE)
    reader = b.connect("b").subscribe("s", A, ack="individual", prefetch=1)
    b.connect("a").send(A, "1").send(A, "short", expires=b.now + SECOND).send(A, "late", delay=3 * SECOND)
    b.later(2)
    assert reader.ack("1").texts == ["1"]
    b.later(2)
    assert reader.texts == ["1", "late"]


# -- order and credit ----------------------------------------------------------------------------------------------


def test_plain_subscriptions_of_a_connection_share_one_order():
    """The answer on B waits behind the question on A, though B's subscription has credit."""
    b = Broker(THREE)
    reader = b.connect("c").subscribe("a", A, ack="individual", prefetch=1)
    reader.subscribe("b", B, ack="individual", prefetch=1)
    b.connect("a").send(A, "question 1", "question 2")
    b.connect("b").send(B, "answer 2")
    assert reader.texts == ["question 1"]
    reader.ack("question 1")
    assert reader.texts == ["question 1", "question 2", "answer 2"]


def test_a_slow_reader_loses_the_oldest_and_that_is_counted():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "topic:*", "max_pending": 3}]))
    reader = b.connect("b").subscribe("s", A, ack="individual", prefetch=1)
    b.connect("a").send(A, *"0123456")
    assert reader.texts == ["0"]
    for text in "0456":
        reader.ack(text)
    assert reader.texts == ["0", "4", "5", "6"]
    session = next(iter(b.servers["b"].clients.sessions.values()))
    assert session.feed.dropped == 3


def test_what_a_slow_connection_has_not_taken_is_told():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "topic:*", "max_pending": 3}]))
    slow = b.connect("b").subscribe("s", A, ack="individual", prefetch=1).subscribe("t", B, "topic:x", prefetch=1)
    b.connect("a").send(A, *map(str, range(15)))
    server = b.servers["b"]
    (note,) = [line for line in server.tx.notes if "dropped so far" in line][1:]
    assert note.startswith(f"client {slow.conn} does not take") and "'s': 10 dropped" in note
    assert server.clients.describe(slow.conn) == {"pending": 3, "dropped": 11} and server.clients.dropped == 11
    found = b.ask("b", "topics")
    assert {row["topic"]: row["dropped_here"] for row in found["topics"]} == {A: 11, B: 0, "topic:x": 0}
    assert found["dropped"] == 11
    assert server.clients.describe(0) == {"pending": 0, "dropped": 0}
    slow.close()
    assert server.clients.dropped == 11


def test_delayed_messages_of_a_plain_subscription_are_kept_within_its_limit():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "topic:*", "max_pending": 3}]))
    reader = b.connect("b").subscribe("s", A)
    publisher = b.connect("a")
    for number in range(6):
        publisher.send(A, str(number), delay=(number + 1) * SECOND)
    reader.subscribe("t", B)
    publisher.send(B, "other", delay=99 * SECOND)
    assert b.servers["b"].clients.describe(reader.conn) == {"pending": 3, "dropped": 4}
    reader.unsubscribe("t")
    b.later(10)
    assert reader.texts == ["4", "5"]


def test_large_messages_of_topics_wait_within_bytes(monkeypatch):
    monkeypatch.setattr(topic_feed, "PENDING_BYTES", 10)
    monkeypatch.setattr(consumer, "PREFETCH_BYTES", 5)
    b = Broker(THREE)
    reader = b.connect("b").subscribe("s", A, ack="individual")
    b.connect("a").send(A, "aaa", "bbb", "ccc", "ddd", "eee", "fff")
    assert reader.texts == ["aaa", "bbb"] and b.servers["b"].clients.describe(reader.conn)["dropped"] == 1
    assert reader.ack("aaa").texts == ["aaa", "bbb", "ddd"]
    assert reader.nack("ddd").texts == ["aaa", "bbb", "ddd", "ddd"]
    assert reader.ack("bbb", "ddd").texts[4:] == ["eee", "fff"]


def test_what_is_given_back_comes_next_and_not_for_ever():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "*", "max_redeliveries": 2}]))
    reader = b.connect("b").subscribe("s", A, ack="individual", prefetch=1)
    b.connect("a").send(A, "1", "2")
    for _ in range(3):
        reader.nack("1")
    assert [(each.body, each.count) for each in reader.got] == [(b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1)]


def test_what_nobody_has_seen_comes_next_and_is_not_counted():
    b = Broker()
    reader = b.connect().subscribe("s", A, ack="individual", prefetch=1)
    b.connect().send(A, "1", "2")
    reader.nack("1", outcome=RELEASED).nack("1", outcome=RELEASED)
    assert [(each.body, each.count) for each in reader.got] == [(b"1", 1), (b"1", 1), (b"1", 1)]


# -- receipts ------------------------------------------------------------------------------------------------------


def test_the_receipt_of_subscribe_waits_until_all_servers_know():
    b = Broker(ROW)
    b.cut("b", "c")
    reader = b.connect("a").subscribe("s", A, receipt="r")
    assert reader.receipts == []
    b.join("b", "c")
    b.pump()
    assert reader.receipts == ["r"] and reader.told[-1].unconfirmed == ""
    assert b.connect("a").subscribe("s", A, receipt="at once").receipts == ["at once"]


def test_after_two_seconds_the_receipt_names_who_may_not_know():
    b = Broker(ROW)
    b.cut("a", "b")
    reader = b.connect("a").subscribe("s", A, receipt="r").send(B, "x", receipt="not behind")
    b.later(1.9)
    assert reader.receipts == ["not behind"]
    b.later(0.2)
    assert reader.told[-1].unconfirmed == "b,c"


def test_who_knows_an_entry_is_remembered_through_a_restart():
    b = Broker(ROW)
    b.cut("b", "c")
    b.connect("a", "me").subscribe("s", A, durable="d")
    b.reboot("a")
    reader = b.connect("a", "me").subscribe("s", A, durable="d", receipt="r")
    assert reader.receipts == []
    b.join("b", "c")
    b.pump()
    assert reader.receipts == ["r"]


def test_a_topic_whose_copies_go_everywhere_needs_no_wait():
    policies = [{"match": A, "announce": "everywhere"}]
    b = Broker(topology({"x": "ab", "y": "bc"}, policies=policies))
    b.cut("b", "c")
    reader = b.connect("a").subscribe("s", A, receipt="r")
    assert reader.receipts == ["r"]
    publisher = b.connect("c").send(A, "unknown to the publisher")
    assert publishes(b, "c") == [("a/_topics", "b/_topics", "c/_topics")]
    b.join("b", "c")
    b.pump()
    assert reader.texts == ["unknown to the publisher"]
    assert publisher.refusals == []
    assert b.servers["b"].clients.topics.unheard == 1


@pytest.mark.parametrize("topics", [(A, B), ("topic:*",)])
def test_a_subscription_waits_if_copies_of_any_of_its_topics_go_only_to_who_has_some(topics):
    """1. All know that a has subscriptions of B. 2. a subscribes to A, which goes everywhere, and B. 3. Before c knows,
    it publishes 1 to B, which a gets for the other one alone. So the receipt has to say that c may not know."""
    policies = [{"match": B}, {"match": "topic:*", "announce": "everywhere"}]
    b = Broker(topology({"x": "ab", "y": "bc"}, policies=policies))
    other = b.connect("a").subscribe("s", B)
    b.cut("b", "c")
    reader = b.connect("a").subscribe("s", *topics, receipt="r")
    b.connect("c").send(B, "1")
    b.later(2)
    assert (reader.receipts, reader.told[-1].unconfirmed) == (["r"], "c")
    b.join("b", "c")
    b.pump()
    b.connect("c").send(B, "2")
    assert (other.texts, reader.texts) == (["1", "2"], ["2"])


@pytest.mark.parametrize("topics", [(A, B), ("topic:*",)])
def test_a_copy_that_goes_everywhere_may_be_too_early_for_a_subscription_of_other_topics(topics):
    """Before c knows of the subscription, it publishes 1 to A, which goes everywhere, and 2 to B, which does not.
    Were 1 taken, the reader would miss 2, and see 3 of A behind it."""
    b = Broker(topology({"x": "ab", "y": "bc"}, policies=[{"match": A, "announce": "everywhere"}]))
    b.cut("b", "c")
    reader = b.connect("a").subscribe("s", *topics)
    publisher = b.connect("c").send(A, "1").send(B, "2").send(A, "3")
    b.join("b", "c")
    b.pump()
    assert reader.texts == []
    publisher.send(A, "4").send(B, "5")
    assert reader.texts == ["4", "5"]


def test_a_subscription_of_topics_that_all_go_everywhere_misses_none_of_them():
    b = Broker(topology({"x": "ab", "y": "bc"}, policies=[{"match": "topic:*", "announce": "everywhere"}]))
    b.cut("b", "c")
    reader = b.connect("a").subscribe("s", A, B, receipt="r")
    assert reader.receipts == ["r"]
    b.connect("c").send(A, "1").send(B, "2")
    b.join("b", "c")
    b.pump()
    assert reader.texts == ["1", "2"]


# -- epochs --------------------------------------------------------------------------------------------------------


def test_a_copy_for_an_earlier_entry_is_not_for_a_new_subscription():
    """1. c publishes 1 for a's entry. 2. a unsubscribes and subscribes again. 3. Before c knows of the new entry it
    publishes 2, which is not sent to a. 4. Were 1 taken, the reader would miss 2 between 1 and 3."""
    b = Broker(ROW)
    reader = b.connect("a").subscribe("s", A)
    publisher = b.connect("c")
    b.cut("b", "c")
    publisher.send(A, "1", pump=False)
    reader.unsubscribe("s")
    reader.subscribe("t", A)
    b.join("b", "c")
    b.pump()
    assert reader.texts == []
    assert b.servers["a"].clients.topics.unheard == 1
    publisher.send(A, "3")
    assert reader.texts == ["3"]


def test_a_subscription_takes_nothing_from_a_publisher_that_does_not_know_all_its_entries():
    """1. c knows that b has subscriptions of A. 2. b subscribes to A and B. 3. Before c knows of B there, it publishes
    1 to B, which is not sent to b, and 2 to A, which is. 4. Were 2 taken, the reader would miss 1 before it."""
    b = Broker(THREE)
    other = b.connect("b").subscribe("s", A)
    publisher = b.connect("c").send(A, "0")
    b.cut("b", "c")
    both = b.connect("b").subscribe("s", A, B)
    publisher.send(B, "1").send(A, "2")
    b.join("b", "c")
    b.pump()
    assert other.texts == ["0", "2"] and both.texts == []
    publisher.send(B, "3").send(A, "4")
    assert both.texts == ["3", "4"]


def test_subscribe_then_request_never_misses_the_reply():
    b = Broker(ROW)
    b.cut("b", "c")
    asker = b.connect("a").subscribe("s", "topic:replies").send("queue:requests", "ask")
    b.join("b", "c")
    worker = b.connect("c").subscribe("w", "queue:requests")
    assert worker.texts == ["ask"]
    worker.send("topic:replies", "answer")
    assert asker.texts == ["answer"]
