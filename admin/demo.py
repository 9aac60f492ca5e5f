"""A project's history on a real bus: processes, sockets, files, and routers that are killed while it works.

Each author is an agent (examples/git_history.py). What comes out is judged three times: by the authors themselves, by
the outsider's check over the logs, and by counting.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mombroker
from mombroker import store
from mombroker.admin import supervisor
from mombroker.admin.audit import bus as audit
from mombroker.agents.notifications import unpack
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl, Server, Topology

AUTHOR = "examples.git_history:Author"
POLL_S = 0.2
STALL_S = 60.0  # without any progress: then the run is over, and the check says what is missing
ANSWER_S = 2.0

Say = Callable[[str], None]


def examples() -> Path:
    """The folder of the examples, importable from now on. Raises MomError where the project was installed without."""
    root = Path(mombroker.__file__).resolve().parent.parent
    if not (root / "examples" / "git_history.py").exists():
        raise MomError(f"there are no examples in {root}: run the demo in a copy of the project, by `make demo`")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return root / "examples"


def staged(topology: Topology, folder: Path, history: Path, authors: int) -> Topology:
    """The same servers and domains on free local ports with stores in `folder`, and the authors spread over them."""
    names = list(topology.servers)
    ports = free_ports(len(names))
    servers = {
        name: Server(name, "127.0.0.1", port, data=str(folder / name)) for name, port in zip(names, ports, strict=True)
    }
    agents = [
        AgentDecl(
            f"author{number}",
            names[number % len(names)],
            AUTHOR,
            {"history": str(history), "author": number, "authors": authors},
        )
        for number in range(authors)
    ]
    return Topology(
        topology.name, servers, topology.domains, agents, topology.registry, limits=topology.limits,
        log={"enabled": True},
    )  # fmt: skip


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Show:
    """Watches the authors through the admin ports, kills routers on the way, and ends the run when all have seen all.

    progress   told (commits seen by an average author, commits)
    """

    topology: Topology
    commits: int
    kills: int
    progress: Callable[[int, int], None]
    say: Say
    killed: list[str] = field(default_factory=list)
    stalled: bool = False
    given_up: str = ""  # a server that is not started again
    _pids: dict[str, int] = field(default_factory=dict)  # of servers that run
    _left: dict[str, list[str]] = field(default_factory=dict)  # server -> its authors that have not seen all
    _seen: dict[str, int] = field(default_factory=dict)  # of the first of these
    _clients: dict[str, Any] = field(default_factory=dict)
    _moved: float = 0.0  # when something was seen last
    _over: bool = False

    def __post_init__(self) -> None:
        for agent in self.topology.agents:
            self._left.setdefault(agent.server, []).append(f"{agent.server}/{agent.name}")
        self._seen = dict.fromkeys(self._left, 0)
        self._moved = time.monotonic()

    def started(self, server: str, pid: int) -> None:
        self._pids[server] = pid

    def ended(self, server: str, text: str, again: bool) -> None:
        self._pids.pop(server, None)
        if client := self._clients.pop(server, None):
            client.close()
        if text != "stopped":
            self.say(f"{server} {text.partition(': ')[0]}")
        if not again and not self._over:
            self.given_up = f"{server} {text}"
            self._end()

    def tick(self) -> float:
        if self._over:
            return supervisor.NEVER
        before = sum(self._seen.values())
        for server in self._seen:
            self._look(server)
        now, seen = time.monotonic(), sum(self._seen.values())
        self.progress(seen // max(1, len(self._seen)), self.commits)
        if seen > before:
            self._moved = now
        self.stalled = now - self._moved > STALL_S
        if seen == self.commits * len(self._seen) or self.stalled:
            if missed := self.kills - len(self.killed):
                self.say(f"the run was over before {missed} of {self.kills} kills: give it a longer history")
            self._end()
        elif len(self.killed) < self.kills and self._due(seen):
            self._kill()
        return POLL_S

    def _due(self, seen: int) -> bool:
        """The kills are spread over the run."""
        return seen * (self.kills + 1) >= self.commits * len(self._seen) * (len(self.killed) + 1)

    def _kill(self) -> None:
        """Of those that run: the one that was killed least often, in the order of the topology. If none runs, later."""
        running = [name for name in self.topology.routers or self.topology.servers if name in self._pids]
        if running:
            server = min(running, key=self.killed.count)
            self.say(f"kill -9 of {'router' if server in self.topology.routers else 'server'} {server}")
            os.kill(self._pids.pop(server), signal.SIGKILL)
            self.killed.append(server)

    def _end(self) -> None:
        self._over = True
        for client in self._clients.values():
            client.close()
        signal.raise_signal(signal.SIGTERM)  # to the supervisor that calls us, in this thread

    def _look(self, server: str) -> None:
        """How far the first author of this server is that has not seen all."""
        from mombroker.net import adminclient

        left = self._left[server]
        try:
            while left:
                if server not in self._clients:
                    self._clients[server] = adminclient.connect(self.topology, server, ANSWER_S)
                self._seen[server] = self._clients[server].request("agent", agent=left[0])["fields"]["seen"]
                if self._seen[server] < self.commits:
                    return
                left.pop(0)
        except MomError:  # it is not up, or the author not made: look again later
            if client := self._clients.pop(server, None):
                client.close()


def run(topology: Topology, show: Show) -> None:
    """The servers as processes, until the show is over. Raises MomError if one of them could not go on."""
    from mombroker.net import service  # loaded once, before the servers are forked

    children = [supervisor.Child(server.name, Path(server.data)) for server in topology.servers.values()]
    supervisor.Supervisor(children, lambda name: service.serve(topology, name), show).run()
    if show.given_up:
        raise MomError(f"{show.given_up}; see {supervisor.LOG} in its folder")


# -- figures -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """What the logs say of a run. Times are in ns."""

    messages: int = 0  # sent by agents
    reactions: int = 0
    hops: int = 0  # messages crossing a link
    control_bytes: int = 0  # on all of these
    held: int = 0
    began: int = 0
    ended: int = 0
    latencies: list[int] = field(default_factory=list)  # from send to reaction, sorted

    def latency_ms(self, part: float) -> float:
        at = min(int(part * len(self.latencies)), len(self.latencies) - 1)
        return self.latencies[at] / 1e6 if self.latencies else 0.0

    @property
    def seconds(self) -> float:
        return max(1, self.ended - self.began) / 1e9


def figures(stores: dict[str, Any], type: str) -> Figures:
    """Of the messages of one notification type; what else there is (creations) is no part of the run."""
    found = Figures()
    ids: set[tuple[str, int]] = set()
    reactions: list[tuple[tuple[str, int], int, int]] = []
    for reader in stores.values():
        after = 0
        while page := reader.log(after, audit.PAGE):
            after = page[-1][0]
            for _, record in page:
                kind, id, sent, done = record.kind, (record.origin, record.number), record.sent, record.done
                if kind == "send" and record.detail == type:
                    ids.add(id)
                elif kind == "react":
                    reactions.append((id, sent, done))
                elif kind == "hold":
                    found.held += 1
                for _, _, control, _ in record.out:
                    found.hops += 1
                    found.control_bytes += control
    mine = [(sent, done) for id, sent, done in reactions if id in ids]
    found.messages, found.reactions = len(ids), len(mine)
    found.latencies = sorted(done - sent for sent, done in mine)
    found.began = min((sent for sent, _ in mine), default=0)
    found.ended = max((done for _, done in mine), default=0)
    return found


def authors(topology: Topology, stores: dict[str, Any]) -> list[dict[str, Any]]:
    """The last state of every author; one that was never made has seen nothing."""
    rows = (stores[agent.server].agent(f"{agent.server}/{agent.name}") for agent in topology.agents)
    blank = {"seen": 0, "published": 0, "violations": 0, "duplicates": 0}
    return [unpack(row[1]) if row else blank for row in rows]


def judge(
    topology: Topology, commits: int, show: Show, progress: Callable[[int], None] = lambda _: None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the table's rows, the last line). Where authors and check differ, the last line takes the worse."""
    stores = {name: store.read(server.data) for name, server in topology.servers.items()}
    try:
        found = audit.audit(topology, stores, progress)
        seen = authors(topology, stores)
        measured = figures(stores, "examples.git_history.Commit")
    finally:
        for reader in stores.values():
            reader.close()
    ours = {
        "violations": sum(each["violations"] for each in seen),
        "lost": sum(commits - each["seen"] for each in seen),
        "duplicated": sum(each["duplicates"] for each in seen),
    }
    checks = {
        "violations": len(found.violations) + len(found.unsent),
        "lost": len(found.lost),
        "duplicated": len(found.duplicates),
    }
    table = {
        "servers, domains, routers": f"{len(topology.servers)}, {len(topology.domains)}, {len(topology.routers)}",
        "authors": len(seen),
        "messages": measured.messages,
        "reactions": measured.reactions,
        "hops": measured.hops,
        "seconds": round(measured.seconds, 1),
        "messages per second": round(measured.messages / measured.seconds),
        "reactions per second": round(measured.reactions / measured.seconds),
        "latency p50, p99 ms": f"{measured.latency_ms(0.5):.1f}, {measured.latency_ms(0.99):.1f}",
        "control bytes per message and hop": round(measured.control_bytes / max(1, measured.hops), 1),
        "held for their causes": measured.held,
        "killed": ", ".join(show.killed),
        **{f"{name}, by the authors": count for name, count in ours.items()},
        **{f"{name}, by the check": count for name, count in checks.items()},
        "check": f"{'clean' if found.clean else 'NOT CLEAN'}: {found.sends} sends, {found.reactions} reactions judged",
    }
    last = {"messages": measured.messages, "kills": len(show.killed)}
    last |= {name: max(ours[name], checks[name]) for name in ours}
    return table, last
