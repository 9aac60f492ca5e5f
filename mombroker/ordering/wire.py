"""Bytes that several back ends put on the wire or into rows: little-endian integers, and the list of destinations."""

import sys
from array import array
from collections.abc import Callable
from functools import lru_cache
from struct import Struct, error

CODES = "BHIQ"  # typecodes of unsigned integers of 1, 2, 4 and 8 bytes
WIDTHS = (1, 2, 4, 8)


def width_of(value: int) -> int:
    """The index in CODES of the narrowest integer that holds `value`."""
    return 0 if value < 0x100 else 1 if value < 0x1_0000 else 2 if value < 0x1_0000_0000 else 3


@lru_cache(4096)
def layout(count: int, code: str, order: str = "<") -> Struct:
    """`count` integers of typecode `code`."""
    return Struct(f"{order}{count}{code}")


class Dests:
    """The destinations of a packet that has several: their number and their indexes."""

    __slots__ = ("me", "size", "code")

    def __init__(self, me: int, size: int):
        self.me, self.size = me, size
        self.code = CODES[width_of(size - 1)]

    def pack(self, dests: tuple[int, ...]) -> bytes:
        return layout(1 + len(dests), self.code).pack(len(dests), *dests)

    def unpack(self, data: bytes, at: int, frm: int) -> tuple[tuple[int, ...], int]:
        """(destinations, where the rest begins) of a packet that came from its origin `frm`."""
        try:
            (count,) = layout(1, self.code).unpack_from(data, at)
            form = layout(1 + count, self.code)
            dests = form.unpack_from(data, at)[1:]
        except error:
            raise ValueError("cut short in its destinations") from None
        if self.me not in dests or frm in dests or len(set(dests)) < count or count < 2 or max(dests) >= self.size:
            raise ValueError(f"no destinations for member {self.me}: {dests}")
        return dests, at + form.size


def _turned(numbers: "array[int]") -> bytes:
    numbers = numbers[:]
    numbers.byteswap()
    return numbers.tobytes()


# The array in little-endian order, on any machine. On most there is nothing to do, and so no call of Python's.
to_bytes: Callable[["array[int]"], bytes] = array.tobytes if sys.byteorder == "little" else _turned


def from_bytes(code: str, data: bytes) -> "array[int]":
    numbers = array(code, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
