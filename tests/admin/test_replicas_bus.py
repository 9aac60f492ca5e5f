"""Servers join a bus on which one has replicas, and that one is lost as a whole."""

import os
import shutil
import signal
import sqlite3
import time

import pytest

from mombroker import jms, store
from mombroker.net import config
from tests.admin.processes import Processes, free_ports
from tests.admin.replicas import PATIENCE_S, Bus, receive_all


@pytest.fixture
def bus(tmp_path):
    made = Bus(tmp_path)
    made.up()
    yield made
    made.down()


def test_servers_join_by_a_standby_and_behind_a_server_that_has_replicas(bus, tmp_path, monkeypatch):
    leader = bus.leader()
    at = {place.name: place.listen for place in config.load(bus.file).servers["a"].replicas}
    by = at[next(name for name in bus.names if name != leader)]
    bus.mom("user", "add", "ann", "-s", "b", stdin="secret\nsecret\n")
    urls, new = {}, []
    try:
        for name, behind in (("n", "b"), ("k", "a")):
            (tmp_path / f"machine-{name}").mkdir()
            monkeypatch.chdir(tmp_path / f"machine-{name}")
            port, stomp = free_ports(2)
            listen, urls[name] = f"127.0.0.1:{port}", f"stomp://ann:secret@127.0.0.1:{stomp}"
            words = ["--listen", listen, "--stomp", f"127.0.0.1:{stomp}", "--behind", behind]
            said = bus.mom("server", "join", name, "--bus", by, *words).stdout
            assert f"{name} is on the bus test, behind {behind}" in said
            new.append(Processes(tmp_path / f"machine-{name}" / "bus.toml"))
        for round in (1, 2):
            with jms.connect(bus.url) as context:
                context.send("q", f"{round} of a")
            for name, url in urls.items():
                with jms.connect(url) as context:
                    context.send("q", f"{round} of {name}")
            if round == 1:
                bus.mom("replica", "transfer", "-s", "a")
                bus.leader()
        found, end = [], time.monotonic() + PATIENCE_S
        while len(found) < 6:
            assert time.monotonic() < end, found
            found += receive_all(bus.url, "q")
        assert sorted(found) == sorted(f"{round} of {name}" for round in (1, 2) for name in "ank")
    finally:
        for each in new:
            each.mom_any("down")


def test_a_server_is_lost_with_all_its_replicas_and_another_one_begins_in_its_place(tmp_path):
    bus = Bus(tmp_path)
    labels = ["b", *(f"a/{name}" for name in bus.names)]
    (tmp_path / "a").mkdir()  # for their lines on stderr
    processes = {label: bus.serve(label) for label in labels}
    try:
        bus.leader()
        with jms.connect(bus.url) as context:
            context.send("of-a", "goes with it")
        bus.settle()
        assert "a answers at" in bus.mom("server", "lost", "a", "--yes", code=1).stderr
        for name in bus.names:
            assert "a answers at" in bus.mom("server", "lost", "a", "--yes", code=1).stderr, "one of them runs"
            bus.kill(name)
            processes[f"a/{name}"].wait(PATIENCE_S)
        done = bus.json("server", "lost", "a", "--yes")
        assert done["domains"] == ["d"]
        for label in labels[1:]:
            processes[label] = bus.serve(label)
        bus.leader()
        with jms.connect(bus.urls["b"]) as context:
            context.send("new", "from b")
        with jms.connect(bus.url) as context:
            context.send("new", "from a")
        assert sorted(receive_all(bus.url, "new")) == ["from a", "from b"]
        rows = bus.json("replica", "status", "-s", "a")
        assert sorted(row["role"] for row in rows) == ["follower", "follower", "leader"]
        bus.kill(first := bus.leader())
        assert bus.leader() != first, "the others have it, too"
        with jms.connect(bus.urls["b"]) as context:
            context.send("new", "later")
        assert receive_all(bus.url, "new") == ["later"]
    finally:
        for process in processes.values():
            process.terminate()
            process.wait(PATIENCE_S)


def test_a_check_between_two_leaders_takes_nothing_for_lost_or_restored(tmp_path):
    bus = Bus(tmp_path)
    labels = ["b", *(f"a/{name}" for name in bus.names)]
    (tmp_path / "a").mkdir()
    processes = {label: bus.serve(label) for label in labels}
    try:
        leader = bus.leader()
        with jms.connect(bus.url) as context:
            context.send("q", "first")
        bus.settle()
        pids = [bus.pid(name) for name in bus.names]
        with jms.connect(bus.urls["b"]) as at_b, jms.connect(bus.url) as at_a:
            for number in range(25):
                at_b.send("q", str(number))
                at_a.send("q", f"{number} of a")
            for pid in pids:  # what was decided last the others have not heard yet
                os.kill(pid, signal.SIGKILL)
        for name in bus.names:
            processes[f"a/{name}"].wait(PATIENCE_S)
        shutil.rmtree(tmp_path / leader)
        behind = [store.read(tmp_path / name) for name in bus.names if name != leader]
        assert any(each.select("SELECT max(idx) FROM replica_log")[0][0] > each.meta()["applied"] for each in behind)
        report = bus.json("check")
        assert report["clean"] and not report["restored"] and report["judged_pct"] == 100, report
        processes |= {label: bus.serve(label) for label in labels[1:] if label != f"a/{leader}"}
        bus.leader()
        assert len(receive_all(bus.url, "q")) == 51
        bus.settle()

        other = next(name for name in bus.names if name not in (leader, bus.leader()))
        processes[f"a/{other}"].kill()
        processes[f"a/{other}"].wait(PATIENCE_S)
        with sqlite3.connect(tmp_path / other / "store.sqlite") as db:
            db.execute("UPDATE replica_log SET sum = sum + 1 WHERE idx = (SELECT min(idx) FROM replica_log)")
        db.close()
        said = bus.mom_any("check").stderr
        assert "of the logs of a/" in said and "differs" in said
    finally:
        for process in processes.values():
            process.terminate()
            process.wait(PATIENCE_S)
