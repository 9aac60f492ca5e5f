"""A queue moves between two live servers: through kills of both, and a long one with bounded memory."""

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from mombroker import jms
from tests.admin.processes import Processes, write_topology

ROW = "x" * 100


@contextmanager
def two_servers(folder):
    """Processes, the process of each server, and where its clients connect."""
    file = write_topology(folder, {"d": "ab"}, {}, "")
    bus = Processes(file)
    bus.listen("ab")
    servers = {server: bus.serve(server) for server in "ab"}
    try:
        until(bus.all_up)
        yield bus, servers, bus.urls
    finally:
        for process in servers.values():
            process.kill()
            process.communicate()


def until(true, seconds=300.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.05)


def fill(url, count):
    with jms.connect(url) as context:
        for number in range(count):
            context.send("/queue/big", f"{number} {ROW}")
        context.flush()


def number(message):
    return int(message.body.split()[0])


def seconds_of_cpu(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process):
    """In MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def test_kills_of_both_servers_only_make_a_move_slower(tmp_path):
    with two_servers(tmp_path) as (bus, servers, urls):
        fill(urls["a"], 3_000)
        bus.mom("queue", "move", "big", "--to", "b", "--no-wait", "-s", "a")
        for server in "abab":
            time.sleep(0.1)
            servers[server].kill()
            servers[server].communicate()
            servers[server] = bus.serve(server)
        until(bus.all_up)
        until(lambda: bus.json("queue", "show", "big")["home"] == "b")
        with jms.connect(urls["a"]) as context:
            consumer = context.consumer("/queue/big")
            assert [number(consumer.receive(timeout=20)) for _ in range(3_000)] == [*range(3_000)]
            assert consumer.receive(timeout=0.5) is None


@pytest.mark.long
@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_a_long_queue_moves_with_bounded_memory_while_clients_go_on(tmp_path, count):
    with two_servers(tmp_path) as (bus, servers, urls):
        fill(urls["a"], count)
        before = {server: memory(process) for server, process in servers.items()}
        got, peak, over, sent = [], dict(before), threading.Event(), 0

        def consume():
            with jms.connect(urls["b"]) as context:
                consumer = context.consumer("/queue/big")
                while not over.is_set():
                    message = consumer.receive(timeout=0.2)
                    if message is not None:
                        got.append(number(message))
                        time.sleep(0.001)

        def watch():
            while not over.wait(0.2):
                for server, process in servers.items():
                    peak[server] = max(peak[server], memory(process))

        threads = [threading.Thread(target=each) for each in (consume, watch)]
        for each in threads:
            each.start()
        began, cpu = time.monotonic(), {server: seconds_of_cpu(process) for server, process in servers.items()}
        bus.mom("queue", "move", "big", "--to", "b", "--no-wait")
        with jms.connect(urls["a"]) as context:
            while bus.json("queue", "show", "big")["home"] != "b":
                for _ in range(100):
                    context.send("/queue/big", f"{count + sent} {ROW}")
                    sent += 1
                context.flush()
                time.sleep(0.2)
        seconds = time.monotonic() - began
        used = {server: round(seconds_of_cpu(process) - cpu[server], 1) for server, process in servers.items()}
        over.set()
        for each in threads:
            each.join()
        told = f"MiB {before} at most {peak}, {len(got)} taken and {sent} sent meanwhile"
        print(f"{count} in {seconds:.1f} s, of CPU {used}, {told}")
        assert got == [*range(len(got))]
        until(lambda: bus.json("queue", "show", "big")["unacked"] == 0)
        assert bus.json("queue", "show", "big")["messages"] == count + sent - len(got)
        assert all(peak[server] - before[server] < 150 for server in "ab")
