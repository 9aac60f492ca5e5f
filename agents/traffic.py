"""What proxies, queues and subscriptions tell each other. On one server the objects themselves travel; they are packed
only when they leave it, or when they must wait on disk. Nobody changes one after it was sent.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from typing import Any, Self

from mombroker.agents.notes import pack, unpack

KINDS: dict[str, type[Traffic]] = {}


class Traffic:
    """Base of the types below. `wire` is the type's name on the bus."""

    __slots__ = ()
    wire = ""

    def __init_subclass__(cls) -> None:
        if cls.wire:
            KINDS[cls.wire] = cls

    @property
    def size(self) -> int:
        """Payload bytes, for limits and the log."""
        return 0

    def pack(self) -> bytes:
        return pack(_plain(astuple(self)), self.wire)  # type: ignore[call-overload]

    @classmethod
    def unpack(cls, payload: bytes) -> Self:
        return cls(*unpack(payload)[: len(fields(cls))])  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


@dataclass(slots=True)
class Put(Traffic):
    """A client's message. Times are wall-clock ns, 0 = none. `id` is the bus message's once it has arrived."""

    wire = "q.put"
    destination: str
    shown: str
    headers: bytes
    body: bytes
    priority: int = 4
    timestamp: int = 0
    expires: int = 0
    due: int = 0  # not to be delivered before
    persistent: bool = True
    kind: str = "bytes"
    group: str = ""
    group_seq: int = 0
    producer: str = ""  # with `counter`: names this message for ever, whatever connection repeats it
    counter: int = 0
    sender: str = ""  # the client id or connection it came by, for no-local
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return len(self.headers) + len(self.body)

    def pack(self) -> bytes:
        return pack(self.values(), self.wire)

    def values(self) -> list[Any]:
        return [
            self.destination, self.shown, self.headers, self.body, self.priority, self.timestamp, self.expires,
            self.due, self.persistent, self.kind, self.group, self.group_seq, self.producer, self.counter,
            self.sender, self.properties,
        ]  # fmt: skip


@dataclass(slots=True)
class Consume(Traffic):
    """A proxy's consumer of a queue or subscription. `credit` messages may be sent to it."""

    wire = "q.consume"
    consumer: int  # the proxy's number for it
    credit: int
    auto: bool = False  # settled by being handed out
    selector: str = ""
    exclusive: bool = False
    priority: int = 0
    no_local: str = ""  # messages of this sender are not for it
    browser: bool = False


@dataclass(slots=True)
class Credit(Traffic):
    wire = "q.credit"
    consumer: int
    more: int


@dataclass(slots=True)
class Cancel(Traffic):
    """No more for this consumer; what it has not settled stays with it until Settle or Gone."""

    wire = "q.cancel"
    consumer: int


@dataclass(slots=True)
class Settle(Traffic):
    """The fate of dispatched messages: taken; given back as if never seen; failed (counted, backed off), refused."""

    wire = "q.settle"
    consumer: int
    taken: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    credit: int = 0


@dataclass(slots=True)
class Gone(Traffic):
    """The proxy's connection has ended: whatever it holds goes back to its original place."""

    wire = "q.gone"


@dataclass(slots=True)
class Dispatch(Traffic):
    """Messages for a consumer: (row id, message id, count, Put values or the Put itself)."""

    wire = "c.dispatch"
    consumer: int
    items: list[tuple[int, str, int, Any]]

    def pack(self) -> bytes:
        items = [[id, message, count, _values(put)] for id, message, count, put in self.items]
        return pack([self.consumer, items], self.wire)


def _values(put: Any) -> list[Any]:
    return put.values() if isinstance(put, Put) else put


def put_of(value: Any) -> Put:
    return value if isinstance(value, Put) else Put(*value)


@dataclass(slots=True)
class Started(Traffic):
    """A consumer is known where it consumes from."""

    wire = "c.started"
    consumer: int


@dataclass(slots=True)
class Browsed(Traffic):
    """A browser has been sent all that was there."""

    wire = "c.browsed"
    consumer: int


@dataclass(slots=True)
class Refuse(Traffic):
    """A consumer cannot be taken on, or not any longer; the reason is one sentence."""

    wire = "c.refuse"
    consumer: int
    reason: str
