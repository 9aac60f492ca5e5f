"""Newcomers: servers that are attached to the bus while it works, behind one that is there, their sponsor (protocols
§8.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from mombroker.core import revision
from mombroker.core.changes import Attachment
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.ids import home_of
from mombroker.core.lost import successor
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.message_types import MessageTypes
from mombroker.core.meta import ATTACHED, EPOCH, HISTORY, JOINING, REVISION, TOPOLOGY, WAITING
from mombroker.core.topology import Topology
from mombroker.core.transaction import Transaction

TOLD, KNOWN = "_told", "_known"
AGENT = "_newcomers"
PAGE = 64 << 10  # bytes of what is told at once

Row = tuple[str, str, bytes]  # who has told it, type and payload of the message


@dataclass(slots=True)
class Attached:
    """A server that has come by a revision. `unmet`: those that may not know it yet; only the sponsor and the newcomer
    itself keep account of that. `sponsor`: empty at a newcomer that has lost it too early. `epoch`: it is in the place
    of a lost one, and its clocks begin under this."""

    revision: int
    sponsor: str
    unmet: list[str] = field(default_factory=list)
    epoch: int = 0


class Newcomers:
    """1. The registry tells the revision that brings a newcomer by one multicast, and it holds from its delivery on.
       Who sends to the newcomer has delivered it, and so has its sponsor, over which all ways to the newcomer lead.
    2. What the sponsor sends a newcomer first are its replicated tables. The newcomer obeys no client before, and no
       agent of an author reacts to anything.
    3. What a server has told of its tables before it knew the newcomer, the sponsor passes on where it delivers it.
    4. Whoever learns of a newcomer tells it and its sponsor so: KNOWN. Without the KNOWN of all, a subscription of the
       newcomer is not known everywhere.

    attached   those that have come since the first revision, by name
    unmet      servers that may not know us yet
    waiting    our tables have not come yet; its row says under which epoch we have begun
    tables     each gives what must be told of a table, so that who has nothing has all of it
    joined     called with newcomers that are known here from now on
    begun      called when our tables have come
    met        called when servers have learned of us, or our tables have come
    """

    def __init__(self, tx: Transaction, send: Callable[[Message], None], types: MessageTypes):
        self.tx, self._send, self._types = tx, send, types
        self.tables: list[Callable[[], Iterator[Row]]] = []
        self.joined: Callable[[list[str]], None]
        self.begun: Callable[[], None]
        self.met: Callable[[], None]
        rows = {key.removeprefix(ATTACHED): json.loads(str(row)) for key, row in tx.reader.meta(ATTACHED).items()}
        self.attached = {server: Attached(*row) for server, row in rows.items()}
        waits = tx.reader.meta(WAITING)
        self.waiting, self._since = WAITING in waits, int(waits.get(WAITING, 0))
        self._mine: list[str] = []  # newcomers that we sponsor, and that others may not know yet
        self._look()
        types.obey(TOLD, self._read_told, self._told)
        types.obey(KNOWN, _read_known, self._known)

    def _look(self) -> None:
        me = self.tx.name
        mine = self.attached.get(me)
        self.unmet = mine.unmet if mine else []
        self._mine = [name for name, each in self.attached.items() if each.sponsor == me and each.unmet]

    def _keep(self, server: str) -> None:
        row = self.attached.get(server)
        self.tx.rows.meta[f"{ATTACHED}{server}"] = (
            None if row is None else json.dumps(astuple(row)[: None if row.epoch else 3])
        )

    # -- at the delivery of a revision -----------------------------------------------------------------------------

    def announced(self, number: int, text: str, attached: Iterable[Attachment], epoch: int = 0) -> None:
        """A revision is in force that attaches servers, or they begin under `epoch` in the place of lost ones."""
        me, servers = self.tx.name, self.tx.topology.servers
        fresh = [server for each in attached for server in each.servers]
        old = [server for server in servers if server not in fresh]
        for each in attached:
            for server in each.servers:
                self.attached[server] = Attached(number, each.sponsor, list(old) if each.sponsor == me else [], epoch)
                self._keep(server)
        self._look()
        self.joined(fresh)
        for each in attached:
            if each.sponsor == me:
                self.tx.rows.meta.update({f"{JOINING}{server}": text for server in each.servers})
                self.tell_tables(each.servers)
            self._post((each.sponsor, *each.servers), KNOWN, json.dumps(each.servers).encode())

    def left(self, server: str, epoch: int = 0) -> None:
        """A server is not of this bus any more, or is lost, and its domains begin anew under this epoch."""
        for name, each in self.attached.items():
            if server in each.unmet:
                each.unmet.remove(server)
                self._keep(name)
        if self.attached.pop(server, None):
            self._keep(server)
            self.tx.rows.meta[f"{JOINING}{server}"] = None
        mine = self.attached.get(self.tx.name)
        if self.waiting and mine is not None and mine.sponsor == server and (not epoch or epoch > self._since):
            mine.sponsor = ""
            self._keep(self.tx.name)
            self.tx.note(self.trouble())
        self._look()

    def trouble(self) -> str:
        """Why our tables will never come, and what to do; empty if they may."""
        mine, me = self.attached.get(self.tx.name), self.tx.name
        if not self.waiting or mine is None or mine.sponsor:
            return ""
        return (
            f"{me} has joined behind a server that was lost before {me} had its tables, and serves nobody: stop {me}, "
            f"run `mom server lost {me}`, and start it with an empty data folder; it has nothing to lose"
        )

    # -- the sponsor -----------------------------------------------------------------------------------------------

    def tell_tables(self, servers: Iterable[str]) -> None:
        """What is the same on all servers."""
        for origin, type, payloads in _pages(row for table in self.tables for row in table()):
            self._tell(servers, origin, type, payloads)

    def _tell(self, servers: Iterable[str], origin: str, type: str, payloads: list[bytes]) -> None:
        head = json.dumps([origin, type, list(map(len, payloads))]).encode()
        self._post(servers, TOLD, b"\n".join((head, b"".join(payloads))))

    def _post(self, servers: Iterable[str], type: str, payload: bytes) -> None:
        dests = tuple(f"{name}/{AGENT}" for name in servers)
        self._send(new_message(self.tx, f"{self.tx.name}/{AGENT}", dests, type, payload, flags=BOUNCE))

    def again(self, others: Container[str]) -> None:
        """What was under way between us and these may be lost: our tables for newcomers, and KNOWN."""
        for name, each in self.attached.items():
            sponsors = each.sponsor == self.tx.name and f"{JOINING}{name}" in self.tx.reader.meta(JOINING)
            if sponsors and name in others:
                self.tell_tables([name])
            if told := [server for server in (each.sponsor, name) if server in others]:
                self._post(told, KNOWN, json.dumps([name]).encode())

    def pass_on(self, message: Message) -> None:
        """A server has told something of its tables, perhaps before it knew of newcomers of ours."""
        if not self._mine:
            return
        told = {home_of(agent) for agent in message.dests}
        if late := [name for name in self._mine if name not in told]:
            self._tell(late, message.origin, message.type, [message.payload])

    # -- the newcomer ----------------------------------------------------------------------------------------------

    def _read_told(self, message: Message) -> list[Message]:
        """Raises UnknownNotification."""
        head, _, rest = message.payload.partition(b"\n")
        try:
            origin, type, lengths = json.loads(head)
            if sum(lengths) != len(rest) or not all(length >= 0 for length in lengths):
                raise ValueError("its parts do not fit")
            if type in (TOLD, KNOWN) or type not in self._types.handlers:
                raise ValueError(f"there is no table of {type[:64]!r}")
            read = self._types.readers[type]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UnknownNotification(f"{message.type} came with what no table says: {error}") from None
        found, at = [], 0
        for length in lengths:
            payload = rest[at : at + length]
            at += length
            part = replace(message, origin=origin, type=type, payload=payload, data=b"", note=None, size=length)
            read(part)
            found.append(part)
        return found

    def _told(self, message: Message) -> None:
        mine, registry = self.attached.get(self.tx.name), self.tx.topology.registry
        if message.origin != registry and (mine is None or message.origin != mine.sponsor):
            return
        for part in self._read_told(message):
            if part.origin in self.tx.topology.servers:  # else it has left meanwhile
                self._types.handlers[part.type](part)

    # -- both --------------------------------------------------------------------------------------------------------

    def _known(self, message: Message) -> None:
        me, origin = self.tx.name, message.origin
        for server in _read_known(message):
            row = self.attached.get(server)
            if row is not None and origin in row.unmet:
                row.unmet.remove(origin)
                self._keep(server)
            if server == me and row is not None and self.waiting and origin == row.sponsor:
                self.waiting = False
                self.tx.rows.meta[WAITING] = None
                self.tx.note(f"has the tables of {origin}, and serves clients from now on")
                self._post((origin,), KNOWN, json.dumps([me]).encode())
                self.begun()
            if server == origin:
                self.tx.rows.meta[f"{JOINING}{server}"] = None
        self._look()
        self.met()

    def expected(self) -> Iterator[str]:
        """Those behind us that are new to the bus, and have not begun."""
        for name, row in self.attached.items():
            if row.sponsor == self.tx.name and not row.epoch and self.tx.written("meta", f"{JOINING}{name}"):
                yield name

    def invitation(self, server: str) -> dict[str, Any]:
        """What `rows` makes a newcomer's first rows of; from others than its sponsor, who that is. Raises MomError."""
        row = self.attached[server]
        if row.sponsor != self.tx.name:
            return {"sponsor": row.sponsor}
        text = self.tx.written("meta", f"{JOINING}{server}")
        if text is None:
            raise MomError(f"{server} has joined the bus already, with another store: start it where that is")
        others = {name: [each.revision, each.sponsor] for name, each in self.attached.items()}
        found = {"sponsor": row.sponsor, "revision": row.revision, "text": text, "attached": others}
        return {**found, "epoch": row.epoch, "now": self.tx.now} if row.epoch else found

    def check(self) -> None:
        for name, each in self.attached.items():
            servers, alone = self.tx.topology.servers, not self.tx.topology.domains
            assert name in servers or alone, f"4: {name} has left, and is waited for"
            assert not each.unmet or self.tx.name in (name, each.sponsor), "4: who is met is not our affair"


def rows(server: str, invitation: Mapping[str, Any]) -> tuple[Topology, dict[str, str | int]]:
    """The topology that a newcomer begins with, and its store's rows beside those of any new one. Raises MomError."""
    number, text = int(invitation["revision"]), str(invitation["text"])
    topology = revision.read(text)
    attached = {str(name): (int(at), str(by)) for name, (at, by) in invitation["attached"].items()}
    epoch = int(invitation.get("epoch", 0))  # in the place of a lost server, which everybody knew
    old = [name for name in topology.servers if epoch or attached.get(name, (0, ""))[0] < number]
    old = [name for name in old if name != server]
    first = epoch or number << revision.EPOCH_BITS
    found: dict[str, str | int] = {REVISION: number, TOPOLOGY: text, WAITING: first}
    found[f"{HISTORY}{number}"] = json.dumps([0, revision.digest_of(text), [f"+ server {server}"]])
    found |= {f"{EPOCH}{domain.name}": first for domain in topology.domains_of(server)}
    if epoch:
        found |= successor(int(invitation["now"]))
    for name, (at, sponsor) in attached.items():
        if name in topology.servers:
            found[f"{ATTACHED}{name}"] = json.dumps([at, sponsor, old if name == server else []])
    return topology, found


def _pages(told: Iterable[Row]) -> Iterator[tuple[str, str, list[bytes]]]:
    """Rows of one origin and type together, in order, a page full at most."""
    key, page, size = ("", ""), list[bytes](), 0
    for origin, type, payload in told:
        if page and (key != (origin, type) or size + len(payload) > PAGE):
            yield *key, page
            page, size = [], 0
        key = origin, type
        page.append(payload)
        size += len(payload)
    if page:
        yield *key, page


def _read_known(message: Message) -> list[str]:
    """Raises UnknownNotification."""
    try:
        servers = json.loads(message.payload)
        if type(servers) is not list or not all(type(name) is str for name in servers):
            raise ValueError("it is no list of servers")
    except (ValueError, RecursionError) as error:
        raise UnknownNotification(f"{message.type} names no servers: {error}") from None
    return servers
