"""Large messages: a consumer, a batch and a browser have some mebibytes of them at a time."""

import pytest

from mombroker.core.limits import Limits
from tests.broker.bench import THREE, Broker
from tests.broker.queue.orders import MIB, OTHER, SELF, Q, filled, large, numbers


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
