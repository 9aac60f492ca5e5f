"""Take the leaders of replicated servers away, again and again, as processes with their disks, while clients go on.

`mom bench failover` runs seven servers in three domains, three of them with three replicas each, under the clients of
clientchaos.py. A leader is killed, and its folder deleted if that is wanted; or it is asked to let another one lead.
What has lost its disk is replaced before its server is struck again. Judged are what the clients wrote down, the logs
of all servers (as by `mom check`), and whether neighbours were content.
"""

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from mombroker.admin import supervisor
from mombroker.admin.audit import bus as audit
from mombroker.admin.bench import clientchaos
from mombroker.admin.bench.chaos import POLL_S, stores_of
from mombroker.admin.bench.clientchaos import TALLY, Cast, ClientStorm, CutOff
from mombroker.admin.bench.figures import Row, percentile
from mombroker.admin.bench.guests import LONG_S, Beat
from mombroker.admin.demo import free_ports
from mombroker.core.errors import MomError
from mombroker.core.places import Place
from mombroker.core.raft.replica import CLOSE
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net import service

REPLICATED = ("a", "b", "c")
LAYOUT = {"north": ("d", "a", "b"), "middle": ("b", "c", "e"), "south": ("e", "f", "g")}
REPLICAS = 3
KILL, TRANSFER = "kill", "transfer"
CALM_S = 4.0
NEAR_S = 1.0  # from the order to a leader until its receipts cease, at most
REFUSED = re.compile(r"closed the connection (?:to|from) (?!replica ).*")


def topology_of(folder: Path) -> Topology:
    """a, b and c have replicas; b joins two domains, and so does e, which is plain; d is the registry."""
    names = list(dict.fromkeys(name for members in LAYOUT.values() for name in members))
    ports = iter(free_ports(2 * len(names) * REPLICAS))
    servers = {}
    for name in names:
        if name in REPLICATED:
            places = tuple(
                Place(each, "127.0.0.1", next(ports), str(folder / each), f"127.0.0.1:{next(ports)}")
                for each in (f"{name}{number}" for number in range(1, REPLICAS + 1))
            )
            at = places[0]
            servers[name] = Server(name, at.host, at.port, at.stomp, at.data, anonymous=True, replicas=places)
        else:
            listen, stomp = next(ports), f"127.0.0.1:{next(ports)}"
            servers[name] = Server(name, "127.0.0.1", listen, stomp, str(folder / name), anonymous=True)
    domains = {name: Domain(name, members) for name, members in LAYOUT.items()}
    limits = {"trying_boots": 1_000_000}  # so many kills are no message's fault
    policies = clientchaos.topology_of(folder).policies
    return Topology("failover", servers, domains, [], "d", limits=limits, policies=policies)


def people() -> dict[str, Cast]:
    """Those of clientchaos.py, and one client of each replicated server that tells how long it had to wait."""
    beats = {
        f"producer-{name}": Cast(Beat, {"to": TALLY[:1], "server": name}, mortal=False, at=name) for name in REPLICATED
    }
    return clientchaos.cast() | beats


@dataclass(slots=True)
class FailoverStorm(ClientStorm):
    """Strikes a server only when all of its replicas vote, are up, and have come as far as the leader, nearly, and its
    clients have had time to find who leads since the last time.

    deeds    what is still to be done
    delete   who is killed loses its disk, too
    struck   server, deed, when (s since the epoch)
    """

    deeds: list[str] = field(default_factory=list)
    delete: bool = False
    progress: Callable[[int, int], None] = lambda done, of: None
    struck: list[tuple[str, str, float]] = field(default_factory=list)
    unplanned: int = 0  # connections to replicas that led no more, though nobody had struck them
    _ready: float = 0.0
    _lost: dict[str, str] = field(default_factory=dict)  # server -> its replica that is to be replaced

    def tick(self) -> float:
        wait = ClientStorm.tick(self)
        if self._lost and not self._over:
            for server in [*self._lost]:
                self._mend(server)
            wait = min(wait, POLL_S)
        return wait

    def _flows(self) -> bool:
        """And all that tell how long they wait have had receipts from their servers."""
        if not (ClientStorm._flows(self) and all(map(self._whole, REPLICATED))):
            return False
        self._ready = self._ready or time.monotonic()
        return time.monotonic() > self._ready + NEAR_S

    def _enough(self) -> bool:
        return not self.deeds and not self._lost

    def _strike(self) -> None:
        found = [server for server in REPLICATED if self._calmed(server) and self._whole(server)]
        if not (self.deeds and found):
            self._next = time.monotonic() + POLL_S
            return
        server, deed = self.lots.choice(found), self.deeds.pop()
        self.progress(len(self.struck), len(self.struck) + len(self.deeds) + 1)
        if deed == TRANSFER:
            self._transfer(server)
        else:
            self._take(server)

    def _calmed(self, server: str) -> bool:
        last = max((when for name, _, when in self.struck if name == server), default=0.0)
        return server not in self._lost and time.time() > last + CALM_S

    def _whole(self, server: str) -> bool:
        try:
            found = self._ask(server, "replicas")
        except MomError:
            return False
        good = [row for row in found["replicas"] if row["role"] in ("leader", "follower") and row.get("up")]
        return (
            found["leads"] and not found["changing"] and len(found["voters"]) == len(good) == REPLICAS
            and all(row["behind"] <= CLOSE for row in good)
        )  # fmt: skip

    def _transfer(self, server: str) -> None:
        try:
            label = f"{server}/{self._ask(server, 'replicas')['replica']}"
            now = time.time()
            self._ask(server, "transfer_lead")
        except MomError:
            self.deeds.append(TRANSFER)
            return
        self.struck.append((server, TRANSFER, now))
        self.deaths.append((label, now))

    def _take(self, server: str) -> None:
        try:
            replica = self._ask(server, "replicas")["replica"]
        except MomError:
            self.deeds.append(KILL)
            return
        label = f"{server}/{replica}"
        pid, now = self._pids[label], time.time()
        os.kill(pid, signal.SIGKILL)
        self.struck.append((server, KILL, now))
        if self.delete:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            number = len(self.struck)
            folder = next(Path(view.data) for view in self.topology.servers[server].views() if view.replica == replica)
            gone = folder.rename(folder.with_name(f"gone-{number}"))
            shutil.copy(gone / supervisor.LOG, folder.with_name(f"{replica}-{number}.log"))
            shutil.rmtree(gone)
            self._lost[server] = replica

    def _mend(self, server: str) -> None:
        """Whoever has lost its disk comes back under another id; the leader puts it in the place of the old one."""
        if self._whole(server):
            del self._lost[server]
            return
        try:
            if not self._ask(server, "replicas")["changing"]:
                self._ask(server, "change_replicas", old=self._lost[server], new=self._lost[server])
        except MomError:
            pass  # nobody leads yet, or the new one was not met

    def unexplained(self, cut_off: list[CutOff]) -> list[tuple[str, str]]:
        found = ClientStorm.unexplained(self, cut_off)
        self.unplanned = sum("/" in label for _, label in found)
        return [each for each in found if "/" not in each[1]]


def run(
    kills: int,
    transfers: int,
    delete: bool,
    pause: float,
    seed: int,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Row:
    """One bus, and so many deeds in random order; what came of it."""
    topology, lots = topology_of(folder), Random(seed)
    views = [view for server in topology.servers.values() for view in server.views()]
    children = [supervisor.Child(view.label, Path(view.data)) for view in views]
    deeds = [KILL] * kills + [TRANSFER] * transfers
    lots.shuffle(deeds)
    storm = FailoverStorm(
        topology, 0.0, pause, lots, journal=folder / "journal", people=people(), children=children, deeds=deeds,
        delete=delete, progress=progress,
    )  # fmt: skip
    began = time.monotonic()
    try:
        supervisor.Supervisor(children, lambda label: service.serve(topology, label), storm, storm.private).run()
    finally:
        storm.dismiss()
    if storm.given_up:
        raise supervisor.given_up(storm.given_up, children)
    return {"seconds": round(time.monotonic() - began), **judge(storm, folder)}


def judge(storm: FailoverStorm, folder: Path) -> Row:
    with stores_of(storm.topology) as stores:
        found = audit.audit(storm.topology, stores)
    book = clientchaos.written(storm)
    took = {
        deed: [lasted(book.pauses, server, when) for server, what, when in storm.struck if what == deed]
        for deed in (KILL, TRANSFER)
    }
    row: Row = {"servers": len(storm.topology.servers), "kills": len(took[KILL]), "transfers": len(took[TRANSFER])}
    for deed, times in took.items():
        row |= {f"{deed}_{part}_ms": percentile(times, at) if times else None for part, at in PARTS.items()}
    row |= clientchaos.verdict(storm, found, book) | {"unplanned": storm.unplanned, "took_ms": took}
    refused = sorted({line for file in folder.glob("**/*log*") if file.is_file() for line in said(file)})
    faults = row["faults"] + [f"a neighbour was not content: {line}" for line in refused[:5]]
    return row | {"faults": faults, "clean": not faults}


PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def said(log: Path) -> list[str]:
    return REFUSED.findall(log.read_text(errors="replace"))


def lasted(pauses: list[tuple[str, float, float]], server: str, when: float) -> float:
    """How long a client had no receipt from a server after it was struck, ms: from the last one to the next."""
    near = [
        until - since for name, since, until in pauses
        if name == server and since < when + NEAR_S and until > when
    ]  # fmt: skip
    return round(max(near, default=LONG_S) * 1e3, 1)
