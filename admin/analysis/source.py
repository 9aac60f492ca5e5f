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
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from mombroker.admin.analysis import files, remote, schema
from mombroker.admin.analysis.partitions import sized
from mombroker.admin.analysis.reading import Reader, Request, StreamReader, refuse_unknown
from mombroker.core.errors import MomError
from mombroker.core.trace import KINDS

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from mombroker.core.topology import Topology

PARTITION = 500_000  # records
OPTIONS = {"path", "paths", "servers", "kinds", "since", "partition", "maxrecords", "failondataloss"}
TABLES = ("provider", "owner", "location", "external", "comment")  # what Spark says of a table
KEPT = "mombroker.options"
NO_KIND = "there are no records of kind"
DIGITS = 18  # of a number that SQLite takes
LOCAL = re.compile(r"^file:(//[^/]*)?(?=/)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2262, 4, 1, tzinfo=UTC)  # what is later has no ns of 64 bits


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
    refuse_unknown(columns, schema.NAMES, "there is no column")
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
    refuse_unknown(servers, dict.fromkeys(file.server for file in chosen), "there are no records of server")
    refuse_unknown(kinds, KINDS, NO_KIND)
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
    reader = reader.option("parquet.page.verify-checksum.enabled", "true")
    named = remote.literal(base)
    return reader.parquet(*["/".join((named, *file.path.parts[-3:])) for file in chosen])


def utc(time: datetime) -> datetime:
    """What is before or after all times that a log can have becomes the first or the last of these."""
    return min(max(time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC), EPOCH), LAST)


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


def _paths(options: Any) -> tuple[str, ...]:
    """Spark makes `paths` of a list, and of that of a table an address, in which each letter stands for itself."""
    path = str(options.get("path", ""))
    paths = [path] if path else json.loads(options.get("paths", "[]"))
    return tuple(LOCAL.sub("", str(each)) for each in paths)


def _names(options: Any, name: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in str(options.get(name, "")).split(",") if each.strip())


def _kinds(options: Any) -> tuple[str, ...]:
    names = _names(options, "kinds")
    refuse_unknown(names, KINDS, NO_KIND)
    return names


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
