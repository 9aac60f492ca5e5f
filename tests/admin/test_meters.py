"""What servers log of their links and disks is what the system has counted: sockets, and /proc."""

import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from mombroker import store
from tests.admin.test_kills import SERVERS, bank


def sent_by_sockets(ports: set[int]) -> int:
    """Bytes that the connections of these ports have sent, both ends added up."""
    lines = subprocess.run(["ss", "-tinHO"], capture_output=True, text=True, check=True).stdout.splitlines()
    mine = [line for line in lines if {int(port) for port in re.findall(r"127\.0\.0\.1\]?:(\d+)", line)} & ports]
    return sum(int(count) for line in mine for count in re.findall(r"bytes_sent:(\d+)", line))


@pytest.mark.skipif(not shutil.which("ss") or not Path("/proc/self/io").exists(), reason="this needs ss and /proc")
def test_wire_and_disk_are_what_the_system_counts(tmp_path):
    bus = bank(tmp_path, 60)
    servers = {name: bus.serve(name) for name in SERVERS}
    while not bus.all_up():
        pass
    report = bus.settle()
    ports = {int(port) for port in re.findall(r'listen = "127.0.0.1:(\d+)"', bus.file.read_text())}
    sockets = sent_by_sockets(ports)
    io = {
        name: int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{each.pid}/io").read_text(), re.M)[1])
        for name, each in servers.items()
    }
    for each in servers.values():
        each.send_signal(signal.SIGTERM)
    assert [each.wait() for each in servers.values()] == [0] * len(servers)

    found, commits = Counter(), Counter()
    for name in SERVERS:
        reader = store.read(tmp_path / name)
        for _, record in reader.log(0, 1 << 40):
            if record.kind == "meter":
                found[record.detail, name] += record.payload
                assert 0 < record.sent <= record.done and bool(record.peer) == (record.detail == "wire_bytes")
                domain = "d2" if "d" in (name, record.peer) else "d1"
                assert record.domain == (domain if record.peer else "")
        commits[name] = sum(each.commits for each in reader.commits(0, 1 << 40, 1 << 30))
        reader.close()
    assert report["sends"] > 400 and sockets > 50_000
    wire = sum(count for (figure, _), count in found.items() if figure == "wire_bytes")
    assert wire == pytest.approx(sockets, rel=0.01)
    for name in SERVERS:
        assert -1 <= found["wal_syncs", name] - commits[name] <= 0.1 * commits[name] + 40
        if io[name]:  # else its file system is in memory
            assert found["disk_bytes", name] == pytest.approx(io[name], rel=0.1)
            assert 0.5 * io[name] < found["wal_bytes", name] < io[name]
    print(wire, sockets, {k: v for k, v in found.items() if k[0] != "wire_bytes"}, io, commits)
