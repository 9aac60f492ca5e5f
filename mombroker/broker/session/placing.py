"""What a session has published in total order, until it has its place (protocols §8.11)."""

from __future__ import annotations

from collections import deque

PLACE = "place"  # what is waited for then
WINDOW = 10_000  # messages of a session that have no place yet; more of them wait


class Unplaced:
    """1. No mark is below an earlier one, and all are of one topic at one home.

    home    the agent of the topic; empty for a transaction, which has an outbox
    marks   of what was published, with the receipt that follows when it has its place: the home places a number above
            the mark
    told    its client knows that some of it may come to nothing
    """

    __slots__ = ("topic", "home", "marks", "told")

    def __init__(self, topic: str, home: str):
        self.topic, self.home = topic, home
        self.marks: deque[tuple[int, str | None]] = deque()
        self.told = False

    def add(self, mark: int, *receipts: str | None) -> None:
        self.marks.extend([(mark, receipt) for receipt in receipts])

    def placed(self, number: int) -> list[str]:
        """All up to this number has its place. The receipts that follow."""
        marks, receipts = self.marks, list[str]()
        while marks and marks[0][0] < number:
            receipt = marks.popleft()[1]
            if receipt is not None:
                receipts.append(receipt)
        return receipts

    def check(self) -> None:
        assert self.marks, "nothing waits for a place"
        marks = [mark for mark, _ in self.marks]
        assert marks == sorted(marks), "1: a mark falls"
