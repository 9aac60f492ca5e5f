"""The simulated disk: crash points, old copies, and indexes that never part from their rows."""

import pytest

from mombroker.core.batch import LINK_BITS, Batch, LinkRow
from mombroker.store.memory import MemoryStore
from tests.store.samples import Model, reads, sample, topology


@pytest.fixture
def memory():
    made = MemoryStore(topology(), "paris", "one")
    made.commit(sample()[0])
    return made


def test_it_knows_its_server_as_a_new_file_does(memory, tmp_path):
    from mombroker import store

    file = store.open(tmp_path, topology(), "paris")
    expected = file.meta() | {"incarnation": "one"}
    file.close()
    assert MemoryStore(topology(), "paris", "one").meta() == expected


def test_a_crash_before_the_commit_loses_the_batch(memory):
    before = reads(memory)
    memory.begin(sample()[1])
    memory.crash(durable=False)
    assert reads(memory) == before


def test_a_crash_during_the_commit_leaves_all_of_the_batch_if_any(memory):
    model = Model(memory.meta())
    for batch in sample():
        model.apply(batch)
    memory.begin(sample()[1])
    memory.crash(durable=True)
    assert reads(memory) == model.reads()


def test_a_crash_after_the_commit_keeps_the_batch_though_nobody_has_seen_it(memory):
    memory.begin(sample()[1])
    memory.finish()
    after = reads(memory)
    memory.crash(durable=False)
    assert reads(memory) == after


def test_a_crash_without_a_batch_changes_nothing(memory):
    before = reads(memory)
    memory.crash(durable=True)
    assert reads(memory) == before


def test_an_old_copy_does_not_change_with_the_disk_nor_with_its_restored_self(memory):
    old, backup = reads(memory), memory.snapshot()
    memory.commit(sample()[1])
    new = reads(memory)
    assert new != old
    memory.restore(backup)
    assert reads(memory) == old
    memory.commit(sample()[1])
    assert reads(memory) == new
    memory.restore(backup)
    assert reads(memory) == old


def test_a_disk_is_not_replaced_under_a_running_commit(memory):
    memory.begin(sample()[1])
    with pytest.raises(AssertionError, match="crash it first"):
        memory.restore(memory.snapshot())


def test_a_sequence_is_not_used_twice(memory):
    with pytest.raises(AssertionError, match="sequence 3 of link 1 is not a new one"):
        memory.commit(Batch(queue_out=[(1 << LINK_BITS | 3, b"")]))


def test_check_finds_an_out_queue_that_is_not_what_its_link_says(memory):
    memory.check()
    memory.commit(Batch(links={1: LinkRow(1, "core", "lyon", 4, 0, 0, "")}))
    with pytest.raises(AssertionError, match=r"the out-queue of .*peer='lyon'.* holds \[1, 2, 3\]"):
        memory.check()


def test_the_size_is_that_of_the_rows(memory):
    full = memory.size()
    memory.commit(Batch(acked={1: 3}))
    assert full - memory.size() == 3 * len(b"packet 1")
