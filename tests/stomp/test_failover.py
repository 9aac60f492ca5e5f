"""Clients of others with their own lists of addresses, at a server with replicas whose leader is killed."""

import subprocess
import threading

import pytest
import stomp

from tests.admin.replicas import Trial
from tests.stomp.test_stomp_py import PATIENCE_S, Mailbox
from tests.stomp.test_stompjs import SCRIPT, home  # noqa: F401  # a fixture


@pytest.fixture
def trial(tmp_path):
    made = Trial(tmp_path)
    made.leader()
    yield made
    made.end()


class Reconnecting(Mailbox):
    """As its documentation shows: whoever is disconnected connects again."""

    def __init__(self, connection):
        super().__init__()
        self.connection, self.again = connection, threading.Event()

    def on_disconnected(self):
        if self.lost.empty():  # else it is told twice
            self.lost.put(None)
            threading.Thread(target=self._connect, daemon=True).start()

    def _connect(self):
        self.connection.connect(wait=True)
        self.again.set()


def test_stomp_py_goes_on_at_the_next_address(trial):
    hosts = [("127.0.0.1", port) for port in trial.ports]
    connection = stomp.Connection12(hosts, reconnect_attempts_max=60, reconnect_sleep_initial=0.1)
    box = Reconnecting(connection)
    connection.set_listener("", box)
    connection.connect(wait=True)
    connection.send("/queue/q", "before", receipt="1")
    assert box.receipts.get(timeout=PATIENCE_S) == "1"
    trial.kill(trial.leader())
    assert box.again.wait(PATIENCE_S)
    connection.send("/queue/q", "after", receipt="2")
    assert box.receipts.get(timeout=PATIENCE_S) == "2"
    connection.subscribe("/queue/q", id="s", ack="auto")
    assert [frame.body for frame in box.take(2)] == ["before", "after"]
    connection.remove_listener("")
    connection.disconnect()


def test_stompjs_goes_on_at_the_next_address(trial, home):  # noqa: F811
    ports = ",".join(map(str, trial.http))
    run = subprocess.Popen(
        ["node", "--import", "./socket.mjs", SCRIPT.name, ports, "failover"],
        cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert run.stdout.readline() == "kill the leader\n"
        trial.kill(trial.leader())
        out, error = run.communicate(timeout=PATIENCE_S)
        assert (out, run.returncode) == ("failover done\n", 0), error
    finally:
        run.kill()
