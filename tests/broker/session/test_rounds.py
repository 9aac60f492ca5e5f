"""Rounds: what a session and queues in turn tell each other in one piece leaves what it leaves note by note."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.commands import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    AcceptRun,
    Delivery,
    Disposition,
    Flow,
    Send,
    SendRound,
    Uncommitted,
)
from mombroker.broker.queue import rounds
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.session import Session
from mombroker.core.limits import Limits
from mombroker.core.trace import Round
from tests.broker.bench import THREE, Broker
from tests.core.bus import SECOND

QUEUES = [f"queue:{number}" for number in range(5)]
LIMITED = "queue:4"  # where there is a policy, it is for this one
SUBSCRIPTIONS = st.lists(
    st.fixed_dictionaries(
        {
            "at": st.sampled_from(["a", "a", "a", "b"]), "queue": st.sampled_from(QUEUES),
            "ack": st.sampled_from(["individual", "individual", "individual", "client", "auto"]),
            "prefetch": st.sampled_from([0, 0, 1, 2]), "credit": st.sampled_from([None, None, None, 3]),
            "browser": st.sampled_from([False] * 5 + [True]), "selector": st.sampled_from([""] * 5 + ["k = 'v'"]),
            "exclusive": st.sampled_from([False, False, True]),
        }
    ), min_size=2, max_size=7,
)  # fmt: skip
MODELS = st.builds(
    Send, destination=st.just(QUEUES[0]), body=st.just(b""), shown=st.just("/q"), persistent=st.booleans(),
    priority=st.sampled_from([4, 4, 7]), expires=st.sampled_from([0, 0, 0, 5 * SECOND]), receipt=st.just("r"),
    group=st.sampled_from(["", "", "", "g"]), dedup=st.sampled_from([None, None, None, ("p", 7)]),
    message=st.sampled_from(["", "", "mine"]),
)  # fmt: skip
COUNTS = ("count", "ready", "bytes", "unstored", "held", "unacked_bytes")
PLACES = st.lists(st.integers(0, 4), min_size=1, max_size=9)
STEPS = st.lists(
    st.tuples(st.just("send"), MODELS, PLACES)
    | st.tuples(st.just("settle"), st.sampled_from([ACCEPTED] * 4 + [RELEASED, MODIFIED]), st.integers(1, 40))
    | st.sampled_from([("send and settle",), ("uncommitted",), ("flow",), ("leave",), ("later",)]),
    min_size=1, max_size=7,
)  # fmt: skip
POLICIES = st.sampled_from(
    [
        {}, {}, {"max_messages": 2, "overflow": "block", "block_seconds": 5}, {"max_messages": 2, "overflow": "reject"},
        {"max_messages": 2, "overflow": "drop-head"}, {"on_nack": "dead-letter"},
    ]
)  # fmt: skip
LIMITS = st.sampled_from([None, None, Limits(batch_bytes=60), Limits(turn_work=2)])


def play(subscriptions, steps, policy, limits):
    """What the servers have stored and said, after these steps."""
    b = Broker(THREE, limits)
    first = b.connect("a").send(LIMITED, "0")
    if policy:
        b.ask("a", "set_policy", match=LIMITED, values=policy)
    for queue in QUEUES:
        first.send(queue, "first")
    takers = {name: b.connect(name, strict=False) for name in "ab"}
    for number, values in enumerate(subscriptions):
        values = dict(values)
        at, queue = values.pop("at"), values.pop("queue")
        takers[at].subscribe(f"s{number}", queue, **values)
    sender, bodies = b.connect("a"), iter(range(1_000))

    def send(model, places):
        run = SendRound(
            model, [(QUEUES[at], f"/{at}") for at in places], [b"%d" % next(bodies) for _ in places],
            [f"r{at}" for at, _ in enumerate(places)],
        )  # fmt: skip
        sender.do(run, pump=False)

    def settle(outcome, count):
        for taker in takers.values():
            tags = [each.tag for each in taker.told if isinstance(each, Delivery)][-count:]
            taker.told[:] = [each for each in taker.told if not isinstance(each, Delivery) or each.tag not in tags]
            if outcome == ACCEPTED and len(tags) > 1:
                taker.do(AcceptRun(tags), pump=False)
            else:
                taker.do(*(Disposition(tag, outcome) for tag in tags), pump=False)

    told = []
    for step in steps:
        match step:
            case ("send", model, places):
                send(model, places)
            case ("settle", outcome, count):
                settle(outcome, count)
            case ("send and settle",):
                settle(ACCEPTED, 40)
                send(Send(QUEUES[0], b"", shown="/q", receipt="r"), [0, 1, 2, 3, 4, 0, 1])
            case ("uncommitted",):
                for taker in takers.values():
                    taker.do(*(Uncommitted(each.tag) for each in taker.got[-2:]), pump=False)
            case ("flow",):
                takers["a"].do(Flow("s0", 2), pump=False)
            case ("leave",):
                takers["a"].unsubscribe("s1")
            case _:
                b.later(2)
        told += [list(taker.told) for taker in takers.values()]
        b.pump()
    for client in b.clients.values():
        told.append(list(client.told))
    disks = {name: store.snapshot() for name, store in b.stores.items()}
    return disks, told, {name: b.records(name) for name in b.stores}, list(map(memory, b.servers.values()))


def memory(server):
    """What queues and sessions of a server know that their rows do not say."""
    natives = server.natives.agents.values()
    queues = [
        (
            each.id, *((one.key, one.credit, one.room, one.uncommitted) for one in each.consumers),
            *(getattr(each.messages, name) for name in COUNTS),
        )
        for each in natives if isinstance(each, Queue)
    ]  # fmt: skip
    sessions = [
        (each.id, each.deliveries.tag, *((one.number, one.credit, one.unsettled) for one in each.consumers.values()))
        for each in natives if isinstance(each, Session)
    ]  # fmt: skip
    return queues, sessions, server.engine.reactions, server.channel.sent, server.tx.new_id()


@pytest.mark.long
@given(SUBSCRIPTIONS, STEPS, POLICIES, LIMITS)
@settings(max_examples=150, deadline=None)
def test_a_round_and_its_notes_one_by_one_leave_the_same(subscriptions, steps, policy, limits):
    together = play(subscriptions, steps, policy, limits)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "settle", "_dispatched"):
            patch.setattr(rounds, name, lambda *_: False)
        apart = play(subscriptions, steps, policy, limits)
    assert together[1] == apart[1]
    assert together[2] == apart[2]
    assert together[0] == apart[0]
    assert together[3] == apart[3]


def scene(**more):
    """Who consumes from three queues, who sends to them, and the rounds of each commit: of what, and how many."""
    b, found = Broker(), []
    taker = b.connect(strict=False)
    for number, queue in enumerate(QUEUES[:3]):
        b.connect().send(queue, f"{number}")
        taker.subscribe(f"s{number}", queue, **{"ack": "individual"} | more)
    commit = b.commit

    def seen(name):
        ready = commit(name)
        found.extend((each.type, len(each.numbers)) for each in ready.batch.log if isinstance(each, Round))
        return ready

    b.commit = seen
    return b, taker, b.connect(), found


def in_turn(*places, **more):
    texts = [f"{at}-{place}" for at, place in enumerate(places)]
    model = Send(QUEUES[0], b"", shown="/0", **more)
    return SendRound(model, [(QUEUES[place], f"/{place}") for place in places], [t.encode() for t in texts], texts)


def test_what_a_session_settles_of_queues_and_is_given_by_them_goes_in_rounds():
    _, taker, sender, found = scene()
    sender.do(in_turn(0, 1, 2, 1))
    assert found == [("q.put", 4), ("c.dispatch", 3)] and taker.texts == ["0", "1", "2", "0-0", "1-1", "3-1", "2-2"]
    found.clear()
    taker.do(AcceptRun([1, 2, 3, 4, 5]))
    assert found == [("q.settle", 3)]
    taker.ack("3-1")
    assert found == [("q.settle", 3)]  # nor is one alone a round


@pytest.mark.parametrize(
    "more, sent, kinds",
    [
        ({"group": "g"}, {}, ["c.dispatch"]), ({"expires": 2 * 10**18}, {}, ["c.dispatch"]),
        ({"dedup": ("p", 7)}, {}, ["c.dispatch"]), ({}, {"prefetch": 1}, ["q.put"]),
        ({}, {"selector": "k = 'v'"}, ["q.put"]), ({}, {"browser": True}, ["q.put"]),
        ({}, {"credit": 5}, ["q.put", "c.dispatch"]),
    ],
)  # fmt: skip
def test_what_goes_in_rounds(more, sent, kinds):
    _, _, sender, found = scene(**sent)
    sender.do(in_turn(0, 1, 2, **more))
    assert [type for type, _ in found] == kinds


def test_who_waits_for_room_gets_it_by_a_settlement_alone():
    b, taker, sender, found = scene()
    b.ask("a", "set_policy", match=QUEUES[0], values={"max_messages": 2, "overflow": "block", "block_seconds": 60})
    sender.send(QUEUES[0], "x", "y", "z")
    taker.do(AcceptRun([1, 2, 3]))
    assert found == [] and taker.texts[-2:] == ["x", "y"]


def test_a_round_is_not_begun_that_a_turn_has_no_work_left_for():
    b, taker, sender, found = scene()
    b.servers["a"].natives.turns.work = 0
    assert not rounds.settle(b.servers["a"].natives, [(b.queue(QUEUES[at]).id, at + 1, [1], 1) for at in (0, 1)], "a/x")


def test_a_round_uses_up_the_credit_that_a_client_has_given():
    b, taker, sender, found = scene(credit=3)
    sender.do(in_turn(0, 1, 2))
    subs = b.servers["a"].clients.sessions[taker.conn].subs
    assert found == [("q.put", 3), ("c.dispatch", 3)] and [each.credit for each in subs.values()] == [1, 1, 1]
