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
from tests.admin.processes import Processes

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


class Trial(Processes):
    """`mom run --replicas 3` in a folder of its own."""

    def __init__(self, folder):
        super().__init__(folder / "mombroker-data" / "mombroker.toml")
        first = ports_in_a_row(6)
        self.folder, self.stomp, self.listen_at = folder / "mombroker-data", first, first + 5
        self.process = self.popen(
            "run", "--replicas", "3", "--stomp", f"127.0.0.1:{first}", "--listen", f"127.0.0.1:{first + 5}",
            "--http", "none", "--amqp", "none", "--data", str(self.folder), stderr=None,
        )  # fmt: skip
        self.url = f"failover:({','.join(f'stomp://127.0.0.1:{first + at}' for at in range(3))})"

    def ask(self, replica):
        """What a replica tells; None if it does not answer."""
        try:
            with adminclient.connect(config.load(self.file), f"main/{replica}") as client:
                return client.request("replicas")
        except MomError:
            return None

    def leader(self):
        """The name of the replica that serves, once there is one."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for replica in ("r1", "r2", "r3"):
                if (found := self.ask(replica)) is not None and found["leads"]:
                    return replica
            time.sleep(0.1)
        raise AssertionError([log.read_text() for log in self.folder.glob("*/log.txt")])

    def kill(self, replica):
        os.kill(int((self.folder / replica / "lock").read_text()), signal.SIGKILL)

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
        shutil.rmtree(trial.folder / first)
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
