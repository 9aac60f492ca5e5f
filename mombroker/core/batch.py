"""What one commit writes, as plain rows, and what may be read back: the whole contract between server and store.

A store applies a `Batch` in one durable transaction, or not at all. None as a value means that the row is deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mombroker.core.trace import Entry

EVERY = "every "  # begins the kind of a timer that comes again and again
ROWS_BY_KEY = "="  # begins the collections of a table: each row has its own, `=NAME:KEY`; see core/table.py
LINK_BITS = 40  # a queue_out key is link << 40 | sequence


class InRow(NamedTuple):
    """A message that waits for the reaction of one local agent."""

    id: int
    agent: str
    data: bytes  # Message.data; up to the payload where that is shared: a Reader puts it behind
    attempts: int = 0  # reactions that have failed
    trying: int = 0  # boots in a row at which its reaction was under way
    info: tuple[str, str, int, int] = ("", "", 0, 0)  # domain, peer, received, delivered
    payload: int = 0  # the PayloadRow that it shares with others


class PayloadRow(NamedTuple):
    """The payload that all waiting messages of one multicast share. Their ids are exactly id + 1 .. last."""

    id: int
    last: int
    data: bytes


class ItemRow(NamedTuple):
    """One item of an agent's ordered collection, in order of (key, id)."""

    id: int
    agent: str
    collection: str
    key: int
    head: bytes
    body: bytes


class HeldRow(NamedTuple):
    """A message of a queue that is with a consumer, or backing off.

    Nearly every message writes and deletes such a row, and a starting server reads them all: so they have a table of
    their own, without an index.
    """

    id: int
    agent: str
    head: bytes
    body: bytes


class LinkRow(NamedTuple):
    """One direction pair with a neighbour in one domain; sequences start at 1."""

    id: int
    domain: str
    peer: str
    sent: int  # last sequence stamped and stored
    acked: int  # last one that the peer has durably
    received: int  # last one of the peer's that is durable here
    incarnation: str  # of the peer's store, once met


class TaskRow(NamedTuple):
    """A timer (`due` in ns, `data` is the Message.data that it will deliver) or a deferred function (`due` = 0)."""

    id: int
    agent: str
    kind: str  # "timer", EVERY with a number of ns, "defer"; moved: with the id that its agent knows, as "timer:17"
    due: int
    data: bytes

    @property
    def sort(self) -> str:
        """Its kind alone."""
        return self.kind.partition(":")[0]

    @property
    def shown(self) -> int:
        """The id that its agent knows."""
        return int(self.kind.partition(":")[2] or self.id)


class LogRow(NamedTuple):
    """The log records of one commit as columns, see store/columns.py."""

    records: int
    first: int  # when the first record was written, ns
    last: int
    data: bytes


class Damage(NamedTuple):
    """A row that is not what was written, as its checksum tells; the server sets it aside."""

    table: str  # "queue_in", "message", "held", "task"
    id: int
    agent: str
    collection: str  # of the table "message"; else ""
    size: int  # bytes of its body, as far as they can be told
    row: bytes  # what can be read of it, packed
    payload: int = 0  # the PayloadRow that a row of "queue_in" shares with others


@dataclass(slots=True)
class Batch:
    """The rows of one commit. `number` rises by one per batch of a run; those before have no rows with ids above
    `above`."""

    number: int = 0
    queue_out: list[tuple[int, bytes]] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)  # link -> delete queue_out up to this sequence
    queue_in: dict[int, InRow | None] = field(default_factory=dict)
    payloads: dict[int, PayloadRow] = field(default_factory=dict)
    spent: set[int] = field(default_factory=set)  # payloads that go, unless a row of queue_in needs them still
    agents: dict[str, tuple[str, bytes] | None] = field(default_factory=dict)  # id -> class path, state
    items: dict[int, ItemRow | None] = field(default_factory=dict)  # table `message`
    held: dict[int, HeldRow | None] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)  # agent -> its items up to this id go
    links: dict[int, LinkRow | None] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)  # domains: all their rows of `core` go, before others are put
    core: dict[tuple[str, int, int], bytes | None] = field(default_factory=dict)  # (domain, kind, key)
    tasks: dict[int, TaskRow | None] = field(default_factory=dict)
    meta: dict[str, str | int | None] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)  # trace records, see core/trace.py
    row: LogRow | None = None  # what `log` is in the store, if that is known; `log` may be empty then
    bytes: int = 0  # payload-sized estimate, for the cap
    above: int = 0

    def empty(self) -> bool:
        return not (
            self.queue_out or self.acked or self.queue_in or self.agents or self.items or self.held
            or self.dropped or self.links or self.ended or self.core or self.tasks or self.meta or self.log
        )  # fmt: skip


class Reader(Protocol):
    """Reads of *committed* rows. A batch that is being committed may be visible or not; the server copes.

    A damaged row of a message or a task is left out and named in `damaged`, once; one of anything else, which a server
    cannot do without, raises StoreError.
    """

    damaged: list[Damage]

    def meta(self, prefix: str = "") -> dict[str, str | int]: ...  # rows whose keys begin so; all: there may be many
    def links(self) -> list[LinkRow]: ...
    def core(self, domain: str) -> dict[tuple[int, int], bytes]: ...
    def tasks(self) -> Iterable[TaskRow]: ...
    def inboxes(self) -> list[tuple[str, int, int]]: ...  # (agent, lowest id, rows), one per agent with rows
    def queue_in(self, agent: str, after: int, upto: int, limit: int) -> list[InRow]: ...  # after < id <= upto
    def queue_in_count(self, agent: str, after: int) -> int: ...  # rows with after < id
    def queue_out(self, link: int, after: int, upto: int, limit: int) -> list[tuple[int, bytes]]: ...  # (seq, data)
    def queue_out_size(self, link: int) -> tuple[int, int]: ...  # rows, bytes
    def agent(self, id: str) -> tuple[str, bytes] | None: ...
    def agents(self, after: str, limit: int) -> list[tuple[str, str]]: ...  # (id, class path), in order of id
    def item(self, id: int) -> ItemRow | None: ...
    def items(
        self, agent: str, collection: str, after: tuple[int, int] | None, limit: int
    ) -> list[ItemRow]: ...  # in order of (key, id), strictly after
    def item_ids(
        self, agent: str, collection: str, after: int, upto: int, limit: int
    ) -> list[int]: ...  # whose key is 0
    def keyed(self, agent: str, collection: str) -> int: ...  # id of the one row there; 0: none, or known to be damaged
    def range(
        self, agent: str, first: str, last: str, limit: int, reverse: bool
    ) -> list[ItemRow]: ...  # whose collections are from `first` to before `last`, by these
    def range_count(self, agent: str, first: str, last: str) -> int: ...
    def collections(self, agent: str) -> list[str]: ...  # of an agent, those with items, but not of tables
    def places(self) -> Iterable[tuple[str, str]]: ...  # (agent, collection) of items, each once, but not of tables
    def held(self, after: int, limit: int) -> list[HeldRow]: ...  # in order of id, strictly after
    def held_row(self, id: int) -> HeldRow | None: ...
    def item_count(self, agent: str, collection: str) -> int: ...
