"""The store of a replica does what that of the simulator does, through restarts, kills and snapshots."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker import store
from mombroker.core.batch import Batch, HeldRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.meta import APPLIED, CLEAN, CUT, INCARNATION, REPLICA, TERM, VERSION, VOTE
from mombroker.core.raft.messages import BATCH, MEMBERS, NOTHING, Entry, Members, Snapshot
from mombroker.core.raft.ready import Ready
from mombroker.sim.replicas.disk import ReplicaDisk
from mombroker.sim.replicas.node import StoreRows
from mombroker.store import columns, converting, replica
from mombroker.store.base import SCHEMA
from mombroker.store.memory import MemoryStore
from mombroker.store.packed import pack
from mombroker.store.replica import ReplicaStore
from mombroker.store.sqlite import META, summed
from tests.store.samples import Model, batches, reads, sample, topology

ABC = Members(("a", "b", "c"))
OWN = {TERM, VOTE, CUT, APPLIED, REPLICA, INCARNATION}


@contextmanager
def opened(folder: Path | str, members: Members = ABC, keeps: bool = True) -> Iterator[ReplicaStore]:
    made = ReplicaStore(folder, topology(), "paris", members, keeps=keeps)
    try:
        yield made
    finally:
        made.check() if not made._failed else None
        made.close()


def rows(of: ReplicaStore | MemoryStore) -> dict[str, object]:
    found = reads(of)
    return found | {"meta": {key: value for key, value in found["meta"].items() if key not in OWN}}


def log(of: ReplicaStore | ReplicaDisk) -> list[object]:
    cut, last = of.cut(), of.last()
    entries = of.entries(cut.index + 1, last, 1 << 30)
    return [of.state(), cut, last, of.applied(), [of.term(at) for at in range(cut.index, last + 1)], entries]


def batch_entry(index: int, term: int, batch: Batch) -> Entry:
    return Entry(index, term, BATCH, pack(batch))


def both_samples(term: int = 1) -> list[Entry]:
    return [Entry(1, term, NOTHING, b""), *(batch_entry(at, term, batch) for at, batch in enumerate(sample(), 2))]


class Pair:
    """A store, and the disk of the simulator, to which the same is done."""

    def __init__(self, folder: str, other: str):
        self.folder, self.other = folder, other
        self.memory = ReplicaDisk(StoreRows(MemoryStore(topology(), "paris", "one")), ABC)
        self.store = ReplicaStore(folder, topology(), "paris", ABC)
        self.sent = [{1: 0, 2: 0, 3: 0}]  # as of each entry: the last sequence of each link
        self.now = 0  # no server's time goes back
        self.history = [rows(self.store)]  # as of each entry

    def write(self, ready: Ready) -> None:
        self.memory.write(ready)
        self.store.write(ready)

    def append(self, drawn: list[Batch]) -> None:
        entries = []
        for batch in drawn:
            model = Model({})
            model.sent = dict(self.sent[-1])
            batch = self.timely(model.numbered(batch))
            model.apply(batch)
            self.sent.append(model.sent)
            entries.append(batch_entry(len(self.sent) - 1, self.memory.state()[0], batch))
        self.write(Ready(entries=entries))

    def timely(self, batch: Batch) -> Batch:
        self.now = max([self.now, *(columns.time(record) for record in batch.log)])
        now = batch.meta.get("now", self.now)
        if not isinstance(now, int) or now < self.now:
            return replace(batch, meta={key: value for key, value in batch.meta.items() if key != "now"})
        self.now = now
        return batch

    def replace(self, back: int) -> None:
        """A leader of a newer term has something else in place of the last entries, unless they are applied."""
        first, term = self.memory.last() - back, self.memory.state()[0] + 1
        if first > self.memory.applied():
            self.write(Ready((term, ""), [Entry(first, term, NOTHING, b"")]))
            self.sent[first:] = [self.sent[first - 1]]

    def vote(self, id: str) -> None:
        self.write(Ready((self.memory.state()[0] + 1, id)))

    def apply(self, count: int, late: bool = False) -> None:
        if found := self.memory.entries(self.memory.applied() + 1, self.memory.last(), 1 << 30)[:count]:
            self.store.apply(found, late=late)
            for entry in found:
                self.memory.apply(entry)
                assert isinstance(self.memory.rows, StoreRows)
                self.history.append(rows(self.memory.rows.store))

    def late(self, count: int) -> None:
        """They may wait: whoever reads the file sees the rows as of an earlier entry, and of one entry only."""
        self.apply(count, late=True)
        assert self.store.taken() == self.memory.applied()
        with closing(store.read(self.folder)) as other:
            assert rows(other) == self.history[int(other.meta()[APPLIED])]

    def cut(self, back: int) -> None:
        self.memory.write(Ready())
        index = self.memory.applied() - back
        self.store.cut_to(index, ABC)
        self.memory.cut_to(index, ABC)

    def reopen(self, _: object) -> None:
        self.store.close()
        self.store = ReplicaStore(self.folder, topology(), "paris")
        self.memory.write(Ready())
        self.memory.crash(0.0)

    def snapshot(self, _: object) -> None:
        snapshot = self.store.take_snapshot()
        with opened(self.other, Members(())) as copy:
            if snapshot.index > copy.applied():
                receive(copy, self.store, snapshot)
                assert rows(copy) == rows(self.store) and copy.cut().index == snapshot.index

    def check(self) -> None:
        self.store.check()
        assert self.store.applied() == self.store.taken()
        assert log(self.store) == log(self.memory)
        assert isinstance(self.memory.rows, StoreRows)
        assert rows(self.store) == rows(self.memory.rows.store)


few, none = st.integers(0, 3), st.none()
STEPS = st.lists(
    st.tuples(st.just("append"), st.lists(batches(), min_size=1, max_size=3))
    | st.tuples(st.sampled_from(["replace", "apply", "late", "late", "cut"]), few)
    | st.tuples(st.just("vote"), st.sampled_from("abc"))
    | st.tuples(st.sampled_from(["reopen", "snapshot"]), none),
    max_size=10,
)


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_it_does_what_the_disk_of_the_simulator_does(steps):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        pair = Pair(folder, other)
        try:
            for step, value in [("vote", "a"), *steps]:
                getattr(pair, step)(value)
                if step != "late":
                    pair.check()
            pair.check()
        finally:
            pair.store.close()


def give(number: int, held: dict[int, bytes | None], **more) -> Entry:
    rows = {id: None if body is None else HeldRow(id, "paris/queue:q", b"", body) for id, body in held.items()}
    return batch_entry(number, 1, Batch(number, held=rows, **more))


HANDED = [give(1, {1: b"a", 2: b"b"}), give(2, {1: None, 3: b"c"}), give(3, {2: b"again", 3: None}), give(4, {4: b"d"})]


def hands_over(folder: Path) -> None:
    with opened(folder) as made:
        made.write(Ready((1, "a"), HANDED))
        statements: list[str] = []
        made.db.conn.set_trace_callback(statements.append)
        for entry in HANDED:
            made.apply([entry], late=True)
        assert not any("held" in each for each in statements) and made.applied() == 0, "nobody has read yet"
        assert [(row.id, row.body) for row in made.held(0, 9)] == [(2, b"again"), (4, b"d")]
        made.db.conn.set_trace_callback(None)
        assert sum("INTO held" in each for each in statements) == 2, "what came and went was never there"
        assert made.applied() == 4


def test_entries_that_wait_become_rows_together_when_somebody_reads(tmp_path):
    hands_over(tmp_path)


def test_entries_wait_while_they_are_few_and_small_and_a_closed_store_has_them_all(tmp_path):
    many = [give(at, {at: b"x", at - 1: None}) for at in range(1, 2 * replica.LATE + 4)]
    with opened(tmp_path) as made:
        made.write(Ready((1, "a"), many))
        for at, entry in enumerate(many, 1):
            made.apply([entry], late=True)
            assert made.taken() == at
            if made.crowded:
                made.catch_up()
            assert made.applied() == at - at % replica.LATE
    with closing(store.read(tmp_path)) as found:
        assert found.meta()[APPLIED] == len(many) and [row.id for row in found.held(0, 9)] == [len(many)]
    large = give(len(many) + 1, {99: b"x" * replica.LATE_BYTES})
    with opened(tmp_path) as made:
        made.write(Ready(entries=[large]))
        made.apply([large], late=True)
        assert made.crowded


def test_who_reads_while_the_log_is_written_waits_for_that_and_at_the_next_write_nothing_waits(tmp_path):
    with opened(tmp_path) as made:
        made.write(Ready((1, "a"), HANDED[:2]))
        made.stage(Ready(entries=HANDED[2:]))
        made.apply(HANDED[:1], late=True)
        writer = Timer(0.05, made.finish)
        writer.start()
        assert [row.id for row in made.held(0, 9)] == [1, 2] and made.last() == 4
        writer.join()
        made.apply(HANDED[1:2], late=True)
        assert made.applied() == 1
        made.stage(Ready((2, "b")))
        assert made.applied() == 2, "somebody reads now and then, and would wait"
        made.finish()
        made.apply(HANDED[2:3], late=True)
        made.write(Ready((3, "b")))
        assert made.applied() == 2, "nobody has read since"


def first_wins(batches: list[Batch]) -> dict[int, HeldRow | None]:
    held: dict[int, HeldRow | None] = {}
    for batch in batches:
        held = batch.held | held
    return held


def blind(made: ReplicaStore, sql: str, *args: object) -> list[object]:
    return super(ReplicaStore, made).select(sql, *args)


def forgetful(made: ReplicaStore, synced: bool = False) -> None:
    made._late = made._late[-1:]
    made._later(made._late, (APPLIED, made._taken))
    made._late, made._applied = [], made._taken


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(replica, "_held", first_wins), (ReplicaStore, "select", blind), (ReplicaStore, "catch_up", forgetful)],
)
def test_rows_that_come_late_the_wrong_way_are_noticed(where, name, broken, tmp_path, monkeypatch):
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError):
        hands_over(tmp_path)


def receive(copy: ReplicaStore, made: ReplicaStore, snapshot: Snapshot, size: int = 10_000) -> None:
    for offset in range(0, snapshot.size, size):
        end = offset + size >= snapshot.size
        chunk = (snapshot, offset, made.chunk(offset, size))
        copy.write(Ready(chunks=[chunk], install=snapshot if end else None))


def test_a_snapshot_keeps_the_term_and_the_vote_of_who_gets_it(tmp_path):
    with opened(tmp_path / "a") as a, opened(tmp_path / "b", Members(())) as b:
        a.write(Ready((4, "a"), both_samples(4)))
        a.write(Ready(entries=[Entry(4, 4, MEMBERS, Members(("a", "b")).pack()), Entry(5, 4, NOTHING, b"")]))
        a.apply(a.entries(1, 4, 1 << 30))
        b.write(Ready((7, "c"), [Entry(1, 2, NOTHING, b"")]))
        snapshot = a.take_snapshot()
        assert (snapshot.index, snapshot.term, snapshot.members) == (4, 4, Members(("a", "b")))
        receive(b, a, snapshot)
        assert log(b) == [(7, "c"), b.cut(), 4, 4, [4], []] and b.cut().members == snapshot.members
        assert rows(b) == rows(a)
        b.write(Ready(entries=[Entry(5, 7, NOTHING, b"")]))
        b.apply(b.entries(5, 5, 0))
    with opened(tmp_path / "b") as b:
        assert b.last() == b.applied() == 5 and b.meta()[INCARNATION] == store.read(tmp_path / "a").meta()[INCARNATION]
    assert store.verify(tmp_path / "b") == []


def test_a_snapshot_of_an_older_program_gets_the_tables_of_ours(tmp_path, monkeypatch):
    with opened(tmp_path / "a") as a, opened(tmp_path / "b", Members(())) as b:
        a.write(Ready((1, "a"), both_samples()))
        a.apply(a.entries(1, 3, 1 << 30))
        snapshot, migrated = a.take_snapshot(), []
        monkeypatch.setattr(replica, "SCHEMA", SCHEMA + 1)
        monkeypatch.setattr(replica.schema, "migrate", lambda db, old, new: migrated.append((old, new)))
        monkeypatch.setattr("mombroker.store.reader.SCHEMA", SCHEMA + 1)
        receive(b, a, snapshot)
        assert migrated == [(SCHEMA, SCHEMA + 1)] and b.meta()[VERSION] == SCHEMA + 1


def test_a_snapshot_or_a_batch_of_a_newer_program_is_refused(tmp_path, monkeypatch):
    with opened(tmp_path / "a") as a, opened(tmp_path / "b", Members(())) as b:
        a.write(Ready((1, "a"), both_samples()))
        monkeypatch.setattr("mombroker.store.packed.VERSION", 1)
        with pytest.raises(StoreError, match="cannot be read: a batch of version 2: this program reads those up to 1"):
            a.apply(a.entries(1, 3, 1 << 30))
        monkeypatch.undo()
        a.apply(a.entries(1, 3, 1 << 30))
        a.db.conn.executemany(META, summed([(VERSION, SCHEMA + 1)]))
        monkeypatch.setattr("mombroker.store.reader.SCHEMA", SCHEMA + 1)
        snapshot = a.take_snapshot()
        monkeypatch.undo()
        with pytest.raises(StoreError, match="was written by a newer mombroker"):
            receive(b, a, snapshot)


def test_a_server_without_replicas_gets_one_and_has_none_again(tmp_path):
    plain = topology()
    with pytest.raises(StoreError, match="has no store"):
        converting.begin(tmp_path / "a", plain, "paris", "p1")
    store.open(tmp_path / "a", plain, "paris").close()
    with pytest.raises(StoreError, match="has nothing yet"):
        converting.begin(tmp_path / "a", plain, "paris", "p1")
    made = store.open(tmp_path / "a", plain, "paris")
    for batch in sample():
        batch.meta[CLEAN] = 1
        made.commit(batch)
    before = reads(made)
    made.close()
    id = converting.begin(tmp_path / "a", plain, "paris", "p1")
    with pytest.raises(StoreError, match="is of one replica of paris"):
        converting.begin(tmp_path / "a", plain, "paris", "p1")
    with opened(tmp_path / "a") as a:
        assert (a.id, a.cut().members.voters, a.last(), a.applied()) == (id, (id,), 1, 1) and a.founded
        a.write(Ready((3, id), [Entry(2, 3, NOTHING, b""), Entry(3, 3, MEMBERS, Members((id, "p2-1")).pack())]))
        a.apply(a.entries(2, 3, 1 << 20))
    with pytest.raises(StoreError, match="is not of the only replica .p2-1.: `mom replica remove` the others first"):
        converting.end(tmp_path / "a", plain, "paris")
    late = Batch(9, meta={"name:late": "paris/a"})
    with opened(tmp_path / "a") as a:
        a.write(Ready(entries=[Entry(4, 3, MEMBERS, Members((id,)).pack()), batch_entry(5, 3, late)]))
    converting.end(tmp_path / "a", plain, "paris")
    made = store.open(tmp_path / "a", plain, "paris")
    after = reads(made)
    assert after["meta"].pop("name:late") == "paris/a", "what was decided and no row yet"
    assert after["meta"].pop(TERM) == 4
    assert after == before
    made.close()
    assert store.verify(tmp_path / "a") == []
    converting.begin(tmp_path / "a", plain, "paris", "p1")
    with opened(tmp_path / "a") as a:
        assert a.state() == (4, ""), "no term comes twice"


def test_a_snapshot_that_is_not_what_was_sent_is_not_taken(tmp_path):
    with opened(tmp_path / "a") as a, opened(tmp_path / "b", Members(())) as b:
        a.write(Ready((1, "a"), both_samples()))
        a.apply(a.entries(1, 3, 1 << 30))
        before = rows(b)
        with pytest.raises(StoreFailed, match="is not what was sent"):
            receive(b, a, replace(a.take_snapshot(), sum=1))
        assert rows(b) == before
    with opened(tmp_path / "b") as b:
        assert b.applied() == 0 and rows(b) == before


def test_a_witness_keeps_a_log_and_no_rows(tmp_path):
    with opened(tmp_path, keeps=False) as witness:
        before = rows(witness)
        witness.write(Ready((1, "a"), both_samples()))
        witness.apply(witness.entries(1, 3, 1 << 30))
        assert witness.applied() == 3 and rows(witness) == before
        witness.write(Ready(install=Snapshot(9, 2, ABC, 0, 0)))
        assert (witness.last(), witness.term(9), rows(witness)) == (9, 2, before)


def test_nobody_else_may_write_to_it(tmp_path):
    with opened(tmp_path):
        pass
    with pytest.raises(StoreError, match="is of one replica of paris: nobody else may write to it"):
        store.open(tmp_path, topology(), "paris")


def test_a_damaged_entry_is_named_and_never_used(tmp_path):
    with opened(tmp_path) as made:
        made.write(Ready((1, "a"), both_samples()))
        made.db.conn.execute("UPDATE replica_log SET term = 2 WHERE idx = 2")
        with pytest.raises(StoreError, match="entry 2 of the log of its replicas is not what was written"):
            made.entries(1, 3, 1 << 30)
    assert "row 2 of table replica_log is damaged: it is not what was written" in store.verify(tmp_path)


def test_what_was_applied_since_the_last_sync_comes_from_the_log(tmp_path):
    """After a power failure the write-ahead log ends where it was synced last."""
    with opened(tmp_path) as made:
        made.write(Ready((1, "a"), both_samples()))
        wal = tmp_path / "store.sqlite-wal"
        synced = wal.read_bytes()
        made.apply(made.entries(1, 3, 1 << 30))
        expected, later = rows(made), wal.read_bytes()
        (tmp_path / "cut").mkdir()
        (tmp_path / "cut" / "store.sqlite").write_bytes((tmp_path / "store.sqlite").read_bytes())
        assert later[: len(synced)] == synced and len(later) > len(synced)
        (tmp_path / "cut" / "store.sqlite-wal").write_bytes(synced)
    with opened(tmp_path / "cut") as again:
        assert again.applied() == 0 and again.last() == 3
        again.apply(again.entries(1, 3, 1 << 30))
        assert rows(again) == expected


WORK = """
import sys
from mombroker.core.batch import Batch, HeldRow, ItemRow
from mombroker.core.raft.messages import BATCH, Entry, Members
from mombroker.core.raft.ready import Ready
from mombroker.store.packed import pack
from mombroker.store.replica import ReplicaStore
from tests.store.samples import topology
made = ReplicaStore(sys.argv[1], topology(), "paris", Members(("a",)))
if made.applied() < made.last():
    made.apply(made.entries(made.applied() + 1, made.last(), 1 << 30))
while True:
    n = made.last() + 1
    items = {n: ItemRow(n, "paris/a", "jobs", n, b"", b"%d" % n * 50), n - 3: None}
    held = {n: HeldRow(n, "paris/queue:q", b"", b"%d" % n), n - 2: None}
    made.write(Ready((n, "a"), [Entry(n, n, BATCH, pack(Batch(items=items, held=held, meta={"now": n})))]))
    print(n, flush=True)
    made.apply(made.entries(n, n, 0), late=n % 5 > 0)
    if n % 7 == 0:
        made.cut_to(made.applied() - 2, Members(("a",)))
    if n % 11 == 0:
        made.held_row(n)
"""


def as_of(made: ReplicaStore, n: int) -> bool:
    items = [row.id for row in made.items("paris/a", "jobs", None, 9)]
    return (items, [row.id for row in made.held(0, 9)]) == (
        [*range(max(1, n - 2), n + 1)],
        [*range(max(1, n - 1), n + 1)],
    )


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_killed_process_leaves_a_log_and_rows_that_meet(kills, tmp_path):
    rng, told = random.Random(kills), 0
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], stdout=subprocess.PIPE, text=True) as worker:
            lines = [int(worker.stdout.readline()) for _ in range(rng.randint(1, 40))]
            worker.send_signal(signal.SIGKILL)
            lines += [int(line) for line in worker.stdout if line.endswith("\n")]
        assert lines[0] > told
        told = lines[-1]
        with opened(tmp_path) as made:
            assert made.last() >= told and made.applied() >= told - 5 and made.state() == (made.last(), "a")
            assert as_of(made, made.applied())
            if made.applied() < made.last():
                made.apply(made.entries(made.applied() + 1, made.last(), 1 << 30), late=True)
            assert as_of(made, made.last()), "what was decided and no row yet comes from the log"
