"""Messages of AMQP as the broker has them, both ways (part 3.2 of the specification, and JMS over AMQP).

The sections that a client has sent before its body stay as they are, in `form`: who receives by AMQP gets the very
bytes. The fields of the broker's message are what others see of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from mombroker.amqp import addresses, codec
from mombroker.amqp.codec import (
    MALFORMED,
    NULL,
    AmqpError,
    Described,
    any_value,
    binary,
    described,
    malformed,
    mapped,
    performative,
    string,
    symbol,
    timestamp,
    ubyte,
    uint,
)
from mombroker.broker import properties, wire
from mombroker.broker.commands import Ask, Delivery, Send
from mombroker.broker.destinations import AGENT, shown_as
from mombroker.broker.message import BROKERS_OWN, Alike, ClientMessage
from mombroker.core import times
from mombroker.core.times import MS

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
FORM = b"A"
AS_DATA, AS_TEXT, AS_BINARY, AS_NULL, OTHER = b"d", b"t", b"b", b"n", b"o"
MAX_HEAD = 256 << 10  # bytes of the sections before the body
MAX_ID = re.compile(r"[!-.0-\[\]-~]{1,100}")  # means itself everywhere, and ends before a "/"

DEST, REPLY_TO, MESSAGE_TYPE = "x-opt-jms-dest", "x-opt-jms-reply-to", "x-opt-jms-msg-type"
DELIVERY_TIME, DELIVERY_DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"
TYPES = {"none": 0, "map": 2, "bytes": 3, "stream": 4, "text": 5, "json": 5}  # kind -> x-opt-jms-msg-type
GROUP, GROUP_SEQ = "JMSXGroupID", "JMSXGroupSeq"
NEVER = 0xFFFFFFFF  # ms, the longest time to live


# -- what comes ----------------------------------------------------------------------------------------------------


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
        code, at = _section(data, at)
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


def _section(data: bytes, at: int) -> tuple[int, int]:
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
        code, at = _section(data, at)
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


def id_value(text: str) -> bytes:
    """The same, encoded again."""
    for prefix, made in _IDS.items():
        if text.startswith(prefix):
            try:
                return made(text[len(prefix) :])
            except (ValueError, OverflowError):
                break
    return string(text)


_IDS: dict[str, Callable[[str], bytes]] = {
    "ID:AMQP_UUID:": lambda text: b"\x98" + UUID(text).bytes,
    "ID:AMQP_BINARY:": lambda text: binary(bytes.fromhex(text)),
    "ID:AMQP_ULONG:": lambda text: codec.ulong(int(text)),
    "ID:AMQP_NO_PREFIX:": string,
}


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
            code, at = _section(kept, at)
            section, at = codec.value(kept, at)
            if type(section) is not (list if code == PROPERTIES else dict):
                raise AmqpError("a section of a message has a wrong type")
            found[code] = section
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
            code, at = _section(rest, at)
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


# -- what goes -----------------------------------------------------------------------------------------------------


@lru_cache(256)
def _usual_header(durable: bool, priority: int) -> bytes:
    return performative(HEADER, [codec.boolean(durable), ubyte(priority) if priority != 4 else NULL])


def _header(delivery: Delivery, now: Callable[[], int]) -> bytes:
    message = delivery.message
    if not delivery.expires and delivery.count == 1:
        return _usual_header(message.persistent, message.priority)
    ttl = NULL
    if delivery.expires:
        ttl = uint(min(NEVER, max(1, (delivery.expires - now()) // MS)))
    return performative(
        HEADER,
        [codec.boolean(message.persistent), ubyte(message.priority), ttl, NULL, uint(max(0, delivery.count - 1))],
    )


Starts = dict[Alike, bytes]  # what runs have in common before their data


def payload(delivery: Delivery, now: Callable[[], int], known: Starts) -> bytes:
    """All sections of a message, for one receiver. `known`: of messages that are delivered together."""
    message = delivery.message
    if (alike := message.alike) is not None and delivery.count == 1:
        body = message.body
        if (start := known.get(alike)) is not None:
            size = len(body)
            return b"".join((start, b"\xa0%c" % size if size < 256 else b"\xb0" + size.to_bytes(4, "big"), body))
        if message.form[:2] == FORM + AS_DATA and not (message.annotations or delivery.expires):
            known[alike] = _usual_header(message.persistent, message.priority) + message.form[2:] + b"\x00\x53\x75"
    head, form = _header(delivery, now), message.form
    if form[:1] != FORM:
        return head + _sections(delivery) + _body_of(message)
    kind, kept, rest = form[1:2], form[2:], b""
    if kind == OTHER:
        end = 6 + int.from_bytes(form[2:6], "big")
        kept, rest = form[6:end], form[end:]
    if message.annotations:
        kept = _annotated(kept, message)
    if kind == AS_DATA:
        return b"".join((head, kept, b"\x00\x53\x75", binary(message.body)))
    if kind == AS_TEXT:
        body = message.body
        size = len(body)
        start = bytes((0xA1, size)) if size < 256 else b"\xb1" + size.to_bytes(4, "big")
        return b"".join((head, kept, b"\x00\x53\x77", start, body))
    if kind == AS_BINARY:
        return b"".join((head, kept, b"\x00\x53\x77", binary(message.body)))
    return b"".join((head, kept, rest or b"\x00\x53\x77\x40"))


def _annotated(kept: bytes, message: ClientMessage) -> bytes:
    """With what the broker has added among the properties of the application."""
    try:
        at = 0
        while at < len(kept):
            start = at
            code, at = _section(kept, at)
            end = codec.skip(kept, at)
            if code == APPLICATION:
                return kept[:start] + _application(message, kept[at:end])
            at = end
    except (*MALFORMED, AmqpError):  # of another server
        return kept
    return kept + _application(message, NULL)


def _application(message: ClientMessage, encoded: bytes) -> bytes:
    """The sender's, as they are encoded, and the broker's."""
    added = [(string(name), string(text)) for name, text in message.annotations.items()]
    pairs = []
    if encoded != NULL:
        wide = encoded[0] == 0xD1
        at, count = (9, int.from_bytes(encoded[5:9], "big")) if wide else (3, encoded[2])
        for _ in range(count // 2):
            middle = codec.skip(encoded, at)
            end = codec.skip(encoded, middle)
            if codec.value(encoded, at)[0] not in message.annotations:
                pairs.append((encoded[at:middle], encoded[middle:end]))
            at = end
    return described(APPLICATION, mapped(pairs + added))


def _sections(delivery: Delivery) -> bytes:
    """Of a message that no client of AMQP has sent."""
    message = delivery.message
    annotations = {}
    to, code = addresses.written(message.shown)
    if code is not None:
        annotations[DEST] = code
    reply, code = addresses.written(message.reply_to) if message.reply_to else ("", None)
    if code is not None:
        annotations[REPLY_TO] = code
    if message.kind in TYPES:
        annotations[MESSAGE_TYPE] = TYPES[message.kind]
    values = properties.read(message.properties)
    group, sequence = message.group, message.group_seq
    user = message.annotations.get("JMSXUserID", "")
    said = performative(
        PROPERTIES,
        [
            id_value(message.message or delivery.id), binary(user.encode()) if user else NULL, string(to),
            string(message.type) if message.type else NULL, string(reply) if reply else NULL,
            id_value(message.correlation) if message.correlation else NULL,
            symbol(message.content_type) if message.content_type else NULL, NULL,
            timestamp(message.expires // MS) if message.expires else NULL, timestamp(message.timestamp // MS),
            string(group) if group else NULL, uint(sequence % (1 << 32)) if group else NULL,
        ],
    )  # fmt: skip
    named = {name: value for name, value in values.items() if name not in (GROUP, GROUP_SEQ)} | message.annotations
    jms = mapped((symbol(name), bytes((0x51, value))) for name, value in annotations.items())
    parts = [described(ANNOTATIONS, jms) if annotations else b"", said]
    if named:
        parts.append(described(APPLICATION, mapped((string(name), any_value(each)) for name, each in named.items())))
    return b"".join(parts)


def _body_of(message: ClientMessage) -> bytes:
    kind, body = message.kind, message.body
    if kind in ("text", "json"):
        try:
            return b"\x00\x53\x77" + string(body.decode())
        except UnicodeDecodeError:
            pass
    elif kind == "none":
        return b"\x00\x53\x77\x40"
    elif kind in ("map", "stream"):
        try:
            value = wire.unpack(body)
            if isinstance(value, dict if kind == "map" else list):
                return b"\x00\x53\x77" + any_value(value)
        except (ValueError, AmqpError):
            pass
    return b"\x00\x53\x75" + binary(body)
