"""What every store does: one body over the SQLite store and the simulator's."""

from __future__ import annotations

import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker import store
from mombroker.core.batch import Batch, HeldRow, InRow, ItemRow, PayloadRow
from mombroker.core.errors import StoreFailed
from mombroker.store.memory import MemoryStore
from tests.store.samples import SECOND, T0, Model, batches, reads, record, sample, topology


class OnSqlite:
    def __init__(self, folder: Path):
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.store: Any = store.open(self.folder, topology(), "paris")

    def crash(self) -> None:
        """What a dead process leaves: the same as a close that does not finish (test_kill.py does it for real)."""
        self.store.close()
        self.open()

    def check(self) -> None:
        pass

    def fill_disk(self) -> None:
        self.store.db.conn.execute("PRAGMA max_page_count = 1")


class OnMemory:
    def __init__(self, folder: Path):
        self.store: Any = MemoryStore(topology(), "paris", "one")

    def crash(self) -> None:
        self.store.crash()
        self.check()

    def check(self) -> None:
        self.store.disk.check()

    def fill_disk(self) -> None:
        self.store.fail("the disk is full")


@pytest.fixture(params=[OnSqlite, OnMemory], scope="session")
def make(request):
    return request.param


@pytest.fixture
def on(make, tmp_path):
    made = make(tmp_path)
    yield made
    made.store.close()


FATES = st.sampled_from(["commit", "commit", "commit", "finish", "crash", "lost"])


@settings(max_examples=25)
@given(st.lists(st.tuples(FATES, batches()), max_size=5))
def test_a_store_says_what_was_committed_and_nothing_else(make, steps):
    """Batches are committed, or lost while staged; after each, and while one is staged, all reads are the model's."""
    with tempfile.TemporaryDirectory() as folder:
        on = make(Path(folder))
        model = Model(on.store.meta())
        for fate, batch in steps:
            batch = model.numbered(batch)
            if fate == "commit":
                on.store.commit(batch)
            else:
                on.store.begin(batch)
                assert reads(on.store) == model.reads()  # staged rows are nobody's business
            if fate == "finish":
                on.store.finish()
            if fate in ("commit", "finish"):
                model.apply(batch)
                on.check()
                assert reads(on.store) == model.reads()
            if fate in ("crash", "lost"):
                on.crash()
                assert reads(on.store) == model.reads()
        on.store.close()


def test_a_link_goes_with_all_that_waits_on_it(on):
    for batch in sample():
        on.store.commit(batch)
    first, second = on.store.links()
    assert on.store.queue_out(first.id, 0, 99, 99)
    on.store.commit(Batch(links={first.id: None}, acked={first.id: first.sent}))
    on.crash()
    assert on.store.links() == [second] and not on.store.queue_out(first.id, 0, 99, 99)
    assert on.store.queue_out(second.id, 0, 99, 99)


def test_a_domain_ends_before_its_new_clock_is_put(on):
    on.store.commit(Batch(core={("x", 1, 1): b"old", ("x", 1, 2): b"old", ("y", 1, 1): b"kept"}))
    on.store.commit(Batch(ended={"x"}, core={("x", 1, 2): b"new"}))
    on.crash()
    assert (on.store.core("x"), on.store.core("y")) == ({(1, 2): b"new"}, {(1, 1): b"kept"})


def test_a_shared_payload_stays_until_the_last_row_that_needs_it_goes(on):
    def size() -> int:
        return sum(len(row.data) for row in on.store.queue_in("paris/a", 0, 99, 99))

    rows = {id: InRow(id, "paris/a", b"head", payload=4) for id in (5, 6, 7)}
    on.store.commit(Batch(queue_in=rows, payloads={4: PayloadRow(4, 7, bytes(100))}))
    assert size() == 312
    on.store.commit(Batch(queue_in={6: None, 7: InRow(7, "paris/a", b"h", attempts=1, payload=4)}, spent={4}))
    on.crash()
    assert size() == 205
    on.store.commit(Batch(queue_in={5: None}, spent={4}))
    assert size() == 101
    on.store.commit(Batch(queue_in={7: None}, spent={4}))
    assert size() == 0
    on.store.commit(Batch(queue_in={8: InRow(8, "paris/a", b"", payload=4)}, payloads={4: PayloadRow(4, 8, b"new")}))
    assert size() == 3


def test_reads_go_on_from_any_place_and_stop_where_they_are_told(on):
    """Pages of every size from every place, between rows and on them, of keys that are equal, negative and apart."""
    model = Model(on.store.meta())
    rows = [ItemRow(id, "paris/a", "jobs", key, b"", b"") for id, key in enumerate([2, -1, 2, 5, 2, -1], 3)]
    batch = Batch(
        queue_in={id: InRow(id, "paris/a" if id % 3 else "paris/b", b"") for id in range(2, 12)},
        items={row.id: row for row in rows},
        held={id: HeldRow(id, "paris/a", b"", b"") for id in (2, 3, 5, 6)},
        agents={f"paris/{n}": ("sample:A", b"") for n in "ace"},
        queue_out=[(link, b"") for link in (1, 2, 2, 2, 2, 2, 3)],
        log=[record(1), record(2)],
    )
    for part in (batch, Batch(acked={2: 1}, log=[record(3)]), Batch(log=[record(4), record(5)])):
        part = model.numbered(part)
        on.store.commit(part)
        model.apply(part)
    for limit, after in product(range(5), range(8)):
        assert on.store.log(after, limit) == model.log(after, limit)
        assert on.store.held(after, limit) == model.held(after, limit)
        for upto in range(13):
            for link in (1, 2, 3, 4):
                assert on.store.queue_out(link, after, upto, limit) == model.queue_out(link, after, upto, limit)
            assert on.store.queue_in("paris/a", after, upto, limit) == model.queue_in("paris/a", after, upto, limit)
        for key in range(-2, 7):
            place = (key, after)
            assert on.store.items("paris/a", "jobs", place, limit) == model.items("paris/a", "jobs", place, limit)
        for place in "abcdef":
            expected = [(f"paris/{n}", "sample:A") for n in "ace" if n > place][:limit]
            assert on.store.agents(f"paris/{place}", limit) == expected


def test_every_table_comes_back_as_it_was_written(on):
    model = Model(on.store.meta())
    for batch in sample():
        on.store.commit(batch)
        model.apply(batch)
    assert reads(on.store) == model.reads()
    assert all(model.tables[name] for name in model.tables if name != "core")
    on.crash()
    assert reads(on.store) == model.reads()


def test_within_a_batch_deletions_come_before_what_is_added(on):
    """An agent that is deleted and created anew keeps the items of its new life only."""
    on.store.commit(Batch(items={1: ItemRow(1, "paris/a", "jobs", 1, b"", b"old")}))
    on.store.commit(Batch(dropped={"paris/a": 1}, items={2: ItemRow(2, "paris/a", "jobs", 1, b"", b"new")}))
    assert [row.id for row in on.store.items("paris/a", "jobs", None, 9)] == [2]


def test_any_number_of_held_rows_can_be_written_and_deleted_at_once(on):
    """Statements for many rows at a time are for whole lots of them."""
    model = Model(on.store.meta())
    for count in (1, 63, 64, 65, 130):
        rows = {id: HeldRow(id, "paris/a", b"%d" % id, b"body") for id in range(count, 3 * count)}
        for batch in (Batch(held=rows), Batch(held=dict.fromkeys(range(count, 2 * count)))):
            on.store.commit(batch)
            model.apply(batch)
            assert on.store.held(0, 999) == model.held(0, 999)


def test_rows_by_key_are_read_in_order_from_both_ends_and_are_no_places(on):
    keys = ["=t:i1", "=t:s", "=t:s\u00e4", "=t:sa", "=t:sb", "=u:sa", "jobs", "\u00e4"]
    rows = {n: ItemRow(n, "paris/a", key, 0, b"", key.encode()) for n, key in enumerate(keys, 1)}
    on.store.commit(Batch(items={**rows, 99: ItemRow(99, "paris/b", "=t:sa", 0, b"", b"")}))
    read = lambda *where: [row.body.decode() for row in on.store.range("paris/a", *where)]  # noqa: E731
    mine = sorted(key for key in keys if key.startswith("=t:"))
    assert read("=t:", "=t;", 99, False) == mine and read("=t:", "=t;", 99, True) == mine[::-1]
    assert read("=t:", "=t;", 2, False) == mine[:2] and read("=t:", "=t;", 2, True) == mine[-1:-3:-1]
    assert read("=t:s", "=t:sb", 99, False) == ["=t:s", "=t:sa"] and read("=t:sb", "=t:s", 9, False) == []
    assert on.store.range_count("paris/a", "=t:", "=t;") == 5
    assert [on.store.keyed("paris/a", key) for key in ("=t:sa", "=t:z", "=u:sa")] == [4, 0, 6]
    assert on.store.keyed("paris/b", "=t:sa") == 99
    changed = rows[2]._replace(body=b"other")
    on.store.commit(Batch(items={2: changed, 5: None, 100: ItemRow(100, "paris/a", "=t:z", 0, b"", b"new")}))
    assert [on.store.keyed("paris/a", key) for key in ("=t:s", "=t:sb", "=t:z")] == [2, 0, 100]
    assert read("=t:s", "=t:s\0", 9, False) == ["other"] and read("=t:z", "=u", 9, False) == ["new"]
    assert list(on.store.places()) == [("paris/a", "jobs"), ("paris/a", "\u00e4")]


def test_the_collections_of_an_agent_are_its_own_without_tables(on):
    rows = [
        ItemRow(n, agent, collection, 0, b"", b"")
        for n, (agent, collection) in enumerate([
            ("paris/a", "jobs"), ("paris/a", "jobs"), ("paris/a", "=t:i1"), ("paris/a", "=t:i2"), ("paris/a", "//ids"),
            ("paris/a", "done"), ("paris/b", "other"),
        ], 1)
    ]  # fmt: skip
    on.store.commit(Batch(items={row.id: row for row in rows}))
    assert on.store.collections("paris/a") == ["//ids", "done", "jobs"]
    assert on.store.collections("paris/c") == []


def test_a_row_may_change_its_agent_and_its_place(on):
    on.store.commit(
        Batch(items={1: ItemRow(1, "paris/a", "jobs", 1, b"", b"")}, queue_in={2: InRow(2, "paris/a", b"")})
    )
    on.store.commit(
        Batch(items={1: ItemRow(1, "paris/b", "jobs", 9, b"", b"")}, queue_in={2: InRow(2, "paris/b", b"")})
    )
    assert on.store.item_count("paris/a", "jobs") == 0
    assert [row.key for row in on.store.items("paris/b", "jobs", None, 9)] == [9]
    assert on.store.inboxes() == [("paris/b", 2, 1)]


def test_after_a_failure_nothing_is_written_any_more(on):
    on.store.commit(Batch(meta={"now": 1}))
    on.fill_disk()
    with pytest.raises(StoreFailed, match="the disk is full"):
        on.store.commit(Batch(meta={"now": 2}, queue_in={n: InRow(n, "paris/a", bytes(9000)) for n in range(1, 99)}))
    for attempt in (lambda: on.store.begin(Batch()), on.store.finish, lambda: on.store.commit(Batch(meta={"now": 3}))):
        with pytest.raises(StoreFailed, match="the disk is full"):
            attempt()
    assert (on.store.meta()["now"], on.store.inboxes()) == (1, [])
    on.crash()
    assert (on.store.meta()["now"], on.store.inboxes()) == (1, [])
    on.store.commit(Batch(meta={"now": 4}))  # a new process on a disk with room


def test_rows_of_meta_are_read_by_the_beginning_of_their_keys(on):
    on.store.commit(
        Batch(meta={"now": 5, "name:a": "x", "name:": "y", "name;": "z", "nam": 1, "next": 7, "name:\uffff": "w"})
    )
    assert on.store.meta("name:") == {"name:": "y", "name:a": "x", "name:\uffff": "w"}
    assert on.store.meta("next") == {"next": 7} and on.store.meta("now") == {"now": 5}
    assert on.store.meta("none") == {}
    assert on.store.meta("n") == {key: value for key, value in on.store.meta().items() if key[0] == "n"}


def test_a_second_batch_waits_for_the_first(on):
    on.store.begin(Batch(meta={"now": 1}))
    with pytest.raises(AssertionError, match="not finished"):
        on.store.begin(Batch(meta={"now": 2}))
    on.store.finish()
    with pytest.raises(AssertionError, match="no batch is staged"):
        on.store.finish()


# -- log -----------------------------------------------------------------------------------------------------------

DAY = 86400 * SECOND
LARGE = 1 << 40


def logged(store: Any, commits: int, each: int = 2) -> None:
    """`commits` commits of `each` records, one a second."""
    for at in range(commits):
        store.commit(Batch(log=[record(at * each + n, T0 + at * SECOND) for n in range(each)]))


def prune(store: Any, max_bytes: int = LARGE, age: int = DAY, now: int = T0) -> tuple[int, int, int, int]:
    """(records that were promised to go, first and last that are left, records lost so far)."""
    gone = store.prune_log(max_bytes, age, now)
    store.commit(Batch(meta={"now": now}))
    left = [seq for seq, _ in store.log(0, 999)]
    assert left == list(range(left[0], left[-1] + 1))
    return gone, left[0], left[-1], store.meta().get("log_lost", 0)


def test_log_records_go_by_age_with_the_next_commit(on):
    logged(on.store, 10)
    assert prune(on.store) == (0, 1, 20, 0)
    assert prune(on.store, age=5 * SECOND, now=T0 + 9 * SECOND) == (10, 11, 20, 0)  # five seconds: 5 commits of 2
    assert on.store.prune_log(LARGE, 2 * SECOND, T0 + 9 * SECOND) == 6
    assert [seq for seq, _ in on.store.log(0, 1)] == [11]  # not before a commit
    on.crash()
    assert [seq for seq, _ in on.store.log(0, 1)] == [11]


def test_the_newest_log_row_stays_so_that_no_sequence_is_used_twice(on):
    logged(on.store, 3)
    assert prune(on.store, now=T0 + 9 * DAY) == (4, 5, 6, 0)
    on.crash()
    assert on.store.log_end() == 6
    on.store.commit(Batch(log=[record(9)]))
    assert [seq for seq, _ in on.store.log(0, 99)] == [5, 6, 7]


def test_a_registered_export_protects_what_it_has_not_taken(on):
    logged(on.store, 10)
    on.store.commit(Batch(meta={"exported": 5}))
    assert prune(on.store, now=T0 + 9 * DAY) == (4, 5, 20, 0)  # 5 is taken, but 6 in its row is not
    on.store.commit(Batch(meta={"exported": 12}))
    assert prune(on.store, age=5 * DAY, now=T0) == (0, 5, 20, 0)  # taken, but young
    assert prune(on.store, now=T0 + 9 * DAY) == (8, 13, 20, 0)


def test_max_bytes_always_wins_and_what_is_lost_is_counted(on):
    logged(on.store, 10)
    on.store.commit(Batch(meta={"exported": 5}))
    assert prune(on.store, max_bytes=0) == (18, 19, 20, 13)  # 6..18 went untaken
    logged(on.store, 2)
    assert prune(on.store, max_bytes=0) == (4, 23, 24, 17)
    on.store.commit(Batch(meta={"exported": None}))
    logged(on.store, 2)
    assert prune(on.store, max_bytes=0, age=0, now=T0 + DAY) == (4, 27, 28, 17)  # old, and nobody wanted them


def test_pruning_by_bytes_keeps_what_fits(on):
    logged(on.store, 40)
    gone, first, last, lost = prune(on.store, max_bytes=2100)
    assert gone == first - 1 == lost and last == 80
    kept = last - first + 1
    assert 10 <= kept <= 40  # 100 bytes a record, more or less
    assert prune(on.store, max_bytes=2100)[0] == 0


def test_pruning_an_empty_log_does_nothing(on):
    assert on.store.prune_log(0, 0, T0) == 0
    on.store.commit(Batch(meta={"now": 1}))
    assert "log_lost" not in on.store.meta()


def test_ids_are_told_in_order_between_two(on):
    places = {3: ("q", 0), 5: ("q", 0), 6: ("other", 0), 7: ("q", 1), 8: ("q", 0), 9: ("q", 0)}
    rows = {id: ItemRow(id, "paris/a", collection, key, b"h", b"b") for id, (collection, key) in places.items()}
    on.store.commit(Batch(number=1, items=rows))
    ids = on.store.item_ids
    assert ids("paris/a", "q", 0, 99, 9) == [3, 5, 8, 9] and ids("paris/b", "q", 0, 99, 9) == []
    assert ids("paris/a", "q", 3, 8, 9) == [5, 8] and ids("paris/a", "q", 3, 9, 2) == [5, 8]
    on.store.commit(Batch(number=2, dropped={"paris/a": 5}))
    assert ids("paris/a", "q", 0, 99, 9) == [8, 9]
