"""Causal order inside one domain by a tree of groups (paper 001): vectors only inside a group, relays between groups.

Everything that decides delivery order in such a domain is in this file.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct, error
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.envelope import FLAG, LIMIT, seal, unseal
from mombroker.ordering.groups import TOP, Group, even, faults, plant
from mombroker.ordering.holdback import Holdback, Key, Need
from mombroker.ordering.hypercube import diameter
from mombroker.ordering.wire import CODES, layout, width_of

Gid = int  # the number of a group
Edge = tuple[Gid, Gid]  # from a group of mine to an adjacent one that I am in too

SEAT, ORIGIN, ACKS, HELD, OUT = 0, 1, 2, 3, 4  # kinds of rows in the store; those of the k-th edge are OUT + k
ACK = 4 * FLAG  # on the wire, in the first byte; else the two bits from FLAG on are the width of the vector
_ACK = Struct("<BHQ")


class Stamp:
    """`number` is that of the message among those of its origin; `vector` tells, for each member of the group that the
    packet is in, how many broadcasts of that member in the group its sender had delivered, this one included."""

    __slots__ = ("number", "vector", "data", "parked")

    def __init__(self, number: int, vector: tuple[int, ...], data: bytes | None = None):
        self.number, self.vector = number, vector
        self.data = data  # on the wire; the same for all members of the group
        self.parked: tuple[tuple[Edge, Key], ...] = ()  # the outboxes that the message is in


@dataclass(slots=True, frozen=True)
class Crossing:
    """A way out of a group: the member that connects it to an adjacent one, and whose home is below that edge."""

    connector: int
    to: Gid
    below: frozenset[int]
    up: bool

    def takes(self, packet: Packet) -> bool:
        """True when the message is on this side, and has a destination beyond."""
        below = self.below
        if self.up:
            return packet.origin in below and not below.issuperset(packet.dests)
        return packet.origin not in below and not below.isdisjoint(packet.dests)


class Ack:
    """The stamp of an acknowledgement: all broadcasts of `sender` in the group, up to `number`, are stored here."""

    __slots__ = ("sender", "number")

    def __init__(self, sender: int, number: int):
        self.sender, self.number = sender, number


class Seat:
    """What one member keeps of one group that it is in."""

    __slots__ = ("members", "place", "others", "counts", "seen", "crossings", "stored")

    def __init__(self, members: tuple[int, ...], me: int, crossings: list[Crossing]):
        self.members = members
        self.place = {member: at for at, member in enumerate(members)}
        self.others = tuple(member for member in members if member != me)
        self.counts = [0] * len(members)  # broadcasts delivered, by their sender's place; own ones included
        self.seen: dict[int, int] = {}  # by origin: the number of its last message that the group has
        self.crossings = crossings  # how messages leave this group
        self.stored = {member: [0] * len(members) for member in self.others}  # by member: what it has, as in `counts`

    def lacking(self, key: Key) -> list[int]:
        """The members whose acknowledgement of a broadcast is missing."""
        sender, number = key
        at = self.place[sender]
        return [k for k in self.others if k != sender and self.stored[k][at] < number]


class Outbox:
    """Messages that wait to be passed on from one group to another, in the order of their delivery here.

    The key of a message is its sender in the group that it leaves, and its number among the sender's broadcasts there.
    """

    __slots__ = ("packets", "_order", "_put", "_gone")

    def __init__(self) -> None:
        self.packets: dict[Key, Packet] = {}
        self._order = 0
        self._put: dict[Key, int] = {}  # parked since the last `dirty`, in this order
        self._gone: set[Key] = set()  # stored as parked, and released since

    def append(self, key: Key, packet: Packet) -> None:
        self._order += 1
        self.packets[key] = packet
        self._put[key] = self._order

    def pop(self, key: Key) -> Packet:
        if self._put.pop(key, None) is None:
            self._gone.add(key)
        return self.packets.pop(key)

    def dirty(self, kind: int, size: int, encode: Callable[[Packet], bytes]) -> tuple[Rows, set[tuple[int, int]]]:
        rows = {
            (kind, number * size + sender): order.to_bytes(8, "little")
            + self.packets[sender, number].frm.to_bytes(2, "little")
            + encode(self.packets[sender, number])
            for (sender, number), order in self._put.items()
        }
        gone = {(kind, number * size + sender) for sender, number in self._gone}
        self._put.clear()
        self._gone.clear()
        return rows, gone

    def load(self, kind: int, size: int, rows: Rows, packet: Callable[[int, bytes], Packet]) -> None:
        """`packet` makes the packet of a neighbour and its bytes, the same object for the same bytes."""
        for order, key, frm, data in sorted(
            (int.from_bytes(blob[:8], "little"), key, int.from_bytes(blob[8:10], "little"), blob[10:])
            for (each, key), blob in rows.items()
            if each == kind
        ):
            self.packets[key % size, key // size] = packet(frm, data)
            self._order = order


class Daisy(Ordering):
    """A message is broadcast in the home group of its origin, and passed on from group to group towards its
    destinations by the members that are in two of them, each time under a vector of the new group alone.

    A connector passes on in the order in which it delivers. It does so at once (`eager`), or when all members of the
    group have stored the message (`stable`), which matters if a server may be lost with its disk.

    1. No count decreases.
    2. A held packet is not the next one of its sender, or its vector counts more than is delivered here.
    3. The first message of each outbox lacks an acknowledgement; every message says which outboxes it is in.
    """

    fifo = True
    relays = True
    spreads = True
    options = ("groups", "connectors", "relay")

    def __init__(
        self,
        me: int,
        size: int,
        groups: Sequence[Any] | None = None,
        connectors: Sequence[int] = (),
        relay: str = "eager",
    ):
        """`groups` is a list of members, or a list of groups; by default about as many groups as each has members."""
        assert 0 <= me < size < 1 << 16 and relay in ("eager", "stable"), f"no member {me} of {size} ({relay})"
        self.me, self.size, self.relay = me, size, relay
        self.tree = plant(even(size) if groups is None else groups, connectors)
        self.last: dict[int, int] = {}  # by origin: the number of its last message that was delivered here, or sent
        self.home: Gid = next(gid for gid, group in enumerate(self.tree) if not group.children and me in group.members)
        self.seats: dict[Gid, Seat] = {}  # from home upwards
        self.outboxes: dict[Edge, Outbox] = {}
        gid = self.home
        while gid != TOP and me in self.tree[gid].members:
            if self.seats:
                below = next(reversed(self.seats))
                self.outboxes[below, gid], self.outboxes[gid, below] = Outbox(), Outbox()
            self.seats[gid] = Seat(self.tree[gid].members, me, crossings(self.tree, gid))
            gid = self.tree[gid].parent
        self._group_of = {member: gid for gid, seat in self.seats.items() for member in seat.others}
        self._holdback = Holdback()  # a need is (sender, its count in the group that it shares with me)
        self._changed_seats: set[Gid] = set()  # since the last `dirty`, like the following
        self._changed_origins: set[int] = set()
        self._changed_acks: set[int] = set()  # members
        self._floor: dict[Gid, list[int]] = {}  # counts at the last `check`

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        found = super().validate(members, options) + faults(members, options)
        if options.get("relay", "eager") not in ("eager", "stable"):
            found.append(f'relay is none of two: write "eager" or "stable", not {options["relay"]!r}')
        return found

    @classmethod
    def resolve(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        def index(node: Any) -> Any:
            return [index(each) for each in node] if isinstance(node, list) else members.index(node)

        return {name: index(each) if isinstance(each, list) else each for name, each in options.items()}

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Typical: the vector of a middling group. Worst: of the largest. Packets: between two of the largest home
        group, and in all groups."""
        resolved = cls.resolve(members, options)
        tree = plant(resolved.get("groups") or even(len(members)), resolved.get("connectors", ()))
        sizes = sorted(len(group.members) for group in tree)
        peers: list[set[int]] = [set() for _ in members]
        for group in tree:
            for k in group.members:
                peers[k].update(group.members)
        links = sorted(len(each) - 1 for each in peers)
        connectors = {group.connector for group in tree if group.parent != TOP}
        inside = max(len(group.members) for group in tree if not group.children) - 1
        everywhere = sum(size - 1 for size in sizes)
        return super().describe(members, options) | {
            "links": [links[0], links[-1]], "diameter": diameter([each - {k} for k, each in enumerate(peers)]),
            "relays": [members[k] for k in sorted(connectors)], "packets": max(1, inside), "packets_to_all": everywhere,
            "control_bytes": INTEGER * sizes[len(sizes) // 2], "control_bytes_worst": INTEGER * sizes[-1],
            "survives": "all but what is for who is down, or crosses a group whose connector is",
        }  # fmt: skip

    # -- sending, receiving --------------------------------------------------------------------------------------

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        me = self.me
        number = self.last[me] = self.last.get(me, 0) + 1
        step = Step([], [])
        self._broadcast(self.home, Packet(me, tuple(dests), body, me, Stamp(number, ()), me), step)
        self._release(step)
        assert not step.deliver, "a message is not for its sender, and others were free before"
        return step.send

    def receive(self, frm: int, packet: Packet) -> Step:
        stamp, gid, step = packet.stamp, self._group_of[frm], Step([], [])
        packet.frm = frm
        seat = self.seats[gid]
        if isinstance(stamp, Ack):
            self._acknowledged(seat, frm, stamp)
            self._release(step)
            return step
        key = frm, stamp.vector[seat.place[frm]]
        if key[1] <= seat.counts[seat.place[frm]] or key in self._holdback.packets:
            self.duplicates += 1
            return step
        if self.relay == "stable":
            self._acknowledge(seat, key, packet, step)
        need = self._need(key, packet)
        if need:
            self._holdback.hold(key, packet, need)
            return step
        woken = self._holdback.wake(self._count(key, packet), self._need, self._count)
        for each in packet, *woken:
            gid = self._group_of[each.frm]
            self._delivered(gid, self._key(gid, each), each, step)
        self._release(step)
        if woken:
            delivered = set(map(id, step.deliver))
            step.freed = [each for each in woken if id(each) not in delivered]
        return step

    def reach(self, without: Collection[int]) -> set[int]:
        """Those whose home groups are connected with a group of this one."""
        groups = list(self.seats)
        for gid in groups:
            ways = [way for way in crossings(self.tree, gid) if way.connector not in without]
            groups += [way.to for way in ways if way.to not in groups]
        return {member for gid in groups if not self.tree[gid].children for member in self.tree[gid].members}

    def _key(self, gid: Gid, packet: Packet) -> Key:
        return packet.frm, packet.stamp.vector[self.seats[gid].place[packet.frm]]

    def _need(self, key: Key, packet: Packet) -> Need | None:
        """A broadcast in the group that must be delivered before this one."""
        frm, number = key
        seat = self.seats[self._group_of[frm]]
        counts, place = seat.counts, seat.place[frm]
        if number != counts[place] + 1:
            return frm, number - 1
        for at, count in enumerate(packet.stamp.vector):
            if count > counts[at] and at != place:
                return seat.members[at], count
        return None

    def _count(self, key: Key, packet: Packet) -> Need:
        gid = self._group_of[key[0]]
        seat = self.seats[gid]
        seat.counts[seat.place[key[0]]] = key[1]
        self._changed_seats.add(gid)
        return key

    def _broadcast(self, gid: Gid, packet: Packet, step: Step) -> None:
        """Send a message to a group of mine, unless the group has it; here it is delivered at once."""
        seat, stamp, me = self.seats[gid], packet.stamp, self.me
        if stamp.number <= seat.seen.get(packet.origin, 0):
            return
        at = seat.place[me]
        seat.counts[at] += 1
        self._changed_seats.add(gid)
        copy = Stamp(stamp.number, tuple(seat.counts))
        if packet.origin == me and not stamp.vector:
            packet.stamp = copy
        step.send += [Packet(to, packet.dests, packet.body, packet.origin, copy) for to in seat.others]
        self._delivered(gid, (me, seat.counts[at]), packet, step)

    def _delivered(self, gid: Gid, key: Key, packet: Packet, step: Step) -> None:
        """A message is delivered in a group; to the application only in the home group, and if it is for this one."""
        seat, origin, number = self.seats[gid], packet.origin, packet.stamp.number
        if number <= seat.seen.get(origin, 0):
            return  # two have passed it on, one after the other was lost
        seat.seen[origin] = number
        self._changed_origins.add(origin)
        if gid == self.home and self.me in packet.dests and number > self.last.get(origin, 0):
            self.last[origin] = number
            step.deliver.append(packet)
        for way in seat.crossings:
            if way.connector == self.me and way.takes(packet):
                self.outboxes[gid, way.to].append(key, packet)
                packet.stamp.parked += (((gid, way.to), key),)

    def _release(self, step: Step) -> None:
        """Pass on what may be passed on, each outbox in its order; what arrives by that may go on to the next group."""
        again = True
        while again:
            again = False
            for edge, outbox in self.outboxes.items():
                while outbox.packets and self._may_go(edge, key := next(iter(outbox.packets))):
                    packet = outbox.pop(key)
                    packet.stamp.parked = tuple(each for each in packet.stamp.parked if each != (edge, key))
                    self._broadcast(edge[1], packet, step)
                    again = True

    def _may_go(self, edge: Edge, key: Key) -> bool:
        return self.relay == "eager" or not self.seats[edge[0]].lacking(key)

    def _acknowledge(self, seat: Seat, key: Key, packet: Packet, step: Step) -> None:
        """Tell those that wait for it that a broadcast is stored here."""
        for to in {way.connector: None for way in seat.crossings if way.takes(packet)}:
            if to != self.me:
                step.send.append(Packet(to, (), b"", self.me, Ack(*key)))

    def _acknowledged(self, seat: Seat, frm: int, ack: Ack) -> None:
        at = seat.place[ack.sender]
        if ack.number > seat.stored[frm][at]:
            seat.stored[frm][at] = ack.number
            self._changed_acks.add(frm)

    # -- what waits ----------------------------------------------------------------------------------------------

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Packets that wait in a group for others of the group, whose sequence is their number among the broadcasts of
        their sender there."""
        return [(packet, self._causes(packet)) for packet in self._holdback.packets.values()]

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        if isinstance(packet.stamp, Ack):
            return None
        key = self._key(self._group_of[packet.frm], packet)
        return self._causes(packet) if self._holdback.packets.get(key) is packet else None

    def _causes(self, packet: Packet) -> list[tuple[int, int]]:
        seat = self.seats[self._group_of[packet.frm]]
        least = list(packet.stamp.vector)
        least[seat.place[packet.frm]] -= 1
        return [(k, n) for k, n, have in zip(seat.members, least, seat.counts, strict=True) if n > have]

    def parked(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """Messages that wait to be passed on, each with the member that lacks and the number of the broadcast. They are
        not held: no link may be stopped for them, since what they wait for comes on the same links."""
        packets = {id(packet): packet for box in self.outboxes.values() for packet in box.packets.values()}
        return [
            (packet, [*{each: None for at in packet.stamp.parked for each in self._unstored(*at)}])
            for packet in packets.values()
        ]

    def _unstored(self, edge: Edge, key: Key) -> list[tuple[int, int]]:
        """The acknowledgements that a parked message lacks; if none, those that the first one before it lacks."""
        seat = self.seats[edge[0]]
        first = next(iter(self.outboxes[edge].packets))
        return [(k, key[1]) for k in seat.lacking(key)] or [(k, first[1]) for k in seat.lacking(first)]

    # -- rows ----------------------------------------------------------------------------------------------------

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, self.size, self.encode)
        for at, outbox in enumerate(self.outboxes.values()):
            put, popped = outbox.dirty(OUT + at, self.size, self.encode)
            rows |= put
            gone |= popped
        for gid in self._changed_seats:
            rows[SEAT, gid] = _pack(self.seats[gid].counts)
        for k in self._changed_origins:
            rows[ORIGIN, k] = _pack([self.last.get(k, 0), *(seat.seen.get(k, 0) for seat in self.seats.values())])
        for k in self._changed_acks:
            rows[ACKS, k] = _pack(self.seats[self._group_of[k]].stored[k])
        self._changed_seats.clear()
        self._changed_origins.clear()
        self._changed_acks.clear()
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, k), blob in rows.items():
            if kind == SEAT:
                core.seats[k].counts = _unpack(blob)
            elif kind == ORIGIN:
                core.last[k], *seen = _unpack(blob)
                for seat, number in zip(core.seats.values(), seen, strict=True):
                    seat.seen[k] = number
            elif kind == ACKS:
                core.seats[core._group_of[k]].stored[k] = _unpack(blob)
        core._holdback.load(HELD, size, rows, core.decode, core._need)
        packet = cache(core.decode)  # one object, though it may be in two outboxes
        for at, (edge, outbox) in enumerate(core.outboxes.items()):
            outbox.load(OUT + at, size, rows, packet)
            for key, each in outbox.packets.items():
                each.stamp.parked += ((edge, key),)
        return core

    # -- bytes ---------------------------------------------------------------------------------------------------

    def encode(self, packet: Packet) -> bytes:
        """The envelope, the vector, the body; or an acknowledgement."""
        stamp = packet.stamp
        if isinstance(stamp, Ack):
            return _ACK.pack(ACK, stamp.sender, stamp.number)
        if stamp.data is None:
            width = width_of(max(stamp.vector))
            vector = layout(len(stamp.vector), CODES[width]).pack(*stamp.vector)
            head = seal(width * FLAG, stamp.number, packet.origin, packet.dests)
            stamp.data = head + vector + packet.body
        data: bytes = stamp.data
        return data

    def decode(self, frm: int, data: bytes) -> Packet:
        gid = self.home if frm == self.me else self._group_of.get(frm)
        if gid is None:
            raise ValueError(f"member {frm} is in no group with member {self.me}")
        seat = self.seats[gid]
        try:
            if data[:1] == bytes((ACK,)):
                _, sender, number = _ACK.unpack(data)
                if sender not in seat.place or not 0 < number < LIMIT:
                    raise ValueError("acknowledges what nobody sent")
                return Packet(self.me, (), b"", frm, Ack(sender, number), frm)
            flags, number, dests, origin, at = unseal(data, self.size)
            form = layout(len(seat.members), CODES[flags // FLAG & 3])
            vector = form.unpack_from(data, at)
        except error:
            raise ValueError("cut short in its vector") from None
        if flags & ACK or not vector[seat.place[frm]] or max(vector) >= LIMIT:
            raise ValueError("no packet of a daisy")
        unsent = vector[seat.place[self.me]] > seat.counts[seat.place[self.me]]
        if (unsent or origin == self.me and number > self.last.get(origin, 0)) and not self.forgetful:
            raise ValueError(f"the packet tells of a message that member {self.me} never sent")
        return Packet(self.me, dests, data[at + form.size :], origin, Stamp(number, vector, data), frm)

    def control_ints(self, packet: Packet) -> int:
        """The vector of the group, whatever the size of the domain."""
        return 2 if isinstance(packet.stamp, Ack) else len(packet.stamp.vector)

    def check(self) -> None:
        for gid, seat in self.seats.items():
            assert all(map(int.__ge__, seat.counts, self._floor.get(gid, seat.counts))), "1: a count decreased"
            self._floor[gid] = seat.counts[:]
        self._holdback.check(self._need, lambda k: (seat := self.seats[self._group_of[k]]).counts[seat.place[k]])
        for edge, outbox in self.outboxes.items():
            for key, packet in outbox.packets.items():
                assert (edge, key) in packet.stamp.parked, "3: a message is parked, and does not say where"
            assert not outbox.packets or not self._may_go(edge, next(iter(outbox.packets))), "3: the first may go"


def crossings(tree: Sequence[Group[int]], gid: Gid) -> list[Crossing]:
    """All ways out of a group."""
    group = tree[gid]
    ways = [Crossing(tree[child].connector, child, tree[child].below, False) for child in group.children]
    return ways + [Crossing(group.connector, group.parent, group.below, True)] if group.parent != TOP else ways


def _pack(numbers: list[int]) -> bytes:
    return layout(len(numbers), "Q").pack(*numbers)


def _unpack(blob: bytes) -> list[int]:
    return list(layout(len(blob) // 8, "Q").unpack(blob))
