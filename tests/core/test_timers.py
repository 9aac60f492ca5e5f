"""Timers ring once, deferred functions answer once, and time does not go back."""

from mombroker.core.events import Admin
from tests.core.bus import SECOND
from tests.core.sample_agents import Do
from tests.core.trio import bus


def test_a_timer_survives_a_restart_and_rings_once():
    b = bus()
    b.send("a", "source", Do("timer", 10))
    b.later(5)
    b.crash("a")
    b.boot("a")
    b.later(4)
    assert b.fields("a/source")["news"] == ["created"]
    b.later(2)
    b.later(10)
    assert b.fields("a/source")["news"] == ["created", "rang"]


def test_time_does_not_go_back_over_a_restart():
    """Whoever turns the server begins with its `now`, which comes from its store."""
    b = bus()
    b.send("a", "source", Do("timer", 10))
    before = b.now
    b.crash("a")
    b.now -= 3600 * SECOND
    assert b.boot("a").tx.now == before
    b.now = before
    b.send("a", "source", Do("timer", 10))
    b.later(9)
    assert b.fields("a/source")["news"] == ["created"]
    b.later(2)
    assert b.fields("a/source")["news"] == ["created", "rang", "rang"]


def test_cancelled_and_undone_timers_never_ring():
    b = bus(max_attempts=1)
    b.send("a", "source", Do("cancel", 1))
    b.send("a", "source", Do("timer and fail", 1))
    b.later(5)
    assert b.fields("a/source")["news"] == ["created"]


def test_a_timer_behind_a_cancelled_one_rings_at_its_time():
    """The driver is told of it when the time of the other one has come."""
    b = bus()
    b.send("a", "source", Do("cancel", 1))
    b.send("a", "source", Do("timer", 5))
    server = b.servers["a"]
    b.now += 2 * SECOND
    server.turn(b.now)
    assert server.urgency and b.commit("a").timer == server.timers.next == b.now + 3 * SECOND


def test_a_deferred_function_answers_once_though_it_runs_again_after_a_crash():
    b = bus()
    b.send("a", "source", Do("defer", 21))
    b.send("a", "source", Do("defer", -1))
    assert b.fields("a/source")["news"] == ["created", 42, "negative"]
    fields = {"what": "defer", "value": 4}
    b.servers["a"].step(Admin(99, "send", {"to": ["source"], "type": Do.__wire_name__, "fields": fields}), b.now)
    b.commit("a")  # durable, but the process dies before the function runs
    b.crash("a")
    b.boot("a")
    b.pump()
    assert b.fields("a/source")["news"] == ["created", 42, "negative", 8]


def test_an_alarm_before_all_others_makes_the_driver_ask_when_it_is():
    b = bus()
    server = b.servers["a"]
    assert server.urgency == 0
    for seconds in (5, 2):
        server.natives.alarm(b.now + seconds * SECOND, server.natives.agents["a/_clients"])
        assert server.urgency == 1
        ready = b.commit("a")
        assert ready.timer == b.now + seconds * SECOND
        b.release("a", ready)
