"""What agents leave that are no more goes in small steps, and nobody sees it meanwhile."""

from itertools import pairwise

import pytest

from mombroker import store
from mombroker.core.batch import Batch, ItemRow
from mombroker.store import sqlite
from tests.store.samples import topology

A, COUNT = "paris/queue:long", 2_000


def item(id, key=0):
    return ItemRow(id, A, "p5", key, b"head", b"%d" % id)


@pytest.fixture
def opened(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(meta={"next": COUNT}, items={id: item(id) for id in range(1, COUNT + 1)}))
    made.commit(Batch(agents={A: None}, dropped={A: COUNT}))
    yield made
    made.close()


def rows(made):
    return made.select("SELECT count(*) FROM message")[0][0]


def seen(made):
    return (made.items(A, "p5", None, 9999), made.items(A, "p5", (0, 0), 9999), made.item_count(A, "p5"))


def test_each_commit_and_each_tidy_step_takes_some(opened):
    left = [rows(opened)]
    for number in range(3):
        opened.commit(Batch(meta={"now": number}))
        left.append(rows(opened))
    while opened.tidy():
        left.append(rows(opened))
    assert left[0] < COUNT and all(0 <= before - after <= sqlite.DROP_ROWS for before, after in pairwise(left))
    assert rows(opened) == 0 and not [key for key in opened.meta() if key.startswith("dropped:")]


def test_large_ones_go_by_their_bytes(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(items={id: ItemRow(id, A, "p5", 0, b"", bytes(300_000)) for id in range(1, 21)}))
    made.commit(Batch(dropped={A: 20}))
    assert rows(made) == 16
    made.close()


def test_nobody_sees_what_is_to_go_and_one_of_the_same_name_has_its_own_alone(opened, tmp_path):
    assert seen(opened) == ([], [], 0) and store.verify(tmp_path) == []
    new = [item(id, key) for key in (0, 7) for id in range(COUNT + 1 + 10 * key, COUNT + 4 + 10 * key)]
    opened.commit(Batch(meta={"next": COUNT + 99}, agents={A: ("x:Y", b"")}, items={row.id: row for row in new}))
    for _ in range(2):
        assert rows(opened) > len(new) and seen(opened) == (new, new, len(new))
        assert opened.items(A, "p5", (0, COUNT + 2), 2) == new[2:4]
        opened.close()
        opened.__init__(tmp_path, topology(), "paris")  # the fixture closes it
    while opened.tidy():
        pass
    assert rows(opened) == len(new) and seen(opened) == (new, new, len(new))
    assert store.verify(tmp_path) == []


def test_one_that_comes_and_goes_again_meanwhile_leaves_nothing(opened):
    opened.commit(Batch(agents={A: ("x:Y", b"")}, items={COUNT + 1: item(COUNT + 1)}))
    opened.commit(Batch(agents={A: None}, dropped={A: COUNT + 1}))
    assert seen(opened) == ([], [], 0)
    while opened.tidy():
        pass
    assert rows(opened) == 0
