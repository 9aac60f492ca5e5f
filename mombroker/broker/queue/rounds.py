"""Rounds: what one session of this server and its queues in turn tell each other, in one piece.

Nothing comes of it but what comes of the same notes one by one. What answers False has done nothing: they have to go
so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.protocol import Dispatch, Settle
from mombroker.broker.queue.consumer import Consumer
from mombroker.broker.queue.dispatch import DISPATCH_BYTES, Dispatcher
from mombroker.broker.queue.limits import QueueLimits
from mombroker.broker.queue.settlement import Settlement
from mombroker.core.natives import Natives

FEW = 8  # messages of one queue that are settled as one of a round


class Queue(Protocol):
    """What this needs of a queue."""

    id: str
    natives: Natives
    limits: QueueLimits
    dispatcher: Dispatcher
    settlement: Settlement
    move: Any

    def takes_any(self) -> bool: ...
    def put(self, message: ClientMessage, id: int, message_id: str) -> None: ...


Settled = tuple[str, int, list[int], int]  # home of a consumer, its number, what it has accepted, and new credit
Part = tuple[Queue, Consumer]


def put(queues: Sequence[Queue], messages: Sequence[ClientMessage], source: str) -> bool:
    """A message to each of these queues, which differ in destination and body alone."""
    first, natives = messages[0], queues[0].natives
    if first.producer or first.group or first.expires or first.due:
        return False
    for queue in queues:
        if not queue.takes_any():
            return False
    agents, sizes = [queue.id for queue in queues], [message.size for message in messages]
    ids = natives.round_now([source] * len(agents), agents, ClientMessage.wire, sizes, 2)
    if ids is None:
        return False
    each, origin = iter(ids), natives.tx.name
    for queue, message, number, id in zip(queues, messages, each, each, strict=True):
        queue.put(message, id, message.message or f"{origin}#{number}")
    return True


def settle(natives: Natives, round: Sequence[Settled], source: str) -> bool:
    """What consumers of one session have accepted, few messages each."""
    count = len(round)
    agents, homes, queues = natives.agents, [each[0] for each in round], list[Any]()
    for home in homes:
        queue: Any = agents.get(home)
        if queue is None or queue.move is not None or queue.limits.wanted:
            return False
        queues.append(queue)
    if natives.turns.work < count or natives.round_now([source] * count, homes, Settle.wire, [0] * count) is None:
        return False
    natives.turns.work -= count
    for queue, (_, number, accepted, credit) in zip(queues, round, strict=True):
        queue.settlement.accept(number, accepted, credit, source)
    return True


def dispatch(parts: Iterable[Part]) -> None:
    """What each of these consumers was given by its queue goes to its session."""
    for session, group in groupby(parts, key=_session):
        together = list(group)
        if len(together) == 1 or not _dispatched(together, session):
            for queue, consumer in together:
                queue.dispatcher.dispatch(consumer)


def _session(part: Part) -> str:
    return part[1].key[0]


def _dispatched(parts: Sequence[Part], session: str) -> bool:
    """To one session, if it takes whatever comes of these."""
    natives, count = parts[0][0].natives, len(parts)
    native: Any = natives.agents.get(session)
    if native is None or natives.turns.work < count or not all(_whole(consumer) for _, consumer in parts):
        return False
    takers = native.takers([consumer.key[1] for _, consumer in parts])
    sources = [queue.id for queue, _ in parts]
    if not takers or natives.round_now(sources, [session] * count, Dispatch.wire, [0] * count) is None:
        return False
    natives.turns.work -= count
    items = [queue.dispatcher.taken(consumer) for queue, consumer in parts]
    native.take_round(takers, items)
    return True


def _whole(consumer: Consumer) -> bool:
    """Does all that it was given go as one?"""
    pending = consumer.pending
    return len(pending) == 1 or sum([item.size for item in pending]) < DISPATCH_BYTES
