"""An agent moves to another server while it works: with its state, items, timers, and all that waits for it."""

from __future__ import annotations

import pytest

from mombroker.core.departures import Departures
from mombroker.core.limits import Limits
from tests.core.bus import Bus, topology
from tests.core.sample_agents import Do, Put, Tell
from tests.fakes_bus import replaced
from tests.fakes_travels import leaves_at_the_decision

HERE = "tests.core.sample_agents"
THREE = {"x": "abc"}


@pytest.fixture
def b():
    made = Bus(topology(THREE, {"a/sink": f"{HERE}:Sink", "c/source": f"{HERE}:Source"}, allow=(HERE,)))
    made.pump()
    return made


def move(b, agent, to, at="a"):
    return b.ask(at, "move_agent", agent=agent, to=to)


def state(b, server, agent):
    return b.program.describe(*b.stores[server].agent(agent))


def test_it_lives_there_with_all_that_it_has_and_keeps_its_id(b):
    b.send("c", "sink", Put("before"))
    assert move(b, "sink", "b") == {"agent": "a/sink", "from": "a", "to": "b"}
    assert b.stores["a"].agent("a/sink") is None and state(b, "b", "a/sink")["got"] == ["before"]
    assert {server.names.known["sink"] for server in b.servers.values()} == {"a/sink"}
    for server, to in (("a", "sink"), ("b", "a/sink"), ("c", "sink")):
        b.send(server, to, Put(server))
    b.send("c", "c/source", Tell(["a/sink", "c/source"], "from source"))
    assert state(b, "b", "a/sink")["got"] == ["before", "a", "b", "c", "from source"]
    assert state(b, "c", "c/source")["news"][-1] == "from source"
    assert b.ask("b", "agent", agent="sink")["items"]["rows"]["rows"] == 5
    assert b.ask("c", "home", agent="sink") == {"home": "b"}
    assert "does not live on a; ask its home server b" in b.ask("a", "agent", agent="sink")
    for store in b.stores.values():
        store.check()


def test_it_moves_on_and_home_again_and_servers_start_again(b):
    b.send("c", "sink", Put("0"))
    for number, (at, to) in enumerate((("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")), 1):
        move(b, "sink", to, at)
        for name in "abc":
            b.crash(name)
            b.boot(name)
        b.pump()
        b.send("b", "sink", Put(str(number)))
        assert state(b, to, "a/sink")["got"] == list(map(str, range(number + 1)))
        homes = [server.homes.moved for server in b.servers.values()]
        assert homes == [{} if to == "a" else {"a/sink": to}] * 3
    assert b.ask("c", "agent", agent="sink")["items"]["rows"]["rows"] == 5


def test_one_that_is_declared_is_not_made_again_while_it_is_on_its_way_home(b):
    b.send("c", "sink", Put("before"))
    move(b, "sink", "b")
    b.cut("a", "c")
    move(b, "sink", "a", at="b")  # it waits for c to learn of it
    assert b.servers["a"].homes.home("a/sink") == "a" and b.stores["a"].agent("a/sink") is None
    b.crash("a")
    b.boot("a")
    b.pump()
    b.join("a", "c")
    b.pump()
    assert state(b, "a", "a/sink")["got"] == ["before"]
    assert not b.records("a", "dead")


def test_its_timers_ring_there_and_can_be_cancelled_by_the_ids_that_it_has(b):
    b.send("a", "source", Do("timer", 5))
    move(b, "source", "b", "c")
    assert not b.stores["c"].tasks() and [task.shown for task in b.stores["b"].tasks()] != []
    b.later(6)
    assert state(b, "b", "c/source")["news"] == ["created", "rang"]
    assert not [*b.stores["b"].tasks()]


def test_a_deferred_function_ends_once_though_it_runs_twice(b):
    b.send("a", "source", Do("defer", 21))
    assert state(b, "c", "c/source")["news"] == ["created", 42]
    move(b, "source", "b", "c")
    b.send("a", "source", Do("defer", -1))
    assert state(b, "b", "c/source")["news"] == ["created", 42, "negative"]


def test_what_waits_comes_along_in_order_with_its_failures(b):
    """Its first message fails again and again; the others wait behind."""
    for text in ("bad", "1", "2", "3"):
        b.send("c", "sink", Put(text))
    assert b.servers["a"].engine.inboxes.boxes["a/sink"].queue[0].attempts == 1
    move(b, "sink", "b")
    b.send("c", "sink", Put("4"))
    box = b.servers["b"].engine.inboxes.boxes["a/sink"]
    assert box.queue[0].attempts == 2 and len(box.queue) == 5
    for _ in range(3):
        b.later(70)
    assert state(b, "b", "a/sink")["got"] == ["1", "2", "3", "4"]
    assert b.ask("b", "deadletters")["letters"][0]["attempts"] == 5


def test_a_long_inbox_and_many_items_come_page_by_page():
    b = Bus(
        topology(THREE, {"a/sink": f"{HERE}:Sink"}, allow=(HERE,)),
        Limits(max_inbox=5, batch_bytes=3_000, turn_reactions=4),
    )
    b.pump()
    texts = [f"text {number}" for number in range(400)]
    for text in texts[:200]:
        b.send("c", "sink", Put(text))
    b.send("c", "sink", Put("bad"))
    for text in texts[200:]:
        b.send("c", "sink", Put(text))
    move(b, "sink", "b")
    for _ in range(4):
        b.later(70)
    assert state(b, "b", "a/sink")["got"] == texts
    assert b.ask("b", "agent", agent="sink")["items"]["rows"]["rows"] == 400
    for store in b.stores.values():
        store.check()


def test_what_is_larger_than_a_page_comes_in_pieces(b):
    b.send("c", "sink", Put("x" * 900_000))
    b.send("c", "sink", Put("small"))
    move(b, "sink", "b")
    assert [len(text) for text in state(b, "b", "a/sink")["got"]] == [900_000, 5]
    assert b.ask("b", "agent", agent="sink")["items"]["rows"]["rows"] == 2
    assert not [place for place in b.stores["b"].places() if place[0] == "b/_moves"]


def test_what_is_sent_meanwhile_comes_behind_what_was_sent_before(b):
    """c has not heard that a has passed: what it sends goes by the former home, and what b sends waits for that."""
    b.cut("a", "c")
    b.cut("b", "c")
    b.send("c", "sink", Put("from c"))
    move(b, "sink", "b")
    assert b.ask("a", "agent", agent="sink")["waits_for"] == "c to answer"
    b.send("b", "sink", Put("by the former home"))
    assert state(b, "a", "a/sink")["got"] == ["by the former home"]
    b.join("a", "c")
    b.pump()
    b.join("b", "c")
    b.pump()
    assert state(b, "b", "a/sink")["got"] == ["by the former home", "from c"]


def a_slow_sender():
    """What the agent of b got: d sends it one message before it hears of the new home, which is long under way, and one
    to the new home."""
    b = Bus(topology({"x": "abcd"}, {"b/sink": f"{HERE}:Sink"}, allow=(HERE,)))
    b.pump()
    homes = b.servers["b"].homes
    relocate = homes.relocate

    def cut_off(*args):
        b.cut("b", "d")
        b.cut("a", "d")  # the registry, which tells of the new home
        relocate(*args)

    homes.relocate = cut_off
    move(b, "sink", "c", at="b")
    b.send("d", "sink", Put("first"))
    b.join("a", "d")
    b.pump()
    b.send("d", "sink", Put("second"))
    b.join("b", "d")
    b.pump()
    return state(b, "c", "b/sink")["got"]


def test_it_leaves_when_all_that_was_sent_to_its_former_home_has_come():
    assert a_slow_sender() == ["first", "second"]


def test_control_it_leaves_at_the_decision():
    with replaced(Departures, "relocated", leaves_at_the_decision):
        assert a_slow_sender() != ["first", "second"]


def test_it_is_refused_where_it_cannot_be(b):
    assert "lives on a already" in move(b, "sink", "a")
    assert "not a server of this bus" in move(b, "sink", "z")
    assert "does not live on b" in move(b, "sink", "c", at="b")
    b.ask("a", "create_queue", destination="queue:q")
    assert "have `mom queue move`" in move(b, "a/queue:q", "b")
    b.ask("b", "drain", to="c")
    move(b, "sink", "b")
    assert "b is drained" in b.ask("a", "agent", agent="sink")["waits_for"]
    assert move(b, "sink", "c")["to"] == "c" and state(b, "c", "a/sink")["got"] == []


def test_one_that_is_deleted_is_no_more_anywhere(b):
    move(b, "sink", "b")
    b.ask("c", "delete", agent="sink")
    assert b.stores["b"].agent("a/sink") is None
    assert [server.homes.moved for server in b.servers.values()] == [{}] * 3
    b.send("c", "source", Tell(["a/sink"], "late"))
    assert state(b, "c", "c/source")["news"][-1].startswith("UnknownAgent a/sink")


def test_one_that_is_deleted_on_its_way_is_for_nobody(b):
    b.cut("a", "c")
    b.cut("b", "c")
    move(b, "sink", "b")
    b.ask("a", "delete", agent="a/sink")
    b.join("a", "c")
    b.join("b", "c")
    b.pump()
    assert not b.servers["b"].arrivals.coming and not b.servers["a"].departures.leaving
    b.send("c", "source", Tell(["a/sink"], "late"))
    assert state(b, "c", "c/source")["news"][-1].startswith("UnknownAgent a/sink")


def test_a_guest_that_leaves_is_known_after_a_restart_by_who_has_not_heard_of_its_new_home(b):
    move(b, "sink", "b")
    b.cut("a", "c")
    move(b, "sink", "a", at="b")
    assert b.ask("b", "agent", agent="a/sink")["waits_for"] == "c to learn of it"
    b.crash("b")
    b.boot("b")
    b.pump()
    b.send("c", "sink", Put("1"))
    b.send("b", "sink", Put("waits"))
    b.send("c", "sink", Put("2"))
    assert state(b, "b", "a/sink")["got"] == ["1", "2"]
    b.join("a", "c")
    b.pump()
    assert state(b, "a", "a/sink")["got"] == ["1", "2", "waits"]
    assert not [row for server in "abc" for row in b.records(server, "redeliver")]


def test_what_a_move_has_asked_may_be_asked_again_in_each_of_its_phases(b):
    """As after the loss of a server, over which the question was under way."""
    b.cut("a", "c")
    b.cut("b", "c")
    for _ in range(3):
        move(b, "sink", "b")
    b.servers["a"].departures.again()
    b.pump()
    b.join("b", "c")
    b.join("a", "c")
    b.pump()
    assert state(b, "b", "a/sink")["got"] == [] and not b.servers["a"].departures.leaving
    b.cut("a", "c")
    move(b, "sink", "a", at="b")
    for _ in range(2):
        b.servers["b"].departures.again()
        b.pump()
    assert b.ask("b", "agent", agent="a/sink")["waits_for"] == "c to learn of it"
    b.send("c", "sink", Put("by the former home"))
    b.join("a", "c")
    b.pump()
    assert state(b, "a", "a/sink")["got"] == ["by the former home"]
    b.send("c", "sink", Put("at home"))
    assert state(b, "a", "a/sink")["got"] == ["by the former home", "at home"]
