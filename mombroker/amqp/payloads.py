"""What clients of AMQP receive: the sections of a message, as its sender has written them, or as what it is says."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from mombroker.amqp import addresses, codec
from mombroker.amqp.codec import (
    MALFORMED,
    NULL,
    AmqpError,
    any_value,
    binary,
    described,
    mapped,
    performative,
    string,
    symbol,
    timestamp,
    ubyte,
    uint,
)  # fmt: skip
from mombroker.amqp.messages import (
    ANNOTATIONS,
    APPLICATION,
    AS_BINARY,
    AS_DATA,
    AS_TEXT,
    DEST,
    FORM,
    GROUP,
    GROUP_SEQ,
    HEADER,
    MESSAGE_TYPE,
    OTHER,
    PROPERTIES,
    REPLY_TO,
    section,
)  # fmt: skip
from mombroker.broker import heads, properties, wire
from mombroker.broker.commands import Delivery
from mombroker.broker.heads import SHARED, Head
from mombroker.broker.message import ClientMessage
from mombroker.core.times import MS

TYPES = {"none": 0, "map": 2, "bytes": 3, "stream": 4, "text": 5, "json": 5}  # kind -> x-opt-jms-msg-type
NEVER = 0xFFFFFFFF  # ms, the longest time to live


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


class Around(NamedTuple):
    """What stands around id, time and body of messages of a run that have ids and bodies of one length."""

    lead: bytes
    middle: bytes
    end: bytes


class Start(NamedTuple):
    """What messages of a run have in common: their forms begin with `form`, and `shared` is what that tells of those
    that have a head of their own."""

    usual: bytes
    kind: bytes
    form: bytes
    shared: Head | None

    def around(self, id: int, body: int) -> Around:
        """For so many bytes of each."""
        sized, shared = _sized(self.kind, body), self.shared
        if shared is None:
            return Around(self.usual + self.form[2:] + sized, b"", b"")
        return Around(self.usual + shared.lead(id), shared.middle, shared.end + sized)


def start_of(delivery: Delivery) -> Start | None:
    """Of a message of a run, if there may be others that are like it."""
    message = delivery.message
    form, alike = message.form, message.alike
    kind = form[1:2]
    if alike is None or kind not in _SIZED or message.annotations or delivery.expires or delivery.count > 1:
        return None
    usual = _usual_header(message.persistent, message.priority)
    if form[:1] == SHARED:
        shared, time = heads.head_of(form)
        return Start(usual, kind, form[: len(form) - len(time)], shared)
    return None if alike.own or form[:1] != FORM else Start(usual, kind, form, None)


Parts = tuple[bytes, ...]


def parts(delivery: Delivery, now: Callable[[], int]) -> Parts:
    """All sections of a message, for one receiver."""
    message = delivery.message
    head, form = _header(delivery, now), heads.whole(message.form, message.message)
    if form[:1] != FORM:
        return head, _sections(delivery), _body_of(message)
    kind, kept, rest = form[1:2], form[2:], b""
    if kind == OTHER:
        end = 6 + int.from_bytes(form[2:6], "big")
        kept, rest = form[6:end], form[end:]
    if message.annotations:
        kept = _annotated(kept, message)
    if kind in _SIZED:
        return head, kept, _sized(kind, len(message.body)), message.body
    return head, kept, rest or b"\x00\x53\x77\x40"


# The section of a body by its kind: all before a body of so many bytes, and up to the length of a long one.
_SIZED = {
    kind: ([code + bytes((short, size)) for size in range(256)], code + bytes((short + 16,)))
    for kind, code, short in (
        (AS_DATA, b"\x00\x53\x75", 0xA0), (AS_TEXT, b"\x00\x53\x77", 0xA1), (AS_BINARY, b"\x00\x53\x77", 0xA0),
    )
}  # fmt: skip


def _sized(kind: bytes, size: int) -> bytes:
    """What stands before a body of so many bytes."""
    short, long = _SIZED[kind]
    return short[size] if size < 256 else long + size.to_bytes(4, "big")


def _annotated(kept: bytes, message: ClientMessage) -> bytes:
    """With what the broker has added among the properties of the application."""
    try:
        at = 0
        while at < len(kept):
            start = at
            code, at = section(kept, at)
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
