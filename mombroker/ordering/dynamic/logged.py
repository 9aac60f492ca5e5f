"""A daisy that keeps logs, so that what a lost connector has not passed on can be passed on by the next one.

One member's part while nothing changes: messages, acknowledgements, rows and bytes. How groups change is in `evolving`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from mombroker.ordering.base import Ordering, Packet, Rows, Step
from mombroker.ordering.daisy import Daisy, Edge
from mombroker.ordering.dynamic import changes
from mombroker.ordering.dynamic.changes import Clear, Counts, Gid, Heard, Place, Pool, Said, State, name
from mombroker.ordering.dynamic.circle import Circle, Way
from mombroker.ordering.dynamic.frozen import freeze, thaw
from mombroker.ordering.groups import TOP, even, plant

REST, CIRCLE = 0, 1  # kinds of rows in the store
CLASSES = (*changes.STAMPS, Packet)
_REST = tuple[Counts, Gid, bool, list[Packet], dict[Gid, list[tuple[int, Packet]]],
              dict[Edge, list[tuple[Place | None, Packet]]]]  # fmt: skip
_WIRE = tuple[tuple[int, ...], bytes, int, Any]


class LoggedDaisy(Ordering):
    """A daisy whose members keep what is not stable, and acknowledge all that they receive (protocols §6.3).

    1. A broadcast that waits is not the next of its seat, or counts more than is delivered here.
    2. There is an outbox for each way between two groups that this member connects, and no other.
    """

    fifo = True
    relays = True
    options = Daisy.options

    def __init__(
        self,
        me: int,
        size: int,
        groups: Sequence[Any] | None = None,
        connectors: Sequence[int] = (),
        relay: str = "eager",
    ):
        self.me, self.size, self.relay = me, size, relay
        self.tree = plant(even(size) if groups is None else groups, connectors)
        self.last: Counts = {}  # by origin: the number of its last message that was delivered here, or sent
        self.circles: dict[Gid, Circle] = {}
        for gid, group in enumerate(self.tree):
            if me in group.members:
                circle = self._circle(gid, group.parent)
                circle.sit(dict(zip(group.children or group.members, group.members, strict=True)))
                circle.view, circle.ready = 1, True
        self.home = next(gid for gid, circle in self.circles.items() if circle.leaf)
        self.ways: dict[Edge, Way] = {}
        self._connect()
        self.holding = False
        self.unsent: list[Packet] = []
        self.strays: dict[Gid, list[tuple[int, Packet]]] = {}  # of groups that this member will hear of
        self._touched = False  # since the last `dirty`
        self._saved: Rows = {}

    def _circle(self, gid: Gid, parent: Gid) -> Circle:
        """A group that is new here; those that the tree does not know are leaf groups."""
        group = self.tree[gid] if gid < len(self.tree) and self.tree[gid].children else None
        circle = Circle(gid, parent, group is None, group.below if group else frozenset())
        self.circles = dict(sorted((self.circles | {gid: circle}).items()))  # the same order after a restart
        return circle

    # -- the application -----------------------------------------------------------------------------------------

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        number = self.last[self.me] = self.last.get(self.me, 0) + 1
        self.unsent.append(Packet(self.me, tuple(dests), body, self.me, Said(number), self.me))
        step = Step([], [])
        self._release(step)
        assert not step.deliver, "what could be delivered was delivered before"
        return step.send

    def _hand_over(self, packet: Packet, step: Step) -> None:
        number = packet.stamp.number
        if self.me in packet.dests and number > self.last.get(packet.origin, 0):
            self.last[packet.origin] = number
            step.deliver.append(packet)

    # -- packets -------------------------------------------------------------------------------------------------

    def receive(self, frm: int, packet: Packet) -> Step:
        step = Step([], [])
        before = self._waiting()
        self._take(frm, packet, step)
        self._release(step)
        kept = {id(each) for each in self._waiting()} | set(map(id, step.deliver))
        step.freed = [each for each in before if id(each) not in kept]
        return step

    def _waiting(self) -> list[Packet]:
        return [packet for circle in self.circles.values() for packet in circle.waiting.values()]

    def _take(self, frm: int, packet: Packet, step: Step) -> None:
        stamp: changes.Stamp = packet.stamp
        circle = self.circles.get(stamp.gid)
        if circle is None:
            self.strays.setdefault(stamp.gid, []).append((frm, packet))
        elif frm in circle.lost:
            pass
        elif isinstance(stamp, Said):
            self._hear(circle, frm, packet, step)
        elif isinstance(stamp, Heard):
            circle.learn({stamp.key: stamp.got}, stamp.done)
        elif isinstance(stamp, Pool):
            self._inherit(circle, stamp.packets)
        elif isinstance(stamp, Clear):
            circle.inherited = [each for each in circle.inherited if name(each) not in stamp.ids]

    def _hear(self, circle: Circle, frm: int, packet: Packet, step: Step) -> None:
        """A message in a group."""
        said: Said = packet.stamp
        if not circle.ready or said.view > circle.view or circle.halted:
            circle.early.append((frm, packet))
        elif said.view == circle.view and not circle.left:
            if said.place[1] > circle.counts.get(said.place[0], 0) and said.place not in circle.waiting:
                circle.waiting[said.place] = packet
                self._deliver(circle, step)
            else:
                self.duplicates += 1

    def _deliver(self, circle: Circle, step: Step) -> None:
        while ready := [packet for packet in circle.waiting.values() if not circle.causes(packet.stamp)]:
            for packet in ready:
                said: Said = packet.stamp
                del circle.waiting[said.place]
                circle.counts[said.place[0]] = said.place[1]
                self._delivered(circle, packet, packet, step)

    def _broadcast(self, circle: Circle, packet: Packet, down: bool, step: Step) -> None:
        """Send a message to a group, unless it has it; here it is delivered at once."""
        origin: Said = packet.stamp
        if origin.marks == TOP and origin.number <= circle.seen.get(packet.origin, 0):
            return
        key = circle.key_of(self.me)
        number = circle.counts[key] = circle.counts.get(key, 0) + 1
        counts = {each: circle.counts.get(each, 0) for each in circle.seats}
        said = Said(origin.number, circle.gid, circle.view, (key, number), counts, down, origin.marks)
        for to in circle.members:
            if to != self.me:
                step.send.append(Packet(to, packet.dests, packet.body, packet.origin, said))
        copy = Packet(self.me, packet.dests, packet.body, packet.origin, said, self.me)
        self._delivered(circle, copy, packet, step)

    def _delivered(self, circle: Circle, packet: Packet, came: Packet, step: Step) -> None:
        """`came` is the packet as it came to this member, in this group or another."""
        said: Said = packet.stamp
        if said.marks != TOP:
            circle.marked.add(said.marks)
        elif said.number <= circle.seen.get(packet.origin, 0):
            return  # two connectors have passed it on, one after the other
        else:
            circle.seen[packet.origin] = said.number
        circle.record(packet)
        if circle.gid == self.home:
            self._hand_over(came, step)
        for way in self.ways.values():
            if way.frm is circle and way.crosses(packet):
                way.outbox.append((said.place, came))

    # -- from group to group -------------------------------------------------------------------------------------

    def _edges(self) -> Iterator[Edge]:
        """The ways between two groups that this member connects; those upwards first."""
        for circle in self.circles.values():
            parent = self.circles.get(circle.parent)
            if parent and circle.active and parent.active and parent.seats.get(circle.gid) == self.me:
                yield circle.gid, parent.gid
                yield parent.gid, circle.gid

    def _connect(self) -> None:
        """After a change of seats: a new connector passes on what its group lacks of the other, first upwards."""
        before, self.ways = self.ways, {}
        for edge in self._edges():
            way = before.get(edge)
            if way is None:
                way = Way(self.circles[edge[0]], self.circles[edge[1]])
                way.fill()
                if way.up:
                    way.outbox += [(None, self._marker(fork)) for fork in sorted(way.frm.forks)]
            self.ways[edge] = way

    def _marker(self, fork: Gid) -> Packet:
        return Packet(self.me, (), b"", self.me, Said(0, marks=fork), self.me)

    def _release(self, step: Step) -> None:
        """The end of every input: send and pass on what may go."""
        self._touched = moved = True
        while moved:
            moved = False
            home = self.circles[self.home]
            while self.unsent and not self.holding and home.open:
                self._broadcast(home, self.unsent.pop(0), False, step)
                moved = True
            for way in self.ways.values():
                while way.outbox and self._may_go(way, way.outbox[0][0]):
                    self._broadcast(way.to, way.outbox.pop(0)[1], not way.up, step)
                    moved = True

    def _may_go(self, way: Way, place: Place | None) -> bool:
        if not way.to.open or (way.up and way.frm.young and way.frm.gid not in way.to.marked):
            return False
        return self.relay == "eager" or place is None or place[1] <= way.frm.stored(place[0])

    # -- stability -----------------------------------------------------------------------------------------------

    def _report(self, step: Step) -> None:
        for circle in self.circles.values():
            if circle.active:
                told = circle.received(), {way.key: way.done() for way in self.ways.values() if way.frm is circle}
                if told != circle.told:
                    circle.told = told
                    heard = Heard(circle.gid, circle.key_of(self.me), *told)
                    circle.learn({heard.key: heard.got}, heard.done)
                    self._tell(circle, heard, step)
                if not circle.views:  # else new members may need what the old ones have
                    circle.forget()
        for way in self.ways.values():
            settled = [name(each) for each in way.frm.inherited if way.up and way.is_settled(each)]
            if settled:
                way.frm.inherited = [each for each in way.frm.inherited if name(each) not in settled]
                self._tell(way.frm, Clear(way.frm.gid, settled), step)

    def _inherit(self, circle: Circle, packets: list[Packet]) -> None:
        """Take up messages that came from outside; a connector passes them on."""
        known = {name(packet) for packet in circle.inherited}
        fresh = [packet for packet in packets if name(packet) not in known]
        circle.inherited += fresh
        way = self.ways.get((circle.gid, circle.parent))
        if way:
            way.outbox += [(None, packet) for packet in fresh if way.crosses(packet)]

    def _tell(self, circle: Circle, stamp: changes.Stamp, step: Step) -> None:
        step.send += [Packet(to, (), b"", self.me, stamp) for to in circle.members if to != self.me]

    # -- the rest of an ordering ---------------------------------------------------------------------------------

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Seats are named by their members, or not at all."""
        found = []
        for circle in self.circles.values():
            for packet in circle.waiting.values():
                causes = [(circle.seats.get(key), number) for key, number in circle.causes(packet.stamp)]
                found.append((packet, [(member, number) for member, number in causes if member is not None]))
        return found

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        """One row for each group and one for the rest, if it has changed, whole: changes are rare, and logs short."""
        if not self._touched:
            return {}, set()
        self._touched = False
        outboxes = {edge: way.outbox for edge, way in self.ways.items()}
        rest = self.last, self.home, self.holding, self.unsent, self.strays, outboxes
        rows: Rows = {(REST, 0): freeze(rest)}
        rows |= {(CIRCLE, gid): freeze(circle) for gid, circle in self.circles.items()}
        put = {key: blob for key, blob in rows.items() if self._saved.get(key) != blob}
        gone = self._saved.keys() - rows.keys()
        self._saved = rows
        return put, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        if rows:
            rest = thaw(rows[REST, 0], _REST, CLASSES)
            core.last, core.home, core.holding, core.unsent, core.strays, outboxes = rest
            circles = {gid: thaw(blob, Circle, CLASSES) for (kind, gid), blob in sorted(rows.items()) if kind}
            core.circles = circles
            core.ways = {(a, b): Way(circles[a], circles[b], outbox) for (a, b), outbox in outboxes.items()}
            core._saved = dict(rows)
        return core

    def encode(self, packet: Packet) -> bytes:
        return freeze([packet.dests, packet.body, packet.origin, packet.stamp])

    def decode(self, frm: int, data: bytes) -> Packet:
        dests, body, origin, stamp = thaw(data, _WIRE, CLASSES)
        packet = Packet(self.me, dests, body, origin, stamp, frm)
        if not isinstance(stamp, changes.STAMPS):
            raise ValueError("no packet of a daisy")
        inner = [*stamp.log, *stamp.inherited] if isinstance(stamp, State) else []
        inner += stamp.packets if isinstance(stamp, Pool) else []
        for each in [packet, *inner] if isinstance(stamp, Said) else inner:
            self._expect_message(each)
        return packet

    def _expect_message(self, packet: Packet) -> None:
        """Raises ValueError for what no member says in a group."""
        said, dests = packet.stamp, packet.dests
        members = 0 <= min(packet.origin, *dests) and max(packet.origin, *dests) < self.size if dests else True
        if not isinstance(said, Said) or not members or packet.origin in dests or len(set(dests)) < len(dests):
            raise ValueError(f"no message among {self.size} members: {dests} from {packet.origin}")
        if (said.marks == TOP) != bool(dests) or (said.number < 1 and dests) or said.place[1] < 1:
            raise ValueError(f"no message of a daisy: {said}")

    def control_ints(self, packet: Packet) -> int:
        return len(packet.stamp.counts) if isinstance(packet.stamp, Said) else 2

    def check(self) -> None:
        for circle in self.circles.values():
            assert all(circle.causes(each.stamp) for each in circle.waiting.values()), "1: one waits for nothing"
        assert [*self.ways] == [*self._edges()], "2: outboxes and ways differ"
