"""A log or file that is too large goes in small steps, and nothing that is needed goes with it."""

import shutil

import pytest

from mombroker import store
from mombroker.core.batch import Batch, InRow
from mombroker.store import sqlite
from tests.store.samples import T0, reads, record, sample, topology
from tests.store.saved import saved


@pytest.fixture
def opened(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    for batch in sample():
        made.commit(batch)
    yield made
    made.close()


def rows(made):
    return made.select("SELECT count(*) FROM log")[0][0]


def test_a_log_that_is_too_large_is_pruned_a_few_rows_at_a_time(opened):
    for n in range(400):
        opened.commit(Batch(log=[record(n), record(n)]))
    before, steps = rows(opened), []
    while opened.prune_log(0, 1 << 60, T0):
        opened.tidy()
        steps.append(before - rows(opened))
        before = rows(opened)
    assert before == 1 and max(steps) <= sqlite.PRUNED and len(steps) == 7
    assert opened.meta()["log_lost"] == 0 + opened.log(0, 1)[0][0] - 1  # all of it, in whatever steps


def test_a_prune_that_no_step_took_goes_with_the_next_commit(opened):
    for n in range(200):
        opened.commit(Batch(log=[record(n)]))
    before = rows(opened)
    assert opened.prune_log(0, 1 << 60, T0) > 0
    opened.commit(Batch(meta={"now": T0 + 1}))
    assert 0 < before - rows(opened) <= sqlite.PRUNED
    opened.tidy()
    assert before - rows(opened) <= sqlite.PRUNED  # once


def filled_and_purged(made):
    made.commit(Batch(queue_in={n: InRow(n, "paris/a", bytes(3000)) for n in range(20, 8000)}))
    made.commit(Batch(queue_in=dict.fromkeys(range(20, 8000))))


def free(made):
    return made.select("SELECT freelist_count FROM pragma_freelist_count")[0][0]


def test_after_a_purge_the_file_shrinks_a_few_pages_at_a_time(opened, tmp_path):
    expected = reads(opened)
    filled_and_purged(opened)
    size, steps, before = (tmp_path / "store.sqlite").stat().st_size, 0, free(opened)
    assert size > 16_000_000 and before > sqlite.FREE_LEAST
    while opened.tidy():
        steps += 1
        assert before - free(opened) <= sqlite.SHRUNK
        before = free(opened)
    assert 3 < steps < 3 + size / 4096 / sqlite.SHRUNK and before <= sqlite.FREE_LEAST
    assert reads(opened) == expected
    assert (tmp_path / "store.sqlite").stat().st_size < size / 2
    opened.close()
    assert store.verify(tmp_path) == []


def test_a_store_of_an_older_program_shrinks_once_it_was_compacted(tmp_path):
    shutil.copy(saved(3), tmp_path / "store.sqlite")
    made = store.open(tmp_path, topology(), "paris")
    filled_and_purged(made)
    assert not made.tidy()
    made.close()
    before, after = store.compact(tmp_path)
    assert after < before / 10
    made = store.open(tmp_path, topology(), "paris")
    filled_and_purged(made)
    assert made.tidy()
    made.close()
