"""The broker's own agents in memory: queues, subscriptions, proxies. They write their rows into the open batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from mombroker.core.batch import Damage
from mombroker.core.collection import Collection
from mombroker.core.message import BOUNCE, Message
from mombroker.core.reaction import Note

if TYPE_CHECKING:
    from mombroker.core.names import Names
    from mombroker.core.server import AgentServer


class NativeAgent(Protocol):
    """A part of the broker that lives among the agents.

    It cannot be undone: an exception in it is our bug and stops the server. What it may raise, before anything has
    changed, is UnknownName (the message waits for the name) and any other MomError (it is parked).
    """

    id: str
    path: ClassVar[str]  # of its class, for its row
    deletable: ClassVar[bool]  # by a message
    collections: dict[str, Collection]
    rows_are: ClassVar[dict[str, str]]  # those of its collections that are no messages, as `an entry of a list of`

    def created(self) -> None: ...  # at the delivery of its creation, before anything that is delivered later
    def deleted(self) -> None: ...
    def react(self, message: Message) -> None: ...
    def flush(self) -> None: ...  # after `touch`
    def alarm(self) -> None: ...  # after Engine.alarm
    def damaged(self, damage: Damage) -> None: ...  # one of its items is lost
    def pack(self) -> bytes: ...  # after `change`: the state of its row
    def check(self) -> None: ...  # assert its invariants


class Clients(Protocol):
    """Who serves the connections of clients, and the native agents (broker/session/service.py)."""

    def step(self, event: Any) -> None: ...  # Client* of events.py
    def owns(self, path: str) -> bool: ...  # is it the class of a native agent?
    def native(self, path: str, agent: str, state: bytes) -> NativeAgent: ...  # of such a class, not created yet
    def recover(self) -> None: ...  # take up what the store holds, before the first turn
    def named(self, name: str) -> None: ...  # it is known now, or no longer
    def host(self, agent: str) -> NativeAgent | None: ...  # one that is made when something comes for it
    def orphan(self, message: Message, agent: str) -> bool: ...  # nobody is there: True if that needs no dead letter
    def lost(self, server: str) -> None: ...  # with all that it held and knew
    @property
    def dropped(self) -> int: ...  # messages of topics that connections did not take in time
    def describe(self, conn: int) -> dict[str, int]: ...  # one connection, for the operator
    def replies(self) -> list[tuple[int, list[Any]]]: ...  # of the batch that closes


class Natives:
    """The broker's only door to the core.

    1. Touched ones are flushed when the reactions at hand are done, at the latest when the batch closes.
    2. Changed ones get their row when the batch closes.
    3. One that was removed says and writes nothing more, whatever it is told in the reaction that ended it.
    4. Who has more to do than fits into a turn is touched in the next one, and a commit is due for whom waits for one.

    tx     the open batch, and what else a part may ask of its server
    clock  how our clock stands to the wall clock and to those of other servers
    work   what is left of `turn_work` in this turn; see core/limits.py
    """

    __slots__ = ("server", "tx", "clock", "agents", "touched", "changed", "late", "soon", "work", "turns")

    def __init__(self, server: AgentServer):
        self.server, self.tx, self.clock = server, server.tx, server.clock
        self.agents: dict[str, NativeAgent] = {}
        self.touched: dict[NativeAgent, None] = {}
        self.changed: dict[NativeAgent, None] = {}
        self.late: dict[NativeAgent, None] = {}  # to be touched by the next commit
        self.soon: dict[NativeAgent, None] = {}  # to be touched by the next turn
        self.work = server.limits.turn_work
        self.turns = 0

    @property
    def names(self) -> Names:
        return self.server.names

    def lookup(self, id: str) -> NativeAgent | None:
        """One of our native agents."""
        return self.agents.get(id)

    def post(self, source: str, to: str, note: Note) -> None:
        """Send a note to an agent; it comes back if nobody is there."""
        self.server.send(self.server.note_to(source, (to,), note, 0, BOUNCE))

    def send(self, message: Message) -> None:
        self.server.send(message)

    def send_now(self, source: str, native: NativeAgent, note: Note) -> None:
        """Send a note to one of our own, which takes it at once if nothing is in its way.

        Not to be called while another one is at work, which might not expect that this one changes.
        """
        self.server.hand(source, native, note)

    def alarm(self, at: int, native: NativeAgent) -> None:
        """Let it know that a time has come; in memory only."""
        self.server.engine.alarm(at, native)

    def answer(self, ticket: int, reply: dict[str, Any] | str) -> None:
        """The answer to an operator, unless one was given already."""
        self.server.answer(ticket, reply)

    def distance(self, server: str) -> int:
        """Links between us and another server. Raises MomError for one that is not on this bus."""
        return self.server.distance(server)

    def drop_rows(self, agent: str) -> None:
        """All rows of an agent that is no more, but for its inbox."""
        self.server.engine.drop_rows(agent)

    def touch(self, native: NativeAgent) -> None:
        """It has something to say; what it says at once it may say of many messages together."""
        self.touched[native] = None

    def touch_late(self, native: NativeAgent) -> None:
        """It waits for rows that are not durable yet."""
        self.late[native] = None

    def go_on(self, native: NativeAgent) -> None:
        """It has more to do: in this turn if there is work left, else in the next one, when others had theirs."""
        (self.touched if self.work > 0 else self.soon)[native] = None

    def armed(self, native: NativeAgent) -> bool:
        """It will be flushed, without anything coming from outside."""
        return native in self.touched or native in self.soon or native in self.late

    def begin(self) -> None:
        """A turn begins. Those that wait for it take turns in being the first."""
        self.work = self.server.limits.turn_work
        if self.soon:
            self.turns += 1
            waiting = [*self.soon]
            first = self.turns % len(waiting)
            self.touched.update(dict.fromkeys(waiting[first:] + waiting[:first]))
            self.soon = {}

    def change(self, native: NativeAgent) -> None:
        self.changed[native] = None
        self.server.mark(1)

    def create(self, native: NativeAgent) -> None:
        self.agents[native.id] = native
        self.server.batch.agents[native.id] = (native.path, native.pack())
        native.created()

    def remove(self, native: NativeAgent, written: bool = True) -> None:
        """It is gone, and its rows if it ever had any."""
        self.agents.pop(native.id, None)
        for those in (self.touched, self.changed, self.late, self.soon):
            those.pop(native, None)
        if written:
            self.server.engine.drop_rows(native.id)

    def flush(self) -> None:
        touched, self.touched = self.touched, {}
        for native in touched:
            if self.agents.get(native.id) is native:
                native.flush()

    def close(self) -> None:
        self.flush()
        changed, self.changed = self.changed, {}
        for native in changed:
            if self.agents.get(native.id) is native:
                self.server.batch.agents[native.id] = (native.path, native.pack())

    def committed(self) -> None:
        self.touched.update(self.late)
        self.late = {}

    def check(self) -> None:
        server = self.server
        assert not self.late or server.in_flight or server.level or not server.batch.empty(), "no commit is due"
        for native in self.agents.values():
            native.check()
