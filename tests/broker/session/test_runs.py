"""Runs: messages that are sent in a row, and alike, leave what they leave one by one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.commands import (
    RELEASED,
    AcceptRun,
    Delivery,
    DeliveryRun,
    Receipt,
    Receipts,
    Send,
    SendRound,
    SendRun,
    Subscribe,
    Sync,
)
from mombroker.broker.message import Alike, ClientMessage
from mombroker.broker.properties import pack
from mombroker.broker.queue.consumer import PREFETCH_BYTES
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.session.consumer import PREFETCH
from mombroker.core.limits import Limits
from tests.broker.bench import THREE, Broker
from tests.core.bus import SECOND

Q, D = "queue:q", "queue:d"
MODELS = st.builds(
    Send,
    destination=st.sampled_from([Q, Q, Q, "queue:far", "queue:new", "topic:t"]), body=st.just(b""), shown=st.just("/q"),
    priority=st.sampled_from([4, 4, 7]), expires=st.sampled_from([0, 0, 1, 5 * SECOND]), persistent=st.booleans(),
    delay=st.sampled_from([0, 0, 0, SECOND]), group=st.sampled_from(["", "", "g"]), receipt=st.just("r"),
    dedup=st.sampled_from([None, None, None, ("p", 7)]), message=st.sampled_from(["", "", "mine"]),
    properties=st.sampled_from([b"", pack({"k": "v"})]), typed=st.booleans(), stamp_user=st.booleans(),
)  # fmt: skip
POLICIES = st.sampled_from(
    [
        {},
        {},
        {"max_messages": 3, "overflow": "block", "block_seconds": 5},
        {"max_messages": 3, "overflow": "reject"},
        {"max_messages": 3, "overflow": "drop-head"},
        {"max_bytes": 60, "overflow": "reject"},
        {"max_bytes": 60, "overflow": "drop-head"},
        {"max_messages": 12, "max_bytes": 300, "overflow": "block", "block_seconds": 5},
    ]
)
# Of the topic: by which connection, selecting what, so many at a time, and of a durable subscription.
TAKERS = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from(["", "", "k = 'v'"]), st.sampled_from([0, 2, 5]), st.booleans(),
        st.sampled_from([False, False, False, False, True]),
    ), max_size=4,
)  # fmt: skip
PUBLISHED = st.lists(
    st.tuples(
        MODELS.map(lambda model: replace(model, destination="topic:t", expires=0, delay=0)),
        st.lists(st.integers(0, 30), min_size=2, max_size=9),
    ) | st.just("later"), min_size=1, max_size=5,
)  # fmt: skip
LIMITS = st.sampled_from([None, Limits(batch_bytes=90), Limits(max_message=25)])
STEPS = st.lists(
    st.tuples(MODELS, st.lists(st.integers(0, 30), min_size=1, max_size=9)) | st.sampled_from(["ack", "later", "sync"]),
    min_size=1, max_size=5,
)  # fmt: skip


PLACES = [(Q, "/q"), (D, "d"), ("queue:d", "/d"), ("queue:far", "/far"), ("queue:new", "new"), ("queue:e", "/e")]
ROUNDS = st.lists(
    st.tuples(
        MODELS.map(lambda model: replace(model, destination=Q)),
        st.lists(st.tuples(st.sampled_from([*PLACES[:3] * 3, *PLACES]), st.integers(0, 30)), min_size=1, max_size=9),
    ).map(lambda step: (step[0], [size for _, size in step[1]], [place for place, _ in step[1]]))
    | st.sampled_from(["ack", "later"]), min_size=1, max_size=5,
)  # fmt: skip


def play(steps, policy, consumes, takers, together, limits):
    """What servers have stored and said, after these steps."""
    b = Broker(THREE, limits)
    b.connect("c").send("queue:far", "first")
    if policy:
        b.ask("a", "set_policy", match="queue:*", values=policy)
    if consumes:
        taker = b.connect("a").subscribe("s", Q, ack="individual", prefetch=consumes).subscribe("t", "topic:t")
        b.connect("a").subscribe("d", D)
    readers = [b.connect("a", f"id{at}", writes=at < 2) for at in range(5)]
    for at, (reader, selector, prefetch, wildcard, durable) in enumerate(takers):
        topic, name = "topic:>" if wildcard else "topic:t", f"d{at}" if durable else ""
        readers[reader].subscribe(f"s{at}", topic, selector=selector, prefetch=prefetch, durable=name)
    sender = b.connect("a").send(Q, "first")
    for number, step in enumerate(steps):
        if step == "ack" and consumes and taker.got:
            taker.ack(*[each.body.decode() for each in taker.got if each.sub == "s"][-1:])
            taker.told.clear()
        elif step == "later":
            b.later(2)
            for reader in readers:
                reader.wrote()
        elif step == "sync":
            sender.do(Sync(f"s{number}"))
        elif isinstance(step, tuple):
            model, sizes, *rest = step
            model = replace(model, expires=model.expires and b.now + model.expires)
            bodies = [b"%d-%d" % (number, at) + b"x" * size for at, size in enumerate(sizes)]
            receipts = [f"{number}-{at}" for at in range(len(bodies))]
            run = SendRound(model, *rest, bodies, receipts) if rest else SendRun(model, bodies, receipts)
            commands = [run] if together else run.singles()
            sender.do(*commands, pump=False)
            b.pump()
    late = b.connect("a").subscribe("late", Q, ack="individual", prefetch=7)
    given = late.texts
    late.nack(*given[1:2]).ack(*given[2:4])
    disks = {name: store.snapshot() for name, store in b.stores.items()}
    told = []
    for reply in [each for client in b.clients.values() for each in client.told]:
        told += map(Receipt, reply.receipts) if isinstance(reply, Receipts) else [reply]
    return disks, told, {name: b.records(name) for name in b.stores}


@given(STEPS, POLICIES, st.sampled_from([0, 3, 40]), TAKERS, LIMITS)
@settings(max_examples=60, deadline=None)
def test_a_run_and_its_messages_one_by_one_leave_the_same(steps, policy, consumes, takers, limits):
    one, other = (play(steps, policy, consumes, takers, together, limits) for together in (True, False))
    assert one[1] == other[1]
    assert one[2] == other[2]
    assert one[0] == other[0]


@given(ROUNDS, POLICIES, st.sampled_from([0, 3, 40]), LIMITS)
@settings(max_examples=60, deadline=None)
def test_messages_to_queues_in_turn_leave_what_they_leave_one_by_one(steps, policy, consumes, limits):
    one, other = (play(steps, policy, consumes, [], together, limits) for together in (True, False))
    assert one[1] == other[1]
    assert one[2] == other[2]
    assert one[0] == other[0]


def test_messages_to_queues_in_turn_go_so_where_nothing_is_in_their_way():
    b = Broker()
    taker = b.connect().subscribe("s", Q).subscribe("d", D)
    sender = b.connect().send(Q, "0").send(D, "0").forget()
    places, texts, receipts = [(Q, Q), (D, D), (Q, "/q")], ["1", "2", "3"], ["r1", "r2", "r3"]
    run = SendRound(Send(Q, b"", shown=Q), places, [text.encode() for text in texts], receipts)
    sender.do(run)
    assert sender.told == [Receipts(receipts)]
    assert [(each.sub, each.message.shown, each.body) for each in taker.got[2:]] == [
        ("s", Q, b"1"), ("s", "/q", b"3"), ("d", D, b"2"),
    ]  # fmt: skip
    b.ask("a", "set_policy", match=D, values={"max_messages": 9, "overflow": "reject"})
    sender.forget().do(run)
    assert sender.told == [Receipt(receipt) for receipt in receipts]


@given(PUBLISHED, TAKERS)
@settings(max_examples=60, deadline=None)
def test_all_who_take_a_topic_get_of_a_run_what_they_get_one_by_one(steps, takers):
    one, other = (play(steps, {}, 0, takers, together, None) for together in (True, False))
    assert one[1] == other[1]
    assert one[2] == other[2]
    assert one[0] == other[0]


@pytest.mark.parametrize(
    "several, wanted",
    [
        ({}, {}), ({"persistent": False}, {}), ({"message": "mine"}, {}), ({}, {"prefetch": 3}),
        ({"group": "g"}, None), ({"due": 9**19}, None), ({"producer": "p", "counter": 7}, None),
        ({}, {"prefetch": 2}), ({}, {"selector": "k = 'v'"}), ({}, {"browser": True}), ({}, None),
    ],
)  # fmt: skip
def test_a_run_is_one_piece_for_the_only_consumer_if_that_takes_whatever_comes(several, wanted):
    b = Broker()
    b.connect().send(Q, "first").subscribe("s", Q, ack="individual").ack("first").unsubscribe("s")
    taker = b.connect().subscribe("s", Q, ack="individual", **(wanted or {"prefetch": 9}))
    if wanted is None and not several:
        b.connect().subscribe("s", Q)
    alike = Alike(ClientMessage(Q, Q, **several))
    takes = b.queue(Q).take_run([alike.message(body) for body in (b"1", b"2", b"3")], "a/conn:9")
    b.pump()
    whole = wanted is not None and wanted in ({}, {"prefetch": 3})
    assert takes == (whole or wanted == {"browser": True}) and taker.texts == ["1", "2", "3"] * whole


@pytest.mark.interpreted
def test_what_waits_is_given_in_one_piece_up_to_what_differs_or_has_gone(monkeypatch):
    b = Broker()
    sender = b.connect().send(Q, "0")
    for first in (1, 5, 9):
        numbers = range(first, first + 4)
        sender.do(SendRun(Send(Q, b"", shown=Q), [b"%d" % number for number in numbers], [f"{n}" for n in numbers]))
    pieces = []
    give = Dispatcher._give_all

    def given(self, consumer, items, size):
        pieces.append([item.message.body.decode() for item in items])
        give(self, consumer, items, size)

    monkeypatch.setattr(Dispatcher, "_give_all", given)
    first = b.connect().subscribe("s", Q, ack="individual", prefetch=7)
    assert first.texts == [f"{number}" for number in range(7)] and pieces == [["1", "2", "3", "4"], ["5", "6"]]
    first.ack("5").nack("2", outcome=RELEASED)
    assert first.texts[7:] == ["7", "2"] and pieces[2:] == [["7"]]  # what comes back is read from its row, alone
    first.ack("7", "2")
    assert first.texts[9:] == ["8", "9"] and pieces[3:] == [["8"], ["9"]]


@pytest.mark.parametrize("room", [2, 3])
def test_a_run_is_one_piece_if_the_batch_has_room_for_all(room):
    b = Broker(limits=Limits(batch_bytes=room * 100))
    b.connect().send(Q, "first")
    taker = b.connect().subscribe("s", Q, ack="individual").ack("first").forget()
    alike = Alike(ClientMessage(Q, Q))
    assert b.queue(Q).take_run([alike.message(b"x" * 100)] * 3, "a/conn:9") == (room == 3)
    b.pump()
    assert len(taker.got) == 3 * (room == 3)


def test_a_run_is_counted_by_its_messages_and_waits_at_the_one_that_has_no_room():
    b = Broker()
    b.ask("a", "set_policy", match=Q, values={"max_messages": 2, "overflow": "block", "block_seconds": 60})
    taker = b.connect().subscribe("s", Q, ack="individual", prefetch=1)
    model = Send(Q, b"", shown=Q)
    taker.do(SendRun(model, [b"1", b"2", b"3"], ["r1", "r2", "r3"]), SendRun(model, [b"4", b"5"], ["r4", "r5"]))
    assert taker.receipts == ["r1", "r2"] and taker.texts == ["1"]
    taker.ack("1")  # it passes the runs that wait for the very room that it makes
    assert taker.receipts == ["r1", "r2", "r3"] and taker.texts == ["1", "2"]
    taker.ack("2").ack("3").ack("4").ack("5")
    assert taker.receipts == [f"r{number}" for number in range(1, 6)]
    assert [each.body for each in taker.told if isinstance(each, Delivery)] == [b"1", b"2", b"3", b"4", b"5"]


# Deliveries 1 to 3 are of a queue, 4 to 6 of another one, whose are cumulative, 7 and 8 of a plain topic, 9 and 10 of a
# third queue; there is no 11.
@pytest.mark.parametrize(
    "tags",
    [
        [1, 2, 3], [3, 1], [1, 11, 2], [11, 1], [5, 6], [1, 5, 2], [7, 8], [7, 1], [2, 7, 4], [*range(1, 11)],
        [1, 9, 2, 10], [9, 10, 3], [9, 1, 11], [1, 9, 5],
    ],
)  # fmt: skip
def test_a_row_of_accepts_is_what_it_is_one_by_one(tags):
    left = []
    for together in (True, False):
        b = Broker()
        taker = b.connect(strict=False).subscribe("s", Q, ack="individual").subscribe("c", "queue:c", ack="client")
        taker.subscribe("t", "topic:t", ack="individual").subscribe("d", D, ack="individual")
        b.connect().send(Q, "1", "2", "3").send("queue:c", "4", "5", "6").send("topic:t", "7", "8").send(D, "9", "10")
        run = AcceptRun(tags)
        taker.do(*([run] if together else run.singles()))
        counts = [b.queue(name).describe()["messages"] for name in (Q, "queue:c", D)]
        left.append((counts, taker.refusals, b.stores["a"].snapshot(), b.records("a")))
    assert left[0] == left[1]


def test_a_row_of_accepts_passes_what_waits_for_the_very_room_that_it_makes():
    b = Broker()
    b.ask("a", "set_policy", match=Q, values={"max_messages": 2, "overflow": "block", "block_seconds": 60})
    taker = b.connect().subscribe("s", Q, ack="individual").send(Q, "1", "2", "3", "4")
    assert taker.texts == ["1", "2"]
    taker.do(AcceptRun([1, 2]))
    assert taker.texts == ["1", "2", "3", "4"]


def test_a_run_goes_in_one_piece_where_nothing_is_in_its_way():
    b = Broker()
    taker = b.connect().subscribe("s", Q)
    sender = b.connect().send(Q, "0").forget()
    sender.do(SendRun(Send(Q, b"", shown=Q), [b"1", b"2", b"3"], ["r1", "r2", "r3"]))
    assert sender.told == [Receipts(["r1", "r2", "r3"])] and taker.texts == ["0", "1", "2", "3"]
    assert isinstance(b.clients[sender.conn].told[0], Receipts)
    sender.do(Subscribe("s", (Q,)), SendRun(Send("queue:new", b"", shown=Q), [b"4"], ["r4"]))
    assert sender.told[-1] == Receipt("r4")


def fan_out(b, *subscriptions):
    """Who has subscribed by a connection each, and the runs that each was given of three messages that came as one."""
    takers = [b.connect().subscribe("s", "topic:t", **more) for more in subscriptions]
    given, release = {taker.conn: [] for taker in takers}, b.release

    def seen(name, ready):
        for conn, replies in ready.clients:
            given.setdefault(conn, []).extend(reply for reply in replies if isinstance(reply, DeliveryRun))
        release(name, ready)

    b.release = seen
    b.connect().do(SendRun(Send("topic:t", b"", shown="/t"), [b"1", b"2", b"3"], ["r1", "r2", "r3"]))
    assert all(taker.texts == ["1", "2", "3"] for taker in takers)
    return takers, [given[taker.conn] for taker in takers]


def test_all_who_take_a_topic_are_given_the_same_run():
    b = Broker()
    takers, given = fan_out(b, {}, {}, {})
    assert len({id(run.run) for (run,) in given}) == 1
    assert [taker.got for taker in takers[1:]] == [takers[0].got] * 2 and takers[0].got[-1].tag == 3
    consumer = b.servers["a"].clients.sessions[takers[0].conn].subs["s"]
    assert (consumer.credit, consumer.room, consumer.unsettled) == (PREFETCH, PREFETCH_BYTES, {})


@pytest.mark.parametrize("more", [{"selector": "x IS NULL"}, {"ack": "individual"}, {"durable": "d", "shared": True}])
def test_a_run_is_taken_apart_for_one_that_looks_at_each(more):
    _, given = fan_out(Broker(), more)
    assert given == [[]]


def test_what_waits_for_credit_is_not_passed_by_a_run():
    b = Broker()
    taker = b.connect(writes=False).subscribe("s", "topic:t", prefetch=4)
    for bodies in ([b"1", b"2", b"3"], [b"4", b"5"], [b"6", b"7"]):
        b.connect().do(SendRun(Send("topic:t", b"", shown="/t"), bodies, ["r"] * len(bodies)))
    assert taker.texts == ["1", "2", "3", "4"]
    taker.wrote()
    assert taker.texts == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize("together", [True, False])
def test_what_waits_is_given_until_its_consumer_has_no_more_room(together):
    """The last one may be too large for what is left of it."""
    b = Broker()
    run = SendRun(Send(Q, b"", shown=Q), [b"x" * (40 << 10)] * 110, [f"{number}" for number in range(110)])
    b.connect().send(Q, "first").subscribe("s", Q).unsubscribe("s").do(*([run] if together else run.singles()))
    late = b.connect().subscribe("s", Q, ack="individual", prefetch=1_000)
    assert len(late.got) == -(-PREFETCH_BYTES // (40 << 10))
