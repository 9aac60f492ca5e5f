"""Tables of agents: what is read is what a mapping in memory would say, whatever is durable of it."""

from random import Random

import pytest

from mombroker.agents import Agent, Items, Table, notification, reacts
from mombroker.core.batch import Batch
from mombroker.core.collection import Collections
from mombroker.core.limits import Limits
from mombroker.core.topology import Server, Topology
from mombroker.core.transaction import Commits
from mombroker.store.memory import MemoryStore
from tests.core.bus import Bus, topology

HERE = __name__


@notification
class Do:
    what: str
    key: str = ""
    value: int = 0


class Stock(Agent):
    """Does what it is told to its table."""

    rows: Table
    said: list = []

    @reacts
    def do(self, note: Do) -> None:
        if note.what == "set":
            self.rows[note.key] = {"n": note.value}
        elif note.what == "set and fail":
            self.rows[note.key] = {"n": note.value}
            self.rows.delete("a")
            self.rows[7] = 7
            raise ValueError("no")
        elif note.what == "delete":
            del self.rows[note.key]
        elif note.what == "wrong":
            self.rows[note.key] = {1, 2}
        else:
            self.said.append(
                [
                    len(self.rows),
                    [list(each) for each in self.rows.range()],
                    note.key in self.rows,
                    self.rows.get(note.key),
                ]
            )


def test_a_table_changes_with_its_reaction_or_not_at_all():
    b = Bus(topology({"x": "abc"}, {"b/stock": f"{HERE}:Stock"}))
    for key, value in (("b", 2), ("a", 1), ("c", 3), ("a", 4)):
        b.send("a", "stock", Do("set", key, value))
    b.send("a", "stock", Do("delete", "c"))
    for note in (Do("set and fail", "z", 9), Do("delete", "nothing"), Do("wrong", "z"), Do("set", "x" * 501)):
        b.send("a", "stock", note)
        for _ in range(6):
            b.later(100)
    b.send("a", "stock", Do("say", "a"))
    b.crash("b"), b.boot("b"), b.pump()
    b.send("a", "stock", Do("say", "c"))
    rows = [["a", {"n": 4}], ["b", {"n": 2}]]
    assert b.fields("b/stock")["said"] == [[2, rows, True, {"n": 4}], [2, rows, False, None]]
    shown = b.ask("b", "agent", agent="stock")["tables"]["rows"]
    assert shown == {"rows": 2, "first": [{"key": "a", "value": {"n": 4}}, {"key": "b", "value": {"n": 2}}]}
    assert b.ask("b", "deadletters")["count"] == 4
    b.ask("b", "delete", agent="stock")
    assert not [row for row in b.stores["b"].disk.items.values() if row.agent == "b/stock"]


@notification
class Look:
    pass


class Catalogue(Agent):
    """Tells what iteration over its table gives, and what is said to limits that are none."""

    rows: Table
    items: Items
    keys: list = []
    refused: list = []

    @reacts
    def look(self, note: Look) -> None:
        for key in (*range(150), "b", "a"):
            self.rows[key] = key
        self.keys = [list(self.rows), [key for key, _ in self.rows.items()]]
        for limit in (-1, None, True, 2.0):
            for page in (self.rows.range, self.items.scan):
                try:
                    page(limit=limit)
                except TypeError as error:
                    self.refused.append(str(error))


def test_iteration_gives_keys_and_a_limit_is_a_whole_number():
    b = Bus(topology({"x": "abc"}, {"b/look": f"{HERE}:Catalogue"}))
    b.send("a", "look", Look())
    fields = b.fields("b/look")
    assert fields["keys"] == [[*range(150), "a", "b"]] * 2
    assert len(fields["refused"]) == 8
    assert fields["refused"][:2] == [
        f"{name}: a limit is a whole number, 0 or more, not -1: for all, iterate" for name in ("rows", "items")
    ]


class World:
    """A table, its store, and batches that become durable when the test likes."""

    def __init__(self) -> None:
        alone = Topology("t", {"a": Server("a", "127.0.0.1", 1)}, {}, [], "a")
        self.store = MemoryStore(alone, "a", "i")
        self.tx = Commits("a", alone, Limits(), self.store, 1)
        self.all = Collections(self.tx)
        self.table = self.all.table("a/x", "t")
        self.flying: Batch | None = None

    def close(self) -> None:
        self.flying = self.tx.rows
        self.tx.close()

    def write(self) -> None:
        assert self.flying is not None
        self.store.commit(self.flying)

    def done(self) -> None:
        assert self.flying is not None
        flying, self.flying = self.flying, None
        self.tx.committed(flying, 1)
        self.all.committed(flying.items)


@pytest.mark.parametrize("seed", range(60))
def test_a_table_reads_like_a_mapping_whatever_is_durable(seed):
    rng, world = Random(seed), World()
    table, kept, open_ = world.table, dict[str, bytes](), dict[str, bytes]()
    keys = [f"s{n:02}" for n in range(rng.choice((3, 12, 40)))]
    written = False
    for step in range(400):
        dice = rng.random()
        key = rng.choice(keys)
        if dice < 0.35:
            body = str(step).encode()
            table.put(key, body)
            open_[key] = body
        elif dice < 0.5:
            assert table.remove(key) == (open_.pop(key, None) is not None)
        elif dice < 0.6:
            if rng.random() < 0.3:
                table.reject()
                open_ = dict(kept)
            else:
                table.accept()
                kept = dict(open_)
        elif dice < 0.7 and not table.undo:
            if world.flying is None:
                world.close()
                written = False
            elif not written:
                world.write()
                written = True
            else:
                world.done()
        low, high = sorted((rng.choice(keys), rng.choice(keys)))
        limit, reverse = rng.choice((1, 3, 100)), rng.random() < 0.5
        row = table.get(key)
        assert (row and row.body) == open_.get(key)
        want = sorted(((k, v) for k, v in open_.items() if low <= k < high), reverse=reverse)[:limit]
        assert [(k, row.body) for k, row in table.range(low, high, limit, reverse)] == want
        if step > 200:
            assert len(table) == len(open_)
    table.accept()
    for _ in range(2):
        if world.flying is None:
            world.close()
            written = False
        if not written:
            world.write()
        world.done()
    assert not table.fresh and not world.all.changed
    assert {row.collection[3:]: row.body for row in world.store.disk.items.values()} == open_


def test_a_row_that_was_read_is_put_without_another_look_at_the_store(monkeypatch):
    world, looks = World(), list[str]()
    world.table.put("sa", b"1"), world.table.accept()
    world.close(), world.write(), world.done()
    for name in ("items", "keyed"):
        read = getattr(world.store, name)
        monkeypatch.setattr(world.store, name, lambda *a, read=read, name=name: looks.append(name) or read(*a))
    assert world.table.get("sa").body == b"1"
    world.table.put("sa", b"2"), world.table.accept()
    assert looks == ["items"]
    world.table.put("sb", b"3"), world.table.put("sb", b"4"), world.table.accept()
    assert looks == ["items", "keyed"]
    world.close(), world.write(), world.done()
    assert [row.body for _, row in world.table.range("", "t", 9)] == [b"2", b"4"]


@pytest.mark.parametrize("look", range(4))
def test_a_commit_that_lands_while_rows_are_counted_changes_no_count(monkeypatch, look):
    """It is made by another thread."""
    world = World()
    for key in ("sa", "sb", "sc"):
        world.table.put(key, b"1")
    world.table.accept(), world.close(), world.write(), world.done()
    world.table.put("sd", b"2"), world.table.put("se", b"2"), world.table.remove("sb"), world.table.accept()
    world.close()
    looks = iter(range(9))

    def lands(name: str):
        read = getattr(world.store, name)

        def reads(*arguments):
            found = read(*arguments)
            if next(looks) == look:
                world.write()
            return found

        return reads

    for name in ("range_count", "items"):
        monkeypatch.setattr(world.store, name, lands(name))
    assert len(world.table) == 4
    assert next(looks) > look
    world.done()
    assert len(world.table) == 4


def test_what_stands_in_the_place_of_a_damaged_row_gets_another_one():
    """It is found out, and set aside, when the new row is not durable yet."""
    world = World()
    world.table.put("sa", b"old"), world.table.put("sb", b"b"), world.table.accept()
    world.close(), world.write(), world.done()
    id = world.store.keyed("a/x", "=t:sa")
    for flying in (False, True):
        world.table.put("sa", b"new"), world.table.accept()
        if flying:
            world.close()
        world.tx.rows.items[id] = None  # as core/damage.py does
        world.table.lost(id)
        assert world.table.get("sa").body == b"new" and len(world.table) == 2
        if flying:
            world.write(), world.done()
        world.close(), world.write(), world.done()
        rows = {row.collection: (row.id, row.body) for row in world.store.disk.items.values()}
        assert rows["=t:sa"][1] == b"new" and rows["=t:sa"][0] != id and len(rows) == 2
        assert len(world.store.disk.items) == 2 and not world.table.fresh
        id = rows["=t:sa"][0]
