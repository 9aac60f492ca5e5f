"""A run: a cluster works under faults, heals, and comes to rest."""

from mombroker.core.batch import LinkRow
from mombroker.core.errors import SENTENCE_CHARS, PeerError, PeerRefused
from mombroker.core.events import LinkFrames
from mombroker.core.hello import hello_of
from mombroker.core.link import Link
from mombroker.core.meta import INCARNATION
from mombroker.core.status import status
from mombroker.core.topology import Topology
from mombroker.sim.cluster import Cluster, Maker, Workload
from mombroker.sim.damage import Damages
from mombroker.sim.faults import BACKUP, NEW_DISK, Faults, Mood
from mombroker.sim.lies import greeting, lie
from mombroker.sim.losses import Losses
from mombroker.sim.node import Node
from mombroker.sim.relayouts import Relayouts
from mombroker.sim.replicas.trial import Replicas
from mombroker.sim.world import MS, SECOND, World
from mombroker.store.memory import MemoryStore

REST, MAX_CALLS = 2_000 * SECOND, 300_000  # until everything must be at rest


class Trial(Cluster):
    """A cluster, and what goes wrong around it."""

    def __init__(self, world: World, topology: Topology, faults: Faults, workload: Workload, node: Maker = Node):
        super().__init__(world, topology, faults, workload, node)
        self.mischief = Mischief(self)
        self.relayouts: Relayouts | None = None
        self.replicas: Replicas | None = None
        self.losses: Losses | None = None

    def run(self, span: int) -> list[str]:
        """Work under faults for `span` ns; then heal, and let everything come to rest. Says what is wrong with that."""
        for node in self.nodes.values():
            self.world.after(self.world.about(2 * MS), node.boot)
        self.workload.begin(self, span)
        self.mischief.schedule(span)
        if self.relayouts is not None:
            self.relayouts.schedule(span)
        if self.replicas is not None:
            self.replicas.schedule(self, span)
        if self.losses is not None:
            self.losses.schedule(span, self.relayouts is not None)
        self.faulty = True
        self.world.run(self.world.now + span)
        self.faulty = False
        Mood.failing = 0.0
        for node in self.nodes.values():
            node.boot()
        wrong = self.mischief.unmask() + self.mischief.believed[:3]
        self.network.heal_all()
        if self.replicas is not None:
            self.replicas.settle()
        if self.losses is not None:
            self.losses.settle()
        self.workload.settle(self)
        if self.relayouts is not None:
            self.relayouts.settle()
        if not self.world.run(self.world.now + REST, MAX_CALLS) or self.world.queue:
            wrong.append(f"no rest within {REST // SECOND} s and {MAX_CALLS} calls")
        return wrong


class Mischief:
    """Carries out the faults that come from outside of the processes."""

    def __init__(self, cluster: Cluster):
        self.cluster, self.world, self.faults = cluster, cluster.world, cluster.faults
        self.masked: Node | None = None  # runs on the wrong store
        self.refusing: list[str] = []  # its neighbours that must refuse it
        self.said: list[str] = []  # in the status of both sides
        self.lies = 0
        self.believed: list[str] = []  # lies that were not refused
        self.damages = Damages(cluster)

    def schedule(self, span: int) -> None:
        world, rng, nodes = self.world, self.world.rng, list(self.cluster.nodes.values())

        def some_time() -> int:
            return int(rng.random() * span)

        for _ in range(self.faults.kills):
            world.after(some_time(), self._kill, rng.choice(nodes))
        for _ in range(self.faults.stops):
            world.after(some_time(), self._stop, rng.choice(nodes))
        for _ in range(self.faults.blackouts):
            at = some_time()
            for node in nodes:
                world.after(at, self._kill, node)
        for _ in range(self.faults.cuts):
            at, node = some_time(), rng.choice(nodes)
            peers = self.cluster.neighbours(node.name)
            for peer in [rng.choice(peers)] if rng.random() < 0.7 else peers:
                world.after(at, self._cut, node.name, peer)
        for _ in range(self.faults.breaks):
            world.after(some_time(), self._break, rng.random())
        for _ in range(self.faults.lies):
            world.after(some_time(), self._lie, rng.random())
        for _ in range(self.faults.damage):
            world.after(some_time(), self._damage, rng.choice(nodes), rng.random())
        if self.faults.impostor:
            victim = self.cluster.nodes[self.faults.victim or rng.choice(nodes).name]
            world.after(some_time() // 3, self._back_up, victim)

    def _kill(self, node: Node) -> None:
        if node.up and node is not self.masked:
            self.cluster.down(node)

    def _stop(self, node: Node) -> None:
        if node is not self.masked:
            node.stop()

    def _cut(self, a: str, b: str) -> None:
        self.cluster.network.cut(a, b)
        self.world.after(self.world.about(self.faults.cut), self.cluster.network.heal, a, b)

    def _break(self, which: float) -> None:
        conns = list(self.cluster.network.connections.values())
        if conns:
            self.cluster.network.break_(conns[int(which * len(conns))])

    def _lie(self, which: float) -> None:
        """One end of a connection says what cannot be. The other one closes it, and nothing else has changed."""
        nodes = self.cluster.nodes
        ways = [
            (conn, end)
            for conn in self.cluster.network.connections.values()
            for end in conn.open
            if nodes[end].up and nodes[conn.other(end)].up and conn.number in nodes[end].server.neighbours.conns
        ]
        if not ways:
            return
        conn, end = ways[int(which * len(ways))]
        me, peer = nodes[end], nodes[conn.other(end)]
        if me.stopping:
            return
        link = me.server.neighbours.conns[conn.number]
        self._greet_wrongly(peer, me, link)
        frame, before = lie(self.world.rng, peer.server, me.server, link), (link.received, link.acked)
        self.lies += 1
        try:
            me.post(LinkFrames(peer.name, conn.number, [frame]))
        except PeerError as error:
            if (link.received, link.acked) != before or not str(error).isprintable():
                self.believed.append(f"{end} was changed by {frame!r:.200}")
            self.cluster.network.break_(conn)
        else:
            self.believed.append(f"{end} believed {frame!r:.200} of {peer.name}")

    def _greet_wrongly(self, peer: Node, me: Node, link: Link) -> None:
        """`peer` greets with one thing wrong, or new: that is refused or ignored, and nothing has changed."""
        before = link.row()
        values, admitted = greeting(self.world.rng, peer.greet(me.name).values(), link)
        try:
            me.admit(hello_of(values, peer.name))
        except (PeerError, PeerRefused) as error:
            wrong = admitted or not str(error).isprintable() or len(str(error)) > SENTENCE_CHARS
        else:
            wrong = not admitted
        if wrong or link.row() != before:
            self.believed.append(f"{me.name} judged wrongly the greeting {values!r:.500} of {peer.name}")

    def _damage(self, node: Node, which: float) -> None:
        if node is not self.masked:
            self.damages.strike(node, which)

    # -- the wrong store -------------------------------------------------------------------------------------------

    def _back_up(self, node: Node) -> None:
        wrong = node.new_store(1 if self.faults.impostor == NEW_DISK else 0)
        if self.faults.impostor == BACKUP:
            wrong.restore(node.disk.store.snapshot())
        self.world.after(self.world.about(50 * MS), self._mask, node, wrong)

    def _mask(self, node: Node, wrong: MemoryStore) -> None:
        """Start a server with the wrong store as soon as a neighbour must know better; the others cannot reach it."""
        if not self.cluster.faulty:
            return
        peers = self.cluster.neighbours(node.name)
        self.refusing = [peer for peer in peers if must_refuse(self.cluster.nodes[peer], node.name, wrong)]
        if not self.refusing:
            self.world.after(10 * MS, self._mask, node, wrong)
            return
        self.masked = node
        for peer in peers:
            if peer not in self.refusing:
                self.cluster.network.cut(node.name, peer)
        node.mask(wrong)

    def unmask(self) -> list[str]:
        """Nothing else is wrong any more: both sides must have refused and say so. Then the right store comes back."""
        node = self.masked
        if node is None:
            return []
        network, nodes = self.cluster.network, self.cluster.nodes
        for peer in self.refusing:
            network.heal_all(node.name, peer)
        for _ in range(20):  # until both have forgotten their old connections
            for peer in self.refusing:
                network.dial(node.name, peer)
                network.dial(peer, node.name)
            self.world.run(self.world.now + 100 * MS)
        wrong = []
        for peer in self.refusing:
            for me, other in ((node.name, peer), (peer, node.name)):
                problems = status(nodes[me].server)["problems"]
                told = [line for line in problems if line.startswith(f"{other} is refused")]
                self.said += told
                if len(told) != 1 or "`mom domain reset`" not in told[0]:
                    wrong.append(f"{me} does not say that {other} is refused and what to do: {told}")
        if any(link.conn for consumer in node.server.channel.domains.values() for link in consumer.links.values()):
            wrong.append(f"somebody talks to {node.name}, which runs on the wrong store")
        node.unmask()
        return wrong


def must_refuse(node: Node, peer: str, store: MemoryStore) -> bool:
    """Does what `node` has durably prove that `store` is not the one that `peer` had?"""
    known = _row(node.disk.store, peer)
    if known is None:
        return False
    if known.incarnation and known.incarnation != store.meta()[INCARNATION]:
        return True
    theirs = _row(store, node.name) or LinkRow(0, "", "", 0, 0, 0, "")
    return known.received > theirs.sent or known.acked > theirs.received


def _row(store: MemoryStore, peer: str) -> LinkRow | None:
    return next((row for row in store.links() if row.peer == peer), None)
