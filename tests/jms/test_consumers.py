"""Consumers of queues, topics and subscriptions, and browsers: what each receives, and what is refused."""

import pytest

from mombroker.jms import IllegalState, InvalidDestination, InvalidSelector, Refused, Topic
from tests.jms.memory import cord, filled, left, texts, with_policy


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
