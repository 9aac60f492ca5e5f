"""Replicated: what an author may write, and that all copies do the same, whatever becomes of a command."""

import pytest

from mombroker.agents import Agent, Delivered, ReactionFailed, Replicated, command, consumes, notification, reacts
from mombroker.agents.testing import Bus


@notification
class Add:
    number: int


@notification
class Double:
    pass


@notification
class Sum:
    number: int
    more: bytes = b""


class Adder:
    """Commands for any Replicated that has a `total`."""

    @command
    def add(self, note: Add) -> object:
        self.total += note.number
        return {7: 7, 8: Sum(0, b"8" * (9 << 20))}.get(note.number, Sum(self.total))


class Count(Adder, Replicated):
    total: int = 0

    @command
    def double(self, note: Double) -> object:
        return self.add(Add(self.total))


class Modest(Count):
    group_name = "modest"

    @command
    def add(self, note: Add) -> object:
        return super().add(note) if note.number < 100 else Sum(self.total)


class Asker(Agent):
    heard: list = []  # noqa: RUF012

    @reacts
    def add(self, note: Add) -> None:
        self.send("one", note)

    @reacts
    def double(self, note: Double) -> None:
        self.send("two", note)

    @reacts
    def told(self, note: Sum) -> None:
        self.heard.append(note.number)

    @reacts
    def failed(self, note: ReactionFailed) -> None:
        self.heard.append(note.reason)


def run(cls: type[Replicated], *notes: object) -> tuple[list[int], list[object]]:
    """The totals of three copies, and what was answered."""
    bus = Bus({"a/one": cls, "b/two": cls, "c/three": cls, "d/ann": Asker})
    bus.settle()
    for note in notes:
        bus.send("ann", note)
        bus.advance(60)
    bus.check()
    return [bus.state(copy)["total"] for copy in ("one", "two", "three")], bus.state("ann")["heard"]


@pytest.mark.parametrize("number, reason", [(7, "int is no notification"), (8, "over the limit")])
def test_a_command_whose_answer_cannot_be_sent_fails_at_all_copies(number, reason):
    totals, heard = run(Count, Add(1), Add(number), Add(2))
    assert totals == [3, 3, 3]
    assert heard[0] == 1 and reason in heard[1] and heard[2] == 3


def test_a_command_that_calls_another_does_it_once_at_each_copy():
    assert run(Count, Add(3), Double()) == ([6, 6, 6], [3, 6])


def test_a_subclass_may_go_on_with_the_command_that_it_redefines():
    assert run(Modest, Add(3), Add(100), Double()) == ([6, 6, 6], [3, 3, 6])


def test_a_copy_that_knows_no_such_command_says_so(monkeypatch):
    monkeypatch.setattr(Count, "_commands", {})
    totals, heard = run(Count, Add(3))
    assert totals == [0, 0, 0]
    assert len(heard) == 1 and "Count has no command for" in heard[0]


def test_why_tells_whose_command_a_copy_waits_for():
    bus = Bus({"a/one": Count, "b/two": Count})
    bus.settle()
    bus.kill("a", down=100)
    bus.send("two", Add(1), server="b")
    bus.send("two", Add(2), server="b")
    bus.advance(20)
    (wait,) = (each for each in bus.ask("why", server="b")["waits"] if each["kind"] != "link")
    assert (wait["kind"], wait["agent"]) == ("cast", "b/two")
    assert wait["reason"] == "a cast of its own in group Count has its place at a"


def test_only_a_replicated_has_commands():
    with pytest.raises(TypeError, match=r"Plain\.add: only a Replicated has commands"):
        type("Plain", (Adder, Agent), {})


async def _reaction(self: Agent, note: Add) -> None: ...


def _yields(self: Agent, note: Add) -> object:
    yield


async def _message(self: Agent, note: Delivered) -> None: ...


@pytest.mark.parametrize("base, made", [
    (Agent, lambda: reacts(_reaction)), (Agent, lambda: reacts(_yields)), (Replicated, lambda: command(_reaction)),
    (Agent, lambda: consumes("/queue/q")(_message)),
])  # fmt: skip
def test_a_reaction_that_would_be_called_and_do_nothing_is_refused(base, made):
    with pytest.raises(TypeError, match=r"Late\.taken: a reaction is done when it returns"):
        type("Late", (base,), {"taken": made()})
