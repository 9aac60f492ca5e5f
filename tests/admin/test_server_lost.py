"""`mom server lost` on processes: one is killed, its folder is removed, and the others go on without it at work."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from mombroker import jms
from mombroker.net.exit_codes import ExitCode
from tests.admin.processes import ROOT, Processes, write_topology

SERVERS = "abcde"


@pytest.fixture
def bus(tmp_path):
    """c is the router between two domains."""
    file = write_topology(tmp_path, {"x": "abc", "y": "cde"}, {"ann": "a", "cat": "c", "eve": "e"})
    made = Processes(file)
    made.listen(SERVERS)
    servers = {name: made.serve(name) for name in SERVERS}
    while not made.all_up():
        time.sleep(0.1)
    yield made, servers
    for each in servers.values():
        each.kill()
        each.wait()


def test_a_router_is_lost_with_its_disk_and_another_one_takes_its_place(bus):
    bus, servers = bus
    folder = bus.file.parent
    sent, stop = [], threading.Event()
    with jms.connect(bus.urls["c"]) as context:
        context.send("/queue/of-c", "goes with it").wait(30)
    with jms.connect(bus.urls["b"], reconnect=0) as context:
        context.send("/queue/of-b", "stays").wait(30)
    bus.mom("agent", "send", "ann", "clerks.Note", "text=before", 'to=["e/eve"]')
    while bus.json("agent", "show", "eve")["fields"]["notes"] != ["before again"]:
        time.sleep(0.1)

    def talk():
        """Inside one domain, from its one server to the other, all the time."""
        with jms.connect(bus.urls["a"], reconnect=0) as context:
            while not stop.wait(0.002):
                context.send("/queue/of-b", str(len(sent))).wait(30)
                sent.append(str(len(sent)))

    talker = threading.Thread(target=talk)
    talker.start()
    servers["c"].kill()
    servers["c"].wait()
    old = folder / "old"
    shutil.copytree(folder / "c", old)
    shutil.rmtree(folder / "c")
    bus.mom("agent", "send", "ann", "clerks.Note", "text=late", 'to=["e/eve", "cat"]')
    done = bus.json("server", "lost", "c", "--yes")
    assert sorted(done["domains"]) == ["x", "y"]
    told = {(row["agent"], row["reason"].rpartition(": ")[2]) for row in done["letters"]}
    assert told == {("e/eve", "it was not delivered"), ("c/cat", "it was not delivered")}
    assert bus.json("server", "lost", "c", "--yes")["epoch"] == done["epoch"]  # it is done

    shutil.copytree(old, folder / "c")
    servers["c"] = bus.serve("c")
    log = folder / "c.txt"
    assert servers["c"].wait(60) == ExitCode.REFUSED  # by itself, without anything to send
    assert "c was declared lost" in log.read_text().splitlines()[-1]
    shutil.rmtree(folder / "c")
    servers["c"] = bus.serve("c")
    while not bus.all_up():
        time.sleep(0.1)
    stop.set()
    talker.join()
    with jms.connect(bus.urls["a"]) as context:
        consumer = context.consumer("/queue/of-b")
        assert [consumer.receive(30).body for _ in range(1 + len(sent))] == ["stays", *sent]
        context.send("/queue/of-c", "anew").wait(30)
        assert context.consumer("/queue/of-c").receive(30).body == "anew"
    ids = [str(row["id"]) for row in done["letters"] if row["server"] == "a"]
    bus.mom("agent", "deadletters", "retry", "--server", "a", *ids)
    while bus.json("agent", "show", "eve")["fields"]["notes"] != ["before again", "late again"]:
        time.sleep(0.1)
    while bus.json("agent", "show", "cat")["fields"]["notes"] != ["late again"]:
        time.sleep(0.1)
    while (report := bus.json("check", code=5))["waiting"] or report["outside_the_cut"]:  # c's log has no beginning
        time.sleep(0.1)
    assert report["clean"] and report["judged_pct"] > 90, report


def test_a_lost_server_is_taken_out_of_the_bus(bus):
    bus, servers = bus
    with jms.connect(bus.urls["e"]) as context:
        context.send("/queue/of-e", "goes with it").wait(30)
    servers["e"].kill()
    servers["e"].wait()
    shutil.rmtree(bus.file.parent / "e")
    said = bus.mom("server", "lost", "e", "--yes", "--remove").stdout
    assert "e is out of the bus" in said
    history = bus.json("topology", "history")[0]
    assert history["revision"] == 2 and "- server e" in history["changes"]
    with jms.connect(bus.urls["a"]) as context:
        context.send("/queue/of-e", "anew").wait(30)
        assert context.consumer("/queue/of-e").receive(30).body == "anew"


DIES = """
import os, signal, sys
from mombroker.admin.cli.main import cli
from mombroker.core.reconfiguration import Reconfiguration

Reconfiguration.METHOD = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
cli(["serve", "--server", "c"])
"""


def dies_for_good(bus, servers, method):
    """c comes back as one that is killed when it is to do that in a change of x, and its disk goes with it."""
    servers["c"].kill()
    servers["c"].wait()
    env = {**os.environ, "MOM_FILE": str(bus.file), "PYTHONPATH": str(ROOT)}
    servers["c"] = subprocess.Popen([sys.executable, "-c", DIES.replace("METHOD", method)], env=env)
    while not bus.all_up():
        time.sleep(0.1)
    with jms.connect(bus.urls["a"], reconnect=0) as context:
        context.send("/queue/of-b", "before").wait(30)  # so that b has its queue, and all have links
        text = bus.file.read_text()
        bus.file.write_text(text.replace('"c"]\nordering = "matrix"', '"c"]\nordering = "ks"'))
        while (done := bus.mom_any("topology", "apply", "--yes", "--no-wait")).exit_code:
            assert "not answer" in done.stderr, done.output
        servers["c"].wait(60)
        context.send("/queue/of-b", "meanwhile").wait(30)
    shutil.rmtree(bus.file.parent / "c")


def test_a_change_that_has_begun_is_carried_out_without_a_server_that_is_lost(bus):
    bus, servers = bus
    with jms.connect(bus.urls["b"]) as context:
        context.send("/queue/of-b", "first").wait(30)
    dies_for_good(bus, servers, "_freeze")
    rows = {row["server"]: row for row in bus.json("topology", "status", code=5)}
    assert rows["b"]["phase"] == "frozen" and "the mark of c" in rows["b"]["waits_for"]
    assert "the change to revision 2 of the topology waits for the mark of c" in bus.mom("why", "a").stdout
    assert "has begun, and goes on by itself" in bus.mom("topology", "abort", "--yes", code=1).stderr
    said = bus.mom("server", "lost", "c", "--yes").stdout
    assert "the change to revision 2 of the topology has begun, and is carried out by a and b without c" in said
    servers["c"] = bus.serve("c")
    while not bus.all_up():
        time.sleep(0.1)
    while {(row["revision"], row["phase"]) for row in bus.json("topology", "status")} != {(2, "")}:
        time.sleep(0.1)
    with jms.connect(bus.urls["e"]) as context:
        consumer = context.consumer("/queue/of-b")
        assert [consumer.receive(30).body for _ in range(3)] == ["first", "before", "meanwhile"]
        context.send("/queue/of-c", "anew").wait(30)
        assert context.consumer("/queue/of-c").receive(30).body == "anew"
    while (report := bus.json("check", code=5))["waiting"] or report["outside_the_cut"]:  # c's log has no beginning
        time.sleep(0.1)
    assert report["clean"], report


def test_a_change_that_has_not_begun_is_given_up_for_a_server_that_is_lost(bus):
    """While the registry waits for its answer."""
    bus, servers = bus
    file = bus.file.read_text()
    bus.file.write_text(file.replace('"c"]\nordering = "matrix"', '"c"]\nordering = "ks"'))
    servers["c"].send_signal(signal.SIGSTOP)
    asked = bus.popen("topology", "apply", "--yes")
    while bus.json("topology", "status", code=5)[0]["phase"] != "ready":
        time.sleep(0.05)
    servers["c"].kill()
    servers["c"].wait()
    shutil.rmtree(bus.file.parent / "c")
    said = bus.mom("server", "lost", "c", "--yes").stdout
    assert "c lost, with all that lived there" in said  # the registry may have given it up by itself
    assert asked.wait(60) == 1 and "nothing has changed" in asked.stderr.read()
    servers["c"] = bus.serve("c")
    while not bus.all_up():
        time.sleep(0.1)
    assert {row["revision"] for row in bus.json("topology", "status")} == {1}


def test_what_is_not_lost_is_not_declared_so(bus):
    bus, servers = bus
    assert "c answers at" in bus.mom("server", "lost", "c", "--yes", code=1).stderr
    assert "a is the registry" in bus.mom("server", "lost", "a", "--yes", code=1).stderr
    assert "has no server z" in bus.mom("server", "lost", "z", "--yes", code=1).stderr
    for name in "ce":
        servers[name].kill()
        servers[name].wait()
    assert "c is a router" in bus.mom("server", "lost", "c", "e", "--yes", "--remove", code=1).stderr
    assert "e must be up to go on without c" in bus.mom("server", "lost", "c", "--yes", code=1).stderr
