"""A project's history on a real bus: processes, sockets, files, and routers that are killed and domains that change.

Each author is an agent (examples/git_history.py). What comes out is judged three times: by the authors themselves, by
the outsider's check over the logs, and by counting.
"""

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mombroker
from mombroker import store
from mombroker.admin import reshape, supervisor
from mombroker.admin.audit import bus as audit
from mombroker.admin.audit import routes
from mombroker.agents.notifications import unpack
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl, Server, Topology
from mombroker.store import folder as folders

AUTHOR = "examples.git_history:Author"
POLL_S = 0.2
STALL_S = 60.0  # without any progress: then the run is over, and the check says what is missing
ANSWER_S = 2.0
SITE = "lille"  # that joins
PORTS = 10_000, 32_000  # below those that systems give by themselves

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
    """Ports that nobody uses, below those that a system gives to whoever connects, or wants any one: nobody gets one
    of them while its server is down. They are in a row, so that whoever has begun to use some of a row is met."""
    while True:
        first = random.randrange(*PORTS)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return [*range(first, first + count)]


# -- what changes ------------------------------------------------------------------------------------------------------

Made = tuple[str, Topology | None]  # in words, and the topology; none if that has no place for such a change


def first(given: list[Any]) -> Any:
    return given[0]


def join(topology: Topology, folder: Path) -> Made:
    name = next(each for each in (SITE, *(f"{SITE}{at}" for at in range(2, 100))) if each not in topology.servers)
    (port,) = free_ports(1)
    new = reshape.joined(topology, Server(name, "127.0.0.1", port, data=str(folder / name)), first)
    return f"site {name} joins behind {new.domains_of(name)[0].members[0]}", new


def split(topology: Topology, folder: Path) -> Made:
    new = reshape.split(topology, first)
    if new is None:
        return "no domain has three servers", None
    made = new.domains.keys() - topology.domains.keys()
    name = next(name for name in topology.domains if new.domains[name] != topology.domains[name])
    return f"domain {name} is split into {name} and {', '.join(made)}", new


def reroute(topology: Topology, folder: Path) -> Made:
    """The site that has joined becomes a router."""
    server = next(name for name in reversed(topology.servers) if name.startswith(SITE))
    new = reshape.rerouted(topology, server, first)
    if new is None:
        return f"there is no domain behind that of {server}", None
    name = next(name for name in topology.domains if new.domains[name] != topology.domains[name])
    (former,) = set(topology.domains[name].members) - set(new.domains[name].members)
    return f"{server} takes over from {former} as the router of {name}", new


CHANGES = (("a site joins", join), ("a domain is split", split), ("a router moves", reroute))


# -- the run -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Show:
    """Watches the authors through the admin ports, kills routers and changes the bus on the way, and ends the run when
    all have seen all.

    topology   in force
    progress   told (commits seen by an average author, commits)
    changes    how many of CHANGES are to be made
    children   of the supervisor, for a site that joins
    """

    topology: Topology
    commits: int
    kills: int
    progress: Callable[[int, int], None]
    say: Say
    changes: int = 0
    children: list[supervisor.Child] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)  # what the last line says of them
    killed: list[str] = field(default_factory=list)
    stalled: bool = False
    given_up: str = ""  # a server that is not started again
    _pids: dict[str, int] = field(default_factory=dict)  # of servers that run
    _left: dict[str, list[str]] = field(default_factory=dict)  # server -> its authors that have not seen all
    _seen: dict[str, int] = field(default_factory=dict)  # of the first of these
    _begun: set[str] = field(default_factory=set)  # servers that have answered, and so have a store
    _clients: dict[str, Any] = field(default_factory=dict)
    _moved: float = 0.0  # when something was seen last
    _due_look: float = 0.0  # when to ask the authors
    _what: str = ""  # the change that is under way
    _tried: int = 0  # of CHANGES
    _over: bool = False
    _reshaper: reshape.Reshaper = field(init=False)

    def __post_init__(self) -> None:
        for agent in self.topology.agents:
            self._left.setdefault(agent.server, []).append(f"{agent.server}/{agent.name}")
        self._seen = dict.fromkeys(self._left, 0)
        self._moved = time.monotonic()
        self._reshaper = reshape.Reshaper(self.topology)

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
        if self._reshaper.under_way:
            self._follow()
        if (wait := self._due_look - time.monotonic()) > 0:
            return min(wait, self._pace())
        before = sum(self._seen.values())
        for server in self._seen:
            self._look(server)
        self._begun |= {server for server in self.topology.servers.keys() - self._begun if self._answers(server)}
        now, seen = time.monotonic(), sum(self._seen.values())
        self._due_look = now + POLL_S
        self.progress(seen // max(1, len(self._seen)), self.commits)
        if seen > before:
            self._moved = now
        self.stalled = now - self._moved > STALL_S
        at_rest = not self._reshaper.under_way and self._begun >= self.topology.servers.keys()
        if (seen == self.commits * len(self._seen) and at_rest) or self.stalled:
            if missed := self.changes - self._tried:
                self.say(f"the run was over before {missed} of {self.changes} changes: give it a longer history")
            if missed := self.kills - len(self.killed):
                self.say(f"the run was over before {missed} of {self.kills} kills: give it a longer history")
            self._end()
        elif len(self.killed) < self.kills and self._due(seen, len(self.killed), self.kills):
            self._kill()
        elif self._tried < self.changes and self._due(seen, self._tried, self.changes):
            self._change()
        return self._pace()

    def _pace(self) -> float:
        return reshape.LOOK_S if self._reshaper.under_way else POLL_S

    def _due(self, seen: int, done: int, of: int) -> bool:
        """Kills are spread over the run, and so are changes."""
        return seen * (of + 1) >= self.commits * len(self._seen) * (done + 1)

    def _change(self) -> None:
        """Begin the next one, if everybody runs; else later."""
        if self._reshaper.under_way or not self._pids.keys() >= self.topology.servers.keys():
            return
        name, make = CHANGES[self._tried]

        def made(topology: Topology) -> Topology | None:
            self._what, new = make(topology, Path(next(iter(topology.servers.values())).data).parent)
            return new

        self._what = ""
        if self._reshaper.begin(made):
            self._tried += 1
            self._moved = time.monotonic()
        elif self._what:  # it was asked for one, and there is none
            self.say(f"{name}: {self._what}")
            self._tried += 1

    def _follow(self) -> None:
        step = self._reshaper.look()
        if step is None:
            if not self._reshaper.under_way:  # somebody was killed before it began
                self.say(f"not yet: {self._reshaper.refused[-1]}")
                self._tried -= 1
            return
        former, self.topology = self.topology, self._reshaper.topology
        for name, server in self.topology.servers.items():
            if name not in former.servers:
                self.children.append(supervisor.Child(name, folders.make(Path(server.data))))
        self.changed.append({"revision": step.revision, "kind": step.kind, "what": self._what})
        self.say(f"{self._what}: revision {step.revision}")

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
        self._reshaper.close()
        for client in self._clients.values():
            client.close()
        signal.raise_signal(signal.SIGTERM)  # to the supervisor that calls us, in this thread

    def _client(self, server: str) -> Any:
        """Raises MomError while it is not up."""
        from mombroker.net import adminclient

        if server not in self._clients:
            self._clients[server] = adminclient.connect(self.topology, server, ANSWER_S)
        return self._clients[server]

    def _answers(self, server: str) -> bool:
        try:
            self._client(server)
        except MomError:
            return False
        return True

    def _look(self, server: str) -> None:
        """How far the first author of this server is that has not seen all."""
        left = self._left[server]
        try:
            while left:
                self._seen[server] = self._client(server).request("agent", agent=left[0])["fields"]["seen"]
                if self._seen[server] < self.commits:
                    return
                left.pop(0)
        except MomError:  # it is not up, or the author not made: look again later
            if client := self._clients.pop(server, None):
                client.close()


def run(topology: Topology, show: Show) -> None:
    """The servers as processes, until the show is over. Raises MomError if one of them could not go on."""
    from mombroker.net import service  # loaded once, before the servers are forked

    show.children = [supervisor.Child(server.name, Path(server.data)) for server in topology.servers.values()]
    supervisor.Supervisor(show.children, lambda name: service.serve(show.topology, name), show).run()
    if show.given_up:
        raise supervisor.given_up(show.given_up, show.children)


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
        while page := reader.log(after, routes.PAGE):
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
        pauses = reshape.pauses(stores)
    finally:
        for reader in stores.values():
            reader.close()
    for change in show.changed:
        change["pause_ms"] = round(max(pauses.get(change["revision"], [0.0])))
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
        **{f"revision {each['revision']}": f"{each['what']}, {_paused(each['pause_ms'])}" for each in show.changed},
        **{f"{name}, by the authors": count for name, count in ours.items()},
        **{f"{name}, by the check": count for name, count in checks.items()},
        "check": f"{'clean' if found.clean else 'NOT CLEAN'}: {found.sends} sends, {found.reactions} reactions judged",
    }
    last: dict[str, Any] = {"messages": measured.messages, "kills": len(show.killed), "changes": show.changed}
    last |= {name: max(ours[name], checks[name]) for name in ours}
    return table, last


def _paused(ms: int) -> str:
    return f"pause {ms} ms at most" if ms else "no pause"
