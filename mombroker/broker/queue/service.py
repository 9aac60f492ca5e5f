"""What a queue asks of the sessions of its server."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from mombroker.broker.message import ClientMessage
from mombroker.broker.policies import Policies
from mombroker.broker.queue.lane import Pool
from mombroker.core.message import Message
from mombroker.core.natives import Natives


class QueueService(Protocol):
    natives: Natives
    policies: Policies
    pool: Pool

    @property
    def waiting(self) -> Sized: ...  # connections that wait for something, as for room in a queue
    def waits_for(self, queue: str) -> bool: ...  # does somebody wait for room in it?
    def shown(self, name: str) -> str: ...  # what people call it
    def set_by_our_clock(self, message: ClientMessage, envelope: Message, /) -> None: ...  # times of another server
    def send_by_name(self, message: ClientMessage, source: str, /) -> None: ...  # which is made if need be
    def freed(self, queue: str) -> None: ...  # it takes work again
