"""Topics: the table that all servers have, one copy a server, and who sees what (G4)."""

import pytest

from mombroker.broker.commands import RELEASED, Receipt, Subscribe, Sync, Unsubscribe
from mombroker.broker.properties import pack
from mombroker.broker.session import consumer, topic_feed
from tests.broker.bench import THREE, Broker, Client
from tests.core.bus import SECOND, topology

A, B = "topic:a", "topic:b"
ROW = topology({"x": "ab", "y": "bc"})


def entries(b: Broker, server: str) -> list[str]:
    return sorted(pattern for table in b.servers[server].clients.topics.table.values() for pattern in table.values())


def publishes(b: Broker, server: str) -> list[tuple[str, ...]]:
    return [row["dests"] for row in b.records(server, "send") if row["detail"] == "t.publish"]


@pytest.mark.parametrize("topics", [[A], [A, B], ["topic:*"]])
def test_a_durable_subscription_knows_a_repeat_of_each_of_its_topics(topics):
    b = Broker(THREE)
    reader = b.connect("c", "me").subscribe("s", *topics, durable="d")
    b.connect("a").send(A, "a1", dedup=("p", 1)).send(B, "b1", dedup=("p", 1)).send(A, "a2", dedup=("p", 2))
    b.reboot("c")
    b.connect("b").send(A, "a1", dedup=("p", 1)).send(B, "b1", dedup=("p", 1)).send(A, "a3", dedup=("p", 3))
    later = b.connect("c", "me").subscribe("s", *topics, durable="d")
    first = ["a1", "a2"] if topics == [A] else ["a1", "b1", "a2"]
    assert (reader.texts, later.texts) == (first, ["a3"])


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


# -- durable and shared --------------------------------------------------------------------------------------------


def durable(b: Broker, server: str = "a", name: str = "d", topics: tuple[str, ...] = (A, B), **more) -> Client:
    return b.connect(server, "me").subscribe("s", *topics, durable=name, ack="individual", **more)


def test_a_durable_subscription_keeps_what_comes_while_nobody_is_there():
    b = Broker(THREE)
    durable(b).close()
    publisher = b.connect("b").send(A, "1").send(B, "2", priority=9).send(A, "3")
    b.reboot("a")
    publisher.send(A, "4")
    reader = durable(b)
    assert reader.texts == ["1", "2", "3", "4"]
    assert reader.got[0].id == f"b#{reader.got[0].id.partition('#')[2]}"
    reader.ack(*"1234")
    assert b.queue("sub:me:d").messages.count == 0


def test_it_is_reached_from_another_server_in_order():
    b = Broker(THREE)
    durable(b).close()
    b.connect("b").send(A, "1").send(B, "2")
    reader = durable(b, "c")
    assert reader.texts == ["1", "2"] and b.queue("sub:me:d").tx.name == "a"
    reader.ack("1").close()
    assert durable(b, "b").texts == ["2"]


def test_only_unsubscribe_with_its_name_ends_it_and_it_can_be_made_anew_elsewhere():
    b = Broker(THREE)
    reader = durable(b)
    reader.unsubscribe("s")
    b.connect("b").send(A, "1")
    assert b.queue("sub:me:d").messages.count == 1
    b.connect("c", "me").do().unsubscribe("", durable="d", delete=True)
    assert "sub:me:d" not in b.servers["b"].names.known and entries(b, "b") == []
    assert b.stores["a"].agent("a/sub:me:d") is None and b.stored("sub:me:d") == {}
    durable(b, "c").close()
    b.connect("b").send(A, "2")
    assert b.queue("sub:me:d").tx.name == "c"
    assert durable(b, "a").texts == ["2"]
    assert "no durable subscription" in b.connect("a", "me").unsubscribe("", durable="x", delete=True).refusals[0]


def test_one_in_use_is_not_deleted_by_another_connection():
    b = Broker(THREE)
    reader = durable(b)
    for server in "ab":
        other = b.connect(server, "me").unsubscribe("", durable="d", delete=True, receipt="r")
        (refused,) = other.told
        assert "has a consumer" in refused.message and refused.receipt == "r"
    b.connect("c").send(A, "1")
    assert reader.texts == ["1"]


@pytest.mark.parametrize("server", "abc")
def test_the_receipt_of_its_end_comes_when_it_has_ended_and_before_later_ones(server):
    b = Broker(THREE)
    durable(b).close()
    client = b.connect(server, "me").do(Unsubscribe("", "d", True, "r"), Sync("s"))
    assert client.receipts == ["r", "s"]
    assert "sub:me:d" not in b.servers[server].names.known
    again = b.connect(server, "me").unsubscribe("", durable="d", delete=True, receipt="r")
    assert "no durable subscription" in again.refusals[0] and again.receipts == []


def test_the_receipt_of_its_end_names_its_server_if_that_does_not_answer():
    b = Broker(THREE)
    durable(b).close()
    b.cut("a", "b")
    client = b.connect("b", "me").do(Unsubscribe("", "d", True, "r"), Sync("s"))
    assert client.receipts == []
    b.later(1)
    assert client.receipts == []
    b.later(1.1)
    assert [(each.receipt, each.unconfirmed) for each in client.told] == [("r", "a"), ("s", "")]
    b.join("a", "b")
    b.pump()
    assert client.receipts == ["r", "s"] and "sub:me:d" not in b.servers["b"].names.known


def test_two_who_end_it_at_once_both_hear_that_it_has_ended():
    b = Broker(THREE)
    durable(b).close()
    clients = [b.connect(server, "me") for server in "bc"]
    for client in clients:
        client.do(Unsubscribe("", "d", True, "r"), pump=False)
    b.pump()
    assert [client.receipts for client in clients] == [["r"], ["r"]]


def test_what_a_client_does_after_it_has_subscribed_elsewhere_waits_until_that_has_begun():
    """And no longer: that some servers may not know of it is told in the receipt, later."""
    b = Broker(THREE)
    durable(b, "a").close()
    b.cut("a", "c")
    reader = durable(b, "b", topics=(A, "topic:new"), receipt="s", pump=False)
    reader.send("topic:new", "follows", receipt="p")
    assert reader.texts == ["follows"] and reader.receipts == ["p"]
    b.later(2.1)
    assert [(each.receipt, each.unconfirmed) for each in reader.told if isinstance(each, Receipt)] == [
        ("p", ""), ("s", "c"),
    ]  # fmt: skip


def test_the_receipt_of_a_subscription_names_its_server_if_that_does_not_answer():
    b = Broker(THREE)
    durable(b, "a").close()
    b.cut("a", "b")
    reader = durable(b, "b", receipt="s").send(A, "1", receipt="p")
    assert reader.receipts == []
    b.later(2.1)
    assert [(each.receipt, each.unconfirmed) for each in reader.told] == [("s", "a"), ("p", "")]
    b.join("a", "b")
    b.pump()
    assert reader.texts == ["1"] and reader.receipts == ["s", "p"]


def test_a_new_consumer_takes_an_unshared_subscription_over():
    b = Broker(THREE)
    old = durable(b)
    b.connect("b").send(A, "1", "2")
    old.ack("1")
    new = durable(b, "c")
    assert "taken over" in old.refusals[0]
    assert [(each.body, each.count) for each in new.got] == [(b"2", 2)]


def test_a_consumer_that_takes_nothing_over_is_refused_while_there_is_another():
    b = Broker(THREE)
    old = durable(b)
    new = durable(b, "c", take_over=False, receipt="r")
    assert "sub:me:d is in use" in new.refusals[0] and new.receipts == [] and old.refusals == []
    b.connect("b").send(A, "1")
    old.close()
    late = durable(b, "c", take_over=False)
    assert (old.texts, late.texts, late.refusals) == (["1"], ["1"], [])
    assert "is in use" in durable(b, "c", take_over=False).refusals[0]


def test_the_id_that_a_client_chose_is_that_of_each_copy():
    b = Broker(THREE)
    plain, kept = b.connect("c").subscribe("s", A), durable(b, "b")
    chosen = b.connect("a").subscribe("s", A, selector="JMSMessageID = 'mine-1'")
    b.connect("a").send(A, "1", message="mine-1").send(A, "2", message="mine-2").send("queue:q", "3", message="mine-3")
    assert [each.id for each in plain.got] == [each.id for each in kept.got] == ["mine-1", "mine-2"]
    assert chosen.texts == ["1"]
    assert [each.id for each in b.connect("c").subscribe("s", "queue:q").got] == ["mine-3"]


def test_other_topics_or_another_selector_make_it_anew():
    b = Broker(THREE)
    durable(b).close()
    publisher = b.connect("b").send(A, "old")
    reader = durable(b, topics=("topic:c",))
    publisher.send(A, "gone").send("topic:c", "new")
    assert reader.texts == ["new"]
    reader.ack("new").close()
    assert entries(b, "c") == ["topic:c"]
    reader = durable(b, "c", topics=("topic:c",), selector="kind = 'x'")
    reader.send("topic:c", "right after", properties=pack({"kind": "x"})).send("topic:c", "unwanted")
    assert reader.texts == ["right after"]


def test_a_subscription_has_its_own_selector_and_no_local():
    b = Broker(THREE)
    reader = durable(b, selector="kind = 'x'", no_local=True)
    reader.send(A, "mine", properties=pack({"kind": "x"}))
    b.connect("b").send(A, "1", properties=pack({"kind": "x"})).send(A, "2")
    assert reader.texts == ["1"] and b.queue("sub:me:d").messages.count == 1


def test_shared_durable_subscriptions_split_what_comes():
    b = Broker(THREE)
    one = b.connect("a").subscribe("s", A, durable="d", shared=True, ack="individual")
    two = b.connect("b").subscribe("s", A, durable="d", shared=True, ack="individual")
    b.connect("c").send(A, *"1234")
    assert sorted(one.texts + two.texts) == list("1234") and len(one.texts) == len(two.texts) == 2
    one.ack(*one.texts).close()
    two.ack(*two.texts).close()
    b.connect("c").send(A, "5")
    assert b.connect("b").subscribe("s", A, durable="d", shared=True).texts == ["5"]


def test_shared_and_unshared_do_not_mix_and_a_shared_one_in_use_does_not_change():
    b = Broker(THREE)
    durable(b)
    assert "is not shared" in durable(b, "b", shared=True).refusals[0]
    b.connect("a").subscribe("s", A, durable="e", shared=True)
    other = b.connect("a").subscribe("s", B, durable="e", shared=True)
    assert "in use" in other.refusals[0]


def test_a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer():
    b = Broker(THREE)
    readers = [b.connect(name).subscribe("s", A, durable="d", shared=True, transient=True) for name in "ab"]
    b.connect("c").send(A, "1", "2")
    assert sorted(readers[0].texts + readers[1].texts) == ["1", "2"]
    for reader in readers:
        reader.close()
    assert "share::d" not in b.servers["c"].names.known and entries(b, "c") == []
    again = b.connect("c").subscribe("s", A, durable="d", shared=True, transient=True)
    b.connect("a").send(A, "3")
    assert again.texts == ["3"]


@pytest.mark.parametrize("end", ["close", "unsubscribe", "unsettled"])
def test_a_shared_subscription_that_has_ended_can_be_made_again_on_the_same_server(end):
    b = Broker(THREE)
    for text in "12":
        reader = b.connect("a").subscribe("s", A, durable="d", shared=True, transient=True, ack="individual")
        b.connect("b").send(A, text)
        assert reader.texts == [text] and reader.refusals == []
        if end != "unsettled":
            reader.ack(text)
        reader.unsubscribe("s") if end == "unsubscribe" else reader.close()
        assert not any("share:" in row.agent for row in b.stores["a"].disk.items.values())
        assert b.stored("share::d") == {} and "a/share::d" not in b.stores["a"].disk.agents


def test_a_transient_shared_subscription_ends_when_its_servers_restart():
    b = Broker(THREE)
    b.connect("a").subscribe("s", A, durable="d", shared=True, transient=True)
    b.reboot("a")
    assert entries(b, "b") == [] and "share::d" not in b.servers["b"].names.known


def test_a_transient_shared_subscription_that_nobody_comes_for_ends():
    b = Broker(THREE)
    b.cut("a", "b")
    reader = b.connect("b").subscribe("s", A, durable="d", shared=True, transient=True)
    reader.close()
    b.join("a", "b")
    b.pump()
    assert entries(b, "c") == [A]
    b.later(11)
    assert entries(b, "c") == [] and "share::d" not in b.servers["c"].names.known


def test_durable_subscriptions_keep_the_order_of_causes_detached_or_not():
    """A question on A, answered on B from what was read of A, through slow links; the reader comes and goes."""
    b = Broker(topology({"x": "abc"}))
    durable(b, "c").close()
    answerer = b.connect("b").subscribe("s", A)
    b.cut("a", "c")
    b.connect("a").send(A, "question")
    answerer.send(B, "answer")
    assert b.queue("sub:me:d").messages.count == 0
    b.join("a", "c")
    b.pump()
    assert durable(b, "c").texts == ["question", "answer"]


def test_what_was_under_way_to_a_former_consumer_comes_before_what_is_behind_it():
    """1. Messages are dispatched to a consumer, which the client has just ended. 2. The next consumer of the same
    connection must not get later ones before these have come back."""
    b = Broker(THREE)
    durable(b, "a").close()
    reader = durable(b, "b", prefetch=2)
    b.cut("a", "b")
    b.connect("c").send(A, *"123456")
    reader.do(Unsubscribe("s"), Subscribe("t", (A, B), durable="d", ack="individual", prefetch=2))
    b.join("a", "b")
    b.release("b", b.commit("b"))  # before it is told anything
    b.pump()
    for number, text in enumerate("123456", 1):
        assert reader.texts[number - 1] == text
        reader.ack(text)
    assert [each.count for each in reader.got] == [1] * 6


def test_an_entry_that_has_ended_does_not_come_back_by_who_does_not_know_yet():
    """Else there are two for one topic after a restart, and the server cannot start."""
    b = Broker(THREE)
    client = b.connect("b").subscribe("s", "topic:t")
    b.cut("a", "b")
    b.servers["a"].newcomers.tell_tables(["b"])  # as after a loss
    client.close()
    b.join("a", "b")
    b.pump()
    assert not b.servers["b"].clients.topics.table["b"] and not b.stores["b"].meta("topic:b:")
    b.connect("b").subscribe("s", "topic:t")
    for _ in range(2):
        b.reboot("b")
    b.pump()
    assert not b.servers["b"].clients.topics.own
