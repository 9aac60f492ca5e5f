"""What a client sends to a queue of its own server is taken at once, unless something is in its way."""

import pytest

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.queue import Queue
from mombroker.core.inbox import Inboxes
from mombroker.core.limits import Limits
from mombroker.core.trace import records
from tests.broker.bench import ALONE, Broker

Q = "queue:q"


def broker() -> tuple[Broker, Queue]:
    made = Broker(ALONE, Limits(batch_bytes=1_000))
    made.connect().send(Q, "first")
    return made, made.queue(Q)


def bodies(b: Broker) -> list[str]:
    consumer = b.connect().subscribe("s", Q)
    return consumer.texts


def send(b: Broker, queue: Queue, body: bytes) -> None:
    b.servers["a"].channel.send_now("a/conn:9", queue, ClientMessage(Q, Q, body=body))


def test_an_idle_queue_takes_it_at_once_and_the_log_tells_both_steps():
    b, queue = broker()
    server = b.servers["a"]
    send(b, queue, b"second")
    assert queue.messages.count == 2 and not server.engine.inboxes.boxes
    sent, reacted = records(server.tx.rows.log)[-2:]
    assert (sent[0], sent[1:3], sent[4], reacted[0], reacted[3]) == (
        "send",
        reacted[1:3],
        (queue.id,),
        "react",
        queue.id,
    )
    b.pump()
    assert bodies(b) == ["first", "second"]


@pytest.mark.parametrize("way", ["full batch", "inbox", "reaction", "poison search"])
def test_in_any_other_case_it_waits_for_its_turn(way):
    b, queue = broker()
    server = b.servers["a"]
    engine = server.engine
    if way == "full batch":
        server.tx.rows.bytes = 2_000
    elif way == "inbox":
        server.channel.post("a/conn:9", queue.id, ClientMessage(Q, Q, body=b"second"))
    elif way == "reaction":
        engine.running = "a/other"
    else:
        engine.poison.left = 5
    send(b, queue, b"last")
    assert queue.messages.count == 1 and queue.id in engine.inboxes.boxes
    engine.running = ""
    b.pump()
    assert bodies(b) == ["first", "second", "last"][:: 1 if way == "inbox" else 2]


@pytest.mark.parametrize("work", [1_000, 2])
def test_queues_and_sessions_of_one_server_take_what_they_tell_each_other_at_once(work, monkeypatch):
    """As long as the turn has work left for it; then it waits in inboxes."""
    b = Broker(ALONE, Limits(turn_work=work))
    taker, sender, waited = b.connect(), b.connect(), []
    names = [f"queue:{number}" for number in range(5)]
    for name in names:
        taker.subscribe(name, name, ack="individual")
    add = Inboxes.add
    monkeypatch.setattr(Inboxes, "add", lambda *given: (waited.append(given), add(*given)))
    for name in names:
        sender.send(name, name, pump=False)
    b.pump()
    taker.ack(*names)
    assert sorted(taker.texts) == names and not any(b.queue(name).messages.count for name in names)
    assert bool(waited) == (work == 2)


def test_what_was_taken_at_once_is_durable_with_its_batch_and_not_before():
    b, queue = broker()
    send(b, queue, b"lost")
    b.crash("a")
    b.boot("a")
    assert b.queue(Q).messages.count == 1
    send(b, b.queue(Q), b"second")
    b.pump()
    b.crash("a")
    b.boot("a")
    b.pump()
    assert bodies(b) == ["first", "second"]
