"""What is measured in a domain, each thing by itself."""

from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from mombroker.lab.domain import Observer, number_of
from mombroker.ordering import Ordering, Packet, Step
from mombroker.sim.world import EPOCH, MS


class Delay(Observer):
    """From send to delivery, of each copy (of those that `among` says true of, given their origin and receiver)."""

    def __init__(self, first: int = 0, among: Callable[[int, int], bool] = lambda origin, me: True):
        super().__init__(first)
        self.among = among
        self.delays = array("q")  # ns

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now, born = self.domain.world.now, self.domain.born
        for done in step.deliver:
            if (number := number_of(done)) > self.first and self.among(done.origin, me):
                self.delays.append(now - born[number])

    def result(self) -> dict[str, float]:
        """In ms."""
        ordered = sorted(self.delays)
        if not ordered:
            return {"delay_ms": 0.0, "delay_p50_ms": 0.0, "delay_p99_ms": 0.0, "delay_max_ms": 0.0}
        last = len(ordered) - 1
        return {
            "delay_ms": sum(ordered) / len(ordered) / MS, "delay_p50_ms": ordered[last // 2] / MS,
            "delay_p99_ms": ordered[last * 99 // 100] / MS, "delay_max_ms": ordered[-1] / MS,
        }  # fmt: skip


class Waits(Observer):
    """What each copy (of those that `among` says true of) has waited for others in all: at its receiver, and before at
    the members that passed it on, in the step that delivered it to them. Nothing comes twice.

    In the mean this and what the network takes by `network`, given origin and receiver, is the delay; but how quick the
    network happened to be has no part in it.
    """

    def __init__(self, first: int, among: Callable[[int, int], bool], network: Callable[[int, int], int]):
        super().__init__(first)
        self.among, self.network = among, network
        self.copies = self.waited = self.under_way = 0  # the latter two in ns
        self._came: dict[tuple[int, int], int] = {}  # (member, number) -> when; what is held
        self._late: dict[tuple[int, int], int] = {}  # the same -> what it had waited when it was passed on

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now = self.domain.world.now
        if packet not in step.deliver:
            self._came[me, number_of(packet)] = now
        for done in step.deliver:
            number = number_of(done)
            waited = self._late.get((done.frm, number), 0)
            if done is not packet:
                waited += now - self._came.pop((me, number))
            if waited and step.send:
                self._late[me, number] = waited
            if number > self.first and self.among(done.origin, me):
                self.copies += 1
                self.waited += waited
                self.under_way += self.network(done.origin, me)

    def delay_ms(self) -> float:
        return (self.waited + self.under_way) / max(self.copies, 1) / MS


class Control(Observer):
    """Control integers, in the papers' measure, and control bytes, where packets travel as bytes (with `encode`
    anywhere); on every packet of a message, also on what members pass on.
    """

    def __init__(self, first: int = 0, encode: bool = False):
        super().__init__(first)
        self.encode = encode
        self.packets = self.integers = self.bytes = 0

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        if number > self.first:
            self._count(me, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        if step.send:
            # What has no body is for others than its receiver, or is about no message: it counts once all do.
            bare = len(self.domain.born) > self.first
            self._count(me, [each for each in step.send if (number_of(each) > self.first if each.body else bare)])

    def _count(self, me: int, packets: Sequence[Packet]) -> None:
        core, encode = self.domain.members[me], self.encode or self.domain.wire
        for packet in packets:
            self.packets += 1
            self.integers += core.control_ints(packet)
            if encode:
                self.bytes += len(core.encode(packet)) - len(packet.body)

    def result(self) -> dict[str, float]:
        """Means per packet; bytes are 0 where they are not known."""
        packets = max(self.packets, 1)
        return {"packets": self.packets, "integers": self.integers / packets, "bytes": self.bytes / packets}


class Held(Observer):
    """Packets that came before their causes: how many, how long they waited, how many at once in the whole domain."""

    def __init__(self, first: int = 0):
        super().__init__(first)
        self.came: dict[tuple[int, int], int] = {}  # (member, number) -> when it came; what is held now
        self.arrived = self.held = self.waited = self.most = 0
        self.here: dict[int, int] = {}  # by member: held now
        self.duplicates: dict[int, int] = {}  # by member
        self.most_here = 0  # at any one member

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now, came = self.domain.world.now, self.came
        at_once = False
        for done in step.deliver:
            if done is packet:
                at_once = True
            elif (since := came.pop((me, number_of(done)), None)) is not None:
                self.waited += now - since
                self.here[me] -= 1
        duplicates = self.domain.members[me].duplicates
        if duplicates != self.duplicates.get(me, 0):
            self.duplicates[me] = duplicates
        elif (at_once or me in packet.dests) and (number := number_of(packet)) > self.first:
            self.arrived += 1
            if not at_once:
                self.held += 1
                came[me, number] = now
                self.most = max(self.most, len(came))
                self.here[me] = here = self.here.get(me, 0) + 1
                self.most_here = max(self.most_here, here)

    def result(self) -> dict[str, float]:
        arrived, held = max(self.arrived, 1), max(self.held, 1)
        return {"held_pct": 100 * self.held / arrived, "held_ms": self.waited / held / MS, "held_most": self.most}

    def queues(self, ns: int) -> dict[str, float]:
        """Packets held by one member: in the mean over so long a time, and at most."""
        return {"held": self.waited / len(self.domain.members) / max(ns, 1), "held_most_here": self.most_here}


class LogSize(Observer):
    """The mean of a size of the core's state, taken after every send and every delivery.

    Of messages that one packet sets free together only the state after the last is seen; it counts for each.
    """

    def __init__(self, size: Callable[[Any], float], first: int = 0):
        super().__init__(first)
        self.size = size
        self.total, self.times = 0.0, 0

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._count(self.domain.members[me], 1)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        if step.deliver:
            self._count(self.domain.members[me], len(step.deliver))

    def _count(self, core: Ordering, times: int) -> None:
        if len(self.domain.born) > self.first + 1:
            self.total += times * self.size(core)
            self.times += times

    def result(self) -> dict[str, float]:
        return {"log": self.total / max(self.times, 1)}


class Written(Observer):
    """Rows of a core's state that each step changes, as the store would be given them."""

    def __init__(self, first: int = 0):
        super().__init__(first)
        self.rows = self.bytes = 0

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._count(me)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        self._count(me)

    def _count(self, me: int) -> None:
        rows, gone = self.domain.members[me].dirty()
        if len(self.domain.born) > self.first + 1:
            self.rows += len(rows) + len(gone)
            self.bytes += sum(map(len, rows.values()))

    def result(self) -> dict[str, float]:
        """Sums: of rows, those that are deleted included, and of the bytes of the others."""
        return {"rows": self.rows, "row_bytes": self.bytes}


class Rows(Observer):
    """Rows of out-queues and clocks that a bus would write for messages after the `first`."""

    def __init__(self, first: int = 0):
        super().__init__(first)
        self.on, self.rows = False, 0

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self._count(me, number > self.first, packets)

    def received(self, me: int, packet: Packet, step: Step) -> None:
        self._count(me, number_of(packet) > self.first if packet.body else self.on, step.send)

    def _count(self, me: int, counts: bool, packets: Sequence[Packet]) -> None:
        if counts and not self.on:
            self.on = True
            for at, core in enumerate(self.domain.members):
                if at != me:
                    core.dirty()  # what went before
        if self.on:
            changed, _ = self.domain.members[me].dirty()
            if counts:
                self.rows += len(packets) + len(changed)


class Trace(Observer):
    """Every send and every delivery, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, str, int, int]] = []  # (ns since the start, what, member, number)

    def sent(self, me: int, number: int, packets: Sequence[Packet]) -> None:
        self.rows.append((self.domain.world.now - EPOCH, "send", me, number))

    def received(self, me: int, packet: Packet, step: Step) -> None:
        now = self.domain.world.now - EPOCH
        self.rows += [(now, "deliver", me, number_of(done)) for done in step.deliver]

    def digest(self) -> str:
        return sha256(repr(self.rows).encode()).hexdigest()
