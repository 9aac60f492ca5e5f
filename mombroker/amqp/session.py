"""A session of a connection (part 2.5 of the specification), which is a session of its own at the broker, too.

Performatives become commands, and replies performatives. What links deliver within a session is in causal order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from mombroker.amqp import addresses, codec, messages, performatives, sources
from mombroker.amqp.codec import INVALID, NOT_FOUND, NULL, PRECONDITION, AmqpError
from mombroker.amqp.frames import frame
from mombroker.amqp.links import Incoming, Outgoing, too_large
from mombroker.amqp.performatives import (
    ACCEPTED,
    MODIFIED,
    RECEIVER,
    REJECTED,
    RELEASED,
    SENDER,
    SETTLED,
    SPACE,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    Flow,
    Outcome,
    Terminus,
    Transactional,
    Transfer,
)
from mombroker.broker import commands, destinations
from mombroker.broker.commands import (
    SUBSCRIPTION,
    Command,
    Delivery,
    Disconnect,
    Drained,
    Find,
    MakeTemporary,
    Receipt,
    Receipts,
    Refused,
    Reply,
    Send,
    SendRun,
    Sync,
    Unsubscribe,
)
from mombroker.broker.shapes import getter
from mombroker.broker.transactions import Limits, Step, TransactionError, Transactions
from mombroker.core.errors import MomError

WINDOW = 4_096  # frames that a client may send before it hears of us again
MAX_LINKS = 1_000
MAX_RUN = 100  # messages that are one command
HEADROOM = messages.MAX_HEAD  # bytes of a message beside its body
OUTCOMES = {
    ACCEPTED: commands.ACCEPTED, REJECTED: commands.REJECTED, RELEASED: commands.RELEASED, MODIFIED: commands.MODIFIED,
}  # fmt: skip

_FIELDS = [each.name for each in fields(Send)]
_BODY, _RECEIPT = _FIELDS.index("body"), _FIELDS.index("receipt")
_values = getter(*_FIELDS)
_CONDITIONS = {commands.DENIED: codec.DENIED, commands.MISSING: NOT_FOUND, commands.FULL: codec.LIMIT}
_NO_TRANSFER = -1  # in the place of a tag
Then = Callable[[Refused | None], None]


class Owner(Protocol):
    """The connection, as its sessions see it."""

    id: str
    client_id: str
    now: Callable[[], int]
    most_out: int
    unfinished_deliveries: int
    temporaries: set[str]

    @property
    def max_message(self) -> int: ...

    def put(self, data: bytes) -> None: ...
    def put_auto(self, data: bytes, session: Session, tag: int) -> None: ...
    def note(self, line: str) -> None: ...


class Session:
    """1. An outcome of what the client sent is told only when the broker has said that it is durable.
    2. A delivery is in `unsettled` from when it is sent until its client, or the end of its link, settles it.

    part       its number at the gateway; no other session of the connection ever has it
    commands   for the broker, in order: whoever takes them leaves an empty list
    over       nothing more is to be said to the broker
    """

    def __init__(self, owner: Owner, part: int, channel: int, begin: Begin):
        self.owner, self.part, self.channel = owner, part, channel
        self.commands: list[Command] = []
        self.over = False
        self.incoming: dict[int, Incoming] = {}  # by the client's handle, which is ours, too
        self.outgoing: dict[int, Outgoing] = {}
        self.subs: dict[str, Outgoing] = {}
        self.unsettled: dict[int, tuple[int, Outgoing]] = {}  # delivery-id -> the broker's tag, link
        self.unanswered: dict[int, Incoming] = {}  # delivery-id of what the client sent -> link
        self.window = WINDOW
        self._next_in = begin.next_outgoing
        self._next_out = self._next_delivery = 0
        self._remote_window = begin.incoming_window
        self._stuck: deque[tuple[bytes, int]] = deque()  # frames that wait for the window, with tags as `put_auto` has
        self._awaited: dict[str, Then] = {}
        self._asked = 0
        self._touched: dict[Incoming, None] = {}
        self.transactions = Transactions(Limits())
        self._say(performatives.begin(channel, 0, WINDOW, SPACE - 1, performatives.MAX_HANDLE))

    def _say(self, body: bytes) -> None:
        self.owner.put(frame(body, self.channel))

    def mark(self, done: Callable[[], None]) -> None:
        """Call back once all that was asked so far is done."""
        self._ask(Sync(), lambda refused: done())

    def _ask(self, command: Any, then: Then) -> None:
        """Have something done, and call back with nothing, or the refusal."""
        self._asked += 1
        command.receipt = f"a{self._asked}"
        self._awaited[command.receipt] = then
        self.commands.append(command)

    # -- links -----------------------------------------------------------------------------------------------------

    def attach(self, asked: Attach) -> None:
        if asked.handle in self.incoming or asked.handle in self.outgoing:
            raise AmqpError(f"handle {asked.handle} is in use", "amqp:session:handle-in-use")
        if len(self.incoming) + len(self.outgoing) >= MAX_LINKS:
            self._refuse(asked, AmqpError(f"{MAX_LINKS} links in one session: no more are taken", codec.LIMIT))
            return
        try:
            if asked.role == SENDER:
                self._attach_incoming(asked)
            else:
                self._attach_outgoing(asked)
        except MomError as error:
            self._refuse(asked, error)

    def _refuse(self, asked: Attach, error: MomError) -> None:
        """Not the session, this link alone: attached without a terminus, and detached."""
        self._attached(asked, NULL, NULL)
        self._say(performatives.detach(asked.handle, True, _error(error)))

    def _attached(self, asked: Attach, source: bytes, target: bytes, offered: list[str] | None = None) -> None:
        most = self.owner.max_message if asked.role == SENDER else 0
        self._say(
            performatives.attach(
                asked.name, asked.handle, not asked.role, asked.sender_settles, 0, source, target, most, offered or []
            )
        )

    def _attach_incoming(self, asked: Attach) -> None:
        target = asked.target
        if target is None:
            raise AmqpError("a link to send by needs a target", INVALID)
        link = Incoming(asked.name, asked.handle, "", asked.initial_count)
        if isinstance(target, Coordinator):
            link.coordinator = True
        elif target.dynamic:
            link.made, address = self._new_temporary(target)
            link.destination, target = link.made, target._replace(address=address)
            if link.destination.startswith("temp-queue:"):
                link.temporary = link.destination
        elif target.address:
            link.destination = self._is_there(addresses.one(target.address, addresses.kind_of(target.capabilities)))
        offered = [each for each in asked.desired if each == "DELAYED_DELIVERY"]
        source = (asked.source or Terminus(None)).source()
        self.incoming[asked.handle] = link

        def then(refused: Refused | None) -> None:
            if self.incoming.get(asked.handle) is not link:
                return
            if refused is not None:
                del self.incoming[asked.handle]
                self._refuse(asked, refusal(refused))
                return
            self._attached(asked, source, target.target(), offered)
            self._top_up(link)

        if link.temporary:
            self._ask(MakeTemporary(link.temporary), then)
        else:
            then(None)

    def _new_temporary(self, terminus: Terminus) -> tuple[str, str]:
        """A destination that lives as long as its link, and its address."""
        self._asked += 1
        shown = sources.temporary(f"{self.part}.{self._asked}", terminus)
        name, address = destinations.temporary(shown, self.owner.id)
        self.owner.temporaries.add(name)
        return name, address

    def _is_there(self, destination: str) -> str:
        """A temporary destination of this connection is not made by being used. Raises AmqpError."""
        kind, _, name = destination.partition(":")
        if kind.startswith("temp-") and name.startswith(f"{self.owner.id}/"):
            if destination not in self.owner.temporaries:
                raise AmqpError(f"{destination} is no more: it ended with the link that made it", NOT_FOUND)
        return destination

    def _attach_outgoing(self, asked: Attach) -> None:
        source = asked.source
        settled = asked.sender_settles == SETTLED or bool(source and source.copies)
        self._asked += 1
        sub = f"{asked.handle}.{self._asked}"
        link = Outgoing(asked.name, asked.handle, sub, source or Terminus(None), settled, self.channel)
        command: Command
        if source is None:  # of a durable subscription that is there
            link.durable, link.common = sources.subscription(asked.name), sources.GLOBAL in asked.desired
            source = Terminus(None, 2, "never", capabilities=asked.desired)
            command = Find(link.durable, link.common)
        else:
            if source.dynamic:
                name, address = self._new_temporary(source)
                source = source._replace(address=address)
                wanted: tuple[str, ...] = (name,)
                link.made = name
                if name.startswith("temp-queue:"):
                    link.temporary = name
            elif source.address:
                wanted = addresses.several(source.address, addresses.kind_of(source.capabilities))
                self._is_there(wanted[0])
            else:
                raise AmqpError("a link to receive by needs the address of its source", INVALID)
            command = sources.subscribe(sub, asked.name, source, wanted, settled)
            if not command.transient:
                link.durable, link.common = command.durable, command.common
        self.outgoing[asked.handle] = self.subs[sub] = link
        source = sources.understood(source)

        def then(refused: Refused | None) -> None:
            if self.outgoing.get(asked.handle) is not link:
                return
            if refused is not None:
                self._forget(link)
                self._refuse(asked, refusal(refused))
                return
            link.attached = True
            target = (asked.target if isinstance(asked.target, Terminus) else Terminus(None)).target()
            self._attached(asked, source.source(), target)
            self._flush(link)

        self._ask(command, then)

    def detach(self, asked: Detach) -> None:
        outgoing, incoming = self.outgoing.get(asked.handle), self.incoming.get(asked.handle)
        if outgoing is not None:
            self._detach_outgoing(outgoing, asked)
        elif incoming is not None:
            self.owner.unfinished_deliveries -= incoming.size
            incoming.size = 0
            incoming.over()
            del self.incoming[asked.handle]
            self.owner.temporaries.discard(incoming.made)
            last = Unsubscribe("", temporary=incoming.temporary) if incoming.temporary else Sync()
            self._ask(last, lambda refused: self._detached(asked, refused))
        # else we have detached it already, and this is the answer

    def _detach_outgoing(self, link: Outgoing, asked: Detach) -> None:
        if not link.attached:
            self._say(performatives.attach(link.name, link.handle, SENDER, 2, 0, NULL, NULL, 0, []))
        self._forget(link)
        ends = bool(link.durable) and asked.closed
        last = Unsubscribe(link.sub, link.durable if ends else "", ends, common=link.common)
        if link.source.address is None and not link.source.dynamic:  # it has only looked at its subscription
            last.sub = ""
        self.owner.temporaries.discard(link.made)
        if link.temporary:
            self.commands.append(last)
            last = Unsubscribe("", temporary=link.temporary)
        self._ask(last, lambda refused: self._detached(asked, refused))

    def _detached(self, asked: Detach, refused: Refused | None) -> None:
        error = NULL if refused is None else _error(refusal(refused))
        self._say(performatives.detach(asked.handle, asked.closed, error))

    def _forget(self, link: Outgoing) -> None:
        """The link is no more: what its client has not settled goes back."""
        del self.outgoing[link.handle], self.subs[link.sub]
        if not link.settled:
            for id in [id for id, (_, whose) in self.unsettled.items() if whose is link]:
                tag, _ = self.unsettled.pop(id)
                self.commands.append(commands.Disposition(tag, commands.RELEASED))
            for each in link.pending:
                self.commands.append(commands.Disposition(each.tag, commands.RELEASED))
        link.pending.clear()

    # -- what the client sends -------------------------------------------------------------------------------------

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_in = (self._next_in + 1) % SPACE
        self.window -= 1
        if self.window < WINDOW // 2:
            self.window = WINDOW
            self._say(self._session_flow())
        link = self.incoming.get(transfer.handle)
        if link is None:
            raise AmqpError(f"no link has the handle {transfer.handle}", "amqp:session:unattached-handle")
        if link.first is None:
            link.begin(transfer)
            if not transfer.more and not transfer.aborted:
                link.first = None
                self._take(link, transfer, payload)
                return
        self._piece(link, transfer, payload)

    def _piece(self, link: Incoming, transfer: Transfer, payload: bytes) -> None:
        """A part of a delivery that comes in several. One that is too large is refused while it still arrives."""
        first = link.first
        assert first is not None, "a delivery without its first transfer"
        most = self.owner.max_message + HEADROOM
        if not link.dead:
            link.partial.append(payload)
            link.size += len(payload)
            self.owner.unfinished_deliveries += len(payload)
            if link.size > most:
                self._drop_pieces(link)
                link.dead = True
                if not first.settled:
                    self._reject(link, first, too_large(self.owner.max_message))
        if transfer.more and not transfer.aborted:
            return
        dead = link.dead
        self.owner.unfinished_deliveries -= link.size
        link.size = 0
        pieces = link.over()
        self._touched[link] = None
        if not dead and not transfer.aborted:
            settled = first.settled or transfer.settled
            self._take(link, first._replace(settled=settled, state=first.state or transfer.state), b"".join(pieces))

    def _drop_pieces(self, link: Incoming) -> None:
        self.owner.unfinished_deliveries -= link.size
        link.size = 0
        link.partial.clear()

    def _take(self, link: Incoming, transfer: Transfer, payload: bytes) -> None:
        """A whole message."""
        self._touched[link] = None
        if link.coordinator:
            self._coordinate(link, transfer, payload)
            return
        receipt = None if transfer.settled else str(transfer.delivery_id)
        try:
            command = self._command(link, payload, receipt)
        except MomError as error:
            if not transfer.settled:
                self._reject(link, transfer, error)
            return
        if isinstance(transfer.state, Transactional):
            self._send_in_transaction(link, transfer, command)
            return
        if receipt is not None:
            assert transfer.delivery_id is not None, "it was looked at when the delivery began"
            self.unanswered[transfer.delivery_id] = link
            link.unanswered += 1
        asked, last = self.commands, link.last
        alike = receipt is not None and link.start and last is not None and asked and asked[-1] is last
        if not alike:
            asked.append(command)
            link.last = command if receipt is not None else None
        elif type(last) is SendRun:
            last.bodies.append(command.body)
            last.receipts.append(receipt or "")
            if len(last.bodies) >= MAX_RUN:
                link.last = None
        elif type(last) is Send:
            link.last = asked[-1] = SendRun(last, [last.body, command.body], [last.receipt or "", receipt or ""])

    def _command(self, link: Incoming, payload: bytes, receipt: str | None) -> Send:
        """What a message asks for. Messages that begin alike mean the same. Raises MomError."""
        start = link.start
        if start and payload.startswith(start) and link.model is not None:
            body = _data(payload, len(start))
            if body is not None:
                before, between, behind = link.model
                return Send(*(*before, body, *between, receipt, *behind))
        found = messages.split(payload)
        head = messages.head_of(found.kept)
        asked = False

        def now() -> int:
            nonlocal asked
            asked = True
            return self.owner.now()

        destination = link.destination or self._destination(head)
        command = messages.send_of(found, head, destination, now)
        link.start, link.last = b"", None
        if found.kind == messages.AS_DATA and type(command) is Send and not asked and not command.message:
            values = _values(command)
            link.model = values[:_BODY], values[_BODY + 1 : _RECEIPT], values[_RECEIPT + 1 :]
            link.start = payload[: found.head + 3]
        command.receipt = receipt
        return command

    # -- transactions ----------------------------------------------------------------------------------------------

    def _coordinate(self, link: Incoming, transfer: Transfer, payload: bytes) -> None:
        """A transaction begins or ends."""
        try:
            said = performatives.of_coordinator(payload)
            if isinstance(said, Declare):
                self._asked += 1
                txn = b"%d" % self._asked
                self.transactions.begin(txn.hex())
                self._outcome(transfer, performatives.declared(txn))
                return
            steps = self.transactions.end(said.txn.hex())
        except MomError as error:
            self._reject(link, transfer, error)
            return
        if said.fail:
            self._roll_back(steps)
            self._outcome(transfer, performatives.described_outcome(Outcome(ACCEPTED)))
            return

        def then(refused: Refused | None) -> None:
            if refused is None:
                self._outcome(transfer, performatives.described_outcome(Outcome(ACCEPTED)))
                return
            self._roll_back(steps)
            self._outcome(transfer, performatives.rejected("amqp:transaction:rollback", refused.message))

        self._ask(commands.Transact(steps), then)

    def _outcome(self, transfer: Transfer, encoded: bytes) -> None:
        id = transfer.delivery_id or 0
        self._say(performatives.disposition(RECEIVER, id, id, encoded))

    def _roll_back(self, steps: list[Step]) -> None:
        """What was consumed goes back, as what has failed."""
        for step in steps:
            if isinstance(step, commands.Disposition):
                self.commands.append(commands.Disposition(step.tag, commands.MODIFIED))

    def _send_in_transaction(self, link: Incoming, transfer: Transfer, command: Send) -> None:
        txn = transfer.state.txn
        command.receipt = None
        link.start, link.last = b"", None
        try:
            self.transactions.add(txn.hex(), command, command.size)
        except TransactionError as error:
            self._reject(link, transfer, error)
            return
        if not transfer.settled:
            accepted = performatives.described_outcome(Outcome(ACCEPTED))
            self._outcome(transfer, performatives.transactional(txn, accepted))

    def _settle_in_transaction(self, said: Disposition, state: Transactional) -> None:
        outcome = state.outcome or Outcome(ACCEPTED)
        for id in self._named(said.first, said.last):
            tag, link = self.unsettled.pop(id)
            link.unsettled -= 1
            step = self._step(tag, outcome)
            try:
                self.transactions.add(state.txn.hex(), step)
            except TransactionError as error:
                raise AmqpError(str(error), "amqp:transaction:unknown-id") from None
            self.commands.append(commands.Uncommitted(tag))
            if not said.settled:
                encoded = performatives.transactional(state.txn, performatives.described_outcome(outcome))
                self._say(performatives.disposition(SENDER, id, id, encoded))
            if link.credit > link.granted and self.outgoing.get(link.handle) is link:
                self._grant(link)

    # -- what the client sends, still ------------------------------------------------------------------------------

    def _destination(self, head: messages.Head) -> str:
        """Of the anonymous relay."""
        address = messages.address_of(head)
        if not address:
            raise AmqpError("a message to nowhere: its link has no target, and it has no `to`", NOT_FOUND)
        return self._is_there(addresses.one(address, addresses.coded(head.annotations.get(messages.DEST))))

    def _reject(self, link: Incoming, transfer: Transfer, error: MomError) -> None:
        condition = error.condition if isinstance(error, AmqpError) else PRECONDITION
        id = transfer.delivery_id or 0
        self._say(performatives.disposition(RECEIVER, id, id, performatives.rejected(condition, str(error))))

    def _top_up(self, link: Incoming) -> None:
        if room := link.room():
            link.credit = room
            self._say(self._link_flow(link.handle, link.count, room))

    def finish(self) -> None:
        """All that has come at once is looked at."""
        touched, self._touched = self._touched, {}
        for link in touched:
            if self.incoming.get(link.handle) is link:
                self._top_up(link)

    # -- flow ------------------------------------------------------------------------------------------------------

    def _session_flow(self) -> bytes:
        return performatives.flow(self._next_in, self.window, self._next_out, SPACE - 1)

    def _link_flow(self, handle: int, count: int, credit: int, drain: bool = False) -> bytes:
        return performatives.flow(
            self._next_in, self.window, self._next_out, SPACE - 1, handle, count, credit, drain
        )  # fmt: skip

    def flow(self, said: Flow) -> None:
        seen = (self._next_out - (said.next_incoming or 0)) % SPACE  # under way when the client said this
        self._remote_window = max(0, said.incoming_window - seen)
        self._unstick()
        if said.handle is None:
            if said.echo:
                self._say(self._session_flow())
            return
        link = self.outgoing.get(said.handle)
        if link is not None:
            link.flow(said.delivery_count or 0, said.credit or 0)
            self._flush(link)
            if said.drain:
                self._drain(link)
            else:
                self._grant(link)
            if said.echo and not link.draining:
                self._say(self._link_flow(link.handle, link.count, link.credit))
        elif said.handle in self.incoming:
            incoming = self.incoming[said.handle]
            if said.echo:
                self._say(self._link_flow(incoming.handle, incoming.count, incoming.credit))

    def _grant(self, link: Outgoing) -> None:
        """Let the broker have the credit that the client gives."""
        if not link.draining and (more := link.lacks()):
            link.granted += more
            self.commands.append(commands.Flow(link.sub, more))

    def _drain(self, link: Outgoing) -> None:
        if link.draining:
            return
        if not link.credit:
            self._say(self._link_flow(link.handle, link.count, 0, True))
            return
        more = link.lacks()
        link.granted += more
        link.draining = True
        self.commands.append(commands.Flow(link.sub, more, True))

    def _is_drained(self, link: Outgoing) -> None:
        """What was there has come: the rest of the credit is used up."""
        link.draining, link.granted = False, 0
        link.count = (link.count + link.credit) % SPACE
        link.credit = 0
        self._stuck.append((frame(self._link_flow(link.handle, link.count, 0, True), self.channel), _NO_TRANSFER))
        self._unstick()

    # -- what the broker says --------------------------------------------------------------------------------------

    def reply(self, said: list[Reply]) -> None:
        answered: list[int] = []
        for reply in said:
            kind = type(reply)
            if kind is Delivery:
                self._deliver(reply)  # type: ignore[arg-type]
            elif isinstance(reply, Receipts):
                answered += map(int, reply.receipts)
            elif isinstance(reply, Receipt):
                if reply.receipt[0] == "a":
                    self._accept(answered)
                    self._awaited.pop(reply.receipt)(None)
                else:
                    answered.append(int(reply.receipt))
            elif isinstance(reply, Refused):
                self._accept(answered)
                self._refused(reply)
            elif isinstance(reply, Drained) and (link := self.subs.get(reply.sub)) is not None:
                self._is_drained(link)
        self._accept(answered)
        self.finish()

    def _accept(self, ids: list[int]) -> None:
        """What the client sent is durable: one disposition for each row of numbers."""
        if not ids:
            return
        accepted = performatives.described_outcome(Outcome(ACCEPTED))
        first = last = ids[0]
        for id in [*ids[1:], -1]:
            if id == last + 1:
                last = id
                continue
            self._say(performatives.disposition(RECEIVER, first, last, accepted))
            first = last = id
        for id in ids:
            self._answered(id)
        ids.clear()

    def _answered(self, id: int) -> None:
        link = self.unanswered.pop(id)
        link.unanswered -= 1
        self._touched[link] = None

    def _refused(self, refused: Refused) -> None:
        receipt = refused.receipt
        if refused.scope == SUBSCRIPTION and (link := self.subs.get(refused.sub)) is not None and link.attached:
            self._forget(link)
            self._say(performatives.detach(link.handle, True, _error(refusal(refused))))
        elif receipt is None:
            self.owner.note(refused.message)
        elif receipt[0] == "a":
            self._awaited.pop(receipt)(refused)
        else:
            id = int(receipt)
            error = refusal(refused)
            rejected = performatives.rejected(error.condition, str(error))
            self._say(performatives.disposition(RECEIVER, id, id, rejected))
            self._answered(id)

    def _deliver(self, delivery: Delivery) -> None:
        link = self.subs.get(delivery.sub)
        if link is None:
            if delivery.ack != "auto":
                self.commands.append(commands.Disposition(delivery.tag, commands.RELEASED))
            return
        link.granted = max(0, link.granted - 1)
        if link.pending or link.credit <= 0 or not link.attached:
            link.pending.append(delivery)
        else:
            self._transfer(link, delivery)

    def _transfer(self, link: Outgoing, delivery: Delivery) -> None:
        id = self._next_delivery
        self._next_delivery = (id + 1) % SPACE
        frames = link.transfer(id, messages.payload(delivery, self.owner.now), self.owner.most_out)
        auto = 0
        if link.settled:
            auto = delivery.tag
        else:
            self.unsettled[id] = delivery.tag, link
            link.unsettled += 1
        for at, data in enumerate(frames, 1):
            self._stuck.append((data, auto if at == len(frames) else 0))
        self._unstick()

    def _unstick(self) -> None:
        """Send what the client's window has room for."""
        stuck = self._stuck
        while stuck and (self._remote_window > 0 or stuck[0][1] == _NO_TRANSFER):
            data, auto = stuck.popleft()
            if auto == _NO_TRANSFER:
                self.owner.put(data)
                continue
            self._remote_window -= 1
            self._next_out = (self._next_out + 1) % SPACE
            if auto:
                self.owner.put_auto(data, self, auto)
            else:
                self.owner.put(data)

    def _flush(self, link: Outgoing) -> None:
        while link.pending and link.credit > 0 and link.attached:
            self._transfer(link, link.pending.popleft())

    # -- what the client makes of it -------------------------------------------------------------------------------

    def disposition(self, said: Disposition) -> None:
        if said.role == SENDER:
            return  # we settle at once what the client sends
        outcome = said.state
        if isinstance(outcome, Transactional):
            self._settle_in_transaction(said, outcome)
            return
        if not said.settled and (outcome is None or outcome.code == performatives.RECEIVED):
            return
        for id in self._named(said.first, said.last):
            tag, link = self.unsettled.pop(id)
            link.unsettled -= 1
            if outcome is None or outcome.code not in OUTCOMES:
                outcome = link.source.default_outcome or Outcome(RELEASED)
            self._settle(id, tag, outcome, said.settled)
            if link.credit > link.granted and self.outgoing.get(link.handle) is link:
                self._grant(link)

    def _named(self, first: int, last: int) -> list[int]:
        """Those of a range that are not settled."""
        unsettled = self.unsettled
        count = (last - first) % SPACE + 1
        if count > len(unsettled):
            return [id for id in unsettled if (id - first) % SPACE < count]
        return [id for at in range(count) if (id := (first + at) % SPACE) in unsettled]

    def _settle(self, id: int, tag: int, outcome: Outcome, settled: bool) -> None:
        command = self._step(tag, outcome)
        if settled:
            self.commands.append(command)
            return
        encoded = performatives.described_outcome(outcome)
        self._ask(command, lambda refused: self._say(performatives.disposition(SENDER, id, id, encoded)))

    def _step(self, tag: int, outcome: Outcome) -> commands.Disposition:
        command = commands.Disposition(tag, OUTCOMES[outcome.code])
        if outcome.code == MODIFIED:
            command.failed, command.undeliverable_here = outcome.failed, outcome.undeliverable_here
        return command

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, then: Callable[[], None]) -> None:
        """Leave in good order; then call back."""
        for link in self.incoming.values():
            self.owner.unfinished_deliveries -= link.size
        self.incoming.clear()
        self.outgoing.clear()
        self.subs.clear()
        self._stuck.clear()
        self.transactions.clear()

        def over(refused: Refused | None) -> None:
            self.over = True
            then()

        self._ask(Disconnect(), over)

    def check(self) -> None:
        """Assert the invariants."""
        for link in self.outgoing.values():
            mine = sum(whose is link for _, whose in self.unsettled.values())
            assert mine == link.unsettled, "2: what is unsettled is counted wrong"


def _data(payload: bytes, at: int) -> bytes | None:
    """The bytes of a data section that is the last one; None if it is not."""
    if payload[at : at + 1] == b"\xa0":
        end = at + 2 + payload[at + 1]
        return payload[at + 2 :] if end == len(payload) else None
    if payload[at : at + 1] == b"\xb0":
        end = at + 5 + int.from_bytes(payload[at + 1 : at + 5], "big")
        return payload[at + 5 :] if end == len(payload) else None
    return None


def refusal(refused: Refused) -> AmqpError:
    """What the broker refuses, in the words of AMQP."""
    return AmqpError(refused.message, _CONDITIONS.get(refused.cause, PRECONDITION))


def _error(error: MomError) -> bytes:
    condition = error.condition if isinstance(error, AmqpError) else INVALID
    return performatives.error(condition, str(error))
