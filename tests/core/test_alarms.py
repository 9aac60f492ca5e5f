"""Producers stop before a wall is hit, with a reason; consumers go on, and some room more lets all go on."""

import pytest

from mombroker.core.alarms import FREE_MOST, UNDER_WAY, Alarms
from mombroker.core.events import StoreSize
from mombroker.core.limits import Limits
from mombroker.core.status import status, why
from tests.broker.bench import Broker

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "disk", "full"),
    [
        (0, 0, False),  # not known
        (3 << 20, 64 << 20, False),  # a small disk of a test machine may be nearly full
        (1 << 20, 64 << 20, True),
        (300 << 20, 10 * GIB, False),
        (200 << 20, 10 * GIB, True),
        (FREE_MOST, 4000 * GIB, False),
        (FREE_MOST - 1, 4000 * GIB, True),
    ],
)
def test_without_a_limit_a_fiftieth_of_the_disk_is_kept_free_and_a_gibibyte_at_most(free, disk, full):
    alarms = Alarms(Limits())
    assert len(alarms.measured(StoreSize(1, free, disk))) == full
    assert alarms.full() is full


def test_an_alarm_is_told_once_and_ends_only_with_some_room_more():
    alarms = Alarms(Limits(min_free=1000, max_memory=500))
    seen = [alarms.measured(StoreSize(1, free, 9999, 0)) for free in (1000, 999, 998, 1249, 1250, 1000)]
    assert [len(lines) for lines in seen] == [0, 1, 0, 0, 1, 0]
    assert seen[1] == ["no work is taken from outside: 999 bytes are free on the disk of the store, min_free is 1000"]
    assert seen[4] == ["no more lack of free disk: work is taken again"]
    seen = [alarms.measured(StoreSize(1, 9000, 9999, memory)) for memory in (500, 501, 451, 450, 500)]
    assert [len(lines) for lines in seen] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("short", "word"),
    [(StoreSize(1, 9, 9999, 1), "min_free is 1000"), (StoreSize(1, 9000, 9999, 900), "max_memory is 500")],
)
def test_while_disk_or_memory_is_short_producers_wait_and_consumers_empty_the_queue(short, word):
    b = Broker(limits=Limits(min_free=1000, max_memory=500))
    b.connect().send("queue:orders", "1", "2", "3")
    server = b.servers["a"]
    server.step(short, b.now)
    assert [word in line for line in server.tx.notes] == [True]
    producer = b.connect().send("queue:orders", "4", receipt="r")
    topic = b.connect().send("topic:news", "5", receipt="r")
    assert producer.receipts == topic.receipts == []
    consumer = b.connect().subscribe("s", "queue:orders", ack="client-individual")
    assert consumer.texts == ["1", "2", "3"]
    consumer.ack("1", "2", "3")
    assert status(server)["full"] and word in status(server)["problems"][0]
    assert [wait for wait in why(server) if wait["kind"] == "full"] == [
        {"kind": "full", "reason": server.alarms.why()[0]}
    ]
    server.step(StoreSize(1, 9000, 9999, 1), b.now)
    b.later(1)
    assert producer.receipts == topic.receipts == ["r"] and consumer.texts == ["1", "2", "3", "4"]
    assert why(server) == [] and not status(server)["full"]


def test_who_waits_too_long_for_room_is_told_what_is_short():
    b = Broker(limits=Limits(min_free=1000))
    b.servers["a"].step(StoreSize(1, 9, 9999), b.now)
    producer = b.connect().send("queue:orders", "1", receipt="r")
    b.later(3600)
    assert "9 bytes are free on the disk of the store, min_free is 1000" in producer.refusals[0]


@pytest.mark.parametrize(("least", "told"), [(0, 0), (1, 1), (UNDER_WAY - 1, 1), (UNDER_WAY, 0)])
def test_a_limit_that_comes_too_late_is_told(least, told):
    assert len(Alarms(Limits(min_free=least)).warnings()) == told


def test_limits_that_are_read_anew_count_for_all_parts_at_once():
    b = Broker()
    server = b.servers["a"]
    server.step(StoreSize(5), b.now)
    assert not status(server)["full"]
    server.limit(Limits(max_store=5, batch_rows=0))
    assert status(server)["full"] and server.tx.filled()
    server.limit(Limits())
    assert not status(server)["full"] and not server.tx.filled() and server.limits == Limits()
