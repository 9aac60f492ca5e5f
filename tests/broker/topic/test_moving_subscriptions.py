"""A durable or shared subscription moves to another server: it misses nothing, gets nothing twice, keeps its order."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from mombroker.broker.topic.subscription import Subscription
from tests.broker.bench import Broker
from tests.core.bus import topology

SHAPES = {"x": "ab", "y": "bc", "z": "bd"}
NAME = "sub:me:d"


def moved(b: Broker, at: str = "a", to: str = "c", name: str = NAME) -> None:
    b.ask(at, "move_destination", destination=name, to=to)
    b.pump()


def home(b: Broker, name: str = NAME) -> str:
    (found,) = {server.names.known[name] for server in b.servers.values()}
    return found.partition("/")[0]


@pytest.mark.parametrize("announce", ["", "everywhere"])
@pytest.mark.parametrize("others", [False, True])
def test_it_goes_with_what_waits_and_its_topics_follow(announce, others):
    policies = [{"match": "topic:*", "announce": announce}] if announce else []
    b = Broker(topology(SHAPES, policies=policies))
    taker = b.connect("a", client_id="me").subscribe("s", "topic:t", "topic:u.>", durable="d")
    if others:
        b.connect("c").subscribe("o", "topic:t")
    taker.close()
    publisher = b.connect("d").send("topic:t", "1").send("topic:u.v", "2")
    moved(b)
    assert home(b) == "c"
    publisher.send("topic:t", "3").send("topic:u.w", "4")
    taker = b.connect("b", client_id="me").subscribe("s", "topic:t", "topic:u.>", durable="d")
    assert taker.texts == [*"1234"]
    publisher.send("topic:t", "5")
    assert taker.texts == [*"12345"]
    rest = [pattern for entries in b.servers["d"].clients.topics.table.values() for pattern in entries.values()]
    assert sorted(rest) == sorted(["topic:t", "topic:u.>"])
    for server in "abcd":
        b.reboot(server)
    taker = b.connect("d", client_id="me").subscribe("s", "topic:t", "topic:u.>", durable="d")
    b.connect("a").send("topic:t", "6")
    assert taker.texts == ["6"]


def test_what_a_server_publishes_before_it_knows_comes_first():
    b = Broker(topology(SHAPES))
    taker = b.connect("a", client_id="me").subscribe("s", "topic:t", durable="d")
    taker.close()
    publisher, follow = b.connect("d"), Subscription.follow

    def after_a_cut(subscription: Subscription) -> None:
        if subscription.id == f"a/{NAME}":
            b.cut("b", "d")
            publisher.send("topic:t", "1", pump=False)
        follow(subscription)

    with patch.object(Subscription, "follow", after_a_cut):
        moved(b)
    b.connect("a").send("topic:t", "2")
    taker = b.connect("c", client_id="me").subscribe("s", "topic:t", durable="d")
    assert taker.texts == []
    b.join("b", "d")
    b.pump()
    assert taker.texts == [*"12"]
    b.connect("d").send("topic:t", "3")
    assert taker.texts == [*"123"]


@pytest.mark.parametrize("others", [False, True])
def test_its_receipt_waits_at_the_new_home_too_until_all_servers_know_it(others):
    b = Broker(topology(SHAPES))
    if others:
        b.connect("c").subscribe("o", "topic:t")
    b.cut("b", "d")
    taker = b.connect("a", client_id="me").subscribe("s", "topic:t", durable="d", receipt="r")
    moved(b)
    assert b.servers["c"].natives.agents[f"c/{NAME}"].consumers.consumers, "its consumer has gone on"
    assert taker.receipts == [], "what d publishes now is nobody's"
    b.join("b", "d")
    b.pump()
    assert (home(b), taker.receipts) == ("c", ["r"])
    b.connect("d").send("topic:t", "1")
    assert taker.texts == ["1"]


def test_it_waits_for_what_its_only_consumer_has():
    b = Broker(topology(SHAPES))
    taker = b.connect("a", client_id="me").subscribe("s", "topic:t", durable="d", ack="individual", prefetch=2)
    b.connect("d").send("topic:t", *"1234")
    moved(b)
    assert home(b) == "a"
    assert taker.texts == [*"12"]
    taker.close()
    taker = b.connect("d", client_id="me").subscribe("s", "topic:t", durable="d", ack="individual", prefetch=2)
    assert home(b) == "c"
    assert [(each.body, each.count) for each in taker.got] == [(b"1", 2), (b"2", 2)]
    taker.ack("1", "2")
    assert taker.texts == [*"1234"]


@pytest.mark.parametrize("server", ["a", "c"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_at_any_commit_only_makes_it_slower(server, durable):
    for at in range(1, 16):
        b = Broker(topology(SHAPES))
        b.connect("a", client_id="me").subscribe("s", "topic:t", durable="d").close()
        b.connect("d").send("topic:t", *"123")
        b.death = (server, at, durable)
        moved(b)
        if home(b) == "a" and b.queue(NAME).move is None:  # nobody has begun
            moved(b)
        assert home(b) == "c", at
        b.connect("d").send("topic:t", *"45")
        taker = b.connect("b", client_id="me").subscribe("s", "topic:t", durable="d")
        assert taker.texts == [*"12345"], at
        assert b.queue(NAME).move is None
