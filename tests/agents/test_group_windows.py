"""How much a member may cast that others have not got yet, and who knows that it waits."""

from typing import Any

import pytest

from mombroker.agents.testing import Bus
from tests.agents.test_groups import THREE, Do, small_window, told
from tests.fakes_groups import broken

WORDS = [f"word-{number}" for number in range(300)]


def filled(monkeypatch, restarts):
    """x casts more than z may lack, which is down; then some servers are started anew, the one of z the last."""
    small_window(monkeypatch)
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    bus.kill("c", down=float("inf"))
    bus.send("x", Do("causal", " ".join(WORDS)), server="a")
    bus.advance(2)
    assert bus.ask("group", server="a", group="ledger")["copies_here"] == 130
    assert bus.state("y")["heard"] == WORDS[:130]
    for server in restarts:
        bus.kill(server)
        bus.advance(2)
    bus.start("c")
    bus.advance(60)
    return bus


@pytest.mark.parametrize("restarts", ["", "a", "ba"])
def test_who_has_cast_as_much_as_some_may_lack_waits_with_the_rest(monkeypatch, restarts):
    """Who has what is known in memory alone: it is told anew when the server of the home, or of a member, comes up."""
    bus = filled(monkeypatch, restarts)
    assert [bus.state(each)["heard"] for each in "xyz"] == [WORDS] * 3
    assert bus.ask("group", server="a", group="ledger")["copies_here"] < 130
    bus.check()


def test_who_waits_since_others_lack_its_casts_says_so_and_the_home_whose_servers_lack_them(monkeypatch):
    """The group lives on b. After its restart it knows of c by what a has told it, and that c has told nothing."""
    small_window(monkeypatch)
    bus = Bus(THREE)
    for each in "yxz":
        told(bus, each, "join")
    told(bus, "x", "causal", " ".join(WORDS[:129]))  # with the rest of a sixteenth not told
    assert [bus.ask("why", server=each)["waits"] for each in "abc"] == [[], [], []]
    bus.kill("c", down=float("inf"))
    bus.send("x", Do("causal", " ".join(WORDS[:129])), server="a")
    told_home = [{"kind": "casts", "group": "ledger", "agent": "a/x", "waits_for": ["c"]}]
    for restarts in (False, True):
        if restarts:
            bus.kill("b")
        bus.advance(2)
        assert [_of_casts(bus, each) for each in "ab"] == [[], told_home]
    bus.send("x", Do("causal", " ".join(WORDS)), server="a")
    bus.advance(2)
    full = [{"kind": "window", "group": "ledger", "agent": "a/x", "home": "b"}]
    assert [_of_casts(bus, each) for each in "ab"] == [full, told_home]
    bus.start("c")
    bus.settle()
    assert [bus.ask("why", server=each)["waits"] for each in "abc"] == [[], [], []]
    bus.check()


def _of_casts(bus: Bus, server: str) -> list[dict[str, Any]]:
    return [each for each in bus.ask("why", server=server)["waits"] if each["kind"] in ("casts", "window")]


@pytest.mark.interpreted
def test_otherwise_it_would_wait_for_good(monkeypatch):
    with broken("asks nobody anew"):
        bus = filled(monkeypatch, "a")
    assert bus.state("z")["heard"] == WORDS[:130] and bus.state("x")["heard"] == []


def test_nobody_waits_for_good_for_members_that_are_restarted_again_and_again(monkeypatch):
    small_window(monkeypatch)
    bus = Bus(THREE)
    for each in "xyz":
        told(bus, each, "join")
    for begin in range(0, 300, 30):
        told(bus, "x", "causal", " ".join(WORDS[begin : begin + 30]))
        for server in "bc":
            bus.kill(server)
        bus.settle()
    assert [bus.state(each)["heard"] for each in "xyz"] == [WORDS] * 3
    bus.check()
