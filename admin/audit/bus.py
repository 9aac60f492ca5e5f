"""The outsider's judgement of a whole bus, from the logs and rows in its servers' stores, also while they run.

First pass: the log of each server, one after another; what is left of them when every event whose cause was not read
is taken out is a consistent cut, and only that is judged. Second pass, for messages that the cut has not seen arrive:
the stores along each one's route, in the order of the route. A message leaves a place only once it is durable at the
next, so one that is in none of them, and has not been reacted to after all, is lost.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mombroker.admin.audit import routes
from mombroker.admin.audit.routes import LAST, PAGE, MessageId, Store
from mombroker.admin.audit.views import Finding, Views, excused
from mombroker.broker.message import ClientMessage
from mombroker.core import causality, revision
from mombroker.core.dead_letters import DEAD, LETTERS
from mombroker.core.groups.bus import REFUSED
from mombroker.core.groups.bus import TYPES as MEMBERS
from mombroker.core.ids import home_of, identity
from mombroker.core.journeys import NOT_HERE, Journeys
from mombroker.core.meta import ARRIVING, DEPARTING, DIGEST, EPOCH, HOME, INCARNATION, PLAN, RESET
from mombroker.core.topology import Topology
from mombroker.core.words import many
from mombroker.store.folder import STORE

ENDS = ("expire", "dead", "drop", "redeliver")  # no reaction will follow, or one out of order
Pair = tuple[str, MessageId]  # an agent and a message to it


@dataclass(slots=True)
class Findings:
    """What `audit` found. `clean` is the verdict, and `judged` says of how much."""

    violations: list[tuple[str, MessageId, MessageId]] = field(default_factory=list)  # agent, late, before
    duplicates: list[Pair] = field(default_factory=list)
    unsent: list[Pair] = field(default_factory=list)  # reacted to, but nobody sent it
    lost: list[Pair] = field(default_factory=list)
    records: int = 0
    sends: int = 0
    reactions: int = 0
    agents: dict[str, int] = field(default_factory=dict)  # reactions judged, per agent
    waiting: int = 0  # sent, not reacted to, and found in a store (or reacted to since)
    ended: int = 0  # (message, agent) pairs that ended otherwise: dead letter, expired, dropped, retried
    uncut: int = 0  # events after the cut: a cause of theirs was logged when its log had been read
    unjudged: int = 0  # events, or pairs of a message and an agent, whose other half is in no log that was read
    retired: list[str] = field(default_factory=list)  # servers of whose log the beginning, or a part, is missing
    views: list[Finding] = field(default_factory=list)  # casts of groups that not all members of a view have alike
    absent: list[str] = field(default_factory=list)  # servers of which an export has no record
    unseen: list[str] = field(default_factory=list)  # servers whose stores were not given
    holes: list[str] = field(default_factory=list)  # a sentence on each run of records that is missing within a log
    restored: list[str] = field(default_factory=list)  # of each server whose store is an old copy, why and what to do

    @property
    def judged(self) -> float:
        """The share, 0 to 1, of what happened before the cut that this verdict speaks of."""
        judged = self.sends + self.reactions
        return judged / (judged + self.unjudged) if self.unjudged else 1.0

    @property
    def clean(self) -> bool:
        wrong = self.violations or self.duplicates or self.unsent or self.lost or self.views
        return not (wrong or self.absent or self.holes)


@dataclass(slots=True)
class _Logs:
    """The first pass."""

    events: dict[str, deque[causality.Event]] = field(default_factory=lambda: defaultdict(deque))  # of each agent
    sends: dict[MessageId, tuple[str, ...]] = field(default_factory=dict)  # destinations
    reacted: set[Pair] = field(default_factory=set)
    ended: set[Pair] = field(default_factory=set)
    refused: set[Pair] = field(default_factory=set)  # of these, casts that are of no view of the agent
    vain: set[Pair] = field(default_factory=set)  # what an agent was given, and is nothing to it
    views: Views = field(default_factory=Views)
    cut_off: list[Pair] = field(default_factory=list)  # expired at this router, for all beyond it
    upto: dict[str, int] = field(default_factory=dict)  # server -> last sequence read
    retired: set[str] = field(default_factory=set)
    holes: list[str] = field(default_factory=list)
    records: int = 0
    lives: dict[str, dict[int, list[causality.Event]]] = field(default_factory=dict)  # of agents that moved, by part
    sent_on: dict[MessageId, MessageId] = field(default_factory=dict)  # what another server has sent in place of what
    addresses: dict[Pair, str] = field(default_factory=dict)  # where a message was sent to an agent that had moved


def audit(
    topology: Topology, stores: Mapping[str, Store], progress: Callable[[int], None] = lambda _: None
) -> Findings:
    """Judge the bus by the stores of its servers (if some are not given, what depends on them is not judged).

    `progress` hears the number of log records read so far.
    """
    logs = _Logs()
    for server, store in stores.items():
        _read(logs, server, store, progress)
    for agent, parts in logs.lives.items():
        logs.events[agent] = deque(event for part in sorted(parts) for event in parts[part])
    _follow(logs)
    revisions = in_force(topology, stores)
    for router, id in logs.cut_off:
        logs.ended.update((agent, id) for agent in beyond(revisions, router, id, logs.sends.get(id, ())))
    found = Findings(records=logs.records, retired=sorted(logs.retired), ended=len(logs.ended), holes=logs.holes)
    events = _cut(logs, stores, found)
    found.views = _views(logs, events)
    verdict = causality.check(events)
    found.violations = cast(list[tuple[str, MessageId, MessageId]], verdict.violations)
    found.duplicates, found.unsent = cast(list[Pair], verdict.duplicates), cast(list[Pair], verdict.unsent)
    found.sends, found.reactions = verdict.sends, verdict.deliveries
    found.agents = dict(Counter(event[1] for event in events if event[0] == "deliver"))
    arriving = [pair for pair in cast(list[Pair], verdict.lost) if pair not in logs.reacted]
    _search(logs, revisions, stores, arriving, found)
    found.restored = restored(topology, stores)
    found.unseen = [server for server in topology.servers if server not in stores]
    return found


def in_force(topology: Topology, stores: Mapping[str, Store]) -> list[Topology]:
    """The topologies that servers work under now, the older one first, and then that to which they are about to change.
    Stores that tell none are of the one of the file."""
    texts: dict[int, str] = {}
    for store in stores.values():
        meta = store.meta()
        number, text = revision.in_force(meta)
        texts[number] = text
        if PLAN in meta:
            plan = json.loads(str(meta[PLAN]))
            texts.setdefault(plan["number"], plan["text"])
    return [revision.read(texts[at], topology) if texts[at] else topology for at in sorted(texts)] or [topology]


def beyond(revisions: Sequence[Topology], router: str, id: MessageId, dests: Iterable[str]) -> list[str]:
    """Those of the destinations of a message that lie behind a router at which it has ended.

    If none does, or there may have been other ways before, it may have been any of them.
    """
    dests = list(dests)
    if len(revisions) > 1:
        return dests
    return [agent for agent in dests if router in routes.servers(revisions, id[0], home_of(agent))] or dests


def restored(topology: Topology, stores: Mapping[str, Store]) -> list[str]:
    """A sentence for each server whose neighbours know more of it than its store does.

    Both ends are read twice, so that a bus at work is not blamed: what the one knew first, the other must know last.
    """
    epochs = {name: _epochs(store) for name, store in stores.items()}
    first = {name: store.links() for name, store in stores.items()}
    last = {(name, row.domain, row.peer): row for name, store in stores.items() for row in store.links()}
    changed = {name for name, store in stores.items() if _epochs(store) != epochs[name]}
    found: dict[str, str] = {}
    for me, rows in first.items():
        for row in rows:
            if (row.peer, row.domain, me) not in last or changed & {me, row.peer}:
                continue
            if epochs[me].get(row.domain) != epochs[row.peer].get(row.domain):
                continue  # one of both has other domains already
            peer, where = row.peer, row.domain
            if not _all_here(topology, peer):
                continue  # a replica on another machine may have more
            theirs = last[peer, where, me]
            if row.incarnation and row.incarnation != stores[peer].meta()[INCARNATION]:
                found[peer] = f"{me} knew another store of {peer}"
            elif row.received > (had := theirs.sent):
                found[peer] = (
                    f"{me} has received {many(row.received, 'message')} of {peer} in {where}, which sent only {had}"
                )
            elif row.acked > (had := theirs.received):
                found[peer] = (
                    f"{peer} has acknowledged {many(row.acked, 'message')} of {me} in {where}, and has only {had}"
                )
    return [
        f"{fact}: the store of {server} was wiped or restored from an old copy; run `mom domain reset` for {server}"
        for server, fact in sorted(found.items())
    ]


def _all_here(topology: Topology, server: str) -> bool:
    """What it has is on this machine: of replicas a majority, witnesses apart, which has all that was ever said."""
    at = topology.servers.get(server)
    if at is None or not at.replicas:
        return True
    there = [view for view in at.views() if not view.place.witness and (Path(view.data) / STORE).exists()]
    return len(there) > len(at.replicas) // 2


def _epochs(store: Store) -> dict[str, int]:
    """Of the domains of a server, by name."""
    meta = store.meta()
    names = [key.removeprefix(DIGEST) for key in meta if key.startswith(DIGEST)]
    return {name: int(meta.get(EPOCH + name, 0)) for name in names}


# -- first pass ------------------------------------------------------------------------------------------------------


def _read(logs: _Logs, server: str, store: Store, progress: Callable[[int], None]) -> None:
    logs.upto[server] = 0
    if RESET in store.meta():
        logs.retired.add(server)  # it took the place of a lost store
    journeys = Journeys(server)
    further: tuple[MessageId, str] | None = None  # a message in the name of another server's client, by this record
    for seq, record in routes.records(store, 0):
        if seq != logs.upto[server] + 1:
            logs.retired.add(server)
            if last := logs.upto[server]:
                logs.holes.append(
                    f"the records {last + 1} to {seq - 1} of {server} are missing in its log: `mom store verify` says "
                    "more, and a backup or an export may have them"
                )
        logs.upto[server] = seq
        kind, origin, number, agent, dests = record[:5]
        id = (origin, number)
        if further is not None and kind == "drop" and origin == further[1]:
            logs.sent_on[further[0]] = id
        further = None
        if kind == "move":
            journeys.follow(kind, number, agent, record.detail)
            here = logs.lives.setdefault(agent, {})
            if agent in logs.events:  # what it did before it moved for the first time
                here.setdefault(0, []).extend(logs.events.pop(agent))
        elif kind == "send":
            # What a server sends again in the name of a far agent is no event of that agent.
            part = journeys.part(agent)
            process = agent if part != NOT_HERE else f"{server}/_{agent}"
            if part == NOT_HERE and record.detail == ClientMessage.wire:
                further = id, home_of(agent)
            ids = tuple(map(identity, dests))
            logs.addresses.update(((to, id), dest) for to, dest in zip(ids, dests, strict=True) if to != dest)
            logs.sends.setdefault(id, ids)
            _note(logs, process, part, ("send", process, id, ids))
        elif kind == "react":
            logs.reacted.add((agent, id))
            if record.detail in MEMBERS:
                logs.vain.add((agent, id))
            _note(logs, agent, journeys.part(agent), ("deliver", agent, id))
        elif kind in ENDS and agent:
            logs.ended.add((agent, id))
            if record.detail == REFUSED:
                logs.refused.add((agent, id))
        elif kind in ENDS:
            logs.cut_off.append((server, id))
        elif kind == "view":
            logs.views.view(id, record.detail)
        elif kind == "cast":
            logs.views.cast(id, record.detail)
        logs.records += 1
        if logs.records % PAGE == 0:
            progress(logs.records)


def _follow(logs: _Logs) -> None:
    """A message of a client that another server has sent on, to the queue that had the name by then, is still that
    message: it must not come behind what its sender has sent there itself."""
    for id, former in logs.sent_on.items():
        dests = logs.sends.pop(id)
        if former in logs.sends:
            logs.sends[former] += dests
        logs.reacted |= {(agent, former) for agent in dests if (agent, id) in logs.reacted}
    for agent, events in list(logs.events.items()) if logs.sent_on else ():
        logs.events[agent] = deque(
            ("send", process, id, logs.sends[id]) if kind == "send" else (kind, process, logs.sent_on.get(id, id))
            for kind, process, id, *_ in events
            if kind != "send" or id not in logs.sent_on
        )


def _note(logs: _Logs, process: str, part: int, event: causality.Event) -> None:
    """An event, in the order of its process: one that has moved was here and there, one after the other."""
    if process in logs.lives:
        logs.lives[process].setdefault(part, []).append(event)
    else:
        logs.events[process].append(event)


def _cut(logs: _Logs, stores: Mapping[str, Store], found: Findings) -> list[causality.Event]:
    """The events to judge, causes first. An agent's events from the first on whose cause was not read are left out."""
    unread = _unread(logs, stores)
    events: list[causality.Event] = []
    sent: set[MessageId] = set()
    blocked: dict[MessageId, list[str]] = defaultdict(list)  # agents whose next event needs this send
    stopped: list[str] = []
    run = deque(logs.events)
    while run:
        agent = run.popleft()
        left = logs.events[agent]
        while left:
            kind, _, id, *_ = left[0]
            if kind == "send":
                sent.add(id)
                run.extend(blocked.pop(id, ()))
            elif id in unread:
                stopped.append(agent)
                break
            elif id in logs.sends and id not in sent:
                blocked[id].append(agent)
                break
            events.extend(_to_judge(logs, stores, left.popleft(), found))
    while stopped:
        for kind, _, id, *_ in logs.events[stopped.pop()]:
            found.uncut += 1
            if kind == "send":
                stopped.extend(blocked.pop(id, ()))
    # What is still blocked waits for itself: no execution has such an order, and the checker says so.
    for agent in (agent for agents in blocked.values() for agent in agents):
        for event in logs.events[agent]:
            events.extend(_to_judge(logs, stores, event, found))
    return events


def _views(logs: _Logs, events: Iterable[causality.Event]) -> list[Finding]:
    views = logs.views
    views.moved = logs.lives
    for kind, agent, id, *_ in events:
        if kind == "send":
            if views.concerns(id):
                views.sent(agent, id, logs.sends[id], excused(logs.sends[id], id, logs.ended, logs.refused))
        elif (agent, id) not in logs.vain:
            views.reacted(agent, id)
    return views.finish()


def _to_judge(
    logs: _Logs, stores: Mapping[str, Store], event: causality.Event, found: Findings
) -> Iterator[causality.Event]:
    """The event as it is judged, if it is."""
    kind, agent, id, *dests = event
    if kind == "send":
        yield "send", agent, id, _judged(logs, stores, id, dests[0], found)
    elif id not in logs.sends and (id[0] not in stores or id[0] in logs.retired):
        found.unjudged += 1
    elif _ordinary(agent) and (agent, id) not in logs.ended:
        yield event


def _unread(logs: _Logs, stores: Mapping[str, Store]) -> set[MessageId]:
    """Messages whose reactions were read but not their sends, since these were logged after their log was read."""
    missing = {id for _, id in logs.reacted if id not in logs.sends}
    found: set[MessageId] = set()
    for server in sorted({server for server, _ in missing if server in stores}):
        tail = routes.records(stores[server], logs.upto[server])
        found.update((record.origin, record.number) for _, record in tail if record.kind == "send")
    return found & missing


def _judged(
    logs: _Logs, stores: Mapping[str, Store], id: MessageId, dests: tuple[str, ...], found: Findings
) -> tuple[str, ...]:
    """The destinations that must react to this message."""
    judged = []
    for agent in dests:
        if not _ordinary(agent) or (agent, id) in logs.ended:
            continue
        home = home_of(logs.addresses.get((agent, id), agent))
        if (home in logs.retired or home not in stores) and (agent, id) not in logs.reacted:
            found.unjudged += 1
        else:
            judged.append(agent)
    return tuple(judged)


def _ordinary(agent: str) -> bool:
    """False for the endpoints of the server itself, which take what they are sent without a reaction."""
    return not agent.partition("/")[2].startswith("_")


# -- second pass -----------------------------------------------------------------------------------------------------


def _search(
    logs: _Logs, revisions: Sequence[Topology], stores: Mapping[str, Store], pairs: list[Pair], found: Findings
) -> None:
    """Look for messages that had not arrived in the cut along their routes; those that are nowhere are lost."""
    ways: dict[tuple[str, str], set[Pair]] = defaultdict(set)
    for agent, id in pairs:
        ways[id[0], home_of(logs.addresses.get((agent, id), agent))].add((agent, id))
    lost = set[Pair]()
    for (origin, final), wanted in ways.items():
        if not stores.keys() >= routes.places(revisions, origin, final):
            found.unjudged += len(wanted)
            continue
        ids = {id for _, id in wanted}
        for seen in routes.underway(revisions, stores, origin, final):
            ids -= seen
            if not ids:
                break
        left = {pair for pair in wanted if pair[1] in ids}
        left = _arrived(stores[final], final, left, logs.upto[final])
        found.waiting += len(wanted) - len(left)
        lost |= left
    moved = lost - _not_moved(logs, stores, lost)
    found.waiting += len(moved)
    lost -= moved
    ended = _ended(revisions, stores, logs.upto, lost)
    found.waiting += len(ended)
    lost -= ended
    found.lost = [pair for pair in pairs if pair in lost]


def _not_moved(logs: _Logs, stores: Mapping[str, Store], pairs: set[Pair]) -> set[Pair]:
    """Those of them that did not go along with their agents to another server, are not under way with them, and were
    not reacted to there since the logs were read."""
    metas = [store.meta() for store in stores.values()] if pairs else []
    under_way = {
        agent for agent, _ in pairs
        if any(f"{key}{agent}" in meta for meta in metas for key in (DEPARTING, ARRIVING))
    }  # fmt: skip
    travelled = under_way.union(
        agent for agent, _ in pairs if agent in logs.lives or any(HOME + agent in meta for meta in metas)
    )
    left = {pair for pair in pairs if pair[0] in travelled - under_way}
    for server, store in stores.items():
        left = _arrived(store, server, left, logs.upto.get(server, 0))
    return {pair for pair in pairs if pair[0] not in travelled} | left


def _ended(
    revisions: Sequence[Topology], stores: Mapping[str, Store], upto: Mapping[str, int], pairs: set[Pair]
) -> set[Pair]:
    """Those that have ended otherwise than by a reaction since the logs were read, as late as just now: at a router
    for all beyond it."""
    ids = {id for _, id in pairs}
    there: set[Pair] = set()
    at: dict[MessageId, set[str]] = defaultdict(set)
    for server, store in stores.items() if pairs else ():
        for _, (kind, origin, number, agent, *_) in routes.records(store, upto.get(server, 0)):
            if kind in ENDS and (origin, number) in ids:
                if agent:
                    there.add((agent, (origin, number)))
                else:
                    at[origin, number].add(server)
    return {
        (agent, id) for agent, id in pairs
        if (agent, id) in there or at.get(id, set()) & routes.servers(revisions, id[0], home_of(agent))
    }  # fmt: skip


def _arrived(store: Store, server: str, pairs: set[Pair], after: int) -> set[Pair]:
    """The pairs that are neither in the inboxes of their agents, nor reacted to, nor dead."""
    pairs = set(pairs)
    for agent in {agent for agent, _ in pairs}:
        seq = 0
        while page := store.queue_in(agent, seq, LAST, PAGE):
            pairs -= {(agent, id) for id in routes.ids(row.data for row in page)}
            seq = page[-1].id
    place = None
    while pairs and (letters := store.items(f"{server}/{DEAD}", LETTERS, place, PAGE)):
        dead = routes.ids(letter.body for letter in letters)
        pairs = {pair for pair in pairs if pair[1] not in dead}
        place = (letters[-1].key, letters[-1].id)
    if pairs:
        for _, (kind, origin, number, agent, *_) in routes.records(store, after):
            if kind == "react" or kind in ENDS:
                pairs.discard((agent, (origin, number)))
    return pairs
