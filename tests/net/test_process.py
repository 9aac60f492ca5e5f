"""A server as a process of its own: signals, exit codes, what its files hold afterwards."""

import fcntl
import os
import pty
import resource
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from mombroker import store
from mombroker.agents import notifications as notes
from mombroker.core import message
from mombroker.core.errors import MomError
from mombroker.net import adminclient, config
from mombroker.stomp.frames import encode
from tests.net import workers
from tests.net.town import NOTE, PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
SERVE = """
import sys
from mombroker.core.errors import MomError
from mombroker.net import config, service
def load():
    return config.load(sys.argv[1])
try:
    sys.exit(service.serve(load(), sys.argv[2], load=load if "reloads" in sys.argv else None))
except MomError as error:
    sys.exit(f"refused: {error}")
"""
# A SIGHUP comes before the reactor runs, another one before the store is open.
STARTING = (
    """
import os, signal
from mombroker.net import service
class Host(service.Host):
    def run(self):
        os.kill(os.getpid(), signal.SIGHUP)
        return super().run()
    async def _start(self):
        os.kill(os.getpid(), signal.SIGHUP)
        return await super()._start()
service.Host = Host
"""
    + SERVE
)
FILE = """
[bus]
name = "one"
[servers.a]
listen = "127.0.0.1:{port}"
data = "a"
stomp = "127.0.0.1:{stomp}"
anonymous = true
[[agents]]
name = "box"
server = "a"
class = "tests.net.workers:Box"
"""


class Process:
    """One server of a topology file in its own process."""

    def __init__(self, folder):
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            port, self.stomp = free.getsockname()[1], other.getsockname()[1]
        self.file = folder / "bus.toml"
        self.file.write_text(FILE.format(port=port, stomp=self.stomp))
        self.running = []

    def start(self, *words, code=SERVE, **rest):
        errors = open(self.folder / "stderr", "ab")
        command = [sys.executable, "-c", code, str(self.file), "a", *words]
        self.running.append(subprocess.Popen(command, cwd=ROOT, stderr=errors, **rest))
        errors.close()
        return self.running[-1]

    def client(self):
        """Connected, as soon as the server listens."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return adminclient.connect(config.load(self.file), "a", PATIENCE_S)
            except MomError:
                assert self.running[-1].poll() is None and time.monotonic() < end, self.lines()
                time.sleep(0.02)

    def until(self, words):
        """Wait for a line of its log; that line."""
        end = time.monotonic() + PATIENCE_S
        while not (found := [line for line in self.lines() if words in line]):
            assert time.monotonic() < end, self.lines()
            time.sleep(0.02)
        return found[-1]

    def lines(self):
        return (self.folder / "stderr").read_text().splitlines()


@pytest.fixture
def server(tmp_path):
    made = Process(tmp_path)
    yield made
    for each in made.running:
        if each.poll() is None:
            each.kill()
        each.wait(PATIENCE_S)


def flood(client, count, size=10):
    """Requests without waiting for the answers; returns the texts sent."""
    sent = []
    for at in range(count):
        sent.append(f"{at}".ljust(size, "."))
        client._send([at, "send", {"to": ["a/box"], "type": NOTE + "Note", "fields": {"text": sent[-1]}}])
    return sent


def answers(client, done=0):
    """How many requests were answered, after the first `done`, before the connection ended."""
    try:
        while True:
            number, good, result = client._receive()
            assert (number, good) == (done, True), result
            done += 1
    except MomError:
        return done


def kept(server):
    """The texts that the store holds: those that the box has, then those that wait for it; and whether it is clean."""
    reader = store.read(server.folder / "a")
    try:
        _, state = reader.agent("a/box")
        waiting = [message.decode(row.data) for row in reader.queue_in("a/box", 0, 2**62, 10**6)]
        assert {each.type for each in waiting} <= {workers.Note.__wire_name__}
        texts = [notes.decode(each.type, each.payload).text for each in waiting]
        return notes.unpack(state)["got"] + texts, reader.meta()["clean"]
    finally:
        reader.close()


def test_sigterm_drains_and_what_was_answered_is_kept(server):
    process = server.start()
    with server.client() as client:
        sent = flood(client, 300)
        client._receive()
        process.send_signal(signal.SIGTERM)
        done = answers(client, 1)
    assert process.wait(PATIENCE_S) == 0
    assert server.lines()[-1].endswith("Z a stopped")
    texts, clean = kept(server)
    assert texts == sent[: len(texts)] and len(texts) >= done and clean == 1


def test_what_was_answered_survives_kill_9_and_is_there_once_after_the_next_start(server):
    process = server.start()
    with server.client() as client:
        sent = flood(client, 200)
        for _ in range(50):
            client._receive()
        process.kill()
        done = answers(client, 50)
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    texts, clean = kept(server)
    assert texts == sent[: len(texts)] and len(texts) >= done and clean == 0
    server.start()
    with server.client() as client:
        end = time.monotonic() + PATIENCE_S
        while (got := client.request("agent", agent="a/box")["fields"]["got"]) != texts:
            assert got == texts[: len(got)] and time.monotonic() < end


def test_a_disk_that_takes_no_more_ends_the_process_with_3(server):
    """The limit of a file's size stands for the end of the disk: SQLite's write fails in the midst of a commit."""
    size = 1_000_000

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    process = server.start(preexec_fn=limit)
    with server.client() as client:
        sent = flood(client, 60, 50_000)
        done = answers(client)
    assert process.wait(PATIENCE_S) == 3
    lines = server.lines()
    assert 0 < done < 60 and "cannot write" in lines[-1] and "start again" in lines[-1]
    assert len(lines) == 2  # one that it serves, one that it cannot go on
    assert kept(server) == (sent[:done], 0)


def test_a_second_process_is_refused_with_1_and_the_operator_ends_the_first_with_0(server):
    process = server.start()
    server.client().close()
    again = server.start()
    assert again.wait(PATIENCE_S) == 1
    assert "refused: " in server.lines()[-1] and "is in use by process" in server.lines()[-1]
    token = (server.folder / "a" / "token").read_text().strip()
    assert token.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    server.running.remove(again)
    with server.client() as client:
        assert client.request("stop") == {"stopping": "a"}
    assert process.wait(PATIENCE_S) == 0, server.lines()
    assert kept(server) == ([], 1)
    assert token not in "\n".join(server.lines())


def test_sigterm_while_it_starts_is_a_clean_end_too(server):
    process = server.start()
    while not (server.folder / "a" / "store.sqlite").exists() and process.poll() is None:
        time.sleep(0.002)
    process.terminate()
    assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)  # before the reactor runs the signal has its default
    store.open(server.folder / "a", config.load(server.file), "a").close()


def clean(server):
    reader = store.read(server.folder / "a")
    try:
        return reader.meta()["clean"]
    finally:
        reader.close()


def test_at_sighup_a_server_reads_its_settings_anew_and_a_wrong_file_leaves_them(server):
    process = server.start("reloads", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 1_000)))
    server.client().close()
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (1_000, 1_000)  # raised to what is granted
    text = server.file.read_text()
    for more, words in (
        ("[limits]\nmax_message = 1000\n", "a has read its settings anew"),
        ("[limits]\nmax_message = true\n", "a keeps the settings that it has: "),
        (
            "[limits]\nmax_message = 1000\n[[policies]]\nmatch = 'queue:a'\n",
            "a goes by revision 1 of the topology, which its store has; the file would change that",
        ),
    ):
        server.file.write_text(text + more)
        process.send_signal(signal.SIGHUP)
        server.until(words)
    with server.client() as client:
        fields = {"text": "x" * 2_000}
        with pytest.raises(MomError, match="over max_message = 1000"):
            client.request("send", to=["a/box"], type=NOTE + "Note", fields=fields)
        server.file.write_text(text)
        assert client.request("reload") == {"server": "a", "notes": []}
        client.request("send", to=["a/box"], type=NOTE + "Note", fields=fields)


def obeying():
    """As from a shell: a run of the tests by nohup ignores SIGHUP, and so would what it starts."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_without_a_file_to_read_anew_sighup_is_a_clean_stop(server):
    process = server.start(preexec_fn=obeying)
    server.client().close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(PATIENCE_S) == 0
    assert server.lines()[-1].endswith("Z a stopped") and clean(server) == 1


@pytest.mark.parametrize("words", [("reloads",), ()])
def test_a_sighup_that_comes_while_a_server_starts_is_obeyed_when_it_has_started(server, words):
    process = server.start(*words, code=STARTING, preexec_fn=obeying)
    server.until("has read its settings anew" if words else "a stopped")
    if words:
        process.terminate()
    assert process.wait(PATIENCE_S) == 0
    told = [line.split(" ", 2)[2] for line in server.lines()]
    assert told[0].startswith("serves ") and told[-1] == "stopped"
    assert set(told[1:-1]) == ({"has read its settings anew"} if words else set())


def test_when_its_terminal_is_closed_a_server_stops_in_good_order(server):
    ours, its = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(its, termios.TIOCSCTTY, 0)

    process = server.start("reloads", stdin=its, preexec_fn=take_terminal)
    os.close(its)
    server.client().close()
    process.send_signal(signal.SIGHUP)
    server.until("has read its settings anew")
    os.close(ours)
    assert process.wait(PATIENCE_S) == 0
    assert server.lines()[-1].endswith("Z a stopped") and clean(server) == 1


def test_without_file_descriptors_new_clients_wait_and_all_else_goes_on(server):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    process = server.start(preexec_fn=limit)
    server.client().close()
    connect = encode("CONNECT", [("accept-version", "1.2")])
    wires = []
    for _ in range(120):
        wires.append(socket.create_connection(("127.0.0.1", server.stomp), PATIENCE_S))
        wires[-1].sendall(connect)
    server.until("short of file descriptors (it has 64): new clients wait")
    with server.client() as client:
        answered, end = [], time.monotonic() + PATIENCE_S
        while not answered or len(answered) != client.request("status")["stomp"]["clients"]:
            assert time.monotonic() < end, server.lines()
            answered, _, _ = select.select(wires, [], [], 0.05)
        assert 10 < len(answered) < 55
        sent = client.request("send", to=["a/box"], type=NOTE + "Note", fields={"text": "x"})
        assert sent["to"] == ["a/box"]
        assert "short of file descriptors" in client.request("status")["problems"][-1]
    assert all(wire.recv(100).startswith(b"CONNECTED") for wire in answered)
    before = cpu(process)
    time.sleep(0.5)
    assert cpu(process) - before < 0.25
    left = [wire for wire in wires if wire not in answered]
    while left:
        for wire in answered:
            wire.close()
        answered, _, _ = select.select(left, [], [], PATIENCE_S)
        assert answered and all(wire.recv(100).startswith(b"CONNECTED") for wire in answered)
        left = [wire for wire in left if wire not in answered]
    for wire in answered:
        wire.close()
    server.until("has file descriptors again")
    assert len([line for line in server.lines() if "short of file" in line]) == 1


def cpu(process):
    """Seconds of a processor that it has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
