"""A server of several replicas, as real processes: what has a receipt outlives the machine that gave it."""

import os
import random
import shutil
import signal
import socket
import time
from contextlib import ExitStack

import pytest

from mombroker import jms
from mombroker.core.errors import MomError
from mombroker.net import adminclient, config
from tests.admin.processes import Processes, free_ports

PATIENCE_S = 60


def ports_in_a_row(count):
    """The first of so many that nobody listens on now, as far as one can tell."""
    while True:
        first = random.randrange(20_000, 30_000)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


class Replicated(Processes):
    """A server with replicas among the processes.

    server   its name
    names    of its replicas
    url      with which clients find it
    """

    server = "main"
    names = ("r1", "r2", "r3")

    def ask(self, replica):
        """What a replica tells; None if it does not answer."""
        try:
            with adminclient.connect(config.load(self.file), f"{self.server}/{replica}") as client:
                return client.request("replicas")
        except MomError:
            return None

    def leader(self):
        """The name of the replica that serves, once there is one."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for replica in self.names:
                if (found := self.ask(replica)) is not None and found["leads"]:
                    return replica
            time.sleep(0.1)
        raise AssertionError([log.read_text() for log in self.folder.glob("*/log.txt")])

    def pid(self, replica):
        return int((self.folder / replica / "lock").read_text())

    def kill(self, replica):
        """Its process, with its disk."""
        os.kill(self.pid(replica), signal.SIGKILL)
        shutil.rmtree(self.folder / replica)


class Trial(Replicated):
    """`mom run --replicas 3` in a folder of its own."""

    def __init__(self, folder):
        super().__init__(folder / "mombroker-data" / "mombroker.toml")
        first = ports_in_a_row(6)
        self.folder = folder / "mombroker-data"
        self.process = self.popen(
            "run", "--replicas", "3", "--stomp", f"127.0.0.1:{first}", "--listen", f"127.0.0.1:{first + 5}",
            "--http", "none", "--amqp", "none", "--data", str(self.folder), stderr=None,
        )  # fmt: skip
        self.url = f"failover:({','.join(f'stomp://127.0.0.1:{first + at}' for at in range(3))})"

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


@pytest.fixture
def trial(tmp_path):
    made = Trial(tmp_path)
    yield made
    if made.process.poll() is None:
        made.end()


def receive_all(url, queue):
    with jms.connect(url) as context:
        consumer = context.consumer(queue)
        found = []
        while (message := consumer.receive(2)) is not None:
            found.append(message.body)
        return found


def test_what_has_a_receipt_is_there_when_the_leader_and_its_disk_are_gone(trial):
    trial.leader()
    with jms.connect(trial.url) as context:
        for number in range(100):
            context.send("q", str(number))
        first = trial.leader()
        trial.kill(first)
        for number in range(100, 200):
            context.send("q", str(number))
    assert trial.leader() != first
    assert receive_all(trial.url, "q") == [*map(str, range(200))]
    end = time.monotonic() + PATIENCE_S
    while (lost := trial.ask(first)) is None or not lost["leader"]:  # it has been started again, with an empty folder
        assert time.monotonic() < end, (lost, (trial.folder / first / "log.txt").read_text())
        time.sleep(0.1)
    roles = {row["replica"]: row["role"] for row in trial.ask(trial.leader())["replicas"]}
    assert roles.pop(first) == "no member", "a disk that was lost does not come back under its old id"
    assert sorted(roles.values()) == ["follower", "leader"]


class Bus(Replicated):
    """A plain server `b`, which is the registry, and `a`, which has replicas."""

    server = "a"
    names = ("a1", "a2", "a3")

    def __init__(self, folder):
        super().__init__(folder / "bus.toml")
        self.folder = folder
        ports = free_ports(8)
        places = [
            f'{{ name = "{name}", listen = "127.0.0.1:{ports[at]}", stomp = "127.0.0.1:{ports[at + 3]}", '
            f'data = "{name}" }}'
            for at, name in enumerate(self.names)
        ]
        self.url = ",".join(f"stomp://127.0.0.1:{port}" for port in ports[3:6])
        self.urls["b"] = f"stomp://127.0.0.1:{ports[7]}"
        self.file.write_text(
            f'[bus]\nname = "test"\nregistry = "b"\n[servers.a]\nanonymous = true\nreplicas = [{", ".join(places)}]\n'
            f'[servers.b]\nlisten = "127.0.0.1:{ports[6]}"\nstomp = "127.0.0.1:{ports[7]}"\nanonymous = true\n'
            'data = "b"\n[domains.d]\nservers = ["a", "b"]\n'
        )


@pytest.fixture
def bus(tmp_path):
    made = Bus(tmp_path)
    made.up()
    yield made
    made.down()


def test_neighbours_take_a_new_leader_for_a_restart_and_a_lost_replica_is_replaced(bus):
    bus.leader()
    with jms.connect(bus.url) as at_a, jms.connect(bus.urls["b"]) as at_b:
        at_a.send("q", "first")
        for number in range(100):
            at_b.send("q", str(number))
            if number == 30:
                bus.kill(lost := bus.leader())
        assert bus.leader() != lost
        bus.settle()
        at_a.send("q", "last")
    told = bus.mom("status").stdout
    assert f"{lost} was not met, or has lost its disk" in told
    assert f"{lost} was not met" in bus.mom("why", "a").stdout
    bus.mom("replica", "replace", lost, "-s", "a")
    rows = bus.json("replica", "status", "-s", "a")
    assert sorted(row["role"] for row in rows) == ["follower", "follower", "leader"]
    end = time.monotonic() + PATIENCE_S
    while max(row["behind"] for row in bus.json("replica", "status", "-s", "a")):
        assert time.monotonic() < end
    bus.mom("replica", "transfer", lost, "-s", "a")
    assert bus.leader() == lost
    found = receive_all(bus.url, "q")
    assert found == ["first", *map(str, range(100)), "last"]
    bus.settle()
