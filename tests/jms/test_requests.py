"""Temporary destinations, and a request that gets its own answer."""

import pytest

from mombroker.jms import IllegalState, InvalidDestination, TimedOut
from tests.jms.memory import SOON, Memory, cord, texts


def test_a_temporary_queue_keeps_what_comes_before_its_consumer(broker):
    asker, other = broker.connect(), broker.connect()
    queue = asker.temporary_queue()
    asker.send("orders", "q", reply_to=queue)
    question = other.consumer("orders").receive(0)
    other.reply(question, "a")
    answer = asker.consumer(queue).receive(0)
    assert (answer.body, answer.correlation_id) == ("a", question.id)
    with pytest.raises(InvalidDestination, match="belongs to another connection"):
        other.consumer(question.reply_to)
    with pytest.raises(InvalidDestination, match="asks for no answer"):
        asker.reply(answer, "?")


@pytest.mark.parametrize("kind", ["temporary_queue", "temporary_topic"])
def test_a_temporary_destination_is_the_same_for_all_connections_of_a_program(kind):
    broker = Memory()
    owner, other = broker.connect(), broker.connect()
    where = getattr(owner, kind)()
    with pytest.raises(InvalidDestination, match="belongs to another connection"):
        other.consumer(where)
    consumer = owner.context().consumer(where)
    other.send(where, "1")
    cord(owner).lose()
    other.send(where, "2")
    owner.send(where, "3")
    with other.context(ack="transacted").transaction() as context:
        context.send(where, "4", reply_to=where)
    assert texts(consumer) == ["1", "2", "3", "4"]


def test_a_temporary_queue_is_there_when_it_is_returned(broker):
    owner, other = broker.connect(), broker.connect()
    queue = owner.temporary_queue()
    other.send(queue, "1")
    assert texts(owner.consumer(queue)) == ["1"]


def test_a_temporary_topic(broker):
    context = broker.connect()
    topic = context.temporary_topic()
    consumer = context.consumer(topic)
    broker.connect().send(topic.public, "x")
    context.send(topic, "y")
    assert texts(consumer) == ["x", "y"]


def test_a_request_gets_its_own_answer(broker):
    asker, worker = broker.connect(), broker.connect()
    consumer = worker.consumer("work")

    def answer(frame):
        worker.connection.machine.subs[consumer.name].take = taken
        taken(frame)
        question = consumer.receive(0)
        worker.send(question.reply_to, "stray", correlation_id="other", wait=False)
        worker.reply(question, question.body.upper(), wait=False)

    sub = worker.connection.machine.subs[consumer.name]
    taken, sub.take = sub.take, answer
    assert asker.request("work", "hello", timeout=SOON).body == "HELLO"
    with pytest.raises(TimedOut, match="no answer from nobody"):
        asker.request("nobody", "x", timeout=SOON)
    with pytest.raises(IllegalState, match="use another context"):
        broker.connect(ack="transacted").request("work", "x")
