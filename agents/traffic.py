"""What proxies, queues, subscriptions and topics tell each other. On one server the objects themselves travel; they are
packed only when they leave it, or when they must wait on disk. Nobody changes one after it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import msgpack

from mombroker.agents.shapes import LOCAL, Count, Shape, Time, Within
from mombroker.core.errors import UnknownNotification
from mombroker.core.message import Message

KINDS: dict[str, type[Traffic]] = {}
pack = msgpack.Packer().pack
NOTHING: dict[str, str] = {}
SHAPES: dict[type[Any], Shape] = {}

Credit = Annotated[int, Within(-1_000_000, 1_000_000)]  # messages; far more than anybody is given


def shape(cls: type[Any]) -> Shape:
    found = SHAPES.get(cls)
    if found is None:
        found = SHAPES[cls] = Shape(cls)
    return found


class Traffic:
    """Base of the types below. `wire` is the type's name on the bus."""

    __slots__ = ()
    wire: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.wire:
            KINDS[cls.wire] = cls

    @property
    def size(self) -> int:
        """Payload bytes, for limits and the log."""
        return 0

    def values(self) -> list[Any]:
        return [getattr(self, name) for name in shape(type(self)).names]

    def pack(self) -> bytes:
        packed: bytes = pack(self.values())
        return packed

    @classmethod
    def unpack(cls, payload: bytes) -> Self:
        """Fields may be added at the end, with defaults: older senders leave them out, older receivers ignore them.
        Raises ValueError for what is not of the types below: it comes from another server, of whatever version."""
        try:
            return cls.of(msgpack.unpackb(payload, strict_map_key=False))
        except TypeError as error:  # a map whose keys are lists
            raise ValueError(str(error)) from None

    @classmethod
    def of(cls, values: Any) -> Self:
        return cls(*(SHAPES.get(cls) or shape(cls)).read(values))


def is_pattern(text: str) -> bool:
    """A topic, or several; they are kept in rows of one line."""
    return text.startswith(("topic:", "temp-topic:")) and "\n" not in text


def note_of(message: Message) -> Any:
    """The note that a message brings. Raises UnknownNotification."""
    if message.note is not None:
        return message.note
    kind = KINDS.get(message.type)
    if kind is None:
        raise UnknownNotification(f"no traffic of destinations is called {message.type!r}")
    try:
        note = kind.unpack(message.payload)
    except ValueError as error:
        raise UnknownNotification(f"{message.type} came with fields that do not fit: {error}") from None
    if message.data:  # it need not be packed again
        message.note = note
    return note


# -- messages of clients -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Put(Traffic):
    """A client's message. Times are wall-clock ns, 0 = none.

    This list of fields is all that the bus and the rows of queues know of a message: one that is added at its end, with
    a default, travels and is stored like the others.

    producer, counter   name this message for ever, whatever connection repeats it
    sender    the client id, or connection, that it came by: for no-local
    message   its id; empty: that of the bus message
    """

    wire = "q.put"
    destination: str
    shown: str
    headers: bytes
    priority: Annotated[int, Within(0, 9)] = 4
    timestamp: Count = 0
    expires: Time = 0
    due: Time = 0  # not to be delivered before
    persistent: bool = True
    kind: str = "bytes"
    group: str = ""
    group_seq: int = 0
    producer: str = ""
    counter: Count = 0
    sender: str = ""
    message: str = ""
    typed: bool = False  # for selectors: headers that look like numbers or booleans are such
    properties: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    let_in: bool = field(default=False, init=False, metadata=LOCAL)  # the queue expects it

    @property
    def size(self) -> int:
        return len(self.headers) + len(self.body)

    def values(self) -> list[Any]:
        return list(_values(self))

    def copy(self) -> Put:
        return Put(*_values(self))

    @classmethod
    def of_row(cls, values: list[Any], body: bytes) -> Put:
        """Older rows leave out the last fields, newer ones may have more."""
        return cls(*[*values[:BODY], body, *values[BODY : len(PUT) - 1]])


PUT = shape(Put).names
BODY = PUT.index("body")


def _fields(*names: str) -> Callable[[Put], tuple[Any, ...]]:
    """These fields of a message as a tuple: code made from the list, in a third of the time of an attrgetter."""
    made: Callable[[Put], tuple[Any, ...]] = eval(f"lambda put: ({', '.join(f'put.{name}' for name in names)})")
    return made


_values = _fields(*PUT)
row_of = _fields(*(name for name in PUT if name != "body"))  # that has its own place


# -- to a queue or subscription ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Consume(Traffic):
    """A proxy's consumer of a queue or subscription. `credit` messages may be sent to it."""

    wire = "q.consume"
    consumer: Count  # the proxy's number for it
    credit: Credit
    selector: str = ""
    exclusive: bool = False
    priority: int = 0
    no_local: str = ""  # messages of this sender are not for it
    browser: bool = False
    spec: list[Any] | None = None  # of the subscription that it should be (Spec.values)
    take_over: bool = True  # as in Subscribe


@dataclass(slots=True)
class Cancel(Traffic):
    """No more for this consumer; what it has not settled stays with it until Settle or Gone."""

    wire = "q.cancel"
    consumer: Count


@dataclass(slots=True)
class Settle(Traffic):
    """The fate of dispatched messages, by row id, and new credit.

    taken     consumed
    back      never seen by the client: as if not dispatched
    failed    given back by the client: counted, and backed off or not, as the destination says
    again     given back, and to be offered again whatever the destination says
    refused   not to be offered to anybody again
    lent      their consumer has them still, but may have others in their stead: a transaction is to settle them
    """

    wire = "q.settle"
    consumer: Count
    taken: list[Count] = field(default_factory=list)
    back: list[Count] = field(default_factory=list)
    failed: list[Count] = field(default_factory=list)
    again: list[Count] = field(default_factory=list)
    refused: list[Count] = field(default_factory=list)
    credit: Credit = 0
    last: bool = False  # the answer to Last
    lent: list[Count] = field(default_factory=list)


@dataclass(slots=True)
class Gone(Traffic):
    """The proxy's connection has ended: whatever it holds goes back to its original place. `failed`: what was in hand
    when the connection was lost, which counts as a failure."""

    wire = "q.gone"
    failed: list[Count] = field(default_factory=list)


@dataclass(slots=True)
class End(Traffic):
    """The client wants the subscription no more. Refuse or Ended tells the proxy, by its number for this."""

    wire = "q.end"
    number: Count = 0


@dataclass(slots=True)
class Spec:
    """What a durable or shared subscription is fed with. The topics are patterns."""

    topics: list[str]
    selector: str = ""
    no_local: str = ""
    shared: bool = False
    durable: bool = True

    def values(self) -> list[Any]:
        return [self.topics, self.selector, self.no_local, self.shared, self.durable]

    @classmethod
    def of(cls, values: Any) -> Self:
        """Raises ValueError."""
        spec = cls(*shape(cls).read(values))
        if not spec.topics or not all(is_pattern(topic) for topic in spec.topics):
            raise ValueError("no topics")
        return spec


# -- to a proxy ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Dispatch(Traffic):
    """Messages for a consumer: (row id, message id, count, message). Row 0: it is only shown."""

    wire = "c.dispatch"
    consumer: Count
    items: list[tuple[Count, str, Count, Put]]

    def values(self) -> list[Any]:
        return [self.consumer, [(*item, put.values()) for *item, put in self.items]]


@dataclass(slots=True)
class Started(Traffic):
    """A consumer is known where it consumes from. `unconfirmed`: servers that may not know of the subscription yet;
    None: that is told later."""

    wire = "c.started"
    consumer: Count
    unconfirmed: list[str] | None = field(default_factory=list)


@dataclass(slots=True)
class Last(Traffic):
    """Nothing more comes for this consumer, which was cancelled: say so when that is here."""

    wire = "c.last"
    consumer: Count


@dataclass(slots=True)
class Ended(Traffic):
    """The subscription is no more."""

    wire = "c.ended"
    number: Count


@dataclass(slots=True)
class Browsed(Traffic):
    """A browser has been sent all that was there."""

    wire = "c.browsed"
    consumer: Count


@dataclass(slots=True)
class Refuse(Traffic):
    """A consumer cannot be taken on, or not any longer; the reason is one sentence."""

    wire = "c.refuse"
    consumer: Count
    reason: str


# -- between servers -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Publish(Traffic):
    """A message to a topic. `epochs`: the last of each server's table that is known here; None: it goes everywhere."""

    wire = "t.publish"
    put: Put
    epochs: dict[str, Count] | None

    @property
    def size(self) -> int:
        return self.put.size

    def values(self) -> list[Any]:
        return [self.put.values(), self.epochs]


@dataclass(slots=True)
class Table(Traffic):
    """A server's new and former entries of the subscription table: (epoch, pattern), epoch."""

    wire = "t.table"
    added: list[tuple[Count, str]]
    removed: list[Count]

    @classmethod
    def of(cls, values: Any) -> Self:
        table = cls(*shape(cls).read(values))
        if not all(is_pattern(pattern) for _, pattern in table.added):
            raise ValueError("added: no topic")
        return table


@dataclass(slots=True)
class Seen(Traffic):
    """The sender knows these entries."""

    wire = "t.seen"
    epochs: list[Count]


@dataclass(slots=True)
class Full(Traffic):
    """A queue takes no more work from outside, or does again."""

    wire = "q.full"
    queue: str
    full: bool
