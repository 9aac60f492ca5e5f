"""Who sends when and to whom on a whole bus: lists of sends, drawn from a seed, the same whatever the bus is like."""

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from mombroker.core.errors import MomError
from mombroker.core.topology import Topology
from mombroker.lab.bus import Bus, Progress
from mombroker.sim.world import EPOCH, MS, SECOND


class Send(NamedTuple):
    """A message: when (ns), from which server, to which others."""

    at: int
    origin: str
    dests: tuple[str, ...]
    payload: int = 0  # bytes


Choose = Callable[[Random, str], tuple[str, ...]]  # the destinations of a send


def near(topology: Topology, multicasts: float = 0.0, local: float = 0.0) -> Choose:
    """So many of all sends are multicasts, of a uniform number, to others; the rest go to one other. So many of all
    sends stay among the servers of the sender's own domains."""
    names = list(topology.servers)
    peers = {
        name: sorted({m for domain in topology.domains_of(name) for m in domain.members} - {name}) for name in names
    }

    def choose(lots: Random, me: str) -> tuple[str, ...]:
        others = peers[me] if lots.random() < local and peers[me] else [name for name in names if name != me]
        count = 1 + lots.randrange(len(others)) if lots.random() < multicasts else 1
        return tuple(lots.sample(others, count))

    return choose


def poisson(lots: Random, servers: Sequence[str], sends: int, gap: int, choose: Choose) -> list[Send]:
    """At exponential gaps, of this mean for each server (ns)."""
    at, found = 0, []
    for _ in range(sends):
        at += int(lots.expovariate(1.0) * gap / len(servers))
        me = lots.choice(servers)
        found.append(Send(EPOCH + at, me, choose(lots, me)))
    return found


def constant(lots: Random, servers: Sequence[str], sends: int, gap: int, choose: Choose) -> list[Send]:
    """Each server at even gaps, one after another."""
    found = []
    for at in range(sends):
        me = servers[at % len(servers)]
        found.append(Send(EPOCH + at * gap // len(servers), me, choose(lots, me)))
    return found


def bursts(
    lots: Random, servers: Sequence[str], sends: int, gap: int, choose: Choose, size: int = 10, apart: int = MS
) -> list[Send]:
    """A server sends `size` messages, `apart` ns from each other, to the same destinations; then it pauses, so that the
    mean gap is the same."""
    found = []
    for send in poisson(lots, servers, -(-sends // size), gap * size, choose):
        found += [send._replace(at=send.at + number * apart) for number in range(size)]
    return sorted(found[:sends])


WORKLOADS = {"poisson": poisson, "constant": constant, "bursts": bursts}
ROW = "a row is ms (of a day at most), server, and destinations with spaces between"
LONGEST = 24 * 3600 * SECOND


def trace(file: Path, topology: Topology) -> list[Send]:
    """Rows of a CSV file: ms, server, its destinations with spaces between. Raises MomError for what is none."""
    found = []
    try:
        rows = list(csv.reader(file.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error):
        raise MomError(f"{file} is no CSV file") from None
    for number, row in enumerate(rows, 1):
        if not row or number == 1 and row[0] == "ms":
            continue
        try:
            when, me, to = row
            at, dests = int(float(when) * MS), tuple(to.split())
            if not (0 <= at <= LONGEST and dests):
                raise ValueError("before the start, later than any run, or to nobody")
        except (ValueError, OverflowError):
            raise MomError(f"{file}:{number}: {ROW}") from None
        for name in (me, *dests):
            if name not in topology.servers:
                raise MomError(f"{file}:{number}: {name!r} is no server of {topology.name}")
        found.append(Send(EPOCH + at, me, tuple(dest for dest in dict.fromkeys(dests) if dest != me)))
    if not found:
        raise MomError(f"{file} has no messages: {ROW}")
    return sorted(found)


def play(bus: Bus, sends: Iterable[Send], progress: Progress = lambda arrived: None) -> None:
    """All of them, and until nothing is under way any more."""
    places = bus.places
    for send in sends:
        finals = [places[dest] for dest in send.dests]
        bus.world.after(send.at - EPOCH, bus.send, places[send.origin], finals, send.payload)
    bus.finish(progress)
