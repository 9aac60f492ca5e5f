"""What Jakarta Messaging 3.1 has, row by row of the table in docs/jms.md, on a broker in memory."""

import asyncio
import threading

import pytest

from mombroker import jms
from mombroker.broker import properties
from mombroker.jms import context as contexts
from mombroker.jms.machine import Taken
from mombroker.jms.producer import Options
from mombroker.stomp import foreign
from mombroker.stomp.foreign import SEND
from mombroker.stomp.requests import ROWS
from tests.broker.bench import Broker
from tests.broker.samples import others
from tests.jms.memory import Memory, cord
from tests.stomp.test_foreign import asked

PATIENCE_S = 30  # before a test gives up; nothing is measured by it


@pytest.fixture
def broker():
    return Memory()


def texts(consumer):
    found = []
    while (message := consumer.receive(0)) is not None:
        found.append(message.body)
    return found


def unharmed(context):
    """Its connection is the one that it had."""
    return cord(context).session is not None and cord(context).machine.epoch == 0 and cord(context).faults == []


# -- message ids ---------------------------------------------------------------------------------------------------


def test_a_sender_knows_the_id_of_its_message(broker):
    context = broker.connect()
    sent = [context.send("orders", "x"), context.send("orders", "y", wait=False), context.send("/topic/none", "z")]
    consumer = context.consumer("orders")
    assert [consumer.receive(0).id, consumer.receive(0).id] == [sent[0].id, sent[1].id]
    assert len({each.id for each in sent}) == 3 and all(each.done for each in sent)


def test_an_answer_is_found_by_the_id_of_its_question(broker):
    asking, answering = broker.connect(), broker.connect()
    mine = asking.temporary_queue()
    sent = asking.send("questions", "when?", reply_to=mine)
    question = answering.consumer("questions", selector=f"JMSMessageID = '{sent.id}'").receive(0)
    answering.reply(question, "now")
    answer = asking.consumer(mine).receive(0)
    assert (answer.body, answer.correlation_id) == ("now", sent.id)


def test_the_id_stays_when_a_message_is_sent_again(broker):
    context = broker.connect()
    cord(context).deaf = True
    sent = context.send("orders", "x", wait=False)
    cord(context).lose()
    sent.wait(0)
    other = broker.connect()
    assert [message.id for message in other.browser("orders")] == [sent.id]


def test_the_id_of_a_message_in_a_transaction(broker):
    context, other = broker.connect(ack="transacted"), broker.connect()
    sent = context.send("orders", "x")
    assert not sent.done and sent.error is None
    with pytest.raises(jms.IllegalState, match="goes with the commit"):
        sent.wait()
    context.commit()
    assert other.consumer("orders").receive(0).id == sent.id


def test_a_question_expires_when_nobody_waits_for_its_answer(broker):
    context = broker.connect()
    for options in ({}, {"ttl": 60}, {"ttl": None}):
        with pytest.raises(jms.TimedOut):
            context.request("orders", str(options), timeout=0.01, **options)
    broker.later(1)
    assert texts(context.consumer("orders")) == ["{'ttl': 60}", "{'ttl': None}"]


# -- properties, times, streams ------------------------------------------------------------------------------------


def test_properties_of_the_provider(broker):
    context = broker.connect(ack="individual")
    context.send("orders", "x", group="g", group_seq=3, properties={"size": 5})
    consumer = context.consumer("orders")
    wanted = {"size": 5, "JMSXDeliveryCount": 1, "JMSXGroupID": "g", "JMSXGroupSeq": 3}
    message = consumer.receive(0)
    assert message.properties == wanted and message.group_seq == 3
    message.reject()
    broker.later(5)
    again = consumer.receive(0)
    assert again.properties == {**wanted, "JMSXDeliveryCount": 2}
    context.send("copies", "x", properties=again.properties)
    assert context.consumer("copies").receive(0).properties == wanted


def test_who_has_sent_a_message(broker):
    """The text that the server says. It may be passed on, and says nothing then."""
    context = broker.connect()
    context.send("orders", "asked", stamp_user=True)
    message = context.consumer("orders", selector="JMSXUserID = 'user'").receive(0)
    assert message.properties == {"JMSXDeliveryCount": 1, "JMSXUserID": "user"}
    context.send("copies", "forged", properties={"JMSXUserID": "root", **message.properties})
    assert context.consumer("copies").receive(0).properties == {"JMSXDeliveryCount": 1}


@pytest.mark.parametrize("row", [row for row in ROWS if row.jms], ids=lambda row: row.name)
def test_an_option_that_is_a_header_as_it_is_comes_with_its_value(broker, row):
    producer, found = broker.connect().producer("orders"), []
    for options in (Options(), Options(**{row.field: others(Options, "properties")[row.field]})):
        headers = producer._headers(jms.Queue("orders"), options, "text", 0, "a1")
        found.append((row.name in headers, getattr(asked(SEND, **headers)[0], row.field)))
    assert found == [(False, getattr(Options(), row.field)), (True, getattr(options, row.field))]


@pytest.mark.parametrize(
    "wrong", [{"JMSXGroupID": 5}, {"JMSXGroupSeq": "5"}, {"JMSXGroupSeq": 10**18}, {"JMSXUser": "a"}]
)
def test_properties_that_only_the_provider_sets(broker, wrong):
    with pytest.raises(jms.MessageFormat):
        broker.connect().send("orders", "x", properties=wrong)


def test_when_a_message_was_to_be_delivered(broker):
    context = broker.connect()
    context.send("orders", "late", delay=5)
    context.send("orders", "now")
    broker.later(6)
    now, late = sorted(context.browser("orders"), key=lambda message: message.body, reverse=True)
    assert late.delivery_time == late.timestamp + 5 and now.delivery_time == now.timestamp
    other = Broker.connect(broker, "a")  # of another kind
    other.send("queue:others", "x", delay=7 * 10**9)
    other.send("queue:others", "y", properties=properties.pack({"JMSDeliveryTime": "5"}))
    broker.later(8)
    now, then = sorted(context.browser("others"), key=lambda message: message.body, reverse=True)
    assert then.delivery_time == then.timestamp + 7 and now.delivery_time == now.timestamp
    assert "JMSDeliveryTime" in late.headers and "JMSDeliveryTime" not in late.properties


def test_a_stream(broker):
    values = ["text", b"bytes", 5, 0.5, True, None]
    context = broker.connect()
    context.send("orders", values)
    context.send("orders", tuple(values))
    consumer = context.consumer("orders")
    for message in (consumer.receive(0), consumer.receive(0)):
        assert (message.kind, message.body) == ("stream", values)
        assert [*map(type, message.body)] == [*map(type, values)]


# -- expiry ---------------------------------------------------------------------------------------------------------


def test_what_expires_while_it_waits_in_the_client_is_not_handed_out(broker):
    context = broker.connect(ack="individual")
    for body, ttl in (("1", 3), ("2", None), ("3", 3), ("4", 60)):
        context.send("orders", body, ttl=ttl)
    consumer = context.consumer("orders")
    broker.later(4)
    assert texts(consumer) == ["2", "4"]
    broker.later(1)
    assert [letter.properties["dead-letter-reason"] for letter in context.browser("DLQ.orders")] == ["expired"] * 2


@pytest.mark.parametrize("ack", ["auto", "dups-ok", "client", "transacted"])
def test_of_a_topic_it_is_dropped(broker, ack):
    context, other = broker.connect(ack=ack), broker.connect()
    consumer = context.consumer("/topic/news")
    for body, ttl in (("1", None), ("2", 3), ("3", None)):
        other.send("/topic/news", body, ttl=ttl)
    assert consumer.receive(0).body == "1"
    broker.later(4)
    assert texts(consumer) == ["3"]
    assert unharmed(context)


def test_what_the_server_thinks_is_good_is_handed_out(broker, monkeypatch):
    """Its clock has been set back since it greeted us."""
    context = broker.connect()
    context.send("orders", "1", ttl=60)
    monkeypatch.setattr(cord(context), "now", lambda: broker.now / 1e9 + 3_600)
    assert texts(context.consumer("orders")) == ["1"]


# -- stop and start -------------------------------------------------------------------------------------------------


def test_stop_and_start_are_those_of_the_connection(broker):
    first = broker.connect()
    second, other = first.context("individual"), broker.connect()
    for queue in ("a", "b", "c"):
        other.send(queue, queue)
    consumers = [first.consumer("a"), second.consumer("b")]
    first.stop()
    assert [consumer.receive(0) for consumer in consumers] == [None, None]
    assert first.context().consumer("b").receive(0) is None
    assert other.consumer("c").receive(0).body == "c"
    second.start()
    assert [consumer.receive(0).body for consumer in consumers] == ["a", "b"]


def test_a_listener_may_stop_the_connection(broker):
    context, stopped, heard = broker.connect(), threading.Event(), []

    def stop(message):
        heard.append(message.body)
        context.stop()
        stopped.set()

    for body in ("1", "2"):
        context.send("orders", body)
    context.consumer("orders", listener=stop)
    assert stopped.wait(PATIENCE_S)
    context.close()
    assert heard == ["1"]


# -- asynchronous sends ---------------------------------------------------------------------------------------------


def test_a_function_is_called_when_a_message_was_sent(broker):
    context, done, seen = broker.connect(), threading.Semaphore(0), []

    def note(pending):
        seen.append((pending.id, pending.done, pending.error, threading.current_thread().name))
        context.send("others", "it may send, and wait")
        done.release()

    first = context.send("orders", "1", wait=False)
    first.when_done(note)
    assert done.acquire(timeout=PATIENCE_S)
    cord(context).hang_up()
    second = context.send("orders", "2", wait=False)
    second.when_done(note)
    assert len(seen) == 1
    with context.connection.lock:
        cord(context).dial()
    assert done.acquire(timeout=PATIENCE_S)
    assert seen == [(each.id, True, None, "mombroker-jms-listeners") for each in (first, second)]


def test_it_is_called_with_the_error_too_and_before_the_context_is_closed(broker, monkeypatch):
    monkeypatch.setattr("mombroker.jms.context.CLOSE_S", 0.05)
    context, seen = broker.connect(), []
    cord(context).hang_up()
    context.send("orders", "1", wait=False).when_done(lambda pending: seen.append(type(pending.error)))
    with pytest.raises(jms.TimedOut):
        context.close()
    context._listeners.thread.join(PATIENCE_S)
    assert seen == [jms.ConnectionLost] and cord(context).faults == []


def test_a_function_that_fails_stops_no_other(broker, caplog):
    context, seen = broker.connect(), []
    for number in range(3):
        context.send("orders", "x", wait=False).when_done(lambda pending, n=number: seen.append(1 // (n - 1)))
    context.close()
    assert seen == [-1, 1] and "a function failed that was to be called" in caplog.text


def test_a_message_that_is_sent_can_be_a_future(broker):
    context = broker.connect()
    sent = context.send("orders", "x", wait=False)
    assert sent.future().result(PATIENCE_S) == sent.id

    async def send():
        return await asyncio.wrap_future(context.send("orders", "y", wait=False).future())

    assert asyncio.run(send()) in {message.id for message in context.browser("orders")}


# -- temporary destinations -----------------------------------------------------------------------------------------


def test_a_temporary_queue_can_be_deleted_before_its_connection_ends(broker):
    context, other = broker.connect(ack="individual"), broker.connect()
    queue = context.temporary_queue()
    consumer = context.consumer(queue)
    seen = jms.TemporaryQueue(f"{context.connection.session}/{queue.name}")
    other.send(seen, "1")
    message = consumer.receive(0)
    for step in (lambda: None, consumer.close):
        step()
        with pytest.raises(jms.IllegalState, match="has a consumer, or messages"):
            queue.delete()
    message.acknowledge()
    other.send(seen, "2")
    proxies = len(broker.servers["a"].natives.agents)
    queue.delete()
    assert len(broker.servers["a"].natives.agents) == proxies - 1
    for use in (queue.delete, lambda: context.send(queue, "x"), lambda: context.consumer(queue)):
        with pytest.raises(jms.InvalidDestination, match="was deleted"):
            use()
    with pytest.raises(jms.InvalidDestination, match="belongs to another connection"):
        seen.delete()
    other.send(seen, "nobody takes it")
    cord(context).lose()
    assert context.connection.machine.temporary == []
    assert cord(context).faults == [] and unharmed(other)


def test_a_temporary_topic_can_be_deleted(broker):
    context = broker.connect()
    topic = context.temporary_topic()
    with context.consumer(topic), pytest.raises(jms.IllegalState):
        topic.delete()
    topic.delete()
    with pytest.raises(jms.InvalidDestination, match="was deleted"):
        context.send(topic, "x")


def test_a_thousand_temporary_queues_one_after_the_other(broker, monkeypatch):
    monkeypatch.setattr("mombroker.jms.machine.MAX_TEMPORARY", 5)
    context = broker.connect()
    for _ in range(8):
        context.temporary_queue().delete()
    queues = [context.temporary_queue() for _ in range(5)]
    with pytest.raises(jms.IllegalState, match="at most 5 temporary queues"):
        context.temporary_queue()
    queues[0].delete()
    context.temporary_queue()
    assert unharmed(context)


def test_the_queue_for_answers_of_a_context_goes_with_it(broker):
    context = broker.connect()
    other = context.context()
    with pytest.raises(jms.TimedOut):
        other.request("nobody", "x", timeout=0)
    before = len(broker.servers["a"].natives.agents)
    other.close()
    assert len(broker.servers["a"].natives.agents) == before - 1


# -- one of each ----------------------------------------------------------------------------------------------------


def test_a_second_consumer_of_a_durable_subscription_can_be_refused(broker):
    first, second = broker.connect(client_id="ann"), broker.connect(client_id="ann")
    holder = first.consumer("/topic/news", durable="inbox")
    with pytest.raises(jms.Refused):
        second.consumer("/topic/news", durable="inbox", take_over=False)
    cord(second).dial()
    second.send("/topic/news", "1")
    assert texts(holder) == ["1"]
    holder.close()
    taken = second.consumer("/topic/news", durable="inbox", take_over=False)
    second.send("/topic/news", "2")
    assert texts(taken) == ["2"]


# -- limits: the one call is refused, and nobody else notices ---------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"properties": {f"p{number}": number for number in range(1_001)}}, "headers, and a server takes 1000"),
        ({"properties": {"large": "x" * 66_000}}, "'large' is a header of .* and a server takes 65536"),
        ({"properties": {f"p{number}": "x" * 60_000 for number in range(5)}}, "headers of .* a server takes 262144"),
        ({"correlation_id": "x" * 66_000}, "'correlation-id' is a header of"),
    ],
)
@pytest.mark.parametrize("ack", ["auto", "transacted"])
def test_more_than_a_server_takes(broker, options, words, ack):
    context = broker.connect(ack=ack)
    with pytest.raises(jms.MessageFormat, match=words):
        context.send("orders", "x", **options)
    with pytest.raises(jms.MessageFormat, match="the server takes 8388608: send less, or raise max_message"):
        context.send("orders", b"x" * ((8 << 20) + 1))
    context.send("orders", "x", properties={f"p{number}": number for number in range(900)})
    if ack == "transacted":
        context.commit()
    assert unharmed(context) and len(list(context.context().browser("orders"))) == 1


@pytest.mark.parametrize("topics", [["news", "weather"], ["*"], ["news", "*"], [">"]])
@pytest.mark.parametrize("kind", ["durable", "shared"])
def test_a_subscription_of_several_topics_has_all_that_one_client_publishes_to_them(broker, topics, kind):
    """Producers number what they send to each destination by itself: those of two topics have the same numbers."""
    inbox = broker.connect(client_id="ann").consumer([jms.Topic(name) for name in topics], **{kind: "inbox"})
    context = broker.connect()
    for number in range(3):
        context.send(jms.Topic("news"), f"news {number}")
        context.send(jms.Topic("weather"), f"weather {number}")
    got = [inbox.receive(0).body for _ in range(6)]
    assert got == [f"{topic} {number}" for number in range(3) for topic in ("news", "weather")]


@pytest.mark.parametrize(
    "options", [{"group": "x" * 1_001}, {"dedup_id": "x" * 1_001 + ":1"}, {"properties": {"JMSXGroupID": "x" * 1_001}}]
)
def test_what_a_server_keeps_to_find_something_again_is_short(broker, options):
    context = broker.connect()
    with pytest.raises(jms.MessageFormat, match="at most 1000 characters, not 1001"):
        context.send("orders", "x", **options)
    context.send("orders", "x", group="x" * 1_000, dedup_id="x" * 1_000 + ":1")
    assert unharmed(context)


@pytest.mark.parametrize("name", sorted(foreign.NAMES[foreign.SEND]))
def test_a_property_is_no_option_in_the_words_of_another_broker(broker, name):
    """It travels, or is refused; it does not end the connection, nor change what becomes of the message."""
    context = broker.connect()
    try:
        context.send("orders", "x", properties={name: "5"})
    except jms.MessageFormat as error:
        assert "takes that for an option" in str(error)
    else:
        message = context.consumer("orders").receive(0)
        assert message.properties[name] == "5" and message.expires is None
    assert unharmed(context)


def test_more_consumers_than_a_server_takes(broker):
    context = broker.connect()
    context.connection.machine.taken = Taken(subscriptions=3)
    consumers = [context.consumer(f"q{number}") for number in range(3)]
    with pytest.raises(jms.IllegalState, match="at most 3 consumers"):
        context.consumer("q3")
    with pytest.raises(jms.IllegalState, match="at most 3 consumers"):
        list(context.browser("q3"))
    consumers[0].close()
    context.consumer("q3")
    assert unharmed(context)


def test_more_transactions_than_a_server_takes(broker):
    context, consumers = broker.connect(), []
    context.connection.machine.taken = Taken(transactions=3)
    for number in range(4):
        context.send("orders", str(number))
    many = [context.context("transacted") for _ in range(4)]
    for each in many:
        consumers.append(each.consumer("orders", prefetch=1))
    assert [consumer.receive(0).body for consumer in consumers[:3]] == ["0", "1", "2"]
    with pytest.raises(jms.IllegalState, match="at most 3 open transactions"):
        consumers[3].receive(0)
    many[3].send("results", "x")
    with pytest.raises(jms.IllegalState, match="at most 3 open transactions"):
        many[3].commit()
    many[0].commit()
    assert consumers[3].receive(0).body == "3"
    for each in many[1:]:
        each.commit()
    assert unharmed(context) and texts(context.consumer("results")) == ["x"]
    assert broker.queue("queue:orders").messages.count == 0


def test_all_transactions_of_a_connection_together(broker, monkeypatch):
    monkeypatch.setattr(contexts, "TRANSACTION", 4)
    context = broker.connect()
    for number in range(5):
        context.send("orders", str(number))
    one, two = context.context("transacted"), context.context("transacted")
    first = one.consumer("orders", prefetch=3)
    assert [first.receive(0).body for _ in range(3)] == ["0", "1", "2"]
    first.close()
    second = two.consumer("orders")
    assert second.receive(0).body == "3"
    with pytest.raises(jms.IllegalState, match="open transactions of a connection"):
        second.receive(0)
    two.send("results", "x")
    with pytest.raises(jms.IllegalState, match="open transactions of a connection"):
        two.commit()
    one.commit()
    two.commit()
    assert texts(context.consumer("results")) == ["x"] and unharmed(context)


def test_the_bytes_of_a_transaction(broker, monkeypatch):
    monkeypatch.setattr(contexts, "TRANSACTION_BYTES", 10_000)
    context, other = broker.connect(ack="transacted"), broker.connect()
    context.send("results", "x" * 8_000)
    with pytest.raises(jms.IllegalState, match="a transaction has at most"):
        context.send("results", "x" * 8_000)
    context.commit()
    context.send("results", "x" * 8_000)
    context.rollback()
    news = context.consumer("/topic/news")
    for _ in range(2):
        other.send("/topic/news", "x" * 6_000)
    news.receive(0)
    with pytest.raises(jms.IllegalState, match="open transactions of a connection"):
        news.receive(0)
    context.commit()
    assert news.receive(0) is not None and unharmed(context)


def test_a_listener_that_never_commits_is_told_and_rolled_back(broker, monkeypatch):
    monkeypatch.setattr(contexts, "TRANSACTION", 2)
    context, other, told = broker.connect(ack="transacted"), broker.connect(), threading.Event()
    faults = []
    context.connection.on_error = lambda error: (faults.append(str(error)), told.set())
    for number in range(3):
        other.send("orders", str(number))
    with context.connection.lock:
        context.consumer("orders", listener=lambda message: None)
    assert told.wait(PATIENCE_S)
    context.close()
    assert "commit, or roll back" in faults[0]
