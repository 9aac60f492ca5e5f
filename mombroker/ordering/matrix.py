"""Causal order inside one domain by a matrix clock that is sent as deltas (paper 004, appendix A, corrected).

Everything that decides delivery order in such a domain is in this file.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from operator import le
from struct import Struct, error
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.holdback import Holdback, Key, Need
from mombroker.ordering.wire import CODES, WIDTHS, Dests, from_bytes, layout, to_bytes, width_of

Stamp = dict[int, int]  # cell -> value; cell (k,l) is number k * size + l

HEAD, ROW, HELD = 0, 1, 2  # kinds of rows in the store
OWN, LIST, BITMAP, FULL = 0, 4, 8, 12  # forms of a stamp on the wire; plus the index in CODES of its values
MANY = 16  # added when destinations are listed
LIMIT = 1 << 47  # of any value: 400 years of 10,000 messages a second
NOBODY = 0xFFFF  # a source that is no member
_OWN = tuple(Struct(f"<B{code}") for code in CODES)
_ZERO_ONE = bytes.maketrans(b"01", b"\0\1")
_ONE_ZERO = bytes.maketrans(b"\0\1", b"01")


class Matrix(Ordering):
    """The delta matrix clock, `Updates`.

    value(k,l)   how many messages from k to l this member knows of
    since(k,l)   `state` when that value came
    source(k,l)  who it came from: a neighbour, or `me` if this member sent the message
    told[d]      `state` at the last send to d

    A stamp for d holds the cells that changed since d was last told, but for those that came from d. `journal` lists
    the cells in order of their last change, so a stamp costs what it holds, whatever the size of the domain.

    1. No value decreases; a cell is in the journal, in order of `since`, if and only if its value is above zero.
    2. told[d] < state; no cell has `since` above `state`. So what is learned now is news to everybody.
    3. source(me,l) == me, and source(k,me) == k: only the message itself counts in the column of its receiver.
    4. A held packet from j is not the next of j, or has a cell (k,me) above value(k,me).
    """

    prompt = True
    options = ("own_column",)

    def __init__(self, me: int, size: int, own_column: bool = True):
        """`own_column=False` leaves out what the others need not hear: the messages to this member (protocols §2.2)."""
        assert 0 <= me < size < NOBODY, f"no member {me} in a domain of {size}"
        cells = size * size
        self.me, self.size = me, size
        self.state = 1
        self.value = array("Q", bytes(8 * cells))
        self.since = array("Q", bytes(8 * cells))
        self.source = array("H", [NOBODY]) * cells
        self.told = array("Q", bytes(8 * size))
        self.journal: OrderedDict[int, None] = OrderedDict()
        self._holdback = Holdback()  # a need is (cell, value); a packet's number is the value of its cell (frm,me)
        self._column = frozenset(range(me, cells, size))
        self._row = frozenset(range(me * size, me * size + size))
        self._pruned = not own_column
        self._saved = self.state  # as in the head row
        self._changed: set[int] = set()  # cells since the last `dirty`
        self._floor: array[int] = self.value[:0]  # values at the last `check`

        self._dests = Dests(me, size)
        self._only = (me,)
        self._cell = CODES[width_of(cells - 1)]
        self._bitmap = (cells + 7) // 8
        cell = WIDTHS[width_of(cells - 1)]
        self._few = (self._bitmap - cell) // cell  # cells; up to here a list is smaller than a bitmap
        self._most = cells * 7 // 8  # cells; up to here a bitmap is smaller than the whole matrix

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if not isinstance(options.get("own_column", True), bool):
            faults.append("own_column is a switch: write true or false")
        return faults

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Typical: each member talks with one other at a time, n/2 entries. Worst: all with all (protocols §2.7)."""
        n = len(members)
        sizes = {"control_bytes": INTEGER * integers(n * n, (n + 1) // 2), "control_bytes_worst": INTEGER * n * n}
        return super().describe(members, options) | sizes

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests = tuple(dests)
        me, state, told = self.me, self.state, self.told
        value, since, source, journal = self.value, self.since, self.source, self.journal
        first = me * self.size
        # All destinations are counted before the first stamp is built: else the copy to d1 does not say that d2 gets
        # the message too, and what d1 then sends to d2 overtakes it (test_controls: Unicasts).
        for d in dests:
            assert d != me, "the engine hands local copies over"
            cell = first + d
            value[cell] += 1
            since[cell] = state
            source[cell] = me
            try:
                journal.move_to_end(cell)
            except KeyError:
                journal[cell] = None
        self._changed.add(first)
        packets = []
        for d in dests:
            packets.append(Packet(d, dests, body, me, self._stamp(d)))
            told[d] = state
        self.state = state + 1
        return packets

    def _stamp(self, d: int) -> Stamp:
        """What d has not been told and did not tell."""
        value, since, source, told = self.value, self.since, self.source, self.told[d]
        stamp = {}
        for cell in reversed(self.journal):
            if since[cell] <= told:
                break
            if source[cell] != d:
                stamp[cell] = value[cell]
        if self._pruned and len(stamp) > 1:
            for cell in self._column & stamp.keys():
                del stamp[cell]
        if len(stamp) > self._most and self._full_is_smallest(stamp):
            stamp = dict(enumerate(value))
        return stamp

    def _full_is_smallest(self, stamp: Stamp) -> bool:
        full = len(self.value) * WIDTHS[width_of(max(self.value))]
        return full < self._bitmap + len(stamp) * WIDTHS[width_of(max(stamp.values()))]

    def receive(self, frm: int, packet: Packet) -> Step:
        stamp, holdback = packet.stamp, self._holdback
        own = frm * self.size + self.me
        number, have = stamp[own], self.value[own]
        if number <= have or (holdback.packets and (frm, number) in holdback.packets):
            self.duplicates += 1  # a held one would wait for ever
            return Step([], [])
        if number != have + 1 or len(stamp) > 1:
            need = self._need((frm, number), packet)
            if need:
                packet.frm = frm
                holdback.hold((frm, number), packet, need)
                return Step([], [])
        self._merge(frm, stamp)
        if holdback.packets:
            return Step([], [packet, *holdback.wake((own, number), self._need, self._deliver)])
        return Step([], [packet])

    def _need(self, key: Key, packet: Packet) -> Need | None:
        """A cell that must rise to a value before the packet can be delivered.

        In my column only the cell of a delivered packet changes, and by one, so it passes over no value.
        """
        stamp, value = packet.stamp, self.value
        own = key[0] * self.size + self.me
        if key[1] != value[own] + 1:
            return own, key[1] - 1
        for cell in self._column & stamp.keys():
            if stamp[cell] > value[cell] and cell != own:
                return cell, stamp[cell]
        return None

    def _deliver(self, key: Key, packet: Packet) -> Need:
        self._merge(key[0], packet.stamp)
        return key[0] * self.size + self.me, key[1]

    def _merge(self, frm: int, stamp: Stamp) -> None:
        """Learn the stamp of a packet that is delivered. `state` stays: see invariant 2."""
        value, since, source, journal, state = self.value, self.since, self.source, self.journal, self.state
        for cell, new in stamp.items():
            if new > value[cell]:
                value[cell] = new
                since[cell] = state
                source[cell] = frm
                try:
                    journal.move_to_end(cell)
                except KeyError:
                    journal[cell] = None
                self._changed.add(cell)

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """A message's sequence is its number among those from its origin to this member."""
        return [(packet, self._causes(key, packet)) for key, packet in self._holdback.packets.items()]

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        key = packet.frm, packet.stamp.get(packet.frm * self.size + self.me, 0)
        return self._causes(key, packet) if self._holdback.packets.get(key) is packet else None

    def _causes(self, key: Key, packet: Packet) -> list[tuple[int, int]]:
        stamp, value = packet.stamp, self.value
        own = key[0] * self.size + self.me
        above = [cell for cell in sorted(self._column & stamp.keys()) if stamp[cell] > value[cell] and cell != own]
        before = [(key[0], key[1] - 1)] if key[1] > value[own] + 1 else []
        return before + [(cell // self.size, stamp[cell]) for cell in above]

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, self.size, self.encode)
        if self._saved != self.state:
            self._saved = self.state
            rows[HEAD, 0] = self.state.to_bytes(8, "little") + to_bytes(self.told)
        for k in {cell // self.size for cell in self._changed}:
            row = slice(k * self.size, k * self.size + self.size)
            rows[ROW, k] = to_bytes(self.value[row]) + to_bytes(self.since[row]) + to_bytes(self.source[row])
        self._changed.clear()
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        if (HEAD, 0) in rows:
            core.state = core._saved = int.from_bytes(rows[HEAD, 0][:8], "little")
            core.told = from_bytes("Q", rows[HEAD, 0][8:])
        for (kind, k), blob in rows.items():
            if kind == ROW:
                row = slice(k * size, k * size + size)
                core.value[row] = from_bytes("Q", blob[: 8 * size])
                core.since[row] = from_bytes("Q", blob[8 * size : 16 * size])
                core.source[row] = from_bytes("H", blob[16 * size :])
        known = [cell for cell, number in enumerate(core.value) if number]
        known.sort(key=core.since.__getitem__)  # cells of one state need no order among themselves
        core.journal = OrderedDict.fromkeys(known)
        core._holdback.load(HELD, size, rows, core.decode, core._need)
        return core

    def encode(self, packet: Packet) -> bytes:
        """Form and width; destinations, if not the receiver alone; the stamp in the smallest form; body."""
        stamp: Stamp = packet.stamp
        count = len(stamp)
        if count == 1 and len(packet.dests) == 1:
            (number,) = stamp.values()
            form = OWN + width_of(number)
            return _OWN[form].pack(form, number) + packet.body
        cells, values = len(self.value), stamp.values()
        form = width_of(max(values))
        code = CODES[form]
        if count == 1:
            form += OWN
            data = layout(1, code).pack(*values)
        elif count <= self._few:
            form += LIST
            data = _list(self._cell, count, code).pack(count, *stamp, *values)
        elif count == cells:
            form += FULL
            data = layout(count, code).pack(*values)
        else:
            form += BITMAP
            flags = bytearray(cells)
            for cell in stamp:
                flags[cell] = 1
            data = int(flags.translate(_ONE_ZERO), 2).to_bytes(self._bitmap, "big")
            data += layout(count, code).pack(*map(stamp.__getitem__, compress(range(cells), flags)))
        if len(packet.dests) == 1:
            return bytes((form,)) + data + packet.body
        return bytes((form + MANY,)) + self._dests.pack(packet.dests) + data + packet.body

    def decode(self, frm: int, data: bytes) -> Packet:
        me, own = self.me, frm * self.size + self.me
        try:
            form = data[0]
            if form < LIST:
                _, number = _OWN[form].unpack_from(data)
                if not 0 < number < LIMIT:
                    raise ValueError(f"no number of a message: {number}")
                return Packet(me, self._only, data[1 + WIDTHS[form] :], frm, {own: number}, frm)
            dests, at = self._dests.unpack(data, 1, frm) if form & MANY else (self._only, 1)
            stamp, at = self._decode_stamp(data, at, form & ~MANY, own)
        except (error, IndexError):
            raise ValueError("cut short in its stamp") from None
        if not stamp.get(own):
            raise ValueError(f"no number for member {me} in the stamp")
        if form & 3 == 3 and max(stamp.values()) >= LIMIT:
            raise ValueError(f"the stamp counts more than {LIMIT} messages")
        for cell in self._row & stamp.keys():
            if stamp[cell] > self.value[cell] and not self.forgetful:
                raise ValueError(f"the stamp counts messages that member {me} never sent")
        return Packet(me, dests, data[at:], frm, stamp, frm)

    def _decode_stamp(self, data: bytes, at: int, form: int, own: int) -> tuple[Stamp, int]:
        cells, kind, code = len(self.value), form & ~3, CODES[form & 3]
        count: int
        cell: Iterable[int]
        if kind == OWN:
            count, cell = 1, (own,)
        elif kind == LIST:
            head = layout(1, self._cell)
            (count,) = head.unpack_from(data, at)
            named = layout(count, self._cell)
            cell = named.unpack_from(data, at + head.size)
            at += head.size + named.size
        elif kind == BITMAP:
            flags = f"{int.from_bytes(data[at : at + self._bitmap], 'big'):0{cells}b}"
            if len(flags) > cells:
                raise ValueError("the stamp's bitmap names cells that are none")
            count, cell = flags.count("1"), compress(range(cells), flags.encode().translate(_ZERO_ONE))
            at += self._bitmap
        elif kind == FULL:
            count, cell = cells, range(cells)
        else:
            raise ValueError(f"no form of a stamp: {form}")
        values = layout(count, code)
        stamp = dict(zip(cell, values.unpack_from(data, at), strict=True))
        if len(stamp) < count or max(stamp, default=0) >= cells:
            raise ValueError("a cell of the stamp is listed twice, or is none")
        return stamp, at + values.size

    def control_ints(self, packet: Packet) -> int:
        """The smallest of three forms: (k, l, value) triples, a bitmap and values, the whole matrix."""
        return integers(len(self.value), len(packet.stamp))

    def check(self) -> None:
        value, since, me, size = self.value, self.since, self.me, self.size
        assert all(map(le, self._floor, value)), "1: a value decreased"
        self._floor = value[:]
        order = [since[cell] for cell in self.journal]
        assert order == sorted(order), "1: the journal is out of order"
        known = {cell for cell, number in enumerate(value) if number}
        assert self.journal.keys() == known, "1: journal and values differ"
        assert max(self.told) < self.state, "2: told of what is to come"
        assert max(since) <= self.state, "2: a cell changed after now"
        for k in range(size):
            assert self.source[me * size + k] in (me, NOBODY), "3: another source in the own row"
            assert self.source[k * size + me] in (k, NOBODY), "3: another source in the own column"
        self._holdback.check(self._need, value.__getitem__)


@lru_cache(4096)
def integers(cells: int, entries: int) -> int:
    """The size of a stamp in the smallest of three forms."""
    return min(3 * entries, (cells + 31) // 32 + entries, cells)


@lru_cache(4096)
def _list(cell: str, count: int, code: str) -> Struct:
    return Struct(f"<{cell}{count}{cell}{count}{code}")
