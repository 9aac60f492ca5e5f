"""Who is flushed when, and what is left for the next turn."""

from typing import Any

import pytest

from mombroker.core.turns import Turns
from tests.core.bus import Bus, topology


class Native:
    """Logs when it is flushed."""

    def __init__(self, id: str, log: list[str]):
        self.id, self.log = id, log

    def flush(self) -> None:
        self.log.append(self.id)

    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None:
        self.log.append(" and ".join(f"{part} of {native.id}" for native, part in parts))


@pytest.fixture
def scene() -> tuple[Turns, list[Native], list[str]]:
    log: list[str] = []
    natives = [Native(f"a/{number}", log) for number in range(3)]
    return Turns(Bus(topology({})).servers["a"].tx, {native.id: native for native in natives}), natives, log


def test_touched_ones_are_flushed_once_in_order(scene):
    turns, (one, two, _), log = scene
    for native in (two, one, two):
        turns.touched[native] = None
    turns.flush()
    turns.flush()
    assert log == ["a/1", "a/0"]


def test_a_part_of_one_is_flushed_alone_unless_all_of_it_has_to_be(scene):
    turns, (one, two, gone), log = scene
    turns.touched.update({one: "a part", two: "a part", gone: "a part"})
    turns.go_on(one)
    turns.agents.pop(gone.id)
    turns.flush()
    assert log == ["a/0", "a part of a/1"]


def test_parts_that_follow_each_other_are_flushed_together(scene):
    turns, (one, two, three), log = scene
    turns.touched.update({one: "this", two: "that", three: None})
    turns.flush()
    turns.touched.update({three: None, two: "that", one: "this"})
    turns.flush()
    assert log == ["this of a/0 and that of a/1", "a/2", "a/2", "that of a/1 and this of a/0"]


def test_who_has_more_to_do_goes_on_in_this_turn_while_there_is_work_left(scene):
    turns, (one, two, _), log = scene
    turns.go_on(one)
    turns.soon[two] = None
    turns.flush()
    assert list(turns.soon) == [two] and log == ["a/0"]
    turns.work = 0
    turns.go_on(one)
    turns.flush()
    assert turns.armed(one) and log == ["a/0"]


def test_those_that_wait_for_the_next_turn_take_turns_in_being_the_first(scene):
    turns, natives, log = scene
    for _ in range(3):
        for native in natives:
            turns.soon[native] = None
        turns.begin()
        turns.flush()
    assert log[::3] == ["a/1", "a/2", "a/0"]


def test_who_waits_for_durable_rows_is_touched_by_the_next_commit(scene):
    turns, (one, *_), log = scene
    turns.late[one] = None
    turns.flush()
    assert turns.late and log == []
    turns.committed()
    turns.flush()
    assert log == ["a/0"]


@pytest.mark.parametrize("those", ["touched", "late", "soon"])
def test_one_that_is_forgotten_is_not_flushed_any_more(scene, those):
    turns, (one, *_), log = scene
    getattr(turns, those)[one] = None
    turns.forget(one)
    assert not turns.soon
    turns.committed(), turns.flush()
    assert log == []
