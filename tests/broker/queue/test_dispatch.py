"""What stops a queue from giving, and what does not."""

import pytest

from mombroker.broker.commands import Flow
from mombroker.broker.native import Native
from mombroker.broker.properties import pack
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.core.limits import Limits
from tests.broker.bench import ALONE, THREE, Broker
from tests.core.bus import SECOND
from tests.fakes_bus import replaced

Q = "queue:orders"


def still_to_come() -> bool:
    return True


def test_a_queue_gives_when_no_reason_to_pause_is_left():
    b = Broker()
    consumer = b.connect().subscribe("s", Q, ack="individual")
    dispatcher = b.queue(Q).dispatcher
    dispatcher.pause("one", expected=still_to_come)
    dispatcher.pause("other", expected=still_to_come)
    b.connect().send(Q, "1", "2")
    dispatcher.resume("one")
    dispatcher.resume("one")
    b.pump()
    assert consumer.texts == [] and b.queue(Q).messages.ready == 2
    dispatcher.resume("other")
    b.pump()
    assert consumer.texts == ["1", "2"]


def test_what_a_lost_connection_had_returns_during_a_pause_that_goes_on():
    b = Broker(limits=Limits(turn_work=20))
    b.connect().send(Q, *map(str, range(30)))
    gone = b.connect().subscribe("s", Q, ack="individual")
    dispatcher = b.queue(Q).dispatcher
    dispatcher.pause("test", expected=still_to_come)
    gone.close()
    b.pump()
    other = b.connect().subscribe("s", Q)
    assert (
        b.queue(Q).messages.ready == 30
        and [each.reason for each in dispatcher.pauses] == ["test"]
        and other.texts == []
    )
    dispatcher.resume("test")
    b.pump()
    assert other.texts == list(map(str, range(30)))


def pausing(give):
    """After each message that is given."""

    def one(dispatcher, *given):
        give(dispatcher, *given)
        dispatcher.pause("one is enough", expected=still_to_come)

    return one


@pytest.mark.interpreted
@pytest.mark.parametrize("selector", ["", "kind = 'odd'"])
def test_nothing_more_is_given_when_giving_pauses(selector):
    """Neither what comes, nor what is ready, nor what a search finds."""
    b = Broker()
    with replaced(Dispatcher, "give", pausing):
        consumer = b.connect().subscribe("s", Q, selector=selector, ack="individual")
        for number in range(6):
            b.connect().send(Q, str(number), properties=pack({"kind": "odd" if number % 2 else "even"}))
        expected = list("135" if selector else "012")
        for count in (1, 2, 3):
            assert consumer.texts == expected[:count]
            b.queue(Q).dispatcher.resume("one is enough")
            b.pump()


# -- what ends a pause ---------------------------------------------------------------------------------------------


def test_a_pause_until_a_time_ends_by_itself():
    b = Broker()
    consumer = b.connect().subscribe("s", Q)
    b.queue(Q).dispatcher.pause("test", until=b.now + 5 * SECOND)
    b.connect().send(Q, "1", "2")
    b.later(4.9)
    assert consumer.texts == [] and b.servers["a"].check() is None
    b.later(0.2)
    assert consumer.texts == ["1", "2"] and b.queue(Q).dispatcher.pauses == ()


def test_a_second_pause_for_the_same_reason_counts_alone():
    b = Broker()
    consumer = b.connect().subscribe("s", Q)
    for seconds in (3, 9):
        b.queue(Q).dispatcher.pause("test", until=b.now + seconds * SECOND)
    b.connect().send(Q, "1")
    b.later(8)
    assert consumer.texts == []
    b.later(2)
    assert consumer.texts == ["1"]


def test_who_pauses_says_what_ends_it():
    dispatcher = (b := Broker()).connect().subscribe("s", Q).broker.queue(Q).dispatcher
    for wrong in ({}, {"until": b.now + SECOND, "expected": still_to_come}):
        with pytest.raises(AssertionError, match="a pause ends at a time, or with an event"):
            dispatcher.pause("test", **wrong)


@pytest.mark.interpreted
def test_a_check_finds_a_pause_that_nothing_ends():
    b = Broker()
    b.connect().subscribe("s", Q)
    expected = [True]
    b.queue(Q).dispatcher.pause("test", expected=lambda: expected[0])
    b.servers["a"].check()
    expected[0] = False
    with pytest.raises(AssertionError, match="nothing ends a pause: test"):
        b.servers["a"].check()
    b.queue(Q).dispatcher.resume("test")
    b.pump()
    with replaced(Native, "alarm_at", lambda alarm_at: lambda queue, at: None):
        b.queue(Q).dispatcher.pause("forgotten", until=b.now + SECOND)
    with pytest.raises(AssertionError, match="nothing ends a pause: forgotten"):
        b.later(2)


@pytest.mark.parametrize("worker", "ab")
def test_a_drain_waits_for_what_a_pause_holds_back(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, *"12")
    client = b.connect(worker, strict=False).subscribe("s", Q, ack="individual", credit=0)
    b.queue(Q).dispatcher.pause("test", until=b.now + 5 * SECOND)
    client.do(Flow("s", 5, drain=True))
    b.later(4)
    assert client.drains == [] and client.texts == []
    b.later(2)
    assert client.drains == [("s", 2)] and client.texts == ["1", "2"]


@pytest.mark.parametrize(("pause", "waits"), [
    ({"until": SECOND}, False), ({"expected": still_to_come}, True),
    ({"expected": still_to_come, "drains_wait": False}, False),
])  # fmt: skip
def test_a_drain_waits_in_an_empty_queue_only_for_an_event(pause, waits):
    b = Broker(ALONE)
    client = b.connect(strict=False).subscribe("s", Q, credit=0)
    b.queue(Q).dispatcher.pause("test", **({**pause, "until": b.now + SECOND} if "until" in pause else pause))
    assert client.do(Flow("s", 5, drain=True)).drains == ([] if waits else [("s", 0)])
    b.servers["a"].check()
    b.queue(Q).dispatcher.resume("test")
    b.pump()
    assert client.drains == [("s", 0)]
