"""A bus of three servers, and batches: one with a row in every table, and random ones with the model they act on."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from mombroker.core.batch import LINK_BITS, Batch, HeldRow, InRow, ItemRow, LinkRow, PayloadRow, TaskRow
from mombroker.core.message import Message
from mombroker.core.topology import Domain, Server, Topology
from mombroker.core.trace import Notes, Record, Round, Run
from mombroker.core.trace import records as singles
from mombroker.store import columns

T0 = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def topology(**domains: Domain | tuple[str, ...]) -> Topology:
    """A bus of paris, lyon and nice in domain core, unless other domains are given; unchecked."""
    made = {
        name: domain if isinstance(domain, Domain) else Domain(name, domain, "matrix")
        for name, domain in (domains or {"core": ("paris", "lyon", "nice")}).items()
    }
    names = dict.fromkeys(member for domain in made.values() for member in domain.members)
    servers = {name: Server(name, "127.0.0.1", 16300 + at) for at, name in enumerate(names)}
    return Topology("test", servers, made, registry="paris", checked=False)


def message(number: int, agent: str, payload: bytes = b"payload") -> bytes:
    return Message("paris", number, "paris/source", (agent,), "sample.Note", payload, T0).encode()


def record(number: int, at: int = T0, **fields: Any) -> Record:
    """A trace record of a send, or of what `fields` make of it."""
    base = Record(
        "send", "paris", number, "paris/source", ("lyon/a", "nice/b"), 7, sent=at, done=at,
        out=[("core", "lyon", 12, 3), ("core", "nice", 12, 3)], detail="sample.Note",
    )  # fmt: skip
    return base._replace(**fields)


def sample() -> list[Batch]:
    """Two batches of paris after which every table has rows, and everything is consistent."""
    first = Batch(
        number=1,
        queue_out=[(1 << LINK_BITS | seq, b"packet %d" % seq) for seq in (1, 2, 3)] + [(2 << LINK_BITS | 1, b"other")],
        queue_in={
            1: InRow(1, "paris/a", message(1, "paris/a"), info=("core", "lyon", T0, T0 + 5)),
            2: InRow(2, "paris/b", message(2, "paris/b"), attempts=2, trying=1),
            3: InRow(3, "paris/a", message(3, "paris/a")),
            14: InRow(14, "paris/a", message(14, "paris/a", b""), payload=13),
            15: InRow(15, "paris/b", message(15, "paris/b", b""), payload=13),
        },
        payloads={13: PayloadRow(13, 15, b"\0shared\xff")},
        agents={"paris/a": ("sample:A", b"state of a"), "paris/b": ("sample:B", b"\x80")},
        items={
            4: ItemRow(4, "paris/a", "jobs", 7, b"head", b"body"),
            5: ItemRow(5, "paris/a", "jobs", 3, b"", b"first"),
            6: ItemRow(6, "paris/_dead", "letters", T0, b"{}", b""),
        },
        held={9: HeldRow(9, "paris/a", b"head", b"body"), 10: HeldRow(10, "paris/b", b"", b"other")},
        links={
            1: LinkRow(1, "core", "lyon", 3, 0, 9, "incarnation of lyon"),
            2: LinkRow(2, "core", "nice", 1, 0, 0, ""),
        },
        tasks={
            7: TaskRow(7, "paris/a", "timer", T0 + SECOND, message(8, "paris/a")),
            8: TaskRow(8, "paris/b", "defer", 0, b"sample:work\n\x90"),
        },
        meta={"next": 100, "now": T0, "clean": 0, "name:a": "paris/a"},
        log=[record(1), record(2, agent="paris/other", out=[], dests=("paris/a",))],
    )
    second = Batch(
        number=2,
        acked={1: 2},
        queue_in={2: None, 14: None},
        spent={13},
        items={5: None},
        held={9: None},
        links={1: LinkRow(1, "core", "lyon", 3, 2, 10, "incarnation of lyon")},
        meta={"now": T0 + SECOND, "clean": 1},
        log=[
            record(3, T0 + SECOND, kind="hold", domain="core", peer="lyon", missing=[(2, 17)], out=[], dests=()),
            record(4, T0 + SECOND, kind="react", agent="paris/b", out=[], dests=(), detail="", hops=1),
        ],
    )
    return [first, second]


# -- random batches ------------------------------------------------------------------------------------------------

AGENTS = ["paris/a", "paris/b", "paris/lyon/17"]
ids = st.integers(1, 12)
blobs = st.binary(max_size=8)
agents = st.sampled_from(AGENTS)
times = st.integers(T0, T0 + 10 * SECOND)
in_rows = st.builds(
    InRow, ids, agents, blobs, st.integers(0, 3), st.integers(0, 3), st.tuples(st.just("core"), agents, times, times),
    st.just(0),
)  # fmt: skip
items = st.builds(ItemRow, ids, agents, st.sampled_from(["jobs", "seen"]), st.integers(-3, 3), blobs, blobs)
held = st.builds(HeldRow, ids, agents, blobs, blobs)
tasks = st.builds(TaskRow, ids, agents, st.sampled_from(["timer", "defer"]), st.integers(0, 1 << 62), blobs)
links = st.builds(
    LinkRow, st.integers(1, 3), st.just("core"), st.sampled_from(["lyon", "nice"]),
    st.integers(0, 1 << 39), st.integers(0, 9), st.integers(0, 9), st.text(max_size=3),
)  # fmt: skip
records = st.builds(record, st.integers(1, 99), times, agent=agents, detail=st.text(max_size=3), hops=st.integers(0, 2))


def run_of(*told: tuple[int, int]) -> Run:
    """Notes of one agent for another: number and size of each."""
    return Run("paris", T0, "paris/source", "paris/q", "sample.Note", *map(list, zip(*told, strict=True)))


def round_of(*told: tuple[int, str, str, int]) -> Round:
    """Notes of one type: number, source, agent and size of each."""
    numbers, sources, agents, sizes = map(list, zip(*told, strict=True))
    return Round("paris", T0, sources, agents, "sample.Note", numbers, sizes)


def some_notes() -> st.SearchStrategy[Notes]:
    """Of several agents, of several types."""
    names = st.sampled_from(["paris/a", "paris/b"])
    told = st.tuples(st.integers(0, 1 << 60), names, names, st.text(max_size=2), st.integers(0, 3))

    def made(at: int, each: list[tuple[int, str, str, str, int]]) -> Notes:
        notes = Notes("paris", at)
        notes.told = each
        return notes

    pairs = st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 3)), min_size=1, max_size=24)
    fours = st.lists(st.tuples(st.integers(0, 1 << 60), names, names, st.integers(0, 3)), min_size=1, max_size=24)
    several = st.builds(made, times, st.lists(told, min_size=1, max_size=24))
    return several | pairs.map(lambda each: run_of(*each)) | fours.map(lambda each: round_of(*each))


def by_id(rows: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[int, Any]]:
    """Rows under their ids, some of them to be deleted."""
    some = st.lists(rows | ids, max_size=5)
    return some.map(lambda found: {r: None if isinstance(r, int) else r for r in found}).map(
        lambda found: {key if row is None else row.id: row for key, row in found.items()}
    )


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch but for its out-queue rows: `queue_out` holds links only, to be numbered by `Model.numbered`."""
    return Batch(
        queue_out=draw(st.lists(st.tuples(st.integers(1, 3), blobs), max_size=4)),
        acked=draw(st.dictionaries(st.integers(1, 3), st.integers(0, 12), max_size=2)),
        queue_in=draw(by_id(in_rows)),
        agents=draw(st.dictionaries(agents, st.none() | st.tuples(st.just("sample:A"), blobs), max_size=3)),
        items=draw(by_id(items)),
        held=draw(by_id(held)),
        dropped=draw(st.dictionaries(agents, st.just((1 << 63) - 1), max_size=1)),
        links=draw(st.lists(links, max_size=2).map(lambda rows: {row.id: row for row in rows})),
        core=draw(
            st.dictionaries(
                st.tuples(st.sampled_from(["core", "edge"]), st.integers(0, 2), st.integers(0, 1 << 40)),
                st.none() | blobs,
                max_size=3,
            )
        ),
        tasks=draw(by_id(tasks)),
        meta=draw(
            st.dictionaries(st.sampled_from(["next", "now", "name:a"]), st.none() | st.integers(0, 1 << 62) | st.text())
        ),
        log=draw(st.lists(records | some_notes(), max_size=4)),
    )


class Model:
    """What a store must say, written as plainly as can be: one dict a table, and every read a sorted filter."""

    def __init__(self, meta: dict[str, Any]):
        self.tables: dict[str, dict[Any, Any]] = {
            name: {} for name in ("queue_out", "queue_in", "agents", "items", "held", "links", "core", "tasks")
        }
        self.tables["meta"] = dict(meta)
        self.payloads: dict[int, bytes] = {}
        self.records: list[tuple[Any, ...]] = []
        self.logged = 0  # when the last commit with records was
        self.sent = {1: 0, 2: 0, 3: 0}

    def numbered(self, batch: Batch) -> Batch:
        """The batch with the next sequences of its links."""
        sent = dict(self.sent)
        rows = []
        for link, data in batch.queue_out:
            sent[link] += 1
            rows.append((link << LINK_BITS | sent[link], data))
        acked = {link: min(upto, self.sent[link]) for link, upto in batch.acked.items()}
        return replace(batch, queue_out=rows, acked=acked)

    def apply(self, batch: Batch) -> None:
        queue = self.tables["queue_out"]
        for link, upto in batch.acked.items():
            for key in [key for key in queue if key[0] == link and key[1] <= upto]:
                del queue[key]
        for key, data in batch.queue_out:
            place = key >> LINK_BITS, key & ((1 << LINK_BITS) - 1)
            queue[place] = data
            self.sent[place[0]] = place[1]
        items = self.tables["items"]
        for id in [id for id, row in items.items() if row.agent in batch.dropped]:
            del items[id]
        for name in ("queue_in", "agents", "items", "held", "links", "core", "tasks", "meta"):
            self.tables[name].update(getattr(batch, name))
            self.tables[name] = {key: row for key, row in self.tables[name].items() if row is not None}
        self.payloads |= {id: row.data for id, row in batch.payloads.items()}
        self.records += singles(batch.log)
        if batch.log:
            self.logged = max(columns.time(batch.log[-1]), self.said(), 0 if "now" in batch.meta else self.logged)

    def now(self) -> dict[str, int]:
        return {"now": now} if (now := max(self.logged, self.said())) else {}

    def said(self) -> int:
        now = self.tables["meta"].get("now")
        return now if isinstance(now, int) else 0

    def reads(self) -> dict[str, Any]:
        tables = self.tables
        return {
            "meta": tables["meta"] | self.now(),
            "links": sorted(tables["links"].values()),
            "core": {
                name: {key[1:]: blob for key, blob in tables["core"].items() if key[0] == name}
                for name in ("core", "edge", "none")
            },
            "tasks": sorted(tables["tasks"].values()),
            "inboxes": [
                (agent, min(mine), len(mine))
                for agent in sorted(AGENTS)
                if (mine := [row.id for row in tables["queue_in"].values() if row.agent == agent])
            ],
            "queue_in": {agent: self.queue_in(agent, 0, 99, 99) for agent in AGENTS},
            "queue_in_count": {agent: len(self.queue_in(agent, 1, 99, 99)) for agent in AGENTS},
            "queue_out": {link: self.queue_out(link, 0, 99, 99) for link in (1, 2, 3)},
            "queue_out_size": {
                link: (len(rows), sum(len(data) for _, data in rows))
                for link in (1, 2, 3)
                for rows in [self.queue_out(link, 0, 99, 99)]
            },
            "agent": {agent: tables["agents"].get(agent) for agent in AGENTS},
            "agents": sorted((agent, row[0]) for agent, row in tables["agents"].items()),
            "item": {id: tables["items"].get(id) for id in range(1, 13)},
            "items": {(a, c): self.items(a, c, None, 99) for a in AGENTS for c in ("jobs", "seen")},
            "item_count": {(a, c): len(self.items(a, c, None, 99)) for a in AGENTS for c in ("jobs", "seen")},
            "held": self.held(0, 99),
            "held_row": {id: tables["held"].get(id) for id in range(1, 13)},
            "log": list(enumerate(self.records, 1)),
            "log_end": len(self.records),
        }

    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]:
        rows = [row for row in self.tables["queue_in"].values() if row.agent == agent and after < row.id <= upto]
        rows = [row._replace(data=row.data + self.payloads.get(row.payload, b"")) for row in rows]
        return sorted(rows)[:limit]

    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        rows = [(seq, data) for (of, seq), data in self.tables["queue_out"].items() if of == link]
        return sorted(row for row in rows if after < row[0] <= upto)[:limit]

    def items(self, agent: str, collection: str, after: tuple[int, int] | None, limit: int) -> list[ItemRow]:
        rows = [row for row in self.tables["items"].values() if (row.agent, row.collection) == (agent, collection)]
        rows = [row for row in rows if after is None or (row.key, row.id) > after]
        return sorted(rows, key=lambda row: (row.key, row.id))[:limit]

    def item_ids(self, agent: str, collection: str, after: int, upto: int, limit: int) -> list[int]:
        rows = self.items(agent, collection, (0, after), len(self.tables["items"]))
        return [row.id for row in rows if row.key == 0 and row.id <= upto][:limit]

    def held(self, after: int, limit: int) -> list[HeldRow]:
        return sorted(row for row in self.tables["held"].values() if row.id > after)[:limit]

    def log(self, after: int, limit: int) -> list[tuple[int, tuple[Any, ...]]]:
        return [(seq, record) for seq, record in enumerate(self.records, 1) if seq > after][:limit]


def reads(store: Any) -> dict[str, Any]:
    """Everything that a store says, in the form of `Model.reads`."""
    places = [(agent, collection) for agent in AGENTS for collection in ("jobs", "seen")]
    return {
        "meta": store.meta(),
        "links": store.links(),
        "core": {name: store.core(name) for name in ("core", "edge", "none")},
        "tasks": list(store.tasks()),
        "inboxes": store.inboxes(),
        "queue_in": {agent: store.queue_in(agent, 0, 99, 99) for agent in AGENTS},
        "queue_in_count": {agent: store.queue_in_count(agent, 1) for agent in AGENTS},
        "queue_out": {link: store.queue_out(link, 0, 99, 99) for link in (1, 2, 3)},
        "queue_out_size": {link: store.queue_out_size(link) for link in (1, 2, 3)},
        "agent": {agent: store.agent(agent) for agent in AGENTS},
        "agents": store.agents("", 99),
        "item": {id: store.item(id) for id in range(1, 13)},
        "items": {place: store.items(*place, None, 99) for place in places},
        "item_count": {place: store.item_count(*place) for place in places},
        "held": store.held(0, 99),
        "held_row": {id: store.held_row(id) for id in range(1, 13)},
        "log": store.log(0, 999),
        "log_end": store.log_end(),
    }


def written_anew(conn: sqlite3.Connection, after: int) -> None:
    """What a store that was restored from a backup writes: other records, a millisecond later, under the numbers above
    `after`."""
    for id, count, packed in conn.execute("SELECT id, count, columns FROM log WHERE id > ?", [after]).fetchall():
        later = [record._replace(done=columns.time(record) + 1_000_000) for record in columns.unpack(packed, count)]
        conn.execute("UPDATE log SET last = last + 1000000, columns = ? WHERE id = ?", [columns.pack(later), id])
