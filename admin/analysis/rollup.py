"""Roll-ups of an export: what each hour of each server has cost, kept beside it and made of new files alone.

    DIR/.rollup/day=2026-03-01/server=paris.parquet

A row tells one figure of one hour: how often (`count`) and how much (`total`). Figures add up over any hours, servers
and links, so that a week is read from some hundred rows, without Spark, and months after the records themselves are
gone. The hour is that in which a record was written, UTC; `sends` and what became of them may stand in two.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mombroker.admin.analysis import files
from mombroker.core import trace
from mombroker.core.errors import MomError

FOLDER = ".rollup"
PARTS_KEY = b"mombroker.parts"  # the records that a file is of, by incarnation
HOUR_US = 3600 * 10**6
BITS = 8  # that are kept of a time, as in cost.near
ENDS = ("react", "expire", "dead", "drop", "redeliver")
KEY = ("hour", "server", "domain", "ordering", "peer", "figure", "about")
SUMS = ("count", "total")
SCHEMA = pa.schema([
    ("hour", pa.int64()),  # since 1970
    ("server", pa.string()),  # that wrote the records
    ("domain", pa.string()),  # where that is of one; likewise
    ("ordering", pa.string()),
    ("peer", pa.string()),  # packets: to whom; hold, taken: from whom
    ("figure", pa.string()),  # FIGURES has them all
    ("about", pa.int64()),  # of a time: its first BITS bits, ns; of `hops` their number; else 0
    ("count", pa.int64()),
    ("total", pa.decimal128(38)),  # many long times are beyond 64 bits
])  # fmt: skip
FIGURES = {  # what `count` and `total` are
    "sends": "messages sent; payload bytes",
    "packets": "packets stamped for a link; control bytes",
    "ints": "likewise; control integers of the papers",
    "relays": "those of them that were passed on within a domain; control bytes",
    "forwards": "messages that a router passed on; payload bytes",
    "hold": "copies and forwards that came over a link; ns that they waited for their causes",
    "queue": "reactions; ns that the message waited for its agent",
    "whole": "reactions; ns from the send, by its server's clock",
    "hops": "reactions; links that the message had crossed",
    "react": "messages that agents reacted to; payload bytes",
    "expire": "messages that ended so; payload bytes",
    "dead": "likewise",
    "drop": "likewise",
    "redeliver": "likewise",
    "records": "log records",
    "commits": "commits; rows that they wrote or deleted",
    "values": "commits; bytes of the values that they wrote",
    "commit": "commits that a time is known of; ns until they were durable",
    **trace.METERS,
}
READ = (
    "time", "seq", "kind", "origin", "payload", "domain", "ordering", "peer", "hops", "sent", "received", "delivered",
    "done", "out", "commit", "commits", "commit_rows", "commit_bytes",
    "detail",
)  # fmt: skip

Parts = dict[str, files.Ranges]  # records, by incarnation


def update(target: Path) -> int:
    """Make the roll-ups of what an export has anew; returns how many files were read for it.

    Days whose records are gone from the export keep theirs. Raises MomError.
    """
    found: dict[tuple[str, str], list[files.File]] = {}
    for file in files.cover(files.every(target))[0]:
        found.setdefault((file.day, file.server), []).append(file)
    done = 0
    for (day, server), each in sorted(found.items()):
        path = _place(target, day, server)
        old, known = _kept(path)
        there = _parts(each)
        if all(not files.without(ranges, known.get(log, [])) for log, ranges in there.items()):
            continue  # it may know of more: files that are gone since
        new = [file for file in each if not _touches(file, known)]
        whole = [file for file in each if files.without([(file.lo, file.hi)], known.get(file.incarnation, []))]
        if whole != new:
            old, new, known = None, each, {}  # a file has both, old records and new ones
        tables = [_rolled(file) for file in new] + ([old] if old is not None else [])
        made = _summed(pa.concat_tables(tables))
        parts = {log: files.ranges([*known.get(log, []), *there.get(log, [])]) for log in {*known, *there}}
        _write(path, made.replace_schema_metadata({PARTS_KEY: json.dumps(parts).encode()}))
        done += len(new)
    return done


def read(target: Path, since: datetime | None = None, until: datetime | None = None) -> pa.Table:
    """All roll-ups of these hours; only the days' own files are opened. Raises MomError if there are none."""
    first, last = (None if time is None else hour(time) for time in (since, until))
    tables = []
    for path in sorted((target / FOLDER).glob("day=*/server=*.parquet")):
        begin = hour(datetime.fromisoformat(path.parent.name.removeprefix("day=")))
        # The first record of a commit may be younger than the day of its file.
        if (first is None or begin + 48 > first) and (last is None or begin <= last):
            tables.append(_kept(path, strict=True)[0])
    if not tables:
        raise MomError(f"{target} has no records{' of this time' if since or until else ''}; see `mom log export`")
    table = pa.concat_tables(tables)
    if first is not None:
        table = table.filter(pc.greater_equal(table["hour"], first))
    if last is not None:
        table = table.filter(pc.less(table["hour"], last))
    if not table.num_rows:
        raise MomError(f"{target} has no records of this time")
    return table


def hour(time: datetime) -> int:
    """Its number since 1970. Raises MomError for what is no full hour."""
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    number, rest = divmod(round(time.timestamp() * 10**6), HOUR_US)
    if rest:
        raise MomError(
            f"{time:%Y-%m-%dT%H:%M:%S} is no full hour: roll-ups are by the hour; `mom analyze report` is not"
        )
    return number


def _place(target: Path, day: str, server: str) -> Path:
    return target / FOLDER / f"day={day}" / f"server={server}.parquet"


def _parts(each: Iterable[files.File]) -> Parts:
    found: Parts = {}
    for file in each:
        found[file.incarnation] = files.ranges([*found.get(file.incarnation, []), (file.lo, file.hi)])
    return found


def _touches(file: files.File, known: Parts) -> bool:
    """Some of its records are rolled up."""
    return any(lo <= file.hi and file.lo <= hi for lo, hi in known.get(file.incarnation, []))


def _kept(path: Path, strict: bool = False) -> tuple[pa.Table | None, Parts]:
    """A roll-up, and what it is of; nothing where there is none, or one that cannot be read and is made anew."""
    try:
        table = pq.read_table(path, schema=SCHEMA, partitioning=None, page_checksum_verification=True)
        stored = (pq.read_schema(path).metadata or {})[PARTS_KEY]
        return table, {log: [(lo, hi) for lo, hi in ranges] for log, ranges in json.loads(stored).items()}
    except FileNotFoundError:
        return None, {}
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        if strict:
            raise MomError(f"{path} is damaged: delete it, and it is made anew ({error})") from None
        return None, {}


def _write(path: Path, table: pa.Table) -> None:
    draft = path.with_name(f".{path.name}{files.DRAFT}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, draft, compression="zstd", write_page_checksum=True)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        why = os.strerror(error.errno) if error.errno else str(error)
        raise MomError(f"cannot write to {path.parent}, where roll-ups are kept: {why}") from None


def _summed(table: pa.Table) -> pa.Table:
    at = SCHEMA.get_field_index("total")
    table = table.set_column(at, SCHEMA.field("total"), table["total"].cast(SCHEMA.field("total").type))
    made = table.group_by(list(KEY)).aggregate([(name, "sum") for name in SUMS])
    made = made.rename_columns([name.removesuffix("_sum") for name in made.column_names])
    return made.select(SCHEMA.names).cast(SCHEMA).sort_by([(name, "ascending") for name in KEY])


def _rolled(file: files.File) -> pa.Table:
    """What one file of the export says."""
    tables = [SCHEMA.empty_table()]
    with files.reading(file) as part:
        names = [name for name in READ if name in part.schema_arrow.names]
        for batch in part.iter_batches(1 << 17, columns=names):
            tables += list(_figures(pa.Table.from_batches([batch]), file.server))
    return _summed(pa.concat_tables(tables))


def _figures(log: pa.Table, server: str) -> Iterator[pa.Table]:
    """The figures of some records of a server, each hour's rows not yet added up with others."""
    log = log.append_column("hour", pc.divide(log["time"].cast(pa.int64()), HOUR_US))
    none = pa.repeat("", log.num_rows)

    def of(figure: str, rows: pa.Table, total: Any, about: Any = 0, link: bool = False) -> pa.Table:
        count = rows.num_rows
        columns = {
            "hour": rows["hour"], "server": pa.repeat(server, count), "figure": pa.repeat(figure, count),
            **{name: rows[name] if link else none[:count] for name in ("domain", "ordering", "peer")},
            "about": pa.repeat(0, count) if isinstance(about, int) else about, "count": pa.repeat(1, count),
            "total": total,
        }  # fmt: skip
        return _summed(pa.table({name: columns[name] for name in SCHEMA.names}))

    kind = log["kind"]
    yield of("records", log, pa.repeat(0, log.num_rows))
    sends = log.filter(pc.equal(kind, "send"))
    yield of("sends", sends, sends["payload"])
    ended = log.filter(pc.is_in(kind, pa.array(ENDS)))
    for end in ENDS:
        rows = ended.filter(pc.equal(ended["kind"], end))
        yield of(end, rows, rows["payload"])
    came = log.filter(
        pc.and_(
            pc.and_(pc.is_in(kind, pa.array([*ENDS, "forward"])), pc.greater(log["received"], 0)),
            pc.and_(pc.not_equal(log["peer"], ""), pc.not_equal(log["origin"], "")),
        )
    )
    held = _span(came, "received", "delivered")
    yield of("hold", came, held, near(held), link=True)
    passed = log.filter(pc.equal(kind, "forward"))
    yield of("forwards", passed, passed["payload"], link=True)
    reacted = log.filter(pc.equal(kind, "react"))
    for figure, since in (("queue", "delivered"), ("whole", "sent")):
        span = _span(reacted, since, "done")
        yield of(figure, reacted, span, near(span))
    yield of("hops", reacted, reacted["hops"], reacted["hops"])
    heads = log.filter(pc.and_(pc.equal(log["seq"], log["commit"]), pc.is_valid(log["commits"])))
    for figure, what in (("commits", "commit_rows"), ("values", "commit_bytes")):
        made = of(figure, heads, heads[what])
        if figure == "commits":
            made = _counted(made, heads)
        yield made
    durable = log.filter(pc.equal(kind, "commit"))
    span = _span(durable, "sent", "done")
    yield of("commit", durable, span, near(span))
    metered = log.filter(pc.equal(kind, "meter"))
    for figure in trace.METERS:
        rows = metered.filter(pc.equal(metered["detail"], figure))
        yield of(figure, rows, rows["payload"], link=True)
    yield from _packets(log, of)


def _counted(made: pa.Table, heads: pa.Table) -> pa.Table:
    """With the commits that had no record, too."""
    by_hour = heads.group_by("hour").aggregate([("commits", "sum")])
    counts = dict(zip(by_hour["hour"].to_pylist(), by_hour["commits_sum"].to_pylist(), strict=True))
    column = pa.array([counts[each] for each in made["hour"].to_pylist()], pa.int64())
    return made.set_column(made.schema.get_field_index("count"), SCHEMA.field("count"), column)


def _packets(log: pa.Table, of: Any) -> Iterator[pa.Table]:
    rows = log.filter(pc.greater(pc.list_value_length(log["out"]), 0)).select(["hour", "kind", "out"]).combine_chunks()
    if not rows.num_rows:
        return
    out = rows["out"].combine_chunks()
    out = out.chunk(0) if isinstance(out, pa.ChunkedArray) else out
    place, flat = pc.list_parent_indices(out), pc.list_flatten(out)
    packets = pa.table({
        "hour": rows["hour"].take(place), "kind": rows["kind"].take(place),
        **{name: pc.struct_field(flat, name) for name in ("domain", "ordering", "peer", "bytes", "ints")},
    })  # fmt: skip
    yield of("packets", packets, packets["bytes"], link=True)
    yield of("ints", packets, packets["ints"], link=True)
    relays = packets.filter(pc.equal(packets["kind"], "relay"))
    yield of("relays", relays, relays["bytes"], link=True)


def _span(rows: pa.Table, first: str, last: str) -> pa.Array:
    """ns from one station to another, not below 0; 0 where it did not pass the first."""
    a, b = (rows[name].to_numpy() for name in (first, last))
    return pa.array(np.where(a > 0, np.maximum(b - a, 0), 0))


def near(times: Any) -> pa.Array:
    """As cost.near has it: the first BITS bits of times that are not below 0, in the middle of all that begin so."""
    values = np.asarray(times, np.int64)
    cut = np.maximum(np.floor(np.log2(np.maximum(values, 1))).astype(np.int64) - (BITS - 1), 0)
    step = np.left_shift(np.int64(1), cut)
    return pa.array(values - values % step + np.right_shift(step, 1))
