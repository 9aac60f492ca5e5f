"""The broker's door to the core, and the turns of native agents."""

from typing import Any

import pytest

from mombroker.core.natives import NativeScheduler
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


@pytest.fixture
def natives() -> NativeScheduler:
    bus = Bus(topology({}))
    bus.pump()
    bus.servers["a"].natives.agents.clear()
    return bus.servers["a"].natives


def made(natives: NativeScheduler, count: int, flushed: Any = lambda native: None) -> tuple[list[Native], list[str]]:
    log: list[str] = []
    found = [Native(f"a/{number}", log, flushed) for number in range(count)]
    natives.agents.update({native.id: native for native in found})
    return found, log


def test_touched_ones_are_flushed_once_in_order(natives):
    (one, two), log = made(natives, 2)
    for native in (two, one, two):
        natives.touch(native)
    assert natives.busy() and natives.flush() and not natives.flush()
    assert log == ["a/1", "a/0"]


def test_one_that_was_removed_says_and_writes_nothing_more(natives):
    (one, two), log = made(natives, 2)
    one.flushed = lambda native: natives.remove(two, written=False)
    natives.touch(one), natives.touch(two), natives.change(two)
    natives.close()
    assert log == ["a/0"] and natives.tx.rows.agents == {}
    assert not natives.armed(two)


def test_changed_ones_get_their_row_when_the_batch_closes(natives):
    (one,), _ = made(natives, 1)
    assert natives.tx.level == 0
    natives.change(one)
    assert natives.tx.level == LINGER and natives.tx.rows.agents == {}
    natives.close()
    assert natives.tx.rows.agents == {"a/0": ("tests:Native", b"state of a/0")}


def test_who_has_more_to_do_goes_on_in_this_turn_while_there_is_work_left(natives):
    (one, two), log = made(natives, 2)
    natives.begin()
    natives.go_on(one), natives.next_turn(two)
    assert natives.waiting() and natives.flush() and log == ["a/0"]
    natives.work = 0
    natives.go_on(one)
    assert not natives.flush() and natives.armed(one)


def test_those_that_wait_for_the_next_turn_take_turns_in_being_the_first(natives):
    all_of_them, log = made(natives, 3)
    for _ in range(3):
        for native in all_of_them:
            natives.next_turn(native)
        natives.begin()
        natives.flush()
    assert log[::3] == ["a/1", "a/2", "a/0"]


def test_who_waits_for_durable_rows_is_touched_by_the_next_commit(natives):
    (one,), log = made(natives, 1)
    natives.touch_late(one)
    assert not natives.flush()
    natives.committed()
    assert natives.flush() and log == ["a/0"]


def test_all_rows_of_an_agent_go_and_what_it_had_in_the_open_batch(natives):
    tx = natives.tx
    natives.collection("a/0", "c").add(1, b"")
    kept = natives.collection("a/1", "c")
    for collection in (natives.collection("a/0", "c"), kept):
        collection.add(1, b"")
        collection.accept()
    natives.drop_rows("a/0")
    assert tx.rows.agents == {"a/0": None} and list(tx.rows.dropped) == ["a/0"]
    assert [row.agent for row in tx.rows.items.values()] == ["a/1"]
    assert tx.rows.dropped["a/0"] >= max(tx.rows.items) and tx.level == COMMIT
    assert list(natives._collections.changed) == [kept]
