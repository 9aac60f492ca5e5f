"""What a message holds: its body as text, bytes, map or JSON, its properties, and what the broker says of it.

There are no serialized objects: whoever opens one runs what the sender wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgpack

from mombroker.broker import selectors, texts
from mombroker.broker.message import BROKERS_OWN
from mombroker.broker.properties import BIT63
from mombroker.broker.properties import FIELDS as STANDARD
from mombroker.broker.texts import TYPES, Plain, types_of, value_of
from mombroker.jms import checks
from mombroker.jms.destinations import Destination, destination_of
from mombroker.jms.errors import MessageFormat
from mombroker.stomp.frames import Frame
from mombroker.stomp.requests import CONTROL, PROPERTIES

if TYPE_CHECKING:
    from mombroker.jms.consumer import Consumer

# What a selector can name; with hyphens, by its prefix for them.
NAME = re.compile(r"(?:[^\W\d]|\$)[\w$-]*")
KEYWORDS = {word.upper() for word in selectors.KEYWORDS.values()}
TEXT, BYTES, MAP, STREAM, JSON, NONE = "text", "bytes", "map", "stream", "json", "none"
CONTENT = {MAP: "application/msgpack", STREAM: "application/msgpack", JSON: "application/json"}
COUNT, GROUP, GROUP_SEQ = "JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq"
DUE = "JMSDeliveryTime"  # ms, of a message that was delayed
VALUES = (str, bytes, bool, int, float, type(None))
# Not properties: the fields of a message, and what frames are handled by.
FIELDS = CONTROL | PROPERTIES | STANDARD.keys() | {TYPES}
REFUSED = FIELDS | {"unseen", "requeue", "id", "receipt-id"}  # of other frames


def encode(body: Any, json_value: Any = None) -> tuple[str, bytes]:
    """Kind and bytes of a body. Raises MessageFormat."""
    if json_value is not None:
        if body is not None:
            raise MessageFormat("a message has one body: give text, bytes or a map, or json=")
        try:
            return JSON, json.dumps(json_value, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise MessageFormat(f"this cannot be written as JSON: {error}") from None
    if body is None:
        return NONE, b""
    if isinstance(body, str):
        try:
            return TEXT, body.encode()
        except UnicodeEncodeError:
            raise MessageFormat("a text must have a form in UTF-8: a lone surrogate has none") from None
    if isinstance(body, bytes | bytearray | memoryview):
        try:
            return BYTES, bytes(body)
        except ValueError as error:
            raise MessageFormat(f"this cannot be read as bytes: {error}") from None
    if isinstance(body, Mapping):
        for name, value in body.items():
            if not isinstance(name, str) or not isinstance(value, VALUES):
                raise MessageFormat(f"a map has texts, bytes, numbers and booleans by name, not {name!r}: use json=")
        try:
            return MAP, msgpack.packb(dict(body))
        except (OverflowError, ValueError) as error:
            raise MessageFormat(f"this cannot be in a map: {error}") from None
    if isinstance(body, list | tuple):
        for value in body:
            if not isinstance(value, VALUES):
                raise MessageFormat(
                    f"a stream is a list of texts, bytes, numbers and booleans, not {type(value).__name__}: use json="
                )
        try:
            return STREAM, msgpack.packb(list(body))
        except (OverflowError, ValueError) as error:
            raise MessageFormat(f"this cannot be in a stream: {error}") from None
    raise MessageFormat(f"a body is text, bytes, a map or a list, not {type(body).__name__}: use json=")


def decode(kind: str, body: bytes) -> Any:
    """The body of a message of some kind; one of unknown kind is bytes. Raises MessageFormat."""
    try:
        if kind == TEXT:
            return body.decode()
        if kind == JSON:
            return json.loads(body)
        if kind in (MAP, STREAM):
            value = msgpack.unpackb(body)
            if not isinstance(value, dict if kind == MAP else list):
                raise ValueError(f"it is no {kind}")
            return value
    except (ValueError, msgpack.UnpackException) as error:
        raise MessageFormat(f"this message says {kind}, but its body is not: {error}") from None
    return None if kind == NONE else body


def property_headers(values: Mapping[str, Plain]) -> dict[str, str]:
    """Raises MessageFormat."""
    if not isinstance(values, Mapping):
        raise MessageFormat(f"properties are values by name, not {type(values).__name__}")
    plain: dict[str, Plain] = {}
    group: dict[str, str] = {}
    for name, value in values.items():
        if name == COUNT or name in BROKERS_OWN:
            continue  # of a message that was received: this one begins anew
        if name == GROUP:
            checks.key(name, value, MessageFormat)
            group[name] = str(value)
            continue
        if name == GROUP_SEQ:
            checks.whole(name, value, MessageFormat)
            if abs(int(value)) > checks.MOST:
                raise MessageFormat(f"{GROUP_SEQ} is a whole number of up to 18 digits")
            group[name] = str(int(value))
            continue
        if isinstance(name, str) and name in REFUSED:
            raise MessageFormat(f"no property can be called {name!r}: a server takes that for an option of the message")
        if not isinstance(name, str) or not NAME.fullmatch(name) or name.upper() in KEYWORDS:
            raise MessageFormat(
                f"no property can be called {str(name)[:80]!r}: letters, digits, _, $ and - make a name"
            )
        if name.startswith("JMS"):
            raise MessageFormat(f"no property can be called {name[:80]!r}: what begins with JMS is the broker's own")
        if not isinstance(value, str | bool | int | float):
            raise MessageFormat(f"property {name!r} must be text, a number or a boolean, not {type(value).__name__}")
        if isinstance(value, int) and not -BIT63 <= value < BIT63:
            raise MessageFormat(f"property {name!r} is a whole number of more than 64 bits: send it as text")
        if isinstance(value, str):
            checks.text(f"property {name!r}", value, MessageFormat)
        plain[name] = _plain(value)
    return texts.to_headers(plain) | group


def _plain(value: Plain) -> Plain:
    """Of the very type: enumerations and NumPy's numbers are of its subclasses, which may be written otherwise."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


class Message:
    """A message that was received.

    `epoch` is that of the connection that brought it; `ack` what it is settled by, empty if it need not be.
    """

    __slots__ = ("headers", "raw", "epoch", "ack", "consumer", "_properties")

    def __init__(self, frame: Frame, epoch: int, consumer: Consumer | None = None):
        self.headers, self.raw, self.epoch = frame.headers, frame.body, epoch
        self.ack = frame.headers.get("ack", "")
        self.consumer = consumer
        self._properties: dict[str, Plain] | None = None

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.headers['destination']}>"

    @property
    def id(self) -> str:
        """The same in each delivery."""
        return self.headers["message-id"].rpartition("/")[0]

    @property
    def kind(self) -> str:
        """text, bytes, map, json, none, or what another client calls it."""
        return self.headers.get("amq-msg-type") or (BYTES if "content-length" in self.headers else TEXT)

    @property
    def body(self) -> Any:
        """Raises MessageFormat for one that is not what the message says; `raw` has the bytes."""
        return decode(self.kind, self.raw)

    @property
    def properties(self) -> dict[str, Plain]:
        """The sender's, in their types, and what the broker has added: JMSXDeliveryCount, JMSXGroupID and JMSXGroupSeq,
        and JMSXUserID, if the sender has asked for that by `stamp_user`."""
        if self._properties is None:
            types = types_of(self.headers.get(TYPES, ""))
            self._properties = {
                name: value_of(text, types.get(name)) for name, text in self.headers.items() if name not in FIELDS
            }
            self._properties[COUNT] = self.delivery_count
            if self.group:
                self._properties |= {GROUP: self.group, GROUP_SEQ: self.group_seq}
            self._properties |= {name: self.headers[name] for name in BROKERS_OWN if name in self.headers}
        return self._properties

    @property
    def destination(self) -> Destination:
        return destination_of(self.headers["destination"])

    @property
    def reply_to(self) -> Destination | None:
        text = self.headers.get("reply-to")
        return destination_of(text) if text else None

    @property
    def correlation_id(self) -> str:
        return self.headers.get("correlation-id", "")

    @property
    def type(self) -> str:
        return self.headers.get("type", "")

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def priority(self) -> int:
        return int(self.headers.get("priority", 4))

    @property
    def persistent(self) -> bool:
        return self.headers.get("persistent") != "false"

    @property
    def timestamp(self) -> float:
        """When its server took it, in seconds since 1970."""
        return int(self.headers.get("timestamp", 0)) / 1_000

    @property
    def delivery_time(self) -> float:
        """Before which it was not to be delivered, in seconds since 1970: `timestamp` and its sender's delay."""
        return int(self.headers.get(DUE, 0)) / 1_000 or self.timestamp

    @property
    def expires(self) -> float | None:
        """When it expires, in seconds since 1970."""
        text = self.headers.get("expires")
        return int(text) / 1_000 if text else None

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time included; from 2 on it may have been seen before."""
        return int(self.headers.get(COUNT, 1))

    @property
    def redelivered(self) -> bool:
        return self.headers.get("redelivered") == "true"

    @property
    def group(self) -> str:
        return self.headers.get(GROUP, "")

    @property
    def group_seq(self) -> int:
        return int(self.headers.get(GROUP_SEQ, 0))

    def acknowledge(self, wait: bool = False) -> None:
        """Settle it, in a context of mode `individual`; with mode `client`, all that the context has received.

        With `wait`, return when the server has made that durable. Raises ConnectionLost for what a lost connection has
        brought: that comes again.
        """
        if self.consumer is not None:
            self.consumer.context.acknowledge_one(self, wait)

    def reject(self, requeue: bool | None = None) -> None:
        """Give it back, in a context of mode `individual`. It is offered again after a while, as often as the policy of
        its queue says, and then is a dead letter; with requeue=False it is one at once."""
        if self.consumer is not None:
            self.consumer.context.reject(self, requeue)
