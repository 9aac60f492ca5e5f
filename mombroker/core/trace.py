"""The one schema of the log: what a record has, in order. Versioned; fields are only ever added, at the end.

One record per message and server, written when the message leaves that server or is consumed there, with the times
of its stations; separate records only for what has no other place.

kind      `send`      a reaction (or the outside) sent it; `agent` is the source, `dests` its agents, `detail` its type
          `react`     `agent` has reacted to it
          `forward`   a router has stamped it for the next domains
          `relay`     an ordering back end passed it on within a domain; without an id: its own acknowledgements
          `hold`      it must wait for its causes: `missing` lists (member, sequence) of what it waits for
          `expire`, `dead`, `drop`, `redeliver`   with the reason in `detail`; `agent` where one is concerned
          `create`, `delete`  of `agent`
          `move`      `agent` has left for the server `peer`, or has come from there (`detail`: left, came); `number`
                      rises from coming to coming of an agent
`client`    a client has logged in, and `agent` is its session; `detail` has its `user` and `client_id` as JSON
          `parent`    what its client has said it was doing: a traceparent of W3C, as `detail`; only where it
                      has, right behind the `send`
          `view`      `agent` comes into a view of a group, before it reacts to anything of that; `detail` has its
                      `group`, `number`, `members` and `home` (none: the group is over for it) as JSON. Without members,
                      or it among them: it is out
          `cast`      the message that `agent` sends next is a cast of a view: `detail` has its `home` and `number` as
                      JSON
          `commit`    about the commit with records before the one that it stands in, which it is the first of: `sent`
                      is when that one was closed, `done` when it was durable and its packets left
`admin`     an operator has asked for a change: `detail` has JSON with `verb`, `args` (of secrets and long texts only
            that they are there), `who`, `from`, and `result`: `done`, the sentence of a refusal, or `asked`, for what
            another server decides; another record follows when it has
`meter`     once a minute, and at the end: what the process has counted from `sent` to `done`, `payload` of what
            `detail` names (METERS)
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

VERSION = 1
KINDS = (
    "send", "react", "forward", "relay", "hold", "expire", "dead", "drop", "redeliver", "create", "delete", "commit",
    "meter", "client", "move", "admin", "parent", "view", "cast",
)  # fmt: skip

METERS = {  # what a process counts
    "wire_bytes": "written to the connection with `peer`: frames, acknowledgements, handshakes and heartbeats",
    "wal_bytes": "written to the store's write-ahead log",
    "wal_syncs": "waits for the disk, for commits and for copies of the write-ahead log to the file",
    "disk_bytes": "that this process has had written to disks, as the system counts; nothing where it does not",
}

Out = list[tuple[str, str, int, int]]  # (domain, peer, control bytes, control integers) per packet
Missing = list[tuple[int, int]]
NO_OUT: Out = []
NO_MISSING: Missing = []


class Record(NamedTuple):
    """The store's columns, its reader and the rows of the analysis are made from this list.

    Times are nanoseconds by the clock of the server where it happened; 0 = not passed.
    """

    kind: Annotated[str, "send, react, forward, relay, hold, commit, expire, dead, drop, redeliver, create, ..."] = ""
    origin: Annotated[str, "server of the message's send; with `number` the message id"] = ""
    number: Annotated[int, "its counter"] = 0
    agent: Annotated[str, "send: the source; react: who reacted; else whom it concerns, if anyone"] = ""
    dests: Annotated[tuple[str, ...], "send: the agents that it goes to, as server/agent"] = ()
    payload: Annotated[int, "bytes of the packed notification; meter: how much"] = 0
    domain: Annotated[str, "where its packet came in; empty for a local message"] = ""
    peer: Annotated[str, "the neighbour that it came from; empty for a local message"] = ""
    hops: Annotated[int, "links that it has crossed to come here"] = 0
    sent: Annotated[int, "ns, at the origin and by its clock"] = 0
    received: Annotated[int, "ns, its frame came in"] = 0
    delivered: Annotated[int, "ns, its causes were all here"] = 0
    done: Annotated[int, "ns, reacted to, or forwarded"] = 0
    out: Annotated[Out, "packets stamped in this step: where to, control bytes on the wire, control integers"] = NO_OUT
    missing: Annotated[Missing, "hold: what it waits for, as (member of the domain, its sequence)"] = NO_MISSING
    detail: Annotated[str, "send: the type; meter: of what; client: who; else the reason"] = ""


FIELDS = Record._fields
DEFAULTS = Record()
_record = partial(tuple.__new__, Record)  # a third of the time of Record(...)
STATIONS = ("done", "delivered", "received", "sent")  # the latest one passed is when the record was written


class Notes:
    """Records of notes that agents of one server have told each other at one time, in this order, each of which was
    reacted to at once: a `send` and a `react` for each.

    told   number, source, agent, type and size of each
    """

    __slots__ = ("name", "now", "told")

    def __init__(self, name: str, now: int):
        self.name, self.now = name, now
        self.told: list[tuple[int, str, str, str, int]] = []

    def __len__(self) -> int:
        return 2 * len(self.told)

    def columns(self) -> tuple[Sequence[Any], ...]:
        """As `told`: of each a value for all, or one for each."""
        return tuple(zip(*self.told, strict=True))

    def records(self) -> list[Record]:
        name, now, found = self.name, self.now, list[Record]()
        for number, source, agent, type, size in self.told:
            found += (
                _record((
                    "send", name, number, source, (agent,), size, "", "", 0, now, 0, 0, now, NO_OUT, NO_MISSING, type,
                )),
                _record((
                    "react", name, number, agent, (), size, "", "", 0, now, now, now, now, NO_OUT, NO_MISSING, "",
                )),
            )  # fmt: skip
        return found


class Run(Notes):
    """Notes that one agent has told another one."""

    __slots__ = ("pair", "numbers", "sizes")

    def __init__(
        self, name: str, now: int, source: str, agent: str, type: str, numbers: Sequence[int], sizes: Sequence[int]
    ):
        self.name, self.now, self.pair, self.numbers, self.sizes = name, now, (source, agent, type), numbers, sizes

    def __len__(self) -> int:
        return 2 * len(self.numbers)

    def columns(self) -> tuple[Sequence[Any], ...]:
        return self.numbers, *[(value,) for value in self.pair], self.sizes

    def records(self) -> list[Record]:
        alone = Notes(self.name, self.now)
        alone.told = [(number, *self.pair, size) for number, size in zip(self.numbers, self.sizes, strict=True)]
        return alone.records()


class Round(Notes):
    """Notes of one type, each of its own source to its own agent."""

    __slots__ = ("sources", "agents", "type", "numbers", "sizes")

    def __init__(
        self, name: str, now: int, sources: Sequence[str], agents: Sequence[str], type: str, numbers: Sequence[int],
        sizes: Sequence[int],
    ):  # fmt: skip
        self.name, self.now, self.sources, self.agents, self.type = name, now, sources, agents, type
        self.numbers, self.sizes = numbers, sizes

    def __len__(self) -> int:
        return 2 * len(self.numbers)

    def columns(self) -> tuple[Sequence[Any], ...]:
        return self.numbers, self.sources, self.agents, (self.type,), self.sizes

    def records(self) -> list[Record]:
        alone = Notes(self.name, self.now)
        types = [self.type] * len(self.numbers)
        alone.told = list(zip(self.numbers, self.sources, self.agents, types, self.sizes, strict=True))
        return alone.records()


Entry = Record | Notes  # of the log of one commit

# Version, trace, span and flags; a version that is not known may have more behind these (W3C Trace Context, 3.2).
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION = "00-"


def traceparent(said: object) -> str:
    """Version, trace, span and flags of what a client says, with `-` between; empty for what is no traceparent."""
    if not isinstance(said, str) or (found := _TRACEPARENT.match(said)) is None:
        return ""
    more = said[found.end() :]
    return "" if more and (said.startswith(_VERSION) or not more.startswith("-")) else found[0]


def commit(closed: int, durable: int) -> Record:
    """Of the commit with records before this one."""
    return _record((
        "commit", "", 0, "", (), 0, "", "", 0, closed, 0, 0, durable, NO_OUT, NO_MISSING, "",
    ))  # fmt: skip


def begin(log: list[Entry]) -> int:
    """Where in a log that is open the records of what comes next begin."""
    if log and isinstance(notes := log[-1], Notes):  # which no more join
        log[-1:] = notes.records()
    return len(log)


def parents(log: list[Entry], since: int, source: str, parent: str) -> None:
    """Say in a log that is open who is the parent of what an agent has sent since then; see `begin`."""
    found = list[Entry]()
    for entry in records(log[since:]):
        found.append(entry)
        if entry.kind == "send" and entry.agent == source:
            found.append(DEFAULTS._replace(
                kind="parent", origin=entry.origin, number=entry.number, agent=source, done=entry.done, detail=parent
            ))  # fmt: skip
    log[since:] = found


def records(log: Iterable[Entry]) -> list[Record]:
    """One by one."""
    found: list[Record] = []
    for entry in log:
        found += entry.records() if isinstance(entry, Notes) else [entry]
    return found


def recorder(tx: Any, *fields: str) -> Callable[..., None]:
    """What appends a record to `tx.rows.log`: `record(kind, field=value, ...)`; the other fields have their defaults.

    With `fields` it takes the values of these, in this order: for what is on the way of every message, where the names
    of arguments would cost more than all else. Made from text, as named tuples are. It does nothing if the log is off.
    """
    if not tx.topology.log.get("enabled", True):
        return lambda *_, **named: None
    names = DEFAULTS._asdict()
    takes = ", ".join(fields or (f"{name}=DEFAULTS.{name}" for name in FIELDS))
    text = f"lambda {takes}: tx.rows.log.append(new(Record, ({', '.join(FIELDS)},)))"
    names |= {"tx": tx, "new": tuple.__new__, "Record": Record, "DEFAULTS": DEFAULTS}
    made: Callable[..., None] = eval(text, names)
    return made
