"""What can happen to an agent server (events), and what it wants done (Ready). Nothing else crosses its border."""

from dataclasses import dataclass, field
from typing import Any

from mombroker.core.batch import Batch
from mombroker.core.hello import Hello

# A link frame is a tuple: ("data", domain, first sequence, [packet bytes, ...]) or
# ("ack", domain, last durable sequence, limit), where `limit` is the highest sequence that may be sent, or
# ("loss", domain, epoch, report), see losses.py.
LinkFrame = tuple[str, str, int, Any]


@dataclass(slots=True)
class LinkUp:
    """Both hellos were exchanged and admitted; `conn` is never reused."""

    peer: str
    conn: int
    hello: Hello


@dataclass(slots=True)
class LinkDown:
    peer: str
    conn: int


@dataclass(slots=True)
class PeerSwitched:
    """A neighbour has greeted us as one that works under the domains that we are about to change to."""

    peer: str


@dataclass(slots=True)
class LinkFrames:
    """Frames that came in on one connection, in order."""

    peer: str
    conn: int
    frames: list[LinkFrame]


@dataclass(slots=True)
class Tick:
    """The time that Ready.timer asked for has come."""


@dataclass(slots=True)
class TaskDone:
    """A deferred function ended: `payload` is its packed result, or None with the reason of its failure."""

    id: int
    payload: bytes | None
    reason: str = ""


@dataclass(slots=True)
class StoreSize:
    """The store's files take `bytes`; of `disk` bytes of their file system `free` are free; the process takes `memory`
    bytes. 0: not known."""

    bytes: int
    free: int = 0
    disk: int = 0
    memory: int = 0


@dataclass(slots=True)
class Metered:
    """What this process has counted since `since` (ns), for the log: (figure, peer or nothing, how many)."""

    since: int
    amounts: list[tuple[str, str, int]]


@dataclass(slots=True)
class Admin:
    """A request of the operator; its reply is in Ready.replies under the same ticket, after the commit. Who asks, and
    from which address, is for the log."""

    ticket: int
    verb: str
    args: dict[str, Any]
    who: str = ""
    where: str = ""


@dataclass(slots=True)
class ClientOpened:
    """A client has logged in. Connection ids are never reused while the server runs.

    user      empty for one who is anonymous
    session   `SERVER/...`, unique for ever: part of the names of its temporary destinations, `temp-queue:SESSION/NAME`
    strict    any refusal ends the connection; else only what the refusal names
    """

    conn: int
    user: str
    client_id: str = ""
    session: str = ""
    strict: bool = True


@dataclass(slots=True)
class ClientCommands:
    """Commands of one client connection, in order (broker/commands.py)."""

    conn: int
    commands: list[Any]


@dataclass(slots=True)
class ClientWrote:
    """The delivery with this tag, and all earlier ones of the connection, were handed to a live socket."""

    conn: int
    tag: int


@dataclass(slots=True)
class ClientClosed:
    """The connection is gone; what it has not settled goes back."""

    conn: int


@dataclass(slots=True)
class Ready:
    """One step's wishes, in this order: persist `batch` in one transaction; then send, reply and run.

    frames   [(connection, [frame, ...])], to be dropped where that connection is gone; acks come first
    clients  [(client connection, [reply, ...])] (broker/commands.py), in order, to be dropped where it is gone
    replies  [(ticket, result or error sentence)], result a dict, error a str
    tasks    deferred functions to run: (task id, function path, packed arguments)
    dial     peers that we have something for and no link to
    hang_up  connections whose link is no more, to be closed once `frames` were written
    meet     peers of new links, to be connected to at once, whatever there is to send and has failed before
    timer    wall-clock ns of the next Tick, or 0
    """

    batch: Batch
    frames: list[tuple[int, list[LinkFrame]]] = field(default_factory=list)
    clients: list[tuple[int, list[Any]]] = field(default_factory=list)
    replies: list[tuple[int, dict[str, Any] | str]] = field(default_factory=list)
    tasks: list[tuple[int, str, bytes]] = field(default_factory=list)
    dial: list[str] = field(default_factory=list)
    hang_up: list[int] = field(default_factory=list)
    meet: list[str] = field(default_factory=list)
    timer: int = 0
