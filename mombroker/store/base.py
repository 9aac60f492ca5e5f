"""What every store does, and how the order that its clocks are made under differs from another one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from mombroker.core.batch import Batch, Reader
from mombroker.core.meta import DIGEST, EXPORTED, GRAPH, LOST, ORDER
from mombroker.core.trace import Record

Meta = dict[str, str | int]

SCHEMA = 9  # the version of the tables: the number of migrations in schema.py

LAST = (1 << 63) - 1


class Span(NamedTuple):
    """A row of the log: the records of one commit."""

    id: int  # sequence of the first
    next: int  # behind the last
    last: int  # when it was committed, ns, or the last was written, in an older row
    offset: int  # bytes of log before this row, pruned ones included


def written(batch: Batch) -> tuple[int, int]:
    """Rows that a commit puts or deletes, without its log row and what it prunes, and bytes of the values put."""
    rows = size = 0  # most tables are empty
    if batch.queue_out:
        rows += len(batch.queue_out)
        size += sum([len(data) for _, data in batch.queue_out])
    if batch.queue_in or batch.payloads:
        rows += len(batch.queue_in) + len(batch.payloads)
        size += sum([len(row.data) for row in batch.queue_in.values() if row])
        size += sum([len(row.data) for row in batch.payloads.values()])
    if batch.items:
        rows += len(batch.items)
        size += sum([len(row.head) + len(row.body) for row in batch.items.values() if row])
    if batch.held:
        rows += len(batch.held)
        size += sum([len(row.head) + len(row.body) for row in batch.held.values() if row])
    if batch.agents:
        rows += len(batch.agents)
        size += sum([len(row[1]) for row in batch.agents.values() if row])
    if batch.core:
        rows += len(batch.core)
        size += sum([len(blob) for blob in batch.core.values() if blob])
    if batch.tasks:
        rows += len(batch.tasks)
        size += sum([len(row.data) for row in batch.tasks.values() if row])
    for table in (batch.acked, batch.dropped, batch.links, batch.ended, batch.meta):
        if table:
            rows += len(table)
    return rows, size


class Store(Reader, Protocol):
    """A `Batch` becomes durable as a whole or not at all.

    1. At most one batch is staged; readers see it only once it is durable.
    2. Within a batch `acked` goes before `queue_out`, `ended` before `core`, `dropped` before `items`, and `spent`
       behind `queue_in`.
    3. After a failure nothing is ever staged or committed again.
    """

    def begin(self, batch: Batch) -> None:
        """Stage the rows in the open transaction (cheap). Raises StoreFailed."""

    def finish(self) -> None:
        """Make the staged batch durable; may run in another thread. Raises StoreFailed."""

    def commit(self, batch: Batch) -> None:
        """`begin` and `finish`."""

    def log(self, after: int, limit: int) -> list[tuple[int, Record]]:
        """Up to `limit` records with a sequence above `after`, in order."""

    def log_end(self) -> int:
        """The sequence of the last record; 0 before the first."""

    def prune_log(self, max_bytes: int, max_age: int, now: int) -> int:
        """Let old log records go with the next commit, of many the first; returns how many. Times are nanoseconds.

        Records go when they are older than `max_age` and, once an export is registered, exported. What exceeds
        `max_bytes` goes in any case; meta "log_lost" counts those among it that should have stayed.
        """

    def size(self) -> int:
        """Bytes in use."""

    def close(self) -> None: ...


def difference(stored: Meta, wanted: Meta) -> str:
    """How the order in the topology file (`wanted`, from `identity`) differs from the store's; empty if it does not."""
    if _digests(stored) == _digests(wanted):
        return ""
    old, new = json.loads(str(stored[ORDER])), json.loads(str(wanted[ORDER]))
    found: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        found += _domain(name, old.get(name), new.get(name))
    return ", ".join(found) or "the digests differ although the domains are the same"


def prune(
    meta: Meta,
    first: int,
    end: int,
    cut: Callable[[Callable[[Span], bool]], int],
    max_bytes: int,
    oldest: int,
    step: int = LAST,
) -> tuple[int, int]:
    """(first log record to keep, records lost by then).

    `cut` tells the first record of the oldest row that is to be kept; it never lets the newest row go, which holds
    the next sequence. `end` is the offset behind the last row, `first` the first record there is; no record from `step`
    on goes.
    """
    aged = wanted = cut(lambda row: row.last > oldest)
    safe = aged  # what goes from here on is lost
    if EXPORTED in meta:
        safe = int(meta[EXPORTED]) + 1
        wanted = min(aged, cut(lambda row: row.next > safe))
    keep = min(step, max(wanted, cut(lambda row: end - row.offset <= max_bytes)))
    return keep, int(meta.get(LOST, 0)) + max(0, keep - max(first, safe))


def _digests(meta: Meta) -> dict[str, str | int]:
    return {key: value for key, value in meta.items() if key == GRAPH or key.startswith(DIGEST)}


def _domain(name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    if new is None:
        return [f"domain {name} is gone"]
    if old is None:
        return [f"domain {name} is new"]
    found = [f"domain {name} has lost {member}" for member in old["members"] if member not in new["members"]]
    found += [f"domain {name} has gained {member}" for member in new["members"] if member not in old["members"]]
    if not found and old["members"] != new["members"]:
        found.append(f"domain {name} lists {_list(new['members'])} in place of {_list(old['members'])}")
    if "backend" not in old or "backend" not in new:
        return found  # a domain of other servers: its order is not ours
    if old["backend"] != new["backend"]:
        found.append(f"domain {name} is ordered by {new['backend']} in place of {old['backend']}")
    before, after = old["options"], new["options"]
    for option in sorted(before.keys() | after.keys()):
        if before.get(option) != after.get(option):
            found.append(f"domain {name} has {_option(after, option)} in place of {_option(before, option)}")
    return found


def _list(members: list[str]) -> str:
    return " ".join(members)


def _option(options: dict[str, Any], name: str) -> str:
    return f"{name} = {json.dumps(options[name])}" if name in options else f"no {name}"
