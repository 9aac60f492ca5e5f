"""Forms of messages that have a head of AMQP in common, around an id and a time of creation: each keeps its own time,
and of the head what tells it, packed. The id is the message's, and stands in no form.

Rows and messages in memory have such a form; to other servers goes the whole one, which all of them know.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

WHOLE, SHARED = b"A", b"S"  # how forms begin; then the kind of the body, a byte
MOST = 0xFFFF  # bytes of a head
TIME = 8  # bytes of a time
_TIMED = 0x80
_PLACES = Struct(">BHHH")
_START = 2 + _PLACES.size

# What heads of clients mostly consist of. It stands in every store, and so never changes.
_USUAL = (
    b"\x00Sr\xc1\x0f\x01\xa3\x0ex-opt-jms-destQ\x01x-opt-jms-reply-toQ\x00content-encodingJMSXGroupIDguest\x98\x00\x00\x00"
    b"\x00Ss\xc0\x0d\x0d@@\xa1\x08\xa1\x09\xa1\x0a\xa1\x0b\xa1\x0c\xa1\x10queue://topic://orders@@@@\x83\x00\x00\x01@\x52\x00@"
    b"\xa3\x10application/json\xa3\x09text/json\xa3\x24application/x-java-serialized-object\xa3\x0atext/plain"
    b"\xa3\x18application/octet-stream@@\x83@@@@\x00Ss\xd0\x00\x00\x00\x00\x00\x00\x00\x0d\xa1"
    b"\x00Sr\xc1)\x04\xa3\x0ex-opt-jms-destQ\x00\xa3\x12x-opt-jms-msg-typeQ\x05\x00Ss\xd0\x00\x00\x00\x00\x00\x00\x00\x0a\xa1"
    b"\x00Sr\xc1)\x04\xa3\x0ex-opt-jms-destQ\x00\xa3\x12x-opt-jms-msg-typeQ\x03\x00Ss\xd0\x00\x00\x00\x00\x00\x00\x00\x0a\xa1"
)


class Head(NamedTuple):
    """The sections of a message before its body. Without an id `width` is 0, and all up to the time stands in `start`.

    start   up to the size of the properties, which has `width` bytes, and is `base` with an empty id
    between   stands between that size and the length of the id
    middle  stands between id and time, or up to the end; `end`, behind a time
    """

    start: bytes
    width: int
    base: int
    between: bytes
    middle: bytes
    timed: bool
    end: bytes

    def pack(self, kind: bytes) -> bytes:
        """The form of a message without its time."""
        at = len(self.start)
        start = self.start + (self.base.to_bytes(self.width, "big") if self.width else b"") + self.between
        text = start + self.middle + self.end
        assert len(text) <= MOST, "a head that is too large"
        places = _PLACES.pack(self.width | _TIMED * self.timed, at, len(start), len(start) + len(self.middle))
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_USUAL)
        return b"".join((SHARED, kind, places, packer.compress(text), packer.flush()))

    def lead(self, size: int) -> bytes:
        """All before an id of so many bytes. Raises OverflowError or ValueError for one that is too long."""
        if not self.width:
            return self.start
        return b"".join((self.start, (self.base + size).to_bytes(self.width, "big"), self.between, bytes((size,))))

    def told(self, id: bytes, time: bytes) -> bytes:
        """The sections before a body."""
        return b"".join((self.lead(len(id)), id if self.width else b"", self.middle, time, self.end))


def head_of(form: bytes) -> tuple[Head, bytes]:
    """The head of a shared form, and its time. Raises ValueError for one that is damaged."""
    timed = len(form) > _START and form[2] & _TIMED
    end = len(form) - TIME if timed else len(form)
    return _head(form[:end]), form[end:]


@lru_cache(64)
def _head(form: bytes) -> Head:
    try:
        flags, size_at, id_at, time_at = _PLACES.unpack_from(form, 2)
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_USUAL)
        text = unpacker.decompress(form[_START:], MOST)
    except (StructError, zlib.error) as error:
        raise ValueError(str(error)) from None
    width, timed = flags & ~_TIMED, bool(flags & _TIMED)
    if not unpacker.eof or width not in (0, 1, 4) or not size_at + width <= id_at <= time_at <= len(text):
        raise ValueError("places of a head that is none")
    base = int.from_bytes(text[size_at : size_at + width], "big")
    between, middle = text[size_at + width : id_at], text[id_at:time_at]
    return Head(text[:size_at], width, base, between, middle, timed, text[time_at:])


def whole(form: bytes, id: str) -> bytes:
    """The form that tells all by itself, for a message with this id; empty for one that is damaged."""
    if form[:1] != SHARED:
        return form
    try:
        head, time = head_of(form)
        return b"".join((WHOLE, form[1:2], head.told(id.encode(), time)))
    except (ValueError, OverflowError):
        return b""
