"""Whose state a new member has, when others are out."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mombroker.agents import Agent, Table, View, notification, reacts
from mombroker.agents.testing import Bus
from mombroker.broker.groups.comings import Comings
from tests.fakes_groups import broken

ROWS = 100


@notification
class Do:
    what: str


@notification
class Said:
    row: int


class Book(Agent):
    rows: Table
    log: list[str | int] = []  # noqa: RUF012 - its state
    size: int = 0

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "join":
            self.join("book")
        elif note.what == "leave":
            self.leave("book")
        elif note.what == "found":
            self.join("other")
        elif note.what == "join and wait":
            self.join("book")
            self.group("other").cast(Said(0), order="total")
        elif note.what == "fill":
            for row in range(ROWS):
                self.rows[row] = 1
        else:
            self.group("book").cast(Said(int(note.what)))

    @reacts
    def said(self, note: Said) -> None:
        self.rows[note.row] = 1
        self.log = [*self.log, note.row]
        self.size = len([*self.rows])

    @reacts
    def viewed(self, note: View) -> None:
        self.log = [*self.log, "".join(each[-1] for each in note.members)]

    def snapshot(self, group: str) -> None:
        return None

    def snapshot_tables(self, group: str) -> list[Table]:
        return [self.rows]


def told(bus: Bus, agent: str, what: str) -> None:
    bus.send(agent, Do(what), server=agent.partition("/")[0])
    bus.advance(1)


def exclude(bus: Bus, agent: str) -> None:
    bus.ask("exclude_member", server="d", group="book", agent=agent)
    bus.advance(1)


def four() -> Bus:
    """x is the eldest; z and w have its rows, and y not. The home is on d."""
    bus = Bus({"a/x": Book, "b/y": Book, "c/z": Book, "d/w": Book, "d/f": Book})
    told(bus, "d/f", "fill")
    told(bus, "d/f", "join")
    for each in ("a/x", "c/z", "d/w"):
        told(bus, each, "join")
        bus.settle()
    told(bus, "d/f", "leave")
    bus.cut("c", "b")
    return bus


def told_late() -> Bus:
    """That y has the state of x comes to the home behind the view without x, which b had agreed to before."""
    bus = four()
    bus.cut("a", "b")
    told(bus, "b/y", "join")
    bus.cut("c", "d")
    exclude(bus, "a/x")
    bus.cut("b", "d")
    bus.heal("a", "b")
    bus.advance(5)
    bus.heal("c", "d")
    bus.advance(1)
    bus.kill("c", down=float("inf"))
    bus.heal("b", "d")
    bus.advance(5)
    return bus


@contextmanager
def stopped() -> Iterator[None]:
    """What has come of a state does not go into tables yet."""
    fill = Comings._fill
    Comings._fill = lambda comings, coming: False  # type: ignore[method-assign]
    try:
        yield
    finally:
        Comings._fill = fill  # type: ignore[method-assign]


def fills() -> Bus:
    """The view without x comes while the table of y changes: y has all of the state of x."""
    bus = four()
    with stopped():
        told(bus, "b/y", "join")
        exclude(bus, "a/x")
    bus.kill("c", down=float("inf"))
    return bus


def ended(begins):
    """z is to give a state next, and is out before it has; then all is at rest."""
    bus = begins()
    told(bus, "d/w", str(ROWS))
    exclude(bus, "c/z")
    bus.start("c")
    bus.heal("c", "b")
    bus.settle()
    return bus


@pytest.mark.parametrize("begins", [told_late, fills])
def test_who_has_a_state_keeps_it_whoever_is_to_give_another_one(begins):
    bus = ended(begins)
    assert bus.state("y")["log"] == ["xzwy", "zwy", ROWS, "wy"]
    assert bus.state("w")["log"] == ["fxzw", "xzw", *bus.state("y")["log"]]
    assert bus.state("y")["size"] == bus.state("w")["size"] == ROWS + 1
    bus.check()


@pytest.mark.parametrize("begins", [told_late, fills])
def test_otherwise_it_would_miss_the_views_in_which_it_waits(begins):
    with broken("another state"):
        bus = ended(begins)
    assert bus.state("y")["log"] != ["xzwy", "zwy", ROWS, "wy"]


def test_who_has_a_state_takes_that_of_one_that_begins_without():
    """Only y has come to the state of x, as the home does not know; z, which is to go on without it, waits for the home
    of another group."""
    bus = Bus({"a/x": Book, "b/y": Book, "c/z": Book, "d/f": Book, "e/g": Book})
    for agent, what in (("d/f", "fill"), ("d/f", "join"), ("a/x", "join"), ("d/f", "leave"), ("e/g", "found")):
        told(bus, agent, what)
    bus.cut("c", "e")
    told(bus, "c/z", "join and wait")
    with stopped():
        told(bus, "b/y", "join")
        exclude(bus, "a/x")
    bus.heal("c", "e")
    bus.settle()
    told(bus, "c/z", "1")
    assert bus.state("z")["log"] == ["zy", 1]
    assert bus.state("y")["log"] == ["xzy", "zy", 1]
    assert bus.state("z")["size"] == bus.state("y")["size"] == 1
    bus.check()
