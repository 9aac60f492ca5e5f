"""`mom domain reset` and `mom topology adopt`: offline surgery on the stores of a bus, none of whose servers runs.

Both are made of one commit a store, and both may be repeated after they were cut short: until all stores of a domain
agree, the epoch or the order digest keeps its servers from meeting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Any

from mombroker import ordering
from mombroker.admin import leaving
from mombroker.admin.topology import made_from
from mombroker.broker.attach import attach
from mombroker.core import repair, revision
from mombroker.core.batch import Batch, LinkRow, Reader
from mombroker.core.changes import Kind, difference, told
from mombroker.core.errors import MomError, PeerError, PeerRefused
from mombroker.core.events import LinkFrames, LinkUp
from mombroker.core.identity import identity
from mombroker.core.lost import successor
from mombroker.core.message import Message, decode
from mombroker.core.meta import CHANGE, DIGEST, EPOCH, FORMER, NOW, ORDER, OWN, PLAN
from mombroker.core.reaction import Program
from mombroker.core.server import AgentServer
from mombroker.core.topology import RoutingTable, Topology
from mombroker.core.trace import Record
from mombroker.core.words import many
from mombroker.store.base import Store

PAGE = 10_000


@dataclass(slots=True)
class Report:
    """What an operation did. `dead` are messages put among the dead letters; `lost` were only in the lost store or
    may have been half delivered by it: sent towards it, and no trace of them at their destination."""

    domains: list[str] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    revision: int = 0  # of the topology, that is in all stores now

    def as_dict(self) -> dict[str, Any]:
        return {
            "domains": self.domains, "dead": self.dead, "lost": self.lost, "names": self.names, "notes": self.notes,
        }  # fmt: skip


@dataclass(slots=True)
class Plan:
    """A reset that is worked out: the report, and the one batch of each store, that of the lost one first."""

    report: Report
    batches: dict[str, Batch]

    def commit(self, stores: Mapping[str, Store]) -> None:
        for name, batch in self.batches.items():
            stores[name].commit(batch)


def plan(topology: Topology, lost: str, stores: Mapping[str, Store], program: Program, now: int) -> Plan:
    """Go on without the store of server `lost`: `stores` are those of all others. Whatever can fail does so here.

    The survivors first deliver to each other what they can; what remains under way in a domain of `lost` becomes dead
    letters; the clocks of those domains start anew under a higher epoch; the new store learns epochs and names.
    """
    missing = sorted(set(topology.servers) - set(stores) - {lost})
    if missing:
        raise MomError(f"the stores of all servers are needed: {', '.join(missing)} not found")
    report = Report(domains=[domain.name for domain in topology.domains_of(lost)])
    survivors = {
        name: AgentServer(topology, name, store, program, attach, now) for name, store in stores.items() if name != lost
    }
    changing = [server.change.plan for server in survivors.values() if server.change.plan is not None]
    if changing:
        report.notes.append(_end_change(survivors, stores, lost, max(each.number for each in changing)))
    for name, server in survivors.items():
        if differs := _differs(server.topology, topology):
            raise MomError(
                f"the store of {name} has revision {server.truth.number} of the topology, and the file is of another "
                f"one ({differs}): `mom topology export` writes the one that the stores have"
            )
    if not changing:
        _settle(survivors, stores)
    metas: dict[str, leaving.Meta] = {name: stores[name].meta() for name in survivors}
    unseen = _lost(topology, lost, [stores[name] for name in survivors])
    report.lost = list(unseen.values())
    report.names = leaving.names_of([lost], metas)
    epochs = {
        domain: 1 + max((int(meta.get(EPOCH + domain, 0)) for meta in metas.values()), default=0)
        for domain in report.domains
    }
    fresh = Batch(meta={**successor(now), NOW: now})
    fresh.meta |= {EPOCH + domain: epoch for domain, epoch in epochs.items()}
    fresh.meta |= leaving.tables(metas)
    for meta in metas.values():
        fresh.meta |= leaving.withdrawn(meta, [lost])
    batches = {lost: fresh}
    buried: set[repair.Copy] = set()
    for name, server in survivors.items():
        undelivered: list[repair.Undelivered] = []
        for domain, epoch in epochs.items():
            if domain in server.channel.domains:
                undelivered += repair.start_anew(server, domain, epoch, unseen, buried)
        for message, agent, reason in repair.give_up(server, undelivered):
            report.dead.append({"at": name, **_described(message), "agent": agent, "reason": reason})
        server.tx.rows.meta |= leaving.withdrawn(metas[name], [lost])
        server.clients.lost(lost)
        server.clients.cut_off(server.channel.cut_off(lost) - {lost})
        server.stop()
        batches[name] = server.ready(now).batch
    return Plan(report, batches)


def _end_change(survivors: dict[str, AgentServer], stores: Mapping[str, Store], lost: str, number: int) -> str:
    """End a change of the domains that is under way: it goes back, unless one of its servers has switched."""
    over = any(server.truth.number >= number for server in survivors.values())
    for server in survivors.values() if over else ():
        if (plan := server.change.plan) is not None and lost in plan.inside:
            server.change.without(plan.id, [lost])
    conns = _settle(survivors, stores)
    for server in survivors.values():
        server.change.close(over)
    _pass_on(survivors, stores, conns)
    done = "was ended" if over else "was given up: apply it again"
    return f"the change to revision {number} of the topology {done}"


def _differs(stored: Topology, file: Topology) -> str:
    """How the domains that a store has differ from those of the file; empty if they do not."""
    change = difference(stored, file)
    return "" if change.kind in (Kind.NOTHING, Kind.SETTINGS) else "; ".join(told(stored, file)[:6])


def _described(message: Message) -> dict[str, Any]:
    return {"message": f"{message.origin}#{message.number}", "type": message.type, "source": message.source}


def _settle(servers: dict[str, AgentServer], stores: Mapping[str, Store]) -> dict[int, tuple[str, int]]:
    """Let the survivors pass on what they have for each other; no agent reacts. The connections that were made."""
    conns: dict[int, tuple[str, int]] = {}
    numbers = count(1)
    now = max((server.tx.now for server in servers.values()), default=0)
    for name, server in servers.items():
        for peer, other in servers.items():
            if name < peer and server.topology.shared_domain(name, peer):
                try:
                    mine, theirs = server.neighbours.greet(peer), other.neighbours.greet(name)
                    server.neighbours.admit(theirs)
                    other.neighbours.admit(mine)
                except PeerRefused:
                    continue  # reset before this run was cut short: what they have for each other is reported
                one, two = next(numbers), next(numbers)
                conns[one], conns[two] = (peer, two), (name, one)
                server.step(LinkUp(peer, one, theirs), now)
                other.step(LinkUp(name, two, mine), now)
    _pass_on(servers, stores, conns)
    return conns


def _pass_on(
    servers: dict[str, AgentServer], stores: Mapping[str, Store], conns: Mapping[int, tuple[str, int]]
) -> None:
    now, busy = max((server.tx.now for server in servers.values()), default=0), True
    while busy:
        busy = False
        for name, server in servers.items():
            while server.urgency:
                busy = True
                ready = server.ready(now)
                if not ready.batch.empty():
                    stores[name].commit(ready.batch)
                for conn, frames in ready.frames:
                    peer, other_conn = conns[conn]
                    servers[peer].step(LinkFrames(name, other_conn, frames), now)
                server.committed(ready, now)


def _lost(topology: Topology, lost: str, stores: Iterable[Store]) -> dict[repair.Copy, dict[str, Any]]:
    """Copies that were to go to, or through, the lost server and have left no trace at their destination. The logs know
    of servers that have left the bus, too: what was for them went with them."""
    routes = {name: RoutingTable(topology, name) for name in topology.servers}
    relaying = {
        name for name, domain in topology.domains.items()
        if lost in domain and ordering.backend(domain.backend).relays
    }  # fmt: skip

    def passes(origin: str, home: str) -> bool:
        if home == lost or origin == home or not {origin, home} <= routes.keys():
            return home == lost
        return any(hop == lost or domain in relaying for domain, hop in routes[origin].path(home))

    wanted: dict[repair.Copy, dict[str, Any]] = {}
    ended: set[repair.Copy] = set()
    for store in stores:
        for kind, origin, number, agent, dests, *_, detail in _records(store):
            if kind == "send":
                for dest in dests:
                    if passes(origin, dest.partition("/")[0]):
                        what = {"message": f"{origin}#{number}", "agent": dest, "type": detail, "source": agent}
                        wanted[origin, number, dest] = what
            elif kind in ("react", "dead", "expire", "drop"):
                ended.add((origin, number, agent))
        for agent, message in _waiting(store):
            ended.add((message.origin, message.number, agent))
    return {
        (origin, number, agent): what for (origin, number, agent), what in wanted.items()
        if (origin, number, agent) not in ended and (origin, number, "") not in ended
    }  # fmt: skip


def _records(store: Store) -> Iterator[Record]:
    after = 0
    while rows := store.log(after, PAGE):
        yield from (record for _, record in rows)
        after = rows[-1][0]


def _waiting(store: Store) -> Iterator[tuple[str, Message]]:
    """What is in the inboxes of a store is not lost."""
    for agent, lowest, _ in store.inboxes():
        after = lowest - 1
        while rows := store.queue_in(agent, after, 1 << 62, PAGE):
            for row in rows:
                after = row.id
                with suppress(PeerError):  # it is no message: its server will put it among the dead letters
                    yield agent, decode(row.data)


def adopt(
    topology: Topology, stores: dict[str, Store], left: Mapping[str, Reader] = MappingProxyType({}), drop: bool = False
) -> Report:
    """Put the stores under the order of the topology file. Raises MomError, with what is in the way, to refuse.

    New servers and domains may be attached to a bus as it is; any other change needs a bus in which nothing is under
    way, and starts all clocks anew. A server that is no longer in the file must hold nothing, or be dropped with all
    that it holds; `left` are the stores of such servers, as far as they are here.
    """
    missing = sorted(set(topology.servers) - set(stores))
    if missing:
        raise MomError(f"the stores of all servers are needed: {', '.join(missing)} not found")
    report = Report(domains=sorted(topology.domains))
    metas = {name: stores[name].meta() for name in topology.servers}
    if changing := [name for name, meta in metas.items() if PLAN in meta or CHANGE in meta]:
        raise MomError(
            f"a change of the domains is under way in {', '.join(changing)}: start the bus under the old file and let "
            "it end, see `mom topology status`; if a server of it is lost, run `mom server lost` for it, or `mom "
            "domain reset` if that is the registry"
        )
    if refused := _overtaken(topology, metas):
        raise MomError(refused)
    wanted = {name: identity(topology, name) for name in topology.servers}
    kept = all(
        wanted[name].get(key) == value
        for name, meta in metas.items()
        for key, value in meta.items()
        if key.startswith(DIGEST)
    )
    gone = leaving.departed(topology.servers, metas)
    if not drop:
        _nothing_lost({name: leaving.holdings(name, left.get(name), metas) for name in gone})
    if not kept:
        _nothing_under_way({name: stores[name] for name in topology.servers})
    report.names = leaving.names_of(gone, metas)
    epochs = {
        domain: max(int(meta.get(EPOCH + domain, 0)) for meta in metas.values()) + (not kept)
        for domain in topology.domains
    }
    shared = leaving.tables(metas)
    for meta in metas.values():
        shared |= leaving.withdrawn(meta, gone)
    report.revision, rows = _revision(topology, metas)
    report.notes.append(f"revision {report.revision} of the topology")
    for name in topology.servers:
        store = stores[name]
        batch = Batch(meta={key: None for key in metas[name] if key.startswith(DIGEST)})
        batch.meta |= {key: value for key, value in shared.items() if value is None or key not in metas[name]}
        batch.meta |= rows | wanted[name]
        batch.meta |= {EPOCH + domain.name: epochs[domain.name] for domain in topology.domains_of(name)}
        if not kept:
            key = f"{FORMER}{store.log_end()}"
            batch.meta[key] = metas[name].get(key, metas[name][ORDER])  # there already: a run was cut short
            for link in store.links():
                batch.links[link.id] = LinkRow(link.id, link.domain, link.peer, 0, 0, 0, "")
            for each in json.loads(str(metas[name][ORDER])):
                batch.meta[OWN + each] = None
                for row in store.core(each):
                    batch.core[each, *row] = None
        store.commit(batch)
    report.notes.append("attached, all clocks go on" if kept else "all clocks were started anew")
    if gone:
        report.notes.append(f"{', '.join(gone)} left the bus")
    return report


def _overtaken(topology: Topology, metas: Mapping[str, leaving.Meta]) -> str:
    """Why a file that would change the topology was not made from the one in the stores; empty if nothing says so."""
    newest = max(metas.values(), key=lambda meta: revision.in_force(meta)[0])
    number, text = revision.in_force(newest)
    if not number or revision.digest_of(text) == revision.digest_of(revision.text_of(topology)):
        return ""
    return made_from.refusal(topology, number, revision.listed(newest))


def _revision(topology: Topology, metas: Mapping[str, leaving.Meta]) -> tuple[int, dict[str, Any]]:
    """The number and the rows of the revision that all stores get: a new one, unless all have this topology already."""
    text = revision.text_of(topology)
    found = {revision.in_force(meta) for meta in metas.values()}
    number, last = max(found)
    if number and len(found) == 1 and revision.digest_of(last) == revision.digest_of(text):
        return number, {}
    lines = told(revision.read(last), topology) if last else ["the topology of a file, by `mom topology adopt`"]
    now = max(int(meta.get(NOW, 0)) for meta in metas.values())
    return number + 1, revision.rows(number + 1, text, now, lines)


def _nothing_lost(holdings: dict[str, list[str]]) -> None:
    found = [f"{name} still holds {leaving.listed(things)}" for name, things in holdings.items() if things]
    if found:
        raise MomError(
            "; ".join(found)
            + ": start the bus under the old file and move or take what is to be kept, or give all of it "
            "up by --drop, which withdraws its names and subscriptions on the other servers"
        )


def _nothing_under_way(stores: dict[str, Store]) -> None:
    found = []
    for name, store in stores.items():
        for link in store.links():
            rows, _ = store.queue_out_size(link.id)
            if rows:
                found.append(f"{many(rows, 'packet waits', 'packets wait')} in {name} for {link.peer}")
        for domain, order in json.loads(str(store.meta()[ORDER])).items():
            rows_of_core = store.core(domain)
            if rows_of_core and "backend" in order:
                members = tuple(order["members"])
                options = ordering.backend(order["backend"]).resolve(members, order["options"])
                core = ordering.restore(order["backend"], members.index(name), len(members), rows_of_core, **options)
                if waiting := len(core.held()) + len(core.parked()):
                    found.append(f"{many(waiting, 'packet is', 'packets are')} held in {name} in domain {domain}")
    if found:
        raise MomError(
            "the domains changed, and messages are under way: start the bus under the old file, let it come to rest, "
            "stop it and adopt again; for what waits for a lost server run `mom domain reset` first ("
            + "; ".join(found)
            + ")"
        )
