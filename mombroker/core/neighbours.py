"""Neighbours: who is connected to us, and the handshake that lets two servers' stores meet (protocols §0.5)."""

from __future__ import annotations

from collections.abc import Mapping, Set

from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import PeerRefused
from mombroker.core.hello import Hello
from mombroker.core.link import Link
from mombroker.core.meta import EPOCH, INCARNATION
from mombroker.core.topology import Topology
from mombroker.core.transaction import Transaction


class Neighbours:
    """domains    by name: the parts of the channel that serve one domain
    epochs     domain -> epoch of its clocks
    conns      connections that are up, by number
    trouble    peer -> why its link is refused; set by the driver
    """

    __slots__ = ("tx", "domains", "incarnation", "epochs", "conns", "trouble")

    def __init__(self, tx: Transaction, meta: Mapping[str, str | int], domains: Mapping[str, DomainChannel]):
        self.tx, self.domains = tx, domains
        self.incarnation = str(meta.get(INCARNATION, ""))
        self.epochs = {name: int(meta.get(EPOCH + name, 0)) for name in tx.topology.domains}
        self.conns: dict[int, Link] = {}
        self.trouble: dict[str, str] = {}

    @property
    def topology(self) -> Topology:
        """The one that we work under."""
        return self.tx.topology

    def install(self, fresh: Set[str], epoch: int) -> None:
        """The topology is another one, and the domains `fresh` have new clocks, under `epoch`."""
        rows, topology = self.tx.rows.meta, self.tx.topology
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
            raise PeerRefused(f"{peer} shares no domain with {me}; check that both use the same topology file")
        part = self.domains[domain.name]
        return part, part.link(peer)

    def greet(self, peer: str) -> Hello:
        """Our side of the handshake with a neighbour."""
        part, link = self._link_to(peer)
        sent, acked, received, limit = link.numbers()
        return Hello(
            server=self.tx.name, incarnation=self.incarnation, domain=part.name, digest=part.domain.digest(),
            epoch=self.epochs[part.name], graph=self.tx.topology.graph(), revision=0, term=0,
            sent=sent, acked=acked, received=received, limit=limit,
        )  # fmt: skip

    def admit(self, hello: Hello) -> None:
        """Raises PeerRefused, with the remedy, when the peer's order or store does not fit ours."""
        part, link = self._link_to(hello.server)
        if hello.domain != part.name or hello.digest != part.domain.digest():
            raise PeerRefused(
                f"{hello.server} orders domain {part.name} differently (members, back end or options): give both "
                f"servers the same topology file"
            )
        if hello.epoch != self.epochs[part.name]:
            raise PeerRefused(
                f"the clocks of domain {part.name} were started anew for some servers only ({hello.server} is at "
                f"epoch {hello.epoch}, we are at {self.epochs[part.name]}): run `mom domain reset` again for all"
            )
        if hello.graph != self.tx.topology.graph():
            raise PeerRefused(f"{hello.server} has another graph of domains: give both servers the same topology file")
        link.admit(hello)

    def up(self, conn: int, hello: Hello) -> None:
        """A connection is up, since both ends have admitted each other. Raises PeerRefused if ours would not now."""
        self.admit(hello)
        _, link = self._link_to(hello.server)
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
