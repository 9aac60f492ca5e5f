"""The simulator's store: plain dicts, with a disk that outlives crashes and can be put back to an old copy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from mombroker.core.batch import (
    LINK_BITS,
    ROWS_BY_KEY,
    Batch,
    Damage,
    HeldRow,
    InRow,
    ItemRow,
    LinkRow,
    PayloadRow,
    TaskRow,
)
from mombroker.core.errors import StoreFailed
from mombroker.core.identity import identity
from mombroker.core.meta import INCARNATION, LOST, NOW, VERSION
from mombroker.core.trace import Record
from mombroker.store import columns
from mombroker.store.base import SCHEMA, Meta, Span, prune

if TYPE_CHECKING:
    from mombroker.core.topology import Topology

Key = TypeVar("Key")
Value = TypeVar("Value")
Place = TypeVar("Place", int, tuple[int, int])

JUNK = b"junk"  # what is left of a damaged row
RECORD_BYTES = 100  # what a log record counts for; it is not packed here


@dataclass(slots=True)
class Disk:
    """What is durable.

    1. An out-queue's dict is in order of its sequences.
    2. `inboxes` and `places` hold exactly the keys of `queue_in` and `items`, sorted; no empty lists.
    """

    meta: Meta = field(default_factory=dict)
    queue_out: dict[int, dict[int, bytes]] = field(default_factory=dict)  # link -> sequence -> packet
    queue_in: dict[int, InRow] = field(default_factory=dict)
    payloads: dict[int, PayloadRow] = field(default_factory=dict)
    inboxes: dict[str, list[int]] = field(default_factory=dict)
    items: dict[int, ItemRow] = field(default_factory=dict)
    places: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=dict)
    held: dict[int, HeldRow] = field(default_factory=dict)
    agents: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    links: dict[int, LinkRow] = field(default_factory=dict)
    core: dict[str, dict[tuple[int, int], bytes]] = field(default_factory=dict)
    tasks: dict[int, TaskRow] = field(default_factory=dict)
    log: list[tuple[int, list[Record]]] = field(default_factory=list)  # of a commit each, by the sequence of the first
    bad: set[tuple[str, int]] = field(default_factory=set)  # (table, id) of rows that are not what was written
    logged: int = 0  # the time of the last commit with records

    def copy(self) -> Disk:
        """One that changes by itself; rows are never changed in place, so they are shared."""
        return Disk(
            dict(self.meta),
            {link: dict(rows) for link, rows in self.queue_out.items()},
            dict(self.queue_in),
            dict(self.payloads),
            {agent: list(ids) for agent, ids in self.inboxes.items()},
            dict(self.items),
            {name: list(places) for name, places in self.places.items()},
            dict(self.held),
            dict(self.agents),
            dict(self.links),
            {domain: dict(rows) for domain, rows in self.core.items()},
            dict(self.tasks),
            list(self.log),
            set(self.bad),
            self.logged,
        )

    def rows(self) -> Batch:
        """All of it as one batch, which makes the same of an empty disk."""
        out, core = self.queue_out.items(), self.core.items()
        return Batch(
            queue_out=[(link << LINK_BITS | seq, data) for link, rows in out for seq, data in rows.items()],
            queue_in=dict(self.queue_in), payloads=dict(self.payloads), agents=dict(self.agents),
            items=dict(self.items), held=dict(self.held), links=dict(self.links),
            core={(domain, *key): blob for domain, rows in core for key, blob in rows.items()},
            tasks=dict(self.tasks), meta=dict(self.meta), log=[record for _, part in self.log for record in part],
        )  # fmt: skip

    def said(self) -> int:
        """The time in `meta`."""
        now = self.meta.get(NOW)
        return now if isinstance(now, int) else 0

    def check(self) -> None:
        for queue in self.queue_out.values():
            assert list(queue) == sorted(queue), "an out-queue is not in order"
        waiting = {(agent, id) for agent, ids in self.inboxes.items() for id in ids}
        assert waiting == {(row.agent, id) for id, row in self.queue_in.items()}, "inboxes differ from queue_in"
        shared = {row.payload for row in self.queue_in.values() if row.payload}
        assert shared == self.payloads.keys(), "payloads differ from those of queue_in"
        placed = {(name, place) for name, places in self.places.items() for place in places}
        items = {((row.agent, row.collection), (row.key, id)) for id, row in self.items.items()}
        assert placed == items, "places differ from items"
        assert all(ids and ids == sorted(set(ids)) for ids in self.inboxes.values()), "an inbox is not sorted"
        assert all(row and row == sorted(set(row)) for row in self.places.values()), "a collection is not sorted"


class MemoryStore:
    """A store on a simulated disk.

    A process may die before `begin` or between `begin` and `finish` (`crash`: the batch in COMMIT is durable or
    not, as the caller chooses, and never half), or after `finish` before anybody has seen that it is durable.
    """

    def __init__(self, topology: Topology, server: str, incarnation: str):
        self.disk = Disk(meta=identity(topology, server) | {INCARNATION: incarnation, VERSION: SCHEMA})
        self._staged: Batch | None = None
        self._failed = ""
        self._prune = (0, 0)
        self.damaged: list[Damage] = []
        self._named: set[tuple[str, int]] = set()  # those that were ever in `damaged`

    # -- faults ------------------------------------------------------------------------------------------------

    def crash(self, durable: bool = False) -> None:
        """The process dies; a batch that is staged is on disk or not, as the caller chooses."""
        batch, self._staged = self._staged, None
        if batch is not None and durable:
            self._apply(batch)
        self._failed = ""
        self._prune = (0, 0)
        self.damaged, self._named = [], set()

    def damage(self, table: str, id: int, head: bool = False) -> None:
        """A row of "queue_in", "message" or "held" is not what was written any more. With `head` the store does not see
        it: the head of a message cannot be read."""
        disk = self.disk
        if table == "queue_in":
            disk.queue_in[id] = disk.queue_in[id]._replace(data=JUNK)
        elif table == "message":
            item = disk.items[id]
            disk.items[id] = item._replace(head=JUNK) if head else item._replace(body=JUNK)
        else:
            held = disk.held[id]
            disk.held[id] = held._replace(head=JUNK) if head else held._replace(body=JUNK)
        if not head or table == "queue_in":
            disk.bad.add((table, id))

    def fail(self, sentence: str) -> None:
        """From now on every `begin` and `finish` raises StoreFailed, until a crash."""
        self._failed = sentence

    def copy(self) -> MemoryStore:
        """Another store that is as this one."""
        other = copy(self)
        other.disk = self.disk.copy()
        other.crash()
        return other

    def snapshot(self) -> Disk:
        """A backup: what is durable now."""
        return self.disk.copy()

    def restore(self, backup: Disk) -> None:
        """Put an old copy in place of the disk, while no process runs on it."""
        assert self._staged is None, "a server runs on this store: crash it first"
        self.disk = backup.copy()

    def check(self) -> None:
        """Assert the invariants of the disk, and that each out-queue holds what its link row says."""
        self.disk.check()
        for link in self.disk.links.values():
            held = list(self.disk.queue_out.get(link.id, ()))
            assert held == list(range(link.acked + 1, link.sent + 1)), f"the out-queue of {link} holds {held}"

    # -- commit ------------------------------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        self._usable()
        assert self._staged is None, "the last batch is not finished"
        self._staged = batch

    def finish(self) -> None:
        self._usable()
        assert self._staged is not None, "no batch is staged"
        batch, self._staged = self._staged, None
        self._apply(batch)

    def commit(self, batch: Batch) -> None:
        self.begin(batch)
        self.finish()

    def _usable(self) -> None:
        if self._failed:
            raise StoreFailed(self._failed)

    def _apply(self, batch: Batch) -> None:
        disk = self.disk
        if disk.bad:
            written = (("queue_in", batch.queue_in), ("message", batch.items), ("held", batch.held))
            disk.bad -= {(table, id) for table, rows in written for id in rows}
        for link, upto in batch.acked.items():
            queue = disk.queue_out.get(link, {})
            for seq in list(takewhile(upto.__ge__, queue)):
                del queue[seq]
        for key, data in batch.queue_out:
            link, seq = key >> LINK_BITS, key & ((1 << LINK_BITS) - 1)
            queue = disk.queue_out.setdefault(link, {})
            assert not queue or seq > next(reversed(queue)), f"sequence {seq} of link {link} is not a new one"
            queue[seq] = data
        if batch.queue_in:
            self._put_queue_in(batch.queue_in)
            disk.payloads.update(batch.payloads)
            for id in batch.spent & disk.payloads.keys():
                if not any(each in disk.queue_in for each in range(disk.payloads[id].last, id, -1)):
                    del disk.payloads[id]
        for agent, upto in batch.dropped.items():
            gone = [id for (owner, _), rows in disk.places.items() if owner == agent for _, id in rows if id <= upto]
            self._put_items(dict.fromkeys(gone))
            disk.bad -= {("message", id) for id in gone}
        if batch.items:
            self._put_items(batch.items)
        _put(disk.held, batch.held)
        _put(disk.agents, batch.agents)
        _put(disk.links, batch.links)
        for domain in batch.ended:
            disk.core.pop(domain, None)
        for (domain, kind, number), blob in batch.core.items():
            rows = disk.core.setdefault(domain, {})
            if blob is None:
                rows.pop((kind, number), None)
            else:
                rows[kind, number] = blob
        _put(disk.tasks, batch.tasks)
        _put(disk.meta, batch.meta)
        if found := columns.records_of(batch):
            disk.log.append((self.log_end() + 1, found))
            before = 0 if NOW in batch.meta else disk.logged
            disk.logged = max(columns.time(found[-1]), disk.said(), before)
        cut, lost = self._prune
        if cut:
            disk.log = [row for row in disk.log if row[0] >= cut]
            disk.meta[LOST] = lost
            self._prune = (0, 0)

    def _put_queue_in(self, rows: dict[int, InRow | None]) -> None:
        table, inboxes = self.disk.queue_in, self.disk.inboxes
        for id, row in rows.items():
            old = table.pop(id, None)
            if old is not None:
                _discard(inboxes, old.agent, id)
            if row is not None:
                table[id] = row
                insort(inboxes.setdefault(row.agent, []), id)

    def _put_items(self, rows: dict[int, ItemRow | None]) -> None:
        table, places = self.disk.items, self.disk.places
        for id, row in rows.items():
            old = table.pop(id, None)
            if old is not None:
                _discard(places, (old.agent, old.collection), (old.key, id))
            if row is not None:
                table[id] = row
                insort(places.setdefault((row.agent, row.collection), []), (row.key, id))

    # -- reads -------------------------------------------------------------------------------------------------

    def meta(self, prefix: str = "") -> Meta:
        found = {key: value for key, value in self.disk.meta.items() if key.startswith(prefix)}
        now = max(self.disk.said(), self.disk.logged) if NOW.startswith(prefix) else 0
        return {**found, NOW: now} if now else found

    def links(self) -> list[LinkRow]:
        return sorted(self.disk.links.values())

    def core(self, domain: str) -> dict[tuple[int, int], bytes]:
        return dict(self.disk.core.get(domain, {}))

    def tasks(self) -> list[TaskRow]:
        return sorted(self.disk.tasks.values())

    def inboxes(self) -> list[tuple[str, int, int]]:
        return sorted((agent, ids[0], len(ids)) for agent, ids in self.disk.inboxes.items())

    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]:
        ids = self.disk.inboxes.get(agent, [])
        first = bisect_right(ids, after)
        return [self._whole(id) for id in islice(self._good("queue_in", ids[first : bisect_right(ids, upto)]), limit)]

    def _good(self, table: str, ids: Iterable[int]) -> Iterable[int]:
        """Those of the rows that are not damaged; the others are named."""
        return (id for id in ids if not self._bad(table, id)) if self.disk.bad else ids

    def _bad(self, table: str, id: int) -> bool:
        if (table, id) not in self.disk.bad:
            return False
        if (table, id) not in self._named:
            self._named.add((table, id))
            tables: dict[str, dict[int, Any]] = {
                "queue_in": self.disk.queue_in, "message": self.disk.items, "held": self.disk.held,
            }  # fmt: skip
            row = tables[table][id]
            collection, payload = getattr(row, "collection", ""), getattr(row, "payload", 0)
            self.damaged.append(Damage(table, id, row.agent, collection, len(JUNK), JUNK, payload))
        return True

    def _whole(self, id: int) -> InRow:
        row = self.disk.queue_in[id]
        return row._replace(data=row.data + self.disk.payloads[row.payload].data) if row.payload else row

    def queue_in_count(self, agent: str, after: int) -> int:
        ids = self.disk.inboxes.get(agent, [])
        return len(ids) - bisect_right(ids, after)

    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]:
        queue = self.disk.queue_out.get(link)
        if not queue:
            return []
        first, last = max(after + 1, next(iter(queue))), min(upto, next(reversed(queue)))
        return list(islice(((seq, queue[seq]) for seq in range(first, last + 1) if seq in queue), limit))

    def queue_out_size(self, link: int) -> tuple[int, int]:
        queue = self.disk.queue_out.get(link, {})
        return len(queue), sum(map(len, queue.values()))

    def agent(self, id: str) -> tuple[str, bytes] | None:
        return self.disk.agents.get(id)

    def agents(self, after: str, limit: int) -> list[tuple[str, str]]:
        ids = sorted(id for id in self.disk.agents if id > after)[:limit]
        return [(id, self.disk.agents[id][0]) for id in ids]

    def item(self, id: int) -> ItemRow | None:
        return None if self._bad("message", id) else self.disk.items.get(id)

    def items(self, agent: str, collection: str, after: tuple[int, int] | None, limit: int) -> list[ItemRow]:
        places = self.disk.places.get((agent, collection), [])
        first = bisect_right(places, after) if after else 0
        ids = (places[at][1] for at in range(first, len(places)))
        return [self.disk.items[id] for id in islice(self._good("message", ids), limit)]

    def item_ids(self, agent: str, collection: str, after: int, upto: int, limit: int) -> list[int]:
        places = self.disk.places.get((agent, collection), [])
        ids = (id for key, id in places[bisect_right(places, (0, after)) :] if key == 0 and id <= upto)
        return list(islice(self._good("message", ids), limit))

    def keyed(self, agent: str, collection: str) -> int:
        return next((id for _, id in self.disk.places.get((agent, collection), []) if not self._bad("message", id)), 0)

    def range(self, agent: str, first: str, last: str, limit: int, reverse: bool) -> list[ItemRow]:
        ids = (self.disk.places[place][0][1] for place in self._range(agent, first, last, reverse))
        return [self.disk.items[id] for id in islice(self._good("message", ids), limit)]

    def _range(self, agent: str, first: str, last: str, reverse: bool = False) -> list[tuple[str, str]]:
        return sorted(
            (each for each in self.disk.places if each[0] == agent and first <= each[1] < last), reverse=reverse
        )

    def range_count(self, agent: str, first: str, last: str) -> int:
        return len(self._range(agent, first, last))

    def collections(self, agent: str) -> list[str]:
        return [collection for owner, collection in self.places() if owner == agent]

    def places(self) -> list[tuple[str, str]]:
        return sorted(each for each in self.disk.places if not each[1].startswith(ROWS_BY_KEY))

    def held(self, after: int, limit: int) -> list[HeldRow]:
        ids = sorted(id for id in self.disk.held if id > after)
        return [self.disk.held[id] for id in islice(self._good("held", ids), limit)]

    def held_row(self, id: int) -> HeldRow | None:
        return None if self._bad("held", id) else self.disk.held.get(id)

    def item_count(self, agent: str, collection: str) -> int:
        return len(self.disk.places.get((agent, collection), []))

    def log(self, after: int, limit: int) -> list[tuple[int, Record]]:
        rows = self.disk.log
        first = bisect_right(rows, after + 1, key=lambda row: row[0]) - 1
        records = ((seq, record) for id, part in rows[max(0, first) :] for seq, record in enumerate(part, id))
        return list(islice(((seq, record) for seq, record in records if seq > after), limit))

    def log_end(self) -> int:
        if not self.disk.log:
            return 0
        id, records = self.disk.log[-1]
        return id + len(records) - 1

    def prune_log(self, max_bytes: int, max_age: int, now: int) -> int:
        rows = [
            Span(id, id + len(records), columns.time(records[-1]), (id - 1) * RECORD_BYTES)
            for id, records in self.disk.log
        ]
        if not rows:
            return 0

        def cut(keep: Callable[[Span], bool]) -> int:
            return next((row.id for row in rows if keep(row)), rows[-1].id)

        end = self.log_end() * RECORD_BYTES
        self._prune = prune(self.disk.meta, rows[0].id, end, cut, max_bytes, now - max_age)
        return self._prune[0] - rows[0].id

    def size(self) -> int:
        disk = self.disk
        return (
            sum(len(data) for queue in disk.queue_out.values() for data in queue.values())
            + sum(len(row.data) for row in disk.queue_in.values())
            + sum(len(row.data) for row in disk.payloads.values())
            + sum(len(row.head) + len(row.body) for row in disk.items.values())
            + sum(len(row.head) + len(row.body) for row in disk.held.values())
            + sum(len(state) for _, state in disk.agents.values())
            + sum(len(blob) for rows in disk.core.values() for blob in rows.values())
            + sum(len(records) for _, records in disk.log) * RECORD_BYTES
        )

    def close(self) -> None:
        """What is staged but not finished is given up."""
        self.crash()


def _put(table: dict[Key, Value], rows: Mapping[Key, Value | None]) -> None:
    for key, row in rows.items():
        if row is None:
            table.pop(key, None)
        else:
            table[key] = row


def _discard(index: dict[Key, list[Place]], name: Key, place: Place) -> None:
    """Take one place out of a sorted list, and the list out of the index with its last place."""
    places = index[name]
    del places[bisect_left(places, place)]
    if not places:
        del index[name]
