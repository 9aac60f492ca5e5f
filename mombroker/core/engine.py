"""The Engine: persistent reactive agents; one reaction is atomic (paper 004 §3).

A reaction's state change, sends, creations, timers, collection changes and the message that it consumed join one
batch, or none of them does.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable

from mombroker.core.batch import ItemRow
from mombroker.core.collection import Collections
from mombroker.core.compiling import mypyc_attr
from mombroker.core.dead_letters import DeadLetters
from mombroker.core.destinations import ACCEPTED, FAILED, REJECTED
from mombroker.core.errors import MomError, NoProgram, UnknownName, UnknownNotification, plain, sentence
from mombroker.core.groups.bus import TYPES as MEMBERS
from mombroker.core.groups.bus import Groups, waits_for
from mombroker.core.ids import identity
from mombroker.core.inbox import Entry, Inbox, Inboxes
from mombroker.core.message import BOUNCE, Message, new_message
from mombroker.core.names import CREATE, is_pattern
from mombroker.core.natives import Clients, NativeAgent, NativeHost
from mombroker.core.poison import PoisonSearch
from mombroker.core.reaction import DELETE, Program, Reaction, Retry
from mombroker.core.residents import Resident, Residents
from mombroker.core.table import Table
from mombroker.core.timers import Timers
from mombroker.core.topology import AgentDecl
from mombroker.core.transaction import COMMIT, LINGER

RETRY = Retry()
TABLES = "_tables"  # what a newcomer's agents wait for, as for a name
MISSED = "its sender missed that, with a server which is lost"
RUN = 16  # reactions of one agent before it is another's turn


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine:
    """1. Each agent's messages are reacted to one by one, in delivery order; a failing one holds back only its agent.
    2. `running` names the agent whose reaction is under way.
    """

    def __init__(
        self,
        natives: NativeHost,
        collections: Collections,
        dead: DeadLetters,
        timers: Timers,
        program: Program,
        record: Callable[..., None],
        unclean: int,
    ):
        tx = self.tx = natives.tx
        self.clock, self.names, self.turns, self.send = natives.clock, natives.names, natives.turns, natives.send
        types = natives.types
        self.handlers, self.readers, self.entering = types.handlers, types.readers, types.entering
        self.entering[CREATE] = self._create
        self.natives, self.collections, self.dead, self.timers = natives, collections, dead, timers
        self.program, self.record = program, record
        self.inboxes = Inboxes(tx, dead.unreadable)
        natives.waits = self.inboxes.boxes.__contains__
        self.residents = Residents(tx, program, collections)
        self.poison = PoisonSearch(tx, self.inboxes, unclean)
        self.clients: Clients
        self.waiting: dict[str, list[Inbox]] = {}  # name -> inboxes whose first reaction needs it
        self.missed: set[str] = set()  # classes that could not be loaded
        self.after_commit: list[Inbox] = []
        self.running = ""
        self.guests: set[str] = set()  # agents whose ids name another server, and those that are coming
        self.leaving: Callable[[], bool]  # are we to leave the bus?
        self.admit: Callable[[Message, list[str], str, str, int], list[str]]
        self.on_delete: Callable[[str], None]
        self.reactions = self.failures = self.parked = 0
        timers.on_retry, timers.on_alarm = self._retry, natives.alarmed

    def recover(self) -> None:
        """Take up what the store holds; make the declared agents that do not exist yet."""
        tx = self.tx
        self.inboxes.recover()
        self.timers.recover(tx.reader)
        self.declare(tx.topology.agents)

    def declare(self, agents: Iterable[AgentDecl]) -> None:
        """Make those of the declared agents that are to be here and do not exist yet."""
        for declared in agents:
            if declared.server != self.tx.name or is_pattern(declared.name):
                continue
            id = f"{self.tx.name}/{declared.name}"
            if id not in self.names.homes.moved and id not in self.guests:  # nor is it on its way back
                self._declare(id, declared)

    def _declare(self, id: str, declared: AgentDecl) -> None:
        """Make a declared agent that does not exist yet. While its class cannot be imported it has an empty state, by
        which no agent is loaded: what is for it waits behind its first reaction."""
        tx = self.tx
        row = tx.written("agents", id)
        if row is not None and row[1]:
            return
        try:
            state = self.program.initial(declared.cls, declared.fields)
        except MomError:  # _stuck says so
            state = b""
        if row is None:
            self.send(new_message(tx, id, (id,), CREATE, declared.cls.encode() + b"\n" + state))
        elif row != (declared.cls, state) and not self.clients.owns(row[0]):
            tx.rows.agents[id] = (declared.cls, state)
            tx.urgency = COMMIT

    def take_up(self, agents: Iterable[str]) -> None:
        """Have agents take messages from what their classes of today declare: those that are given, which did so
        before, and the declared ones."""
        tx = self.tx
        mine = [f"{tx.name}/{each.name}" for each in tx.topology.agents if each.server == tx.name]
        for agent in dict.fromkeys([*agents, *mine]):
            if row := tx.written("agents", agent):
                try:
                    sources = self.program.sources(row[0])
                except MomError:  # _stuck says so, when something comes for it
                    continue
                self.clients.authors.declare(agent, sources)

    # -- deliveries --------------------------------------------------------------------------------------------

    def deliver(self, message: Message, agents: list[str], domain: str = "", peer: str = "", received: int = 0) -> None:
        """Hand a message over to local agents, in delivery order. What has a handler is applied here and now."""
        if self.guests:
            agents = self.admit(message, agents, domain, peer, received)
        handler, enter, inboxes = self.handlers.get(message.type), self.entering.get(message.type), self.inboxes
        shares = len(agents) > 1 and handler is None and enter is None
        payload = inboxes.share(message, len(agents)) if shares else 0
        for agent in agents:
            if enter is not None and not enter(message, agent):
                continue
            if handler is None:
                inboxes.add(message, agent, domain, peer, received, payload)
            else:
                self._apply_now(handler, message, agent, domain, peer, received)
        tx = self.tx
        tx.urgency = tx.urgency or LINGER if message.note is not None and not message.data else COMMIT

    def _apply_now(
        self, handler: Callable[[Message], None], message: Message, agent: str, domain: str, peer: str, received: int
    ) -> None:
        try:
            if reader := self.readers.get(message.type):
                reader(message)
        except UnknownNotification as error:  # it has come a long way, or from an older program
            self.dead.bury(message, agent, str(error), "ReactionFailed")
            return
        self.record("react", message, agent, domain, peer, received)
        handler(message)

    def _create(self, message: Message, agent: str) -> bool:
        """True if the agent's own first reaction is to follow."""
        if message.origin in self.natives.newcomers.unmet:  # it did not know yet that its name is free again
            self.record("drop", message, agent, detail=f"it was for the former {self.tx.name}, which is lost")
            return False
        if message.origin != self.tx.name and self.leaving():
            reason = f"{self.tx.name} is leaving its bus: choose another server"
            self.dead.orphan(message, agent, reason, reason)
            return False
        packed, _, state = message.payload.partition(b"\n")
        path = packed.decode(errors="replace")
        ours = message.origin == self.tx.name
        known = self.natives.agents.get(agent)
        if known is not None and known.path == path and known.repeated(message.source):
            self.record("drop", message, agent, detail="a repeat")
            return False
        try:
            if self.tx.written("agents", agent) is not None:
                raise MomError(f"{agent} exists already")
            if agent[agent.index("/") + 1 :].startswith(("_", "conn:", "reply:")):
                raise MomError(f"{agent} is the server's own")
            native = self.clients.native(path, agent, state) if self.clients.owns(path) else None
            if native is None and (state or not ours):  # else it is declared
                self.program.allowed(path, remote=not ours)
        except MomError as error:
            self.dead.bury(message, agent, str(error), "ReactionFailed")
            return False
        self.record("create", message, agent, detail=path)
        if native is not None:
            self.record("react", message, agent)
            self.natives.create(native)
            return False
        self.tx.rows.agents[agent] = (path, state)
        return True

    def idle(self, agent: str) -> bool:
        """Nothing waits for this agent, or must wait with what comes next, and no reaction is under way."""
        return not (self.running or self.poison.left or agent in self.inboxes.boxes or self.tx.filled())

    def all_idle(self, agents: Iterable[str]) -> bool:
        """Is each of them?"""
        boxes = self.inboxes.boxes
        if self.running or self.poison.left or self.tx.filled():
            return False
        return not boxes or boxes.keys().isdisjoint(agents)

    def react_now(self, native: NativeAgent, message: Message) -> None:
        """The reaction of an idle agent to a message that need not pass through its inbox."""
        self.running = native.id
        try:
            native.react(message)
        finally:
            self.running = ""
        self.reactions += 1

    # -- reactions ---------------------------------------------------------------------------------------------

    def turn(self, budget: int) -> bool:
        """Run reactions to a fixed point; False when the budget ended before the work."""
        while (budget := self._work(budget)) >= 0:
            if not self.turns.touched:
                return True
            self.turns.flush()
        return False

    def _work(self, budget: int) -> int:
        """React while there is something to react to; what is left of the budget, -1 when the work is not done."""
        inboxes, turns, poison, filled = self.inboxes, self.turns, self.poison, self.tx.filled
        run = inboxes.run
        while run:
            if budget <= 0 or turns.work <= 0 or filled():
                return -1
            if poison.left and poison.waits():
                return budget
            box = run.popleft()
            box.runnable = False
            if box.until or box.name or box.stuck:  # it failed after it was woken
                continue
            if not box.queue and not inboxes.refill(box, bool(poison.left)):
                self.after_commit.append(box)
                continue
            if not box.queue:
                if box.on_disk():  # what was read was no message
                    inboxes.wake(box)
                else:
                    inboxes.forget(box)
                continue
            if poison.left and not box.suspects:
                if reason := poison.suspect(box):
                    self.park(box, box.queue[0], reason)
                    inboxes.wake(box)
                continue
            budget -= 1
            self._react(box, box.queue[0])
            for _ in range(max(RUN - 1, box.suspects)):  # a few more of the same agent, while it is at hand
                if not box.queue or box.until or box.name or filled() or (poison.left and not box.suspects):
                    break
                if turns.work <= 0:
                    break
                budget -= 1
                self._react(box, box.queue[0])
            inboxes.wake(box)
            if poison.left and box.suspects:  # no others are suspects before these are through
                run.remove(box)
                run.appendleft(box)
            if not box.queue and not box.on_disk() and not box.runnable:
                inboxes.forget(box)
        return max(0, budget)

    def _react(self, box: Inbox, entry: Entry) -> None:
        message, agent = entry.message, box.agent
        if self.poison.left:
            self.poison.count()
        native = self.natives.agents.get(agent)
        if native is not None:
            self._react_native(box, entry, native)
            return
        if self.natives.newcomers.waiting:  # it does not know yet where others live
            self._await(box, entry, TABLES)
            return
        if message.expires and self.clock.by_ours(message.expires, message) <= self.tx.now:
            self.inboxes.finish(box, entry)
            self.dead.expired(message, entry.domain, entry.peer, entry.received, agent)
            return
        loaded = self.residents.loaded
        resident = loaded.get(agent)
        if resident is None:
            try:
                resident = self._load(agent, message)
            except NoProgram as error:
                self._stuck(box, entry, error)
                return
            except MomError as error:  # it cannot be loaded: perhaps soon again
                self._failed(box, entry, error)
                return
        else:
            loaded.move_to_end(agent)
        if resident is None:
            self._react_absent(box, entry)
            return
        authors, groups = self.clients.authors, self.clients.groups
        if groups.waits(agent):
            self._await(box, entry, waits_for(agent))
            return
        if message.type in MEMBERS and not self._in_view(box, entry, groups):
            return
        reaction = Reaction(self.tx, self.names, authors, groups, agent, message, self.residents)
        if message.type in authors.types and not self._incoming(box, entry, reaction):
            return
        self.running = agent
        reaction.first = resident.fresh
        try:
            resident.reactive.react(reaction)
            state = resident.reactive.pack()
        except UnknownName as error:
            resident.undo()
            self._await(box, entry, error.name)
            return
        except UnknownNotification as error:
            resident.undo()
            self.park(box, entry, str(error))
            return
        except KeyboardInterrupt:  # nobody's failure: the process is to end
            raise
        except BaseException as error:  # whatever the agent's code raises, an exit too, is its failure, not ours
            resident.undo()
            refused = self.program.refuses(resident.path, error)
            if reaction.incoming:
                self._give_back(box, entry, REJECTED if refused else FAILED, sentence(error))
            else:
                self._failed(box, entry, error, self.program.retry(resident.path), refused)
            return
        finally:
            self.running = ""
        self._accept(box, entry, resident, reaction, state)

    def _load(self, agent: str, message: Message) -> Resident | None:
        resident = self.residents.load(agent)
        if resident is None and message.type != DELETE and not message.flags & BOUNCE:
            resident = self._activate(agent)
        if resident is not None:
            self.clients.authors.declare(agent, self.program.sources(resident.path))
        return resident

    def _activate(self, agent: str) -> Resident | None:
        """One of those that the topology declares by a pattern is made by the first that comes for it: its row is that
        reaction's. Raises NoProgram."""
        names, name = self.names, agent.partition("/")[2]
        declared = names.virtual(name)
        if self.leaving() or declared is None or names.id_of(name) != agent or names.homes.home(agent) != self.tx.name:
            return None
        try:
            state = self.program.initial(declared.cls, declared.fields)
        except MomError as error:
            raise NoProgram(declared.cls, str(error)) from error
        return self.residents.make(agent, declared.cls, state)

    def _incoming(self, box: Inbox, entry: Entry, reaction: Reaction) -> bool:
        """A destination has something for an agent. False if that is nothing to react to."""
        message, agent = entry.message, box.agent
        try:
            reaction.incoming = self.clients.authors.incoming(agent, message)
        except UnknownNotification as error:  # it has come a long way, or from an older program
            self.inboxes.finish(box, entry)
            self.dead.bury(message, agent, str(error), "ReactionFailed")
            return False
        if not reaction.incoming:
            where = entry.domain, entry.peer, entry.received, entry.delivered
            self.record("react", message, agent, *where, detail=message.type)
            self.inboxes.finish(box, entry)
        return bool(reaction.incoming)

    def _in_view(self, box: Inbox, entry: Entry, groups: Groups) -> bool:
        """A cast or view for a member. False if that is nothing to react to now."""
        try:
            if groups.meets(box.agent, entry.message):
                return True
        except UnknownName as error:
            self._await(box, entry, error.name)
            return False
        where = entry.domain, entry.peer, entry.received, entry.delivered
        self.record("react", entry.message, box.agent, *where, detail=entry.message.type)
        self.inboxes.finish(box, entry)
        return False

    def _give_back(self, box: Inbox, entry: Entry, outcome: str, reason: str) -> None:
        """The reaction to what a destination has given failed: it is the destination that says what becomes of it."""
        message, agent = entry.message, box.agent
        self.failures += 1
        where = entry.domain, entry.peer, entry.received, entry.delivered
        self.record("react", message, agent, *where, detail=f"{outcome}: {reason}")
        self.inboxes.finish(box, entry)
        self.clients.authors.settle(agent, message, outcome)
        self.tx.note(f"{agent} has failed at a message of {message.source}, which is {outcome}: {reason}")

    def _react_absent(self, box: Inbox, entry: Entry) -> None:
        """A message for an agent that does not exist."""
        native = self.clients.host(box.agent)
        if native is not None:
            self._react_native(box, entry, native)
            return
        self.inboxes.finish(box, entry)
        message, id, where = entry.message, identity(box.agent), (entry.domain, entry.peer, entry.received)
        home = self.names.homes.home(id)
        if home != self.tx.name:  # sent on it would come behind what its sender has sent there since
            self.dead.undeliverable(message, id, f"{MISSED}: {id} lives on {home}")
            return
        self.dead.orphan(message, id, "unknown agent", "nobody is there", *where)

    def _react_native(self, box: Inbox, entry: Entry, native: NativeAgent) -> None:
        message = entry.message
        self.running = box.agent
        try:
            if message.type == DELETE:
                if not native.deletable:
                    raise UnknownNotification(f"{box.agent} is not to be deleted")
                native.deleted()
            else:
                native.react(message)
        except UnknownName as error:
            self._await(box, entry, error.name)
            return
        except MomError as error:  # what it refuses
            self.park(box, entry, str(error))
            return
        finally:
            self.running = ""
        self.reactions += 1
        self.record("react", message, box.agent, entry.domain, entry.peer, entry.received, entry.delivered)
        self.inboxes.finish(box, entry)

    def _accept(self, box: Inbox, entry: Entry, resident: Resident, reaction: Reaction, state: bytes) -> None:
        """A reaction succeeded."""
        message = entry.message
        self.reactions += 1
        if resident.fresh:
            self.record("create", message, box.agent, detail=resident.path)
        self.record("react", message, box.agent, entry.domain, entry.peer, entry.received, entry.delivered)
        self.inboxes.finish(box, entry)
        if message.type == DELETE:
            del self.residents.loaded[box.agent]
            self.natives.remove(box.agent)
            self.clients.authors.gone(box.agent)
            self.clients.groups.gone(box.agent)
            self.on_delete(box.agent)
            where = entry.domain, entry.peer, entry.received
            self.record("delete", message, box.agent, *where, detail=resident.path)
        else:
            for given in reaction.given:
                self.clients.groups.give(box.agent, *given)
            self.residents.accept(resident, state)
        if reaction.ops:
            reaction.apply(self.send, self.timers)
        if reaction.incoming:
            self.clients.authors.settle(box.agent, message, ACCEPTED)

    # -- reactions that wait or fail ---------------------------------------------------------------------------

    def _await(self, box: Inbox, entry: Entry, name: str) -> None:
        """The reaction needs a name that is not known yet."""
        box.name = name
        self._acquit(box, entry)
        self.waiting.setdefault(name, []).append(box)

    def _stuck(self, box: Inbox, entry: Entry, error: NoProgram) -> None:
        """Its messages wait until the program is mended and the server started again."""
        if error.path not in self.missed:
            self.missed.add(error.path)
            self.tx.note(f"{box.agent} waits: {error}")
        box.stuck = error
        self._acquit(box, entry)

    def _acquit(self, box: Inbox, entry: Entry) -> None:
        if entry.trying:  # it has killed nobody
            self.poison.acquit(box, entry)
            self.inboxes.write(box.agent, entry)

    def _failed(
        self, box: Inbox, entry: Entry, error: BaseException, retry: Retry = RETRY, refused: bool = False
    ) -> None:
        self.failures += 1
        entry.attempts += 1
        self.poison.acquit(box, entry)
        tx, limits = self.tx, self.tx.limits
        retry = retry.within(limits)
        if refused or entry.attempts >= retry.attempts:
            text = plain("".join(traceback.format_exception(error))[-limits.max_traceback :])
            self.park(box, entry, sentence(error), text)
            return
        box.until = tx.now + retry.delay(entry.attempts)
        self.timers.retry(box.until, box.agent)
        self.inboxes.write(box.agent, entry)
        tx.note(f"{box.agent} failed at {entry.message.type}, attempt {entry.attempts}: {sentence(error)}")

    def park(self, box: Inbox, entry: Entry, reason: str, text: str = "") -> None:
        """The first message of an inbox becomes a dead letter."""
        if entry.message.type in self.clients.authors.types and box.agent not in self.natives.agents:
            self._give_back(box, entry, REJECTED, reason)
            return
        self.parked += 1
        self.inboxes.finish(box, entry)
        cast = None
        if entry.message.type in MEMBERS:
            self.clients.groups.failed(box.agent, entry.message)
            resident = self.residents.loaded.get(box.agent)
            cast = None if resident is None else resident.reactive.who_cast(entry.message)
        self.dead.bury(entry.message, box.agent, reason, "ReactionFailed", entry.attempts, text, cast)

    def _retry(self, agent: str, at: int) -> None:
        """The time of a reaction that failed has come."""
        box = self.inboxes.boxes.get(agent)
        if box and box.until == at:
            box.until = 0
            self.inboxes.wake(box)

    def give_up(self, agent: str) -> None:
        """An agent that cannot be loaded is deleted: what waits for it becomes dead letters."""
        box = self.inboxes.boxes.get(agent)
        if box is not None and box.stuck:
            self.vanish(agent)
            self.clients.groups.gone(agent)
            self.on_delete(agent)
            box.stuck = None
            self.inboxes.wake(box)

    def rows_of(self, agent: str, name: str) -> Table | None:
        """A table of an agent, to be read and changed between its reactions; None if its class has none of this name.
        Raises MomError for a class that cannot be loaded."""
        resident = self.residents.loaded.get(agent) or self.residents.load(agent)
        if resident is None or name not in self.program.tables(resident.path):
            return None
        resident.batch = self.tx.rows.number
        return self.residents.table(agent, name)

    def hand_over(self, message: Message, agent: str) -> None:
        """A message that has waited for its turn enters an agent's inbox."""
        self.inboxes.add(message, agent, "", "", self.tx.now, 0)

    def vanish(self, agent: str) -> None:
        """All that there is of an agent goes, except its inbox: what waits there is for nobody."""
        self.residents.loaded.pop(agent, None)
        self.natives.remove(agent)
        self.clients.authors.gone(agent)
        self.clients.questions.left(agent)

    def tables_came(self) -> None:
        """A newcomer knows what all know."""
        self.name_known(TABLES)

    def name_known(self, name: str) -> None:
        """Reactions that needed this name, or one of this pattern, go on."""
        if is_pattern(name):
            for each in [each for each in self.waiting if each.startswith(name[:-1])]:
                self.name_known(each)
        for box in self.waiting.pop(name, []):
            box.name = ""
            self.inboxes.wake(box)

    # -- commits -----------------------------------------------------------------------------------------------

    def committed(self, items: dict[int, ItemRow | None]) -> None:
        """The batch that changed `items` is durable."""
        if items:
            self.collections.committed(items)
        if self.turns.late:
            self.turns.committed()
        boxes, self.after_commit = self.after_commit, []
        for box in boxes:
            self.inboxes.wake(box)
        if self.residents.loaded:
            self.residents.evict()

    def check(self) -> None:
        self.natives.check()
        self.inboxes.check()
        self.timers.check()
