"""How the cost of a message grows with what else a server has: destinations, subscribers with selectors, idle
connections, a backlog."""

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import gettempdir

from mombroker.admin.bench.bus import POLL_S, Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.stomp import Target, cpu_of, ours
from mombroker.admin.bench.stompload import Consumer, Line, Producer, drive
from mombroker.broker import destinations
from mombroker.core.errors import MomError

SUBSCRIPTIONS = 500  # of one connection
SPARE_FILES = 100
QUEUE = "/queue/mom-bench-growth"
REST_S, BUSY = 0.5, 0.1  # a broker that takes less of a core for so long is at rest


class Load:
    """One producer, and consumers that take what it sends."""

    def __init__(self, target: Target, window: int, stack: ExitStack):
        self.target, self.window, self.stack = target, window, stack
        self.got = 0
        self.takers: list[Consumer] = []

    def came(self, some: int) -> None:
        self.got += some

    def producer(self, *heads: str, persistent: bool = True) -> Producer:
        made = Producer(self.target.at, heads, 100, persistent, self.window)
        self.stack.callback(made.line.close)
        return made

    def consume(self, *wanted: tuple[str, dict[str, str]], ack: str = "client-individual") -> None:
        for at in range(0, len(wanted), SUBSCRIPTIONS):
            made = Consumer(self.target.at, wanted[at : at + SUBSCRIPTIONS], ack, 1_000, self.came)
            self.stack.callback(made.line.close)
            self.takers.append(made)

    def run(self, producer: Producer, count: int) -> float:
        """Seconds of the broker's CPU for a message from SEND to settlement. So many come, and as many go, or more."""
        before, self.got = cpu_of(self.target.pids), 0
        producer.start(count)
        drive([producer, *self.takers], lambda: self.got >= count and producer.finished)
        for taker in self.takers:
            taker.leave()
        return 2 * (cpu_of(self.target.pids) - before) / (count + self.got)


def queues(load: Load, size: int, count: int) -> float:
    """Queues in turn, each with a consumer."""
    names = [f"{QUEUE}-{number:06d}" for number in range(size)]
    load.consume(*[(name, {}) for name in names])
    return load.run(load.producer(*[f"destination:{name}" for name in names]), count)


def selectors(load: Load, size: int, count: int) -> float:
    """Subscribers of one topic, each of which selects another value; a message is for one of them."""
    topic = "/topic/mom-bench-growth"
    load.consume(*[(topic, {"selector": f"k = 'v{number:06d}'"}) for number in range(size)], ack="auto")
    heads = [f"destination:{topic}\nk:v{number:06d}" for number in range(size)]
    return load.run(load.producer(*heads, persistent=False), count)


def connections(load: Load, size: int, count: int) -> float:
    """Others that are connected and say nothing, beside one queue with a consumer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < size + SPARE_FILES:
        if hard < size + SPARE_FILES:
            raise MomError(f"{size} connections need as many open files, of at most {hard}: see `ulimit -n`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (size + SPARE_FILES, hard))
    for _ in range(size):
        load.stack.callback(Line(load.target.at).close)
    load.consume((QUEUE, {}))
    return load.run(load.producer(f"destination:{QUEUE}"), count)


def backlog(load: Load, size: int, count: int) -> float:
    """Messages that wait in the queue: what goes has waited behind all these."""
    producer = load.producer(f"destination:{QUEUE}")
    producer.start(size)
    drive([producer], lambda: producer.finished)
    load.consume((QUEUE, {}))
    return load.run(producer, count)


CURVES: dict[str, Callable[[Load, int, int], float]] = {
    "destinations": queues, "selectors": selectors, "connections": connections, "backlog": backlog,
}  # fmt: skip


def measure(
    curves: dict[str, Sequence[int]],
    count: int,
    window: int,
    rounds: int,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Each curve with a server of its own: in each round every size of it once, behind a round that does not count."""
    looks, done = Rounds(folder or Path(gettempdir())), 0
    total = (rounds + 1) * sum(map(len, curves.values()))
    for curve, sizes in curves.items():
        with ours(folder) as (bus, target, _):
            for number in range(rounds + 1):
                for size in sizes:
                    progress(done, total)
                    done += 1
                    looks.look(_name(curve, size))
                    spent = run(bus, target, curve, size, count, window)
                    if number:
                        looks.add(_name(curve, size), us=spent * 1e6)
    progress(1, 1)
    return [row(looks, curve, size, sizes[0]) for curve, sizes in curves.items() for size in sizes]


def run(bus: Bus, target: Target, curve: str, size: int, count: int, window: int) -> float:
    with ExitStack() as stack:
        load = Load(target, window, stack)
        spent = CURVES[curve](load, size, count)
        if curve != "backlog" and load.got > count:
            raise MomError(f"{load.got - count} messages too many: a queue was not empty")
    if curve == "backlog":
        _empty(bus)
        _rest(target)
    return spent


def _empty(bus: Bus) -> None:
    """What the backlog has left, when it is all back from its consumer."""
    queue = destinations.one(QUEUE)
    while (found := bus.ask("s1", "destination", destination=queue))["messages"]:
        if not found["unacked"]:
            bus.ask("s1", "purge", destination=queue)
        time.sleep(POLL_S)


def _rest(target: Target) -> None:
    """Until the broker is at rest: rows of what is purged go bit by bit, and the next case must not pay for them."""
    before = cpu_of(target.pids)
    while True:
        time.sleep(REST_S)
        if (now := cpu_of(target.pids)) - before < REST_S * BUSY:
            return
        before = now


def _name(curve: str, size: int) -> str:
    return f"{curve} {size}"


def row(looks: Rounds, curve: str, size: int, first: int) -> Row:
    """`times` is the cost of a message to that at the first size of the curve, in the median of the rounds."""
    name = _name(curve, size)
    us, base = looks.samples[name]["us"], looks.samples[_name(curve, first)]["us"]
    ratios = sorted(one / other for one, other in zip(us, base, strict=True))
    return {
        "curve": curve, "size": size, **looks.yardsticks(name), "broker_us": round(looks.of(name, "us"), 1),
        "broker_c": round(looks.of(name, "us") / looks.c_us(name)), "times": round(ratios[len(ratios) // 2], 2),
    }  # fmt: skip
