"""The algorithms word by word, O(n^2) a step, to compare the back ends with; and scenes of a few members to play."""

from typing import Any

from mombroker.core.causality import Event, check
from mombroker.ordering import Ordering, Packet

Cells = dict[tuple[int, int], int]


class PlainUpdates:
    """protocols §2.1 for one member."""

    def __init__(self, me: int, size: int):
        self.me, self.size = me, size
        self.state = 1
        self.value = [[0] * size for _ in range(size)]
        self.changed = [[0] * size for _ in range(size)]
        self.node: list[list[int | None]] = [[None] * size for _ in range(size)]
        self.told = [0] * size
        self.buffer: list[tuple[int, Cells, Any]] = []

    def send(self, dests: tuple[int, ...]) -> list[Cells]:
        for d in dests:
            self.value[self.me][d] += 1
            self.changed[self.me][d] = self.state
            self.node[self.me][d] = self.me
        pairs = [(k, x) for k in range(self.size) for x in range(self.size)]
        stamps = [
            {(k, x): self.value[k][x] for k, x in pairs if self.changed[k][x] > self.told[d] and self.node[k][x] != d}
            for d in dests
        ]
        for d in dests:
            self.told[d] = self.state
        self.state += 1
        return stamps

    def deliverable(self, frm: int, stamp: Cells) -> bool:
        own = frm, self.me
        others = [self.value[k][x] >= v for (k, x), v in stamp.items() if x == self.me and (k, x) != own]
        return stamp[own] == self.value[frm][self.me] + 1 and all(others)

    def receive(self, frm: int, stamp: Cells, message: Any, order: list[Any]) -> None:
        """`order` is what was delivered elsewhere: the same must be deliverable here, in this order, and no more."""
        self.buffer.append((frm, stamp, message))
        for name in order:
            (ready,) = (each for each in self.buffer if each[2] == name)
            frm, stamp, message = ready
            assert self.deliverable(frm, stamp)
            self.buffer.remove(ready)
            for (k, x), v in stamp.items():
                if v > self.value[k][x]:
                    self.value[k][x], self.changed[k][x], self.node[k][x] = v, self.state, frm
        assert not any(self.deliverable(frm, stamp) for frm, stamp, _ in self.buffer)


class PlainRST:
    """protocols §1 for one member."""

    def __init__(self, me: int, size: int):
        self.me, self.size = me, size
        self.sent = [[0] * size for _ in range(size)]
        self.delivered = [0] * size
        self.buffer: list[tuple[int, tuple[int, ...], list[list[int]], Any]] = []

    def send(self, dests: tuple[int, ...]) -> list[list[int]]:
        stamp = [row[:] for row in self.sent]
        for d in dests:
            self.sent[self.me][d] += 1
        return stamp

    def receive(self, frm: int, dests: tuple[int, ...], stamp: list[list[int]], message: Any) -> list[Any]:
        self.buffer.append((frm, dests, stamp, message))
        delivered = []
        everyone = range(self.size)
        while ready := [x for x in self.buffer if all(self.delivered[s] >= x[2][s][self.me] for s in everyone)]:
            self.buffer.remove(ready[0])
            frm, dests, stamp, message = ready[0]
            self.delivered[frm] += 1
            self.sent = [list(map(max, mine, theirs)) for mine, theirs in zip(self.sent, stamp, strict=True)]
            for d in dests:
                self.sent[frm][d] = max(self.sent[frm][d], stamp[frm][d] + 1)
            delivered.append(message)
        return delivered


class Scene:
    """Members of one domain, played by hand: who sends, and which packet arrives next. Messages have names."""

    def __init__(self, backend: type[Ordering], size: int, **options: Any):
        self.cores = [backend(me, size, **options) for me in range(size)]
        self.packets: dict[tuple[str, int], tuple[int, Packet]] = {}  # (message, member) -> its sender, its packet
        self.events: list[Event] = []
        self.expired: set[str] = set()

    def send(self, name: str, frm: int, *dests: int) -> list[Any]:
        """The stamps, in order of the destinations."""
        packets = self.cores[frm].send(dests, name.encode())
        self.packets.update({(name, packet.to): (frm, packet) for packet in packets})
        self.events.append(("send", frm, name, dests))
        return [packet.stamp for packet in packets]

    def arrive(self, name: str, to: int) -> list[str]:
        """The messages that this sets free, in order of their delivery."""
        frm, packet = self.packets[name, to]
        data = self.cores[frm].encode(packet)
        packet = self.cores[to].decode(frm, data)
        packet.note = name
        step = self.cores[to].receive(frm, packet)
        self.cores[to].check()
        names = [done.note for done in step.deliver if done.body]
        self.events += [("deliver", to, each) for each in names]
        return names

    def expire(self, name: str, to: int) -> None:
        """Its payload goes, its stamp stays; the application gets nothing."""
        self.packets[name, to][1].body = b""
        self.expired.add(name)

    def resend(self, name: str, to: int) -> None:
        """The connection broke; the packet goes out once more, as it was stored unless the core makes it anew."""
        frm, packet = self.packets[name, to]
        getattr(self.cores[frm], "resend", lambda _: None)(packet)

    def verdict(self) -> str:
        """What the outsider says when all has arrived: "fine", "unsafe", or "stuck"."""
        verdict = check(self.events)
        overtaken = [late for _, late, _ in verdict.violations if late not in self.expired]
        lost = [late for _, late in verdict.lost if late not in self.expired]
        return "unsafe" if overtaken or verdict.duplicates or verdict.unsent else "stuck" if lost else "fine"


def overtaken(scene: Scene) -> None:
    """Vector V1: a (slow) causes b, b causes c, and a and c go to the same member."""
    scene.send("a", 0, 2)
    scene.send("b", 0, 1)
    scene.arrive("b", 1)
    scene.send("c", 1, 2)
    scene.arrive("c", 2)
    scene.arrive("a", 2)


def multicast(scene: Scene) -> None:
    """Vector V2: m goes to two, slowly to one of them, and the other reacts to it."""
    scene.send("m", 0, 1, 2)
    scene.arrive("m", 1)
    scene.send("x", 1, 2)
    scene.arrive("x", 2)
    scene.arrive("m", 2)


def told(scene: Scene) -> None:
    """A message that was delivered long ago comes up in a stamp of another member."""
    scene.send("a", 0, 2)
    scene.arrive("a", 2)
    scene.send("b", 0, 1)
    scene.arrive("b", 1)
    scene.send("c", 1, 2)
    scene.arrive("c", 2)


def one(scene: Scene) -> None:
    scene.send("a", 0, 2)
    scene.arrive("a", 2)


def in_line(scene: Scene) -> None:
    """x (slow) causes first, first causes second; the delta of second does not repeat what first says of x."""
    scene.send("x", 1, 2)
    scene.send("y", 1, 0)
    scene.arrive("y", 0)
    scene.send("first", 0, 2)
    scene.send("second", 0, 2)
    scene.arrive("first", 2)
    scene.arrive("second", 2)
    scene.arrive("x", 2)


def again(scene: Scene) -> None:
    """x (slow) causes a, whose connection breaks before it has arrived."""
    scene.send("x", 1, 2)
    scene.send("y", 1, 0)
    scene.arrive("y", 0)
    scene.send("a", 0, 2)
    scene.resend("a", 2)
    scene.arrive("a", 2)
    scene.arrive("x", 2)


def expired(scene: Scene) -> None:
    """x (slow) causes a and b; a expires on its way."""
    scene.send("x", 1, 2)
    scene.send("y", 1, 0)
    scene.arrive("y", 0)
    scene.send("a", 0, 2)
    scene.expire("a", 2)
    scene.send("b", 0, 2)
    scene.arrive("a", 2)
    scene.arrive("b", 2)
    scene.arrive("x", 2)
