"""The columns of a log row, the same in Parquet and in the data source. Columns are only ever added, at the end.

One row per log record of a server (core/trace.py says what a record is). (server, incarnation, seq) is its key. Times
are nanoseconds since 1970 by the clock of the server that wrote them, 0 = not passed; `time` alone is a timestamp.
The figures of a commit stand on each of its records: a sum over commits takes the rows with seq = commit, a share of
each record is figure / commit_records.
"""

from typing import TYPE_CHECKING, NamedTuple, get_type_hints

from mombroker.core import trace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

VERSION = 1  # rises when columns are added; stands in every Parquet file as mombroker.schema_version
VERSION_KEY = b"mombroker.schema_version"


class Column(NamedTuple):
    name: str
    type: str  # as Spark writes it
    text: str


OUT = "array<struct<domain:string,ordering:string,peer:string,bytes:bigint,ints:bigint>>"
MISSING = "array<struct<member:bigint,sequence:bigint>>"
_TYPES = {str: "string", int: "bigint", tuple[str, ...]: "array<string>", trace.Out: OUT, trace.Missing: MISSING}


def _record(first: str, last: str = "") -> list[Column]:
    """The fields of a record from `first` to `last`, or to the end."""
    hints = get_type_hints(trace.Record, include_extras=True)
    names = trace.FIELDS[trace.FIELDS.index(first) : trace.FIELDS.index(last) + 1 if last else None]
    return [Column(name, _TYPES[hints[name].__origin__], hints[name].__metadata__[0]) for name in names]


COLUMNS = (
    Column("server", "string", "the server that wrote the record"),
    Column("incarnation", "string", "its store: a new one starts again at seq 1"),
    Column("seq", "bigint", "number of the record in that store, from 1, without gaps"),
    Column("time", "timestamp", "when the server wrote the record, microseconds, UTC"),
    *_record("kind", "domain"),
    Column("ordering", "string", "back end of that domain; empty for a local message"),
    *_record("peer", "detail"),
    Column("version", "bigint", "of the record's fields (core/trace.py)"),
    Column("commit", "bigint", "seq of the first record of the same commit"),
    Column("commit_records", "bigint", "log records of the commit"),
    Column("commits", "bigint", "commits since the last one with a record, with this one; null: not recorded"),
    Column("commit_rows", "bigint", "rows that these commits wrote or deleted, this log row with them; null likewise"),
    Column("commit_bytes", "bigint", "bytes that they wrote, log included; null likewise"),
    *_record("detail")[1:],  # what later versions record
)
NAMES = tuple(column.name for column in COLUMNS)
TYPES = {column.name: column.type for column in COLUMNS}
DDL = ", ".join(f"`{column.name}` {column.type}" for column in COLUMNS)
DAY = "`day` string"  # Parquet alone: the folder, the UTC day of the commit


def spark() -> "StructType":
    """The columns as Spark's type, each with its text as the comment that DESCRIBE shows. Needs no session."""
    from pyspark.sql import types as T

    def struct(*names: str) -> T.ArrayType:
        texts = ("domain", "ordering", "peer")
        fields = [T.StructField(name, T.StringType() if name in texts else T.LongType()) for name in names]
        return T.ArrayType(T.StructType(fields))

    kinds: dict[str, T.DataType] = {
        "string": T.StringType(), "bigint": T.LongType(), "timestamp": T.TimestampType(),
        "array<string>": T.ArrayType(T.StringType()), OUT: struct("domain", "ordering", "peer", "bytes", "ints"),
        MISSING: struct("member", "sequence"),
    }  # fmt: skip
    fields = [T.StructField(each.name, kinds[each.type], True, {"comment": each.text}) for each in COLUMNS]
    return T.StructType(fields)


def arrow(names: tuple[str, ...] = NAMES) -> "pa.Schema":
    """These columns as Arrow's type, in this order."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    types = {
        "string": text,
        "bigint": number,
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<string>": pa.list_(text),
        OUT: pa.list_(
            pa.struct([("domain", text), ("ordering", text), ("peer", text), ("bytes", number), ("ints", number)])
        ),
        MISSING: pa.list_(pa.struct([("member", number), ("sequence", number)])),
    }
    return pa.schema([(name, types[TYPES[name]]) for name in names], {VERSION_KEY: str(VERSION)})
