"""Which stores a path means: those of a topology file, that of a data folder, those of the data folders in a folder."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from mombroker import store
from mombroker.core.errors import MomError, StoreError, StoreFailed
from mombroker.core.meta import SERVER
from mombroker.store import columns
from mombroker.store.folder import STORE
from mombroker.store.reader import REPAIR, Commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from mombroker.core.topology import Topology
    from mombroker.store.reader import SqliteReader

WRITTEN = (int, int, int, int, bytes)  # what a server writes in a row of the log, and then
COUNTED = ((int, int, int), (type(None),) * 3)
SOUND = {WRITTEN + each for each in COUNTED}
LAST = 1 << 62  # above every sequence


def find(
    path: Path, topology: "Topology | None" = None, refused: "Callable[[Path, StoreError], None] | None" = None
) -> dict[str, Path]:
    """The stores on this machine by their servers' names. Raises MomError if there are none, or two of one server.

    `refused` hears of each store that cannot be read: without it that is raised, with it the others are found.
    """
    found: dict[str, Path] = {}
    broken = False
    for name, data in _places(path, topology):
        try:
            with contextlib.closing(store.read(data)) as reader:
                server = str(reader.meta()[SERVER])
                if name:
                    check_owner(reader, name, data)
        except (StoreError, StoreFailed) as error:
            if refused is None:
                raise
            refused(data, StoreError(str(error)))
            broken = True
            continue
        if server in found:
            raise MomError(
                f"{found[server]} and {data} are both the store of server {server}: move the one that is a copy out of "
                "this folder"
            )
        found[server] = data
    if not found and not broken:
        raise MomError(f"{path} leads to no store on this machine; name a topology file or a folder of data folders")
    return found


def _places(path: Path, topology: "Topology | None") -> list[tuple[str, Path]]:
    """The data folders that hold a store, each with its server's name in the topology file, if that is given."""
    if path.is_dir():
        return [("", each) for each in within(path)]
    if topology is None:
        from mombroker.net import config

        topology = config.load(path)
    there = [(server.name, Path(store.folder_of(server))) for server in topology.servers.values()]
    return [(name, data) for name, data in there if (data / STORE).exists()]


def within(path: Path) -> list[Path]:
    """The data folders that a folder leads to: itself, or those in it."""
    return [path] if (path / STORE).exists() else sorted(each.parent for each in path.glob(f"*/{STORE}"))


def commits(reader: "SqliteReader", after: int, upto: int, limit: int) -> list[Commit]:
    """As the reader has them. Raises MomError for a row that no server wrote."""
    found = reader.commits(after, upto, limit)
    for commit in found:
        if tuple(map(type, commit)) not in SOUND or commit.records < 1:
            raise damaged(reader, f"record {commit.id}", f"{_fault(commit)} in its row of the log")
    return found


def _fault(commit: Commit) -> str:
    wanted = dict(zip(Commit._fields, WRITTEN, strict=False))
    for name, value in commit._asdict().items():
        column = "count" if name == "records" else name
        if not isinstance(value, wanted.get(name, (int, type(None)))):
            return f"{column} is {'NULL' if value is None else type(value).__name__}"
    return f"count is {commit.records}" if commit.records < 1 else "one of commits, rows and bytes is NULL"


def damaged(reader: "SqliteReader", which: str, why: str) -> MomError:
    return MomError(f"{which} of the store of {reader.meta()[SERVER]} is damaged ({reader.path}: {why}); {REPAIR}")


def check_owner(reader: "SqliteReader", name: str, data: Path | str) -> None:
    """Raises MomError if this is another server's store."""
    if (owner := str(reader.meta()[SERVER])) != name:
        raise MomError(
            f"{data} is the store of server {owner}, not of {name}: a server cannot be renamed; call it {owner} in the "
            f"topology file, or give {name} a folder of its own"
        )


def read_before(reader: "SqliteReader", mark: int, last: int) -> bool:
    """Whether the record that was read as number `mark`, written at `last` (us), is still that one, or went in time.
    `last` may also be when its commit was, which can be later: another event without a record was in it.

    It is not in a store that was restored from a backup: what this wrote since has the same numbers again.
    """
    if mark == 0:
        return True
    found = commits(reader, reader.commit_before(mark), mark, 1)
    if not found:
        return reader.log_end() > mark
    (commit,) = found
    if commit.id + commit.records - 1 != mark:
        return False
    if commit.last // 1000 == last:
        return True
    try:
        return columns.time(columns.unpack(commit.columns, commit.records)[-1]) // 1000 == last
    except ValueError as error:
        raise damaged(reader, f"record {commit.id}", str(error)) from None


def read(path: Path) -> "dict[str, SqliteReader]":
    return {server: store.read(data) for server, data in find(path).items()}
