"""Agent servers of this process on real sockets and files, turned by the test."""

import threading
import time

from twisted.internet.epollreactor import EPollReactor

from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.net.adminclient import AdminClient
from mombroker.net.committer import Inline
from mombroker.net.connection import Times
from mombroker.net.service import Host

PATIENCE_S = 60  # before a test gives up; nothing is measured by it
QUICK = Times(connect=1, login=5, tick=0.05, silent_ticks=100, idle_ticks=10**6, retry_first=0.01, retry_last=0.05)
NOTE = "tests.net.workers."


class Town:
    """Each server has a host of its own, hence can be stopped and started alone."""

    def __init__(self, folder, names="ab", times=QUICK, committer=Inline, secret=b"secret of the town", domains=None):
        self.reactor = EPollReactor()
        self.folder, self.names, self.times, self.committer = folder, names, times, committer
        self.domains = domains or {"d": tuple(names)}
        self.hosts = {}
        self.lines = {name: [] for name in names}
        self.ports = dict.fromkeys(names, 0)
        self.secrets = dict.fromkeys(names, secret)

    def topology(self, me):
        secret_file = None
        if self.secrets[me]:
            secret_file = self.folder / f"secret-{me}"
            secret_file.write_bytes(self.secrets[me])
            secret_file.chmod(0o600)
        servers = {
            name: Server(name, "127.0.0.1", self.ports[name], None, str(self.folder / name)) for name in self.names
        }
        domains = {name: Domain(name, tuple(members), "matrix") for name, members in self.domains.items()}
        boxes = [AgentDecl(f"box-{name}", name, "tests.net.workers:Box") for name in self.names]
        return Topology(
            "town", servers, domains, boxes, registry=self.names[0], secret_file=secret_file and str(secret_file)
        )

    def up(self, *names):
        """Start servers that learn each other's ports (and keep them for the whole test)."""
        hosts = {name: self._host(name) for name in names or self.names}
        for name, host in hosts.items():
            started = host.start()
            self.until(lambda started=started: started.called)
            failed = []
            started.addErrback(failed.append)
            if failed:
                del self.hosts[name]
                failed[0].raiseException()
            self.ports[name] = host.shared.topology.servers[name].port
        for host in self.hosts.values():
            for name, port in self.ports.items():
                host.shared.topology.servers[name].port = port
        return self

    def _host(self, name):
        host = Host(
            self.reactor, self.topology(name), [name], lambda name: self.lines[name].append, self.committer, self.times
        )
        self.hosts[name] = host
        return host

    def until(self, condition):
        """Turn the reactor until it holds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, (self.lines, {name: self.node(name).links.peers() for name in self.hosts})
            self.reactor.iterate(0.01)

    def pass_time(self, turns=3):
        for _ in range(turns):
            self.reactor.iterate(0)

    def node(self, name):
        return self.hosts[name].nodes[name]

    def down(self, *names):
        """Stop in good order."""
        for name in names or list(self.hosts):
            stopped = self.hosts[name].stop()
            self.until(lambda stopped=stopped: stopped.called)
            del self.hosts[name]

    def crash(self, name):
        """What a killed process leaves: sockets closed by the system, the open batch lost."""
        host = self.hosts.pop(name)
        node = host.nodes[name]
        self.until(lambda: node.driver._flying is None)
        node.driver.dead = True
        node.driver._cancel()
        node._still()
        node.abort()
        node.store.close()
        host._watchdog.stop()
        host.shared.stop()

    def do(self, work):
        """Do something that blocks in a thread of its own while the reactor turns; what it returns, or raises."""
        result = []

        def guarded():
            try:
                result.append((work(), None))
            except BaseException as error:
                result.append((None, error))

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self.until(lambda: result)
        thread.join()
        ((found, error),) = result
        if error is not None:
            raise error
        return found

    def tls(self, name):
        """What a client of `mom` has of TLS with a server: the file of those that sign, and the bus."""
        return None

    def ask(self, name, verb, **args):
        """What the operator gets, by the blocking client."""

        def work():
            token = (self.folder / name / "token").read_text().strip()
            with AdminClient(name, "127.0.0.1", self.ports[name], token, PATIENCE_S, tls=self.tls(name)) as client:
                return client.request(verb, **args)

        return self.do(work)

    def send(self, name, type, to, **fields):
        return self.ask(name, "send", to=[to], type=NOTE + type, fields=fields)

    def got(self, name):
        """What the box of a server has in its durable state."""
        return self.ask(name, "agent", agent=f"{name}/box-{name}")["fields"]["got"]

    def until_got(self, name, expected):
        end = time.monotonic() + PATIENCE_S
        while self.got(name) != expected:
            assert time.monotonic() < end, (self.got(name), expected, self.lines)
