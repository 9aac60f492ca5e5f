"""STOMP as a listener offers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mombroker.stomp.session import VERSIONS, Session
from mombroker.stomp.settings import Settings


@dataclass(slots=True)
class Stomp:
    """Makes sessions.

    now           wall clock in ns
    subprotocols  as what it is spoken over WebSocket
    name     as people write it, and `setting`, of the topology file: where to listen
    """

    now: Callable[[], int]
    settings: Settings = field(default_factory=Settings)
    name: str = "STOMP"
    setting: str = "stomp"
    parted: bool = False
    subprotocols: tuple[str, ...] = tuple(f"v{version.replace('.', '')}.stomp" for version in reversed(VERSIONS))

    def session(self, id: str) -> Session:
        return Session(id, self.now, self.settings)
