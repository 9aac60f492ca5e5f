"""What a broker of STOMP or AMQP costs, ours or another's: flow, fan-out, backlog and drain, by window and size."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import gettempdir

from mombroker.admin.bench.amqpload import AmqpConsumer, AmqpProducer
from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.natsload import NatsConsumer, NatsProducer
from mombroker.admin.bench.stompload import Broker, Consumer, NamingProducer, PacedProducer, Producer, broker, drive
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError
from mombroker.core.layouts import build

KINDS = ("flow", "fan-out", "backlog")
Taking = Consumer | AmqpConsumer | NatsConsumer
Sending = Producer | AmqpProducer | NatsProducer
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP = 2_000  # messages before the first round of a case


@dataclass(slots=True, frozen=True)
class Case:
    """flow: producers and consumers share `queues`; fan-out: to a topic with so many consumers; backlog: first in, then
    out. A round of it is 1/`part` of the messages of others. `ids`: whether messages have
    ids of their own; None: as clients of the protocol mostly write them, so those of AMQP have. `rate`: each producer
    sends so many a second, whatever its window is; by STOMP alone."""

    kind: str = "flow"
    window: int = 512
    size: int = 100
    ack: str = "client-individual"
    persistent: bool = True
    producers: int = 1
    consumers: int = 1
    queues: int = 1
    prefetch: int = 1_000
    ids: bool | None = None
    part: int = 1
    rate: float = 0.0

    @property
    def simple(self) -> bool:
        return (self.kind, self.producers, self.consumers) == ("flow", 1, 1)


@dataclass(slots=True)
class Target:
    """A broker and the processes whose CPU time is its; `headers` are of every SEND and SUBSCRIBE to it."""

    name: str
    at: Broker
    pids: list[int]
    headers: dict[str, str] = field(default_factory=dict)

    def can(self, case: Case) -> bool:
        """Of a JetStream only simple cases are measured, and at a given rate only brokers of STOMP."""
        return (not self.at.nats or case.simple) and not (case.rate and (self.at.nats or self.at.amqp))


def targets(urls: Sequence[str], pids: Sequence[Sequence[int]]) -> list[Target]:
    if len(pids) > len(urls):
        raise MomError(
            f"{len(pids)} --pid but {len(urls)} --url: give each broker's processes in the order of the URLs"
        )
    every = [*pids, *[[]] * len(urls)]
    return [Target(broker(url).name, broker(url), list(mine)) for url, mine in zip(urls, every, strict=False)]


@contextmanager
def ours(folder: Path | None, log: bool = True, python: Path | None = None) -> Iterator[tuple[Bus, Target, Target]]:
    """A server of our own, `s1`, for the time of the measurement: by STOMP, and by AMQP. `python`: as of Bus."""
    topology = build({}, name="stomp", servers=["s1"])
    port, amqp = free_ports(2)
    topology.servers["s1"] = replace(
        topology.servers["s1"], stomp=f"127.0.0.1:{port}", amqp=f"127.0.0.1:{amqp}", anonymous=True
    )
    topology.log["enabled"] = log
    with Bus(topology, [["s1"]], folder=folder, python=python) as bus:
        pids = [bus.processes[0].pid]
        by_amqp = Target("mombroker by AMQP", Broker("127.0.0.1", amqp, amqp=True), pids)
        yield bus, Target("mombroker", Broker("127.0.0.1", port), pids), by_amqp


def measure(
    brokers: Sequence[Target],
    cases: Sequence[Case],
    count: int,
    rounds: int,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    by_amqp: bool = False,
    disk: Callable[[], float] | None = None,
) -> list[Row]:
    """In each round every case is run with every broker that can do it, in turn; `by_amqp`: our own by AMQP, too;
    `disk`: as of Rounds."""
    for target in brokers:
        if not any(map(target.can, cases)):
            raise MomError(
                "of a broker by nats:// only a flow is measured, of one producer and one consumer; at a given rate only"
                " brokers by stomp://"
            )
    with ExitStack() as stack:
        if not brokers:
            _, stomp, amqp = stack.enter_context(ours(folder))
            brokers = [stomp, amqp] if by_amqp else [stomp]
        looks = Rounds(folder or Path(gettempdir()), disk)
        runs = [(case, target) for case in cases for target in brokers if target.can(case)]
        for number in range(rounds):
            for at, (case, target) in enumerate(runs):
                progress(number * len(runs) + at, rounds * len(runs))
                some = count // case.part
                if not number:
                    run(target, case, min(some, WARM_UP))
                name = f"{target.name} {case}"
                looks.look(name)
                looks.add(name, **run(target, case, some))
                looks.look(name)
    progress(1, 1)
    return [row(looks, target, case, count // case.part, brokers[0]) for case, target in runs]


def run(target: Target, case: Case, count: int) -> dict[str, float]:
    """One round with new connections. The settlement of the last message is in the CPU time, logins are not."""
    kind = "topic" if case.kind == "fan-out" else "queue"
    names = [f"/{kind}/mom-bench-{number}" for number in range(case.queues)]
    each = max(1, count // case.producers)
    total = each * case.producers
    wanted = total * (case.consumers if case.kind == "fan-out" else 1)
    with ExitStack() as stack:
        got = 0

        def came(some: int) -> None:
            nonlocal got
            got += some

        def consumers() -> list[Taking]:
            made: list[Taking] = []
            for number in range(case.consumers):
                name = names[number % len(names)]
                if target.at.nats:
                    made.append(NatsConsumer(target.at, case.prefetch, came))
                elif target.at.amqp:
                    topic = kind == "topic"
                    made.append(AmqpConsumer(target.at, name.rpartition("/")[2], topic, case.ack, case.prefetch, came))
                else:
                    made.append(Consumer(target.at, [(name, target.headers)], case.ack, case.prefetch, came))
                stack.callback(made[-1].line.close)
            return made

        producers: list[Sending] = []
        more = "".join(f"\n{key}:{value}" for key, value in target.headers.items())
        for number in range(case.producers):
            name = names[number % len(names)]
            if target.at.nats:
                producers.append(NatsProducer(target.at, case.size, case.window))
            elif target.at.amqp:
                at, address, topic = target.at, name.rpartition("/")[2], kind == "topic"
                named = case.ids is not False
                producers.append(AmqpProducer(at, address, topic, case.size, case.persistent, case.window, named))
            elif case.rate:
                head = f"destination:{name}{more}"
                producers.append(PacedProducer(target.at, head, case.size, case.persistent, case.rate))
            else:
                head = f"destination:{name}{more}"
                naming = NamingProducer(target.at, head, case.size, case.persistent, case.window) if case.ids else None
                producers.append(naming or Producer(target.at, [head], case.size, case.persistent, case.window))
            stack.callback(producers[-1].line.close)

        def sent() -> bool:
            return all(producer.finished for producer in producers)

        if case.kind != "backlog":
            takers = consumers()
        cpu, first, disk = cpu_of(target.pids), cpu_of(target.pids[:1]), written_by(target.pids)
        own, start = time.process_time(), time.perf_counter()
        for producer in producers:
            producer.start(each)
        if case.kind == "backlog":
            drive(producers, sent)
            filled, start = time.perf_counter() - start, time.perf_counter()
            takers = consumers()
        else:
            filled = 0.0
        drive([*producers, *takers], lambda: got >= wanted and sent())
        took = time.perf_counter() - start
        for taker in takers:
            taker.leave()
        spent, own = cpu_of(target.pids) - cpu, time.process_time() - own
        first, disk = cpu_of(target.pids[:1]) - first, written_by(target.pids) - disk
        if got > wanted:
            raise MomError(f"{got - wanted} messages too many from {target.name}: its queues were not empty")
    waits = sorted(wait for producer in producers for wait in producer.waits)
    return {
        "rate": wanted / took, "fill_rate": total / filled if filled else 0.0, "broker_us": spent / wanted * 1e6,
        "first_us": first / wanted * 1e6,
        "client_us": own / wanted * 1e6, "p50_ms": weighted(waits, 0.5) * 1e3, "p99_ms": weighted(waits, 0.99) * 1e3,
        "p999_ms": weighted(waits, 0.999) * 1e3, "disk_bytes": disk / wanted,
    }  # fmt: skip


def weighted(waits: Iterable[tuple[float, int]], part: float) -> float:
    """The percentile of sorted (value, weight)."""
    waits = list(waits)
    left = part * sum(weight for _, weight in waits)
    for value, weight in waits:
        left -= weight
        if left <= 0:
            return value
    return waits[-1][0]


def cpu_of(pids: Iterable[int]) -> float:
    """Seconds of CPU of processes and all their descendants so far, ended children included."""
    return sum(_family(pids).values()) / TICKS


def written_by(pids: Iterable[int]) -> int:
    """Bytes that they and all their descendants have had written to disks so far; nothing of those of another user."""
    total = 0
    for pid in _family(pids):
        try:
            said = (Path("/proc") / str(pid) / "io").read_text()
        except OSError:
            continue
        total += int(said.partition("\nwrite_bytes: ")[2].partition("\n")[0])
    return total


def _family(pids: Iterable[int]) -> dict[int, int]:
    """These processes and all their descendants, and the ticks of CPU of each. Raises MomError."""
    found = set(pids)
    stats: dict[int, tuple[int, int]] = {}
    if found:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                stats[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    if missing := found - set(stats):
        raise MomError(f"there is no process {min(missing)}: give the ids of running brokers by --pid")
    while True:
        more = {pid for pid, (parent, _) in stats.items() if parent in found} - found
        if not more:
            return {pid: stats[pid][1] for pid in found}
        found |= more


def row(looks: Rounds, target: Target, case: Case, count: int, first: Target) -> Row:
    """rate_x, broker_x and first_x are medians of the rounds' ratios to the first broker, where that has such a case;
    first_us is the CPU time of a broker's first process alone."""
    name, beside = f"{target.name} {case}", looks.samples.get(f"{first.name} {case}")

    def ratio(key: str) -> float | None:
        if beside is None or not all(beside[key]):
            return None
        return round(median(mine / of for mine, of in zip(looks.samples[name][key], beside[key], strict=True)), 2)

    of = {key: looks.of(name, key) for key in looks.samples[name]}
    spent = of["broker_us"] if target.pids else None
    return {
        "broker": target.name, "kind": case.kind, "window": case.window, "bytes": case.size, "ack": case.ack,
        "persistent": case.persistent, "producers": case.producers, "consumers": case.consumers,
        "queues": case.queues, "messages": count, **looks.yardsticks(name), "rate": round(of["rate"]),
        "rate_x": ratio("rate"), "rate_max": round(max(looks.samples[name]["rate"])),
        "fill_rate": round(of["fill_rate"]) or None, "broker_us": spent and round(spent, 1),
        "broker_us_min": spent and round(looks.best(name, "broker_us"), 1),
        "broker_x": spent and ratio("broker_us"), "broker_c": spent and round(spent / looks.c_us(name)),
        "first_us": spent and round(of["first_us"], 1), "first_x": spent and ratio("first_us"),
        "client_us": round(of["client_us"], 2), "p50_ms": round(of["p50_ms"], 2), "p99_ms": round(of["p99_ms"], 2),
        "p999_ms": round(of["p999_ms"], 2), "p50_f": round(of["p50_ms"] / looks.f_ms(name), 1),
        "disk_bytes": round(of["disk_bytes"]) if target.pids else None,
    }  # fmt: skip
