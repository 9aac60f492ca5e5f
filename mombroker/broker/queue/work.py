"""How much a queue does at once, before others have their turn."""

from __future__ import annotations

from mombroker.broker.native import Native
from mombroker.core.transaction import COMMIT

# What a message costs of a turn's work: given from memory; looked at or ended; moved, with its row.
GIVE, LOOK, MOVE = 1, 4, 8
WORK_BYTES = 1_024  # of a message that cost as much as giving a short one
SHARE = 4  # of what is left of a turn's work one queue does at once, before others have theirs


class Work:
    """A share of the turn's work, and of the bytes that a batch may hold.

    until   so much of the turn's work is left to others
    moved   bytes that were given and taken back in `batch`, the open one
    """

    __slots__ = ("queue", "until", "batch", "moved")

    def __init__(self, queue: Native):
        self.queue = queue
        self.until = self.batch = self.moved = 0

    def begin(self) -> None:
        """Take a share of what is left of the turn's work; count anew for a new batch."""
        left = self.queue.turns.work
        self.until = left - max(1, left // SHARE) if left > 0 else left
        number = self.queue.tx.rows.number
        if self.batch != number:
            self.batch, self.moved = number, 0

    def spend(self, cost: int, size: int) -> None:
        self.queue.turns.work -= cost + size // WORK_BYTES

    def looks(self) -> int:
        """How many messages, when they have been looked at, have used up what is left of the share."""
        return max(1, -(-(self.queue.turns.work - self.until) // LOOK))

    def gives(self) -> int:
        """How many short messages, when they have been given, have used up what is left of the share."""
        return max(0, self.queue.turns.work - self.until)

    def spent(self) -> bool:
        """Has the share been used up? Then the queue goes on when others had their turn."""
        turns = self.queue.turns
        if turns.work > self.until:
            return False
        turns.go_on(self.queue)
        return True

    def enough(self) -> bool:
        """True when the queue has used its share of the batch (half; an eighth if others filled it), so that sessions
        can still react in it and a busy server starves no queue. Then it goes on in the next batch."""
        tx, moved = self.queue.tx, self.moved
        most = tx.limits.batch_bytes
        if moved < most // 8 or (moved < most // 2 and not tx.filled()):
            return False
        self.queue.turns.late[self.queue] = None
        tx.urgency = COMMIT
        return True
