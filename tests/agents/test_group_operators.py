"""What operators see of groups, and of agents that wait for a place in a total order."""

import msgpack
import pytest

from mombroker.agents import Agent, reacts
from mombroker.agents.testing import Bus
from mombroker.broker.groups.group import Group
from mombroker.broker.groups.members import Members
from mombroker.broker.wire import pack
from tests.agents.test_groups import THREE, Do, Said, told


def test_placed_counts_what_a_group_has_had_in_total_order_whatever_restarts():
    """Not what nobody was there for, and not what needs no place."""
    bus = Bus(THREE)
    for each in "xy":
        told(bus, each, "join")
    placed = lambda: bus.ask("groups", server="a", empty=True)["groups"][0]["placed"]  # noqa: E731
    told(bus, "x", "total", "one two")
    told(bus, "y", "total", "three")
    told(bus, "z", "causal", "four")  # it is no member: its casts go by the home
    told(bus, "y", "causal", "five")
    assert placed() == 4
    bus.kill("a")
    bus.settle()
    assert placed() == 4
    told(bus, "y", "leave")  # another view
    told(bus, "x", "total", "six")
    assert placed() == 5
    told(bus, "x", "leave")
    told(bus, "z", "total", "seven")
    assert placed() == 5
    bus.ask("remove_group", server="a", group="ledger")
    told(bus, "x", "join")
    assert placed() == 0


def test_what_a_group_of_an_older_program_has_placed_in_its_view_is_counted():
    bus = Bus(THREE)
    told(bus, "x", "join")
    told(bus, "x", "total", "one two")
    server = bus._cluster.nodes["a"].server
    *older, _ = msgpack.unpackb(server.natives.agents["a/group:ledger"].pack())
    assert Group(server.clients, "a/group:ledger", pack(older)).placed == 2


@pytest.mark.parametrize("order", ["total", "causal"])
def test_why_names_who_waits_for_a_cast_of_its_own_with_nothing_behind_it(order):
    """`y` for its place, `z`, which is no member, for the group. Whoever more comes for is named once."""
    bus = Bus(THREE)
    for each in "xy":
        told(bus, each, "join")
    bus.kill("a", down=100)
    bus.send("y", Do(order if order == "total" else "total", "one"), server="b")
    bus.send("z", Do(order, "two"), server="c")
    bus.advance(5)
    for agent, behind in ("b/y", 0), ("c/z", 0), ("b/y", 1):
        if behind:
            bus.send("y", Do("total", "three"), server="b")
            bus.advance(1)
        (wait,) = (each for each in bus.ask("why", server=agent[0])["waits"] if each["kind"] != "link")
        assert (wait["kind"], wait["agent"], bool(wait["message"])) == ("cast", agent, bool(behind))
        assert wait["reason"] == "a cast of its own in group ledger has its place at a"
    bus.start("a")
    bus.settle()
    assert [bus.ask("why", server=each)["waits"] for each in "abc"] == [[], [], []]


def test_why_can_be_asked_when_a_cast_has_just_got_its_place(monkeypatch):
    """Nothing is left of its outbox, and it has not been told."""
    bus = Bus(THREE)
    told(bus, "x", "join")
    told(bus, "y", "join")
    goes_on, found = Members.goes_on, []

    def asked(self: Members, agent: str) -> None:
        goes_on(self, agent)
        if self.outboxes.of.get(agent) is not None:
            found.append(bus._cluster.nodes[agent[0]].server.clients.why())

    monkeypatch.setattr(Members, "goes_on", asked)
    told(bus, "y", "total", "one")
    assert found == [[]]


NEWS = {"match": "topic:news", "order": "total"}


class Reporter(Agent):
    @reacts
    def said(self, note: Said) -> None:
        self.publish("/topic/news", note.text)


def test_why_names_who_waits_for_the_place_of_what_it_has_published():
    bus = Bus({"a/x": Reporter, "b/y": Reporter}, policies=[NEWS])
    bus.send("x", Said("one"))
    bus.settle()
    bus.kill("a", down=100)
    bus.send("y", Said("two"), server="b")
    bus.advance(5)
    (wait,) = (each for each in bus.ask("why", server="b")["waits"] if each["kind"] != "link")
    assert (wait["kind"], wait["agent"], wait["message"]) == ("cast", "b/y", "")
    assert wait["reason"] == "what it has published to topic:news has its place at a"
