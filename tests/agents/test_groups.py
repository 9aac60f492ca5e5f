"""Groups of agents, as an author writes and tests them."""

from typing import Any

from mombroker.agents import Agent, View, notification, reacts
from mombroker.agents.testing import Bus


@notification
class Do:
    """Something, in a group."""

    what: str
    text: str = ""


@notification
class Said:
    text: str


class Member(Agent):
    heard: list[str] = []  # noqa: RUF012 - its state
    senders: list[str] = []  # noqa: RUF012
    views: list[list[Any]] = []  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        ledger = self.group("ledger")
        if note.what == "join":
            self.join("ledger")
        elif note.what == "leave":
            self.leave("ledger")
        else:
            for text in note.text.split():
                ledger.cast(Said(text), order=note.what)

    @reacts
    def said(self, note: Said) -> None:
        self.heard.append(note.text)
        self.senders.append(self.sender)

    @reacts
    def viewed(self, note: View) -> None:
        self.views.append([note.number, note.members, note.joined, note.left])


class Ledger(Member):
    """A new one has what the others have heard."""

    def snapshot(self, group: str) -> Any:
        return {"heard": self.heard, "of": group}

    def restore(self, group: str, state: Any) -> None:
        assert state["of"] == group
        self.heard = state["heard"]


THREE = {"a/x": Ledger, "b/y": Ledger, "c/z": Ledger}


def told(bus: Bus, agent: str, what: str, text: str = "") -> None:
    bus.send(agent, Do(what, text))
    bus.settle()


def test_members_get_views_and_casts():
    bus = Bus({"a/x": Member, "b/y": Member, "c/o": Member})
    told(bus, "x", "join")
    told(bus, "y", "join")
    told(bus, "y", "causal", "one")
    told(bus, "o", "causal", "two")
    told(bus, "x", "leave")
    told(bus, "y", "causal", "three")
    assert bus.state("x")["views"] == [
        [1, ["a/x"], ["a/x"], []],
        [2, ["a/x", "b/y"], ["b/y"], []],
        [3, ["b/y"], [], ["a/x"]],
    ]
    assert bus.state("y")["views"] == bus.state("x")["views"][1:]
    assert (bus.state("x")["heard"], bus.state("x")["senders"]) == (["one", "two"], ["b/y", "c/o"])
    assert bus.state("y")["heard"] == ["one", "two", "three"]
    bus.check()


def test_a_new_member_begins_with_the_state_of_the_eldest_one():
    bus = Bus(THREE)
    told(bus, "x", "join")
    told(bus, "x", "causal", "one two")
    told(bus, "y", "join")
    told(bus, "y", "total", "three")
    told(bus, "z", "join")
    assert [bus.state(each)["heard"] for each in "xyz"] == [["one", "two", "three"]] * 3
    assert bus.state("z")["views"] == [[3, ["a/x", "b/y", "c/z"], ["c/z"], []]]
    bus.check()


def test_a_total_order_is_one_at_all_members():
    bus = Bus(THREE, servers=["d"])
    for each in "xyz":
        told(bus, each, "join")
    for each in "xyz":
        bus.send(each, Do("total", f"{each}1 {each}2 {each}3"))
    bus.settle()
    orders = [bus.state(each)["heard"] for each in "xyz"]
    assert len(orders[0]) == 9 and orders == [orders[0]] * 3
    bus.check()


def test_a_member_whose_server_was_killed_has_missed_nothing():
    for seed in range(3):
        bus = Bus(THREE, seed=seed)
        for each in "xyz":
            told(bus, each, "join")
        bus.kill("b")
        bus.send("x", Do("causal", "one two"), server="a")
        bus.send("z", Do("leave"), server="c")
        bus.send("x", Do("causal", "three"), server="a")
        bus.settle()
        assert bus.state("x")["heard"] == bus.state("y")["heard"] == ["one", "two", "three"]
        assert bus.state("z")["heard"] in (["one", "two"], ["one", "two", "three"])
        bus.check()


def test_an_agent_that_is_deleted_leaves():
    class_of = {"a/x": Ledger, "b/y": Leaver}
    bus = Bus(class_of)
    told(bus, "x", "join")
    told(bus, "y", "join")
    told(bus, "y", "end")
    assert bus.state("x")["views"][-1] == [3, ["a/x"], [], ["b/y"]]


class Leaver(Ledger):
    @reacts
    def do(self, note: Do) -> None:
        if note.what == "end":
            self.delete()
        else:
            super().do(note)


def test_a_member_does_not_move_to_another_server():
    bus = Bus(THREE)
    told(bus, "x", "join")
    try:
        bus.ask("move_agent", agent="x", to="b")
    except Exception as error:
        assert "is a member of group ledger: it moves once it has left that" in str(error)
    else:
        raise AssertionError("it moves")
