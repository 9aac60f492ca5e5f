"""Headers of STOMP as text, and what those of a SEND mean: fields of a neutral message, of which MESSAGE is made again.

The *block* are the sender's headers as lines `name:value\\n` in the escapes of STOMP 1.2. A client gets the very lines
that another one has sent. Most follow from the fields; of others the message has, in `form`, what these lack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple

from mombroker.broker import texts
from mombroker.broker.message import ClientMessage
from mombroker.broker.properties import FIELDS, Value, pack, read
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
    pairs = list(headers)
    text = "".join([f"{name}:{value}\n" for name, value in pairs])
    odd = "\\" in text or "\r" in text or "\0" in text
    if odd or not text.count(":") == text.count("\n") == len(pairs):
        text = "".join([f"{escape(name)}:{escape(value)}\n" for name, value in pairs])
    return text.encode()


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
_FIRST = {some for count in range(len(FIELDS) + 1) for some in combinations(FIELDS, count)}  # without a form
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
    block = block_of(headers.items())
    if not typed and TYPES not in headers and "" not in headers.values() and len(headers) <= 255:
        head = _head(headers, dict[str, Value](headers), False)
    else:
        kinds = texts.types_of(headers.get(TYPES, ""))
        values = {
            name: text if name in FIELDS else texts.typed(text, kinds.get(name), typed)
            for name, text in headers.items()
            if name != TYPES
        }
        head = _head(headers, values, typed)
        if _block(*head) != block:
            head = head._replace(form=LINES + block)
    _made.put(head, block)  # most often it is asked for soon
    return head


def _head(headers: dict[str, str], values: dict[str, Value], typed: bool) -> Head:
    """Of values as they follow each other: those of standard fields are taken out, unless they are empty."""
    names, get = list(values), headers.get
    for name in FIELDS.keys() & names:
        if values[name]:
            del values[name]
    said, form = len(names) - len(values), b""
    if said and tuple(names[:said]) not in _FIRST:
        form = PLACES + bytes([min(names.index(name), 255) for name in FIELDS if name in names and name not in values])
    fields = get("content-type", ""), get("type", ""), get("correlation-id", ""), get("reply-to", "")
    return Head(*fields, pack(values), typed, form)


def _block(
    content_type: str, type: str, correlation: str, reply_to: str, packed: bytes, typed: bool, form: bytes
) -> bytes:
    """The lines that were sent."""
    if form[:1] == LINES and _are_lines(form[1:]):
        return form[1:]
    headers = texts.to_headers(read(packed))
    if typed:
        headers.pop(TYPES, None)
    pairs, said = list(headers.items()), []
    if content_type:
        said.append(("content-type", content_type))
    if type:
        said.append(("type", type))
    if correlation:
        said.append(("correlation-id", correlation))
    if reply_to:
        said.append(("reply-to", reply_to))
    if len(form) != len(said) + 1:
        return block_of(said + pairs)
    for place, pair in sorted(zip(form[1:], said, strict=True)):
        pairs.insert(place, pair)
    return block_of(pairs)


def _are_lines(form: bytes) -> bool:
    """A server may have it from another one, and no client can read what is not."""
    try:
        return _FORM.fullmatch(form.decode()) is not None
    except UnicodeDecodeError:
        return False


class Memo:
    """Lines that were made lately: at most twice MOST."""

    MOST, BYTES = 1_000, 1_024

    def __init__(self) -> None:
        self.new: dict[Any, bytes] = {}
        self.old: dict[Any, bytes] = {}

    def get(self, key: Any) -> bytes | None:
        return self.new.get(key) or self.old.get(key)

    def put(self, key: Any, block: bytes) -> None:
        if len(block) <= self.BYTES:
            if len(self.new) >= self.MOST:
                self.old, self.new = self.new, {}
            self.new[key] = block


_made = Memo()


def text_of(message: ClientMessage, version: str) -> bytes:
    """The sender's headers, for a client of this version."""
    head = (
        message.content_type, message.type, message.correlation, message.reply_to, message.properties, message.typed,
        message.form,
    )  # fmt: skip
    block = _made.get(head)
    if block is None:
        block = _block(*head)
        _made.put(head, block)
    return block if version == V12 else block_for(block, version)
