"""Bytes to frames and back: 4-byte length, then msgpack. No sockets; an empty frame is a heartbeat."""

import struct
from collections.abc import Iterator
from typing import Any

import msgpack

from mombroker.core.errors import PeerError

LOGIN_LIMIT = 4 * 1024  # bytes of a frame of a peer that we do not know yet
LINK_LIMIT = 64 * 1024 * 1024  # the same on all servers: what one has stored for a neighbour, the neighbour must take

HEARTBEAT = bytes(4)
_LENGTH = struct.Struct(">I")
_pack = msgpack.Packer(autoreset=True).pack


def encode(frame: Any) -> bytes:
    body: bytes = _pack(frame)
    return _LENGTH.pack(len(body)) + body


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} is not used here")


def decode(body: bytes, any_keys: bool = False) -> Any:
    """What a frame holds. Keys of maps are texts or bytes, unless `any_keys` are taken."""
    try:
        return msgpack.unpackb(body, ext_hook=_no_extension, strict_map_key=not any_keys)
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors
        raise PeerError(f"a frame is not valid msgpack: {str(error) or type(error).__name__}") from None


class Decoder:
    """Cuts a stream into frames, however its bytes are split. A length over `limit` is refused before any buffering.

    `limit` may be changed between two frames, also while `feed` is being iterated.
    """

    __slots__ = ("limit", "any_keys", "_buffer")

    def __init__(self, limit: int = LOGIN_LIMIT, any_keys: bool = False):
        self.limit, self.any_keys = limit, any_keys
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The frames that `data` completes; None is a heartbeat. Raises PeerError, after which nothing more comes."""
        buffer = self._buffer
        source: bytes | bytearray = data
        if buffer:
            buffer += data
            source = buffer
        start, end = 0, len(source)
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(source, start)
            if length > self.limit:
                raise PeerError(f"a frame of {length} bytes is over the limit of {self.limit}")
            stop = start + 4 + length
            if stop > end:
                break
            body = bytes(source[start + 4 : stop])
            start = stop
            yield decode(body, self.any_keys) if length else None
        if source is buffer:
            del buffer[:start]
        else:
            buffer += data[start:]
