"""Logs to Parquet: incrementally, while the servers run, so that a run cut off anywhere loses and doubles nothing.

1. A record is exported if and only if it is within the range of a file's name (files.py).
2. One run at a time works on a target.
3. A store is told of its mark only after what the mark covers is on disk: from then on it may let the records go.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mombroker.admin.analysis import files, schema
from mombroker.admin.analysis.rows import PAGE, RECORDS, Columns, uncollected
from mombroker.admin.analysis.stores import LAST, commits, read_before, within
from mombroker.core.errors import MomError, StoreFailed
from mombroker.core.meta import INCARNATION, LOST

if TYPE_CHECKING:
    from mombroker.store.reader import SqliteReader

FILE_RECORDS = 1 << 20  # a file has about so many at most
JOINED = 16  # small files become one
GROUP_RECORDS = 1 << 15  # of a row group: what lies outside of a window's is not read
NUMBERS = ("seq", "time", "number", "commit", "sent", "received", "delivered", "done")  # mostly near the one before
REPEATED = (
    "server", "incarnation", "kind", "origin", "agent", "dests.list.element", "domain", "ordering", "peer", "detail",
    "payload", "hops", "version", "commit_records", "commits", "commit_rows", "commit_bytes",
    *(f"out.list.element.{name}" for name in ("domain", "ordering", "peer", "bytes", "ints")),
    "missing.list.element.member",
)  # fmt: skip
IN_FILES = tuple(name for name in schema.NAMES if name != "server")  # which is in the path, as Spark wants it

DAY_NS = 86_400 * 10**9


class Exported(NamedTuple):
    server: str
    records: int  # in this run
    files: int
    mark: int  # the last record that is exported now
    gap: int  # records that were gone before this run could export them
    lost: int  # in all, by the store's own count: records that went since `max_bytes` left no room
    holes: list[str]  # runs of records that are missing in this log, and none of these rules let go


def export(
    stores: Mapping[str, "SqliteReader"],
    target: Path,
    progress: Callable[[int], None] = lambda _: None,
    refused: Callable[[MomError | StoreFailed], None] | None = None,
) -> Iterator[Exported]:
    """Write to the folder `target` what is in these stores' logs and not there yet; one result a store.

    `progress` hears the number of records written so far, and `refused` why a store could not be exported: without it
    that is raised, with it the stores after that are exported. Raises MomError.
    """
    if within(target):
        raise MomError(
            f"there are stores in {target}, and whoever reads it would find the export in their place; export to "
            f"another folder, {target / 'exported'} for example"
        )
    with _alone(target):
        files.tidy(target)
        marks, done = files.marks(files.every(target)), 0
        for server, store in stores.items():
            try:
                with uncollected():
                    result = _export(server, store, target, marks, partial(_further, progress, done))
            except (MomError, StoreFailed) as error:
                if refused is None:
                    raise
                refused(error)
                continue
            done += result.records
            yield result


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    try:
        target.mkdir(parents=True, exist_ok=True)
        fd = os.open(target / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise MomError(f"cannot write to {target}: {error.strerror}; name a folder of yours") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise MomError(f"another export or compaction is writing to {target}; let it end first") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise MomError(f"cannot write to {target}: {why}; see to that, and run it again: nothing is lost") from None
    finally:
        os.close(fd)


def _further(progress: Callable[[int], None], done: int, count: int) -> None:
    progress(done + count)


def _export(
    server: str, store: "SqliteReader", target: Path, marks: dict[tuple[str, str], int], progress: Callable[[int], None]
) -> Exported:
    meta = store.meta()
    incarnation = str(meta[INCARNATION])
    mark, end = marks.get((server, incarnation), 0), store.log_end()
    if mark and not read_before(store, mark, _written(target, server, incarnation, mark)):
        raise MomError(
            f"the store of {server} ends at record {end}, and record {mark}, which is exported, is not in it: it was "
            "restored from a backup; export to a new folder"
        )
    commits(store, end, LAST, 1)  # a row whose count is no number is behind this end
    columns, file, records, made, gap = Columns(store, IN_FILES), None, 0, 0, 0
    kept = store.commit_before(1)  # what is missing after this did not go by the rules of [log]
    holes = []
    try:
        while page := commits(store, mark, end, PAGE):
            for commit in page:
                day = _day(commit.last // DAY_NS)
                if file and (commit.id != mark + 1 or day != file.day or file.count >= FILE_RECORDS):
                    file.add(columns)
                    file.close(mark)
                    file = None
                if commit.id != mark + 1:
                    gap += commit.id - mark - 1
                    if mark > kept:
                        holes.append(f"{mark + 1} to {commit.id - 1}")
                if file is None:
                    file = _Draft(target, server, incarnation, commit.id, day)
                    made += 1
                if not columns.fits(commit):
                    file.add(columns)
                columns.add(commit)
                if columns.count >= RECORDS:
                    file.add(columns)
                mark = commit.id + commit.records - 1
                records += commit.records
            progress(records)
        if file:
            file.add(columns)
            file.close(mark)
    finally:
        if file:
            file.abandon()
    _join_last(target, (server, incarnation))
    files.note(target, (server, incarnation))
    return Exported(server, records, made, mark, gap, int(meta.get(LOST, 0)), holes)


@lru_cache
def _day(number: int) -> str:
    """UTC, so many days after 1970-01-01."""
    return f"{datetime.fromtimestamp(number * DAY_NS / 1e9, UTC):%Y-%m-%d}"


def _join_last(target: Path, log: tuple[str, str]) -> None:
    """Join the last files of a store once they are JOINED or more, each at most twice as large as all that follow it:
    so a record is written a few times in all, and the files of a day stay few, however often the export runs.

    The parts stay for an hour, for those who read them; files.cover passes over them.
    """
    whole = [file for file in files.cover(files.every(target, log[0]))[0] if file.log == log]
    run: list[files.File] = []
    for file in reversed(whole):
        records = sum(each.records for each in run)
        near = not run or (file.day == run[0].day and file.hi + 1 == run[0].lo)
        if not near or records + file.records > FILE_RECORDS or (run and file.records > 2 * records):
            break
        run.insert(0, file)
    if len(run) >= JOINED and not any(map(_newer, run)):
        _join(target, run)


def _written(target: Path, server: str, incarnation: str, mark: int) -> int:
    """When the last record that is exported was written, us."""
    last = [each for each in files.every(target, server) if (*each.log, each.hi) == (server, incarnation, mark)]
    with files.reading(last[0]) as part:
        times = part.read_row_group(part.num_row_groups - 1, columns=["time"]).column(0)
    return int(times.cast(pa.int64())[-1].as_py())


class _Draft:
    """A file that is being written; nobody sees it before it is whole."""

    def __init__(self, target: Path, server: str, incarnation: str, lo: int, day: str):
        self.target, self.server, self.incarnation, self.lo, self.day = target, server, incarnation, lo, day
        folder = files.place(target, server, incarnation, lo, lo, day).path.parent
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f".{incarnation}-{lo}{files.DRAFT}"
        self.writer = pq.ParquetWriter(
            self.path, schema.arrow(IN_FILES), compression="zstd", use_dictionary=list(REPEATED),
            column_encoding=dict.fromkeys(NUMBERS, "DELTA_BINARY_PACKED"), write_page_index=False,
            write_page_checksum=True,
        )  # fmt: skip
        self.count = 0
        self.first_sent = 0  # ns, of all messages that its records are about; 0: of none
        self.relays = 0
        self.waiting: list[pa.RecordBatch] = []
        self.held = 0

    def add(self, columns: Columns) -> None:
        """What was collected; it is written once it is enough for a row group."""
        if columns.count:
            self.put(columns.take())

    def put(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        sent = batch.column("sent").to_numpy()
        self.first_sent = min(sent[sent > 0].min(initial=self.first_sent or LAST), LAST) % LAST
        self.relays += pc.sum(pc.equal(batch.column("kind"), "relay")).as_py() or 0
        self.count += batch.num_rows
        self.held += batch.num_rows
        if self.held >= GROUP_RECORDS:
            self._write()

    def _write(self) -> None:
        if self.waiting:
            table = pa.Table.from_batches(self.waiting)
            self.writer.write_table(table, row_group_size=table.num_rows)
            self.waiting, self.held = [], 0

    def close(self, hi: int) -> None:
        self._write()
        self.writer.add_key_value_metadata({files.FIRST_SENT: str(self.first_sent), files.RELAYS: str(self.relays)})
        self.writer.close()
        file = files.place(self.target, self.server, self.incarnation, self.lo, hi, self.day)
        assert self.count == file.records, "a file holds what its name says"
        files.publish(self.path, file)

    def abandon(self) -> None:
        try:
            self.writer.close()
        finally:
            self.path.unlink(missing_ok=True)


# -- compaction --------------------------------------------------------------------------------------------------------


class Compacted(NamedTuple):
    server: str
    day: str
    records: int
    before: int  # files
    after: int


def compact(target: Path, spare_seconds: float = files.SPARE_SECONDS) -> Iterator[Compacted]:
    """Join the files of each day that is over: one that the same store has later records than.

    1. A joined file is whole and on disk, under its name, before the first of its parts goes.
    2. Its parts stay for `spare_seconds`: whoever had chosen them by then reads them to their end, and each record
       once, as who chooses later does (`files.cover`). The first export or compaction after that removes them.
    3. So at any moment, also that of a kill -9, each record is in the files that `files.chosen` gives, once.
    """
    if not files.is_export(target):
        raise MomError(
            f"there are no exported records in {target}; name the folder that `mom log export --to` wrote to"
        )
    with _alone(target):
        files.tidy(target, spare_seconds)
        found = files.cover(files.every(target))[0]
        for log in {file.log for file in found}:
            files.note(target, log)
        newest = {log: max(file.day for file in each) for log, each in groupby(found, key=lambda file: file.log)}
        over = [file for file in found if file.day < newest[file.log]]
        for (server, _, day), each in groupby(over, key=lambda file: (*file.log, file.day)):
            before = list(each)
            after = [_join(target, run) for run in _runs(before)]
            if len(after) < len(before):
                yield Compacted(server, day, sum(file.records for file in before), len(before), len(after))
        files.tidy(target, spare_seconds)


def _runs(parts: list[files.File]) -> Iterator[list[files.File]]:
    """Neighbours without a gap, of which each becomes one file."""
    run: list[files.File] = []
    for file in parts:
        if run and (file.lo != run[-1].hi + 1 or file.hi - run[0].lo >= FILE_RECORDS or _newer(file)):
            yield run
            run = []
        run.append(file)
        if _newer(file):
            yield run
            run = []
    if run:
        yield run


def _newer(file: files.File) -> bool:
    """It has columns that this program does not know, and would lose."""
    with files.reading(file) as part:
        return int((part.schema_arrow.metadata or {}).get(schema.VERSION_KEY, 0)) > schema.VERSION


def _join(target: Path, run: list[files.File]) -> files.File:
    """What these hold, in one file beside them."""
    first, last = run[0], run[-1]
    if len(run) == 1:
        return first
    draft = _Draft(target, *first.log, first.lo, first.day)
    try:
        for file in run:
            with files.reading(file) as part:
                for batch in part.iter_batches(RECORDS):
                    draft.put(_widened(batch))
        draft.close(last.hi)
    finally:
        draft.abandon()
    return files.place(target, *first.log, first.lo, last.hi, first.day)


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With nulls in the columns that are younger than its file."""
    wanted = schema.arrow(IN_FILES)
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in wanted
    ]
    return pa.record_batch(columns, schema=wanted)
