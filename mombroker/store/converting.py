"""The store of a server, and those of its replicas: the one becomes the other while it is stopped, when a server gets
replicas, or has none any more; and what the next leader will have can be read before it leads."""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from typing import TYPE_CHECKING

from mombroker.core.batch import Batch
from mombroker.core.errors import StoreError
from mombroker.core.meta import APPLIED, CLEAN, CUT, REPLICA, TERM, VOTE
from mombroker.core.raft.log import Log
from mombroker.core.raft.messages import Members
from mombroker.store import check
from mombroker.store.folder import STORE
from mombroker.store.reader import SqliteReader
from mombroker.store.replica import ReplicaStore
from mombroker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mombroker.core.topology import Topology

SUMS = "SELECT idx, sum FROM replica_log WHERE idx <= ?"
STEP_BYTES = 1 << 20  # of entries that become rows at once


def begin(folder: Path, topology: Topology, server: str, replica: str) -> str:
    """The store of a server without replicas is that of its only replica from now on: what it has is what the others
    get first. The id of the replica's store. Raises StoreError."""
    if not (folder / STORE).exists():
        raise StoreError(f"{folder} has no store: let `data` of {replica} name the folder that {server} has had so far")
    with closing(SqliteStore(folder, topology, server)) as store:
        meta = store.meta()
        if CLEAN not in meta:
            raise StoreError(f"{folder} has nothing yet: replicas of a new server begin by themselves, with `mom up`")
        id, term = new_id(replica), int(meta.get(TERM, 0))
        cut = json.dumps([1, term, Members((id,))])
        store.commit(Batch(meta={CUT: cut, APPLIED: 1, TERM: term, VOTE: "", REPLICA: id}))
    return id


def end(folder: Path, topology: Topology, server: str) -> None:
    """The store of the only replica of a server is that of a server without replicas from now on. Raises StoreError."""
    if not (folder / STORE).exists():
        raise StoreError(f"{folder} has no store")
    with closing(ReplicaStore(folder, topology, server)) as store:
        members = Log(store, STEP_BYTES).members
        if members.all != (store.id,):
            others = ", ".join(id for id in members.all if id != store.id) or "no member yet"
            raise StoreError(f"{folder} is not of the only replica ({others}): `mom replica remove` the others first")
        _apply_all(store)  # nobody else decides
        store.leave()


def as_next_leader(folders: Iterable[Path], topology: Topology, server: str, target: Path) -> Path:
    """Of the stores of replicas that are not led now: a copy, in the folder `target`, of the one whose log ends last,
    with all of it in the rows. That store itself where it has that already. Raises StoreError."""
    best = max(folders, key=_end)
    if _end(best)[1] == _applied(best):
        return best
    check.backup(best, target / STORE)
    with closing(ReplicaStore(target, topology, server)) as store:
        _apply_all(store)
    return target


def differing(one: Path, other: Path) -> int:
    """The first entry that two replicas both hold for decided and that is not the same; 0: there is none. Raises
    StoreError."""
    last = min(_applied(one), _applied(other))
    with closing(SqliteReader(one)) as a, closing(SqliteReader(other)) as b:
        ours: dict[int, int] = dict(a.select(SUMS, last))
        theirs: dict[int, int] = dict(b.select(SUMS, last))
    return min((index for index in ours.keys() & theirs.keys() if ours[index] != theirs[index]), default=0)


def _end(folder: Path) -> tuple[int, int]:
    """Of the log: the term and the index of its last entry."""
    with closing(SqliteReader(folder)) as store:
        found = store.select("SELECT term, idx FROM replica_log ORDER BY idx DESC LIMIT 1")
        if found:
            return found[0][0], found[0][1]
        meta = store.meta(CUT)
    index, term, _ = json.loads(str(meta[CUT])) if CUT in meta else (0, 0, [])
    return term, index


def _applied(folder: Path) -> int:
    with closing(SqliteReader(folder)) as store:
        return int(store.meta(APPLIED).get(APPLIED, 0))


def _apply_all(store: ReplicaStore) -> None:
    while store.applied() < store.last():
        store.apply(store.entries(store.applied() + 1, store.last(), STEP_BYTES))


def new_id(replica: str) -> str:
    """Of a store of this replica, which no other one ever has."""
    return f"{replica}-{secrets.token_hex(4)}"
