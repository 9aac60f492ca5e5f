"""Topics in total order, broken on purpose: the simulated clients must notice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mombroker.broker.commands import Receipt
from mombroker.broker.groups.deeds import Deeds
from mombroker.broker.protocol import Opens
from mombroker.broker.topic.moving import ENDS, TopicArrival, TopicDeparture
from mombroker.broker.topic.topic import Topic


def published_here(_: Callable[..., bool]) -> Callable[..., bool]:
    """Each server sends out what its own clients publish."""
    return lambda order, destination: False


@contextmanager
def two_homes() -> Iterator[None]:
    """A new home goes on at once, while the former one still places what comes to it."""
    place = Topic._place

    def at_once(topic: Any, messages: Any, envelope: Any) -> None:
        move = topic.move
        topic.move = None if isinstance(move, TopicArrival) else move
        place(topic, messages, envelope)
        topic.move = move
        if isinstance(move, TopicArrival):
            topic.flush()

    with patch.object(Topic, "_place", at_once):
        yield


def opened_at_the_decision(_: Callable[[TopicDeparture], None]) -> Callable[[TopicDeparture], None]:
    """The former home does not wait until all servers have passed; what still comes it places."""

    def decided(move: TopicDeparture) -> None:
        move.phase, move.waits = ENDS, {*move.topic.tx.topology.servers}
        move.topic.post(move.to, Opens(move.to))
        move.topic.change()

    return decided


def placed_again(_: Callable[..., Any]) -> Callable[..., Any]:
    """The home does not know what clients repeat."""
    return lambda topic, messages: messages


def tells_nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    """A new home is not told what producers have published."""
    return lambda dedup: iter(())


def no_wait(_: Callable[..., None]) -> Callable[..., None]:
    """What a client sends behind what it has published does not wait."""
    return lambda handlers, session, command: None


def delayed_where_it_is_read(_: Callable[..., None]) -> Callable[..., None]:
    """The home places at once what is not due yet, and readers wait by their own clocks."""

    def delay(topic: Any, message: Any, *_: str) -> None:
        topic.service.topics.send_out([message], topic.id, topic.service.topics._everywhere(message.destination))

    return delay


def agents_do_not_wait(place: Callable[..., Any]) -> Callable[..., Any]:
    """Nor what an agent sends."""

    def at_once(deeds: Deeds, agent: str, entry: Any, asked: int) -> Any:
        done = place(deeds, agent, entry, asked)
        return True if done is None else done

    return at_once


def receipt_at_once(await_place: Callable[..., None]) -> Callable[..., None]:
    """A client has its receipt before what it has published has its place."""

    def confirmed(handlers: Any, session: Any, topic: str, submitted: Any, *receipts: Any) -> None:
        await_place(handlers, session, topic, submitted, None)
        for receipt in receipts:
            if receipt is not None:
                session.reply(Receipt(receipt))

    return confirmed
