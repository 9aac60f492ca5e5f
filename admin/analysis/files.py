"""Where exported records lie, and which files hold each of them once.

    DIR/day=2026-03-01/server=paris/a3aee61984750b7a-000000000001-000000250000.parquet

holds the records 1 to 250000, no more and no less, of the store whose incarnation is a3aee61984750b7a. A file appears
under such a name only when it is whole and on disk, so the names alone say what is exported: there is no other mark.

    DIR/.exported/paris-a3aee61984750b7a

remembers which records the names have ever told of, so that a file that is gone since is missed.
"""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mombroker.admin.analysis import schema
from mombroker.core.errors import MomError
from mombroker.store import folder

if TYPE_CHECKING:
    import pyarrow.parquet as pq

NAME = re.compile(r"(\w+)-(\d+)-(\d+)\.parquet")
DRAFT = (
    ".draft"  # the end of the name of a file that is being written; with a leading dot, so that Spark passes over it
)
KNOWN = ".exported"  # the folder of what has been exported, a file for each store
SPARE_SECONDS = 3600.0  # that the parts of a joined file stay for those who read them
FIRST_SENT = "mombroker.first_sent"  # in a file's metadata: when the first message that it is about was sent, ns
RELAYS = "mombroker.relays"  # likewise: records of kind `relay`
LATE_SECONDS = 60.0  # that a record is written after its message was sent, if it does not say when that was
ALWAYS = schema.NAMES[1 : schema.NAMES.index("commits")]  # columns that each file has, of whatever version


class File(NamedTuple):
    server: str
    incarnation: str
    lo: int  # first record
    hi: int  # last one
    day: str  # UTC, of the commits
    path: Path

    @property
    def log(self) -> tuple[str, str]:
        return self.server, self.incarnation

    @property
    def records(self) -> int:
        return self.hi - self.lo + 1


def place(target: Path, server: str, incarnation: str, lo: int, hi: int, day: str) -> File:
    name = f"{incarnation}-{lo:012}-{hi:012}.parquet"
    return File(server, incarnation, lo, hi, day, target / f"day={day}" / f"server={server}" / name)


def is_export(target: Path) -> bool:
    return next(target.glob("day=*/server=*"), None) is not None


def every(target: Path, server: str = "*") -> list[File]:
    """All files that are whole, or those of a server, in order of server, store and records.

    A listing sees some of what comes and goes while it is made, and so perhaps neither a joined file nor its parts, or
    a file and none of before it. Two that are equal have what was there between them.
    """
    found, before = _listed(target, server), None
    while found != before:
        found, before = _listed(target, server), found
    return found


def _listed(target: Path, server: str) -> list[File]:
    found = [named(path) for path in target.glob(f"day=*/server={server}/*.parquet")]
    return sorted(file for file in found if file)


def named(path: str | Path) -> File | None:
    """What a name says; nothing, if it is not one of ours."""
    path = Path(path)
    if name := NAME.fullmatch(path.name):
        day, server = path.parts[-3].removeprefix("day="), path.parts[-2].removeprefix("server=")
        return File(server, name[1], int(name[2]), int(name[3]), day, path)
    return None


def cover(files: Iterable[File]) -> tuple[list[File], list[File]]:
    """The files to read, which hold each record once, and those whose records are all in one of these.

    Both are there from when a compacted file is whole until the files that it was made of are gone. Raises MomError
    where two files share records otherwise, as those of two exports do that were copied into one folder.
    """
    chosen: list[File] = []
    spare: list[File] = []
    for file in sorted(files, key=lambda file: (*file.log, file.lo, -file.hi)):
        if chosen and chosen[-1].log == file.log and file.hi <= chosen[-1].hi:
            spare.append(file)
        elif chosen and chosen[-1].log == file.log and file.lo <= chosen[-1].hi:
            raise MomError(
                f"{chosen[-1].path} and {file.path} both hold the records {file.lo} to {chosen[-1].hi} of "
                f"{file.server}, as parts of two exports: keep the files of one of them"
            )
        else:
            chosen.append(file)
    return chosen, spare


def chosen(target: Path) -> list[File]:
    """The files of an export that hold each record once. Raises MomError if there are none."""
    found, _ = cover(every(target))
    if not found:
        raise MomError(f"there are no exported records in {target}; `mom log export --to {target}` writes them")
    return found


class Times(NamedTuple):
    """What a file says of the times of its records, ns; None: it does not say."""

    first: float  # written
    last: float
    sent: int | None  # the first message that it is about; 0: it is about none
    relays: bool  # it may have records of kind `relay`


def times(file: File) -> Times | None:
    with reading(file) as part:
        about = part.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        names = [groups[0].column(at).path_in_schema for at in range(about.num_columns)]
        written = [group.column(names.index("time")).statistics for group in groups]
        said = about.metadata or {}
    if not all(each is not None and each.has_min_max for each in written):
        return None
    first, last = min(each.min for each in written), max(each.max for each in written)
    sent, relays = (said.get(key.encode()) for key in (FIRST_SENT, RELAYS))
    return Times(first.timestamp() * 1e9, last.timestamp() * 1e9, None if sent is None else int(sent), relays != b"0")


def of_time(found: Iterable[File], since: int | None, until: int | None) -> tuple[list[File], bool]:
    """Those of these files that may have records of messages which were sent at `since` or later and before `until`
    (ns), and whether there may be relays among them. Of a file that does not tell its times, all is possible."""
    late = int(LATE_SECONDS * 1e9)
    chosen, relays = [], False
    for file in since_day(found, since):
        about = times(file)
        if about is None or _of_time(about, since, until, late):
            chosen.append(file)
            relays = relays or about is None or about.relays
    return chosen, relays


def since_day(found: Iterable[File], since: int | None) -> list[File]:
    """Those whose days may have records of messages that were sent at `since` (ns) or later."""
    if since is None:
        return list(found)
    first = datetime.fromtimestamp((since - int(LATE_SECONDS * 1e9)) // 10**9 - 86_400, UTC)
    return [file for file in found if file.day >= f"{first:%Y-%m-%d}"]


def _of_time(about: Times, since: int | None, until: int | None, late: int) -> bool:
    if since is not None and about.last < since - late:
        return False
    return until is None or about.first <= until + late or about.sent is None or 0 < about.sent < until + late


Ranges = list[tuple[int, int]]  # of records, first and last, in order and without touching each other


def ranges(parts: Iterable[tuple[int, int]]) -> Ranges:
    """All records of these."""
    found: Ranges = []
    for lo, hi in sorted(parts):
        if found and lo <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(hi, found[-1][1])
        else:
            found.append((lo, hi))
    return found


def without(wanted: Ranges, there: Ranges) -> Ranges:
    """What of these records is not there."""
    found: Ranges = []
    for lo, hi in wanted:
        for begin, end in there:
            if end >= lo and begin <= hi:
                if begin > lo:
                    found.append((lo, begin - 1))
                lo = end + 1
        if lo <= hi:
            found.append((lo, hi))
    return found


def note(target: Path, log: tuple[str, str]) -> None:
    """Remember what is exported of a store."""
    path = _known_at(target, *log)
    there = [(file.lo, file.hi) for file in every(target, log[0]) if file.log == log]
    old = _known(path)
    if (new := ranges([*old, *there])) != old:
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}{DRAFT}")
        draft.write_text(json.dumps(new))
        draft.replace(path)


def _known_at(target: Path, server: str, incarnation: str) -> Path:
    return target / KNOWN / f"{server}-{incarnation}"


def _known(path: Path) -> Ranges:
    try:
        return [(int(lo), int(hi)) for lo, hi in json.loads(path.read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        raise MomError(f"{path} is damaged: delete it, and the next export makes it anew") from None


def holes(target: Path) -> list[str]:
    """A sentence on each run of records that has been exported and is in no file any more, and on each that is missing
    between two files. Raises MomError for a file that is damaged."""
    there: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for file in cover(every(target))[0]:
        with reading(file):
            there[file.log].append((file.lo, file.hi))
    known: dict[tuple[str, str], Ranges] = {}
    for path in (target / KNOWN).glob("[!.]*"):
        server, _, incarnation = path.name.rpartition("-")
        known[server, incarnation] = _known(path)
    found = []
    for log in sorted({*there, *known}):
        have = ranges(there.get(log, []))
        span = [(have[0][0], have[-1][1])] if have else []
        gone = without(known.get(log) or span, have)
        found += [
            f"the records {lo} to {hi} of {log[0]} are in no file of {target}: put back the file that had them (its "
            f"name has {log[1]}), or delete {target / KNOWN} if they were to go"
            for lo, hi in gone
        ]
        found += [
            f"the records {lo} to {hi} of {log[0]} were not in its log when that was exported: `mom store verify` says "
            "whether its store is damaged"
            for lo, hi in without(span, ranges([*have, *gone]))
        ]
    return found


def marks(files: Iterable[File]) -> dict[tuple[str, str], int]:
    """The last record that is exported of each store."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for file in files:
        found[file.log] = max(found[file.log], file.hi)
    return found


@contextmanager
def reading(file: File) -> "Iterator[pq.ParquetFile]":
    """A file of an export, opened. Raises MomError when it is damaged, or another file under such a name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path, page_checksum_verification=True) as part:
            if part.metadata.num_rows != file.records:
                raise pa.ArrowInvalid(f"it has {part.metadata.num_rows} records, and by its name {file.records}")
            if missing := [name for name in ALWAYS if name not in part.schema_arrow.names]:
                raise pa.ArrowInvalid(f"it has no column {missing[0]}")
            yield part
    except (pa.ArrowException, OSError, UnicodeError) as error:
        if getattr(error, "errno", None):  # the disk's, or that of another file
            raise
        raise MomError(
            f"{file.path} is damaged ({str(error).partition(chr(10))[0]}); put a copy in its place, or delete it and "
            f"the later files of {file.server}, and export again"
        ) from None


def verify(file: File) -> None:
    """Read all of a file. Raises MomError when it is damaged."""
    with reading(file) as part:
        for _ in part.iter_batches(1 << 16):
            pass


def publish(draft: Path, file: File) -> None:
    """A file that is whole gets its name; both survive a power failure."""
    fd = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    draft.rename(file.path)
    folder.sync(file.path.parent)


def tidy(target: Path, spare_seconds: float = SPARE_SECONDS) -> None:
    """Remove what a run that was cut off has left, and the parts of files that were joined so long ago."""
    for path in [*target.glob(f"day=*/server=*/.*{DRAFT}"), *target.glob(f"{KNOWN}/.*{DRAFT}")]:
        path.unlink()
    chosen, spare = cover(every(target))
    for file in spare:
        joined = next(each for each in chosen if each.log == file.log and each.lo <= file.lo and file.hi <= each.hi)
        if time.time() - joined.path.stat().st_mtime >= spare_seconds:
            folder.sync(joined.path.parent)  # who gave it its name may have died before
            file.path.unlink()
