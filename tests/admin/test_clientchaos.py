"""Servers and STOMP clients killed at random while messages flow: no promise is broken, and broken ones are noticed."""

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from mombroker.admin.bench import clientchaos, ledger
from mombroker.broker.commands import Send, Transact
from mombroker.broker.queue.item import HELD, WAITING, QueuedMessage
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.session.handlers import Handlers
from mombroker.broker.session.session import Session
from mombroker.broker.topic.subscription import Subscription
from tests import fakes_clients


def test_some_kills(tmp_path):
    row = clientchaos.run(4, 0.8, 7, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert row["server_kills"] and row["client_kills"] and row["server_kills"] + row["client_kills"] >= 4
    # What a killed client has sent without a receipt may be lost, more or less of it by when the kills fall.
    assert row["seen"] > 0.8 * row["sent"] and row["sent"] > 100 and row["receipts"] > 100


def test_no_client_outlives_a_storm_that_fails(tmp_path, monkeypatch):
    made = []

    def fork(storm, name, each):
        made.append(FORK(storm, name, each))
        return made[-1]

    def fail(storm):
        assert not storm.journal.exists(), "it blows"

    FORK = clientchaos.ClientStorm._fork
    monkeypatch.setattr(clientchaos.ClientStorm, "_fork", fork)
    monkeypatch.setattr(clientchaos.ClientStorm, "_flows", fail)
    with pytest.raises(AssertionError, match="it blows"):
        clientchaos.run(4, 0.8, 7, tmp_path)
    assert len(made) == len(clientchaos.cast())
    for pid in made:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_kills(tmp_path, seed):
    """A quarter of them."""
    row = clientchaos.run(25, 0.7, seed, tmp_path)
    assert row["faults"] == [] and row["clean"]
    assert row["server_kills"] > 5 and row["client_kills"] > 3 and row["repeats"] > 20


@pytest.mark.long
def test_kills_between_commit_and_write(tmp_path):
    """Most kills here; among those who take are some whose messages are settled by being written."""
    row = clientchaos.run(20, 5.0, 1, tmp_path, between=0.02)
    assert row["faults"] == [] and row["clean"] and row["server_kills"] > 15


# -- faults that the clients must notice -----------------------------------------------------------------------------


def settled_at_delivery() -> None:
    """A delivery without acknowledgements is settled in its batch, whether or not it is ever written."""
    Session.deliver = fakes_clients.settled_at_delivery(Session.deliver)  # type: ignore[method-assign]


def forgotten_counts() -> None:
    """The row of a message does not say that somebody had it."""
    packed: Callable[[QueuedMessage], tuple[bytes, bytes]] = QueuedMessage._packed

    def forget(item: QueuedMessage) -> tuple[bytes, bytes]:
        count, item.count = item.count, 0
        row = packed(item)
        item.count = count
        return row

    QueuedMessage._packed = forget  # type: ignore[method-assign]


def half_transactions() -> None:
    """One of the sends of a transaction is left out."""
    transact: Callable[..., None] = Handlers._transact

    def halve(handlers: Handlers, session: Session, command: Any) -> None:
        if len(command.commands) > 2 and random.random() < 0.2:
            command.commands.remove(next(each for each in command.commands if isinstance(each, Send)))
        transact(handlers, session, command)

    init = Handlers.__init__

    def replace(handlers: Handlers, *args: Any) -> None:
        init(handlers, *args)
        handlers.of[Transact] = lambda session, command: halve(handlers, session, command)

    Handlers.__init__ = replace  # type: ignore[method-assign]


def forgotten_selectors() -> None:
    """A durable subscription that comes from disk takes everything."""
    take_up: Callable[..., None] = Subscription.take_up

    def forget(subscription: Subscription, more: Any) -> None:
        take_up(subscription, more)
        subscription.spec.selector = ""

    Subscription.take_up = forget  # type: ignore[method-assign]


def lost_rows() -> None:
    """What is with a consumer has no row."""

    def drop(stock: QueueMessages, item: QueuedMessage) -> None:
        if item.place == WAITING:
            stock.tx.rows.items[item.id] = None
        item.place = HELD

    QueueMessages._write_held = drop  # type: ignore[method-assign]


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "words", "between"),
    [
        (settled_at_delivery, "missed", 0.05), (forgotten_counts, "with the count", 0.02),
        (half_transactions, "missed", 0.02), (forgotten_selectors, "saw", 0.02), (lost_rows, "missed", 0.02),
    ],
)  # fmt: skip
def test_a_planted_fault_shows(tmp_path, spoil, words, between):
    row = clientchaos.run(12, 0.4, 4, tmp_path, spoil=spoil, between=between)
    assert any(words in fault for fault in row["faults"])


# -- the ledger ------------------------------------------------------------------------------------------------------

CLEAN = [
    ["open", "p1"],
    ["open", "c1"],
    ["subscribe", "c1", "0", "red news"],
    ["receipt", "c1", "subscribe", "0", True],
    ["subscribe", "c1", "1", "in"],
    ["send", "p1", "a", "/queue/in?red"],
    ["receipt", "p1", "send", "a", True],
    ["send", "p1", "b", "/topic/news?red"],
    ["send", "p1", "c", "/topic/news?red"],
    ["receipt", "p1", "send", "c", True],
    ["saw", "c1", "0", "m1", "b", 1, False],
    ["saw", "c1", "0", "m2", "c", 1, False],
    ["saw", "c1", "1", "m3", "a", 1, False],
    ["open", "c2"],
    ["subscribe", "c2", "1", "in"],
    ["saw", "c2", "1", "m3", "a", 2, True],
    ["send", "c2", "l", "/queue/left?red"],
    ["send", "c2", "r", "/queue/right?red"],
    ["commit", "c2", ["l", "r"], "m3"],
    ["receipt", "c2", "send", "l", True],
    ["open", "d"],
    ["subscribe", "d", "0", "left"],
    ["subscribe", "d", "1", "right"],
    ["saw", "d", "0", "m4", "l", 1, False],
    ["saw", "d", "1", "m5", "r", 1, False],
    ["receipt", "d", "ack", "m4", True],
]


def faults(lines):
    book = ledger.Ledger(clientchaos.streams())
    for line in lines:
        book.take(line)
    return book.faults()


def changed(old, *new):
    assert old in CLEAN
    return [line for each in CLEAN for line in (new if each == old else [each])]


def test_a_ledger_without_faults():
    assert faults(CLEAN) == []
    assert (
        faults([*CLEAN, ["refused", "d", "queue:x is new, and s1, which decides names, does not answer: try again"]])
        == []
    )


SEND_C = ["send", "p1", "c"]
SAW_C = ["saw", "c1", "0", "m2", "c", 1, False]
AGAIN = ["saw", "c2", "1", "m3", "a", 2, True]
PLANTED = {
    "queue /queue/right?red,/queue/right?blue missed": changed(["saw", "d", "1", "m5", "r", 1, False]),
    "durable /topic/news?red missed": changed(SAW_C),
    "again with the count 1": changed(AGAIN, ["saw", "c2", "1", "m3", "a", 1, False]),
    "with the count 2 and redelivered:False": changed(AGAIN, [*AGAIN[:-1], False]),
    "saw c to /topic/news?blue": changed([*SEND_C, "/topic/news?red"], [*SEND_C, "/topic/news?blue"]),
    "saw x, which was aborted": [
        *CLEAN, ["abort", "c2", ["x"]], ["send", "c2", "x", "/queue/left?red"], ["saw", "d", "0", "m6", "x", 1, False],
    ],
    "saw y, which was never sent": [*CLEAN, ["saw", "d", "0", "m6", "y", 1, False]],
    "saw 7 again after its acknowledgement": [*CLEAN, ["saw", "d", "0", "m6", "l", 2, True]],
    "saw 3 again after its acknowledgement": [*CLEAN, ["saw", "c2", "1", "m6", "a", 3, True]],  # by the transaction
    "a client was refused": [*CLEAN, ["refused", "d", "SEND needs a destination"]],
}  # fmt: skip


@pytest.mark.parametrize("words", PLANTED)
def test_a_fault_in_a_ledger_is_found(words):
    found = faults(PLANTED[words])
    assert any(words in fault for fault in found), found


def test_an_effect_before_its_cause_is_found():
    order = [["saw", "c1", "0", "m1", "b", 1, False], ["saw", "c1", "0", "m2", "c", 1, False]]
    lines = [line for line in CLEAN if line not in order]
    at = lines.index(["receipt", "p1", "send", "c", True]) + 1
    assert any("on which it depends" in fault for fault in faults([*lines[:at], *reversed(order), *lines[at:]]))
