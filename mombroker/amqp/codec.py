"""Types of AMQP 1.0 as bytes, both ways (part 1 of the specification). Whatever is wrong raises AmqpError.

Read: null is None; whole numbers, characters and timestamps (ms) are int, floats float, decimals and uuids as named
below; binary bytes, string str, symbol Symbol; lists and arrays list, maps dict.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from mombroker.core.errors import MomError

MAX_DEPTH = 32  # of compounds in each other
MAX_EMPTY = 1_000  # values of an array that take no byte each
MALFORMED = (IndexError, struct.error, ValueError, OverflowError, TypeError)  # what reading wrong bytes may raise

DECODE, NOT_ALLOWED, INVALID = "amqp:decode-error", "amqp:not-allowed", "amqp:invalid-field"
FRAMING, INTERNAL, FORCED = "amqp:connection:framing-error", "amqp:internal-error", "amqp:connection:forced"
NOT_FOUND, DENIED, LIMIT = "amqp:not-found", "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
PRECONDITION, NOT_IMPLEMENTED = "amqp:precondition-failed", "amqp:not-implemented"


class AmqpError(MomError):
    """The peer broke the rules of AMQP or a limit.

    condition   what the specification calls that
    """

    def __init__(self, text: str, condition: str = DECODE):
        super().__init__(text)
        self.condition = condition


class Symbol(str):
    __slots__ = ()


class Described(NamedTuple):
    descriptor: Any
    value: Any


class Timestamp(int):
    """ms since 1970."""

    __slots__ = ()


class Decimal(bytes):
    """As it stands on the wire, 4, 8 or 16 bytes."""

    __slots__ = ()


Read = Callable[[bytes, int, int], tuple[Any, int]]


def value(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value at a place, and where the next one stands. Raises one of MALFORMED, or AmqpError."""
    return _READ[data[at]](data, at + 1, depth)


def read(data: bytes, at: int = 0) -> Any:
    """The one value from a place to the end. Raises AmqpError."""
    try:
        found, end = value(data, at)
    except MALFORMED as error:
        raise malformed(error) from None
    if end != len(data):
        raise AmqpError(f"{len(data) - end} bytes behind a value")
    return found


def malformed(error: BaseException) -> AmqpError:
    return AmqpError(f"bytes that are no AMQP: {str(error)[:80] or type(error).__name__}")


def _unknown(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    raise AmqpError(f"no type of AMQP has the code {data[at - 1]:#04x}")


def _constant(found: Any) -> Read:
    return lambda data, at, depth: (found, at)


def _fixed(form: str, made: Callable[[Any], Any] | None = None) -> Read:
    kind = struct.Struct(form)
    unpack, size = kind.unpack_from, kind.size
    if made is None:
        return lambda data, at, depth: (unpack(data, at)[0], at + size)
    return lambda data, at, depth: (made(unpack(data, at)[0]), at + size)


def _byte(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    return data[at], at + 1


def _signed(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    found = data[at]
    return found - 256 if found > 127 else found, at + 1


def _boolean(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if data[at] > 1:
        raise AmqpError("a boolean is 0 or 1")
    return data[at] == 1, at + 1


def _piece(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise AmqpError("a value ends behind its frame")
    return data[at:end], end


def _short(made: Callable[[bytes], Any]) -> Read:
    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        piece, end = _piece(data, at + 1, data[at])
        return made(piece), end

    return of


def _long(made: Callable[[bytes], Any]) -> Read:
    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        piece, end = _piece(data, at + 4, int.from_bytes(data[at : at + 4], "big"))
        return made(piece), end

    return of


def _raw(piece: bytes) -> bytes:
    return piece


def _symbol(piece: bytes) -> Symbol:
    return Symbol(piece.decode("ascii"))


def _exactly(size: int, made: Callable[[bytes], Any]) -> Read:
    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        piece, end = _piece(data, at, size)
        return made(piece), end

    return of


def _compound(width: int, made: Callable[[bytes, int, int, int, int], Any]) -> Read:
    """One whose size and count have `width` bytes each; the size counts from behind itself."""

    def of(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        if depth >= MAX_DEPTH:
            raise AmqpError(f"values in each other, more than {MAX_DEPTH}")
        first = at + width
        end = first + int.from_bytes(data[at:first], "big")
        if end > len(data) or end < first + width:
            raise AmqpError("a list or map ends behind its frame")
        count = int.from_bytes(data[first : first + width], "big")
        return made(data, first + width, end, count, depth + 1), end

    return of


def _list(data: bytes, at: int, end: int, count: int, depth: int) -> list[Any]:
    if count > end - at:
        raise AmqpError("a list has fewer values than it says")
    found = []
    for _ in range(count):
        one, at = _READ[data[at]](data, at + 1, depth)
        found.append(one)
    if at != end:
        raise AmqpError("a list has another size than it says")
    return found


def _map(data: bytes, at: int, end: int, count: int, depth: int) -> dict[Any, Any]:
    if count % 2:
        raise AmqpError("a map has a key without a value")
    flat = _list(data, at, end, count, depth)
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    if len(found) * 2 != count:
        raise AmqpError("a map has a key twice")
    return found


def _array(data: bytes, at: int, end: int, count: int, depth: int) -> list[Any]:
    descriptor = None
    if described := data[at] == 0:
        descriptor, at = value(data, at + 1, depth)
    code = data[at]
    at += 1
    if count > (MAX_EMPTY if code >> 4 == 4 else end - at):
        raise AmqpError("an array has fewer values than it says")
    one, found = _READ[code], []
    for _ in range(count):
        each, at = one(data, at, depth)
        found.append(Described(descriptor, each) if described else each)
    if at != end:
        raise AmqpError("an array has another size than it says")
    return found


def _described(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise AmqpError(f"values in each other, more than {MAX_DEPTH}")
    descriptor, at = value(data, at, depth + 1)
    found, at = value(data, at, depth + 1)
    return Described(descriptor, found), at


_READ: list[Read] = [_unknown] * 256
for _code, _one in {
    0x00: _described, 0x40: _constant(None), 0x41: _constant(True), 0x42: _constant(False), 0x43: _constant(0),
    0x44: _constant(0), 0x45: lambda data, at, depth: ([], at), 0x50: _byte, 0x51: _signed, 0x52: _byte, 0x53: _byte,
    0x54: _signed, 0x55: _signed, 0x56: _boolean, 0x60: _fixed(">H"), 0x61: _fixed(">h"), 0x70: _fixed(">I"),
    0x71: _fixed(">i"), 0x72: _fixed(">f"), 0x73: _fixed(">I", chr), 0x74: _exactly(4, Decimal), 0x80: _fixed(">Q"),
    0x81: _fixed(">q"), 0x82: _fixed(">d"), 0x83: _fixed(">q", Timestamp), 0x84: _exactly(8, Decimal),
    0x94: _exactly(16, Decimal), 0x98: _exactly(16, lambda piece: UUID(bytes=piece)), 0xA0: _short(_raw),
    0xB0: _long(_raw), 0xA1: _short(bytes.decode), 0xB1: _long(bytes.decode), 0xA3: _short(_symbol),
    0xB3: _long(_symbol), 0xC0: _compound(1, _list), 0xD0: _compound(4, _list), 0xC1: _compound(1, _map),
    0xD1: _compound(4, _map), 0xE0: _compound(1, _array), 0xF0: _compound(4, _array),
}.items():  # fmt: skip
    _READ[_code] = _one

_FIXED = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}  # bytes of a value, by the upper half of its code


def skip(data: bytes, at: int) -> int:
    """Where the value at a place ends, by its outermost size alone. Raises IndexError or AmqpError."""
    code = data[at]
    kind = code >> 4
    if kind >= 10:
        if kind % 2:
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        else:
            end = at + 2 + data[at + 1]
    elif code:
        if kind not in _FIXED:
            raise AmqpError(f"no type of AMQP has the code {code:#04x}")
        end = at + 1 + _FIXED[kind]
    else:
        end = skip(data, skip(data, at + 1))
    if end > len(data):
        raise AmqpError("a value ends behind its frame")
    return end


# -- to bytes ------------------------------------------------------------------------------------------------------

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
_U32, _I32, _I64, _U64, _F64 = (struct.Struct(form).pack for form in (">BI", ">Bi", ">Bq", ">BQ", ">Bd"))


def ubyte(number: int) -> bytes:
    return bytes((0x50, number))


def ushort(number: int) -> bytes:
    return b"\x60" + number.to_bytes(2, "big")


def uint(number: int) -> bytes:
    if number < 256:
        return bytes((0x52, number)) if number else b"\x43"
    return _U32(0x70, number)


def ulong(number: int) -> bytes:
    if number < 256:
        return bytes((0x53, number)) if number else b"\x44"
    return _U64(0x80, number)


def boolean(truth: bool) -> bytes:
    return TRUE if truth else FALSE


def timestamp(ms: int) -> bytes:
    return _I64(0x83, ms)


def _sized(short: int, data: bytes) -> bytes:
    """With its length before it; the code for a long one is 16 above that for a short one."""
    size = len(data)
    return bytes((short, size)) + data if size < 256 else _U32(short + 16, size) + data


def binary(data: bytes) -> bytes:
    return _sized(0xA0, data)


def string(text: str) -> bytes:
    return _sized(0xA1, text.encode("utf-8", "replace"))


def symbol(text: str) -> bytes:
    return _sized(0xA3, text.encode("ascii", "replace"))


def optional(encoded: Callable[[Any], bytes], found: Any) -> bytes:
    return NULL if found is None else encoded(found)


def _compounded(short: int, count: int, data: bytes) -> bytes:
    if count < 256 and len(data) < 255:
        return bytes((short, len(data) + 1, count)) + data
    return _U32(short + 16, len(data) + 4) + count.to_bytes(4, "big") + data


def listed(parts: Iterable[bytes]) -> bytes:
    """A list of values that are encoded."""
    parts = list(parts)
    return _compounded(0xC0, len(parts), b"".join(parts)) if parts else b"\x45"


def mapped(parts: Iterable[tuple[bytes, bytes]]) -> bytes:
    flat = [part for pair in parts for part in pair]
    return _compounded(0xC1, len(flat), b"".join(flat))


def symbols(names: Iterable[str]) -> bytes:
    """An array."""
    parts = [len(name).to_bytes(4, "big") + name.encode("ascii") for name in names]
    data = b"\xb3" + b"".join(parts)
    return _U32(0xF0, len(data) + 4) + len(parts).to_bytes(4, "big") + data


def described(code: int, encoded: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + encoded


def performative(code: int, fields: Iterable[bytes]) -> bytes:
    """A described list without the nulls at its end."""
    parts = list(fields)
    while parts and parts[-1] == NULL:
        parts.pop()
    return bytes((0x00, 0x53, code)) + listed(parts)


def any_value(found: Any) -> bytes:
    """Of a plain value: a whole number is an int where 32 bits are enough, else a long. Raises AmqpError."""
    if found is None:
        return NULL
    if isinstance(found, bool):
        return boolean(found)
    if isinstance(found, Timestamp):
        return timestamp(found)
    if isinstance(found, int):
        if -(1 << 31) <= found < 1 << 31:
            return _I32(0x71, found)
        if -(1 << 63) <= found < 1 << 63:
            return _I64(0x81, found)
        raise AmqpError("a whole number of more than 64 bits")
    if isinstance(found, float):
        return _F64(0x82, found)
    if isinstance(found, Symbol):
        return symbol(found)
    if isinstance(found, str):
        return string(found)
    if isinstance(found, bytes):
        return binary(found)
    if isinstance(found, UUID):
        return b"\x98" + found.bytes
    if isinstance(found, Mapping):
        return mapped((any_value(key), any_value(each)) for key, each in found.items())
    if isinstance(found, list | tuple):
        return listed(any_value(each) for each in found)
    raise AmqpError(f"nothing of AMQP is a {type(found).__name__}")
