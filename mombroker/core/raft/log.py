"""The log of one replica: what its disk holds of it, and its end, which is in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mombroker.core.raft.messages import MEMBERS, Entry, Members, Snapshot, members_of


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log on disk begins: behind this entry, whose effect is in the rows, and who the members were then."""

    index: int
    term: int
    members: Members


class Storage(Protocol):
    """What is durable of a replica. Reads never wait for a write that is under way."""

    def state(self) -> tuple[int, str]: ...  # term, vote
    def cut(self) -> Cut: ...
    def applied(self) -> int: ...  # the rows are as of this entry
    def last(self) -> int: ...  # index of the last entry, that of the cut if there is none
    def term(self, index: int) -> int: ...  # of an entry, or of the cut
    def entries(self, first: int, last: int, most: int) -> list[Entry]: ...  # at least one, up to `most` bytes
    def offered(self) -> Snapshot | None: ...  # to send to those for whom the log is cut too far
    def chunk(self, offset: int, size: int) -> bytes: ...  # of it


class Log:
    """1. `tail` is the end of the log, in order and without a gap; what is behind `stable` is not written yet.
    2. Only what is committed is cut.

    keeps     bytes of entries that stay in memory when they are written: they are soon to be applied, and sent
    commit    entries up to here are decided, and never replaced
    changes   of the members: by which entry, to what; the first is how they were where the log begins
    """

    def __init__(self, storage: Storage, keeps: int):
        self.storage, self.keeps = storage, keeps
        self.tail: list[Entry] = []
        self._bytes = 0  # of the tail
        self.stable = storage.last()
        cut = storage.cut()
        self.commit = max(cut.index, storage.applied())  # only what is decided is applied
        self.changes = [(cut.index, cut.members)]
        at = cut.index
        while at < self.stable:
            for entry in storage.entries(at + 1, self.stable, 1 << 20):
                at = entry.index
                self._note(entry)

    @property
    def last(self) -> int:
        return self.tail[-1].index if self.tail else self.stable

    @property
    def _begin(self) -> int:
        """The first entry in memory."""
        return self.tail[0].index if self.tail else self.stable + 1

    @property
    def unwritten(self) -> list[Entry]:
        tail, stable = self.tail, self.stable
        return tail[stable + 1 - tail[0].index :] if tail and tail[-1].index > stable else []

    @property
    def members(self) -> Members:
        """The newest in the log, committed or not."""
        return self.changes[-1][1]

    def members_at(self, index: int) -> Members:
        """Who the members were as of an entry that is still in the log, or the last that was cut."""
        return next((members for at, members in reversed(self.changes) if at <= index), self.changes[0][1])

    def term(self, index: int) -> int:
        """-1 where the log has no entry, or none any more."""
        if (at := index - self._begin) >= 0:
            return self.tail[at].term if at < len(self.tail) else -1
        return self.storage.term(index) if index >= self.storage.cut().index else -1

    def slice(self, first: int, last: int, most: int) -> list[Entry]:
        """Entries from `first` to `last`, at least one if there is any, and up to `most` bytes of them."""
        found: list[Entry] = []
        begin = self._begin
        if begin <= first == last:
            return self.tail[first - begin : first - begin + 1]
        if first < begin:
            found = self.storage.entries(first, min(last, begin - 1), most)
            if not found or found[-1].index < min(last, begin - 1):
                return found
        size = sum([len(entry.data) for entry in found])
        for entry in self.tail[max(first - begin, 0) : max(last + 1 - begin, 0)]:
            size += len(entry.data)
            if found and size > most:
                break
            found.append(entry)
        return found

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last + 1, "an entry is not the next one"
        self.tail.append(entry)
        self._bytes += len(entry.data)
        self._note(entry)

    def merge(self, entries: list[Entry]) -> None:
        """What a leader has behind an entry that both have: what contradicts it goes."""
        for entry in entries:
            if entry.index <= self.last:
                if self.term(entry.index) == entry.term:
                    continue
                assert entry.index > self.commit, "a committed entry is replaced"
                self._keep(self.tail[: max(entry.index - self._begin, 0)])
                self.stable = min(self.stable, entry.index - 1)
                while self.changes[-1][0] >= entry.index:
                    self.changes.pop()
            self.append(entry)

    def written(self, entries: list[Entry]) -> None:
        """These are on disk, and nothing behind them; since they were handed out the end may have been replaced."""
        for entry in entries:
            if entry.index == self.stable + 1 and self.term(entry.index) == entry.term:
                self.stable = entry.index
        while self._bytes > self.keeps and self._begin <= self.stable:
            self._bytes -= len(self.tail.pop(0).data)

    def installed(self, snapshot: Snapshot) -> None:
        """The disk holds the rows of a snapshot, and nothing of the log."""
        self._keep([])
        self.stable = self.commit = snapshot.index
        self.changes = [(snapshot.index, snapshot.members)]

    def _keep(self, tail: list[Entry]) -> None:
        self.tail, self._bytes = tail, sum([len(entry.data) for entry in tail])

    def _note(self, entry: Entry) -> None:
        if entry.kind == MEMBERS:
            self.changes.append((entry.index, members_of(entry.data)))

    def cut(self, index: int) -> None:
        """The log on disk begins behind `index` from now on."""
        while len(self.changes) > 1 and self.changes[1][0] <= index:
            del self.changes[0]
        if index >= self._begin:
            self._keep(self.tail[index + 1 - self._begin :])

    def check(self) -> None:
        indexes, begin = [entry.index for entry in self.tail], self._begin
        assert indexes == [*range(begin, begin + len(indexes))], f"the tail is {indexes}"
        assert begin - 1 <= self.stable <= self.last, f"the tail begins at {begin}, and {self.stable} is written"
        assert self.commit >= self.storage.cut().index, "the log is cut behind what is decided"
