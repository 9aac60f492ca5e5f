"""The Spark data source `mombroker`: the servers' logs, read from their stores while they run.

    spark.read.format("mombroker").load("bus.toml")             a topology file, a data folder, or a folder of these
    spark.read.format("mombroker").load(["paris", "lyon"])      several of these
    spark.readStream.format("mombroker").load("bus.toml")
    CREATE TEMPORARY VIEW logs USING mombroker OPTIONS (path 'bus.toml')
    CREATE TABLE logs USING mombroker OPTIONS (path '/bus/bus.toml')

Columns are those of schema.py; `.schema("kind string, payload bigint")` reads no others. Options: `servers` and
`kinds`, lists with commas, and `since`, a time: only these records; `partition`, records of a task, about;
`maxRecords`, of one micro-batch and server, about; `failOnDataLoss`, false to let a stream go on without records that
went before it read them.

What is read is fixed by the first query of what was loaded: whole commits up to the last one then. A server that goes
on writing is not held up, and no record is missed or read twice. The stores must lie on the machines that run the
tasks; on a cluster where they do not, export first, and read that.

A filter of a query is not pushed down into the reader, only an option is. Spark 4.3 keeps one plan of reading for all
that was loaded at once, and the filters that it pushes down last go into it: with two scans of one DataFrame, joined
with itself for example, each would read what the other asked for. An option belongs to all scans alike.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from mombroker import store
from mombroker.admin.analysis import files, remote, schema, stores
from mombroker.admin.analysis.partitions import sized
from mombroker.core.errors import MomError
from mombroker.core.meta import INCARNATION
from mombroker.core.trace import KINDS
from mombroker.core.words import many

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from mombroker.core.topology import Topology
    from mombroker.store.reader import SqliteReader

PARTITION = 500_000  # records
OPTIONS = {"path", "paths", "servers", "kinds", "since", "partition", "maxrecords", "failondataloss"}
TABLES = ("provider", "owner", "location", "external", "comment")  # what Spark says of a table
KEPT = "mombroker.options"
NO_KIND = "there are no records of kind"
DIGITS = 18  # of a number that SQLite takes
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def register(spark: SparkSession) -> None:
    """Let this session read `spark.read.format("mombroker")`. Once is enough, again does no harm."""
    # Spark looks in the active session whether the name is taken, where another session may have taken it for itself.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(Logs)


def read(
    spark: SparkSession,
    path: str | Path | Sequence[str | Path],
    servers: Sequence[str] = (),
    kinds: Sequence[str] = (),
    since: datetime | None = None,
    columns: Sequence[str] = (),
) -> DataFrame:
    """The log records that `path` leads to: an export, also one on a file system of Spark's (s3a://bucket/exported),
    several, or stores as the data source takes them.

    With `servers`, `kinds`, `since` or `columns` only theirs; the others are not even read. Of an export, each record
    once, whatever run or compaction is under way. Raises MomError if there are none, or no such servers, kinds or
    columns.
    """
    _known(columns, schema.NAMES, "there is no column")
    if not isinstance(path, str | Path):
        return reduce(
            DataFrame.unionByName, [read(spark, each, servers, kinds, since, columns) for each in _once(spark, path)]
        )
    path = path if remote.is_remote(path) else Path(path)
    if isinstance(path, Path) and not files.is_export(path):
        register(spark)
        loading = spark.read.format("mombroker").options(servers=",".join(servers), kinds=",".join(kinds))
        if columns:
            loading = loading.schema(", ".join(f"`{name}` {schema.TYPES[name]}" for name in columns))
        return loading.option("since", utc(since).isoformat() if since else "").load(str(path))
    chosen = remote.chosen(spark, path) if isinstance(path, str) else files.chosen(path)
    _known(servers, dict.fromkeys(file.server for file in chosen), "there are no records of server")
    _known(kinds, KINDS, NO_KIND)
    found = parquet(spark, path, chosen)
    for name, values in (("server", servers), ("kind", kinds)):
        if values:
            found = found.where(found[name].isin(*values))
    if since:
        eve = utc(since) - timedelta(days=1)  # the first record of a commit may be younger than the day of its file
        found = found.where((found["day"] >= f"{eve:%Y-%m-%d}") & (found["time"] >= utc(since)))
    return found.select(*(columns or schema.NAMES))


def _once(spark: SparkSession, paths: Sequence[str | Path]) -> list[str | Path]:
    """Raises MomError where two of these exports have records of one store."""
    found = [path if remote.is_remote(path) else Path(path) for path in paths]
    if not found:
        raise MomError("name at least one export, topology file or data folder")
    logs: dict[tuple[str, str], str | Path] = {}
    for path in found:
        there = remote.chosen(spark, path) if isinstance(path, str) else files.every(path)
        for log in {file.log for file in there}:
            if log in logs:
                raise MomError(
                    f"{logs[log]} and {path} both have records of the same store of {log[0]}: name one of them"
                )
            logs[log] = path
    return found


def told(log: DataFrame, topology: Topology | None = None) -> DataFrame:
    """The same records for people: beside the ns of each station `..._at`, a timestamp, and null, in place of 0, where
    it was not passed; with a topology `waits_for`, the members that `missing` numbers, as `server#sequence`."""
    from pyspark.sql import functions as F

    for name in ("sent", "received", "delivered", "done"):
        passed = F.expr(f"nullif({name}, 0)")
        log = log.withColumn(name, passed).withColumn(f"{name}_at", F.timestamp_micros((passed / 1000).cast("bigint")))
    if topology is None:
        return log
    members: list[Column] = []
    for domain in topology.domains.values():
        members += [F.lit(domain.name), F.array(*map(F.lit, domain.members))]
    known = F.element_at(F.create_map(*members), F.col("domain"))
    return log.withColumn(
        "waits_for",
        F.transform(
            "missing", lambda each: F.concat_ws("#", F.get(known, each["member"]), each["sequence"].cast("string"))
        ),
    )


def parquet(spark: SparkSession, path: str | Path, chosen: Sequence[files.File]) -> DataFrame:
    """All that these files of an export at `path` hold."""
    sized(spark, sum(file.records for file in chosen))
    base = path.rstrip("/") if isinstance(path, str) else str(path.absolute())
    reader = spark.read.schema(f"{schema.DDL}, {schema.DAY}").option("basePath", base)
    return reader.parquet(*["/".join((base, *file.path.parts[-3:])) for file in chosen])


def utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


class Logs(DataSource):
    """Made by Spark; see the head of this file."""

    def __init__(self, options: Any):
        super().__init__(options)
        named = {name.lower() for name in options}
        self.table = {}  # what a table keeps of the options, among the notes of its first column
        if "provider" in named:
            named -= {name for name in named if name in TABLES or name.startswith("option.")}
            self.table = {name: options[name] for name in named}
        if unknown := sorted(named - OPTIONS):
            known = "servers, kinds, since, partition, maxRecords, failOnDataLoss"
            raise MomError(f"there is no option {', '.join(unknown)}; there are {known}")
        self.request = Request(
            paths=_paths(options),
            servers=_names(options, "servers"),
            kinds=_kinds(options),
            since=_time(options),
            partition=_positive(options, "partition", PARTITION),
            most=_positive(options, "maxrecords", 0),
            strict=_true(options, "failondataloss", True),
        )

    @classmethod
    def name(cls) -> str:
        return "mombroker"

    def schema(self) -> StructType:
        found = schema.spark()
        if self.table:
            found.fields[0].metadata[KEPT] = json.dumps(self.table)
        return found

    def reader(self, schema: StructType) -> Reader:
        """Spark 4.3 asks for a table's records without any option, so without its path: the table's columns have it."""
        kept = next((field.metadata[KEPT] for field in schema.fields if KEPT in field.metadata), None)
        request = Logs(json.loads(kept)).request if kept and not self.request.paths else self.request
        return Reader(request, _columns(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.request, _columns(schema))


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
        _known(self.servers, found, "there is no store of")
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


def _paths(options: Any) -> tuple[str, ...]:
    """Spark makes `paths` of a list, and of that of a table an address."""
    path = str(options.get("path", ""))
    paths = [path] if path else json.loads(options.get("paths", "[]"))
    return tuple(unquote(urlsplit(each).path) if str(each).startswith("file:") else str(each) for each in paths)


def _names(options: Any, name: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in str(options.get(name, "")).split(",") if each.strip())


def _kinds(options: Any) -> tuple[str, ...]:
    names = _names(options, "kinds")
    _known(names, KINDS, NO_KIND)
    return names


def _known(names: Sequence[str], known: Collection[str], sentence: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise MomError(f"{sentence} {', '.join(unknown)}; there are {', '.join(known)}")


def _true(options: Any, name: str, default: bool) -> bool:
    text = str(options.get(name, default)).lower()
    if text not in ("true", "false"):
        raise MomError(f"{name} = {text!r} is neither true nor false")
    return text == "true"


def _time(options: Any) -> int:
    text = str(options.get("since", ""))
    try:
        return nanoseconds(utc(datetime.fromisoformat(text))) if text else 0
    except (ValueError, OverflowError):
        raise MomError(f"since = {text!r} is no time like 2026-03-01T12:00:00") from None


def nanoseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1) * 1000


def _positive(options: Any, name: str, default: int) -> int:
    text = str(options.get(name, default))
    number = text.isascii() and text.isdigit() and len(text) <= DIGITS
    if not number or (not int(text) and default):
        raise MomError(f"{name} = {text!r} is no number of records")
    return int(text)


def _columns(wanted: StructType) -> tuple[str, ...]:
    """The names, once their types are found to be ours. Nullability and order are free."""
    for field in wanted.fields:
        ours, theirs = schema.TYPES.get(field.name), field.dataType.simpleString()
        if ours != theirs:
            known = f"of type {ours}" if ours else f"among {', '.join(schema.NAMES)}"
            raise MomError(f"the column {field.name} {theirs} cannot be read; it is {'' if ours else 'not '}{known}")
    return tuple(field.name for field in wanted.fields)


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
