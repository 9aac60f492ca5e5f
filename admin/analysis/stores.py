"""Which stores a path means: those of a topology file, that of a data folder, those of the data folders in a folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from mombroker import store
from mombroker.core.errors import MomError
from mombroker.store.folder import STORE

if TYPE_CHECKING:
    from mombroker.core.topology import Topology
    from mombroker.store.reader import SqliteReader


def find(path: Path, topology: "Topology | None" = None) -> dict[str, Path]:
    """The stores on this machine by their servers' names. Raises MomError if there are none."""
    if path.is_dir():
        folders = [path] if (path / STORE).exists() else sorted(each.parent for each in path.glob(f"*/{STORE}"))
        found = {}
        for each in folders:
            reader = store.read(each)
            found[str(reader.meta()["server"])] = each
            reader.close()
    else:
        if topology is None:
            from mombroker.net import config

            topology = config.load(path)
        there = {server.name: Path(server.data) for server in topology.servers.values()}
        found = {name: data for name, data in there.items() if (data / STORE).exists()}
        for name, data in found.items():
            reader = store.read(data)
            check_owner(reader, name, data)
            reader.close()
    if not found:
        raise MomError(f"{path} leads to no store on this machine; name a topology file or a folder of data folders")
    return found


def check_owner(reader: "SqliteReader", name: str, data: Path | str) -> None:
    """Raises MomError if this is another server's store."""
    if (owner := str(reader.meta()["server"])) != name:
        raise MomError(
            f"{data} is the store of server {owner}, not of {name}: a server cannot be renamed; call it {owner} in the "
            f"topology file, or give {name} a folder of its own"
        )


def read_before(reader: "SqliteReader", mark: int, last: int) -> bool:
    """Whether the record that was read as number `mark`, written at `last` (us), is still that one, or went in time.

    It is not in a store that was restored from a backup: what this wrote since has the same numbers again.
    """
    if mark == 0:
        return True
    commits = reader.commits(reader.commit_before(mark), mark, 1)
    if commits:
        return commits[0].id + commits[0].records - 1 == mark and commits[0].last // 1000 == last
    return reader.log_end() > mark


def read(path: Path) -> "dict[str, SqliteReader]":
    return {server: store.read(data) for server, data in find(path).items()}
