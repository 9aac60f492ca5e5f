"""One order for all members of a domain: ABCAST of paper 003, §5.2, among members that crash and come back.

Everything that decides delivery order in such a domain is in this file.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.wire import CODES, layout, width_of

HEAD, COUNTS, HELD, SEGMENT, LOCAL = range(5)  # kinds of rows in the store
# The first byte of a packet: a width; who the body is for (0: its receiver alone); whether its origin has a copy, too;
# whether it tells numbers.
WIDTH, WHO, OWN, ORDER = 3, 12, 16, 32
MANY, ALL, NOBODY = 4, 8, 12
LIMIT = 1 << 47  # of a number: 400 years of 10,000 messages a second
PATIENCE = 16
_HEAD = Struct("<HQ")
_COUNTS = Struct("<QQ")

Entry = tuple[int, int]  # (origin, how many of its messages come next), or (the next holder of the token, 0)


@dataclass(slots=True, eq=False)
class Stamp:
    """`number` of its origin's messages, 0 for a sets-order; if it tells numbers, the messages behind `start` are those
    of `entries`, in their order."""

    number: int
    start: int = -1
    entries: tuple[Entry, ...] = ()
    packed: tuple[int, bytes] = (0, b"")  # form and bytes on the wire; one encoding serves all copies


class Abcast(Ordering):
    """Every message goes to every member, its body to the destinations only. One member has the *token*: it numbers all
    messages, its own when it sends them and others' when they come, and says the numbers with its own next message, or
    by a *sets-order* when its batch closes. Members deliver by number, their own copies too.

    The order is causal: a message is numbered before anybody delivers it, so before anything is sent because of it, and
    messages of one origin come in their order. So no stamp has a clock, and an order names origins alone.

    The token moves by a last entry of a sets-order, when the holder has numbered `patience` messages of others since
    its last own one, to the origin of the latest. Who gets it is the holder once it has delivered all that came before,
    and then numbers all that it has. What is for its sender alone is not numbered: it waits for what that sent before.

    1. No counter decreases; passed[k] <= received[k].
    2. The holder has passed all that it has received, and knows of no order but its own.
    3. What is known of the order and not passed begins with a message that has not come.
    4. A held packet has come and is not passed; a local copy waits for an own message that is not passed.
    """

    fifo = spreads = own = total = True
    options = ("holder", "patience")

    def __init__(self, me: int, size: int, holder: int = 0, patience: int = PATIENCE):
        assert 0 <= me < size < 1 << 16, f"no member {me} in a domain of {size}"
        self.me, self.size, self.patience = me, size, patience
        self.received = [0] * size  # [me]: own messages
        self.passed = [0] * size  # how many of these have had their turn
        self.at = 0  # the sum of `passed`: the number of the message that had its turn last
        self.holder = holder  # of the token, when that had its turn
        self.idle = 0  # at the holder: messages of others since it has the token, or has sent
        self.todo: list[Entry] = []  # at the holder: numbered, and not said yet
        self._order: deque[list[int]] = deque()  # elsewhere: entries that are known and not passed
        self._known = 0  # the number that they go up to
        self._heir = holder  # who has the token then
        self._segments: dict[int, tuple[int, tuple[Entry, ...]]] = {}  # by start: from whom, as they came
        self._ends: deque[tuple[int, int]] = deque()  # of those that are in `_order`: start and last number
        self._held: dict[tuple[int, int], Packet] = {}  # by origin and number
        self._locals: deque[tuple[int, Packet]] = deque()  # for this member alone: key of the row, packet
        self._touched: set[tuple[int, int]] = set()  # rows, since the last `dirty`
        self._stored: set[tuple[int, int]] = set()  # those that may go
        self._floor = self.received + self.passed
        self._code = CODES[width_of(size)]
        self.awaited = holder

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if options.get("holder", members[0]) not in members:
            faults.append(f"holder names a server of this domain: choose one of {', '.join(members)}")
        patience = options.get("patience", PATIENCE)
        if type(patience) is not int or not 0 < patience < 1 << 32:
            faults.append(f"patience is a number of messages, {PATIENCE} if you do not say it: choose 1 or more")
        return faults

    @classmethod
    def resolve(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: members.index(value) if name == "holder" else value for name, value in options.items()}

    @classmethod
    def anew(cls, size: int, options: Mapping[str, Any], times: int) -> dict[str, Any]:
        """The token begins with the next member, since it may be its holder that was lost."""
        return {**options, "holder": (options.get("holder", 0) + times) % size}

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Typical: the number alone. Worst: a holder's own message that tells the number of one more, too. The
        sets-orders, one a batch, are no packets of a message."""
        n = len(members)
        return super().describe(members, options) | {
            "packets": n - 1, "control_bytes": INTEGER, "control_bytes_worst": 6 * INTEGER,
            "survives": "everything, unless the holder of the token is down: then only what it has ordered",
        }  # fmt: skip

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests, me = tuple(dests), self.me
        if dests == (me,):
            return [Packet(me, dests, body, me, Stamp(self.received[me]))]
        self.received[me] = number = self.received[me] + 1
        self._touched.add((COUNTS, me))
        if self.holder == me:
            self._count(me, 1)
            self.passed[me] = number
            stamp = self._say(number)
        else:
            stamp = Stamp(number)
        going = frozenset(dests)
        packets = [
            Packet(d, dests, body, me, stamp) if d in going else Packet(d, (), b"", me, stamp)
            for d in range(self.size) if d in going or d != me
        ]  # fmt: skip
        return packets

    def announce(self) -> list[Packet]:
        """The sets-order of a batch, to all others."""
        if not self.todo:
            return []
        if self.idle >= self.patience:
            self.holder = self._heir = self.awaited = self.todo[-1][0]
            self.todo.append((self.holder, 0))
            self.idle = 0
        stamp = self._say(0)
        return [Packet(d, (), b"", self.me, stamp) for d in range(self.size) if d != self.me]

    def _count(self, k: int, count: int) -> None:
        """The holder numbers the next messages of k."""
        if self.todo and self.todo[-1][0] == k:
            count += self.todo.pop()[1]
        self.todo.append((k, count))
        self.due = True
        self.idle = 0 if k == self.me else self.idle + count
        self._touched.add((HEAD, 0))

    def _say(self, number: int) -> Stamp:
        """All that is numbered and not said, in the packets of this own message or in those of a sets-order."""
        entries = tuple(self.todo)
        if number:
            self.at += 1
            self._known = self.at
        self.todo.clear()
        self.due = False
        self._touched.add((HEAD, 0))
        return Stamp(number, self.at - sum(count for _, count in entries), entries)

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive(self, frm: int, packet: Packet) -> Step:
        """Raises ValueError for a packet that came before an earlier one, and for an order of who has no token."""
        step, stamp, k = Step(), packet.stamp, packet.origin
        if frm == self.me:
            self._come_back(packet, step)
            return step
        number, start = stamp.number, stamp.start
        if number > self.received[k] + 1:
            raise ValueError(f"packet {number} of member {k} came next after packet {self.received[k]}")
        fresh, told = number > self.received[k], start >= self._known and start not in self._segments
        if told and k != self._heir and (start == self._known or self._heir == self.me):
            raise ValueError(f"member {k} orders what comes after message {start}, not member {self._heir}")
        if not (fresh or told):
            self.duplicates += 1
            return step
        if fresh:
            self.received[k] = number
            self._touched.add((COUNTS, k))
            if self.me in packet.dests:
                packet.frm = frm
                if start >= 0:
                    packet.stamp = Stamp(number)  # an order is kept by itself
                self._hold((k, number), packet)
        if told:
            self._segments[start] = k, stamp.entries
            self._touched.add((SEGMENT, start))
            self._learn()
        if self.holder == self.me:
            self._number(k, step)
        elif self._order:
            self._pass(step)
        self.awaited = self._awaited()
        return step

    def _come_back(self, packet: Packet, step: Step) -> None:
        """A copy of our own."""
        me, number = self.me, packet.stamp.number
        if number <= self.passed[me]:
            step.deliver.append(packet)
        elif len(packet.dests) == 1:
            packet.frm, key = me, self._locals[-1][0] + 1 if self._locals else 0
            self._locals.append((key, packet))
            self._touched.add((LOCAL, key))
        else:
            packet.frm = me
            self._hold((me, number), packet)

    def _hold(self, name: tuple[int, int], packet: Packet) -> None:
        self._held[name] = packet
        self._touched.add((HELD, name[1] * self.size + name[0]))

    def _learn(self) -> None:
        """Take up the segments that come next; what lies within others is a lie."""
        while (found := self._segments.get(self._known)) and found[0] == self._heir:
            start = self._known
            for k, count in found[1]:
                self._order.append([k, count])
                self._known += count
                if not count:
                    self._heir = k
            self._ends.append((start, self._known))
        if len(self._segments) > len(self._ends):
            chained = {start for start, _ in self._ends}
            ahead = [start for start in self._segments if start not in chained]
            for start in ahead if self._heir == self.me else [start for start in ahead if start <= self._known]:
                self._forget(start)

    def _forget(self, start: int) -> None:
        del self._segments[start]
        self._touched.add((SEGMENT, start))

    def _pass(self, step: Step) -> None:
        """Deliver in the order that is known, as far as all has come."""
        order = self._order
        while order:
            k, count = order[0]
            if not count:
                order.popleft()
                self.holder, self.idle = k, 0
                self._touched.add((HEAD, 0))
                continue
            come = min(count, self.received[k] - self.passed[k])
            if come <= 0:
                break
            order[0][1] -= come
            if come == count:
                order.popleft()
            self._take(k, come, step)
        while self._ends and self._ends[0][1] <= self.at:
            self._forget(self._ends.popleft()[0])
        if self.holder == self.me:
            for k in range(self.size):
                self._number(k, step)

    def _number(self, k: int, step: Step) -> None:
        """The holder numbers what it has of k."""
        if come := self.received[k] - self.passed[k]:
            self._count(k, come)
            self._take(k, come, step)
            self._known = self.at

    def _take(self, k: int, count: int, step: Step) -> None:
        """The next messages of k have their turn."""
        for number in range(self.passed[k] + 1, self.passed[k] + count + 1):
            if (packet := self._held.pop((k, number), None)) is not None:
                self._touched.add((HELD, number * self.size + k))
                step.deliver.append(packet)
            while k == self.me and self._locals and self._locals[0][1].stamp.number <= number:
                key, packet = self._locals.popleft()
                self._touched.add((LOCAL, key))
                step.deliver.append(packet)
        self.passed[k] += count
        self.at += count
        self._touched.add((COUNTS, k))

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """All wait for one message: the first in the order that has not come, or else the next one of who orders."""
        waits = self._waits()
        found = [*self._held.values(), *(packet for _, packet in self._locals)]
        return [(packet, waits) for packet in sorted(found, key=lambda packet: packet.stamp.number)]  # own ones as sent

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        found = self._held.get((packet.origin, packet.stamp.number)) is packet
        return self._waits() if found or any(each is packet for _, each in self._locals) else None

    def _waits(self) -> list[tuple[int, int]]:
        return [(self.awaited, (self.passed if self._order else self.received)[self.awaited] + 1)]

    def token(self) -> int:
        """Who has it once all that is known of the order is passed."""
        return self._heir

    def _awaited(self) -> int:
        return self._order[0][0] if self._order else self._heir

    # -- rows ------------------------------------------------------------------------------------------------------

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = Rows(), set[tuple[int, int]]()
        kept = dict(self._locals) if any(kind == LOCAL for kind, _ in self._touched) else {}
        for place in self._touched:
            kind, key = place
            blob = b""
            if kind == HEAD:
                blob = _HEAD.pack(self.holder, self.idle) + self._flat(self.todo)
            elif kind == COUNTS:
                blob = _COUNTS.pack(self.received[key], self.passed[key])
            elif kind == HELD and (packet := self._held.get((key % self.size, key // self.size))):
                blob = self.encode(packet)
            elif kind == SEGMENT and key in self._segments:
                frm, entries = self._segments[key]
                blob = frm.to_bytes(2, "little") + self._flat(entries)
            elif kind == LOCAL and key in kept:
                blob = kept[key].stamp.number.to_bytes(8, "little") + kept[key].body
            if blob:
                rows[place] = blob
                if kind > COUNTS:
                    self._stored.add(place)
            elif place in self._stored:
                self._stored.discard(place)
                gone.add(place)
        self._touched.clear()
        return rows, gone

    @staticmethod
    def _flat(entries: Sequence[Entry]) -> bytes:
        return layout(2 * len(entries), "Q").pack(*(value for entry in entries for value in entry))

    @staticmethod
    def _entries(data: bytes) -> list[Entry]:
        numbers = layout(len(data) // 8, "Q").unpack(data)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, key), blob in sorted(rows.items()):
            if kind == HEAD:
                core.holder, core.idle = _HEAD.unpack_from(blob)
                core.todo = core._entries(blob[_HEAD.size :])
                core.due = bool(core.todo)
            elif kind == COUNTS:
                core.received[key], core.passed[key] = _COUNTS.unpack(blob)
            elif kind == HELD:
                core._held[key % size, key // size] = core.decode(key % size, blob)
            elif kind == SEGMENT:
                core._segments[key] = int.from_bytes(blob[:2], "little"), tuple(core._entries(blob[2:]))
            else:
                stamp = Stamp(int.from_bytes(blob[:8], "little"))
                core._locals.append((key, Packet(me, (me,), blob[8:], me, stamp, me)))
        core._stored = {place for place in rows if place[0] > COUNTS}
        core.at = sum(core.passed)
        core._known, core._heir = min([core.at, *core._segments]), core.holder
        skip = core.at - core._known
        core._learn()
        while skip:
            k, count = core._order.popleft()
            if count > skip:
                core._order.appendleft([k, count - skip])
            skip -= min(count, skip)
        core._touched.clear()
        core.awaited = core._awaited()
        return core

    # -- bytes -----------------------------------------------------------------------------------------------------

    def encode(self, packet: Packet) -> bytes:
        """Form; destinations, if not the receiver alone; number, and what it tells of the order; body."""
        stamp: Stamp = packet.stamp
        if not stamp.packed[1]:
            stamp.packed = self._pack(stamp)
        form, data = stamp.packed
        dests, origin = packet.dests, packet.origin
        if not dests:
            return bytes((form | NOBODY,)) + data
        if dests == (packet.to,):
            return bytes((form,)) + data + packet.body
        others = dests
        if origin in dests:
            form |= OWN
            others = tuple(d for d in dests if d != origin)
        if len(others) == self.size - 1:
            return b"".join((bytes((form | ALL,)), data, packet.body))
        if others == (packet.to,):
            return b"".join((bytes((form,)), data, packet.body))
        listed = layout(1 + len(others), self._code).pack(len(others), *others)
        return b"".join((bytes((form | MANY,)), listed, data, packet.body))

    def _pack(self, stamp: Stamp) -> tuple[int, bytes]:
        """The number alone; or how many entries, the number, the start and the entries. The message that they are with
        is the last entry by itself."""
        if stamp.start < 0:
            width = width_of(stamp.number)
            return width, layout(1, CODES[width]).pack(stamp.number)
        entries = stamp.entries
        if stamp.number:
            *entries_before, (k, count) = entries
            entries = (*entries_before, *([(k, count - 1)] if count > 1 else ()))
        numbers = (stamp.number, stamp.start, *(value for entry in entries for value in entry))
        width = width_of(max(numbers))
        data = layout(1, "H").pack(len(entries)) + layout(len(numbers), CODES[width]).pack(*numbers)
        return width | ORDER, data

    def decode(self, frm: int, data: bytes) -> Packet:
        try:
            form = data[0]
            dests, at = self._dests(frm, form, data)
            code = CODES[form & WIDTH]
            if form & ORDER:
                (count,) = layout(1, "H").unpack_from(data, at)
                fields, at = layout(2 + 2 * count, code), at + 2
                number, start, *flat = fields.unpack_from(data, at)
                entries = list(zip(flat[::2], flat[1::2], strict=True))
            else:
                fields = layout(1, code)
                (number,), start, entries = fields.unpack_from(data, at), -1, []
            at += fields.size
        except (error, IndexError):
            raise ValueError("no packet of abcast, or cut short in its stamp") from None
        if max(number, start, *(value for entry in entries for value in entry)) >= LIMIT:
            raise ValueError(f"the stamp counts more than {LIMIT} messages")
        if any(k >= self.size for k, _ in entries) or not all(count for _, count in entries[:-1]):
            raise ValueError("the order names others than members, or the next holder before its end")
        if entries and not entries[-1][1] and (number or len(entries) == 1 or entries[-1][0] == frm):
            raise ValueError("the token moves with no sets-order, or to nobody else")
        if not number and (dests or not entries) or not dests and at < len(data):
            raise ValueError("a packet without a message or an order, or with a body that is for nobody")
        if number and start >= 0:
            last = entries.pop()[1] if entries and entries[-1][0] == frm else 0
            entries.append((frm, last + 1))
        return Packet(self.me, dests, data[at:], frm, Stamp(number, start, tuple(entries)), frm)

    def _dests(self, frm: int, form: int, data: bytes) -> tuple[tuple[int, ...], int]:
        """The destinations, and where they end."""
        who, at = form & WHO, 1
        others: tuple[int, ...] = (self.me,)
        if form & ~(WIDTH | WHO | OWN | ORDER) or form & OWN and (who == NOBODY or who == 0 and frm == self.me):
            raise ValueError("no packet of abcast")
        if who == NOBODY:
            return (), at
        if who == ALL:
            others = (*range(frm), *range(frm + 1, self.size))
        elif who == MANY:
            (count,) = layout(1, self._code).unpack_from(data, at)
            listed = layout(1 + count, self._code)
            others, at = listed.unpack_from(data, at)[1:], at + listed.size
            strange = frm in others or len(set(others)) < count or not others or max(others) >= self.size
            if strange or self.me not in (*others, frm):
                raise ValueError(f"no destinations for member {self.me}: {others}")
        return ((*others, frm) if form & OWN else others), at

    def control_ints(self, packet: Packet) -> int:
        """The number; and where it tells the order, from where on, and two for each entry that says more than this."""
        stamp: Stamp = packet.stamp
        if stamp.start < 0:
            return 1
        return 2 + 2 * (len(stamp.entries) - (stamp.number > 0 and stamp.entries[-1][1] == 1))

    def check(self) -> None:
        now = self.received + self.passed
        assert all(a >= b for a, b in zip(now, self._floor, strict=True)), "1: a counter decreased"
        assert all(a <= b for a, b in zip(self.passed, self.received, strict=True)), "1: passed what has not come"
        assert self.at == sum(self.passed), "1: another number"
        self._floor = now
        assert self.awaited == self._awaited(), "3: another member is awaited"
        assert self.due == bool(self.todo), "2: numbers that are not said"
        if self.holder == self.me:
            assert self.passed == self.received and not self._held and not self._locals, "2: the holder waits"
            assert not self._order and not self._segments and self._known == self.at, "2: two that order"
        else:
            assert not self.todo, "2: numbers, and has no token"
            assert self._known - self.at == sum(count for _, count in self._order), "3: a hole in the order"
        if self._order:
            k, count = self._order[0]
            assert count and self.received[k] == self.passed[k], "3: what could have its turn has not"
        for k, number in self._held:
            assert self.passed[k] < number <= self.received[k], "4: one is held that is passed, or has not come"
        assert all(packet.stamp.number > self.passed[self.me] for _, packet in self._locals), "4: a local one waits"
