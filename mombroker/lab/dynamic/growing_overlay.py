"""An overlay with a log of its own: for links that lose what is on them, and for graphs that change (protocols §5.3).

On the bus the out-queues of the links are the log, and the graph is fixed: there the plain overlay serves.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from mombroker.ordering.base import Packet, Rows, Step
from mombroker.ordering.envelope import FLAG, LIMIT, MOST, unseal
from mombroker.ordering.overlay import SEEN, Number, Overlay
from mombroker.ordering.wire import from_bytes, to_bytes

STABLE, LOG, LINK = 1, 2, 3  # kinds of rows in the store
HAVE, NEED_NOT = bytes((FLAG,)), bytes((2 * FLAG,))  # first bytes of a packet that tells numbers
DOWN, OPENING, OPEN = 0, 1, 2  # states of a link


@dataclass(slots=True)
class Open:
    """A new link is up, or one again that has lost packets and was closed; both ends are told."""

    peer: int


@dataclass(slots=True)
class Close:
    """A link is gone, and what was on it."""

    peer: int


@dataclass(slots=True)
class Stable:
    """All members have the messages of each origin up to these numbers: nobody will ask for them."""

    numbers: Sequence[int]


@dataclass(slots=True, eq=False)
class Told:
    """The stamp of an exchange when a link opens: the numbers that its sender has of each origin.

    `need_not` says that they are those that all members have: a newcomer begins after them.
    """

    numbers: list[int]
    need_not: bool = False


class GrowingOverlay(Overlay):
    """When a link opens, its ends tell each other what they have. Each sends what the other lacks, in the order of
    its own deliveries (fakes_growing: SortsResent) and before anything new on this link.

    A newcomer is a member that has nothing yet and opens its links. Its host gives it the log, though no message in it
    is for the newcomer: its other neighbours may lack some (fakes_growing: NoLogForNewcomers).

    2. The log holds, of each origin, the numbers after `stable` up to `seen`, in ascending order.
    3. `neighbours` are those whose link is open.
    """

    def __init__(self, me: int, size: int, links: Sequence[Sequence[int]] | None = None):
        super().__init__(me, size, links)
        self.stable = [0] * size  # by origin: up to here the log has forgotten
        self.log: dict[int, Packet] = {}  # by place in the order of delivery
        self._end = self._stored = 0  # the next place; places below this one are in the store, or were
        self._forgotten: set[int] = set()  # stored places that left the log since the last `dirty`
        self._links = dict.fromkeys(self.neighbours, OPEN)
        self._early: dict[int, list[int]] = {}  # peers whose end of the link opened before ours: what they have
        self._saved: Rows = {}

    def change(self, event: Open | Close | Stable) -> Step:
        if isinstance(event, Open):
            return Step(self._open(event.peer), [])
        if isinstance(event, Close):
            self._set(event.peer, DOWN)
            self._early.pop(event.peer, None)
        else:
            self._forget(event.numbers)
        return Step([], [])

    def _open(self, peer: int) -> list[Packet]:
        self._set(peer, OPENING)
        out = [self._tell(peer, self.seen)]
        return out + self._resend(peer, self._early.pop(peer)) if peer in self._early else out

    def _tell(self, peer: int, numbers: list[int], need_not: bool = False) -> Packet:
        return Packet(peer, (), b"", self.me, Told(numbers[:], need_not))

    def _resend(self, peer: int, theirs: list[int]) -> list[Packet]:
        """What a peer lacks that has these numbers. From now on its link is like any other."""
        self._set(peer, OPEN)
        first = self._needless(theirs)
        out = [self._tell(peer, first, need_not=True)] if first else []
        for packet in self.log.values():
            if packet.stamp.number > _at(theirs, packet.origin):
                out.append(Packet(peer, packet.dests, packet.body, packet.origin, packet.stamp))
        return out

    def _needless(self, theirs: list[int]) -> list[int]:
        """The numbers that the log no longer goes back to, if a peer that has only these asks for them."""
        return self.stable if any(number > _at(theirs, k) for k, number in enumerate(self.stable)) else []

    def receive(self, frm: int, packet: Packet) -> Step:
        stamp = packet.stamp
        if isinstance(stamp, Told) and not stamp.need_not:
            if self._links.get(frm):
                return Step(self._resend(frm, stamp.numbers), [])
            self._early[frm] = stamp.numbers
            return Step([], [])
        if not self._links.get(frm):
            return Step([], [])  # the link was closed while the packet was on it
        if isinstance(stamp, Told):
            self._begin_after(stamp.numbers)
            return Step([], [])
        self._know(packet.origin + 1)
        return super().receive(frm, packet)

    def _record(self, packet: Packet, frm: int) -> list[Packet]:
        self.log[self._end] = packet
        self._end += 1
        return super()._record(packet, frm)

    def _know(self, size: int) -> None:
        """Members join at one place; the others hear of them by their messages."""
        more = [0] * (size - len(self.seen))
        self.seen += more
        self.stable += more

    def _begin_after(self, numbers: list[int]) -> None:
        self._know(len(numbers))
        for k, number in enumerate(numbers):
            if number > self.seen[k]:
                self.seen[k] = number
                self._changed.add(k)
        self._forget(numbers)

    def _forget(self, numbers: Sequence[int]) -> None:
        self._know(len(numbers))
        for k, number in enumerate(numbers):
            assert number <= self.seen[k], f"member {self.me} lacks #{number} of {k}: it is not stable"
            self.stable[k] = max(self.stable[k], number)
        for at in [at for at, each in self.log.items() if each.stamp.number <= self.stable[each.origin]]:
            del self.log[at]
            if at < self._stored:
                self._forgotten.add(at)

    def state(self, peer: int) -> int:
        """Of the link to it."""
        return self._links.get(peer, DOWN)

    def _set(self, peer: int, state: int) -> None:
        self._links[peer] = state
        self.neighbours = tuple(sorted(peer for peer, state in self._links.items() if state == OPEN))

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = super().dirty()
        for at in range(self._stored, self._end):
            if at in self.log:
                rows[LOG, at] = self.log[at].frm.to_bytes(2, "little") + self.encode(self.log[at])
        gone |= {(LOG, at) for at in self._forgotten}
        self._stored = self._end
        self._forgotten.clear()
        few: Rows = {(STABLE, k): number.to_bytes(8, "little") for k, number in enumerate(self.stable) if number}
        for peer in self._links.keys() | self._early.keys():
            few[LINK, peer] = bytes((self._links.get(peer, DOWN),)) + _pack(self._early.get(peer, []))
        rows |= few.items() - self._saved.items()
        self._saved = few
        return rows, gone

    def _load(self, rows: Rows) -> None:
        self._know(1 + max((k for kind, k in rows if kind in (SEEN, STABLE)), default=0))
        super()._load(rows)
        for (kind, k), blob in sorted(rows.items()):
            if kind == STABLE:
                self.stable[k] = int.from_bytes(blob, "little")
            elif kind == LOG:
                self.log[k] = self.decode(int.from_bytes(blob[:2], "little"), blob[2:])
                self._end = self._stored = k + 1
            elif kind == LINK:
                self._set(k, blob[0])
                if len(blob) > 1:
                    self._early[k] = _unpack(blob[1:])
        self._saved = {key: blob for key, blob in rows.items() if key[0] in (STABLE, LINK)}

    def encode(self, packet: Packet) -> bytes:
        if isinstance(packet.stamp, Told):
            return (NEED_NOT if packet.stamp.need_not else HAVE) + _pack(packet.stamp.numbers)
        return super().encode(packet)

    def decode(self, frm: int, data: bytes) -> Packet:
        if data[:1] in (HAVE, NEED_NOT):
            return Packet(self.me, (), b"", frm, Told(_unpack(data[1:]), data[:1] == NEED_NOT), frm)
        flags, number, dests, origin, at = unseal(data, MOST)  # of members, those that are not known here included
        if flags:
            raise ValueError("no packet of an overlay")
        return Packet(self.me, dests, data[at:], origin, Number(number, data), frm)

    def control_ints(self, packet: Packet) -> int:
        return len(packet.stamp.numbers) if isinstance(packet.stamp, Told) else super().control_ints(packet)

    def check(self) -> None:
        self._floor += [0] * (len(self.seen) - len(self._floor))
        super().check()
        due = [number + 1 for number in self.stable]
        for packet in self.log.values():
            assert packet.stamp.number == due[packet.origin], "2: the log has a gap"
            due[packet.origin] += 1
        assert due == [number + 1 for number in self.seen], "2: the log does not go up to what was seen"
        assert set(self.neighbours) == {peer for peer, state in self._links.items() if state == OPEN}, "3"


def _at(numbers: Sequence[int], k: int) -> int:
    return numbers[k] if k < len(numbers) else 0


def _pack(numbers: list[int]) -> bytes:
    return to_bytes(array("Q", numbers))


def _unpack(data: bytes) -> list[int]:
    if len(data) % 8 or len(data) > 8 * MOST:
        raise ValueError("cut short in its numbers")
    numbers = from_bytes("Q", data).tolist()
    if max(numbers, default=0) >= LIMIT:
        raise ValueError(f"counts more than {LIMIT} messages")
    return numbers
