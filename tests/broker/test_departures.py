"""A server has left the bus, and others still refer to what lived there: one client is told, or there is a dead letter,
and nobody else notices."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from mombroker.broker.commands import Send, Transact
from mombroker.core.topology import Topology
from tests.broker.bench import Broker, Client
from tests.core.bus import adopt, topology
from tests.core.sample_agents import Tell

AGENTS = {"a/source": "tests.core.sample_agents:Source", "a/sink": "tests.core.sample_agents:Sink"}
WHOLE = topology({"x": "ab", "y": "bc"}, AGENTS)
LEFT = topology({"x": "ab"}, AGENTS)  # without c, and what is left goes on under the same clocks
GONE = "lived on c, which has left this bus: take another name, or stop the bus and withdraw this one by `mom topology"


def without_c(b: Broker, left: Topology = LEFT) -> None:
    """All are stopped, and start again under a topology without c."""
    for name in list(b.servers):
        b.crash(name)
    b.topology = left
    for name in left.servers:
        adopt(b.stores[name], left, name)
        b.boot(name)
    b.pump()


def letters(b: Broker, server: str = "a") -> list[tuple[str, str]]:
    return [(each["agent"], each["reason"]) for each in b.ask(server, "deadletters")["letters"]]


def works(b: Broker) -> None:
    """Clients of both servers go on."""
    reader = b.connect("b").subscribe("s", "queue:other")
    b.connect("a").send("queue:other", "goes on", receipt="r")
    assert reader.texts == ["goes on"]
    for server in "ab":  # over a restart, too
        b.reboot(server)


def refused(client: Client, *words: str) -> None:
    (reason,) = client.refusals
    assert all(word in reason for word in (*words, GONE)), reason


def test_a_dead_letter_whose_queue_is_gone_is_a_dead_letter_of_its_server():
    b = Broker(WHOLE)
    b.connect("c").send("queue:DLQ.orders", "there")
    b.connect("a").send("queue:orders", "there")
    without_c(b)
    b.connect("a").send("queue:orders", "late", expires=b.now + 1000, receipt="r")
    b.later(1)
    assert letters(b) == [("c/queue:DLQ.orders", "its home c is not on this bus, or has left it")]
    works(b)
    assert len(letters(b)) == 1


@pytest.mark.parametrize("kind", ["queue", "durable", "shared"])
def test_a_consumer_of_what_has_left_gets_an_error_and_nobody_else_notices(kind):
    b = Broker(WHOLE)
    more = {} if kind == "queue" else {"durable": "d", "shared": kind == "shared"}
    where = "queue:in" if kind == "queue" else "topic:t"
    b.connect("c", "me").subscribe("s", where, **more)
    without_c(b)
    for server in "ab" * 3:
        client = b.connect(server, "me").subscribe("s", where, receipt="r", **more)
        refused(client, "queue:in" if kind == "queue" else "sub:me:d")
        assert not client.receipts
    works(b)


def test_a_message_for_a_queue_that_has_left_is_refused():
    b = Broker(WHOLE)
    b.connect("c").send("queue:in", "1")
    without_c(b)
    client = b.connect("a").send("queue:in", "2", receipt="r")
    refused(client, "queue:in")
    assert letters(b) == [] and not client.receipts
    works(b)


def test_a_transaction_with_such_a_message_does_nothing():
    b = Broker(WHOLE)
    b.connect("c").send("queue:in", "1")
    b.connect("a").send("queue:here", "1")
    without_c(b)
    sends: list[Any] = [Send(where, b"2", shown=where) for where in ("queue:here", "queue:in")]
    refused(b.connect("a").do(Transact(sends, "r")), "queue:in")
    assert b.queue("queue:here").messages.count == 1
    works(b)


def test_ending_a_durable_subscription_that_has_left_is_refused():
    b = Broker(WHOLE)
    b.connect("c", "me").subscribe("s", "topic:t", durable="d")
    without_c(b)
    refused(b.connect("a", "me").unsubscribe("", durable="d", delete=True, receipt="r"), "'d'")
    works(b)


def test_a_temporary_queue_that_has_left_is_refused():
    b = Broker(WHOLE)
    asker = b.connect("c").subscribe("s", "temp-queue:c/s1/answers")
    destination = f"temp-queue:{asker.session}/answers"
    without_c(b)
    client = b.connect("a").send(destination, "answer", receipt="r")
    assert "no route from a to 'c'" in client.refusals[0]
    works(b)


def test_a_topic_goes_on_without_the_subscriptions_that_have_left():
    b = Broker(WHOLE)
    b.connect("c", "me").subscribe("s", "topic:t", durable="d")
    b.connect("b", "me").subscribe("s", "topic:t", durable="mine")
    without_c(b)
    b.connect("a").send("topic:t", "1", receipt="r")
    assert b.queue("sub:me:mine").messages.count == 1
    assert not [key for key in b.stores["a"].meta() if key.startswith("topic:c:")]
    client = b.connect("a").subscribe("s", "topic:new", receipt="r")
    assert client.receipts == ["r"] and client.told[0].unconfirmed == ""  # nobody waits for c to know of it
    works(b)


def test_what_clients_of_a_server_that_has_left_held_comes_back():
    b = Broker(WHOLE)
    b.connect("a").send("queue:in", "1", "2", "3")
    taker = b.connect("c").subscribe("s", "queue:in", ack="individual", prefetch=2)
    assert taker.texts == ["1", "2"]
    without_c(b)
    assert b.queue("queue:in").messages.ready == 3 and not b.queue("queue:in").consumers.consumers
    assert b.connect("b").subscribe("s", "queue:in").texts == ["1", "2", "3"]
    works(b)


def test_a_durable_subscription_that_was_leaving_a_client_of_such_a_server_is_given_again():
    """The one on c was to say that nothing is under way to it any more."""
    b = Broker(WHOLE)
    b.connect("a", "me").subscribe("s", "topic:t", durable="d").close()
    taker = b.connect("c", "me").subscribe("s", "topic:t", durable="d", ack="individual")
    b.connect("a").send("topic:t", "1")
    b.cut("b", "c")
    b.connect("a", "me").subscribe("s", "topic:t", durable="d", ack="individual")
    assert taker.texts == ["1"]
    without_c(b)
    assert b.connect("b", "me").subscribe("s", "topic:t", durable="d").texts == ["1"]
    works(b)


def test_a_connection_that_was_lost_with_its_server_leaves_what_has_left():
    """Its saved proxy would tell the home of its queue at each start."""
    b = Broker(WHOLE)
    b.connect("c").send("queue:in", "1")
    b.connect("a").subscribe("s", "queue:in", ack="individual")
    assert [agent for agent in b.stores["a"].disk.agents if "conn:" in agent]
    without_c(b)
    assert not [agent for agent in b.stores["a"].disk.agents if "conn:" in agent]
    works(b)


def test_the_registry_has_left_and_another_decides_from_then_on():
    """Its policies stay, and one that is set now goes before them, though the ids of its successor are lower."""
    b = Broker(replace(WHOLE, registry="c", checked=True))
    b.connect("a").send("queue:old", "1")
    b.servers["c"].tx.new_id = count(1_000_000).__next__
    b.ask("a", "set_policy", match="queue:*", values={"max_messages": 1})
    without_c(b, replace(LEFT, registry="b", checked=True))
    assert b.connect("b").send("queue:new", "1", receipt="r").receipts == ["r"]
    b.ask("a", "set_policy", match="queue:n*", values={"max_messages": 2})
    for name in "ab":
        b.reboot(name)
    for server in b.servers.values():
        of = server.clients.policies.of
        assert (of("queue:new").max_messages, of("queue:old").max_messages) == (2, 1)
    works(b)


def test_an_operator_reads_that_a_destination_has_left():
    b = Broker(WHOLE)
    b.connect("c").send("queue:in", "1")
    b.connect("c").send("queue:here", "1")
    b.ask("c", "create_topic", destination="topic:t")
    b.connect("a").send("queue:mine", "1")
    without_c(b)
    for verb, args in (
        ("destination", {"destination": "queue:in"}),
        ("purge", {"destination": "queue:in"}),
        ("delete_topic", {"destination": "topic:t"}),
        ("create_queue", {"destination": "queue:in"}),
        ("move", {"destination": "queue:mine", "target": "queue:in"}),
    ):
        assert GONE in b.ask("a", verb, **args), verb
    assert b.queue("queue:mine").messages.count == 1
    works(b)


def test_an_agent_of_a_server_that_has_left_is_a_refusal_to_who_asks_and_a_dead_letter_of_who_sends():
    """The reaction that sends to it, and to others, is none the worse; its agent is told."""
    b = Broker(WHOLE)
    b.ask("a", "deploy", **{"name": "far", "class": "tests.core.sample_agents:Sink", "server": "c"})
    without_c(b)
    assert GONE in b.send("a", "far", Tell([], "1")) and GONE in b.ask("a", "home", agent="far")
    assert "no route from a to 'c'" in b.send("a", "c/far", Tell([], "1"))
    b.send("a", "source", Tell(["far", "sink", "nowhere/x"], "1"))
    assert [agent for agent, _ in letters(b)] == ["c/far", "nowhere/x"]
    assert b.fields("a/sink")["got"] == ["1"] and b.ask("a", "status")["failures"] == 0
    reason = "its home c is not on this bus, or has left it"
    assert f"UnknownAgent c/far {reason}" in b.fields("a/source")["news"]
    works(b)
