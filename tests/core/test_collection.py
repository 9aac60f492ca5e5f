"""An agent's collection, with changes that are not in the store yet laid over its rows."""

from random import Random

from mombroker.core.collection import Collection
from tests.core.bus import Bus, topology


class World:
    def __init__(self):
        self.bus = Bus(topology({}))
        self.server = self.bus.servers["a"]
        self.read = 0
        self.items = self.server.reader.items
        self.server.reader.items = self._counted
        self.rows = Collection(self.server, "a/x", "c")

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
