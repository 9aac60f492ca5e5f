"""Headers of STOMP as text, and what those of a SEND mean: fields of a neutral message, of which MESSAGE is made again.

The *block* are the sender's headers as lines `name:value\\n` in the escapes of STOMP 1.2. A client gets the very lines
that another one has sent. They follow from the fields; where they do not, the message has what these lack in `form`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, NamedTuple

from mombroker.broker import texts
from mombroker.broker.message import BROKERS_OWN, ClientMessage
from mombroker.broker.older import LINES
from mombroker.broker.properties import FIELDS, MAX_PROPERTIES, Value, pack, read
from mombroker.broker.shapes import Within
from mombroker.broker.texts import TYPES
from mombroker.broker.wire import Note

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


# What MESSAGE alone says (replies.py): a property of such a name, which no SEND can have, is not told.
SAID = frozenset((
    "destination", "message-id", "timestamp", "JMSXDeliveryCount", "subscription", "ack", "redelivered", "priority",
    "expires", "JMSDeliveryTime", "persistent", "content-length", "amq-msg-type", *BROKERS_OWN,
))  # fmt: skip


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

# A form: where the lines of the standard fields are among all, a byte each; or packed, how all was written; or, of old
# messages, all lines: LINES.
PLACES, WRITTEN = b"@", b"%"
_FIRST = {some for count in range(len(FIELDS) + 1) for some in combinations(FIELDS, count)}  # without a form
_LINES = re.compile(r"(?:[^:\n\r\0]+:[^:\n\r\0]*\n)+")
_Place = Annotated[int, Within(0, MAX_PROPERTIES + len(FIELDS))]


@dataclass(slots=True)
class Written(Note):
    """Headers that are not as they are usually written for their fields.

    places   where the lines of the standard fields are among all, then that of `property-types`, if it was sent
    texts    of those properties whose values have another one, by number
    types    the text of `property-types`, if it is not what the values say
    """

    places: list[_Place]
    texts: dict[int, str]
    types: str | None


_tuple = tuple.__new__  # without the call in between


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
            head = head._replace(form=_form(headers, values))
    _made.put(head, block)  # most often it is asked for soon
    return head


def _head(headers: dict[str, str], values: dict[str, Value], typed: bool) -> Head:
    """Of values as they follow each other: those of standard fields are taken out, unless they are empty."""
    names, get = list(values), headers.get
    content_type, type = get("content-type", ""), get("type", "")
    correlation, reply_to = get("correlation-id", ""), get("reply-to", "")
    if content_type:
        del values["content-type"]
    if type:
        del values["type"]
    if correlation:
        del values["correlation-id"]
    if reply_to:
        del values["reply-to"]
    said, form = len(names) - len(values), b""
    if said and tuple(names[:said]) not in _FIRST:
        form = PLACES + bytes([min(names.index(name), 255) for name in FIELDS if name in names and name not in values])
    return _tuple(Head, (content_type, type, correlation, reply_to, pack(values), typed, form))


def _form(headers: dict[str, str], properties: dict[str, Value]) -> bytes:
    """What the lines have that the fields do not tell."""
    names = list(headers)
    places = [names.index(name) for name in (*FIELDS, TYPES) if name in headers and name not in properties]
    written = {
        number: headers[name]
        for number, (name, value) in enumerate(properties.items())
        if texts.text_of(value) != headers[name]
    }
    kinds = headers.get(TYPES)
    usual = texts.to_headers(properties).get(TYPES)
    return WRITTEN + Written(places, written, None if kinds == usual else kinds).pack()


def _block(
    content_type: str, type: str, correlation: str, reply_to: str, packed: bytes, typed: bool, form: bytes
) -> bytes:
    """The lines that were sent."""
    if form[:1] == LINES and _are_lines(form[1:]):
        return _without(form[1:], SAID)
    headers, said = texts.to_headers(read(packed)), []
    if content_type:
        said.append(("content-type", content_type))
    if type:
        said.append(("type", type))
    if correlation:
        said.append(("correlation-id", correlation))
    if reply_to:
        said.append(("reply-to", reply_to))
    for name, _ in said:
        headers.pop(name, None)
    if form[:1] == WRITTEN and (how := _written(form[1:])):
        places, usual = how.places, headers.pop(TYPES, "")
        names = list(headers)
        headers.update((names[number], text) for number, text in how.texts.items() if 0 <= number < len(names))
        if len(places) == len(said) + 1:
            said.append((TYPES, usual if how.types is None else how.types))
    else:
        places = list(form[1:]) if form[:1] == PLACES else []
        if typed:
            headers.pop(TYPES, None)
    pairs = list(headers.items())
    if len(places) != len(said):
        pairs = said + pairs
    else:
        for place, pair in sorted(zip(places, said, strict=True)):
            pairs.insert(place, pair)
    block = block_of(pairs)
    return block if SAID.isdisjoint(headers) else _without(block, SAID)


def _without(block: bytes, names: Set[str]) -> bytes:
    """A block without the headers of these names, and the types of such."""
    headers = headers_of(block)
    if names.isdisjoint(headers):
        return block
    if TYPES in headers:
        kinds = headers[TYPES].split(",")
        headers[TYPES] = ",".join(kind for kind in kinds if kind.partition("=")[0] not in names)
    return block_of((name, text) for name, text in headers.items() if name not in names and (text or name != TYPES))


# Of a form that a server has from another one; no client can read what is none.


def _are_lines(form: bytes) -> bool:
    try:
        return _LINES.fullmatch(form.decode()) is not None
    except UnicodeDecodeError:
        return False


def _written(form: bytes) -> Written | None:
    try:
        return Written.unpack(form)
    except ValueError:
        return None


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
    if message.annotations and not message.annotations.keys() <= SAID:  # which MESSAGE says, too
        block = _without(block, message.annotations.keys())
    return block if version == V12 else block_for(block, version)


def lines_of(message: ClientMessage) -> list[str]:
    """The same as lines, in the escapes of STOMP 1.2."""
    return text_of(message, V12).decode().split("\n")[:-1]
