"""Table `meta` of a store: every key and every prefix of keys, once, with its owner, its form and what it says.

A prefix ends in a colon. What is `replicated` is the same on all servers, or is on its way there.
"""

from typing import NamedTuple


class Key(NamedTuple):
    name: str
    owner: str  # the file that writes it
    form: str
    says: str
    replicated: bool = False


KEYS: list[Key] = []


def _key(name: str, owner: str, form: str, says: str, replicated: bool = False) -> str:
    KEYS.append(Key(name, owner, form, says, replicated))
    return name


# Whose store this is, and how its clocks are ordered.
SERVER = _key("server", "core/identity.py", "text", "the server whose store this is")
VERSION = _key("schema", "store/sqlite.py", "number", "the version of the tables, by which a newer store is known")
INCARNATION = _key("incarnation", "store/sqlite.py", "hex", "drawn when the store was made, which tells it from others")
GRAPH = _key("graph", "core/identity.py", "digest", "of the servers and domains that the clocks are made under")
DIGEST = _key("digest:", "core/identity.py", "DOMAIN: digest", "of a domain's members, back end and options")
ORDER = _key("order", "core/identity.py", "JSON", "the domains, to tell what a new topology changes")
FORMER = _key("order:", "admin/reset.py", "RECORD: JSON", "`order` as it was until this log record")
EPOCH = _key("epoch:", "core/repair.py", "DOMAIN: number", "how often a domain's clocks were started anew")
RESET = _key("reset", "core/lost.py", "ns", "when this store was made in place of one that was lost")

# Where the server is.
NOW = _key("now", "core/transaction.py", "ns", "the server's time at the last commit without log records")
NEXT = _key("next", "core/transaction.py", "number", "ids up to this one may have been given")
CLEAN = _key("clean", "core/server.py", "0 or 1", "1: the server stopped, and all that it had done is here")
UNCLEAN = _key("unclean", "core/server.py", "number", "starts in a row after a stop that was not clean")
OWN = _key("own:", "core/domain_channel.py", "DOMAIN: number", "own copies that the back end has still to deliver")
ALONE = _key("alone:", "core/link.py", "SERVER: number", "the most that a neighbour can have that was not met since")

# The topology that the bus goes by.
REVISION = _key("revision", "core/revision.py", "number", "of the topology that is in force here")
TOPOLOGY = _key("topology", "core/revision.py", "JSON", "what all servers of the bus have alike of a topology file")
CHANGE = _key("change", "core/coordinator.py", "JSON", "the change of the domains that the registry carries out")
PLAN = _key("plan", "core/reconfiguration.py", "JSON", "the change of the domains that the server takes part in")
MARK = _key("mark:", "core/reconfiguration.py", "SERVER: number", "the change that a server has closed its gate for")
LOSS = _key(
    "loss:", "core/losses.py", "DOMAIN: JSON", "servers of a domain that are lost, and how far it goes on without"
)
LOST_SERVER = _key(
    "lost:", "core/lost.py", "SERVER: JSON",
    "a server that was lost: the epoch that its successor begins under, and behind whom", True,
)  # fmt: skip
HISTORY = _key("revision:", "core/revision.py", "NUMBER: JSON", "since when, its digest, and what it changed")
ATTACHED = _key(
    "attached:", "core/newcomers.py", "SERVER: JSON",
    "the revision that has brought it, its sponsor, and, at these two, who may not know it yet",
)  # fmt: skip
JOINING = _key("joining:", "core/newcomers.py", "SERVER: JSON", "the topology of that revision, until we hear of it")
WAITING = _key("waiting", "core/newcomers.py", "1", "it is new, and has not been told yet what is the same on all")

DEPARTING = _key("departing:", "core/departures.py", "ID: JSON", "an agent that moves to another server: how far it is")
ARRIVING = _key("arriving:", "core/arrivals.py", "ID: JSON", "an agent that moves here: whence, and what has come")
DRAINING = _key("draining", "broker/verbs/drain.py", "text", "what would be new here is made on this server")
VIEWS = _key("views", "broker/groups/group.py", "number", "views of groups that begin here have greater ones")

# Tables.
NAME = _key("name:", "core/names.py", "NAME: id", "the agent of a name", True)
OTHER = _key("other:", "core/names.py", "NAME: id", "the one at its other home, while a queue moves", True)
MADE = _key("made:", "core/names.py", "NAME: number", "at the registry: the message by which its agent is made")
HEARD = _key("heard", "core/names.py", "number", "of the registry's last word on a name that is this server's")
HOME = _key(
    "home:", "core/homes.py", "ID: server", "where an agent lives that has moved from the server of its id", True
)
POLICY = _key("policy:", "broker/policies.py", "NUMBER: JSON", "set at run time; the highest goes first", True)
TOPIC = _key(  # of our own, behind a line break, also who does not know it yet
    "topic:", "broker/topic/routing.py", "SERVER:EPOCH: pattern", "who listens to which topic", True
)
USER = _key(  # a bare hash is of a user of this server alone, from before users were the same on all servers
    "user:", "broker/access/users.py", "NAME: JSON", "a user of clients: hash of the passcode, roles, limits", True
)
PERMISSION = _key("permission:", "broker/access/permissions.py", "NUMBER: JSON", "set at run time", True)

# A replica's own; all else is as in the stores of the other replicas.
TERM = _key("term", "store/replica.py", "number", "of Raft, the newest that the replica has heard of")
VOTE = _key("vote", "store/replica.py", "text", "for whom it has voted in that term")
CUT = _key("cut", "store/replica.py", "JSON", "where its log begins: entry, its term, the members as of then")
REPLICA = _key("replica", "store/replica.py", "NAME-hex", "its id: drawn when the store was made, and never again")
APPLIED = _key("applied", "store/replica.py", "number", "the entry that the rows are as of")

# The log's and the store's own.
EXPORTED = _key("exported", "core/verbs.py", "record", "the last log record that an export has taken, if there is one")
LOST = _key("log_lost", "store/base.py", "number", "log records that made room before anybody had taken them")
DROPPED = _key("dropped:", "store/sqlite.py", "AGENT: id", "items up to this id are gone, and leave in steps")


def key_of(name: str) -> Key:
    """What a key of a store is. Raises KeyError."""
    found = next((key for key in KEYS if key.name == name or (key.name[-1] == ":" and name.startswith(key.name))), None)
    if found is None:
        raise KeyError(name)
    return found
