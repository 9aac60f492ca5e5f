"""Message groups: one consumer for each, and their order whatever fails."""

import pytest

from mombroker.broker.commands import REJECTED
from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Consume
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.item import QueuedMessage
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import OTHER, SELF, Q, filled


def group(b: Broker, name: str, *texts: str, **more: object) -> None:
    b.connect("a").send(Q, *texts, group=name, **more)


def test_a_group_has_one_consumer():
    b = Broker()
    one, two = (b.connect().subscribe("s", Q, ack="individual") for _ in range(2))
    group(b, "x", "x1")
    group(b, "y", "y1")
    group(b, "x", "x2", "x3")
    group(b, "y", "y2")
    assert (one.texts, two.texts) == (["x1", "x2", "x3"], ["y1", "y2"])


def test_a_group_moves_when_it_is_closed_or_its_consumer_goes():
    b = Broker()
    one, two = (b.connect().subscribe("s", Q, ack="individual") for _ in range(2))
    group(b, "x", "x1")
    group(b, "x", "x2", group_seq=-1)
    group(b, "x", "x3")
    assert (one.texts, two.texts) == (["x1", "x2"], ["x3"])
    two.ack("x3")
    two.close()
    group(b, "x", "x4")
    assert one.texts[-1] == "x4"


def test_a_group_waits_for_its_consumer_while_others_go_on():
    b = Broker()
    one = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    group(b, "x", "x1", "x2")
    two = b.connect().subscribe("s", Q, ack="individual")
    assert two.texts == []
    group(b, "y", "y1")
    assert (one.texts, two.texts) == (["x1"], ["y1"])
    assert one.ack("x1").texts == ["x1", "x2"]


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_the_order_of_a_group_survives_redelivery(where):
    b = Broker(THREE)
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=1)
    group(b, "x", "x1", "x2", "x3")
    filled(b, "other")
    consumer.nack("x1")
    assert consumer.texts == ["x1", "other"]
    consumer.ack("other")
    assert consumer.texts == ["x1", "other"]
    b.later(1.1)
    for text in ("x1", "x2", "x3"):
        assert consumer.texts[-1] == text
        consumer.ack(text)
    assert b.queue(Q).messages.count == 0


def test_the_order_of_a_group_survives_lost_connections_and_restarts():
    b = Broker(THREE)
    first = b.connect("b").subscribe("s", Q, ack="individual", prefetch=2)
    group(b, "x", "x1", "x2", "x3")
    b.reboot("a")
    other = b.connect("c").subscribe("s", Q, ack="individual")
    assert other.texts == []
    first.close()
    assert other.texts == ["x1", "x2", "x3"]


def test_a_dead_letter_stays_in_its_group():
    b = Broker()
    group(b, "g", "1", "2", group_seq=7)
    worker = b.connect().subscribe("s", Q, ack="individual")
    worker.nack("1", "2", outcome=REJECTED).close()
    found = b.connect().subscribe(
        "s", "queue:DLQ.orders", selector="JMSXGroupID = 'g' AND JMSXGroupSeq = 7", browser=True
    )
    assert found.texts == ["1", "2"]
    b.ask("a", "move", destination="queue:DLQ.orders", back=True)
    one, two = (b.connect().subscribe("s", Q, ack="individual", prefetch=1) for _ in range(2))
    assert (one.texts, two.texts) == (["1"], [])
    one.ack("1")
    assert (one.texts, two.texts) == (["1", "2"], [])


def test_a_large_group_that_comes_back_is_not_searched_for_each_of_its_messages():
    class Id(int):
        compared = 0

        def __lt__(self, other):
            Id.compared += 1
            return int(self) < int(other)

        __hash__ = int.__hash__

    taking, size = Consumers(), 2_000
    held = [QueuedMessage(Id(id), 5, "m", ClientMessage(Q, Q, group="g")) for id in range(size)]
    consumer = Consumer("a/conn:1", Consume(1, size), None)
    for item in held:
        taking.given(item, item.message, consumer)
    for item in held:
        taking.returned(item)
    for item in held:
        assert taking.may(consumer, item, item.message)
        taking.given(item, item.message, consumer)
    assert Id.compared < 50 * size
