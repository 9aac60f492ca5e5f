"""A server is lost, and members of a group miss casts by that: what they have until all know of the loss."""

from types import SimpleNamespace
from typing import Any

import pytest

from mombroker.agents import Agent, NotDelivered, View, notification, reacts
from mombroker.broker.groups.states import States
from mombroker.core.groups import member
from mombroker.core.groups.view import Cast
from mombroker.core.groups.view import View as Next
from tests.admin.test_reset import reset_bus
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Put

HERE = "tests.core.test_group_losses"


@notification
class Do:
    """Something, in the group."""

    what: str
    text: str = ""


@notification
class Said:
    text: str


class Member(Agent):
    heard: list[str] = []  # noqa: RUF012 - its state
    back: list[str] = []  # noqa: RUF012
    views: list[list[Any]] = []  # noqa: RUF012

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "join":
            self.join("ledger")
        elif note.what == "leave":
            self.leave("ledger")
        else:
            self.group("ledger").cast(Said(note.text), order="total")

    @reacts
    def said(self, note: Said) -> None:
        self.heard.append(note.text)

    @reacts
    def put(self, note: Put) -> None: ...

    @reacts
    def viewed(self, note: View) -> None:
        self.views.append([note.number, note.members])

    @reacts
    def returned(self, note: NotDelivered) -> None:
        self.back.append(note.note.text)


def told(bus: Bus, agent: str, what: str, text: str = "") -> None:
    bus.send(agent[0], agent, Do(what, text))
    bus.pump()


def begun() -> Bus:
    """The registry a is behind b, where the group lives. c misses a cast when d is lost."""
    bus = Bus(topology({"x": "bcd", "y": "ab"}, dict.fromkeys(("b/x", "c/y", "b/w"), f"{HERE}:Member")))
    bus.pump()
    for each in ("b/x", "c/y"):
        told(bus, each, "join")
    bus.cut("c", "d")
    bus.send("d", ["b/x", "c/y"], Put("which c never gets"))
    bus.pump()
    told(bus, "b/x", "cast", "one")  # it waits for that at c
    return bus


@pytest.mark.parametrize("who, what", [("c/y", "leave"), ("b/w", "join"), ("c/y", "cast")])
def test_who_misses_a_cast_in_total_order_by_a_loss_gets_nothing_more_of_its_view(who, what):
    bus = begun()
    bus.cut("a", "b")
    bus.crash("d")
    assert bus.ask("b", "lose", servers=["d"], domain="x", epoch=1) == {"domain": "x", "epoch": 1}
    told(bus, "b/x", "cast", "two")
    told(bus, who, what, "three")
    y = bus.fields("c/y")
    assert y["heard"] == [] and y["views"] == [[2, ["b/x", "c/y"]]]
    bus.join("a", "b")
    bus.pump()
    y = bus.fields("c/y")
    assert y["heard"] == [] and y["views"][1:] == [[3, []]]
    assert y["back"] == (["three"] if what == "cast" else [])
    assert "c/y" not in bus.fields("b/x")["views"][-1][1]
    assert bus.fields("b/x")["heard"][:2] == ["one", "two"]


def test_who_misses_a_cast_by_a_reset_is_told_that_the_group_is_gone():
    bus = begun()
    reset_bus(bus, "d")
    told(bus, "b/x", "cast", "two")
    assert bus.fields("c/y")["heard"] == [] and bus.fields("c/y")["views"][1:] == [[3, []]]
    assert bus.fields("b/x")["heard"] == ["one", "two"] and bus.fields("b/x")["views"][-1][1] == ["b/x"]
    told(bus, "c/y", "join")
    told(bus, "b/x", "cast", "three")
    assert bus.fields("c/y")["heard"] == ["three"]


def test_a_member_whose_casts_an_older_program_has_not_counted_waits_for_none_of_them():
    former, now = member.Member("a/x"), member.Member("a/x")
    former.offer(Next(1, ["a/x"], ["a/x"]))
    now.load(former.values()[:-1])
    third, following = Cast(1, "a/x", 0, place=3), Next(2, ["a/x"], placed=4)
    assert now.offer(third)[0] == [third] and now.offer(following)[0] == []
    now.load(former.values()[:-1])
    assert now.go_on()[0] == [following]


@pytest.mark.parametrize("source, waits", [("d/group:ledger", True), ("b/group:ledger", False), ("c/_groups", False)])
def test_who_asks_to_join_waits_behind_views_of_another_home_alone(source, waits):
    """What its own server has told it, that the group was gone, or that it had asked in vain, is of no other home: who
    asks once more in front of that asks at once. Else what it has said before reaches the home, and it waits for an
    answer to what it has never asked."""
    mine = SimpleNamespace(inside=False, again=False, home="b/group:ledger", agent="c/y", group="ledger")
    asks_later = []
    states = SimpleNamespace(
        members=SimpleNamespace(id="c/_groups"), ahead=lambda agent, group: [(source, None)], later=asks_later.append
    )
    assert States.waits_to_join(states, mine) is waits
    assert (mine.again, asks_later) == (waits, [mine] if waits else [])


def test_who_misses_the_view_that_it_joins_with_by_a_loss_begins_with_no_later_one():
    """It would have no state, and none of the casts since: to be told that the group is gone it waits."""
    bus = Bus(topology({"x": "bcd", "y": "ab"}, dict.fromkeys(("b/x", "c/y", "b/w"), f"{HERE}:Member")))
    bus.pump()
    told(bus, "b/x", "join")
    bus.cut("c", "d")
    bus.send("d", ["b/x", "c/y"], Put("which c never gets"))
    bus.pump()
    told(bus, "c/y", "join")  # the view waits for that at c
    bus.cut("a", "b")
    bus.crash("d")
    assert bus.ask("b", "lose", servers=["d"], domain="x", epoch=1) == {"domain": "x", "epoch": 1}
    told(bus, "b/w", "join")
    told(bus, "b/x", "cast", "one")
    assert bus.fields("b/x")["views"] == [[1, ["b/x"]], [2, ["b/x", "c/y"]], [3, ["b/x", "c/y", "b/w"]]]
    assert bus.fields("c/y")["views"] == bus.fields("c/y")["heard"] == []
    bus.join("a", "b")
    bus.pump()
    assert bus.fields("c/y")["views"] == [[1, []]] and bus.fields("b/x")["views"][-1] == [4, ["b/x", "b/w"]]
    told(bus, "c/y", "join")
    told(bus, "b/x", "cast", "two")
    assert bus.fields("c/y")["views"][1:] == [[5, ["b/x", "b/w", "c/y"]]] and bus.fields("c/y")["heard"] == ["two"]


@pytest.mark.parametrize(
    "domains, home, router, by", [({"x": "abc", "y": "cde"}, "b", "c", "a"), ({"x": "bcd", "y": "dae"}, "b", "d", "c")]
)
def test_what_a_home_has_sent_comes_before_the_word_that_it_is_lost(domains, home, router, by):
    """Its VIEW, with which e joins, waits at the router for its way to e. The registry a is in the home's domain, so
    the word goes by the router, too; or beside e, which holds it, since the router has asked for it behind the VIEW."""
    bus = Bus(topology(domains, {f"{home}/x": f"{HERE}:Member", "e/y": f"{HERE}:Member"}))
    bus.pump()
    told(bus, f"{home}/x", "join")
    bus.cut(router, home)
    told(bus, "e/y", "join")
    bus.cut(router, "e")
    bus.join(router, home)
    bus.pump()
    assert bus.fields(f"{home}/x")["views"][1:] == [[2, [f"{home}/x", "e/y"]]] and bus.fields("e/y")["views"] == []
    bus.crash(home)
    bus.ask(by, "lose", servers=[home], domain="x", epoch=1)
    members: Any = bus.servers["e"].clients.members
    assert bus.servers["a"].lost.decided(home) and not bus.servers["e"].lost.decided(home)
    bus.join(router, "e")
    bus.pump()
    assert bus.servers["e"].lost.decided(home) and members.all() == []
    assert bus.fields("e/y")["views"] == [[2, [f"{home}/x", "e/y"]], [3, []]]
