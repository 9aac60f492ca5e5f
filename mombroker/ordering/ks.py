"""Causal order inside one domain by the optimal multicast of Kshemkalyani and Singhal (paper 002).

Everything that decides delivery order in such a domain is in this file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import gt
from struct import Struct, error
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.holdback import Holdback, Key, Need
from mombroker.ordering.wire import CODES, Dests, layout, width_of

# (clock of a send, who of its destinations is named: bit d is member d); clocks rise, and each names somebody. Never
# changed, so that a copy of a log copies references.
Entries = tuple[tuple[int, int], ...]
Records = dict[int, Entries]  # by sender

HEAD, DELIVERED, LOG, HELD = 0, 1, 2, 3  # kinds of rows in the store
MANY = 4  # in the first byte of a packet, beside a width: several destinations, listed
FEW = 4  # in the first byte of a log, beside a width: newest clocks of few senders, listed
LIMIT = 1 << 47  # of a clock: 400 years of 10,000 messages a second


@dataclass(slots=True, eq=False)
class Known:
    """A sender's log without the destinations of the message that it goes with: all copies share it."""

    newest: list[int]
    records: Records
    data: bytes  # on the wire
    totals: tuple[int, int, int] | None = None  # counted when first asked for


@dataclass(slots=True, eq=False)
class Stamp:
    """The dependencies of one copy: the entries of `known`, and its receiver named in those of `guards`.

    The receiver takes only `known` into its log. In the paper it takes the guards too, and itself out of them at once:
    that gives the same log (test_ks compares).
    """

    clock: int
    guards: tuple[Need, ...]  # (sender, clock) of the messages that the receiver must have delivered before
    known: Known


class KS(Ordering):
    """`records[s]` names, by messages of s, the destinations that what this member sends may not overtake.

    Nobody is named for a message that is delivered there (constraint I of the paper), or that a later message to the
    same member is known to wait for (constraint II). `newest[s]` is the newest message of s that this member knows of:
    who is not named for one up to it need not be. So it stands for the entry that the paper keeps of the newest
    message when nobody is named in it, and tells the same of all before.

    1. Clocks do not decrease.
    2. In a record clocks rise to `newest` at most; each entry names somebody, none of them twice, and neither the
       sender nor this member.
    3. A held packet has a guard (s,t) with t > delivered[s].
    """

    prompt = True
    options = ("encoding",)

    def __init__(self, me: int, size: int, encoding: str = "list"):
        """`encoding="bitmap"` is KS' of the paper: the same decisions, other sizes."""
        assert 0 <= me < size < 1 << 16, f"no member {me} in a domain of {size}"
        assert encoding in ENCODINGS, f"no encoding {encoding}"
        self.me, self.size, self.encoding = me, size, encoding
        self.clock = 0
        self.delivered = [0] * size  # by sender: the clock of its last message that was delivered here
        self.newest = [0] * size
        self.records: Records = {}
        self._pack, self._unpack = ENCODINGS[encoding]
        self._dests = Dests(me, size)
        self._only = (me,)
        self._code = index_code(size)
        self._bits = (size + 7) // 8
        self._holdback = Holdback()  # a need is (sender, clock), and so is the name of a packet
        self._saved = self.clock  # as in the head row
        self._told: set[int] = set()  # senders delivered from since the last `dirty`
        self._changed: set[int] = set()  # senders whose part of the log changed since then
        self._floor = [0] * (1 + 2 * size)  # clocks at the last `check`

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if options.get("encoding", "list") not in tuple(ENCODINGS):
            faults.append('encoding is one of two: write "list" or "bitmap"')
        return faults

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """Typical: mixed traffic, where these means are about those of the study (protocols §3.3, §11.1: table, S1).
        Worst: of each member one message to each other is named."""
        n = len(members)
        dests, e, d, newest, pairs = 0.5 * n, 1.07 * n + 4, 1.3 * n, 0.9 * n, n * (n - 1)
        if options.get("encoding") == "bitmap":
            typical, worst = n * n / 32 + d + newest, n * n / 32 + pairs + n
        else:
            typical, worst = 4 + dests + 3 * e + d, 4 + n + 3 * pairs + pairs
        sizes = {"control_bytes": INTEGER * round(min(typical, worst)), "control_bytes_worst": INTEGER * round(worst)}
        return super().describe(members, options) | sizes

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests, me, records = tuple(dests), self.me, self.records
        assert me not in dests, "the engine hands local copies over"
        self.clock = clock = self.clock + 1
        guards: dict[int, list[Need]] = {d: [] for d in dests}
        going = mask_of(dests)
        for s, entries in list(records.items()):
            hit = False
            for t, mask in entries:
                if mask & going:
                    hit = True
                    for d in members_of(mask & going):
                        guards[d].append((s, t))
            if hit:
                self._put(s, tuple([(t, mask & ~going) for t, mask in entries if mask & ~going]))
        known = Known(self.newest.copy(), records.copy(), b"")
        known.data = self._newest(known.newest) + self._pack(known.records, self.size)
        self._put(me, (*records.get(me, ()), (clock, going)))
        self.newest[me] = clock
        return [Packet(d, dests, body, me, Stamp(clock, tuple(guards[d]), known)) for d in dests]

    def _put(self, s: int, entries: Entries) -> None:
        if entries:
            self.records[s] = entries
        else:
            self.records.pop(s, None)
        self._changed.add(s)

    def receive(self, frm: int, packet: Packet) -> Step:
        key = frm, packet.stamp.clock
        if key[1] <= self.delivered[frm] or key in self._holdback.packets:
            self.duplicates += 1  # a held one would wait for ever
            return Step([], [])
        need = self._need(key, packet)
        if need:
            packet.frm = frm
            self._holdback.hold(key, packet, need)
            return Step([], [])
        met = self._deliver(key, packet)
        if self._holdback.packets:
            return Step([], [packet, *self._holdback.wake(met, self._need, self._deliver)])
        return Step([], [packet])

    def _need(self, key: Key, packet: Packet) -> Need | None:
        """A message that must be delivered before; `delivered` passes over no clock of a message to this member."""
        for s, t in packet.stamp.guards:
            if self.delivered[s] < t:
                return s, t
        return None

    def _deliver(self, key: Key, packet: Packet) -> Need:
        """Learn what the sender knew, and the message itself."""
        k, clock = key
        self.delivered[k] = clock
        self._told.add(k)
        known: Known = packet.stamp.known
        mine, theirs, newest, last = self.records, known.records, self.newest, known.newest
        for s in list(mine):
            if s in theirs:
                if s != k and theirs[s] != mine[s]:
                    self._learn(s, theirs[s], last[s])
            elif s != k and mine[s][0][0] <= last[s]:  # else they are news to the sender, all of them
                self._learn(s, (), last[s])
        for s in theirs.keys() - mine.keys():
            if s != k and theirs[s][-1][0] > newest[s]:  # else they are done with, all of them
                self._learn(s, theirs[s], last[s])
        others = mask_of(packet.dests) & ~(1 << self.me)
        self._learn(k, (*theirs.get(k, ()), (clock, others)) if others else theirs.get(k, ()), clock)
        for s in compress(range(self.size), map(gt, last, newest)):
            newest[s] = last[s]
            self._changed.add(s)
        if clock > newest[k]:
            newest[k] = clock
            self._changed.add(k)
        return key

    def _learn(self, s: int, theirs: Entries, last: int) -> None:
        """Another member's entries of s, who knew of the messages of s up to `last`."""
        mine = self.records.get(s, ())
        merged = self._merge(mine, self.newest[s], theirs, last)
        if merged != mine:
            self._put(s, merged)

    @staticmethod
    def _merge(mine: Entries, newest: int, theirs: Entries, last: int) -> Entries:
        """What is left of one sender's entries, mine of its messages up to `newest`, theirs up to `last`.

        An entry that the other side knows of and lacks is done with. In one that both have, who is still named is named
        in both.
        """
        has = dict(theirs)
        left = []
        for t, mask in mine:
            if t <= last:
                mask &= has.get(t, 0)
            if mask:
                left.append((t, mask))
        left += [entry for entry in theirs if entry[0] > newest]
        return tuple(left)

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """A message's sequence is its sender's clock: its number among all that it has sent in the domain."""
        return [(packet, self._missing(packet)) for packet in self._holdback.packets.values()]

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        held = self._holdback.packets.get((packet.origin, packet.stamp.clock)) is packet
        return self._missing(packet) if held else None

    def _missing(self, packet: Packet) -> list[tuple[int, int]]:
        return [(s, t) for s, t in packet.stamp.guards if self.delivered[s] < t]

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, self.size, self.encode)
        if self._saved != self.clock:
            self._saved = self.clock
            rows[HEAD, 0] = self.clock.to_bytes(8, "little")
        for k in self._told:
            rows[DELIVERED, k] = self.delivered[k].to_bytes(8, "little")
        for s in self._changed:
            rows[LOG, s] = self._row(s)
        self._told.clear()
        self._changed.clear()
        return rows, gone

    def _row(self, s: int) -> bytes:
        row = self.newest[s].to_bytes(8, "little")
        for t, mask in self.records.get(s, ()):
            row += t.to_bytes(8, "little") + mask.to_bytes(self._bits, "little")
        return row

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, k), blob in rows.items():
            if kind == HEAD:
                core.clock = core._saved = int.from_bytes(blob, "little")
            elif kind == DELIVERED:
                core.delivered[k] = int.from_bytes(blob, "little")
            elif kind == LOG:
                core.newest[k] = int.from_bytes(blob[:8], "little")
                step = 8 + core._bits
                pairs = [(blob[at : at + 8], blob[at + 8 : at + step]) for at in range(8, len(blob), step)]
                if pairs:
                    core.records[k] = tuple(
                        (int.from_bytes(t, "little"), int.from_bytes(mask, "little")) for t, mask in pairs
                    )
        core._holdback.load(HELD, size, rows, core.decode, core._need)
        return core

    def encode(self, packet: Packet) -> bytes:
        """Width and whether destinations are listed, and those; clocks and senders of the guards; log; body."""
        stamp: Stamp = packet.stamp
        clocks, senders = [stamp.clock], []
        for s, t in stamp.guards:
            senders.append(s)
            clocks.append(t)
        form = width_of(max(clocks))
        head = _head(self._code, CODES[form], len(senders)).pack(len(senders), *clocks, *senders)
        if len(packet.dests) == 1:
            return b"".join((bytes((form,)), head, stamp.known.data, packet.body))
        return b"".join((bytes((form | MANY,)), self._dests.pack(packet.dests), head, stamp.known.data, packet.body))

    def _newest(self, newest: list[int]) -> bytes:
        """Width; the newest clocks, of all or, where that is shorter, by sender."""
        form = width_of(max(newest))
        senders = [s for s, t in enumerate(newest) if t]
        if 2 * len(senders) >= self.size:
            return bytes((form,)) + layout(self.size, CODES[form]).pack(*newest)
        names = layout(1 + len(senders), self._code).pack(len(senders), *senders)
        return bytes((form | FEW,)) + names + layout(len(senders), CODES[form]).pack(*[newest[s] for s in senders])

    def decode(self, frm: int, data: bytes) -> Packet:
        try:
            form = data[0]
            dests, at = self._dests.unpack(data, 1, frm) if form & MANY else (self._only, 1)
            (count,) = layout(1, self._code).unpack_from(data, at)
            head = _head(self._code, CODES[form & ~MANY], count)
            _, clock, *rest = head.unpack_from(data, at)
            start = at + head.size
            newest, at = self._read_newest(data, start)
            records, end = self._unpack(data, at, self.size)
            stamp = Stamp(clock, tuple(zip(rest[count:], rest[:count], strict=True)), Known(newest, records, b""))
            self._judge(frm, dests, stamp)
        except (error, IndexError):
            raise ValueError("no packet of ks, or cut short in its stamp") from None
        stamp.known.data = data[start:end]
        return Packet(self.me, dests, data[end:], frm, stamp, frm)

    def _read_newest(self, data: bytes, at: int) -> tuple[list[int], int]:
        code = CODES[data[at] & ~FEW]
        if not data[at] & FEW:
            form = layout(self.size, code)
            return list(form.unpack_from(data, at + 1)), at + 1 + form.size
        senders, at = _names(data, at + 1, self._code)
        form = layout(len(senders), code)
        newest = [0] * self.size
        for s, t in zip(senders, form.unpack_from(data, at), strict=True):
            newest[s] = t
        return newest, at + form.size

    def _judge(self, frm: int, dests: tuple[int, ...], stamp: Stamp) -> None:
        """Raises ValueError or IndexError for dependencies that no member sends."""
        newest, records = stamp.known.newest, stamp.known.records
        claims = newest[self.me] > self.clock and not self.forgetful
        if claims or not newest[frm] < stamp.clock < LIMIT or max(newest) >= LIMIT:
            raise ValueError("the stamp tells of a message that is not sent")
        nobody = mask_of(dests) | -1 << self.size
        for s, entries in records.items():
            before, named = 0, nobody | 1 << s
            for t, mask in entries:
                if t <= before or mask & named or not mask:
                    raise ValueError(f"no record of member {s}: {entries}")
                before = t
                named |= mask
            if not 0 < before <= newest[s]:
                raise ValueError(f"no record of member {s}: {entries}")
        for s, t in stamp.guards:
            if s == self.me or not 0 < t <= newest[s]:
                raise ValueError(f"no message to member {self.me}: {t} of {s}")

    def totals(self, packet: Packet) -> tuple[int, int, int]:
        """The sizes of the study: entries on this copy, members named in them, and entries that name nobody."""
        known: Known = packet.stamp.known
        if known.totals is None:
            known.totals = _totals(known.newest, known.records)
        e, d, n = known.totals
        for s, t in packet.stamp.guards:
            d += 1
            if all(t != u for u, _ in known.records.get(s, ())):
                if t == known.newest[s]:
                    n -= 1
                else:
                    e += 1
        return e, d, n

    def log_totals(self) -> tuple[int, int, int]:
        """The same of this member's log."""
        return _totals(self.newest, self.records)

    def control_ints(self, packet: Packet) -> int:
        """list: four of a header, the destinations, three for an entry, those named. bitmap: bits, and clocks."""
        e, d, n = self.totals(packet)
        if self.encoding == "list":
            return 4 + len(packet.dests) + 3 * e + d
        return (self.size * self.size + 31) // 32 + d + n

    def check(self) -> None:
        now = [self.clock, *self.delivered, *self.newest]
        assert all(a >= b for a, b in zip(now, self._floor, strict=True)), "1: a clock decreased"
        self._floor = now
        for s, entries in self.records.items():
            named = 1 << s | 1 << self.me
            for _, mask in entries:
                assert mask and not mask & named, "2: nobody is named, or somebody who need not be"
                named |= mask
            clocks = [0, *[t for t, _ in entries], self.newest[s] + 1]
            assert all(a < b for a, b in zip(clocks, clocks[1:], strict=False)), "2: clocks do not rise to the newest"
        self._holdback.check(self._need, self.delivered.__getitem__)


def mask_of(members: Iterable[int]) -> int:
    mask = 0
    for d in members:
        mask |= 1 << d
    return mask


def members_of(mask: int) -> list[int]:
    """The members whose bits are set, rising."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _totals(newest: list[int], records: Records) -> tuple[int, int, int]:
    entries = sum(map(len, records.values()))
    named = sum(mask.bit_count() for each in records.values() for _, mask in each)
    empty = len(newest) - newest.count(0) - sum(each[-1][0] == newest[s] for s, each in records.items())
    return entries + empty, named, empty


def index_code(size: int) -> str:
    """The typecode of a member's index, and of how many there are: all 256 of a domain of 256 may be named."""
    return CODES[width_of(size)]


@lru_cache(4096)
def _head(index: str, clock: str, count: int) -> Struct:
    return Struct(f"<{index}{1 + count}{clock}{count}{index}")


def _names(data: bytes, at: int, index: str) -> tuple[Sequence[int], int]:
    """The members listed at `at`, and where they end."""
    (count,) = layout(1, index).unpack_from(data, at)
    form = layout(1 + count, index)
    return form.unpack_from(data, at)[1:], at + form.size


def _pack_list(records: Records, size: int) -> bytes:
    """Width of the clocks; senders; how many entries each has; of every entry the first byte of its bits that is not
    zero, the number of bytes from there to the last such one, and the clock; then these bytes."""
    clocks, firsts, lengths, bits = [], [], [], []
    for entries in records.values():
        for t, mask in entries:
            first = (mask & -mask).bit_length() - 1 >> 3
            length = (mask.bit_length() + 7 >> 3) - first
            clocks.append(t)
            firsts.append(first)
            lengths.append(length)
            bits.append((mask >> 8 * first).to_bytes(length, "little"))
    width = width_of(max(clocks, default=0))
    head = layout(1 + 2 * len(records) + 2 * len(clocks), index_code(size))
    return b"".join((
        bytes((width,)),
        head.pack(len(records), *records, *map(len, records.values()), *firsts, *lengths),
        layout(len(clocks), CODES[width]).pack(*clocks),
        *bits,
    ))  # fmt: skip


def _unpack_list(data: bytes, at: int, size: int) -> tuple[Records, int]:
    index, code = index_code(size), CODES[data[at]]
    senders, at = _names(data, at + 1, index)
    form = layout(len(senders), index)
    counts = form.unpack_from(data, at)
    at += form.size
    total = sum(counts)
    form = layout(2 * total, index)
    places = form.unpack_from(data, at)
    if max(places, default=0) > (size + 7) // 8:  # a few bytes would become a huge mask
        raise ValueError("bits of its log lie outside the domain")
    at += form.size
    form = layout(total, code)
    clocks = form.unpack_from(data, at)
    at += form.size
    entries = []
    for t, first, length in zip(clocks, places[:total], places[total:], strict=True):
        entries.append((t, int.from_bytes(data[at : at + length], "little") << 8 * first))
        at += length
    records = {}
    first = 0
    for s, count in zip(senders, counts, strict=True):
        records[s] = tuple(entries[first : first + count])
        first += count
    if at > len(data) or len(records) < len(senders):
        raise ValueError("cut short in its log, or a sender is there twice")
    return records, at


def _pack_bitmap(records: Records, size: int) -> bytes:
    """Width of the clocks; senders; of each a bit for each member; the clock for each bit that is set."""
    clocks, rows = [], []
    for entries in records.values():
        (t, mask), *others = entries
        if others:
            clock = {d: t for t, mask in entries for d in members_of(mask)}
            clocks += [clock[d] for d in sorted(clock)]
            mask = mask_of(clock)
        else:
            clocks += [t] * mask.bit_count()
        rows.append(mask.to_bytes((size + 7) // 8, "little"))
    width = width_of(max(clocks, default=0))
    names = layout(1 + len(records), index_code(size)).pack(len(records), *records)
    return b"".join((bytes((width,)), names, *rows, layout(len(clocks), CODES[width]).pack(*clocks)))


def _unpack_bitmap(data: bytes, at: int, size: int) -> tuple[Records, int]:
    code, row = CODES[data[at]], (size + 7) // 8
    senders, at = _names(data, at + 1, index_code(size))
    rows = [int.from_bytes(data[at + i * row : at + i * row + row], "little") for i in range(len(senders))]
    at += len(senders) * row
    counts = [mask.bit_count() for mask in rows]
    form = layout(sum(counts), code)
    clocks = form.unpack_from(data, at)
    records: Records = {}
    first = 0
    for s, mask, count in zip(senders, rows, counts, strict=True):
        theirs = clocks[first : first + count]
        first += count
        if theirs.count(theirs[0]) == count:
            records[s] = ((theirs[0], mask),)
            continue
        masks: dict[int, int] = {}
        for d, t in zip(members_of(mask), theirs, strict=True):
            masks[t] = masks.get(t, 0) | 1 << d
        records[s] = tuple(sorted(masks.items()))
    if len(records) < len(senders):
        raise ValueError("a sender is there twice")
    return records, at + form.size


Pack = Callable[[Records, int], bytes]  # records, size of the domain
Unpack = Callable[[bytes, int, int], tuple[Records, int]]  # data, where they begin, size -> records, where they end
ENCODINGS: dict[str, tuple[Pack, Unpack]] = {
    "list": (_pack_list, _unpack_list),
    "bitmap": (_pack_bitmap, _unpack_bitmap),
}
