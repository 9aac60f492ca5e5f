"""The Channel: causal, exactly-once transport between agent servers over one DomainChannel per domain.

Delivery in one domain and the stamping of every forward into the next ones are one step of one transaction, in
delivery order (protocols §8.2; paper 004 §4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mombroker import ordering
from mombroker.core import trace
from mombroker.core.clock import Clock
from mombroker.core.compiling import mypyc_attr
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.errors import MomError, NoRoute, PeerError, StoreError, sentence
from mombroker.core.events import LinkFrame, Ready
from mombroker.core.gate import Gate
from mombroker.core.ids import home_of
from mombroker.core.link import Link, Links
from mombroker.core.message import BOUNCE, Message, Note, addressed, decode, ident
from mombroker.core.meta import EPOCH, OWN
from mombroker.core.neighbours import Neighbours
from mombroker.core.revision import resets
from mombroker.core.topology import Domain, RoutingTable, Topology
from mombroker.core.trace import NO_OUT, Out
from mombroker.core.transaction import COMMIT, LINGER, Transaction
from mombroker.ordering.base import Ordering, Packet, Rows

SENT = ("kind", "origin", "number", "agent", "dests", "payload", "sent", "done", "out", "detail")
TAKEN = (
    "kind", "origin", "number", "agent", "payload", "domain", "peer", "hops", "sent", "received", "delivered", "done",
    "detail",
)  # fmt: skip
MAX_MISSING = 64  # pairs named in a hold record


class Engine(Protocol):
    """Takes what the channel delivers."""

    reactions: int

    def deliver(
        self, message: Message, agents: list[str], domain: str = "", peer: str = "", received: int = 0
    ) -> None: ...
    def idle(self, agent: str) -> bool: ...  # nothing waits for it, no reaction is under way
    def all_idle(self, agents: Iterable[str]) -> bool: ...
    def react_now(self, native: Any, message: Message) -> None: ...  # of an idle native agent


class DeadLetters(Protocol):
    """Takes what the channel cannot deliver."""

    def homeless(self, message: Message, agent: str) -> None: ...
    def undeliverable(self, message: Message, agent: str, reason: str) -> bool: ...
    def expired(self, message: Message, domain: str, peer: str, received: int) -> None: ...
    def unreadable(self, data: bytes, agent: str, error: MomError) -> None: ...


class Native(Protocol):
    """One of the broker's own agents."""

    id: str


@mypyc_attr(allow_interpreted_subclasses=True)
class Channel:
    """1. A message is stamped once in each domain, in the transaction that sends or delivers it.
    2. What a neighbour says is checked before anything changes.

    readers    message type -> what reads its payload; raises UnknownNotification
    at_once    types that are applied where they are sent before anything else happens
    gate       what waits before domains that are being changed
    heard      called with what members tell of the loss of another one
    domains    by name: the parts that serve one domain
    neighbours   who is connected to us
    owning     the parts whose cores deliver our own copies
    moved      agents that live elsewhere than their ids say; see Homes
    """

    __slots__ = (
        "tx", "clock", "readers", "at_once", "gate", "routes", "domains", "links", "neighbours", "conns", "owning",
        "moved", "heard", "sent", "received", "forwarded", "holds", "engine", "dead_letters", "_delivering",
        "_distances", "_hops", "_left", "_taken", "_logs", "_notes",
    )  # fmt: skip

    engine: Engine
    dead_letters: DeadLetters
    heard: Callable[[str, str, int, object], None]

    def __init__(
        self,
        tx: Transaction,
        clock: Clock,
        meta: Mapping[str, str | int],
        readers: Mapping[str, Callable[[Message], object]],
        at_once: Container[str],
        gate: Gate,
    ):
        self.tx, self.clock, self.readers, self.at_once, self.gate = tx, clock, readers, at_once, gate
        topology, reader = tx.topology, tx.reader
        self.routes = RoutingTable(topology, tx.name)
        self._distances: dict[str, int] = {}
        self._hops: dict[str, tuple[str, str]] = {}  # final server -> domain and next server
        rows = reader.links()
        self.links = Links(tx, meta, rows)
        self.domains: dict[str, DomainChannel] = {}
        for domain in topology.domains_of(tx.name):
            core = self.core(domain, reader.core(domain.name), int(meta.get(EPOCH + domain.name, 0)))
            mine = [row for row in rows if row.domain == domain.name and row.peer in domain]
            pending = int(meta.get(OWN + domain.name, 0))
            self.domains[domain.name] = DomainChannel(tx, self.links, domain, core, mine, pending)
        self.owning = self._owning()
        self._delivering = False  # what comes back meanwhile has its turn after that
        self.moved: Mapping[str, str] = {}
        self.neighbours = Neighbours(tx, meta, self.domains)
        self.conns = self.neighbours.conns
        self.sent = self.received = self.forwarded = self.holds = 0
        self._left, self._taken = trace.recorder(tx, *SENT), trace.recorder(tx, *TAKEN)
        self._logs = bool(topology.log.get("enabled", True))
        self._notes = trace.Notes(tx.name, 0)  # which go on as long as they are the last in the log

    def core(self, domain: Domain, rows: Rows, epoch: int) -> Ordering:
        """The ordering core of a domain, from its rows; without rows one that begins under this epoch. Raises
        StoreError for other rows."""
        me, times = self.tx.name, resets(epoch)
        options = ordering.resolved(domain.backend, domain.members, domain.options, times)
        try:
            return ordering.restore(domain.backend, domain.index(me), len(domain.members), rows, **options)
        except Exception as error:  # whatever a back end stumbles over, which may be an outsider's
            if not rows:
                raise
            raise StoreError(
                f"the {domain.backend} clock of domain {domain.name} in the store of {me} cannot be read "
                f"({sentence(error)}); restore the store from a backup, or run `mom domain reset` for this server"
            ) from error

    def refusal(self, domain: Domain) -> str:
        """Why we cannot order a new domain; empty if we can."""
        try:
            if faults := ordering.backend(domain.backend).validate(domain.members, domain.options):
                return f"domain {domain.name} cannot be ordered by {domain.backend}: {'; '.join(faults)}"
            self.core(domain, {}, 0)
        except Exception as error:  # as above
            return f"domain {domain.name} cannot be ordered by {domain.backend} ({sentence(error)})"
        return ""

    def _owning(self) -> list[DomainChannel]:
        return [part for part in self.domains.values() if part.core.own]

    def install(self, topology: Topology, anew: Container[str], epoch: int, lost: Container[str] = ()) -> None:
        """Take over other domains and routes in the open batch.

        A domain of ours goes on as it is if the topology has it with the same order, and it is not in `anew`; any other
        ends with all that is left of it. What is new begins with new clocks and links, under `epoch`, and its members
        are met at once. Of those that are `lost` another store may come.
        """
        tx, parts, incarnations = self.tx, dict(self.domains), dict[str, str]()
        fresh: list[DomainChannel] = []
        tx.topology, self.routes = topology, RoutingTable(topology, tx.name)
        self._distances.clear()
        self._hops.clear()
        wanted = topology.domains_of(tx.name)
        stays = {d.name for d in wanted if d.name in parts and d.name not in anew and parts[d.name].same(d)}
        for part in parts.values():
            if part.name not in stays:
                incarnations |= {link.peer: link.incarnation for link in part.links.values() if link.peer not in lost}
                part.end()
        self.domains.clear()
        for domain in wanted:
            if domain.name in stays:
                self.domains[domain.name] = parts[domain.name]
            else:
                part = DomainChannel(tx, self.links, domain, self.core(domain, {}, epoch), [])
                part.touched = True
                self.domains[domain.name] = part
                fresh.append(part)
        self.owning = self._owning()
        self.neighbours.install({part.name for part in fresh}, epoch)
        for part in fresh:
            part.open(self.core(part.domain, {}, epoch), incarnations)

    def meet(self) -> None:
        """Connect to all neighbours that we send to, though there is nothing for them."""
        for part in self.domains.values():
            part.open(self.core(part.domain, {}, 0), {link.peer: link.incarnation for link in part.links.values()})

    def recover(self) -> None:
        """What neighbours lack is to be sent."""
        for part in self.domains.values():
            for link in part.links.values():
                if link.waiting():
                    link.touch()

    def distance(self, server: str) -> int:
        """Links between us and another server. Raises MomError for one that is not on this bus."""
        found = self._distances.get(server)
        if found is None:
            found = self._distances[server] = self.routes.distance(server)
        return found

    def hops(self, origin: str) -> int:
        """Links that a message from `origin` has come over; 0 if that server has left the bus."""
        found = self._distances.get(origin)
        if found is None:
            found = self.distance(origin) if origin in self.tx.topology.servers else 0
        return found

    def record(
        self, kind: str, message: Message, agent: str, domain: str = "", peer: str = "", received: int = 0,
        delivered: int = 0, detail: str = "",
    ) -> None:  # fmt: skip
        """Log what became of a message at one of our agents."""
        if self._logs:
            now, origin = self.tx.now, message.origin
            self._taken(
                kind, origin, message.number, agent, message.size, domain, peer, self.hops(origin), message.sent,
                received, delivered or now, now, detail,
            )  # fmt: skip

    # -- sending -----------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """The send event: stamp the remote copies, hand the local ones over. A destination without a route is no error:
        what becomes of its copy is settled here."""
        self.sent += 1
        if self.moved:
            message = addressed(message, self.moved)
        try:
            local, out = self._stamp(message)
        except NoRoute:  # before anything has changed
            self._send_what_has_a_route(message)
            return
        self._sent(message, out)
        if local:
            self.engine.deliver(message, local, received=self.tx.now)
        if self.owning:
            self._come_back()

    def _sent(self, message: Message, out: Out) -> None:
        tx = self.tx
        if self._logs:
            self._left(
                "send", message.origin, message.number, message.source, message.dests, message.size, message.sent,
                tx.now, out, message.type,
            )  # fmt: skip
        later = message.note is not None and not out  # what destinations do among themselves may linger
        tx.urgency = tx.urgency or LINGER if later else COMMIT

    def _send_what_has_a_route(self, message: Message) -> None:
        """Some of its agents live on no server of this bus: their copies end here, the others go on."""
        rest = self._at_home(message)
        local, out = self._stamp(rest) if rest.dests else ([], NO_OUT)
        self._sent(message, out)
        if local:
            self.engine.deliver(rest, local, received=self.tx.now)
        self._come_back()
        self._bury_homeless(message)

    def _at_home(self, message: Message) -> Message:
        """A message with those of its agents that live on this bus."""
        servers = self.tx.topology.servers
        return replace(message, dests=tuple(agent for agent in message.dests if home_of(agent) in servers), data=b"")

    def _bury_homeless(self, message: Message) -> None:
        for agent in message.dests:
            if home_of(agent) not in self.tx.topology.servers:
                self.dead_letters.homeless(message, agent)

    def post(self, source: str, to: str, note: Note) -> None:
        """Send a note to an agent; a failure is not told."""
        self.send(self._note(source, (to,), note))

    def cast(self, source: str, to: tuple[str, ...], note: Note) -> None:
        """Send one note to several agents."""
        self.send(self._note(source, to, note))

    def _note(self, source: str, to: tuple[str, ...], note: Note) -> Message:
        """A message that carries a note of a destination or session."""
        tx = self.tx
        return Message(tx.name, tx.new_id(), source, to, note.wire, b"", tx.now, 0, BOUNCE, b"", note, note.size)

    def send_now(self, source: str, native: Native, note: Note) -> None:
        """Send a note to one of our own native agents, which takes it at once if nothing is in its way.

        Not to be called while another one is at work, which might not expect that this one changes.
        """
        tx, agent, engine = self.tx, native.id, self.engine
        now, number, size, kind = tx.now, tx.new_id(), note.size, note.wire
        message = Message(tx.name, number, source, (agent,), kind, b"", now, 0, BOUNCE, b"", note, size)
        if self.gate.own or (self.owning and self._own_wait()) or not engine.idle(agent):
            self.send(message)
            return
        self.sent += 1
        tx.urgency = tx.urgency or LINGER
        if self._logs:
            log, told = tx.rows.log, self._notes
            if not log or log[-1] is not told or told.now != now:
                told = self._notes = trace.Notes(tx.name, now)
                log.append(told)
            told.told.append((number, source, agent, kind, size))
        engine.react_now(native, message)

    def _own_wait(self) -> bool:
        """Copies for agents of ours are on their way, which others must not overtake."""
        return bool(self.gate.own) or (bool(self.owning) and any(part.pending for part in self.owning))

    def sent_here(self, source: str, agent: str, type: str, sizes: list[int], ids: int = 1) -> list[int] | None:
        """The numbers of messages that somebody has sent to one of our own agents, where the caller does with them what
        is done at their delivery, and logs nothing at that. None: something is in their way, and nothing was done.

        With `ids` each gets so many, of which the first is its number."""
        if self._own_wait():
            return None
        tx = self.tx
        given = [tx.new_id() for _ in range(ids * len(sizes))]
        self.sent += len(sizes)
        tx.urgency = tx.urgency or LINGER
        if self._logs:
            numbers = given if ids == 1 else given[::ids]
            tx.rows.log.append(trace.Run(tx.name, tx.now, source, agent, type, numbers, sizes))
        return given

    def run_now(self, source: str, native: Native, type: str, sizes: list[int]) -> list[int] | None:
        """Of messages that one of our own native agents takes in one piece, as so many reactions: number and another id
        of each. None: something is in their way, or the batch has no room for all, and nothing was done."""
        engine, rows = self.engine, self.tx.rows
        if rows.bytes + sum(sizes) > self.tx.limits.batch_bytes or not engine.idle(native.id):
            return None
        ids = self.sent_here(source, native.id, type, sizes, 2)
        if ids is not None:
            engine.reactions += len(sizes)
        return ids

    def round_now(
        self, sources: Sequence[str], agents: Sequence[str], type: str, sizes: Sequence[int], ids: int = 1
    ) -> list[int] | None:
        """As `run_now` of messages of which each has its own source and agent; `ids` of each."""
        tx = self.tx
        if self._own_wait() or tx.rows.bytes + sum(sizes) >= tx.limits.batch_bytes or not self.engine.all_idle(agents):
            return None
        given = [tx.new_id() for _ in range(ids * len(sizes))]
        self.sent += len(sizes)
        self.engine.reactions += len(sizes)
        tx.urgency = tx.urgency or LINGER
        if self._logs:
            numbers = given if ids == 1 else given[::ids]
            tx.rows.log.append(trace.Round(tx.name, tx.now, sources, agents, type, numbers, sizes))
        return given

    def _stamp(self, message: Message, domain: str = "") -> tuple[list[str], Out]:
        """Stamp `message` for all its remote agents that are beyond us, seen from `domain` (empty: all of them).

        Returns the local agents whose copies are to be handed over now, and what was stamped. All packets that leave
        in one domain are one multicast.
        """
        me, hops = self.tx.name, self._hops
        if self.gate.behind and (domain not in self.gate.behind or self.gate.several):
            return self._stamp_before_gate(message, domain)
        if len(message.dests) == 1:  # the common case, without tables
            agent = message.dests[0]
            home = agent[: agent.index("/")]
            stamped: Out = []
            if home == me:
                if self.owning and (part := self._orders_own(message, {}, domain)):
                    part.send_own([], message, stamped)
                    return [], stamped
                return [agent], NO_OUT
            into, peer = hops.get(home) or self._hop(home)
            if into != domain:
                self.domains[into].send([peer], message.encode(), stamped)
            return [], stamped
        local, leaving = self._ways(message.dests, domain)
        return self._stamp_ways(message, local, leaving, domain)

    def _ways(self, agents: Iterable[str], domain: str) -> tuple[list[str], dict[str, dict[str, None]]]:
        """Which of these agents are local, and the neighbours, by domain, behind which the others are."""
        me, hops = self.tx.name, self._hops
        local: list[str] = []
        leaving: dict[str, dict[str, None]] = {}
        for agent in agents:
            home = agent[: agent.index("/")]
            if home == me:
                local.append(agent)
            else:
                into, peer = hops.get(home) or self._hop(home)
                if into != domain:
                    leaving.setdefault(into, {})[peer] = None
        return local, leaving

    def _stamp_ways(
        self, message: Message, local: list[str], leaving: dict[str, dict[str, None]], domain: str
    ) -> tuple[list[str], Out]:
        out: Out = []
        own = self._orders_own(message, leaving, domain) if local and self.owning else None
        for into, peers in leaving.items():
            if own is None or own.name != into:
                self.domains[into].send(list(peers), message.encode(), out)
        if own is not None:
            own.send_own(list(leaving.get(own.name, ())), message, out)
            local = []
        return local, out

    # -- at the gate -----------------------------------------------------------------------------------------------

    def _stamp_before_gate(self, message: Message, domain: str) -> tuple[list[str], Out]:
        """The same for what comes from outside of the domains that the gate is before: what is to enter one of these
        waits, in one entry. So does our own copy, if one of these is to order it, or others of ours wait already."""
        gate = self.gate
        local, leaving = self._ways(message.dests, domain)
        waits = [agent for agent in message.dests if self._enters(agent, domain)]
        if local and message.type not in self.at_once:
            own = self._orders_own(message, leaving, domain) if self.owning else None
            if gate.own or (own is not None and own.name in gate.behind):
                waits += local
                local = []
        if waits:
            gate.put(message, waits)
        rest = {into: peers for into, peers in leaving.items() if not gate.before(into, domain)}
        return self._stamp_ways(message, local, rest, domain)

    def _enters(self, agent: str, domain: str) -> bool:
        """Does the way to an agent lead from this domain into one that the gate is before?"""
        home = agent[: agent.index("/")]
        into = "" if home == self.tx.name else self._hops[home][0]
        return into != domain and self.gate.before(into, domain)

    def drain(self) -> bool:
        """Let in what waits at the gate, as much as the batch has room for. True if that was all."""
        gate = self.gate
        for id, data, agents in gate.entries():
            if self.tx.filled():
                return False
            gate.take(id, agents)
            try:
                message = decode(data)
            except PeerError as error:
                self.dead_letters.unreadable(data, agents[0], error)
            else:
                self._let_in(message, agents)
        return True

    def _let_in(self, message: Message, agents: list[str]) -> None:
        """Stamp a message now for those of its agents whose copies have waited."""
        tx, origin = self.tx, message.origin
        homeless = [agent for agent in agents if home_of(agent) not in tx.topology.servers]
        if homeless:
            agents = [agent for agent in agents if agent not in homeless]
            message = replace(message, dests=tuple(d for d in message.dests if d not in homeless), data=b"")
        local, leaving = self._ways(agents, "")
        local, out = self._stamp_ways(message, local, leaving, "")
        tx.record(
            "forward", origin=origin, number=message.number, payload=message.size, hops=self.hops(origin),
            sent=message.sent, done=tx.now, out=out, detail="let in",
        )  # fmt: skip
        if local:
            self._hand_over(message, local)
        if self.owning:
            self._come_back()
        for agent in homeless:
            self.dead_letters.homeless(message, agent)

    def _hand_over(self, message: Message, agents: list[str]) -> None:
        """Copies of our own which another back end was to order, when we sent them."""
        self.engine.deliver(message, agents, received=self.tx.now)

    def _hop(self, home: str) -> tuple[str, str]:
        found = self._hops[home] = self.routes.hop(home)
        return found

    def _orders_own(self, message: Message, leaving: Container[str], domain: str) -> DomainChannel | None:
        """Whose core delivers our own copy; None: it is handed over now.

        One through which the message leaves; else one with copies of ours on their way, which it must not overtake.
        What tables are made of is applied at once: nobody reads these in an order, and what is sent later needs them.
        """
        if message.type in self.at_once:
            return None
        ways = [part for part in self.owning if part.name != domain]
        for part in ways:
            if part.name in leaving:
                return part
        return next((part for part in ways if part.pending), None)

    def _come_back(self) -> None:
        """What cores have addressed to ourselves, in the sends that have just been made."""
        if self._delivering:
            return
        self._delivering = True
        while part := next((each for each in self.owning if each.returned), None):
            packet = part.returned.pop(0)
            packet.note = (self.tx.now, None, False)
            packet.frm = part.me
            step = part.core.receive(part.me, packet)
            part.enqueue(step.send, [])
            for done in step.deliver:
                self._deliver(part, done)
        self._delivering = False

    # -- receiving ---------------------------------------------------------------------------------------------

    def receive(self, peer: str, conn: int, frames: list[LinkFrame]) -> None:
        """Frames from a neighbour, in order; those of a connection that is gone are dropped."""
        if (link := self.conns.get(conn)) is None:
            return
        link.last_seen = self.tx.now
        for kind, domain, number, value in frames:
            part = self.domains.get(domain)
            if part is None or peer not in part.members:
                raise PeerError(f"{peer} speaks of domain {domain}, which is not one of both of us")
            link = part.links.get(peer) or part.link(peer)
            if kind == "data":
                for data in link.fresh(number, value):
                    self._packet(part, link, data)
            elif kind == "ack":
                link.acknowledged(number, value)
            elif kind == "loss":
                self.heard(peer, domain, number, value)
            else:
                raise PeerError(f"{peer} sent a frame of kind {kind!r}")

    def _packet(self, part: DomainChannel, link: Link, data: bytes) -> None:
        packet = part.decode(link, data)  # all that can be wrong with its bytes is found before anything changes
        message = None
        try:
            if packet.body or part.me in packet.dests:
                message = decode(packet.body)
                self._check(link, message)
        except MomError as error:
            raise PeerError(f"{link.peer} sent a packet in {part.name} that cannot be used: {error}") from None
        packet.note = (self.tx.now, message, False)
        step = part.receive(link, packet)
        link.took()
        self.received += 1
        if step.send:
            self._relay(part, link.peer, step.send)
        waits = True
        self._delivering = bool(self.owning)
        for done in step.deliver:
            waits = waits and done is not packet
            self._deliver(part, done)
        if waits:
            self._hold(part, link, packet)
        if self._delivering:
            self._delivering = False
            self._come_back()
            if part.core.due:
                self.tx.urgency = COMMIT

    def _check(self, link: Link, message: Message) -> None:
        """Raises MomError for what this neighbour should not have sent. What is wrong with a message of another server
        is a dead letter at its delivery: the neighbour cannot help it. So is a copy for a server that is not on this
        bus: before its delivery we may lack the revision that has brought that."""
        reader = self.readers.get(message.type) if message.origin == link.peer else None
        if reader and any(agent[: agent.index("/")] == self.tx.name for agent in message.dests):
            reader(message)

    def _relay(self, part: DomainChannel, peer: str, packets: list[Packet]) -> None:
        """What the core passes on, one record per message; those without a body are its own acknowledgements, or what
        it tells all."""
        out: Out = []
        part.enqueue(packets, out)
        runs: list[tuple[bytes, Out]] = []
        for packet, stamped in zip(packets, out, strict=True):
            if packet.body:
                part.relays += 1
            if not runs or runs[-1][0] is not packet.body:
                runs.append((packet.body, []))
            runs[-1][1].append(stamped)
        tx = self.tx
        for body, stamps in runs:
            origin, number = ident(body) if body else ("", 0)
            tx.record(
                "relay", origin=origin, number=number, domain=part.name, peer=peer, received=tx.now,
                done=tx.now, out=stamps,
            )  # fmt: skip

    def _hold(self, part: DomainChannel, link: Link, packet: Packet) -> None:
        missing = part.core.missing(packet)
        if missing is None:
            return  # it was passed on, or is a duplicate
        link.hold(1)
        self.holds += 1
        received, message, _ = packet.note
        packet.note = (received, message, True)
        tx = self.tx
        tx.record(
            "hold", origin=message.origin, number=message.number, payload=message.size, domain=part.name,
            peer=link.peer, sent=message.sent, received=tx.now, missing=missing[:MAX_MISSING],
        )  # fmt: skip

    def _deliver(self, part: DomainChannel, packet: Packet) -> None:
        """One packet in delivery order: forward, and hand our agents' copies to the engine, in this transaction."""
        tx = self.tx
        received, message, _ = packet.note
        if packet.origin == part.me:
            self._deliver_own(part, packet, received)
            return
        try:
            message = message or decode(packet.body)
        except PeerError as error:  # it was held before this was checked
            self.dead_letters.unreadable(packet.body, "", error)
            return
        peer = part.members[packet.frm]
        expires = message.expires and self.clock.by_ours(message.expires, message)
        if expires and expires <= tx.now:  # a tombstone need not go further
            self.dead_letters.expired(message, part.name, peer, received)
            return
        try:
            local, out = self._stamp(message, part.name)
        except NoRoute:  # before anything has changed
            self._bury_homeless(message)
            message = self._at_home(message)
            local, out = self._stamp(message, part.name) if message.dests else ([], NO_OUT)
        if out:
            self.forwarded += 1
            tx.record(
                "forward", origin=message.origin, number=message.number, payload=message.size, domain=part.name,
                peer=peer, hops=self.hops(message.origin), sent=message.sent, received=received,
                delivered=tx.now, done=tx.now, out=out,
            )  # fmt: skip
        if local:
            self.engine.deliver(message, local, part.name, peer, received)
        if self.owning:
            self._come_back()

    def _deliver_own(self, part: DomainChannel, packet: Packet, received: int) -> None:
        """A copy of our own, in its turn; its forwards were stamped when it was sent."""
        message = part.own_copy(packet) or decode(packet.body)
        me, peer = self.tx.name, part.members[packet.frm]
        local = [agent for agent in message.dests if agent[: agent.index("/")] == me]
        self.engine.deliver(message, local, part.name, peer, received)

    def hand_over_own(self, message: Message) -> None:
        """A copy of our own that nobody orders any more."""
        local = [agent for agent in message.dests if home_of(agent) == self.tx.name]
        self.engine.deliver(message, local, received=self.tx.now)

    def cut_off(self, server: str) -> set[str]:
        """The servers to or from which something may be lost with this one: those to which the way leads through one of
        its domains. Where it is no router, and passes nothing on, what waits for its messages is lost all the same."""
        its = {name for name, part in self.tx.topology.domains.items() if server in part}
        return {
            home for home in self.tx.topology.servers if home != self.tx.name
            and any(domain in its for domain, _ in self.routes.path(home))
        }  # fmt: skip

    # -- commits -----------------------------------------------------------------------------------------------

    def close(self, ready: Ready) -> None:
        """The open batch closes: rows of clocks and links join it, frames leave after it."""
        self.announce()
        for part in self.domains.values():
            part.rows()
        self.links.close(ready)

    def announce(self) -> None:
        """What cores have to tell others of this batch; before anybody asks what is under way, too."""
        for part in self.domains.values():
            if part.core.due:
                self._relay(part, "", part.core.announce())

    def check(self) -> None:
        for part in self.domains.values():
            part.core.check()
            for link in part.links.values():
                link.check()
