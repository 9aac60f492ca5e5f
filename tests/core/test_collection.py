"""An agent's collection, with changes that are not in the store yet laid over its rows."""

import sqlite3
from random import Random

import pytest

from mombroker import store
from mombroker.agents import Item, Items
from mombroker.core.batch import Batch, ItemRow
from mombroker.core.collection import Collection
from tests.core.bus import Bus, topology


class World:
    def __init__(self):
        self.bus = Bus(topology({}))
        self.server = self.bus.servers["a"]
        self.read = 0
        self.items = self.server.reader.items
        self.server.reader.items = self._counted
        self.rows = Collection(self.server.tx, {}, "a/x", "c")

    def _counted(self, *args):
        rows = self.items(*args)
        self.read += len(rows)
        return rows

    def commit(self):
        ready = self.server.ready(self.bus.now)
        self.bus.stores["a"].commit(ready.batch)
        self.server.committed(ready, self.bus.now)
        self.rows.committed(ready.batch.items)

    def fill(self, keys):
        for key in keys:
            self.rows.add(key, b"")
        self.rows.accept()
        self.commit()


def test_taking_the_first_again_and_again_reads_no_row_twice():
    w = World()
    w.fill([7] * 500)
    for _ in range(500):
        (first,) = w.rows.scan(None, 1)
        w.rows.remove(first.id)
        w.rows.accept()
    assert len(w.rows) == 0 and w.rows.scan() == [] and w.read <= 1_100


def test_whatever_is_added_removed_undone_and_committed_a_scan_tells_the_rows_in_order():
    for seed in range(150):
        rng, w = Random(seed), World()
        known, undone = {}, {}
        for _ in range(60):
            deed = rng.random()
            if deed < 0.35:
                key = rng.randrange(4)
                known[w.rows.add(key, b"")] = key
            elif deed < 0.65 and known:
                first = rng.random() < 0.7
                id = min(known, key=lambda id: (known[id], id)) if first else rng.choice([*known])
                assert w.rows.remove(id) is not None
                del known[id]
            elif deed < 0.75:
                w.rows.reject()
                known = dict(undone)
            elif deed < 0.9:
                w.rows.accept()
                w.commit()
            else:
                w.rows.accept()
            if not w.rows.undo:
                undone = dict(known)
            places = sorted((key, id) for id, key in known.items())
            after = rng.choice([None, *places])
            limit = rng.choice((1, 3, 99))
            expected = [place for place in places if after is None or place > after][:limit]
            assert [(row.key, row.id) for row in w.rows.scan(after, limit)] == expected, seed


SIZES = pytest.mark.parametrize("size", [20_000, pytest.param(200_000, marks=pytest.mark.long)])
KEYS = pytest.mark.parametrize("keys", ["equal", "rising", "few"])
PAGE = 100


def key_of(number, keys):
    return {"equal": 7, "rising": number, "few": number % 5}[keys]


class Reading:
    """What an agent's Items see of a store in a file; counts rows that are read."""

    def __init__(self, folder, size, keys):
        self.store = store.open(folder, topology({}), "a")
        rows = (ItemRow(n, "a/x", "c", key_of(n, keys), b"", b"\x07") for n in range(1, size + 1))
        self.store.commit(Batch(items={row.id: row for row in rows}))
        self.bus = Bus(topology({}))
        self.server = self.bus.servers["a"]
        self.read = 0
        self.server.reader.items = self._counted
        self.server.reader.item_count = self.store.item_count
        self.server.reader.item = self.store.item
        self.rows = Collection(self.server.tx, {}, "a/x", "c")
        self.items = Items(self, "c")

    def _counted(self, *args):
        rows = self.store.items(*args)
        self.read += len(rows)
        return rows

    def _now_reacting(self):
        return self

    def collection(self, name):
        return self.rows


@SIZES
@KEYS
def test_a_large_collection_is_read_page_by_page_and_no_row_twice(tmp_path, monkeypatch, size, keys):
    calls = []
    monkeypatch.setattr(sqlite3, "connect", counting(calls))
    reading = Reading(tmp_path, size, keys)
    expected = sorted((key_of(n, keys), n) for n in range(1, size + 1))
    assert len(reading.items) == size
    calls.clear()
    assert [(item.key, item.id) for item in reading.items] == expected
    assert reading.read == size
    whole = len(calls)
    assert whole <= size // 2, "more than fifty steps of SQLite for each row"
    reading.read = 0
    for at in range(0, size, size // 20):  # a page from anywhere costs the same
        calls.clear()
        after = next(iter(reading.items.scan(place(*expected[at]), 1)), None)
        page = reading.items.scan(place(*expected[at]), PAGE)
        assert [(item.key, item.id) for item in page] == expected[at + 1 : at + 1 + PAGE]
        assert after is None or after.id == page[0].id
        assert len(calls) <= 100
    assert reading.read <= 20 * (PAGE + 1)
    reading.store.close()


def place(key, id):
    return Item(id, key, None)


def counting(calls):
    """sqlite3.connect, whose connections put something on a list for each hundred steps of their machine."""
    whole = sqlite3.connect

    def connect(*args, **kwargs):
        db = whole(*args, **kwargs)
        db.set_progress_handler(lambda: calls.append(None), 100)
        return db

    return connect


class Key(int):
    """Counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        Key.compared += 1
        return int(self) < int(other)

    def __gt__(self, other):
        Key.compared += 1
        return int(self) > int(other)

    def __eq__(self, other):
        Key.compared += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


@SIZES
@KEYS
def test_what_one_reaction_has_added_is_read_in_pages_too(size, keys):
    w = World()
    for number in range(size):
        w.rows.add(Key(key_of(number, keys)), b"", b"\x07")
    Key.compared = 0
    found, last = [], None
    while page := w.rows.scan(last, PAGE):
        found += page
        last = (page[-1].key, page[-1].id)
    assert len(found) == size and w.read == 0
    assert Key.compared <= 60 * size, "each page compares all"
    Key.compared = 0
    for row in found[: size // 10]:
        assert w.rows.scan(None, 1) == [row] and w.rows.remove(row.id)
    assert Key.compared <= 10 * size
