"""Members whose own code fails where a view is to be reacted to."""

from typing import Any

import pytest

from mombroker.agents import View, reacts
from mombroker.agents.testing import Bus
from tests.agents.test_groups import Do, Ledger, told
from tests.fakes_groups import broken

FAILS: set[str] = set()  # what fails of the classes here


class Fallible(Ledger):
    @reacts
    def viewed(self, note: View) -> None:
        self.views.append([note.number, note.members, note.joined, note.left])
        self._may_fail("viewed")

    def snapshot(self, group: str) -> Any:
        self._may_fail("snapshot")
        return super().snapshot(group)

    def restore(self, group: str, state: Any) -> None:
        super().restore(group, state)
        self._may_fail("restore")

    def _may_fail(self, what: str) -> None:
        if {what, f"{what} of {self.id}"} & FAILS:
            raise ArithmeticError(f"no {what}")


@pytest.fixture(autouse=True)
def _all_works_again():
    yield
    FAILS.clear()


@pytest.mark.parametrize("what", ["snapshot", "viewed of a/x", "restore", "viewed of b/y"])
@pytest.mark.parametrize("killed", ["", "a", "b"])
def test_a_state_that_cannot_be_given_or_taken_is_given_when_that_is_mended(what, killed):
    bus = Bus({"a/x": Fallible, "b/y": Fallible})
    told(bus, "x", "join")
    told(bus, "x", "causal", "one two")
    FAILS.add(what)
    bus.send("y", Do("join"))
    bus.advance(60)
    assert any("ArithmeticError" in each["reason"] for each in bus.deadletters())
    told(bus, "x", "total", "three")
    assert bus.state("x")["heard"] == ["one", "two", "three"] and bus.state("y")["heard"] == []
    if killed:
        bus.kill(killed)
    FAILS.clear()
    bus.advance(1200)
    told(bus, "y", "causal", "four")
    assert bus.state("y")["heard"] == bus.state("x")["heard"] == ["one", "two", "three", "four"]
    assert bus.state("y")["views"][-1][1] == ["a/x", "b/y"]
    bus.check()


@pytest.mark.parametrize("what", ["snapshot", "restore"])
def test_without_giving_up_who_has_no_state_would_have_none_for_ever(what):
    with broken("waits for who has failed"):
        bus = Bus({"a/x": Fallible, "b/y": Fallible})
        told(bus, "x", "join")
        told(bus, "x", "causal", "one")
        FAILS.add(what)
        bus.send("y", Do("join"))
        bus.advance(60)
        FAILS.clear()
        bus.advance(1200)
        assert bus.state("y")["heard"] == []


def test_an_agent_that_is_given_up_since_its_class_is_missing_leaves(monkeypatch):
    bus = Bus({"a/x": Fallible, "b/y": Fallible})
    told(bus, "x", "join")
    told(bus, "y", "join")
    bus.kill("b", down=1)
    monkeypatch.delattr(f"{__name__}.Fallible")
    for node in bus._cluster.nodes.values():
        node.program._classes.clear()
    bus.send("y", Do("leave"), server="a")
    bus.advance(5)
    assert "b/y" in [each["agent"] for each in bus.ask("status", server="b")["stuck"]]
    bus.ask("delete", agent="y", server="b")
    bus.advance(5)
    assert [each["agent"] for each in bus.ask("group", group="ledger", server="a")["members"]] == ["a/x"]
    bus.check()
