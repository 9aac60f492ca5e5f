"""Tables of members that new ones are given, a page at a time, while casts go on."""

from typing import Any

import pytest

from mombroker.admin.cli.groups import states
from mombroker.agents import Agent, Table, View, notification, reacts
from mombroker.agents.testing import Bus
from mombroker.broker.groups.gives import WINDOW

ROWS = 3_000


@notification
class Fill:
    first: int
    last: int
    value: int


@notification
class Go:
    what: str


@notification
class Add:
    row: int


class Book(Agent):
    rows: Table
    views: list[list[str]] = []  # noqa: RUF012 - its state
    begun: int = 0

    @reacts
    def fill(self, note: Fill) -> None:
        for row in range(note.first, note.last):
            self.rows[row] = note.value

    @reacts
    def go(self, note: Go) -> None:
        if note.what == "join":
            self.join("book")
        elif note.what == "leave":
            self.leave("book")
        else:
            for row in map(int, note.what.split()):
                self.group("book").cast(Add(row))

    @reacts
    def add(self, note: Add) -> None:
        """A row counts its casts; each seventh deletes it."""
        value = self.rows.get(note.row, 0) + 1
        if value % 7 == 0:
            del self.rows[note.row]
        else:
            self.rows[note.row] = value

    @reacts
    def viewed(self, note: View) -> None:
        self.views = [*self.views, note.members]

    def snapshot(self, group: str) -> Any:
        return {"begun": self.begun + 1}

    def restore(self, group: str, state: Any) -> None:
        self.begun = state["begun"]

    def snapshot_tables(self, group: str) -> list[Table]:
        return [self.rows]


def rows_of(bus: Bus, agent: str) -> dict[str, bytes]:
    server = agent.partition("/")[0]
    rows = bus._cluster.nodes[server].disk.store.disk.items.values()
    return {row.collection: row.body for row in rows if row.agent == agent and row.collection.startswith("=rows:")}


def left(bus: Bus) -> set[str]:
    """What servers keep of transfers."""
    items = [row for node in bus._cluster.nodes.values() for row in node.disk.store.disk.items.values()]
    return {row.collection for row in items if row.agent.endswith("/_groups")} - {"members", "copies", "void"}


def told(bus: Bus, agent: str, what: str) -> None:
    bus.send(agent, Go(what), server=agent.partition("/")[0])


def two(seed: int = 0, **more: Any) -> Bus:
    """Two members with the same rows, and one on `c` that has others."""
    bus = Bus({"a/x": Book, "b/y": Book, "c/z": Book}, seed=seed, **more)
    for first in range(0, ROWS, 500):
        bus.send("a/x", Fill(first, first + 500, 1), server="a")
    bus.send("c/z", Fill(ROWS - 100, ROWS + 300, 9), server="c")
    bus.settle()
    told(bus, "a/x", "join")
    bus.settle()
    told(bus, "b/y", "join")
    bus.settle()
    assert len(rows_of(bus, "b/y")) == ROWS and rows_of(bus, "a/x") == rows_of(bus, "b/y")
    return bus


def casts(bus: Bus, agent: str, start: int, count: int) -> None:
    """Rows all over the table, some of them often."""
    told(bus, agent, " ".join(str((start + n) * 7919 % (20 if n % 3 else ROWS)) for n in range(count)))


@pytest.mark.parametrize("seed", range(3))
def test_a_new_member_has_the_rows_of_its_view_and_none_of_its_own(seed):
    bus = two(seed)
    told(bus, "c/z", "join")
    for turn in range(40):
        casts(bus, "a/x" if turn % 2 else "b/y", 30 * turn, 30)
        bus.advance(0.002)
    bus.settle()
    assert bus.state("z")["views"] == [["a/x", "b/y", "c/z"]]
    assert rows_of(bus, "a/x") == rows_of(bus, "b/y") == rows_of(bus, "c/z")
    assert (bus.state("y")["begun"], bus.state("z")["begun"]) == (1, 1)
    assert left(bus) == set()
    bus.check()


@pytest.mark.parametrize("killed", ["a", "c", "ac"])
@pytest.mark.parametrize("seed", range(2))
def test_a_giver_and_a_taker_that_are_killed_go_on_where_they_were(killed, seed):
    bus = two(seed)
    told(bus, "c/z", "join")
    for turn in range(30):
        if turn % 5 == 2:
            for server in killed:
                bus.kill(server, down=0.01)
        casts(bus, "b/y", 30 * turn, 30)
        bus.advance(0.02)
    bus.settle()
    assert rows_of(bus, "a/x") == rows_of(bus, "b/y") == rows_of(bus, "c/z")
    assert left(bus) == set()
    bus.check()


def under_way(bus: Bus) -> bool:
    """Has z some pages, and not all?"""
    clients: Any = bus._cluster.nodes["c"].server.clients
    comings = clients.members.states.comings.of.values()
    return any(1 < coming.pages and not coming.whole for coming in comings)


def begin(seed: int = 0) -> Bus:
    """A transfer to z is under way."""
    bus = two(seed)
    told(bus, "c/z", "join")
    for _ in range(2_000):
        bus.advance(0.0002)
        if under_way(bus):
            return bus
    raise AssertionError("no transfer is seen")


def test_who_is_out_before_it_has_all_has_what_it_had():
    bus = begin()
    before = rows_of(bus, "c/z")
    assert len(before) == 400
    bus.kill("c", down=float("inf"))
    bus.ask("exclude_member", server="a", group="book", agent="c/z")
    bus.advance(5)
    bus.start("c")
    bus.settle()
    assert bus.state("z")["views"] == [["a/x", "b/y"]]
    assert rows_of(bus, "c/z") == before
    assert left(bus) == set()
    told(bus, "c/z", "join")
    bus.settle()
    assert rows_of(bus, "c/z") == rows_of(bus, "a/x")
    bus.check()


def test_if_the_giver_is_out_another_member_gives():
    bus = begin()
    bus.ask("exclude_member", server="a", group="book", agent="a/x")
    casts(bus, "b/y", 0, 100)
    bus.settle()
    assert bus.state("z")["views"][-1] == ["b/y", "c/z"]
    assert rows_of(bus, "c/z") == rows_of(bus, "b/y")
    assert left(bus) == set()
    bus.check()


def test_no_more_is_under_way_than_a_window():
    bus = begin()
    bus.kill("c", down=float("inf"))
    for turn in range(20):
        casts(bus, "b/y", 30 * turn, 30)
        bus.advance(1)
    clients: Any = bus._cluster.nodes["a"].server.clients
    (give,) = clients.members.states.gives.of.values()
    assert give.waits() and give.pages - give.got["c/z"] == WINDOW
    assert 0 < len(give.watches["rows"].kept) < 700
    bus.start("c")
    bus.settle()
    assert rows_of(bus, "a/x") == rows_of(bus, "c/z")
    bus.check()


def test_an_operator_sees_how_far_a_new_member_is():
    bus = two()
    for node in bus._cluster.nodes.values():
        node.server.limits.state_rows = 20
    told(bus, "c/z", "join")
    seen = []
    for _ in range(2_000):
        members = bus.ask("group", server="a", group="book")["members"]
        if found := states(members, lambda server: bus.ask("group_states", server=server, group="book")):
            seen += [found[0]] if not seen or seen[-1] != found[0] else []
        elif seen:
            break
        bus.advance(0.001)
    assert {(each["agent"], each["from"]) for each in seen} == {("c/z", "a/x")}
    seen = [each for each in seen if each["pages_come"]]
    come = [each["pages_come"] for each in seen]
    assert come == sorted(come) and come[-1] > 100 and len({*come}) > 3
    assert any(each["pages_sent"] and each["pages_sent"] > each["pages_come"] for each in seen)
    bus.settle()


def test_who_gives_no_page_any_more_or_does_not_answer_is_left_empty():
    members = [{"agent": f"{at}/{name}", "server": at, "waits_for_state_of": of} for at, name, of in (
        ("a", "x", ""), ("b", "y", "a/x"), ("c", "z", "a/x"),
    )]  # fmt: skip
    coming = {"agent": "b/y", "view": 3, "pages": 7, "whole": True, "left": 4}
    given = {"agent": "c/z", "by": "a/x", "view": 3, "pages": 5, "has": 1}
    nothing: dict[str, Any] = {"coming": [], "given": []}
    answers = {"a": {**nothing, "given": [given]}, "b": {**nothing, "coming": [coming]}, "c": nothing}
    assert states(members, answers.__getitem__) == [
        {"agent": "b/y", "from": "a/x", "pages_sent": "", "pages_come": 7, "all_come": True, "pages_left": 4},
        {"agent": "c/z", "from": "a/x", "pages_sent": 5, "pages_come": "", "all_come": False, "pages_left": 0},
    ]
