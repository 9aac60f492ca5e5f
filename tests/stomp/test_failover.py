"""Clients of others with their own lists of addresses, at a server with replicas whose leader is killed."""

import subprocess
import time
from contextlib import suppress

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


def connect(connection):
    """As its users do: until it is connected. What it has reached may just be ending: its reader may close the socket
    before the first frame is written, which is an `OSError` of no class of its own."""
    end = time.monotonic() + PATIENCE_S
    while not connection.is_connected():
        assert time.monotonic() < end
        with suppress(stomp.exception.StompException, OSError):
            connection.connect(wait=True)


def test_stomp_py_goes_on_at_the_next_address(trial):
    hosts = [("127.0.0.1", port) for port in trial.ports]
    connection = stomp.Connection12(hosts, reconnect_attempts_max=60, reconnect_sleep_initial=0.1)
    box = Mailbox()
    connection.set_listener("", box)
    connect(connection)
    connection.send("/queue/q", "before", receipt="1")
    assert box.receipts.get(timeout=PATIENCE_S) == "1"
    trial.kill(trial.leader())
    box.lost.get(timeout=PATIENCE_S)
    connect(connection)
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
