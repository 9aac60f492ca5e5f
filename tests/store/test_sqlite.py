"""What only the SQLite store does: durability settings, refusals, two connections, a disk that fills."""

import shutil
import sqlite3
import subprocess
import sys
import threading

import pytest

from mombroker import store
from mombroker.core.batch import LINK_BITS, Batch, InRow, ItemRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.identity import identity
from mombroker.core.meta import CLEAN
from mombroker.core.topology import Domain
from tests.store.samples import T0, Model, reads, record, sample, topology


@pytest.fixture
def opened(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    yield made
    made.close()


def refusal(path, bus=None, server="paris"):
    with pytest.raises(StoreError) as refused:
        store.open(path, bus or topology(), server)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_commit_is_durable(opened):
    pragmas = [opened.db.conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]


def test_a_file_system_without_durability_is_refused(tmp_path, monkeypatch):
    class Weak(sqlite3.Connection):
        def execute(self, sql, *args):
            return super().execute("PRAGMA synchronous = NORMAL" if sql == "PRAGMA synchronous = FULL" else sql, *args)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=Weak, **kwargs))
    file = tmp_path / "store.sqlite"
    assert refusal(tmp_path) == f"{file} cannot be made durable on its file system; use a local disk"


def test_each_new_store_has_an_incarnation_that_it_keeps(tmp_path):
    seen = []
    for name in ("one", "two", "one"):
        made = store.open(tmp_path / name, topology(), "paris")
        seen.append(made.meta()["incarnation"])
        made.close()
    assert seen[0] == seen[2] != seen[1]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_the_store_of_another_server_is_refused(tmp_path):
    store.open(tmp_path, topology(), "paris").close()
    file = tmp_path / "store.sqlite"
    assert refusal(tmp_path, server="lyon") == (
        f"{file} is the store of server paris, not of lyon; give each server its own folder"
    )


def test_another_order_is_refused_unless_it_is_to_be_adopted(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(meta={CLEAN: 0}))
    made.close()
    other = topology(core=Domain("core", ("paris", "nice", "lyon"), "ks"))
    assert refusal(tmp_path, other) == (
        f"{tmp_path / 'store.sqlite'} was made under another order than that of the topology file: "
        "domain core lists paris nice lyon in place of paris lyon nice, domain core is ordered by ks in place of "
        "matrix; start with the former file, or run `mom topology adopt`"
    )
    adopting = store.open(tmp_path, other, "paris", adopt=True)
    adopting.commit(Batch(meta=dict(identity(other, "paris"))))
    adopting.close()
    store.open(tmp_path, other, "paris").close()


def test_a_store_whose_server_was_refused_at_its_first_start_is_bound_to_no_order(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    incarnation = made.meta()["incarnation"]
    made.close()
    other = topology(core=Domain("core", ("paris", "nice", "lyon"), "ks"))
    made = store.open(tmp_path, other, "paris")
    assert made.meta().items() >= identity(other, "paris").items() and made.meta()["incarnation"] == incarnation
    made.commit(Batch(meta={CLEAN: 0}))
    made.close()
    assert "was made under another order" in refusal(tmp_path, topology())


def test_a_database_of_another_program_is_refused_and_not_touched(tmp_path):
    file = tmp_path / "store.sqlite"
    conn = sqlite3.connect(file)
    conn.execute("CREATE TABLE meta (key, value)")
    conn.close()
    before = file.read_bytes()
    assert refusal(tmp_path) == f"{file} is a database of another program; give this server its own folder"
    assert file.read_bytes() == before


REMEDY = (
    "restore it from a backup, or run `mom domain reset` for this server; `mom store salvage` exports what can be read"
)


def test_a_damaged_store_is_refused(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(queue_in={n: InRow(n, "paris/a", bytes(5000)) for n in range(1, 50)}))
    made.close()
    file = tmp_path / "store.sqlite"
    whole = file.read_bytes()
    for damaged, error in [
        (b"not a database" * 999, "file is not a database"),
        (whole[: len(whole) // 2], "database disk image is malformed"),
        (whole[:100] + bytes(4000) + whole[4100:], "database disk image is malformed"),
    ]:
        file.write_bytes(damaged)
        sentence = f"{file} is damaged or not a store ({error}); {REMEDY}"
        assert refusal(tmp_path) == sentence
        assert store.verify(tmp_path) == [sentence]


def test_a_store_without_one_of_its_tables_is_refused_and_not_left_locked(tmp_path):
    store.open(tmp_path, topology(), "paris").close()
    file = tmp_path / "store.sqlite"
    conn = sqlite3.connect(file)
    conn.execute("ALTER TABLE log RENAME TO gol")
    conn.close()
    assert refusal(tmp_path) == f"{file} is damaged or not a store (no such table: log); {REMEDY}"
    conn = sqlite3.connect(file)
    conn.execute("ALTER TABLE gol RENAME TO log")
    conn.close()
    store.open(tmp_path, topology(), "paris").close()


def test_damage_that_is_met_later_is_a_failure_of_the_store(tmp_path):
    made = store.open(tmp_path, topology(), "paris")
    made.commit(Batch(queue_in={n: InRow(n, "paris/a", b"%d" % n * 2000) for n in range(100, 150)}))
    made.close()
    file = tmp_path / "store.sqlite"
    whole = bytearray(file.read_bytes())
    pages = [at for at in range(0, len(whole), 4096) if whole[at] == 13 and b"1" * 500 in whole[at : at + 4096]]
    for at in pages:
        whole[at : at + 16] = bytes(16)
    file.write_bytes(whole)
    opened = store.open(tmp_path, topology(), "paris")
    with pytest.raises(StoreFailed, match=f"^cannot read {file}: database disk image is malformed; {REMEDY}$"):
        opened.queue_in("paris/a", 0, 999, 999)
    opened.close()


def test_there_is_nothing_to_read_before_a_server_has_started(tmp_path):
    with pytest.raises(StoreError, match="there is no store at .*; a server makes it at its first start"):
        store.read(tmp_path)
    (tmp_path / "store.sqlite").write_bytes(b"")
    with pytest.raises(StoreError, match="is not a store; name the `data` folder of a server or a backup"):
        store.read(tmp_path)


# -- two connections -------------------------------------------------------------------------------------------------


def test_reads_never_touch_the_connection_that_commits(opened):
    for batch in sample():
        opened.commit(batch)
    touched = []
    opened.begin(Batch(meta={"now": 9}))
    opened.db.conn.set_trace_callback(touched.append)
    reads(opened)
    opened.size()
    opened.prune_log(0, 0, 0)
    with opened.snapshot():
        opened.meta()
    assert touched == []
    opened.finish()
    assert touched == ["COMMIT"]


def test_reads_during_a_commit_in_another_thread_see_one_batch_or_the_next(opened):
    rounds, seen = 60, []
    opened.commit(Batch(meta={"now": 0}))
    for at in range(1, rounds + 1):
        rows = [(1 << LINK_BITS | (at - 1) * 20 + n, bytes(2000)) for n in range(1, 21)]
        opened.begin(Batch(meta={"now": at}, queue_out=rows, acked={1: (at - 1) * 20}))
        writer = threading.Thread(target=opened.finish)
        writer.start()
        with opened.snapshot():
            now = opened.meta()["now"]
            seen.append((at - now, [seq for seq, _ in opened.queue_out(1, 0, 1 << 39, 99)]))
        writer.join()
        assert seen[-1][0] in (0, 1)
        assert seen[-1][1] == list(range(now * 20 - 19, now * 20 + 1) if now else [])
        assert opened.meta()["now"] == at


def test_a_reader_beside_the_server_sees_each_commit_at_once(opened, tmp_path):
    beside = store.read(tmp_path)
    model = Model(opened.meta())
    for batch in sample():
        opened.commit(batch)
        model.apply(batch)
        assert reads(beside) == model.reads()
    beside.close()


def test_a_reader_without_a_server_sees_what_a_crash_left(tmp_path):
    """The write-ahead log of a killed process is read, without a server and without the lock."""
    opened = store.open(tmp_path / "live", topology(), "paris")
    opened.commit(Batch(meta={"now": T0 + 7}, log=[record(1)]))
    shutil.copytree(tmp_path / "live", tmp_path / "dead", ignore=shutil.ignore_patterns("*-shm"))
    opened.close()
    beside = store.read(tmp_path / "dead")
    assert (beside.meta()["now"], beside.log(0, 9)) == (T0 + 7, [(1, record(1))])
    beside.close()


# -- sizes and full disks --------------------------------------------------------------------------------------------


def test_the_size_is_what_is_in_use_so_a_drained_store_has_room_again(opened):
    empty = opened.size()
    opened.commit(Batch(queue_out=[(1 << LINK_BITS | n, bytes(4000)) for n in range(1, 1001)]))
    full = opened.size()
    assert full > empty + 4_000_000
    opened.commit(Batch(acked={1: 1000}))
    opened.db.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert opened.size() < 200_000


def test_a_full_disk_is_named(opened):
    opened.db.conn.execute("PRAGMA max_page_count = 30")
    with pytest.raises(StoreFailed) as failed:
        for n in range(1, 99):
            opened.commit(Batch(queue_out=[(1 << LINK_BITS | n, bytes(4000))]))
    sentence = f"the disk is full: nothing more can be written to {opened.path}; make room, then start again"
    assert str(failed.value) == sentence
    assert [seq for seq, _ in opened.queue_out(1, 0, 99, 99)] == list(range(1, n))


FILL = """
import resource, sys
from mombroker import store
from mombroker.core.batch import LINK_BITS, Batch
from mombroker.core.errors import StoreFailed
from tests.store.samples import topology
opened = store.open(sys.argv[1], topology(), "paris")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
where = "begin"
try:
    for n in range(1, 9999):
        where = "begin"
        opened.begin(Batch(queue_out=[(1 << LINK_BITS | n, bytes(40000))]))
        where = "finish"
        opened.finish()
except StoreFailed as failed:
    print(n, where, failed)
    for attempt in (opened.begin, opened.commit):
        try:
            attempt(Batch(meta={"now": 1}))
        except StoreFailed as again:
            assert str(again) == str(failed)
        else:
            raise SystemExit("a commit after a failed one")
    assert [seq for seq, _ in opened.queue_out(1, 0, 9999, 9999)] == list(range(1, n))
    opened.close()
"""


def test_a_disk_that_fills_during_a_commit_loses_that_commit_alone(tmp_path):
    """The file system refuses to let the write-ahead log grow, somewhere in a commit."""
    run = subprocess.run([sys.executable, "-c", FILL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    number, where, sentence = run.stdout.strip().split(" ", 2)
    assert where == "finish" and int(number) > 5
    assert sentence.startswith(f"cannot write {tmp_path / 'store.sqlite'}: disk I/O error; see to the disk")
    opened = store.open(tmp_path, topology(), "paris")
    kept = [seq for seq, _ in opened.queue_out(1, 0, 9999, 9999)]
    assert kept == list(range(1, len(kept) + 1)) and len(kept) >= int(number) - 1
    opened.commit(Batch(meta={"now": 1}))
    opened.close()


MAKE = """
import resource, sys
from mombroker import store
from mombroker.core.errors import StoreError
from tests.store.samples import topology
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
try:
    store.open(sys.argv[1], topology(), "paris")
except StoreError as refused:
    print(refused)
"""


def test_a_disk_without_room_for_a_new_store(tmp_path):
    run = subprocess.run([sys.executable, "-c", MAKE, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert run.stdout == (
        f"cannot use {tmp_path / 'store.sqlite'}: disk I/O error; "
        "see that this user can write its folder and the disk has room\n"
    )
    store.open(tmp_path, topology(), "paris").close()  # once there is room


def test_what_is_staged_when_the_store_closes_is_given_up(tmp_path):
    opened = store.open(tmp_path, topology(), "paris")
    opened.begin(Batch(meta={"now": 9}))
    opened.close()
    opened = store.open(tmp_path, topology(), "paris")
    assert "now" not in opened.meta()
    opened.close()


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_page_of_a_collection_reads_no_row_before_it(opened):
    """An index that is used by the key alone reads all rows of that key, so that many pages cost their square."""
    rows = {id: ItemRow(id, "paris/a", "c", key, b"", b"") for key in (1, 2) for id in range(key * 4_000, key * 6_000)}
    opened.commit(Batch(items=rows))

    def steps(after):
        """Instructions of SQLite's machine, in tens."""
        counted = []
        opened.reader.set_progress_handler(lambda: counted.append(1), 10)
        assert len(opened.items("paris/a", "c", after, 8)) == 8
        opened.reader.set_progress_handler(None, 0)
        return len(counted)

    for place in ((1, 5_900), (2, 11_900), (1, 5_996), (0, 0)):
        assert steps(place) <= 3 * steps((1, 4_000)) + 20, place


@pytest.mark.parametrize("limit", (1, 2, 3, 5, 9))
def test_pages_hold_all_rows_in_order_of_key_and_id_whatever_their_size(opened, limit):
    rows = {id: ItemRow(id, "paris/a", "c", id * 7 % 3, b"", b"") for id in range(1, 12)}
    opened.commit(Batch(items=rows))
    found, after = [], None
    while page := opened.items("paris/a", "c", after, limit):
        found += page
        after = (page[-1].key, page[-1].id)
    assert found == sorted(rows.values(), key=lambda row: (row.key, row.id))
