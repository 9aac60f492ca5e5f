"""A stream of small messages from one process to another, durable at both ends: rate, and CPU on either side."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from mombroker.admin.bench.agents import CHUNK
from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.pingpong import AGENTS
from mombroker.core.layouts import build
from mombroker.core.topology import AgentDecl, Topology


def topology_of(ordering: str, log: bool) -> Topology:
    made = build({"d1": ["s1", "s2"]}, name="hop", ordering=ordering)
    made.agents.append(AgentDecl("source", "s1", f"{AGENTS}:Source", {"sink": "sink"}))
    made.agents.append(AgentDecl("sink", "s2", f"{AGENTS}:Sink"))
    made.log["enabled"] = log
    return made


def measure(
    count: int,
    windows: Sequence[int],
    rounds: int,
    size: int = 100,
    ordering: str = "matrix",
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """With the log on and off by turns, after one round that is not counted. The agents' reactions are in the CPU."""
    count = max(2, count // CHUNK) * CHUNK
    cases = [(window, log) for window in windows for log in (True, False)]
    with ExitStack() as stack:
        buses = {
            log: stack.enter_context(Bus(topology_of(ordering, log), [["s1"], ["s2"]], folder=folder))
            for log in (True, False)
        }
        looks = Rounds(buses[True].folder)
        for number in range(rounds + 1):
            for at, (window, log) in enumerate(cases):
                progress(number * len(cases) + at, (rounds + 1) * len(cases))
                name = f"{window} {log}"
                if number:
                    looks.look(name)
                found = stream(buses[log], count, window, size)
                if number:
                    looks.add(name, **found)
    progress(1, 1)
    return [row(looks, window, log, count, size) for window, log in cases]


def stream(bus: Bus, count: int, window: int, size: int) -> dict[str, float]:
    """One round: CPU in µs per message on either side, and messages per second."""
    bus.send("source", "bench.Go", count=count, window=window, size=size)
    found = bus.until("source", lambda fields: fields["took"] > 0, poll_s=0.2)
    return {
        "source_us": found["cpu"] / count / 1e3,
        "sink_us": found["sink_cpu"] / (count - CHUNK) / 1e3,
        "rate": count / found["took"] * 1e9,
    }


def row(looks: Rounds, window: int, log: bool, count: int, size: int) -> Row:
    name = f"{window} {log}"
    source, sink, rate = (looks.of(name, key) for key in ("source_us", "sink_us", "rate"))
    return {
        "window": window, "log": log, "bytes": size, "messages": count, **looks.yardsticks(name),
        "source_us": round(source, 2), "sink_us": round(sink, 2),
        "source_us_min": round(looks.best(name, "source_us"), 2), "sink_us_min": round(looks.best(name, "sink_us"), 2),
        "source_c": round(source / looks.c_us(name)), "sink_c": round(sink / looks.c_us(name)),
        "rate": round(rate), "rate_max": round(max(looks.samples[name]["rate"])),
        "messages_per_f": round(rate * looks.f_ms(name) / 1e3, 1),
    }  # fmt: skip
