"""The broker's door to the core, and what it does with native agents."""

from typing import Any

import pytest

from mombroker.broker.native import Native as Own
from mombroker.core.natives import NativeHost, Natives
from mombroker.core.transaction import COMMIT, LINGER
from tests.core.bus import Bus, topology


class Native:
    """Logs what it is called for."""

    path, deletable, rows_are = "tests:Native", False, {}

    def __init__(self, id: str, log: list[str], flushed: Any = lambda native: None):
        self.id, self.log, self.flushed = id, log, flushed
        self.collections: dict[str, Any] = {}

    def flush(self) -> None:
        self.log.append(self.id)
        self.flushed(self)

    def pack(self) -> bytes:
        return f"state of {self.id}".encode()


class Stateless(Own):
    path = "tests:Stateless"


@pytest.fixture
def natives() -> NativeHost:
    bus = Bus(topology({}))
    bus.pump()
    bus.servers["a"].natives.agents.clear()
    return bus.servers["a"].natives


def made(natives: NativeHost, count: int, flushed: Any = lambda native: None) -> tuple[list[Native], list[str]]:
    log: list[str] = []
    found = [Native(f"a/{number}", log, flushed) for number in range(count)]
    natives.agents.update({native.id: native for native in found})
    return found, log


def test_one_that_was_removed_says_and_writes_nothing_more(natives):
    (one, two), log = made(natives, 2)
    one.flushed = lambda native: natives.remove(two.id, written=False)
    natives.turns.touched.update({one: None, two: None})
    natives.changed[two] = None
    natives.close()
    assert log == ["a/0"] and natives.tx.rows.agents == {}
    assert not natives.turns.armed(two)


def test_who_is_given_something_by_one_that_is_flushed_last_says_so_in_the_same_batch(natives):
    (queue, outbox), log = made(natives, 2)
    outbox.flushed = lambda native: natives.turns.touched.update({queue: None})
    natives.turns.touched.update({queue: None, outbox: None})
    natives.close()
    assert log == ["a/0", "a/1", "a/0"] and not natives.turns.touched


@pytest.mark.interpreted
def test_changed_ones_get_their_row_when_the_batch_closes(natives):
    one, no_row = Stateless(natives, "a/0"), Stateless(natives, "a/1", volatile=True)
    natives.agents.update({one.id: one, no_row.id: no_row})
    no_row.change()
    assert natives.tx.urgency == 0
    one.change()
    assert natives.tx.urgency == LINGER and natives.tx.rows.agents == {}
    natives.close()
    assert natives.tx.rows.agents == {"a/0": ("tests:Stateless", b"")}


def test_all_rows_of_an_agent_go_and_what_it_had_in_the_open_batch(natives):
    tx = natives.tx
    natives.collection("a/0", "c").add(1, b"")
    kept = natives.collection("a/1", "c")
    for collection in (natives.collection("a/0", "c"), kept):
        collection.add(1, b"")
        collection.accept()
    natives.remove("a/0")
    assert tx.rows.agents == {"a/0": None} and list(tx.rows.dropped) == ["a/0"]
    assert [row.agent for row in tx.rows.items.values()] == ["a/1"]
    assert tx.rows.dropped["a/0"] >= max(tx.rows.items) and tx.urgency == COMMIT
    assert list(natives._collections.changed) == [kept]


DOOR = {
    "tx", "clock", "names", "agents", "turns", "types", "replication", "newcomers", "send", "send_now", "post", "cast",
    "ids", "alarm", "collection", "changed", "unwritten", "add", "remove", "waits", "table",
    "watch", "unwatch", "sent_here", "run_now", "round_now",
}  # fmt: skip


def test_the_door_is_narrow():
    assert {name for name in dir(Natives) if not name.startswith("_")} == DOOR
