"""Producer: where messages go and with what options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from mombroker.broker.texts import Plain, text_of
from mombroker.core import times
from mombroker.jms import checks
from mombroker.jms.destinations import Destination, Temporary, to_send
from mombroker.jms.errors import IllegalState, InvalidDestination, JmsError, MessageFormat
from mombroker.jms.machine import AGAIN, Call, Headers, Part
from mombroker.jms.messages import CONTENT, GROUP, GROUP_SEQ, encode, property_headers
from mombroker.stomp.requests import ROWS

if TYPE_CHECKING:
    from mombroker.jms.context import Context


@dataclass(frozen=True, slots=True)
class Options:
    """Of a message. `ttl` and `delay` in seconds.

    ttl             it expires so long after it was sent; None: never
    delay           nobody gets it before
    dedup_id        `PRODUCER:NUMBER` with numbers that rise, of a program that can repeat itself; else the client's own
    group           one consumer has all messages of a group, until one with group_seq=-1
    stamp_user      the message says who has logged in on this connection: `JMSXUserID` of its properties
    """

    priority: int = 4
    ttl: float | None = None
    delay: float = 0
    persistent: bool = True
    properties: Mapping[str, Plain] = field(default_factory=dict)
    type: str = ""
    correlation_id: str = ""
    reply_to: Destination | str | None = None
    group: str = ""
    group_seq: int = 0
    dedup_id: str = ""
    content_type: str = ""
    stamp_user: bool = False

    def __post_init__(self) -> None:
        wrong = MessageFormat
        for name, check in CHECKS:
            check(name, getattr(self, name), wrong)
        checks.seconds("delay", self.delay, wrong)
        if not 0 <= self.priority <= 9:
            raise wrong("priority is a whole number from 0 to 9")
        if self.ttl is not None:
            checks.seconds("ttl", self.ttl, wrong)
            if not self.ttl:
                raise wrong("ttl is a number of seconds from now on; None, if the message never expires")
        if abs(self.group_seq) > checks.MOST:
            raise wrong("group_seq is a whole number of up to 18 digits")
        if self.reply_to is not None:
            to_send(self.reply_to)
        producer, _, number = self.dedup_id.rpartition(":")
        checks.key("group", self.group, wrong)
        checks.key("the producer in dedup_id", producer, wrong)
        if self.dedup_id and not (producer and number.isascii() and number.isdigit() and len(number) <= 18):
            raise MessageFormat(f"dedup_id is PRODUCER:NUMBER, with a number that rises, not {self.dedup_id[:40]!r}")


KNOWN = frozenset(each.name for each in fields(Options))
_KINDS = {"str": checks.text, "int": checks.whole, "bool": checks.flag}
CHECKS = [(each.name, _KINDS[each.type]) for each in fields(Options) if each.type in _KINDS]
_DEFAULTS = {each.name: each.default for each in fields(Options)}
# What is a header as it is, unless it has its default.
WRITTEN = [(row.name, row.field, _DEFAULTS[row.field]) for row in ROWS if row.jms]


class Pending:
    """A message that was sent, or goes with the commit. `id`: of the message, the `correlation_id` of answers to it."""

    def __init__(self, context: Context, id: str, call: Call | None):
        self.id, self._context, self._call = id, context, call

    @property
    def done(self) -> bool:
        return self._call is not None and self._call.done

    @property
    def error(self) -> JmsError | None:
        """Why it was not sent."""
        return self._call.error if self._call is not None else None

    def wait(self, timeout: float | None = None) -> None:
        """Return when the message is durable. Raises Refused, TimedOut, ConnectionLost."""
        timeout, call = checks.timeout(timeout), self._asked()
        with self._context.connection.lock:
            call.watched = True
        self._context.connection.wait(call, timeout)

    def when_done(self, function: Callable[[Pending], object]) -> None:
        """Have it called when the message is durable, or has an `error`, by the thread of the context's listeners."""
        checks.function("what is called when a message was sent", function)
        call = self._asked()
        with self._context.connection.lock:
            call.watched = True
            self._context.call_when_done(call, lambda: function(self))

    def future(self) -> Future[str]:
        """The id of the message when it is durable, for concurrent.futures and asyncio.wrap_future."""
        future: Future[str] = Future()
        future.set_running_or_notify_cancel()

        def finish(_: Pending) -> None:
            if self.error is None:
                future.set_result(self.id)
            else:
                future.set_exception(self.error)

        self.when_done(finish)
        return future

    def _asked(self) -> Call:
        if self._call is None:
            raise IllegalState("a message of a transaction goes with the commit, which tells whether it did")
        return self._call


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
    ) -> Pending:
        """Send text, bytes, a map, or something as JSON; return when it is durable on the server.

        In a transacted context it goes with the commit. With wait=False it returns at once: `wait`, `when_done` or
        `future` of what it returns, or Context.flush, tell that it is durable; `id` is what the message is known by.
        After a lost connection the message is sent again, and dropped where it is already. It waits for `timeout`
        seconds, by default for as long as a lost connection may take to come back and a server to answer. Raises
        Refused, TimedOut, ConnectionLost, MessageFormat, InvalidDestination.
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
            id = f"{context.connection.name}-{context.connection.number()}"
            part = Part("SEND", self._headers(destination, wanted, kind, len(data), id), data)
            if context.put(part):
                return Pending(context, id, None)
            call = context.connection.ask([part], AGAIN, timeout)
            call.watched = wait
        if wait:
            context.connection.wait(call, timeout)
        return Pending(context, id, call)

    def _headers(self, destination: Destination, options: Options, kind: str, size: int, id: str) -> Headers:
        shown = destination.seen_by(self.context.connection)
        headers: dict[str, str | Destination] = {"destination": shown, "content-length": str(size), "JMSMessageID": id}
        if kind != "bytes":
            headers["amq-msg-type"] = kind
        if content := options.content_type or CONTENT.get(kind):
            headers["content-type"] = content
        for name, option, default in WRITTEN:
            if (value := getattr(options, option)) != default:
                headers[name] = text_of(value)
        if options.ttl is not None:
            headers["expiration"] = str(max(1, times.in_ms(options.ttl)))
        if options.delay:
            headers["AMQ_SCHEDULED_DELAY"] = str(times.in_ms(options.delay))
        if options.group:
            headers |= {GROUP: options.group, GROUP_SEQ: str(options.group_seq)}
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
