"""From the log rows of a store to Arrow, column by column: no record is ever made."""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from mombroker.admin.analysis import schema, stores
from mombroker.core.errors import MomError
from mombroker.core.meta import FORMER, INCARNATION, ORDER, SERVER
from mombroker.core.trace import DEFAULTS, FIELDS, STATIONS
from mombroker.store import columns

if TYPE_CHECKING:
    from mombroker.store.reader import Commit, SqliteReader

PAGE = 500  # commits read in one short transaction: a reader that stays keeps the write-ahead log from ending
RECORDS = 1 << 16  # of a batch, about

DAMAGE = (ValueError, TypeError, LookupError, OverflowError, AttributeError)  # what bytes raise that are no columns


def batches(
    store: "SqliteReader", after: int, upto: int, names: tuple[str, ...] = schema.NAMES
) -> Iterator[pa.RecordBatch]:
    """The records after sequence `after` up to `upto`, both ends of commits, as batches with these columns.

    Raises MomError when they have gone meanwhile by the rules of [log].
    """
    reader = Columns(store, names)
    while after < upto:
        commits = stores.commits(store, after, upto, PAGE)
        if not commits or commits[0].id != after + 1:
            raise MomError(
                f"records of {reader.identity['server']} went while they were read, by the rules of [log]; read again, "
                "or let the log keep more"
            )
        after = commits[-1].id + commits[-1].records - 1
        for commit in commits:
            if not reader.fits(commit):
                yield reader.take()
            reader.add(commit)
            if reader.count >= RECORDS:
                yield reader.take()
    if reader.count:
        yield reader.take()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for cycles: lists of lists by the million are in none, and it takes half of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Columns:
    """Collects commits, and makes one batch of them. Raises MomError for what was damaged."""

    def __init__(self, store: "SqliteReader", names: tuple[str, ...]):
        meta = store.meta()
        self.identity = {"server": str(meta[SERVER]), "incarnation": str(meta[INCARNATION])}
        self.store = store
        self.orders = orders(meta)
        self.names = names
        self.schema = schema.arrow(names)
        needed = set(names)
        if "time" in names:
            needed |= set(STATIONS)
        if "ordering" in names:
            needed.add("domain")
        self.fields = [(at, name) for at, name in enumerate(FIELDS) if name in needed]
        self.defaults = [(DEFAULTS[at],) for at, _ in self.fields]
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.commits: list[Commit] = []
        self.values: list[list[Any]] = [[] for _ in self.fields]

    def fits(self, commit: "Commit") -> bool:
        """Whether it was written under the same order as those that were collected; if not, take these first."""
        return not self.count or commit.id <= self.until

    def add(self, commit: "Commit") -> None:
        if not self.count:
            self.until, self.orderings = next(each for each in self.orders if commit.id <= each[0])
        count = commit.records
        try:
            stored = columns.stored(commit.columns, len(FIELDS), count)
            for (at, _), values, default in zip(self.fields, self.values, self.defaults, strict=True):
                column = stored[at] or default
                if len(column) == 1:
                    values += column * count
                else:
                    values += column if len(column) == count else columns.expanded(column, count)
        except DAMAGE as error:
            raise self._damaged(f"record {commit.id}", error) from None
        self.commits.append(commit)
        self.count += count

    def take(self) -> pa.RecordBatch:
        """What was collected since the last call."""
        self.counts = np.array([commit.records for commit in self.commits], np.int64)
        self.of = np.repeat(np.arange(len(self.commits)), self.counts)  # by record: its commit,
        self.inside = np.arange(self.count) - (np.cumsum(self.counts) - self.counts)[self.of]  # and its place there
        try:
            made = {name: self._field(name, values) for (_, name), values in zip(self.fields, self.values, strict=True)}
            batch = pa.record_batch([self._column(name, made) for name in self.names], schema=self.schema)
        except DAMAGE as error:  # it unpacks, to what no record says
            first, last = self.commits[0].id, self.commits[-1].id + self.commits[-1].records - 1
            raise self._damaged(f"one of the records {first} to {last}", error) from None
        self._clear()
        return batch

    def _damaged(self, which: str, error: Exception) -> MomError:
        why = str(error).partition("\n")[0] or type(error).__name__
        return stores.damaged(self.store, which, why)

    def _field(self, name: str, values: list[Any]) -> pa.Array:
        type = schema.TYPES[name]
        if type == "bigint":
            return pa.array(values, pa.int64())
        if type == "string":
            return _strings(values)
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
        flat = list(chain.from_iterable(values))
        if name == "dests":
            return pa.ListArray.from_arrays(pa.array(offsets), _strings(flat))
        if name == "out":
            domains = _strings(_part(flat, 0))
            numbers = _integers(flat, 2), _integers(flat, 3)
            arrays = [domains, self._ordering(domains), _strings(_part(flat, 1)), *numbers]
        else:
            arrays = [_integers(flat, 0), _integers(flat, 1)]
        struct = self.schema.field(name).type.value_type
        return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(arrays, fields=list(struct)))

    def _column(self, name: str, made: dict[str, pa.Array]) -> pa.Array:
        if name in made:
            return made[name]
        if name in self.identity:
            return pa.repeat(self.identity[name], self.count)
        if name == "ordering":
            return self._ordering(made["domain"])
        if name == "time":
            return _time([made[station].to_numpy() for station in STATIONS])
        return self._commit(name)

    def _ordering(self, domains: pa.Array) -> pa.Array:
        coded = domains.dictionary_encode()
        names = pa.array([self.orderings.get(domain, "") for domain in coded.dictionary.to_pylist()], pa.string())
        return names.take(coded.indices)

    def _commit(self, name: str) -> pa.Array:
        if name in ("seq", "commit"):
            firsts = np.array([commit.id for commit in self.commits], np.int64)[self.of]
            return pa.array(firsts + self.inside if name == "seq" else firsts)
        if name == "commit_records":
            return pa.array(self.counts[self.of])
        attribute = {"version": "version", "commits": "commits", "commit_rows": "rows", "commit_bytes": "bytes"}[name]
        values = pa.array([getattr(commit, attribute) for commit in self.commits], pa.int64())
        return values.take(pa.array(self.of))


def orders(meta: dict[str, Any]) -> list[tuple[int, dict[str, str]]]:
    """The back end of each domain that the server of this store is or was in, with the last record written so."""
    former = [(int(key.removeprefix(FORMER)), value) for key, value in meta.items() if key.startswith(FORMER)]
    return [
        (upto, {name: domain["backend"] for name, domain in json.loads(str(order)).items() if "backend" in domain})
        for upto, order in [*sorted(former), (stores.LAST, meta[ORDER])]
    ]


def _strings(values: Any) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # half of a pair, which UTF-8 has no bytes for
        return pa.array([value.encode(errors="replace").decode() for value in values], pa.string())


def _integers(flat: list[Any], at: int) -> pa.Array:
    return pa.array(_part(flat, at), pa.int64())


def _part(flat: list[Any], at: int) -> list[Any]:
    return list(map(itemgetter(at), flat))


def _time(stations: list[Any]) -> pa.Array:
    done, delivered, received, sent = stations
    latest = np.where(done > 0, done, np.where(delivered > 0, delivered, np.where(received > 0, received, sent)))
    return pa.array(latest // 1000).cast(pa.timestamp("us", tz="UTC"))
