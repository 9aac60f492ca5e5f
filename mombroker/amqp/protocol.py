"""AMQP as a listener offers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mombroker.amqp.connection import Connection, Settings


@dataclass(slots=True)
class Amqp:
    """Makes connections.

    now           wall clock in ns
    subprotocols  as what it is spoken over WebSocket
    """

    now: Callable[[], int]
    settings: Settings = field(default_factory=Settings)
    name: str = "AMQP"
    setting: str = "amqp"
    parted: bool = True

    def session(self, id: str) -> Connection:
        return Connection(id, self.now, self.settings)
