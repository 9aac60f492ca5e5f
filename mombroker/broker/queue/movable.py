"""What a move needs of a queue or subscription, and how far its two homes have come (protocols §8.8).

The old home sends consumers on, and what waits in pages, each in the transaction that deletes its rows; what still
comes to it goes the same way. When nothing waits, and all servers have said that they are there, the name is decided
anew; each server then says that it has passed, behind all that it has sent to the old home. What is sent to the new
home directly waits there until the old one has said, behind its last page, that this is all. What consumers have of the
old home is settled there, or comes after.
"""

from __future__ import annotations

from typing import Any, Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.consumers import Consumers
from mombroker.broker.queue.dedup import Dedup
from mombroker.broker.queue.dispatch import Dispatcher
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.schedule import Schedule
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.settings import Settings
from mombroker.broker.queue.settlement import Settlement
from mombroker.broker.queue.work import Work
from mombroker.core.collection import Collection
from mombroker.core.message import Message
from mombroker.core.natives import Natives
from mombroker.core.transaction import Transaction
from mombroker.core.turns import Turns

FILLS, FOLLOWS, ENDED, OPEN, CLOSED = range(5)  # the `step` of a page, and of a home that is new
PAGE = 128  # messages at once


class Movable(Protocol):
    """What this needs of a queue, or of a subscription."""

    id: str
    name: str
    tx: Transaction
    turns: Turns
    natives: Natives
    service: QueueService
    settings: Settings
    messages: QueueMessages
    schedule: Schedule
    consumers: Consumers
    dispatcher: Dispatcher
    settlement: Settlement
    work: Work
    move: Any  # its Departure or Arrival, or None
    collections: dict[str, Collection]

    @property
    def dedup(self) -> Dedup: ...
    def post(self, to: str, note: Any) -> None: ...
    def touch(self) -> None: ...
    def flush(self) -> None: ...
    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None: ...
    def change(self) -> None: ...
    def collection(self, name: str) -> Collection: ...
    def accept(self, collection: Collection) -> None: ...
    def at_rest(self) -> bool: ...  # consumers have nothing that must come before what others get
    def enqueue(self, message: ClientMessage, envelope: Message) -> None: ...
    def invite(self, to: str) -> None: ...  # have the new home made
    def follow(self) -> None: ...  # what its topics bring is taken at the new home, by who knows of that
    def arrived(self) -> None: ...
    def dissolve(self, reason: str) -> None: ...  # it is not to be here; consumers are told why
    def leave(self) -> None: ...  # nothing more comes
