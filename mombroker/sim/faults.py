"""What goes wrong in a run: drawn from the seed, first which kinds there are at all, then how often each."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from mombroker.core.batch import LinkRow
from mombroker.core.errors import SENTENCE_CHARS, PeerError, PeerRefused
from mombroker.core.events import LinkFrames
from mombroker.core.hello import hello_of
from mombroker.core.link import Link
from mombroker.core.status import status
from mombroker.sim.damage import Damages
from mombroker.sim.lies import greeting, lie
from mombroker.sim.world import MS
from mombroker.store.memory import MemoryStore

if TYPE_CHECKING:
    from mombroker.sim.cluster import Cluster, Node

POINTS = (
    "open batch", "open batch of a router", "in commit", "in commit, next open", "durable, unseen",
    "committed, unsent", "half sent", "sent, unacknowledged", "acknowledged, held",
)  # fmt: skip
RARE = ("open batch of a router", "in commit, next open", "acknowledged, held")
BACKUP, NEW_DISK = "backup", "new disk"


@dataclass(slots=True)
class Faults:
    """Probabilities are per occasion, means in ns; the default is a calm bus."""

    points: dict[str, float] = field(default_factory=dict)  # where a process may die
    crashes: int = 0  # at those points, at most
    kills: int = 0  # of a process at any moment
    stops: int = 0  # of a process in good order
    blackouts: int = 0  # all processes at once
    down: int = 60 * MS  # mean time to the restart
    notice: int = 20 * MS  # mean time until a peer learns of a death
    cuts: int = 0  # between two servers, or around one
    cut: int = 60 * MS
    breaks: int = 0  # of a connection
    skew: int = 0  # of a server's wall clock, set anew at each start
    failing: float = 0.0  # reactions
    lies: int = 0  # that a neighbour tells on a live connection, see lies.py
    damage: int = 0  # attempts to damage a message's row on a disk, see damage.py
    impostor: str = ""  # BACKUP, NEW_DISK: at the end a server comes back with the wrong store
    victim: str = ""  # that server; any, if empty
    latency: int = 2 * MS
    commit: int = MS


# Links that come and go while slow disks lose what is in COMMIT: what is durable and what is in memory differ most.
STORM = Faults(
    points={"in commit": 0.1, "in commit, next open": 0.2}, crashes=60, breaks=150, latency=MS // 10, commit=8 * MS,
    notice=MS, down=MS,
)  # fmt: skip


def draw(rng: Random) -> Faults:
    if rng.random() < 0.05:
        return STORM
    faults = Faults(
        down=rng.choice((1, 30, 200)) * MS,
        notice=rng.choice((1, 20, 300)) * MS,
        cut=rng.choice((5, 60, 300)) * MS,
        latency=rng.choice((MS // 10, 2 * MS, 20 * MS)),
        commit=rng.choice((MS // 10, MS, 8 * MS)),
    )
    if rng.random() < 0.7:
        chosen = {*rng.sample(POINTS, rng.randint(1, 4)), rng.choice(RARE)}
        faults.points = {p: rng.choice((0.02, 0.1, 0.4)) * (2.5 if p in RARE else 1) for p in POINTS if p in chosen}
        faults.crashes = rng.randint(1, 12)
    if rng.random() < 0.4:
        faults.kills = rng.randint(1, 6)
    if rng.random() < 0.2:
        faults.stops = rng.randint(1, 4)
    if rng.random() < 0.1:
        faults.blackouts = rng.randint(1, 2)
    if rng.random() < 0.5:
        faults.cuts = rng.randint(1, 6)
    if rng.random() < 0.5:
        faults.breaks = rng.randint(1, 15)
    if rng.random() < 0.3:
        faults.skew = rng.choice((MS, 500 * MS))
    if rng.random() < 0.3:
        faults.failing = rng.choice((0.02, 0.1))
    if rng.random() < 0.15:
        faults.impostor = rng.choice((BACKUP, NEW_DISK))
    return faults


class Mischief:
    """Carries out the faults that come from outside of the processes."""

    def __init__(self, cluster: "Cluster"):
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

    def _kill(self, node: "Node") -> None:
        if node.up and node is not self.masked:
            self.cluster.down(node)

    def _stop(self, node: "Node") -> None:
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
            if nodes[end].up and nodes[conn.other(end)].up and conn.number in nodes[end].server.conns
        ]
        if not ways:
            return
        conn, end = ways[int(which * len(ways))]
        me, peer = nodes[end], nodes[conn.other(end)]
        if me.stopping:
            return
        link = me.server.conns[conn.number]
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

    def _greet_wrongly(self, peer: "Node", me: "Node", link: Link) -> None:
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

    def _damage(self, node: "Node", which: float) -> None:
        if node is not self.masked:
            self.damages.strike(node, which)

    # -- the wrong store -------------------------------------------------------------------------------------------

    def _back_up(self, node: "Node") -> None:
        wrong = node.new_store(1 if self.faults.impostor == NEW_DISK else 0)
        if self.faults.impostor == BACKUP:
            wrong.restore(node.disk.store.snapshot())
        self.world.after(self.world.about(50 * MS), self._mask, node, wrong)

    def _mask(self, node: "Node", wrong: MemoryStore) -> None:
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
        if any(link.conn for consumer in node.server.consumers.values() for link in consumer.links.values()):
            wrong.append(f"somebody talks to {node.name}, which runs on the wrong store")
        node.unmask()
        return wrong


def must_refuse(node: "Node", peer: str, store: MemoryStore) -> bool:
    """Does what `node` has durably prove that `store` is not the one that `peer` had?"""
    known = _row(node.disk.store, peer)
    if known is None:
        return False
    if known.incarnation and known.incarnation != store.meta()["incarnation"]:
        return True
    theirs = _row(store, node.name) or LinkRow(0, "", "", 0, 0, 0, "")
    return known.received > theirs.sent or known.acked > theirs.received


def _row(store: MemoryStore, peer: str) -> LinkRow | None:
    return next((row for row in store.links() if row.peer == peer), None)
