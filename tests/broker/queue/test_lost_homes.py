"""The old or the new home of a queue that moves is lost with its disk, at each step of that: the other one goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import Departure
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.service import Sessions
from mombroker.core.homes import Homes
from mombroker.core.names import Names
from tests.broker.bench import Broker
from tests.broker.queue.test_moves_and_losses import COUNT, ROUTER, lose, moving, replace_store, rounds

STEPS = 24  # rounds of the bus that a move has at most
LEFT = {"b": {"x": "a"}, "e": {"y": "d"}}  # who is left of the domains of a home
KINDS = ("queue:orders", "sub:me:d")


def successor(b: Broker, name: str) -> None:
    """Another server in the place of a lost one."""
    sponsors = [each for each, it in b.servers.items() if each != name and "revision" in it.newcomers.invitation(name)]
    replace_store(b, name, sponsors[0])


def full(name: str, home: str) -> Broker:
    b = Broker(ROUTER)
    if name.startswith("queue"):
        b.connect(home).send(name, *map(str, range(COUNT)))
    else:
        b.connect(home, client_id="me").subscribe("s", "topic:t", durable="d").close()
        b.connect(home).send("topic:t", *map(str, range(COUNT)))
    assert b.queue(name).id == f"{home}/{name}"
    return b


def homes(b: Broker, name: str) -> dict[str, Queue]:
    """Where there is a queue of this name."""
    found = {server: it.natives.agents.get(f"{server}/{name}") for server, it in b.servers.items()}
    return {server: queue for server, queue in found.items() if isinstance(queue, Queue)}


def known(b: Broker, name: str) -> str:
    """The home that all servers know."""
    ids = {server.names.known.get(name, "") for server in b.servers.values()}
    assert len(ids) == 1, "all know the same"
    assert not any(server.names.others for server in b.servers.values()), "there is one home"
    return ids.pop().partition("/")[0]


def goes_on(step: int, lost: str, name: str = "queue:orders", anew: bool = True) -> tuple[str, str, list[str]]:
    """It moves from b to e. What the name meant before one of them was lost, means then, and what is left."""
    b = full(name, "b")
    b.queue(name).depart("e")
    rounds(b, step)
    before = {server.names.known[name].partition("/")[0] for server in b.servers.values()}
    other = {"b": "e", "e": "b"}[lost]
    b.crash(lost)
    b.pump()
    told = all(server.names.others.get(name) == f"{other}/{name}" for server in b.servers.values())
    told = told and other in homes(b, name)
    lose(b, lost, LEFT[lost])
    if anew:
        successor(b, lost)
    assert not moving(b)
    home, found = known(b, name), homes(b, name)
    assert [*found] == ([home] if home else []), "whoever has the name, and nobody else"
    if before == {other} or told:
        assert home == other, "all knew both homes"
    if not home:
        return before.pop() if len(before) == 1 else "", home, []
    queue = found[home]
    if name.startswith("queue"):
        b.connect("a").send(name, "last")
        got = b.connect("d").subscribe("s", name, prefetch=1000).texts
    else:
        b.connect("a").send("topic:t", "last")
        got = b.connect("d", client_id="me").subscribe("s", "topic:t", durable="d", prefetch=1000).texts
    assert got[-1] == "last" and sorted({*got[:-1]}, key=int) == got[:-1], "in order, and none twice"
    assert not queue.messages.count
    if anew:
        queue.depart("a")
        b.pump()
        assert known(b, name) == "a" and not moving(b), "it may move again"
    return before.pop() if len(before) == 1 else "", home, got[:-1]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("step", range(STEPS))
def test_without_the_new_home_it_stays(name, step):
    before, home, _ = goes_on(step, "e", name)
    assert home == "b" or before == "e", "only one that had come entirely is lost"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("step", range(STEPS))
def test_without_the_old_home_what_has_come_is_there(name, step):
    before, home, got = goes_on(step, "b", name)
    assert home in ("e", "")
    if before == "e":
        assert home == "e" and len(got) == COUNT


def test_each_outcome_is_there():
    """Without and with what has come, and with a part of it."""
    lost = [goes_on(step, "b") for step in range(0, STEPS, 2)]
    assert {home for _, home, _ in lost} == {"", "e"}
    assert any(0 < len(got) < COUNT for *_, got in lost)


@pytest.mark.parametrize("lost", LEFT)
def test_nobody_has_taken_the_place_yet(lost):
    for step in range(2, STEPS, 3):
        goes_on(step, lost, anew=False)


@pytest.mark.parametrize("lost", LEFT)
def test_consumers_connect_again_and_go_on(lost):
    for step in range(1, STEPS, 4):
        b = full("queue:orders", "b")
        consumer = b.connect("d").subscribe("s", "queue:orders", prefetch=10)
        b.queue("queue:orders").depart("e")
        rounds(b, step)
        b.crash(lost)
        b.pump()
        lose(b, lost, LEFT[lost])
        homed = known(b, "queue:orders")
        if not consumer.refusals:
            assert homed and homed != lost
        else:
            assert "connect again" in consumer.refusals[0]
            consumer.close()
            again = b.connect("d").subscribe("s", "queue:orders", prefetch=1000)
            b.connect("a").send("queue:orders", "last")
            assert again.texts[-1] == "last"


def test_a_consumer_of_a_lost_queue_hears_of_it():
    b = full("queue:orders", "e")
    consumer = b.connect("d").subscribe("s", "queue:orders")
    other = b.connect("d").subscribe("s", "queue:others").subscribe("t", "topic:t")
    b.crash("e")
    b.pump()
    lose(b, "e", LEFT["e"])
    assert consumer.refusals == ["what it takes from lived on e, which is not there any more: connect again"]
    assert not other.refusals


def test_what_was_asked_without_knowing_of_the_loss_is_not_decided():
    b = full("queue:orders", "b")
    names, homes = b.servers["b"].names, b.servers["a"].names.homes
    for ask in (names.pair, names.move):
        ask("queue:orders", "b/queue:orders", "e/queue:orders")
        homes.fenced, homes.decided = (lambda server: 7 * (server == "e")), (lambda server: server == "e")
        b.pump()
        assert known(b, "queue:orders") == "b"


def dropped(departure: Departure, server: str) -> None:
    departure.passed(server)


BROKEN: dict[str, tuple[Any, str, Any, int, str]] = {
    "who has lost the new home goes on": (Departure, "lost", dropped, 8, "e"),
    "who has lost the old home waits": (Arrival, "lost", lambda *args: None, 8, "b"),
    "nobody knows both homes": (Names, "_left_to_other", lambda *args: False, 8, "b"),
    "nor at the old one": (Names, "_left_to_other", lambda *args: False, 13, "e"),
    "who has nothing stays": (Queue, "dissolve", lambda *args: None, 2, "b"),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_is_needed(what, monkeypatch):
    where, method, broken, step, lost = BROKEN[what]
    monkeypatch.setattr(where, method, broken)
    with pytest.raises(AssertionError):
        for at in range(step - 2, step + 5):
            goes_on(max(at, 0), lost)


def not_told() -> None:
    """The registry cannot be reached when it is to tell all of both homes, and then the old home is lost."""
    b = full("queue:orders", "b")
    b.cut("a", "b")
    b.queue("queue:orders").depart("e")
    b.pump()
    b.crash("b")
    b.pump()
    lose(b, "b", {"x": "c"})
    assert not moving(b) and not known(b, "queue:orders") and not homes(b, "queue:orders")


@pytest.mark.interpreted
def test_nothing_is_sent_before_all_know_both_homes(monkeypatch):
    not_told()
    monkeypatch.setattr(Departure, "_paired", lambda self: True)
    with pytest.raises(AssertionError):
        not_told()


def test_a_late_request_is_needed(monkeypatch):
    monkeypatch.setattr(Homes, "late", lambda *args: False)
    with pytest.raises(AssertionError):
        test_what_was_asked_without_knowing_of_the_loss_is_not_decided()


@pytest.mark.interpreted
def test_a_consumer_that_hears_nothing_waits_for_ever(monkeypatch):
    monkeypatch.setattr(Sessions, "_dismiss", lambda *args: None)
    with pytest.raises(AssertionError):
        test_a_consumer_of_a_lost_queue_hears_of_it()


def test_who_begins_in_a_lost_place_keeps_no_name_of_what_lived_there():
    b = Broker(ROUTER)
    b.connect("e").send("queue:here", "1")
    e = b.servers["e"]
    e.names.known["queue:gone"] = "e/queue:gone"  # as told by who had not heard of the loss
    e.lost.applied("e", "d", 1)
    assert "queue:gone" not in e.names.known and "queue:here" in e.names.known
