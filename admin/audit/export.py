"""The verdict of admin/audit/bus.py from an export, in memory that does not grow with it.

First pass: which messages were sent and forwarded, one bit each, and the few that ended without a reaction. Then
the logs of all servers side by side, each read up to the first reaction whose send was not read yet: every server logs
in the order in which things happened, so one of them can always go on, unless a log is not what was written. Kept are
the messages under way at this point, and what each agent knows. Last, for what has not arrived, the stores, where they
are at hand.

Not bounded: what ended otherwise (dead letters, expired and so on), and the reactions of servers whose log has lost
its beginning.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mombroker.admin.analysis import files
from mombroker.admin.audit import bus as live
from mombroker.admin.audit import routes
from mombroker.admin.audit.bus import ENDS, Findings, Pair
from mombroker.admin.audit.routes import MessageId, Store
from mombroker.admin.audit.views import Views, excused
from mombroker.core.causality import Judge, blamed
from mombroker.core.groups.bus import REFUSED
from mombroker.core.groups.bus import TYPES as MEMBERS
from mombroker.core.ids import home_of, identity
from mombroker.core.meta import RESET
from mombroker.core.topology import Topology

ROWS = 1 << 13  # of a log, in memory at a time
COLUMNS = ["kind", "origin", "number", "agent", "dests"]
SURVEYED = [*COLUMNS[:4], "detail"]

Event = tuple[str, str, MessageId, tuple[str, ...]]  # kind, process, message, destinations of a send (cast: its detail)


def audit(
    topology: Topology,
    target: Path,
    stores: Mapping[str, Store],
    at_rest: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Findings:
    """Judge the bus by an export of its logs; `stores` are those at hand.

    What has not arrived and could be in a store that is not given is not judged, nor is what may have causes that were
    logged after the export, unless the store is given and says so. With `at_rest` no store is asked: all had arrived
    when the logs were exported, or never will, so that nothing is left out.

    A server of which the export has no record is `absent`, unless its store is given and has none either: it takes
    part in what cannot be judged. `progress` hears the number of log records read so far.
    """
    logs = _Logs(topology, target, stores, at_rest, progress)
    logs.survey()
    pass_ = _Pass(logs)
    pass_.run()
    found = pass_.finish()
    found.views = logs.views.finish()
    found.holes = files.holes(target)
    missing = sorted(server for server in topology.servers if server not in logs.files)
    found.absent = [name for name in missing if name not in stores or stores[name].log(0, 1)]
    arriving = [(agent, id) for id, message in pass_.judge.messages.items() for agent in message.waiting]
    reacted = pass_.beyond.union(found.unsent)  # of these, by who reacted before the send
    cut = [pair for pair in cast(list[Pair], arriving) if pair not in reacted]
    if at_rest:
        found.lost = cut
    else:
        live._search(live._Logs(upto=logs.upto), live.in_force(topology, stores), stores, cut, found)
        found.restored = live.restored(topology, stores)
    for findings in (found.violations, found.duplicates, found.unsent, found.lost):
        findings.sort()
    return found


class _Bits:
    """A set of numbers, one bit for each number up to the largest."""

    def __init__(self) -> None:
        self._flags = np.zeros(1024, bool)
        self.last = 0
        self.bits = bytearray()

    def add(self, numbers: np.ndarray) -> None:
        self.last = max(self.last, int(numbers.max()))
        if self.last >= len(self._flags):
            self._flags = np.concatenate([self._flags, np.zeros(max(self.last, len(self._flags)), bool)])
        self._flags[numbers] = True

    def close(self) -> None:
        self.bits = bytearray(np.packbits(self._flags, bitorder="little"))
        self._flags = self._flags[:0]

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self.bits) and bool(self.bits[number >> 3] >> (number & 7) & 1)

    def empty(self) -> "_Bits":
        made = _Bits()
        made.bits = bytearray(len(self.bits))
        return made

    def put(self, number: int) -> None:
        self.bits[number >> 3] |= 1 << (number & 7)


class _Logs:
    """The export, and what one look at all of it tells."""

    def __init__(
        self,
        topology: Topology,
        target: Path,
        stores: Mapping[str, Store],
        at_rest: bool,
        progress: Callable[[int], None],
    ) -> None:
        self.topology, self.target, self.stores, self.progress = topology, target, stores, progress
        self.at_rest = at_rest
        self.files: dict[str, list[files.File]] = defaultdict(list)
        for file in files.chosen(target):
            self.files[file.server].append(file)
        self.retired = {server for server, parts in self.files.items() if _broken(parts)}
        self.retired |= {server for server, store in stores.items() if RESET in store.meta()}
        for server, parts in self.files.items():
            self.files[server] = _in_time(parts)
        self.upto = {server: parts[-1].hi for server, parts in self.files.items()}
        self.sent: dict[str, _Bits] = defaultdict(_Bits)  # by origin: messages whose send is logged
        self.forwarded: dict[str, Counter[str]] = defaultdict(Counter)  # by router and origin: the last message
        self._routers: dict[tuple[str, str], list[str]] = {}
        self.sends: Counter[str] = Counter()  # of each process
        self.moved: set[str] = set()  # agents that were on several servers: what they did is not put together
        self.ended: set[Pair] = set()
        self.refused: set[Pair] = set()  # of these, casts that are of no view of the agent
        self.vain: set[Pair] = set()  # what an agent was given, and is nothing to it
        self.views = Views()
        self.views.moved = self.moved
        self.cut_off: dict[MessageId, list[str]] = defaultdict(list)  # expired at these routers, for all beyond them
        self.reacted: set[Pair] = set()  # at servers whose log has lost its beginning
        self.records = 0
        self._tails: dict[str, tuple[set[MessageId], Counter[str]]] = {}

    def survey(self) -> None:
        for server, parts in self.files.items():
            for file in parts:
                with files.reading(file) as part:
                    for batch in part.iter_batches(1 << 16, columns=SURVEYED):
                        self.records += batch.num_rows
                        self._survey(server, batch)
                self.progress(self.records)
        for bits in self.sent.values():
            bits.close()

    def _survey(self, server: str, batch: pa.RecordBatch) -> None:
        kinds = batch.column("kind")
        sends = batch.filter(pc.equal(kinds, "send"))
        for origin, numbers in _by_origin(sends):
            self.sent[origin].add(numbers)
        for origin, numbers in _by_origin(batch.filter(pc.equal(kinds, "forward"))):
            self.forwarded[server][origin] = max(self.forwarded[server][origin], int(numbers.max()))
        for each in sends.column("agent").value_counts():
            self.sends[_process(server, each["values"].as_py())] += each["counts"].as_py()
        self.moved.update(batch.filter(pc.equal(kinds, "move")).column("agent").to_pylist())
        ends = batch.filter(pc.is_in(kinds, pa.array(ENDS)))
        for row in ends.to_pylist():
            id = row["origin"], row["number"]
            if row["agent"]:
                self.ended.add((row["agent"], id))
                if row["detail"] == REFUSED:
                    self.refused.add((row["agent"], id))
            else:
                self.cut_off[id].append(server)
        for row in batch.filter(pc.equal(kinds, "view")).to_pylist():
            self.views.view((row["origin"], row["number"]), row["detail"])
        vain = pc.and_(pc.equal(kinds, "react"), pc.is_in(batch.column("detail"), pa.array(MEMBERS)))
        for row in batch.filter(vain).to_pylist():
            self.vain.add((row["agent"], (row["origin"], row["number"])))
        if server in self.retired:
            for row in batch.filter(pc.equal(kinds, "react")).to_pylist():
                self.reacted.add((row["agent"], (row["origin"], row["number"])))

    def events(self, server: str) -> Iterator[Event]:
        """Sends, with what says of them that they are casts, and reactions, in the order of the log."""
        wanted = pa.array(["send", "react"])
        columns = [*COLUMNS]
        if self.views.of:
            wanted, columns = pa.array(["send", "react", "cast"]), [*COLUMNS, "detail"]
        for file in self.files[server]:
            with files.reading(file) as part:
                for batch in part.iter_batches(ROWS, columns=columns):
                    rows = batch.filter(pc.is_in(batch.column("kind"), wanted))
                    for kind, origin, number, agent, dests, *detail in zip(
                        *(column.to_pylist() for column in rows.columns), strict=True
                    ):
                        process = agent if kind == "react" else _process(server, agent)
                        yield kind, process, (origin, number), tuple(detail if kind == "cast" else dests)

    def unread(self, agent: str, id: MessageId) -> str:
        """Why a reaction is not judged: "later", the log of a server on the way says that it passed there after the
        export; "unknown", that may be so, but the server's store is not at hand; else empty.

        What was logged after the export may be the send itself, or at a router that an earlier message has expired
        there. A router logs the messages of one origin in the order of their numbers: it has only one way to it.
        """
        origin, number = id
        if self.at_rest or origin not in self.files:
            return ""
        if origin not in self.sent or number not in self.sent[origin]:
            if origin in self.stores:
                return "later" if id in self._tail(origin)[0] else ""
            return "unknown" if origin not in self.sent or number > self.sent[origin].last else ""
        why = ""
        for router in self._on_the_way(origin, home_of(agent)):
            if number > self.forwarded[router][origin]:
                if router not in self.stores:
                    why = "unknown"
                elif number <= self._tail(router)[1][origin]:
                    return "later"
        return why

    def _tail(self, server: str) -> tuple[set[MessageId], Counter[str]]:
        """What its store says since the export: messages sent, and the last one of each origin forwarded."""
        if server not in self._tails:
            sent: set[MessageId] = set()
            forwarded: Counter[str] = Counter()
            for _, (kind, origin, number, *_) in routes.records(self.stores[server], self.upto.get(server, 0)):
                if kind == "send":
                    sent.add((origin, number))
                elif kind == "forward":
                    forwarded[origin] = max(forwarded[origin], number)
            self._tails[server] = sent, forwarded
        return self._tails[server]

    def _on_the_way(self, origin: str, home: str) -> list[str]:
        """The routers between them."""
        way = origin, home
        if way not in self._routers:
            passed = routes.servers([self.topology], *way) - set(way)
            self._routers[way] = [each for each in passed if each in self.files and each not in self.retired]
        return self._routers[way]

    def dests(self, ids: set[MessageId]) -> dict[MessageId, tuple[str, ...]]:
        """Where these messages were sent to."""
        found: dict[MessageId, tuple[str, ...]] = {}
        numbers = pa.array({number for _, number in ids}, pa.int64())
        for server in self.files if ids else ():
            for file in self.files[server]:
                with files.reading(file) as part:
                    for batch in part.iter_batches(1 << 16, columns=COLUMNS):
                        wanted = pc.and_(
                            pc.equal(batch.column("kind"), "send"), pc.is_in(batch.column("number"), numbers)
                        )
                        for row in batch.filter(wanted).to_pylist():
                            found.setdefault((row["origin"], row["number"]), tuple(row["dests"]))
        return found


def _by_origin(batch: pa.RecordBatch) -> Iterator[tuple[str, np.ndarray]]:
    """The numbers of its messages."""
    origins = batch.column("origin")
    for origin in origins.unique().to_pylist():
        yield origin, batch.filter(pc.equal(origins, origin)).column("number").to_numpy()


def _process(server: str, agent: str) -> str:
    """What a server sends again in the name of a far agent is no event of that agent."""
    return agent if agent.startswith(f"{server}/") else f"{server}/_{agent}"


def _broken(parts: list[files.File]) -> bool:
    """The records are not all of one store, from the first on."""
    due = 1
    for file in parts:
        if file.lo != due or file.incarnation != parts[0].incarnation:
            return True
        due = file.hi + 1
    return False


def _in_time(parts: list[files.File]) -> list[files.File]:
    """The stores of a server one after another."""
    first: dict[str, object] = {}
    for file in parts:
        if file.incarnation not in first:
            with files.reading(file) as part:
                first[file.incarnation] = next(part.iter_batches(1, columns=["time"])).column(0)[0].as_py()
    return sorted(parts, key=lambda file: (first[file.incarnation], file.lo))


@dataclass(slots=True)
class _Pass:
    """The second pass.

    1. An agent is `stopped` from its first event on whose cause was not read; its later events are not judged either.
       Why, as of `unread`, is kept with it.
    2. The events of a `queued` agent wait for the send of the first of them.
    """

    logs: _Logs
    judge: Judge = field(init=False)
    found: Findings = field(default_factory=Findings)
    seen: dict[str, _Bits] = field(default_factory=dict)  # by origin: messages whose send was judged
    stopped: dict[str, str] = field(default_factory=dict)
    beyond: set[Pair] = field(default_factory=set)  # reactions outside the cut
    outside: dict[MessageId, str] = field(default_factory=dict)  # sends outside the cut
    odd: list[Pair] = field(default_factory=list)  # reactions to what was not under way to the agent
    agents: Counter[str] = field(default_factory=Counter)
    ready: deque[str] = field(default_factory=deque)  # servers whose logs can be read on
    woken: list[str] = field(default_factory=list)  # queued agents that can go on
    queued: dict[str, deque[Event]] = field(default_factory=dict)
    waiting: dict[MessageId, list[str]] = field(default_factory=lambda: defaultdict(list))  # queued agents
    heads: dict[str, Event] = field(default_factory=dict)  # servers whose next event waits for a send
    blocked: dict[MessageId, list[str]] = field(default_factory=lambda: defaultdict(list))  # these servers

    def __post_init__(self) -> None:
        self.judge = Judge(self.logs.sends)
        self.seen = {origin: bits.empty() for origin, bits in self.logs.sent.items()}

    def run(self) -> None:
        cursors = {server: self.logs.events(server) for server in self.logs.files}
        self.ready.extend(cursors)
        while self.ready or self.heads:
            if not self.ready:  # each waits for another, so what one of them logs cannot have happened in this order
                for event in self.heads.values():
                    self._queue(event)
                self.ready.extend(self.heads)
                self.heads.clear()
                self.blocked.clear()
            server = self.ready.popleft()
            if head := self.heads.pop(server, None):
                self._take(head)
            for event in cursors[server]:
                if event[1] in self.queued:
                    self.queued[event[1]].append(event)
                elif self._must_wait(event):
                    self.heads[server] = event
                    self.blocked[event[2]].append(server)
                    break
                else:
                    self._take(event)
        while self.queued:
            self._break_cycle()

    def _must_wait(self, event: Event) -> bool:
        kind, process, id, _ = event
        return (
            kind == "react" and process not in self.stopped and id not in self.outside
            and id[0] in self.seen and id[1] not in self.seen[id[0]] and id[1] in self.logs.sent[id[0]]
        )  # fmt: skip

    def _take(self, event: Event) -> None:
        """An event that need not wait, and the queued events that it lets go on."""
        self._apply(event)
        self._wake()

    def _wake(self) -> None:
        while self.woken:
            agent = self.woken.pop()
            left = self.queued.pop(agent)
            while left and not self._must_wait(left[0]):
                self._apply(left.popleft())
            if left:
                self.queued[agent] = left
                self.waiting[left[0][2]].append(agent)

    def _apply(self, event: Event) -> None:
        kind, process, id, dests = event
        if kind == "react":
            self._react(process, id)
        elif kind == "cast":
            if process not in self.stopped:
                self.logs.views.cast(id, dests[0])
        else:
            self._send(process, id, dests)
            self.ready.extend(self.blocked.pop(id, ()))
            self.woken.extend(self.waiting.pop(id, ()))

    def _send(self, process: str, id: MessageId, dests: tuple[str, ...]) -> None:
        if process in self.stopped:
            self._leave_out(self.stopped[process])
            self.outside[id] = self.stopped[process]
        elif id[1] in self.seen[id[0]]:
            self.judge.verdict.sends += 1
            self.judge.verdict.duplicates.append((process, id))
        else:
            self.seen[id[0]].put(id[1])
            self.judge.send(process, id, self._judged(id, dests))
            if self.logs.views.concerns(id):
                ids = list(map(identity, dests))
                self.logs.views.sent(process, id, ids, excused(ids, id, self.logs.ended, self.logs.refused))

    def _judged(self, id: MessageId, dests: tuple[str, ...]) -> list[str]:
        """The destinations that must react to this message."""
        logs, judged = self.logs, []
        for router in logs.cut_off.get(id, ()):
            logs.ended.update((agent, id) for agent in live.beyond([logs.topology], router, id, dests))
        for agent in map(identity, dests):
            home = home_of(agent)
            if not live._ordinary(agent) or (agent, id) in logs.ended:
                continue
            if agent in logs.moved:
                self.found.unjudged += 1
                continue
            if (home in logs.retired or home not in logs.files) and (agent, id) not in logs.reacted:
                self.found.unjudged += 1
            else:
                judged.append(agent)
        return judged

    def _react(self, agent: str, id: MessageId) -> None:
        logs, origin = self.logs, id[0]
        sent = origin in logs.sent and id[1] in logs.sent[origin]
        if why := self.stopped.get(agent) or self.outside.get(id) or logs.unread(agent, id):
            self.stopped[agent] = why
            self.beyond.add((agent, id))
            self._leave_out(why)
        elif agent in logs.moved:
            self.found.unjudged += 1
        elif not sent and (origin not in logs.files or origin in logs.retired):
            self.found.unjudged += 1
        elif live._ordinary(agent) and (agent, id) not in logs.ended:
            self.agents[agent] += 1
            if (agent, id) not in logs.vain:
                logs.views.reacted(agent, id)
            if not self.judge.deliver(agent, id):
                self.judge.verdict.deliveries += 1
                self.odd.append((agent, id))

    def _leave_out(self, why: str) -> None:
        if why == "later":
            self.found.uncut += 1
        else:
            self.found.unjudged += 1

    def _queue(self, event: Event) -> None:
        agent = event[1]
        if agent in self.queued:
            self.queued[agent].append(event)
        else:
            self.queued[agent] = deque((event,))
            self.waiting[event[2]].append(agent)

    def _break_cycle(self) -> None:
        """All that is left waits for each other: some message was reacted to before its own send. Blame one."""
        owners = {event[2]: agent for agent, left in self.queued.items() for event in left if event[0] == "send"}
        agent = blamed({each: owners.get(left[0][2], each) for each, left in self.queued.items()})
        id = self.queued[agent][0][2]
        self.waiting[id].remove(agent)
        self.queued[agent].popleft()
        self.judge.verdict.unsent.append((agent, id))
        self.judge.verdict.deliveries += 1
        self.woken.append(agent)
        self._wake()

    def finish(self) -> Findings:
        found, verdict, logs = self.found, self.judge.verdict, self.logs
        dests = logs.dests({id for _, id in self.odd})
        for agent, id in self.odd:
            (verdict.duplicates if agent in dests.get(id, ()) else verdict.unsent).append((agent, id))
        found.violations = cast(list[tuple[str, MessageId, MessageId]], verdict.violations)
        found.duplicates, found.unsent = cast(list[Pair], verdict.duplicates), cast(list[Pair], verdict.unsent)
        found.records, found.sends, found.reactions = logs.records, verdict.sends, verdict.deliveries
        found.agents, found.ended, found.retired = dict(self.agents), len(logs.ended), sorted(logs.retired)
        return found
