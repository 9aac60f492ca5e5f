"""Messages that a client sends one after the other, and that differ in their id, their time of creation and their body
alone: what they have in common is read once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Self

from mombroker.amqp import codec
from mombroker.amqp.messages import AS_DATA, AS_TEXT, PROPERTIES, Split
from mombroker.broker.heads import MOST, TIME, Head

MOST_ID = 100  # bytes; such an id means itself everywhere
_IDS = re.compile(rb"[!-.0-\[\]-~]*")
_OF_IDS = bytes(set(range(33, 127)) - set(b"/\\"))
_BODIES = {AS_DATA: (b"\x00\x53\x75", 0xA0), AS_TEXT: (b"\x00\x53\x77", 0xA1)}  # how such begins, and its short code
_TIME_AT = 9  # of the fields of the properties


class Found(NamedTuple):
    """A message that a Model has found, by places: of its id, of what follows that, of its time, and of its body."""

    id: int
    behind: int
    time: int
    body: int


class Row(NamedTuple):
    """Messages one after the other. `heads`: id and form of each, where they have their own."""

    bodies: list[bytes]
    heads: list[tuple[str, bytes]]


class Model:
    """What messages have in common, around an id that changes, a time of creation and a body.

    start    up to the size of the properties; of a message without an id, up to its time or body
    width    bytes of that size; 0: there is no id
    base     that size with an empty id; `count` stands behind it and before the length of the id
    middle   between id and time, or body; `end`, between time and body
    kept     where the sections begin that are kept
    code     of a short body
    form     of those that have a head of their own, up to their times (broker/heads.py): made for the first of them
    """

    __slots__ = ("start", "width", "base", "count", "middle", "timed", "end", "kept", "kind", "code", "_form")

    def __init__(self, payload: bytes, found: Split, id_at: int, id_size: int, list_at: int, time_at: int):
        intro, self.code = _BODIES[found.kind]
        self.kind, self.kept = found.kind, found.head - len(found.kept)
        self._form: bytes | None = None
        behind = found.head + len(intro)
        self.width, self.base, self.count, start = 0, 0, b"", 0
        if id_at:
            self.width = 1 if payload[list_at] == 0xC0 else 4
            start = list_at + 1 + self.width
            self.base = int.from_bytes(payload[list_at + 1 : start], "big") - id_size
            self.count = payload[start : id_at - 1]
            self.start, start = payload[: list_at + 1], id_at + id_size
        self.timed = time_at > 0
        self.middle, self.end = payload[start : time_at or behind], payload[time_at + 8 : behind] if time_at else b""
        if not id_at:
            self.start, self.middle = self.middle, b""

    @classmethod
    def of(cls, payload: bytes, found: Split) -> Self | None:
        """None for one whose like cannot be told by its bytes."""
        if (
            len(found.kept) > MOST
            or found.kind not in _BODIES
            or not payload.startswith(_BODIES[found.kind][0], found.head)
        ):
            return None
        kept, at = found.kept, found.head - len(found.kept)
        end, list_at = found.head, 0
        while at < end:
            start = at + 3
            if payload[at : at + 2] != b"\x00\x53":
                return None
            if payload[at + 2] == PROPERTIES:
                list_at = start
            at = codec.skip(payload, start)
        if not kept or not list_at or payload[list_at] == 0x45:
            return cls(payload, found, 0, 0, 0, 0)
        wide = payload[list_at] == 0xD0
        count = int.from_bytes(payload[list_at + 5 : list_at + 9], "big") if wide else payload[list_at + 2]
        at = first = list_at + (9 if wide else 3)
        for _ in range(min(count, _TIME_AT)):
            at = codec.skip(payload, at)
        time_at = at + 1 if count > _TIME_AT and payload[at] == 0x83 else 0
        if not count or payload[first] == 0x40:
            return cls(payload, found, 0, 0, 0, time_at)
        size = payload[first + 1]
        if (
            payload[first] != 0xA1
            or not 0 < size <= MOST_ID
            or not _IDS.fullmatch(payload, first + 2, first + 2 + size)
        ):
            return None
        return cls(payload, found, first + 2, size, list_at, time_at)

    @property
    def varies(self) -> bool:
        """Do messages have a head of their own?"""
        return self.width > 0 or self.timed

    def find(self, data: bytes, at: int, end: int) -> Found | None:
        """Is there such a message from one place to the other?"""
        if not data.startswith(self.start, at):
            return None
        id = behind = place = at + len(self.start)
        if self.width:
            count_at = place + self.width
            id = count_at + len(self.count) + 1
            if id >= end or not data.startswith(self.count, count_at):
                return None
            size = data[id - 1]
            behind = id + size
            if int.from_bytes(data[place:count_at], "big") != self.base + size or not 0 < size <= MOST_ID:
                return None
            if not (data.startswith(self.middle, behind) and _IDS.fullmatch(data, id, behind)):
                return None
        body = time = behind + len(self.middle)
        if self.timed:
            body += TIME
            if not data.startswith(self.end, body):
                return None
            body += len(self.end)
        start = _start(data, body, end, self.code)
        if not start or (self.code == 0xA1 and not _is_text(data[start:end])):
            return None
        return Found(id, behind, time, start)

    @property
    def form(self) -> bytes:
        if self._form is None:
            intro = len(_BODIES[self.kind][0])
            middle, end = (self.middle, self.end[:-intro]) if self.timed else (self.middle[:-intro], b"")
            head = Head(self.start[self.kept :], self.width, self.base, self.count, middle, self.timed, end)
            self._form = head.pack(self.kind)
        return self._form

    def head(self, data: bytes, found: Found) -> tuple[str, bytes]:
        """Id and form."""
        id, time = data[found.id : found.behind], data[found.time : found.time + TIME * self.timed]
        return id.decode(), self.form + time


def row(
    data: bytes, at: int, channel: int, handle: int, number: int, model: Model, most: int, limit: int
) -> tuple[Row, int]:
    """The messages that a model has of the transfers from a place on: of one link, each whole in its frame, numbered on
    from `number` and not settled; at most so many, in frames of at most `limit` bytes. Where the next frame begins."""
    size, before = len(data), number
    head = b"\x02\x00" + channel.to_bytes(2, "big") + b"\x00\x53\x14\xc0"
    told = b"\x43" if not handle else bytes((0x52, handle)) if handle < 256 else b"\x70" + handle.to_bytes(4, "big")
    behind, bodies, heads = 14 + len(told), list[bytes](), list[tuple[str, bytes]]()
    while number - before < most and at + behind + 7 <= size:
        end = at + int.from_bytes(data[at : at + 4], "big")
        if end > size or end - at > limit or not (data.startswith(head, at + 4) and data.startswith(told, at + 14)):
            break
        place, payload = at + behind, at + 13 + data[at + 12]
        code = data[place]
        tag = place + 5 if code == 0x70 else place + 2
        if code not in (0x70, 0x52) or int.from_bytes(data[place + 1 : tag], "big") != number or data[tag] != 0xA0:
            break
        tagged = tag + 2 + data[tag + 1]
        if _says(data[tagged:payload]) or (found := model.find(data, payload, end)) is None:
            break
        bodies.append(data[found.body : end])
        if model.varies:
            heads.append(model.head(data, found))
        number += 1
        if code == 0x70 and data.startswith(data[at : place + 1], end):
            places = _Places(
                place + 1 - at,
                tag - at,
                tagged - at,
                found.id - at,
                found.behind - at,
                found.time - at,
                found.body - at,
                end - at,
            )
            count = _equal(data, at, places, model, number, most - (number - before), bodies, heads)
            number, end = number + count, end + count * (end - at)
        at = end
    return Row(bodies, heads), at


class _Places(NamedTuple):
    """In a frame, from its beginning: of its number, its tag with the length, what follows that, what is Found, and its
    end."""

    number: int
    tag: int
    tagged: int
    id: int
    behind: int
    time: int
    body: int
    end: int


def _equal(
    data: bytes,
    at: int,
    places: _Places,
    model: Model,
    number: int,
    most: int,
    bodies: list[bytes],
    heads: list[tuple[str, bytes]],
) -> int:
    """Add the messages of the frames behind one, as long as they differ from it in what may differ alone, and in no
    length. How many these are."""
    length, first = places.end, at + places.end
    unpacked = _struct(places, model.timed)
    count = min(most, (len(data) - first) // length)
    rows = list(unpacked.iter_unpack(memoryview(data)[first : first + count * length]))
    same = unpacked.unpack_from(data, at)
    columns = list(zip(*rows, strict=True))
    if not columns:
        return 0
    starts, numbers, tags, befores, ids, middles, times, ends, found = columns
    if numbers != tuple(range(number, number + count)) or any(
        columns[place].count(same[place]) < count for place in _SAME
    ):
        count = next(
            at
            for at, row in enumerate(rows)
            if row[1] != number + at or any(row[place] != same[place] for place in _SAME)
        )
    names = _names(ids[:count]) if model.width else [""] * count
    if names is None or (model.code == 0xA1 and not b"".join(found[:count]).isascii()):
        return 0
    bodies += found[:count]
    if model.varies:
        form = model.form
        heads += zip(names, [form + time for time in times[:count]], strict=True)
    return count


_SAME = (0, 2, 3, 5, 7)  # of the columns of _struct


@lru_cache(64)
def _struct(places: _Places, timed: bool) -> Struct:
    """What is the same up to the number, the number; the code and length of the tag; what is the same up to the id, the
    id; what is the same up to the time, the time; what is the same behind it; the body."""
    time = TIME if timed else 0
    return Struct(
        f">{places.number}sI{2}s{places.tagged - places.tag - 2}x{places.id - places.tagged}s"
        f"{places.behind - places.id}s{places.time - places.behind}s{time}s"
        f"{places.body - places.time - time}s{places.end - places.body}s"
    )


def _names(ids: Sequence[bytes]) -> list[str] | None:
    """Ids of one length as texts; None if one of them is none."""
    joined = b"\0".join(ids)
    return joined.decode().split("\0") if len(joined.translate(None, _OF_IDS)) == len(ids) - 1 else None


def _says(tail: bytes) -> bytes:
    """What the fields of a transfer say behind its tag, beside format 0, false and nothing."""
    return tail.removeprefix(b"\x52\x00").removeprefix(b"\x43").strip(b"\x40\x42")


def _start(data: bytes, at: int, end: int, short: int) -> int:
    """Where the bytes of a value begin that ends there, its short code given; 0 if it does not."""
    code = data[at] if at < end else 0
    if code == short:
        start = at + 2
        return start if start <= end and start + data[at + 1] == end else 0
    start = at + 5
    if code != short + 16 or start > end:
        return 0
    return start if start + int.from_bytes(data[at + 1 : start], "big") == end else 0


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
