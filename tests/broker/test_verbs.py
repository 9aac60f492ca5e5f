"""What an operator asks of destinations: lists in pages, messages looked at and moved, policies; what is durable."""

import sys

import pytest

from mombroker.broker.properties import pack
from mombroker.broker.queue import lane
from mombroker.broker.verbs import messages
from mombroker.broker.verbs.queues import QueueVerbs
from mombroker.core.events import Admin
from mombroker.core.times import SECOND
from tests.broker.bench import ALONE, THREE, Broker
from tests.core.bus import topology

Q, OTHER, DLQ = "queue:orders", "queue:others", "queue:DLQ.orders"


def texts(answer):
    return [row["body"].decode() for row in answer["messages"]]


def browsed(b, name, server="a", **args):
    """All pages."""
    found, after = [], []
    while True:
        answer = b.ask(server, "browse", destination=name, after=after, **args)
        found += texts(answer)
        after = answer["after"]
        if not after:
            return found


def test_queues_and_subscriptions_are_listed_in_pages():
    b = Broker()
    c = b.connect(client_id="me")
    c.send("queue:b", "1").send("queue:a", "1", "22").send("queue:c", "1")
    c.subscribe("t", "temp-queue:a/s1/x").subscribe("d", "topic:x", durable="news", selector="size > 1")
    first = b.ask("a", "queues", limit=2)
    rest = b.ask("a", "queues", limit=2, after=first["after"])
    rows = first["queues"] + rest["queues"]
    named = [row for row in rows if "temp" not in row["destination"]]
    assert [(row["destination"], row["messages"], row["bytes"]) for row in named] == [
        ("queue:a", 2, 3), ("queue:b", 1, 1), ("queue:c", 1, 1),
    ]  # fmt: skip
    assert len(first["queues"]) == 2 and len(rows) in (3, 4) and rest["after"] == ""
    (sub,) = b.ask("a", "subscriptions")["subscriptions"]
    assert (sub["name"], sub["client_id"], sub["topics"], sub["selector"]) == ("news", "me", ["topic:x"], "size > 1")
    assert (sub["durable"], sub["shared"], sub["consumers"]) == (True, False, 1)


def test_a_page_of_many_queues_is_no_more_work_than_one_of_few():
    b = Broker()
    verbs, c, work = QueueVerbs(b.servers["a"].clients), b.connect(), []
    for many in (20, 200):
        for at in range(many):
            c.send(f"queue:{at:03}", "1")
        calls = []
        sys.setprofile(lambda frame, event, what, calls=calls: calls.append(event))
        try:
            page = verbs.queues(after="a/queue:004", limit=10)
        finally:
            sys.setprofile(None)
        assert [row["destination"] for row in page["queues"]] == [f"queue:{at:03}" for at in range(5, 15)]
        work.append(len(calls))
    assert work[0] == work[1] < 500


def test_queues_and_subscriptions_are_found_by_a_part_of_their_names_and_by_how_full_they_are():
    b = Broker()
    c = b.connect(client_id="me")
    c.subscribe("d", "topic:x", durable="news&co").subscribe("e", "topic:x", durable="olds")
    for at in range(5):
        c.send(f"queue:n{at}", *"x" * (1 + at * 7 % 5)).send(f"queue:a&b{at}", "1")
    names = lambda **args: [row["destination"] for row in b.ask("a", "queues", **args)["queues"]]  # noqa: E731
    assert names(match="&b") == [f"queue:a&b{at}" for at in range(5)]
    first = b.ask("a", "queues", match="n", limit=2)
    assert [row["destination"] for row in first["queues"]] == ["queue:n0", "queue:n1"]
    assert names(match="n", limit=9, after=first["after"]) == ["queue:n2", "queue:n3", "queue:n4"]
    assert names(fullest=True, limit=3) == ["queue:n2", "queue:n4", "queue:n1"]
    assert names(fullest=True, match="&b", limit=1000) == names(match="&b")
    (found,) = b.ask("a", "subscriptions", match="&")["subscriptions"]
    assert found["name"] == "news&co"
    (brief,) = b.ask("a", "subscriptions", match="&", brief=True)["subscriptions"]
    assert brief.items() < found.items() and "oldest" not in brief
    assert b.ask("a", "queues", limit=0) == {"queues": [], "after": ""}
    counts = b.ask("a", "topics", limit=0)
    assert counts == {**b.ask("a", "topics"), "topics": [], "after": ""}


@pytest.mark.parametrize("verb, args", [
    ("create_queue", {"destination": Q}), ("set_policy", {"match": "queue:*", "values": {"max_messages": 1}}),
    ("create_subscription", {"name": "s", "topics": ["t"], "shared": True}),
])  # fmt: skip
def test_who_asks_for_what_a_registry_decides_that_is_down_is_told_so_and_it_is_done_later(verb, args):
    b = Broker(THREE)
    b.crash("a")
    assert b.ask("c", verb, **args) is None
    b.later(4.9)
    assert not any(isinstance(each, str) for each in b.replies.values())
    b.later(0.2)
    assert len(b.replies) == 1 and "a, which decides names and policies, does not answer c" in str(b.replies)
    b.boot("a")
    b.join("a", "b")
    b.join("a", "c")
    b.pump()
    assert len(b.replies) == 1 and b.servers["c"].requests.tickets.until == {}
    if verb == "set_policy":
        assert b.servers["b"].clients.policies.of(Q).max_messages == 1
    else:
        assert {Q, "sub::s"} & set(b.servers["b"].names.known)


def test_topics_are_listed_with_the_servers_that_listen():
    b = Broker(THREE)
    b.connect("b").subscribe("s", "topic:x", "topic:y.*")
    b.connect("c").subscribe("s", "topic:x")
    rows = b.ask("a", "topics")["topics"]
    assert [(row["topic"], row["servers"], row["subscribers_here"]) for row in rows] == [
        ("topic:x", ["b", "c"], 0), ("topic:y.*", ["b"], 0),
    ]  # fmt: skip
    assert b.ask("b", "topics", limit=1, after="")["after"] == "topic:x"
    assert b.ask("b", "topics", limit=1, after="topic:x")["topics"][0]["subscribers_here"] == 1


def test_a_queue_is_shown_with_its_consumers_and_its_policy():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "queue:*", "max_messages": 7}]))
    b.connect("a").send(Q, "one", "two", "three")
    consumer = b.connect("b").subscribe("s", Q, ack="individual", prefetch=2, selector="a is null", exclusive=True)
    found = b.ask("a", "destination", destination=Q)
    assert (found["messages"], found["ready"], found["unacked"], found["policy"]["max_messages"]) == (3, 1, 2, 7)
    (row,) = found["consumers"]
    assert (row["selector"], row["exclusive"], row["credit"], row["unacked"]) == ("a is null", True, 0, 2)
    assert row["session"].startswith("b/conn:") and consumer.texts == ["one", "two"]
    assert "ask its home server a" in b.ask("c", "destination", destination=Q)
    assert "there is no queue:nothing; see `mom queue list`" in b.ask("a", "destination", destination="queue:nothing")
    for shown, words in (
        ("sub::x", "there is no subscription x without a client id: see `mom subscription list`"),
        ("sub::x:y", "there is no subscription x:y without a client id: did you mean y --client-id x? see `mom sub"),
        ("share:c%3A:y", "there is no shared subscription y of client c:: see"),
    ):
        assert words in b.ask("a", "destination", destination=shown)
    assert "cannot have 5 as its destination" in b.ask("a", "destination", destination=5)
    assert "needs destination, a text" in b.ask("a", "destination")


def test_a_queue_is_made_and_deleted_for_good():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "queue:*", "create": False}]))
    assert b.ask("b", "create_queue", destination=Q) == {"name": Q, "agent": f"b/{Q}"}
    assert "is taken by" in b.ask("a", "create_queue", destination=Q)
    b.connect("c").send(Q, "one")
    taker = b.connect("a").subscribe("s", Q, ack="individual")
    assert b.ask("b", "delete_destination", destination=Q) == {"deleted": Q, "messages": 1}
    assert taker.refusals == [f"{Q} was deleted"]
    b.reboot("b")
    assert b.ask("b", "queues")["queues"] == [] and b.stored(Q, "b") == {}
    assert "create = false" in b.connect("a").send(Q, "two").refusals[0]


def test_browsing_takes_nothing_and_goes_on_where_it_stopped(monkeypatch):
    monkeypatch.setattr(lane, "MEMORY", 3_000)  # most of it lies on disk
    b = Broker()
    c = b.connect()
    c.send(Q, *(f"{number}" for number in range(20)), properties=pack({"n": "1"}))
    c.send(Q, "urgent", priority=9)
    everything = ["urgent", *(f"{number}" for number in range(20))]
    for limit in (1, 3, 100):
        assert browsed(b, Q, limit=limit) == everything
    monkeypatch.setattr(messages, "LOOK", 5)
    assert browsed(b, Q, where="n = '1'") == everything[1:]
    assert browsed(b, Q, where="JMSPriority > 8 OR n = '2'") == ["urgent"]
    assert b.queue(Q).messages.ready == 21
    row = b.ask("a", "browse", destination=Q, limit=1, bytes=3)["messages"][0]
    assert (row["body"], row["bytes"], row["state"], row["deliveries"]) == (b"urg", 6, "ready", 0)
    assert "selector: it ends too early" in b.ask("a", "browse", destination=Q, where="n =")


def test_the_first_that_is_browsed_is_the_one_that_a_consumer_gets_next():
    """What has expired is nobody's, and neither is what waits for another of its group."""
    b = Broker(topology({}, policies=[{"match": "*", "redelivery_delay": 50.0}]))
    b.connect().send(Q, "old", expires=b.now + SECOND)
    c = b.connect().subscribe("s", Q, ack="individual", prefetch=2, selector="JMSXGroupID IS NOT NULL")
    b.connect().send(Q, "1", "2", "3", group="g").send(Q, "4", "5")
    c.nack("1").nack("2")
    c.close()
    b.now += 2 * SECOND  # nobody has looked at the time yet
    assert b.queue(Q).messages.ready == 4 and texts(browse(b, limit=1)) == ["4"]
    assert browsed(b, Q) == ["4", "5"]
    assert b.connect().subscribe("t", Q).texts == ["4", "5"]


def browse(b, **args):
    """One request, at the time that it is, while nothing else happens."""
    b.servers["a"].step(Admin(-1, "browse", {"destination": Q, **args}), b.now)
    ((_, answer),) = [each for each in b.servers["a"].requests.tickets.answers if each[0] == -1]
    b.servers["a"].requests.tickets.answers.clear()
    return answer


def test_a_page_ends_before_what_is_not_durable_and_the_next_one_goes_on_there(monkeypatch):
    monkeypatch.setattr(lane, "MEMORY", 0)  # all of it lies on disk
    b = Broker()
    c = b.connect()
    c.send(Q, "1", "2", pump=False).send(Q, "urgent", priority=9, pump=False)
    b.servers["a"].turn(b.now)
    first = browse(b)
    assert first["messages"] == [] and first["after"]
    c.send(Q, "late", pump=False)
    b.pump()
    assert texts(b.ask("a", "browse", destination=Q, after=first["after"])) == ["urgent", "1", "2"]
    assert browsed(b, Q) == ["urgent", "1", "2", "late"]


def test_a_page_waits_for_what_comes_back_from_a_lost_consumer(monkeypatch):
    b = Broker()
    c = b.connect().subscribe("s", Q, ack="individual", prefetch=30)
    b.connect().send(Q, *(f"{number}" for number in range(40)))
    monkeypatch.setattr(b.queue(Q).settlement, "returning", {"a/lost": None})
    first = browse(b, limit=1)
    assert first["messages"] == [] and first["after"]
    monkeypatch.undo()
    c.close()
    b.pump()
    assert texts(b.ask("a", "browse", destination=Q, limit=1, after=first["after"])) == ["0"]


def test_a_body_is_whole_unless_so_many_bytes_are_asked_for():
    b = Broker()
    b.connect().send(Q, "x" * 100_000)
    assert [len(browse(b, **args)["messages"][0]["body"]) for args in ({}, {"bytes": 5}, {"bytes": 0})] == [
        100_000,
        5,
        0,
    ]


def test_what_is_held_or_backs_off_can_be_looked_at():
    b = Broker(topology({}, policies=[{"match": "*", "redelivery_delay": 50.0}]))
    c = b.connect().subscribe("s", Q, ack="individual", prefetch=3)
    b.connect().send(Q, "1", "2", "3", "4")
    c.nack("2")
    pages = []
    after = []
    while not pages or after:
        answer = b.ask("a", "browse", destination=Q, unacked=True, limit=2, after=after)
        pages += [(row["body"], row["state"], row["deliveries"]) for row in answer["messages"]]
        after = answer["after"]
    assert pages == [(b"1", "unacked", 1), (b"2", "backing off", 1), (b"3", "unacked", 1), (b"4", "unacked", 1)]
    c.ack("1", "3")
    assert b.queue(Q).messages.count == 2


@pytest.mark.parametrize("memory", [3_000, 16 << 20])
def test_messages_are_moved_once_some_at_a_time_and_for_good(monkeypatch, memory):
    monkeypatch.setattr(lane, "MEMORY", memory)
    b = Broker(THREE)
    b.connect("b").send(OTHER, "old")
    for number in range(12):
        b.connect("a").send(Q, f"{number}", properties=pack({"odd": str(number % 2)}), dedup=("p", number + 1))
    args, moved = {"destination": Q, "target": OTHER, "where": "odd = '1'", "limit": 2}, 0
    answer = {"after": [], "upto": 0}
    while moved == 0 or answer["after"]:
        answer = b.ask("a", "move", **args, after=answer["after"], upto=answer["upto"])
        moved += answer["moved"]
        b.connect("a").send(Q, "late", properties=pack({"odd": "1"}))  # not one that was there
    assert moved == 6
    b.reboot("a")
    assert browsed(b, OTHER, "b") == ["old", "1", "3", "5", "7", "9", "11"]
    assert [text for text in browsed(b, Q) if text != "late"] == ["0", "2", "4", "6", "8", "10"]
    assert "where these messages are" in b.ask("a", "move", destination=Q, target=Q)


def test_messages_are_moved_by_their_ids_too():
    b = Broker()
    b.connect().send(Q, "1", "2", "3")
    ids = [row["id"] for row in b.ask("a", "browse", destination=Q)["messages"]]
    assert b.ask("a", "move", destination=Q, target=OTHER, ids=[ids[1]])["moved"] == 1
    assert (browsed(b, Q), browsed(b, OTHER)) == (["1", "3"], ["2"])


def test_dead_letters_go_back_to_where_they_died():
    b = Broker(topology({"x": "ab"}, policies=[{"match": "*", "max_redeliveries": 0}]))
    c = b.connect("a", client_id="me").subscribe("s", Q, ack="individual")
    sub = b.connect("b", client_id="you").subscribe("d", "topic:t", durable="news", ack="individual")
    b.connect("b").send(Q, "1").send("topic:t", "2")
    c.nack("1")
    sub.nack("2")
    assert (c.texts, sub.texts) == (["1"], ["2"])
    dlqs = [row["destination"] for server in "ab" for row in b.ask(server, "queues")["queues"]]
    assert sorted(dlqs) == ["queue:DLQ.orders", "queue:DLQ.you:news", Q]
    for server in "ab":
        for row in b.ask(server, "queues")["queues"]:
            if "DLQ" in row["destination"]:
                answer = b.ask(server, "move", destination=row["destination"], back=True)
                assert (answer["moved"], answer["left"], answer["after"]) == (1, 0, [])
    assert (c.texts, sub.texts) == (["1", "1"], ["2", "2"])
    assert c.got[-1].count == 1 and not c.got[-1].message.annotations
    b.connect("a").send(DLQ, "no dead letter")
    assert b.ask("a", "move", destination=DLQ, back=True)["left"] == 1


def test_dead_letters_of_what_is_gone_stay():
    b = Broker(topology({}, policies=[{"match": "*", "max_redeliveries": 0}]))
    sub = b.connect(client_id="me").subscribe("d", "topic:t", durable="news", ack="individual")
    b.connect().send("topic:t", "1")
    sub.nack("1").unsubscribe("d", durable="news", delete=True)
    (row,) = b.ask("a", "queues")["queues"]
    assert "is gone: send what was for it to a queue" in b.ask("a", "move", destination=row["destination"], back=True)
    assert browsed(b, row["destination"]) == ["1"]


def test_a_purge_survives_a_crash_and_spares_what_comes_later():
    b = Broker()
    c = b.connect().send(Q, "1", "2", "3")
    assert b.ask("a", "purge", destination=Q) == {"destination": Q, "purged": 3}
    c.send(Q, "4")
    b.reboot("a")
    b.later(1)
    assert browsed(b, Q) == ["4"]


def test_what_a_dead_server_holds_is_released():
    b = Broker(THREE)
    b.connect("a").send(Q, "1", "2")
    b.connect("b").subscribe("s", Q, ack="individual")
    b.crash("b")
    assert b.ask("a", "release", destination=Q, holder="b") == {"destination": Q, "released": 2}
    assert browsed(b, Q) == ["1", "2"]
    assert "comes back when their connections end" in b.ask("a", "release", destination=Q, holder="a")
    assert "not a server of this bus" in b.ask("a", "release", destination=Q, holder="z")


@pytest.mark.parametrize("topology", [ALONE, THREE])
def test_a_policy_is_set_on_all_servers_and_deleted_again(topology):
    b = Broker(topology)
    last = list(b.servers)[-1]
    assert b.ask(last, "set_policy", match="queue:o*", values={"max_messages": 1, "overflow": "reject"}) == {
        "match": "queue:o*", "policy": {"match": "queue:o*", "max_messages": 1, "overflow": "reject"},
    }  # fmt: skip
    assert "is full" in b.connect("a").send(Q, "1", "2").refusals[0]
    b.reboot(last)
    for server in b.servers:
        (row,) = b.ask(server, "policies")["policies"]
        assert (row["match"], row["max_messages"], row["overflow"], row["from"]) == (
            "queue:o*", 1, "reject", "mom policy set",
        )  # fmt: skip
    assert b.ask(last, "set_policy", match="queue:o*")["policy"] is None
    assert b.ask("a", "policies")["policies"] == []
    assert "no policy was set" in b.ask("a", "set_policy", match="queue:o*")
    assert "has no 'max'" in b.ask("a", "set_policy", match="queue:o*", values={"max": 1})
    assert "write 'queue:o*' or 'topic:o*'" in b.ask("a", "set_policy", match="o*", values={"max_messages": 1})


def test_a_policy_that_a_store_holds_in_former_words_is_in_force():
    b = Broker()
    former = '{"match": "queue:o*", "max_messages": 1, "full": "drop-oldest", "redeliver": 2}'
    b.stores["a"].disk.meta["policy:7"] = former
    b.reboot("a")
    (row,) = b.ask("a", "policies")["policies"]
    assert (row["overflow"], row["max_redeliveries"]) == ("drop-head", 2)
    b.connect().send(Q, "1", "2")
    assert b.connect().subscribe("s", Q).texts == ["2"]


def test_a_raised_limit_lets_those_go_on_who_wait():
    b = Broker(topology({"x": "ab"}, policies=[{"match": Q, "max_messages": 1}]))
    c = b.connect("a").send(Q, "1", "2", receipt="r")
    assert c.receipts == ["r"]
    b.ask("b", "set_policy", match=Q, values={"max_messages": 5})
    assert c.receipts == ["r", "r"]


def test_a_topic_may_have_to_be_created_before_it_is_used():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "topic:news*", "create": False}]))
    refused = "does not exist, and its policy has create = false"
    for client in (b.connect("b").send("topic:news", "1"), b.connect("c").subscribe("s", "topic:news")):
        assert refused in client.refusals[0]
    assert refused in b.connect("c", "me").subscribe("s", "topic:x", "topic:news", durable="d").refusals[0]
    assert b.ask("b", "create_topic", destination="topic:news")["agent"] == "b/topic:news"
    assert "is taken" in b.ask("a", "create_topic", destination="topic:news")
    rows = b.ask("c", "topics")["topics"]
    assert [(row["topic"], row["created"], row["servers"]) for row in rows] == [("topic:news", True, [])]
    b.reboot("b")
    reader = b.connect("c", "me").subscribe("s", "topic:news", durable="d").subscribe("t", "topic:*")
    b.connect("a").send("topic:news", "1").send("topic:other", "2")
    assert sorted(reader.texts) == ["1", "1", "2"]
    assert b.ask("a", "delete_topic", destination="topic:news") == {"deleted": "topic:news", "delayed": 0}
    assert refused in b.connect("a").send("topic:news", "3").refusals[0]
    assert "b/topic:news" not in b.stores["b"].disk.agents
    assert "nobody has created topic:news" in b.ask("a", "delete_topic", destination="topic:news")
    assert "no topic" in b.ask("a", "create_topic", destination="topic:a.*")


def test_a_topic_is_shown_with_who_listens():
    b = Broker(THREE)
    b.connect("b").subscribe("s", "topic:x.y", "topic:z")
    b.connect("c", "me").subscribe("s", "topic:x.*", durable="d").close()
    b.connect("c").subscribe("s", "topic:x.>")
    found = b.ask("c", "topic", destination="topic:x.y")
    assert found["patterns"] == ["topic:x.*", "topic:x.>", "topic:x.y"] and found["servers"] == ["b", "c"]
    assert (found["subscribers_here"], found["subscriptions_here"], found["created"]) == (2, ["sub:me:d"], "")
    assert b.ask("a", "topic", destination="topic:x.y")["subscribers_here"] == 0
    assert found["policy"]["max_pending"] == 1_000


def test_what_two_operators_delete_at_once_leaves_no_dead_letter():
    b = Broker(THREE)
    for verb, name in (("create_topic", "topic:t"), ("create_queue", Q)):
        b.ask("c", verb, destination=name)
    for server, ticket in (("a", 901), ("b", 902), ("c", 903)):
        b.servers[server].step(Admin(ticket, "delete_topic", {"destination": "topic:t"}), b.now)
    for ticket in (904, 905):
        b.servers["c"].step(Admin(ticket, "delete_destination", {"destination": Q}), b.now)
    b.pump()
    assert [b.replies[ticket]["deleted"] for ticket in range(901, 906)] == ["topic:t"] * 3 + [Q] * 2
    assert not any(server.names.known or len(server.dead_letters.letters) for server in b.servers.values())
