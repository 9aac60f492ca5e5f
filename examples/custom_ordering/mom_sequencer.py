"""Causal and total order inside one domain by a sequencer: one member numbers everything and passes it on.

An example of an ordering back end of one's own. It uses nothing but the interface that mombroker.ordering offers.
"""

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Any, Self

from mombroker.ordering import Ordering, Packet, Rows, Step

COUNTERS, HELD = 0, 1  # kinds of rows in the store
HEAD = Struct("<QHH")  # number, origin, how many destinations follow
LIMIT = 1 << 47  # of a number


class Sequencer(Ordering):
    """Every message goes to the sequencer, which passes it on; each member gets its messages in the sequencer's order,
    its own ones too: two members that get the same two messages get them in one order.

    That order is causal: whoever sends a message because of another one sends it to the sequencer after that one has
    been there. Packets between the sequencer and a member are numbered, either way, so links need not keep the order.

    1. No counter decreases.
    2. A held packet is not the next one of its neighbour.
    """

    relays = own = total = True
    options = ("sequencer",)

    def __init__(self, me: int, size: int, sequencer: int = 0):
        assert 0 <= me < size < 1 << 16, f"no member {me} in a domain of {size}"
        self.me, self.size, self.sequencer = me, size, sequencer
        self.sent = [0] * size  # by neighbour: the number of the last packet
        self.received = [0] * size
        self._held: dict[tuple[int, int], Packet] = {}  # by neighbour and number
        self._changed: set[int] = set()  # counters, since the last `dirty`
        self._put: set[tuple[int, int]] = set()  # held since the last `dirty`
        self._gone: set[tuple[int, int]] = set()  # stored as held, and released since then
        self._floor = self.sent + self.received  # counters at the last `check`

    @classmethod
    def validate(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> list[str]:
        faults = super().validate(members, options)
        if options.get("sequencer", members[0]) not in members:
            faults.append(f"sequencer names a server of this domain: choose one of {', '.join(members)}")
        return faults

    @classmethod
    def resolve(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: members.index(value) for name, value in options.items()}

    @classmethod
    def describe(cls, members: tuple[str, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """For `mom topology show`: a star, and two integers on each packet."""
        return super().describe(members, options) | {
            "links": [1, len(members) - 1], "diameter": 2, "relays": [options.get("sequencer", members[0])],
            "packets": 2, "packets_to_all": len(members) - 1, "control_bytes": 8, "control_bytes_worst": 8,
            "survives": "all that is for others, unless the sequencer is down: then nothing",
        }  # fmt: skip

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests = tuple(dests)
        ways = dests if self.me == self.sequencer else (self.sequencer,)
        return [self._packet(to, dests, body, self.me) for to in ways]

    def _packet(self, to: int, dests: tuple[int, ...], body: bytes, origin: int) -> Packet:
        self.sent[to] += 1
        self._changed.add(to)
        return Packet(to, dests, body, origin, self.sent[to])

    def receive(self, frm: int, packet: Packet) -> Step:
        step, key = Step(), (frm, packet.stamp)
        if key[1] <= self.received[frm] or key in self._held:
            self.duplicates += 1
            return step
        self._held[key] = packet
        self._put.add(key)
        while (next_key := (frm, self.received[frm] + 1)) in self._held:
            self._release(next_key, key, step)
        return step

    def _release(self, key: tuple[int, int], came: tuple[int, int], step: Step) -> None:
        packet = self._held.pop(key)
        if key in self._put:
            self._put.remove(key)
        else:
            self._gone.add(key)
        self.received[key[0]] = key[1]
        self._changed.add(key[0])
        if self.me == self.sequencer and key[0] != self.me:
            others = [d for d in packet.dests if d != self.me]
            step.send += [self._packet(d, packet.dests, packet.body, packet.origin) for d in others]
        if self.me in packet.dests:
            step.deliver.append(packet)
        elif key != came:
            step.freed = [*step.freed, packet]

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        """A packet waits for the one before it from the same neighbour."""
        return [(packet, [(frm, number - 1)]) for (frm, number), packet in self._held.items()]

    def dirty(self) -> tuple[Rows, set[tuple[int, int]]]:
        rows: Rows = {}
        for k in self._changed:
            rows[COUNTERS, k] = self.sent[k].to_bytes(8, "little") + self.received[k].to_bytes(8, "little")
        for frm, number in self._put:
            rows[HELD, number * self.size + frm] = self.encode(self._held[frm, number])
        gone = {(HELD, number * self.size + frm) for frm, number in self._gone}
        self._changed.clear()
        self._put.clear()
        self._gone.clear()
        return rows, gone

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = cls(me, size, **options)
        for (kind, key), blob in rows.items():
            if kind == COUNTERS:
                core.sent[key] = int.from_bytes(blob[:8], "little")
                core.received[key] = int.from_bytes(blob[8:], "little")
            else:
                core._held[key % size, key // size] = core.decode(key % size, blob)
        return core

    def encode(self, packet: Packet) -> bytes:
        dests = packet.dests
        head = HEAD.pack(packet.stamp, packet.origin, len(dests))
        return head + Struct(f"<{len(dests)}H").pack(*dests) + packet.body

    def decode(self, frm: int, data: bytes) -> Packet:
        try:
            number, origin, count = HEAD.unpack_from(data)
            dests = Struct(f"<{count}H").unpack_from(data, HEAD.size)
        except error:
            raise ValueError("cut short") from None
        if not 0 < number < LIMIT or self.sequencer not in (frm, self.me):
            raise ValueError(f"no numbered packet between the sequencer and member {self.me}")
        if not dests or max(origin, *dests) >= self.size or len(set(dests)) < len(dests):
            raise ValueError(f"no origin and destinations: {origin}, {dests}")
        if self.me not in dests and self.me != self.sequencer:
            raise ValueError(f"a packet that is not for member {self.me}")
        return Packet(self.me, dests, data[HEAD.size + 2 * count :], origin, number, frm)

    def control_ints(self, packet: Packet) -> int:
        """Number and origin."""
        return 2

    def check(self) -> None:
        now = self.sent + self.received
        assert all(a >= b for a, b in zip(now, self._floor, strict=True)), "1: a counter decreased"
        self._floor = now
        assert all(number > self.received[frm] + 1 for frm, number in self._held), "2: one waits for nothing"
