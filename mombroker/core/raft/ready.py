"""What a replica wants done, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from mombroker.core.raft.messages import Entry, Envelope, Snapshot


@dataclass(frozen=True, slots=True)
class Times:
    """In ns. A follower that has heard nothing for `election`, and up to as long again, wants to lead."""

    election: int
    heartbeat: int
    bytes: int = 1 << 20  # of entries in a message, and of a chunk of a snapshot


@dataclass(slots=True)
class Ready:
    """To be done in this order: send `early`; make `state`, then `entries` durable, write `chunks`, put the rows of
    `install` in place of our own; call `written`; send `messages`.

    state     term and vote, if they have changed
    entries   replace whatever the log holds from the first one's index on
    chunks    of a snapshot that comes in, (snapshot, offset, data); need not be durable
    install   the snapshot whose chunks were written all: rows, log and members are as it says
    """

    state: tuple[int, str] | None = None
    entries: list[Entry] = field(default_factory=list)
    chunks: list[tuple[Snapshot, int, bytes]] = field(default_factory=list)
    install: Snapshot | None = None
    early: list[Envelope] = field(default_factory=list)
    messages: list[Envelope] = field(default_factory=list)
