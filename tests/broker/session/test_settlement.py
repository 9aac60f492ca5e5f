"""Settlement: what was written, acknowledged or given back, and how much of it at a time."""

from typing import Any

import pytest

from mombroker.broker.commands import Disposition, Subscribe
from mombroker.core.events import ClientCommands, ClientWrote
from tests.broker.bench import THREE, Broker, Client
from tests.broker.session.inout import Q


@pytest.mark.parametrize("worker", "ab")
def test_auto_settles_only_what_was_written_and_in_a_later_batch(worker):
    b = Broker(THREE)
    client = b.connect(worker, writes=False)
    b.connect("a").send(Q, "1", "2")
    client.subscribe("s", Q)
    assert client.texts == ["1", "2"] and b.queue(Q).messages.count == 2
    b.servers[worker].step(ClientWrote(client.conn, client.tag("1")), b.now)
    b.pump()
    assert b.queue(Q).messages.count == 1
    client.close()
    assert [(each.body, each.count) for each in b.connect("c").subscribe("s", Q).got] == [(b"2", 2)]


@pytest.mark.parametrize("worker", "ab")
def test_a_kill_between_commit_and_write_loses_nothing(worker):
    b = Broker(THREE)
    b.connect("a").send(Q, "1")
    client = b.connect(worker)
    b.servers[worker].step(ClientCommands(client.conn, [Subscribe("s", (Q,))]), b.now)
    for _ in range(20):  # until the batch with the delivery is durable
        for name in "abc":
            ready = b.commit(name)
            if any(conn == client.conn for conn, _ in ready.clients):
                b.crash(worker)
                b.boot(worker)
                b.pump()
                found = b.connect("c").subscribe("s", Q).got
                assert [(each.body, each.count) for each in found] == [(b"1", 2)]
                return
            b.release(name, ready)
    raise AssertionError("nothing was delivered")


def stopped_with_inboxes(b: Broker, client: Client, *commands: Any) -> None:
    """The server obeys, and dies when what these commands cause is durable, but nobody has reacted to it."""
    server = b.servers[client.server]
    server.limits.turn_reactions = 0
    client.do(*commands, pump=False)
    b.commit(client.server)
    b.reboot(client.server)


def test_what_was_acknowledged_before_a_crash_does_not_come_again_though_its_queue_was_not_told_yet():
    b = Broker()
    client = b.connect().send(Q, "1", "2").subscribe("s", Q, ack="individual")
    stopped_with_inboxes(b, client, Disposition(client.tag("1"), receipt="r"))
    assert [(each.body, each.count) for each in b.connect().subscribe("s", Q).got] == [(b"2", 2)]


def test_nothing_goes_to_a_connection_that_is_gone_when_its_subscription_is_taken_up():
    b = Broker()
    client = b.connect().send(Q, "1")
    stopped_with_inboxes(b, client, Subscribe("s", (Q,)))
    assert b.queue(Q).describe()["consumers"] == 0
    assert [(each.body, each.count) for each in b.connect().subscribe("s", Q).got] == [(b"1", 1)]


def test_settling_twice_is_an_error():
    b = Broker()
    client = b.connect().send(Q, "1").subscribe("s", Q, ack="individual")
    tag = client.tag("1")
    client.do(Disposition(tag)).do(Disposition(tag, receipt="r"))
    assert client.told[-1].receipt == "r" and "settled already" in client.refusals[0]


def test_settlements_of_one_turn_are_one_message_to_each_home():
    b = Broker(THREE)
    b.connect("a").send(Q, *"12345")
    client = b.connect("b").subscribe("s", Q, ack="individual")
    client.ack(*"12345")
    sent = [row["detail"] for row in b.records("b", "send")]
    assert sent.count("q.settle") == 1


def test_prefetch_is_a_hundred_by_default():
    b = Broker()
    b.connect().send(Q, *map(str, range(150)))
    client = b.connect().subscribe("s", Q, ack="client")
    assert len(client.got) == 100
    assert len(client.ack("49").got) == 150
