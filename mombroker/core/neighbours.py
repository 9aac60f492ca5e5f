"""Neighbours: who is connected to us, and the handshake that lets two servers' stores meet (protocols §0.5)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

from mombroker.core.changes import reordered
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import NotYet, PeerRefused, Switched
from mombroker.core.hello import Hello
from mombroker.core.link import Link
from mombroker.core.meta import EPOCH, INCARNATION
from mombroker.core.topology import Domain, Topology
from mombroker.core.transaction import Transaction

MOST_ORDER = 2_000  # bytes of an order in a hello, which has to fit into a frame of a login
MOST_TERM = 1 << 48  # of a leader: an election each second reaches it in ten million years


class Moving(NamedTuple):
    """A change of the domains that the server takes part in: which revision it brings, for whom, and whether the server
    has switched."""

    number: int
    inside: frozenset[str]
    switched: bool


class Neighbours:
    """domains    by name: the parts of the channel that serve one domain
    epochs     domain -> epoch of its clocks
    revision   of the topology that is in force
    moving     the change that is under way here, until all have switched
    judge      raises PeerRefused for a hello that a loss is in the way of, in a domain
    fenced     server -> the epoch below which its clocks are of no use; 0 if it was never lost
    since      the batch that has taken over the topology
    term       of us as the leader of our replicas; 0: we have none
    terms      neighbour that has replicas -> its store, and the newest term of a leader of it that we have met
    expected   servers that join behind us, and have not begun
    conns      connections that are up, by number
    trouble    peer -> why its link is refused; set by the driver
    """

    __slots__ = (
        "tx", "domains", "incarnation", "epochs", "revision", "moving", "judge", "fenced", "since", "conns", "trouble",
        "term", "terms", "expected",
    )  # fmt: skip

    def __init__(self, tx: Transaction, meta: Mapping[str, str | int], domains: Mapping[str, DomainChannel]):
        self.tx, self.domains = tx, domains
        self.incarnation = str(meta.get(INCARNATION, ""))
        self.epochs = {name: int(meta.get(EPOCH + name, 0)) for name in tx.topology.domains}
        self.revision = 0
        self.moving: Moving | None = None
        self.judge: Callable[[Hello, str], None] = lambda hello, domain: None
        self.fenced: Callable[[str], int] = lambda server: 0
        self.expected: Callable[[], Iterable[str]] = tuple
        self.since = self.term = 0
        self.terms: dict[str, tuple[str, int]] = {}
        self.conns: dict[int, Link] = {}
        self.trouble: dict[str, str] = {}

    @property
    def topology(self) -> Topology:
        """The one that we work under."""
        return self.tx.topology

    def install(self, fresh: Set[str], epoch: int) -> None:
        """The topology is another one, and the domains `fresh` have new clocks, under `epoch`."""
        rows, topology = self.tx.rows.meta, self.tx.topology
        self.since = self.tx.rows.number
        for name in self.epochs.keys() - topology.domains.keys():
            rows[EPOCH + name] = None
        self.epochs = {name: epoch if name in fresh else self.epochs.get(name, 0) for name in topology.domains}
        rows.update({EPOCH + name: epoch for name in fresh})
        for conn in [conn for conn, link in self.conns.items() if not link.conn]:
            del self.conns[conn]
        for peer in list(self.trouble):
            shared = topology.shared_domain(self.tx.name, peer) if peer in topology.servers else None
            if shared is None or shared.name in fresh:
                del self.trouble[peer]

    def _link_to(self, peer: str) -> tuple[DomainChannel, Link]:
        me = self.tx.name
        domain = self.tx.topology.shared_domain(me, peer)
        if domain is None:
            raise PeerRefused(f"{peer} shares no domain with {me} in revision {self.revision} of the topology {me} has")
        part = self.domains[domain.name]
        return part, part.link(peer)

    def greet(self, peer: str) -> Hello:
        """Our side of the handshake with a neighbour. Who is none is told at which revision we are: he may have been
        one before it, and not have switched yet."""
        self._durable()
        if self.tx.topology.shared_domain(self.tx.name, peer) is None:
            graph = self.tx.topology.graph()
            return Hello(
                self.tx.name, self.incarnation, "", "", 0, graph, self.revision, self.term, 0, 0, 0, 0,
                fenced=self.fenced(peer),
            )  # fmt: skip
        part, link = self._link_to(peer)
        sent, acked, received, limit = link.numbers()
        return Hello(
            server=self.tx.name, incarnation=self.incarnation, domain=part.name, digest=part.domain.digest(),
            epoch=self.epochs[part.name], graph=self.tx.topology.graph(), revision=self.revision, term=self.term,
            sent=sent, acked=acked, received=received, limit=limit, order=_order(part.domain), fenced=self.fenced(peer),
        )  # fmt: skip

    def _durable(self) -> None:
        """Nobody is told of domains that we might forget: he would give up what he has for us in those before."""
        if self.tx.durable_batch < self.since:
            raise NotYet(f"{self.tx.name} is just taking over revision {self.revision}")

    def admit(self, hello: Hello) -> None:
        """Raises PeerRefused, with the remedy, when the peer's order or store does not fit ours."""
        self._durable()
        if hello.term < self._term_of(hello):
            raise NotYet(f"{hello.server} has a newer leader, of term {self._term_of(hello)}")
        if hello.term > MOST_TERM:
            raise PeerRefused(f"{hello.server} says that it leads in term {hello.term}, which nobody reaches")
        moving = self.moving
        if moving is not None and hello.server in moving.inside:
            if hello.revision == moving.number and not moving.switched:
                raise Switched(f"{hello.server} has switched to revision {moving.number}, and {self.tx.name} not yet")
            if hello.revision == moving.number - 1 and moving.switched:
                raise NotYet(f"{self.tx.name} has switched to revision {moving.number}, and {hello.server} not yet")
        part, link = self._link_to(hello.server)
        self.judge(hello, part.name)
        if hello.domain != part.name or hello.digest != part.domain.digest():
            raise PeerRefused(
                f"{hello.server} orders domain {part.name} differently ({_differs(part.domain, hello)}): "
                f"{self._remedy(hello)}"
            )
        if hello.epoch != self.epochs[part.name]:
            if hello.server in self.expected():
                raise PeerRefused(
                    f"{hello.server} has begun by itself, since nobody of its bus was there at its first start: stop "
                    "it, put its data folder aside, and start it again; what it has taken so far is in that store alone"
                )
            raise PeerRefused(
                f"the clocks of domain {part.name} were started anew for some servers only ({hello.server} is at "
                f"epoch {hello.epoch}, we are at {self.epochs[part.name]}): run again what has done that, `mom server "
                "lost` or `mom domain reset`"
            )
        if hello.graph != self.tx.topology.graph() and hello.revision in (0, self.revision):
            raise PeerRefused(
                f"{hello.server} has another graph of domains under the same revision {self.revision} of the topology: "
                f"{self._remedy(hello)}"
            )
        link.admit(hello)

    def _term_of(self, hello: Hello) -> int:
        """The newest one of a leader of this neighbour that we have met."""
        incarnation, term = self.terms.get(hello.server, ("", 0))
        return term if incarnation == hello.incarnation else 0

    def _remedy(self, hello: Hello) -> str:
        """What to do about other domains: revisions that are not the same have come of a change that was cut short."""
        if hello.revision in (0, self.revision):
            return "stop all servers and run `mom topology adopt` with the file that is right"
        mine, its = f"{self.tx.name} is at revision {self.revision}", f"{hello.server} at {hello.revision}"
        return f"{mine} of the topology, {its}: see `mom topology history`, or run `mom topology adopt` again for all"

    def up(self, conn: int, hello: Hello) -> None:
        """A connection is up, since both ends have admitted each other. Raises PeerRefused if ours would not now."""
        self.admit(hello)
        _, link = self._link_to(hello.server)
        if hello.term:
            self.terms[hello.server] = hello.incarnation, hello.term
        self.conns.pop(link.conn, None)
        self.conns[conn] = link
        self.trouble.pop(hello.server, None)
        link.last_seen = self.tx.now
        link.up(conn, hello)

    def down(self, conn: int) -> None:
        """A connection is gone."""
        if conn in self.conns:
            self.conns.pop(conn).down()

    def grant(self) -> None:
        """There is room again: neighbours get credit."""
        for link in self.conns.values():
            link.touch()


def _order(domain: Domain) -> str:
    text = json.dumps([list(domain.members), domain.backend, domain.options], ensure_ascii=False, separators=(",", ":"))
    return text if len(text.encode()) <= MOST_ORDER else ""


def _differs(domain: Domain, hello: Hello) -> str:
    """How a neighbour's order of a domain differs from ours, which it may have told."""
    try:
        members, backend, options = json.loads(hello.order)
        text = reordered(domain, Domain(domain.name, tuple(members), backend, options))
    except (ValueError, TypeError, AttributeError, RecursionError):
        text = ""
    return text if text.isprintable() and text else "members, back end or options"
