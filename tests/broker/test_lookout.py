"""The lookout of a group, step by step: who is told what, and when."""

from types import SimpleNamespace
from typing import Any

from mombroker.broker.groups.lookout import PROBES, Lookout
from tests.fakes_groups import broken

X, Y, Z = "a/x", "b/y", "c/z"  # the home is on a


class Home:
    """Members on three servers, of which `those` want to know who is down. `told`: who is told what, in order."""

    id = "a/group:watch"

    def __init__(self, *those: str) -> None:
        self.tx: Any = SimpleNamespace(now=0, limits=SimpleNamespace(probe_ns=1))
        self.told: list[tuple[list[str], str, list[str]]] = []
        self.servers = {"b": [Y], "c": [Z]}
        self.lookout = Lookout(self, "watch")
        for agent in those or (X, Y, Z):
            self.lookout.joins(agent, 0, True)
        self.lookout.go_on(lambda agent: True)

    def servers_of_members(self) -> dict[str, list[str]]:
        return self.servers

    def ask(self, server: str, note: Any) -> None:
        pass

    def tell_members(self, agents: list[str], note: Any) -> None:
        if agents:
            self.told.append((agents, note.wire.removeprefix("mom.Member"), note.members))

    def exclude(self, agent: str) -> None:
        raise AssertionError("all are waited for")

    def alarm_at(self, at: int) -> None:
        pass

    def change(self) -> None:
        pass

    def falls_silent(self, server: str, *others: str) -> list[Any]:
        """So long that it is down, while these answer. What is told by then."""
        for _ in range(PROBES + 2):
            self.lookout.alarm(lambda agent: True)
            for each in others:
                self.answers(each)
            self.tx.now += 1
        assert server in self.lookout.down
        return self.new()

    def answers(self, server: str) -> None:
        self.lookout.answers(server)

    def new(self) -> list[Any]:
        self.lookout.check()
        told, self.told = self.told, []
        return told

    def restarts(self) -> None:
        values = self.lookout.values()
        self.lookout = Lookout(self, "watch")
        self.lookout.load(values)
        self.lookout.go_on(lambda agent: True)


def test_who_is_down_is_told_nothing_however_often_others_come_and_go():
    home = Home()
    assert home.falls_silent("b", "c") == [([X, Z], "Down", [Y])]
    for _ in range(5):
        assert home.falls_silent("c") == [([X], "Down", [Z])]
        home.restarts()
        home.answers("c")
        assert home.new() == [([X], "Up", [Z])]
    home.answers("b")
    assert home.new() == [([X, Z], "Up", [Y])]


def test_nobody_is_told_of_a_server_that_has_all_who_want_to_know():
    home = Home(Y)
    assert home.falls_silent("b", "c") == []
    home.answers("b")
    assert home.new() == []
    assert home.falls_silent("c", "b") == [([Y], "Down", [Z])]


def test_who_answers_again_is_told_what_it_has_missed_and_no_more():
    home = Home()
    home.falls_silent("b", "c")
    home.falls_silent("c")
    home.restarts()
    home.answers("b")
    assert home.new() == [([X], "Up", [Y]), ([Y], "Down", [Z])]
    home.falls_silent("b")
    home.answers("c")  # which knows nothing else of b
    assert home.new() == [([X], "Up", [Z])]
    home.answers("b")
    assert home.new() == [([X, Z], "Up", [Y]), ([Y], "Up", [Z])]


def test_of_who_is_no_member_any_more_nothing_was_missed():
    home = Home()
    home.falls_silent("b", "c")
    home.falls_silent("c")
    del home.servers["c"]
    home.lookout.go_on(lambda agent: agent != Z)
    home.answers("b")
    assert home.new() == [([X], "Up", [Y])]


def test_of_what_an_older_program_has_kept_all_were_told_all():
    """Who is down was told that, too."""
    home = Home()
    home.falls_silent("b", "c")
    home.falls_silent("c")
    home.lookout.load(home.lookout.values()[:2])
    home.answers("b")
    assert home.new() == [([X], "Up", [Y]), ([Y], "Up", [Y])]


def test_otherwise_all_of_that_would_wait_for_it():
    with broken("told while down"):
        home = Home()
        home.falls_silent("b", "c")
        assert home.falls_silent("c") == [([X, Y, Z], "Down", [Z])]
