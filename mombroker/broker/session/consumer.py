"""One subscription of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mombroker.broker.commands import MAX_PREFETCH, Subscribe
from mombroker.broker.message import ClientMessage
from mombroker.broker.queue.consumer import PREFETCH_BYTES
from mombroker.broker.selectors import Matches

if TYPE_CHECKING:
    from mombroker.broker.session.session import Session


PREFETCH = 100  # messages without settlement, unless the client says otherwise


class SessionConsumer:
    """One subscription of a connection, and where its messages come from.

    home       queue or subscription agent; empty: plain topics, straight from the table
    explicit   credit comes by Flow alone; else each settlement gives some back
    credit     how many more may come, kept where it is explicit; of plain topics, how many more may be handed out,
               while `room`, in bytes of bodies, is above 0
    draining   Drained is not here yet
    unsettled  tag -> row at its home; for plain topics what it takes to hand it out again
    uncommitted  tags that an open transaction acknowledges: unsettled, and their credit was given back; in the
                 cumulative mode all up to `uncommitted_to`
    recounted    how many of those were settled since its home last heard of it
    open       the client has not unsubscribed
    dropped    messages of plain topics that it did not take in time
    """

    __slots__ = (
        "number", "sub", "ack", "home", "credit", "room", "unsettled", "open", "receipt", "outcomes", "proxy", "epochs",
        "wants", "browser", "uncommitted", "uncommitted_to", "recounted", "dropped", "explicit", "draining",
    )  # fmt: skip

    def __init__(self, proxy: Session, number: int, command: Subscribe, home: str = ""):
        self.proxy, self.number, self.sub, self.ack, self.home = proxy, number, command.sub, command.ack, home
        self.receipt = command.receipt
        self.browser = command.browser
        window = min(command.prefetch or PREFETCH, MAX_PREFETCH)
        self.explicit = command.credit is not None
        self.credit, self.room = window if command.credit is None else command.credit, PREFETCH_BYTES
        self.draining = False
        self.unsettled: dict[int, Any] = {}
        self.open = True
        self.outcomes: dict[str, list[int]] = {}
        self.epochs: list[int] = []
        self.wants: Matches | None = None
        self.uncommitted: set[int] = set()
        self.uncommitted_to = self.recounted = self.dropped = 0

    def copy(self, put: ClientMessage, message: str) -> None:
        """A message of a plain topic."""
        if self.wants is None or self.wants(put, message, 1):
            self.proxy.topic_message(self, put, message)
