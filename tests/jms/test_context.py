"""Contexts and producers on a broker in memory: messages, what is settled when, and the end."""

import pytest

from mombroker.jms import ConnectionLost, IllegalState, InvalidDestination, MessageFormat, Queue, TimedOut, Topic
from tests.jms.memory import SOON, cord, filled, left, texts, with_policy

# -- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["text", "", "grün\0", b"\0bytes", b"", None, {}, {"a": 1, "b": b"x", "c": None, "d": 0.5, "e": True}]
)
def test_every_kind_of_body(broker, body):
    context = broker.connect()
    context.send("orders", body)
    message = context.consumer("orders").receive(0)
    assert message.body == body and type(message.body) is type(body)


def test_json(broker):
    context = broker.connect()
    context.send("orders", json=[1, {"a": None}])
    message = context.consumer("orders").receive(0)
    assert (message.body, message.kind, message.content_type) == ([1, {"a": None}], "json", "application/json")


def test_what_a_producer_says_of_its_messages(broker):
    context = broker.connect()
    options = {"priority": 7, "persistent": False, "type": "order", "properties": {"size": 5}}
    producer = context.producer("orders", ttl=60, **options)
    producer.send("a", correlation_id="c", reply_to="/topic/answers", priority=8, group="g", content_type="text/html")
    with context.producer() as other:
        other.send("b", to=Queue("orders"), ttl=None)
    consumer = context.consumer("orders")
    message = consumer.receive(0)
    assert (message.priority, message.persistent, message.type) == (8, False, "order")
    group = {"JMSXGroupID": "g", "JMSXGroupSeq": 0}
    assert message.properties == {"size": 5, "JMSXDeliveryCount": 1, **group}
    assert message.expires == pytest.approx(message.timestamp + 60)
    assert (message.correlation_id, message.reply_to, message.group) == ("c", Topic("answers"), "g")
    assert (message.content_type, message.destination) == ("text/html", Queue("orders"))
    message = consumer.receive(0)
    assert (message.priority, message.expires, message.properties) == (4, None, {"JMSXDeliveryCount": 1})


def test_a_message_may_be_delayed_and_may_expire(broker):
    context = broker.connect()
    context.send("orders", "late", delay=5)
    context.send("orders", "short", ttl=3)
    broker.later(4)
    consumer = context.consumer("orders")
    assert texts(consumer) == []
    broker.later(2)
    assert texts(consumer) == ["late"]


@pytest.mark.parametrize("seconds", [1e10, 1e300, float("inf")])
def test_a_time_that_never_comes(broker, seconds):
    context = broker.connect()
    context.send("orders", "stays", ttl=seconds)
    context.send("orders", "not yet", delay=seconds)
    broker.later(1e6)
    (message,) = list(context.browser("orders"))
    assert message.body == "stays" and message.expires > 4e9
    assert broker.queue("queue:orders").messages.count == 2


@pytest.mark.parametrize("wrong", [
    {"priority": 10}, {"ttl": 0}, {"delay": -1}, {"dedup_id": "x"}, {"dedup_id": ":1"}, {"colour": "red"},
    {"properties": {"a=b": 1}}, {"ttl": float("nan")}, {"delay": float("nan")}, {"priority": 4.5},
    {"priority": 10**5_000}, {"group_seq": 10**18}, {"dedup_id": "p:" + "1" * 19},
])  # fmt: skip
def test_options_that_no_message_can_have(broker, wrong):
    context = broker.connect()
    with pytest.raises(MessageFormat):
        context.send("orders", "x", **wrong)
    with pytest.raises(MessageFormat):
        context.producer("orders", **wrong).send("x")


def test_a_message_goes_somewhere(broker):
    context = broker.connect()
    with pytest.raises(InvalidDestination, match="say to="):
        context.producer().send("x")
    with pytest.raises(InvalidDestination):
        context.send("/topic/*", "x")
    for act in (lambda url: context.send(url, "x"), context.consumer, context.browser):
        with pytest.raises(InvalidDestination, match="address of a server") as refused:
            act("stomp://ann:secret@host:61613/queue/a")
        assert "secret" not in str(refused.value)


def test_a_repeat_of_a_program_is_dropped(broker):
    for number in (1, 2, 2, 1, 3):
        filled(broker, str(number), dedup_id=f"import:{number}")
    assert texts(broker.connect().consumer("orders")) == ["1", "2", "3"]


# -- acknowledgement -----------------------------------------------------------------------------------------------


def test_auto_settles_what_receive_returns(broker):
    filled(broker, "1", "2", "3")
    consumer = broker.connect().consumer("orders")
    assert consumer.receive(0).body == "1" and left(broker) == 2


def test_dups_ok_settles_late_and_all_together(broker):
    filled(broker, *map(str, range(50)))
    context = broker.connect(ack="dups-ok")
    consumer = context.consumer("orders")
    texts(consumer, 19)
    assert left(broker) == 50
    texts(consumer, 1)
    assert left(broker) == 30
    texts(consumer, 5)
    consumer.close()
    assert left(broker) == 25
    other = context.consumer("orders")
    assert texts(other) == [str(number) for number in range(25, 50)] and left(broker) == 0


def test_client_settles_all_that_the_context_has_received(broker):
    filled(broker, "1", "2", "3")
    filled(broker, "x", "y", queue="other")
    context = broker.connect(ack="client")
    one, other = context.consumer("orders"), context.consumer("other")
    one.receive(0), other.receive(0)
    last = one.receive(0)
    assert left(broker) == 3
    last.acknowledge(wait=True)
    assert (left(broker), left(broker, "queue:other")) == (1, 1)
    last.acknowledge()
    one.receive(0)
    context.acknowledge()
    assert left(broker) == 0
    with pytest.raises(IllegalState, match="ack='client': that is for individual"):
        last.reject()


def test_individual_settles_one(broker):
    filled(broker, "1", "2", "3")
    consumer = broker.connect(ack="individual").consumer("orders")
    one, two, three = (consumer.receive(0) for _ in range(3))
    two.acknowledge()
    two.acknowledge()
    assert left(broker) == 2
    one.reject()
    three.reject(requeue=False)
    assert left(broker) == 1 and left(broker, "queue:DLQ.orders") == 1
    broker.later(2)
    again = consumer.receive(0)
    assert (again.body, again.id, again.redelivered, again.delivery_count) == ("1", one.id, True, 2)


def test_recover_gives_back_what_was_received_and_what_was_not_in_order():
    broker = with_policy("queue:*", redelivery_delay=0.0)
    filled(broker, "1", "2", "3", "4")
    context = broker.connect(ack="client")
    consumer = context.consumer("orders")
    assert texts(consumer, 2) == ["1", "2"]
    context.recover()
    broker.later(0.1)
    counts = [(message.body, message.delivery_count) for message in (consumer.receive(0) for _ in range(4))]
    assert counts == [("1", 2), ("2", 2), ("3", 1), ("4", 1)]
    with pytest.raises(IllegalState, match="rollback"):
        broker.connect(ack="transacted").recover()


def test_what_was_not_handed_out_goes_back_uncounted_at_the_end_of_a_consumer(broker):
    filled(broker, "1", "2", "3")
    context = broker.connect(ack="client")
    with context.consumer("orders") as consumer:
        first = consumer.receive(0)
    assert consumer.receive(0) is None
    other = broker.connect().consumer("orders")
    found = [other.receive(0), other.receive(0)]
    assert [(message.body, message.redelivered) for message in found] == [("2", False), ("3", False)]
    first.acknowledge()
    assert left(broker) == 0


# -- the end -------------------------------------------------------------------------------------------------------


def test_after_close_nothing_goes(broker):
    context = broker.connect()
    consumer = context.consumer("orders")
    context.close()
    context.close()
    assert consumer.receive(0) is None and broker.cords == {} and cord(context).ended
    for verb in (
        lambda: context.send("orders", "x"),
        lambda: context.consumer("orders"),
        lambda: context.producer("orders"),
        lambda: context.browser("orders"),
        context.temporary_queue,
        context.context,
        lambda: consumer.listen(print),
    ):
        with pytest.raises(IllegalState, match="closed"):
            verb()


def test_the_connection_ends_with_its_last_context(broker):
    filled(broker, "1", "2")
    first = broker.connect(ack="client")
    second = first.context(ack="auto")
    consumer = first.consumer("orders")
    consumer.receive(0)
    first.close()
    second.send("other", "x")
    broker.later(2)
    assert sorted(texts(second.consumer("orders"))) == ["1", "2"]
    assert len(broker.cords) == 1
    second.close()
    assert broker.cords == {}


def test_what_is_not_committed_at_the_end_is_not_sent_and_comes_again(broker):
    filled(broker, "1")
    with broker.connect(ack="transacted") as context:
        context.consumer("orders").receive(0)
        context.send("results", "x")
    assert "queue:results" not in broker.servers["a"].names.known
    assert broker.connect().consumer("orders").receive(0).redelivered


def test_it_does_not_close_quietly_over_what_is_not_answered(broker, monkeypatch):
    monkeypatch.setattr("mombroker.jms.context.CLOSE_S", SOON)
    context = broker.connect()
    cord(context).hang_up()
    pending = context.send("orders", "x", wait=False)
    with pytest.raises(TimedOut):
        context.close()
    with pytest.raises(ConnectionLost):
        pending.wait()


def test_it_waits_for_an_answer_as_long_as_its_connection_has_patience(broker):
    context = broker.connect()
    cord(context).hang_up()
    context.connection.patience = SOON
    for ask in (lambda: context.send("orders", "x"), lambda: context.consumer("orders"), context.flush):
        with pytest.raises(TimedOut, match="within 0.02 s"):
            ask()
    context.connection.patience = 1e300
    with pytest.raises(TimedOut, match="within 0.02 s"):
        context.send("orders", "x", timeout=SOON)
    cord(context).dial()
    context.send("orders", "x", timeout=float("inf"))
    context.send("orders", "x")
    assert context.consumer("orders").receive(float("inf")).body == "x"


def test_a_stopped_context_hands_out_nothing(broker):
    filled(broker, "1")
    context = broker.connect()
    consumer = context.consumer("orders")
    context.stop()
    assert consumer.receive(0) is None
    context.start()
    assert consumer.receive(0).body == "1"


def test_too_much_that_is_not_answered_makes_senders_wait(broker, monkeypatch):
    monkeypatch.setattr("mombroker.jms.connection.WINDOW_BYTES", 1_000)
    context = broker.connect()
    cord(context).hang_up()
    for _ in range(3):
        context.send("orders", b"x" * 200, wait=False)
    with pytest.raises(TimedOut):
        context.send("orders", "x", timeout=SOON)
    cord(context).dial()
    context.flush()
    context.send("orders", "x")
    assert left(broker) == 4
