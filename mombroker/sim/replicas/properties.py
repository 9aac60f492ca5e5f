"""The five properties of Raft (figure 3 of the paper), and what a server relies on beyond them.

Judged from outside, by who sees all replicas of one server at once, after each step of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from mombroker.core.raft.messages import Entry
from mombroker.core.raft.replica import LEADER, Replica
from mombroker.sim.replicas.disk import ReplicaDisk


class Properties:
    """Election safety, leader append-only, log matching, leader completeness, state machine safety; and: what is
    decided is on the disks of a majority, and while one has a lease no other one leads.

    decided   called once for each entry, in order, when it is decided
    """

    def __init__(self, decided: Callable[[Entry], None]):
        self.decided = decided
        self.leaders: dict[int, str] = {}  # of a term
        self.entries: dict[tuple[int, int], tuple[int, int]] = {}  # (index, term): term of the one before, sum
        self.terms: list[int] = [0]  # of what is decided, by its index
        self.by: list[int] = [0]  # the terms of the leaders that have decided it
        self.applied: dict[int, tuple[int, int]] = {}  # index: term, sum
        self._led: dict[int, int] = {}  # term: the last entry of its leader
        self._seen: dict[str, int] = {}  # id: what is decided for it

    def stepped(self, replica: Replica, disks: Mapping[str, ReplicaDisk]) -> None:
        """A replica has taken a step."""
        replica.check()
        log, term = replica.log, replica.term
        for at in range(log.commit + 1, log.last + 1):
            self._matches(log.slice(at, at, 0)[0], log.term(at - 1))
        if replica.role == LEADER:
            first = self.leaders.setdefault(term, replica.id)
            assert first == replica.id, f"election safety: {first} and {replica.id} lead term {term}"
            if term not in self._led:
                self._complete(replica)
            last = self._led.get(term, 0)
            assert log.last >= last, f"leader append-only: {replica.id} goes from entry {last} back to {log.last}"
            self._led[term] = log.last
        self._decided(replica, disks)

    def _matches(self, entry: Entry, before: int) -> None:
        known = self.entries.setdefault((entry.index, entry.term), (before, crc32(entry.data)))
        ours = (before, crc32(entry.data))
        assert known == ours, f"log matching: entry {entry.index} of term {entry.term} is {known} and {ours}"

    def _complete(self, replica: Replica) -> None:
        """A leader that begins has what was decided in earlier terms; it may be late, and others lead already."""
        log = replica.log
        for index in range(log.storage.cut().index, len(self.terms)):
            if self.by[index] >= replica.term:
                return
            term = log.term(index)
            assert term == self.terms[index], (
                f"leader completeness: {replica.id} leads term {replica.term}, and entry {index}, decided in term"
                f" {self.terms[index]}, is of {term} there"
            )

    def _decided(self, replica: Replica, disks: Mapping[str, ReplicaDisk]) -> None:
        log = replica.log
        for index in range(self._seen.get(replica.id, 0) + 1, log.commit + 1):
            term = log.term(index)
            if index == len(self.terms):
                found = log.slice(index, index, 0) if term >= 0 else []
                assert found, f"entry {index} is decided by {replica.id}, which does not have it"
                self.terms.append(term)
                self.by.append(replica.term)
                self._matches(found[0], log.term(index - 1))
                self.decided(found[0])
            elif term >= 0:
                known = self.terms[index]
                assert term == known, f"state machine safety: entry {index} is decided in terms {known} and {term}"
        if log.commit > self._seen.get(replica.id, 0) and replica.role == LEADER:
            term, voters = log.term(log.commit), replica.members.voters
            there = sum(disks[id].has(log.commit, term) for id in voters)
            assert there > len(voters) // 2, f"entry {log.commit} is decided, and on {there} disks of {len(voters)}"
        self._seen[replica.id] = log.commit

    def restarted(self, id: str) -> None:
        self._seen.pop(id, None)

    def apply(self, id: str, entry: Entry) -> None:
        """A replica applies an entry."""
        ours = (entry.term, crc32(entry.data))
        known = self.applied.setdefault(entry.index, ours)
        assert known == ours, f"state machine safety: {id} applies {ours} as entry {entry.index}, others {known}"
        assert entry.index < len(self.terms), f"{id} applies entry {entry.index}, which is not decided"

    def one_lease(self, replicas: Sequence[tuple[Replica, int]]) -> None:
        """Each replica that runs, with what time it is there."""
        newest = max(self.leaders, default=0)
        for replica, now in replicas:
            if replica.role == LEADER and replica.term < newest:
                assert not replica.leased(now), f"{replica.id} has a lease in term {replica.term} of {newest}"
