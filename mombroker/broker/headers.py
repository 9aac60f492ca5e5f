"""A client's headers as stored: the *block*, lines `name:value\\n` in the escapes of STOMP 1.2.

It is ready to be stored, and to be sent on as it is to most receivers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

V10, V11, V12 = "1.0", "1.1", "1.2"
_UNSAFE = re.compile(r"[\\\r\n:\0]")
_ESCAPED = re.compile(r"\\(.?)", re.S)
_FROM_WIRE = {V11: {"n": "\n", "c": ":", "\\": "\\"}, V12: {"n": "\n", "c": ":", "\\": "\\", "r": "\r"}}
_TO_WIRE = {
    version: {"\0": " ", "\r": "\r", **{sign: f"\\{letter}" for letter, sign in known.items()}}
    for version, known in _FROM_WIRE.items()
}


def escape(text: str, version: str = V12) -> str:
    """A header name or value for the wire. What a version cannot express becomes a space."""
    if not _UNSAFE.search(text):
        return text
    if version == V10:
        return text.replace("\n", " ").replace("\0", " ")
    known = _TO_WIRE[version]
    return _UNSAFE.sub(lambda found: known[found[0]], text)


def unescape(text: str, version: str = V12) -> str:
    """Raises ValueError for an escape that the version does not know."""
    if version == V10 or "\\" not in text:
        return text
    known = _FROM_WIRE[version]

    def sign(found: re.Match[str]) -> str:
        if found[1] not in known:
            has = " ".join(f"\\{letter}" for letter in known)
            raise ValueError(f"undefined escape \\{found[1]} in a header: STOMP {version} has {has}")
        return known[found[1]]

    return _ESCAPED.sub(sign, text)


def block_of(headers: Iterable[tuple[str, str]]) -> bytes:
    """The block of these headers."""
    return "".join([f"{escape(name)}:{escape(value)}\n" for name, value in headers]).encode()


def headers_of(block: bytes) -> dict[str, str]:
    """The headers of a block."""
    pairs = [line.split(":", 1) for line in block.decode().split("\n")[:-1]]
    if b"\\" in block:
        pairs = [[unescape(name), unescape(value)] for name, value in pairs]
    return dict(pairs)


def block_for(block: bytes, version: str) -> bytes:
    """A block in the escapes of a receiver's version."""
    if version == V12 or (b"\\" if version == V10 else b"\\r") not in block:
        return block
    lines = [f"{escape(name, version)}:{escape(value, version)}\n" for name, value in headers_of(block).items()]
    return "".join(lines).encode()
