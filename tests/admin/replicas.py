"""Servers with replicas as real processes, for tests."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from mombroker import jms
from mombroker.core.errors import MomError
from mombroker.net import adminclient, config
from tests.admin.processes import ROOT, Processes, free_ports

PATIENCE_S = 60


class Replicated(Processes):
    """A server with replicas among the processes.

    server   its name
    names    of its replicas
    url      with which clients find it
    """

    server = "main"
    names = ("r1", "r2", "r3")

    def ask(self, replica):
        """What a replica tells; None if it does not answer."""
        try:
            with adminclient.connect(config.load(self.file), f"{self.server}/{replica}") as client:
                return client.request("replicas")
        except MomError:
            return None

    def leader(self):
        """The name of the replica that serves, once there is one."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for replica in self.names:
                if (found := self.ask(replica)) is not None and found["leads"]:
                    return replica
            time.sleep(0.1)
        raise AssertionError([log.read_text() for log in self.folder.glob("*/log.txt")])

    def pid(self, replica):
        return int((self.folder / replica / "lock").read_text())

    def kill(self, replica):
        """Its process, with its disk."""
        os.kill(self.pid(replica), signal.SIGKILL)
        gone = (self.folder / replica).rename(self.folder / f"gone-{time.monotonic_ns()}")
        shutil.rmtree(gone)  # whoever starts it again makes a new one


class Trial(Replicated):
    """`mom run --replicas 3` in a folder of its own."""

    def __init__(self, folder):
        super().__init__(folder / "mombroker-data" / "mombroker.toml")
        first, *_ = free_ports(9)
        self.folder = folder / "mombroker-data"
        self.ports, self.http = [*range(first, first + 3)], [*range(first + 6, first + 9)]
        self.url = f"failover:({','.join(f'stomp://127.0.0.1:{port}' for port in self.ports)})"
        self.begin()

    def begin(self):
        first = self.ports[0]
        self.process = self.popen(
            "run", "--replicas", "3", "--stomp", f"127.0.0.1:{first}", "--listen", f"127.0.0.1:{first + 5}",
            "--http", f"127.0.0.1:{first + 6}", "--amqp", "none", "--data", str(self.folder), stderr=None,
        )  # fmt: skip

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0


class Bus(Replicated):
    """A plain server `b`, which is the registry, and `a`, which has replicas."""

    server = "a"
    names = ("a1", "a2", "a3")

    def __init__(self, folder):
        super().__init__(folder / "bus.toml")
        self.folder = folder
        ports = free_ports(8)
        places = [
            f'{{ name = "{name}", listen = "127.0.0.1:{ports[at]}", stomp = "127.0.0.1:{ports[at + 3]}", '
            f'data = "{name}" }}'
            for at, name in enumerate(self.names)
        ]
        self.ports = ports[3:6]
        self.url = ",".join(f"stomp://127.0.0.1:{port}" for port in self.ports)
        self.urls["b"] = f"stomp://127.0.0.1:{ports[7]}"
        self.file.write_text(
            f'[bus]\nname = "test"\nregistry = "b"\n[servers.a]\nanonymous = true\nreplicas = [{", ".join(places)}]\n'
            f'[servers.b]\nlisten = "127.0.0.1:{ports[6]}"\nstomp = "127.0.0.1:{ports[7]}"\nanonymous = true\n'
            'data = "b"\n[domains.d]\nservers = ["a", "b"]\n'
        )


class Proxy:
    """Passes on what comes to a port of its own, until it is cut; in both directions, or in none."""

    def __init__(self, port):
        self.to, self.cut = port, False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            near, _ = self.server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to), 1)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.sockets += near, far
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one, other):
        try:
            while data := one.recv(1 << 16):
                while self.cut:  # as on a network that loses everything: nobody is told
                    time.sleep(0.01)
                other.sendall(data)
        except OSError:
            pass
        one.close()
        other.close()


class Cut(Replicated):
    """A server `a`, whose replicas reach each other only through proxies."""

    server = "a"
    names = ("a1", "a2", "a3")

    def __init__(self, folder):
        super().__init__(folder / "bus.toml")
        self.folder = folder
        ports = free_ports(6)
        listen, self.ports = dict(zip(self.names, ports[:3], strict=True)), ports[3:]
        self.proxies = {
            (one, other): Proxy(listen[other]) for one in self.names for other in self.names if one != other
        }
        self.file.write_text(self._text(listen))
        self.processes = []
        for one in self.names:
            file = folder / f"{one}.toml"
            file.write_text(self._text({to: self.proxies[one, to].port if to != one else listen[to] for to in listen}))
            with (folder / f"{one}.txt").open("a") as log:
                words = [sys.executable, "-m", "mombroker.admin.cli.main", "serve", "-f", str(file), "-s", f"a/{one}"]
                self.processes.append(subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log))

    def _text(self, listen):
        places = [
            f'{{ name = "{name}", listen = "127.0.0.1:{listen[name]}", stomp = "127.0.0.1:{port}", '
            f'data = "{self.folder / name}" }}'
            for name, port in zip(self.names, self.ports, strict=True)
        ]
        return f'[bus]\nname = "test"\n[servers.a]\nanonymous = true\nreplicas = [{", ".join(places)}]\n'

    def cut_off(self, name, cut=True):
        for pair, proxy in self.proxies.items():
            if name in pair:
                proxy.cut = cut

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def receive_all(url, queue):
    with jms.connect(url) as context:
        consumer = context.consumer(queue)
        found = []
        while (message := consumer.receive(2)) is not None:
            found.append(message.body)
        return found
