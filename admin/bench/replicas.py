"""What replicas of a server cost, and what it does to its clients when one of them stands still, is slow or full.

Each state is a server of its own, `s1` with three replicas, and takes turns with a plain server and with other brokers.
`catch_up` is another measurement: one replica loses its disk when there are many messages, and is replaced under load.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from mombroker.admin.bench import stomp
from mombroker.admin.bench.bus import Bus
from mombroker.admin.bench.figures import PROBES, Row
from mombroker.admin.bench.stomp import Case, Target
from mombroker.admin.bench.stompload import Broker, Producer, drive
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError
from mombroker.core.layouts import build
from mombroker.core.places import Place
from mombroker.core.raft.replica import CLOSE
from mombroker.core.topology import Topology

STATES = ("plain", "whole", "stopped", "slow", "full")
SLOW_MS = 50.0
MEMORY = Path("/dev/shm")
NAMES = ("r1", "r2", "r3")
SICK = NAMES[-1]
ROOM = 256 << 10  # bytes that the files of a full disk may still grow by
PATIENCE_S = 30.0
LOT = 10_000  # messages between two looks at the bar


def topology_of(ports: Sequence[int]) -> Topology:
    """`s1`, with a replica for each port of clients."""
    topology = build({}, name="replicas", servers=["s1"])
    places = tuple(
        Place(name, "127.0.0.1", 0, stomp=f"127.0.0.1:{port}")
        for name, port in zip(NAMES, ports, strict=False)
    )  # fmt: skip
    only = replace(topology.servers["s1"], stomp=places[0].stomp, anonymous=True)
    topology.servers["s1"] = replace(only, replicas=places if len(places) > 1 else ())
    return topology


@contextmanager
def server(state: str, folder: Path | None, disk_ms: float = 0.0) -> Iterator[Target]:
    """A server in this state, for the time of the measurement. Each COMMIT takes `disk_ms` longer."""
    ports = free_ports(1 if state == "plain" else len(NAMES))
    topology = topology_of(ports)
    labels = [view.label for view in topology.servers["s1"].views()]
    slow = dict.fromkeys(labels, disk_ms)
    if state == "slow":
        slow[f"s1/{SICK}"] += SLOW_MS
    with Bus(topology, [[label] for label in labels], folder=folder, slow=slow) as bus, ExitStack() as stack:
        pids = [process.pid for process in bus.processes]
        if state != "plain":
            lead(bus, NAMES[0])
        if state == "stopped":
            os.kill(pids[-1], signal.SIGSTOP)
            stack.callback(os.kill, pids[-1], signal.SIGCONT)
        if state == "full":
            fill(bus)
            pids.pop()
        yield Target(state, Broker("127.0.0.1", ports[0]), pids)


def lead(bus: Bus, name: str) -> None:
    """Let this replica lead, once all are there."""
    from mombroker.net import adminclient

    end, asked = time.monotonic() + PATIENCE_S, 0.0
    while time.monotonic() < end:
        try:
            with adminclient.connect(bus.topology, "s1") as client:
                found = client.request("replicas")
                if found["leader"] == name and all(row["up"] for row in found["replicas"]):
                    return
                if found["leader"] != name and time.monotonic() > asked + 1:
                    asked = time.monotonic()
                    client.request("transfer_lead", to=name)
        except MomError:
            pass  # nobody leads just now
        time.sleep(0.05)
    raise MomError(f"{name} does not lead in {PATIENCE_S:.0f} s")


def fill(bus: Bus) -> None:
    """Nothing that the last replica has may grow beyond some more bytes; it is given these, and ends."""
    process, place = bus.processes[-1], bus.server("s1").replicas[-1]
    most = max(file.stat().st_size for file in Path(place.data).iterdir()) + ROOM
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
    target = Target("", Broker("127.0.0.1", int(str(bus.server("s1").stomp).rpartition(":")[2])), [])
    end = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        if time.monotonic() > end:
            raise MomError(f"a replica goes on though its files may not be larger than {most} bytes")
        stomp.run(target, Case(), 500)


def catch_up(
    count: int,
    size: int,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Row:
    """So many messages wait in a queue; the last replica is killed, its folder deleted, and it is replaced, while
    messages go through another queue. Memory is the most that a process has had in RAM since the disk was lost."""
    from mombroker.net import adminclient

    ports = free_ports(len(NAMES))
    topology = topology_of(ports)
    labels = [view.label for view in topology.servers["s1"].views()]
    with Bus(topology, [[label] for label in labels], folder=folder) as bus:
        lead(bus, NAMES[0])
        target = Target("", Broker("127.0.0.1", ports[0]), [])
        began = time.monotonic()
        producer = Producer(target.at, ["destination:/queue/waiting"], size, True, 512)
        for done in range(0, count, LOT):
            progress(done, count)
            producer.start(min(LOT, count - done))
            drive([producer], lambda: producer.finished)
        producer.line.close()
        filled = time.monotonic() - began
        load = Case(window=64)
        before = [stomp.run(target, load, 2_000)["rate"] for _ in range(3)]
        held = [bus.memory(at)[1] for at in range(len(labels))]
        with adminclient.connect(topology, "s1") as client:
            old = next(row["id"] for row in client.request("replicas")["replicas"] if row["replica"] == SICK)
        bus.lose(labels[-1])
        for process in bus.processes:
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is from now on
        rates: list[dict[str, float]] = []
        began = time.monotonic()
        while not rates or not replaced(bus, old):
            rates.append(stomp.run(target, load, 500))
        took = time.monotonic() - began
        peaks = [bus.peak(at) for at in range(len(labels))]
        store = sum(file.stat().st_size for file in Path(bus.server("s1").replicas[0].data).iterdir())
    return {
        "messages": count, "bytes": size, "fill_s": round(filled, 1), "store_mb": store >> 20,
        "replace_s": round(took, 1), "rate": round(median(before)),
        "rate_meanwhile": round(median(each["rate"] for each in rates)),
        "p99_ms_meanwhile": round(max(each["p99_ms"] for each in rates), 1),
        "leader_mb": held[0] >> 20, "leader_peak_mb": peaks[0] >> 20, "new_mb": held[-1] >> 20,
        "new_peak_mb": peaks[-1] >> 20,
    }  # fmt: skip


def replaced(bus: Bus, old: str) -> bool:
    """Is there another one in the place of the last replica, with all? Else the next step is asked for."""
    from mombroker.net import adminclient

    try:
        with adminclient.connect(bus.topology, "s1") as client:
            found = client.request("replicas")
            row = next(each for each in found["replicas"] if each["replica"] == SICK)
            if row["id"] != old and row["role"] == "follower" and row["up"] and row["behind"] <= CLOSE:
                return True
            if not found["changing"]:
                client.request("change_replicas", old=SICK, new=SICK)
    except MomError:
        pass  # it was not met yet
    return False


def measure(
    states: Sequence[str],
    others: Sequence[Target],
    cases: Sequence[Case],
    count: int,
    rounds: int,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    disk_ms: float = 0.0,
) -> list[Row]:
    """In each round every case is run in every state, and with every other broker, in turn. With `disk_ms` as if each
    process had a disk of its own: all is in memory, and a COMMIT takes so long."""
    disk = partial(waits, disk_ms / 1e3) if disk_ms else None
    if disk_ms and folder is not None:
        raise MomError("--disk keeps all in memory: leave --folder out")
    if disk_ms and not MEMORY.is_dir():
        raise MomError(f"--disk needs {MEMORY}, a folder in memory, which this system does not have: leave it out")
    folder = MEMORY if disk_ms else folder
    with ExitStack() as stack:
        ours = [stack.enter_context(server(state, folder, disk_ms)) for state in states]
        return stomp.measure([*ours, *others], cases, count, rounds, folder, progress, disk=disk)


def waits(seconds: float) -> float:
    """The median time that it takes to wait for so long."""
    times = []
    for _ in range(PROBES):
        start = time.perf_counter()
        time.sleep(seconds)
        times.append(time.perf_counter() - start)
    return median(times)
