"""The log records of one commit as columns, so that what all have in common is stored once or not at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, cycle
from operator import itemgetter
from typing import Any

import msgpack

from mombroker.core.batch import Batch, LogRow
from mombroker.core.trace import DEFAULTS, FIELDS, Entry, Notes, Record, records

# A column is nil (every value is the default), one value (all are equal), two (all but the first are equal: the first
# record of a commit often tells of the commit before), or one value per record. Where there are notes it may be a map:
# from the place of a record, counted from 0, to values that repeat up to the next place.
_pack: Callable[[Any], bytes] = msgpack.Packer(unicode_errors="surrogatepass").pack

_record = partial(tuple.__new__, Record)
FEW = 32  # records, which take less time one by one
Column = tuple[Any, ...]
_ALL_DEFAULT: list[Column] = [(value,) for value in DEFAULTS]


def _only(names: Iterable[str]) -> Callable[[Record], Column]:
    """What takes these fields of a record."""
    return itemgetter(*map(FIELDS.index, names))


DIFFERING = "kind", "origin", "number", "agent", "dests", "payload", "sent", "received", "done", "detail"  # in notes
_differing = _only(DIFFERING)
ALIKE = [name for name in FIELDS if name not in DIFFERING and name != "delivered"]  # which is as `received` there
_others = _only(ALIKE)
_OTHERS = _others(DEFAULTS)


def pack(log: Sequence[Entry]) -> bytes:
    return _packed(log)[1]


def _packed(log: Sequence[Entry]) -> tuple[int, bytes]:
    """How many records there are, and these."""
    if rows := _short(log):
        kind, origin, number, agent, dests, payload, sent, received, done, detail = _columns(rows)
        way = None, None, None, sent, received, received, done, None, None
        return len(rows), _pack((kind, origin, number, agent, dests, payload, *way, detail))
    total = count(log)
    if any(isinstance(entry, Notes) for entry in log):
        if total > FEW:
            return total, _pack(list(map(_joined, zip(*_parts(log), strict=True))))
        log = records(log)
    return total, _pack(_columns(log))


def _short(log: Iterable[Entry]) -> list[Column]:
    """Of its records, if these are few, the fields that those of notes may differ in; none if others differ, too. It
    takes half the time of whole records."""
    rows = list[Column]()
    for entry in log:
        if type(entry) is Notes:
            name, now, told = entry.name, entry.now, entry.told
            if len(rows) + 2 * len(told) > FEW:
                return []
            for number, source, agent, type_, size in told:
                rows += (
                    ("send", name, number, source, (agent,), size, now, 0, now, type_),
                    ("react", name, number, agent, (), size, now, now, now, ""),
                )
        elif isinstance(entry, Record) and len(rows) < FEW:
            if _others(entry) != _OTHERS or entry.delivered != entry.received:
                return []
            rows.append(_differing(entry))
        else:
            return []
    return rows


def _columns(rows: Sequence[Any]) -> list[Column | None]:
    columns: list[Column | None] = []
    total = len(rows)
    for column in zip(*rows, strict=True):
        value = column[-1]
        same = column.count(value)
        if same == total:
            columns.append((value,) if value else None)
        elif same == total - 1 and column[0] != value:
            columns.append((column[0], value))
        else:
            columns.append(column)
    return columns


def _parts(log: Sequence[Entry]) -> Iterator[list[tuple[int, Column]]]:
    """By notes, and by records between such: of each field where its values begin, and these."""
    at, singles = 0, list[Record]()
    for entry in (*log, None):
        if isinstance(entry, Record):
            singles.append(entry)
            continue
        if singles:
            columns = zip(*singles, strict=True)
            yield [(at, column[:1] if column.count(column[0]) == len(singles) else column) for column in columns]
            at += len(singles)
            singles = []
        if entry is not None:
            yield [(at, column) for column in _of_notes(entry)]
            at += len(entry)


def _of_notes(notes: Notes) -> Iterable[Column]:
    numbers, sources, agents, types, sizes = notes.columns()
    now = notes.now
    columns: dict[str, Column] = {
        "kind": ("send", "react"), "origin": (notes.name,), "number": _twice(numbers), "payload": _twice(sizes),
        "agent": _in_turn(sources, agents), "dests": _in_turn([*zip(agents, strict=True)], [()]),
        "sent": (now,), "received": (0, now), "delivered": (0, now), "done": (now,), "detail": _in_turn(types, [""]),
    }  # fmt: skip
    return map(columns.get, FIELDS, _ALL_DEFAULT)


def _twice(values: Sequence[Any]) -> Column:
    return tuple(values[:1] if _same(values) else chain.from_iterable(zip(values, values, strict=True)))


def _in_turn(ones: Sequence[Any], others: Sequence[Any]) -> Column:
    """One of these, then one of those; where all are the same, there may be one alone."""
    if _same(ones) and _same(others):
        return (ones[0],) if ones[0] == others[0] else (ones[0], others[0])
    return tuple(chain.from_iterable(zip(ones, cycle(others), strict=False)))


def _same(values: Sequence[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _joined(parts: Iterable[tuple[int, Column]]) -> dict[int, Column] | Column | None:
    """One field of a commit."""
    column: dict[int, Column] = {}
    begin = 0
    last: Column = ()
    for at, values in parts:
        if values != last or (at - begin) % len(values):  # else it goes on
            begin, last = at, values
            column[at] = values
    if len(column) > 1 or len(last) > 1:
        return column
    return last if last[0] else None


def unpack(data: bytes, count: int) -> list[Record]:
    """The records; fields that are younger than `data` have their defaults. Raises ValueError if it is none."""
    try:
        columns: list[Sequence[Any]] = []
        for default, column in zip(DEFAULTS, stored(data, len(FIELDS), count), strict=False):
            values: Sequence[Any] = column or (default,)
            if isinstance(default, tuple):
                values = [tuple(value) for value in values]
            elif isinstance(default, list):
                values = [[tuple(entry) for entry in value] for value in values]
            columns.append(expanded(values, count))
        return list(map(_record, zip(*columns, strict=True)))
    except TypeError as error:
        raise ValueError(f"not log records: {error}") from None


def stored(data: bytes, fields: int, count: int) -> tuple[Column | None, ...]:
    """The columns of so many records as they are kept, but for maps, the first so many fields; those that are younger
    than `data` are nil. Raises ValueError.

    In tuples: they are smaller than lists, which takes a tenth to a quarter off the reading of a log."""
    found: tuple[Column | dict[int, Column] | None, ...]
    found = msgpack.unpackb(data, unicode_errors="surrogatepass", use_list=False, strict_map_key=False)
    columns = [_spread(column, count) if isinstance(column, dict) else column for column in found[:fields]]
    return (*columns, *[None] * (fields - len(columns)))


def _spread(column: dict[int, Column], count: int) -> Column:
    """One value per record."""
    found: list[Any] = []
    for (begin, values), end in zip(column.items(), [*column, count][1:], strict=True):
        times, rest = divmod(end - begin, len(values) or 1)
        if begin != len(found) or times < 1:
            break
        found += values * times + values[:rest]
    if len(found) != count:
        raise ValueError(f"not a column of {count} log records: {len(found)} values")
    return tuple(found)


def expanded(column: Sequence[Any], count: int) -> Sequence[Any]:
    """One value per record. Raises ValueError if it is no column of so many records."""
    if len(column) == count:
        return column
    if len(column) > 2 or count < 2:
        raise ValueError(f"not a column of {count} log records: {len(column)} values")
    return [*column[:-1], *[column[-1]] * (count - len(column) + 1)]


def row(log: Sequence[Entry]) -> LogRow | None:
    """What the store has of the records of a commit; nothing if there are none."""
    if not log:
        return None
    total, data = _packed(log)
    return LogRow(total, time(log[0]), time(log[-1]), data)


def records_of(batch: Batch) -> list[Record]:
    """One by one, whether they are packed or not."""
    return unpack(batch.row.data, batch.row.records) if batch.row is not None else records(batch.log)


def count(log: Iterable[Entry]) -> int:
    """Its records."""
    return sum([len(entry) if isinstance(entry, Notes) else 1 for entry in log])


def time(entry: Entry) -> int:
    """When this server wrote the record, or those of notes: its latest station."""
    if isinstance(entry, Notes):
        return entry.now
    return entry.done or entry.delivered or entry.received or entry.sent
