"""Frames of AMQP 1.0 (part 2.3): bytes in, frames out, at any split; a frame's size is looked at before its bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from mombroker.amqp import alike
from mombroker.amqp.alike import Model, Row
from mombroker.amqp.codec import FRAMING, AmqpError

PLAIN, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
HEADER = 8  # bytes of either, and at least of a frame
AMQP_FRAME, SASL_FRAME = 0, 1
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"  # says that we are here
EARLY = 4_096  # bytes of a frame before the connection is open
MAX_FRAME = 65_536  # then


# Dispositions by which a receiver settles what it has accepted, around their numbers of one byte or four; Qpid JMS says
# the one twice.
_ACCEPTS = [
    (width, written)
    for width, code, short, long in ((1, b"\x52", b"\x0a", b"\x0b"), (4, b"\x70", b"\x0d", b"\x11"))
    for written in (
        (b"\x00\x53\x15\xc0" + short + b"\x05\x41" + code, b"\x40\x41\x00\x53\x24\x45"),
        (b"\x00\x53\x15\xc0" + long + b"\x05\x41" + code, code, b"\x41\x00\x53\x24\x45"),
    )
]


class Frame(NamedTuple):
    kind: int
    channel: int
    body: bytes


class Parser:
    """Takes apart what comes in. Raises AmqpError.

    1. Less than one frame is kept once `next` has given none.

    most   bytes of a frame
    """

    __slots__ = ("most", "_data", "_at")

    def __init__(self, most: int = EARLY):
        self.most = most
        self._data, self._at = b"", 0

    @property
    def waiting(self) -> int:
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def header(self) -> bytes | None:
        """The protocol header, once it is there; what begins otherwise is told at once."""
        data = self._data[self._at : self._at + HEADER]
        if data[:4] != b"AMQP"[: len(data)]:
            raise AmqpError("this is no AMQP: a client begins with AMQP and the version 1.0", FRAMING)
        if len(data) < HEADER:
            return None
        self._at += HEADER
        return data

    def next(self) -> Frame | None:
        """The next frame that is whole."""
        data, at = self._data, self._at
        if len(data) - at < HEADER:
            return None
        size = int.from_bytes(data[at : at + 4], "big")
        if size > self.most:
            raise AmqpError(f"a frame of {size} bytes, of at most {self.most}", FRAMING)
        start = data[at + 4] * 4
        if not HEADER <= start <= size:
            raise AmqpError("a frame whose header does not fit into it", FRAMING)
        end = at + size
        if end > len(data):
            return None
        self._at = end
        return Frame(data[at + 5], data[at + 6] << 8 | data[at + 7], data[at + start : end])

    def alike(self, channel: int, handle: int, number: int, model: Model, most: int) -> Row:
        """Take the transfers that follow by one link, numbered on from `number` and with messages that a model has, at
        most so many."""
        found, self._at = alike.row(self._data, self._at, channel, handle, number, model, most, self.most)
        return found

    def accepted(self, one: Frame) -> list[int]:
        """Take the dispositions that follow one, if it and these settle a delivery each, as accepted: their numbers."""
        body = one.body
        for width, written in _ACCEPTS:
            if body == body[8 : 8 + width].join(written):
                data, at, size = self._data, self._at, HEADER + len(body)
                if found := _row_of(written, width, one.channel).match(data, at):
                    self._at = end = found.end()
                    if width == 1:
                        return list(data[at + 16 : end : size])
                    return [number for (number,) in Struct(f">16xI{size - 20}x").iter_unpack(data[at:end])]
        return []


@lru_cache(64)
def _row_of(body: tuple[bytes, ...], width: int, channel: int) -> re.Pattern[bytes]:
    """Frames one after the other: what stands around their numbers, each of so many bytes."""
    first, *others = map(re.escape, body)
    size = HEADER + sum(map(len, body)) + width * (len(body) - 1)
    start = re.escape(size.to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big"))
    return re.compile(b"(?:%b%b(.{%d})%b)+" % (start, first, width, b"\\1".join(others)), re.DOTALL)


def frame(body: bytes, channel: int = 0, kind: int = AMQP_FRAME) -> bytes:
    head = (len(body) + HEADER).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big")
    return head + body
