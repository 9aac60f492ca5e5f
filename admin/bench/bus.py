"""A bus that is made to be measured: processes with one server or many, stores in a folder that is deleted."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import mombroker
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError
from mombroker.core.topology import Server, Topology

PATIENCE_S = 300.0
POLL_S = 0.05


class Bus:
    """Runs while it is open. `groups` are the servers of each process; those named in none do not run. A process of one
    replica is `[SERVER/REPLICA]`.

    python      has a mombroker of its own, by which the processes run. None: this one
    slow        ms by which each COMMIT of a process takes longer, by the first of its group
    began       monotonic seconds when the first process was started
    started_s   from then until all answered
    """

    def __init__(
        self,
        topology: Topology,
        groups: Sequence[Sequence[str]],
        *,
        clock: str = "ours",
        folder: Path | None = None,
        prepare: Callable[[Topology], None] = lambda topology: None,
        slow: dict[str, float] | None = None,
        python: Path | None = None,
    ):
        self.slow, self.python = slow or {}, python
        self.topology, self.groups, self.clock, self.prepare = topology, groups, clock, prepare
        self.processes: list[subprocess.Popen[bytes]] = []
        self.began = self.started_s = 0.0
        self._stack = ExitStack()
        self._parent = folder
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> Self:
        from mombroker.net import config

        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-", dir=self._parent)))
            self._place()
            file = self.folder / "bus.toml"
            file.write_text(config.dumps(self.topology))
            self.prepare(self.topology)
            self.began = time.monotonic()
            for group in self.groups:
                self.processes.append(self._process(file, group))
                stack.callback(self._end, self.processes[-1])
            for group in self.groups:
                self._await(group[0].partition("/")[0])
            self.started_s = time.monotonic() - self.began
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()
        self._stack.close()

    def _place(self) -> None:
        servers = self.topology.servers
        ports = iter(free_ports(sum(len(server.views()) for server in servers.values())))
        for server in list(servers.values()):
            data = str(self.folder / server.name)
            places = tuple(
                replace(place, host="127.0.0.1", port=next(ports), data=f"{data}-{place.name}")
                for place in server.replicas
            )
            port = places[0].port if places else next(ports)
            servers[server.name] = replace(server, host="127.0.0.1", port=port, data=data, replicas=places)

    def _process(self, file: Path, group: Sequence[str]) -> "subprocess.Popen[bytes]":
        module = "mombroker.admin.bench.process"
        command = [
            self.python or sys.executable,
            "-P",
            "-m",
            module,
            "--file",
            str(file),
            *group,
            "--clock",
            self.clock,
        ]
        command += ["--slow", str(self.slow.get(group[0], 0))]
        root = Path(mombroker.__file__).resolve().parent.parent
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
        if self.python:
            del env["PYTHONPATH"]
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def lose(self, label: str) -> None:
        """Kill a process, delete its folder, and start it again with nothing."""
        at = [group[0] for group in self.groups].index(label)
        self.processes[at].kill()
        self.processes[at].wait()
        view = self.topology.process(label)
        assert view is not None, "it has just run"
        shutil.rmtree(view.data)
        self.processes[at] = self._process(self.folder / "bus.toml", self.groups[at])
        self._stack.callback(self._end, self.processes[at])

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await(self, server: str) -> None:
        from mombroker.net import adminclient

        while True:
            try:
                self.ask(server, "status")
                return
            except adminclient.NotRunning:
                dead = [process for process in self.processes if process.poll() is not None]
                if dead or time.monotonic() - self.began > PATIENCE_S:
                    log = (self.folder / "log.txt").read_text(errors="replace").strip().splitlines()
                    raise MomError(f"{server} does not start: {log[-1] if log else 'it says nothing'}") from None
                time.sleep(POLL_S)

    # -- what is asked of it -----------------------------------------------------------------------------------------

    def ask(self, server: str, verb: str, **args: Any) -> dict[str, Any]:
        from mombroker.net import adminclient

        if server not in self._clients:
            self._clients[server] = adminclient.connect(self.topology, server, PATIENCE_S)
        answer: dict[str, Any] = self._clients[server].request(verb, **args)
        return answer

    def send(self, agent: str, type: str, **fields: Any) -> None:
        """From the agent's own server."""
        self.ask(self.home(agent), "send", to=[agent], type=type, fields=fields)

    def fields(self, agent: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(self.home(agent), "agent", agent=agent)["fields"]
        return found

    def until(self, agent: str, done: Callable[[dict[str, Any]], bool], poll_s: float = POLL_S) -> dict[str, Any]:
        """The agent's fields, once they are as wanted."""
        end = time.monotonic() + PATIENCE_S
        while not done(fields := self.fields(agent)):
            if time.monotonic() > end:
                raise MomError(f"{agent} does not come to its end in {PATIENCE_S:.0f} s: {fields}")
            time.sleep(poll_s)
        return fields

    def home(self, agent: str) -> str:
        return next(each.server for each in self.topology.agents if each.name == agent)

    def server(self, name: str) -> Server:
        return self.topology.servers[name]

    def memory(self, at: int = 0) -> tuple[int, int]:
        """Bytes of a process: those that it shares with no other, and all that are in memory."""
        text = Path(f"/proc/{self.processes[at].pid}/smaps_rollup").read_text()
        sizes = {words[0]: int(words[1]) * 1024 for words in map(str.split, text.splitlines()[1:])}
        return sizes["Private_Clean:"] + sizes["Private_Dirty:"], sizes["Rss:"]

    def peak(self, at: int = 0) -> int:
        """Bytes of a process that were in memory at most."""
        text = Path(f"/proc/{self.processes[at].pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024
