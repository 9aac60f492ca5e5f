"""A server gets replicas, or has none any more: its store, while it is stopped, becomes that of the first one, or of
the last one, and back."""

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
from mombroker.store.folder import STORE
from mombroker.store.replica import ReplicaStore
from mombroker.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from mombroker.core.topology import Topology

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
        while store.applied() < store.last():  # nobody else decides
            store.apply(store.entries(store.applied() + 1, store.last(), STEP_BYTES))
        store.leave()


def new_id(replica: str) -> str:
    """Of a store of this replica, which no other one ever has."""
    return f"{replica}-{secrets.token_hex(4)}"
