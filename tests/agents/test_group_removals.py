"""Groups that are removed and made again, and who has asked in vain to be a member."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mombroker.agents import notification, reacts
from mombroker.agents.testing import Bus
from mombroker.broker.groups import deeds
from mombroker.broker.groups.comings import Comings
from mombroker.broker.groups.notes import ALL, Got, State, Told
from mombroker.broker.groups.states import States
from mombroker.broker.session.orphans import Orphans
from mombroker.core.ids import home_of
from mombroker.core.message import Message
from mombroker.core.names import OUTDATED
from tests.agents.test_groups import THREE, Do, In, Ledger, Member, Said, told
from tests.fakes_groups import broken


def test_a_group_that_is_removed_tells_all_and_may_be_made_anew():
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    told(bus, "x", "causal", "one")
    assert bus.ask("remove_group", server="a", group="ledger")["members"] == ["a/x", "b/y", "c/z"]
    bus.settle()
    assert all(bus.state(each)["views"][-1] == [4, [], [], ["a/x", "b/y", "c/z"]] for each in "xyz")
    assert bus.ask("groups", server="a")["groups"] == []
    told(bus, "y", "join")
    assert bus.state("y")["views"][-1] == [1, ["b/y"], ["b/y"], []]


def test_a_group_that_is_made_again_has_none_of_its_former_numbers_of_views():
    """What comes late and speaks of a former view 2 would be taken for a word on the new one's."""
    bus = Bus(THREE)
    numbers = list[int]()
    for _ in range(3):
        for each in "xyz":
            told(bus, each, "join")
        numbers += [number for number, members, *_ in bus.state("x")["views"] if members]
        bus.ask("remove_group", server="a", group="ledger")
        bus.settle()
        assert bus.ask("groups", server="a")["groups"] == []
        bus.kill("a")
        bus.settle()
    assert sorted({*numbers}) == [1, 2, 3, 5, 6, 7, 9, 10, 11]
    bus.check()


@pytest.mark.parametrize("twice", ["join", "join leave join"])
def test_a_group_that_is_made_again_elsewhere_hears_its_members(twice):
    """Who had asked once more, in vain, takes the server of the former group for its home no longer."""
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    for each in "xz":
        for what in twice.split():
            bus.send(each, Do(what))
    bus.ask("remove_group", server="a", group="ledger")
    bus.settle()
    for each in "yxz":
        told(bus, each, "join")
    for each in "xyz":
        told(bus, each, "causal", f"by-{each}")
    told(bus, "y", "leave")
    assert {*bus.state("x")["views"][-1][1]} == {*bus.state("z")["views"][-1][1]} == {"a/x", "c/z"}
    heard = [bus.state(each)["heard"] for each in "xz"]
    assert heard[0][-3:] == heard[1][-3:] == ["by-x", "by-y", "by-z"]
    bus.check()


@pytest.mark.parametrize("control", ["", "former home"])
def test_who_has_asked_the_former_home_is_a_member_of_the_group_that_was_made_again_elsewhere(control):
    """What it has asked the former one for comes to nothing only when it is in already."""
    with broken(control) if control else nullcontext():
        bus = Bus(THREE)
        told(bus, "y", "join")
        bus.cut("b", "c")
        bus.send("z", Do("join"), server="c")
        bus.ask("remove_group", server="b", group="ledger")
        bus.advance(1)
        bus.send("x", Do("join"), server="a")
        bus.advance(1)
        bus.send("z", Do("join"), server="c")
        bus.advance(1)
        bus.heal("b", "c")
        bus.settle()
        for each in "zx":
            bus.send(each, Do("causal", f"by-{each}"))
        bus.send("x", Do("leave"))
        bus.settle()
        views = [view[:2] for view in bus.state("z")["views"]]
        right = views == [[2, ["a/x", "c/z"]], [3, ["c/z"]]] and bus.state("x")["heard"] == ["by-z", "by-x"]
        assert right is not bool(control)


def test_who_has_asked_once_more_in_vain_is_no_member_of_what_is_gone():
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    told(bus, "z", "join")
    bus.ask("remove_group", server="a", group="ledger")
    bus.settle()
    assert bus.state("z")["views"][-1] == [4, [], [], ["a/x", "b/y", "c/z"]]
    assert bus.ask("move_agent", server="c", agent="z", to="b")
    bus.check()


@pytest.mark.parametrize("how", ["removed", "put out"])
def test_who_asks_in_vain_while_a_view_is_made_is_told(how):
    bus = Bus(THREE)
    for each in "xy":
        told(bus, each, "join")
    bus.kill("b", down=float("inf"))
    if how == "removed":
        bus.send("x", Do("leave"), server="a")
        bus.advance(1)
    bus.send("z", Do("join"), server="c")
    bus.advance(1)
    if how == "removed":
        bus.ask("remove_group", server="a", group="ledger")
    else:
        bus.ask("exclude_member", server="a", group="ledger", agent="c/z")
    bus.start("b")
    bus.settle()
    seen = {"removed": [3, ["b/y"], [], ["a/x"]], "put out": [3, ["a/x", "b/y"], [], []]}[how]
    assert bus.state("z")["views"] == [seen]
    told(bus, "z", "join")
    assert "c/z" in bus.state("z")["views"][-1][1]
    bus.check()


def test_who_has_given_up_more_often_waits_for_longer_whoever_else_joins_again():
    bus = Bus(THREE)
    bus.settle()
    members: Any = bus._cluster.nodes["a"].server.clients.members
    for group, tries in ("seldom", 0), ("often", 3):
        mine = members.new(group, f"b/group:{group}", "a/x")
        mine.again, mine.tries = True, tries
        members.states.later(mine)
    told(bus, "y", "join")
    bus.advance(1)
    assert [*members.of] == ["often"]  # the other one has asked, and is told that the group is gone
    bus.advance(4)
    assert [*members.of] == []


def test_a_word_on_what_it_has_asked_before_it_asked_again_says_nothing_of_that(monkeypatch):
    """The group is made again on its server between the two."""
    asked, settle = list[str](), Orphans.settle
    monkeypatch.setattr(Orphans, "settle", lambda self, *args: [asked.append(args[1]), settle(self, *args)][1])
    bus = Bus(THREE)
    told(bus, "y", "join")
    bus.cut("a", "c")  # so c does not hear that it is gone
    bus.ask("remove_group", server="b", group="ledger")
    bus.advance(1)
    bus.send("z", Do("join"), server="c")
    for _ in range(1000):
        if not asked:
            bus.advance(0.0001)
    bus.cut("b", "c")
    bus.send("y", Do("join"), server="b")
    bus.send("z", Do("join"), server="c")
    bus.advance(1)
    assert asked == ["b/group:ledger"] and bus.state("z")["views"] == []
    for other in "ab":
        bus.heal(other, "c")
    bus.settle()
    assert bus.state("z")["views"] == [[4, ["b/y", "c/z"], ["c/z"], []]]
    bus.check()


def test_a_page_of_a_state_whose_first_pages_went_to_nobody_is_nothing():
    """It was sent before its group was removed, to a member that has joined again since."""
    tx = SimpleNamespace(rows=SimpleNamespace(items={}), new_id=lambda: 1)
    comings = Comings(SimpleNamespace(tx=tx, collection=None), "a/members")
    comings.page("a/x", State("ledger", 2, ["a/x"], b"rest", 1, True, 0))
    assert not comings.of and not tx.rows.items


@notification
class Founds:
    group: str


@notification
class Quits:
    group: str


class Asks(Ledger):
    """It may say something in other groups, too, and is told nothing before that has its place."""

    @reacts
    def said_in(self, note: In) -> None:
        if note.text:
            Member.do(self, Do(note.text))
        self.group(note.group).cast(Said("hello"), order="total")

    @reacts
    def founds(self, note: Founds) -> None:
        self.join(note.group)

    @reacts
    def quits(self, note: Quits) -> None:
        self.leave(note.group)


@pytest.mark.parametrize("what", ["join", "join leave"])
def test_views_of_a_former_group_elsewhere_are_none_of_the_new_one_of_the_same_number(what):
    """y has the last view of the former group before it, and asks to join the new one: its third view, too."""
    bus = Bus({"a/x": Ledger, "a/v": Ledger, "b/y": Asks, "c/z": Asks, "d/w": Asks})
    bus.send("z", Founds("other"))
    bus.send("w", Founds("more"))
    bus.settle()
    for each in "yx":
        told(bus, each, "join")
    for other in "cd":
        bus.cut("b", other)
    bus.send("y", In("other", ""), server="b")
    bus.send("y", In("more", what), server="b")
    bus.ask("remove_group", server="b", group="ledger")
    bus.advance(1)
    for each, note in (("x", Do("join")), ("v", Do("join")), ("x", Do("causal", "one"))):
        bus.send(each, note, server="a")
        bus.advance(1)
    for other in "cd":
        bus.heal("b", other)
        bus.advance(1)
    former = [[1, ["b/y"], ["b/y"], []], [2, ["b/y", "a/x"], ["a/x"], []], [3, [], [], ["b/y", "a/x"]]]
    new = [[3, ["a/x", "a/v", "b/y"], ["b/y"], []]] if what == "join" else []
    assert bus.state("y")["views"] == former + new
    assert bus.state("y")["heard"] == (["one"] if new else [])
    bus.check()


@pytest.mark.parametrize("older", [False, True])
def test_casts_of_a_former_group_elsewhere_are_none_of_the_new_one_of_the_same_number(monkeypatch, older):
    """z is put out of view 3 while its cast in that is on its way to y, which is in view 3 of the new group when z is,
    too. `older`: z does not say of which home's view it is, and y hears no cast of the new group for the former one."""
    if older:
        monkeypatch.setattr(deeds, "Told", lambda *cast, home: Told(*cast))
    bus = Bus({"a/x": Member, "b/y": Member, "c/z": Member})
    for each in "xyz":
        told(bus, each, "join")
    for other in "ab":
        bus.cut("c", other)
    bus.send("z", Do("causal", "old"), server="c")
    bus.ask("exclude_member", server="a", group="ledger", agent="c/z")
    bus.advance(1)
    bus.ask("remove_group", server="a", group="ledger")
    bus.advance(1)
    bus.send("y", Do("join"), server="b")
    bus.advance(1)
    for other in "ab":
        bus.heal("c", other)
    bus.settle()
    for each in "zx":
        told(bus, each, "join")
    told(bus, "z", "causal", "new")
    assert all(bus.state(each)["views"][-1] == [3, ["b/y", "c/z", "a/x"], ["a/x"], []] for each in "xyz")
    heard = [bus.state(each)["heard"] for each in "xyz"]
    assert heard == [["new"], ["old" if older else "new"], ["old", "new"]]
    if not older:
        bus.check()


@pytest.mark.parametrize(("said", "taken"), [("", True), ("b/group:g", True), ("a/group:g", False)])
def test_a_page_of_a_state_of_a_former_group_elsewhere_is_nothing_to_the_new_one(said, taken):
    """Both have a view 2 in which a new member waits for its state. An older program does not say whose it is."""
    mine = SimpleNamespace(gone=False, again=False, lacks=2, home="b/group:g")
    pages, told = [], []
    states: Any = SimpleNamespace(
        natives=SimpleNamespace(
            names=SimpleNamespace(homes=SimpleNamespace(home=home_of)), post=lambda *posted: told.append(posted[2])
        ),
        members=SimpleNamespace(find=lambda group, agent: mine, servers=lambda agents: ["a/_groups"], id="c/_groups"),
        comings=SimpleNamespace(page=lambda agent, note: pages.append(note)), tx=SimpleNamespace(name="c"),
    )  # fmt: skip
    page = State("g", 2, ["c/x"], b"", 1, False, 7, home=said)
    States.comes(states, Message("a", 1, "a/y", ("c/_groups",), page.wire, page.pack()))
    assert pages == ([page] if taken else []) and told == [Got(7, "c/x", 2 if taken else ALL)]


def unsaid(states: States) -> None:
    """An older program does not say of which home's view a word is."""
    states.busy = [(agent, replace(note, home="")) for agent, note in states.busy]


@pytest.mark.parametrize("older", [False, True])
def test_who_waits_for_a_state_of_a_former_group_elsewhere_gives_up_no_wait_in_the_new_one(monkeypatch, older):
    """g is to give z a state in view 4, waits for one itself in another group, and says so. It is cut off and put out
    before z hears that; by then z waits for y in view 4 of the new group. `older`: g does not say of which home's view
    it is."""
    if older:
        step = States.step
        monkeypatch.setattr(States, "step", lambda states: [unsaid(states), step(states)][1])
    bus = Bus({"a/x": Ledger, "b/y": Ledger, "c/g": Asks, "d/z": Ledger, "e/h": Asks, "f/p": Asks})
    for agent, note in (("p", Founds("other")), ("h", Founds("other")), ("p", Quits("other"))):
        bus.send(agent, note)
        bus.settle()
    for each, what in (("y", "join"), ("g", "join"), ("y", "leave")):
        told(bus, each, what)
    bus.cut("c", "e")
    bus.send("g", Founds("other"), server="c")
    bus.advance(1)
    bus.cut("c", "d")
    bus.send("z", Do("join"), server="d")
    bus.advance(1)
    for other in "abf":
        bus.cut("c", other)
    bus.ask("exclude_member", server="b", group="ledger", agent="c/g")
    bus.advance(1)
    bus.ask("remove_group", server="b", group="ledger")
    bus.advance(1)
    for each, what in (("x", "join"), ("y", "join"), ("x", "leave")):
        bus.send(each, Do(what), server={"x": "a", "y": "b"}[each])
        bus.advance(1)
    bus.cut("b", "d")
    bus.send("z", Do("join"), server="d")
    bus.advance(1)
    bus.heal("c", "d")
    bus.advance(0.2)
    for one, other in (("b", "d"), ("c", "a"), ("c", "b"), ("c", "e"), ("c", "f")):
        bus.heal(one, other)
    bus.settle()
    bus.advance(5)
    both = ["b/y", "d/z"]
    new = [[4, both], [5, ["b/y"]], [6, both]] if older else [[4, both]]
    assert [view[:2] for view in bus.state("y")["views"]][4:] == [[3, ["b/y"]], *new]
    assert [view[:2] for view in bus.state("z")["views"]] == [[5, ["d/z"]], [6, []], new[-1]]
    bus.check()


def test_who_has_not_heard_that_a_group_is_gone_is_told_when_it_sends_something_there():
    """That the name is free was lost on its way to c, with a server."""
    bus = Bus(THREE)
    names: Any = bus._cluster.nodes["c"].server.names
    names.known["group:ledger"] = "b/group:ledger"
    told(bus, "z", "join")
    assert "group:ledger" not in names.known and bus.state("z")["views"] == [[1, [], [], []]]
    told(bus, "z", "join")
    told(bus, "x", "join")
    assert bus.state("x")["views"][-1][1] == bus.state("z")["views"][-1][1] == ["c/z", "a/x"]
    bus.check()


def test_a_name_that_has_an_agent_by_now_stays_known():
    bus = Bus(THREE)
    told(bus, "y", "join")
    names: Any = bus._cluster.nodes["b"].server.names
    names.ask(OUTDATED, b"group:ledger\nb/group:ledger\nc/_names")
    told(bus, "y", "causal", "one")
    told(bus, "z", "join")
    assert bus.state("z")["views"][-1][1] == ["b/y", "c/z"]
    assert bus._cluster.nodes["c"].server.names.known["group:ledger"] == "b/group:ledger"
