"""Natives: the broker's own agents (queues, subscriptions, sessions) in memory, and its only door to the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from mombroker.core.batch import Damage
from mombroker.core.clock import Clock
from mombroker.core.collection import Collection, Collections
from mombroker.core.message import BOUNCE, Message, Note, new_note
from mombroker.core.message_types import MessageTypes
from mombroker.core.names import Names
from mombroker.core.replicated import Replication
from mombroker.core.timers import Timers
from mombroker.core.transaction import LINGER, Transaction


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
    def alarm(self) -> None: ...  # after Natives.alarm
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


class SendNow(Protocol):
    def __call__(self, source: str, native: NativeAgent, note: Note) -> None: ...


class Natives:
    """The broker's only door to the core.

    1. A touched native agent is flushed when the reactions at hand are done, at the latest when the batch closes.
    2. The row of a changed one is written when the batch closes.
    3. A removed one sends and writes nothing more, not even in the reaction that removed it.
    4. One with more work than fits into a turn is touched in the next turn; one that waits for a commit makes it due.

    tx         the open batch, and what else a part may ask of its server
    clock      how our clock stands to the wall clock and to those of other servers
    names      the agents that are known by name
    agents     those in memory, by id
    types      what is done with messages of some types, whoever they are for
    work       what is left of `turn_work` in this turn; see core/limits.py
    send       sends a message
    send_now   sends a note to one of our own, which takes it at once if nothing is in its way; not to be called while
               another one is at work, which might not expect that this one changes
    replication   what a replicated table is made with
    distance   the links between us and another server; raises MomError for one that is not on this bus
    """

    __slots__ = (
        "tx", "clock", "names", "agents", "work", "send", "send_now", "types", "replication", "distance",
        "_timers", "_collections", "_touched", "_changed", "_late", "_soon", "_turns",
    )  # fmt: skip

    def __init__(
        self,
        tx: Transaction,
        clock: Clock,
        names: Names,
        collections: Collections,
        timers: Timers,
        send: Callable[[Message], None],
        send_now: SendNow,
        types: MessageTypes,
        replication: Replication,
        distance: Callable[[str], int],
    ):
        self.tx, self.clock, self.names, self._collections, self._timers = tx, clock, names, collections, timers
        self.send, self.send_now, self.distance = send, send_now, distance
        self.types, self.replication = types, replication
        self.agents: dict[str, NativeAgent] = {}
        self.work = tx.limits.turn_work
        self._touched: dict[NativeAgent, None] = {}
        self._changed: dict[NativeAgent, None] = {}
        self._late: dict[NativeAgent, None] = {}  # to be touched by the next commit
        self._soon: dict[NativeAgent, None] = {}  # to be touched by the next turn
        self._turns = 0

    def lookup(self, id: str) -> NativeAgent | None:
        """One of our native agents."""
        return self.agents.get(id)

    def post(self, source: str, to: str, note: Note) -> None:
        """Send a note to an agent; a failure is not told."""
        self.send(new_note(self.tx, source, (to,), note, 0, BOUNCE))

    def alarm(self, at: int, native: NativeAgent) -> None:
        """Let it know that a time has come; in memory only."""
        self._timers.alarm(at, native.id)

    def collection(self, agent: str, name: str) -> Collection:
        """An agent's collection, as it is in the store."""
        return self._collections.open(agent, name)

    def touch(self, native: NativeAgent) -> None:
        """Have its `flush` called, once for all that happens until then."""
        self._touched[native] = None

    def touch_late(self, native: NativeAgent) -> None:
        """Have its `flush` called after the commit: it waits for rows that are not durable yet."""
        self._late[native] = None

    def go_on(self, native: NativeAgent) -> None:
        """It has more to do: in this turn if there is work left, else in the next one, when others had theirs."""
        (self._touched if self.work > 0 else self._soon)[native] = None

    def next_turn(self, native: NativeAgent) -> None:
        """It has more to do, in the next turn."""
        self._soon[native] = None

    def armed(self, native: NativeAgent) -> bool:
        """It will be flushed, without anything coming from outside."""
        return native in self._touched or native in self._soon or native in self._late

    def change(self, native: NativeAgent) -> None:
        """Let its row be written when the batch closes."""
        self._changed[native] = None
        self.tx.urge(LINGER)

    def remove(self, native: NativeAgent, written: bool = True) -> None:
        """It is gone, and its rows if it ever had any."""
        self.agents.pop(native.id, None)
        for those in (self._touched, self._changed, self._late, self._soon):
            those.pop(native, None)
        if written:
            self.drop_rows(native.id)

    def drop_rows(self, agent: str) -> None:
        """Delete the rows of a deleted agent, except its inbox."""
        self._timers.drop(agent)
        self._collections.drop(agent)


class NativeScheduler(Natives):
    """The core's side: native agents are created, flushed and written."""

    __slots__ = ()

    def create(self, native: NativeAgent) -> None:
        self.agents[native.id] = native
        self.tx.rows.agents[native.id] = (native.path, native.pack())
        native.created()

    def alarmed(self, agent: str) -> None:
        """The time of an alarm has come."""
        if native := self.agents.get(agent):
            native.alarm()

    def begin(self) -> None:
        """A turn begins. Those that wait for it take turns in being the first."""
        self.work = self.tx.limits.turn_work
        if self._soon:
            self._turns += 1
            waiting = [*self._soon]
            first = self._turns % len(waiting)
            self._touched.update(dict.fromkeys(waiting[first:] + waiting[:first]))
            self._soon = {}

    def busy(self) -> bool:
        """A turn would find something to do."""
        return bool(self._touched or self._soon)

    def waiting(self) -> bool:
        """Some wait for the next turn."""
        return bool(self._soon)

    def flush(self) -> bool:
        """Let the touched ones say what they have to; False if there are none."""
        if not self._touched:
            return False
        touched, self._touched = self._touched, {}
        for native in touched:
            if self.agents.get(native.id) is native:
                native.flush()
        return True

    def close(self) -> None:
        """The open batch closes."""
        self.flush()
        changed, self._changed = self._changed, {}
        for native in changed:
            if self.agents.get(native.id) is native:
                self.tx.rows.agents[native.id] = (native.path, native.pack())

    def committed(self) -> None:
        self._touched.update(self._late)
        self._late = {}

    def late(self) -> bool:
        """Some wait for the next commit."""
        return bool(self._late)

    def check(self) -> None:
        for native in self.agents.values():
            native.check()
