"""What a leader knows of one other replica."""

from __future__ import annotations

from mombroker.core.raft.messages import Snapshot

FLIGHTS = 8  # messages with entries that are under way to one replica


class Progress:
    """1. match < next.

    match   up to this entry its log is durable and as ours
    next    the first one to send
    probe   where its log ends is being found out: one message at a time
    heard   the latest time, by our clock, of a message of ours that it has answered in this term
    """

    __slots__ = ("match", "next", "probe", "waits", "flights", "heard", "snapshot", "offset")

    def __init__(self, next: int):
        self.match, self.next, self.probe = 0, next, True
        self.waits = False  # of a probe: it is under way
        self.flights: list[int] = []  # the last index of each message under way
        self.heard = 0
        self.snapshot: Snapshot | None = None  # that is sent to it
        self.offset = 0

    @property
    def open(self) -> bool:
        """May entries be sent now?"""
        return not self.waits if self.probe else len(self.flights) < FLIGHTS

    def sent(self, last: int) -> None:
        if self.probe:
            self.waits = True
        else:
            self.flights.append(last)
            self.next = last + 1

    def agreed(self, index: int) -> bool:
        """Up to `index` its log is as ours. True if that is news."""
        news = index > self.match
        if news:
            self.match = index
        if self.probe and index >= self.next - 1:
            self.probe = self.waits = False
        self.next = max(self.next, self.match + 1)
        self.flights = [last for last in self.flights if last > index]
        if self.snapshot is not None and self.match >= self.snapshot.index:  # it had that already
            self.snapshot = None
        return news

    def differs(self, prev: int, index: int) -> None:
        """It has not what we have at `prev`, and perhaps up to `index`."""
        if prev <= self.match or (self.probe and prev != self.next - 1):
            return  # old news
        self.probe, self.waits, self.flights = True, False, []
        self.next = max(self.match + 1, min(prev, index + 1))

    def send_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot, self.offset = snapshot, 0

    def installed(self) -> None:
        assert self.snapshot is not None, "no snapshot is sent"
        self.match = max(self.match, self.snapshot.index)
        self.next, self.snapshot = self.match + 1, None
        self.probe, self.waits, self.flights = True, False, []

    def check(self) -> None:
        assert self.match < self.next, f"{self.match} is there, {self.next} is to be sent"
