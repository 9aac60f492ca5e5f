"""What the log of a replicated server holds, and what its replicas say to each other. Names are those of the paper."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

BATCH, NOTHING, MEMBERS = 0, 1, 2  # kinds of an entry; a leader begins its term with NOTHING


class Members(NamedTuple):
    """The replicas of a server, by the ids of their stores: an id never comes back with another disk.

    voters     whose majority decides
    learners   have the log sent to them and do not count
    witnesses  voters that keep no rows: they vote, keep the end of the log, and lead only to hand it over
    """

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    witnesses: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return self.voters + self.learners

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def pack(self) -> bytes:
        return json.dumps(self).encode()


def members_of(data: bytes) -> Members:
    """Raises ValueError."""
    try:
        found = Members(*(tuple(map(str, ids)) for ids in json.loads(data)))
    except TypeError as error:
        raise ValueError(f"not a list of members: {error}") from None
    return found


@dataclass(frozen=True, slots=True)
class Entry:
    index: int
    term: int
    kind: int
    data: bytes  # a packed batch, packed members, or nothing


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rows as of one entry, and who the members were then."""

    index: int
    term: int
    members: Members
    size: int  # bytes
    sum: int  # crc32 of all of them


class AppendEntries(NamedTuple):
    term: int
    prev: int  # the entry before the first one
    prev_term: int
    entries: list[Entry]
    commit: int
    everywhere: int  # up to this entry all that have rows have the log
    sent: int  # ns, by the leader's clock


@dataclass(frozen=True, slots=True)
class Appended:
    """ok: up to `index` the log is durable and as the leader's. Else it may be so up to `index`, and not at `prev`."""

    term: int
    ok: bool
    prev: int
    index: int
    sent: int  # what the leader said


class RequestVote(NamedTuple):
    """trial: would I get your vote in `term`? (pre-vote.) forced: the leader has asked me to take over."""

    term: int
    last: int
    last_term: int
    trial: bool
    forced: bool


class Vote(NamedTuple):
    term: int  # that was asked for where it is granted; else that of the voter
    granted: bool
    trial: bool


class TimeoutNow(NamedTuple):
    """Take over: your log is as mine."""

    term: int


class InstallSnapshot(NamedTuple):
    """One chunk of the snapshot that the leader has."""

    term: int
    snapshot: Snapshot
    offset: int
    data: bytes
    sent: int


@dataclass(frozen=True, slots=True)
class Received:
    """Of snapshot `index` the chunk at `offset` has come, and that at `next` is wanted."""

    term: int
    index: int
    offset: int
    next: int
    sent: int


Message = AppendEntries | Appended | RequestVote | Vote | TimeoutNow | InstallSnapshot | Received


class Envelope(NamedTuple):
    frm: str
    to: str
    message: Message
