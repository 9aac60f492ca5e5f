"""Back ends that are broken on purpose: what the tests must catch (protocols §12.2). Nothing here is for use."""

from collections.abc import Iterable

from mombroker.ordering import Packet, Step
from mombroker.ordering.fifo import Fifo
from mombroker.ordering.holdback import Key, Need
from mombroker.ordering.matrix import NOBODY, Matrix, Stamp
from mombroker.ordering.rst import RST


class UncountedRST(RST):
    """The receiver learns the stamp, which was taken before the message was counted, and does not count it."""

    def _count(self, k: int, before: bytes, dests: tuple[int, ...]) -> None:
        if k == self.me:
            super()._count(k, before, dests)

    def check(self) -> None: ...


class SelfCountedRST(RST):
    """The stamp is taken after the own increment: each message waits for itself."""

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        packets = super().send(dests, body)
        for packet in packets:
            packet.stamp = tuple(self.sent)
        return packets


class Unicasts(Matrix):
    """A multicast is stamped as a sequence of unicasts."""

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        dests = tuple(dests)
        packets = [packet for d in dests for packet in super(Unicasts, self).send((d,), body)]
        for packet in packets:
            packet.dests = dests
        return packets


class ForgetsSource(Matrix):
    """The node is not recorded on receive: safe, but d is told what d itself said (UP4)."""

    def _merge(self, frm: int, stamp: Stamp) -> None:
        super()._merge(NOBODY, stamp)

    def check(self) -> None: ...


class Restamps(Matrix):
    """A resend makes a new stamp: it leaves out what the first one, which never arrived, had said."""

    def resend(self, packet: Packet) -> None:
        own = self.me * self.size + packet.to
        packet.stamp = self._stamp(packet.to) | {own: packet.stamp[own]}


class DropsExpired(Matrix):
    """An expired packet counts as delivered, and its stamp is dropped with it."""

    def receive(self, frm: int, packet: Packet) -> Step:
        own = frm * self.size + self.me
        if not packet.body:
            packet.stamp = {own: packet.stamp[own]}
        return super().receive(frm, packet)


class NeverSendsExpired(Matrix):
    """An expired packet is taken out of the out-queue."""

    def receive(self, frm: int, packet: Packet) -> Step:
        return super().receive(frm, packet) if packet.body else Step()


class Loose(Matrix):
    """Updates whose packets need not carry their own cell, with the delivery test spelled out."""

    def __init__(self, me: int, size: int):
        super().__init__(me, size)
        self.buffer: list[tuple[int, Packet]] = []

    def ready(self, own: int, stamp: Stamp) -> bool:
        others = (stamp[cell] <= self.value[cell] for cell in self._column & stamp.keys() if cell != own)
        return stamp.get(own, self.value[own] + 1) == self.value[own] + 1 and all(others)

    def receive(self, frm: int, packet: Packet) -> Step:
        self.buffer.append((frm, packet))
        step = Step()
        while True:
            for k, held in self.buffer:
                if self.ready(k * self.size + self.me, held.stamp):
                    self.buffer.remove((k, held))
                    self._merge(k, held.stamp)
                    step.deliver.append(held)
                    break
            else:
                return step

    def held(self) -> list[tuple[Packet, list[tuple[int, int]]]]:
        return [(packet, [(k, 0)]) for k, packet in self.buffer]

    def encode(self, packet: Packet) -> bytes:
        return repr((packet.dests, packet.body, packet.stamp)).encode()

    def decode(self, frm: int, data: bytes) -> Packet:
        dests, body, stamp = eval(data)  # only what `encode` has made
        return Packet(self.me, dests, body, frm, stamp, frm)

    def check(self) -> None: ...


class SourceIsReceiver(Loose):
    """Order fixed, but node = j on send: the increment never reaches j (UP3)."""

    def _stamp(self, d: int) -> Stamp:
        self.source[self.me * self.size + d] = d
        return super()._stamp(d)


class StartsAtZero(Loose):
    """Order and node fixed, but State starts at 0: what changes in state 0 is told to nobody (UP2)."""

    def __init__(self, me: int, size: int):
        super().__init__(me, size)
        self.state = 0

    def ready(self, own: int, stamp: Stamp) -> bool:
        return own in stamp and super().ready(own, stamp)


class Implicit(Loose):
    """The own cell is left out and the receiver counts, but delivery is not head-of-line for each sender."""

    def _stamp(self, d: int) -> Stamp:
        stamp = super()._stamp(d)
        del stamp[self.me * self.size + d]
        return stamp

    def _merge(self, frm: int, stamp: Stamp) -> None:
        own = frm * self.size + self.me
        super()._merge(frm, {**stamp, own: self.value[own] + 1})


class HeadOfLine(Implicit):
    """The same done right: no control, but what tells that `Implicit` fails for want of this line only."""

    def ready(self, own: int, stamp: Stamp) -> bool:
        frm = own // self.size
        first = next(packet for k, packet in self.buffer if k == frm)
        return first.stamp is stamp and super().ready(own, stamp)


class AsPrinted(Implicit):
    """Appendix A: Node[j] = State before the set is built, so every stamp is empty (UP1)."""

    def _stamp(self, d: int) -> Stamp:
        return {}


class Hasty(Fifo):
    """What comes out of order is not held."""

    def _need(self, key: Key, packet: Packet) -> Need | None:
        return None

    def check(self) -> None: ...


class Twice(Fifo):
    """The number is not looked at for repeats."""

    def receive(self, frm: int, packet: Packet) -> Step:
        self.received = min(self.received, packet.stamp - 1)
        return super().receive(frm, packet)

    def check(self) -> None: ...


class Skips(Fifo):
    """An early packet is dropped, as if its sender would send it again."""

    def receive(self, frm: int, packet: Packet) -> Step:
        return Step([], []) if packet.stamp > self.received + 1 else super().receive(frm, packet)
