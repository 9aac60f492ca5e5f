"""PoisonSearch: finds the message whose reaction kills the process (a poison message), and nobody else's."""

from __future__ import annotations

from itertools import islice

from mombroker.core.inbox import Entry, Inbox, Inboxes
from mombroker.core.meta import UNCLEAN
from mombroker.core.transaction import COMMIT, Transaction

FIRST, FACTOR, MOST = 64, 8, 6  # messages that are watched after an unclean stop, times FACTOR for each further one
SUSPECTS, SHARE = 64, 8  # messages of one attempt, and which share of them at the next unclean stop


class PoisonSearch:
    """After an unclean stop the first messages are suspects: that they are about to be tried is made durable before
    they are. So the next start knows who was under way when the process died.

    1. A message's `trying` counts the unclean stops in a row at which it was a suspect.
    2. Whoever is in its last attempt (limit `trying_boots`) is the only suspect of its batch.

    left    reactions that are watched still; 0 = the search is over
    marks   the batch with the newest suspects
    """

    __slots__ = ("tx", "inboxes", "left", "marks")

    def __init__(self, tx: Transaction, inboxes: Inboxes, unclean: int):
        """`unclean`: unclean stops in a row, up to this start; each widens the search."""
        self.tx, self.inboxes = tx, inboxes
        self.left = FIRST * FACTOR ** min(unclean - 1, MOST) if unclean else 0
        self.marks = 0

    def waits(self) -> bool:
        """The newest suspects are not durable yet: no reaction may begin."""
        return self.marks > self.tx.durable_batch

    def count(self) -> None:
        """A watched reaction begins."""
        self.left -= 1
        if not self.left:
            self.tx.rows.meta[UNCLEAN] = 0

    def suspect(self, box: Inbox) -> str:
        """Make the first messages of an inbox suspects, and those of its neighbours in the run. At first it is many at
        a time; each further unclean stop leaves fewer to suspect, and whoever dies of its last attempt was alone.

        Returns why the first message is poison, if its attempts are used up; nothing has changed then.
        """
        limit, trying = self.tx.limits.trying_boots, box.queue[0].trying
        if trying >= limit:
            return f"its reaction was under way at {limit} unclean stops in a row"
        left, run = SUSPECTS // SHARE ** min(max(trying + 3 - limit, 0), 2), self.inboxes.run
        box.runnable = True
        near = [box] + [run.popleft() for _ in range(min(left, len(run)))]
        for other in near:
            for entry in () if other.blocked() else other.queue:
                if not left or entry.trying != trying or self.tx.filled():
                    break
                left -= 1
                entry.trying += 1
                other.suspects += 1
                self.inboxes.write(other.agent, entry)
        near.sort(key=lambda other: not other.suspects)
        run.extendleft(reversed(near))
        self.marks = self.tx.rows.number
        self.tx.urgency = COMMIT
        return ""

    def acquit(self, box: Inbox, entry: Entry) -> None:
        """The reaction to the first message ended with no effect and no unclean stop; others were not tried."""
        for other in islice(box.queue, box.suspects):
            other.trying -= 1
            self.inboxes.write(box.agent, other)
        box.suspects = entry.trying = 0
        self.tx.urgency = COMMIT
