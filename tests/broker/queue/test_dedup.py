"""Repeats: a message that a producer sends again is dropped."""

from mombroker.broker.queue.dedup import MAX_RANGES
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import Q, filled


def test_a_repeat_is_dropped_from_wherever_it_comes_also_after_a_restart():
    b = Broker(THREE)
    filled(b, "1", dedup=("p", 1), receipt="r")
    b.connect("b").send(Q, "1", dedup=("p", 1)).send(Q, "2", dedup=("p", 2)).send(Q, "1", dedup=("other", 1))
    b.reboot("a")
    producer = filled(b, "2", dedup=("p", 2), receipt="r")
    assert producer.receipts == ["r"]
    assert b.connect().subscribe("s", Q).texts == ["1", "2", "1"]


def test_what_an_old_server_brings_later_is_no_repeat():
    b = Broker(THREE)
    filled(b)
    consumer = b.connect().subscribe("s", Q)
    b.cut("a", "b"), b.cut("b", "c")
    old = b.connect("b")
    b.servers["b"].names.known[Q] = "a/queue:orders"
    filled(b, "0")
    old.send(Q, "5", dedup=("p", 5)).send(Q, "6", dedup=("p", 6))
    b.connect("c").send(Q, "6", dedup=("p", 6)).send(Q, "7", dedup=("p", 7))
    b.join("a", "b")
    b.pump()
    assert consumer.texts == ["0", "6", "7", "5"]


def test_gaps_in_the_numbers_of_a_producer_are_never_taken_for_filled():
    """It may count what it sends to several queues together, and one of its servers may be away for long."""
    b = Broker(THREE)
    filled(b)
    consumer = b.connect().subscribe("s", Q)
    b.cut("a", "b")
    b.servers["b"].names.known[Q] = "a/queue:orders"
    b.connect("b").send(Q, "late", dedup=("p", 2))
    there = b.connect()
    for number in range(3, 3 + 5 * 2 * MAX_RANGES, 5):
        there.send(Q, str(number), dedup=("p", number)).send(Q, str(number), dedup=("p", number))
    b.join("a", "b")
    b.pump()
    assert len(consumer.texts) == 2 * MAX_RANGES + 1 and consumer.texts[-1] == "late"
