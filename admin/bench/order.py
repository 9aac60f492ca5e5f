"""What total order costs a publisher: its pipeline to a topic in total order beside that to a plain one."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import Rounds, Row
from mombroker.admin.bench.stomp import weighted
from mombroker.admin.bench.stompload import Broker, Consumer, Producer, drive
from mombroker.admin.demo import free_ports
from mombroker.core.layouts import build

PLAIN, TOTAL = "/topic/mom-bench-plain", "/topic/mom-bench-total"
NAMES = ("s1", "s2", "s3")


def measure(
    count: int, window: int, size: int, rounds: int, folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:  # fmt: skip
    """Three servers with a process each: the publisher is at s1, the home of the topic is s2, the reader at s3. Each
    round both topics take turns, behind a round that does not count."""
    topology = build({"d": list(NAMES)}, name="order")
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    for name, port in ports.items():
        topology.servers[name] = replace(topology.servers[name], stomp=f"127.0.0.1:{port}", anonymous=True)
    topology.policies.append({"match": TOTAL.replace("/topic/", "topic:"), "order": "total", "max_pending": 1_000_000})
    topology.policies.append({"match": "topic:*", "max_pending": 1_000_000})
    looks, done = Rounds(folder or Path(gettempdir())), 0
    with Bus(topology, [[name] for name in NAMES], folder=folder) as bus:
        bus.ask("s2", "create_topic", destination=TOTAL.replace("/topic/", "topic:"))
        for number in range(rounds + 1):
            for topic in (PLAIN, TOTAL):
                found = run(ports, topic, max(1, count if number else count // 10), window, size)
                if number:
                    looks.look(topic)
                    looks.add(topic, **found)
                done += 1
                progress(done, 2 * (rounds + 1))
    plain = looks.of(PLAIN, "rate")
    return [
        {
            "order": "total" if topic == TOTAL else "causal", "window": window, "size": size,
            "msg_per_s": round(looks.of(topic, "rate")), "of_plain": round(looks.of(topic, "rate") / plain, 2),
            "receipt_p50_ms": round(looks.of(topic, "p50_ms"), 2), **looks.yardsticks(topic),
        }
        for topic in (PLAIN, TOTAL)
    ]  # fmt: skip


def run(ports: dict[str, int], topic: str, count: int, window: int, size: int) -> dict[str, float]:
    """Messages a second from the first SEND until the last receipt is there and the reader has all."""
    with ExitStack() as stack:
        got = 0

        def came(some: int) -> None:
            nonlocal got
            got += some

        taker = Consumer(Broker("127.0.0.1", ports["s3"]), [(topic, {})], "auto", 10_000, came)
        stack.callback(taker.line.close)
        producer = Producer(Broker("127.0.0.1", ports["s1"]), [f"destination:{topic}"], size, True, window)
        stack.callback(producer.line.close)
        start = time.perf_counter()
        producer.start(count)
        drive([producer, taker], lambda: got >= count and producer.finished)
        took = time.perf_counter() - start
        taker.leave()
    return {"rate": count / took, "p50_ms": weighted(sorted(producer.waits), 0.5) * 1e3}
