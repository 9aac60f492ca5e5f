"""Durable and shared subscriptions: who consumes, who ends them, and what is kept meanwhile."""

import pytest

from mombroker.broker.commands import Receipt, Subscribe, Sync, Unsubscribe
from mombroker.broker.properties import pack
from tests.broker.bench import THREE, Broker, Client
from tests.broker.topic.table import A, B, entries
from tests.core.bus import topology


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
