"""AgentServer: Engine, Channel and links as one state machine without I/O (paper 004 §3).

`step` takes an event, `turn` runs reactions, `ready` closes the open batch and says what to do once it is durable,
`committed` says that it is. The driver on Twisted and the simulator's cluster are its only callers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mombroker import ordering
from mombroker.core import times
from mombroker.core.alarms import Alarms
from mombroker.core.batch import Batch, HeldRow, ItemRow, Reader
from mombroker.core.channel import Channel
from mombroker.core.clock import Clock
from mombroker.core.collection import Collections
from mombroker.core.damage import Aside
from mombroker.core.dead_letters import DeadLetters
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.engine import Engine
from mombroker.core.errors import NoRoute, PeerRefused, StoreError, sentence
from mombroker.core.events import (
    Admin,
    ClientClosed,
    ClientCommands,
    ClientOpened,
    ClientWrote,
    LinkDown,
    LinkFrames,
    LinkUp,
    Ready,
    StoreSize,
    TaskDone,
    Tick,
)
from mombroker.core.hello import Hello
from mombroker.core.ids import home_of
from mombroker.core.limits import Limits
from mombroker.core.link import Link
from mombroker.core.message import BOUNCE, Message, Note, new_message, new_note
from mombroker.core.meta import ALONE, CLEAN, EPOCH, INCARNATION, NOW, OWN, UNCLEAN
from mombroker.core.names import Names
from mombroker.core.natives import Clients, NativeAgent, NativeScheduler
from mombroker.core.reaction import Program
from mombroker.core.replicated import Replication
from mombroker.core.requests import Requests
from mombroker.core.timers import Timers
from mombroker.core.topology import Domain, RoutingTable, Topology
from mombroker.core.trace import NO_OUT, Out, Record
from mombroker.core.transaction import Commits
from mombroker.ordering.base import Ordering, Rows


def _of_tx(name: str) -> Any:
    """The server's name for one of its transaction's, while parts still ask the server for it."""
    return property(lambda self: getattr(self.tx, name), lambda self, value: setattr(self.tx, name, value))


class AgentServer:
    """1. Whatever a batch causes outside leaves only after that batch is durable, in batch order.
    2. At most one batch is under way; after a failed commit the server is of no more use.
    3. Acks, handshake numbers and answers to duplicates speak of durable state only.
    """

    def __init__(
        self,
        topology: Topology,
        name: str,
        reader: Reader,
        program: Program,
        attach: Callable[[AgentServer], Clients],
        now: int,
        limits: Limits | None = None,
    ):
        self.topology, self.name, self.reader, self.program = topology, name, reader, program
        self.limits = limits or Limits(**topology.limits)
        self.alarms = Alarms(self.limits)
        self.routes = RoutingTable(topology, name)
        self.distances: dict[str, int] = {}
        meta = reader.meta()
        self.incarnation = str(meta.get(INCARNATION, ""))
        begin = times.at_start(now, int(meta.get(NOW, 0)))
        self.tx = Commits(name, topology, self.limits, reader, begin, self.alarms.full)
        self.clock = Clock(self.tx)
        self.started = max(now, self.now)  # even if the wall clock is in doubt
        self.handlers: dict[str, Callable[[Message], None]] = {}  # message type -> what to do at its delivery
        self.readers: dict[str, Callable[[Message], object]] = {}  # type -> what reads its payload; see `read`
        self.at_once: set[str] = set()  # types that are applied where they are sent before anything else happens
        self.epochs = {name: int(meta.get(EPOCH + name, 0)) for name in topology.domains}  # of the clocks
        unclean = int(meta.get(UNCLEAN, 0)) + 1 if meta.get(CLEAN) == 0 else 0
        self.batch.meta.update({CLEAN: 0, UNCLEAN: unclean})
        self.flight_closed = 0  # when the batch in flight was closed, if it holds records,
        self.commit_times = (0, 0)  # and of the last such batch, until the log has it, when it was known to be durable
        self.more = False
        self.stopping = False
        self.trouble: dict[str, str] = {}  # peer -> why its link is refused, set by the driver
        self.touched: dict[Link, None] = {}
        self.numbers: list[tuple[Link, int, int]] = []  # of the batch under way
        self.conns: dict[int, Link] = {}
        self.sent = 0
        self.alone = {key.removeprefix(ALONE): int(value) for key, value in meta.items() if key.startswith(ALONE)}
        rows = reader.links()
        self.next_link = max((row.id for row in rows), default=0)
        self.consumers: dict[str, DomainChannel] = {}
        for domain in topology.domains_of(name):
            core = self.core(domain, reader.core(domain.name))
            mine = [row for row in rows if row.domain == domain.name and row.peer in domain]
            pending = int(meta.get(OWN + domain.name, 0))
            self.consumers[domain.name] = DomainChannel(self, domain, core, mine, pending)
        self.channel = Channel(self, self.consumers)
        collections = Collections(self.tx)
        self.dead_letters = DeadLetters(self.tx, collections, program.notice, self.send, self.record)
        self.timers = Timers(self.tx, program.notice, self.send, self.dead_letters.unreadable)
        self.requests = Requests(self.tx, self.timers.alarm)
        replication = Replication(self.tx, self.send, self.requests.tickets.answer, self.handle)
        self.names = Names(replication, self.distance)
        self.natives = NativeScheduler(
            self.tx, self.clock, self.names, collections, self.timers, self.send, self.send_now,
            replication, self.distance,
        )  # fmt: skip
        self.natives.server = self
        self.engine = Engine(
            self.tx, self.clock, self.names, self.natives, collections, self.dead_letters, self.timers, program,
            self.handlers, self.readers, self.send, self.record, unclean,
        )  # fmt: skip
        self.aside = Aside(self.tx, collections, self.natives, self.engine.residents, self.dead_letters.letters)
        self.clients = self.engine.clients = attach(self)
        self.dead_letters.settle = self.clients.orphan
        self.names.on_known, self.names.on_change = self.engine.name_known, self.clients.named
        self.engine.recover()
        self.clients.recover()
        for consumer in self.consumers.values():
            for link in consumer.links.values():
                if link.waiting():
                    self.touch(link)

    def core(self, domain: Domain, rows: Rows) -> Ordering:
        """The domain's ordering core as of its stored rows (none: a new one). Raises StoreError for rows of no core."""
        options = ordering.backend(domain.backend).resolve(domain.members, domain.options)
        try:
            return ordering.restore(domain.backend, domain.index(self.name), len(domain.members), rows, **options)
        except Exception as error:  # whatever a back end stumbles over, which may be an outsider's
            if not rows:
                raise
            raise StoreError(
                f"the {domain.backend} clock of domain {domain.name} in the store of {self.name} cannot be read "
                f"({sentence(error)}); restore the store from a backup, or run `mom domain reset` for this server"
            ) from error

    # -- for the parts -----------------------------------------------------------------------------------------

    now: int = _of_tx("now")
    level: int = _of_tx("level")
    batch: Batch = _of_tx("rows")
    in_flight: Batch | None = _of_tx("in_flight")
    durable_id: int = _of_tx("durable_id")
    durable_batch: int = _of_tx("durable_batch")
    next_id: int = _of_tx("next_id")
    notes: list[str] = _of_tx("notes")

    def mark(self, level: int) -> None:
        self.tx.urge(level)

    def new_id(self) -> int:
        return self.tx.new_id()

    def note(self, text: str) -> None:
        self.tx.note(text)

    def full(self) -> bool:
        return self.tx.full()

    def batch_full(self) -> bool:
        return self.tx.filled()

    def touch(self, link: Link, urgent: bool = True) -> None:
        """The link's row or frames are to be looked at when the batch closes."""
        self.touched[link] = None
        self.mark(2 if urgent else 1)

    def new_link_id(self) -> int:
        self.next_link += 1
        return self.next_link

    def distance(self, server: str) -> int:
        """Links between us and another server. Raises MomError for one that is not on this bus."""
        found = self.distances.get(server)
        if found is None:
            found = self.distances[server] = self.routes.distance(server)
        return found

    def by_our_clock(self, at: int, message: Message) -> int:
        return self.clock.by_ours(at, message)

    @property
    def ahead(self) -> int:
        return self.clock.ahead

    @ahead.setter
    def ahead(self, ns: int) -> None:
        self.clock.ahead = ns

    @property
    def behind(self) -> int:
        return self.clock.behind

    @behind.setter
    def behind(self, ns: int) -> None:
        self.clock.behind = ns

    def hops(self, origin: str) -> int:
        """Links that a message from `origin` has come over; 0 if that server has left the bus."""
        found = self.distances.get(origin)
        if found is None:
            found = self.distance(origin) if origin in self.topology.servers else 0
        return found

    def written_agent(self, agent: str) -> tuple[str, bytes] | None:
        row: tuple[str, bytes] | None = self.tx.written("agents", agent)
        return row

    def written_item(self, id: int) -> ItemRow | None:
        row: ItemRow | None = self.tx.written("items", id)
        return row

    def written_held(self, id: int) -> HeldRow | None:
        row: HeldRow | None = self.tx.written("held", id)
        return row

    def record(
        self, kind: str, message: Message, agent: str, domain: str = "", peer: str = "", received: int = 0,
        delivered: int = 0, detail: str = "",
    ) -> None:  # fmt: skip
        """Log what became of a message at one of our agents."""
        tx = self.tx
        tx.record(
            kind, origin=message.origin, number=message.number, agent=agent, payload=message.size, domain=domain,
            peer=peer, hops=self.hops(message.origin), sent=message.sent, received=received,
            delivered=delivered or tx.now, done=tx.now, detail=detail,
        )  # fmt: skip

    def message(
        self, source: str, dests: tuple[str, ...], type: str, payload: bytes, expires: int = 0, flags: int = 0
    ) -> Message:
        return new_message(self.tx, source, dests, type, payload, expires, flags)

    def note_to(self, source: str, dests: tuple[str, ...], note: Note, expires: int = 0, flags: int = 0) -> Message:
        return new_note(self.tx, source, dests, note, expires, flags)

    def handle(self, type: str, read: Callable[[Message], object], obey: Callable[[Message], None]) -> None:
        """Have messages of a type read, and obeyed at their delivery; where they are sent before anything else."""
        self.readers[type], self.handlers[type] = read, obey
        self.at_once.add(type)

    def send(self, message: Message) -> None:
        """The send event: stamp the remote copies, hand the local ones over. A destination without a route is no error:
        what becomes of its copy is settled here."""
        self.sent += 1
        try:
            local, out = self.channel.send(message)
        except NoRoute:  # before anything has changed
            self._send_what_has_a_route(message)
            return
        self._sent(message, out)
        if local:
            self.engine.deliver(message, local, received=self.now)
        if self.channel.owning:
            self.channel.come_back()

    def _sent(self, message: Message, out: Out) -> None:
        self.tx.record(
            "send", origin=message.origin, number=message.number, agent=message.source, dests=message.dests,
            payload=message.size, sent=message.sent, done=self.now, out=out, detail=message.type,
        )  # fmt: skip
        self.mark(2 if out or message.note is None else 1)  # what destinations do among themselves may linger

    def _send_what_has_a_route(self, message: Message) -> None:
        """Some of its agents live on no server of this bus: their copies end here, the others go on."""
        homeless = [agent for agent in message.dests if home_of(agent) not in self.topology.servers]
        rest = replace(message, dests=tuple(agent for agent in message.dests if agent not in homeless), data=b"")
        local, out = self.channel.send(rest) if rest.dests else ([], NO_OUT)
        self._sent(message, out)
        if local:
            self.engine.deliver(rest, local, received=self.now)
        self.channel.come_back()
        for agent in homeless:
            self.dead_letters.homeless(message, agent)

    def send_now(self, source: str, native: NativeAgent, note: Note) -> None:
        """Send a note to one of our own native agents, which takes it at once if nothing is in its way.

        Not to be called while another one is at work, which might not expect that this one changes.
        """
        agent, now = native.id, self.now
        message = self.note_to(source, (agent,), note, 0, BOUNCE)
        owning = self.channel.owning
        if not self.engine.idle(agent) or (owning and any(consumer.pending for consumer in owning)):
            self.send(message)
            return
        self.sent += 1
        self.mark(1)
        record, origin, number, size = self.tx.record, self.name, message.number, message.size
        record(
            "send", origin=origin, number=number, agent=source, dests=message.dests, payload=size, sent=now, done=now,
            detail=message.type,
        )  # fmt: skip
        record(
            "react", origin=origin, number=number, agent=agent, payload=size, sent=now, received=now, delivered=now,
            done=now,
        )  # fmt: skip
        self.engine.react_now(native, message)

    # -- handshake ---------------------------------------------------------------------------------------------

    def _link_to(self, peer: str) -> tuple[DomainChannel, Link]:
        domain = self.topology.shared_domain(self.name, peer)
        if domain is None:
            raise PeerRefused(f"{peer} shares no domain with {self.name}; check that both use the same topology file")
        consumer = self.consumers[domain.name]
        return consumer, consumer.link(peer)

    def greet(self, peer: str) -> Hello:
        """Our side of the handshake with a neighbour."""
        consumer, link = self._link_to(peer)
        sent, acked, received, limit = link.numbers()
        return Hello(
            self.name, self.incarnation, consumer.name, consumer.domain.digest(), self.epochs[consumer.name],
            self.topology.graph(), 0, 0, sent, acked, received, limit,
        )  # fmt: skip

    def admit(self, hello: Hello) -> None:
        """Raises PeerRefused, with the remedy, when the peer's order or store does not fit ours."""
        consumer, link = self._link_to(hello.server)
        if hello.domain != consumer.name or hello.digest != consumer.domain.digest():
            raise PeerRefused(
                f"{hello.server} orders domain {consumer.name} differently (members, back end or options): give both "
                f"servers the same topology file"
            )
        if hello.epoch != self.epochs[consumer.name]:
            raise PeerRefused(
                f"the clocks of domain {consumer.name} were started anew for some servers only ({hello.server} is at "
                f"epoch {hello.epoch}, we are at {self.epochs[consumer.name]}): run `mom domain reset` again for all"
            )
        if hello.graph != self.topology.graph():
            raise PeerRefused(f"{hello.server} has another graph of domains: give both servers the same topology file")
        link.admit(hello)

    # -- events ------------------------------------------------------------------------------------------------

    def step(self, event: object, now: int) -> None:
        """One event. Raises PeerError for bytes that break the protocol (close that link) and PeerRefused."""
        self.now = max(self.now, now)
        match event:
            case LinkFrames(peer, conn, frames):
                link = self.conns.get(conn)
                if link is not None:
                    link.last_seen = self.now
                    self.channel.receive(peer, frames)
            case ClientCommands() | ClientWrote() | ClientOpened() | ClientClosed():
                self.clients.step(event)
            case LinkUp(peer, conn, hello):
                self.admit(hello)
                _, link = self._link_to(peer)
                self.conns.pop(link.conn, None)
                self.conns[conn] = link
                self.trouble.pop(peer, None)
                link.last_seen = self.now
                link.up(conn, hello)
            case LinkDown(_, conn):
                if conn in self.conns:
                    self.conns.pop(conn).down()
            case Tick():
                self.timers.tick()
                self.requests.tickets.hurry()
            case TaskDone(id, payload, reason):
                self.timers.done(id, payload, reason)
            case StoreSize():
                was = self.full()
                for line in self.alarms.measured(event):
                    self.note(line)
                if was and not self.full():
                    for link in self.conns.values():
                        self.touch(link)
            case Admin(ticket, verb, args):
                self.requests.ask(ticket, verb, args)
            case _:
                raise AssertionError(f"no such event: {event!r}")

    def turn(self, now: int) -> None:
        """Run reactions to a fixed point, or to the cap (then `more` is True)."""
        self.now = max(self.now, now)
        self.natives.begin()
        self.timers.tick()
        self.requests.tickets.hurry()
        self.more = not self.engine.turn(self.limits.turn_reactions) or self.natives.waiting()
        if self.reader.damaged:
            self.aside.take()
        if self.more and self.batch_full():
            self.mark(2)

    def stop(self) -> None:
        """The last batch: everything that is not done is on disk, and the stop was clean."""
        self.stopping = True
        self.batch.meta[CLEAN] = 1
        self.batch.meta[UNCLEAN] = 0
        self.mark(2)

    # -- commits -----------------------------------------------------------------------------------------------

    @property
    def urgency(self) -> int:
        """0: nothing to do; 1: the batch may linger; 2: commit now."""
        return self.level

    @property
    def busy(self) -> bool:
        """A turn would find something to do."""
        return bool(self.level or self.more or self.notes or self.engine.inboxes.run or self.natives.busy())

    def ready(self, now: int) -> Ready:
        """Close the open batch. Not to be called while another one is under way."""
        assert self.in_flight is None, "one batch is under way"
        self.now = max(self.now, now)
        self.engine.close()
        batch = self.batch
        ready = Ready(batch)
        for consumer in self.consumers.values():
            consumer.rows()
        touched, self.touched = self.touched, {}
        self.numbers = []
        for link in touched:
            frames = link.frames()
            if frames:
                ready.frames.append((link.conn, frames))
            if not link.conn and link.waiting():
                ready.dial.append(link.peer)
            if link.changed:
                link.changed = False
                batch.links[link.id] = link.row()
                self.numbers.append((link, link.sent, link.received))
            if link.sendable():
                self.touched[link] = None  # the rest is on disk and can be read after the commit
        if self.commit_times[1] and (batch.log or self.stopping):
            self._log_commit(batch.log)
        self.flight_closed = self.now if batch.log else 0
        if not batch.empty():
            batch.meta[NOW] = self.now
        ready.replies = self.requests.tickets.answers()
        ready.clients = self.clients.replies()
        ready.tasks = self.timers.take_deferred()
        ready.timer = self.timers.next
        self.tx.close()
        return ready

    def _log_commit(self, log: list[Record]) -> None:
        """What one row of the log cannot say of itself is in the next."""
        closed, durable = self.commit_times
        self.commit_times = (0, 0)
        log.insert(0, Record("commit", sent=closed, done=durable))

    def committed(self, ready: Ready, now: int) -> None:
        """The batch of `ready` is durable, and was so when its outputs began to leave, at `now`."""
        batch = ready.batch
        self.tx.committed(batch)
        if self.flight_closed:
            self.commit_times = (self.flight_closed, max(now, self.flight_closed))
        for link, sent, received in self.numbers:
            link.committed(sent, received)
        self.engine.committed(batch.items)
        if self.touched:
            self.mark(2)

    # -- for the simulator ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self.engine.check()
        for consumer in self.consumers.values():
            consumer.core.check()
            for link in consumer.links.values():
                link.check()
