"""What comes back from consumers: when it is given again, how often, and when it becomes a dead letter."""

import pytest

from mombroker.broker.commands import (
    REJECTED,
    RELEASED,
    REQUEUED,
    Disconnect,
    Disposition,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.properties import pack, unpack
from mombroker.broker.queue.consumer import PREFETCH_BYTES
from mombroker.broker.session import deliveries
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import OTHER, SELF, Q, filled, with_policy
from tests.core.bus import SECOND


def test_what_is_given_back_comes_again_after_a_growing_while_then_goes_to_the_dead_letters():
    b = Broker(with_policy(max_redeliveries=2, redelivery_delay=1.0, redelivery_delay_multiplier=3.0))
    filled(b, "bad", properties=pack({"color": "red"}), priority=7)
    consumer = b.connect().subscribe("s", Q, ack="individual")
    for count, wait in ((1, 1), (2, 3)):
        assert [each.count for each in consumer.got][-1] == count
        consumer.nack("bad")
        b.later(wait - 0.1)
        assert len(consumer.got) == count
        b.later(0.2)
    consumer.nack("bad")
    assert b.queue(Q).messages.count == 0
    dead = b.connect().subscribe("d", "queue:DLQ.orders", ack="individual").got
    put = dead[0].message
    assert len(dead) == 1 and (put.body, unpack(put.properties), put.priority, put.shown) == (
        b"bad", {"color": "red"}, 7, Q,
    )  # fmt: skip
    found = put.annotations
    assert found["dead-letter-reason"] == "given back 3 times" and found["dead-letter-count"] == "3"
    assert found["original-destination"] == Q and found["dead-letter-from"] == Q
    assert found["original-message-id"] == consumer.got[0].id
    assert int(found["dead-letter-time"]) == b.now // 1_000_000


def test_backing_off_and_its_count_survive_a_restart():
    b = Broker()
    filled(b, "bad")
    b.connect().subscribe("s", Q, ack="individual").nack("bad")
    b.reboot("a")
    consumer = b.connect().subscribe("s", Q, ack="individual")
    assert consumer.texts == []
    b.later(1.1)
    assert [each.count for each in consumer.got] == [2]
    consumer.nack("bad")
    b.later(1.1)
    assert len(consumer.got) == 1
    b.later(1)
    assert len(consumer.got) == 2


def test_what_comes_due_while_its_server_is_down_survives_a_second_restart():
    b = Broker()
    filled(b, "bad")
    b.connect().subscribe("s", Q, ack="individual").nack("bad")
    b.crash("a")
    b.now += 2 * SECOND
    b.boot("a")
    b.pump()
    b.reboot("a")
    assert b.queue(Q).messages.count == 1
    assert [each.count for each in b.connect().subscribe("s", Q).got] == [2]


def test_what_is_purged_while_somebody_asks_for_it_stays_purged():
    b = Broker()
    filled(b, *map(str, range(20)))
    b.queue(Q).expiry.start_purge()
    consumer = b.connect().subscribe("s", Q)
    b.reboot("a")
    b.later(1)
    assert consumer.texts == [] and b.queue(Q).messages.count == 0 and b.queue(Q).messages.ready == 0


def test_what_somebody_has_while_others_are_purged_expires_when_it_is_back():
    b = Broker(with_policy(on_expiry="drop"))
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    filled(b, "1", "2", "3", expires=b.now + 9 * SECOND)
    assert b.ask("a", "purge", destination=Q)["purged"] == 2
    b.later(1)
    consumer.close()
    assert (b.queue(Q).messages.ready, len(b.queue(Q).schedule.expiring)) == (1, 1)
    b.later(9)
    assert (b.queue(Q).messages.count, len(b.queue(Q).schedule.expiring)) == (0, 0)


def test_what_is_given_back_holds_up_nobody_and_returns_to_its_place():
    b = Broker()
    filled(b, "1", "2", "3")
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    consumer.nack("1")
    assert consumer.texts == ["1", "2"]
    b.later(2)
    consumer.ack("2")
    assert consumer.texts == ["1", "2", "1"]


def test_a_nack_may_say_what_is_to_become_of_the_message():
    b = Broker(with_policy(on_nack="dead-letter"))
    consumer = b.connect().subscribe("s", Q, ack="individual")
    filled(b, "1", "2", "3")
    consumer.nack("1").nack("2", outcome=REQUEUED).nack("3", outcome=REJECTED)
    assert b.queue("queue:DLQ.orders").messages.count == 2
    b.later(2)
    assert consumer.texts == ["1", "2", "3", "2"]


@pytest.mark.parametrize("ack", ["individual", "client"])
@pytest.mark.parametrize("where", [SELF, OTHER])
def test_a_message_that_its_consumers_do_not_survive_becomes_a_dead_letter_and_others_do_not(where, ack):
    b = Broker(with_policy(THREE, max_redeliveries=2))
    filled(b, "bad", "1", "2")
    for count in (1, 2, 3):
        consumer = b.connect(where[1]).subscribe("s", Q, ack=ack)
        assert consumer.texts == ["bad", "1", "2"] and {each.count for each in consumer.got} == {count}
        consumer.close()
        b.reboot("a")
    undertaker = b.connect().subscribe("d", "queue:DLQ.orders")
    assert undertaker.texts == ["bad"]
    reason = undertaker.got[0].message.annotations["dead-letter-reason"]
    assert reason == "given back 3 times, at last by the loss of its consumer's connection"
    consumer = b.connect(where[1]).subscribe("s", Q, ack=ack)
    assert consumer.texts == ["1", "2"]


def test_only_a_lost_consumer_fails_and_only_with_what_it_had_in_hand():
    b = Broker(with_policy(max_redeliveries=0))
    filled(b, *"12345")
    b.connect(writes=False).subscribe("s", Q).close()  # it has seen nothing
    b.connect().subscribe("s", Q, ack="individual").do(Disconnect())
    b.connect().subscribe("s", Q, ack="individual")
    b.reboot("a")  # not its fault
    assert b.queue(Q).messages.count == 5
    consumer = b.connect().subscribe("s", Q, ack="individual")
    consumer.ack("1").do(Uncommitted(consumer.tag("2")), Uncommitted(consumer.tag("4")))
    consumer.close()
    assert b.connect().subscribe("d", "queue:DLQ.orders").texts == ["3"]
    assert b.connect().subscribe("s", Q).texts == ["2", "4", "5"]


def test_what_nobody_has_seen_comes_back_as_if_it_had_not_been_sent():
    b = Broker(with_policy(max_redeliveries=0))
    filled(b, "1", "2")
    consumer = b.connect().subscribe("s", Q, ack="individual")
    consumer.do(Unsubscribe("s")).nack("1", outcome=RELEASED).nack("2", outcome=RELEASED)
    again = b.connect().subscribe("s", Q, ack="individual")
    assert again.texts == ["1", "2"] and [each.count for each in again.got] == [1, 1]


def test_a_dead_letter_is_not_buried_twice():
    b = Broker(with_policy(max_redeliveries=0))
    filled(b, "bad")
    b.connect().subscribe("s", Q, ack="individual").nack("bad")
    undertaker = b.connect().subscribe("d", "queue:DLQ.orders", ack="individual")
    for count in range(1, 4):
        assert len(undertaker.got) == count
        undertaker.nack("bad")
        b.later(61)
    assert sum(name.startswith("queue:") for name in b.servers["a"].names.known) == 2
    undertaker.nack("bad", outcome=REJECTED)
    assert b.queue("queue:DLQ.orders").messages.count == 0 and b.queue("queue:DLQ.orders").messages.dropped == 1


def test_dead_letters_wait_for_the_name_of_their_queue():
    b = Broker(with_policy(THREE, max_redeliveries=0))
    filled(b, "first")
    b.connect("b").send("queue:far", "bad", "worse")
    consumer = b.connect("b").subscribe("s", "queue:far", ack="individual")
    b.cut("a", "b")
    consumer.nack("bad", "worse")
    b.reboot("b")
    b.join("a", "b")
    b.pump()
    assert b.connect("b").subscribe("s", "queue:DLQ.far").texts == ["bad", "worse"]


def test_selectors_see_the_id_and_the_count_that_clients_see():
    b = Broker(THREE)
    filled(b, "1", "2", "3")
    first = b.connect("b").subscribe("s", Q, ack="individual", prefetch=2)
    id = first.got[0].id
    first.close()
    browsed = b.connect().subscribe("b", Q, selector=f"JMSMessageID = '{id}' AND JMSXDeliveryCount = 1", browser=True)
    assert browsed.texts == ["1"] and browsed.got[0].count == 1
    again = b.connect().subscribe("s", Q, selector="JMSXDeliveryCount > 1", ack="individual")
    fresh = b.connect().subscribe("s", Q, selector="JMSXDeliveryCount = 1", ack="individual")
    assert (again.texts, fresh.texts) == (["1", "2"], ["3"]) and {each.count for each in again.got} == {2}
    again.close()
    one = b.connect("c").subscribe("s", Q, selector=f"JMSMessageID = '{id}'")
    assert one.texts == ["1"] and one.got[0].id == id


@pytest.mark.parametrize("where", [SELF, OTHER])
@pytest.mark.parametrize("ack", ["individual", "client"])
@pytest.mark.parametrize("size", [1, 2 * PREFETCH_BYTES // 3])
def test_what_an_open_transaction_settles_makes_room_for_more_and_once_only(where, ack, size):
    b = Broker(THREE)
    texts = [str(number).ljust(size) for number in range(7)]
    filled(b, *texts)
    consumer = b.connect(where[1]).subscribe("s", Q, ack=ack, prefetch=2)
    assert consumer.texts == texts[:2]
    consumer.do(Uncommitted(consumer.got[0].tag)).do(Uncommitted(consumer.got[0].tag))
    assert consumer.texts == texts[:3] and b.queue(Q).messages.count == 7
    consumer.do(Uncommitted(consumer.got[1].tag), Uncommitted(consumer.got[2].tag))
    assert consumer.texts == texts[:5]
    consumer.do(Transact([Disposition(consumer.got[n].tag) for n in (0, 1, 2)]))
    assert consumer.texts == texts[:5] and b.queue(Q).messages.count == 4
    consumer.ack(texts[3])
    assert consumer.texts == texts[:6]
    consumer.do(Uncommitted(consumer.got[4].tag)).nack(texts[4])
    assert consumer.texts == texts
    consumer.close()
    b.later(2)
    assert b.connect().subscribe("s", Q).texts == texts[4:]


def test_transactions_settle_only_so_many(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_UNCOMMITTED", 3)
    b = Broker()
    filled(b, *"12345")
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    for number in range(4):
        consumer.do(Uncommitted(consumer.got[number].tag))
    assert consumer.texts == list("1234") and "COMMIT sooner" in consumer.refusals[0]
    assert b.queue(Q).messages.count == 5 and not b.queue(Q).messages.unacked
