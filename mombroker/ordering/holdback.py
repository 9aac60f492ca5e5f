"""The hold-back queue: packets that came too early, listed by the first thing that each waits for, so that a delivery
wakes few."""

from collections.abc import Callable
from typing import Self

from mombroker.ordering.base import Packet, Rows

Key = tuple[int, int]  # names a packet: (neighbour that it came from, its number)
Need = tuple[int, int]  # what must come first, in the core's own terms: (counter, value)


class Holdback:
    """A need is met when its counter has reached the value, or is past it."""

    __slots__ = ("packets", "_listed", "_put", "_gone")

    def __init__(self) -> None:
        self.packets: dict[Key, Packet] = {}
        self._listed: dict[int, dict[int, list[Key]]] = {}  # by counter, by value
        self._put: set[Key] = set()  # held since the last `dirty`
        self._gone: set[Key] = set()  # stored as held, and delivered since the last `dirty`

    def hold(self, key: Key, packet: Packet, need: Need) -> None:
        self.packets[key] = packet
        self._list(need, key)
        self._put.add(key)

    def _list(self, need: Need, key: Key) -> None:
        counter, value = need
        self._listed.setdefault(counter, {}).setdefault(value, []).append(key)

    def wake(
        self, met: Need, need: Callable[[Key, Packet], Need | None], deliver: Callable[[Key, Packet], Need]
    ) -> list[Packet]:
        """The packets that `met` sets free and those that they set free, in the order in which they were delivered. It
        does not depend on the order in which they came, of which the rows know nothing.

        `need` tells what a packet waits for now; `deliver` takes it into the core's state and tells what this meets.
        """
        free = []
        risen = [met]
        for counter, value in risen:
            listed = self._listed.get(counter)
            if not listed:
                continue
            for key in sorted([key for at in [*listed] if at <= value for key in listed.pop(at)]):
                packet = self.packets[key]
                still = need(key, packet)
                if still:
                    self._list(still, key)
                    continue
                del self.packets[key]
                if key in self._put:
                    self._put.remove(key)
                else:
                    self._gone.add(key)
                risen.append(deliver(key, packet))
                free.append(packet)
        return free

    def dirty(self, kind: int, size: int, encode: Callable[[Packet], bytes]) -> tuple[Rows, set[tuple[int, int]]]:
        """The rows of kind `kind`; their keys are below 2**63 for numbers below 2**47 and sizes below 2**16."""
        if not self._put and not self._gone:
            return {}, set()
        rows = {
            (kind, number * size + frm): frm.to_bytes(2, "little") + encode(self.packets[frm, number])
            for frm, number in self._put
        }
        gone = {(kind, number * size + frm) for frm, number in self._gone}
        self._put.clear()
        self._gone.clear()
        return rows, gone

    def load(
        self,
        kind: int,
        size: int,
        rows: Rows,
        decode: Callable[[int, bytes], Packet],
        need: Callable[[Key, Packet], Need | None],
    ) -> Self:
        """Take up what `dirty` has stored; the state of the core is restored before."""
        for (each, number), blob in sorted(rows.items()):
            if each == kind:
                frm = int.from_bytes(blob[:2], "little")
                key, packet = (frm, number // size), decode(frm, blob[2:])
                first = need(key, packet)
                if first is None:
                    raise ValueError(f"packet {key[1]} from member {frm} is stored as held, and waits for nothing")
                self.hold(key, packet, first)
        self._put.clear()
        return self

    def check(self, need: Callable[[Key, Packet], Need | None], have: Callable[[int], int]) -> None:
        """Asserts that each packet waits, and is listed once, under a counter that has not reached the value."""
        keys = [key for listed in self._listed.values() for keys in listed.values() for key in keys]
        assert sorted(keys) == sorted(self.packets), "held and listed differ"
        waits = [(counter, value) for counter, listed in self._listed.items() for value in listed]
        assert all(have(counter) < value for counter, value in waits), "one waits for what is there"
        assert all(need(key, packet) for key, packet in self.packets.items()), "one waits for nothing"
