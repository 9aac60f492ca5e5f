"""The time of a store that was once ten years ahead is set back, and with it what is due or expires by that."""

import pytest

from mombroker.admin.clock import set_back
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError
from tests.broker.bench import Broker
from tests.core.bus import SECOND, START, topology
from tests.core.sample_agents import Do

TEN_YEARS = 3650 * 86_400 * SECOND
ALONE = topology({}, {"a/source": "tests.core.sample_agents:Source"})


def far_ahead() -> Broker:
    """Things were due before its clock went wrong, and others after that."""
    b = Broker(ALONE)
    client = b.connect("a")
    client.send("queue:in", "early", expires=b.now + 100 * SECOND)
    client.send("queue:in", "never")
    client.send("queue:later", "soon", delay=100 * SECOND)
    b.now += TEN_YEARS
    b.servers["a"].clock.ahead = TEN_YEARS
    for text in ("held", "late"):
        client.send("queue:out", text, expires=START + 100 * SECOND)
    b.connect("a").subscribe("s", "queue:out", prefetch=1, ack="individual")
    client.send("queue:later", "then", delay=100 * SECOND)
    return b


def stopped(b: Broker) -> None:
    b.servers["a"].stop()
    b.commit("a")
    b.crash("a")
    b.now -= TEN_YEARS


def test_what_is_due_or_expires_is_so_by_the_right_clock_after_that():
    b = far_ahead()
    stopped(b)
    assert set_back(b.stores["a"], b.now) == {"ahead_ns": TEN_YEARS, "moved": 5}
    b.boot("a")
    b.pump()
    assert b.servers["a"].tx.now == b.now
    assert [b.queue(f"queue:{name}").messages.count for name in ("in", "out", "later")] == [1, 2, 2]
    assert b.queue("queue:later").messages.ready == 1  # what was due when the clock went wrong
    b.later(99)
    assert (b.queue("queue:out").messages.count, b.queue("queue:later").messages.ready) == (2, 1)
    b.later(2)
    assert (b.queue("queue:out").messages.count, b.queue("queue:later").messages.ready) == (0, 2)
    assert b.connect("a").subscribe("s", "queue:later").texts == ["soon", "then"]


def test_timers_of_agents_ring_when_they_should():
    b = Broker(ALONE)
    b.now += TEN_YEARS
    b.send("a", "source", Do("timer", 100))
    stopped(b)
    set_back(b.stores["a"], b.now)
    (task,) = b.stores["a"].tasks()
    assert 0 < task.due - b.now <= 100 * SECOND


def test_a_run_that_was_cut_short_is_repeated():
    b = far_ahead()
    stopped(b)
    store = b.stores["a"]
    ahead = store.meta()["now"]
    set_back(store, b.now)
    store.commit(Batch(meta={"now": ahead}))  # as if it had died before that
    assert set_back(store, b.now)["moved"] == 0


def test_a_time_that_is_not_ahead_is_left_alone():
    b = Broker(ALONE)
    with pytest.raises(MomError, match="nothing to be set back"):
        set_back(b.stores["a"], b.now)
