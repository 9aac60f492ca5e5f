"""Other brokers of this machine, each started in a folder of its own, to be measured beside ours.

What an operator would install: RabbitMQ (`rabbitmq-server`) by STOMP, a JetStream (`nats-server`), and Artemis, from
the folder of an unpacked release, by AMQP. None of them touches a broker that runs already.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mombroker.admin.bench import stomp
from mombroker.admin.bench.figures import Row
from mombroker.admin.bench.stomp import Case, Target
from mombroker.admin.bench.stompload import Broker
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError

PATIENCE_S = 90.0
POLL_S = 0.1
RABBIT, JETSTREAM, ARTEMIS = "RabbitMQ", "JetStream", "Artemis"
PROGRAMS = {"rabbitmq": "rabbitmq-server", "jetstream": "nats-server"}
DIRECT = "/usr/lib/rabbitmq/bin:/usr/sbin"  # before PATH: Debian's wrapper of RabbitMQ changes the user
ARTEMIS_WARM_UP = 60_000  # messages, until its JVM has compiled what they pass

CASES: Mapping[str, Case] = {
    "flow": Case(),
    "1KiB": Case(size=1_024),
    "W=64": Case(window=64),
    "W=1": Case(window=1, part=20),
    "10x10x10": Case(window=64, producers=10, consumers=10, queues=10),
    "fan-out": Case("fan-out", ack="auto", persistent=False, consumers=10, part=4),
    "backlog": Case("backlog"),
}


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Target]:
    program = found("rabbitmq")
    amqp, by_stomp, distance, names = free_ports(4)
    node = f"mom-bench-{os.getpid()}@localhost"
    (folder / "plugins").write_text("[rabbitmq_stomp].\n")
    ports = f"listeners.tcp.1 = 127.0.0.1:{amqp}\nstomp.listeners.tcp.1 = 127.0.0.1:{by_stomp}\n"
    (folder / "rabbit.conf").write_text(ports)
    env = {
        "HOME": str(folder), "RABBITMQ_NODENAME": node, "RABBITMQ_DIST_PORT": str(distance),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"), "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"), "RABBITMQ_CONFIG_FILE": str(folder / "rabbit"),
    }  # fmt: skip
    try:
        with running([program], folder, env) as pid:
            answers(RABBIT, by_stomp, folder)
            yield Target(RABBIT, Broker("127.0.0.1", by_stomp, "guest", "guest"), [pid])
    finally:  # Erlang's server of names is no child of it
        subprocess.run(["epmd", "-port", str(names), "-kill"], stdout=subprocess.DEVNULL, check=False)


@contextmanager
def jetstream(folder: Path) -> Iterator[Target]:
    (port,) = free_ports(1)
    with running([found("jetstream"), "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)], folder) as pid:
        answers(JETSTREAM, port, folder)
        yield Target(JETSTREAM, Broker("127.0.0.1", port, nats=True), [pid])


@contextmanager
def artemis(folder: Path, release: Path) -> Iterator[Target]:
    """Of an unpacked release. It has been warmed up."""
    program, made = release / "bin" / "artemis", folder / "broker"
    if not program.is_file():
        raise MomError(f"{release} is no release of Artemis: it has no bin/artemis")
    (port,) = free_ports(1)
    how = ["--user", "a", "--password", "a", "--allow-anonymous", "--no-web", "--nio", "--silent"]
    how += ["--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-amqp-acceptor"]
    how += ["--host", "127.0.0.1", "--default-port", str(port)]
    subprocess.run([program, "create", made, *how], check=True, stdout=subprocess.DEVNULL)
    with running([str(made / "bin" / "artemis"), "run"], folder) as pid:
        answers(ARTEMIS, port, folder)
        target = Target(ARTEMIS, Broker("127.0.0.1", port, amqp=True), [pid])
        stomp.run(target, Case(), ARTEMIS_WARM_UP)
        yield target


def which(program: str) -> str | None:
    return shutil.which(program, path=f"{DIRECT}:{os.environ.get('PATH', '')}")


def found(peer: str) -> str:
    """Raises MomError."""
    if (path := which(PROGRAMS[peer])) is None:
        raise MomError(f"{PROGRAMS[peer]} is not installed: install it, or leave {peer} out of --peer")
    return path


@contextmanager
def running(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """A program with all that it starts, until the end."""
    with open(folder / "said.txt", "ab") as said:
        process = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(PATIENCE_S / 6)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def answers(name: str, port: int, folder: Path) -> None:
    """Wait until it listens. Raises MomError."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(POLL_S)
    said = (folder / "said.txt").read_text(errors="replace").strip().splitlines()
    raise MomError(f"{name} does not listen within {PATIENCE_S:.0f} s: {said[-1] if said else 'it says nothing'}")


PEERS: dict[str, Callable[[Path], AbstractContextManager[Target]]] = {"rabbitmq": rabbitmq, "jetstream": jetstream}


def installed() -> list[str]:
    """Peers that can be started without being told where they are."""
    return [peer for peer, program in PROGRAMS.items() if which(program)]


def measure(
    peers: Sequence[str],
    cases: Sequence[str],
    count: int,
    rounds: int,
    *,
    pythons: Sequence[Path] = (),
    release: Path | None = None,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Ours, ours again by each of `pythons`, which has a mombroker of its own, the peers, and Artemis if there is a
    `release`, in turn. `peers` and `cases` are keys of PEERS and CASES; `count` messages a round."""
    chosen = [CASES[case] for case in cases]
    simple = any(case.simple for case in chosen)
    starts = [PEERS[peer] for peer in peers if simple or peer != "jetstream"]
    if release:
        starts.append(partial(artemis, release=release))
    with ExitStack() as stack:
        targets = [stack.enter_context(stomp.ours(folder))[1]]
        for python in pythons:
            target = stack.enter_context(stomp.ours(folder, python=python))[1]
            targets.append(replace(target, name=f"mombroker of {python}"))
        for start in starts:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="bench-", dir=folder)))
            targets.append(stack.enter_context(start(place)))
        return stomp.measure(targets, chosen, count, rounds, folder, progress)
