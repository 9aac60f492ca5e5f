"""A server of several replicas, as real processes: what has a receipt outlives the machine that gave it."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import msgpack
import pytest

from mombroker import jms, store
from tests.admin.processes import ROOT, free_ports
from tests.admin.replicas import PATIENCE_S, Bus, Trial, receive_all


@pytest.fixture
def trial(tmp_path):
    made = Trial(tmp_path)
    yield made
    if made.process.poll() is None:
        made.end()


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


@pytest.fixture
def bus(tmp_path):
    made = Bus(tmp_path)
    made.up()
    yield made
    made.down()


def test_all_replicas_stop_and_start_again(trial):
    trial.leader()
    with jms.connect(trial.url) as context:
        context.send("q", "kept")
    trial.end()
    assert 1 in [store.read(trial.folder / name).meta()["clean"] for name in trial.names], "it was no good stop"
    trial.begin()
    trial.leader()
    assert receive_all(trial.url, "q") == ["kept"]


class Raw:
    """A STOMP client that does nothing by itself."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.say("CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert self.socket.recv(4096).startswith(b"CONNECTED")

    def say(self, frames):
        self.socket.sendall(frames.encode())

    def rest(self):
        """What it hears until the connection ends."""
        found = b""
        try:
            while data := self.socket.recv(4096):
                found += data
        except ConnectionResetError:
            pass
        return found.decode()


def asked(port, path):
    """Status and text."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except URLError:  # the port changes hands
        return 0, ""


def test_probes_and_figures_of_replicas(trial):
    leader = trial.leader()
    for name, port in zip(trial.names, trial.http, strict=True):
        assert asked(port, "/healthz")[0] == 200
        ready, figures = asked(port, "/readyz"), asked(port, "/metrics")[1]
        if name == leader:
            assert ready[0] == 200 and 'mombroker_replica_leads{server="main"} 1' in figures
            assert figures.count("mombroker_replica_behind{") == 3 and "mombroker_commits_total" in figures
        else:
            assert ready == (503, ready[1]) and f"standby: the leader is {leader}" in ready[1]
            assert asked(port, "/api/queues")[0] == 503 and 'mombroker_replica_leads{server="main"} 0' in figures
            assert f'mombroker_replica_behind{{server="main",replica="{name}",role="follower"}}' in figures
            assert 'mombroker_replica_term{server="main"} ' in figures and "queue" not in figures
    trial.mom("replica", "transfer")
    follower = trial.names.index(leader)
    while asked(trial.http[trial.names.index(new := trial.leader())], "/readyz")[0] != 200:
        time.sleep(0.05)
    end = time.monotonic() + PATIENCE_S
    while f"the leader is {new}" not in asked(trial.http[follower], "/readyz")[1]:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_leader_that_has_stood_still_gives_no_receipt(trial):
    old = trial.leader()
    client = Raw(trial.ports[trial.names.index(old)])
    os.kill(pid := trial.pid(old), signal.SIGSTOP)
    try:
        client.say("SEND\ndestination:/queue/q\nreceipt:1\n\nlost\0")
        client.say("SUBSCRIBE\ndestination:/queue/q\nid:s\nreceipt:2\n\n\0")
        others = [name for name in trial.names if name != old]
        while not any((trial.ask(name) or {"leads": False})["leads"] for name in others):
            time.sleep(0.05)
        ports = [trial.ports[trial.names.index(name)] for name in others]
        with jms.connect(",".join(f"stomp://127.0.0.1:{port}" for port in ports)) as context:
            context.send("q", "kept")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "RECEIPT" not in client.rest()
    assert receive_all(trial.url, "q") == ["kept"]


def test_a_standby_that_is_to_answer_clients_tells_them_who_leads(tmp_path):
    bus = Bus(tmp_path)
    bus.file.write_text(bus.file.read_text().replace("[servers.a]\n", "[servers.a]\nredirect = true\n"))
    bus.up()
    try:
        leader = bus.leader()
        where = bus.ports[bus.names.index(leader)]
        for name, port in zip(bus.names, bus.ports, strict=True):
            if name != leader:
                with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
                    client.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
                    said = client.recv(4096).decode()
                assert (
                    said.startswith("ERROR\n") and f"standby\\c the leader is {leader} at 127.0.0.1\\c{where}" in said
                )
                assert f"leader:127.0.0.1\\c{where}" in said and "elsewhere:true" in said
        bus.mom("replica", "transfer", "-s", "a")
        with jms.connect(bus.url) as context:
            context.send("q", "found")
        assert receive_all(bus.url, "q") == ["found"]
    finally:
        bus.down()


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


def test_one_more_replica_joins_and_another_one_leaves(bus):
    bus.leader()
    with jms.connect(bus.url) as context:
        context.send("q", "kept")
    (port,) = free_ports(1)
    place = f', {{ name = "a4", listen = "127.0.0.1:{port}", data = "a4" }}]'
    bus.file.write_text(bus.file.read_text().replace(" }]\n", " }" + place + "\n"))
    bus.run("up", "--detach", "-s", "a/a4")
    assert "a4" in bus.mom("replica", "add", "a4", "-s", "a").stdout
    assert "leads" in bus.mom("replica", "remove", bus.leader(), "-s", "a", code=1).stderr
    gone = next(name for name in bus.names if name != bus.leader())
    bus.mom("replica", "remove", gone, "-s", "a")
    rows = bus.json("replica", "status", "-s", "a")
    assert {row["replica"]: row["role"] for row in rows}[gone] == "no member"
    end = time.monotonic() + PATIENCE_S
    while bus.mom_any("replica", "transfer", "a4", "-s", "a").exit_code:  # it has just come
        assert time.monotonic() < end, bus.json("replica", "status", "-s", "a")
        time.sleep(0.1)
    assert "a4" in [row["replica"] for row in bus.json("replica", "status", "-s", "a") if row["role"] == "leader"]
    assert bus.json("queue", "show", "q", "-s", "a")["messages"] == 1


def test_a_server_gets_replicas_with_all_that_it_has_and_has_none_again(tmp_path):
    bus = Bus(tmp_path)
    replicated = bus.file.read_text()
    listen = replicated.partition('listen = "')[2].partition('"')[0]
    alone = f'listen = "{listen}"\nstomp = "127.0.0.1:{bus.ports[0]}"\ndata = "a1"\n'
    begin, end = replicated.index("replicas ="), replicated.index("[servers.b]")
    bus.file.write_text(plain := replicated[:begin] + alone + replicated[end:])
    bus.up()
    try:
        with jms.connect(bus.urls["b"]) as at_b, jms.connect(bus.url) as at_a:
            at_a.send("q", "plain")
            for number in range(20):
                at_b.send("q", str(number))
        bus.settle()
        assert "has no replicas" in bus.mom("replica", "begin", "-s", "a", code=1).stderr

        bus.file.write_text(replicated)
        assert "a1" in bus.mom("replica", "begin", "-s", "a", code=1).stderr, "it still runs"
        bus.file.write_text(plain)
        bus.down()
        bus.file.write_text(replicated)
        refused = bus.mom("replica", "begin", "-s", "a/a2", code=1).stderr
        assert "has a store in" in refused, refused
        assert "as its only replica" in bus.mom("replica", "begin", "-s", "a").stdout
        assert "of one replica of a" in bus.mom("replica", "begin", "-s", "a", code=1).stderr, "it is done"
        bus.up()
        assert bus.leader() == "a1"
        with jms.connect(bus.urls["b"]) as at_b:
            at_b.send("q", "one")
        for name in ("a2", "a3"):
            bus.mom("replica", "add", name, "-s", "a")
        bus.mom("topology", "apply", "--yes")
        bus.kill("a1")
        assert bus.leader() != "a1", "it has all, and b finds it"
        with jms.connect(bus.urls["b"]) as at_b:
            at_b.send("q", "three")
        bus.settle()

        bus.mom("replica", "replace", "a1", "-s", "a")
        while bus.mom_any("replica", "transfer", "a1", "-s", "a").exit_code:  # it has just come
            time.sleep(0.2)
        bus.leader()
        for name in ("a2", "a3"):
            bus.mom("replica", "remove", name, "-s", "a")
        bus.down()
        assert "is not of the only replica" in bus.mom("replica", "end", "-s", "a/a2", code=1).stderr
        bus.mom("replica", "end", "-s", "a")
        bus.file.write_text(plain)
        bus.up()
        bus.mom("topology", "apply", "--yes")
        with jms.connect(bus.urls["b"]) as at_b:
            at_b.send("q", "alone")
        bus.settle()
        assert receive_all(bus.url, "q") == ["plain", *map(str, range(20)), "one", "three", "alone"]
    finally:
        bus.down()


OLD = "from mombroker.store import packed\npacked.VERSION = 1\nfrom mombroker.admin.cli.main import main\nmain()\n"


class Versions(Bus):
    """The program of each replica is old, or that of now."""

    def __init__(self, folder):
        super().__init__(folder)
        self.processes = {"b": self.serve("b")} | {name: self.start(name, "-c", OLD) for name in self.names}

    def start(self, name, *program):
        words = [sys.executable, *(program or ("-m", "mombroker.admin.cli.main")), "serve", "--server", f"a/{name}"]
        with (self.folder / f"{name}.txt").open("a") as log:
            env = {**os.environ, "MOM_FILE": str(self.file), "PYTHONPATH": str(ROOT)}
            return subprocess.Popen(words, env=env, stderr=log)

    def stop(self, name):
        self.processes[name].terminate()
        assert self.processes[name].wait(PATIENCE_S) == 0

    def versions(self):
        """Of the batches in the logs of all."""
        logs = [sqlite3.connect(f"file:{self.folder / name / 'store.sqlite'}?mode=ro", uri=True) for name in self.names]
        rows = [row for log in logs for row in log.execute("SELECT data FROM replica_log WHERE kind = 0")]
        for log in logs:
            log.close()
        return {msgpack.unpackb(data, strict_map_key=False, raw=True)[0] for (data,) in rows}

    def caught_up(self):
        end = time.monotonic() + PATIENCE_S
        while any(row["behind"] or not row["up"] for row in self.json("replica", "status", "-s", "a")):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_replicas_get_a_new_program_one_after_the_other(tmp_path):
    bus = Versions(tmp_path)
    try:
        bus.leader()
        with jms.connect(bus.url) as context:
            for number, name in enumerate(bus.names):
                context.send("q", f"{number} before")
                bus.caught_up()
                assert bus.versions() == {1}, "one of them reads no other"
                if name == bus.leader():
                    bus.mom("replica", "transfer", "-s", "a")
                bus.stop(name)
                context.send("q", f"{number} without")
                bus.processes[name] = bus.start(name)
                bus.caught_up()
            context.send("q", "new")
        assert bus.versions() == {1, 2}
        old = next(name for name in bus.names if name != bus.leader())
        bus.stop(old)
        with bus.start(old, "-c", OLD) as gone_back:
            with jms.connect(bus.url) as context:
                context.send("q", "newer")
            gone_back.wait(PATIENCE_S)
        bus.processes[old] = bus.start(old)
        bus.caught_up()
        said = (bus.folder / f"{old}.txt").read_text()
        assert "a batch of version 2: this program reads those up to 1" in said and "Traceback" not in said
        expected = [f"{number} {when}" for number in range(3) for when in ("before", "without")]
        assert receive_all(bus.url, "q") == [*expected, "new", "newer"]
    finally:
        for process in bus.processes.values():
            process.terminate()
            process.wait(PATIENCE_S)
