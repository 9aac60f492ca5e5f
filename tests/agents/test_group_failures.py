"""Members whose own code fails at a view or a cast, and who is told."""

from typing import Any

import msgpack
import pytest

from mombroker.agents import Agent, NotDelivered, ReactionFailed, Replicated, View, command, notification, reacts
from mombroker.agents.agent import initial
from mombroker.agents.testing import Bus
from mombroker.broker.wire import pack
from mombroker.core.errors import MomError
from mombroker.core.groups.bus import CASTS, JOIN
from mombroker.core.groups.home import Home
from mombroker.core.message import Message
from tests.agents.test_groups import Do, Ledger, Member, Said, told
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


@notification
class Lie:
    order: str


class Strict(Ledger):
    """Takes no lies, and hears who does not."""

    failed: list[list[str]] = []  # noqa: RUF012

    @reacts
    def said(self, note: Said) -> None:
        if note.text == f"lie to {self.id}":
            raise ArithmeticError("a lie")
        self.heard.append(note.text)

    @reacts
    def lie(self, note: Lie) -> None:
        self.group("ledger").cast(Said("lie to b/y"), order=note.order)

    @reacts
    def cast_failed(self, note: ReactionFailed) -> None:
        self.failed.append([note.agent, note.type, note.reason])


@pytest.mark.parametrize("order", ["causal", "total"])
def test_who_has_cast_is_told_by_each_other_member_that_fails_at_it(order):
    bus = Bus({"a/x": Strict, "b/y": Strict, "c/z": Strict})
    for each in "xyz":
        told(bus, each, "join")
    bus.send("z", Lie(order))
    bus.advance(60)
    assert bus.state("z")["failed"] == [["b/y", Said.__wire_name__, "ArithmeticError: a lie"]]
    assert bus.state("x")["failed"] == bus.state("y")["failed"] == []
    bus.check()


@notification(expose=True)
class Pay:
    cents: int


@notification
class Left:
    cents: int


class Purse(Replicated):
    cents: int = 100

    @command
    def pay(self, note: Pay) -> Left:
        if note.cents > self.cents:
            raise ArithmeticError("too much")
        self.cents -= note.cents
        return Left(self.cents)


@notification
class Make:
    server: str


class Maker(Agent):
    """Asks a new copy before that is in the group."""

    got: list[Any] = []  # noqa: RUF012

    @reacts
    def make(self, note: Make) -> None:
        purse = self.create(Purse, server=note.server)
        for cents in (1, 1000, 2):
            self.send(purse, Pay(cents))

    @reacts
    def left(self, note: Left) -> None:
        self.got.append(note.cents)

    @reacts
    def pay_failed(self, note: ReactionFailed) -> None:
        self.got.append(note.reason)


def test_who_asks_for_a_command_that_fails_is_told_once():
    bus = Bus({"a/one": Purse, "b/two": Purse, "c/three": Purse})
    assert bus.request("two", Pay(1), server="c") == Left(99)
    with pytest.raises(MomError, match=r"two: ArithmeticError: too much"):
        bus.request("two", Pay(1000), server="c")
    bus.advance(60)
    assert [bus.state(each)["cents"] for each in ("one", "two", "three")] == [99] * 3
    bus.check()


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_is_asked_before_it_is_in_the_group_has_the_eldest_answer(seed):
    bus = Bus({"a/one": Purse, "b/two": Purse, "c/maker": Maker}, servers=["d"], seed=seed)
    bus.send("maker", Make("d"))
    bus.advance(60)
    got = bus.state("maker")["got"]
    assert sorted(map(str, got)) == ["97", "99", "ArithmeticError: too much"]
    assert [bus.state(each)["cents"] for each in ("one", "two")] == [97] * 2
    assert bus.state("one")["group_members"] == bus.state("two")["group_members"]
    bus.check()


@pytest.mark.parametrize("payload", [b"\xc0", pack(["g", 1, "a/x", "mom.Command", b"\xc0"])])
def test_nobody_is_told_of_what_is_no_cast_or_no_command(payload):
    purse = Purse("b/y", initial(Purse, {}), "b")
    purse.group_members = ["b/y"]
    assert purse.who_cast(Message("a", 1, "a/group:g", ("b/y",), "g.cast", payload)) is None


class Caster(Member):
    back: list[str] = []  # noqa: RUF012 - its state

    @reacts
    def returned(self, note: NotDelivered) -> None:
        self.back.append(note.note.text)


@pytest.mark.parametrize("others, joining", [("a", []), ("b", []), ("b", ["a/v", "a/w"])])
def test_who_is_put_out_gets_back_what_the_others_drop_on_one_server_too(monkeypatch, others, joining):
    """x casts when the others have flushed without it: they drop that at their next view. As many as there are members
    are on its server if two more wait there to be some."""
    bus = Bus({"a/x": Caster, f"{others}/y": Caster, f"{others}/z": Caster, **dict.fromkeys(joining, Caster)})
    for each in "xyz":
        told(bus, each, "join")
    flushed = Home.flushed

    def late(home: Home, *flush: Any) -> None:
        monkeypatch.setattr(Home, "flushed", flushed)
        deeds: Any = bus._cluster.nodes["a"].server.clients.groups
        for each in joining:
            deeds.act(each, JOIN, ("ledger", "a/group:ledger", False, 0, False))
        deeds.act("a/x", CASTS, ("ledger", "a/group:ledger", Said.__wire_name__, msgpack.packb(["late"]), False))
        flushed(home, *flush)

    monkeypatch.setattr(Home, "flushed", late)
    bus.ask("exclude_member", server="a", group="ledger", agent="a/x")
    bus.settle()
    views = [{number: members for number, members, *_ in bus.state(each)["views"]} for each in "xyz"]
    assert [each[4] for each in views] == [[f"{others}/y", f"{others}/z"]] * 3
    assert [bus.state(each)["heard"] for each in "xyz"] == [["late"], [], []]
    assert bus.state("x")["back"] == ["late"]


def test_a_cast_in_a_group_that_was_gone_by_then_waits_while_a_server_is_lost(monkeypatch):
    """It has no home. A cast before it waits for a view."""
    bus = Bus({"a/x": Caster, "b/y": Caster, "c/z": Caster})
    told(bus, "x", "join")
    told(bus, "y", "join")
    flushed = Home.flushed

    def late(home: Home, *flush: Any) -> None:
        monkeypatch.setattr(Home, "flushed", flushed)
        clients: Any = bus._cluster.nodes["a"].server.clients
        for group, home_id, text in ("ledger", "a/group:ledger", "first"), ("gone", "", "second"):
            cast = (group, home_id, Said.__wire_name__, msgpack.packb([text]), False)
            assert clients.groups.act("a/x", CASTS, cast)
        clients.members.lost({"c"})
        assert clients.groups.reason("a/x") == "a cast of its own in group ledger has gone, by a"
        flushed(home, *flush)

    monkeypatch.setattr(Home, "flushed", late)
    told(bus, "z", "join")
    assert [bus.state(each)["heard"] for each in "xyz"] == [["first"]] * 3
    assert bus.state("x")["back"] == ["second"]
