"""Transacted contexts: commit, rollback, and a commit whose answer is lost."""

import pytest

from mombroker.jms import IllegalState, RolledBack
from mombroker.jms import context as contexts
from tests.jms.memory import cord, filled, left, texts, with_policy


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
