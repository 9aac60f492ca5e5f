"""Application properties: typed values by name, in their order, as a message has them: packed.

What the broker holds, stores and sends on are these bytes. They are read where somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgpack

from mombroker.broker.shapes import Read, getter, shown
from mombroker.broker.wire import pack as _packed
from mombroker.core.errors import MomError

Value = str | bool | int | float | bytes | None


class PropertyError(MomError):
    """A message cannot have such properties."""


MAX_PROPERTIES = 1_000
MAX_BYTES = 512 << 10  # packed
BIT63 = 1 << 63  # a property is a whole number of 64 bits, or a float
TEXT = frozenset((str,))
KINDS = frozenset((str, bool, int, float, bytes, type(None)))

# What selectors and texts call the standard fields.
FIELDS = {"content-type": "content_type", "type": "type", "correlation-id": "correlation", "reply-to": "reply_to"}


def pack(properties: Mapping[str, Value]) -> bytes:
    """Nothing for no properties. Raises PropertyError for what is none."""
    if not properties:
        return b""
    try:
        _check(properties)
        packed: bytes = _packed(properties)
    except ValueError as error:
        raise PropertyError(f"properties: {error}") from None
    if len(packed) > MAX_BYTES:
        raise PropertyError(f"properties of {len(packed)} bytes, of at most {MAX_BYTES}: put them into the body")
    return packed


def unpack(packed: bytes) -> dict[str, Value]:
    """Raises ValueError for what `pack` has not made."""
    if not packed:
        return {}
    if len(packed) > MAX_BYTES:
        raise ValueError(f"{len(packed)} bytes, of at most {MAX_BYTES}")
    try:
        found = msgpack.unpackb(
            packed, max_map_len=MAX_PROPERTIES, max_array_len=0, max_ext_len=0, max_str_len=MAX_BYTES
        )
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"they cannot be unpacked: {str(error)[:80] or type(error).__name__}") from None
    if type(found) is not dict:
        raise ValueError(f"{shown(found)} is no map")
    _check(found)
    if not found or _packed(found) != packed:
        raise ValueError("they are not packed as they should be, or have a name twice")
    return found


def read(packed: bytes) -> dict[str, Value]:
    """Of a message: these were packed here, or looked at when they came."""
    found: dict[str, Value] = msgpack.unpackb(packed) if packed else {}
    return found


def _check(properties: Mapping[Any, Any]) -> None:
    if len(properties) > MAX_PROPERTIES:
        raise ValueError(f"{len(properties)} of them, of at most {MAX_PROPERTIES}")
    for name, value in properties.items():
        if type(name) is not str or not name:
            raise ValueError(f"{shown(name)} is no name")
        if type(value) is str:
            continue
        if type(value) not in KINDS:
            raise ValueError(f"{name[:40]!r} is text, a boolean, a number, bytes or nothing, not {shown(value)}")
        if type(value) is int and not -BIT63 <= value < BIT63:
            raise ValueError(f"{name[:40]!r} is a whole number of more than 64 bits")


def _read(value: Any) -> bytes:
    if type(value) is not bytes:
        raise ValueError(f"{shown(value)} is no bytes")
    _known(value) if len(value) <= MAX_KNOWN else unpack(value)
    return value


MAX_KNOWN = 1_024  # bytes of properties that are remembered
_known = lru_cache(1_000)(unpack)
Packed = Annotated[bytes, Read(_read)]


_said = getter(*FIELDS.values(), "properties")


def named(message: Any) -> Mapping[str, Value]:
    """Properties of a message, and those standard fields that it has, by name. Not to be changed: others look at it,
    too."""
    return _named(*_said(message))


@lru_cache(16)  # once for all that look at a message
def _named(*said: Any) -> Mapping[str, Value]:
    *fields, packed = said
    return {**{name: text for name, text in zip(FIELDS, fields, strict=True) if text}, **read(packed)}
