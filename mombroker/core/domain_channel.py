"""The part of a channel that serves one domain: its ordering core and links (the MessageConsumer of paper 004 §3)."""

from __future__ import annotations

from collections.abc import Mapping

from mombroker.core.batch import LinkRow
from mombroker.core.errors import PeerError, sentence
from mombroker.core.link import Link, Links
from mombroker.core.message import Message, decode, ident
from mombroker.core.meta import OWN
from mombroker.core.topology import Domain
from mombroker.core.trace import Out
from mombroker.core.transaction import Transaction
from mombroker.ordering.base import Ordering, Packet, Step


class DomainChannel:
    """Stamps what leaves into one domain and orders what comes in from it."""

    __slots__ = (
        "tx", "domain", "name", "members", "me", "core", "links", "touched", "relays", "since", "pending", "mine",
        "returned", "numbers", "awaited", "_all",
    )  # fmt: skip

    def __init__(
        self, tx: Transaction, links: Links, domain: Domain, core: Ordering, rows: list[LinkRow], pending: int = 0
    ):
        self.tx, self._all = tx, links
        self.domain = domain
        self.name = domain.name
        self.members = domain.members
        self.numbers = {member: at for at, member in enumerate(domain.members)}  # in the clocks of the domain
        self.me = self.numbers[tx.name]
        self.core = core
        self.links: dict[str, Link] = {row.peer: Link(links, row, self.numbers[row.peer]) for row in rows}
        self.touched = False  # the core has changed since its rows were last taken
        self.relays = 0  # packets passed on for others
        self.since = tx.now
        self.pending = pending  # own copies that the core has not delivered yet
        self.mine: dict[tuple[str, int], Message] = {}  # these, as far as they were sent by this process
        self.awaited = -1  # the member that what is held waits for
        self.returned: list[Packet] = []  # what the core has addressed to us: to be received in this transaction
        for packet, _ in core.parked():
            packet.note = (0, None, False)  # when it came in is not kept
        for packet, _ in core.held():
            packet.note = (0, None, packet.frm != self.me)
            if packet.frm != self.me:
                self.links[self.members[packet.frm]].held += 1
        self._await(core.awaited)

    def link(self, peer: str) -> Link:
        link = self.links.get(peer)
        if link is None:
            row = LinkRow(self._all.new_id(), self.name, peer, 0, 0, 0, "")
            link = self.links[peer] = Link(self._all, row, self.numbers[peer])
            link.awaited = link.member == self.awaited
        return link

    def same(self, domain: Domain) -> bool:
        """Would its clocks be read alike?"""
        return domain.digest() == self.domain.digest()

    def open(self, unused: Ordering, incarnations: Mapping[str, str]) -> None:
        """The domain is new: meet those that we send to, whose stores may be known. A core that nobody uses for
        anything else tells who they are."""
        others = [at for at in range(len(self.members)) if at != self.me]
        packets = unused.send(others, b"") if others else []
        for to in dict.fromkeys(packet.to for packet in packets if packet.to != self.me):
            peer = self.members[to]
            link = self.link(peer)
            link.incarnation, link.changed = incarnations.get(peer, ""), True
            link.touch()
            self._all.meet.append(peer)

    def end(self) -> None:
        """The domain is no more, or starts anew: its rows go."""
        rows = self.tx.rows
        rows.ended.add(self.name)
        rows.core = {place: blob for place, blob in rows.core.items() if place[0] != self.name}
        rows.meta[OWN + self.name] = None
        for link in self.links.values():
            self._all.end(link)

    def send(self, hops: list[str], body: bytes, out: Out) -> None:
        """One multicast of this domain's clock to the members `hops`."""
        numbers = self.numbers
        self.touched = True
        self.enqueue(self.core.send([numbers[hop] for hop in hops], body), out)

    def send_own(self, hops: list[str], message: Message, out: Out) -> None:
        """The same, and a copy for ourselves, which the core delivers."""
        numbers = self.numbers
        self.mine[message.origin, message.number] = message
        self._count(1)
        self.touched = True
        self.enqueue(self.core.send([*(numbers[hop] for hop in hops), self.me], message.encode()), out)

    def own_copy(self, packet: Packet) -> Message | None:
        """The message of a copy of our own that the core delivers, if it is one of this process."""
        self._count(-1)
        return self.mine.pop(ident(packet.body), None)

    def own_left(self) -> list[Message]:
        """The messages whose own copies the core has not delivered, as far as they are known here, in their order."""
        held = [packet.body for packet, _ in self.core.held() if packet.frm == self.me]
        return [*(decode(body) for body in held if ident(body) not in self.mine), *self.mine.values()]

    def _count(self, more: int) -> None:
        self.pending += more
        assert self.pending >= 0, "more own copies are delivered than were sent"
        self.tx.rows.meta[OWN + self.name] = self.pending or None

    def enqueue(self, packets: list[Packet], out: Out) -> None:
        core, members, links = self.core, self.members, self.links
        if core.own:
            self.returned += [packet for packet in packets if packet.to == self.me]
            packets = [packet for packet in packets if packet.to != self.me]
        for packet in packets:
            ints, data = core.control_ints(packet), core.encode(packet)
            peer = members[packet.to]
            (links.get(peer) or self.link(peer)).enqueue(data)
            out.append((self.name, peer, len(data) - len(packet.body), ints))

    def decode(self, link: Link, data: bytes) -> Packet:
        """Raises PeerError, whatever a back end stumbles over, which may be an outsider's."""
        try:
            packet = self.core.decode(link.member, data)
        except Exception as error:
            raise self._unusable(link, error) from None
        packet.frm = link.member
        return packet

    def receive(self, link: Link, packet: Packet) -> Step:
        """`note` of a packet: when it came, its message if that is decoded, whether it counts as held. Raises PeerError
        for a packet that an honest neighbour would not send now; nothing has changed then."""
        self.touched = True
        try:
            step = self.core.receive(link.member, packet)
        except AssertionError:  # not the peer's fault
            raise
        except Exception as error:
            raise self._unusable(link, error) from None
        for done in step.deliver:
            if done.note[2]:
                self.links[self.members[done.frm]].hold(-1)
        for freed in step.freed:
            freed.note = (freed.note[0], freed.note[1], False)
            self.links[self.members[freed.frm]].hold(-1)
        return step

    def _unusable(self, link: Link, error: Exception) -> PeerError:
        return PeerError(f"{link.peer} sent a packet in {self.name} that cannot be used: {sentence(error)}")

    def _await(self, member: int) -> None:
        """That member's next packets are taken, however many of it are held: these may wait for them."""
        self.awaited = member
        for link in self.links.values():
            link.awaited = link.member == member
            if link.awaited and link.held >= self.tx.limits.max_held:
                link.touch()

    def rows(self) -> None:
        """Put the core's changed rows into the open batch."""
        if self.touched:
            self.touched = False
            if self.core.awaited != self.awaited:
                self._await(self.core.awaited)
            put, gone = self.core.dirty()
            rows = self.tx.rows.core
            for (kind, key), blob in put.items():
                rows[self.name, kind, key] = blob
            for kind, key in gone:
                rows[self.name, kind, key] = None
