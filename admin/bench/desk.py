"""An agent that takes messages from a queue and answers each to another, and one with a large table: CPU on its
server."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.pingpong import AGENTS
from mombroker.admin.bench.stomp import cpu_of
from mombroker.admin.bench.stompload import Broker, Producer, drive
from mombroker.admin.demo import free_ports
from mombroker.core.layouts import build
from mombroker.core.topology import AgentDecl, Topology

ORDERS, ANSWERS = "mom-bench-orders", "mom-bench-answers"
PAGE = 1_000  # rows that one reaction puts
WAYS = ("", "get", "set", "both")  # what a turn does with its row
Progress = Callable[[int, int], None]


def topology_of(agent: str, cls: str) -> Topology:
    made = build({}, name="desk", servers=["s1"])
    (port,) = free_ports(1)
    made.servers["s1"] = replace(made.servers["s1"], stomp=f"127.0.0.1:{port}", anonymous=True)
    made.agents.append(AgentDecl(agent, "s1", f"{AGENTS}:{cls}"))
    return made


def measure(
    count: int, sizes: Sequence[int], rounds: int, folder: Path | None = None, progress: Progress = lambda *_: None
) -> list[Row]:
    """Of messages of these sizes so many wait in the queue, and as many answers in the other in the end. One round
    before is not counted."""
    with Bus(topology_of("desk", "Desk"), [["s1"]], folder=folder) as bus:
        looks = Rounds(bus.folder)
        for number in range(rounds + 1):
            for at, size in enumerate(sizes):
                progress(number * len(sizes) + at, (rounds + 1) * len(sizes))
                _fill(bus, count, size)
                if number:
                    looks.look(str(size))
                found = _answer(bus, count)
                if number:
                    looks.add(str(size), **found)
                    looks.look(str(size))
    progress(1, 1)
    return [_row(looks, size, count) for size in sizes]


def _fill(bus: Bus, count: int, size: int) -> None:
    host, _, port = (bus.server("s1").stomp or "").rpartition(":")
    heads = [f"destination:/queue/{ORDERS}\nreply-to:/queue/{ANSWERS}"]
    producer = Producer(Broker(host, int(port)), heads, size, True, 512)
    with ExitStack() as stack:
        stack.callback(producer.line.close)
        producer.start(count)
        drive([producer], lambda: producer.finished)


def _answer(bus: Bus, count: int) -> dict[str, float]:
    pids = [bus.processes[0].pid]
    cpu = cpu_of(pids)
    bus.send("desk", "bench.Take", queue=f"/queue/{ORDERS}", count=count)
    took = bus.until("desk", lambda fields: fields["took"] > 0, poll_s=0.2)["took"]
    cpu = cpu_of(pids) - cpu
    ready = bus.ask("s1", "destination", destination=f"queue:{ANSWERS}")["ready"]
    assert ready == count, f"{ready} answers to {count} messages"
    bus.ask("s1", "purge", destination=f"queue:{ANSWERS}")
    return {"agent_us": cpu / count * 1e6, "rate": count / took * 1e9}


def _row(looks: Rounds, size: int, count: int) -> Row:
    name = str(size)
    spent, rate = looks.of(name, "agent_us"), looks.of(name, "rate")
    return {
        "bytes": size, "messages": count, **looks.yardsticks(name), "agent_us": round(spent, 1),
        "agent_us_min": round(looks.best(name, "agent_us"), 1), "agent_c": round(spent / looks.c_us(name)),
        "rate": round(rate), "rate_max": round(max(looks.samples[name]["rate"])),
    }  # fmt: skip


def table(
    rows: int, count: int, window: int, rounds: int, folder: Path | None = None, progress: Progress = lambda *_: None
) -> list[Row]:
    """So many turns of each way in each round, over a table of so many rows."""
    with Bus(topology_of("ledger", "Ledger"), [["s1"]], folder=folder) as bus:
        empty = bus.memory()[1]
        for first in range(0, rows, PAGE):
            bus.send("ledger", "bench.Fill", first=first, count=min(PAGE, rows - first))
            progress(first, 2 * rows)
        looks = Rounds(bus.folder)
        for number in range(rounds):
            for way in WAYS:
                looks.look(way)
                looks.add(way, us=_turns(bus, way, count, window, number))
            progress(number + 1 + rounds, 2 * rounds)
        more = (bus.memory()[1] - empty) / 1e6
    least = looks.of("", "us")
    return [
        {
            "turn": way or "reaction", "rows": rows, "turns": count, "window": window, **looks.yardsticks(way),
            "us": round(looks.of(way, "us"), 1), "beyond_us": round(looks.of(way, "us") - least, 1),
            "beyond_c": round((looks.of(way, "us") - least) / looks.c_us(way)), "more_mb": round(more, 1),
        }
        for way in WAYS
    ]  # fmt: skip


def _turns(bus: Bus, way: str, count: int, window: int, seed: int) -> float:
    """µs of CPU for each."""
    bus.send("ledger", "bench.Look", what=way, count=count, window=window, seed=seed)
    return float(bus.until("ledger", lambda fields: fields["cpu"] > 0, poll_s=0.2)["cpu"]) / count / 1e3
