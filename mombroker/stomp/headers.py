"""Headers of STOMP as text, and what those of a SEND mean: fields of a neutral message, of which MESSAGE is made again.

The *block* are the sender's headers as lines `name:value\\n` in the escapes of STOMP 1.2. A client gets the very lines
that another one has sent. Most follow from the fields; of others the message has, in `form`, what these lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from mombroker.broker import texts
from mombroker.broker.message import ClientMessage
from mombroker.broker.properties import FIELDS, Value, pack, unpack
from mombroker.broker.texts import TYPES

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


# -- neutral -------------------------------------------------------------------------------------------------------

# A form: where the lines of the standard fields are among all, a byte each; or all lines, as they were.
PLACES, LINES = b"@", b"="
MAX_MEMO = 1_024  # bytes of what a text is made of, to be remembered
_SPECIAL = frozenset((*FIELDS, TYPES))
_FORM = re.compile(r"(?:[^:\n\r\0]+:[^:\n\r\0]*\n)+")


class Head(NamedTuple):
    """What headers of a sender mean, as the fields of a message that are called so."""

    content_type: str
    type: str
    correlation: str
    reply_to: str
    properties: bytes
    typed: bool
    form: bytes


def head_of(headers: dict[str, str], typed: bool) -> Head:
    """`typed`: a value that looks like a number or boolean is one. Raises PropertyError."""
    if not typed and _SPECIAL.isdisjoint(headers):
        return Head("", "", "", "", pack(headers), False, b"")
    fields = [headers.get(name, "") for name in FIELDS]
    names, kinds = list(headers), texts.types_of(headers.get(TYPES, ""))
    properties: dict[str, Value] = {
        name: texts.typed(text, kinds.get(name), typed)
        for name, text in headers.items()
        if not (name in FIELDS and text) and name != TYPES
    }
    places = [names.index(name) for name, text in zip(FIELDS, fields, strict=True) if text]
    form = b""
    if places != [*range(len(places))]:
        form = PLACES + bytes(min(place, 255) for place in places)
    content_type, type, correlation, reply_to = fields
    head = Head(content_type, type, correlation, reply_to, pack(properties), typed, form)
    if (typed or TYPES in headers or len(names) > 255) and _block(*head) != (block := block_of(headers.items())):
        head = head._replace(form=LINES + block)
    return head


def _block(
    content_type: str, type: str, correlation: str, reply_to: str, packed: bytes, typed: bool, form: bytes
) -> bytes:
    """The lines that were sent."""
    if form.startswith(LINES) and _are_lines(form[1:]):
        return form[1:]
    properties = unpack(packed)
    headers = dict(texts.to_headers(properties))
    if typed:
        headers.pop(TYPES, None)
    pairs = list(headers.items())
    fields = zip(FIELDS, (content_type, type, correlation, reply_to), strict=True)
    said = [(name, text) for name, text in fields if text]
    places: Iterable[int] = form[1:] if len(form) == len(said) + 1 else range(len(said))
    for place, pair in sorted(zip(places, said, strict=True), key=lambda each: each[0]):
        pairs.insert(place, pair)
    return block_of(pairs)


def _are_lines(form: bytes) -> bool:
    """A server may have it from another one, and no client can read what is not."""
    try:
        return _FORM.fullmatch(form.decode()) is not None
    except UnicodeDecodeError:
        return False


def text_of(message: ClientMessage, version: str) -> bytes:
    """The sender's headers, for a client of this version."""
    made = (
        message.content_type, message.type, message.correlation, message.reply_to, message.properties, message.typed,
        message.form,
    )  # fmt: skip
    size = len(message.properties) + len(message.form) + sum(map(len, made[:4]))
    return (_remembered if size <= MAX_MEMO else _text)(version, *made)


def _text(version: str, *made: Any) -> bytes:
    return block_for(_block(*made), version)


_remembered = lru_cache(1_000)(_text)
