"""Messages of clients as mombroker wrote them when they had the sender's headers as text: to be read for ever.

Such are in rows, inboxes and out-queues of stores below schema 6, and come from servers that had them in out-queues,
since what was stamped is sent as it was. So they are converted where they are read; a large store opens at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from mombroker.broker import texts
from mombroker.broker.properties import FIELDS, PropertyError, Value, pack
from mombroker.broker.shapes import Count, Shape, Time, Within

HEADERS, BODY = 2, 17  # places in the list of fields
LINES = b"="  # how the form of such a message begins; then come the sender's lines, which it counts by
_ESCAPED = re.compile(r"\\(.)", re.S)
_SIGNS = {"n": "\n", "c": ":", "r": "\r"}


@dataclass(slots=True)
class Older:
    """`headers` are lines `name:value\\n` in the escapes of STOMP 1.2, each name once."""

    destination: str
    shown: str
    headers: bytes
    priority: Annotated[int, Within(0, 9)] = 4
    timestamp: Count = 0
    expires: Time = 0
    due: Time = 0
    persistent: bool = True
    kind: str = "bytes"
    group: str = ""
    group_seq: int = 0
    producer: str = ""
    counter: Count = 0
    sender: str = ""
    message: str = ""
    typed: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


_shape = Shape(Older)


def is_one(values: Any) -> bool:
    return type(values) is list and len(values) > HEADERS and type(values[HEADERS]) is bytes


def converted(values: list[Any]) -> list[Any]:
    """The fields of a ClientMessage. STOMP gets them as they were written, and queues have counted those lines. Raises
    ValueError."""
    old = Older(*_shape.read(values))
    headers = dict(_line(line) for line in old.headers.decode().split("\n")[:-1])
    kinds = texts.types_of(headers.pop(texts.TYPES, ""))
    fields = [headers.pop(name, "") if headers.get(name) else "" for name in FIELDS]
    properties: dict[str, Value] = {
        name: texts.typed(text, kinds.get(name), old.typed) for name, text in headers.items()
    }
    try:
        packed = pack(properties)
    except PropertyError as error:
        raise ValueError(str(error)) from None
    return [
        old.destination, old.shown, old.priority, old.timestamp, old.expires, old.due, old.persistent, old.kind,
        old.group, old.group_seq, old.producer, old.counter, old.sender, old.message, *fields, packed, old.typed,
        LINES + old.headers if old.headers else b"", old.annotations, old.body,
    ]  # fmt: skip


def _line(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name:
        raise ValueError(f"{line[:40]!r} is no header")
    return _unescape(name), _unescape(value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _SIGNS.get(found[1], found[1]), text)
