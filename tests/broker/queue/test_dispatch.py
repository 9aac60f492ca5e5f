"""What stops a queue from giving, and what does not."""

import pytest

from mombroker.broker.properties import pack
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.core.limits import Limits
from tests.broker.bench import Broker
from tests.fakes_bus import replaced

Q = "queue:orders"


def test_a_queue_gives_when_no_reason_to_pause_is_left():
    b = Broker()
    consumer = b.connect().subscribe("s", Q, ack="individual")
    dispatcher = b.queue(Q).dispatcher
    dispatcher.pause("one")
    dispatcher.pause("other")
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
    dispatcher.pause("test")
    gone.close()
    b.pump()
    other = b.connect().subscribe("s", Q)
    assert b.queue(Q).messages.ready == 30 and dispatcher.pauses == {"test"} and other.texts == []
    dispatcher.resume("test")
    b.pump()
    assert other.texts == list(map(str, range(30)))


def pausing(give):
    """After each message that is given."""

    def one(dispatcher, *given):
        give(dispatcher, *given)
        dispatcher.pause("one is enough")

    return one


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
