"""What replicas say to each other, as frames: [what, from, to, fields...], and what each tells of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Any

from mombroker.core.errors import PeerError
from mombroker.core.raft.messages import (
    MEMBERS,
    Appended,
    AppendEntries,
    Entry,
    Envelope,
    InstallSnapshot,
    Members,
    Message,
    Received,
    RequestVote,
    Snapshot,
    TimeoutNow,
    Vote,
    members_of,
)
from mombroker.store import packed

LIMIT = 1 << 29  # bytes of a frame: a batch is smaller, and a message has one at least
LARGEST = (1 << 64) - 1

WHAT: dict[str, tuple[type, tuple[type, ...]]] = {  # and the kinds of its fields
    "append": (AppendEntries, (int, int, int, list, int, int, int)),
    "appended": (Appended, (int, bool, int, int, int)),
    "ask": (RequestVote, (int, int, int, bool, bool)),
    "vote": (Vote, (int, bool, bool)),
    "now": (TimeoutNow, (int,)),
    "install": (InstallSnapshot, (int, list, int, bytes, int)),
    "received": (Received, (int, int, int, int, int)),
}
ROUTE, ENTRY = (str, str, str), (int, int, int, bytes)  # kinds of the fields: what, from, to; of an entry
NAMES = {kind: what for what, (kind, _) in WHAT.items()}
FIELDS = {kind: attrgetter(*(each.name for each in fields(kind))) for kind in (Appended, Received)}


@dataclass(frozen=True, slots=True)
class Told:
    """What a replica tells of itself.

    id       of its store
    members  where that is all that it knows of them: who they were at first
    founded  it knows who the members are
    batches  up to this version it can read packed batches
    leads    it does, as far as it knows
    """

    server: str
    replica: str
    id: str
    founded: bool
    batches: int
    members: bytes = b""
    stopping: bool = False
    leads: bool = False

    def frame(self) -> list[Any]:
        return ["replica", asdict(self)]

    def first(self) -> Members:
        """Raises PeerError."""
        try:
            return members_of(self.members)
        except ValueError as error:
            raise PeerError(f"{self.replica} tells no members: {error}") from None


def told_of(frame: list[Any]) -> Told:
    """Unknown fields are ignored. Raises PeerError."""
    values = frame[1] if len(frame) == 2 else None
    if not isinstance(values, dict):
        raise PeerError("a replica does not tell who it is")
    try:
        told = Told(**{each.name: values[each.name] for each in fields(Told) if each.name in values})
    except TypeError:
        raise PeerError("a replica does not tell all of what it is") from None
    kinds = {"str": str, "bool": bool, "int": int, "bytes": bytes}
    if any(type(getattr(told, each.name)) is not kinds[str(each.type)] for each in fields(Told)):
        raise PeerError("a replica tells something else of itself than it should")
    return told


def version(members: Members, known: Mapping[str, int]) -> int:
    """Of packed batches: the newest that all members with rows can read, as they have told; who never has reads the
    oldest."""
    return min([known.get(id, packed.OLDEST) for id in members.all if id not in members.witnesses])


def frame_of(envelope: Envelope) -> list[Any]:
    frm, to, message = envelope
    values: list[Any] = list(message if isinstance(message, tuple) else FIELDS[type(message)](message))
    if isinstance(message, AppendEntries):
        values[3] = [[each.index, each.term, each.kind, each.data] for each in message.entries]
    elif isinstance(message, InstallSnapshot):
        each = message.snapshot
        values[1] = [each.index, each.term, each.members.pack(), each.size, each.sum]
    return [NAMES[type(message)], frm, to, *values]


def envelope_of(frame: list[Any]) -> Envelope:
    """Raises PeerError."""
    if tuple(map(type, frame[:3])) != ROUTE or frame[0] not in WHAT:
        raise PeerError("a replica says what is no message")
    make: Callable[..., Message]
    make, kinds = WHAT[frame[0]]
    values = frame[3:]
    if tuple(map(type, values)) != kinds or not _in_range(values):
        raise PeerError(f"a replica's {frame[0]} has other fields than expected")
    if make is AppendEntries:
        values[3] = [_entry(each) for each in values[3]]
    elif make is InstallSnapshot:
        values[1] = _snapshot(values[1])
    return Envelope(frame[1], frame[2], make(*values))


def _in_range(values: list[Any]) -> bool:
    numbers = [each for each in values if isinstance(each, int)]
    return not numbers or (min(numbers) >= 0 and max(numbers) <= LARGEST)


def _entry(row: Any) -> Entry:
    if type(row) is not list or tuple(map(type, row)) != ENTRY or not _in_range(row):
        raise PeerError("a replica sends an entry that is none")
    if row[2] == MEMBERS:
        _members(row[3])
    return Entry(*row)


def _snapshot(row: list[Any]) -> Snapshot:
    if list(map(type, row)) != [int, int, bytes, int, int] or not _in_range(row):
        raise PeerError("a replica offers a snapshot that is none")
    return Snapshot(row[0], row[1], _members(row[2]), row[3], row[4])


def _members(data: bytes) -> Members:
    try:
        return members_of(data)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"a replica tells members that are none: {error}") from None
