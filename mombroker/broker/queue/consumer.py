"""One consumer of a queue."""

from __future__ import annotations

from heapq import heappush

from mombroker.broker.protocol import Consume, Settle
from mombroker.broker.queue.item import QueuedMessage
from mombroker.broker.selectors import Matches

MAX_AGAIN = 1_000  # messages that a consumer is to look at again, one by one
PREFETCH_BYTES = 4 << 20  # of unsettled messages: beyond it a consumer gets no more; a larger message comes alone
MAX_SHUNNED = 1_000  # messages that a consumer never gets again
Key = tuple[str, int]  # a consumer: its session, and the session's number for it


class Consumer:
    """remote       its session is on another server, or an author's agent: the queue's state has it, and its credit
    single       it is such an agent: each message is a reaction of its own, and comes by itself
    credit       how many more messages it takes, while `room`, what is left of PREFETCH_BYTES, is above 0
    uncommitted  sizes, by id, of deliveries acknowledged in a transaction that is open: they take no room; see Settle
    searched_to  per lane, the highest id that was already tested without a match,
    again        except these, which have come back since: a heap per lane
    shunned      ids of messages that are not for it again: `matches` says so, too
    """

    __slots__ = (
        "key", "note", "remote", "single", "credit", "room", "uncommitted", "matches", "pending", "searched_to",
        "again", "shunned",
    )  # fmt: skip

    def __init__(self, session: str, note: Consume, matches: Matches | None, remote: bool = False):
        self.key, self.remote = (session, note.consumer), remote
        self.single = "/conn:" not in session
        self.note, self.matches, self.credit, self.room = note, matches, note.credit, PREFETCH_BYTES
        self.uncommitted: dict[int, int] = {}
        self.pending: list[QueuedMessage] = []  # given, to be dispatched in one message
        self.searched_to: dict[int, int] = {}
        self.again: dict[int, list[int]] = {}
        self.shunned: set[str] = set()

    @property
    def hungry(self) -> bool:
        return self.credit > 0 and self.room > 0

    def came_back(self, lane: int, id: int) -> None:
        if id > self.searched_to.get(lane, 0):
            return
        heap = self.again.setdefault(lane, [])
        heappush(heap, id)
        if len(heap) > MAX_AGAIN:
            self.search_again_from(heap[0])

    def search_again_from(self, id: int) -> None:
        """What waits from `id` on may be for it now."""
        for lane, upto in self.searched_to.items():
            if upto >= id:
                self.searched_to[lane] = id - 1
                self.again[lane] = [each for each in self.again.get(lane, ()) if each < id]

    def settled(self, note: Settle, freed: int, held: dict[int, QueuedMessage]) -> None:
        """It has settled so many bytes, and still has what is `held`."""
        if self.uncommitted:
            for ids in (note.accepted, note.released, note.modified, note.requeued, note.rejected):
                freed -= sum(self.uncommitted.pop(id, 0) for id in ids)
        for id in note.uncommitted:
            if id in held and id not in self.uncommitted:
                self.uncommitted[id] = held[id].size
                freed += held[id].size
        self.credit += note.credit
        self.room = min(self.room + freed, PREFETCH_BYTES)  # of what it had at a restart, room knows nothing

    def accepted(self, ids: list[int], freed: int, credit: int) -> None:
        """As `settled` of these alone."""
        if self.uncommitted:
            freed -= sum(self.uncommitted.pop(id, 0) for id in ids)
        self.credit += credit
        self.room = min(self.room + freed, PREFETCH_BYTES)

    def shun(self, message_id: str) -> bool:
        """Never give it this message again. False: it shuns too many already."""
        if len(self.shunned) >= MAX_SHUNNED:
            return False
        if not self.shunned:
            shunned, matches = self.shunned, self.matches
            self.matches = lambda message, id, count: (
                id not in shunned and (matches is None or matches(message, id, count))
            )
        self.shunned.add(message_id)
        return True
