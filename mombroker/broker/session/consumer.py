"""One subscription of a session."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

from mombroker.broker.access.guard import Needs
from mombroker.broker.commands import MAX_PREFETCH, Subscribe
from mombroker.broker.message import ClientMessage, MessageRun
from mombroker.broker.protocol import Consume
from mombroker.broker.queue.consumer import PREFETCH_BYTES
from mombroker.broker.selectors import Matches, Required
from mombroker.core.errors import MomError
from mombroker.core.words import many

PREFETCH = 100  # messages without settlement, unless the client says otherwise


class Feed(Protocol):
    """What hands out messages of plain topics; see topic_feed.py."""

    def take_run(self, consumer: SessionConsumer, run: MessageRun, /) -> None: ...


class SessionConsumer:
    """One subscription, and where its messages come from.

    home       queue or subscription agent; empty: plain topics, straight from the table
    request    what its home was asked for
    heir       who goes on elsewhere, since the queue has moved; `former` who did before
    explicit   credit comes by Flow alone; else each settlement gives some back
    credit     how many more may come, kept where it is explicit; of plain topics, how many more may be handed out,
               while `room`, in bytes of bodies, is above 0
    draining   Drained is not here yet
    unsettled  tag -> row at its home; for plain topics what it takes to hand it out again, or a run by the tag
               of its last one, which is never handed out again
    outcomes   rows that are settled, by outcome, of which its home has not heard yet
    uncommitted  tags that an open transaction acknowledges: unsettled, and their credit was given back; in the
                 cumulative mode all up to `uncommitted_to`
    recounted    how many of those were settled since its home last heard of it
    open       the client has not unsubscribed
    needs      what its user must be allowed, as long as it lasts
    dropped    messages of plain topics that it did not take in time
    take       gets each message of a plain topic
    feed       of plain topics, if it takes whatever comes of them
    """

    __slots__ = (
        "number", "sub", "ack", "home", "credit", "room", "unsettled", "open", "receipt", "outcomes", "epochs",
        "matches", "requires", "browser", "uncommitted", "uncommitted_to", "recounted", "dropped", "explicit",
        "draining", "request", "heir", "former", "needs", "take", "feed",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        command: Subscribe,
        home: str,
        needs: Needs,
        take: Callable[[SessionConsumer, ClientMessage, str], None],
    ):
        self.number, self.sub, self.ack, self.home = number, command.sub, command.ack, home
        self.receipt, self.needs = command.receipt, needs
        self.browser = command.browser
        window = min(command.prefetch or PREFETCH, MAX_PREFETCH)
        self.explicit = command.credit is not None
        self.credit, self.room = window if command.credit is None else command.credit, PREFETCH_BYTES
        self.draining = False
        self.request: Consume | None = None
        self.heir: SessionConsumer | None = None
        self.former: SessionConsumer | None = None
        self.unsettled: dict[int, Any] = {}
        self.open = True
        self.outcomes: dict[str, list[int]] = {}
        self.epochs: list[int] = []
        self.matches: Matches | None = None
        self.requires: Required = ()
        self.uncommitted: set[int] = set()
        self.uncommitted_to = self.recounted = self.dropped = 0
        self.take = take
        self.feed: Feed | None = None

    def copy(self, message: ClientMessage, id: str) -> None:
        """A message of a plain topic."""
        if self.matches is None or self.matches(message, id, 1):
            self.take(self, message, id)

    def copy_run(self, run: MessageRun) -> None:
        """Messages of a plain topic, alike."""
        assert self.feed is not None, "a run for one that selects"
        self.feed.take_run(self, run)

    def grant(self, credit: int) -> None:
        """Let so many more come. Raises MomError."""
        if self.draining:
            raise MomError(f"subscription {self.sub!r} is being drained: wait for the end of that")
        under_way = self.credit  # of a queue's, the window that it has
        if self.explicit or not self.home:
            under_way += len(self.unsettled)
        if not 0 <= credit <= MAX_PREFETCH - under_way:
            raise MomError(
                f"subscription {self.sub!r} has {many(under_way, 'message')} unsettled or under way, of at most "
                f"{MAX_PREFETCH}: settle some before it gets credit for {credit} more"
            )
        self.credit += credit

    def pass_on(self, number: int, home: str) -> SessionConsumer:
        """Somebody else goes on with the subscription at another home; this one settles what it has."""
        heir = self.heir = copy(self)
        heir.number, heir.home, heir.former = number, home, self
        heir.unsettled, heir.outcomes, heir.uncommitted = {}, {}, set()
        heir.recounted = 0
        self.receipt, self.open = None, False
        return heir

    def last_heir(self) -> SessionConsumer | None:
        """Who has the subscription now, if it goes on."""
        heir = self.heir
        while heir is not None and heir.heir is not None:
            heir = heir.heir
        return heir if heir is not None and heir.open else None

    def drained(self) -> None:
        """Its home has taken the rest of its credit."""
        self.draining = False
        if self.explicit:
            self.credit = 0
