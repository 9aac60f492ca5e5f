"""A session: one client connection among the agents. It takes what the client consumes, and what was not settled is in
it.

Causal order runs through the client since all that it sends and gets passes here, in order.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, ClassVar

import msgpack

from mombroker.broker.commands import (
    ACCEPTED,
    COMMAND,
    MAX_PREFETCH,
    MODIFIED,
    RELEASED,
    REQUEUED,
    SUBSCRIPTION,
    BrowseEnd,
    Delivery,
    Disposition,
    Receipt,
    Subscribe,
)
from mombroker.broker.commands import Drained as DrainedReply
from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.protocol import (
    Browsed,
    Cancel,
    Consume,
    Dispatch,
    Drained,
    End,
    Ended,
    Flow,
    Gone,
    Last,
    Refuse,
    Settle,
    Spec,
    Started,
)
from mombroker.broker.selectors import Matches
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.wire import pack
from mombroker.core.errors import MomError, line
from mombroker.core.events import ClientOpened
from mombroker.core.message import BOUNCE, Message
from mombroker.core.natives import Natives

if TYPE_CHECKING:
    from mombroker.broker.session.service import Sessions
    from mombroker.core.server import AgentServer

_delivery = tuple.__new__  # a third of the time of Delivery(...)
# Deliveries that open transactions settle; bytes of bodies of those that only we keep.
MAX_UNCOMMITTED, MAX_UNCOMMITTED_BYTES = 10_000, 32 << 20
PENDING_BYTES = 64 << 20  # of plain topics' messages that a connection does not take; then the oldest go
UNCOMMITTED, UNDELIVERABLE_HERE = "uncommitted", "undeliverable_here"  # beside outcomes, as in Settle
TOLD = 100  # messages of one outcome that are settled by one reaction of their queue


class Session(Native):
    """1. A tag is in `tags` as long as its delivery is not settled.
    2. Messages of plain topics are handed out in the order in which they came, whatever subscription they are for.
    3. It has a row while it takes from another server, so that this learns of our end even if we die first.
    """

    path = "mombroker.agents.proxy:Proxy"

    def __init__(self, natives: Natives, id: str, service: Sessions, opened: ClientOpened):
        super().__init__(natives, id)
        self.service, self.conn, self.client_id = service, opened.conn, opened.client_id
        self.session = opened.session or id  # names its temporary destinations
        self.strict = opened.strict  # whatever is refused ends it
        self.sender = opened.client_id or id
        self.sources: dict[int, SessionConsumer] = {}
        self.subs: dict[str, SessionConsumer] = {}
        self.tags: dict[int, SessionConsumer] = {}
        self.autos: deque[int] = deque()  # tags that are settled by being written
        self.tag = 0
        self.homes: dict[str, None] = {}  # what it has consumed from
        self.pending: deque[tuple[SessionConsumer, ClientMessage, str, int]] = (
            deque()
        )  # of plain topics, not handed out yet
        self.later: list[tuple[int, int, SessionConsumer, ClientMessage, str]] = []  # of plain topics, delayed
        self.waiting_bytes = 0  # bodies of both
        self.dropped = 0  # messages of plain topics, for want of credit
        self._complain_at = 1  # so many
        self.uncommitted = self.uncommitted_bytes = 0  # of all sources; bytes of plain topics
        self.remote = False
        self.settling: list[SessionConsumer] = []  # with outcomes that are not told yet
        self.endings: dict[int, tuple[str, str | None]] = {}  # subscriptions that are to end: home, and the receipt
        self.temporary: set[str] = set()  # queues
        self.replies: list[Any] = []
        self.ended = False

    def pack(self) -> bytes:
        packed: bytes = pack([home for home in self.homes if not home.startswith(f"{self.server.name}/")])
        return packed

    def reply(self, reply: Any) -> None:
        if not self.replies:
            self.service.speaking(self)
        self.replies.append(reply)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def consume(self, command: Subscribe, home: str, spec: Spec | None = None) -> SessionConsumer:
        """Take from a queue or a subscription."""
        source = self._new_source(command, home)
        self.homes[home] = None
        if not home.startswith(f"{self.server.name}/"):
            self.remote = True
            self.change()
        self.post(home, Consume(
            source.number, source.credit, command.selector if spec is None else "", command.exclusive,
            command.priority, self.sender if command.no_local and spec is None else "", command.browser,
            spec.values() if spec else None, command.take_over,
        ))  # fmt: skip
        return source

    def listen(self, command: Subscribe, wants: Matches | None) -> None:
        """Take from topics, without anything that outlives the connection."""
        source = self._new_source(command)
        source.wants = wants
        source.epochs = self.service.topics.hold(source, command.destinations)
        if source.receipt is not None:
            receipt = source.receipt
            self.service.when_known(source.epochs, lambda unknown: self._confirmed(receipt, unknown))

    def _confirmed(self, receipt: str | None, unknown: list[str]) -> None:
        if receipt is not None and not self.ended:
            self.reply(Receipt(receipt, ",".join(unknown)))

    def _new_source(self, command: Subscribe, home: str = "") -> SessionConsumer:
        self.tag += 1
        source = SessionConsumer(self, self.tag, command, home)
        self.sources[source.number] = self.subs[command.sub] = source
        return source

    def flow(self, sub: str, credit: int, drain: bool) -> None:
        """Let more come to a subscription. Raises MomError."""
        source = self.subs.get(sub)
        if source is None:
            raise MomError(f"there is no subscription {sub!r}")
        if source.draining:
            raise MomError(f"subscription {sub!r} is being drained: wait for the end of that")
        under_way = source.credit  # of a queue's, the window that it has
        if source.explicit or not source.home:
            under_way += len(source.unsettled)
        if not 0 <= credit <= MAX_PREFETCH - under_way:
            raise MomError(
                f"subscription {sub!r} has {under_way} messages unsettled or under way, of at most {MAX_PREFETCH}: "
                f"settle some before it gets credit for {credit} more"
            )
        source.credit += credit
        if source.home:
            source.draining = drain
            self._tell(source)  # what was settled before may bring credit
            self.post(source.home, Flow(source.number, credit, drain))
            return
        self.hand_out()
        if drain:
            source.credit = 0
            self.reply(DrainedReply(sub))

    def delete_temporary(self, id: str, shown: str) -> None:
        """One of its queues is gone, with all that is in it. Raises MomError."""
        if any(source.home == id for source in self.sources.values()):
            raise MomError(f"{shown} has a consumer, or messages that are not acknowledged: end them first")
        if id not in self.temporary:
            raise MomError(f"{shown} belongs to another connection, which alone may delete it")
        self.temporary.discard(id)
        self.homes.pop(id, None)
        natives = self.server.natives
        natives.remove(natives.agents[id], written=False)

    def unsubscribe(self, sub: str) -> None:
        source = self.subs.pop(sub, None)
        if source is None:
            raise MomError(f"there is no subscription {sub!r}")
        self._leave(source)
        if source.home:
            self.post(source.home, Cancel(source.number))

    def end_subscription(self, home: str, receipt: str | None) -> None:
        """Have a durable subscription deleted; it may refuse."""
        self.tag += 1
        self.endings[self.tag] = (home, receipt)
        self.post(home, End(self.tag))

    def _leave(self, source: SessionConsumer) -> None:
        source.open = False
        if not source.unsettled:
            del self.sources[source.number]
        if source.home:
            return
        self.service.topics.release(source, source.epochs)
        self.pending = deque(entry for entry in self.pending if entry[0] is not source)
        self.later = sorted(entry for entry in self.later if entry[2] is not source)
        self.waiting_bytes = sum(len(put.body) for _, put, _, _ in self.pending)
        self.waiting_bytes += sum(len(put.body) for _, _, _, put, _ in self.later)
        self.hand_out()

    # -- what comes from queues and subscriptions ----------------------------------------------------------------

    def dispatch(self, note: Dispatch, message: Message) -> None:
        source = self.sources.get(note.consumer)
        if source is None or not source.open or not source.home:  # what was under way goes back
            if ids := [item[0] for item in note.items if item[0]]:
                self.post(message.source, Settle(note.consumer, released=ids))
            return
        if source.explicit:
            source.credit -= len(note.items)
        if message.origin != self.server.name:
            for *_, put in note.items:
                self.service.set_by_our_clock(put, message)
        for id, message_id, count, put in note.items:
            self._deliver(source, put, message_id, count, id)

    def _deliver(self, source: SessionConsumer, put: ClientMessage, message: str, count: int, row: Any) -> None:
        self.tag = tag = self.tag + 1
        source.unsettled[tag] = row
        self.tags[tag] = source
        if source.ack == "auto":
            self.autos.append(tag)
        if not self.replies:
            self.service.speaking(self)
        expires = put.expires
        if expires:
            expires -= self.server.ahead
        self.replies.append(_delivery(Delivery, (
            source.sub, tag, message, put.shown, put.headers, put.body, count, put.priority, expires,
            put.timestamp, put.persistent, put.kind, source.ack, put.properties,
        )))  # fmt: skip

    def started(self, note: Started, message: Message) -> None:
        source = self.sources.get(note.consumer)
        if source is not None and note.unconfirmed is not None:
            self._started(source, note.unconfirmed)
        self.service.resume(self, message.source)

    def _started(self, source: SessionConsumer, unconfirmed: list[str]) -> None:
        self._confirmed(source.receipt, unconfirmed)
        source.receipt = None

    def subscription_ended(self, note: Ended, message: Message) -> None:
        self._confirmed(self.endings.pop(note.number, ("", None))[1], [])
        self.service.resume(self, message.source)

    def unanswered(self, home: str) -> None:
        """The commands behind a subscription go on though its server has not answered."""
        for number, (where, receipt) in list(self.endings.items()):
            if where == home:
                self._confirmed(receipt, [home.partition("/")[0]])
                self.endings[number] = (home, None)
        for source in self.sources.values():
            if source.home == home:
                self._started(source, [home.partition("/")[0]])

    def last(self, note: Last, message: Message) -> None:
        self.post(message.source, Settle(note.consumer, last=True))

    def browsed(self, note: Browsed, message: Message) -> None:
        source = self.sources.get(note.consumer)
        if source is not None and source.open:
            self.reply(BrowseEnd(source.sub))

    def drained(self, note: Drained, message: Message) -> None:
        source = self.sources.get(note.consumer)
        if source is not None and source.open:
            source.draining = False
            if source.explicit:
                source.credit = 0
            self.reply(DrainedReply(source.sub))

    def refuse(self, note: Refuse, message: Message) -> None:
        source = self.sources.get(note.consumer)
        if source is None:
            receipt = self.endings.pop(note.consumer, ("", None))[1]
            self.service.refuse(self, line(note.reason), receipt, scope=COMMAND)
        elif source.open:
            self.service.refuse(self, line(note.reason), source.receipt, source.sub, SUBSCRIPTION)
            self._forget(source)
        self.service.resume(self, message.source)

    def _forget(self, source: SessionConsumer) -> None:
        """It has ended where it came from, which has taken back what was not settled."""
        if not self.ended:
            source.open = False
            for tag in list(source.unsettled):
                self._recount(source, tag, source.unsettled.pop(tag))
                del self.tags[tag]
            source.outcomes = {}
            source.recounted = 0
            del self.sources[source.number], self.subs[source.sub]

    # -- what comes from plain topics ----------------------------------------------------------------------------

    def topic_message(self, source: SessionConsumer, put: ClientMessage, message: str) -> None:
        if put.due > self.server.now:
            self.tag += 1
            heappush(self.later, (put.due, self.tag, source, put, message))
            self.waiting_bytes += len(put.body)
            self.server.natives.alarm(put.due, self)
        elif not self.pending and source.credit > 0 and source.room > 0 and not put.expires:  # as most often
            self._hand(source, put, message, 1)
        else:
            self._wait((source, put, message, 1), False)
            self.hand_out()
        if self.pending or self.later:
            self._shorten(put.destination)

    def _wait(self, entry: tuple[SessionConsumer, ClientMessage, str, int], first: bool) -> None:
        self.pending.appendleft(entry) if first else self.pending.append(entry)
        self.waiting_bytes += len(entry[1].body)

    def _next(self) -> tuple[SessionConsumer, ClientMessage, str, int]:
        entry = self.pending.popleft()
        self.waiting_bytes -= len(entry[1].body)
        return entry

    def _shorten(self, topic: str) -> None:
        """Of what waits too long the oldest goes; of what is delayed, what would have come first."""
        limit = self.service.policies.of(topic).max_pending
        while len(self.pending) + len(self.later) > limit or self.waiting_bytes > PENDING_BYTES:
            self._drop(self._next()[0] if self.pending else self._due()[0])

    def _drop(self, source: SessionConsumer) -> None:
        """The client does not get a message; the log says so now and then."""
        source.dropped += 1
        self.dropped += 1
        self.service.topics.dropped += 1
        if self.dropped >= self._complain_at:
            self._complain_at *= 10
            self.server.note(
                f"client {self.conn} does not take the messages of its topics in time, here of its subscription "
                f"{ascii(source.sub)[:80]}: {self.dropped} dropped so far; see max_pending of the topic's policy"
            )

    def _due(self) -> tuple[SessionConsumer, ClientMessage, str]:
        _, _, source, put, message = heappop(self.later)
        self.waiting_bytes -= len(put.body)
        return source, put, message

    def hand_out(self) -> None:
        """The first waits until its subscription has credit, and all others behind it."""
        now = self.server.now
        while self.pending:
            source, put, message, count = self.pending[0]
            if put.expires and put.expires <= now:
                self._next()
                continue
            if source.credit <= 0 or source.room <= 0:
                return
            self._next()
            self._hand(source, put, message, count)

    def _hand(self, source: SessionConsumer, put: ClientMessage, message: str, count: int) -> None:
        source.credit -= 1
        source.room -= len(put.body)
        self._deliver(source, put, message, count, (put, message, count))

    def alarm(self) -> None:
        while self.later and self.later[0][0] <= self.server.now:
            self.topic_message(*self._due())

    # -- settlements ---------------------------------------------------------------------------------------------

    def settle(self, command: Disposition) -> None:
        """Raises MomError for a delivery that is not there to be settled."""
        tag, outcome, here = command.tag, command.outcome, not command.undeliverable_here
        if outcome == MODIFIED and not command.failed:
            outcome = RELEASED
        source = self.tags.get(tag)
        if source is None:
            raise MomError("what was acknowledged is settled already, or was never delivered here")
        if source.ack == "client":
            for each in list(source.unsettled):
                if each > tag:
                    break
                self._settle(source, each, outcome, here)
        else:
            self._settle(source, tag, outcome, here)

    def frees(self, tag: int, queue: str) -> bool:
        """Does settling this make room in a queue?"""
        source = self.tags.get(tag)
        return source is not None and source.home == queue

    def _settle(self, source: SessionConsumer, tag: int, outcome: str, here: bool = True) -> None:
        del self.tags[tag]
        row = source.unsettled.pop(tag)
        if not source.open and not source.unsettled:
            del self.sources[source.number]
        if source.uncommitted:
            self._recount(source, tag, row)
        if source.home:
            outcomes = source.outcomes
            if outcome in outcomes:
                outcomes[outcome].append(row)
            else:
                if not outcomes:
                    self.settling.append(source)
                    self.touch()
                outcomes[outcome] = [row]
            if not here:
                outcomes.setdefault(UNDELIVERABLE_HERE, []).append(row)
        else:
            if not source.explicit:
                source.credit += 1
            source.room += len(row[0].body)
            if outcome in (MODIFIED, REQUEUED) and here:
                self._again(source, *row)
            elif outcome == RELEASED and here and source.open:
                self._wait((source, *row), True)
            self.hand_out()

    def count_uncommitted(self, tag: int) -> None:
        """An open transaction is to settle it. Raises MomError when that is too much."""
        source = self.tags.get(tag)
        if source is None or not source.open:
            return
        tags = range(source.uncommitted_to + 1, tag + 1) if source.ack == "client" else (tag,)
        new = [each for each in tags if each in source.unsettled and each not in source.uncommitted]
        size = 0 if source.home else sum(len(source.unsettled[each][0].body) for each in new)
        if self.uncommitted + len(new) > MAX_UNCOMMITTED or self.uncommitted_bytes + size > MAX_UNCOMMITTED_BYTES:
            raise MomError(
                f"transactions that are open, or were aborted, settle over {MAX_UNCOMMITTED} deliveries or "
                f"{MAX_UNCOMMITTED_BYTES} bytes of topics: COMMIT sooner, or settle what was aborted"
            )
        source.uncommitted_to = max(source.uncommitted_to, tag)
        for each in new:
            self._count_uncommitted(source, each)

    def _count_uncommitted(self, source: SessionConsumer, tag: int) -> None:
        source.uncommitted.add(tag)
        self.uncommitted += 1
        row = source.unsettled[tag]
        if source.home:
            if not source.outcomes:
                self.settling.append(source)
                self.touch()
            source.outcomes.setdefault(UNCOMMITTED, []).append(row)
        else:
            if not source.explicit:
                source.credit += 1
            source.room += len(row[0].body)
            self.uncommitted_bytes += len(row[0].body)
            self.hand_out()

    def _recount(self, source: SessionConsumer, tag: int, row: Any) -> None:
        """If its credit was given back, settling it does not do so again."""
        if tag not in source.uncommitted:
            return
        source.uncommitted.remove(tag)
        self.uncommitted -= 1
        if source.home:
            source.recounted += 1
        else:
            if not source.explicit:
                source.credit -= 1
            source.room -= len(row[0].body)
            self.uncommitted_bytes -= len(row[0].body)

    def _again(self, source: SessionConsumer, put: ClientMessage, message: str, count: int) -> None:
        """The client gave back a message of a plain topic: it comes next, with its count; not for ever."""
        if count <= self.service.policies.of(put.destination).max_redeliveries and source.open:
            self._wait((source, put, message, count + 1), True)
        else:
            self._drop(source)

    def wrote(self, upto: int) -> None:
        """Deliveries up to this tag were handed to a live socket."""
        autos = self.autos
        while autos and autos[0] <= upto:
            tag = autos.popleft()
            source = self.tags.get(tag)
            if source is not None:
                self._settle(source, tag, ACCEPTED)

    def check(self) -> None:
        waiting = [put for _, put, _, _ in self.pending] + [put for _, _, _, put, _ in self.later]
        assert self.waiting_bytes == sum(len(put.body) for put in waiting), "bytes that wait miscounted"
        assert self.uncommitted == sum(len(source.uncommitted) for source in self.sources.values()), (
            "uncommitted ones miscounted"
        )
        assert set(self.tags) == {tag for source in self.sources.values() for tag in source.unsettled}, "tags"

    def flush(self) -> None:
        settling, self.settling = self.settling, []
        for source in settling:
            self._tell(source)

    def _tell(self, source: SessionConsumer) -> None:
        outcomes: dict[str, Any] = source.outcomes
        source.outcomes = {}
        credit = 0
        if source.open and not source.explicit:
            credit = sum(len(ids) for name, ids in outcomes.items() if name != UNDELIVERABLE_HERE) - source.recounted
        source.recounted = 0
        while any(len(ids) > TOLD for ids in outcomes.values()):  # not all of it in one reaction
            part = {name: ids[:TOLD] for name, ids in outcomes.items()}
            outcomes = {name: ids[TOLD:] for name, ids in outcomes.items()}
            self.post(source.home, Settle(source.number, **part))
        if outcomes:
            self.post(source.home, Settle(source.number, **outcomes, credit=credit))

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self, lost: bool) -> None:
        """The connection is gone: what was not settled goes back to where it was. `lost`: it has not ended in order."""
        if self.ended:
            return
        self.ended = True
        self.flush()
        failed = self._in_hand() if lost else {}
        self.pending.clear()
        self.later.clear()
        for source in self.subs.values():
            if not source.home:
                self._leave(source)
        for home in self.homes:
            self.post(home, Gone(failed.get(home, [])))
        natives = self.server.natives
        for id in self.temporary:
            natives.remove(natives.agents[id], written=False)
        natives.remove(self, written=self.remote)

    def _in_hand(self) -> dict[str, list[int]]:
        """By home: of each consumer the message that it most likely was at work on. One that takes the client down with
        it must not be delivered for ever, and what was only waiting behind it has done nothing.

        It is the oldest that the client has not settled, not even in a transaction that was open.
        """
        found: dict[str, list[int]] = {}
        for source in self.sources.values():
            if source.home and source.ack != "auto" and source.unsettled:
                tag = next((tag for tag in source.unsettled if tag not in source.uncommitted), min(source.unsettled))
                found.setdefault(source.home, []).append(source.unsettled[tag])
        return found

    handlers: ClassVar[Any] = {
        Dispatch.wire: dispatch, Started.wire: started, Browsed.wire: browsed, Refuse.wire: refuse,
        Last.wire: last, Ended.wire: subscription_ended, Drained.wire: drained,
    }  # fmt: skip


def connection_lost(server: AgentServer, id: str, state: bytes) -> None:
    """The connection of a stored proxy was lost with the last process of this server."""
    for home in msgpack.unpackb(state):
        server.send(server.note_to(id, (home,), Gone(), 0, BOUNCE))
    server.natives.drop_rows(id)
