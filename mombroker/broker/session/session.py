"""A session: one client connection among the agents.

Causal order runs through the client since all that it sends and gets passes here, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol

from mombroker.broker import commands, protocol
from mombroker.broker.access.guard import Guard, needs
from mombroker.broker.commands import (
    COMMAND,
    SUBSCRIPTION,
    BrowseEnd,
    Command,
    Delivery,
    DeliveryRun,
    Receipt,
    Refused,
    Subscribe,
)
from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.native import Native
from mombroker.broker.policies import Policies
from mombroker.broker.queue import rounds
from mombroker.broker.queue.dispatch import Items
from mombroker.broker.selectors import Matches, required
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.deliveries import Deliveries
from mombroker.broker.session.placing import Unplaced
from mombroker.broker.session.topic_feed import TopicFeed
from mombroker.broker.topic.routing import Topics
from mombroker.broker.wire import note_of, pack
from mombroker.core.errors import MomError, UnknownNotification, line
from mombroker.core.events import ClientOpened
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.transaction import COMMIT

LATE_BYTES, MAX_LATE_BYTES = 500, 4 << 20  # of a topic's message beside its body; of all that wait for a session
# What comes of consumers, in an order that must stay.
GIVEN = frozenset(
    each.wire
    for each in (
        protocol.Dispatch, protocol.Started, protocol.Browsed, protocol.Refuse, protocol.Last, protocol.Ended,
        protocol.Drained, protocol.Moved,
    )
)  # fmt: skip
_delivery = tuple.__new__  # a third of the time of Delivery(...)


class Service(Protocol):
    """What a session asks of those that it lives among (service.py)."""

    policies: Policies
    topics: Topics
    replies: dict[int, list[Any]]  # of the open batch, by connection

    def refuse(self, session: Session, refused: Refused) -> None: ...
    def hurry(self, session: Session) -> None: ...
    def resume(self, session: Session, home: str) -> None: ...  # a subscription of another server has answered
    def when_known(self, epochs: list[int], tell: Callable[[list[str]], None]) -> None: ...
    def set_by_our_clock(self, client_message: ClientMessage, message: Message) -> None: ...


class Session(Native):
    """1. Its commands are obeyed in order.
    2. It has a row while it takes from another server, so that this learns of our end even if we die first.

    name      names its temporary destinations
    strict    whatever is refused ends it
    user      who has logged in; empty for one who is anonymous
    guard     what it is judged by; None: it may do everything
    sender    who sends what it sends: the client id, or its own, for no-local
    subs      its subscriptions by the client's names; `consumers`, by number, has also ended ones with deliveries
    homes     what it has consumed from
    endings   what else has a number and waits for an answer, as the end of a durable subscription: home, and receipt
    key, until, reason, room   what the first of `commands` waits for, up to when; see Wait in waiting.py
    awaited   what `until` is of
    unplaced  what it has published in total order, and has no place yet
    late      what has come for it while its subscriptions are judged again; None: they are
    gone      the client has left behind the commands that it still has its turns for
    """

    path: ClassVar[str] = "mombroker.agents.proxy:Proxy"

    def __init__(self, natives: Natives, id: str, service: Service, opened: ClientOpened):
        super().__init__(natives, id)
        self.service, self.topics, self.clock = service, service.topics, natives.clock
        self.conn, self.user, self.client_id, self.strict = opened.conn, opened.user, opened.client_id, opened.strict
        self.guard: Guard | None = None
        self.late: list[Callable[[], None]] | None = None
        self._late_bytes = 0
        self.name = opened.session or id
        self.sender = opened.client_id or id
        self.commands: deque[Command] = deque()  # not obeyed yet
        self.key, self.until, self.reason, self.room = "", 0, "", False
        self.awaited = ""
        self.unplaced: Unplaced | None = None
        self.gone = self.ended = False
        self.number = 0  # of the last consumer, or ending
        self.consumers: dict[int, SessionConsumer] = {}
        self.subs: dict[str, SessionConsumer] = {}
        self.feed = TopicFeed(
            self.tx, service.policies, self.topics, self.conn, self.deliver, self.deliver_run, self.alarm_at
        )
        self.deliveries = Deliveries(self.consumers, self.feed, self.tell, self.touch, self.settle_round)
        self.homes: dict[str, None] = {}
        self.endings: dict[int, tuple[str, str | None]] = {}
        self.temporary: set[str] = set()  # queues

    def _is_ours(self, id: str) -> bool:
        return id.startswith(f"{self.tx.name}/")

    def pack(self) -> bytes:
        return bytes(pack([home for home in self.homes if not self._is_ours(home)]))

    def reply(self, reply: Any) -> None:
        self.service.replies[self.conn].append(reply)
        self.tx.urgency = COMMIT

    # -- subscriptions -------------------------------------------------------------------------------------------

    def consume(self, command: Subscribe, home: str, spec: protocol.Spec | None = None) -> None:
        """Take from a queue or a subscription."""
        consumer = self._new_consumer(command, home)
        self.homes[home] = None
        if not self._is_ours(home):
            self.change()
        consumer.request = protocol.Consume(
            consumer.number, consumer.credit, command.selector if spec is None else "", command.exclusive,
            command.priority, self.sender if command.no_local and spec is None else "", command.browser,
            spec.values() if spec else None, command.take_over,
        )  # fmt: skip
        self.post(home, consumer.request)

    def listen(self, command: Subscribe, matches: Matches | None) -> None:
        """Take from topics, without anything that outlives the connection."""
        consumer = self._new_consumer(command)
        consumer.matches, consumer.requires = matches, required(command.selector)
        consumer.feed = self.feed if matches is None else None
        consumer.epochs = self.topics.hold(consumer, command.destinations)
        if consumer.receipt is not None:
            receipt = consumer.receipt
            self.service.when_known(consumer.epochs, lambda unknown: self._confirmed(receipt, unknown))

    def _confirmed(self, receipt: str | None, unknown: list[str]) -> None:
        if receipt is not None and not self.ended:
            self.reply(Receipt(receipt, ",".join(unknown)))

    def _new_consumer(self, command: Subscribe, home: str = "") -> SessionConsumer:
        self.number += 1
        take = self.feed.take if self.late is None else self._copy_late
        consumer = SessionConsumer(
            self.number, command, home, needs(command, "" if command.common else self.client_id), take
        )
        self.consumers[consumer.number] = self.subs[command.sub] = consumer
        return consumer

    def flow(self, sub: str, credit: int, drain: bool) -> None:
        """Let more come to a subscription. Raises MomError."""
        consumer = self._subscription(sub)
        consumer.grant(credit)
        if consumer.home:
            consumer.draining = drain
            self.deliveries.tell(consumer)  # what was settled before may bring credit
            self.post(consumer.home, protocol.Flow(consumer.number, credit, drain))
            return
        self.feed.hand_out()
        if drain:
            consumer.credit = 0
            self.reply(commands.Drained(sub))

    def _subscription(self, sub: str) -> SessionConsumer:
        consumer = self.subs.get(sub)
        if consumer is None:
            raise MomError(f"there is no subscription {sub!r}")
        return consumer

    def unsubscribe(self, sub: str) -> None:
        """Raises MomError."""
        consumer = self._subscription(sub)
        del self.subs[sub]
        consumer.open = False
        if not consumer.unsettled:
            del self.consumers[consumer.number]
            if consumer.receipt is not None and consumer.home:
                self.endings[consumer.number] = (consumer.home, consumer.receipt)
        if consumer.home:
            self.post(consumer.home, protocol.Cancel(consumer.number))
        else:
            self.topics.release(consumer, consumer.epochs)
            self.feed.leave(consumer)

    def withdraw(self, consumer: SessionConsumer, reason: str) -> None:
        """Its user may not take from there any more: what was not settled goes back, and what is under way."""
        self.service.refuse(self, Refused(reason, consumer.receipt, consumer.sub, SUBSCRIPTION, cause=commands.DENIED))
        if self.ended:
            return
        consumer.open = False
        del self.consumers[consumer.number], self.subs[consumer.sub]
        if consumer.home:
            self.deliveries.tell(consumer)
            rows = list(consumer.unsettled.values())
            self.deliveries.forget(consumer)
            self.post(consumer.home, protocol.Cancel(consumer.number))
            if rows:
                self.post(consumer.home, protocol.Settle(consumer.number, released=rows))
        else:
            self.deliveries.forget(consumer)
            self.topics.release(consumer, consumer.epochs)
            self.feed.leave(consumer)

    # -- while its subscriptions are judged again --------------------------------------------------------------------

    def hold(self) -> None:
        """Nothing is handed to it until `go_on`."""
        if self.late is None:
            self.late, self._late_bytes, self.feed.held = [], 0, True
            for consumer in self.consumers.values():
                consumer.take = self._copy_late

    def go_on(self) -> None:
        """Now comes what has waited."""
        late, self.late, self.feed.held = self.late or [], None, False
        for consumer in self.consumers.values():
            consumer.take = self.feed.take
        self.feed.hand_out()
        self.feed.alarm()
        for come in late:
            if not self.ended:
                come()

    def react(self, message: Message) -> None:
        if self.late is None or message.type not in GIVEN:
            super().react(message)
        else:
            self.late.append(partial(self.handlers[message.type], self, message.note or note_of(message), message))

    def _copy_late(self, consumer: SessionConsumer, message: ClientMessage, id: str) -> None:
        assert self.late is not None, "nothing waits"
        self.late.append(lambda: self.feed.take(consumer, message, id) if consumer.open else None)
        self._late_bytes += len(message.body) + LATE_BYTES
        if self._late_bytes > MAX_LATE_BYTES:
            self.service.hurry(self)

    def end_subscription(self, home: str, receipt: str | None) -> None:
        """Have a durable subscription deleted; it may refuse."""
        self.number += 1
        self.endings[self.number] = (home, receipt)
        self.post(home, protocol.End(self.number))

    def delete_temporary(self, id: str, shown: str) -> None:
        """One of its queues is gone, with all that is in it. Raises MomError."""
        if id not in self.temporary:
            raise MomError(f"{shown} belongs to another connection, which alone may delete it")
        if any(each.home == id for each in self.consumers.values()):
            raise MomError(f"{shown} has a consumer, or messages that are not acknowledged: end them first")
        self.temporary.discard(id)
        self.homes.pop(id, None)
        self.natives.remove(id, written=False)

    # -- deliveries ----------------------------------------------------------------------------------------------

    def dispatch(self, note: protocol.Dispatch, message: Message) -> None:
        consumer = self.consumers.get(note.consumer)
        if consumer is None or not consumer.open or not consumer.home:  # what was under way goes back
            if rows := [item[0] for item in note.items if item[0]]:
                self.post(message.source, protocol.Settle(note.consumer, released=rows))
            return
        if consumer.explicit:
            consumer.credit -= len(note.items)
        if message.origin != self.tx.name:
            for *_, client_message in note.items:
                self.service.set_by_our_clock(client_message, message)
        self._deliver(((consumer, note.items),))

    def takers(self, numbers: list[int]) -> list[SessionConsumer]:
        """The consumers of these numbers, if each may have at once whatever comes for it; else none."""
        if self.late is not None:
            return []
        found = [consumer for number in numbers if (consumer := self.consumers.get(number)) and consumer.open]
        return found if len(found) == len(numbers) and all(consumer.home for consumer in found) else []

    def take_round(self, takers: list[SessionConsumer], items: list[Items]) -> None:
        """What queues of this server have dispatched to these."""
        for consumer, some in zip(takers, items, strict=True):
            if consumer.explicit:
                consumer.credit -= len(some)
        self._deliver(zip(takers, items, strict=True))

    def settle_round(self, round: list[rounds.Settled]) -> bool:
        return rounds.settle(self.natives, round, self.id)

    def deliver(self, consumer: SessionConsumer, message: ClientMessage, id: str, count: int, row: Any) -> None:
        self._deliver(((consumer, ((row, id, count, message),)),))

    def _deliver(self, given: Iterable[tuple[SessionConsumer, Iterable[tuple[Any, str, int, ClientMessage]]]]) -> None:
        deliveries, ahead, said = self.deliveries, self.clock.ahead, self.service.replies[self.conn]
        tag, tags = deliveries.tag, deliveries.tags
        for consumer, items in given:
            sub, ack, unsettled = consumer.sub, consumer.ack, consumer.unsettled
            for row, id, count, message in items:
                tag += 1
                unsettled[tag] = row
                tags[tag] = consumer
                if ack == "auto":
                    deliveries.autos.append(tag)
                expires, due = message.expires, message.due
                if expires:
                    expires -= ahead
                if due:
                    due -= ahead
                said.append(_delivery(Delivery, (sub, tag, id, message, count, expires, ack, due)))
        deliveries.tag = tag
        self.tx.urgency = COMMIT

    def deliver_run(self, consumer: SessionConsumer, run: MessageRun) -> None:
        deliveries = self.deliveries
        deliveries.tag = tag = deliveries.tag + len(run.ids)
        consumer.unsettled[tag] = run
        deliveries.tags[tag] = consumer
        deliveries.autos.append(tag)
        self.reply(DeliveryRun(consumer.sub, tag, run))

    def alarm(self) -> None:
        self.feed.alarm()

    def flush(self) -> None:
        self.deliveries.flush()

    # -- what queues and subscriptions say -----------------------------------------------------------------------

    def started(self, note: protocol.Started, message: Message) -> None:
        if note.unconfirmed is not None:
            self._answer(note.consumer, note.unconfirmed)
        self.service.resume(self, message.source)

    def subscription_ended(self, note: protocol.Ended, message: Message) -> None:
        self._answer(note.number, [])
        self.service.resume(self, message.source)

    def _answer(self, number: int, unconfirmed: list[str]) -> None:
        consumer = self.consumers.get(number)
        if consumer is not None:
            self._confirmed(consumer.receipt, unconfirmed)
            consumer.receipt = None
        elif number in self.endings:
            self._confirmed(self.endings.pop(number)[1], unconfirmed)

    def unanswered(self, home: str) -> None:
        """The commands behind a subscription go on though its server has not answered."""
        server = home.partition("/")[0]
        for number, (where, receipt) in list(self.endings.items()):
            if where == home:
                self._confirmed(receipt, [server])
                self.endings[number] = (home, None)
        for consumer in self.consumers.values():
            if consumer.home == home:
                self._answer(consumer.number, [server])

    def moved(self, note: protocol.Moved, message: Message) -> None:
        """A consumer's queue lives elsewhere now: another consumer goes on there, and this one only settles what it
        has."""
        former, home, consumer = message.source, note.home, self.consumers.get(note.consumer)
        if consumer is None or not consumer.open or consumer.home != former or consumer.request is None:
            return
        self.number += 1
        heir = consumer.pass_on(self.number, home)
        self.consumers[heir.number] = self.subs[heir.sub] = heir
        if not consumer.unsettled:
            del self.consumers[consumer.number]
        self.homes[home] = None
        if not self._is_ours(home):
            self.change()
        if self.key == former:  # it waits for the answer of a subscription
            self.key = home
        under_way = 0 if heir.explicit else len(consumer.unsettled) - len(consumer.uncommitted)
        heir.request = replace(consumer.request, consumer=heir.number, credit=heir.credit - under_way)
        self.post(home, heir.request)
        if heir.draining:
            self.post(home, protocol.Flow(heir.number, 0, True))

    def last(self, note: protocol.Last, message: Message) -> None:
        self.post(message.source, protocol.Settle(note.consumer, last=True))

    def browsed(self, note: protocol.Browsed, message: Message) -> None:
        consumer = self.consumers.get(note.consumer)
        if consumer is not None and consumer.open:
            self.reply(BrowseEnd(consumer.sub))

    def drained(self, note: protocol.Drained, message: Message) -> None:
        consumer = self.consumers.get(note.consumer)
        if consumer is not None and consumer.open:
            consumer.drained()
            self.reply(commands.Drained(consumer.sub))

    def refuse(self, note: protocol.Refuse, message: Message) -> None:
        consumer = self.consumers.get(note.consumer)
        if consumer is None:
            if ending := self.endings.pop(note.consumer, None):  # else it is of a subscription that has ended by now
                self.service.refuse(self, Refused(line(note.reason), ending[1], scope=COMMAND))
        elif consumer.open:
            self.service.refuse(self, Refused(line(note.reason), consumer.receipt, consumer.sub, SUBSCRIPTION))
            if not self.ended:  # its home has taken back what it had
                consumer.open = False
                self.deliveries.forget(consumer)
                del self.consumers[consumer.number], self.subs[consumer.sub]
        self.service.resume(self, message.source)

    # -- agents that it has asked without a reply-to ---------------------------------------------------------------

    def answered(self, note: protocol.Answer, message: Message) -> None:
        """Nobody has asked for it."""

    def failed(self, note: protocol.Failure, message: Message) -> None:
        if note.type != protocol.Ask.wire:
            raise UnknownNotification(f"a session has not sent {note.type}")
        self.service.refuse(self, Refused(line(f"{note.agent}: {note.reason}"), scope=COMMAND))

    # -- the end -------------------------------------------------------------------------------------------------

    def end(self, lost: bool) -> None:
        """The connection is gone: what was not settled goes back to where it was. `lost`: it has not ended in order."""
        if self.ended:
            return
        self.ended = True
        self.late = None
        self.commands.clear()
        self.deliveries.flush()
        failed = self.deliveries.in_hand() if lost else {}
        self.feed.clear()
        for consumer in self.subs.values():
            if not consumer.home:
                consumer.open = False
                self.topics.release(consumer, consumer.epochs)
        for home in self.homes:
            self.post(home, protocol.Gone(failed.get(home, [])))
        for id in self.temporary:
            self.natives.remove(id, written=False)
        self.natives.remove(self.id, written=not all(map(self._is_ours, self.homes)))

    def check(self) -> None:
        self.feed.check()
        self.deliveries.check()
        if self.unplaced is not None:
            self.unplaced.check()


Session.handlers = {
    protocol.Dispatch.wire: Session.dispatch,
    protocol.Started.wire: Session.started,
    protocol.Browsed.wire: Session.browsed,
    protocol.Refuse.wire: Session.refuse,
    protocol.Last.wire: Session.last,
    protocol.Ended.wire: Session.subscription_ended,
    protocol.Drained.wire: Session.drained,
    protocol.Moved.wire: Session.moved,
    protocol.Answer.wire: Session.answered,
    **dict.fromkeys(protocol.FAILURES, Session.failed),
}
