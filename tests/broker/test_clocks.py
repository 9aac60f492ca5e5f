"""A server whose clock was once ten years ahead: what is sent lives and waits as long as its sender says."""

from __future__ import annotations

import pytest

from mombroker.core.status import status
from tests.broker.bench import Broker
from tests.core.bus import SECOND, topology
from tests.core.sample_agents import Tell

TEN_YEARS = 3650 * 86_400 * SECOND
SAMPLES = "tests.core.sample_agents"
PAIR = topology({"x": "ab"}, {"a/source": f"{SAMPLES}:Source", "b/sink": f"{SAMPLES}:Sink"})


def ahead(b: Broker, *servers: str) -> Broker:
    """These are ten years ahead of the wall clock, which is that of the test."""
    for name in servers:
        server = b.servers[name]
        server.tx.now, server.clock.ahead = b.now + TEN_YEARS, TEN_YEARS
    return b


def wait(b: Broker, seconds: float) -> None:
    for server in b.servers.values():
        if server.clock.ahead:
            server.tx.now += int(seconds * SECOND)
    b.later(seconds)


def seen(b: Broker, name: str) -> list[str]:
    """What is in a queue."""
    return [row["body"].decode() for row in b.ask(b.queue(name).tx.name, "browse", destination=name)["messages"]]


@pytest.mark.parametrize("far", ["", "a", "b", "ab"])
def test_a_message_lives_as_long_as_its_client_says(far):
    """Sent at a, to a queue of a and to one of b, and kept for a topic by subscriptions of both."""
    b = Broker(PAIR)
    b.ask("a", "create_queue", destination="queue:a")
    b.ask("b", "create_queue", destination="queue:b")
    for server in "ab":
        b.connect(server, server).subscribe("s", "topic:t", durable="d").close()
    ahead(b, *far)
    names = ["queue:a", "queue:b", "sub:a:d", "sub:b:d"]
    sender = b.connect("a")
    for destination in ("queue:a", "queue:b", "topic:t"):
        sender.send(destination, "mortal", expires=b.now + 60 * SECOND)
    wait(b, 50)
    assert [b.queue(name).messages.count for name in names] == [1] * 4
    wait(b, 20)
    assert [b.queue(name).messages.count for name in names] == [0] * 4


@pytest.mark.parametrize("far", ["a", "b", "ab"])
def test_a_message_is_delayed_as_long_as_its_client_says(far):
    b = Broker(PAIR)
    b.ask("a", "create_queue", destination="queue:a")
    b.ask("b", "create_queue", destination="queue:b")
    ahead(b, *far)
    for name in ("queue:a", "queue:b"):
        b.connect("a").send(name, "late", delay=60 * SECOND)
    wait(b, 50)
    assert seen(b, "queue:a") == seen(b, "queue:b") == []
    wait(b, 20)
    assert seen(b, "queue:a") == seen(b, "queue:b") == ["late"]


@pytest.mark.parametrize("home", ["a", "b"])
@pytest.mark.parametrize("far", ["a", "b", "ab"])
def test_a_consumer_sees_times_of_the_clock_that_is_right(far, home):
    b = Broker(PAIR)
    b.ask(home, "create_queue", destination="queue:in")
    reader = ahead(b, *far).connect("b").subscribe("s", "queue:in")
    b.connect("a").send("queue:in", "1", expires=b.now + 60 * SECOND)
    (given,) = reader.got
    assert (given.message.timestamp, given.expires) == (b.now, b.now + 60 * SECOND)


@pytest.mark.parametrize("home", ["a", "b"])
@pytest.mark.parametrize("far", ["", "a", "b", "ab"])
def test_a_consumer_sees_when_a_message_was_to_be_delivered(far, home):
    b = Broker(PAIR)
    b.ask(home, "create_queue", destination="queue:in")
    reader = ahead(b, *far).connect("b").subscribe("s", "queue:in")
    due = b.now + 60 * SECOND
    b.connect("a").send("queue:in", "1", delay=60 * SECOND).send("queue:in", "2")
    wait(b, 70)
    assert {given.body: given.due for given in reader.got} == {b"1": due, b"2": 0}


@pytest.mark.parametrize("far", ["a", "b", "ab"])
def test_a_notification_lives_as_long_as_its_sender_says(far):
    """If the sender is ahead, nobody knows how long it has been under way."""
    b = ahead(Broker(PAIR), *far)
    b.send("a", "source", Tell(["sink"], "in time", 60))
    assert b.fields("b/sink")["got"] == ["in time"]
    b.cut("a", "b")
    b.send("a", "source", Tell(["sink"], "late", 60))
    wait(b, 100)
    b.join("a", "b")
    b.pump()
    assert b.fields("b/sink")["got"] == (["in time"] if far == "b" else ["in time", "late"])


def test_status_says_by_how_much():
    b = Broker()
    assert b.ask("a", "status")["problems"] == []
    ahead(b, "a")
    assert "the time of a is 3650 days ahead of its machine's clock" in b.ask("a", "status")["problems"][0]


def test_a_server_that_starts_ten_years_later_begins_where_its_store_ends_and_its_status_warns():
    b = Broker(PAIR)
    b.connect("a").send("queue:in", "mortal", expires=b.now + 3600 * SECOND)
    stored = b.now
    b.crash("a")
    b.now += TEN_YEARS
    b.boot("a")
    server = b.servers["a"]
    assert server.tx.now == stored and b.queue("queue:in").messages.count == 1
    server.clock.behind = b.now - server.tx.now  # as the driver does
    (problem,) = status(server)["problems"]
    assert problem.startswith("the machine's clock is 3650 days ahead of the time of a: ")
