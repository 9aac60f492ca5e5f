"""Transactions of clients: all of it or nothing, wherever it goes and whoever crashes meanwhile."""

import pytest

from mombroker.broker.commands import MODIFIED, Disposition, Transact
from tests.broker.bench import THREE, Broker, Client
from tests.broker.session.inout import Q, R, send, waiting
from tests.core.bus import topology


def work(b: Broker) -> Client:
    """A client that has taken one message of Q, and answers it in a transaction on R, the topic and far queues."""
    client = b.clients[min(b.clients)]
    tags = [each.tag for each in client.got]
    return client.do(Transact([send(R, "a"), *map(Disposition, tags), send("topic:t", "b"), send(R, "c")], "done"))


def placed(b: Broker, q: str, r: str, worker: str) -> Client:
    """Q and R on these servers, one message in Q, and a worker that has it."""
    client = b.connect(worker)
    b.connect(q).send(Q, "work")
    b.connect(r).send(R, "first")
    b.connect("c", "me").subscribe("s", "topic:t", durable="d").close()
    return client.subscribe("w", Q, ack="individual")


@pytest.mark.parametrize("worker", "abc")
def test_a_transaction_is_done_as_a_whole(worker):
    b = Broker(THREE)
    client = placed(b, "a", "b", worker)
    work(b)
    assert client.receipts == ["done"]
    assert waiting(b) == {Q: 0, R: 3} and b.queue("sub:me:d").messages.count == 1
    assert b.connect("c").subscribe("s", R).texts == ["first", "a", "c"]


@pytest.mark.parametrize("worker", "abc")
@pytest.mark.parametrize("dying", "abc")
def test_a_transaction_is_all_or_nothing_through_a_crash_at_every_commit(worker, dying):
    """Each server dies at each of its commits, before it is durable or before anybody hears of it."""
    outcomes = set()
    for number in range(1, 12):
        for durable in (False, True):
            b = Broker(THREE)
            client = placed(b, "a", "b", worker)
            b.death = (dying, number, durable)
            work(b)
            if b.death is None:
                b.later(3)
                found = (b.queue(Q).messages.count, b.queue(R).messages.count, b.queue("sub:me:d").messages.count)
                assert found in ((1, 1, 0), (0, 3, 1)), f"{dying} died at {number}, {durable}: {found}"
                assert client.receipts == [] or found == (0, 3, 1), "a receipt for what is lost"
                outcomes.add(found)
        if b.death is not None:
            break
    assert b.death is not None, "more commits than were tried"
    assert (0, 3, 1) in outcomes and (len(outcomes) == 2 or worker != dying)


def test_what_a_transaction_sends_waits_for_all_its_names_and_room():
    b = Broker(topology({"x": "ab", "y": "bc"}, policies=[{"match": R, "max_messages": 2}]))
    b.cut("a", "b")
    client = b.connect("c").do(Transact([send(Q, "1"), send(R, "2")], "r"))
    assert client.receipts == []
    b.join("a", "b")
    b.pump()
    assert client.receipts == ["r"]
    client.do(Transact([send(Q, "3"), send(R, "4"), send(R, "5")], "r2"))
    assert client.receipts == ["r"] and waiting(b) == {Q: 1, R: 1}
    b.connect("a").subscribe("s", R)
    assert client.receipts == ["r", "r2"] and b.queue(Q).messages.count == 2
    assert b.queue(R).limits.reserved == 0


def test_a_transaction_that_settles_what_is_not_there_does_nothing():
    b = Broker()
    client = b.connect()
    client.send(Q, "1").subscribe("s", Q, ack="individual")
    client.do(Transact([send(R, "x"), Disposition(client.tag("1")), Disposition(99)], "r"))
    assert client.refusals and R not in b.servers["a"].names.known
    assert b.queue(Q).messages.ready == 1


def test_a_cumulative_acknowledgement_in_a_transaction_settles_once():
    b = Broker()
    client = b.connect().send(Q, "1", "2", "3").subscribe("s", Q, ack="client")
    client.do(
        Transact(
            [Disposition(client.tag("2")), Disposition(client.tag("1")), Disposition(client.tag("3"), MODIFIED)], "r"
        )
    )
    assert client.receipts == ["r"] and b.queue(Q).messages.count == 1
