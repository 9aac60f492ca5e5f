"""A queue: who gets what, in which order, how often; and what survives."""

import gc
import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from mombroker.broker.commands import (
    REJECTED,
    RELEASED,
    REQUEUED,
    Disconnect,
    Disposition,
    Send,
    Transact,
    Uncommitted,
    Unsubscribe,
)
from mombroker.broker.message import ClientMessage
from mombroker.broker.properties import pack, unpack
from mombroker.broker.protocol import Consume
from mombroker.broker.queue import lane
from mombroker.broker.queue.consumer import PREFETCH_BYTES, Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dedup import MAX_RANGES
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session import deliveries
from mombroker.core.events import StoreSize
from mombroker.core.limits import Limits
from mombroker.core.topology import Topology
from mombroker.stomp.headers import head_of
from tests.broker.bench import ALONE, THREE, Broker, Client
from tests.core.bus import SECOND, topology

Q = "queue:orders"
SELF, OTHER = ("a", "a"), ("a", "b")  # servers of the queue and of its consumer


def with_policy(base: Topology = ALONE, **values: object) -> Topology:
    names = {name: "".join(domain.members) for name, domain in base.domains.items()}
    return topology(names, policies=[{"match": "queue:*", **values}])


def filled(b: Broker, *texts: str, **more: object) -> Client:
    """A producer on the queue's home, which has sent."""
    return b.connect("a").send(Q, *texts, **more)


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


# -- failures ------------------------------------------------------------------------------------------------------


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


# -- large messages ------------------------------------------------------------------------------------------------

MIB = 1 << 20


def large(number: int, size: int = MIB) -> str:
    return str(number).ljust(size)


def numbers(client: Client) -> list[int]:
    return [int(each.body[:4]) for each in client.got]


def biggest_batches(b: Broker, server: str = "a") -> list[int]:
    """Bytes of each batch from now on."""
    sizes: list[int] = []
    commit = b.stores[server].commit
    b.stores[server].commit = lambda batch: (sizes.append(batch.bytes), commit(batch))[1]  # type: ignore[method-assign]
    return sizes


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_a_consumer_holds_some_mebibytes_at_most_and_always_one_message(where):
    b = Broker(THREE)
    filled(b, *(large(n) for n in range(8)), large(8, 6 * MIB), *(large(n, 6 * MIB) for n in (9, 10)))
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual")
    assert numbers(consumer) == [0, 1, 2, 3]
    consumer.ack(large(0), large(1))
    assert numbers(consumer) == [0, 1, 2, 3, 4, 5]
    consumer.ack(*(large(n) for n in range(2, 6)))
    assert numbers(consumer)[6:] == [6, 7, 8]
    consumer.ack(large(6), large(7), large(8, 6 * MIB))
    assert numbers(consumer)[9:] == [9]
    consumer.close()
    rest = b.connect().subscribe("s", Q)
    assert numbers(rest) == [9, 10] and b.queue(Q).messages.unacked_bytes == 0


def test_a_batch_gives_and_takes_back_some_mebibytes_only():
    b = Broker(limits=Limits(batch_bytes=2 * MIB))
    producer = b.connect()
    for number in range(12):
        producer.send(Q, large(number))
    sizes = biggest_batches(b)
    readers = [b.connect().subscribe("s", Q, ack="individual", pump=False) for _ in range(3)]
    b.pump()
    assert sum(len(numbers(reader)) for reader in readers) == 12
    for reader in readers:
        reader.close()
    last = b.connect().subscribe("s", Q)
    assert numbers(last) == list(range(12)) and {each.count for each in last.got} == {2}
    assert max(sizes) <= 2 * (MIB + 1_000)


def test_a_queue_does_not_stand_still_when_others_fill_every_batch():
    b = Broker(limits=Limits(batch_bytes=10_000))
    reader, other = b.connect().subscribe("s", Q, ack="individual"), b.connect()
    waiting = b.queue(Q)
    waiting.dispatcher.pause("test", expected=lambda: True)
    filled(b, *(large(n, 1_000) for n in range(5)))
    waiting.dispatcher.resume("test")
    for left in (3, 1, 0):
        other.send("queue:other", large(0, 20_000), pump=False)
        assert b.servers["a"].tx.filled()
        b.release("a", b.commit("a"))
        assert waiting.messages.ready == left
    b.pump()
    assert numbers(reader) == list(range(5))


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_nothing_overtakes_what_returns_piece_by_piece_whatever_crashes_meanwhile(where):
    b = Broker(THREE, Limits(turn_work=1))
    filled(b, *map(str, range(7)))
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=5)
    other = b.connect().subscribe("s", Q, ack="individual", prefetch=1, priority=-1)
    assert consumer.texts == list("01234") and other.texts == ["5"]
    b.death = ("a", 2, True)  # of five that return one by one
    consumer.close()
    b.join("a", "b")
    b.pump()
    last = b.connect().subscribe("s", Q)
    assert last.texts == list("0123456") and b.queue(Q).messages.count == 0 and b.stored(Q) == {}


def test_a_browser_that_is_not_read_is_shown_some_mebibytes():
    b = Broker()
    filled(b, *(large(n) for n in range(7)))
    browser = b.connect(writes=False).subscribe("b", Q, browser=True)
    assert numbers(browser) == [0, 1, 2, 3]
    browser.wrote()
    assert numbers(browser) == list(range(7))


# -- time ----------------------------------------------------------------------------------------------------------


def test_messages_expire_while_nobody_is_there():
    b = Broker()
    now = b.now
    filled(b, "short", expires=now + SECOND).send(Q, "long", expires=now + 9 * SECOND).send(Q, "ever")
    b.later(1.1)
    assert b.queue(Q).messages.count == 2
    assert b.queue("queue:DLQ.orders").messages.count == 1
    assert b.stored(Q) == {"p5": 2, "x": 1}
    b.reboot("a")
    b.later(9)
    assert b.queue(Q).messages.count == 1 and b.stored(Q) == {"p5": 1}


def test_what_expires_with_its_consumer_is_not_taken_from_it_but_does_not_come_again():
    b = Broker(with_policy(on_expiry="drop"))
    filled(b, "short", expires=b.now + SECOND).send(Q, "ever")
    consumer = b.connect().subscribe("s", Q, ack="individual")
    b.later(2)
    assert b.queue(Q).messages.count == 2
    consumer.close()
    assert b.queue(Q).messages.count == 1 and b.queue(Q).messages.dropped == 1
    assert b.connect().subscribe("s", Q).texts == ["ever"]


def test_an_expired_message_is_not_taken_in():
    b = Broker()
    filled(b, "late", expires=b.now - 1)
    assert b.queue(Q).messages.count == 0 and b.queue("queue:DLQ.orders").messages.count == 1


def test_delayed_messages_come_when_they_are_due_restart_or_not():
    b = Broker()
    consumer = b.connect().subscribe("s", Q)
    filled(b, "late", delay=10 * SECOND).send(Q, "soon", delay=5 * SECOND).send(Q, "now")
    assert consumer.texts == ["now"]
    b.later(5.1)
    assert consumer.texts == ["now", "soon"]
    b.reboot("a")
    consumer = b.connect().subscribe("s", Q)
    b.later(4)
    assert consumer.texts == []
    b.later(1)
    assert consumer.texts == ["late"] and b.queue(Q).messages.count == 0 and b.stored(Q) == {}


def test_a_delay_beyond_the_expiry_buries_at_once():
    b = Broker()
    filled(b, "never", delay=5 * SECOND, expires=b.now + SECOND)
    assert b.queue("queue:DLQ.orders").messages.count == 1


# -- groups --------------------------------------------------------------------------------------------------------


def group(b: Broker, name: str, *texts: str, **more: object) -> None:
    b.connect("a").send(Q, *texts, group=name, **more)


def test_a_group_has_one_consumer():
    b = Broker()
    one, two = (b.connect().subscribe("s", Q, ack="individual") for _ in range(2))
    group(b, "x", "x1")
    group(b, "y", "y1")
    group(b, "x", "x2", "x3")
    group(b, "y", "y2")
    assert (one.texts, two.texts) == (["x1", "x2", "x3"], ["y1", "y2"])


def test_a_group_moves_when_it_is_closed_or_its_consumer_goes():
    b = Broker()
    one, two = (b.connect().subscribe("s", Q, ack="individual") for _ in range(2))
    group(b, "x", "x1")
    group(b, "x", "x2", group_seq=-1)
    group(b, "x", "x3")
    assert (one.texts, two.texts) == (["x1", "x2"], ["x3"])
    two.ack("x3")
    two.close()
    group(b, "x", "x4")
    assert one.texts[-1] == "x4"


def test_a_group_waits_for_its_consumer_while_others_go_on():
    b = Broker()
    one = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    group(b, "x", "x1", "x2")
    two = b.connect().subscribe("s", Q, ack="individual")
    assert two.texts == []
    group(b, "y", "y1")
    assert (one.texts, two.texts) == (["x1"], ["y1"])
    assert one.ack("x1").texts == ["x1", "x2"]


@pytest.mark.parametrize("where", [SELF, OTHER])
def test_the_order_of_a_group_survives_redelivery(where):
    b = Broker(THREE)
    consumer = b.connect(where[1]).subscribe("s", Q, ack="individual", prefetch=1)
    group(b, "x", "x1", "x2", "x3")
    filled(b, "other")
    consumer.nack("x1")
    assert consumer.texts == ["x1", "other"]
    consumer.ack("other")
    assert consumer.texts == ["x1", "other"]
    b.later(1.1)
    for text in ("x1", "x2", "x3"):
        assert consumer.texts[-1] == text
        consumer.ack(text)
    assert b.queue(Q).messages.count == 0


def test_the_order_of_a_group_survives_lost_connections_and_restarts():
    b = Broker(THREE)
    first = b.connect("b").subscribe("s", Q, ack="individual", prefetch=2)
    group(b, "x", "x1", "x2", "x3")
    b.reboot("a")
    other = b.connect("c").subscribe("s", Q, ack="individual")
    assert other.texts == []
    first.close()
    assert other.texts == ["x1", "x2", "x3"]


def test_a_dead_letter_stays_in_its_group():
    b = Broker()
    group(b, "g", "1", "2", group_seq=7)
    worker = b.connect().subscribe("s", Q, ack="individual")
    worker.nack("1", "2", outcome=REJECTED).close()
    found = b.connect().subscribe(
        "s", "queue:DLQ.orders", selector="JMSXGroupID = 'g' AND JMSXGroupSeq = 7", browser=True
    )
    assert found.texts == ["1", "2"]
    b.ask("a", "move", destination="queue:DLQ.orders", back=True)
    one, two = (b.connect().subscribe("s", Q, ack="individual", prefetch=1) for _ in range(2))
    assert (one.texts, two.texts) == (["1"], [])
    one.ack("1")
    assert (one.texts, two.texts) == (["1", "2"], [])


def test_a_large_group_that_comes_back_is_not_searched_for_each_of_its_messages():
    class Id(int):
        compared = 0

        def __lt__(self, other):
            Id.compared += 1
            return int(self) < int(other)

        __hash__ = int.__hash__

    taking, size = Consumers(), 2_000
    held = [QueuedMessage(Id(id), 5, "m", ClientMessage(Q, Q, group="g")) for id in range(size)]
    consumer = Consumer("a/conn:1", Consume(1, size), None)
    for item in held:
        taking.given(item, item.message, consumer)
    for item in held:
        taking.returned(item)
    for item in held:
        assert taking.may(consumer, item, item.message)
        taking.given(item, item.message, consumer)
    assert Id.compared < 50 * size


# -- limits --------------------------------------------------------------------------------------------------------


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


# -- repeats -------------------------------------------------------------------------------------------------------


def test_a_repeat_is_dropped_from_wherever_it_comes_also_after_a_restart():
    b = Broker(THREE)
    filled(b, "1", dedup=("p", 1), receipt="r")
    b.connect("b").send(Q, "1", dedup=("p", 1)).send(Q, "2", dedup=("p", 2)).send(Q, "1", dedup=("other", 1))
    b.reboot("a")
    producer = filled(b, "2", dedup=("p", 2), receipt="r")
    assert producer.receipts == ["r"]
    assert b.connect().subscribe("s", Q).texts == ["1", "2", "1"]


def test_what_an_old_server_brings_later_is_no_repeat():
    b = Broker(THREE)
    filled(b)
    consumer = b.connect().subscribe("s", Q)
    b.cut("a", "b"), b.cut("b", "c")
    old = b.connect("b")
    b.servers["b"].names.known[Q] = "a/queue:orders"
    filled(b, "0")
    old.send(Q, "5", dedup=("p", 5)).send(Q, "6", dedup=("p", 6))
    b.connect("c").send(Q, "6", dedup=("p", 6)).send(Q, "7", dedup=("p", 7))
    b.join("a", "b")
    b.pump()
    assert consumer.texts == ["0", "6", "7", "5"]


def test_gaps_in_the_numbers_of_a_producer_are_never_taken_for_filled():
    """It may count what it sends to several queues together, and one of its servers may be away for long."""
    b = Broker(THREE)
    filled(b)
    consumer = b.connect().subscribe("s", Q)
    b.cut("a", "b")
    b.servers["b"].names.known[Q] = "a/queue:orders"
    b.connect("b").send(Q, "late", dedup=("p", 2))
    there = b.connect()
    for number in range(3, 3 + 5 * 2 * MAX_RANGES, 5):
        there.send(Q, str(number), dedup=("p", number)).send(Q, str(number), dedup=("p", number))
    b.join("a", "b")
    b.pump()
    assert len(consumer.texts) == 2 * MAX_RANGES + 1 and consumer.texts[-1] == "late"


# -- volatile ------------------------------------------------------------------------------------------------------


def test_messages_that_need_not_persist_have_no_rows():
    b = Broker()
    filled(b, "1", persistent=False).send(Q, "2")
    assert b.stored(Q) == {"p5": 1}
    b.reboot("a")
    assert b.connect().subscribe("s", Q).texts == ["2"]
    assert b.queue(Q).messages.bytes == 0


# -- size ----------------------------------------------------------------------------------------------------------


def small(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    monkeypatch.setattr(lane, "MEMORY", messages * lane.OVERHEAD)
    monkeypatch.setattr(lane, "PAGE", 8)
    monkeypatch.setattr(lane, "PAGE_LEAST", 3)


def test_a_deep_queue_is_on_disk_and_drains_in_order(monkeypatch):
    small(monkeypatch, 10)
    b = Broker()
    texts = [str(number) for number in range(100)]
    filled(b, *texts)
    assert sum(len(each.items) for each in b.queue(Q).messages.lanes.values()) < 12
    consumer = b.connect().subscribe("s", Q, ack="individual", prefetch=7)
    b.connect().subscribe("s", Q, prefetch=3, ack="individual").close()
    for number in range(50):
        consumer.ack(str(number))
    b.reboot("a")
    filled(b, "last")
    consumer = b.connect().subscribe("s", Q)
    assert consumer.texts == [*texts[50:], "last"]
    assert b.queue(Q).messages.count == 0 and b.stored(Q) == {}


def test_a_selector_finds_what_is_deep_on_disk_and_it_returns_there(monkeypatch):
    small(monkeypatch, 10)
    b = Broker()
    producer = b.connect()
    for number in range(60):
        producer.send(Q, str(number), properties=pack({"rare": str(int(number % 20 == 19))}), pump=number % 7 == 0)
    b.pump()
    rare = b.connect().subscribe("s", Q, selector="rare = '1'", ack="individual", prefetch=2)
    assert rare.texts == ["19", "39"]
    rare.close()
    again = b.connect().subscribe("s", Q, selector="rare = '1'", ack="individual")
    assert again.texts == ["19", "39", "59"]
    again.ack("39").close()
    everything = b.connect().subscribe("s", Q)
    assert everything.texts == [str(number) for number in range(60) if number != 39]


def test_messages_on_disk_expire_and_are_browsed(monkeypatch):
    small(monkeypatch, 5)
    b = Broker()
    producer = b.connect()
    for number in range(40):
        producer.send(Q, str(number), expires=b.now + SECOND if number % 3 == 0 else 0)
    left = [str(number) for number in range(40) if number % 3]
    b.later(1.1)
    assert b.connect().subscribe("b", Q, browser=True, prefetch=4).texts == left
    assert b.connect().subscribe("s", Q).texts == left


def deep(folder: Path, messages: int, size: int) -> dict[str, int]:
    """Peak memory of a server with so many messages, in MiB."""
    folder.mkdir()
    code = [sys.executable, "-m", "tests.broker.deep", str(folder), str(messages), str(size)]
    ran = subprocess.run(code, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert ran.returncode == 0, ran.stderr
    figures: dict[str, int] = json.loads(ran.stdout)
    return figures


def test_memory_does_not_grow_with_the_depth_of_a_queue(tmp_path):
    """What is in memory is bounded: twice as deep costs next to nothing."""
    peaks = [max(deep(tmp_path / f"{depth}", depth, 4_000).values()) for depth in (4_000, 8_000)]
    assert peaks[1] - peaks[0] < 10


@pytest.mark.long
def test_a_queue_of_five_million_messages_keeps_its_server_under_a_gibibyte(tmp_path):
    assert max(deep(tmp_path / "store", 5_000_000, 100).values()) < 1024


# -- memory ------------------------------------------------------------------------------------------------------------


def test_an_idle_queue_takes_less_than_two_kilobytes_also_after_a_restart():
    b = Broker()
    filled(b, "one")
    b.connect().subscribe("s", Q)
    server, state = b.servers["a"], b.queue(Q).pack()
    for kind in (b"", state):
        Queue(server.clients, "a/queue:first", kind)
        gc.collect()
        tracemalloc.start()
        queues = [Queue(server.clients, f"a/queue:name{number}", kind) for number in range(200)]
        server.natives.turns.touched.clear()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used / len(queues) < 2_000


def test_a_row_that_was_in_no_batch_before_is_not_deleted_and_one_that_was_is():
    b = Broker()
    batches, commit = [], b.stores["a"].commit
    b.stores["a"].commit = lambda batch: (batches.append(dict(batch.items)), commit(batch))[1]  # type: ignore[method-assign]

    def deleted() -> list[int]:
        found = [id for items in batches for id, row in items.items() if row is None]
        batches.clear()
        return found

    first = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    b.connect().send(Q, "1", "2", pump=False)
    second = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    assert (first.texts, second.texts, deleted()) == (["1"], ["2"], [])
    b.connect().send(Q, "3")
    assert deleted() == []
    first.ack("1")
    assert first.texts == ["1", "3"] and len(deleted()) == 1
    first.nack("3", outcome=RELEASED)
    b.reboot("a")
    assert b.connect().subscribe("s", Q).texts == ["2", "3"]
