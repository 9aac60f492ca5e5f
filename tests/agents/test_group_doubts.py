"""Casts of who is out that come while a view is made without it."""

from mombroker.agents import Agent, NotDelivered, View, notification, reacts
from mombroker.agents.testing import Bus


@notification
class Do:
    what: str


@notification
class Said:
    text: str


class Member(Agent):
    log: list[str] = []  # noqa: RUF012 - its state

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "join":
            self.join("ledger")
        else:
            self.group("ledger").cast(Said(note.what))

    @reacts
    def said(self, note: Said) -> None:
        self.log = [*self.log, note.text]

    @reacts
    def viewed(self, note: View) -> None:
        self.log = [*self.log, "".join(each[-1] for each in note.members)]

    @reacts
    def returned(self, note: NotDelivered) -> None:
        assert isinstance(note.note, Said)
        self.log = [*self.log, f"{note.note.text} came back"]


def told(bus: Bus, agent: str, what: str) -> None:
    bus.send(agent, Do(what), server=agent.partition("/")[0])
    bus.advance(1)


def doubtful(had: bool) -> tuple[Bus, list[str]]:
    """x casts, is cut off, and put out, and y gets the cast when it has flushed. What y has then, and the bus at rest.
    `had`: z has it by then."""
    bus = Bus({"d/w": Member, "a/x": Member, "b/y": Member, "c/z": Member})
    for each in ("d/w", "a/x", "b/y", "c/z"):
        told(bus, each, "join")
    bus.settle()
    for other in "bd" if had else "bcd":
        bus.cut("a", other)
    told(bus, "a/x", "late")
    bus.cut("c", "d")
    bus.ask("exclude_member", server="d", group="ledger", agent="a/x")
    bus.advance(1)
    bus.heal("a", "b")
    bus.advance(1)
    before: list[str] = bus.state("y")["log"]
    bus.heal("c", "d")
    bus.advance(1)
    for other in "cd":
        bus.heal("a", other)
    bus.settle()
    bus.check()
    return bus, before


def logs(bus: Bus) -> dict[str, list[str]]:
    return {each: bus.state(each)["log"][-2:] for each in "wxyz"}


def test_what_nobody_else_has_comes_to_nobody():
    bus, before = doubtful(had=False)
    assert before == ["wxy", "wxyz"]
    others = dict.fromkeys("wyz", ["wxyz", "wyz"])
    assert logs(bus) == {**others, "x": ["late came back", "wyz"]}


def test_what_one_other_has_comes_to_all_before_the_view():
    bus, before = doubtful(had=True)
    assert before == ["wxy", "wxyz"]
    assert logs(bus) == dict.fromkeys("wxyz", ["late", "wyz"])
