"""A connection or a server is lost: what is sent again, what comes again, and what cannot be settled."""

import pytest

from mombroker.jms import ConnectionLost, Topic
from tests.core.bus import topology
from tests.jms.memory import Memory, cord, filled, left, texts

PAIR = topology({"x": "ab"})


def test_a_message_whose_receipt_was_lost_is_sent_again_and_kept_once(broker):
    context = broker.connect()
    context.send("orders", "1")
    cord(context).deaf = True
    pending = context.send("orders", "2", wait=False)
    assert left(broker) == 2 and not pending.done
    cord(context).lose()
    assert pending.done and left(broker) == 2
    sends = [frame for frame in cord(context).said if frame.startswith(b"SEND")]
    assert len(sends) == 3 and sends[1] == sends[2]
    pending.wait()


def test_by_another_server_too():
    broker = Memory(PAIR)
    context = broker.connect("b")
    context.send("orders", "1")
    cord(context).deaf = True
    context.send("orders", "2", wait=False)
    cord(context).hang_up()
    cord(context).dial("a")
    context.send("orders", "3")
    assert texts(broker.connect("b").consumer("orders")) == ["1", "2", "3"]


def test_a_transaction_that_only_sends_is_sent_again(broker):
    context = broker.connect(ack="transacted")
    context.send("orders", "1")
    context.send("orders", "2")
    cord(context).hang_up()
    context.connection.wait = lambda call, timeout=None: cord(context).dial()
    context.commit()
    assert left(broker) == 2


def test_a_crash_of_the_server_between():
    broker = Memory()
    context = broker.connect()
    consumer = context.consumer("orders")
    context.send("orders", "1")
    broker.crash("a")
    pending = context.send("orders", "2", wait=False)
    broker.boot("a")
    cord(context).dial()
    pending.wait()
    assert texts(consumer) == ["1", "2"]


def test_what_a_lost_connection_brought_comes_again_and_cannot_be_settled(broker):
    filled(broker, "1", "2", "3")
    context = broker.connect(ack="client")
    consumer = context.consumer("orders")
    first = consumer.receive(0)
    cord(context).lose()
    with pytest.raises(ConnectionLost, match="it comes again"):
        first.acknowledge()
    found = [consumer.receive(0) for _ in range(3)]
    assert [(message.body, message.redelivered) for message in found] == [("1", True), ("2", True), ("3", True)]
    found[-1].acknowledge(wait=True)
    assert left(broker) == 0


def test_what_a_plain_topic_has_brought_is_not_lost(broker):
    context = broker.connect(ack="client")
    consumer = context.consumer(Topic("news"))
    filled(broker, "1", "2", queue="/topic/news")
    cord(context).lose()
    filled(broker, "3", queue="/topic/news")
    messages = [consumer.receive(0) for _ in range(3)]
    assert [message.body for message in messages] == ["1", "2", "3"]
    context.acknowledge()


def test_temporary_queues_are_made_again():
    broker = Memory()
    asker = broker.connect()
    queue = asker.temporary_queue()
    consumer = asker.consumer(queue)
    cord(asker).lose()
    broker.connect().send(queue.public, "x")
    assert texts(consumer) == ["x"]
