"""A queue moves between live servers when one of its homes, or the router between them, is killed, and perhaps lost."""

import shutil
import time

import pytest

from mombroker import jms
from tests.admin.processes import Processes, write_topology

SERVERS = "abcde"
COUNT = 2_000


@pytest.fixture
def bus(tmp_path):
    """c is the router between two domains; the queue lives on b and is to go to e."""
    made = Processes(write_topology(tmp_path, {"x": "abc", "y": "cde"}, {}, ""))
    made.listen(SERVERS)
    servers = {name: made.serve(name) for name in SERVERS}
    until(made.all_up)
    with jms.connect(made.urls["b"]) as context:
        for number in range(COUNT):
            context.send("/queue/big", str(number))
        context.flush()
    yield made, servers
    for each in servers.values():
        each.kill()
        each.wait()


def until(true, seconds=300.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def stop(servers, name):
    servers[name].kill()
    servers[name].wait()


def wipe(bus, servers, name):
    stop(servers, name)
    shutil.rmtree(bus.file.parent / name)


def half_done(bus, servers):
    """All has gone to the new home, and d is down, without which the name is not decided."""
    stop(servers, "d")
    bus.mom("queue", "move", "big", "--to", "e", "--no-wait", "-s", "b")

    def sent():
        return [[row["messages"] for row in bus.json("queue", "list", "-s", each)] for each in "be"] == [[0], [COUNT]]

    until(sent)


def home(bus, server):
    rows = [row for row in bus.json("queue", "list", "-s", server) if row["destination"] == "queue:big"]
    return [(row["home"], row["messages"]) for row in rows if not row["moving"]]


def taken(url, count):
    with jms.connect(url) as context:
        consumer = context.consumer("/queue/big")
        found = [consumer.receive(timeout=60).body for _ in range(count)]
        assert consumer.receive(timeout=0.5) is None
        return found


def test_the_old_home_is_lost(bus):
    bus, servers = bus
    half_done(bus, servers)
    wipe(bus, servers, "b")
    servers["d"] = bus.serve("d")
    bus.mom("server", "lost", "b", "--yes")
    until(lambda: home(bus, "e") == [("e", COUNT)])
    servers["b"] = bus.serve("b")
    until(bus.all_up)
    assert taken(bus.urls["a"], COUNT) == [str(number) for number in range(COUNT)]


def test_the_new_home_is_lost(bus):
    bus, servers = bus
    half_done(bus, servers)
    wipe(bus, servers, "e")
    servers["d"] = bus.serve("d")
    bus.mom("server", "lost", "e", "--yes")
    until(lambda: home(bus, "b") == [("b", 0)])
    servers["e"] = bus.serve("e")
    until(bus.all_up)
    with jms.connect(bus.urls["d"]) as context:
        context.send("/queue/big", "after").wait(30)
    assert taken(bus.urls["a"], 1) == ["after"]
    bus.mom("queue", "move", "big", "--to", "e")
    assert bus.json("queue", "show", "big")["home"] == "e"


def test_the_router_between_is_killed_and_comes_back(bus):
    bus, servers = bus
    bus.mom("queue", "move", "big", "--to", "e", "--no-wait", "-s", "b")
    for _ in range(3):
        time.sleep(0.1)
        stop(servers, "c")
        servers["c"] = bus.serve("c")
    until(bus.all_up)
    until(lambda: bus.json("queue", "show", "big")["home"] == "e")
    assert taken(bus.urls["a"], COUNT) == [str(number) for number in range(COUNT)]


def test_the_router_between_is_lost(bus):
    bus, servers = bus
    bus.mom("queue", "move", "big", "--to", "e", "--no-wait", "-s", "b")
    wipe(bus, servers, "c")
    letters = bus.json("server", "lost", "c", "--yes")["letters"]
    servers["c"] = bus.serve("c")
    until(bus.all_up)
    until(lambda: bus.json("queue", "show", "big")["home"] == "e")
    until(lambda: home(bus, "e"))
    there = home(bus, "e")[0][1]
    assert there + len(letters) == COUNT
    found = [int(text) for text in taken(bus.urls["a"], there)]
    assert found == sorted(set(found))
