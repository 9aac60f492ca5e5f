"""Rules of queues and topics, broken on purpose: the simulated clients must notice."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.commands import ACCEPTED, Disposition, Receipt, Subscribe
from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.protocol import Consume, Publish, Table
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.queue import Queue
from mombroker.broker.session.consumer import SessionConsumer
from mombroker.broker.session.handlers import Wait
from mombroker.broker.session.service import SHARE, Connection, Sessions
from mombroker.broker.session.session import Session
from mombroker.broker.topic.routing import Entry, Topics
from mombroker.broker.wire import Note, note_of
from mombroker.core.errors import MomError
from mombroker.core.message import BOUNCE, Message

FOR_EVER = 1e9  # seconds


class TopicAgent(Native):
    """Expands what is published to one topic, when its turn has come."""

    def react(self, message: Message) -> None:
        topics: Topics = self.server.clients.topics
        Topics._publish(topics, message)


@contextmanager
def agent_per_topic() -> Iterator[None]:
    """What comes to a server is expanded by one agent for each topic, each with its own inbox."""

    def publish(topics: Topics, message: Message) -> None:
        server, put = topics.server, note_of(message).put
        id = f"{server.name}/_topic:{(put if isinstance(put, ClientMessage) else ClientMessage(*put)).destination}"
        server.natives.agents.setdefault(id, TopicAgent(server.natives, id))
        del server.handlers[Publish.wire]
        server.engine.deliver(message, [id])
        server.handlers[Publish.wire] = lambda message: publish(topics, message)

    init = Topics.__init__

    def replace(topics: Topics, *args: Any) -> None:
        init(topics, *args)
        topics.server.handlers[Publish.wire] = lambda message: publish(topics, message)

    with patch.object(Topics, "__init__", replace):
        yield


def credit_per_subscription(_: Callable[[Session], None]) -> Callable[[Session], None]:
    """Each subscription of a connection hands out what it has credit for."""

    def hand_out(proxy: Session) -> None:
        left: deque[tuple[SessionConsumer, ClientMessage, str, int]] = deque()
        pending, proxy.pending = proxy.pending, left
        for source, put, message, count in pending:
            if source.credit > 0:
                proxy.waiting_bytes -= len(put.body)
                proxy._hand(source, put, message, count)
            else:
                left.append((source, put, message, count))

    return hand_out


@contextmanager
def central_table() -> Iterator[None]:
    """The registry server tells everybody about entries, not the server that has them."""

    def announce(topics: Topics, table: Table) -> None:
        registry = topics.server.topology.registry
        topics.server.send(topics.server.note_to(topics.agent, (f"{registry}/_table",), table, 0, BOUNCE))

    def handle(topics: Topics, message: Message) -> None:
        server = topics.server
        if message.dests == (f"{server.topology.registry}/_table",):
            everyone = tuple(f"{name}/_topics" for name in server.topology.servers)
            server.send(server.note_to(f"{message.origin}/_topics", everyone, note_of(message), 0, BOUNCE))
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
            entry.takers[taker] = 0
        return epochs

    return take


def takes_all(init: Callable[..., None]) -> Callable[..., None]:
    """Selectors do not count."""

    def forgetful(consumer: Consumer, proxy: str, note: Consume, wants: object) -> None:
        init(consumer, proxy, note, None)

    return forgetful


def at_once(_: Callable[[Queue, QueuedMessage], None]) -> Callable[[Queue, QueuedMessage], None]:
    """Delays do not count."""
    return lambda queue, item: queue.enter(item)


@contextmanager
def parked_alone() -> Iterator[None]:
    """A message whose name is being decided waits by itself, and what is behind it goes on."""

    def hold_alone(service: Sessions, connection: Connection, wait: Wait) -> None:
        if not wait.reason or wait.room:
            hold(service, connection, wait)
            return
        parked = Connection(connection.proxy)
        parked.commands.append(connection.commands.popleft())
        hold(service, parked, Wait(wait.key, FOR_EVER, wait.reason))
        service._obey(connection, SHARE)

    def close_all(service: Sessions, connection: Connection, lost: bool = True) -> None:
        close(service, connection, lost)
        for parked in [each for each in service.waiting if each.proxy is connection.proxy]:
            del service.waiting[parked]

    hold, close = Sessions._hold, Sessions._close
    with patch.object(Sessions, "_hold", hold_alone), patch.object(Sessions, "_close", close_all):
        yield


@contextmanager
def waiter_in_the_proxy() -> Iterator[None]:
    """A command whose name is being decided waits in the inbox of the proxy, and so do those behind it until then."""

    later: dict[int, Any] = {}

    class Later(Note):
        wire = "test.later"

        def __init__(self, name: str, number: int):
            self.name, self.number = name, number

        def values(self) -> list[Any]:
            return [self.name, self.number]

    def put_off(service: Sessions, connection: Connection, name: str) -> None:
        proxy = connection.proxy
        later[len(later)] = connection.commands.popleft()
        proxy.post(proxy.id, Later(name, len(later) - 1))

    def hold_in_the_proxy(service: Sessions, connection: Connection, wait: Wait) -> None:
        if not wait.reason or wait.room or wait.key == "store":
            hold(service, connection, wait)
        else:
            names[connection.proxy] = wait.key
            put_off(service, connection, wait.key)
            service._obey(connection, SHARE)

    def obey_or_put_off(service: Sessions, connection: Connection, left: int) -> int:
        while connection.commands and (name := names.get(connection.proxy)):
            if name in service.server.names.known:
                del names[connection.proxy]
            else:
                put_off(service, connection, name)
        return obey(service, connection, left)

    def react(proxy: Session, note: Later, message: Message) -> None:
        proxy.server.names.resolve(note.name)
        service, command = proxy.service, later[note.number]
        try:
            service.orders.of[type(command)](proxy, command)
        except (Wait, MomError) as error:
            service.refuse(proxy, str(error), command.receipt)

    names: dict[Session, str] = {}
    hold, obey = Sessions._hold, Sessions._obey
    with (
        patch.object(Sessions, "_hold", hold_in_the_proxy),
        patch.object(Sessions, "_obey", obey_or_put_off),
        patch.dict(Session.handlers, {Later.wire: react}),
    ):
        yield


def settled_at_delivery(deliver: Callable[..., None]) -> Callable[..., None]:
    """A delivery without acknowledgements is settled in its batch, whether or not it is ever written."""

    def settle(proxy: Session, source: SessionConsumer, put: ClientMessage, message: str, count: int, row: Any) -> None:
        deliver(proxy, source, put, message, count, row)
        if source.ack == "auto" and source.home:
            proxy.autos.pop()
            proxy._settle(source, proxy.tag, ACCEPTED)

    return settle


def receipt_at_once(_: Callable[..., None]) -> Callable[..., None]:
    """The receipt of a subscription does not wait until all servers know of it."""

    def listen(proxy: Session, command: Subscribe, wants: Any) -> None:
        source = proxy._new_source(command)
        source.wants = wants
        source.epochs = proxy.service.topics.hold(source, command.destinations)
        if source.receipt is not None:
            proxy.reply(Receipt(source.receipt))

    return listen


def settlements_first(_: Callable[..., Any]) -> Callable[..., Any]:
    """While a message waits for room, all settlements pass it and what is behind it."""

    def all_of_them(service: Sessions, connection: Connection) -> list[Disposition]:
        return [each for each in connection.commands if isinstance(each, Disposition)]

    return all_of_them


def once_a_batch(take_back: Callable[[Queue], None]) -> Callable[[Queue], None]:
    """What lost connections had is taken back once in a batch, and nobody is sure to ask again in the next one."""
    took: dict[Queue, int] = {}

    def former(queue: Queue) -> None:
        number = queue.server.batch.number
        if took.get(queue) != number:
            took[queue] = number
            take_back(queue)

    return former


def unnoticed(_: Callable[[Consumers, int, int], None]) -> Callable[[Consumers, int, int], None]:
    """Consumers that have looked beyond a message's place do not learn that it has come back."""
    return lambda takers, lane, id: None
