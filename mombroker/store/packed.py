"""A batch as bytes, for the log of a replicated server.

Versioned: what is added goes to the end, under a new version. A program reads all versions up to its own, and writes
the one that all replicas can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

from mombroker.core.batch import Batch, HeldRow, InRow, ItemRow, LinkRow, LogRow, PayloadRow, TaskRow
from mombroker.store import columns

OLDEST, VERSION = 1, 2  # 2: when the first and the last record of its log were written

_pack: Callable[[Any], bytes] = msgpack.Packer(unicode_errors="surrogatepass").pack


def pack(batch: Batch, version: int = VERSION) -> bytes:
    """In this version. Its log is packed once: the batch keeps the row that the store has of it."""
    core, ended = batch.core, batch.ended
    row = batch.row = batch.row or columns.row(batch.log)
    fields: tuple[Any, ...] = (
        version,
        batch.number,
        batch.queue_out,
        batch.acked,
        *_parted(batch.queue_in),
        [*batch.payloads.values()],
        [*batch.spent],
        [(id, *row) for id, row in batch.agents.items() if row is not None],
        [id for id, row in batch.agents.items() if row is None],
        *_parted(batch.items),
        *_parted(batch.held),
        batch.dropped,
        *_parted(batch.links),
        [*ended],
        [(*key, blob) for key, blob in core.items()],
        *_parted(batch.tasks),
        batch.meta,
        row.records if row else 0,
        row.data if row else b"",
        batch.bytes,
    )
    if version >= 2:
        fields += (row.first, row.last) if row else (0, 0)
    return _pack(fields)


def unpack(data: bytes) -> Batch:
    """Its log is a row. Raises ValueError if it is none, or of a version that this program does not know."""
    try:
        found: tuple[Any, ...] = msgpack.unpackb(
            data, use_list=False, strict_map_key=False, unicode_errors="surrogatepass"
        )
        version, number, queue_out, acked, in_, in_gone, payloads, spent, agents, agents_gone, *found_rest = found
        if version > VERSION:
            raise ValueError(f"a batch of version {version}: this program reads those up to {VERSION}")
        items, items_gone, held, held_gone, dropped, links, links_gone, ended, core, *found_rest = found_rest
        tasks, tasks_gone, meta, count, log, size, *times = found_rest
        first, last = times if version >= 2 else _times(log, count)
        return Batch(
            number=number,
            queue_out=list(queue_out),
            acked=acked,
            queue_in=_rows(InRow, in_, in_gone),
            payloads={row[0]: PayloadRow(*row) for row in payloads},
            spent=set(spent),
            agents={id: (path, state) for id, path, state in agents} | dict.fromkeys(agents_gone),
            items=_rows(ItemRow, items, items_gone),
            held=_rows(HeldRow, held, held_gone),
            dropped=dropped,
            links=_rows(LinkRow, links, links_gone),
            ended=set(ended),
            core={(domain, kind, key): blob for domain, kind, key, blob in core},
            tasks=_rows(TaskRow, tasks, tasks_gone),
            meta=meta,
            row=LogRow(count, first, last, log) if count else None,
            bytes=size,
        )
    except (TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"not a batch: {error}") from None


def _times(log: bytes, count: int) -> tuple[int, int]:
    """When the first and the last of these records were written. Raises ValueError if they are none."""
    records = columns.unpack(log, count) if count else []
    return (columns.time(records[0]), columns.time(records[-1])) if records else (0, 0)


def _parted(rows: Mapping[int, Any]) -> tuple[list[Any], list[int]]:
    """The rows that are put, which begin with their ids, and the ids of those that are deleted."""
    if not rows:
        return [], []
    return [row for row in rows.values() if row is not None], [id for id, row in rows.items() if row is None]


def _rows(kind: Callable[..., Any], rows: Sequence[tuple[Any, ...]], gone: Sequence[int]) -> dict[int, Any]:
    found: dict[int, Any] = {row[0]: kind(*row) for row in rows} if rows else {}
    if gone:
        found |= dict.fromkeys(gone)
    return found
