"""Limits: what becomes of a message for which a full queue, or a full store, has no room."""

from dataclasses import replace

import pytest

from mombroker.broker.commands import Send, Transact
from mombroker.core.events import StoreSize
from mombroker.stomp.headers import head_of
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import OTHER, SELF, Q, filled, with_policy
from tests.core.bus import SECOND, topology


def test_a_full_queue_blocks_its_producers_until_it_has_room():
    b = Broker(with_policy(max_messages=3))
    producer = b.connect()
    producer.send(Q, *map(str, range(5)), receipt="r")
    assert producer.receipts == ["r"] * 3 and b.queue(Q).messages.count == 3
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    consumer.ack("0")
    assert len(producer.receipts) == 4
    consumer.ack("1")
    assert len(producer.receipts) == 5
    assert consumer.ack("2").ack("3").texts == ["0", "1", "2", "3", "4"]


def test_a_producer_is_rejected_after_a_while():
    b = Broker(with_policy(max_bytes=10, block_seconds=5.0))
    producer = b.connect().send(Q, "0123456789")
    producer.send(Q, "x", receipt="r").send(Q, "y")
    b.later(4)
    assert producer.refusals == []
    b.later(1.1)
    assert producer.refusals == ["queue:orders is full, and was so for 5 s"]
    assert producer.told[-1].receipt == "r"
    assert b.queue(Q).messages.count == 1


def test_a_full_queue_rejects_or_drops_its_oldest_as_its_policy_says():
    b = Broker(with_policy(max_messages=2, overflow="reject"))
    producer = filled(b, "1", "2", "3")
    assert producer.refusals and b.queue(Q).messages.count == 2
    b = Broker(with_policy(max_messages=2, overflow="drop-head"))
    producer = filled(b, "1", "2", "3", receipt="r")
    assert producer.receipts == ["r"] * 3
    assert b.connect().subscribe("s", Q).texts == ["2", "3"] and b.queue(Q).messages.dropped == 1


def test_a_queue_that_drops_its_oldest_drops_delayed_ones_and_those_that_back_off_too():
    b = Broker(with_policy(max_messages=3, overflow="drop-head", redelivery_delay=5.0))
    producer = b.connect()
    for number in range(10):
        producer.send(Q, str(number), delay=(20 - number) * SECOND)
    assert (b.queue(Q).messages.count, b.queue(Q).messages.dropped) == (3, 7)
    producer.send(Q, "now")
    consumer = b.connect().subscribe("s", Q, ack="individual").nack("now")
    producer.send(Q, "delayed", delay=SECOND)
    assert consumer.texts == ["now"] and (b.queue(Q).messages.count, b.queue(Q).messages.dropped) == (3, 9)
    consumer.close()
    b.later(30)
    assert len(b.connect().subscribe("s", Q).texts) == 3 and b.stored(Q) == {}


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_what_comes_back_to_a_queue_that_drops_its_oldest_may_be_too_much(where):
    b = Broker(with_policy(THREE, max_messages=3, max_bytes=100, overflow="drop-head"))
    filled(b, "0")
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual")
    b.connect().send(Q, *"123456789")
    assert consumer.texts == list("0123456789") and b.queue(Q).messages.dropped == 0
    consumer.close()
    assert (b.queue(Q).messages.count, b.queue(Q).messages.dropped) == (3, 7) and b.stored(Q) == {"p5": 3}
    b.connect().send(Q, "x" * 98)
    assert (b.queue(Q).messages.count, b.queue(Q).messages.dropped) == (3, 8)
    assert b.connect().subscribe("s", Q).texts == ["8", "9", "x" * 98]


def test_what_never_has_room_is_refused_at_once():
    for overflow in ("block", "reject", "drop-head"):
        b = Broker(with_policy(THREE, max_messages=2, max_bytes=10, overflow=overflow))
        for home in "ab":
            client = b.connect(home).send(Q, "x" * 11, receipt="r")
            assert client.receipts == [] and "11 bytes never has room" in client.refusals[0]
        many = b.connect().do(Transact([Send(Q, b"1"), Send(Q, b"2"), Send(Q, b"3")], "t"))
        large = b.connect("b").do(Transact([Send(Q, b"x" * 6), Send(Q, b"y" * 6)], "t"))
        if overflow == "drop-head":
            assert many.receipts == large.receipts == ["t"] and b.queue(Q).messages.count == 1
        else:
            assert "3 messages of 3 bytes" in many.refusals[0] and "12 bytes in one transaction" in large.refusals[0]


def test_what_never_has_room_counts_as_it_would_in_the_queue():
    head = head_of({"long": "x" * 60, "n": "007", "type": "t", "property-types": "n=int"}, True)._asdict()
    b = Broker(with_policy(max_bytes=200, overflow="reject"))
    client = b.connect().do(Send(Q, b"1", **head))
    size = b.queue(Q).describe()["bytes"]
    assert f" {3 * size} bytes in one transaction" in client.do(Transact([Send(Q, b"2", **head)] * 3)).refusals[0]


def test_who_takes_and_sends_on_one_connection_is_not_blocked_by_itself():
    b = Broker(with_policy(max_messages=2))
    client = b.connect().subscribe("s", Q, ack="individual")
    client.send(Q, "1", "2", "3")
    assert client.texts == ["1", "2"]
    client.ack("1")
    assert client.texts == ["1", "2", "3"]


def test_what_is_passed_on_to_a_full_queue_is_not_settled_before():
    b = Broker(with_policy(max_messages=1))
    b.connect().send("queue:full", "x")
    worker = b.connect().send(Q, "1").subscribe("s", Q, ack="individual")
    worker.send("queue:full", "1").ack("1")
    worker.close()
    assert b.queue(Q).messages.count == 1 and b.queue("queue:full").messages.count == 1


def test_what_is_passed_on_behind_what_waits_for_room_is_not_settled_before():
    """1. The first message waits for room in the queue that the client takes from. 2. So does what it passes on behind
    that, to another queue. 3. Settling makes room, but must not come before 2."""
    b = Broker(topology({}, policies=[{"match": Q, "max_messages": 1}]))
    b.connect().send(Q, "1")
    worker = b.connect().subscribe("s", Q, ack="individual")
    worker.send(Q, "2", "3").send("queue:other", "passed on").ack("1")
    worker.close()
    assert b.queue(Q).messages.count == 1


def test_far_producers_are_held_back_when_the_home_is_full():
    b = Broker(with_policy(THREE, max_messages=2))
    filled(b, "1")
    far = b.connect("b").send(Q, "2").send(Q, "3")  # the third was under way
    assert b.queue(Q).messages.count == 3
    far.send(Q, "4", receipt="r")
    assert far.receipts == []
    b.reboot("a")
    b.connect("c").subscribe("s", Q).wrote()
    assert far.receipts == ["r"]
    assert b.queue(Q).messages.count == 0


def test_a_far_server_that_has_forgotten_that_a_queue_is_full_is_told_again():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "queue:*", "max_messages": 2}]))
    b.connect("a").send(Q, "1", "2")
    b.connect("b").send(Q, "3")
    assert b.servers["b"].clients.commands.full == {f"a/{Q}"}
    b.crash("b")
    b.boot("b")
    b.join("b", "a")
    b.later(1)
    producer = b.connect("b").send(Q, "4")
    producer.send(Q, *"56789")
    assert b.queue(Q).messages.count == 4 and b.servers["b"].clients.commands.full == {f"a/{Q}"}


def test_a_far_message_that_is_too_large_for_what_room_there_is_holds_up_no_smaller_one():
    b = Broker(with_policy(THREE, max_bytes=60, overflow="reject"))
    home = b.connect("a").send(Q, "x" * 20)
    far = b.connect("b").send(Q, "y" * 50).send(Q, "z" * 30)
    assert far.refusals == [] and home.subscribe("s", Q).texts == ["x" * 20, "z" * 30]
    assert b.connect().subscribe("dead", "queue:DLQ.orders").texts == ["y" * 50]


def test_a_far_message_that_a_full_queue_rejects_becomes_a_dead_letter():
    b = Broker(with_policy(THREE, max_messages=1, overflow="reject"))
    filled(b, "1")
    far = b.connect("b").send(Q, "2", receipt="r")
    assert far.receipts == ["r"] and b.queue(Q).messages.count == 1
    dead = b.connect().subscribe("d", "queue:DLQ.orders").got
    assert [each.message.annotations["dead-letter-reason"] for each in dead] == ["queue:orders is full"]
    assert far.send(Q, "3").refusals


def test_those_who_wait_for_room_in_the_store_cost_one_alarm_each_and_go_on_when_there_is_some():
    b = Broker()
    server = b.servers["a"]
    server.limit(replace(server.limits, max_store=10))
    server.step(StoreSize(11), b.now)
    producers = [b.connect().send(Q, f"{number}", receipt="r") for number in range(4)]
    for _ in range(20):
        b.later(0.1)
        server.step(StoreSize(11), b.now)
    assert [each.receipts for each in producers] == [[]] * 4 and len(server.timers.heap) <= 2 * len(producers)
    server.limit(replace(server.limits, max_store=100))  # at once
    b.pump()
    assert [each.receipts for each in producers] == [["r"]] * 4


def test_those_who_wait_for_room_in_a_queue_cost_one_alarm_each_however_often_they_try():
    b = Broker(with_policy(max_messages=1))
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    for number in range(5):
        b.connect().send(Q, *(f"{number}{each}" for each in "123456"))
    for _ in range(20):
        consumer.ack(consumer.texts[-1])
    assert len(consumer.texts) == 21 and len(b.servers["a"].timers.heap) <= 30


def test_a_full_store_takes_no_work():
    b = Broker()
    server = b.servers["a"]
    server.limit(replace(server.limits, max_store=10))
    server.step(StoreSize(11), b.now)
    producer = filled(b, "1", receipt="r")
    b.later(10)
    assert producer.receipts == []
    server.step(StoreSize(9), b.now)
    b.later(1)
    assert producer.receipts == ["r"]
