"""Groups of agents, as an author writes and tests them."""

from typing import Any

import pytest

from mombroker.agents import Agent, MemberDown, MemberUp, NotDelivered, View, notification, reacts
from mombroker.agents.testing import Bus
from mombroker.core.errors import MomError
from mombroker.core.groups.home import MOST_WISHES, Home
from mombroker.core.limits import Limits
from tests.fakes_groups import broken


@notification
class Do:
    """Something, in a group."""

    what: str
    text: str = ""


@notification
class Said:
    text: str


@notification
class In:
    group: str
    text: str


class Member(Agent):
    heard: list[str] = []  # noqa: RUF012 - its state
    senders: list[str] = []  # noqa: RUF012
    views: list[list[Any]] = []  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        ledger = self.group("ledger")
        if {*note.what.split()} <= {"join", "leave"}:
            for what in note.what.split():
                self.join("ledger") if what == "join" else self.leave("ledger")
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


def small_window(monkeypatch):
    made = Limits.__init__
    monkeypatch.setattr(Limits, "__init__", lambda limits, **given: made(limits, **given, cast_window=130))


def test_a_group_that_all_have_left_is_shown_no_more_and_its_views_go_on_when_it_is_joined_again():
    bus = Bus({"a/x": Member, "b/y": Member})
    told(bus, "x", "join")
    told(bus, "y", "join")
    assert [each["group"] for each in bus.ask("groups", server="a")["groups"]] == ["ledger"]
    told(bus, "x", "leave")
    told(bus, "y", "leave")
    assert bus.ask("groups", server="a")["groups"] == []
    assert [each["size"] for each in bus.ask("groups", server="a", empty=True)["groups"]] == [0]
    told(bus, "y", "join")
    (row,) = bus.ask("groups", server="a")["groups"]
    assert (row["size"], row["view"]) == (1, 5) and bus.state("y")["views"][-1][:2] == [5, ["b/y"]]
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


def test_who_was_deleted_while_a_view_was_made_is_not_to_give_its_state_in_it():
    bus = Bus({"a/x": Leaver, "b/y": Ledger, "c/z": Ledger}, servers=["d"])
    for each in "xy":
        told(bus, each, "join")
    told(bus, "y", "causal", "one")
    bus.kill("b", down=5)
    bus.send("z", Do("join"), server="c")
    bus.advance(1)
    bus.send("x", Do("end"), server="a")
    bus.settle()
    assert bus.state("z")["heard"] == ["one"]
    assert bus.state("y")["views"][-1][1] == ["b/y", "c/z"]
    bus.check()


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


def test_an_operator_sees_who_holds_up_a_view_and_goes_on_without():
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    bus.kill("c", down=float("inf"))
    bus.send("y", Do("leave"), server="b")
    bus.advance(5)
    home = bus.ask("groups", server="a")["groups"]
    assert home == [
        {"group": "ledger", "home": "a", "view": 3, "size": 3, "changes": True, "waits_for": ["c"], "placed": 0}
    ]
    assert bus.ask("group", server="a", group="ledger")["leaving"] == ["b/y"]
    waits = [each for each in bus.ask("why", server="a")["waits"] if each["kind"] == "view"]
    assert waits == [{"kind": "view", "group": "ledger", "number": 4, "waits_for": ["c"]}]
    assert bus.ask("exclude_member", server="a", group="ledger", agent="c/z")["excluded"] == "c/z"
    bus.advance(5)
    assert bus.state("x")["views"][-1] == [4, ["a/x"], [], ["b/y", "c/z"]]
    bus.start("c")
    bus.settle()
    assert bus.state("z")["views"][-1] == bus.state("x")["views"][-1]
    told(bus, "z", "join")
    assert bus.state("x")["views"][-1][:2] == [5, ["a/x", "c/z"]]
    bus.check()


def test_who_changes_its_mind_more_than_once_is_in_each_view_that_follows():
    bus = Bus({"a/x": Member, "b/y": Member, "c/z": Member})
    told(bus, "x", "join")
    told(bus, "y", "join")
    told(bus, "x", "leave join leave")
    told(bus, "z", "join")
    assert [view[1] for view in bus.state("x")["views"]] == [
        ["a/x"], ["a/x", "b/y"], ["b/y"], ["b/y", "a/x"], ["b/y"]
    ]  # fmt: skip
    assert bus.state("z")["views"][-1][1] == ["b/y", "c/z"]
    bus.check()


@pytest.mark.parametrize("last", ["join", "leave"])
@pytest.mark.parametrize("inside", [False, True])
def test_who_goes_to_and_fro_while_a_view_waits_does_not_make_a_view_of_each(inside, last):
    bus = Bus({"a/x": Member, "b/y": Member, "c/z": Member})
    for each in "xyz" if inside else "xy":
        told(bus, each, "join")
    bus.kill("b", down=float("inf"))
    bus.send("x", Do("leave"), server="a")
    bus.advance(1)
    for _ in range(20):
        bus.send("z", Do("leave leave join join " * 10 + last), server="c")
        bus.advance(0.1)
    assert 10 < len(bus.ask("group", group="ledger", server="a")["wishes"]) <= MOST_WISHES
    bus.start("b")
    bus.settle()
    assert bus.state("y")["views"][-1][1] == (["b/y", "c/z"] if last == "join" else ["b/y"])
    told(bus, "z", "leave" if last == "join" else "join")
    assert bus.state("y")["views"][-1][1] == (["b/y"] if last == "join" else ["b/y", "c/z"])
    bus.check()


def test_what_a_member_casts_after_it_was_excluded_comes_back_to_it():
    bus = Bus({"a/x": Member, "b/y": Member, "c/z": Teller})
    for each in "xyz":
        told(bus, each, "join")
    for other in "ab":
        bus.cut("c", other)
    bus.send("z", Do("causal", "late"), server="c")
    bus.ask("exclude_member", server="a", group="ledger", agent="c/z")
    bus.advance(5)
    assert bus.state("x")["views"][-1][1] == ["a/x", "b/y"]
    for other in "ab":
        bus.heal("c", other)
    bus.settle()
    assert bus.state("x")["heard"] == bus.state("y")["heard"] == []
    assert bus.state("z")["back"] == [
        ["ledger", "late", "its sender was out of the view: no member of the next one has it"]
    ]


def test_a_cast_to_a_group_without_members_comes_back():
    bus = Bus({"a/x": Member, "b/z": Teller})
    told(bus, "x", "join")
    told(bus, "x", "leave")
    told(bus, "z", "total", "anybody")
    assert bus.state("z")["back"] == [["ledger", "anybody", "the group had no members"]]


class Teller(Member):
    back: list[list[str]] = []  # noqa: RUF012

    @reacts
    def returned(self, note: NotDelivered) -> None:
        self.back.append([note.group, note.note.text, note.reason])


def test_who_is_cut_off_by_a_loss_is_told_and_joins_again():
    """What was under way in the domain of a lost server may be lost, and so may be the rest of a view."""
    bus = Bus({"a/x": Ledger, "b/y": Ledger, "c/z": Ledger})
    for each in "xyz":
        told(bus, each, "join")
    told(bus, "z", "causal", "one")
    bus.kill("c", down=float("inf"))
    bus.advance(1)
    bus.ask("lose", server="a", domain="bus", servers=["c"], epoch=1)
    bus.advance(20)
    assert bus.state("x")["views"][-1] == [4, ["a/x"], [], ["b/y", "c/z"]]
    assert bus.state("y")["views"][-1] == [4, [], [], ["a/x", "b/y", "c/z"]]
    bus.send("y", Do("join"), server="b")
    bus.send("x", Do("total", "two"), server="a")
    bus.advance(20)
    assert bus.state("x")["views"][-1][:2] == bus.state("y")["views"][-1][:2] == [5, ["a/x", "b/y"]]
    assert bus.state("x")["heard"] == bus.state("y")["heard"] == ["one", "two"]


class Guard(Member):
    """Is told who is down; the others wait for it for five seconds."""

    told: list[list[Any]] = []  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "join":
            self.join("ledger", patience=5)
        else:
            super().do(note)

    @reacts
    def down(self, note: MemberDown) -> None:
        self.told.append(["down", note.members])

    @reacts
    def up(self, note: MemberUp) -> None:
        self.told.append(["up", note.members])


class Hasty(Agent):
    """Asks with a patience that nobody can have."""

    said: list[str] = []  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        for patience in (-1, -0.001, float("nan")):
            try:
                self.join("ledger", patience=patience)
            except (MomError, ValueError) as error:
                self.said.append(type(error).__name__)
        self.send("x", Said("after"))


def test_a_patience_of_less_than_none_is_refused_where_it_is_asked_for():
    """The home would refuse the packet, with all that is behind it, for ever."""
    bus = Bus({"a/x": Member, "b/h": Hasty})
    told(bus, "x", "join")
    told(bus, "h", "")
    assert bus.state("h")["said"] == ["MomError", "MomError", "ValueError"]
    assert bus.state("x")["heard"] == ["after"]


def test_members_are_told_who_is_down_and_up_again_without_a_view():
    bus = Bus({"a/x": Guard, "b/y": Member, "c/z": Member, "c/w": Member})
    for each in "xyzw":
        told(bus, each, "join")
    bus.advance(10)
    assert bus.state("x")["told"] == []
    bus.kill("c", down=float("inf"))
    bus.advance(6)
    assert bus.state("x")["told"] == [["down", ["c/z", "c/w"]]]
    bus.kill("a", down=0.1)  # the home forgets nothing
    bus.advance(6)
    assert bus.state("x")["told"] == [["down", ["c/z", "c/w"]]]
    bus.start("c")
    bus.advance(3)
    assert bus.state("x")["told"] == [["down", ["c/z", "c/w"]], ["up", ["c/z", "c/w"]]]
    assert bus.state("x")["views"][-1][0] == 4
    told(bus, "z", "causal", "one")
    assert bus.state("x")["heard"] == ["one"]
    bus.check()


def test_the_others_go_on_without_a_member_that_is_down_for_longer_than_they_wait():
    bus = Bus({"a/x": Member, "b/y": Guard, "c/z": Member})
    for each in "xyz":
        told(bus, each, "join")
    bus.kill("b", down=float("inf"))
    bus.kill("c", down=float("inf"))
    bus.advance(4)
    assert bus.state("x")["views"][-1][0] == 3
    bus.start("c")
    bus.advance(6)
    assert bus.state("x")["views"][-1][1] == bus.state("z")["views"][-1][1] == ["a/x", "c/z"]
    bus.start("b")
    bus.advance(3)
    assert bus.state("y")["views"][-1][1] == ["a/x", "c/z"]
    told(bus, "y", "join")
    assert bus.state("x")["views"][-1][1] == ["a/x", "c/z", "b/y"]
    bus.check()


class Watcher(Guard):
    """Is told who is down, and waited for for ever."""

    @reacts
    def do(self, note: Do) -> None:
        Member.do(self, note)


def members_after_ten_seconds(without: type[Agent]) -> list[str]:
    """Those of the view that the others have when one of them is down."""
    bus = Bus({"a/x": Watcher, "b/y": without})
    for each in "xy":
        told(bus, each, "join")
    bus.kill("b", down=float("inf"))
    bus.advance(10)
    assert bus.state("x")["told"] == [["down", ["b/y"]]]
    members: list[str] = bus.state("x")["views"][-1][1]
    return members


def test_nobody_is_left_behind_who_is_waited_for():
    assert members_after_ten_seconds(Watcher) == ["a/x", "b/y"]
    with broken("impatient"):
        assert members_after_ten_seconds(Watcher) == ["a/x"]


def test_whoever_is_not_waited_for_any_longer_is_out():
    assert members_after_ten_seconds(Guard) == ["a/x"]
    with broken("patient for ever"):
        assert members_after_ten_seconds(Guard) == ["a/x", "b/y"]


class Wanderer(Agent):
    """Of two groups."""

    heard: dict[str, list[str]] = {}  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "join":
            self.join(note.text)
        elif note.what == "leave":
            self.leave(note.text)
        else:
            self.group(note.what).cast(In(note.what, note.text))

    @reacts
    def said(self, note: In) -> None:
        self.heard.setdefault(note.group, []).append(note.text)

    def snapshot(self, group: str) -> Any:
        return self.heard.get(group, [])

    def restore(self, group: str, state: Any) -> None:
        self.heard[group] = state


def crossed(seed: int = 0) -> Bus:
    """x is in group one and y in group two, and each joins the other's. The homes of the groups are where they get the
    view that they wait in before the one in which they are to give."""
    bus = Bus({"a/x": Wanderer, "b/y": Wanderer}, seed=seed)
    for first, second, group in (("y", "x", "one"), ("x", "y", "two")):
        told(bus, first, "join", group)
        told(bus, second, "join", group)
        told(bus, first, "leave", group)
        told(bus, second, group, f"of {group}")
    bus.send("x", Do("join", "two"), server="a")
    bus.send("y", Do("join", "one"), server="b")
    bus.advance(60)
    return bus


def test_two_members_that_wait_for_each_other_s_states_both_get_one():
    bus = crossed(6)
    for each in "xy":
        assert bus.state(each)["heard"] == {"one": ["of one"], "two": ["of two"]}
    bus.check()


def test_who_gives_up_says_that_it_gives_nothing_either(monkeypatch):
    said, leave = [], Home.leave
    monkeypatch.setattr(Home, "leave", lambda home, *args: [said.append(args), leave(home, *args)])
    crossed(6)
    assert [agent for agent, gives in said if not gives] == ["b/y"]


def test_without_giving_up_they_would_wait_for_ever():
    with broken("waits in a circle"):
        bus = crossed(6)
        assert any(each["kind"] == "state" for each in bus.ask("why", server="a")["waits"])


@notification
class Again:
    """Cast until you are told that the group is gone."""

    order: str


class Talker(Member):
    back: int = 0

    @reacts
    def again(self, note: Again) -> None:
        if self.id in self.views[-1][1]:
            self.send(self.id, note)
            self.group("ledger").cast(Said("more"), order=note.order)

    @reacts
    def not_delivered(self, note: NotDelivered) -> None:
        self.back += 1


@pytest.mark.parametrize("order", ["causal", "total"])
@pytest.mark.parametrize("how", ["lost", "removed"])
def test_whoever_casts_all_the_time_is_told_that_the_group_is_gone(how, order, monkeypatch):
    small_window(monkeypatch)
    bus = Bus({"a/y": Talker, "b/x": Talker, "c/z": Talker})
    for each in "xyz":
        told(bus, each, "join")
    for each in "yz":
        bus.send(each, Again(order))
    bus.advance(0.1)
    if how == "lost":
        bus.kill("b", down=float("inf"))
        bus.advance(1)
        bus.ask("lose", server="a", domain="bus", servers=["b"], epoch=1)
    else:
        bus.ask("remove_group", group="ledger", server="b")
    bus.advance(10)
    for each in "yz":
        assert bus.state(each)["views"][-1][1] == [] and bus.show(each)["waiting"] == 0
    assert how == "removed" or any(bus.state(each)["back"] for each in "yz")
    bus.send("y", Do("join"), server="a")
    bus.advance(1)
    assert bus.state("y")["views"][-1][1] == ["a/y"]
    if how == "removed":
        bus.check()
