"""Contexts, producers and consumers on a broker in memory: what is settled when, and what a loss does."""

import pytest

from mombroker.jms import (
    ConnectionLost,
    IllegalState,
    InvalidDestination,
    InvalidSelector,
    MessageFormat,
    Queue,
    Refused,
    RolledBack,
    TimedOut,
    Topic,
)
from mombroker.jms import context as contexts
from tests.core.bus import topology
from tests.jms.memory import Memory, cord

PAIR = topology({"x": "ab"})
SOON = 0.02  # s of waiting for what does not come


def texts(consumer, count=100):
    """What can be received now, up to some."""
    found = []
    while len(found) < count and (message := consumer.receive(0)) is not None:
        found.append(message.body)
    return found


def filled(broker, *bodies, queue="orders", **options):
    with broker.connect() as context:
        for body in bodies:
            context.send(queue, body, **options)


def left(broker, queue="queue:orders"):
    return broker.queue(queue).messages.count


def with_policy(match, **values):
    return Memory(topology({}, policies=[{"match": match, **values}]))


@pytest.fixture
def broker():
    return Memory()


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


# -- transactions --------------------------------------------------------------------------------------------------


def test_a_transaction_sends_and_settles_at_its_commit(broker):
    filled(broker, "in")
    context = broker.connect(ack="transacted")
    consumer, other = context.consumer("orders"), broker.connect().consumer("results")
    consumer.receive(0)
    context.send("results", "out")
    assert texts(other) == [] and left(broker) == 1
    context.commit()
    assert texts(other) == ["out"] and left(broker) == 0
    context.commit()


def test_a_transaction_receives_any_number(broker):
    filled(broker, *map(str, range(250)))
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders", prefetch=7)
    assert texts(consumer, 250) == [str(number) for number in range(250)]
    context.rollback()
    broker.later(2)
    assert texts(consumer, 250) == [str(number) for number in range(250)]
    consumer.close()
    context.commit()
    assert left(broker) == 0


def test_a_transaction_that_becomes_too_long_says_so_and_is_not_lost(broker, monkeypatch):
    monkeypatch.setattr(contexts, "TRANSACTION", 4)
    filled(broker, "1", "2", "3", "4", "5")
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders")
    context.send("results", "out")
    assert texts(consumer, 3) == ["1", "2", "3"]
    with pytest.raises(IllegalState, match="a transaction has at most .*: commit, or roll back"):
        consumer.receive(0)
    context.commit()
    assert texts(consumer) == ["4", "5"] and left(broker) == 2


def test_a_rollback_forgets_and_gives_back(broker):
    filled(broker, "1", "2")
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders")
    consumer.receive(0)
    context.send("results", "never")
    context.rollback()
    context.commit()
    broker.later(2)
    assert texts(consumer) == ["2", "1"]
    assert "queue:results" not in broker.servers["a"].names.known


def test_a_block_is_a_transaction(broker):
    context = broker.connect(ack="transacted")
    with context.transaction():
        context.send("orders", "1")
    with pytest.raises(KeyError), context.transaction():
        context.send("orders", "2")
        raise KeyError
    context.commit()
    assert left(broker) == 1


def test_a_commit_that_is_refused_did_nothing_and_the_context_goes_on():
    broker = with_policy("queue:full", max_messages=2, overflow="reject")
    filled(broker, "in")
    filled(broker, "0", queue="full")
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders")
    consumer.receive(0)
    context.send("full", "1")
    context.send("full", "2")
    with pytest.raises(RolledBack, match="is full"):
        context.commit()
    cord(context).dial()
    assert left(broker, "queue:full") == 1 and left(broker) == 1
    assert consumer.receive(0).body == "in"
    context.send("full", "1")
    context.commit()
    assert left(broker, "queue:full") == 2 and left(broker) == 0


def test_a_transaction_whose_messages_came_by_a_lost_connection_is_rolled_back(broker):
    filled(broker, "in")
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders")
    consumer.receive(0)
    context.send("results", "out")
    cord(context).lose()
    with pytest.raises(RolledBack, match="they come again"):
        context.commit()
    assert "queue:results" not in broker.servers["a"].names.known
    assert consumer.receive(0).redelivered
    context.send("results", "out")
    context.commit()
    assert (left(broker), left(broker, "queue:results")) == (0, 1)


def test_a_commit_without_an_answer_is_in_doubt_and_either_all_of_it_happened_or_nothing(broker):
    filled(broker, "in")
    context = broker.connect(ack="transacted")
    consumer = context.consumer("orders")
    consumer.receive(0)
    context.send("results", "out")
    cord(context).deaf = True
    call = None

    def wait(found, timeout=None):
        nonlocal call
        call = found
        cord(context).lose()
        if found.error:
            raise found.error

    context.connection.wait = wait
    with pytest.raises(RolledBack, match="before the answer came"):
        context.commit()
    assert call.done and consumer.receive(0) is None
    assert (left(broker), left(broker, "queue:results")) == (0, 1)


def test_only_a_transacted_context_has_transactions(broker):
    context = broker.connect()
    for verb in (context.commit, context.rollback, context.acknowledge):
        with pytest.raises(IllegalState, match="this context has ack='auto'"):
            verb()
    with pytest.raises(IllegalState, match="ack is one of auto, dups-ok"):
        context.context(ack="none")


# -- losses --------------------------------------------------------------------------------------------------------


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


# -- subscriptions -------------------------------------------------------------------------------------------------


def test_one_subscription_to_several_topics_has_one_order(broker):
    context = broker.connect()
    consumer = context.consumer([Topic("a"), Topic("b.*")])
    for topic in ("a", "b.c", "a", "c"):
        context.send(f"/topic/{topic}", topic)
    assert texts(consumer) == ["a", "b.c", "a"]
    assert len(cord(context).session.subs) == 1


def test_a_selector_knows_types(broker):
    context = broker.connect()
    consumer = context.consumer("orders", selector="size > 4 AND new AND JMSType = 't'")
    for size, new in ((4, True), (5, False), (6, True)):
        context.send("orders", str(size), properties={"size": size, "new": new}, type="t")
    assert texts(consumer) == ["6"]
    with pytest.raises(InvalidSelector, match="at character 6"):
        context.consumer("orders", selector="size >")
    with pytest.raises(InvalidSelector):
        list(context.browser("orders", "size >"))


def test_a_durable_subscription_goes_on_without_its_consumer(broker):
    context = broker.connect(client_id="c")
    context.consumer(Topic("news"), durable="inbox").close()
    filled(broker, "1", "2", queue="/topic/news")
    with context.consumer(Topic("news"), durable="inbox") as consumer:
        assert consumer.receive(0).body == "1"
    context.close()
    context = broker.connect(client_id="c")
    consumer = context.consumer(Topic("news"), durable="inbox")
    assert texts(consumer) == ["2"]
    consumer.close()
    context.unsubscribe("inbox")
    with pytest.raises(Refused, match="no durable subscription 'inbox'"):
        context.unsubscribe("inbox")


def test_a_durable_subscription_has_one_consumer_the_last(broker):
    old, new = broker.connect(client_id="c"), broker.connect(client_id="c")
    first, other = old.consumer(Topic("news"), durable="inbox"), old.consumer("orders")
    second = new.consumer(Topic("news"), durable="inbox")
    cord(old).dial()
    with pytest.raises(Refused):
        first.receive(0)
    first.close()
    old.send("orders", "1")
    old.send("/topic/news", "2")
    assert (texts(other), texts(second)) == (["1"], ["2"])


@pytest.mark.parametrize("how", [{"shared": "workers"}, {"durable": "workers", "shared": True}])
def test_a_shared_subscription_has_takers_in_turn(broker, how):
    one, two = broker.connect(), broker.connect()
    first, second = one.consumer(Topic("news"), **how), two.consumer(Topic("news"), **how)
    filled(broker, *"1234", queue="/topic/news")
    got = texts(first), texts(second)
    assert sorted(got[0] + got[1]) == list("1234") and len(got[0]) == len(got[1]) == 2


def test_no_local(broker):
    one, two = broker.connect(), broker.connect()
    consumer = one.consumer(Topic("news"), no_local=True)
    one.send("/topic/news", "mine")
    two.send("/topic/news", "yours")
    assert texts(consumer) == ["yours"]


def test_prefetch_exclusive_and_priority(broker):
    filled(broker, *"12345")
    context = broker.connect(ack="client")
    small = context.consumer("orders", prefetch=2)
    assert len(small.waiting) == 2
    small.close()
    first, best = context.consumer("orders", exclusive=True, prefetch=1), context.consumer("orders", priority=5)
    assert len(first.waiting) == 1 and len(best.waiting) == 0


@pytest.mark.parametrize(
    ("wanted", "how", "error", "words"),
    [
        ("orders", {"durable": "x"}, InvalidDestination, "durable and shared subscriptions are to topics"),
        ("orders", {"shared": "x"}, InvalidDestination, "durable and shared subscriptions are to topics"),
        (Topic("a"), {"durable": "x"}, IllegalState, "client_id"),
        (Topic("a"), {"shared": True}, IllegalState, "needs a name"),
        (Topic("a"), {"durable": "x", "shared": "y"}, IllegalState, "has one name"),
        (["a", "b"], {}, InvalidDestination, "several topics"),
        ("/topic/pri*", {}, InvalidDestination, "a wildcard within a word"),
        (Topic("pri*"), {"shared": "x"}, InvalidDestination, "a wildcard within a word"),
    ],
)
def test_subscriptions_that_cannot_be(broker, wanted, how, error, words):
    context = broker.connect()
    with pytest.raises(error, match=words):
        context.consumer(wanted, **how)
    assert context.consumers == [] and cord(context).session.subs == {}


def test_what_the_server_refuses_is_an_error_and_the_others_go_on():
    broker = with_policy("queue:secret", create=False)
    context = broker.connect()
    consumer = context.consumer("orders")
    with pytest.raises(Refused, match="create = false"):
        context.consumer("secret")
    cord(context).dial()
    with pytest.raises(Refused, match="create = false"):
        context.send("secret", "x")
    cord(context).dial()
    context.send("orders", "1")
    assert texts(consumer) == ["1"]


def test_a_browser_shows_what_waits_and_takes_nothing(broker):
    filled(broker, *map(str, range(250)))
    context = broker.connect()
    browser = context.browser("orders")
    assert [message.body for message in browser] == [str(number) for number in range(250)]
    with context.browser("orders", "JMSPriority = 9") as other:
        assert list(other) == []
    for message in browser:
        assert message.body == "0"
        break
    assert left(broker) == 250 and cord(context).session.subs == {}
    with pytest.raises(InvalidDestination, match="only a queue"):
        context.browser(Topic("a"))


# -- request and reply ---------------------------------------------------------------------------------------------


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
