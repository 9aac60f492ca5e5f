"""Where a server keeps its rows: `open` makes or opens the SQLite store of one server; `memory` is the simulator's.

SQLite is loaded by the functions that need it, so that the simulator starts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mombroker.core.meta import APPLIED
from mombroker.store.base import Store
from mombroker.store.folder import token

if TYPE_CHECKING:
    from mombroker.core.topology import Server, Topology
    from mombroker.store.reader import SqliteReader
    from mombroker.store.salvaging import Lines
    from mombroker.store.sqlite import SqliteStore

__all__ = ["Store", "accept", "backup", "compact", "folder_of", "open", "read", "salvage", "token", "verify"]


def open(path: str | PathLike[str], topology: Topology, server: str, *, adopt: bool = False) -> SqliteStore:
    """The store of `server` in the data folder `path`, made if there is none, locked until it is closed.

    With `adopt` it may have been made under another order: the caller is about to write the new one.
    Raises StoreError, in one sentence, for a store that this server cannot or must not use.
    """
    from mombroker.store.sqlite import SqliteStore

    return SqliteStore(path, topology, server, adopt=adopt)


def read(path: str | PathLike[str]) -> SqliteReader:
    """The committed rows of a store (a data folder or a backup), also while its server runs."""
    from mombroker.store.reader import SqliteReader

    return SqliteReader(path)


def folder_of(server: Server) -> str:
    """Where to read what a server has; of one with replicas that of this machine whose rows are the newest."""
    kept = [view.data for view in server.views() if not (view.replica and view.place.witness)]
    return max(kept, key=_applied) if server.replicas and not server.replica else server.data


def _applied(path: str) -> int:
    """The entry that the rows of a replica are as of; -1: there are none, or they cannot be read."""
    from mombroker.core.errors import StoreError

    try:
        with closing(read(path)) as found:
            return int(found.meta(APPLIED).get(APPLIED, 0))
    except StoreError:
        return -1


def verify(path: str | PathLike[str]) -> list[str]:
    """What is wrong with a store (a data folder or a backup), one sentence a fault; its server may run."""
    from mombroker.store import check

    return check.verify(path)


def accept(path: str | PathLike[str]) -> str:
    """Let the next start of a stopped server go on with the store in its data folder as it is, though it lacks what
    the server had written, or is gone. Returns what that will be. Raises StoreError while the server runs."""
    from mombroker.store import mark

    return mark.accept(Path(path))


def salvage(path: str | PathLike[str], lines: Lines | None = None) -> Iterator[dict[str, Any]]:
    """What can be read of the messages in a store, damaged or not; see salvaging.py. Raises StoreError."""
    from mombroker.store import salvaging

    return salvaging.salvage(path, lines)


def compact(path: str | PathLike[str]) -> tuple[int, int]:
    """Make the store of a stopped server as small as what it holds; (bytes before, bytes after).

    Raises StoreError: its server runs, it is damaged, or there is no room for the copy that is made on the way.
    """
    from mombroker.store import check

    return check.compact(Path(path))


def backup(
    path: str | PathLike[str], target: str | PathLike[str], progress: Callable[[int, int], None] | None = None
) -> None:
    """Copy a store, as of one commit, into the new file `target`; its server may run.

    `progress` is told (pages done, pages in all). Raises StoreError.
    """
    from mombroker.store import check

    check.backup(path, target, progress)
