"""KS word by word (protocols §3.1), and the set that is necessary, from events alone (§3.2)."""

from mombroker.ordering import Packet
from mombroker.ordering.ks import KS

Log = dict[tuple[int, int], frozenset[int]]  # (sender, its clock) -> destinations


def purge(log: Log) -> Log:
    return {(s, t): v for (s, t), v in log.items() if v or not any(k == s and u > t for k, u in log)}


def newest(log: Log, s: int) -> int:
    return max((t for k, t in log if k == s), default=0)


class PlainKS:
    """One member."""

    def __init__(self, me: int, size: int):
        self.me = me
        self.clock = 0
        self.delivered = [0] * size
        self.log: Log = {}
        self.buffer: list[tuple[int, int, frozenset[int], Log, object]] = []

    def send(self, dests: tuple[int, ...]) -> list[Log]:
        self.clock += 1
        to = frozenset(dests)
        copies = [purge({key: (v - to) | (v & {d}) for key, v in self.log.items()}) for d in dests]
        self.log = {key: v - to for key, v in self.log.items()}
        self.log[self.me, self.clock] = to
        self.log = purge(self.log)
        return copies

    def receive(self, k: int, clock: int, dests: tuple[int, ...], o: Log, message: object) -> list[object]:
        if clock <= self.delivered[k] or any((k, clock) == held[:2] for held in self.buffer):
            return []
        self.buffer.append((k, clock, frozenset(dests), o, message))
        delivered = []
        while ready := [held for held in self.buffer if self.deliverable(held[3])]:
            self.buffer.remove(ready[0])
            self.deliver(*ready[0][:4])
            delivered.append(ready[0][4])
        return delivered

    def deliverable(self, o: Log) -> bool:
        return all(self.delivered[s] >= t for (s, t), v in o.items() if self.me in v)

    def deliver(self, k: int, clock: int, dests: frozenset[int], o: Log) -> None:
        self.delivered[k] = clock
        o = {key: v - {self.me} for key, v in {**o, (k, clock): dests}.items()}
        mine = self.log
        theirs = {(s, t): v for (s, t), v in o.items() if (s, t) in mine or t >= newest(mine, s)}
        mine = {(s, t): v for (s, t), v in mine.items() if (s, t) in o or t >= newest(o, s)}
        self.log = purge({key: mine.get(key, v) & theirs.get(key, v) for key, v in {**mine, **theirs}.items()})


class Definition:
    """For every send, the pairs (message, destination) that any correct algorithm must tell its copies.

    It knows events only. Sets of messages, and of deliveries (message * size + member), are the bits of one int.
    """

    def __init__(self, size: int):
        self.size = size
        self.sends = [0] * size  # by process: the sends that happened before its next event
        self.deliveries = [0] * size
        self.messages: list[tuple[tuple[int, ...], int, int]] = []  # destinations, and both of these at its send

    def send(self, p: int, dests: tuple[int, ...]) -> dict[int, set[tuple[int, int]]]:
        """By copy."""
        before = [m for m in range(len(self.messages)) if self.sends[p] >> m & 1]
        covered = [0] * self.size  # by d: the sends before that of some message to d
        for m in before:
            for d in self.messages[m][0]:
                covered[d] |= self.messages[m][1]
        pairs = {
            (m, d)
            for m in before
            for d in self.messages[m][0]
            if not self.deliveries[p] >> m * self.size + d & 1 and not covered[d] >> m & 1
        }
        self.messages.append((dests, self.sends[p], self.deliveries[p]))
        self.sends[p] |= 1 << len(self.messages) - 1
        return {to: {(m, d) for m, d in pairs if d == to or d not in dests} for to in dests}

    def deliver(self, q: int, m: int) -> None:
        _, sends, deliveries = self.messages[m]
        self.sends[q] |= sends | 1 << m
        self.deliveries[q] |= deliveries | 1 << m * self.size + q


def as_printed(newest: list[int], records: dict[int, tuple[tuple[int, int], ...]]) -> Log:
    """A log as the paper has it."""
    log = {
        (s, t): frozenset(d for d in range(len(newest)) if mask >> d & 1)
        for s, entries in records.items()
        for t, mask in entries
    }
    return {(s, t): frozenset() for s, t in enumerate(newest) if t} | log


def log_of(core: KS) -> Log:
    return as_printed(core.newest, core.records)


def o_of(packet: Packet) -> Log:
    """The dependencies on one copy, as the paper has them."""
    log = as_printed(packet.stamp.known.newest, packet.stamp.known.records)
    for key in packet.stamp.guards:
        log[key] = log.get(key, frozenset()) | {packet.to}
    return log
