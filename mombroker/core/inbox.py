"""The messages that wait for one agent: the oldest in memory, the rest on disk, always in order."""

from __future__ import annotations

from collections import deque

from mombroker.core.errors import NoProgram
from mombroker.core.message import Message


class Entry:
    """One message in one agent's inbox."""

    __slots__ = (
        "id", "message", "attempts", "trying", "stored", "done", "domain", "peer", "received", "delivered", "payload",
    )  # fmt: skip

    def __init__(
        self, id: int, message: Message, domain: str, peer: str, received: int, delivered: int, payload: int = 0
    ):
        self.id, self.message = id, message
        self.payload = payload  # the row that holds what it shares with others of its multicast, 0 = it has its own
        self.domain, self.peer, self.received, self.delivered = domain, peer, received, delivered
        self.attempts = self.trying = 0
        self.stored = False  # it has a row in queue_in, open batch included
        self.done = False


class Inbox:
    """1. `queue` is a contiguous run of the agent's messages, its oldest ones.
    2. Ids above `cursor`, up to `last`, are only on disk."""

    __slots__ = ("agent", "queue", "cursor", "last", "runnable", "until", "name", "stuck", "marked")

    def __init__(self, agent: str, cursor: int):
        self.agent = agent
        self.queue: deque[Entry] = deque()
        self.cursor = self.last = cursor
        self.runnable = False
        self.until = 0  # retry time of its first message, 0 = not waiting for one
        self.name = ""  # the name that its first message's reaction waits for
        self.stuck: NoProgram | None = None  # why its agent cannot be loaded
        self.marked = 0  # so many of its first messages may be tried once the marks are durable

    def on_disk(self) -> bool:
        return self.last > self.cursor

    def blocked(self) -> bool:
        return bool(self.until or self.name or self.stuck)
