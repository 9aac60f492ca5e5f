"""Causal order inside one domain by a vector clock and broadcast: CBCAST of paper 003, §5, the Timestamp of paper 000.

Everything that decides delivery order in such a domain is in this file.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne
from struct import error
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.holdback import Holdback, Key, Need
from mombroker.ordering.wire import CODES, WIDTHS, Dests, from_bytes, layout, to_bytes, width_of

HEAD, RECEIVED, HELD, OWED = 0, 1, 2, 3  # kinds of rows in the store
# The first byte of a packet: a width; who the body is for (0: its receiver alone), and how the fields are named.
WIDTH, WHO, BITMAP = 3, 12, 16
MANY, ALL, NOBODY = 4, 8, 12
LIMIT = 1 << 47  # of a number: 400 years of 10,000 messages a second
_ZERO_ONE = bytes.maketrans(b"01", b"\0\1")
_ONE_ZERO = bytes.maketrans(b"\0\1", b"01")


@dataclass(slots=True, eq=False)
class Stamp:
    """The origin sent `number` multicasts by then; those of the members `names`, rising, up to `values` came before."""

    number: int
    names: Sequence[int]
    values: Sequence[int]
    data: bytes = b""  # on the wire; one encoding serves all copies,
    bare: bytes = b""  # and one packet all members that it is not for


class Vector(Ordering):
    """Every message goes to every member, its body to the destinations only. `counted[k]` messages of k are delivered
    here, or have come and are not for this member; `past[k]` of them happened before what this member sends next.

    A stamp tells the past of its message: what its origin has sent or delivered, and what happened before that. Of what
    has merely come to the origin, and is for others, it tells nothing. Compared is the past with what has come here.

    A stamp holds the fields that have changed since the origin's multicast before (Lemma 1). What it omits was said by
    an earlier one, and the messages of one origin are delivered in their order. So all that is kept of an origin's
    vectors is `owed[k]`, the fields above `past` in packets of k for others, which its next packet for this member
    takes over. A packet for others is never held.

    1. No counter decreases; told[k] <= past[k] <= counted[k] <= received[k].
    2. counted[k] is the number before the first held packet of k, or received[k] if none is held.
    3. A held packet has an earlier packet of its origin before it, or a field (k, value) with value > counted[k].
    """

    fifo = spreads = prompt = True

    def __init__(self, me: int, size: int):
        assert 0 <= me < size < 1 << 16, f"no member {me} in a domain of {size}"
        self.me, self.size = me, size
        self.counted = [0] * size  # [me]: own multicasts
        self.received = [0] * size  # [me]: the same
        self.past = [0] * size  # [me]: the same
        self.told = [0] * size  # `past` at the last own multicast, but for its own number
        self.owed: dict[int, dict[int, int]] = {}
        self._holdback = Holdback()  # a need is (origin, number of a packet), and so is the name of a packet
        self._queues: list[list[int]] = [[] for _ in range(size)]  # by origin: numbers of the held, rising
        self._sent = False  # since the last `dirty`
        self._changed: set[int] = set()  # origins of which a counter has changed since then
        self._stored: set[int] = set()  # origins for whom there is a row of what is owed
        self._floor = self.counted + self.received + self.past
        self._dests = Dests(me, size)
        self._only = (me,)
        self._code = CODES[width_of(size - 1)]
        self._bitmap = (size + 7) // 8
        self._few = self._bitmap // WIDTHS[width_of(size - 1)] - 1  # names; up to here a list is smaller than a bitmap

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Typical: two fifths of the fields have changed since the origin's multicast before. Worst: all."""
        n = len(members)
        return super().describe(members, options) | {
            "packets": n - 1, "control_bytes": INTEGER * integers(n, (2 * n + 4) // 5),
            "control_bytes_worst": INTEGER * n,
        }  # fmt: skip

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests, me = tuple(dests), self.me
        assert me not in dests, "the engine hands local copies over"
        self.counted[me] = self.received[me] = self.past[me] = number = self.counted[me] + 1
        names = [k for k in compress(range(self.size), map(ne, self.past, self.told)) if k != me]
        stamp = Stamp(number, names, [self.past[k] for k in names])
        stamp.data = self._pack(stamp)
        for k in names:
            self.told[k] = self.past[k]
        self._sent = True
        packets, going = [], frozenset(dests)
        for d in range(self.size):
            if d in going:
                packets.append(Packet(d, dests, body, me, stamp))
            elif d != me:
                packets.append(Packet(d, (), b"", me, stamp))
        return packets

    def receive(self, frm: int, packet: Packet) -> Step:
        """Raises ValueError for a packet that came before an earlier one: the link is no FIFO link."""
        k, number = packet.origin, packet.stamp.number
        if number <= self.received[k]:
            self.duplicates += 1
            return Step([], [])
        if number != self.received[k] + 1:
            raise ValueError(f"packet {number} of member {k} came next after packet {self.received[k]}")
        self.received[k] = number
        self._changed.add(k)
        key, queue = (k, number), self._queues[k]
        if self.me not in packet.dests:
            self._owe(k, packet.stamp)
            deliver = []
        else:
            claimed = self._claimed(k, packet.stamp)
            if claimed:
                packet.stamp = Stamp(number, [*claimed], [*claimed.values()])
            unmet = next((j for j, value in claimed.items() if value > self.counted[j]), None)
            if queue or unmet is not None:
                need = (k, queue[-1]) if unmet is None else (unmet, self._last(unmet, claimed[unmet]))
                packet.frm = frm
                self._holdback.hold(key, packet, need)
                queue.append(number)
                return Step([], [])
            self._pass(k, number, claimed)
            deliver = [packet]
        if not queue:
            self.counted[k] = number
        if self._holdback.packets:
            deliver += self._holdback.wake(key, self._need, self._deliver)
        return Step([], deliver)

    def _owe(self, k: int, stamp: Stamp) -> None:
        """Keep the fields of a packet of k for others that are not in the past yet."""
        past = self.past
        for j, value in zip(stamp.names, stamp.values, strict=True):
            if value > past[j]:
                self.owed.setdefault(k, {})[j] = value

    def _claimed(self, k: int, stamp: Stamp) -> dict[int, int]:
        """The fields in this packet of k, and in those for others just before it, that are not in the past yet."""
        past = self.past
        claimed = {j: value for j, value in zip(stamp.names, stamp.values, strict=True) if value > past[j]}
        if k in self.owed:
            owed = self.owed.pop(k) | claimed
            claimed = {j: owed[j] for j in sorted(owed) if owed[j] > past[j]}
        return claimed

    def _pass(self, k: int, number: int, claimed: Mapping[int, int]) -> None:
        """A message of k is delivered: what this member sends now happens after it, and after its past."""
        for j, value in claimed.items():
            if value > self.past[j]:
                self.past[j] = value
                self._changed.add(j)
        self.past[k] = number
        self._changed.add(k)

    def _need(self, key: Key, packet: Packet) -> Need | None:
        """A packet that has to come or to be delivered before."""
        before = self._before(*key)
        if before:
            return key[0], before
        for j, value in zip(packet.stamp.names, packet.stamp.values, strict=True):
            if value > self.counted[j]:
                return j, self._last(j, value)
        return None

    def _before(self, k: int, number: int) -> int:
        """The number of the held packet of k that is next before `number`; 0 if there is none."""
        place = bisect_left(self._queues[k], number)
        return self._queues[k][place - 1] if place else 0

    def _last(self, j: int, value: int) -> int:
        """Which packet raises counted[j] to `value`: that one, if it has still to come, else the last held up to it."""
        if value > self.received[j]:
            return value
        queue = self._queues[j]
        return queue[bisect_right(queue, value) - 1]

    def _deliver(self, key: Key, packet: Packet) -> Need:
        k, queue = key[0], self._queues[key[0]]
        del queue[0]
        self._pass(k, key[1], dict(zip(packet.stamp.names, packet.stamp.values, strict=True)))
        self.counted[k] = queue[0] - 1 if queue else self.received[k]
        return key

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """A message's sequence is its number among all that its origin has sent in the domain."""
        return [(packet, self._missing(key, packet)) for key, packet in self._holdback.packets.items()]

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        key = packet.origin, packet.stamp.number
        return self._missing(key, packet) if self._holdback.packets.get(key) is packet else None

    def _missing(self, key: Key, packet: Packet) -> list[tuple[int, int]]:
        fields = zip(packet.stamp.names, packet.stamp.values, strict=True)
        causes = [(j, self._last(j, value)) for j, value in fields if value > self.counted[j]]
        before = self._before(*key)
        return [*causes, (key[0], before)] if before else causes

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, self.size, self.encode)
        if self._sent:
            self._sent = False
            rows[HEAD, 0] = self.counted[self.me].to_bytes(8, "little") + to_bytes(array("Q", self.told))
        for k in self._changed:
            past = () if self.past[k] == self.counted[k] else (self.past[k],)
            rows[RECEIVED, k] = to_bytes(array("Q", (self.received[k], *past)))
            if owed := self.owed.get(k):
                names = sorted(owed)
                rows[OWED, k] = self._pack(Stamp(self.received[k], names, [owed[j] for j in names]))
                self._stored.add(k)
            elif k in self._stored:
                self._stored.discard(k)
                gone.add((OWED, k))
        self._changed.clear()
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, key), blob in sorted(rows.items()):
            numbers = from_bytes("Q", blob) if kind in (HEAD, RECEIVED) else array("Q")
            if kind == HEAD:
                core.counted[me] = core.received[me] = core.past[me] = numbers[0]
                core.told = list(numbers[1:])
            elif kind == RECEIVED:
                core.received[key] = core.counted[key] = core.past[key] = numbers[0]
                if len(numbers) == 2:  # else all that is counted is past, as it always was in older versions
                    core.past[key] = numbers[1]
                elif len(numbers) > 2:  # of such a version, too
                    core.owed[key] = dict(zip(numbers[1::2], numbers[2::2], strict=True))
            elif kind == OWED:
                stamp = core.decode(key, blob).stamp
                core.owed[key] = dict(zip(stamp.names, stamp.values, strict=True))
                core._stored.add(key)
            else:
                core._queues[key % size].append(key // size)
        for k, queue in enumerate(core._queues):
            if queue:
                core.counted[k] = queue[0] - 1
            core.past[k] = min(core.past[k], core.counted[k])
        core._holdback.load(HELD, size, rows, core.decode, core._need)
        return core

    def encode(self, packet: Packet) -> bytes:
        """Form; destinations, if not the receiver alone; number and fields; body."""
        stamp: Stamp = packet.stamp
        data = stamp.data or self._pack(stamp)
        count = len(packet.dests)
        if count == 1:
            return data + packet.body
        if not count:
            stamp.bare = stamp.bare or bytes((data[0] | NOBODY,)) + data[1:]
            return stamp.bare
        if count == self.size - 1:
            return b"".join((bytes((data[0] | ALL,)), data[1:], packet.body))
        return b"".join((bytes((data[0] | MANY,)), self._dests.pack(packet.dests), data[1:], packet.body))

    def _pack(self, stamp: Stamp) -> bytes:
        """Width, and whether the fields' names are bits; those, or their number and a list; number and values."""
        numbers = (stamp.number, *stamp.values)
        form = width_of(max(numbers))
        if len(stamp.names) <= self._few:
            names = layout(1 + len(stamp.names), self._code).pack(len(stamp.names), *stamp.names)
        else:
            flags = bytearray(self.size)
            for k in stamp.names:
                flags[k] = 1
            names = int(flags.translate(_ONE_ZERO), 2).to_bytes(self._bitmap, "big")
            form |= BITMAP
        return bytes((form,)) + names + layout(len(numbers), CODES[form & WIDTH]).pack(*numbers)

    def decode(self, frm: int, data: bytes) -> Packet:
        try:
            form = data[0]
            who = form & WHO
            dests: tuple[int, ...] = self._only
            at = 1
            if who == MANY:
                dests, at = self._dests.unpack(data, at, frm)
            elif who == ALL:
                dests = (*range(frm), *range(frm + 1, self.size))
            elif who == NOBODY:
                dests = ()
            names, at = self._names(frm, data, at, form & BITMAP)
            fields = layout(1 + len(names), CODES[form & ~(WHO | BITMAP)])
            number, *values = numbers = fields.unpack_from(data, at)
            at += fields.size
        except (error, IndexError):
            raise ValueError("no packet of vector, or cut short in its stamp") from None
        if 0 in numbers or form & WIDTH == 3 and max(numbers) >= LIMIT:
            raise ValueError(f"the stamp counts no messages, or more than {LIMIT}")
        if self.me in names and values[names.index(self.me)] > self.counted[self.me] and not self.forgetful:
            raise ValueError(f"the stamp counts messages that member {self.me} never sent")
        if not dests and at < len(data):
            raise ValueError("a body in a packet that is for others")
        return Packet(self.me, dests, data[at:], frm, Stamp(number, names, values), frm)

    def _names(self, frm: int, data: bytes, at: int, bits: int) -> tuple[Sequence[int], int]:
        """The members whose fields are in a stamp of `frm`, and where the list of them, or the bits, ends."""
        names: Sequence[int]
        if bits:
            end = at + self._bitmap
            flags = f"{int.from_bytes(data[at:end], 'big'):0{self.size}b}"
            names = list(compress(range(self.size), flags.encode().translate(_ZERO_ONE)))
            wrong = len(flags) > self.size
        else:
            (count,) = layout(1, self._code).unpack_from(data, at)
            form = layout(1 + count, self._code)
            names, end = form.unpack_from(data, at)[1:], at + form.size
            wrong = len(set(names)) < count or max(names, default=0) >= self.size
        if wrong or frm in names:
            raise ValueError("the stamp has a field twice, or of no other member")
        return names, end

    def control_ints(self, packet: Packet) -> int:
        """The own number, and the smallest of three forms of the fields: pairs, bits and values, the whole vector."""
        return integers(self.size, len(packet.stamp.names))

    def check(self) -> None:
        counters = self.counted + self.received + self.past
        assert all(a >= b for a, b in zip(counters, self._floor, strict=True)), "1: a counter decreased"
        self._floor = counters
        for k, queue in enumerate(self._queues):
            assert self.told[k] <= self.past[k] <= self.counted[k], "1: told what is not past, or past what is not here"
            assert self.counted[k] <= self.received[k], "1: counted what has not come"
            assert self.counted[k] == (queue[0] - 1 if queue else self.received[k]), "2: another number is counted"
        queued = [(k, number) for k, queue in enumerate(self._queues) for number in queue]
        assert sorted(self._holdback.packets) == queued, "2: another one is held"
        self._holdback.check(self._need, self.counted.__getitem__)


def integers(size: int, fields: int) -> int:
    """The own number, and the smallest of three forms of the fields."""
    return 1 + min(2 * fields, (size + 31) // 32 + fields, size - 1)
