"""Message groups: all of one go to one consumer."""

from __future__ import annotations

from heapq import heappop, heappush

from mombroker.broker.queue.consumer import Consumer

MAX_GROUPS = 10_000  # that are remembered though nothing of them is with their consumer


class MessageGroup:
    """The messages of one JMSXGroupID: `out` are with `owner`, `late` wait to be given again, in the order of `heap`,
    which may still have some that do not.

    passed   the lowest id that consumers skipped because of the group's present state, 0 = none
    kept     the lowest id that they left to its owner, 0 = none
    """

    __slots__ = ("owner", "out", "late", "heap", "passed", "kept")

    def __init__(self) -> None:
        self.owner: Consumer | None = None
        self.out = 0
        self.late: set[int] = set()
        self.heap: list[int] = []
        self.passed = self.kept = 0

    def returned(self, id: int) -> None:
        self.out = max(0, self.out - 1)
        if id not in self.late:
            self.late.add(id)
            heappush(self.heap, id)

    def on_time(self, id: int) -> None:
        """A message no longer waits for its redelivery."""
        self.late.discard(id)
        if not self.late:
            self.heap.clear()

    def waits(self, id: int) -> bool:
        """Does an earlier one wait to be given again?"""
        heap, late = self.heap, self.late
        while heap and heap[0] not in late:
            heappop(heap)
        return bool(heap) and heap[0] < id
