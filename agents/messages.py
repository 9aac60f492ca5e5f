"""Messages of queues and topics, as agents take and send them."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mombroker.agents import notifications as notes
from mombroker.core import times
from mombroker.core.destinations import Incoming, Source
from mombroker.core.errors import MomError, UnknownNotification

F = TypeVar("F", bound=Callable[..., None])
JSON = "application/json"


class Delivered:
    """A message that a queue or topic has given to an agent. Times are wall-clock ns, 0 = none.

    destination   as its sender wrote it
    id            of the message, the `correlation_id` of answers to it
    count         deliveries so far, this one included; above 1 a reaction to it has failed before
    properties    the sender's, typed, and what the broker has added
    """

    __wire_name__ = "mom.Delivered"  # what a reaction to all of them is annotated with
    __slots__ = ("id", "count", "_message", "_read")

    def __init__(self, incoming: Incoming):
        self.id, self.count, self._message, self._read = incoming.id, incoming.count, incoming.message, incoming.read

    @property
    def destination(self) -> str:
        return str(self._message.shown)

    @property
    def body(self) -> bytes:
        return bytes(self._message.body)

    @property
    def text(self) -> str:
        """The body as text. Raises UnknownNotification for one that is none: such a message is not tried again."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise UnknownNotification(f"the body of {self.id} is no text: {error}") from None

    def json(self) -> Any:
        """The value that the body is the JSON of. Raises UnknownNotification if it is not, as `text` does."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise UnknownNotification(f"the body of {self.id} is no JSON: {error}") from None

    @property
    def properties(self) -> dict[str, Any]:
        return dict(self._read(self._message))

    @property
    def type(self) -> str:
        return str(self._message.type)

    @property
    def content_type(self) -> str:
        return str(self._message.content_type)

    @property
    def correlation_id(self) -> str:
        return str(self._message.correlation)

    @property
    def reply_to(self) -> str:
        return str(self._message.reply_to)

    @property
    def priority(self) -> int:
        return int(self._message.priority)

    @property
    def group(self) -> str:
        return str(self._message.group)

    @property
    def timestamp(self) -> int:
        return int(self._message.timestamp)

    @property
    def expires(self) -> int:
        return int(self._message.expires)

    def __repr__(self) -> str:
        return f"Delivered({self.id} from {self.destination}, {len(self._message.body)} bytes)"


# -- what an agent takes ---------------------------------------------------------------------------------------------


def consumes(
    queue: str, *, selector: str = "", prefetch: int = 100, exclusive: bool = False, priority: int = 0
) -> Callable[[F], F]:
    """Mark a method as what takes the messages of a queue, like `/queue/orders`.

    Its argument is annotated with Delivered, or with a @notification class whose fields the body has, as JSON. A
    reaction that succeeds acknowledges the message in its own commit; one that fails gives it back, and the policy of
    the queue says what becomes of it.
    """
    return _marked(Source("", (queue,), False, selector, prefetch, exclusive, priority))


def subscribes(*topics: str, selector: str = "", prefetch: int = 100, shared: str = "") -> Callable[[F], F]:
    """The same for topics, like `/topic/prices.*`, by a durable subscription of the agent's own; or one that it
    shares with all who give the same name."""
    return _marked(Source("", topics, True, selector, prefetch, shared=shared))


def _marked(source: Source) -> Callable[[F], F]:
    if not source.destinations or not all(isinstance(each, str) and each for each in source.destinations):
        raise TypeError("name a destination, as '/queue/orders'")

    def mark(method: F) -> F:
        method.__takes__ = source._replace(method=method.__name__)  # type: ignore[attr-defined]
        return method

    return mark


def taking(name: str, method: Any, hint: Any) -> Callable[[Any, Delivered], None]:
    """What calls such a method with a message; `hint` annotates its argument. Raises TypeError."""
    if hint is None:
        raise TypeError(f"{name}: what consumes takes self and one message")
    if hint is Delivered:
        return typing.cast(Callable[[Any, Delivered], None], method)
    if not hasattr(hint, "__wire_fields__"):
        raise TypeError(f"{name}: annotate its argument with Delivered or a @notification class, not {hint}")
    return lambda agent, delivered: method(agent, _typed(hint, delivered))


def _typed(cls: Any, delivered: Delivered) -> Any:
    """The notification that the body is. Raises UnknownNotification."""
    try:
        return notes.from_json(cls, delivered.body)
    except MomError as error:
        raise UnknownNotification(f"the body of {delivered.id}: {error}") from None


# -- what an agent sends -----------------------------------------------------------------------------------------------


class Options(typing.TypedDict, total=False):
    """Of a message, as for a client's SEND; `ttl` and `delay` in seconds."""

    ttl: float
    delay: float
    priority: int
    persistent: bool
    group: str
    group_seq: int
    reply_to: str
    correlation_id: str
    type: str
    content_type: str
    properties: Mapping[str, Any]


_KINDS: dict[str, tuple[type, ...]] = {
    name: (int, float) if hint is float else (typing.get_origin(hint) or hint,)
    for name, hint in typing.get_type_hints(Options).items()
}
_CALLED = {"correlation_id": "correlation"}  # what a message calls an option


def encoded(body: Any, options: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Bytes of a body, and fields of its message: the body is text, bytes, a notification, or a value for JSON. Raises
    TypeError."""
    fields: dict[str, Any] = {}
    if isinstance(body, str):
        body, fields["kind"] = body.encode("utf-8", "surrogateescape"), "text"
    elif not isinstance(body, bytes):
        fields |= {"kind": "json", "content_type": JSON}
        type, body = answer(body)
        if type:
            fields["type"] = type
    for name, value in options.items():
        fields[_CALLED.get(name, name)] = _option(name, value)
    return body, fields


def answer(body: Any) -> tuple[str, bytes]:
    """A notification's wire name and its fields as JSON, or no name and a value as JSON. Raises TypeError."""
    if hasattr(type(body), "__wire_fields__"):
        return notes.to_json(body)
    try:
        return "", json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"a body is text, bytes, a notification or a value for JSON: {error}") from None


def _option(name: str, value: Any) -> Any:
    kinds = _KINDS.get(name)
    if kinds is None:
        raise TypeError(f"a message has no option {name!r}; it has {', '.join(_KINDS)}")
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{name} is no {type(value).__name__}, as {ascii(value)[:40]}")
    return _span(name, value) if float in kinds else value


def _span(name: str, seconds: Any) -> int:
    if not seconds >= 0:
        raise TypeError(f"{name} is a number of seconds, not {seconds}")
    return times.of_seconds(seconds)
