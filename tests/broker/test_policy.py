"""Policies: what a setting can be, and how long a message waits after a failure."""

import math
import re

import pytest

from mombroker.broker.policy import Policy, policy, stored
from mombroker.core.errors import MomError
from mombroker.core.times import LAST_NS, LAST_S, SECOND
from tests.broker.bench import THREE, Broker

TIMES = ["block_seconds", "redelivery_delay", "redelivery_delay_multiplier", "max_redelivery_delay"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e200, 1e10, 10**400])
@pytest.mark.parametrize("name", TIMES)
def test_a_time_is_a_number_that_a_server_can_reckon_with(name, value):
    with pytest.raises(MomError, match=name):
        policy({"match": "*", name: value})


@pytest.mark.parametrize("name", ["max_messages", "max_bytes", "max_redeliveries", "max_pending"])
def test_an_amount_is_one_that_a_row_can_hold(name):
    for value in (-1, 2**63, 10**400):
        with pytest.raises(MomError, match=name):
            policy({"match": "*", name: value})
    assert getattr(policy({"match": "*", name: LAST_NS}), name) == LAST_NS


def test_the_delay_after_a_failure_grows_up_to_its_most():
    made = Policy(redelivery_delay=0.5, redelivery_delay_multiplier=3.0, max_redelivery_delay=10.0)
    assert [made.backoff_ns(failures) / SECOND for failures in (1, 2, 3, 4, 1_000)] == [0.5, 1.5, 4.5, 10.0, 10.0]


@pytest.mark.parametrize("first", [0.0, 1e-300, 1.0, float(LAST_S)])
@pytest.mark.parametrize("factor", [0.0, 0.5, float(LAST_S)])
def test_the_delay_is_never_more_than_a_row_can_hold(first, factor):
    made = Policy(redelivery_delay=first, redelivery_delay_multiplier=factor, max_redelivery_delay=float(LAST_S))
    assert all(0 <= made.backoff_ns(failures) <= LAST_NS for failures in (1, 2, 100, 10**6))


def test_what_an_older_server_accepted_keeps_no_server_down():
    old = {"match": "queue:c*", "block_seconds": math.inf, "max_redeliveries": 7, "colour": "red"}
    assert stored(old) == Policy(match="queue:c*", max_redeliveries=7)
    old = {"match": "orders*", "max_redeliveries": 7, "dead_letter": "b"}
    assert stored(old) == Policy(match="orders*", max_redeliveries=7)


OLD_WORDS = {
    "redeliver": 7, "full": "drop-oldest", "nack": "dead-letter", "expired": "drop", "redeliver_first": 0.5,
    "redeliver_factor": 3.0, "redeliver_max": 9.0,
}  # fmt: skip
NEW_WORDS = {
    "max_redeliveries": 7, "overflow": "drop-head", "on_nack": "dead-letter", "on_expiry": "drop",
    "redelivery_delay": 0.5, "redelivery_delay_multiplier": 3.0, "max_redelivery_delay": 9.0,
}  # fmt: skip


def test_a_store_may_hold_former_words():
    assert stored({"match": "queue:a", **OLD_WORDS}) == Policy(match="queue:a", **NEW_WORDS)


@pytest.mark.parametrize("old, new", [*zip(OLD_WORDS, NEW_WORDS, strict=True)])
def test_a_former_word_is_refused_with_the_one_of_today(old, new):
    with pytest.raises(MomError, match=f"no '{old}' any more: write '{new}'"):
        policy({"match": "*", old: OLD_WORDS[old]})


@pytest.mark.parametrize(
    "match, hint",
    [
        ("orders", "write 'queue:orders' or 'topic:orders'"),
        ("orders*", "write 'queue:orders\\*' or 'topic:orders\\*'"),
        ("/queue/orders", "write 'queue:orders' or"),
        ("qeue:orders", "did you mean queue:orders?"),
        ("topics:a.*", "did you mean topic:a.*?"),
        ("?eux:orders", "matches no destination"),
        ("quex*:orders", "matches no destination"),
        ("queue:", "a name is missing, as in 'queue:\\*'"),
        ("sub:", "a name is missing, as in 'sub:\\*'"),
        ("qeue:", "a name is missing, as in 'queue:\\*'"),
        (":", "a name is missing, as in 'queue:\\*'"),
        (":orders", "write 'queue:orders' or 'topic:orders'"),
        ("/queue/", "a name is missing, as in 'queue:\\*'"),
        ("/topic/", "a name is missing, as in 'topic:\\*'"),
        ("", "a name is missing, as in 'queue:\\*'"),
        ("sub:news", "write 'sub:CLIENT:NAME'"),
    ],
)
def test_a_pattern_that_no_name_can_match_is_refused_with_what_was_meant(match, hint):
    with pytest.raises(MomError, match=hint):
        policy({"match": match})


@pytest.mark.parametrize(
    "match",
    ["*", "queue:*", "queue:a", "q*", "*orders", "*:orders", "topic:a:b", "?ueue:a", "[qt]*:a", "*x:name", "sub:*",
     "sub:c:n", "share::n", "temp-queue:*", "temp-*", "s*:c:n", "queue:a?"],
)  # fmt: skip
def test_a_pattern_that_some_name_can_match_is_taken(match):
    assert policy({"match": match}).match == match


@pytest.mark.parametrize("match", ["queue:a", "queue:*", "q*", "?ueue:a", "sub:c:n", "temp-topic:*", "temp-*"])
def test_an_order_is_refused_where_no_topic_can_have_it(match):
    with pytest.raises(MomError, match=f"order is for topics, and '{re.escape(match)}' matches none: leave it out"):
        policy({"match": match, "order": "total"})
    assert policy({"match": match, "order": ""}).match == match


@pytest.mark.parametrize("match", ["*", "topic:a", "t*", "[qt]*:a", "*:a", "?opic:a", "*a"])
def test_an_order_is_taken_where_some_topic_can_have_it(match):
    assert policy({"match": match, "order": "total"}).order == "total"


def test_an_order_of_a_queue_that_was_taken_before_stops_nobody():
    for values in ({"match": "queue:a", "order": "total"}, {"order": "total", "match": "queue:a"}):
        assert stored(values).match == "queue:a"
    b = Broker()
    refusal = b.ask("a", "set_policy", match="queue:a", values={"order": "total"})
    assert refusal == "order is for topics, and 'queue:a' matches none: leave it out, or match 'topic:...'"
    assert "order" in b.ask("a", "set_policy", match="topic:a", values={"order": "total"})["policy"]


@pytest.mark.parametrize(
    "values", [{"match": "queue:" + "x" * 1000}, {"match": "*", "dead_letter": "queue:" + "x" * 3_000_000}]
)
def test_a_text_of_a_policy_is_bounded_and_not_repeated_whole(values):
    with pytest.raises(MomError, match="must have 1000 characters at most, not [0-9]+: shorten it") as refused:
        policy(values)
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize("queue", ["failed", "topic:failed", "queue:", "qeue:failed"])
def test_dead_letters_go_to_a_queue(queue):
    with pytest.raises(MomError, match='dead_letter must be a queue, as "queue:failed"'):
        policy({"match": "*", "dead_letter": queue})


# -- set at run time, while something waits because of it -----------------------------------------------------------

Q = "queue:orders"
TIGHT = {"max_messages": 2, "block_seconds": 60.0}


@pytest.mark.parametrize("worker", "ab")
@pytest.mark.parametrize(("then", "there", "refused"), [
    ({"max_messages": 9}, 3, 0), ({"max_messages": 2, "overflow": "drop-head"}, 2, 0),
    ({"max_messages": 2, "overflow": "reject"}, 2, 1),
])  # fmt: skip
def test_a_send_that_waits_for_room_is_tried_again_when_the_policy_changes(worker, then, there, refused):
    """On the queue's server, and on another one, which has learnt that the queue is full."""
    b = Broker(THREE)
    b.ask("a", "create_queue", destination=Q)
    b.ask("a", "set_policy", match=Q, values=TIGHT)
    for text in "123" if worker == "b" else "12":
        b.connect("a" if text != "3" else worker).send(Q, text)
    if worker == "b":
        assert b.queue(Q).messages.count == 3, "what was under way is taken"
    last = b.connect(worker, strict=False).send(Q, "last", receipt="r")
    assert last.receipts == [] and last.refusals == []
    b.ask("c", "set_policy", match=Q, values=then)
    assert (len(last.receipts), len(last.refusals)) == (1 - refused, refused)
    extra = worker == "b" and then.get("overflow") != "drop-head"
    assert b.queue(Q).messages.count == there + extra


def test_a_send_waits_for_as_long_as_the_new_policy_says():
    b = Broker()
    b.ask("a", "set_policy", match=Q, values=TIGHT)
    last = b.connect(strict=False).send(Q, *"123", receipt="r")
    b.ask("a", "set_policy", match=Q, values=TIGHT | {"block_seconds": 3.0})
    b.later(2)
    assert last.refusals == []
    b.later(2)
    assert "was so for 3 s" in last.refusals[0]


def test_a_queue_that_is_too_long_for_a_new_policy_drops_its_oldest_at_once():
    b = Broker()
    b.connect().send(Q, *"12345")
    b.ask("a", "set_policy", match=Q, values={"max_messages": 2, "overflow": "drop-head"})
    assert b.connect().subscribe("s", Q).texts == ["4", "5"]
