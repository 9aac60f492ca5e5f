"""Paper 003, §8: hosts on one Ethernet, each with one processor that all its packets pass."""

from collections.abc import Callable
from typing import Any

from mombroker.sim.world import MS, SECOND, World

PACK_BYTES = 8000  # a packet that is so large takes no more messages
LINGER = 10 * MS  # that a packet waits for more messages

Message = tuple[int, Callable[..., Any], tuple[Any, ...]]  # bytes, what is called when it is there, with what


class Ethernet:
    """A packet takes time of the sender's processor, then of the one wire, then of the receiver's processor; each does
    one thing after another. Up to `pack` messages that one host sends to another share a packet.

    1. Between two hosts messages arrive in the order of sending.
    """

    def __init__(self, world: World, packet: int, kilobyte: int, header: int, pack: int = 1, rate: int = 10_000_000):
        """`packet` and `kilobyte`: ns of a processor for each packet, and for 1,024 bytes of it; `header`: bytes of a
        packet; `rate` of the wire in bits a second."""
        self.world, self.packet, self.kilobyte, self.header, self.pack = world, packet, kilobyte, header, pack
        self.byte = 8 * SECOND // rate
        self.free: dict[int, int] = {}  # by host: when its processor is
        self.wire = 0  # when it is free
        self.packets = 0
        self._open: dict[tuple[int, int], list[Message]] = {}

    def work(self, host: int, ns: int) -> int:
        """The processor of a host has this to do, too. How long until it is done."""
        now = self.world.now
        done = self.free[host] = max(now, self.free.get(host, 0)) + ns
        return done - now

    def carry(self, frm: int, to: int, size: int, arrive: Callable[..., Any], *args: Any) -> None:
        messages = self._open.setdefault((frm, to), [])
        messages.append((size, arrive, args))
        if len(messages) >= self.pack or sum(each[0] for each in messages) >= PACK_BYTES:
            self._send(frm, to, messages)
        elif len(messages) == 1:
            self.world.after(LINGER, self._send, frm, to, messages)

    def _send(self, frm: int, to: int, messages: list[Message]) -> None:
        if self._open.get((frm, to)) is not messages:
            return  # it became full, and was sent
        del self._open[frm, to]
        size = self.header + sum(each[0] for each in messages)
        self.packets += 1
        cost = self.packet + self.kilobyte * size // 1024
        self.world.after(self.work(frm, cost), self._leave, to, size, cost, messages)

    def _leave(self, to: int, size: int, cost: int, messages: list[Message]) -> None:
        now = self.world.now
        self.wire = max(now, self.wire) + size * self.byte
        self.world.after(self.wire - now, self._come, to, cost, messages)

    def _come(self, to: int, cost: int, messages: list[Message]) -> None:
        self.world.after(self.work(to, cost), self._arrive, messages)

    def _arrive(self, messages: list[Message]) -> None:
        for _, arrive, args in messages:
            arrive(*args)
