"""The log records of one commit as columns, so that what all have in common is stored once or not at all."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgpack

from mombroker.core.trace import DEFAULTS, FIELDS, Record

# A column is nil (every value is the default), one value (all are equal), two (all but the first are equal: the first
# record of a commit often tells of the commit before), or one value per record.
_pack: Callable[[Any], bytes] = msgpack.Packer(unicode_errors="surrogatepass").pack

_record = partial(tuple.__new__, Record)


def pack(records: list[Record]) -> bytes:
    count = len(records)
    columns: list[tuple[Any, ...] | None] = []
    for column in zip(*records, strict=True):
        value = column[-1]
        same = column.count(value)
        if same == count:
            columns.append((value,) if value else None)
        elif same == count - 1 and column[0] != value:
            columns.append((column[0], value))
        else:
            columns.append(column)
    return _pack(columns)


def unpack(data: bytes, count: int) -> list[Record]:
    """The records; fields that are younger than `data` have their defaults. Raises ValueError if it is none."""
    try:
        columns: list[Sequence[Any]] = []
        for default, column in zip(DEFAULTS, stored(data, len(FIELDS)), strict=False):
            values: Sequence[Any] = column or (default,)
            if isinstance(default, tuple):
                values = [tuple(value) for value in values]
            elif isinstance(default, list):
                values = [[tuple(entry) for entry in value] for value in values]
            columns.append(expanded(values, count))
        return list(map(_record, zip(*columns, strict=True)))
    except TypeError as error:
        raise ValueError(f"not log records: {error}") from None


def stored(data: bytes, fields: int) -> tuple[tuple[Any, ...] | None, ...]:
    """The columns as they are kept, the first so many fields; those that are younger than `data` are nil.

    In tuples: they are smaller than lists, which takes a tenth to a quarter off the reading of a log."""
    found: tuple[tuple[Any, ...] | None, ...] = msgpack.unpackb(data, unicode_errors="surrogatepass", use_list=False)
    return found + (None,) * (fields - len(found))


def expanded(column: Sequence[Any], count: int) -> Sequence[Any]:
    """One value per record. Raises ValueError if it is no column of so many records."""
    if len(column) == count:
        return column
    if len(column) > 2 or count < 2:
        raise ValueError(f"not a column of {count} log records: {len(column)} values")
    return [*column[:-1], *[column[-1]] * (count - len(column) + 1)]


def time(record: Record) -> int:
    """When this server wrote the record: its latest station."""
    return record.done or record.delivered or record.received or record.sent
