"""What a client sends in a session: transfers become messages, and commands for the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Protocol

from mombroker.amqp import addresses, codec, messages, performatives
from mombroker.amqp.alike import Model
from mombroker.amqp.codec import NOT_FOUND, PRECONDITION, AmqpError
from mombroker.amqp.frames import Parser, frame
from mombroker.amqp.links import Incoming, too_large
from mombroker.amqp.performatives import ACCEPTED, RECEIVER, SPACE, Outcome, Transactional, Transfer
from mombroker.broker.commands import Command, Send, SendRun
from mombroker.broker.shapes import getter
from mombroker.core.errors import MomError

MAX_RUN = 200  # messages that are one command: as many of 300 bytes as are read at once
HEADROOM = messages.MAX_HEAD  # bytes of a message beside its body
_ACCEPTED = performatives.described_outcome(Outcome(ACCEPTED))

_FIELDS = [each.name for each in fields(Send)]
_BODY, _RECEIPT, _MESSAGE, _FORM = map(_FIELDS.index, ("body", "receipt", "message", "form"))
_values = getter(*_FIELDS)


class Owner(Protocol):
    """The connection."""

    now: Callable[[], int]
    unfinished_deliveries: int

    @property
    def max_message(self) -> int: ...
    def put(self, data: bytes) -> None: ...


class Session(Protocol):
    """The session, as this half of it sees it."""

    commands: list[Command]

    def link_flow(self, handle: int, count: int, credit: int, drain: bool = False) -> bytes: ...
    def is_there(self, destination: str) -> str: ...
    def give_up(self, link: Incoming, error: AmqpError) -> None: ...


class Coordinator(Protocol):
    """Of the session's transactions."""

    def coordinate(self, transfer: Transfer, payload: bytes) -> None: ...
    def send(self, transfer: Transfer, command: Send) -> None: ...


class Inbound:
    """1. An outcome of what the client sent is told only when the broker has said that it is durable.
    2. `unanswered` of a link counts those of its deliveries that have none yet.
    """

    coordinator: Coordinator

    def __init__(self, owner: Owner, session: Session, channel: int, theirs: int):
        self.owner, self.session, self.channel, self.theirs = owner, session, channel, theirs
        self.links: dict[int, Incoming] = {}  # by the client's handle, which is ours, too
        self.unanswered: dict[int, Incoming] = {}  # delivery-id -> link
        self.last: int | None = None  # delivery-id
        self._touched: dict[Incoming, None] = {}

    def forget(self, link: Incoming) -> None:
        del self.links[link.handle]
        self.owner.unfinished_deliveries -= link.over()[1]

    def clear(self) -> None:
        for link in list(self.links.values()):
            self.forget(link)

    # -- messages --------------------------------------------------------------------------------------------------

    def transfer(self, transfer: Transfer, payload: bytes) -> bool:
        """False: no link has its handle. Raises AmqpError."""
        link, id = self.links.get(transfer.handle), transfer.delivery_id
        if link is None:
            return False
        if link.first is None:
            if id is None:
                raise AmqpError("a delivery without a delivery-id", codec.INVALID)
            if self.last is not None and not 0 < (id - self.last) % SPACE < SPACE // 2:
                raise AmqpError(f"delivery-id {id}, behind {self.last}: each is one more than the last", codec.INVALID)
            self.last = id
            if link.credit <= 0:
                error = AmqpError(f"link {link.name[:80]!r} has no credit", "amqp:link:transfer-limit-exceeded")
                self.session.give_up(link, error)
                return True
            link.begin(transfer)
            if not transfer.more and not transfer.aborted:
                link.first = None
                self._take(link, transfer, payload)
                return True
        elif id is not None and id != link.first.delivery_id:
            was = link.first.delivery_id
            raise AmqpError(f"delivery-id {id} in the midst of delivery {was} of its link", codec.INVALID)
        self._piece(link, transfer, payload)
        return True

    def _piece(self, link: Incoming, transfer: Transfer, payload: bytes) -> None:
        """A part of a delivery that comes in several. One that is too large is refused while it still arrives."""
        first = link.first
        assert first is not None, "a delivery without its first transfer"
        if not link.dead:
            link.partial.append(payload)
            link.size += len(payload)
            self.owner.unfinished_deliveries += len(payload)
            if link.size > self.owner.max_message + HEADROOM:
                link.dead = True
                self.owner.unfinished_deliveries -= link.over()[1]
                link.first = first
                if not first.settled:
                    self.reject(first, too_large(self.owner.max_message))
        if transfer.more and not transfer.aborted:
            return
        pieces, size = link.over()
        self.owner.unfinished_deliveries -= size
        self._touched[link] = None
        if not link.dead and not transfer.aborted:
            settled = first.settled or transfer.settled
            self._take(link, first._replace(settled=settled, state=first.state or transfer.state), b"".join(pieces))

    def _take(self, link: Incoming, transfer: Transfer, payload: bytes) -> None:
        """A whole message."""
        self._touched[link] = None
        if link.coordinator:
            self.coordinator.coordinate(transfer, payload)
            return
        receipt = None if transfer.settled else str(transfer.delivery_id)
        try:
            command = self._command(link, payload, receipt)
        except MomError as error:
            if not transfer.settled:
                self.reject(transfer, error)
            return
        if isinstance(transfer.state, Transactional):
            self.coordinator.send(transfer, command)
            return
        if transfer.delivery_id is not None and receipt is not None:
            self.unanswered[transfer.delivery_id] = link
            link.unanswered += 1
            link.last = transfer.delivery_id if link.model is not None else -1
        self.session.commands.append(command)

    def _command(self, link: Incoming, payload: bytes, receipt: str | None) -> Send:
        """What a message asks for. Messages that begin alike mean the same. Raises MomError."""
        model, link.last = link.model, -1
        if model is not None and (place := model.find(payload, 0, len(payload))) is not None:
            values = list(link.values)
            values[_BODY], values[_RECEIPT] = payload[place.body :], receipt
            if model.varies:
                values[_MESSAGE], values[_FORM] = model.head(payload, place)
            return Send(*values)
        found = messages.split(payload)
        head = messages.head_of(found.kept)
        asked = False

        def now() -> int:
            nonlocal asked
            asked = True
            return self.owner.now()

        command = messages.send_of(found, head, link.destination or self._destination(head), now)
        link.model = None
        if type(command) is Send and not asked:
            link.model, link.values = Model.of(payload, found), _values(command)
        command.receipt = receipt
        return command

    def _destination(self, head: messages.Head) -> str:
        """Of the anonymous relay."""
        address = messages.address_of(head)
        if not address:
            raise AmqpError("a message to nowhere: its link has no target, and it has no `to`", NOT_FOUND)
        return self.session.is_there(addresses.one(address, addresses.coded(head.annotations.get(messages.DEST))))

    def more(self, parser: Parser, handle: int) -> int:
        """Messages that stand behind the last one of a link, each whole in its frame, and alike but for their bodies,
        join its command. How many frames these were."""
        link = self.links.get(handle)
        asked = self.session.commands
        if link is None or link.last < 0 or not asked or type(first := asked[-1]) is not Send:
            return 0
        if link.model is None:
            return 0
        bodies, heads = parser.alike(self.theirs, handle, link.last + 1, link.model, min(MAX_RUN - 1, link.credit))
        if not bodies:
            return 0
        count, ids = len(bodies), range(link.last + 1, link.last + 1 + len(bodies))
        link.credit -= count
        link.count = (link.count + count) % performatives.SPACE
        link.unanswered += count
        self.unanswered.update(dict.fromkeys(ids, link))
        self.last, link.last = ids[-1], -1
        receipts = [first.receipt or "", *map(str, ids)]
        heads = [(first.message, first.form), *heads] if heads else heads
        asked[-1] = SendRun(first, [first.body, *bodies], receipts, heads=heads)
        return count

    # -- answers ---------------------------------------------------------------------------------------------------

    def accept(self, ids: list[int]) -> None:
        """What the client sent is durable: one disposition for each row of numbers."""
        if not ids:
            return
        for link, count in Counter(map(self.unanswered.pop, ids)).items():
            link.unanswered -= count
            self._touched[link] = None
        for first, last in _rows(ids):
            self._say(performatives.disposition(RECEIVER, first, last, _ACCEPTED))
        ids.clear()

    def refuse(self, id: int, error: AmqpError) -> None:
        link = self.unanswered.pop(id)
        link.unanswered -= 1
        self._touched[link] = None
        self.outcome(id, performatives.rejected(error.condition, str(error)))

    def reject(self, transfer: Transfer, error: MomError) -> None:
        """Before the broker has seen it."""
        condition = error.condition if isinstance(error, AmqpError) else PRECONDITION
        self.outcome(transfer.delivery_id or 0, performatives.rejected(condition, str(error)))

    def outcome(self, id: int, encoded: bytes) -> None:
        self._say(performatives.disposition(RECEIVER, id, id, encoded))

    def _say(self, body: bytes) -> None:
        self.owner.put(frame(body, self.channel))

    # -- credit ----------------------------------------------------------------------------------------------------

    def top_up(self, link: Incoming) -> None:
        if room := link.room():
            link.credit = room
            self._say(self.session.link_flow(link.handle, link.count, room))

    def finish(self) -> None:
        """All that has come at once is looked at."""
        touched, self._touched = self._touched, {}
        for link in touched:
            if self.links.get(link.handle) is link:
                self.top_up(link)

    def check(self) -> None:
        """Assert the invariants."""
        for link in self.links.values():
            mine = sum(whose is link for whose in self.unanswered.values())
            assert mine == link.unanswered, "2: what is unanswered is counted wrong"


def _rows(ids: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last of those that follow each other."""
    if ids == list(range(ids[0], ids[-1] + 1)):
        yield ids[0], ids[-1]
        return
    first = last = ids[0]
    for id in ids[1:]:
        if id != last + 1:
            yield first, last
            first = id
        last = id
    yield first, last
