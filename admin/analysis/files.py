"""Where exported records lie, and which files hold each of them once.

    DIR/day=2026-03-01/server=paris/a3aee61984750b7a-000000000001-000000250000.parquet

holds the records 1 to 250000, no more and no less, of the store whose incarnation is a3aee61984750b7a. A file appears
under such a name only when it is whole and on disk, so the names alone say what is exported: there is no other mark.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


def every(target: Path) -> list[File]:
    """All files that are whole, in order of server, store and records."""
    found = []
    for path in target.glob("day=*/server=*/*.parquet"):
        if name := NAME.fullmatch(path.name):
            day, server = path.parts[-3].removeprefix("day="), path.parts[-2].removeprefix("server=")
            found.append(File(server, name[1], int(name[2]), int(name[3]), day, path))
    return sorted(found)


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
        with pq.ParquetFile(file.path) as part:
            if part.metadata.num_rows != file.records:
                raise pa.ArrowInvalid(f"it has {part.metadata.num_rows} records, and by its name {file.records}")
            if missing := [name for name in ALWAYS if name not in part.schema_arrow.names]:
                raise pa.ArrowInvalid(f"it has no column {missing[0]}")
            yield part
    except (pa.ArrowException, OSError) as error:
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


def tidy(target: Path) -> None:
    """Remove what a run that was cut off has left."""
    for path in target.glob(f"day=*/server=*/.*{DRAFT}"):
        path.unlink()
    for file in cover(every(target))[1]:
        file.path.unlink()
