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
    if not found:
        raise MomError(f"{path} leads to no store on this machine; name a topology file or a folder of data folders")
    return found


def read(path: Path) -> "dict[str, SqliteReader]":
    return {server: store.read(data) for server, data in find(path).items()}
