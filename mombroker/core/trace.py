"""The one schema of the log: a record is a tuple in the order of FIELDS. Versioned; fields are only ever added.

One record per message and server, written when the message leaves that server or is consumed there, with the times
of its stations; separate records only for what has no other place.

kind      `send`      a reaction (or the outside) sent it; `agent` is the source, `dests` its agents, `detail` its type
          `react`     `agent` has reacted to it
          `forward`   a router has stamped it for the next domains
          `relay`     an ordering back end passed it on within a domain; without an id: its own acknowledgements
          `hold`      it must wait for its causes: `missing` lists (member, sequence) of what it waits for
          `expire`, `dead`, `drop`, `redeliver`   with the reason in `detail`; `agent` where one is concerned
          `create`, `delete`  of `agent`
          `commit`    about the commit with records before the one that it stands in, which it is the first of: `sent`
                      is when that one was closed, `done` when it was durable and its packets left
origin, number   the message id: server of the send, and its counter
payload   bytes of the packed notification
domain, peer     where its packet came in, empty for a local message
hops      links it has crossed to come here
sent, received, delivered, done   wall-clock ns: at the origin, frame came in, causal order satisfied, reacted or
          forwarded (each by the clock of the server where it happened; 0 = not passed)
out       packets stamped in this step: a list of (domain, peer, control bytes, control integers)
"""

VERSION = 1
FIELDS = (
    "kind", "origin", "number", "agent", "dests", "payload", "domain", "peer", "hops",
    "sent", "received", "delivered", "done", "out", "missing", "detail",
)  # fmt: skip
KINDS = (
    "send", "react", "forward", "relay", "hold", "expire", "dead", "drop", "redeliver", "create", "delete", "commit",
)  # fmt: skip

Record = tuple[
    str, str, int, str, tuple[str, ...], int, str, str, int, int, int, int, int,
    list[tuple[str, str, int, int]], list[tuple[int, int]], str,
]  # fmt: skip
NO_OUT: list[tuple[str, str, int, int]] = []
NO_MISSING: list[tuple[int, int]] = []


def as_dict(record: Record) -> dict[str, object]:
    return dict(zip(FIELDS, record, strict=True))
