"""Messages that expire, and messages that are delayed."""

from tests.broker.bench import Broker
from tests.broker.queue.orders import Q, filled, with_policy
from tests.core.bus import SECOND


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
