"""One seed, one run: topology, faults and work are all drawn from it."""

import hashlib
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from mombroker.core.topology import Server, Topology
from mombroker.sim.checkers import judge
from mombroker.sim.clients import ClientNode, Clients
from mombroker.sim.cluster import Workload
from mombroker.sim.damage import aside
from mombroker.sim.domains import BACKENDS, draw_domains
from mombroker.sim.faults import Faults, draw
from mombroker.sim.groups import Groups
from mombroker.sim.lookouts import PERIOD
from mombroker.sim.losses import Losses
from mombroker.sim.mischief import Trial
from mombroker.sim.node import Node
from mombroker.sim.programs import HEIRS, PROGRAMS
from mombroker.sim.relayouts import Relayouts
from mombroker.sim.replicas.node import ReplicatedNode
from mombroker.sim.replicas.trial import Replicas
from mombroker.sim.travels import TravelNode, Travels
from mombroker.sim.workloads import HERE, Bank, PingPong, Wander
from mombroker.sim.world import MS, World

TAIL = 40  # records shown of a failed run


@dataclass(slots=True)
class Run:
    seed: int
    program: str
    wrong: list[str] = field(default_factory=list)
    trace: str = ""  # digest of all that was durable
    counts: dict[str, int] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    tail: list[str] = field(default_factory=list)


def draw_topology(rng: Random, workload: Workload, backends: Sequence[str] = BACKENDS, spare: float = 0.0) -> Topology:
    """With this probability one or two servers have no agents."""
    domains = draw_domains(rng, rng.randint(3, 12), backends)
    names = sorted({member for domain in domains.values() for member in domain.members}, key=lambda name: int(name[1:]))
    empty = rng.sample(names, rng.randint(1, 2)) if spare and len(names) > 4 and rng.random() < spare else []
    homes = [name for name in names if name not in empty]
    limits = {
        "max_attempts": 1000, "trying_boots": 1000, "retry_first_ns": 2 * MS, "retry_max_ns": 50 * MS,
    }  # fmt: skip
    if rng.random() < 0.5:  # everything small, so that each bound is reached
        limits |= {
            "link_window": rng.choice((1, 2, 8)), "link_window_bytes": rng.choice((300, 4000)),
            "max_held": rng.choice((1, 3, 50)), "max_inbox": rng.choice((1, 5, 50)),
            "max_residents": rng.choice((1, 4)), "turn_reactions": rng.choice((1, 3, 20)),
            "batch_bytes": rng.choice((500, 5000)), "batch_rows": rng.choice((3, 30)),
            "max_store": rng.choice((1000, 1 << 30)),
        }  # fmt: skip
        limits["turn_work"] = limits["turn_reactions"]
    return Topology(
        name="sim",
        servers={name: Server(name, "127.0.0.1", 20_000 + at, None, name) for at, name in enumerate(names)},
        domains=domains,
        agents=workload.agents(homes, rng),
        registry=rng.choice(homes),
        allow=(HERE,),
        limits=limits,
        policies=workload.policies,
    )


AGENTS = "agents"  # instead of a program of clients
WORKLOADS = (Wander, Wander, Wander, Bank, PingPong)


def cluster(
    seed: int,
    node: type[Node] | None = None,
    faults: Faults | None = None,
    backends: Sequence[str] = BACKENDS,
    program: str = AGENTS,
    relayouts: bool = False,
    replicated: type[ReplicatedNode] | None = None,
    losses: bool = False,
    travels: bool = False,
    groups: bool = False,
) -> Trial:
    """`program`: what clients do (programs.py), or AGENTS: there are none, and agents are at work. With `relayouts` the
    domains change meanwhile, with `losses` servers die with their disks, with `travels` agents move, with `groups` they
    join groups, leave and cast; some servers are `replicated`. With `losses` alone
    clients are at work on every fourth seed, instead of agents."""
    world = World(seed)
    rng = world.rng
    if losses and program == AGENTS and not (travels or relayouts or replicated or groups) and seed % 4 == 3:
        program = HEIRS
    workload: Workload
    if groups:
        kind = seed % 6
        workload = Groups(
            rng, rng.choice((50, 150, 300)), not losses, kind == 3, kind == 4 and not losses, kind in (0, 2)
        )  # fmt: skip
    elif program != AGENTS:
        workload = PROGRAMS[program](rng)
    else:
        workload = rng.choice((Wander,) if losses else WORKLOADS)(rng, rng.choice((50, 150, 300)))
        if travels:
            workload = Travels(rng, workload)
    topology = draw_topology(rng, workload, backends, 0.5 if relayouts else 0.0)
    if groups:
        topology.limits |= {"state_rows": 1 + seed % 4, "probe_ns": PERIOD}  # so that few rows are many pages
        topology.limits["cast_window"] = (1, 1_024, 3, 40)[seed // 6 % 4]  # and few casts as many as may be
    drawn = draw(rng)
    drawn = faults or drawn
    if program != AGENTS or relayouts or replicated or losses:
        drawn = replace(drawn, impostor="")  # it would give its clients what never was
    usual = ClientNode if program != AGENTS else TravelNode if travels else Node
    plain = node or usual
    replicas = Replicas(Random(rng.getrandbits(32)), plain, replicated) if replicated else None
    made = Trial(world, topology, drawn, workload, replicas.choose([*topology.servers]) if replicas else plain)
    made.replicas = replicas
    if relayouts:
        made.relayouts = Relayouts(made, backends)
    if losses:
        made.losses = Losses(made)
    return made


def run(
    seed: int,
    node: type[Node] | None = None,
    faults: Faults | None = None,
    backends: Sequence[str] = BACKENDS,
    program: str = AGENTS,
    relayouts: bool = False,
    replicated: type[ReplicatedNode] | None = None,
    losses: bool = False,
    travels: bool = False,
    groups: bool = False,
) -> Run:
    """Everything about the run that `seed` stands for. Clients are in it only if `program` names theirs."""
    result = Run(seed, program)
    made = cluster(seed, node, faults, backends, program, relayouts, replicated, losses, travels, groups)
    try:
        result.wrong += made.run(made.world.rng.choice((100, 400, 1000)) * MS)
        result.wrong += judge(made)[0]
    except Exception as error:  # a broken assertion, or whatever a server must not raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        result.wrong.append(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})")
        result.wrong += judge(made, at_rest=False)[0]
    nodes = made.nodes.values()
    result.trace = hashlib.sha256(repr([node.trace for node in nodes]).encode()).hexdigest()
    result.deaths = dict(made.deaths)
    records = [record for node in nodes for record in node.trace]
    result.counts = {
        "servers": len(made.nodes), "crashes": made.crashes, "boots": sum(node.epoch for node in nodes),
        "calls": made.world.calls, "records": len(records), **made.network.counts,
        "sends": sum(record.kind == "send" for record in records),
        "reactions": sum(record.kind == "react" for record in records),
        "damaged": sum(map(len, made.mischief.damages.done.values())), "aside": sum(len(aside(node)) for node in nodes),
        "lies": made.mischief.lies, "wrong_stores": int(made.mischief.masked is not None),
        "held": sum(record.kind == "hold" for record in records),
        "commits": sum(node.disk.commits for node in nodes),
    }  # fmt: skip
    for more in (made.relayouts, made.replicas, made.losses):
        if more is not None:
            result.counts |= more.counts()
    if isinstance(made.workload, Travels | Groups) and not result.wrong:  # else some of its agents may not be there
        result.counts |= made.workload.counts(made)
    if isinstance(made.workload, Clients):
        result.counts |= made.workload.counts()
    if result.wrong:
        last = sorted((max(record[9:13]), node.name, record) for node in nodes for record in node.trace[-TAIL:])
        result.tail = [f"{name} {_short(record._asdict())}" for _, name, record in last[-TAIL:]]
    return result


def _short(record: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in record.items() if value)
