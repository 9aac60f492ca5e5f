"""Causal order between two servers: the order of sending. A tree of such domains is causal from end to end.

Everything that decides delivery order in such a domain is in this file.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from mombroker.ordering.base import INTEGER, Ordering, Packet, Rows, Step
from mombroker.ordering.holdback import Holdback, Key, Need

COUNTERS, HELD = 0, 1  # kinds of rows in the store
LIMIT = 1 << 47  # of a number: 400 years of 10,000 messages a second


class Fifo(Ordering):
    """The link keeps the order; the number on a packet tells duplicates, and would tell what came out of order.

    1. No counter decreases.
    2. A held packet is not the next one.
    """

    prompt = True

    def __init__(self, me: int, size: int):
        assert size == 2 and me in (0, 1), f"no member {me} in a domain of {size}: fifo is for two"
        self.me, self.peer = me, 1 - me
        self.sent = self.received = 0
        self._saved = self._floor = 0, 0
        self._holdback = Holdback()  # a need is (0, value of `received`)

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if len(members) != 2:
            faults.append(f"fifo keeps causal order between two servers, not among {len(members)}: choose matrix")
        return faults

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {"control_bytes": INTEGER, "control_bytes_worst": INTEGER}
        return super().describe(members, options) | sizes | {"survives": "nothing: there is no other member"}

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        assert tuple(dests) == (self.peer,), "the only other member"
        self.sent += 1
        return [Packet(self.peer, (self.peer,), body, self.me, self.sent)]

    def receive(self, frm: int, packet: Packet) -> Step:
        key, holdback = (frm, packet.stamp), self._holdback
        if packet.stamp <= self.received or key in holdback.packets:
            self.duplicates += 1
            return Step([], [])
        need = self._need(key, packet)
        if need:
            holdback.hold(key, packet, need)
            return Step([], [])
        return Step([], [packet, *holdback.wake(self._deliver(key, packet), self._need, self._deliver)])

    def _need(self, key: Key, packet: Packet) -> Need | None:
        return (0, key[1] - 1) if key[1] > self.received + 1 else None

    def _deliver(self, key: Key, packet: Packet) -> Need:
        self.received = key[1]
        return 0, key[1]

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        return [(packet, [(frm, number - 1)]) for (frm, number), packet in self._holdback.packets.items()]

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows, gone = self._holdback.dirty(HELD, 2, self.encode)
        now = self.sent, self.received
        if now != self._saved:
            self._saved = now
            rows[COUNTERS, 0] = self.sent.to_bytes(8, "little") + self.received.to_bytes(8, "little")
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        blob = rows.get((COUNTERS, 0), bytes(16))
        core.sent, core.received = int.from_bytes(blob[:8], "little"), int.from_bytes(blob[8:], "little")
        core._saved = core.sent, core.received
        core._holdback.load(HELD, 2, rows, core.decode, core._need)
        return core

    def encode(self, packet: Packet) -> bytes:
        """The number and its length, then the body."""
        number: int = packet.stamp
        length = (number.bit_length() + 7) // 8
        return bytes((length,)) + number.to_bytes(length, "little") + packet.body

    def decode(self, frm: int, data: bytes) -> Packet:
        end = 1 + data[0] if data else 1
        number = int.from_bytes(data[1:end], "little")
        if len(data) < end or not 0 < number < LIMIT:
            raise ValueError("no numbered packet")
        return Packet(self.me, (self.me,), data[end:], frm, number, frm)

    def control_ints(self, packet: Packet) -> int:
        return 1

    def check(self) -> None:
        now = self.sent, self.received
        assert now >= self._floor and now[1] >= self._floor[1], "1: a counter decreased"
        self._floor = now
        self._holdback.check(self._need, lambda _: self.received)
