"""Frames of AMQP 1.0 (part 2.3): bytes in, frames out, at any split; a frame's size is looked at before its bytes."""

from __future__ import annotations

from typing import NamedTuple

from mombroker.amqp.codec import FRAMING, AmqpError

PLAIN, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
HEADER = 8  # bytes of either, and at least of a frame
AMQP_FRAME, SASL_FRAME = 0, 1
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"  # says that we are here
EARLY = 4_096  # bytes of a frame before the connection is open
MAX_FRAME = 65_536  # then


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

    def alike(self, channel: int, handle: int, number: int, start: bytes, most: int) -> list[bytes]:
        """Take the transfers that follow by one link, at most so many: each with a whole message that begins with
        `start` and ends with its data, numbered on from `number`, and not settled. Their bodies."""
        data, at, size = self._data, self._at, len(self._data)
        head = b"\x02\x00" + channel.to_bytes(2, "big") + b"\x00\x53\x14\xc0"
        told = b"\x43" if not handle else bytes((0x52, handle)) if handle < 256 else b"\x70" + handle.to_bytes(4, "big")
        behind, found = 14 + len(told), list[bytes]()
        while len(found) < most and at + behind + 7 <= size:
            end = at + int.from_bytes(data[at : at + 4], "big")
            if end > size or not (data.startswith(head, at + 4) and data.startswith(told, at + 14)):
                break
            place, payload = at + behind, at + 13 + data[at + 12]
            code = data[place]
            tag = place + 5 if code == 0x70 else place + 2
            if code not in (0x70, 0x52) or int.from_bytes(data[place + 1 : tag], "big") != number or data[tag] != 0xA0:
                break
            if _says(data[tag + 2 + data[tag + 1] : payload]) or not data.startswith(start, payload):
                break
            body = data_of(data, payload + len(start), end)
            if body is None or end - at > self.most:
                break
            found.append(body)
            number, at = number + 1, end
        self._at = at
        return found


def _says(tail: bytes) -> bytes:
    """What the fields of a transfer say behind its tag, beside format 0, false and nothing."""
    return tail.removeprefix(b"\x52\x00").removeprefix(b"\x43").strip(b"\x40\x42")


def data_of(data: bytes, at: int, end: int) -> bytes | None:
    """The bytes of a binary value that ends there; None if it does not."""
    code = data[at] if at < end else 0
    start = at + 2 if code == 0xA0 else at + 5
    if start > end or code not in (0xA0, 0xB0):
        return None
    size = data[at + 1] if code == 0xA0 else int.from_bytes(data[at + 1 : start], "big")
    return data[start:end] if start + size == end else None


def frame(body: bytes, channel: int = 0, kind: int = AMQP_FRAME) -> bytes:
    head = (len(body) + HEADER).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big")
    return head + body
