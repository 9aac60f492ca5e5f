"""Replicas that are cut off, or whose disk is full: nothing that has a receipt is lost, and clients go on."""

import resource
import socket
import threading
import time

import pytest

from mombroker import jms
from tests.admin.replicas import PATIENCE_S, Bus, Cut, receive_all


@pytest.fixture
def cut(tmp_path):
    made = Cut(tmp_path)
    yield made
    made.end()


class Steady(threading.Thread):
    """Sends numbers to a port, one after the other without waiting, and knows when which one had its receipt."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.receipts = {}
        self.over = False
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert self.socket.recv(4096).startswith(b"CONNECTED")
        threading.Thread(target=self._hear, daemon=True).start()

    def run(self):
        number = 0
        try:
            while not self.over:
                number += 1
                self.socket.sendall(f"SEND\ndestination:/queue/q\nreceipt:{number}\n\nold {number}\0".encode())
                time.sleep(0.002)
        except OSError:
            pass

    def _hear(self):
        rest = b""
        try:
            while data := self.socket.recv(1 << 16):
                *whole, rest = (rest + data).split(b"\0")
                for frame in whole:
                    if b"RECEIPT\n" in frame:
                        self.receipts[frame.partition(b"receipt-id:")[2].decode().strip()] = time.monotonic()
        except OSError:
            pass
        self.over = True


def test_a_leader_that_is_cut_off_gives_no_receipt_once_another_one_can_lead(cut):
    old = cut.leader()
    port = dict(zip(cut.names, cut.ports, strict=True))
    steady = Steady(port[old])
    steady.start()
    while len(steady.receipts) < 20:
        time.sleep(0.01)
    cut.cut_off(old)
    others = [name for name in cut.names if name != old]
    while not any((cut.ask(name) or {"leads": False})["leads"] for name in others):
        time.sleep(0.02)
    with jms.connect(",".join(f"stomp://127.0.0.1:{port[name]}" for name in others)) as context:
        context.send("q", "new 1")
        first = time.monotonic()
        end = first + PATIENCE_S
        while not steady.over:
            assert time.monotonic() < end, "it keeps its clients though it cannot serve them"
            time.sleep(0.01)
        assert max(steady.receipts.values()) < first, "there were two leaders"
        assert not cut.ask(old)["leads"]
        for number in range(2, 51):
            context.send("q", f"new {number}")
        cut.cut_off(old, cut=False)
        found = receive_all(",".join(f"stomp://127.0.0.1:{each}" for each in port.values()), "q")
    assert {f"old {number}" for number in steady.receipts} <= set(found)
    assert [each for each in found if each.startswith("new")] == [f"new {number}" for number in range(1, 51)]
    assert len(found) == len(set(found))


@pytest.fixture
def bus(tmp_path):
    made = Bus(tmp_path)
    made.up()
    yield made
    made.down()


def fill(bus, replica):
    """Of all that it writes nothing may be much larger from now on than its largest file is."""
    most = max(file.stat().st_size for file in (bus.folder / replica).iterdir()) + (64 << 10)
    resource.prlimit(bus.pid(replica), resource.RLIMIT_FSIZE, (most, most))


def send_until_it_ends(bus, context, replica):
    """Messages, until the replica has found its disk full; how many."""
    log, sent, end = bus.folder / replica / "log.txt", 0, time.monotonic() + PATIENCE_S
    while "is not started again" not in log.read_text():
        assert time.monotonic() < end, "it goes on with a full disk"
        for _ in range(20):
            context.send("q", str(sent) + "x" * 1000)
            sent += 1
    return sent


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_whose_disk_is_full_ends_and_the_others_go_on(bus, leads):
    leader = bus.leader()
    full = leader if leads else next(name for name in bus.names if name != leader)
    with jms.connect(bus.url) as context:
        context.send("q", "first")
        fill(bus, full)
        sent = send_until_it_ends(bus, context, full)
        for number in range(sent, sent + 200):  # with more it is behind
            context.send("q", str(number) + "x" * 1000)
    assert (bus.leader() == leader) is not leads
    assert f"2 of 3 replicas are up to date: {full}" in bus.mom("status").stdout
    assert receive_all(bus.url, "q") == ["first", *(str(number) + "x" * 1000 for number in range(sent + 200))]
    bus.mom("server", "start", f"a/{full}")  # somebody has made room
    end = time.monotonic() + PATIENCE_S
    while not all(row["up"] and not row["behind"] for row in bus.json("replica", "status", "-s", "a")):
        assert time.monotonic() < end, bus.json("replica", "status", "-s", "a")
        time.sleep(0.1)
    assert sorted(row["role"] for row in bus.json("replica", "status", "-s", "a")) == ["follower", "follower", "leader"]
