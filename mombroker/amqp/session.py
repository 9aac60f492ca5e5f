"""A session of a connection (part 2.5 of the specification), which is a session of its own at the broker, too.

Performatives become commands, and replies performatives. What links deliver within a session is in causal order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mombroker.amqp import addresses, codec, inbound, outbound, performatives, sources
from mombroker.amqp.codec import INVALID, NOT_FOUND, NULL, PRECONDITION, AmqpError
from mombroker.amqp.coordinator import Coordinator, Then
from mombroker.amqp.frames import Parser, frame
from mombroker.amqp.inbound import Inbound
from mombroker.amqp.links import Incoming, Outgoing
from mombroker.amqp.outbound import BROWSES, OUTCOMES, Outbound, step
from mombroker.amqp.performatives import (
    ACCEPTED,
    RECEIVED,
    RELEASED,
    SENDER,
    SETTLED,
    SPACE,
    Attach,
    Begin,
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
    Sync,
    Unsubscribe,
)
from mombroker.core.errors import MomError

WINDOW = 4_096  # frames that a client may send before it hears of us again
MAX_LINKS = 4_000  # of a connection
_CONDITIONS = {commands.DENIED: codec.DENIED, commands.MISSING: NOT_FOUND, commands.FULL: codec.LIMIT}


class Owner(inbound.Owner, outbound.Owner, Protocol):
    """The connection, as its sessions see it.

    temporaries   its temporary destinations that are there
    """

    id: str
    temporaries: set[str]

    @property
    def links(self) -> int: ...

    def note(self, line: str) -> None: ...


class Session:
    """1. What is awaited of the broker is in `_awaited` until it is answered, once.

    part       its number at the gateway; no other session of the connection ever has it
    channel    of what we say; `theirs`, of what the client says
    commands   for the broker, in order: whoever takes them leaves an empty list
    over       nothing more is to be said to the broker
    """

    def __init__(self, owner: Owner, part: int, channel: int, theirs: int, begin: Begin):
        self.owner, self.part, self.channel, self.theirs = owner, part, channel, theirs
        self.commands: list[Command] = []
        self.over = False
        self.inbound = Inbound(owner, self, channel, theirs)
        self.outbound = Outbound(owner, part, channel, begin.incoming_window, self._do)
        self.coordinator = Coordinator(self.inbound, self.outbound, self._do, self._ask)
        self.inbound.coordinator = self.coordinator
        self.detached: set[int] = set()  # handles that we have detached, and the client has not yet
        self._window, self._next_in = WINDOW, begin.next_outgoing
        self._awaited: dict[str, Then] = {}
        self._asked = 0
        self._say(performatives.begin(theirs, 0, WINDOW, SPACE - 1, performatives.MAX_HANDLE))

    def _say(self, body: bytes) -> None:
        self.owner.put(frame(body, self.channel))

    def _do(self, command: Command) -> None:
        self.commands.append(command)

    def _ask(self, command: Any, then: Then) -> None:
        """Have something done, and call back with nothing, or the refusal."""
        self._asked += 1
        command.receipt = f"a{self._asked}"
        self._awaited[command.receipt] = then
        self.commands.append(command)

    def mark(self, done: Callable[[], None]) -> None:
        """Call back once all that was asked so far is done."""
        self._ask(Sync(), lambda refused: done())

    # -- links -----------------------------------------------------------------------------------------------------

    def attach(self, asked: Attach) -> None:
        receivers, senders = self.outbound.links, self.inbound.links
        if asked.handle in senders or asked.handle in receivers or asked.handle in self.detached:
            raise AmqpError(f"handle {asked.handle} is in use", "amqp:session:handle-in-use")
        if self.owner.links >= 2 * MAX_LINKS:
            raise AmqpError(f"{MAX_LINKS} links that were refused: detach them", codec.LIMIT)
        try:
            if self.owner.links >= MAX_LINKS:
                raise AmqpError(f"{MAX_LINKS} links in one connection: no more are taken", codec.LIMIT)
            if asked.role == SENDER:
                self._attach_incoming(asked)
            else:
                self._attach_outgoing(asked)
        except MomError as error:
            self._refuse(asked, error)

    def _refuse(self, asked: Attach, error: MomError) -> None:
        """Not the session, this link alone: attached without a terminus, and detached."""
        self._attached(asked, NULL, NULL)
        self._detach(asked.handle, error)

    def _detach(self, handle: int, error: MomError) -> None:
        """A link that we end: what its client has said before it hears of that is passed over."""
        self.detached.add(handle)
        self._say(performatives.detach(handle, True, _error(error)))

    def give_up(self, link: Incoming, error: AmqpError) -> None:
        """Its client has broken the rules of links."""
        self.inbound.forget(link)
        self.commands += filter(None, [self._unmade(link.made)])
        self._detach(link.handle, error)

    def _unattached(self, handle: int) -> None:
        """Raises AmqpError but for a handle that we have detached."""
        if handle not in self.detached:
            raise AmqpError(f"no link has the handle {handle}", "amqp:session:unattached-handle")

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
        if isinstance(target, performatives.Coordinator):
            link.coordinator = True
        elif target.dynamic:
            link.made, address = self._new_temporary(target)
            link.destination, target = link.made, target._replace(address=address)
        elif target.address:
            link.destination = self.is_there(addresses.one(target.address, addresses.kind_of(target.capabilities)))
        offered = [each for each in asked.desired if each == "DELAYED_DELIVERY"]
        source = (asked.source or Terminus(None)).source()
        self.inbound.links[asked.handle] = link

        def then(refused: Refused | None) -> None:
            if self.inbound.links.get(asked.handle) is not link:
                return
            if refused is not None:
                self.inbound.forget(link)
                self._refuse(asked, refusal(refused))
                return
            self._attached(asked, source, target.target(), offered)
            self.inbound.top_up(link)

        if link.made.startswith(QUEUE):
            self._ask(MakeTemporary(link.made), then)
        else:
            then(None)

    def _new_temporary(self, terminus: Terminus) -> tuple[str, str]:
        """A destination that lives as long as its link, and its address."""
        self._asked += 1
        shown = sources.temporary(f"{self.part}.{self._asked}", terminus)
        name, address = destinations.temporary(shown, self.owner.id)
        self.owner.temporaries.add(name)
        return name, address

    def is_there(self, destination: str) -> str:
        """A temporary destination of this connection is not made by being used. Raises AmqpError."""
        kind, _, name = destination.partition(":")
        if kind.startswith("temp-") and name.startswith(f"{self.owner.id}/"):
            if destination not in self.owner.temporaries:
                raise AmqpError(f"{destination} is no more: it ended with the link that made it", NOT_FOUND)
        return destination

    def _attach_outgoing(self, asked: Attach) -> None:
        source = asked.source
        browses = source is not None and source.copies
        self._asked += 1
        sub = f"{asked.handle}.{self._asked}{BROWSES if browses else ''}"
        settled = asked.sender_settles == SETTLED or browses
        link = Outgoing(asked.name, asked.handle, sub, source or Terminus(None), settled, self.channel)
        command: Command
        if source is None:  # of a durable subscription that is there
            link.durable, link.common = sources.subscription(asked.name), sources.GLOBAL in asked.desired
            source = Terminus(None, 2, "never", capabilities=asked.desired)
            command = Find(link.durable, link.common)
        else:
            wanted: tuple[str, ...]
            if source.dynamic:
                link.made, address = self._new_temporary(source)
                source, wanted = source._replace(address=address), (link.made,)
            elif source.address:
                wanted = addresses.several(source.address, addresses.kind_of(source.capabilities))
                self.is_there(wanted[0])
            else:
                raise AmqpError("a link to receive by needs the address of its source", INVALID)
            command = sources.subscribe(sub, asked.name, source, wanted, settled)
            if not command.transient:
                link.durable, link.common = command.durable, command.common
        self.outbound.add(link)
        source = sources.understood(source)

        def then(refused: Refused | None) -> None:
            if self.outbound.links.get(asked.handle) is not link:
                return
            if refused is not None:
                self.outbound.forget(link)
                self._refuse(asked, refusal(refused))
                return
            link.attached = True
            target = (asked.target if isinstance(asked.target, Terminus) else Terminus(None)).target()
            self._attached(asked, source.source(), target)
            self.outbound.flush(link)

        self._ask(command, then)

    def detach(self, asked: Detach) -> None:
        """What we have detached already is answered by that. Raises AmqpError."""
        outgoing, incoming = self.outbound.links.get(asked.handle), self.inbound.links.get(asked.handle)
        if outgoing is not None:
            self._detach_outgoing(outgoing, asked)
        elif incoming is not None:
            self.inbound.forget(incoming)
            self._ask(self._unmade(incoming.made) or Sync(), lambda refused: self._detached(asked, refused))
        else:
            self._unattached(asked.handle)
            self.detached.discard(asked.handle)

    def _unmade(self, destination: str) -> Unsubscribe | None:
        """What ends a temporary destination with its link."""
        self.owner.temporaries.discard(destination)
        return Unsubscribe("", temporary=destination) if destination.startswith(QUEUE) else None

    def _detach_outgoing(self, link: Outgoing, asked: Detach) -> None:
        if not link.attached:
            self._say(performatives.attach(link.name, link.handle, SENDER, 2, 0, NULL, NULL, 0, []))
        self.outbound.forget(link)
        ends = bool(link.durable) and asked.closed
        last = Unsubscribe(link.sub, link.durable if ends else "", ends, common=link.common)
        if link.source.address is None and not link.source.dynamic:  # it has only looked at its subscription
            last.sub = ""
        if (unmade := self._unmade(link.made)) is not None:
            self.commands.append(last)
            last = unmade
        self._ask(last, lambda refused: self._detached(asked, refused))

    def _detached(self, asked: Detach, refused: Refused | None) -> None:
        error = NULL if refused is None else _error(refusal(refused))
        self._say(performatives.detach(asked.handle, asked.closed, error))

    # -- frames that carry, and flow -------------------------------------------------------------------------------

    def transfer(self, transfer: Transfer, payload: bytes, parser: Parser) -> None:
        """With those that follow it in the parser, and are alike. Raises AmqpError."""
        if not self.inbound.transfer(transfer, payload):
            self._unattached(transfer.handle)
        count = 1 + self.inbound.more(parser, transfer.handle)
        self._next_in = (self._next_in + count) % SPACE
        self._window -= count
        if self._window < WINDOW // 2:
            self._window = WINDOW
            self._say(performatives.flow(self._next_in, self._window, self.outbound.next_out, SPACE - 1))

    def finish(self) -> None:
        """All that has come at once is looked at."""
        self.inbound.finish()

    def link_flow(self, handle: int, count: int, credit: int, drain: bool = False) -> bytes:
        return performatives.flow(
            self._next_in, self._window, self.outbound.next_out, SPACE - 1, handle, count, credit, drain
        )

    def flow(self, said: Flow) -> None:
        """Raises AmqpError."""
        out = self.outbound
        seen = (out.next_out - (said.next_incoming or 0)) % SPACE  # under way when the client said this
        out.opened(max(0, said.incoming_window - seen))
        if said.handle is None:
            if said.echo:
                self._say(performatives.flow(self._next_in, self._window, out.next_out, SPACE - 1))
        elif (link := out.links.get(said.handle)) is not None:
            link.flow(said.delivery_count or 0, said.credit or 0)
            out.flush(link)
            if said.drain:
                out.drain(link, self.link_flow)
            else:
                out.grant(link)
            if said.echo and not link.draining:
                out.say_flow(link, self.link_flow)
        elif (other := self.inbound.links.get(said.handle)) is None:
            self._unattached(said.handle)
        elif said.echo:
            self._say(self.link_flow(other.handle, other.count, other.credit))

    # -- what the broker says --------------------------------------------------------------------------------------

    def reply(self, said: list[Reply]) -> None:
        answered, row, outbound = list[int](), list[Delivery](), self.outbound
        for reply in said:
            if type(reply) is Delivery:
                row.append(reply)
                continue
            if row:
                outbound.deliver(row)
            if type(reply) is Receipts:
                answered += map(int, reply.receipts)
            elif type(reply) is Receipt:
                if reply.receipt[0] == "a":
                    self.inbound.accept(answered)
                    self._awaited.pop(reply.receipt)(None)
                else:
                    answered.append(int(reply.receipt))
            elif type(reply) is Refused:
                self.inbound.accept(answered)
                self._refused(reply)
            elif type(reply) is Drained:
                outbound.is_drained(reply.sub)
        if row:
            outbound.deliver(row)
        self.inbound.accept(answered)
        self.finish()

    def _refused(self, refused: Refused) -> None:
        receipt, link = refused.receipt, self.outbound.subs.get(refused.sub)
        if refused.scope == SUBSCRIPTION and link is not None and link.attached:
            self.outbound.forget(link)
            self._detach(link.handle, refusal(refused))
        elif receipt is None:
            self.owner.note(refused.message)
        elif receipt[0] == "a":
            self._awaited.pop(receipt)(refused)
        else:
            self.inbound.refuse(int(receipt), refusal(refused))

    # -- what the client makes of it -------------------------------------------------------------------------------

    def disposition(self, said: Disposition, others: list[int]) -> None:
        """`others`: numbers of which the same is said, each by itself."""
        if said.role == SENDER:
            return  # we settle at once what the client sends
        outcome = said.state
        if isinstance(outcome, Transactional):
            self.coordinator.settle(said, outcome)
            return
        if not said.settled and (outcome is None or outcome.code == RECEIVED):
            return
        found, links = self.outbound.settled([*self.outbound.numbers(said.first, said.last), *others])
        if said.settled and outcome is not None and outcome.code == ACCEPTED:
            self.commands += commands.accepted([tag for _, tag, _ in found])
        else:
            for id, tag, link in found:
                mine = outcome if outcome is not None and outcome.code in OUTCOMES else link.source.default_outcome
                self._settle(id, tag, mine or Outcome(RELEASED), said.settled)
        self.outbound.regrant(links)

    def _settle(self, id: int, tag: int, outcome: Outcome, settled: bool) -> None:
        command = step(tag, outcome)
        if settled:
            self.commands.append(command)
        else:
            encoded = performatives.described_outcome(outcome)
            self._ask(command, lambda refused: self.outbound.tell(id, encoded))

    # -- the end ---------------------------------------------------------------------------------------------------

    def end(self, then: Callable[[], None]) -> None:
        """Leave in good order, once; then call back."""
        self.forget()

        def over(refused: Refused | None) -> None:
            self.over = True
            then()

        self._ask(Disconnect(), over)

    def forget(self) -> None:
        """Its links and transactions are no more."""
        self.inbound.clear()
        self.outbound.clear()
        self.coordinator.transactions.clear()

    def check(self) -> None:
        """Assert the invariants."""
        self.inbound.check()
        self.outbound.check()
        self.coordinator.transactions.check()


QUEUE = "temp-queue:"


def refusal(refused: Refused) -> AmqpError:
    """What the broker refuses, in the words of AMQP."""
    return AmqpError(refused.message, _CONDITIONS.get(refused.cause, PRECONDITION))


def _error(error: MomError) -> bytes:
    condition = error.condition if isinstance(error, AmqpError) else INVALID
    return performatives.error(condition, str(error))
