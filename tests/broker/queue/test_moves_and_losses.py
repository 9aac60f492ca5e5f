"""A queue moves over a router that is lost with its disk, at each step of the move: it comes to its end."""

from __future__ import annotations

import pytest

from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import Departure
from mombroker.broker.queue.queue import Queue
from mombroker.core import newcomers
from mombroker.core.names import Names
from mombroker.store.memory import MemoryStore
from tests.broker.bench import Broker
from tests.core.bus import topology

ROUTER = topology({"x": "abc", "y": "cde"})
COUNT = 300
STEPS = 20  # rounds of the bus that a move has at most


def lose(b: Broker, name: str, domains: dict[str, str]) -> None:
    """Its disk is gone; `domains`: a member of each of its domains that is left."""
    for domain, server in domains.items():
        assert b.ask(server, "lose", servers=[name], domain=domain, epoch=1) == {"domain": domain, "epoch": 1}


def replace_store(b: Broker, name: str, sponsor: str) -> None:
    made, rows = newcomers.rows(name, b.servers[sponsor].newcomers.invitation(name))
    b.stores[name] = MemoryStore(made, name, f"another store of {name}")
    b.stores[name].disk.meta |= rows
    b.boot(name)
    for domain in made.domains_of(name):
        for peer in domain.members:
            if peer != name:
                b.join(name, peer)
    b.pump()


def rounds(b: Broker, count: int) -> bool:
    """True if the bus has come to rest by then."""
    try:
        b.pump(count)
    except AssertionError as error:
        assert "does not come to rest" in str(error)
        return False
    return True


def moving(b: Broker) -> list[str]:
    return [id for each in b.servers.values() for id, it in each.natives.agents.items() if getattr(it, "move", None)]


def letters(b: Broker) -> int:
    return sum(len(server.dead_letters.letters) for server in b.servers.values())


def comes_to_its_end(step: int) -> None:
    b = Broker(ROUTER)
    b.connect("a").send("queue:orders", *map(str, range(COUNT)))
    b.queue("queue:orders").depart("e")
    rounds(b, step)
    b.crash("c")
    b.pump()
    lose(b, "c", {"x": "a", "y": "d"})
    replace_store(b, "c", "a")
    assert not moving(b)
    assert {server.names.known["queue:orders"] for server in b.servers.values()} == {"e/queue:orders"}
    b.connect("b").send("queue:orders", "last")
    got = b.connect("d").subscribe("s", "queue:orders", prefetch=1000).texts
    assert got[-1] == "last" and sorted({*got[:-1]}, key=int) == got[:-1], "in order, and none twice"
    assert b.ask("e", "move_destination", destination="queue:orders", to="b")["to"] == "b"  # and on it goes
    b.pump()
    assert not moving(b) or b.ask("e", "destination", destination="queue:orders")["unacked"]


@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_move_over_a_router_that_is_lost_comes_to_its_end(step):
    comes_to_its_end(step)


NAMED = Names._named
BROKEN = {
    "nothing is asked again": (Departure, "again", lambda *args: None, 5),
    "nor whether something is to come": (Arrival, "again", lambda *args: None, 14),
    "who is made already does not say so": (Queue, "repeated", lambda *args: False, 1),
    "a name means what it meant": (Names, "_named", lambda *args: NAMED(*args[:4]), 10),
}


@pytest.mark.interpreted
@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_is_needed(name, monkeypatch):
    where, method, broken, step = BROKEN[name]
    monkeypatch.setattr(where, method, broken)
    with pytest.raises(AssertionError):
        comes_to_its_end(step)


@pytest.mark.parametrize("name", ["queue:orders", "sub:me:d"])
def test_messages_of_a_page_that_is_lost_are_dead_letters_and_are_sent_again(name):
    b = Broker(ROUTER)
    if name == "queue:orders":
        b.connect("a").send(name, *map(str, range(COUNT)))
    else:
        b.connect("a", client_id="me").subscribe("s", "topic:t", durable="d").close()
        b.connect("a").send("topic:t", *map(str, range(COUNT)))
    b.queue(name).depart("e")
    rounds(b, 2)
    b.cut("a", "c")
    b.pump()
    b.crash("c")
    lose(b, "c", {"x": "a", "y": "d"})
    replace_store(b, "c", "a")
    rows = b.ask("a", "deadletters", limit=COUNT)["letters"]
    assert not moving(b) and len(rows) + b.queue(name).messages.count == COUNT and rows
    for row in rows:
        assert row["agent"] == f"e/{name}" and "it was not delivered" in row["reason"]
        assert b.ask("a", "retry", id=row["id"])["to"] == [b.servers["a"].clients.shown(name)]
    b.pump()
    assert b.queue(name).id == f"e/{name}" and b.queue(name).messages.count == COUNT
