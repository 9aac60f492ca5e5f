"""Agents by a pattern of names: each is made by the first that comes for it."""

import pytest

from mombroker.broker.commands import Ask
from mombroker.core.topology import AgentDecl, TopologyError
from tests.agents.virtual_agents import Hit
from tests.broker.bench import Broker
from tests.core.bus import topology

CLASS = "tests.agents.virtual_agents:Counter"


def bus(**more):
    made = topology({"x": "ab", "y": "bc"}, **more)
    made.agents.append(AgentDecl("limit-*", "c", CLASS, {"limit": 3}))
    return Broker(made)


def agents_of(b, server="c"):
    return [each["agent"] for each in b.ask(server, "agents")["agents"] if "queue" not in each["agent"]]


def test_one_is_made_at_its_first_message_by_name_wherever_that_is_sent():
    b = bus()
    born = b.connect("a").subscribe("s", "queue:born")
    assert agents_of(b) == []
    for server, name in (("a", "limit-ann"), ("b", "limit-bob"), ("c", "limit-ann"), ("a", "c/limit-ann")):
        b.send(server, name, Hit())
    assert agents_of(b) == ["c/limit-ann", "c/limit-bob"] and born.texts == ["c/limit-ann", "c/limit-bob"]
    assert b.fields("c/limit-ann")["hits"] == 3 and b.fields("c/limit-ann")["limit"] == 3
    assert len(b.fields("c/limit-ann")["born"]) == 1
    b.reboot("c")
    b.send("c", "limit-ann", Hit())
    assert b.fields("c/limit-ann")["hits"] == 4 and born.texts == ["c/limit-ann", "c/limit-bob"]
    assert [record["agent"] for record in b.records("c", "create") if "limit" in record["agent"]] == [
        "c/limit-ann", "c/limit-bob",
    ]  # fmt: skip


def test_one_whose_first_reaction_fails_does_not_exist():
    b = bus()
    born = b.connect("a").subscribe("s", "queue:born")
    b.send("a", "limit-x", Hit("bad"))
    for _ in range(6):
        b.later(100)
    assert agents_of(b) == [] and born.texts == [] and b.ask("c", "deadletters")["count"] == 1
    b.send("a", "limit-x", Hit())
    assert b.fields("c/limit-x")["hits"] == 1 and born.texts == ["c/limit-x"]


def test_one_that_is_deleted_is_made_anew_and_a_client_can_ask_for_it():
    b = bus()
    b.send("a", "limit-x", Hit("die"))
    assert agents_of(b) == []
    born = len(b.records("c", "create"))
    b.ask("a", "delete", agent="limit-x")
    assert agents_of(b) == [] and len(b.records("c", "create")) == born
    b.connect("a").do(Ask("agent:limit-x", b"{}", shown="agent:limit-x", type="tests.virtual.Hit"))
    assert b.fields("c/limit-x")["hits"] == 1


def test_no_other_name_is_theirs():
    b = bus()
    b.send("a", "c/limited", Hit())
    b.send("a", "b/limit-x", Hit())
    assert agents_of(b, "b") == [] and agents_of(b) == []
    assert b.ask("b", "deadletters")["count"] + b.ask("c", "deadletters")["count"] == 2


def test_a_pattern_has_its_star_at_the_end():
    made = topology({"x": "ab"})
    made.agents.append(AgentDecl("li*it", "a", CLASS, {"limit": 3}))
    with pytest.raises(TopologyError, match=r"\* at the end"):
        made.validate()
