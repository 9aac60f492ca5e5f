"""One replica of a server: it keeps the log with the others, and where it leads it is what the server runs on."""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.internet import defer, threads
from twisted.python.failure import Failure

from mombroker import agents
from mombroker.broker import selectors
from mombroker.broker.attach import attach
from mombroker.core.batch import Batch
from mombroker.core.errors import MomError, StoreError, StoreFailed
from mombroker.core.limits import Limits
from mombroker.core.meta import CLEAN
from mombroker.core.places import Place
from mombroker.core.raft.replica import FOLLOWER, LEADER, Replica
from mombroker.core.server import AgentServer
from mombroker.core.topology import Server, Topology
from mombroker.net import joining
from mombroker.net.committer import Done, Split
from mombroker.net.connection import Times
from mombroker.net.files import Log
from mombroker.net.links import Links
from mombroker.net.node import Node, Shared, log_bounds, peer_tls
from mombroker.net.replicas.consensus import Consensus
from mombroker.net.replicas.founding import Founding
from mombroker.net.replicas.handover import Handover
from mombroker.net.replicas.membership import Membership
from mombroker.net.replicas.report import Report
from mombroker.net.replicas.standby import Doors, StandbyPort
from mombroker.net.replicas.verbs import ReplicaVerbs
from mombroker.net.replicas.watched import Watched
from mombroker.net.replicas.ways import Ways
from mombroker.net.replicas.wire import Told, version
from mombroker.net.secret import secret_of
from mombroker.net.tidying import TIDY_WAIT_S, tidy
from mombroker.net.watchdog import Committing, Running
from mombroker.store import folder, packed
from mombroker.store.converting import new_id
from mombroker.store.memory import MemoryStore
from mombroker.store.replica import ReplicaStore

PART_S = 1.0  # that the others are given to take over, when this one stops
KNOW_S = 0.2  # in which the leader, if it is told to stop, too, says so
LOOK_S = 0.02
TIDY_EVERY_S = 5.0
COLLECT_S = 5.0  # after the server has ended here


class ReplicatedNode:
    """To its process it is what a Node is; to the Node on it, a seat.

    node    the server, while this replica leads
    term    in which it leads
    """

    def __init__(
        self,
        shared: Shared,
        label: str,
        log: Log,
        failed: Callable[[Any, BaseException], None],
        quit: Callable[[], None],
        reload: Callable[[], list[str]],
        times: Times | None = None,
    ):
        self.shared, self.label, self.log = shared, label, log
        self.name = label.partition("/")[0]
        self.at: Server = shared.topology.servers[self.name]
        self.times = times or Times()
        self._failed, self._quit, self._reload = failed, quit, reload
        self.make = partial(Node, shared, self.name, log, self._node_failed, quit, reload, times, self)
        self.node: Node | None = None
        self.term = 0
        self.dead = False
        self._tidying: Any = None
        self._collecting: Any = None
        self._opening = False  # the server, in a thread
        self._stopping = self._leads = False
        self._proposed = self._agreed = 0  # the terms in which the first rows were proposed, and decided

    # -- the process -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the store. Blocks; needs no reactor thread. Raises MomError."""
        shared, topology = self.shared, self.shared.topology
        self.secret, self.tls = secret_of(topology, self.log), peer_tls(topology, self.name, self.log)
        place = self.at.place
        made = new_id(place.name)
        store = joining.open_store(
            topology, self.name, self.secret, partial(ReplicaStore, keeps=not place.witness, id=made)
        )
        assert isinstance(store, ReplicaStore), "another store was made"
        self.store = store
        try:
            token = folder.token(self.at.data).encode()
        except BaseException:
            store.close()
            raise
        self.ways = Ways(
            shared.reactor, self.at, self.secret, self.times, self.log, self.tls, self._tell, self._met, self._heard
        )
        self.founding = Founding(self.at, store, self.ways)
        self.doors = Doors(shared.reactor, self.at, topology, self._place_of_leader, lambda: self.report.figures())
        verbs = ReplicaVerbs(self)
        self.verbs: object = verbs
        self.report: Report = Report(self)
        self.complete, self.explain, self.rows = self.report.complete, self.report.explain, self.report.rows
        self.membership = Membership(self._replica, self._is_witness)
        self.handover = Handover(self)
        self.port = StandbyPort(
            {"replicas": verbs.replicas, "stop": self._stop, "reload": self._read_anew},
            self.doors.says, self.doors.listen,
        )  # fmt: skip
        self.links = Links(
            shared.reactor, self.name, self.doors, self.doors.post, self.log, self.port, self.secret, token, self.times,
            tls=self.tls, replicas=self.ways,
        )  # fmt: skip
        self.consensus = Consensus(
            shared.reactor,
            store,
            shared.committer(),
            Split(shared.reactor, shared.commits),
            self.ways.send,
            self,
            self._version,
        )
        if store.keeps:
            self._prepare()

    def _tidy(self) -> None:
        """Keep the store small, as a server does with its own."""
        busy = self.consensus.writing is not None
        wait = TIDY_WAIT_S
        if not busy:
            topology = self.shared.topology
            bounds = log_bounds(topology.log, Limits(**topology.limits).max_store)
            try:
                wait = tidy(self.store, bounds, time.time_ns(), lambda: False) or TIDY_EVERY_S
            except (StoreFailed, StoreError) as error:
                self.failed(error)
                return
        self._tidying = self.shared.reactor.callLater(wait, self._tidy)

    def listen(self) -> None:
        """Raises MomError."""
        self.links.listen()
        self.doors.open()

    def start(self) -> None:
        replica = self.consensus.replica
        known = f"entry {replica.log.last} of term {replica.term}" if self.store.founded else "nothing yet"
        self.log(f"replica {self.store.id} is at {self.at.listen}, store {self.at.data}, with {known}")
        self.ways.start()
        self.consensus.start()
        self._tidy()

    def _prepare(self) -> None:
        """Make what the server will need, and one without anything: the first in a process takes five times as long as
        later ones, and clients would wait for it."""
        selectors.prepare()
        topology = replace(self.shared.topology, agents=[])
        nothing = MemoryStore(topology, self.name, "")
        AgentServer(topology, self.name, nothing, agents.program(topology), attach, time.time_ns())

    async def stop(self) -> None:
        """Let another one take over, close everything."""
        self._stopping = True
        self.ways.say()
        if self.node is not None:
            serves = self.node.serves
            await self.node.stop()
            if serves and (best := self.handover.best()):
                self.handover.begin(best)
        else:
            await self._look_until(lambda: False, KNOW_S)
        await self._look_until(self.handover.parted)
        self._end()
        await self.links.stop()
        await self._look_until(lambda: self.consensus.writing is None and not self.consensus.taking, 60.0)
        self.store.close()
        self.log("stopped")

    def transfer(self, to: str) -> str:
        """Let another one lead, when what is under way is durable; its name, which is the one that has come furthest by
        now unless it was given: by then it may be another one. Raises MomError."""
        id = self.handover.chosen(to)
        node = self.node
        assert node is not None, "no server runs here"
        if not node.serves:
            raise MomError(f"{self.at.replica} has just begun to lead: ask again in a second")
        self.shared.reactor.callLater(0, lambda: defer.ensureDeferred(self._leave(node, id if to else "")))
        return self.ways.names[id]

    def change(self, old: str, new: str) -> tuple[str, str]:
        """One replica leaves, another one joins, by their names. Raises MomError."""
        if new and new not in self.ways.ways:
            raise MomError(
                f"{self.at.replica} knows no replica {new}: write it into the topology file of all replicas, and run "
                "`mom server reload` for each"
            )
        found = self.membership.begin(old, new, self.ids())
        self.consensus.pump()
        return found

    def _version(self) -> int:
        return version(self.consensus.replica.members, self.ways.batches | {self.store.id: packed.VERSION})

    def _replica(self) -> Replica:
        return self.consensus.replica

    def _is_witness(self, name: str) -> bool:
        return any(place.witness for place in self.at.replicas if place.name == name)

    async def _leave(self, node: Node, id: str) -> None:
        await node.leave()
        if self.node is node and not node.driver.dead:
            self.handover.begin(id)

    async def _look_until(self, condition: Callable[[], bool], seconds: float = PART_S) -> None:
        for _ in range(int(seconds / LOOK_S)):
            if self.dead or condition():
                return
            waited: defer.Deferred[None] = defer.Deferred()
            self.shared.reactor.callLater(LOOK_S, waited.callback, None)
            await waited

    def abort(self) -> None:
        """Close all sockets at once."""
        self._end()
        self.links.abort()

    def _end(self) -> None:
        self.dead = True
        for call in (self._tidying, self._collecting):
            if call is not None:
                call.cancel()
        self._tidying = self._collecting = None
        self.doors.close()
        self.consensus.stop()
        self.ways.stop()
        if self.node is not None:
            self.node.halt()

    def failed(self, error: BaseException) -> None:
        """The replica cannot go on: what it has promised is on its disk, and others have it, too."""
        if not self.dead:
            if isinstance(error, StoreFailed | StoreError):
                self.log(str(error))
            else:
                self.log("stopped by an error of the program: " + "".join(traceback.format_exception(error)))
            self.abort()
            self._failed(self, error)

    def _node_failed(self, node: Node, error: BaseException) -> None:
        if not self.dead:
            self.abort()
            self._failed(self, error)

    def _stop(self) -> dict[str, Any]:
        self.shared.reactor.callLater(0, self._quit)
        return {"stopping": self.label}

    def _read_anew(self) -> dict[str, Any]:
        return {"server": self.label, "notes": self._reload()}

    def reload(self, topology: Topology) -> list[str]:
        """Take over what may change while it runs."""
        self.at = topology.servers[self.name]
        self.ways.place(self.at.replicas)
        return self.node.reload(topology) if self.node is not None else []

    # -- the others ------------------------------------------------------------------------------------------------

    def _tell(self) -> Told:
        return self.founding.tell(self._leads, self._stopping)

    def _met(self, told: Told) -> None:
        if not (self.store.founded or self.dead):
            self._look_for_group()

    def _look_for_group(self) -> None:
        if self.consensus.writing is None and (members := self.founding.members()) is not None:
            try:
                self.store.found(members)
            except StoreFailed as error:
                self.failed(error)
                return
            self.consensus.begin()
            self.ways.say()

    def _heard(self, envelope: Any) -> None:
        self.consensus.hear(envelope)

    def _place_of_leader(self) -> Place | None:
        return next((place for place in self.at.replicas if place.name == self.leader), None)

    @property
    def leader(self) -> str:
        """The name of the replica that leads; empty if that is not known."""
        id = self.consensus.replica.leader
        if id == self.store.id:
            return self.at.replica
        return self.ways.names.get(id) or next((told.replica for told in self.ways.told() if told.leads), "")

    # -- the server on it ------------------------------------------------------------------------------------------

    def stepped(self) -> None:
        """The replica has taken a step: does the server begin here, or end?"""
        if not self.store.founded:
            self._look_for_group()
        replica = self.consensus.replica
        leads = replica.role == LEADER and replica.term == self.term
        if self._leads != (replica.role == LEADER):
            self._leads = not self._leads
            self.ways.say()
        if not leads and self.node is not None:
            self._retire()
        if self.membership.busy:
            if leads:
                self.membership.go_on()
            else:
                self.membership.end()
        if self.node is None and not self._opening and replica.leads and self.store.keeps and not self._stopping:
            if self.store.applied() == replica.log.commit:
                self._take_over()

    def _take_over(self) -> None:
        self.term = self.consensus.replica.term
        if self._agreed != self.term and CLEAN not in self.store.meta():  # a new group: all begin with the same
            if self._proposed != self.term:
                self._proposed = self.term
                self.consensus.submit(self.store, self.store.first_rows(), self._agree)
            return
        self._opening = self.consensus.hasty = True
        self.log(f"{self.at.replica} leads {self.name} in term {self.term}")
        node, term = self.make(), self.term
        opened = threads.deferToThreadPool(self.shared.reactor, self.shared.commits, node.open)
        opened.addCallback(lambda _: self._opened(node, term))
        opened.addErrback(self._unopened, term)

    def _agree(self, error: Exception | None) -> None:
        self._agreed = self.term

    def _opened(self, node: Node, term: int) -> None:
        self._opening = self.consensus.hasty = False
        replica = self.consensus.replica
        if self.dead or self._stopping or replica.role != LEADER or replica.term != term:
            return
        self.node = node
        if self.doors.close():
            self._next_turn(lambda: self._serve(node))
        else:
            self._serve(node)

    def _serve(self, node: Node) -> None:
        if self.node is not node or self.dead:
            return
        try:
            node.listen()
        except MomError as error:
            self.failed(error)
            return
        node.start()
        gc.freeze()  # a collection would keep the clients waiting

    def _next_turn(self, call: Callable[[], None]) -> None:
        """Ports that were closed are so from the next turn of the reactor on."""
        self.shared.reactor.callLater(0, lambda: self.shared.reactor.callLater(0, call))

    def _collect(self) -> None:
        """Let go of the server that has run here, while nobody waits: not while the next one begins here."""
        self._collecting = None
        if self.node is None and self.consensus.replica.role == FOLLOWER:
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _stand_by(self) -> None:
        if self.node is None and not self.dead:
            try:
                self.doors.open()
            except MomError as error:
                self.failed(error)

    def _unopened(self, failure: Failure, term: int) -> None:
        self._opening = self.consensus.hasty = False
        if self.consensus.replica.term == term:  # else another one leads, and has changed what was read here
            self.failed(failure.value or MomError("the server cannot begin"))

    def _retire(self) -> None:
        node, self.node = self.node, None
        assert node is not None, "no server runs here"
        self.log(f"{self.at.replica} leads {self.name} no more")
        self.consensus.forget()
        node.halt()
        if self._collecting is None:
            self._collecting = self.shared.reactor.callLater(COLLECT_S, self._collect)
        self.links.hand(self.doors, self.doors.post, self.port)
        self._next_turn(self._stand_by)

    @property
    def committer(self) -> ReplicatedNode:
        return self

    @property
    def handed(self) -> bool:
        return self.consensus.replica.handed == self.term

    def submit(self, store: Any, batch: Batch, done: Done) -> None:
        """Durable is what a majority has."""
        self.consensus.submit(store, batch, done)

    def when_leased(self, call: Callable[[], None]) -> None:
        self.consensus.when_leased(call)

    # -- for operators, and the watchdog -----------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """And its server works."""
        return self.node is not None and self.node.working

    def ids(self) -> dict[str, str]:
        """Of the stores of the others, by the names of these."""
        return {name: id for id, name in self.ways.names.items()}

    def up(self, id: str) -> bool:
        """It has answered within the last election timeout."""
        other = self.consensus.replica.others.get(id)
        return other is not None and self.consensus.now() - other.heard < self.consensus.times.election

    @property
    def watched(self) -> tuple[Running, Committing, Log]:
        return Watched(self), Watched(self), self.log
