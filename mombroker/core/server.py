"""AgentServer: Engine, Channel and links as one state machine without I/O (paper 004 §3).

`step` takes an event, `turn` runs reactions, `ready` closes the open batch and says what to do once it is durable,
`committed` says that it is. The driver on Twisted and the simulator's cluster are its only callers.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from math import ceil
from typing import ClassVar

from mombroker.core import revision, times
from mombroker.core.alarms import Alarms
from mombroker.core.arrivals import Arrivals
from mombroker.core.batch import Reader
from mombroker.core.changes import Attachment, Change
from mombroker.core.channel import Channel
from mombroker.core.clock import Clock
from mombroker.core.collection import Collections
from mombroker.core.compiling import mypyc_attr
from mombroker.core.coordinator import Coordinator
from mombroker.core.damage import Aside
from mombroker.core.dead_letters import DeadLetters
from mombroker.core.departures import Departures
from mombroker.core.engine import Engine
from mombroker.core.events import (
    Admin,
    ClientClosed,
    ClientCommands,
    ClientOpened,
    ClientWrote,
    LinkDown,
    LinkFrames,
    LinkUp,
    Metered,
    PeerSwitched,
    Ready,
    StoreSize,
    TaskDone,
    Tick,
)
from mombroker.core.gate import Gate
from mombroker.core.homes import Homes
from mombroker.core.identity import identity
from mombroker.core.limits import Limits
from mombroker.core.losses import Losses
from mombroker.core.lost import Lost
from mombroker.core.message_types import MessageTypes
from mombroker.core.meta import CLEAN, DIGEST, NOW, UNCLEAN
from mombroker.core.names import Names
from mombroker.core.natives import Clients, NativeHost
from mombroker.core.newcomers import Newcomers
from mombroker.core.reaction import Program
from mombroker.core.reconfiguration import Reconfiguration
from mombroker.core.replicated import Replication
from mombroker.core.requests import Requests
from mombroker.core.timers import Timers
from mombroker.core.topology import Topology
from mombroker.core.transaction import COMMIT, Commits
from mombroker.core.truth import Truth


@mypyc_attr(allow_interpreted_subclasses=True)
class AgentServer:
    """1. Whatever a batch causes outside leaves only after that batch is durable, in batch order.
    2. At most one batch is under way; after a failed commit the server is of no more use.
    3. Acks, handshake numbers and answers to duplicates speak of durable state only.
    """

    transport: ClassVar[type[Channel]] = Channel
    reacts: ClassVar[type[Engine]] = Engine
    departs: ClassVar[type[Departures]] = Departures

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
        meta = reader.meta()
        file, topology = topology, revision.effective(topology, meta, name)
        self.name, self.reader, self.program = name, reader, program
        self.limits = limits or Limits(**topology.limits)
        self.alarms = Alarms(self.limits)
        begin = times.at_start(now, int(meta.get(NOW, 0)))
        tx = self.tx = Commits(name, topology, self.limits, reader, begin)
        self.clock = Clock(tx, max(now, tx.now))
        types = self.types = MessageTypes()
        unclean = int(meta.get(UNCLEAN, 0)) + 1 if meta.get(CLEAN) == 0 else 0
        tx.rows.meta.update({CLEAN: 0, UNCLEAN: unclean})
        self.more = self.cut = False  # is there more to do in the next turn, and more to react to?
        self.share = 1.0  # of the reactions of a turn; whoever turns it lets it have less while turns take long
        self.stopping = False
        collections = Collections(tx)
        gate = Gate(tx, collections)
        channel = self.channel = self.transport(tx, self.clock, meta, types.readers, types.at_once, gate)
        self.neighbours = channel.neighbours
        self.dead_letters = DeadLetters(tx, collections, program.notice, channel.send, channel.record)
        self.timers = Timers(tx, program.notice, channel.send, self.dead_letters.unreadable)
        self.requests = Requests(tx, self.timers.alarm)
        replication = Replication(tx, channel.send, self.requests.tickets.answer, types.obey)
        self.homes = Homes(replication)
        channel.moved, self.dead_letters.home = self.homes.moved, self.homes.home
        self.names = Names(replication, channel.distance, self.homes)
        self.truth = Truth(replication, file, self.names)
        self.newcomers = Newcomers(tx, channel.send, types)
        self.newcomers.tables += [self.homes.told, self.names.told]
        self.natives = NativeHost(
            tx, self.clock, self.names, collections, self.timers, channel, types, replication, self.newcomers,
        )  # fmt: skip
        self.engine = self.reacts(
            self.natives, collections, self.dead_letters, self.timers, program, channel.record, unclean
        )
        self.departures = self.departs(self.natives, self.engine, self.homes)
        self.arrivals = Arrivals(self.natives, self.engine, self.homes)
        self.homes.on_move, self.engine.on_delete = self.departures.relocated, self._deleted
        channel.engine, channel.dead_letters = self.engine, self.dead_letters
        self.aside = Aside(tx, collections, self.natives, self.engine.residents, self.dead_letters.letters, gate)
        self.truth.install, self.truth.made = self.install, program.initial
        self.truth.applied.append(self._revised)
        self.change = Reconfiguration(replication, channel, self.truth)
        self.coordinator = Coordinator(replication, self.truth, self.timers.alarm)
        self.names.leaves, self.change.given_up = self.coordinator.leaves, self.names.again
        self.lost = Lost(replication)
        self.lost.applied, self.change.fence = self._lost, self.lost.fence
        self.lost.begun = self._begun_anew
        self.truth.is_lost = self.lost.decided
        self.newcomers.tables.insert(0, self.lost.told)
        self.neighbours.fenced = self.homes.fenced = self.lost.fenced
        self.neighbours.expected = self.newcomers.expected
        self.homes.decided = self.lost.decided
        self.losses = Losses(
            channel, self.dead_letters, self.lost, self.requests.tickets.answer, self.timers.alarm
        )  # fmt: skip
        self._permit()
        self.clients = self.engine.clients = attach(self)
        groups = self.clients.groups
        groups.bind(self.engine.hand_over, self.engine.name_known, self.engine.rows_of, self.engine.inboxes.waiting)
        groups.moving = self.departures.leaving.__contains__
        self.clients.leaving = self.arrivals.leaving = self.engine.leaving = self.change.leaving
        orphans = self.clients.orphans
        self.dead_letters.settle, self.dead_letters.inside = orphans.settle, orphans.inside
        self.names.is_here, self.newcomers.begun = self._is_here, self.engine.tables_came
        self.names.on_known, self.names.on_change = self.engine.name_known, self.clients.named
        self.engine.recover()
        self.departures.recover()
        self.arrivals.recover()
        self.clients.recover()
        self.engine.take_up(self.clients.authors.agents())
        channel.recover()
        if self.newcomers.waiting:
            channel.meet()
        self.coordinator.recover()
        self.losses.recover()

    @property
    def topology(self) -> Topology:
        """The one that it works under."""
        return self.tx.topology

    def install(self, topology: Topology, anew: Container[str] = (), epoch: int = 0) -> None:
        """Work under another topology from now on: the change is part of the open batch.

        Domains of ours that the new one does not have, or orders otherwise, and those in `anew`, end with whatever is
        left of them: rows, links, out-queues. Those that are new, or in `anew`, begin under `epoch`, which all their
        members must give. Clients notice nothing.
        """
        tx, me = self.tx, self.name
        gone = [name for name in tx.topology.servers if name not in topology.servers]
        if me in gone:  # we are not of the bus any more, and forget nobody
            gone = []
            self.clients.depart()
            alone = {me: tx.topology.servers[me]}
            topology = replace(topology, servers=alone, domains={}, agents=[], registry=me, checked=False)
        tx.rows.meta |= dict.fromkeys(self.reader.meta(DIGEST))
        tx.rows.meta |= identity(topology, me)
        declared = [agent for agent in topology.agents if agent not in tx.topology.agents]
        self.channel.install(topology, anew, epoch)
        self.names.install(declared)
        self.engine.declare(declared)
        for server in gone:
            self.names.left(server)
            self.newcomers.left(server)
            self.clients.left(server)
            self._moved_from(server)
        tx.urgency = COMMIT

    # -- events ------------------------------------------------------------------------------------------------

    def step(self, event: object, now: int) -> None:
        """One event. Raises PeerError for bytes that break the protocol (close that link) and PeerRefused."""
        self.tx.now = max(self.tx.now, now)
        match event:
            case ClientCommands() | ClientWrote() | ClientOpened() | ClientClosed():
                self.clients.step(event)
            case LinkFrames(peer, conn, frames):
                self.channel.receive(peer, conn, frames)
            case LinkUp(peer, conn, hello):
                self.neighbours.up(conn, hello)
                self.losses.met(peer)
            case LinkDown(peer, conn):
                self.neighbours.down(conn)
                self.losses.apart(peer)
                if self.change.leaving():  # whoever hangs up may have switched
                    self.tx.urgency = COMMIT
            case PeerSwitched(peer):
                if not self.losses.switched(peer):
                    self.change.switched(peer)
            case Tick():
                self.timers.tick()
                self.requests.tickets.hurry()
            case TaskDone(id, payload, reason):
                self.timers.done(id, payload, reason)
            case StoreSize():
                self._measured(event)
            case Metered(since, amounts):
                self._meter(since, amounts)
            case Admin(ticket, verb, args, who, where):
                self.requests.ask(ticket, verb, args, who, where)
            case _:
                raise AssertionError(f"no such event: {event!r}")

    def turn(self, now: int) -> None:
        """Run reactions to a fixed point, or to the cap (then `more` is True)."""
        self.tx.now = max(self.tx.now, now)
        turns = self.natives.turns
        turns.work = self.limits.turn_work
        if turns.soon:
            turns.begin()
        if 0 < self.timers.next <= self.tx.now:
            self.timers.tick()
        if self.requests.tickets.until:
            self.requests.tickets.hurry()
        if self.coordinator.until:
            self.coordinator.hurry()
        if self.losses.until:
            self.losses.hurry()
        changes = (self.change.plan is not None or self.losses.losses) and self._change()
        if self.departures.leaving:
            changes = self.departures.turn() or changes
        if self.arrivals.coming:
            changes = self.arrivals.turn() or changes
        budget = ceil(self.limits.turn_reactions * self.share)
        done = not (self.engine.inboxes.run or turns.touched) or self.engine.turn(budget)
        self.cut = not done
        self.more = self.cut or changes or bool(turns.soon)
        if self.reader.damaged:
            self.aside.take()
        if self.more and self.tx.filled():
            self.tx.urgency = COMMIT

    def _change(self) -> bool:
        """A change of the domains goes on, as far as it can now. True if that was not all."""
        more, gate = self.change.turn(), len(self.channel.gate)
        more = self.losses.turn() or more
        if gate != self.alarms.gate:
            self.alarms.gate = gate
            if self.tx.full != self.alarms.full():
                self._measured(self.alarms.last)
        return more

    def _moved_from(self, server: str) -> None:
        """A server is not there any more, nor what lived there."""
        self.homes.left(server)
        self.departures.left(server)
        self.arrivals.left(server)

    def _is_here(self, id: str) -> bool:
        """Does an agent live here, or is it on its way here?"""
        return id in self.arrivals.coming or self.tx.written("agents", id) is not None

    def _deleted(self, id: str) -> None:
        """An agent is gone for good."""
        self.departures.deleted(id)
        self.engine.guests.discard(id)
        self.homes.forget(id)

    def _revised(self, change: Change) -> None:
        """Another revision of the topology is in force."""
        self._permit()
        for what, name, old, new in change.settings:
            if what == "agent" and not (old and new):
                self.names.declared(name, new is not None)
        if change.attached:
            self.newcomers.announced(self.truth.number, self.truth.text, change.attached)

    def _lost(self, server: str, sponsor: str, epoch: int) -> None:
        """A server is lost for good, and what lived there. Another one may begin in its place, behind its sponsor."""
        if server == self.name:
            self.homes.left(server)  # what the lost one had
            self.names.begun()
            return
        topology, cut_off = self.topology, self.channel.cut_off(server)
        declared = [agent for agent in topology.agents if agent.server == server]
        self.names.left(server)
        self.newcomers.left(server, epoch)
        self.clients.left(server)
        self._moved_from(server)
        self.departures.again()
        self.arrivals.again()
        self.names.install(declared)
        self.names.again()
        for agent in declared:
            self.names.declared(agent.name, True)
        domains = tuple(domain.name for domain in topology.domains_of(server))
        self.newcomers.announced(
            self.truth.number, self.truth.text, [Attachment(sponsor, (server,), domains)], epoch
        )  # fmt: skip
        if others := cut_off - {server}:
            self.clients.cut_off(others)
            self.newcomers.again(others)
        if topology.registry == self.name:  # what was held for something that is lost may have been a decision
            rest = [name for name in topology.servers if name not in (server, self.name)]
            self.newcomers.tell_tables(rest)
            if self.coordinator.run is None:
                self.truth.retell(rest)
        self.change.lost(server)
        if topology.registry in (None, self.name):
            self.coordinator.lost(server)
        self.lost.declare()
        self.tx.note(f"{server} is lost, with all that lived there; another one may begin in its place")

    def _begun_anew(self, server: str, epoch: int) -> bool:
        domain = self.topology.shared_domain(self.name, server) if server in self.topology.servers else None
        return domain is not None and self.neighbours.epochs[domain.name] >= epoch

    def _permit(self) -> None:
        self.neighbours.revision = self.truth.number
        self.program.permit(self.topology.allow, frozenset(agent.cls for agent in self.topology.agents))

    def limit(self, limits: Limits) -> None:
        """Take over other limits, for all parts at once."""
        self.limits.take(limits)
        self._measured(self.alarms.last)

    def _measured(self, size: StoreSize) -> None:
        """Does the server lack room? Once it has some again, who waited for it goes on."""
        for line in self.alarms.measured(size):
            self.tx.note(line)
        was, self.tx.full = self.tx.full, self.alarms.full()
        if was and not self.tx.full:
            self.neighbours.grant()
            self.clients.room()

    def _meter(self, since: int, amounts: list[tuple[str, str, int]]) -> None:
        """Records that the next commit takes along; none hurries for them."""
        tx = self.tx
        for figure, peer, amount in amounts:
            domain = tx.topology.shared_domain(tx.name, peer) if peer else None
            name = domain.name if domain else ""
            tx.record("meter", domain=name, peer=peer, payload=amount, sent=since, done=tx.now, detail=figure)

    def stop(self) -> None:
        """The last batch: everything that is not done is on disk, and the stop was clean."""
        self.stopping = True
        self.tx.rows.meta[CLEAN] = 1
        self.tx.rows.meta[UNCLEAN] = 0
        self.tx.urgency = COMMIT

    # -- commits -----------------------------------------------------------------------------------------------

    @property
    def urgency(self) -> int:
        """0: nothing to do; 1: the batch may linger; 2: commit now."""
        return self.tx.urgency

    @property
    def busy(self) -> bool:
        """A turn would find something to do."""
        tx, turns = self.tx, self.natives.turns
        moves = (self.departures.leaving and self.departures.due()) or (self.arrivals.coming and self.arrivals.due())
        work = self.engine.inboxes.run or turns.touched or turns.soon or moves
        return bool(tx.urgency or self.more or tx.notes or work)

    def ready(self, now: int) -> Ready:
        """Close the open batch. Not to be called while another one is under way."""
        tx, tickets, timers = self.tx, self.requests.tickets, self.timers
        tx.now = max(tx.now, now)
        natives = self.natives
        if natives.changed or natives.turns.touched or natives.unwritten:
            natives.close()
        if self.engine.inboxes.new:
            self.engine.inboxes.close()
        ready = Ready(tx.rows)
        self.channel.close(ready)
        ready.replies, tickets.answers = tickets.answers, []
        ready.clients = [*self.clients.replies.items()]
        self.clients.replies.clear()
        ready.tasks, timers.deferred = timers.deferred, []
        ready.timer = timers.next
        tx.close(last=self.stopping)
        return ready

    def committed(self, ready: Ready, now: int) -> None:
        """The batch of `ready` is durable, and was so when its outputs began to leave, at `now`."""
        self.tx.committed(ready.batch, now)
        self.channel.links.committed()
        self.engine.committed(ready.batch.items)

    # -- for the simulator ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of all parts."""
        tx = self.tx
        assert not self.natives.turns.late or tx.in_flight or tx.urgency or not tx.rows.empty(), "no commit is due"
        self.engine.check()
        self.channel.check()
        self.change.check()
        self.coordinator.check()
        self.newcomers.check()
        self.losses.check()
        self.names.check()
        self.homes.check()
        self.departures.check()
        self.arrivals.check()
