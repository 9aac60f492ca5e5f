"""The ordering back ends beside each other, without a bus: what they put on the wire, hold, write, and cost in CPU.

A domain lives in one process and in virtual time. First a schedule is made: who sends what to whom, and which packet
comes when. Then fresh cores play it once more, in a plain loop, and that is what the clock sees.
"""

import heapq
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

from mombroker import ordering
from mombroker.admin.bench.figures import Row, pace
from mombroker.ordering import Ordering, Packet

BODY = bytes(92)  # after the eight bytes that number a message
THINK = 100.0  # ms between two messages of one member, in the mean (paper 002, S1)
TRANSIT = 50.0  # ms that a packet is on its way, in the mean
WARM_UP = 4  # the first part of a schedule, one in so many, is not measured,
SETTLED = 5 * TRANSIT  # ms, nor what is before: as many packets leave as arrive only after some time

Act = tuple[int, tuple[int, ...], int]  # (member, destinations of what it sends, -1) or (member, (), neighbour)
Case = tuple[str, str, int]  # variant, pattern, members

# Variants of one back end stand beside each other under names of their own.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"ks-bitmap": ("ks", {"encoding": "bitmap"})}


def one(lots: Random, me: int, size: int) -> tuple[int, ...]:
    return ((me + 1 + lots.randrange(size - 1)) % size,)


def some(lots: Random, me: int, size: int) -> tuple[int, ...]:
    """As in the study of paper 002: one message in ten goes to several, of a uniform number."""
    if lots.random() >= 0.1:
        return one(lots, me, size)
    others = [k for k in range(size) if k != me]
    return tuple(lots.sample(others, 1 + lots.randrange(size - 1)))


def everyone(lots: Random, me: int, size: int) -> tuple[int, ...]:
    return tuple(k for k in range(size) if k != me)


def other(lots: Random, me: int, size: int) -> tuple[int, ...]:
    return (1 - me,)


# Who gets a message of a member. In the first two there is one message at a time, to or from member 0.
PAIR, PINGPONG = "pair", "pingpong"
PATTERNS: dict[str, Callable[[Random, int, int], tuple[int, ...]]] = {
    PAIR: other,
    PINGPONG: one,
    "any": one,
    "mixed": some,
    "all": everyone,
}


@dataclass(slots=True)
class Schedule:
    """`acts` in order; those from `mark` on are measured, and the sums (but for `spread`) are about them."""

    backend: type[Ordering]
    size: int
    options: dict[str, Any]
    acts: list[Act] = field(default_factory=list)
    mark: int = 0
    messages: int = 0
    spread: int = 0  # packets of these messages, also of those that are still under way when the schedule ends
    packets: int = 0
    control_bytes: int = 0
    integers: int = 0
    copies: int = 0  # delivered
    arrived: int = 0  # packets, where they are for
    held: int = 0  # of these
    rows: int = 0
    row_bytes: int = 0

    def cores(self) -> list[Ordering]:
        return [self.backend(me, self.size, **self.options) for me in range(self.size)]


def variant(name: str) -> tuple[type[Ordering], dict[str, Any]]:
    backend, options = VARIANTS.get(name, (name, {}))
    return ordering.backend(backend), options


def names() -> list[str]:
    """All back ends that a domain of many can have, with their variants."""
    return sorted(set(ordering.names()) - {"fifo"} | VARIANTS.keys())


class Domain:
    """Makes a schedule: the members think, send, and hear; packets take their time, but none overtakes on its link."""

    def __init__(self, made: Schedule, pattern: str, seed: int):
        self.made, self.lots = made, Random(seed)
        self.choose, self.pingpong = PATTERNS[pattern], pattern in (PAIR, PINGPONG)
        self.cores = made.cores()
        self.due: list[tuple[float, int, Act]] = []
        self.links: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
        self.last: dict[tuple[int, int], float] = {}
        self.sent = self.events = self.delivered = 0
        self.first = 0  # the last message that is not measured
        self.measuring = False

    def run(self, copies: int) -> Schedule:
        made, first = self.made, copies // WARM_UP
        for me in range(1 if self.pingpong else made.size):
            self.think(0.0, me)
        while made.copies < copies:
            now, _, (me, dests, frm) = heapq.heappop(self.due)
            if not self.measuring and self.delivered >= first and now >= SETTLED:
                self.measuring, made.mark, self.first = True, len(made.acts), self.sent
            if frm < 0:
                self.send(now, me, dests)
                if not self.pingpong:
                    self.think(now, me)
            else:
                self.arrive(now, me, frm)
        self.drain()
        return made

    def drain(self) -> None:
        """Let what is under way arrive; it is no part of the schedule any more."""
        while self.due:
            _, _, (me, _, frm) = heapq.heappop(self.due)
            if frm >= 0:
                core = self.cores[me]
                sent = core.receive(frm, core.decode(frm, self.links[frm, me].popleft())).send
                for packet in [*sent, *core.announce()]:
                    self.links[me, packet.to].append(core.encode(packet))
                    self.plan(0.0, (packet.to, (), me))
                    self.made.spread += self.counts(packet)

    def counts(self, packet: Packet) -> bool:
        """Is it a packet of a measured message?"""
        return bool(packet.body) and int.from_bytes(packet.body[:8], "little") > self.first

    def think(self, now: float, me: int) -> None:
        then = now + self.lots.expovariate(1 / THINK)
        self.plan(then, (me, self.choose(self.lots, me, self.made.size), -1))

    def plan(self, at: float, act: Act) -> None:
        self.events += 1
        heapq.heappush(self.due, (at, self.events, act))

    def send(self, now: float, me: int, dests: tuple[int, ...]) -> None:
        self.sent += 1
        self.made.acts.append((me, dests, -1))
        self.made.messages += self.measuring
        packets = self.cores[me].send(dests, self.sent.to_bytes(8, "little") + BODY)
        self.made.spread += len(packets) * self.measuring
        self.post(now, me, packets)

    def post(self, now: float, me: int, packets: list[Packet]) -> None:
        core, made = self.cores[me], self.made
        for packet in [*packets, *core.announce()]:
            link = me, packet.to
            data = core.encode(packet)
            self.links[link].append(data)
            then = now + self.lots.expovariate(1 / TRANSIT)
            self.last[link] = then = max(then, self.last.get(link, 0.0) + 1e-6)
            self.plan(then, (packet.to, (), me))
            if self.measuring:
                made.packets += 1
                made.control_bytes += len(data) - len(packet.body)
                made.integers += core.control_ints(packet)
        rows, _ = core.dirty()
        if self.measuring:
            made.rows += len(rows)
            made.row_bytes += sum(map(len, rows.values()))

    def arrive(self, now: float, me: int, frm: int) -> None:
        core, made = self.cores[me], self.made
        made.acts.append((me, (), frm))
        packet = core.decode(frm, self.links[frm, me].popleft())
        step = core.receive(frm, packet)
        self.delivered += len(step.deliver)
        if self.measuring:
            made.copies += len(step.deliver)
            made.arrived += me in packet.dests
            made.held += me in packet.dests and core.missing(packet) is not None
        self.made.spread += sum(map(self.counts, step.send)) * self.measuring
        self.post(now, me, step.send)
        if self.pingpong and step.deliver:
            self.send(now, me, (0,) if me else self.choose(self.lots, 0, made.size))


def play(made: Schedule, rows: bool) -> float:
    """CPU seconds of the measured part. With `rows` the changed rows are taken after every step, as when each is
    committed by itself."""
    cores = made.cores()
    links: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
    number = 0

    def perform(acts: Sequence[Act]) -> None:
        nonlocal number
        for me, dests, frm in acts:
            core = cores[me]
            if frm < 0:
                number += 1
                packets = core.send(dests, number.to_bytes(8, "little") + BODY)
            else:
                packets = core.receive(frm, core.decode(frm, links[frm, me].popleft())).send
            if core.due:
                packets += core.announce()
            for packet in packets:
                links[me, packet.to].append(core.encode(packet))
            if rows:
                core.dirty()

    perform(made.acts[: made.mark])
    measured = made.acts[made.mark :]
    start = time.process_time()
    perform(measured)
    return time.process_time() - start


def measure(
    cases: Sequence[Case],
    copies: int,
    rounds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """`rounds` times each case in turn, with `copies` deliveries per member; a schedule is made once, of seed 1."""
    times: dict[tuple[Case, bool], list[float]] = defaultdict(list)
    paces: dict[Case, list[float]] = defaultdict(list)
    made: dict[Case, Schedule] = {}
    for number in range(rounds):
        for at, case in enumerate(cases):
            progress(number * len(cases) + at, rounds * len(cases))
            name, pattern, size = case
            if case not in made:
                backend, options = variant(name)
                made[case] = Domain(Schedule(backend, size, options), pattern, seed=1).run(copies * size)
            paces[case].append(pace())
            for rows in (False, True):
                times[case, rows].append(play(made[case], rows))
    progress(1, 1)
    return [row(case, made[case], times[case, False], times[case, True], median(paces[case])) for case in cases]


def row(case: Case, made: Schedule, plain: list[float], stored: list[float], c: float) -> Row:
    name, pattern, size = case
    cpu, packets, copies = median(plain), made.packets, made.copies
    return {
        "ordering": name, "pattern": pattern, "members": size, "packets": round(made.spread / made.messages, 2),
        "control_bytes": round(made.control_bytes / packets, 1), "integers": round(made.integers / packets, 1),
        "held_pct": round(100 * made.held / made.arrived, 1), "row_bytes": round(made.row_bytes / copies),
        "c_us": round(c * 1e6, 3), "copy_us": round(cpu / copies * 1e6, 1),
        "copy_us_min": round(min(plain) / copies * 1e6, 1), "packet_us": round(cpu / packets * 1e6, 1),
        "rows_us": round(median(stored) / copies * 1e6, 1), "copy_c": round(cpu / copies / c),
    }  # fmt: skip
