"""Bytes are the same on any machine."""

import sys
from array import array

from mombroker.ordering import wire


def test_an_array_is_little_endian_on_any_machine():
    assert wire.to_bytes(array("H", (1, 0x203))) == b"\1\0\3\2"
    assert wire.from_bytes("H", b"\1\0\3\2") == array("H", (1, 0x203))
    numbers = array("H", (1, 0x203))
    if sys.byteorder == "little":
        assert wire._turned(numbers) == b"\0\1\2\3"
    assert numbers == array("H", (1, 0x203))
