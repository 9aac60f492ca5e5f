"""A daisy that keeps logs, so that what a lost connector has not passed on can be passed on by the next one.

One member's part while nothing changes: messages, acknowledgements, rows and bytes. How groups change is in `evolving`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from mombroker.lab.dynamic import views
from mombroker.lab.dynamic.codec import pack, unpack
from mombroker.lab.dynamic.group_state import GroupState, Way
from mombroker.lab.dynamic.views import Clear, Counts, Gid, Heard, Place, Pool, Said, State, name
from mombroker.ordering.base import Ordering, Packet, Rows, Step
from mombroker.ordering.daisy import Daisy, Edge
from mombroker.ordering.groups import TOP, even, plant

REST, GROUP = 0, 1  # kinds of rows in the store
CLASSES = (*views.STAMPS, Packet)
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
        self.groups: dict[Gid, GroupState] = {}
        for gid, node in enumerate(self.tree):
            if me in node.members:
                group = self._group(gid, node.parent)
                group.sit(dict(zip(node.children or node.members, node.members, strict=True)))
                group.view, group.ready = 1, True
        self.home = next(gid for gid, group in self.groups.items() if group.leaf)
        self.ways: dict[Edge, Way] = {}
        self._connect()
        self.holding = False
        self.unsent: list[Packet] = []
        self.strays: dict[Gid, list[tuple[int, Packet]]] = {}  # of groups that this member will hear of
        self._touched = False  # since the last `dirty`
        self._saved: Rows = {}

    def _group(self, gid: Gid, parent: Gid) -> GroupState:
        """A group that is new here; those that the tree does not know are leaf groups."""
        node = self.tree[gid] if gid < len(self.tree) and self.tree[gid].children else None
        group = GroupState(gid, parent, node is None, node.below if node else frozenset())
        self.groups = dict(sorted((self.groups | {gid: group}).items()))  # the same order after a restart
        return group

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
        return [packet for group in self.groups.values() for packet in group.waiting.values()]

    def _take(self, frm: int, packet: Packet, step: Step) -> None:
        stamp: views.Stamp = packet.stamp
        group = self.groups.get(stamp.gid)
        if group is None:
            self.strays.setdefault(stamp.gid, []).append((frm, packet))
        elif frm in group.lost:
            pass
        elif isinstance(stamp, Said):
            self._hear(group, frm, packet, step)
        elif isinstance(stamp, Heard):
            group.learn({stamp.key: stamp.got}, stamp.done)
        elif isinstance(stamp, Pool):
            self._inherit(group, stamp.packets)
        elif isinstance(stamp, Clear):
            group.inherited = [each for each in group.inherited if name(each) not in stamp.ids]

    def _hear(self, group: GroupState, frm: int, packet: Packet, step: Step) -> None:
        """A message in a group."""
        said: Said = packet.stamp
        if not group.ready or said.view > group.view or group.halted:
            group.early.append((frm, packet))
        elif said.view == group.view and not group.left:
            if said.place[1] > group.counts.get(said.place[0], 0) and said.place not in group.waiting:
                group.waiting[said.place] = packet
                self._deliver(group, step)
            else:
                self.duplicates += 1

    def _deliver(self, group: GroupState, step: Step) -> None:
        while ready := [packet for packet in group.waiting.values() if not group.causes(packet.stamp)]:
            for packet in ready:
                said: Said = packet.stamp
                del group.waiting[said.place]
                group.counts[said.place[0]] = said.place[1]
                self._delivered(group, packet, packet, step)

    def _broadcast(self, group: GroupState, packet: Packet, down: bool, step: Step) -> None:
        """Send a message to a group, unless it has it; here it is delivered at once."""
        origin: Said = packet.stamp
        if origin.marks == TOP and origin.number <= group.seen.get(packet.origin, 0):
            return
        key = group.key_of(self.me)
        number = group.counts[key] = group.counts.get(key, 0) + 1
        counts = {each: group.counts.get(each, 0) for each in group.seats}
        said = Said(origin.number, group.gid, group.view, (key, number), counts, down, origin.marks)
        for to in group.members:
            if to != self.me:
                step.send.append(Packet(to, packet.dests, packet.body, packet.origin, said))
        copy = Packet(self.me, packet.dests, packet.body, packet.origin, said, self.me)
        self._delivered(group, copy, packet, step)

    def _delivered(self, group: GroupState, packet: Packet, came: Packet, step: Step) -> None:
        """`came` is the packet as it came to this member, in this group or another."""
        said: Said = packet.stamp
        if said.marks != TOP:
            group.marked.add(said.marks)
        elif said.number <= group.seen.get(packet.origin, 0):
            return  # two connectors have passed it on, one after the other
        else:
            group.seen[packet.origin] = said.number
        group.record(packet)
        if group.gid == self.home:
            self._hand_over(came, step)
        for way in self.ways.values():
            if way.frm is group and way.crosses(packet):
                way.outbox.append((said.place, came))

    # -- from group to group -------------------------------------------------------------------------------------

    def _edges(self) -> Iterator[Edge]:
        """The ways between two groups that this member connects; those upwards first."""
        for group in self.groups.values():
            parent = self.groups.get(group.parent)
            if parent and group.active and parent.active and parent.seats.get(group.gid) == self.me:
                yield group.gid, parent.gid
                yield parent.gid, group.gid

    def _connect(self) -> None:
        """After a change of seats: a new connector passes on what its group lacks of the other, first upwards."""
        before, self.ways = self.ways, {}
        for edge in self._edges():
            way = before.get(edge)
            if way is None:
                way = Way(self.groups[edge[0]], self.groups[edge[1]])
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
            home = self.groups[self.home]
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
        for group in self.groups.values():
            if group.active:
                told = group.received(), {way.key: way.done() for way in self.ways.values() if way.frm is group}
                if told != group.told:
                    group.told = told
                    heard = Heard(group.gid, group.key_of(self.me), *told)
                    group.learn({heard.key: heard.got}, heard.done)
                    self._tell(group, heard, step)
                if not group.views:  # else new members may need what the old ones have
                    group.forget()
        for way in self.ways.values():
            settled = [name(each) for each in way.frm.inherited if way.up and way.is_settled(each)]
            if settled:
                way.frm.inherited = [each for each in way.frm.inherited if name(each) not in settled]
                self._tell(way.frm, Clear(way.frm.gid, settled), step)

    def _inherit(self, group: GroupState, packets: list[Packet]) -> None:
        """Take up messages that came from outside; a connector passes them on."""
        known = {name(packet) for packet in group.inherited}
        fresh = [packet for packet in packets if name(packet) not in known]
        group.inherited += fresh
        way = self.ways.get((group.gid, group.parent))
        if way:
            way.outbox += [(None, packet) for packet in fresh if way.crosses(packet)]

    def _tell(self, group: GroupState, stamp: views.Stamp, step: Step) -> None:
        step.send += [Packet(to, (), b"", self.me, stamp) for to in group.members if to != self.me]

    # -- the rest of an ordering ---------------------------------------------------------------------------------

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Seats are named by their members, or not at all."""
        found = []
        for group in self.groups.values():
            for packet in group.waiting.values():
                causes = [(group.seats.get(key), number) for key, number in group.causes(packet.stamp)]
                found.append((packet, [(member, number) for member, number in causes if member is not None]))
        return found

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        """One row for each group and one for the rest, if it has changed, whole: changes are rare, and logs short."""
        if not self._touched:
            return {}, set()
        self._touched = False
        outboxes = {edge: way.outbox for edge, way in self.ways.items()}
        rest = self.last, self.home, self.holding, self.unsent, self.strays, outboxes
        rows: Rows = {(REST, 0): pack(rest)}
        rows |= {(GROUP, gid): pack(group) for gid, group in self.groups.items()}
        put = {key: blob for key, blob in rows.items() if self._saved.get(key) != blob}
        gone = self._saved.keys() - rows.keys()
        self._saved = rows
        return put, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        if rows:
            rest = unpack(rows[REST, 0], _REST, CLASSES)
            core.last, core.home, core.holding, core.unsent, core.strays, outboxes = rest
            groups = {gid: unpack(blob, GroupState, CLASSES) for (kind, gid), blob in sorted(rows.items()) if kind}
            core.groups = groups
            core.ways = {(a, b): Way(groups[a], groups[b], outbox) for (a, b), outbox in outboxes.items()}
            core._saved = dict(rows)
        return core

    def encode(self, packet: Packet) -> bytes:
        return pack([packet.dests, packet.body, packet.origin, packet.stamp])

    def decode(self, frm: int, data: bytes) -> Packet:
        dests, body, origin, stamp = unpack(data, _WIRE, CLASSES)
        packet = Packet(self.me, dests, body, origin, stamp, frm)
        if not isinstance(stamp, views.STAMPS):
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
        for group in self.groups.values():
            assert all(group.causes(each.stamp) for each in group.waiting.values()), "1: one waits for nothing"
        assert [*self.ways] == [*self._edges()], "2: outboxes and ways differ"
