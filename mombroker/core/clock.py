"""Clock: the difference between our clock, which never goes back, and the wall clock and those of other servers."""

from __future__ import annotations

from mombroker.core import times
from mombroker.core.message import Message
from mombroker.core.transaction import Transaction


class Clock:
    """started  when the server did, by the wall clock if that was ahead
    ahead    ns that our clock is ahead of the wall clock, which was set back; told by the driver
    behind   ns that the wall clock is ahead of ours, and not believed yet; told by the driver
    """

    __slots__ = ("tx", "started", "ahead", "behind")

    def __init__(self, tx: Transaction, started: int):
        self.tx, self.started = tx, started
        self.ahead = self.behind = 0

    def by_ours(self, at: int, message: Message) -> int:
        """A time in a message by our clock, if a clock of the two servers was once far ahead; 0 stays 0.

        A message takes no negative time, so its sender is ahead by what it was sent after our wall clock.
        """
        tx = self.tx
        if not at or message.origin == tx.name:
            return at
        theirs = message.sent - (tx.now - self.ahead + self.behind)
        return times.within(at + self.ahead - (theirs if theirs > times.FAR else 0))
