"""Whoever waits for a change of the domains is told for whom, and does not wait for ever. Time is virtual."""

import pytest

from mombroker.admin.cli import following
from mombroker.admin.cli.options import Failure
from mombroker.admin.topology import under_way
from mombroker.core.errors import MomError
from mombroker.net.exit_codes import ExitCode

GOES_ON = "apply the file again"
SILENT = "c does not answer: see `mom status`"


class Clock:
    """`due` are deeds by the number of the wait that they come with."""

    def __init__(self):
        self.now, self.waits, self.due = 0.0, 0, {}

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now, self.waits = self.now + seconds, self.waits + 1
        self.due.get(self.waits, lambda: None)()


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(following, "time", made)
    return made


@pytest.fixture
def joining(monkeypatch):
    """Those that have joined, and were not started yet."""
    names = ["e", "g"]
    monkeypatch.setattr(under_way, "statuses", lambda topology: [{"joining": names}])
    return names


def refuses():
    raise MomError(SILENT)


def test_it_names_those_that_were_not_started_and_gives_up_in_time(clock, joining, capsys):
    clock.due[2] = lambda: joining.remove("e")
    with pytest.raises(Failure) as found:
        following.when_they_run(None, ["e", "g"], refuses, GOES_ON, 100.0)
    assert found.value.exit_code == ExitCode.INCOMPLETE
    assert found.value.message == "the domains have not changed within 100 s; apply the file again"
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" joined: start each by")[0] for line in lines] == ["e and g", "g", "g", "g", "g"]
    assert clock.now == 100.0


def test_it_says_who_else_does_not_answer_and_goes_on_with_it(clock, joining, capsys):
    """A server that is down beside a newcomer that runs is not taken for that."""
    joining.clear()
    answers, done = [refuses, refuses, lambda: {"revision": 3}], {"revision": 3}
    assert following.when_they_run(None, ["e"], lambda: answers.pop(0)(), GOES_ON, 100.0) == done
    assert capsys.readouterr().err == f"it is tried again: {SILENT}\n"


def test_nothing_is_asked_for_before_all_were_started(clock, joining):
    """Each change that is given up has been sent to the newcomer, and refuses that of another operator meanwhile."""
    clock.due[5] = joining.clear
    asked = []
    following.when_they_run(None, ["e", "g"], lambda: asked.append(clock.waits) or {}, GOES_ON, 100.0)
    assert asked == [5]


def test_another_refusal_ends_it(clock, joining):
    def refuses():
        raise MomError("c is full")

    joining.clear()
    with pytest.raises(MomError, match="c is full"):
        following.when_they_run(None, ["e"], refuses, GOES_ON, 100.0)


def test_an_interrupt_tells_how_it_goes_on(clock, joining):
    clock.due[3] = interrupt
    with pytest.raises(MomError, match=f"^interrupted; {GOES_ON}$"):
        following.when_they_run(None, ["e"], refuses, GOES_ON, 100.0)


@pytest.fixture
def never_over(monkeypatch, clock):
    row = {
        "server": "b", "revision": 1, "phase": "frozen", "change": 2, "gate": 0, "joining": [],
        "waits_for": ["the mark of c"], "bus": {"waits_for": ["b"]},
    }  # fmt: skip
    monkeypatch.setattr(under_way, "statuses", lambda topology: [dict(row)])
    follow = under_way.follow
    times = {"sleep": clock.sleep, "clock": clock.monotonic}
    monkeypatch.setattr(under_way, "follow", lambda *given, timeout: follow(*given, timeout=timeout, **times))


def test_the_end_of_a_change_is_not_waited_for_for_ever(never_over, clock, capsys):
    with pytest.raises(Failure, match="not all have switched within 12 s; the change to revision 2 goes on") as found:
        following.wait_for(None, 2, 12.0)
    assert found.value.exit_code == ExitCode.INCOMPLETE
    assert capsys.readouterr().err == "b waits for the mark of c\n" * 2


def test_an_interrupt_of_it_tells_that_the_change_goes_on(never_over, clock):
    clock.due[3] = interrupt
    with pytest.raises(MomError, match="^interrupted; the change to revision 2 goes on by itself: see `mom topology"):
        following.wait_for(None, 2, 12.0)
