"""Causal order inside one domain by the full matrix on every message (Raynal, Schiper, Toueg): the baseline.

Everything that decides delivery order in such a domain is in this file.
"""

from collections.abc import Iterable, Mapping
from operator import ge
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.holdback import Holdback, Key, Need
from mombroker.ordering.wire import CODES, WIDTHS, Dests, layout, width_of

ROW, HELD = 0, 1  # kinds of rows in the store
LIMIT = 1 << 47  # of any value: 400 years of 10,000 messages a second


class RST(Ordering):
    """`sent[k]` packs row k of the matrix: how many messages from k to each member this member knows of.

    A row is packed in one way only, and all versions of one are ordered: what a member knows of k's sends is always
    all of them up to some send, since every send of k happened before the next. Of two versions the later one has no
    smaller integer, so it is also the greater one as big-endian bytes with their width in front. So the elementwise
    maximum is `max` of two byte strings, a copy of the matrix is n references, and equal rows are passed over.

    1. No row decreases; each is packed in the one way.
    2. delivered[k] == sent[k][me].
    3. A held packet has a cell (k,me) above delivered[k].
    """

    prompt = True

    def __init__(self, me: int, size: int):
        assert 0 <= me < size < 1 << 16, f"no member {me} in a domain of {size}"
        self.me, self.size = me, size
        self.sent = [pack([0] * size)] * size
        self.delivered = [0] * size
        self._dests = Dests(me, size)
        self._lengths = {bytes((code,)): size * width for code, width in enumerate(WIDTHS)}  # by a row's first byte
        self._holdback = Holdback()  # a need is (k, value of delivered[k]); a packet's number is what it needs of frm
        self._changed: set[int] = set()  # rows since the last `dirty`
        self._floor = self.sent[:]  # rows at the last `check`

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        size = INTEGER * len(members) ** 2
        return super().describe(members, options) | {"control_bytes": size, "control_bytes_worst": size}

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests, me = tuple(dests), self.me
        assert me not in dests, "the engine hands local copies over"
        stamp = tuple(self.sent)  # before this multicast is counted
        self._count(me, stamp[me], dests)
        return [Packet(d, dests, body, me, stamp) for d in dests]

    def _count(self, k: int, before: bytes, dests: tuple[int, ...]) -> None:
        """A message of k to `dests`, sent when its row was `before`, is known of from now on."""
        row = unpack(before)
        for d in dests:
            row[d] += 1
        after = pack(row)
        if after > self.sent[k]:
            self.sent[k] = after
            self._changed.add(k)

    def receive(self, frm: int, packet: Packet) -> Step:
        key = frm, cell(packet.stamp[frm], self.me)
        if key[1] < self.delivered[frm] or key in self._holdback.packets:
            self.duplicates += 1  # a held one would wait for ever
            return Step([], [])
        need = self._need(key, packet)
        if need:
            packet.frm = frm
            self._holdback.hold(key, packet, need)
            return Step([], [])
        return Step([], [packet, *self._holdback.wake(self._deliver(key, packet), self._need, self._deliver)])

    def _need(self, key: Key, packet: Packet) -> Need | None:
        """(member, how many of its messages must be delivered before this packet); None when enough are."""
        for k, (theirs, mine) in enumerate(zip(packet.stamp, self.sent, strict=True)):
            if theirs != mine:
                least = cell(theirs, self.me)
                if least > self.delivered[k]:
                    return k, least
        return None

    def _deliver(self, key: Key, packet: Packet) -> Need:
        """Learn the stamp, then the message itself."""
        frm, sent = key[0], self.sent
        self.delivered[frm] += 1
        for k, (theirs, mine) in enumerate(zip(packet.stamp, sent, strict=True)):
            if theirs > mine:
                sent[k] = theirs
                self._changed.add(k)
        self._count(frm, packet.stamp[frm], packet.dests)
        return frm, self.delivered[frm]

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """A message's sequence is its number among those from its origin to this member, from 1."""
        return [(packet, self._causes(packet)) for packet in self._holdback.packets.values()]

    def missing(self, packet: Packet) -> list[tuple[int, int]] | None:
        key = packet.frm, cell(packet.stamp[packet.frm], self.me)
        return self._causes(packet) if self._holdback.packets.get(key) is packet else None

    def _causes(self, packet: Packet) -> list[tuple[int, int]]:
        least = [cell(row, self.me) for row in packet.stamp]
        return [(k, need) for k, need in enumerate(least) if need > self.delivered[k]]

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, self.size, self.encode)
        for k in self._changed:
            rows[ROW, k] = self.sent[k]
        self._changed.clear()
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, k), blob in rows.items():
            if kind == ROW:
                core.sent[k] = blob
                core.delivered[k] = cell(blob, me)
        core._holdback.load(HELD, size, rows, core.decode, core._need)
        return core

    def encode(self, packet: Packet) -> bytes:
        """Whether destinations are listed, and those; the rows of the matrix; body."""
        dests = b"\0" if len(packet.dests) == 1 else b"\1" + self._dests.pack(packet.dests)
        return b"".join((dests, *packet.stamp, packet.body))

    def decode(self, frm: int, data: bytes) -> Packet:
        if data[:1] not in (b"\0", b"\1"):
            raise ValueError("no packet of rst")
        dests, at = self._dests.unpack(data, 1, frm) if data[0] else ((self.me,), 1)
        rows = []
        for mine in self.sent:
            row = data[at : at + 1 + self._lengths.get(data[at : at + 1], 0)]
            if row != mine:
                verify(row, self.size)
            rows.append(row)
            at += len(row)
        if rows[self.me] > self.sent[self.me] and not self.forgetful:
            raise ValueError(f"the stamp counts messages that member {self.me} never sent")
        return Packet(self.me, dests, data[at:], frm, tuple(rows), frm)

    def control_ints(self, packet: Packet) -> int:
        return self.size * self.size

    def check(self) -> None:
        assert all(map(ge, self.sent, self._floor)), "1: a row decreased"
        self._floor = self.sent[:]
        for k, row in enumerate(self.sent):
            assert row == pack(unpack(row)), "1: a row is packed in another way"
            assert self.delivered[k] == cell(row, self.me), "2: delivered and the own column differ"
        self._holdback.check(self._need, self.delivered.__getitem__)


def pack(row: list[int]) -> bytes:
    """The index in CODES of the narrowest integer that holds them all, then the integers, big-endian."""
    width = width_of(max(row))
    return bytes((width,)) + layout(len(row), CODES[width], ">").pack(*row)


def unpack(row: bytes) -> list[int]:
    width = row[0]
    return list(layout((len(row) - 1) // WIDTHS[width], CODES[width], ">").unpack_from(row, 1))


def cell(row: bytes, k: int) -> int:
    width = WIDTHS[row[0]]
    return int.from_bytes(row[1 + k * width : 1 + k * width + width], "big")


def verify(row: bytes, size: int) -> None:
    """Raises ValueError for what `pack` does not make of `size` integers below LIMIT."""
    if not row or row[0] >= len(CODES) or len(row) != 1 + size * WIDTHS[row[0]]:
        raise ValueError("cut short in its stamp, or no row of a matrix")
    width = WIDTHS[row[0]]
    if width > 1 and not b"".join(row[1 + k :: width] for k in range(width // 2)).strip(b"\0"):
        raise ValueError("a row of the stamp is packed too wide")
    if width == 8 and max(unpack(row)) >= LIMIT:
        raise ValueError("a row of the stamp counts too much")
