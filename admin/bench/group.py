"""For how long others stop while a new member of a group is given a large table."""

import time
from collections.abc import Callable
from pathlib import Path

from mombroker.admin.bench.bus import Bus
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
    with Bus(topology_of(), [[name] for name in NAMES], folder=folder) as bus:
        bus.send(GIVER, "bench.Enter", rows=rows)
        bus.until(GIVER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        progress(1, 5)
        bus.send(CASTER, "bench.Enter", rows=0)
        bus.until(CASTER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        progress(2, 5)
        bus.send(CASTER, "bench.Cast", rate=rate)
        _watch(bus)
        time.sleep(before_s)
        before = {each: bus.fields(each) for each in PEOPLE}
        progress(3, 5)
        _watch(bus)
        began, already = time.monotonic_ns(), bus.fields(GIVER)["got"]
        bus.send(TAKER, "bench.Enter", rows=0)
        taker = bus.until(TAKER, lambda fields: fields["inside"] > 0, poll_s=0.5)
        during = {each: bus.fields(each) for each in PEOPLE}
        progress(4, 5)
        took = (taker["inside"] - began) / 1e9
        bus.send(CASTER, "bench.Cast", rate=0)
        got = bus.until(CASTER, lambda fields: not fields["rate"], poll_s=0.5)["got"]
        sums = [_sum(bus, each, got) for each in (GIVER, CASTER, TAKER)]
        if sums != [[rows, got, got]] * 3:
            raise MomError(f"of {rows} rows and {got} casts the members have {sums}")
    progress(5, 5)
    spent = {each: (during[each]["late"] if each in (GIVER, CASTER) else 0) / 1e6 for each in PEOPLE}
    casts = (during[GIVER]["got"] - already) / took
    return [
        {
            "who": PEOPLE[each], "rows": rows, "transfer_s": round(took, 2), "casts_per_s": round(casts),
            "before_ms": round(before[each]["worst"] / 1e6, 1), "worst_ms": round(during[each]["worst"] / 1e6, 1),
            "cast_ms": round(spent[each], 1),
        }
        for each in PEOPLE
    ]  # fmt: skip


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
