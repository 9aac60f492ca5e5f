"""What a client connection asks of its server (commands) and what it is told (replies): no protocol, no sockets.

The STOMP session makes commands of frames and frames of replies. Commands of one connection are obeyed in order, and
the reply of each leaves only once all that it caused is durable.

A destination is written `queue:NAME`, `topic:NAME`, `temp-queue:ID`, `temp-topic:ID`; NAME is any text without line
breaks. A topic in a Subscribe may have the wildcards `*` (one segment between dots), `>` and `#` (the rest). An agent
that is asked is `agent:NAME`, by its name or id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.shapes import getter
from mombroker.core.errors import MomError

# Outcomes of a delivery, in the words of AMQP 1.0.
ACCEPTED = "accepted"  # consumed
REJECTED = "rejected"  # for nobody: to the dead letters
RELEASED = "released"  # nobody has looked at it: as if it was not delivered
MODIFIED = "modified"  # given back and counted as failed: offered again after a while, or not, as its destination says
REQUEUED = "requeued"  # as modified, but offered again though its destination says that such go to the dead letters

MAX_PREFETCH = 10_000  # messages that a subscription may have without settlement
MAX_ACCEPTED = 100  # deliveries that one command accepts

# Why something is refused, where protocols have a word for that.
DENIED, MISSING, FULL = "denied", "missing", "full"


class Denied(MomError):
    """The user may not."""

    cause = DENIED


class Missing(MomError):
    """What the command names is not there."""

    cause = MISSING


class NoRoom(MomError):
    """A queue has no room."""

    cause = FULL


# What a refusal ends.
COMMAND, SUBSCRIPTION, CONNECTION = "command", "subscription", "connection"


@dataclass(slots=True)
class Send:
    """One message of a client.

    kind      of the body: "text" or "bytes" or what the client calls it
    expires   ns of wall clock, 0 = never; `delay` in ns before it may be delivered
    group     JMSXGroupID; sequence -1 closes the group
    dedup     (producer id, counter): a repeat within the window is accepted and dropped
    shown     the destination as the client wrote it: what is delivered carries it back
    message   the message id that the client has chosen; empty: the broker chooses
    stamp_user   the message is to say who has logged in on the connection
    parent    the traceparent among its properties, for the log (core/trace.py)

    Of the others ClientMessage tells.
    """

    destination: str
    body: bytes
    priority: int = 4
    expires: int = 0
    persistent: bool = True
    delay: int = 0
    group: str = ""
    group_seq: int = 0
    dedup: tuple[str, int] | None = None
    kind: str = "bytes"
    shown: str = ""
    receipt: str | None = None
    message: str = ""
    content_type: str = ""
    type: str = ""
    correlation: str = ""
    reply_to: str = ""
    properties: bytes = b""
    typed: bool = False
    form: bytes = b""
    stamp_user: bool = False
    parent: str = ""

    @property
    def size(self) -> int:
        texts = self.content_type + self.type + self.correlation + self.reply_to
        return len(texts) + len(self.properties) + len(self.form) + len(self.body)


@dataclass(slots=True)
class Ask(Send):
    """A message to an agent: `type` is the notification that it is, and the body has that as JSON. Answers, and what
    has gone wrong, go to `reply_to`; without one nobody is told of an answer, and of a fault the connection."""


@dataclass(slots=True)
class SendRun:
    """Messages that a client sends in a row and that differ in body and receipt alone: `model` is the first of them.

    heads   `message` and `form` of each, if they differ in these, too
    """

    model: Send
    bodies: list[bytes]
    receipts: list[str]
    receipt: str | None = None  # of the run itself, which has none
    heads: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.bodies)

    @property
    def destination(self) -> str:
        return self.model.destination

    @property
    def size(self) -> int:
        """Of all of them together."""
        model, count = self.model, len(self.bodies)
        size = sum(map(len, self.bodies)) + count * (model.size - len(model.body))
        return size + sum(len(form) for _, form in self.heads) - count * len(model.form) if self.heads else size

    def singles(self) -> list[Send]:
        """The same, one by one."""
        found, values = [], list(_values(self.model))
        heads = self.heads or [(self.model.message, self.model.form)] * len(self.bodies)
        for values[_BODY], values[_RECEIPT], (values[_MESSAGE], values[_FORM]) in zip(
            self.bodies, self.receipts, heads, strict=True
        ):
            found.append(Send(*values))
        return found


@dataclass(slots=True)
class SendRound:
    """Messages that a client sends in a row to queues in turn: they differ in destination, body and receipt alone, and
    `model` is the first of them.

    places  `destination` and `shown` of each
    """

    model: Send
    places: list[tuple[str, str]]
    bodies: list[bytes]
    receipts: list[str]
    receipt: str | None = None  # as of a run

    @property
    def count(self) -> int:
        return len(self.bodies)

    def singles(self) -> list[Send]:
        """The same, one by one."""
        found, values = [], list(_values(self.model))
        for (values[_DESTINATION], values[_SHOWN]), values[_BODY], values[_RECEIPT] in zip(
            self.places, self.bodies, self.receipts, strict=True
        ):
            found.append(Send(*values))
        return found


_FIELDS = [each.name for each in fields(Send)]
_DESTINATION, _SHOWN, _BODY, _RECEIPT, _MESSAGE, _FORM = map(
    _FIELDS.index, ("destination", "shown", "body", "receipt", "message", "form")
)
_values = getter(*_FIELDS)


@dataclass(slots=True)
class Subscribe:
    """Take messages of one queue, or of one or many topics (one subscription, one order).

    sub       the client's name of the subscription, unique on its connection
    ack       "auto", "client" (cumulative), "individual"
    durable   name of the durable (or shared) subscription, "" for a plain one
    prefetch    how many messages it may have unsettled; 0 = the server's default
    credit      None: as `prefetch` says, each settlement lets another one come. Else so many messages come, and more
                only by Flow
    transient   a shared subscription that is not durable: it ends with its last consumer
    common      a shared subscription of all clients, whatever client id they have
    take_over   the consumer that a durable subscription has, if it is not shared, must go; False: this one is refused
    """

    sub: str
    destinations: tuple[str, ...]
    ack: str = "auto"
    selector: str = ""
    durable: str = ""
    shared: bool = False
    no_local: bool = False
    prefetch: int = 0
    exclusive: bool = False
    priority: int = 0
    browser: bool = False
    receipt: str | None = None
    transient: bool = False
    take_over: bool = True
    credit: int | None = None
    common: bool = False


@dataclass(slots=True)
class Unsubscribe:
    """Stop taking; `delete` also ends the durable subscription `durable`. Or delete the queue `temporary`."""

    sub: str
    durable: str = ""
    delete: bool = False
    receipt: str | None = None
    temporary: str = ""
    common: bool = False  # as of Subscribe


@dataclass(slots=True)
class Find:
    """Is there a durable subscription `durable`? It is refused if there is none."""

    durable: str
    common: bool = False
    receipt: str | None = None


@dataclass(slots=True)
class MakeTemporary:
    """Let there be the queue `temporary` of this connection, before anybody uses it."""

    temporary: str
    receipt: str | None = None


@dataclass(slots=True)
class Disposition:
    """Settle the delivery `tag` with an outcome, and earlier ones if the ack mode in force at its delivery says so.

    failed               of `modified`: it counts as failed; False is as `released`
    undeliverable_here   of `modified` and `requeued`: this subscription does not get the message again
    """

    tag: int
    outcome: str = ACCEPTED
    receipt: str | None = None
    failed: bool = True
    undeliverable_here: bool = False


@dataclass(slots=True)
class AcceptRun:
    """Deliveries that a client accepts in a row, each by itself and once. No receipt is asked for."""

    tags: list[int]
    receipt: str | None = None  # of the run itself

    @property
    def count(self) -> int:
        return len(self.tags)

    def singles(self) -> list[Disposition]:
        """The same, one by one."""
        return list(map(Disposition, self.tags))


def accepted(tags: list[int]) -> list[Disposition | AcceptRun]:
    """Commands that accept all of these."""
    if len(tags) == 1:
        return [Disposition(tags[0])]
    return [AcceptRun(tags[at : at + MAX_ACCEPTED]) for at in range(0, len(tags), MAX_ACCEPTED)]


@dataclass(slots=True)
class Uncommitted:
    """An open transaction is to settle the delivery `tag`, and earlier ones as Disposition does: they are not settled
    yet, but take no room. Where credit comes back with settlements, it does now."""

    tag: int
    receipt: str | None = None


@dataclass(slots=True)
class Flow:
    """Let `credit` more messages come to a subscription. `drain`: what is there within its credit comes, then Drained,
    and its credit is 0; until Drained no other Flow is taken for it."""

    sub: str
    credit: int = 0
    drain: bool = False
    receipt: str | None = None


@dataclass(slots=True)
class Transact:
    """Sends and settlements that take effect together, in one reaction, or not at all."""

    commands: list[Send | Disposition]
    receipt: str | None = None


@dataclass(slots=True)
class Sync:
    """Nothing but its place in the order: its receipt says that all before it is done."""

    receipt: str | None = None


@dataclass(slots=True)
class Disconnect:
    """The client leaves in good order."""

    receipt: str | None = None


RUNS = (SendRun, SendRound, AcceptRun)  # what has several in it
Command = (
    Send | SendRun | SendRound | Subscribe | Unsubscribe | Find | MakeTemporary | Disposition | AcceptRun | Uncommitted
    | Flow | Transact | Sync | Disconnect
)  # fmt: skip


class Delivery(NamedTuple):
    """One message for one subscription.

    tag       unique on the connection and rising; ack modes other than auto settle it by Disposition
    id        of the message: `server#number`
    count     deliveries so far, this one included; above 1 it may have been seen before
    expires   of the message, by the client's clock, and when it was due, if its sender had it delayed
    """

    sub: str
    tag: int
    id: str
    message: ClientMessage
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which nobody asks a delivery
    expires: int = 0
    ack: str = "auto"
    due: int = 0

    @property
    def body(self) -> bytes:
        return self.message.body


@dataclass(slots=True)
class DeliveryRun:
    """Messages for one subscription, of those without credit by Flow, that are settled by being written, all together.
    `tag` is that of the last one; the others have those right before it."""

    sub: str
    tag: int
    run: MessageRun

    def singles(self) -> Iterator[Delivery]:
        """The same, one by one."""
        run, first = self.run, self.tag - len(self.run.ids) + 1
        for tag, (id, message) in enumerate(zip(run.ids, run.messages, strict=True), first):
            yield Delivery(self.sub, tag, id, message)


@dataclass(slots=True)
class Receipt:
    """The command with this receipt is done and durable; `unconfirmed` names servers that may not know of it yet."""

    receipt: str
    unconfirmed: str = ""


@dataclass(slots=True)
class Receipts:
    """The messages of a run with these receipts are sent, and durable."""

    receipts: list[str]


@dataclass(slots=True)
class Refused:
    """A command cannot be obeyed, or the subscription `sub` not go on. `receipt` is that of the command, if it had one.

    scope   what ends by it: the `command`, which has changed nothing; the `subscription`, with what it had not settled;
            the `connection`
    elsewhere   another server of the bus would take the client
    cause   DENIED, MISSING, FULL, or nothing of that kind
    """

    message: str
    receipt: str | None = None
    sub: str = ""
    scope: str = CONNECTION
    elsewhere: bool = False
    cause: str = ""


@dataclass(slots=True)
class Drained:
    """The answer to a Flow with `drain`: the subscription has no credit."""

    sub: str


@dataclass(slots=True)
class BrowseEnd:
    """A browser has seen all that was there."""

    sub: str


Reply = Delivery | DeliveryRun | Receipt | Receipts | Refused | Drained | BrowseEnd


def singles(said: Iterable[Any]) -> Iterator[Any]:
    """Replies, with the deliveries of runs one by one."""
    for reply in said:
        if isinstance(reply, DeliveryRun):
            yield from reply.singles()
        else:
            yield reply


@dataclass(slots=True)
class Login:
    """The client wants in. Answer by `accept` or `end`; until then no further frame is read.

    exclusive   refuse it if another connection has its client id
    """

    user: str
    passcode: str = field(repr=False)
    client_id: str = ""
    exclusive: bool = False
