"""A server that is drained: what is new is made elsewhere, what can move moves, and the rest is told."""

from __future__ import annotations

from tests.broker.bench import THREE, Broker
from tests.core.bus import topology


def holdings(b: Broker, server: str = "a") -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in b.ask(server, "holdings")["holdings"]]


def test_queues_subscriptions_and_agents_move_and_the_rest_is_told():
    b = Broker(topology({"x": "abc"}, {"a/sink": "tests.core.sample_agents:Sink"}))
    client = b.connect("a", client_id="me").send("queue:one", "1").send("queue:two", "2")
    client.subscribe("s", "topic:t", durable="d").subscribe("p", "temp-queue:" + client.session + "/r")
    assert b.ask("a", "drain", to="b") == {"server": "a", "draining": "b", "moving": 4}
    b.pump()
    told = holdings(b)
    assert told[0][0] == "queue" and told[0][1].startswith("temp-queue:")
    assert told[1:] == [("connections", "")]
    assert {server.homes.home("a/sink") for server in b.servers.values()} == {"b"}
    assert {id for name, id in b.servers["c"].names.known.items() if ":" in name} == {
        "b/queue:one", "b/queue:two", "b/sub:me:d"
    }  # fmt: skip
    client.close()
    assert holdings(b) == []


def test_an_agent_that_its_new_home_refuses_stays_and_is_told_with_the_reason():
    b = Broker(topology({"x": "abc"}, {"a/sink": "tests.core.sample_agents:Sink"}))
    b.ask("b", "drain", to="c")
    b.ask("a", "drain", to="b")
    assert b.ask("a", "drain") == {"server": "a", "draining": "b", "moving": 0}
    (held,) = b.ask("a", "holdings")["holdings"]
    assert (held["kind"], held["name"], held["moving"]) == ("agent", "a/sink", "")
    assert held["waits_for"] == "b is drained, and takes nothing new: move it to c"
    b.ask("a", "drain", to="c")
    assert not b.ask("a", "holdings")["holdings"]


def test_what_is_new_is_made_elsewhere_also_after_a_restart_until_that_is_ended():
    b = Broker(THREE)
    client = b.connect("a")
    b.ask("a", "drain", to="b")
    client.send("queue:first", "1")
    assert "is drained, and takes nothing new: make queue:x on b" in b.ask("a", "create_queue", destination="queue:x")
    b.reboot("a")
    assert "make queue:x on b" in b.ask("a", "create_queue", destination="queue:x")
    b.ask("a", "drain", end=True)
    b.connect("a").send("queue:third", "1")
    known = b.servers["c"].names.known
    assert {name: id.partition("/")[0] for name, id in known.items()} == {
        "queue:first": "b", "queue:third": "a"
    }  # fmt: skip


def test_it_needs_another_server():
    b = Broker(THREE)
    assert "name a server by --to" in b.ask("a", "drain")
    assert "cannot be drained to itself" in b.ask("a", "drain", to="a")
    assert "not a server of this bus" in b.ask("a", "drain", to="z")
    assert b.ask("a", "holdings")["draining"] == ""


def test_no_client_connects_to_it_and_those_that_are_there_go_on():
    b = Broker(THREE)
    early = b.connect("a")
    b.ask("a", "drain", to="b")
    late = b.connect("a").do()
    assert late.refusals == ["a is drained: connect to another server"] and late.told[-1].elsewhere
    early.send("queue:orders", "1")
    assert b.connect("b").subscribe("s", "queue:orders").texts == ["1"]
    assert any("a is drained to b: it lets no client in" in each for each in b.ask("a", "status")["problems"])
    b.ask("a", "drain", end=True)
    assert not b.connect("a").send("queue:orders", "2").refusals
    assert not b.ask("a", "status")["problems"]
