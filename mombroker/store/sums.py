"""A checksum beside each row of a store: CRC-32 over all its columns, so that a row that has changed is never used.

The rows that come and go with every message have functions of their own: they cost a few tenths of a microsecond.
A row without a checksum was written by an older program, and is taken as it is.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from zlib import crc32

LEAST = 7  # so many columns of a row are never NULL, whatever its table and the program that wrote it
MASK = 0xFFFFFFFF
_BEFORE, _BEHIND = b"%d\0" * 6, b"%d\0" * 3  # the records of a row of `log`


@lru_cache(65_536)  # of what comes again with each row: as many queues as that
def _names(*names: str) -> int:
    return crc32("\0".join(names).encode("utf-8", "surrogatepass"))


def row(*values: object) -> int:
    """Of a row of any table."""
    sum, text = 0, ""
    for value in values:
        if type(value) is bytes:
            sum, text = crc32(value, crc32(text.encode("utf-8", "surrogatepass"), sum)), ""
        else:
            text += f"{value!r}\0"
    return crc32(text.encode("utf-8", "surrogatepass"), sum)


def log(row: tuple[int, int, int, int, int, int, bytes, int, int, int]) -> int:
    """As `row`, of one of `log`."""
    return crc32(_BEHIND % row[7:], crc32(row[6], crc32(_BEFORE % row[:6])))


def packet(id: int, data: bytes) -> int:
    """Of a row of `queue_out`."""
    return crc32(data, (id ^ id >> 32) & MASK)


def item(id: int, agent: str, collection: str, key: int, head: bytes, body: bytes) -> int:
    """Of a row of `message`."""
    place = (id ^ id >> 32) + 31 * (key ^ key >> 32)
    return crc32(body, crc32(head, (place + _names(agent, collection) + len(head)) & MASK))


def with_items(rows: Iterable[tuple[int, str, str, int, bytes, bytes]]) -> list[tuple[object, ...]]:
    """Rows of `message` with their checksums. The work is that of `item`, without a call for each."""
    known: tuple[str, str] | None = None
    name = 0
    found: list[tuple[object, ...]] = []
    for id, agent, collection, key, head, body in rows:
        if (agent, collection) != known:
            known = (agent, collection)
            name = _names(agent, collection)
        place = (id ^ id >> 32) + 31 * (key ^ key >> 32)
        sum = crc32(body, crc32(head, (place + name + len(head)) & MASK))
        found.append((id, agent, collection, key, head, body, sum))
    return found


def held(id: int, agent: str, head: bytes, body: bytes) -> int:
    """Of a row of `held`."""
    return crc32(body, crc32(head, ((id ^ id >> 32) + _names(agent) + len(head)) & MASK))


def with_held(rows: Iterable[tuple[int, str, bytes, bytes]]) -> list[tuple[int, str, bytes, bytes, int]]:
    """Rows of `held` with their checksums. The work is that of `held`, without a call for each."""
    known, name = "", 0
    found = []
    for id, agent, head, body in rows:
        if agent != known:
            known, name = agent, _names(agent)
        sum = crc32(body, crc32(head, ((id ^ id >> 32) + name + len(head)) & MASK))
        found.append((id, agent, head, body, sum))
    return found


def whole(rows: list[tuple[Any, ...]]) -> bool:
    """Are all these rows of `message`, with their checksums, as they were written? False: look at each, by `wrong`.
    The work is that of `item`, without a call for each."""
    known: tuple[str, str] | None = None
    name = 0
    try:
        for id, agent, collection, key, head, body, sum in rows:
            if (agent, collection) != known:
                known = (agent, collection)
                name = _names(agent, collection)
            place = (id ^ id >> 32) + 31 * (key ^ key >> 32)
            if crc32(body, crc32(head, (place + name + len(head)) & MASK)) != sum:
                return False
    except (TypeError, AttributeError):
        return False
    return True


def wrong(of: Callable[..., int], values: tuple[object, ...]) -> bool:
    """Is the last of `values` not the checksum of the others? Damaged columns may be of any type."""
    *columns, sum = values
    if sum is None:
        return None in columns[:LEAST]
    try:
        return of(*columns) != sum
    except (TypeError, AttributeError):
        return True
