"""Rows of messages: what is read together and alike shares what it has in common."""

import pytest

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.item import QueuedMessage, item_of, readable
from mombroker.core.batch import ItemRow
from mombroker.store.memory import MemoryStore
from tests.broker.bench import ALONE


def stored(number, body=b"x", message_id="", **more):
    message = ClientMessage("queue:q", "/queue/q", body=body, **more)
    return QueuedMessage(number, 4, message_id or f"a#{number}", message).row("a/queue:q", "p4")


def read(*rows):
    return readable(MemoryStore(ALONE, "a", "x"), rows)


def test_messages_alike_share_what_they_have_in_common():
    items = read(*(stored(number, b"%d" % number) for number in range(1, 5)))
    assert [(item.id, item.message_id, item.lane, item.message.body) for item in items] == [
        (number, f"a#{number}", 4, b"%d" % number) for number in range(1, 5)
    ]
    first, *others = [item.message.alike for item in items]
    assert first is None and others[0] is not None and {*others} == {others[0]}


@pytest.mark.parametrize("length", [1, 31, 32, 255, 256])
def test_ids_of_any_length_are_read(length):
    rows = [stored(number, b"", f"{number}" * length) for number in (1, 2, 3)]
    items = read(*rows)
    assert [item.message_id for item in items] == [f"{number}" * length for number in (1, 2, 3)]
    assert all(item.row("a/queue:q", "p4") == row for item, row in zip(items, rows, strict=True))


@pytest.mark.parametrize("more", [{"kind": "text"}, {"priority": 9}, {"expires": 1}, {"due": 1}, {"group": "g"}])
def test_others_stay_as_they_are(more):
    """What expires or waits has times that others set anew, each by itself."""
    rows = [stored(1), stored(2, **more), stored(3), stored(4, **more)]
    items = read(*rows)
    assert [item.row("a/queue:q", "p4") for item in items] == rows
    assert (items[3].message.alike is None) == ("expires" in more or "due" in more)


def test_what_is_behind_an_id_is_no_matter_of_rows_that_are_cut():
    whole = stored(1)
    for end in range(len(whole.head)):
        row = ItemRow(2, *whole[1:4], whole.head[:end], b"")
        store = MemoryStore(ALONE, "a", "x")
        assert len(readable(store, [whole, row])) == 1 and [each.id for each in store.damaged] == [2]


def test_a_row_is_the_same_alone_and_among_others():
    rows = [stored(number, b"%d" % number, sender="s", timestamp=7) for number in range(1, 4)]
    for item, row in zip(read(*rows), rows, strict=True):
        alone = item_of(row)
        assert alone.message == item.message and alone.size == item.size and alone.message.alike is None
