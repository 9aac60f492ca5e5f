"""What sessions, queues, subscriptions and topics tell each other. On one server the objects themselves travel; they
are packed only when they leave it, or when they must wait on disk. Nobody changes one after it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from mombroker.broker.message import Alike, ClientMessage
from mombroker.broker.shapes import Count, Read, Within, reader_of
from mombroker.broker.wire import KINDS, SHAPES, Note
from mombroker.core.ids import is_id
from mombroker.core.reaction import ANSWER, ASK

Step = Annotated[int, Within(0, 4)]
Credit = Annotated[int, Within(-1_000_000, 1_000_000)]  # messages; far more than anybody is given
_counts = reader_of(list[Count])


def _ranges(value: Any) -> list[int]:
    """Raises ValueError."""
    found: list[int] = _counts(value)
    if len(found) % 2 or found != sorted(found):
        raise ValueError("no first and last of ranges")
    return found


Ranges = Annotated[list[int], Read(_ranges)]  # first, last, first, last, ...: see queue/dedup.py


def is_pattern(text: str) -> bool:
    """A topic, or several; they are kept in rows of one line."""
    return text.startswith(("topic:", "temp-topic:")) and "\n" not in text


# -- clients and agents --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ask(Note):
    """What a client sends to an agent. Its source is where answers go (session/questions.py).

    type     the wire name of a notification, which `body` has as JSON: an object of its fields, or nothing
    producer, counter   as those of a ClientMessage
    """

    wire = ASK
    type: str
    body: bytes
    producer: str = ""
    counter: Count = 0


@dataclass(slots=True)
class Answer(Note):
    """What an agent sends to a client: a notification's wire name, and its fields as JSON."""

    wire = ANSWER
    type: str
    body: bytes


@dataclass(slots=True)
class Failure(Note):
    """A message is a dead letter of `agent`: what the core tells its sender. The wire name says of which kind."""

    agent: str
    type: str
    reason: str
    origin: str
    number: Count


DIGITS = 19  # fewer are those of a count
FAILED, UNKNOWN, EXPIRED = FAILURES = ("mom.ReactionFailed", "mom.UnknownAgent", "mom.Expired")
KINDS.update(dict.fromkeys(FAILURES, Failure))

# -- to a queue or subscription ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Consume(Note):
    """A session's consumer of a queue or subscription. `credit` messages may be sent to it."""

    wire = "q.consume"
    consumer: Count  # the session's number for it
    credit: Credit
    selector: str = ""
    exclusive: bool = False
    priority: int = 0
    no_local: str = ""  # messages of this sender are not for it
    browser: bool = False
    spec: list[Any] | None = None  # of the subscription that it should be (Spec.values)
    take_over: bool = True  # as in Subscribe


@dataclass(slots=True)
class Cancel(Note):
    """No more for this consumer; what it has not settled stays with it until Settle or Gone."""

    wire = "q.cancel"
    consumer: Count


@dataclass(slots=True)
class Settle(Note):
    """Outcomes of dispatched messages, by row id (see broker/commands.py), and new credit.

    uncommitted          their consumer has them still, but may have others in their stead: a transaction is to settle
                         them
    undeliverable_here   of those above: not for this consumer again
    """

    wire = "q.settle"
    consumer: Count
    accepted: list[Count] = field(default_factory=list)
    released: list[Count] = field(default_factory=list)
    modified: list[Count] = field(default_factory=list)
    requeued: list[Count] = field(default_factory=list)
    rejected: list[Count] = field(default_factory=list)
    credit: Credit = 0
    last: bool = False  # the answer to Last
    uncommitted: list[Count] = field(default_factory=list)
    undeliverable_here: list[Count] = field(default_factory=list)


@dataclass(slots=True)
class Flow(Note):
    """More credit for a consumer. `drain`: it is to get what is there within its credit, and then Drained."""

    wire = "q.flow"
    consumer: Count
    credit: Credit = 0
    drain: bool = False


@dataclass(slots=True)
class Gone(Note):
    """The session's connection has ended: whatever it holds goes back to its original place. `failed`: what was in hand
    when the connection was lost, which counts as a failure."""

    wire = "q.gone"
    failed: list[Count] = field(default_factory=list)


@dataclass(slots=True)
class End(Note):
    """The client ends the subscription. The answer is Refuse or Ended, with the number of this request."""

    wire = "q.end"
    number: Count = 0


@dataclass(slots=True)
class Spec:
    """What a durable or shared subscription takes: patterns of topics, and a selector."""

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
        spec = cls(*SHAPES[cls].read(values))
        if not spec.topics or not all(is_pattern(topic) for topic in spec.topics):
            raise ValueError("no topics")
        return spec


# -- between the two homes of one that moves --------------------------------------------------------------------------


@dataclass(slots=True)
class Page(Note):
    """What a queue sends to its new home: messages as their rows have them (head and body), in the order in which they
    are given out; what producers have sent. `step`: how far it is then, see queue/movable.py.

    items     and whether a consumer has given it back, since the others were sent
    reserve   how many messages consumers have, which may come back
    round     servers on the way were lost so many times; what earlier pages became is unknown
    """

    wire = "m.page"
    items: list[tuple[bytes, bytes, bool]] = field(default_factory=list)
    producers: list[tuple[str, Ranges]] = field(default_factory=list)
    step: Step = 0
    reserve: Annotated[int, Within(0, 1_000_000)] = 0
    round: Count = 0

    @property
    def size(self) -> int:
        return sum(len(head) + len(body) for head, body, _ in self.items)


@dataclass(slots=True)
class Taken(Note):
    """The receipt of a Page, which is durable; at first, that there is somebody to send to. With the step CLOSED: is
    there still something to come? Who has left for good says that there is not."""

    wire = "m.taken"
    step: Step = 0
    round: Count = 0  # of the page


@dataclass(slots=True)
class Passed(Note):
    """Of a server: all that it sends to a queue goes to this new home from now on."""

    wire = "m.passed"
    home: str


@dataclass(slots=True)
class Ready(Note):
    """Is this server there? It says so, to the queue that asks. `passed`: once it sends to the new home."""

    wire = "m.ready"
    queue: str
    passed: bool = False

    @classmethod
    def of(cls, values: Any) -> Self:
        note = cls(*SHAPES[cls].read(values))
        if not is_id(note.queue):
            raise ValueError("queue: no agent")
        return note


# -- to a session ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Dispatch(Note):
    """Messages for a consumer: (row id, message id, count, message). Row 0: it is only shown."""

    wire = "c.dispatch"
    consumer: Count
    items: list[tuple[Count, str, Count, ClientMessage]]

    def values(self) -> list[Any]:
        return [self.consumer, [(*item, message.values()) for *item, message in self.items]]


@dataclass(slots=True)
class Started(Note):
    """A consumer is known where it consumes from. `unconfirmed`: servers that may not know of the subscription yet;
    None: that is told later."""

    wire = "c.started"
    consumer: Count
    unconfirmed: list[str] | None = field(default_factory=list)


@dataclass(slots=True)
class Last(Note):
    """The last note to a cancelled consumer."""

    wire = "c.last"
    consumer: Count


@dataclass(slots=True)
class Ended(Note):
    """The subscription was deleted."""

    wire = "c.ended"
    number: Count


@dataclass(slots=True)
class Browsed(Note):
    """A browser has been sent all messages that were there when it began."""

    wire = "c.browsed"
    consumer: Count


@dataclass(slots=True)
class Drained(Note):
    """A consumer has been sent what was there within its credit, and has no credit any more."""

    wire = "c.drained"
    consumer: Count


@dataclass(slots=True)
class Moved(Note):
    """A consumer is to go on at another agent, where its queue lives now. What it has of here is settled here."""

    wire = "c.moved"
    consumer: Count
    home: str

    @classmethod
    def of(cls, values: Any) -> Self:
        note = cls(*SHAPES[cls].read(values))
        if not is_id(note.home):
            raise ValueError("home: no agent")
        return note


@dataclass(slots=True)
class Refuse(Note):
    """A consumer is refused, or ended; the reason is one sentence."""

    wire = "c.refuse"
    consumer: Count
    reason: str


# -- between servers -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Publish(Note):
    """A message to a topic. `epochs`: the last of each server's table that is known here; None: it goes everywhere, and
    `known` are those."""

    wire = "t.publish"
    message: ClientMessage
    epochs: dict[str, Count] | None
    known: dict[str, Count] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.message.size

    def values(self) -> list[Any]:
        return [self.message.values(), self.epochs, self.known]


@dataclass(slots=True)
class Run(Note):
    """What a client has published in a row, to the home of a topic in total order: the first message, the bodies of
    all, and `message` and `form` of each if they differ in these, too."""

    wire = "t.run"
    first: ClientMessage
    bodies: list[bytes]
    heads: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def destination(self) -> str:
        return self.first.destination

    @property
    def size(self) -> int:
        return sum(map(len, self.bodies)) + sum(len(form) for _, form in self.heads) + self.first.size

    def values(self) -> list[Any]:
        return [self.first.values(), self.bodies, self.heads]

    @classmethod
    def of(cls, values: Any) -> Self:
        run = cls(*SHAPES[cls].read(values))
        if not run.bodies or (run.heads and len(run.heads) != len(run.bodies)):
            raise ValueError("heads: not one for each body, or no body")
        return run

    def messages(self) -> list[ClientMessage]:
        alike = Alike(self.first, bool(self.heads))
        return list(map(alike.headed, self.heads, self.bodies) if self.heads else map(alike.message, self.bodies))


@dataclass(slots=True)
class Placed(Note):
    """Of the home of a topic in total order, behind what it has sent on: the messages of publishers up to these, by the
    numbers with which they came, have their places. `gone`: they have none, since nobody is there any more."""

    wire = "t.placed"
    told: dict[str, Count]
    gone: bool = False


@dataclass(slots=True)
class Opens(Note):
    """The former home of a topic has placed all that has come to it: this one goes on, unless `more` of these follow.

    later      what is not due yet; and by whom each was published, and the message that has brought it
    producers  what they have published, as in Page
    """

    wire = "t.opens"
    topic: str
    later: list[ClientMessage] = field(default_factory=list)
    more: bool = False
    sources: list[tuple[str, str]] = field(default_factory=list)
    producers: list[tuple[str, Ranges]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(message.size for message in self.later)

    def values(self) -> list[Any]:
        return [self.topic, [message.values() for message in self.later], self.more, self.sources, self.producers]

    @classmethod
    def of(cls, values: Any) -> Self:
        opens = cls(*SHAPES[cls].read(values))
        for source, brought in opens.sources:
            _, _, number = brought.partition("#")
            known = is_id(source) and number.isascii() and number.isdecimal() and len(number) < DIGITS
            if (source or brought) and not known:
                raise ValueError("sources: not an agent and a message")
        return opens


@dataclass(slots=True)
class Undeliverable(Note):
    """What an agent has published comes to nobody; as the core says it of a message (core/dead_letters.py)."""

    wire = "mom.Undeliverable"
    agent: str
    type: str
    reason: str
    origin: str
    number: Count


@dataclass(slots=True)
class Table(Note):
    """A server's new and former entries of the subscription table: (epoch, pattern), epoch."""

    wire = "t.table"
    added: list[tuple[Count, str]]
    removed: list[Count]

    @classmethod
    def of(cls, values: Any) -> Self:
        table = cls(*SHAPES[cls].read(values))
        if not all(is_pattern(pattern) for _, pattern in table.added):
            raise ValueError("added: no topic")
        return table


@dataclass(slots=True)
class Seen(Note):
    """The sender knows these entries."""

    wire = "t.seen"
    epochs: list[Count]


@dataclass(slots=True)
class Full(Note):
    """A queue is full: senders must wait; or it has room again."""

    wire = "q.full"
    queue: str
    full: bool
