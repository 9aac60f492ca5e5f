"""Change the domains of a bus again and again, as processes, while clients and agents use it and servers are killed.

`mom bench chaos` runs seven servers in three domains, under the clients of clientchaos.py and an agent on each server.
Judged are what the clients wrote down, what the agents counted, and the logs over all revisions (as by `mom check`).
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from mombroker import ordering
from mombroker.admin import reshape, supervisor
from mombroker.admin.audit import bus as audit
from mombroker.admin.bench import chaos, clientchaos
from mombroker.admin.bench.chaos import Storm, stores_of
from mombroker.admin.bench.clientchaos import Cast, ClientStorm
from mombroker.admin.bench.figures import Row
from mombroker.admin.bench.guests import Probe, Producer
from mombroker.admin.demo import free_ports
from mombroker.agents.notifications import unpack
from mombroker.core.changes import Kind, compare
from mombroker.core.errors import MomError
from mombroker.core.topology import AgentDecl, Domain, Server, Topology
from mombroker.net import service
from mombroker.sim.relayouts import changed
from mombroker.store import folder as folders

LAYOUT = {"north": ("s1", "s2", "s3"), "middle": ("s3", "s4", "s5"), "south": ("s5", "s6", "s7")}
STARTS = 1  # conversations that each agent begins
FANOUT = 7 / 3  # whom an agent of seven tells at once, in the mean
CLIENTS = 0.3  # their part of the rate
PASSED_ON = 1.2  # messages for each that a producer sends: a fifth is moved on
MOST_SERVERS = 9
BETWEEN = 0.0005  # the chance of a server to die when it is about to write deliveries


def topology_of(folder: Path, seed: int, rate: float = 0.0) -> Topology:
    """s1..s7 in three domains of different back ends, an agent on each, and a listener for clients. With a `rate`
    agents and clients together send so many messages a second, whatever comes of it; else each waits for others."""
    names = list(dict.fromkeys(name for members in LAYOUT.values() for name in members))
    ports = free_ports(2 * len(names))
    servers = {
        name: Server(name, "127.0.0.1", peers, f"127.0.0.1:{clients}", str(folder / name), anonymous=True)
        for name, peers, clients in zip(names, ports[::2], ports[1::2], strict=True)
    }
    orders = Random(seed).sample(backends(), len(LAYOUT))
    domains = {
        name: Domain(name, members, order)
        for (name, members), order in zip(LAYOUT.items(), orders, strict=True)
    }  # fmt: skip
    ids = [f"{name}/t-{name}" for name in names]
    agents = [
        AgentDecl(
            f"t-{name}", name, chaos.TALKER,
            {
                "others": [id for id in ids if id != f"{name}/t-{name}"], "seed": at, "starts": 0 if rate else STARTS,
                "rate": rate * (1 - CLIENTS) / FANOUT / len(names),
            },
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    policies = clientchaos.topology_of(folder).policies
    limits = {"trying_boots": 1_000_000}  # so many kills are no message's fault
    return Topology("changes", servers, domains, agents, "s1", limits=limits, policies=policies)


def cast(topology: Topology, rate: float) -> dict[str, Cast]:
    """The clients of clientchaos.py, and with a `rate` a probe on each server as well."""
    people = clientchaos.cast()
    if rate:
        producers = [each for each in people.values() if each.make is Producer]
        for each in producers:
            each.how["rate"] = rate * CLIENTS / PASSED_ON / len(producers)
        for name in topology.servers:
            how = {"server": name, "queue": f"/queue/probe.{name}"}
            people[f"probe-{name}"] = Cast(Probe, how, mortal=False, at=name)
    return people


def backends() -> list[str]:
    return [name for name in ordering.names() if name != "fifo"]


@dataclass(slots=True)
class ChangeStorm(ClientStorm):
    """Changes the bus, too, one change after another.

    changes   to be made
    deadly    are servers and clients killed?
    made      kind of change -> how many
    steps     the changes: kind, from when and until when, s since the epoch
    flows     since when all is under way, and `calmed`, until when
    """

    changes: int = 0
    deadly: bool = True
    steps: list[tuple[str, float, float]] = field(default_factory=list)
    flows: float = 0.0
    calmed: float = 0.0
    made: Counter[str] = field(default_factory=Counter)
    progress: Callable[[int, int], None] = lambda done, of: None
    reshaper: reshape.Reshaper = field(init=False)
    _kind: str = ""
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.reshaper = reshape.Reshaper(self.topology)

    def tick(self) -> float:
        if self._next and not self._calm and not self._over:
            self.flows = self.flows or time.time()
            self._reshape()
        wait = ClientStorm.tick(self)
        if self._calm and not self.calmed:
            self.calmed = time.time()
        return min(wait, reshape.LOOK_S) if self.reshaper.under_way else wait

    def _enough(self) -> bool:
        killed = not self.deadly or bool(self.kills and self.clients_killed)
        return self.made.total() >= self.changes and killed

    def _strike(self) -> None:
        if self.deadly:
            ClientStorm._strike(self)

    def _reshape(self) -> None:
        if self.reshaper.under_way:
            if self.reshaper.look():
                self.made[self._kind] += 1
                self.steps.append((self._kind, self._began, time.time()))
                self.progress(self.made.total(), self.changes)
                self._start()
        elif self.made.total() < self.changes and self._pids.keys() >= self.reshaper.topology.servers.keys():
            self._began = time.time()
            self.reshaper.begin(self._make)

    def _start(self) -> None:
        """Of servers that have joined."""
        known = {child.name for child in self.children}
        for name, server in self.reshaper.topology.servers.items():
            if name not in known:
                self.children.append(supervisor.Child(name, folders.make(Path(server.data))))

    def _make(self, now: Topology) -> Topology:
        """Another topology: now and then with a new server or other settings, else with other domains."""
        dice = self.lots.random()
        if dice < 0.1 and len(now.servers) < MOST_SERVERS:
            new = self._joined(now)
        elif dice < 0.2:
            policies = [
                *self.topology.policies,
                {"match": "queue:unused", "max_redeliveries": self.lots.randrange(1, 1_000)},
            ]
            new = replace(now, policies=policies)
        else:
            made = changed(self.lots, now, backends(), int(time.time() * 1000))
            new = replace(now, domains=made.domains)
        self._kind = kind_of(now, new)
        return new

    def _joined(self, now: Topology) -> Topology:
        name, (port,) = f"s{len(now.servers) + 1}", free_ports(1)
        folder = self.journal.parent / name
        return reshape.joined(now, Server(name, "127.0.0.1", port, data=str(folder)), self.lots.choice)

    def _rests(self) -> bool:
        """The agents are hushed while the clients take what is left."""
        talked = Storm._rests(self)
        self.at_rest = ClientStorm._rests(self) and talked
        return self.at_rest

    def _end(self) -> None:
        self.reshaper.close()
        ClientStorm._end(self)


def kind_of(old: Topology, new: Topology) -> str:
    """What a change is, in one word or two."""
    kind = compare(old, new).kind
    if kind is not Kind.FREEZE:
        return kind.value
    if len(new.domains) != len(old.domains):
        return "split" if len(new.domains) > len(old.domains) else "merge"
    if {name: sorted(each.members) for name, each in old.domains.items()} == {
        name: sorted(each.members) for name, each in new.domains.items()
    }:
        return "back end"
    return "move" if set(old.routers) == set(new.routers) else "router"


def run(
    changes: int,
    pause: float,
    seed: int,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, of: None,
    rate: float = 0.0,
    kills: bool = True,
) -> Row:
    """One bus in a storm of so many changes, with a kill every `pause` s; what came of it."""
    topology, journal = topology_of(folder, seed, rate), folder / "journal"
    children = [supervisor.Child(server.name, Path(server.data)) for server in topology.servers.values()]
    storm = ChangeStorm(
        topology, 0.0, pause, Random(seed), journal=journal, children=children, changes=changes, progress=progress,
        people=cast(topology, rate), deadly=kills,
    )  # fmt: skip

    def serve(name: str) -> int:
        clientchaos.deadly(BETWEEN if kills else 0.0, folder / clientchaos.CALM)
        return service.serve(storm.reshaper.topology, name)

    began = time.monotonic()
    try:
        supervisor.Supervisor(children, serve, storm, storm.private).run()
    finally:
        storm.dismiss()
    if storm.given_up:
        left = ", and its clients were taking what is left" if storm.calmed else ""
        made = f"{storm.made.total()} of {storm.changes} changes were made{left}"
        raise MomError(f"{made}; {supervisor.given_up(storm.given_up, children)}")
    return {"seconds": round(time.monotonic() - began), **judge(storm)}


def judge(storm: ChangeStorm) -> Row:
    topology = storm.reshaper.topology
    with stores_of(topology) as stores:
        found = audit.audit(topology, stores)
        held = reshape.held(stores)
        rows = [stores[each.server].agent(f"{each.server}/{each.name}") for each in topology.agents]
    talkers = [unpack(row[1]) for row in rows if row]
    out, heard = chaos.told(topology, talkers), chaos.heard(topology, talkers)
    faults: list[str] = []
    book = clientchaos.written(storm)
    pauses = sorted((until - since) / 1e6 for _, since, until in held)
    seconds = max(storm.calmed - storm.flows, 1e-3)
    by_clients, by_agents = len(book.sent) / seconds, sum(heard.values()) / seconds
    row: Row = {
        "changes": dict(storm.made), "refused": len(storm.reshaper.refused), "servers": len(topology.servers),
        "server_kills": storm.kills, "client_kills": storm.clients_killed, "pauses": len(pauses),
        "pause_p50_ms": part(pauses, 0.5), "pause_p99_ms": part(pauses, 0.99), "told": sum(out.values()),
        "flow_s": round(seconds, 1), "clients_per_s": round(by_clients), "agents_per_s": round(by_agents),
        "per_s": round(by_clients + by_agents), **meanwhile(
            [each for each in book.latencies if storm.flows <= each[1] <= storm.calmed], held, storm.steps
        ),
    } | clientchaos.verdict(storm, found, book)  # fmt: skip
    if storm.made.total() < storm.changes:
        faults.append(f"only {storm.made.total()} of {storm.changes} changes were made")
    if out != heard or any(each["wrong"] for each in talkers):
        faults.append("agents have not heard what they were told, once and in its order")
    faults += row["faults"]
    return row | {"faults": faults, "clean": not faults}


def meanwhile(
    latencies: list[tuple[str, float, float, float]],
    held: list[tuple[str, int, int]],
    steps: list[tuple[str, float, float]],
) -> Row:
    """What receipts and messages of the probes took, ms: in the median, and the longest but one in a hundred. `calm`:
    no change was under way; `inside`: their server held what enters domains that change; `outside`: others held that,
    theirs did not; `attach`: a server was attached meanwhile."""
    pauses = [(server, since / 1e9, until / 1e9) for server, since, until in held]
    found: dict[str, list[tuple[float, float]]] = {"calm": [], "inside": [], "outside": [], "attach": []}
    for server, at, *took in latencies:
        until = at + took[1] / 1000
        waits = {name for name, since, end in pauses if since <= until and at <= end}
        kinds = {kind for kind, since, end in steps if since <= until and at <= end}
        where = "inside" if server in waits else "outside" if waits else "attach" if "attach" in kinds else "calm"
        if where != "calm" or not kinds:
            found[where].append((took[0], took[1]))
    row: Row = {}
    for where, those in found.items() if latencies else ():
        row[f"{where}_probes"] = len(those)
        for what, values in zip(("receipt", "message"), zip(*those, strict=True), strict=False):
            ordered = sorted(values)
            row[f"{where}_{what}_p50_ms"], row[f"{where}_{what}_p99_ms"] = part(ordered, 0.5), part(ordered, 0.99)
    return row


def part(values: list[float], share: float) -> float:
    return round(values[min(int(share * len(values)), len(values) - 1)], 1) if values else 0.0
