"""Connections between neighbours under virtual time: slow, cut, broken and reopened, and in order only within one.

Acknowledgements overtake data on the same connection, as they do in the broker; nothing else does. Two connections
have no order between them. Frames that are under way when a connection breaks are lost from some moment on.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from mombroker.core.errors import NotYet, PeerRefused
from mombroker.core.events import LinkDown, LinkFrame, LinkFrames, LinkUp
from mombroker.core.hello import Hello, hello_of
from mombroker.sim.world import MS, World

NEVER = 1 << 63


class Busy(PeerRefused):
    """There is a better connection between these two already; nothing is wrong."""


class Peer(Protocol):
    """A server's process as the network sees it."""

    epoch: int  # rises at each boot
    up: bool

    def greet(self, peer: str) -> Hello: ...
    def admit(self, hello: Hello) -> None: ...
    def post(self, event: Any) -> None: ...
    def refused(self, peer: str, error: PeerRefused) -> None: ...
    def undialled(self, peer: str) -> None: ...  # an attempt has failed


class Connection:
    __slots__ = ("number", "dialler", "listener", "open", "lost", "last", "broken")

    def __init__(self, number: int, dialler: str, listener: str):
        self.number, self.dialler, self.listener = number, dialler, listener
        self.open = {dialler: False, listener: True}  # does this end believe in it?
        self.lost = {dialler: NEVER, listener: NEVER}  # frames that would arrive at this end from then on are lost
        self.last: dict[tuple[str, bool], int] = {}  # (end, is data) -> latest arrival
        self.broken = False

    def other(self, end: str) -> str:
        return self.listener if end == self.dialler else self.dialler


class Network:
    """1. Frames of one kind on one connection arrive in the order of sending, and none after a lost one.
    2. Each end hears LinkUp once and LinkDown at most once of a connection, and nothing after LinkDown.
    """

    def __init__(self, world: World, peers: dict[str, Any], names: list[str], latency: int):
        self.world, self.peers = world, peers
        # Some ways are much longer than others: what takes a short cut arrives before its cause.
        self.base = {(a, b): world.about(latency * world.rng.choice((1, 1, 8))) for a in names for b in names if a != b}
        self.connections: dict[int, Connection] = {}
        self.cuts: dict[tuple[str, str], int] = {}  # pair -> number of cuts at this moment
        self.attempts: dict[tuple[str, str], int] = {}  # (dialler, peer) -> number of the attempt under way
        self.numbers = 0
        self.counts = {"frames": 0, "lost": 0, "links": 0, "breaks": 0, "refusals": 0}

    def delay(self, a: str, b: str) -> int:
        return self.base[a, b] + self.world.about(self.base[a, b] // 2)

    # -- frames ------------------------------------------------------------------------------------------------

    def send(self, number: int, end: str, frames: list[LinkFrame]) -> None:
        """Frames for a connection that is gone are dropped."""
        conn = self.connections.get(number)
        if conn is None or not conn.open[end]:
            return
        to = conn.other(end)
        for data in (False, True):
            lane = [frame for frame in frames if (frame[0] == "data") == data]
            # Each frame by itself or all at once: both happen to a stream of bytes.
            for part in [[frame] for frame in lane] if len(lane) < 2 or self.world.chance(0.5) else [lane]:
                at = max(conn.last.get((to, data), 0), self.world.now + self.delay(end, to))
                conn.last[to, data] = at
                self.world.after(at - self.world.now, self._arrive, conn, to, part)

    def _arrive(self, conn: Connection, end: str, frames: list[LinkFrame]) -> None:
        if not conn.open[end] or self.world.now >= conn.lost[end]:
            self.counts["lost"] += len(frames)
            return
        self.counts["frames"] += len(frames)
        self.peers[end].post(LinkFrames(conn.other(end), conn.number, list(frames)))

    # -- opening -----------------------------------------------------------------------------------------------

    def dial(self, a: str, b: str) -> None:
        """One attempt of `a`; on failure `undialled` is called. Nothing happens while there is a connection."""
        if (a, b) in self.attempts or any(conn.open[a] for conn in self._of(a, b)):
            return
        self.numbers += 1
        self.attempts[a, b] = self.numbers
        epoch = self.peers[a].epoch
        if b in self.peers:
            self._later(a, b, self._knock, a, epoch, b, self.numbers)
        else:  # nobody has started it yet
            self.world.after(MS, self._fail, a, epoch, b, self.numbers)

    def _later(self, frm: str, to: str, call: Any, *args: Any) -> None:
        self.world.after(self.delay(frm, to), call, *args)

    def _of(self, a: str, b: str) -> Iterator[Connection]:
        ends = {a, b}
        return (conn for conn in list(self.connections.values()) if {conn.dialler, conn.listener} == ends)

    def _apart(self, a: str, b: str) -> bool:
        return bool(self.cuts.get((min(a, b), max(a, b))))

    def _fail(self, a: str, epoch: int, b: str, attempt: int) -> None:
        if self.attempts.get((a, b)) == attempt:
            del self.attempts[a, b]
            if self.peers[a].up and self.peers[a].epoch == epoch:
                self.peers[a].undialled(b)

    def _knock(self, a: str, epoch: int, b: str, attempt: int) -> None:
        """The dialler has reached the listener, which shows who it is first."""
        peer = self.peers[b]
        if self._apart(a, b) or not peer.up or self._busy(a, b):
            self._later(b, a, self._fail, a, epoch, b, attempt)
            return
        try:
            values = peer.greet(a).values()
        except PeerRefused as error:  # they are no neighbours, or not any more
            self._refuse(b, a, epoch, error)
            self._later(b, a, self._fail, a, epoch, b, attempt)
        else:
            self._later(b, a, self._shown, a, epoch, b, peer.epoch, attempt, values)

    def _busy(self, a: str, b: str) -> bool:
        """When both dial, the lower name's attempt is the one that counts."""
        return b < a and ((b, a) in self.attempts or any(conn.open[b] and conn.dialler == b for conn in self._of(a, b)))

    def _shown(self, a: str, epoch: int, b: str, other: int, attempt: int, values: dict[str, Any]) -> None:
        """The dialler judges the listener, and shows who it is itself."""
        peer = self.peers[a]
        if not peer.up or peer.epoch != epoch:
            self.attempts.pop((a, b), None) if self.attempts.get((a, b)) == attempt else None
            return
        if self._apart(a, b):
            self._fail(a, epoch, b, attempt)
            return
        hello = hello_of(values, b)
        try:
            peer.admit(hello)
        except PeerRefused as error:
            self._refuse(a, b, other, error)
            self._fail(a, epoch, b, attempt)
        else:
            self._later(a, b, self._welcome, a, epoch, b, other, attempt, peer.greet(b).values(), hello)

    def _refuse(self, by: str, peer: str, epoch: int, error: PeerRefused) -> None:
        """One end refuses the other, and says why."""
        self.counts["refusals"] += 1
        self.peers[by].refused(peer, error)
        if not isinstance(error, NotYet) and self.peers[peer].up and self.peers[peer].epoch == epoch:
            self.peers[peer].refused(by, error)

    def _welcome(
        self, a: str, epoch: int, b: str, other: int, attempt: int, values: dict[str, Any], theirs: Hello
    ) -> None:
        """The listener judges the dialler; from now on it believes in the connection."""
        peer = self.peers[b]
        if self._apart(a, b) or not peer.up or peer.epoch != other or self._busy(a, b):
            self._later(b, a, self._fail, a, epoch, b, attempt)
            return
        mine = hello_of(values, a)
        try:
            peer.admit(mine)
        except PeerRefused as error:
            self._refuse(b, a, epoch, error)
            self._later(b, a, self._fail, a, epoch, b, attempt)
            return
        conn = Connection(attempt, a, b)
        self._replace(a, b, b)
        self.connections[conn.number] = conn
        self.counts["links"] += 1
        peer.post(LinkUp(a, conn.number, mine))
        arrival = self.world.now + self.delay(b, a)
        conn.last[a, False] = conn.last[a, True] = arrival
        self.world.after(arrival - self.world.now, self._up, conn, epoch, attempt, theirs)

    def _replace(self, a: str, b: str, end: str) -> None:
        """This end drops the connection that it had with the other before."""
        for old in self._of(a, b):
            if old.open[end]:
                self._close(old, end)
                self.break_(old)

    def _up(self, conn: Connection, epoch: int, attempt: int, hello: Hello) -> None:
        a, b = conn.dialler, conn.listener
        peer = self.peers[a]
        if not peer.up or peer.epoch != epoch or self.attempts.get((a, b)) != attempt:
            self.break_(conn)
            return
        if self.world.now >= conn.lost[a]:
            self._fail(a, epoch, b, attempt)
            return
        try:
            peer.admit(hello)
        except PeerRefused as error:  # it has taken over other domains meanwhile
            self._refuse(a, b, self.peers[b].epoch, error)
            self.break_(conn)
            self._fail(a, epoch, b, attempt)
            return
        del self.attempts[a, b]
        for old in self._of(a, b):
            if old is not conn and old.open[a]:
                self._close(old, a)
                self.break_(old)
        conn.open[a] = True
        peer.post(LinkUp(b, conn.number, hello))

    def hang_up(self, number: int, end: str) -> None:
        """This end closes its connection: what it has sent arrives."""
        conn = self.connections.get(number)
        if conn is None or not conn.open[end]:
            return
        other, now = conn.other(end), self.world.now
        self._close(conn, end)
        if not conn.broken:
            conn.broken = True
            last = max(conn.last.get((other, True), now), conn.last.get((other, False), now))
            self.world.after(last + 1 - now, self._close, conn, other)

    # -- breaking ----------------------------------------------------------------------------------------------

    def _close(self, conn: Connection, end: str) -> None:
        """This end learns that the connection is gone."""
        if conn.open[end]:
            conn.open[end] = False
            self.peers[end].post(LinkDown(conn.other(end), conn.number))
        if conn.broken and not any(conn.open.values()):
            self.connections.pop(conn.number, None)

    def break_(self, conn: Connection, notice: int = 5 * MS) -> None:
        """What is under way is lost from some moment on; each end learns of it later, by itself."""
        if conn.broken:
            return
        conn.broken = True
        self.counts["breaks"] += 1
        now = self.world.now
        for end in conn.open:
            latest = max(conn.last.get((end, True), now), conn.last.get((end, False), now), now)
            conn.lost[end] = now + int((latest - now + 1) * self.world.rng.random())
            self.world.after(conn.lost[end] - now + self.world.about(notice), self._close, conn, end)

    def cut(self, a: str, b: str) -> None:
        """No connection between the two until each cut is healed."""
        pair = (min(a, b), max(a, b))
        self.cuts[pair] = self.cuts.get(pair, 0) + 1
        for conn in self._of(a, b):
            self.break_(conn)

    def heal(self, a: str, b: str) -> None:
        pair = (min(a, b), max(a, b))
        self.cuts[pair] = max(0, self.cuts.get(pair, 0) - 1)

    def heal_all(self, a: str = "", b: str = "") -> None:
        """All cuts between two servers, or everywhere."""
        for pair in [(min(a, b), max(a, b))] if a else list(self.cuts):
            self.cuts.pop(pair, None)

    def crash(self, name: str, notice: int) -> None:
        """The process of `name` is gone; what it has written may still arrive."""
        for conn in list(self.connections.values()):
            if name in conn.open:
                conn.open[name] = False
                self.break_(conn, notice)
        for attempt in [attempt for attempt in self.attempts if attempt[0] == name]:
            del self.attempts[attempt]
