"""kill -9 at any moment leaves whole batches only, and every one that was reported durable."""

import random
import shutil
import signal
import subprocess
import sys

import pytest

from mombroker import store
from mombroker.core.errors import StoreError
from tests.store.samples import topology

# Batch n: 10 packets that carry n, the acknowledgement of the batch before it, its number in meta, one log record.
WORK = """
import sys
from mombroker import store
from mombroker.core.batch import LINK_BITS, Batch, LinkRow
from tests.store.samples import record, topology
opened = store.open(sys.argv[1], topology(), "paris")
n = opened.meta().get("now", 0)
while True:
    n += 1
    opened.commit(Batch(
        meta={"now": n},
        queue_out=[(1 << LINK_BITS | (n - 1) * 10 + k, b"%d" % n * 200) for k in range(1, 11)],
        acked={1: (n - 1) * 10},
        links={1: LinkRow(1, "core", "lyon", n * 10, (n - 1) * 10, 0, "")},
        core={("core", 9, n % 7): b"%d" % n},
        log=[record(n, n)],
    ))
    print(n, flush=True)
"""

# What is left when SQLite has written to the file, and its journal is there still.
MAKING = """
import os, signal, sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("PRAGMA cache_size = 1")
conn.execute("BEGIN")
conn.execute("CREATE TABLE made (x)")
for _ in range(50):
    conn.execute("INSERT INTO made VALUES (zeroblob(4000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_while_it_works(folder, lines: int) -> int:
    """The last batch that the process, killed after about `lines` lines, told to be durable."""
    with subprocess.Popen([sys.executable, "-c", WORK, str(folder)], stdout=subprocess.PIPE, text=True) as worker:
        told = [int(worker.stdout.readline()) for _ in range(lines)]
        worker.send_signal(signal.SIGKILL)
        told += [int(line) for line in worker.stdout if line.endswith("\n")]
    return told[-1]


def batches_are_whole(folder, told: int) -> int:
    """How many there are."""
    opened = store.open(folder, topology(), "paris")
    n = opened.meta()["now"]
    assert n >= told
    first = (n - 1) * 10 + 1
    assert opened.queue_out(1, 0, 1 << 39, 999) == [(first + k, b"%d" % n * 200) for k in range(10)]
    assert [(row.sent, row.acked) for row in opened.links()] == [(n * 10, (n - 1) * 10)]
    assert opened.core("core")[9, n % 7] == b"%d" % n
    assert [record.number for _, record in opened.log(0, 1 << 30)] == list(range(1, n + 1))
    opened.close()
    return n


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.long)])
def test_a_killed_process_leaves_whole_batches(kills, tmp_path):
    draw = random.Random(kills)
    for _ in range(kills):
        batches_are_whole(tmp_path, kill_while_it_works(tmp_path, draw.randint(1, 60)))


@pytest.mark.parametrize("cuts", [12, pytest.param(400, marks=pytest.mark.long)])
def test_a_torn_tail_of_the_log_takes_whole_batches_with_it(cuts, tmp_path):
    """What a power failure may leave of writes that no fsync has covered: a shorter file, or one with a ragged end."""
    draw, torn = random.Random(cuts), tmp_path / "torn"
    kill_while_it_works(tmp_path / "whole", 30)
    kept = set()
    for _ in range(cuts):
        shutil.copytree(tmp_path / "whole", torn)
        (torn / "store.sqlite-shm").unlink()
        (torn / "mark").unlink()  # which a power failure may leave as it was long ago
        wal = torn / "store.sqlite-wal"
        size = wal.stat().st_size
        at = draw.randrange(size // 2, size)
        with wal.open("r+b") as file:
            if draw.random() < 0.5:
                file.truncate(at)
            else:
                file.seek(at)
                file.write(draw.choice((bytes, draw.randbytes))(min(draw.randint(1, 9000), size - at)))
        kept.add(batches_are_whole(torn, 1))
        shutil.rmtree(torn)
    assert len(kept) > 1


def test_a_killed_store_can_be_verified_before_it_is_opened_again(tmp_path):
    kill_while_it_works(tmp_path, 20)
    faults = store.verify(tmp_path)
    assert [fault for fault in faults if "clocks" not in fault] == []  # its clock rows are invented
    batches_are_whole(tmp_path, 20)


def test_a_first_start_that_is_killed_while_the_file_is_made_is_begun_anew(tmp_path):
    """Until SQLite writes ahead, it keeps what was in a file in a journal beside it: nothing was, and so it is now."""
    subprocess.run([sys.executable, "-c", MAKING, str(tmp_path / "store.sqlite")])
    assert (tmp_path / "store.sqlite-journal").stat().st_size and (tmp_path / "store.sqlite").stat().st_size
    with pytest.raises(StoreError, match=r"was killed at its first start.*start it again"):
        store.read(tmp_path)
    kill_while_it_works(tmp_path, 5)
    batches_are_whole(tmp_path, 5)
