"""A queue moves to another server while clients use it: nothing is lost or repeated unsaid, and the order holds."""

from __future__ import annotations

import pytest

from mombroker.broker.commands import Disposition, Flow
from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Taken
from mombroker.broker.queue.queue import Queue
from mombroker.core.message import new_message
from mombroker.core.reaction import DELETE
from tests.broker.bench import THREE, Broker
from tests.broker.queue.test_moves_and_losses import rounds
from tests.core.bus import topology

FOUR = topology({"x": "ab", "y": "bc", "z": "bd"})


def move(b: Broker, name: str = "orders", at: str = "a", to: str = "b", **more) -> dict:
    return b.ask(at, "move_destination", destination=f"queue:{name}", to=to, **more)


def home(b: Broker, name: str = "queue:orders") -> str:
    (found,) = {server.names.known[name] for server in b.servers.values()}
    return found.partition("/")[0]


def refused(b: Broker, server: str, verb: str, **args) -> str:
    reply = b.ask(server, verb, **args)
    assert isinstance(reply, str), reply
    return reply


def here(b: Broker, name: str = "queue:orders") -> Queue:
    queue = b.queue(name)
    assert queue.move is None
    return queue


@pytest.mark.parametrize("shape", [THREE, FOUR])
def test_what_waits_goes_over_in_order_and_the_name_follows(shape):
    b = Broker(shape)
    b.connect("a").send("queue:orders", *map(str, range(300)))
    assert move(b)["to"] == "b"
    b.pump()
    assert home(b) == "b"
    assert here(b).messages.count == 300
    assert b.stored("queue:orders", "a") == {}
    b.connect("c").send("queue:orders", "last")
    taker = b.connect("c").subscribe("s", "queue:orders", prefetch=1000)
    assert taker.texts == [*map(str, range(300)), "last"]
    b.reboot("a")
    b.reboot("b")
    assert home(b) == "b"


def test_priorities_delays_ends_counts_and_dead_letters_come_along():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", "low", priority=1).send("queue:orders", "high", priority=8)
    b.connect("a").send("queue:orders", "later", delay=5 * 10**9)
    b.connect("a").send("queue:orders", "mortal", expires=b.now + 3 * 10**9)
    first = b.connect("a").subscribe("s", "queue:orders", prefetch=1, ack="individual")
    assert first.texts == ["high"]
    first.close()
    move(b)
    b.pump()
    taker = b.connect("c").subscribe("s", "queue:orders", prefetch=1, ack="individual")
    assert [(each.body, each.count) for each in taker.got] == [(b"high", 2)]
    b.later(4)
    b.later(2)
    taker.ack("high")
    taker.ack("later")
    assert taker.texts == ["high", "later", "low"]
    assert b.connect("b").subscribe("s", "queue:DLQ.orders").texts == ["mortal"]


def test_a_message_that_backs_off_goes_over_and_comes_in_its_time():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "*", "redelivery_delay": 4.0}]))
    taker = b.connect("a").subscribe("s", "queue:orders", ack="individual", prefetch=1)
    b.connect("a").send("queue:orders", "1", "2")
    taker.nack("1")
    taker.ack("2")
    move(b)
    b.pump()
    assert home(b) == "b"
    assert taker.texts == ["1", "2"]
    b.later(5)
    assert [(each.body, each.count) for each in taker.got] == [(b"1", 1), (b"2", 1), (b"1", 2)]


def test_a_repeat_is_dropped_at_the_new_home_too():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", "once", dedup=("p", 7))
    move(b)
    b.pump()
    b.connect("c").send("queue:orders", "again", dedup=("p", 7)).send("queue:orders", "new", dedup=("p", 8))
    assert b.connect("a").subscribe("s", "queue:orders").texts == ["once", "new"]


def test_consumers_go_on_at_the_new_home_without_notice():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    takers = [b.connect(at).subscribe("s", "queue:orders", prefetch=2, ack="individual") for at in "abcd"]
    (first,) = [each for each in takers if each.texts]
    move(b)
    b.pump()
    assert home(b) == "b"
    assert b.ask("a", "destination", destination="queue:orders")["waits_for"] == "1 message that consumers have"
    b.connect("a").send("queue:orders", *"2345678")
    assert sorted(text for each in takers for text in each.texts) == [*"12345678"]
    assert all(len(each.texts) == 2 for each in takers), "none has more than its window, wherever it comes from"
    for each in takers:
        each.ack(*each.texts)
    assert here(b).messages.count == 0
    assert not b.stored("queue:orders")
    assert all(not each.refusals for each in takers)


def test_with_release_what_consumers_have_is_given_out_again_and_marked():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", "1", "2")
    taker = b.connect("c").subscribe("s", "queue:orders", prefetch=2, ack="individual")
    move(b)
    b.pump()
    assert home(b) == "b"
    assert move(b, release=True)["released"] == 2
    old = [each.tag for each in taker.got]
    assert [(each.body, each.count) for each in taker.got] == [(b"1", 1), (b"2", 1)], "its window is full"
    taker.do(*(Disposition(tag) for tag in old))  # of no effect, but for the window
    assert [(each.body, each.count) for each in taker.got[2:]] == [(b"1", 2), (b"2", 2)]
    taker.ack("1", "2")
    assert here(b).messages.count == 0


def test_what_is_sent_directly_waits_behind_what_was_sent_to_the_old_home():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "0")
    slow, names = b.connect("d"), b.servers["a"].names
    decide = names.move

    def after_a_cut(*moved: str) -> None:
        b.cut("b", "d")
        slow.send("queue:orders", "1", pump=False)  # it does not leave d yet
        decide(*moved)

    names.move = after_a_cut
    move(b, to="c")
    b.pump()
    b.connect("a").send("queue:orders", "2")
    taker = b.connect("c").subscribe("s", "queue:orders")
    assert taker.texts == ["0"]
    assert b.ask("a", "destination", destination="queue:orders")["waits_for"] == "d to learn of it"
    b.join("b", "d")
    b.pump()
    assert taker.texts == ["0", "1", "2"]
    slow.send("queue:orders", "3")
    assert taker.texts == ["0", "1", "2", "3"]
    assert here(b).collections == {}


@pytest.mark.parametrize("server", ["a", "b"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_at_any_commit_only_makes_it_slower(server, durable):
    for at in range(1, 14):
        b = Broker(THREE)
        b.connect("a").send("queue:orders", *map(str, range(300)))
        b.death = (server, at, durable)
        move(b)
        b.pump()
        if home(b) == "a" and b.queue("queue:orders").move is None:  # nobody has begun
            move(b)
            b.pump()
        assert home(b) == "b", at
        assert b.connect("c").subscribe("s", "queue:orders", prefetch=1000).texts == [*map(str, range(300))], at


def test_it_moves_on_and_comes_back():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    for at, to in ("ab", "bc", "ca"):
        taker = b.connect("d").subscribe("s", "queue:orders", ack="individual")
        move(b, at=at, to=to)
        b.pump()
        taker.close()
        assert home(b) == to
    assert b.connect("d").subscribe("s", "queue:orders").texts == ["1"]


def test_what_cannot_be_done_meanwhile_is_refused_with_one_sentence():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", "1")
    taker = b.connect("a").subscribe("s", "queue:orders", ack="individual", exclusive=True)
    assert "already" in refused(b, "a", "move_destination", destination="queue:orders", to="a")
    assert "not a server" in refused(b, "a", "move_destination", destination="queue:orders", to="nowhere")
    move(b)
    b.pump()
    for verb in ("browse", "purge", "delete_destination"):
        assert "is on its way to b" in refused(b, "a", verb, destination="queue:orders")
    assert "is on its way to b" in refused(b, "a", "move_destination", destination="queue:orders", to="c")
    assert "is on its way to b" in b.connect("a").subscribe("s", "queue:orders", browser=True).refusals[0]
    taker.ack("1")
    assert home(b) == "b"
    assert b.ask("b", "browse", destination="queue:orders")["messages"] == []


def test_producers_that_wait_for_room_go_on_at_the_new_home():
    b = Broker(topology({"x": "abc"}, policies=[{"match": "queue:orders", "max_messages": 3, "block_seconds": 1e6}]))
    near, far = b.connect("a"), b.connect("c")
    near.send("queue:orders", "first")
    taker = b.connect("c").subscribe("s", "queue:orders", ack="individual", prefetch=1)
    for at, each in enumerate((near, far) * 6):
        each.send("queue:orders", str(at))
    move(b)
    b.pump()
    for _ in range(13):
        taker.ack(taker.texts[-1])
    assert home(b) == "b"
    assert sorted(map(int, taker.texts[1:])) == [*range(12)]
    assert not near.refusals + far.refusals


def test_what_a_consumer_loses_comes_to_its_place_at_the_new_home():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", *"123456")
    taker = b.connect("c").subscribe("s", "queue:orders", prefetch=3, ack="individual")
    assert taker.texts == [*"123"]
    move(b)
    b.pump()
    taker.ack("2")
    assert taker.texts == [*"1234"]
    b.connect("a").send("queue:orders", "7")
    taker.close()
    other = b.connect("a").subscribe("s", "queue:orders")
    assert [(each.body, each.count) for each in other.got] == [
        (b"1", 2), (b"3", 2), (b"4", 2), (b"5", 1), (b"6", 1), (b"7", 1)
    ]  # fmt: skip
    assert here(b).messages.count == 0
    assert not b.stored("queue:orders")


@pytest.mark.parametrize("server", "abc")
def test_what_consumers_have_at_a_crash_is_given_out_again_and_marked(server):
    b = Broker(THREE)
    b.connect("a").send("queue:orders", *"123456")
    takers = [b.connect(at).subscribe("s", "queue:orders", prefetch=1, ack="individual") for at in "abc"]
    move(b)
    b.pump()
    for each in takers:
        each.ack(*each.texts)
    had = [each.texts for each in takers]
    b.reboot(server)
    rest = b.connect("b").subscribe("s", "queue:orders", ack="individual")
    for each in takers:
        if each.open:
            each.ack(each.texts[-1])
    lost = next(texts for each, texts in zip(takers, had, strict=True) if not each.open)
    assert [(each.body.decode(), each.count) for each in rest.got if each.count > 1] == [(lost[-1], 2)]
    rest.ack(*rest.texts)
    assert here(b).messages.count == 0
    assert not b.stored("queue:orders", "a")


def test_a_cumulative_acknowledgement_settles_at_both_homes():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", *"12")
    taker = b.connect("c").subscribe("s", "queue:orders", prefetch=4, ack="client")
    move(b)
    b.pump()
    b.connect("a").send("queue:orders", *"345")
    assert taker.texts == [*"1234"]
    taker.ack("4")
    assert taker.texts == [*"12345"]
    taker.ack("5")
    assert here(b).messages.count == 0


def test_requests_follow_the_old_id_to_whoever_has_the_name_and_messages_do_not():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    for at, to in ("ab", "bc"):
        move(b, at=at, to=to)
        b.pump()
    late = b.servers["d"].natives
    message = ClientMessage("queue:orders", "queue:orders", body=b"2")
    for home in "ab":
        late.post("d/_late", f"{home}/queue:orders", message)
    b.pump()
    taker = b.connect("d").subscribe("s", "queue:orders")
    assert taker.texts == ["1"]  # it would come behind what its sender has sent to the new home since
    assert [len(b.servers[home].dead_letters.letters) for home in "abc"] == [1, 1, 0]
    b.servers["d"].natives.send(new_message(late.tx, "d/_admin", ("a/queue:orders",), DELETE, b""))
    b.pump()
    assert "queue:orders" not in b.servers["a"].names.known


def test_what_was_for_a_former_queue_of_this_id_is_a_dead_letter():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    b.queue("queue:orders").depart("b")
    while "b/queue:orders" not in b.servers["b"].natives.agents:
        assert not rounds(b, 1), "it moves"
    late = b.servers["d"].natives
    late.post("d/_late", "b/queue:orders", ClientMessage("queue:orders", "queue:orders", body=b"former"))
    b.pump()
    b.connect("d").send("queue:orders", "2")
    assert home(b) == "b" and b.connect("c").subscribe("s", "queue:orders").texts == ["1", "2"]
    (dead,) = b.records("b", "dead")
    assert dead["detail"] == "it was for the former b/queue:orders, which is gone: send it again, by name"


def test_a_receipt_that_a_loss_has_taken_from_a_queue_that_is_there_does_not_end_its_move():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    b.queue("queue:orders").depart("b")
    while "b/queue:orders" not in b.servers["b"].natives.agents:
        assert not rounds(b, 1), "it moves"
    receipt = new_message(b.servers["b"].tx, "b/queue:orders", ("a/queue:orders",), Taken.wire, b"")
    # It had waited for what only a lost server had.
    assert b.servers["a"].clients.orphans.settle(receipt, "a/queue:orders")
    b.pump()
    assert home(b) == "b" and here(b).messages.count == 1


def test_credit_and_drains_go_over_with_their_consumer():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", *"12")
    taker = b.connect("d", strict=False).subscribe("s", "queue:orders", ack="individual", credit=1)
    assert taker.texts == ["1"]
    b.cut("b", "d")
    move(b, to="c")
    b.pump()
    assert home(b) == "a"
    taker.do(Flow("s", 3, True))  # it does not leave d yet, nor is it known there that the queue moves
    taker.send("queue:orders", "3")
    assert taker.drains == []
    b.join("b", "d")
    b.pump()
    assert taker.texts == [*"12"] or taker.texts == [*"123"]
    assert taker.drains == [("s", len(taker.texts))]
    taker.ack("1", "2")
    taker.do(Flow("s", 3, True))
    assert taker.texts == [*"123"]
    assert taker.drains[-1] == ("s", 3)
    b.connect("a").send("queue:orders", "4")
    assert taker.texts == [*"123"], "without credit"


def test_of_a_group_nothing_moves_while_a_consumer_has_something():
    b = Broker(THREE)
    b.connect("a").send("queue:orders", *"12", group="g")
    taker = b.connect("c").subscribe("s", "queue:orders", ack="individual", prefetch=1)
    other = b.connect("b").subscribe("s", "queue:orders", ack="individual", prefetch=1)
    move(b)
    b.pump()
    assert (home(b), taker.texts, other.texts) == ("a", ["1"], [])
    taker.ack("1")
    assert home(b) == "b"
    assert sorted(taker.texts + other.texts) == [*"12"]


def test_while_a_server_cannot_be_reached_all_goes_by_the_old_home():
    b = Broker(FOUR)
    b.connect("a").send("queue:orders", "1")
    b.cut("b", "d")
    move(b, to="c")
    b.pump()
    assert b.ask("a", "destination", destination="queue:orders")["waits_for"] == "d to answer"
    taker = b.connect("c").subscribe("s", "queue:orders")
    b.connect("b").send("queue:orders", "2")
    assert taker.texts == [*"12"]
    b.join("b", "d")
    b.pump()
    assert home(b) == "c"
    b.connect("d").send("queue:orders", "3")
    assert taker.texts == [*"123"]
