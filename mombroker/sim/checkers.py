"""What must be true of a run, judged from what was durable: order, exactly-once effects, nothing left over."""

from collections.abc import Container
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from zlib import crc32

from mombroker.broker.queue.arrival import FORMER
from mombroker.core.causality import Event, Verdict, check
from mombroker.core.damage import DAMAGED
from mombroker.core.ids import home_of, identity
from mombroker.core.journeys import NOT_HERE, lives
from mombroker.core.names import CREATE
from mombroker.core.reconfiguration import SWITCHED
from mombroker.core.trace import Record
from mombroker.sim.mischief import Trial
from mombroker.sim.node import Node

MessageId = tuple[str, int]
UNKNOWN = "is unknown"  # said of what may have been delivered, when a server was lost
GONE = "only a lost disk had it"


class Fates:
    """What has become of the messages of a log, all servers together."""

    def __init__(self, logs: list[list[Record]]):
        self.reacted: set[tuple[MessageId, str]] = set()
        self.dead: dict[tuple[MessageId, str], str] = {}  # with the reason
        self.buried: set[tuple[MessageId, str]] = set()  # those, by the addresses that they bore
        self.deleted: set[str] = set()
        self.expired: set[MessageId] = set()  # on their way: not for agents where they had arrived before
        for log in logs:
            for record in log:
                kind, id, agent = record.kind, (record.origin, record.number), record.agent
                if kind == "react":
                    self.reacted.add((id, agent))
                elif kind == "delete":
                    self.deleted.add(agent)
                elif kind in ("dead", "expire", "drop"):
                    if agent:
                        self.dead[id, identity(agent)] = record.detail
                        self.buried.add((id, agent))
                    else:
                        self.expired.add(id)

    def awaited(self, id: MessageId, agent: str) -> bool:
        """Must (or did) this agent react to it? A tombstone updates clocks, and nobody reacts to it."""
        if id in self.expired or UNKNOWN in self.dead.get((id, agent), ""):
            return (id, agent) in self.reacted
        return (id, agent) not in self.dead


def agent_events(
    logs: list[tuple[str, list[Record]]], fates: Fates, early: Container[tuple[MessageId, str]] = ()
) -> list[Event]:
    """The processes are the agents: their reactions are the deliveries. One that has moved did what its logs say, one
    after the other. `early`: what was applied on these servers in no order."""
    parts: dict[str, dict[int, list[Event]]] = {}
    for server, log in logs:
        for record, part in lives(server, log):
            id, agent = (record.origin, record.number), record.agent
            process = f"{server}/_{agent}" if part == NOT_HERE and record.kind == "send" else agent
            if record.kind == "send":
                dests = [identity(dest) for dest in record.dests]
                awaited = [dest for dest in dests if fates.awaited(id, dest) and (id, home_of(dest)) not in early]
                event: Event = ("send", process, id, awaited)
            elif record.kind == "react" and (id, server) not in early:
                event = ("deliver", process, id)
            else:
                continue
            parts.setdefault(process, {}).setdefault(part, []).append(event)
    return [event for those in parts.values() for part in sorted(those) for event in those[part]]


def server_events(
    events: list[list[Event]], fates: Fates, left: Container[str] = (), lost: Container[tuple[MessageId, str]] = ()
) -> list[Event]:
    """The processes are the servers: the hand-over to the inboxes is the delivery. Who has `left` need not have all,
    nor must all have what it sent: no clients and agents were there. `lost`: what servers need not have."""
    everything = [event for log in events for event in log]
    delivered = {(event[2], event[1]) for event in everything if event[0] == "deliver"}
    for at, (kind, process, id, *dests) in enumerate(everything):
        if kind == "send" and (
            id in fates.expired or process in left or any(server in left or (id, server) in lost for server in dests[0])
        ):
            awaited = [
                server for server in dests[0]
                if (id, server) in delivered
                or not (id in fates.expired or process in left or server in left or (id, server) in lost)
            ]  # fmt: skip
            everything[at] = (kind, process, id, awaited)
    return everything


def without_order(nodes: list[Node]) -> list[str]:
    """The domains whose back end claims one order for all members, and for whose messages there is none: in which each
    member delivered them, and causes come before their effects."""
    causes: dict[MessageId, set[MessageId]] = {}
    for node in nodes:
        before: set[MessageId] = set()  # what happened there since the last send, and that
        for kind, _, id, *_ in node.events:
            if kind == "send":
                causes.setdefault(id, set()).update(before - {id})
                before = {id}
            else:
                before.add(id)
    wrong = []
    for domain, epoch in sorted({(domain, epoch) for node in nodes for domain, epoch, _ in node.ordered}):
        graph = {id: set(those) for id, those in causes.items()}
        for node in nodes:
            for former, later in pairwise([id for *where, id in node.ordered if where == [domain, epoch]]):
                graph.setdefault(later, set()).add(former)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            wrong.append(f"no one order in domain {domain}, as of messages {error.args[1][:4]}")
    return wrong


def _told_itself(logs: list[list[Record]]) -> set[MessageId]:
    """What the registry tells itself when it has changed its own domains: ahead of what still waits at its gate, which
    has no order yet where a back end delivers own copies."""
    return {
        (record.origin, record.number) for log in logs for record in log
        if record.kind == "send" and record.detail == SWITCHED and record.dests == (record.agent,)
    }  # fmt: skip


def _unmade(logs: list[list[Record]], fates: Fates) -> set[str]:
    """The agents of which a creation was lost with a server: their names are free again, and may be taken again."""
    return {
        dest for log in logs for record in log
        if record.kind == "send" and record.detail == CREATE for dest in record.dests
        if (how := fates.dead.get(((record.origin, record.number), dest), "")) == GONE or "which is lost" in how
    }  # fmt: skip


def judge(cluster: Trial, at_rest: bool = True) -> tuple[list[str], dict[str, Verdict]]:
    """What is wrong with a run, and the outsider's verdicts on it."""
    ghosts = cluster.losses.ghosts if cluster.losses is not None else []
    nodes = [node for node in cluster.nodes.values() if node not in ghosts]
    logs = [node.trace for node in [*ghosts, *nodes]]
    fates = Fates(logs)
    gone: set[tuple[MessageId, str]] = set()
    if cluster.losses is not None:
        had = set(cluster.losses.had())
        gone = {(id, home_of(agent)) for id, agent in [*had, *fates.buried]}
        had = {(id, identity(agent)) for id, agent in had}
        fates.dead |= dict.fromkeys(had - fates.dead.keys() - fates.reacted, GONE)
    early = {(id, node.name) for node in [*ghosts, *nodes] for id in node.early}
    gone |= early
    lost = cluster.mischief.damages.lost - fates.reacted
    fates.dead.update(dict.fromkeys(lost, DAMAGED))
    left = {} if cluster.relayouts is None else cluster.relayouts.left()
    told = _told_itself(logs) if cluster.relayouts is not None else set()
    events = [[event for event in node.events if event[2] not in told] for node in [*ghosts, *nodes]]
    verdicts = {
        "servers": check(server_events(events, fates, left, gone)),
        "agents": check(agent_events([(node.name, node.trace) for node in [*ghosts, *nodes]], fates, early)),
    }
    wrong = without_order([*ghosts, *nodes])
    for level, verdict in verdicts.items():
        for kind in ("violations", "duplicates", "unsent", *(["lost"] if at_rest else [])):
            if found := getattr(verdict, kind):
                wrong.append(f"{len(found)} {kind} among {level}, as {found[0]}")
    if both := {copy for copy in fates.dead.keys() & fates.reacted if UNKNOWN not in fates.dead[copy]}:
        wrong.append(f"{len(both)} messages are dead and reacted to, as {min(both)}")
    if at_rest:
        for node in nodes:
            wrong += _left_over(node)
        wrong += _broken_chains(nodes, ghosts)
        wrong += cluster.mischief.damages.faults() + cluster.workload.faults(cluster)
        for more in (cluster.relayouts, cluster.replicas, cluster.losses):
            if more is not None:
                wrong += more.faults()
    stays = Stays([(node.name, node.trace) for node in [*ghosts, *nodes]])
    lost_agents = stays.on({ghost.name for ghost in ghosts})
    unmade = _unmade(logs, fates) if ghosts else set()
    booted = [node.server for node in nodes if hasattr(node, "server")]
    servers = set(max(booted, key=lambda server: server.truth.number).topology.servers if booted else ())
    if cluster.relayouts is not None:
        servers = cluster.nodes.keys() - left
    for (id, agent), reason in fates.dead.items():
        if (
            reason not in ("expired", "nobody is there", "a repeat", "not of its view", DAMAGED, GONE)
            and not (cluster.losses is not None and ("which is lost" in reason or agent.count("/") > 1))
            and not (reason == "unknown agent" and (agent in lost_agents or (ghosts and agent not in stays.of)))
            and not (reason == "unknown agent" and agent in unmade and (id, agent) in stays.before)
            and not (reason.startswith(FORMER) and (agent in lost_agents or agent in unmade))
            and agent not in fates.deleted
            and not agent.endswith("/nobody")
            and agent.partition("/")[0] in servers
            and id[0] not in left
        ):
            wrong.append(f"{id} is a dead letter of {agent}: {reason}")
            break
    return wrong, verdicts


def _left_over(node: Node) -> list[str]:
    """At rest nothing waits: not in memory, and not on disk."""
    disk, server = node.disk.store.disk, node.server
    left = {
        "packets out": sum(map(len, disk.queue_out.values())),
        "messages in": len(disk.queue_in),
        "tasks": len(disk.tasks),
        "held": sum(len(consumer.core.held()) for consumer in server.channel.domains.values()),
        "parked": sum(len(consumer.core.parked()) for consumer in server.channel.domains.values()),
        "held by links": sum(link.held for c in server.channel.domains.values() for link in c.links.values()),
        "unacknowledged": sum(link.waiting() for c in server.channel.domains.values() for link in c.links.values()),
        "in memory": server.engine.inboxes.in_memory,
    }
    return [f"{node.name} is left with {count} {what}" for what, count in left.items() if count]


@dataclass(slots=True)
class Stay:
    """Of an agent on a server. `number`, `peer`: it has come from there; `to`: it has left for there."""

    server: str
    number: int = 0
    peer: str = ""
    to: str = ""
    reactions: list[str] = field(default_factory=list)


class Stays:
    """Those of the agents of all logs, in the order of each log. An agent that is lost with a server may begin anew.

    before    messages that were dead letters where their agent had not lived yet
    """

    def __init__(self, logs: list[tuple[str, list[Record]]]):
        self.of: dict[str, list[Stay]] = {}
        self.last: list[dict[str, Stay]] = []  # by log
        self.before: set[tuple[MessageId, str]] = set()
        for server, log in logs:
            here: dict[str, Stay] = {}
            self.last.append(here)
            for record in log:
                self._read(server, here, record)

    def _read(self, server: str, here: dict[str, Stay], record: Record) -> None:
        kind, agent = record.kind, record.agent
        if kind == "dead" and agent not in here:
            self.before.add(((record.origin, record.number), agent))
        reacts = kind == "react" and "/_" not in agent and not record.detail  # else it was no reaction
        if kind == "move" and record.detail == "left":
            here[agent].to = record.peer
        elif kind in ("create", "move") or (reacts and agent not in here):
            came = (record.number, record.peer) if kind == "move" else (0, "")
            here[agent] = Stay(server, *came)
            self.of.setdefault(agent, []).append(here[agent])
        if reacts:
            here[agent].reactions.append(f"{record.origin}#{record.number}")

    def on(self, servers: Container[str]) -> set[str]:
        """The agents that have lived there, or were to."""
        return {agent for agent, stays in self.of.items() if any(s.server in servers or s.to in servers for s in stays)}

    def life(self, agent: str, last: Stay) -> list[Stay]:
        """What led to a stay, which is the last."""
        found = [last]
        while found[0].peer:
            now = found[0]
            before = [
                (stay.number, at) for at, stay in enumerate(self.of[agent])
                if (stay.server, stay.to) == (now.peer, now.server) and stay.number < now.number
            ]  # fmt: skip
            if not before:
                break
            found.insert(0, self.of[agent][max(before)[1]])
        return found


def _broken_chains(nodes: list[Node], ghosts: list[Node]) -> list[str]:
    """Each agent's state is the effect of exactly the reactions in the logs, in their order."""
    stays = Stays([(node.name, node.trace) for node in [*ghosts, *nodes]])
    wrong = []
    for node, here in zip(nodes, stays.last[len(ghosts) :], strict=True):
        for agent, (path, state) in node.disk.store.disk.agents.items():
            fields = {} if node.server.clients.owns(path) else node.program.describe(path, state)
            if "chain" not in fields:
                continue  # it is not of a workload
            count, chain = 0, 0
            for stay in stays.life(agent, here[agent]) if agent in here else ():
                for id in stay.reactions:
                    count, chain = count + 1, crc32(id.encode(), chain)
            if (fields["reactions"], fields["chain"]) != (count, chain):
                wrong.append(f"{agent} is the effect of {fields['reactions']} reactions, its log has {count}")
    return wrong
