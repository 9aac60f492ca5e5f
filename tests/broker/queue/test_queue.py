"""A queue: who gets what, and in which order."""

import pytest

from mombroker.broker.properties import pack
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import OTHER, SELF, Q, filled


def test_what_is_sent_is_received_once_and_is_gone_when_it_is_acknowledged():
    b = Broker()
    producer, consumer = b.connect(), b.connect()
    producer.send(Q, "one", "two", receipt="r")
    assert producer.receipts == ["r", "r"]
    consumer.subscribe("s", Q, ack="individual", receipt="sub")
    assert consumer.texts == ["one", "two"]
    assert consumer.receipts == ["sub"]
    assert b.stored(Q) == {"held": 2}
    consumer.ack("one", "two", receipt="ack")
    assert consumer.receipts == ["sub", "ack", "ack"]
    assert b.stored(Q) == {} and b.queue(Q).messages.count == 0


def test_consumers_and_producers_may_be_anywhere():
    b = Broker(THREE)
    filled(b, "one")
    consumer = b.connect("b").subscribe("s", Q, ack="individual")
    b.connect("c").send(Q, "two")
    assert consumer.texts == ["one", "two"]
    consumer.ack("one", "two")
    assert b.queue(Q).messages.count == 0


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_prefetch_one_means_one_unsettled_message(where):
    b = Broker(THREE)
    filled(b, "1", "2", "3")
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=1)
    assert consumer.texts == ["1"]
    assert consumer.ack("1").texts == ["1", "2"]
    assert consumer.ack("2").texts == ["1", "2", "3"]


def test_a_cumulative_acknowledgement_settles_earlier_ones_of_its_subscription_alone():
    b = Broker()
    consumer = b.connect().subscribe("s", Q, ack="client").subscribe("t", "queue:other", ack="client")
    filled(b, "1", "2", "3").send("queue:other", "x")
    consumer.ack("2")
    assert b.queue(Q).messages.count == 1 and b.queue("queue:other").messages.count == 1


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_what_a_lost_connection_had_returns_to_its_place_and_is_counted(where):
    b = Broker(THREE)
    filled(b, "1", "2", "3", "4")
    first = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=3)
    first.ack("2")
    first.close()
    second = b.connect().subscribe("s", Q, ack="individual")
    assert second.texts == ["1", "3", "4"]
    assert [each.count for each in second.got] == [2, 2, 2]


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_what_is_unsettled_at_unsubscribe_stays_with_the_connection(where):
    b = Broker(THREE)
    filled(b, "1", "2")
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=1)
    consumer.unsubscribe("s")
    consumer.ack("1", receipt="late")
    assert consumer.receipts == ["late"]
    assert b.queue(Q).messages.count == 1
    other = b.connect().subscribe("s", Q)
    assert other.texts == ["2"]


def test_a_message_under_way_to_a_subscription_that_ended_goes_back_uncounted():
    b = Broker(THREE)
    producer = filled(b)
    consumer = b.connect("b").subscribe("s", Q, ack="individual")
    b.cut("a", "b")
    producer.send(Q, "1")
    consumer.unsubscribe("s")
    b.join("a", "b")
    b.pump()
    assert consumer.texts == []
    other = b.connect().subscribe("s", Q)
    assert [(each.body, each.count) for each in other.got] == [(b"1", 1)]


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_counts_survive_each_crash(where):
    b = Broker(THREE)
    filled(b, "1")
    for count in (1, 2, 3):
        consumer = b.connect(where[1]).subscribe("s", Q, ack="individual")
        assert [each.count for each in consumer.got] == [count]
        for name in {*where}:
            b.reboot(name)
    assert b.queue(Q).messages.ready == 1


def test_the_home_of_a_queue_restarts_and_its_far_consumers_go_on():
    b = Broker(THREE)
    filled(b, "1", "2", "3")
    consumer = b.connect("b").subscribe("s", Q, ack="individual", prefetch=2)
    b.reboot("a")
    assert b.queue(Q).describe()["unacked"] == 2
    consumer.ack("1")
    assert consumer.texts == ["1", "2", "3"]
    consumer.ack("2", "3")
    assert b.queue(Q).messages.count == 0


def test_a_server_of_consumers_restarts_and_returns_what_they_had():
    b = Broker(THREE)
    filled(b, "1", "2")
    b.connect("b").subscribe("s", Q, ack="individual")
    b.crash("b")
    assert b.queue(Q).describe()["unacked"] == 2
    b.boot("b")
    b.pump()
    assert b.queue(Q).describe()["unacked"] == 0
    assert b.stores["b"].agents("b/conn:", 10) == []
    assert b.connect().subscribe("s", Q).texts == ["1", "2"]


def test_a_dispatch_that_finds_its_proxy_gone_goes_back_to_its_place():
    b = Broker(THREE)
    producer = filled(b)
    b.connect("b").subscribe("s", Q, ack="individual")
    b.cut("a", "b")
    producer.send(Q, "1", "2")
    b.crash("b")
    b.boot("b")
    b.join("a", "b")
    b.pump()
    other = b.connect("c").subscribe("s", Q)
    assert [(each.body, each.count) for each in other.got] == [(b"1", 1), (b"2", 1)]


def test_higher_priorities_come_first():
    b = Broker()
    producer = filled(b, "low", priority=1)
    producer.send(Q, "high", priority=9).send(Q, "middle")
    assert b.connect().subscribe("s", Q).texts == ["high", "middle", "low"]


def test_consumers_take_turns_and_priority_wins():
    b = Broker()
    one, two = (b.connect().subscribe("s", Q, ack="individual") for _ in range(2))
    filled(b, "1", "2", "3", "4")
    assert (one.texts, two.texts) == (["1", "3"], ["2", "4"])
    first = b.connect().subscribe("s", Q, ack="individual", priority=5, prefetch=1)
    filled(b, "5", "6")
    assert first.texts == ["5"] and sorted(one.texts + two.texts)[-1] == "6"


def test_an_exclusive_consumer_gets_everything_until_it_goes():
    b = Broker()
    other, exclusive = b.connect().subscribe("s", Q), b.connect().subscribe("s", Q, exclusive=True)
    filled(b, "1", "2")
    assert (other.texts, exclusive.texts) == ([], ["1", "2"])
    exclusive.close()
    filled(b, "3")
    assert other.texts == ["3"]


def test_selectors_take_what_they_match_wherever_it_stands():
    b = Broker()
    producer = b.connect()
    for number in range(6):
        producer.send(Q, str(number), properties=pack({"kind": "odd" if number % 2 else "even"}))
    odd = b.connect().subscribe("s", Q, selector="kind = 'odd'", ack="individual", prefetch=2)
    assert odd.texts == ["1", "3"]
    odd.ack("3")
    assert odd.texts == ["1", "3", "5"]
    assert b.connect().subscribe("s", Q, selector="kind = 'even'").texts == ["0", "2", "4"]
    producer.send(Q, "none", properties=pack({"kind": "none"}))
    assert b.connect().subscribe("s", Q, selector="kind = ").refusals


def test_no_local_leaves_out_what_the_connection_sent():
    b = Broker()
    client = b.connect().subscribe("s", Q, no_local=True)
    client.send(Q, "mine")
    filled(b, "theirs")
    assert client.texts == ["theirs"]


def test_a_browser_sees_all_in_order_and_changes_nothing():
    b = Broker()
    filled(b, *map(str, range(5)))
    holder = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    browser = b.connect("a", writes=False).subscribe("b", Q, browser=True, prefetch=2)
    assert browser.texts == ["1", "2"] and browser.ends == []
    browser.writes = True
    browser.wrote()
    assert browser.texts == ["1", "2", "3", "4"] and browser.ends == ["b"]
    assert [each.count for each in b.connect().subscribe("s", Q).got] == [1] * 4
    assert holder.texts == ["0"]


def test_a_far_browser_and_an_empty_queue():
    b = Broker(THREE)
    filled(b, "1", "2")
    assert b.connect("c").subscribe("b", Q, browser=True, selector="JMSPriority = 4").texts == ["1", "2"]
    empty = b.connect().subscribe("b", "queue:empty", browser=True)
    assert (empty.texts, empty.ends) == ([], ["b"])
