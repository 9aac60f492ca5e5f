"""One commit of the store, of B messages in place of the B before: in units of F, and CPU per message."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from mombroker import store
from mombroker.admin.bench.agents import Drop
from mombroker.admin.bench.figures import Rounds, Row, percentile
from mombroker.agents.notifications import encode
from mombroker.core.batch import Batch, InRow
from mombroker.core.layouts import build
from mombroker.core.message import Message

AGENT = "s1/sink"


def message(number: int, size: int) -> bytes:
    type, payload = encode(Drop(bytes(size), False))
    return Message("s1", number, AGENT, (AGENT,), type, payload).encode()


def measure(
    sizes: Sequence[int],
    commits: int,
    rounds: int,
    size: int = 100,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """`rounds` times for each B in turn, `commits` commits each."""
    with TemporaryDirectory(prefix="bench-", dir=folder) as made:
        looks = Rounds(Path(made))
        opened = store.open(Path(made) / "s1", build({}, name="commit", servers=["s1"]), "s1")
        try:
            done = 0
            for number in range(rounds):
                for at, many in enumerate(sizes):
                    progress(number * len(sizes) + at, rounds * len(sizes))
                    looks.look(str(many))
                    times, cpu, done = some(opened, many, commits, size, done)
                    p50, p99 = (percentile(times, part) * 1e3 for part in (0.5, 0.99))
                    looks.add(str(many), p50=p50, p99=p99, cpu=cpu / commits / many * 1e6)
        finally:
            opened.close()
    progress(1, 1)
    return [row(looks, many, commits, size) for many in sizes]


def some(opened: store.Store, many: int, commits: int, size: int, done: int) -> tuple[list[float], float, int]:
    """Seconds of each commit, CPU seconds of all, and the last id. Every message written is deleted by a later one."""
    times, cpu = [], 0.0
    for commit in range(commits + 1):
        new = range(done + 1, done + 1 + many) if commit < commits else range(0)
        batch = Batch()
        batch.queue_in = dict.fromkeys(range(done + 1 - many, done + 1)) if commit else {}
        batch.queue_in |= {id: InRow(id, AGENT, message(id, size)) for id in new}
        start, start_cpu = time.perf_counter(), time.process_time()
        opened.commit(batch)
        if commit < commits:
            times.append(time.perf_counter() - start)
            cpu += time.process_time() - start_cpu
            done += many
    return times, cpu, done


def row(looks: Rounds, many: int, commits: int, size: int) -> Row:
    name = str(many)
    p50, cpu = looks.of(name, "p50"), looks.of(name, "cpu")
    return {
        "messages": many, "bytes": size, "commits": commits, **looks.yardsticks(name),
        "p50_ms": round(p50, 3), "p99_ms": round(looks.of(name, "p99"), 3), "p50_f": round(p50 / looks.f_ms(name), 2),
        "cpu_us": round(cpu, 2), "cpu_us_min": round(looks.best(name, "cpu"), 2),
        "cpu_c": round(cpu / looks.c_us(name)),
    }  # fmt: skip
