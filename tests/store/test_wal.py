"""The write-ahead log is counted as SQLite writes it."""

import os
import sqlite3
from contextlib import closing

import pytest

from mombroker.store import wal

PAGE = 4096
pytestmark = pytest.mark.skipif(not wal.DESCRIPTORS.exists(), reason="a process's descriptors are looked up in /proc")


@pytest.fixture
def db(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("PRAGMA wal_autocheckpoint = 20")
        conn.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
        yield conn


def test_frames_are_counted_exactly_between_two_beginnings(db, tmp_path):
    db.execute("PRAGMA wal_autocheckpoint = 0")
    counted, file = wal.Wal(tmp_path / "x.db", PAGE), tmp_path / "x.db-wal"
    begin = file.stat().st_size
    for number in range(50):
        db.execute("INSERT INTO t VALUES (?, ?)", (number, os.urandom(6000)))
        counted.committed()
    assert (counted.bytes, counted.syncs) == (file.stat().st_size - begin, 50)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # all of it is in the file: the next frame is the first
    before = counted.bytes
    db.execute("INSERT INTO t VALUES (100, 1)")
    counted.committed()
    assert (counted.bytes - before, counted.syncs) == (file.stat().st_size, 54)


def test_where_the_index_cannot_be_found_nothing_is_known(tmp_path):
    counted = wal.Wal(tmp_path / "none.db", PAGE)
    counted.committed()
    assert (counted.known, counted.bytes, counted.syncs) == (False, 0, 0)
