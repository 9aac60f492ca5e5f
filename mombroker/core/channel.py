"""The Channel: causal, exactly-once transport between agent servers over one DomainChannel per domain.

Delivery in one domain and the stamping of every forward into the next ones are one step of one transaction, in
delivery order (protocols §8.2; paper 004 §4.2).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import MomError, PeerError
from mombroker.core.events import LinkFrame
from mombroker.core.link import Link
from mombroker.core.message import Message, decode, ident
from mombroker.core.trace import NO_OUT, Out
from mombroker.ordering.base import Packet

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer

MAX_MISSING = 64  # pairs named in a hold record


class Channel:
    __slots__ = ("server", "consumers", "routes", "forwarded", "received", "holds", "owning")

    def __init__(self, server: AgentServer, consumers: dict[str, DomainChannel]):
        self.server = server
        self.consumers = consumers
        self.routes = server.routes
        self.forwarded = self.received = self.holds = 0
        self.owning = [consumer for consumer in consumers.values() if consumer.core.own]

    def send(self, message: Message, domain: str = "") -> tuple[list[str], Out]:
        """Stamp `message` for all its remote agents that are beyond us, seen from `domain` (empty: all of them).

        Returns the local agents whose copies are to be handed over now, and what was stamped. All packets that leave
        in one domain are one multicast.
        """
        me, hop = self.server.name, self.routes.hop
        if len(message.dests) == 1:  # the common case, without tables
            agent = message.dests[0]
            home = agent[: agent.index("/")]
            stamped: Out = []
            if home == me:
                if self.owning and (consumer := self._orders_own(message, {}, domain)):
                    consumer.send_own([], message, stamped)
                    return [], stamped
                return [agent], NO_OUT
            into, peer = hop(home)
            if into != domain:
                self.consumers[into].send([peer], message.encode(), stamped)
            return [], stamped
        local: list[str] = []
        leaving: dict[str, dict[str, None]] = {}
        for agent in message.dests:
            home = agent[: agent.index("/")]
            if home == me:
                local.append(agent)
            else:
                into, peer = hop(home)
                if into != domain:
                    leaving.setdefault(into, {})[peer] = None
        out: Out = []
        own = self._orders_own(message, leaving, domain) if local and self.owning else None
        for into, peers in leaving.items():
            if own is None or own.name != into:
                self.consumers[into].send(list(peers), message.encode(), out)
        if own is not None:
            own.send_own(list(leaving.get(own.name, ())), message, out)
            local = []
        return local, out

    def _orders_own(self, message: Message, leaving: Container[str], domain: str) -> DomainChannel | None:
        """Whose core delivers our own copy; None: it is handed over now.

        One through which the message leaves; else one with copies of ours on their way, which it must not overtake.
        What tables are made of is applied at once: nobody reads these in an order, and what is sent later needs them.
        """
        if message.type in self.server.at_once:
            return None
        ways = [consumer for consumer in self.owning if consumer.name != domain]
        for consumer in ways:
            if consumer.name in leaving:
                return consumer
        return next((consumer for consumer in ways if consumer.pending), None)

    def come_back(self) -> None:
        """What cores have addressed to ourselves, in the send that has just been made."""
        for consumer in self.owning:
            while consumer.returned:
                packet = consumer.returned.pop(0)
                packet.note = (self.server.now, None, False)
                packet.frm = consumer.me
                step = consumer.core.receive(consumer.me, packet)
                consumer.enqueue(step.send, [])
                assert packet in step.deliver, "what a core has addressed to its own member it takes at once"
                for done in step.deliver:
                    self._deliver(consumer, done)

    def receive(self, peer: str, frames: list[LinkFrame]) -> None:
        """Frames from a neighbour, in order."""
        for kind, domain, number, value in frames:
            consumer = self.consumers.get(domain)
            if consumer is None or peer not in consumer.domain:
                raise PeerError(f"{peer} speaks of domain {domain}, which is not one of both of us")
            link = consumer.link(peer)
            if kind == "data":
                for data in link.fresh(number, value):
                    self._packet(consumer, link, data)
            elif kind == "ack":
                link.acknowledged(number, value)
            else:
                raise PeerError(f"{peer} sent a frame of kind {kind!r}")

    def _packet(self, consumer: DomainChannel, link: Link, data: bytes) -> None:
        server = self.server
        packet = consumer.decode(link, data)  # all that can be wrong with its bytes is found before anything changes
        message = None
        try:
            if packet.body or consumer.me in packet.dests:
                message = decode(packet.body)
                self._check(link, message)
        except MomError as error:
            raise PeerError(f"{link.peer} sent a packet in {consumer.name} that cannot be used: {error}") from None
        packet.note = (server.now, message, False)
        step = consumer.receive(link, packet)
        link.took()
        self.received += 1
        if step.send:
            self._relay(consumer, link, step.send)
        waits = True
        for done in step.deliver:
            waits = waits and done is not packet
            self._deliver(consumer, done)
        if waits:
            self._hold(consumer, link, packet)

    def _check(self, link: Link, message: Message) -> None:
        """Raises MomError for agents on no server of this bus, and for what this neighbour should not have sent. What
        is wrong with a message of another server is a dead letter at its delivery: the neighbour cannot help it."""
        server, mine = self.server, False
        for agent in message.dests:
            home = agent[: agent.index("/")]
            if home == server.name:
                mine = True
            elif home not in server.distances:
                server.distance(home)
        if mine and message.origin == link.peer and (reader := server.readers.get(message.type)):
            reader(message)

    def _relay(self, consumer: DomainChannel, link: Link, packets: list[Packet]) -> None:
        """What the core passes on, one record per message; those without a body are its own acknowledgements."""
        out: Out = []
        consumer.enqueue(packets, out)
        runs: list[tuple[bytes, Out]] = []
        for packet, stamped in zip(packets, out, strict=True):
            if packet.body:
                consumer.relays += 1
            if not runs or runs[-1][0] is not packet.body:
                runs.append((packet.body, []))
            runs[-1][1].append(stamped)
        tx = self.server.tx
        for body, stamps in runs:
            origin, number = ident(body) if body else ("", 0)
            tx.record(
                "relay", origin=origin, number=number, domain=consumer.name, peer=link.peer, received=tx.now,
                done=tx.now, out=stamps,
            )  # fmt: skip

    def _hold(self, consumer: DomainChannel, link: Link, packet: Packet) -> None:
        missing = consumer.core.missing(packet)
        if missing is None:
            return  # it was passed on, or is a duplicate
        link.hold(1)
        self.holds += 1
        received, message, _ = packet.note
        packet.note = (received, message, True)
        tx = self.server.tx
        tx.record(
            "hold", origin=message.origin, number=message.number, payload=message.size, domain=consumer.name,
            peer=link.peer, sent=message.sent, received=tx.now, missing=missing[:MAX_MISSING],
        )  # fmt: skip

    def _deliver(self, consumer: DomainChannel, packet: Packet) -> None:
        """One packet in delivery order: forward, and hand our agents' copies to the engine, in this transaction."""
        server = self.server
        received, message, _ = packet.note
        if packet.origin == consumer.me:
            self._deliver_own(consumer, packet, received)
            return
        try:
            message = message or decode(packet.body)
        except PeerError as error:  # it was held before this was checked
            server.dead_letters.unreadable(packet.body, "", error)
            return
        peer = consumer.members[packet.frm]
        expires = message.expires and server.by_our_clock(message.expires, message)
        if expires and expires <= server.now:  # a tombstone need not go further
            server.dead_letters.expired(message, consumer.name, peer, received)
            return
        local, out = self.send(message, consumer.name)
        if out:
            self.forwarded += 1
            server.tx.record(
                "forward", origin=message.origin, number=message.number, payload=message.size, domain=consumer.name,
                peer=peer, hops=server.hops(message.origin), sent=message.sent, received=received,
                delivered=server.now, done=server.now, out=out,
            )  # fmt: skip
        if local:
            server.engine.deliver(message, local, consumer.name, peer, received)
        if self.owning:
            self.come_back()

    def _deliver_own(self, consumer: DomainChannel, packet: Packet, received: int) -> None:
        """A copy of our own, in its turn; its forwards were stamped when it was sent."""
        message = consumer.own_copy(packet) or decode(packet.body)
        me, peer = self.server.name, consumer.members[packet.frm]
        local = [agent for agent in message.dests if agent[: agent.index("/")] == me]
        self.server.engine.deliver(message, local, consumer.name, peer, received)
