"""How the data source (source.py) reads stores: what is asked for, what tasks are told, in batch and streaming."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from mombroker import store
from mombroker.admin.analysis import files, stores
from mombroker.core.errors import MomError
from mombroker.core.meta import INCARNATION
from mombroker.core.words import many

if TYPE_CHECKING:
    import pyarrow as pa

    from mombroker.store.reader import SqliteReader


@dataclass(slots=True)
class Request:
    """The options."""

    paths: tuple[str, ...]
    servers: tuple[str, ...]  # none: all; and likewise
    kinds: tuple[str, ...]
    since: int  # ns
    partition: int
    most: int  # records of a micro-batch and server; 0: no bound
    strict: bool  # a stream fails when records went before it read them

    def stores(self) -> dict[str, Path]:
        if not self.paths:
            raise MomError("name a topology file or a folder of data folders: .load(PATH)")
        found: dict[str, Path] = {}
        for path in self.paths:
            if files.is_export(Path(path)):
                raise MomError(f"{path} is an export: read it by mombroker.admin.analysis.source.read(spark, PATH)")
            there = stores.find(Path(path))
            if twice := sorted(name for name, place in there.items() if found.get(name, place) != place):
                raise MomError(f"there are two stores of {twice[0]}: {found[twice[0]]} and {there[twice[0]]}")
            found |= there
        refuse_unknown(self.servers, found, "there is no store of")
        return {name: path for name, path in found.items() if not self.servers or name in self.servers}

    def begin(self, reader: SqliteReader) -> int:
        """A sequence after which all records are that are asked for and kept."""
        try:
            return max(reader.commit_before(1), reader.log_before(self.since) if self.since else 0)
        except TypeError:
            raise stores.damaged(reader, "a record", "its row of the log does not say when it was written") from None


@dataclass
class Range(InputPartition):
    """Whole commits: the records after `after` up to `upto` of one store. What a task is told."""

    path: str
    incarnation: str
    after: int
    upto: int


def refuse_unknown(names: Sequence[str], there: Collection[str], sentence: str) -> None:
    """Raises MomError where some of these names are unknown."""
    if unknown := [name for name in names if name not in there]:
        raise MomError(f"{sentence} {', '.join(unknown)}; there are {', '.join(there)}")


def _ranges(reader: SqliteReader, path: Path, after: int, upto: int, size: int) -> Iterator[Range]:
    incarnation = str(reader.meta()[INCARNATION])
    for end in reader.log_cuts(after, upto, size):
        yield Range(str(path), incarnation, after, end)
        after = end


def _read(part: InputPartition, columns: tuple[str, ...], request: Request) -> Iterator[pa.RecordBatch]:
    from mombroker.admin.analysis import rows

    assert isinstance(part, Range)
    needed = ("kind",) * bool(request.kinds) + ("time",) * bool(request.since)
    read = (*columns, *(name for name in needed if name not in columns))
    reader = store.read(part.path)
    try:
        if reader.meta()[INCARNATION] != part.incarnation:
            raise MomError(f"{part.path} has another store than when the query was planned; start the query again")
        with rows.uncollected():
            for batch in rows.batches(reader, part.after, part.upto, read):
                yield _wanted(batch, request).select(columns) if needed else batch
    finally:
        reader.close()


def _wanted(batch: pa.RecordBatch, request: Request) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    if request.kinds:
        batch = batch.filter(pc.is_in(batch.column("kind"), pa.array(request.kinds)))
    if request.since:
        batch = batch.filter(pc.greater_equal(batch.column("time").cast(pa.int64()), request.since // 1000))
    return batch


# -- batch -------------------------------------------------------------------------------------------------------------


class Reader(DataSourceReader):
    """All that is in the logs now."""

    def __init__(self, request: Request, columns: tuple[str, ...]):
        self.request, self.columns = request, columns

    def partitions(self) -> Sequence[Range]:
        found: list[Range] = []
        for path in self.request.stores().values():
            reader = store.read(path)
            found += _ranges(reader, path, self.request.begin(reader), reader.log_end(), self.request.partition)
            reader.close()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.columns, self.request)


# -- streaming ---------------------------------------------------------------------------------------------------------

Offset = dict[str, dict[str, Any]]  # server -> incarnation of its store, seq of the last record read, its time in us


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Each record once, from the first that is kept. A store that was made anew is read from its own first record."""

    def __init__(self, request: Request, columns: tuple[str, ...]):
        self.request, self.columns = request, columns
        self.target: Offset | None = None  # of a query that ends when all that was there is read

    def initialOffset(self) -> Offset:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self._ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.request.most) if self.request.most else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset | None:
        return self._ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        ends = self._ends() if self.target is None else self.target
        self._check(start)
        if isinstance(limit, ReadMaxRows):
            ends = self._bounded(start, ends, limit.max_rows)
        return dict(sorted((start | ends).items()))  # Spark compares offsets as text

    def _ends(self) -> Offset:
        found: Offset = {}
        for server, path in self.request.stores().items():
            reader = store.read(path)
            found[server] = self._offset(reader, reader.log_end())
            reader.close()
        return found

    def _offset(self, reader: SqliteReader, seq: int) -> dict[str, Any]:
        found = stores.commits(reader, reader.commit_before(seq), seq, 1) if seq else []
        last = found[0].last // 1000 if found else 0
        return {"incarnation": str(reader.meta()[INCARNATION]), "seq": seq, "last": last}

    def _check(self, read: Offset) -> None:
        """Raises MomError where a store does not go on from what was read of it."""
        for server, path in self.request.stores().items():
            if (before := read.get(server)) and "last" in before:
                reader = store.read(path)
                same = reader.meta()[INCARNATION] == before["incarnation"]
                if same and not stores.read_before(reader, before["seq"], before["last"]):
                    raise MomError(
                        f"record {before['seq']} of {server}, which was read, is not in its store: it was restored "
                        "from a backup; start the query again with a new checkpoint"
                    )
                reader.close()

    def _bounded(self, start: Offset, ends: Offset, most: int) -> Offset:
        found: Offset = {}
        paths = self.request.stores()
        for server, end in ends.items():
            reader = store.read(paths[server])
            after = max(_seq(start, server, end), self.request.begin(reader))
            first = next(reader.log_cuts(after, end["seq"], most), end["seq"])
            found[server] = self._offset(reader, first)
            reader.close()
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[Range]:
        found: list[Range] = []
        paths = self.request.stores()
        self._check(start)
        self._check(end)
        for server, upto in end.items():
            after = _seq(start, server, upto)
            if after >= upto["seq"]:
                continue
            reader = store.read(paths[server])
            kept = reader.commit_before(1)
            if 0 < after < kept:
                self._lost(server, kept - after)
            after = max(after, self.request.begin(reader))
            found += _ranges(reader, paths[server], after, upto["seq"], self.request.partition)
            reader.close()
        return found

    def _lost(self, server: str, count: int) -> None:
        if self.request.strict:
            raise MomError(
                f"{many(count, 'record')} of {server} went by the rules of [log] before this query read them; to go on "
                "without them, set the option failOnDataLoss to false"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self.columns, self.request)


def _seq(start: Offset, server: str, end: dict[str, Any]) -> int:
    """The last record of this store that is read."""
    before = start.get(server)
    return int(before["seq"]) if before and before["incarnation"] == end["incarnation"] else 0
