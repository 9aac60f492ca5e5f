"""For how long others stop while a new member of a group is given a large table."""

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.copies import TICK_S
from mombroker.admin.bench.figures import Row
from mombroker.core.errors import MomError
from mombroker.core.layouts import build
from mombroker.core.topology import AgentDecl, Topology

AGENTS = "mombroker.admin.bench.copies"
NAMES = ("s1", "s2", "s3")
GIVER, CASTER, TAKER = "copy-s1", "copy-s2", "copy-s3"
PEOPLE = {
    GIVER: "the giver", CASTER: "another member, which casts", "by-s1": "an agent of the giver's server",
    "by-s2": "an agent of another member's server", "by-s3": "an agent of the new member's server",
}  # fmt: skip
MACHINE = "nobody: what only sleeps"


class Sleeper:
    """What has nothing to do is late, too, where the machine is busy, or another machine takes its processor."""

    def __init__(self) -> None:
        self.worst = 0
        self._end = Event()
        self._thread = Thread(target=self._sleep, daemon=True)

    def _sleep(self) -> None:
        last = time.monotonic_ns()
        while not self._end.wait(TICK_S):
            now = time.monotonic_ns()
            self.worst, last = max(self.worst, now - last), now

    def __enter__(self) -> "Sleeper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def topology_of() -> Topology:
    """Three servers of one domain: the giver's, another member's, which casts, and the new member's."""
    made = build({"d": list(NAMES)}, name="group")
    for name in NAMES:
        made.agents.append(AgentDecl(f"copy-{name}", name, f"{AGENTS}:Copy"))
        made.agents.append(AgentDecl(f"by-{name}", name, f"{AGENTS}:Bystander"))
    return made


def measure(
    rows: int, rate: int, before_s: float, folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:  # fmt: skip
    """A row for each that must not stop: the longest time between two of its reactions, without a transfer and during
    one. Raises MomError if the new member has other rows than the others in the end."""
    with Sleeper() as sleeper, Bus(topology_of(), [[name] for name in NAMES], folder=folder) as bus:
        bus.send(GIVER, "bench.Enter", rows=rows)
        bus.until(GIVER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        progress(1, 5)
        bus.send(CASTER, "bench.Enter", rows=0)
        bus.until(CASTER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        progress(2, 5)
        bus.send(CASTER, "bench.Cast", rate=rate)
        _watch(bus)
        sleeper.worst = 0
        time.sleep(before_s)
        before = {each: bus.fields(each) for each in PEOPLE} | {MACHINE: {"worst": sleeper.worst}}
        progress(3, 5)
        _watch(bus)
        sleeper.worst = 0
        began, already = time.monotonic_ns(), bus.fields(GIVER)["got"]
        bus.send(TAKER, "bench.Enter", rows=0)
        taker = bus.until(TAKER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        during = {each: bus.fields(each) for each in PEOPLE} | {MACHINE: {"worst": sleeper.worst}}
        progress(4, 5)
        took = (taker["inside"] - began) / 1e9
        bus.send(CASTER, "bench.Cast", rate=0)
        got = bus.until(CASTER, lambda fields: not fields["rate"] and fields["got"] == fields["cast"], poll_s=0.5)[
            "got"
        ]
        sums = [_sum(bus, each, got) for each in (GIVER, CASTER, TAKER)]
        if sums != [[rows, got, got]] * 3:
            raise MomError(f"of {rows} rows and {got} casts the members have {sums}")
    progress(5, 5)
    people = {**PEOPLE, MACHINE: MACHINE}
    spent = {each: (during[each]["late"] if each in (GIVER, CASTER) else 0) / 1e6 for each in people}
    casts = (during[GIVER]["got"] - already) / took
    return [
        {
            "who": people[each], "rows": rows, "transfer_s": round(took, 2), "casts_per_s": round(casts),
            "before_ms": round(before[each]["worst"] / 1e6, 1), "worst_ms": round(during[each]["worst"] / 1e6, 1),
            "cast_ms": round(spent[each], 1),
        }
        for each in people
    ]  # fmt: skip


def _is_through(fields: Row) -> bool:
    """Has it all that it has cast, and casts no more?"""
    return not fields["rate"] and fields["got"] == fields["cast"]


def _watch(bus: Bus) -> None:
    for each in PEOPLE:
        bus.send(each, "bench.Watch")


def _sum(bus: Bus, agent: str, got: int) -> list[int]:
    """Of an agent that has all casts: how many rows it has, what is in them, and how many casts it has counted."""
    end = time.monotonic() + 120
    while bus.fields(agent)["got"] < got and time.monotonic() < end:
        time.sleep(0.2)
    bus.send(agent, "bench.Sum", after=0)
    found: list[int] = bus.until(agent, lambda fields: len(fields["total"]) == 3, poll_s=0.2)["total"]
    return found
