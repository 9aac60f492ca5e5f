"""Dead letters: what becomes of a message that a queue cannot deliver."""

from __future__ import annotations

from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.item import QueuedMessage


def dead_letter(item: QueuedMessage, put: ClientMessage, reason: str, queue: str, now: int) -> ClientMessage:
    """The same message, with reason, time, count and origin; it neither expires nor waits, and stays in its group."""
    dead = put.copy()
    dead.properties = {
        **put.properties, "dead-letter-reason": reason, "dead-letter-time": str(now // 1_000_000),
        "dead-letter-count": str(item.count), "dead-letter-from": queue, "original-destination": put.shown,
        "original-message-id": item.message,
    }  # fmt: skip
    dead.expires = dead.due = dead.counter = 0
    dead.producer = dead.message = ""
    dead.persistent = True
    return dead
