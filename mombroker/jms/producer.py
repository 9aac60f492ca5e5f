"""Producer: where messages go and with what options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from mombroker.core import times
from mombroker.jms import checks
from mombroker.jms.connection import Connection
from mombroker.jms.consumer import MOST
from mombroker.jms.destinations import Destination, Temporary, to_send
from mombroker.jms.errors import InvalidDestination, MessageFormat
from mombroker.jms.machine import AGAIN, Call, Headers, Part
from mombroker.jms.messages import CONTENT, encode, property_headers
from mombroker.stomp.properties import Value

if TYPE_CHECKING:
    from mombroker.jms.context import Context


TEXTS = ("type", "correlation_id", "group", "dedup_id", "content_type")


@dataclass(frozen=True, slots=True)
class Options:
    """Of a message. `ttl` and `delay` in seconds.

    ttl             it expires so long after it was sent; None: never
    delay           nobody gets it before
    dedup_id        `PRODUCER:NUMBER` with numbers that rise, of a program that can repeat itself; else the client's own
    group           one consumer has all messages of a group, until one with group_seq=-1
    """

    priority: int = 4
    ttl: float | None = None
    delay: float = 0
    persistent: bool = True
    properties: Mapping[str, Value] = field(default_factory=dict)
    type: str = ""
    correlation_id: str = ""
    reply_to: Destination | str | None = None
    group: str = ""
    group_seq: int = 0
    dedup_id: str = ""
    content_type: str = ""

    def __post_init__(self) -> None:
        wrong = MessageFormat
        checks.whole("priority", self.priority, wrong)
        checks.whole("group_seq", self.group_seq, wrong)
        checks.seconds("delay", self.delay, wrong)
        checks.flag("persistent", self.persistent, wrong)
        for name in TEXTS:
            checks.text(name, getattr(self, name), wrong)
        if not 0 <= self.priority <= 9:
            raise wrong("priority is a whole number from 0 to 9")
        if self.ttl is not None:
            checks.seconds("ttl", self.ttl, wrong)
            if not self.ttl:
                raise wrong("ttl is a number of seconds from now on; None, if the message never expires")
        if abs(self.group_seq) > MOST:
            raise wrong("group_seq is a whole number of up to 18 digits")
        if self.reply_to is not None:
            to_send(self.reply_to)
        producer, _, number = self.dedup_id.rpartition(":")
        if self.dedup_id and not (producer and number.isascii() and number.isdigit() and len(number) <= 18):
            raise MessageFormat(f"dedup_id is PRODUCER:NUMBER, with a number that rises, not {self.dedup_id[:40]!r}")


KNOWN = frozenset(each.name for each in fields(Options))


class Pending:
    """A message that was sent without waiting."""

    def __init__(self, connection: Connection, call: Call):
        self._connection, self._call = connection, call

    @property
    def done(self) -> bool:
        return self._call.done

    def wait(self, timeout: float | None = None) -> None:
        """Return when the message is durable. Raises Refused, TimedOut, ConnectionLost."""
        timeout = checks.timeout(timeout)
        with self._connection.lock:
            self._call.watched = True
        self._connection.wait(self._call, timeout)


class Producer:
    """Sends, to its own destination if it has one. Made by Context.producer, whose options are its defaults."""

    def __init__(self, context: Context, destination: Destination | str | None, options: dict[str, Any]):
        self.context = context
        self.destination = to_send(destination) if destination is not None else None
        self.options = _changed(Options(), options)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def send(
        self,
        body: Any = None,
        *,
        to: Destination | str | None = None,
        json: Any = None,
        wait: bool = True,
        timeout: float | None = None,
        **options: Any,
    ) -> Pending | None:
        """Send text, bytes, a map, or something as JSON; return when it is durable on the server.

        In a transacted context it goes with the commit. With wait=False it returns at once: `Pending.wait` or
        Context.flush tell that it is durable. After a lost connection the message is sent again, and dropped where it
        is already. It waits for `timeout` seconds, by default for as long as a lost connection may take to come back
        and a server to answer. Raises Refused, TimedOut, ConnectionLost, MessageFormat, InvalidDestination.
        """
        timeout = checks.timeout(timeout)
        checks.flag("wait", wait)
        destination = to_send(to) if to is not None else self.destination
        if destination is None:
            raise InvalidDestination("this producer has no destination of its own: say to=")
        wanted = _changed(self.options, options) if options else self.options
        kind, data = encode(body, json)
        context = self.context
        with context.connection.lock:
            part = Part("SEND", self._headers(destination, wanted, kind, len(data)), data)
            if context.put(part):
                return None
            call = context.connection.ask([part], AGAIN, timeout)
            call.watched = wait
        if wait:
            context.connection.wait(call, timeout)
            return None
        return Pending(context.connection, call)

    def _headers(self, destination: Destination, options: Options, kind: str, size: int) -> Headers:
        shown = destination.seen_by(self.context.connection.machine)
        headers: dict[str, str | Destination] = {"destination": shown, "content-length": str(size)}
        if kind != "bytes":
            headers["amq-msg-type"] = kind
        if content := options.content_type or CONTENT.get(kind):
            headers["content-type"] = content
        if options.priority != 4:
            headers["priority"] = str(options.priority)
        if not options.persistent:
            headers["persistent"] = "false"
        if options.ttl is not None:
            headers["expiration"] = str(max(1, times.in_ms(options.ttl)))
        if options.delay:
            headers["AMQ_SCHEDULED_DELAY"] = str(times.in_ms(options.delay))
        if options.group:
            headers |= {"JMSXGroupID": options.group, "JMSXGroupSeq": str(options.group_seq)}
        for name, text in (("type", options.type), ("correlation-id", options.correlation_id)):
            if text:
                headers[name] = text
        if options.reply_to is not None:
            headers["reply-to"] = to_send(options.reply_to)
        if options.properties:
            headers |= property_headers(options.properties)
        if options.dedup_id:
            headers["dedup-id"] = options.dedup_id
        elif not isinstance(destination, Temporary):
            headers["dedup-id"] = self.context.connection.dedup_id(destination.wire)
        return headers


def _changed(options: Options, more: dict[str, Any]) -> Options:
    """Raises MessageFormat."""
    checks.options("a message", more, KNOWN, MessageFormat)
    return replace(options, **more)
