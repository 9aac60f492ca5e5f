"""Dead letters: what becomes of a message that a queue cannot deliver."""

from __future__ import annotations

from mombroker.broker.message import ClientMessage
from mombroker.broker.native import Native
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.queue.messages import QueueMessages
from mombroker.broker.queue.service import QueueService
from mombroker.broker.queue.settings import Settings

EXPIRED = "expired"


class DeadLetters:
    """Sends messages of a queue to its dead-letter queue."""

    __slots__ = ("queue", "service", "settings", "messages")

    def __init__(self, queue: Native, service: QueueService, settings: Settings, messages: QueueMessages):
        self.queue, self.service, self.settings, self.messages = queue, service, settings, messages

    def take(self, item: QueuedMessage, reason: str, was_unacked: bool = False) -> None:
        """A message leaves the queue, and becomes a dead letter."""
        if not self.messages.whole(item, was_unacked):
            return
        self.messages.end(item, was_unacked)
        self.send(item, reason)
        self.queue.change()

    def send(self, item: QueuedMessage, reason: str) -> None:
        """A message that is not in the queue becomes a dead letter; a dead letter does not become one again."""
        message, policy, shown = item.message, self.settings.policy, self.settings.destination
        assert message is not None, "a message in memory"
        if (reason == EXPIRED and policy.on_expiry == "drop") or "dead-letter-reason" in message.annotations:
            self.messages.dropped += 1
            return
        natives = self.queue.natives
        dead = dead_letter(item, message, reason, shown, natives.tx.now - natives.clock.ahead)
        dead.destination = policy.dead_letter or f"queue:DLQ.{shown[shown.index(':') + 1 :]}"
        self.service.send_by_name(dead, self.queue.id)


def dead_letter(item: QueuedMessage, message: ClientMessage, reason: str, queue: str, now: int) -> ClientMessage:
    """The same message, with reason, time, count and origin; it neither expires nor waits, and stays in its group."""
    dead = message.copy()
    dead.annotations = {
        **message.annotations, "dead-letter-reason": reason, "dead-letter-time": str(now // 1_000_000),
        "dead-letter-count": str(item.count), "dead-letter-from": queue, "original-destination": message.shown,
        "original-message-id": item.message_id,
    }  # fmt: skip
    dead.expires = dead.due = dead.counter = 0
    dead.producer = dead.message = ""
    dead.persistent = True
    return dead
