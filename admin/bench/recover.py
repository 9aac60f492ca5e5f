"""Starting: with nothing to do, with a deep queue that a crash has left, and with many servers in one process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from mombroker import store
from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.commit import AGENT, message
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.pingpong import AGENTS, topology_of
from mombroker.agents.agent import initial
from mombroker.core.batch import Batch, InRow
from mombroker.core.layouts import build
from mombroker.core.meta import CLEAN, NEXT
from mombroker.core.topology import AgentDecl, Topology

MB = 1 << 20
FILL = 20_000  # messages per commit while the queue is made
CLASS = f"{AGENTS}:Sink"


@dataclass(slots=True)
class Start:
    """Seconds from the start of the process until all answer, and until the first reaction to what was queued."""

    ready_s: float
    first_s: float
    memory: tuple[int, int]  # private bytes, and all


def measure(
    queued: int,
    servers: int,
    rounds: int,
    size: int = 100,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """`rounds` times in turn: an idle server, one with `queued` messages, and `servers` idle ones in one process."""
    looks = Rounds(folder or Path(gettempdir()))
    cases: dict[str, Callable[[], Start]] = {
        "idle": lambda: idle(1, folder),
        f"{queued} queued": lambda: deep(queued, size, folder),
        f"{servers} servers": lambda: idle(servers, folder),
    }
    for number in range(rounds):
        for at, (name, start) in enumerate(cases.items()):
            progress(number * len(cases) + at, rounds * len(cases))
            looks.look(name)
            found = start()
            private, all = (size / MB for size in found.memory)
            looks.add(name, ready=found.ready_s, first=found.first_s, private=private, all=all)
    progress(1, 1)
    base = {key: looks.of("idle", key) for key in ("ready", "private")}
    divisors = dict(zip(cases, (1, queued, servers - 1), strict=True))
    return [row(looks, name, base, divisors[name]) for name in cases]


def idle(servers: int, folder: Path | None) -> Start:
    topology = topology_of("flat", servers)
    with Bus(topology, [list(topology.servers)], folder=folder) as bus:
        return Start(bus.started_s, 0.0, bus.memory())


def deep(queued: int, size: int, folder: Path | None) -> Start:
    topology = build({}, name="recover", servers=["s1"])
    topology.agents.append(AgentDecl("sink", "s1", CLASS))
    with Bus(topology, [["s1"]], folder=folder, prepare=lambda placed: fill(placed, queued, size)) as bus:
        fields = bus.until("sink", lambda fields: fields["taken"] > 0)
        return Start(bus.started_s, fields["first"] / 1e9 - bus.began, bus.memory())


def fill(topology: Topology, queued: int, size: int) -> None:
    """The store of a server that died with so many messages in an agent's inbox."""
    from mombroker.admin.bench.agents import Sink

    opened = store.open(topology.servers["s1"].data, topology, "s1")
    try:
        opened.commit(Batch(agents={AGENT: (CLASS, initial(Sink, {}))}, meta={NEXT: queued + 1, CLEAN: 0}))
        for first in range(1, queued + 1, FILL):
            ids = range(first, min(first + FILL, queued + 1))
            opened.commit(Batch(queue_in={id: InRow(id, AGENT, message(id, size)) for id in ids}))
    finally:
        opened.close()


def row(looks: Rounds, name: str, base: dict[str, float], divisor: int) -> Row:
    """`each` is what a further message, or server, costs beside an idle server alone."""
    ready, first, private, all = (looks.of(name, key) for key in ("ready", "first", "private", "all"))
    more = max(1, divisor)
    return {
        "case": name, **looks.yardsticks(name), "ready_s": round(ready, 2), "first_reaction_s": round(first, 2),
        "private_mb": round(private, 1), "memory_mb": round(all, 1),
        "each_us": round(max(0.0, ready - base["ready"]) / more * 1e6, 2),
        "each_kb": round(max(0.0, private - base["private"]) / more * 1024, 3),
    }  # fmt: skip
