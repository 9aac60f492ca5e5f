"""The Engine: persistent reactive agents and their inboxes; one reaction is atomic (paper 004 §3).

A reaction's state change, sends, creations, timers, collection changes and the message that it consumed join one
batch, or none of them does. Inboxes live on disk with a bounded window in memory.
"""

from __future__ import annotations

import json
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

from mombroker.core import trace
from mombroker.core.batch import InRow, ItemRow, PayloadRow, TaskRow
from mombroker.core.collection import Collection
from mombroker.core.errors import MomError, NoProgram, PeerError, UnknownName, UnknownNotification, plain, sentence
from mombroker.core.ids import home_of
from mombroker.core.inbox import Entry, Inbox
from mombroker.core.message import BOUNCE, Message, decode
from mombroker.core.names import CREATE
from mombroker.core.natives import NativeAgent, Natives
from mombroker.core.reaction import DELETE, Program, Reaction, Reactive

if TYPE_CHECKING:
    from mombroker.core.server import AgentServer
    from mombroker.core.topology import AgentDecl

DEAD, LETTERS = "_dead", "letters"  # the dead letters' place: collection LETTERS of agent <server>/_dead
PAGE = 256
RUN = 16  # reactions of one agent before it is another's turn
SHARED, ALONE = 16 << 10, 256  # bytes that copies of a payload must take to be one, and that each of them may take
TRIED, SHARE = 64, 8  # messages of one attempt in careful mode, and which share of them at the next unclean stop
RETRY, ALARM = 0, -1


class Resident:
    """An agent in memory. `state` is its row's blob: the undo image of a failed reaction."""

    __slots__ = ("path", "reactive", "state", "batch", "collections")

    def __init__(self, path: str, reactive: Reactive, state: bytes):
        self.path, self.reactive, self.state = path, reactive, state
        self.batch = 0  # the batch that last wrote it: not to be evicted before that is durable
        self.collections: dict[str, Collection] = {}


class Engine:
    """1. Each agent's messages are reacted to one by one, in delivery order; a failing one holds back only its agent.
    2. Every undone entry at the close of a batch has its row.
    3. `running` names the agent whose reaction is under way."""

    def __init__(self, server: AgentServer, program: Program, unclean: int):
        self.server, self.program = server, program
        self.inboxes: dict[str, Inbox] = {}
        self.run: deque[Inbox] = deque()
        self.residents: OrderedDict[str, Resident] = OrderedDict()
        self.natives = Natives(server)
        self.new: list[tuple[str, Entry]] = []  # entries of the open batch
        self.payloads: dict[int, int] = {}  # shared ones of the open batch without a row: id -> id of the last entry
        self.in_memory = 0  # entries
        self.timers: list[tuple[int, int, str]] = []  # (due, task id, agent); instead of a task RETRY or ALARM
        self.tasks: dict[int, TaskRow] = {}
        self.waiting: dict[str, list[Inbox]] = {}  # name -> inboxes whose first reaction needs it
        self.missed: set[str] = set()  # classes that could not be loaded
        self.after_commit: list[Inbox] = []
        self.dirty: dict[str, Resident | NativeAgent] = {}  # with collection changes that are not durable
        self.running = ""
        self.marks = 0  # the batch with the newest marks of careful mode
        self.letters = Collection(server, f"{server.name}/{DEAD}", LETTERS)
        self.reactions = self.failures = self.dead = 0
        # After an unclean stop the first messages are marked durably before their reactions, so that one which kills
        # the process is found; each further unclean stop in a row widens the search.
        self.careful = 64 * 8 ** min(unclean - 1, 6) if unclean else 0

    def recover(self) -> None:
        """Take up what the store holds: inboxes, tasks; make the declared agents that do not exist yet."""
        reader, server = self.server.reader, self.server
        for agent, lowest, _ in reader.inboxes():
            box = self.inbox(agent)
            box.cursor, box.last = lowest - 1, server.next_id
            self.wake(box)
        for task in reader.tasks():
            self._schedule(task)
        for declared in server.topology.agents:
            if declared.server == server.name:
                self._declare(f"{server.name}/{declared.name}", declared)

    def _declare(self, id: str, declared: AgentDecl) -> None:
        """Make a declared agent that does not exist yet. While its class cannot be imported it has an empty state, by
        which no agent is loaded: what is for it waits behind its first reaction."""
        server = self.server
        row = server.reader.agent(id)
        if row is not None and row[1]:
            return
        try:
            state = self.program.initial(declared.cls, declared.fields)
        except MomError:  # _stuck says so
            state = b""
        if row is None:
            server.send(server.message(id, (id,), CREATE, declared.cls.encode() + b"\n" + state))
        elif row != (declared.cls, state) and not server.clients.owns(row[0]):
            server.batch.agents[id] = (declared.cls, state)
            server.mark(2)

    # -- inboxes -----------------------------------------------------------------------------------------------

    def inbox(self, agent: str) -> Inbox:
        box = self.inboxes.get(agent)
        if box is None:
            # Rows of an earlier inbox may be consumed and still be on disk: what counts comes after them.
            box = self.inboxes[agent] = Inbox(agent, self.server.next_id)
        return box

    def waiting_in(self, box: Inbox) -> int:
        """Its messages; of those that are only on disk, what was committed."""
        return len(box.queue) + (self.server.reader.queue_in_count(box.agent, box.cursor) if box.on_disk() else 0)

    def wake(self, box: Inbox) -> None:
        if not box.runnable and not box.blocked() and (box.queue or box.on_disk()):
            box.runnable = True
            self.run.append(box)

    def deliver(self, message: Message, agents: list[str], domain: str = "", peer: str = "", received: int = 0) -> None:
        """Hand a message over to local agents, in delivery order. What has a handler is applied here and now."""
        now, handler = self.server.now, self.server.handlers.get(message.type)
        payload = self._share(message, len(agents)) if handler is None and len(agents) > 1 else 0
        for agent in agents:
            if message.type == CREATE and not self._create(message, agent):
                continue
            if handler is not None:
                self._apply_now(handler, message, agent, domain, peer, received)
                continue
            box = self.inbox(agent)
            entry = Entry(self.server.new_id(), message, domain, peer, received, now, payload)
            if box.on_disk() or self.in_memory >= self.server.limits.max_inbox:
                self._store(agent, entry)
                box.last = entry.id
            else:
                box.queue.append(entry)
                box.cursor = box.last = entry.id
                self.in_memory += 1
                self.new.append((agent, entry))
            self.wake(box)
        self.server.mark(1 if message.note is not None and not message.data else 2)

    def _apply_now(
        self, handler: Callable[[Message], None], message: Message, agent: str, domain: str, peer: str, received: int
    ) -> None:
        try:
            self.server.read(message)
        except UnknownNotification as error:  # it has come a long way, or from an older program
            self.bury(message, agent, str(error), "", "ReactionFailed", 0)
            return
        self._record("react", message, agent, domain, peer, received, "")
        handler(message)

    def _share(self, message: Message, copies: int) -> int:
        """The id of the row for what the next so many entries have in common; 0 if each had better have its own."""
        size = len(message.payload)
        if size <= ALONE or (copies - 1) * size <= SHARED or message.type == CREATE:
            return 0
        id = self.server.new_id()
        self.payloads[id] = id + copies
        return id

    def _store(self, agent: str, entry: Entry) -> None:
        entry.stored = True
        message, batch = entry.message, self.server.batch
        if len(message.dests) == 1 and not entry.payload:
            data = message.encode()
        else:
            data = message.copy_for(agent)
            if not entry.payload:
                data += message.payload
            elif last := self.payloads.pop(entry.payload, 0):
                batch.payloads[entry.payload] = PayloadRow(entry.payload, last, message.payload)
                batch.bytes += len(message.payload)
        info = (entry.domain, entry.peer, entry.received, entry.delivered)
        batch.queue_in[entry.id] = InRow(entry.id, agent, data, entry.attempts, entry.trying, info, entry.payload)
        batch.bytes += len(data)

    def _refill(self, box: Inbox) -> bool:
        """Read the next page of an inbox; False while its rows are not durable yet."""
        rows = self.server.reader.queue_in(box.agent, box.cursor, min(box.last, self.server.durable_id), PAGE)
        for row in rows:
            box.cursor = row.id
            try:
                message = decode(row.data)
            except PeerError as error:  # it was stored before this was checked, or is damaged
                self.unreadable(row.data, box.agent, error)
                self.server.batch.queue_in[row.id] = None
                if row.payload:
                    self.server.batch.spent.add(row.payload)
                continue
            entry = Entry(row.id, message, *row.info, row.payload)
            entry.attempts, entry.trying, entry.stored = row.attempts, row.trying if self.careful else 0, True
            box.queue.append(entry)
            self.in_memory += 1
        if len(rows) < PAGE and box.last <= self.server.durable_id:
            box.cursor = box.last
        return bool(rows) or not box.on_disk()

    def _finish(self, box: Inbox, entry: Entry) -> None:
        """The entry leaves the inbox: consumed, parked or dropped."""
        box.queue.popleft()
        self.in_memory -= 1
        entry.done = True
        if box.marked:
            box.marked -= 1
        if entry.stored:
            self.server.batch.queue_in[entry.id] = None
            if entry.payload:
                self.server.batch.spent.add(entry.payload)
            self.server.mark(2)

    # -- reactions ---------------------------------------------------------------------------------------------

    def turn(self, budget: int) -> bool:
        """Run reactions to a fixed point; False when the budget ended before the work."""
        while (budget := self._work(budget)) >= 0:
            if not self.natives.touched:
                return True
            self.natives.flush()
        return False

    def _work(self, budget: int) -> int:
        """React while there is something to react to; what is left of the budget, -1 when the work is not done."""
        run, natives, batch_full = self.run, self.natives, self.server.batch_full
        while run:
            if budget <= 0 or natives.work <= 0 or batch_full():
                return -1
            if self.careful and self.marks > self.server.durable_batch:
                return budget  # the marks must be durable first
            box = run.popleft()
            box.runnable = False
            if box.blocked():  # it failed after it was woken
                continue
            if not box.queue and not self._refill(box):
                self.after_commit.append(box)
                continue
            if not box.queue:
                if box.on_disk():  # what was read was no message
                    self.wake(box)
                else:
                    self._forget(box)
                continue
            entry = box.queue[0]
            if self.careful and not box.marked:
                self._mark(box)
                continue
            budget -= 1
            self._react(box, entry)
            for _ in range(max(RUN - 1, box.marked)):  # a few more of the same agent, while it is at hand
                if not box.queue or box.until or box.name or batch_full() or (self.careful and not box.marked):
                    break
                if natives.work <= 0:
                    break
                budget -= 1
                self._react(box, box.queue[0])
            self.wake(box)
            if self.careful and box.marked:  # no others are marked before these are through
                run.remove(box)
                run.appendleft(box)
            if not box.queue and not box.on_disk() and not box.runnable:
                self._forget(box)
        return max(0, budget)

    def _forget(self, box: Inbox) -> None:
        self.inboxes.pop(box.agent, None)

    def _mark(self, box: Inbox) -> None:
        """Careful mode: that messages are tried is made durable before they are. At first it is many at a time; each
        further unclean stop leaves fewer to suspect, and whoever dies of its last attempt was alone."""
        limit, trying = self.server.limits.trying_boots, box.queue[0].trying
        if trying >= limit:
            self.park(box, box.queue[0], f"its reaction was under way at {limit} unclean stops in a row", "")
            self.wake(box)
            return
        left = TRIED // SHARE ** min(max(trying + 3 - limit, 0), 2)
        box.runnable = True
        near = [box] + [self.run.popleft() for _ in range(min(left, len(self.run)))]
        for other in near:
            for entry in () if other.blocked() else other.queue:
                if not left or entry.trying != trying or self.server.batch_full():
                    break
                left -= 1
                entry.trying += 1
                other.marked += 1
                self._store(other.agent, entry)
        near.sort(key=lambda other: not other.marked)
        self.run.extendleft(reversed(near))
        self.marks = self.server.batch.number
        self.server.mark(2)

    def _unmark(self, box: Inbox) -> None:
        """What the first message's reaction came to is no unclean stop; those behind it are not tried yet."""
        for entry in islice(box.queue, box.marked):
            entry.trying -= 1
            self._store(box.agent, entry)
        box.marked = 0
        self.server.mark(2)

    def _react(self, box: Inbox, entry: Entry) -> None:
        message, now, agent = entry.message, self.server.now, box.agent
        if self.careful:
            self.careful -= 1
            self.server.careful_step(self.careful)
        native = self.natives.agents.get(agent)
        if native is not None:
            self._react_native(box, entry, native)
            return
        if message.expires and self.server.by_our_clock(message.expires, message) <= now:
            self._finish(box, entry)
            self.expired(message, entry.domain, entry.peer, entry.received, agent)
            return
        resident = self.residents.get(agent)
        if resident is None:
            try:
                resident = self.resident(agent)
            except NoProgram as error:
                self._stuck(box, entry, error)
                return
            except MomError as error:  # it cannot be loaded: perhaps soon again
                self._failed(box, entry, error)
                return
        else:
            self.residents.move_to_end(agent)
        if resident is None:
            native = self.server.clients.host(agent)
            if native is not None:
                self._react_native(box, entry, native)
                return
            self._finish(box, entry)
            self._orphan(message, agent, "unknown agent", "nobody is there", entry.domain, entry.peer, entry.received)
            return
        reaction = Reaction(self, agent, message, now)
        self.running = agent
        try:
            resident.reactive.react(reaction)
            state = resident.reactive.pack()
        except UnknownName as error:
            self._undo(resident)
            self._await(box, entry, error.name)
            return
        except UnknownNotification as error:
            self._undo(resident)
            self.park(box, entry, str(error), "")
            return
        except KeyboardInterrupt:  # nobody's failure: the process is to end
            raise
        except BaseException as error:  # whatever the agent's code raises, an exit too, is its failure, not ours
            self._undo(resident)
            self._failed(box, entry, error)
            return
        finally:
            self.running = ""
        self._accept(box, entry, resident, reaction, state)

    def _react_native(self, box: Inbox, entry: Entry, native: NativeAgent) -> None:
        message = entry.message
        self.running = box.agent
        try:
            if message.type == DELETE:
                if not native.deletable:
                    raise UnknownNotification(f"{box.agent} is not to be deleted")
                native.deleted()
                self.natives.remove(native)
            else:
                native.react(message)
        except UnknownName as error:
            self._await(box, entry, error.name)
            return
        except MomError as error:  # what it refuses
            self.park(box, entry, str(error), "")
            return
        finally:
            self.running = ""
        self.reactions += 1
        self._finish(box, entry)
        self._log_reaction(box, entry)

    def idle(self, agent: str) -> bool:
        """Nothing waits for this agent, or must wait with what comes next, and no reaction is under way."""
        return not (self.running or self.careful or agent in self.inboxes or self.server.batch_full())

    def take(self, native: NativeAgent, message: Message) -> None:
        """The reaction of an idle agent to a message that need not pass through its inbox."""
        self.running = native.id
        try:
            native.react(message)
        finally:
            self.running = ""
        self.reactions += 1

    def _await(self, box: Inbox, entry: Entry, name: str) -> None:
        """The reaction needs a name that is not known yet."""
        box.name = name
        self._untried(box, entry)
        self.waiting.setdefault(name, []).append(box)

    def _stuck(self, box: Inbox, entry: Entry, error: NoProgram) -> None:
        """Its messages wait: whoever mends the program starts the server again."""
        if error.path not in self.missed:
            self.missed.add(error.path)
            self.server.note(f"{box.agent} waits: {error}")
        box.stuck = error
        self._untried(box, entry)

    def _untried(self, box: Inbox, entry: Entry) -> None:
        if entry.trying:  # it has killed nobody
            self._unmark(box)
            entry.trying = 0
            self._store(box.agent, entry)
            self.server.mark(2)

    def _log_reaction(self, box: Inbox, entry: Entry) -> None:
        server, message = self.server, entry.message
        if server.log_on:
            server.batch.log.append((
                "react", message.origin, message.number, box.agent, (), message.size, entry.domain, entry.peer,
                server.hops(message.origin), message.sent, entry.received, entry.delivered, server.now,
                trace.NO_OUT, trace.NO_MISSING, "",
            ))  # fmt: skip

    def _accept(self, box: Inbox, entry: Entry, resident: Resident, reaction: Reaction, state: bytes) -> None:
        server, agent, message = self.server, box.agent, entry.message
        self.reactions += 1
        self._finish(box, entry)
        self._log_reaction(box, entry)
        if message.type == DELETE:
            del self.residents[agent]
            self.drop_rows(agent)
            self._record("delete", message, agent, entry.domain, entry.peer, entry.received, resident.path)
        else:
            if state != resident.state:
                resident.state = state
                server.batch.agents[agent] = (resident.path, state)
                server.mark(2)
            resident.batch = server.batch.number
            for collection in resident.collections.values():
                if collection.accept():
                    self.dirty[agent] = resident
                    server.mark(2)
        self._apply(reaction)

    def _apply(self, reaction: Reaction) -> None:
        server = self.server
        for kind, value in reaction.ops:
            if kind == "send":
                server.send(value)
            elif kind == "task":
                server.batch.tasks[value.id] = value
                self._schedule(value)
                server.mark(2)
            elif self.tasks.pop(value, None):
                server.batch.tasks[value] = None
                server.mark(2)

    def _undo(self, resident: Resident) -> None:
        resident.reactive.unpack(resident.state)
        for collection in resident.collections.values():
            collection.reject()

    def _failed(self, box: Inbox, entry: Entry, error: BaseException) -> None:
        self.failures += 1
        entry.attempts += 1
        self._unmark(box)
        entry.trying = 0
        limits = self.server.limits
        if entry.attempts >= limits.max_attempts:
            text = plain("".join(traceback.format_exception(error))[-limits.max_traceback :])
            self.park(box, entry, sentence(error), text)
            return
        delay = min(limits.retry_first_ns * limits.retry_factor ** (entry.attempts - 1), limits.retry_max_ns)
        box.until = self.server.now + delay
        heappush(self.timers, (box.until, 0, box.agent))
        self._store(box.agent, entry)
        self.server.mark(2)
        self.server.note(f"{box.agent} failed at {entry.message.type}, attempt {entry.attempts}: {sentence(error)}")

    # -- dead letters ------------------------------------------------------------------------------------------

    def park(self, box: Inbox, entry: Entry, reason: str, text: str) -> None:
        self._finish(box, entry)
        self.bury(entry.message, box.agent, reason, text, "ReactionFailed", entry.attempts)

    def homeless(self, message: Message, agent: str) -> None:
        """The agent's home is not on this bus, or not any more."""
        reason = f"its home {home_of(agent)} is not on this bus, or has left it"
        self._orphan(message, agent, reason, reason, "", "", 0)

    def _orphan(
        self, message: Message, agent: str, reason: str, detail: str, domain: str, peer: str, received: int
    ) -> None:
        """Nobody is there: whoever waits for an answer has it, what can be given back is, the rest is a dead letter."""
        try:
            done = self.server.clients.orphan(message, agent)
        except UnknownNotification as error:
            done, reason = False, str(error)
        if done or agent.partition("/")[2].startswith("_"):
            self._record("drop", message, agent, domain, peer, received, detail)
        else:
            self.bury(message, agent, reason, "", "UnknownAgent", 0)

    def expired(self, message: Message, domain: str, peer: str, received: int, agent: str = "") -> None:
        self._record("expire", message, agent, domain, peer, received, "expired")
        self.bury(message, agent, "expired", "", "Expired", 0, logged=True)

    def unreadable(self, data: bytes, agent: str, error: MomError) -> None:
        """What is among our rows is no message: a dead letter as it is, for an operator, and never read again."""
        self.dead += 1
        reason = f"a message that was stored cannot be read: {error}"
        head = {
            "agent": agent, "reason": reason, "traceback": "", "attempts": 0, "time": self.server.now, "type": "",
            "source": "", "origin": "", "number": 0,
        }  # fmt: skip
        self.letters.add(self.server.now, json.dumps(head).encode(), data)
        self.letters.accept()
        self.server.mark(2)
        self.server.note(f"{reason}; it is a dead letter of {agent or self.server.name} now")

    def bury(
        self, message: Message, agent: str, reason: str, text: str, notice: str, attempts: int, logged: bool = False
    ) -> None:
        """Put a message among the dead letters, and tell its sender."""
        server = self.server
        self.dead += 1
        if not logged:
            self._record("dead", message, agent, "", "", 0, reason)
        head = json.dumps({
            "agent": agent, "reason": reason, "traceback": text, "attempts": attempts, "time": server.now,
            "type": message.type, "source": message.source, "origin": message.origin, "number": message.number,
        })  # fmt: skip
        body = message.copy_for(agent) + message.payload if agent and len(message.dests) > 1 else message.encode()
        self.letters.add(server.now, head.encode(), body)
        self.letters.accept()
        server.mark(2)
        if message.source.partition("/")[0] not in server.topology.servers:
            return  # it has left the bus
        if not message.flags & BOUNCE and "/_" not in message.source and message.source != agent:
            type_, payload = self.program.notice(
                notice, agent=agent, type=message.type, reason=reason, origin=message.origin, number=message.number
            )
            source = agent if agent.startswith(f"{server.name}/") else f"{server.name}/{DEAD}"  # who can speak here
            server.send(server.message(source, (message.source,), type_, payload, flags=BOUNCE))

    def _record(
        self, kind: str, message: Message, agent: str, domain: str, peer: str, received: int, detail: str
    ) -> None:
        server = self.server
        if server.log_on:
            server.batch.log.append((
                kind, message.origin, message.number, agent, (), message.size, domain, peer,
                server.hops(message.origin), message.sent, received, server.now, server.now, trace.NO_OUT,
                trace.NO_MISSING, detail,
            ))  # fmt: skip

    # -- agents ------------------------------------------------------------------------------------------------

    def resident(self, agent: str) -> Resident | None:
        """The agent, loaded if need be; None if there is none."""
        resident = self.residents.get(agent)
        if resident is not None:
            self.residents.move_to_end(agent)
            return resident
        row = self.server.written_agent(agent)
        if row is None:
            return None
        resident = Resident(row[0], self.program.load(row[0], agent, row[1]), row[1])
        resident.batch = self.server.batch.number
        self.residents[agent] = resident
        return resident

    def evict(self) -> None:
        """Idle agents beyond the limit leave memory; those with changes that are not durable stay."""
        excess = len(self.residents) - self.server.limits.max_residents
        for agent in list(self.residents)[:excess]:
            if self.residents[agent].batch <= self.server.durable_batch:
                del self.residents[agent]

    def collection(self, agent: str, name: str) -> Collection:
        resident = self.residents[agent]
        found = resident.collections.get(name)
        if found is None:
            found = resident.collections[name] = Collection(self.server, agent, name)
        return found

    def _create(self, message: Message, agent: str) -> bool:
        """True if the agent's own first reaction is to follow."""
        packed, _, state = message.payload.partition(b"\n")
        path = packed.decode(errors="replace")
        try:
            if self.server.written_agent(agent) is not None:
                raise MomError(f"{agent} exists already")
            if agent[agent.index("/") + 1 :].startswith(("_", "conn:")):
                raise MomError(f"{agent} is the server's own")
            native = self.server.clients.native(path, agent, state) if self.server.clients.owns(path) else None
            if native is None and (state or message.origin != self.server.name):  # else it is declared
                self.program.allowed(path, remote=message.origin != self.server.name)
        except MomError as error:
            self.bury(message, agent, str(error), "", "ReactionFailed", 0)
            return False
        self._record("create", message, agent, "", "", 0, path)
        if native is not None:
            self._record("react", message, agent, "", "", 0, "")
            self.natives.create(native)
            return False
        self.server.batch.agents[agent] = (path, state)
        return True

    def drop_rows(self, agent: str) -> None:
        """All rows of an agent that is no more, but for its inbox."""
        server = self.server
        server.batch.agents[agent] = None
        server.batch.dropped[agent] = server.next_id
        for id in [id for id, row in server.batch.items.items() if row and row.agent == agent]:
            del server.batch.items[id]
        for task in [task for task in self.tasks.values() if task.agent == agent]:
            del self.tasks[task.id]
            server.batch.tasks[task.id] = None
        server.mark(2)

    def give_up(self, agent: str) -> None:
        """An agent that cannot be loaded is deleted: what waits for it becomes dead letters."""
        box = self.inboxes.get(agent)
        if box is not None and box.stuck:
            self.drop_rows(agent)
            box.stuck = None
            self.wake(box)

    def name_known(self, name: str) -> None:
        for box in self.waiting.pop(name, []):
            box.name = ""
            self.wake(box)

    # -- timers and deferred functions --------------------------------------------------------------------------

    def _schedule(self, task: TaskRow) -> None:
        self.tasks[task.id] = task
        if task.kind == "timer":
            heappush(self.timers, (task.due, task.id, task.agent))
        else:
            path, _, arguments = task.data.partition(b"\n")
            self.server.tasks.append((task.id, path.decode(), arguments))

    def alarm(self, at: int, native: NativeAgent) -> None:
        """Let a native agent know that a time has come; in memory only."""
        self.ring(at, native.id)

    def ring(self, at: int, native: str = "") -> None:
        """Let there be a turn when a time has come."""
        if not self.timers or at < self.timers[0][0]:
            self.server.mark(1)  # so that the driver learns of it
        heappush(self.timers, (at, ALARM, native))

    def tick(self, now: int) -> None:
        while self.timers and self.timers[0][0] <= now:
            due, id, agent = heappop(self.timers)
            if id == ALARM:
                self.server.mark(1)  # so that the driver learns of the next one
                if native := self.natives.agents.get(agent):
                    native.alarm()
            elif id != RETRY:
                task = self.tasks.pop(id, None)
                if task:
                    self.server.batch.tasks[id] = None
                    self._ring_timer(task)
            else:
                box = self.inboxes.get(agent)
                if box and box.until == due:
                    box.until = 0
                    self.wake(box)

    def _ring_timer(self, task: TaskRow) -> None:
        try:
            message = decode(task.data)
        except PeerError as error:
            self.unreadable(task.data, task.agent, error)
        else:
            self.server.send(self.server.message(message.source, message.dests, message.type, message.payload))

    def done(self, id: int, payload: bytes | None, reason: str) -> None:
        """A deferred function ended; only the first end counts."""
        task = self.tasks.pop(id, None)
        if task:
            self.server.batch.tasks[id] = None
            size, limit = len(payload or b""), self.server.limits.max_message
            if size > limit:
                payload, reason = None, f"its result of {size} bytes is over the limit of {limit}"
            if payload is None:
                type_, body = self.program.notice("DeferFailed", task=id, reason=reason)
            else:
                type_, body = self.program.notice("DeferDone", task=id, packed=payload)
            self.server.send(self.server.message(task.agent, (task.agent,), type_, body))

    # -- commits -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The open batch closes: what is left in the inboxes gets its row."""
        self.natives.close()
        if self.in_memory:
            for agent, entry in self.new:
                if not entry.done and not entry.stored:
                    self._store(agent, entry)
        self.new, self.payloads = [], {}

    def committed(self, number: int, items: dict[int, ItemRow | None]) -> None:
        """Batch `number`, which changed `items`, is durable."""
        if items:
            self.letters.committed(items)
            self.server.aside.kept.committed(items)
            dirty, self.dirty = self.dirty, {}
            for agent, resident in dirty.items():
                for collection in resident.collections.values():
                    collection.committed(items)
                if any(c.fresh or c.gone for c in resident.collections.values()):
                    self.dirty[agent] = resident
        self.natives.committed()
        boxes, self.after_commit = self.after_commit, []
        for box in boxes:
            self.wake(box)
        if len(self.residents) > self.server.limits.max_residents:
            self.evict()

    def check(self) -> None:
        self.natives.check()
        assert self.in_memory == sum(len(box.queue) for box in self.inboxes.values()), "entries miscounted"
        for box in self.inboxes.values():
            assert all(not entry.done for entry in box.queue), f"{box.agent} keeps a consumed message"
            assert box.runnable == (box in self.run), box.agent
            ids = [entry.id for entry in box.queue]
            assert ids == sorted(ids) and (not ids or ids[-1] <= box.cursor), box.agent
