"""One simulated server: its process comes and goes, its disk stays. The loop is that of net/driver.py."""

from functools import partial
from typing import Any, Protocol, cast

from mombroker import agents
from mombroker.broker.attach import attach
from mombroker.core import revision
from mombroker.core.batch import Batch
from mombroker.core.causality import Event
from mombroker.core.channel import Channel
from mombroker.core.domain_channel import DomainChannel
from mombroker.core.engine import Engine
from mombroker.core.errors import DeclaredLost, MomError, NotYet, PeerRefused, Switched
from mombroker.core.events import LinkUp, PeerSwitched, Ready, StoreSize, TaskDone, Tick
from mombroker.core.hello import Hello
from mombroker.core.message import Message, addressed, ident
from mombroker.core.natives import NativeHost
from mombroker.core.server import AgentServer
from mombroker.core.topology import Topology
from mombroker.core.trace import Record, records
from mombroker.ordering.base import Packet
from mombroker.sim.disk import Disk
from mombroker.sim.faults import Faults
from mombroker.sim.network import Network
from mombroker.sim.world import MS, World
from mombroker.store.memory import MemoryStore

LINGER, SIZE_EVERY = 3 * MS, 20 * MS

Delivery = tuple[str, int, tuple[str, int]]  # by the core of a domain, under an epoch: of this message


class Around(Protocol):
    """What a node knows of its cluster."""

    world: World
    topology: Topology
    faults: Faults
    network: Network

    def dies(self, node: "Node", point: str) -> bool: ...
    def down(self, node: "Node") -> None: ...


class WatchedChannel(Channel):
    """Notes what the server sends and hands over, in order: its program order, which the log does not hold."""

    def _hand_over(self, message: Message, agents: list[str]) -> None:
        if not self.owning:
            self.open.append(("deliver", self.tx.name, (message.origin, message.number)))
        super()._hand_over(message, agents)

    def __init__(self, *args: Any):
        self.open: list[Event] = []
        self.ordered: list[Delivery] = []
        self.early: list[tuple[str, int]] = []
        super().__init__(*args)

    def _deliver(self, part: DomainChannel, packet: Packet) -> None:
        if part.core.total:
            self.ordered.append((part.name, self.neighbours.epochs[part.name], ident(packet.body)))
        super()._deliver(part, packet)

    def send(self, message: Message) -> None:
        message = addressed(message, self.moved)
        me, homes = self.tx.name, dict.fromkeys(agent.partition("/")[0] for agent in message.dests)
        dests = tuple(home for home in homes if home in self.tx.topology.servers)
        id = (message.origin, message.number)
        self.open.append(("send", me, id, dests))
        if me in dests and not self.owning:
            self.open.append(("deliver", me, id))
        super().send(message)


class WatchedEngine(Engine):
    """Notes what is handed over to it, from its first moment on: recovery sends."""

    def __init__(self, natives: NativeHost, *args: Any):
        self.channel: WatchedChannel = cast(Any, natives.send).__self__
        super().__init__(natives, *args)

    def deliver(self, message: Message, agents: list[str], domain: str = "", *where: Any, **when: Any) -> None:
        channel = self.channel
        if channel.owning and message.type in channel.at_once:
            channel.early.append((message.origin, message.number))
        elif domain or channel.owning:
            channel.open.append(("deliver", channel.tx.name, (message.origin, message.number)))
        super().deliver(message, agents, domain, *where, **when)


class Watched(AgentServer):
    """A server with such a channel. `closed`: what it did in the batch that was closed last; `ordered`: what cores with
    one order for all members delivered then; `early`: what was applied then while our own copies may have waited."""

    transport = WatchedChannel
    reacts = WatchedEngine
    channel: WatchedChannel

    def __init__(self, *args: Any, **kwargs: Any):
        self.closed: list[Event] = []
        self.ordered: list[Delivery] = []
        self.early: list[tuple[str, int]] = []
        super().__init__(*args, **kwargs)

    def ready(self, now: int) -> Ready:
        ready = super().ready(now)  # which may send
        self.closed, self.channel.open = self.channel.open, []
        self.ordered, self.channel.ordered = self.channel.ordered, []
        self.early, self.channel.early = self.channel.early, []
        return ready


class Node:
    """One server: a disk that stays, and a process that comes and goes."""

    machine = Watched

    def __init__(self, cluster: Around, name: str, mean_commit: int):
        self.cluster, self.world, self.name = cluster, cluster.world, name
        self.program = agents.program(cluster.topology)
        self.disk = Disk(self.world, self.new_store(0), mean_commit, self._durable, self._die)
        self.skew = 0
        self.epoch = 0
        self.up = False
        self.left = False  # the bus
        self.gone = False  # for good, with its disk
        self.true_store: MemoryStore | None = None  # kept aside while an impostor runs
        self.trace: list[Record] = []
        self.events: list[Event] = []  # of the server as a process
        self.ordered: list[Delivery] = []
        self.early: list[tuple[str, int]] = []  # messages that nobody reads in an order
        self.replies: list[tuple[int, dict[str, Any] | str]] = []
        self.wanted: dict[str, int] = {}  # peers to dial, and attempts that failed
        self.waiting: set[str] = set()  # of these, those that are dialled again after a while
        self.server: Watched

    def new_store(self, number: int) -> MemoryStore:
        """An empty one; each has its own incarnation."""
        return MemoryStore(self.cluster.topology, self.name, f"{self.name}.{number}")

    def now(self) -> int:
        return self.world.now + self.skew

    # -- the loop (net/driver.py) --------------------------------------------------------------------------------

    def boot(self) -> None:
        if self.up or self.gone:
            return
        self.up = True
        self.epoch += 1
        self.skew = int(self.cluster.faults.skew * (self.world.rng.random() - 0.5))
        self.flying: Ready | None = None
        self.turning = self.lingering = self.stopping = self.ending = False
        self.timer_at = self.sized_at = self.forwarded = 0
        self.wanted, self.waiting = {}, set()
        try:
            self.server = self.machine(
                self.cluster.topology, self.name, self.disk.store, self.program, attach, self.now()
            )
        except MomError:
            self.up, self.left = (
                False,
                self.name not in revision.read(revision.in_force(self.disk.store.meta())[1]).servers,
            )
            if not self.left:
                raise
            return
        self.server.turn(self.now())
        self._commit()

    def post(self, event: Any) -> None:
        if not self.up or self.stopping:
            return
        if isinstance(event, LinkUp):
            self.wanted.pop(event.peer, None)
        self._soon()
        self.server.step(event, self.now())  # checked at the end of the loop turn, which follows at once

    def _soon(self) -> None:
        if not self.turning:
            self.turning = True
            self.world.after(0, self._turn, self.epoch)

    def _turn(self, epoch: int) -> None:
        """The end of a loop turn: run the reactions, and commit if something waits for it."""
        if epoch != self.epoch or not self.up or self.stopping:
            return
        self.turning = False
        server = self.server
        idle = not (server.busy or 0 < server.timers.next <= self.now())
        server.turn(self.now())
        server.check()
        assert not (idle and server.busy), f"{self.name} was thought idle and was not"
        if self._died_with_open_batch():
            return
        if server.more and (self.flying is None or not server.tx.filled()):
            self._soon()  # a full batch has to wait for the commit under way
        if self.flying is None:
            urgency = server.urgency
            if urgency > 1:
                self._commit()
            elif urgency and not self.lingering:
                self.lingering = True
                self.world.after(LINGER, self._lingered, self.epoch)

    def _lingered(self, epoch: int) -> None:
        if epoch == self.epoch and self.up and not self.stopping:
            self.lingering = False
            if self.flying is None:
                self._commit()

    def _commit(self) -> None:
        ready = self.flying = self.server.ready(self.now())
        if ready.batch.empty():
            self._leave(ready)
        else:
            self.disk.submit(ready.batch, partial(self._seen, ready))

    def _seen(self, ready: Ready) -> None:
        if self.up and self.flying is ready:
            self._leave(ready)
            if self.up and self.now() - self.sized_at >= SIZE_EVERY:
                self.sized_at = self.now()
                self.post(StoreSize(self.disk.store.size()))

    def _leave(self, ready: Ready) -> None:
        """The batch is durable: its outputs leave."""
        if self._die("committed, unsent"):
            return
        network, now = self.cluster.network, self.now()
        for number, frames in ready.frames:
            network.send(number, self.name, frames)
            if self._die("half sent"):
                return
        for number in ready.hang_up:
            network.hang_up(number, self.name)
        self.replies += ready.replies
        if not self.stopping:
            self._work(ready)
        self.server.committed(ready, now)
        self.flying = None
        if self.stopping:
            self._end()
        elif not self._died_after_sending(ready):
            self._soon()

    def _work(self, ready: Ready) -> None:
        for id, function, payload in ready.tasks:
            self.world.after(self.world.about(5 * MS), self._run, self.epoch, id, function, payload)
        for peer in ready.meet:
            self.wanted[peer] = 0
            self.cluster.network.dial(self.name, peer)
        for peer in ready.dial:
            self.wanted.setdefault(peer, 0)
            if peer not in self.waiting:
                self.cluster.network.dial(self.name, peer)
        self._set_timer(ready.timer)

    def stop(self) -> None:
        """Take no more events, finish the commit under way, commit what is open, marked clean, and be gone."""
        if self.up and not self.stopping:
            self.stopping = True
            if self.flying is None:
                self._end()

    def _end(self) -> None:
        if self.ending:
            self.cluster.down(self)
        else:
            self.ending = True
            self.server.stop()
            self._commit()

    def _run(self, epoch: int, id: int, function: str, payload: bytes) -> None:
        if epoch == self.epoch and self.up:
            try:
                result = TaskDone(id, self.program.run(function, payload))
            except Exception as error:  # the function's own failure
                result = TaskDone(id, None, str(error))
            self.post(result)

    def _set_timer(self, at: int) -> None:
        if at and at != self.timer_at:
            self.world.after(max(0, at - self.now()), self._ring, self.epoch, at)
        self.timer_at = at

    def _ring(self, epoch: int, at: int) -> None:
        if epoch == self.epoch and self.up and at == self.timer_at:
            self.timer_at = 0
            self.post(Tick())

    # -- links -----------------------------------------------------------------------------------------------------

    def greet(self, peer: str) -> Hello:
        return self.server.neighbours.greet(peer)

    def admit(self, hello: Hello) -> None:
        self.server.neighbours.admit(hello)

    def refused(self, peer: str, error: PeerRefused) -> None:
        if isinstance(error, DeclaredLost) and error.server == self.name:
            self.crash()
            self.gone = True
        elif isinstance(error, Switched):
            self.post(PeerSwitched(peer))
        elif not isinstance(error, NotYet):
            self.server.neighbours.trouble[peer] = str(error)

    def undialled(self, peer: str) -> None:
        """An attempt has failed: try again later, as long as we have something for that peer."""
        if peer in self.wanted and peer not in self.waiting:
            self.waiting.add(peer)
            self.wanted[peer] += 1
            wait = min(5 * MS * 2 ** self.wanted[peer], 200 * MS)
            self.world.after(int(wait * (0.5 + self.world.rng.random())), self._redial, self.epoch, peer)

    def _redial(self, epoch: int, peer: str) -> None:
        if epoch == self.epoch and self.up:
            self.waiting.discard(peer)
            if self.server.topology.shared_domain(self.name, peer) is None:  # not any more
                self.wanted.pop(peer, None)
            if peer in self.wanted:
                self.cluster.network.dial(self.name, peer)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _durable(self, batch: Batch) -> None:
        """The outsider's note of what has happened for good."""
        if self.true_store is None:
            self.trace += records(batch.log)
            self.events += self.server.closed
            self.ordered += self.server.ordered
            self.early += self.server.early

    def _die(self, point: str) -> bool:
        if point == "in commit" and not self.server.tx.rows.empty():
            point = "in commit, next open"
        return self.cluster.dies(self, point)

    def _died_with_open_batch(self) -> bool:
        forwarded = self.server.channel.forwarded
        if forwarded > self.forwarded and self._die("open batch of a router"):
            return True
        self.forwarded = forwarded
        return not self.server.tx.rows.empty() and self._die("open batch")

    def _died_after_sending(self, ready: Ready) -> bool:
        kinds = {frame[0] for _, frames in ready.frames for frame in frames}
        if "data" in kinds and self._die("sent, unacknowledged"):
            return True
        held = any(link.held for consumer in self.server.channel.domains.values() for link in consumer.links.values())
        return held and "ack" in kinds and self._die("acknowledged, held")

    def crash(self) -> None:
        self.up = False
        self.disk.crash()
        self.cluster.network.crash(self.name, self.cluster.faults.notice)

    def mask(self, store: MemoryStore) -> None:
        """Somebody starts the server with another store; what it does then has not happened."""
        if self.up:
            self.crash()
        self.true_store, self.disk.store = self.disk.store, store
        self.boot()

    def unmask(self) -> None:
        assert self.true_store is not None, "it runs on its own store"
        if self.up:
            self.crash()
        self.disk.store, self.true_store = self.true_store, None
        self.boot()
