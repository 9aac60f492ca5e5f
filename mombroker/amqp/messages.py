"""What clients of AMQP send, as the broker has it (part 3.2 of the specification, and JMS over AMQP).

The sections that a client has sent before its body stay as they are, in `form`: who receives by AMQP gets the very
bytes. The fields of the broker's message are what others see of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from mombroker.amqp import addresses, codec
from mombroker.amqp.codec import (
    MALFORMED,
    AmqpError,
    Described,
    malformed,
)
from mombroker.broker import properties, wire
from mombroker.broker.commands import Ask, Send
from mombroker.broker.destinations import AGENT, shown_as
from mombroker.broker.heads import WHOLE
from mombroker.broker.message import BROKERS_OWN
from mombroker.core import times
from mombroker.core.trace import traceparent

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, SEQUENCE, VALUE, FOOTER = range(0x70, 0x79)
_NAMES = {
    f"amqp:{name}": code
    for code, name in enumerate(
        ("header:list", "delivery-annotations:map", "message-annotations:map", "properties:list",
         "application-properties:map", "data:binary", "amqp-sequence:list", "amqp-value:*", "footer:map"),
        HEADER,
    )
}  # fmt: skip

# A form: FORM, what the body was, and the sections before it; of OTHER bodies also the sections from it on, behind.
FORM = WHOLE
AS_DATA, AS_TEXT, AS_BINARY, AS_NULL, OTHER = b"d", b"t", b"b", b"n", b"o"
MAX_HEAD = 256 << 10  # bytes of the sections before the body
MAX_ID = re.compile(r"[!-.0-\[\]-~]{1,100}")  # means itself everywhere, and ends before a "/"

DEST, REPLY_TO, MESSAGE_TYPE = "x-opt-jms-dest", "x-opt-jms-reply-to", "x-opt-jms-msg-type"
DELIVERY_TIME, DELIVERY_DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"
GROUP, GROUP_SEQ = "JMSXGroupID", "JMSXGroupSeq"


class Split(NamedTuple):
    """A message by its sections. `head` are the bytes before its body, of which `kept` travel on."""

    header: list[Any]
    kept: bytes
    head: int
    kind: bytes
    body: bytes
    rest: bytes  # of an OTHER body, all from it on


def split(data: bytes) -> Split:
    """Raises AmqpError."""
    try:
        return _split(data)
    except MALFORMED as error:
        raise malformed(error) from None


def _split(data: bytes) -> Split:
    header: list[Any] = []
    kept: list[bytes] = []
    at, size, last = 0, len(data), 0
    while at < size:
        start = at
        code, at = section(data, at)
        if code <= last:
            raise AmqpError("sections of a message in a wrong order")
        last = code
        if code >= DATA:
            if start > MAX_HEAD:
                raise AmqpError(f"{start} bytes before a body, of at most {MAX_HEAD}", codec.LIMIT)
            return Split(header, b"".join(kept), start, *_body(data, start, code, at))
        end = codec.skip(data, at)
        if code == HEADER:
            header = codec.read(data[at:end])
            if type(header) is not list:
                raise AmqpError("a header that is no list")
        elif code != DELIVERY_ANNOTATIONS:
            kept.append(data[start:end])
        at = end
    if not last:
        raise AmqpError("a message without a section")
    return Split(header, b"".join(kept), at, AS_NULL, b"", b"")  # as proton writes one without a body


def section(data: bytes, at: int) -> tuple[int, int]:
    """The code of a section, and where its value begins."""
    if data[at] != 0:
        raise AmqpError("a message consists of sections")
    if data[at + 1] == 0x53:
        code, at = data[at + 2], at + 3
    else:
        found, at = codec.value(data, at + 1)
        code = _NAMES.get(found, 0) if isinstance(found, str) else found
    if type(code) is not int or not HEADER <= code <= FOOTER:
        raise AmqpError("a section of an unknown kind")
    return code, at


def _body(data: bytes, start: int, code: int, at: int) -> tuple[bytes, bytes, bytes]:
    if code == FOOTER:
        raise AmqpError("a message without a body")
    end = codec.skip(data, at)
    alone = end == len(data)
    if code == DATA:
        body = codec.value(data, at)[0]
        if type(body) is not bytes:
            raise AmqpError("data that are no binary")
        return (AS_DATA, body, b"") if alone else (OTHER, body + _more_data(data, end), data[start:])
    if code == VALUE and alone:
        first = data[at]
        if first in (0xA1, 0xB1):
            text = codec.value(data, at)[0]
            return AS_TEXT, text.encode(), b""
        if first in (0xA0, 0xB0):
            return AS_BINARY, codec.value(data, at)[0], b""
        if first == 0x40:
            return AS_NULL, b"", b""
    return OTHER, b"", data[start:]


def _more_data(data: bytes, at: int) -> bytes:
    """What stands in the sections behind the first one, up to a footer."""
    found = []
    while at < len(data):
        code, at = section(data, at)
        end = codec.skip(data, at)
        if code == DATA:
            found.append(codec.value(data, at)[0])
        elif code != FOOTER:
            raise AmqpError("a body of several kinds")
        at = end
    return b"".join(found)


def plain(found: Any) -> Any:
    """A value in the types that the broker has."""
    if found is None or isinstance(found, bool):
        return found
    if isinstance(found, int):
        return int(found)
    if isinstance(found, str):
        return str(found)
    if isinstance(found, Described):
        return plain(found.value)
    if isinstance(found, bytes):
        return bytes(found)
    if isinstance(found, dict):
        return {str(plain(key)): plain(each) for key, each in found.items()}
    if isinstance(found, list):
        return [plain(each) for each in found]
    return str(found) if isinstance(found, UUID) else found


def _property(found: Any) -> properties.Value:
    found = plain(found)
    if isinstance(found, dict | list):
        raise AmqpError("a property of a message is no list and no map", codec.INVALID)
    if isinstance(found, int) and not -properties.BIT63 <= found < properties.BIT63:
        return str(found)
    return found  # type: ignore[no-any-return]


def id_text(found: Any) -> str:
    """A message or correlation id as JMS has it."""
    if found is None:
        return ""
    if isinstance(found, str):
        return str(found)
    if isinstance(found, UUID):
        return f"ID:AMQP_UUID:{found}"
    if isinstance(found, bytes):
        return f"ID:AMQP_BINARY:{found.hex().upper()}"
    if isinstance(found, int) and not isinstance(found, bool):
        return f"ID:AMQP_ULONG:{found}"
    raise AmqpError("an id of a message is text, binary, a uuid or a ulong", codec.INVALID)


class Head(NamedTuple):
    """What the sections before a body say: what becomes of them is the same each time, unless `timed`."""

    annotations: dict[Any, Any]
    properties: list[Any]
    application: dict[Any, Any]

    def get(self, at: int, kind: type | tuple[type, ...]) -> Any:
        """A field of the properties."""
        found = self.properties[at] if at < len(self.properties) else None
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise AmqpError(f"field {at} of the properties has a wrong type", codec.INVALID)
        return found


def head_of(kept: bytes) -> Head:
    """Raises AmqpError."""
    found: dict[int, Any] = {ANNOTATIONS: {}, PROPERTIES: [], APPLICATION: {}}
    at = 0
    try:
        while at < len(kept):
            code, at = section(kept, at)
            value, at = codec.value(kept, at)
            if type(value) is not (list if code == PROPERTIES else dict):
                raise AmqpError("a section of a message has a wrong type")
            found[code] = value
    except MALFORMED as error:
        raise malformed(error) from None
    return Head(found[ANNOTATIONS], found[PROPERTIES], found[APPLICATION])


def address_of(head: Head) -> str:
    """Where the message itself says that it is to go."""
    return head.get(2, str) or ""


def send_of(found: Split, head: Head, destination: str, now: Callable[[], int]) -> Send:
    """The command for a message. `now`, the wall clock in ns, is asked if what it says depends on that. Raises
    AmqpError or PropertyError."""
    kind = Ask if destination.startswith(AGENT) else Send
    command = kind(destination, found.body, shown=shown_as(destination), persistent=False)
    annotations, get = head.annotations, head.get
    durable, priority, ttl = (found.header + [None] * 3)[:3]
    if durable is True:
        command.persistent = True
    if isinstance(priority, int):
        command.priority = max(0, min(9, priority))
    if isinstance(ttl, int) and ttl:
        command.expires = times.after(now(), times.of_ms(ttl))
    elif (until := get(8, int)) is not None:
        command.expires = times.within(times.of_ms(until))
    if isinstance(at := annotations.get(DELIVERY_TIME), int):
        command.delay = max(0, times.of_ms(max(0, at)) - now())
    elif isinstance(delay := annotations.get(DELIVERY_DELAY), int):
        command.delay = times.of_ms(max(0, delay))
    message_id = id_text(get(0, (str, bytes, UUID, int)))
    command.message = message_id if MAX_ID.fullmatch(message_id) else ""
    command.type = get(3, str) or ""
    if reply_to := get(4, str):
        command.reply_to = addresses.shown(reply_to, annotations.get(REPLY_TO))
    command.correlation = id_text(get(5, (str, bytes, UUID, int)))
    command.content_type = get(6, str) or ""
    values: dict[str, properties.Value] = {}
    for name, value in head.application.items():
        if not isinstance(name, str):
            raise AmqpError("a property of a message has a name", codec.INVALID)
        if name not in BROKERS_OWN:
            values[str(name)] = _property(value)
    if group := get(10, str):
        sequence = get(11, int) or 0
        command.group = str(group)
        command.group_seq = sequence - (1 << 32) if sequence >= 1 << 31 else sequence
        values |= {GROUP: command.group, GROUP_SEQ: str(command.group_seq)}
    command.parent = traceparent(values.get("traceparent"))
    command.properties = properties.pack(values)
    _set_body(command, found)
    return command


def _set_body(command: Send, found: Split) -> None:
    kind, kept = found.kind, found.kept
    command.form = FORM + kind + kept
    if kind == AS_TEXT:
        command.kind = "text"
    elif kind == AS_NULL:
        command.kind = "none"
    elif kind == OTHER:
        command.form = FORM + kind + len(kept).to_bytes(4, "big") + kept + found.rest
        if not found.body:
            command.kind, command.body = _other(found.rest)


def _other(rest: bytes) -> tuple[str, bytes]:
    """Kind and bytes of a body that is neither text nor data."""
    sections, at = [], 0
    try:
        while at < len(rest):
            code, at = section(rest, at)
            value, at = codec.value(rest, at)
            if code != FOOTER:
                sections.append((code, plain(value)))
    except MALFORMED as error:
        raise malformed(error) from None
    code, value = sections[0]
    if len({code for code, _ in sections}) > 1 or (code == VALUE and len(sections) > 1):
        raise AmqpError("a body of several kinds")
    if code == DATA:
        return "bytes", b""
    if code == SEQUENCE:
        value = [each for _, part in sections for each in part]
    if isinstance(value, dict):
        return "map", wire.pack(value)
    if isinstance(value, list):
        return "stream", wire.pack(value)
    if value is None:
        return "none", b""
    if isinstance(value, bytes):
        return "bytes", value
    return "text", value.encode() if isinstance(value, str) else str(value).encode()
