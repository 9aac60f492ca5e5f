"""Rules of queues and topics, broken on purpose: the simulated clients must notice."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.commands import (
    ACCEPTED,
    COMMAND,
    Disposition,
    Receipt,
    Refused,
    Send,
    Subscribe,
    Transact,
)
from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.protocol import Consume, Drained, Publish, Table
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.queue import Queue
from mombroker.broker.queue.schedule import Schedule
from mombroker.broker.queue.settlement import Settlement
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.deliveries import Deliveries
from mombroker.broker.session.handlers import Handlers
from mombroker.broker.session.service import SHARE, Sessions
from mombroker.broker.session.session import Session
from mombroker.broker.session.topic_feed import TopicFeed
from mombroker.broker.session.waiting import STORE, Wait, Waiting
from mombroker.broker.topic.routing import Entry, Topics
from mombroker.broker.wire import KINDS, Note, note_of
from mombroker.core.engine import Engine
from mombroker.core.errors import MomError
from mombroker.core.message import Message
from mombroker.sim.world import MS
from tests.fakes_bus import replaced

FOR_EVER = 1e9  # seconds


class TopicAgent(Native):
    """Expands what is published to one topic, when its turn has come."""

    def react(self, message: Message) -> None:
        self.natives.types.handlers[Publish.wire](message)


@contextmanager
def agent_per_topic() -> Iterator[None]:
    """What comes to a server is expanded by one agent for each topic, each with its own inbox."""

    def hand_over(engine: Engine, message: Message, agents: list[str], *where: Any, **when: Any) -> None:
        if message.type != Publish.wire:
            deliver(engine, message, agents, *where, **when)
            return
        put = note_of(message).message
        id = f"{engine.tx.name}/_topic:{(put if isinstance(put, ClientMessage) else ClientMessage(*put)).destination}"
        engine.natives.agents.setdefault(id, TopicAgent(engine.natives, id))
        publish = engine.handlers.pop(Publish.wire)
        deliver(engine, message, [id])
        engine.handlers[Publish.wire] = publish

    deliver = Engine.deliver
    with patch.object(Engine, "deliver", hand_over):
        yield


def credit_per_subscription(_: Callable[[TopicFeed], None]) -> Callable[[TopicFeed], None]:
    """Each subscription of a session hands out what it has credit for."""

    def hand_out(feed: TopicFeed) -> None:
        left: deque[tuple[SessionConsumer, ClientMessage, str, int]] = deque()
        pending, feed.pending = feed.pending, left
        for consumer, message, id, count in pending:
            if consumer.credit > 0:
                feed.bytes -= len(message.body)
                feed._hand(consumer, message, id, count)
            else:
                left.append((consumer, message, id, count))

    return hand_out


@contextmanager
def central_table() -> Iterator[None]:
    """The registry server tells everybody about entries, not the server that has them."""

    def announce(topics: Topics, table: Table) -> None:
        registry = topics.tx.topology.registry
        topics.natives.post(topics.agent, f"{registry}/_table", table)

    def handle(topics: Topics, message: Message) -> None:
        tx = topics.tx
        if message.dests == (f"{tx.topology.registry}/_table",):
            everyone = tuple(f"{name}/_topics" for name in tx.topology.servers)
            topics.natives.cast(f"{message.origin}/_topics", everyone, note_of(message))
        else:
            message.origin, origin = message.source.partition("/")[0], message.origin
            try:
                table(topics, message)
            finally:
                message.origin = origin

    table = Topics._table
    with patch.object(Topics, "_announce", announce), patch.object(Topics, "_table", handle):
        yield


def without_epochs(hold: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """A subscription takes whatever comes to its server for its topics."""

    def take(topics: Topics, taker: Any, patterns: Any) -> list[int]:
        epochs = hold(topics, taker, patterns)
        for epoch in epochs:
            entry: Entry = topics.entries[epoch]
            entry.subscribers.add(taker, 0)
        return epochs

    return take


def one_for_all(all_come: Callable[..., bool]) -> Callable[..., bool]:
    """What is so of one topic of a subscription, that its copies go everywhere, counts for all of them."""

    def any_comes(topics: Topics, epochs: list[int]) -> bool:
        return any(all_come(topics, [epoch]) for epoch in epochs)

    return any_comes


def takes_all(init: Callable[..., None]) -> Callable[..., None]:
    """Selectors do not count."""

    def forgetful(consumer: Consumer, session: str, note: Consume, matches: object, remote: bool = False) -> None:
        init(consumer, session, note, None, remote)

    return forgetful


def at_once(_: Callable[[Schedule, QueuedMessage], None]) -> Callable[[Schedule, QueuedMessage], None]:
    """Delays do not count."""

    def enter(schedule: Schedule, item: QueuedMessage) -> None:
        queue: Any = schedule.queue
        queue.dispatcher.enter(item)

    return enter


class Parked:
    """A command of a session that waits by itself."""

    gone = ended = room = False
    key = reason = ""
    until = 0

    def __init__(self, session: Session):
        self.session = session
        self.commands = deque([session.commands.popleft()])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


@contextmanager
def parked_alone() -> Iterator[None]:
    """A message whose name is being decided waits by itself, and what is behind it goes on."""

    def hold_alone(service: Sessions, session: Session, wait: Wait) -> None:
        if not wait.reason or wait.room:
            hold(service, session, wait)
            return
        hold(service, Parked(session), Wait(wait.key, FOR_EVER, wait.reason))  # type: ignore[arg-type]
        service._obey(session, SHARE)

    def close_all(service: Sessions, session: Session, lost: bool = True) -> None:
        close(service, session, lost)
        for parked in [each for each in service.waiting if isinstance(each, Parked) and each.session is session]:
            del service.waiting[parked]

    hold, close = Sessions._hold, Sessions.close
    with patch.object(Sessions, "_hold", hold_alone), patch.object(Sessions, "close", close_all):
        yield


@contextmanager
def waiter_in_the_session() -> Iterator[None]:
    """A command whose name is being decided waits in the inbox of its session, and so do those behind it until then."""

    later: dict[int, Any] = {}

    class Later(Note):
        wire = "test.later"

        def __init__(self, name: str, number: int):
            self.name, self.number = name, number

        def values(self) -> list[Any]:
            return [self.name, self.number]

    def put_off(session: Session, name: str) -> None:
        later[len(later)] = session.commands.popleft()
        session.post(session.id, Later(name, len(later) - 1))

    def hold_in_the_session(service: Sessions, session: Session, wait: Wait) -> None:
        if not wait.reason or wait.room or wait.key == STORE:
            hold(service, session, wait)
        else:
            names[session] = wait.key
            put_off(session, wait.key)
            service._obey(session, SHARE)

    def obey_or_put_off(service: Sessions, session: Session, left: int) -> int:
        while session.commands and (name := names.get(session)):
            if name in service.natives.names.known:
                del names[session]
            else:
                put_off(session, name)
        return obey(service, session, left)

    def react(session: Session, note: Later, message: Message) -> None:
        session.natives.names.resolve(note.name)
        service, command = session.service, later[note.number]
        assert isinstance(service, Sessions), "the real one"
        try:
            service.commands.of[type(command)](session, command)
        except (Wait, MomError) as error:
            service.refuse(session, Refused(str(error), command.receipt, scope=COMMAND))

    names: dict[Session, str] = {}
    hold, obey = Sessions._hold, Sessions._obey
    with (
        patch.object(Sessions, "_hold", hold_in_the_session),
        patch.object(Sessions, "_obey", obey_or_put_off),
        patch.dict(Session.handlers, {Later.wire: react}),
    ):
        try:
            yield
        finally:
            del KINDS[Later.wire]


def settled_at_delivery(deliver: Callable[..., None]) -> Callable[..., None]:
    """A delivery without acknowledgements is settled in its batch, whether or not it is ever written."""

    def settle(session: Session, given: Iterable[tuple[SessionConsumer, Iterable[Any]]]) -> None:
        deliveries = session.deliveries
        for consumer, item in [(consumer, item) for consumer, items in given for item in items]:
            deliver(session, ((consumer, (item,)),))
            if consumer.ack == "auto" and consumer.home:
                deliveries.autos.pop()
                deliveries._settle(consumer, deliveries.tag, ACCEPTED)

    return settle


def receipt_at_once(_: Callable[..., None]) -> Callable[..., None]:
    """The receipt of a subscription does not wait until all servers know of it."""

    def listen(session: Session, command: Subscribe, matches: Any) -> None:
        consumer = session._new_consumer(command)
        consumer.matches = matches
        consumer.epochs = session.topics.hold(consumer, command.destinations)
        if consumer.receipt is not None:
            session.reply(Receipt(consumer.receipt))

    return listen


def settlements_first(_: Callable[..., Any]) -> Callable[..., Any]:
    """While a message waits for room, all settlements pass it and what is behind it."""

    def all_of_them(waiting: Waiting, session: Session) -> list[Disposition]:
        return [each for each in session.commands if isinstance(each, Disposition)]

    return all_of_them


def once_a_batch(take_back: Callable[[Settlement], None]) -> Callable[[Settlement], None]:
    """What lost connections had is taken back once in a batch, and nobody is sure to ask again in the next one."""
    took: dict[Settlement, int] = {}

    def former(settlement: Settlement) -> None:
        number = settlement.queue.tx.rows.number
        if took.get(settlement) != number:
            took[settlement] = number
            take_back(settlement)

    return former


def unnoticed(_: Callable[[Consumers, int, int], None]) -> Callable[[Consumers, int, int], None]:
    """Consumers that have looked beyond a message's place do not learn that it has come back."""
    return lambda takers, lane, id: None


def drained_first(run: Callable[[Dispatcher], None]) -> Callable[[Dispatcher], None]:
    """The end of a drain is told before what is there is given."""

    def hasty(dispatcher: Dispatcher) -> None:
        for key in dispatcher.consumers.draining:
            dispatcher.consumers.drained(key)
            dispatcher.queue.post(key[0], Drained(key[1]))
        run(dispatcher)

    return hasty


def still_credited(_: Callable[[Dispatcher], None]) -> Callable[[Dispatcher], None]:
    """Who was drained keeps the rest of its credit."""

    def answer(dispatcher: Dispatcher) -> None:
        consumers = dispatcher.consumers
        for key in [key for key in consumers.draining if dispatcher._has_all(consumers.consumers[key])]:
            consumers.drained(key)
            dispatcher.queue.post(key[0], Drained(key[1]))

    return answer


def credit_kept(tell: Callable[[Deliveries, SessionConsumer], None]) -> Callable[[Deliveries, SessionConsumer], None]:
    """What is settled gives no credit back."""

    def keep(deliveries: Deliveries, consumer: SessionConsumer) -> None:
        consumer.explicit, explicit = True, consumer.explicit
        tell(deliveries, consumer)
        consumer.explicit = explicit

    return keep


def credit_on_top(tell: Callable[[Deliveries, SessionConsumer], None]) -> Callable[[Deliveries, SessionConsumer], None]:
    """What is settled gives credit back, also where the client says itself how much it has."""

    def give(deliveries: Deliveries, consumer: SessionConsumer) -> None:
        consumer.explicit, explicit = False, consumer.explicit
        tell(deliveries, consumer)
        consumer.explicit = explicit

    return give


def refused_with_the_rest(refuse: Callable[..., None]) -> Callable[..., None]:
    """What was sent behind a refused command is refused too, without a word."""

    def clear(service: Sessions, session: Session, refused: Refused) -> None:
        refuse(service, session, refused)
        session.commands.clear()

    return clear


def half_refused(transact: Callable[..., None]) -> Callable[..., None]:
    """A transaction that is refused has sent what it was to send."""

    def send_first(handlers: Handlers, session: Session, command: Transact) -> None:
        for each in command.commands:
            if isinstance(each, Send):
                handlers._send(session, each)
        transact(handlers, session, command)

    return send_first


def refused_and_retried(_: Callable[[Waiting, Session], None]) -> Callable[[Waiting, Session], None]:
    """What has waited in vain is refused, and obeyed when it can be."""

    def in_vain(waiting: Waiting, session: Session) -> None:
        if not session.reason:
            session.unanswered(session.key)
        else:
            waiting._refuse(session, Refused(session.reason, session.commands[0].receipt, scope=COMMAND))
        session.until = 0
        waiting.go_on(session)

    return in_vain


# -- pauses --------------------------------------------------------------------------------------------------------


def paced(give: Callable[..., None]) -> Callable[..., None]:
    """Not broken: after each message a queue pauses for a while."""

    def one(dispatcher: Dispatcher, *given: Any) -> None:
        give(dispatcher, *given)
        dispatcher.pause("pace", until=dispatcher.tx.now + 2 * MS)

    return one


def paced_without_alarm(give: Callable[..., None]) -> Callable[..., None]:
    """The same, and nobody calls the queue when the time has come."""

    def one(dispatcher: Dispatcher, *given: Any) -> None:
        give(dispatcher, *given)
        with replaced(Native, "alarm_at", lambda _: lambda native, at: None):
            dispatcher.pause("pace", until=dispatcher.tx.now + 2 * MS)

    return one


def never_resumed(_: Callable[[Dispatcher, str], None]) -> Callable[[Dispatcher, str], None]:
    """What ends a pause has come, and nobody says so."""
    return lambda dispatcher, reason: None


def wakes_nobody(_: Callable[[Queue], None]) -> Callable[[Queue], None]:
    """What waits because of a policy waits on when that is another one."""
    return lambda queue: None
