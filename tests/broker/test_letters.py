"""Dead letters of destinations and agents, and to whom they go when somebody sends them again."""

from __future__ import annotations

from typing import Any

import pytest

from mombroker.admin.reset import plan
from mombroker.broker.message import ClientMessage
from mombroker.core.status import why
from mombroker.store.memory import MemoryStore
from tests.broker.bench import THREE, Broker
from tests.core.bus import topology
from tests.core.sample_agents import Tell

SAMPLES = "tests.core.sample_agents"
AGENTS = {"a/source": f"{SAMPLES}:Source", "a/sink": f"{SAMPLES}:Sink", "c/far": f"{SAMPLES}:Sink"}
ROW = topology({"x": "ab", "y": "bc"}, AGENTS, allow=("tests",))


def lose(b: Broker, lost: str) -> dict[str, Any]:
    """Its store is gone: the four steps of docs/operate.md."""
    b.pump()
    for name in list(b.servers):
        b.crash(name)
    b.stores[lost] = MemoryStore(b.topology, lost, "a new store")
    made = plan(b.topology, lost, b.stores, b.program, b.now)
    made.commit(b.stores)
    report = made.report.as_dict()
    b.down.clear()
    for name in b.topology.servers:
        b.boot(name)
    b.pump()
    return report


def letters(b: Broker, server: str) -> list[dict[str, Any]]:
    return b.ask(server, "deadletters")["letters"]


def retry(b: Broker, server: str, **more: Any) -> list[Any]:
    return [b.ask(server, "retry", id=letter["id"], **more) for letter in letters(b, server)]


def under_way(b: Broker) -> None:
    """c has a queue, and messages for it wait in b: then its store is lost."""
    b.connect("c").send("queue:in", "there")
    b.cut("b", "c")
    b.connect("a").send("queue:in", "1", "2", expires=b.now + 10**9)


def test_letters_of_a_reset_come_to_a_queue_of_the_name_that_is_made_for_them():
    b = Broker(ROW)
    under_way(b)
    report = lose(b, "c")
    assert [(dead["at"], dead["agent"]) for dead in report["dead"]] == [("b", "c/queue:in")] * 2
    b.later(2)
    assert [reply["to"] for reply in retry(b, "b")] == [["queue:in"]] * 2
    assert b.connect("c").subscribe("s", "queue:in").texts == ["1", "2"]
    assert letters(b, "b") == []


def test_they_come_to_the_queue_that_was_born_elsewhere_meanwhile():
    b = Broker(ROW)
    under_way(b)
    lose(b, "c")
    b.connect("a").send("queue:in", "0")
    assert b.servers["c"].names.known["queue:in"] == "a/queue:in"
    retry(b, "b")
    assert b.connect("c").subscribe("s", "queue:in").texts == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["other", "/queue/other", "queue:other"])
def test_or_to_the_one_that_an_operator_names(name):
    b = Broker(ROW)
    under_way(b)
    lose(b, "c")
    assert [reply["to"] for reply in retry(b, "b", target=name)] == [["queue:other"]] * 2
    assert b.queue("queue:other").messages.count == 2 and "queue:in" not in b.servers["a"].names.known


def test_a_letter_stays_where_it_is_when_it_cannot_be_sent():
    b = Broker(ROW)
    under_way(b)
    lose(b, "c")
    assert "/topic/t" in retry(b, "b", target="/topic/t")[0]
    assert len(letters(b, "b")) == 2


def test_what_was_published_comes_to_the_subscriptions_that_were_made_since():
    b = Broker(ROW)
    b.connect("c", "me").subscribe("s", "topic:t", durable="d")
    b.cut("b", "c")
    b.connect("a").send("topic:t", "1")
    report = lose(b, "c")
    assert [dead["agent"] for dead in report["dead"]] == ["c/_topics"] and report["names"] == ["sub:me:d"]
    reader = b.connect("c", "me").subscribe("s", "topic:t", durable="d")
    retry(b, "b")
    assert reader.texts == ["1"] and letters(b, "b") == []


def test_the_letter_of_an_agent_goes_to_who_has_its_name():
    b = Broker(ROW)
    b.ask("a", "deploy", **{"name": "far.2", "class": f"{SAMPLES}:Sink", "server": "c"})
    b.cut("b", "c")
    b.send("a", "source", Tell(["far", "far.2"], "1"))
    lose(b, "c")
    assert [letter["agent"] for letter in letters(b, "b")] == ["c/far", "c/far.2"]
    assert "no agent is named far.2" in retry(b, "b")[1]
    b.ask("a", "deploy", **{"name": "far.2", "class": f"{SAMPLES}:Sink", "server": "a"})
    assert [reply["to"] for reply in retry(b, "b")] == [["a/far.2"]]
    assert b.fields("c/far")["got"] == b.fields("a/far.2")["got"] == ["1"]


def test_the_letter_of_an_agent_goes_to_another_agent():
    b = Broker(ROW)
    b.cut("b", "c")
    b.send("a", "source", Tell(["far"], "1"))
    lose(b, "c")
    assert [reply["to"] for reply in retry(b, "b", target="sink")] == [["a/sink"]]
    assert b.fields("a/sink")["got"] == ["1"]


def test_a_server_with_a_new_store_knows_what_the_others_know_and_they_wait_for_nothing_of_it():
    """It is told of no subscription, policy or user again: they have told it before its store was lost."""
    b = Broker(ROW)
    b.connect("a", "me").subscribe("s", "topic:t", durable="d").close()
    b.ask("b", "set_policy", match="queue:in", values={"max_messages": 7})
    b.ask("a", "set_user", user="ann", hash="x", new=True)
    taker = b.connect("c", "it").subscribe("s", "topic:u", durable="gone").send("queue:in", "1")
    b.connect("a").send("queue:mine", "2")
    taker.subscribe("q", "queue:mine", ack="individual")
    b.cut("b", "c")
    b.connect("b").subscribe("s", "topic:v", receipt="r")
    lose(b, "c")
    assert b.servers["c"].clients.policies.of("queue:in").max_messages == 7
    assert b.stores["c"].meta()["user:ann"] == '["x", [], {}]'
    b.connect("c").send("topic:t", "1")
    assert b.queue("sub:me:d").messages.count == 1
    assert not [key for name in "abc" for key in b.stores[name].meta() if key.startswith("topic:c:")]
    assert b.queue("queue:mine").messages.ready == 1  # its client is gone
    asker = b.connect("b").subscribe("s", "topic:t", receipt="r")
    assert asker.receipts == ["r"] and asker.told[0].unconfirmed == ""
    assert not [wait for server in b.servers.values() for wait in why(server)]


def test_what_waits_for_a_name_is_not_overtaken_in_the_turn_in_which_that_is_decided():
    b = Broker(THREE)
    b.pump()
    server = b.servers["b"]

    def send(text: str) -> None:
        server.clients.send_by_name(
            ClientMessage("queue:DLQ.late", "/queue/DLQ.late", body=text.encode()), "b/queue:late"
        )

    known = server.names.on_known

    def decided(name: str) -> None:
        known(name)
        send("2")

    server.names.on_known = decided
    send("1")
    b.pump()
    send("3")
    b.pump()
    assert b.connect("c").subscribe("s", "queue:DLQ.late").texts == ["1", "2", "3"]
