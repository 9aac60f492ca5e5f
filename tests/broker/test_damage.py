"""Bits that flip in a stopped store: refused or right, never a wrong body, never an end that comes again."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mombroker import store
from mombroker.agents import program
from mombroker.agents.notifications import encode
from mombroker.broker.attach import attach
from mombroker.broker.commands import Delivery, Disposition, Send, Subscribe
from mombroker.core.batch import Batch, InRow, PayloadRow, TaskRow
from mombroker.core.errors import StoreError, StoreFailed
from mombroker.core.events import Admin, ClientCommands, ClientOpened, Tick
from mombroker.core.message import Message
from mombroker.core.server import AgentServer
from mombroker.core.status import status
from mombroker.core.times import SECOND
from mombroker.store.reader import TABLES
from tests.core.bus import START, topology
from tests.core.sample_agents import Put

SINK = "a/sink"
TWO = topology({"x": "ab"})
QUEUE = "queue:orders"
OURS = sorted(TABLES.keys() - {"replica_log"})  # that one is of a replica: tests/store/test_replica.py
BODIES = [b"%04d" % n * 20 for n in range(40)]  # 0 .. 9 held, 10 .. 34 waiting, the rest delayed


class Alone:
    """One server on a real store, with one client."""

    def __init__(self, folder: Path, now: int = START):
        self.now = now
        self.store = store.open(folder, TWO, "a")
        self.told: list[Any] = []
        self.replies: dict[int, Any] = {}
        self.notes: list[str] = []
        try:
            self.server = AgentServer(TWO, "a", self.store, program(TWO), attach, now)
            self.go(ClientOpened(1, "user"))
        except BaseException:
            self.store.close()
            raise

    def go(self, *events: object, seconds: int = 0) -> None:
        self.now += seconds * SECOND
        for event in events:
            self.server.step(event, self.now)
        for _ in range(200):
            self.server.turn(self.now)
            ready = self.server.ready(self.now)
            if not ready.batch.empty():
                self.store.commit(ready.batch)
            self.server.committed(ready, self.now)
            self.notes += self.server.tx.notes
            self.server.tx.notes.clear()
            self.server.check()
            self.told += [reply for _, some in ready.clients for reply in some]
            self.replies.update(ready.replies)
            if not self.server.busy:
                return
        raise AssertionError("no rest")

    def drain(self) -> list[bytes]:
        """All that the queue gives within two minutes."""
        self.go(ClientCommands(1, [Subscribe("s", (QUEUE,), ack="client-individual", prefetch=100)]))
        for _ in range(3):
            self.go(Tick(), seconds=40)
            self.go(ClientCommands(1, [Disposition(tag) for tag in self.unacked()]))
        return [each.body for each in self.told if isinstance(each, Delivery)]

    def unacked(self) -> list[int]:
        tags = [each.tag for each in self.told if isinstance(each, Delivery)]
        done, self.acked = getattr(self, "acked", 0), len(tags)
        return tags[done:]


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Alone]:
    alone = Alone(folder)
    try:
        yield alone
    finally:
        alone.store.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with rows in every table, as a process that was killed has left it."""
    folder = tmp_path_factory.mktemp("whole")
    with opened(folder) as alone:
        alone.go(ClientCommands(1, [Subscribe("s", (QUEUE,), ack="client-individual", prefetch=10)]))
        alone.go(
            ClientCommands(1, [Send(QUEUE, body, shown=QUEUE, expires=START + 900 * SECOND) for body in BODIES[:35]])
        )
        alone.go(ClientCommands(1, [Send(QUEUE, body, shown=QUEUE, delay=30 * SECOND) for body in BODIES[35:]]))
        made = alone.server.program
        rows = {n: InRow(n, SINK, put(f"note {n}")) for n in range(1001, 1006)}
        timers = {n: TaskRow(n, SINK, "timer", START + n * SECOND, put(f"timer {n}")) for n in (1010, 1011)}
        sink = ("tests.core.sample_agents:Sink", made.initial("tests.core.sample_agents:Sink", {}))
        alone.go(Admin(1, "send", {"to": ["b/sink"], "type": Put.__wire_name__, "fields": {"text": "x"}}))
        wire, payload = encode(Put("shared"))
        copy = Message("a", 2, "a/source", (SINK, SINK), wire, payload, START).copy_for(SINK)
        rows |= {n: InRow(n, SINK, copy, payload=1020) for n in (1021, 1022)}
        shared = {1020: PayloadRow(1020, 1022, payload)}
        alone.store.commit(Batch(queue_in=rows, payloads=shared, tasks=timers, agents={SINK: sink}))
    return folder


def put(text: str) -> bytes:
    wire, payload = encode(Put(text))
    return Message("a", 1, "a/source", (SINK,), wire, payload, START).encode()


def copied(whole: Path, folder: Path) -> Path:
    shutil.copytree(whole, folder / "copy")
    (folder / "copy" / "mark").unlink(missing_ok=True)
    return folder / "copy"


def test_the_sample_has_rows_in_every_table_and_gives_all_it_has(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    with contextlib.closing(sqlite3.connect(folder / "store.sqlite")) as db:
        assert all(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in OURS)
    assert store.verify(folder) == []
    with opened(folder) as alone:
        assert sorted(alone.drain()) == BODIES
        assert alone.notes == []
        assert len(alone.server.program.describe(*alone.store.agent(SINK))["got"]) == 7


def test_a_damaged_entry_of_a_duplicate_list_is_told_once_when_its_queue_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with opened(folder) as alone:
        alone.go(ClientCommands(1, [Send(QUEUE, b"x", shown=QUEUE, dedup=(f"p{n}", 1)) for n in range(3)]))
    with contextlib.closing(sqlite3.connect(folder / "store.sqlite")) as db:
        db.execute("UPDATE message SET body = x'9207ff' WHERE collection = 'u' AND head = CAST('p1' AS BLOB)")
        db.commit()
    assert "is damaged" in store.verify(folder)[0]
    with opened(folder) as alone:
        alone.go(ClientCommands(1, [Send(QUEUE, b"of nobody's list", shown=QUEUE)]))
        (note,) = alone.notes
        assert note.startswith("what a producer has sent, of which a repeat is not noticed now, in the duplicate list")
        assert status(alone.server)["problems"][0].startswith("1 damaged row was set aside")
        sent = [Send(QUEUE, b"again", shown=QUEUE, dedup=(f"p{n}", 1)) for n in range(3)]
        alone.go(ClientCommands(1, sent))
        assert len(alone.notes) == 1
        assert alone.drain().count(b"again") == 1, "only what was in the damaged entry may come twice"
    assert store.verify(folder) == []
    with opened(folder) as alone:
        alone.go(ClientCommands(1, [Send(QUEUE, b"y", shown=QUEUE)]))
        assert alone.notes == []


def outcome(folder: Path) -> tuple[str, list[bytes], list[str]]:
    """What a server makes of this store: (why it was refused or has ended, bodies, lines for the operator)."""
    try:
        with opened(folder) as alone:
            try:
                return "", alone.drain(), alone.notes
            except StoreFailed as error:
                return str(error), [], alone.notes
    except (StoreError, StoreFailed) as error:
        return str(error), [], []


def flip_value(db: sqlite3.Connection, table: str, draw: random.Random) -> None:
    """One bit of one value of one row."""
    columns = TABLES[table][0].split(", ")
    rows = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
    row = draw.choice(rows)
    at = draw.choice([at for at, value in enumerate(row) if value not in (None, "", b"")])
    value, kind = row[at], "BLOB"
    if isinstance(value, int):
        new: Any = value ^ 1 << draw.randrange(40)
    else:
        data = bytearray(value.encode() if isinstance(value, str) else value)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        new, kind = bytes(data), "TEXT" if isinstance(value, str) else "BLOB"
    new = new if isinstance(new, int) else db.execute(f"SELECT CAST(? AS {kind}) IS NULL", [new]) and new
    where = " AND ".join(f"{name} IS ?" for name in columns)
    place = f"CAST(? AS {kind})" if not isinstance(new, int) else "?"
    db.execute(f"UPDATE OR REPLACE {table} SET {columns[at]} = {place} WHERE {where}", [new, *row])
    db.commit()


GIVEN_UP = {"message", "held", "queue_in", "payload", "task"}


@pytest.mark.parametrize("flips", [3, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("table", OURS)
def test_a_flipped_bit_in_a_row_is_found(whole: Path, tmp_path: Path, table: str, flips: int) -> None:
    draw = random.Random(f"{table} {flips}")
    for _ in range(flips):
        folder = copied(whole, tmp_path)
        with contextlib.closing(sqlite3.connect(folder / "store.sqlite")) as db:
            flip_value(db, table, draw)
        found = f"of table {table} is damaged" if table != "meta" else "is damaged: "
        assert any(found in fault for fault in store.verify(folder))
        why, bodies, notes = outcome(folder)
        assert set(bodies) <= set(BODIES) and len(bodies) == len(set(bodies))
        if why:
            assert table not in GIVEN_UP and "damaged" in why and "mom store salvage" in why
        elif set(bodies) != set(BODIES):
            assert any("damaged" in note for note in notes)
        if table in GIVEN_UP:
            again, bodies_again, notes_again = outcome(folder)
            assert not again and not notes_again, "what was set aside comes again"
        shutil.rmtree(folder)


@pytest.mark.parametrize("flips", [10, pytest.param(400, marks=pytest.mark.long)])
def test_a_flipped_bit_anywhere_in_the_file_makes_no_wrong_body(whole: Path, tmp_path: Path, flips: int) -> None:
    draw = random.Random(flips)
    for _ in range(flips):
        folder = copied(whole, tmp_path)
        store.open(folder, TWO, "a").close()  # all is in the one file
        file = folder / "store.sqlite"
        data = bytearray(file.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        faults = store.verify(folder)
        why, bodies, notes = outcome(folder)
        assert set(bodies) <= set(BODIES) and len(bodies) == len(set(bodies))
        told = why or notes or faults  # an index page of which rows cannot be found is for `verify` alone
        assert told or set(bodies) == set(BODIES), f"{len(bodies)} of {len(BODIES)}, and not a word"
        shutil.rmtree(folder)


def test_a_row_of_an_older_program_that_is_no_message_is_set_aside(whole: Path, tmp_path: Path) -> None:
    folder = copied(whole, tmp_path)
    with contextlib.closing(sqlite3.connect(folder / "store.sqlite")) as db:
        for table in ("message", "held"):
            db.execute(f"UPDATE {table} SET sum = NULL")
            first = f"SELECT min(id) FROM {table} WHERE agent LIKE '%orders'" + " AND collection = 'p5'" * (
                table == "message"
            )
            db.execute(f"UPDATE {table} SET head = x'c1c1c1' WHERE id = ({first})")
        db.commit()
    assert [fault for fault in store.verify(folder) if "cannot be read" in fault]
    with opened(folder) as alone:
        assert len(alone.drain()) == len(BODIES) - 2
        assert len(alone.notes) == 2 and len(alone.server.aside.kept) == 2
        (problem,) = status(alone.server)["problems"]
        assert problem.startswith("2 damaged rows were set aside")
    with opened(folder) as alone:
        assert alone.notes == [] and len(alone.server.aside.kept) == 2
