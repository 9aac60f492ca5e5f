"""Natives: the broker's own agents (queues, subscriptions, sessions) in memory, and its only door to the core."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from mombroker.core.batch import Damage
from mombroker.core.clock import Clock
from mombroker.core.collection import Collection, Collections
from mombroker.core.destinations import Destinations
from mombroker.core.groups.bus import Groups
from mombroker.core.message import Message, Note
from mombroker.core.message_types import MessageTypes
from mombroker.core.names import Names
from mombroker.core.newcomers import Newcomers
from mombroker.core.replicated import Replication
from mombroker.core.table import Table, Watch
from mombroker.core.timers import Timers
from mombroker.core.transaction import Transaction
from mombroker.core.turns import Turns


class Unwritten(Protocol):
    """What writes rows when the batch closes."""

    def write(self) -> None: ...


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
    def repeated(self, source: str) -> bool: ...  # at another one: True if this asker knows no better
    def deleted(self) -> None: ...  # remove it, at once or when that is done; raises MomError
    def react(self, message: Message) -> None: ...
    def flush(self) -> None: ...  # after `touch`
    def flush_parts(self, parts: list[tuple[Any, Any]]) -> None: ...  # of several such; see Turns.touched
    def alarm(self) -> None: ...  # after Natives.alarm
    def damaged(self, damage: Damage) -> None: ...  # one of its items is lost
    def pack(self) -> bytes: ...  # one of `changed`: the state of its row
    def check(self) -> None: ...  # assert its invariants


class Clients(Protocol):
    """Who serves the connections of clients, and the native agents (broker/session/service.py)."""

    replies: dict[int, list[Any]]  # of the open batch, by connection

    def step(self, event: Any) -> None: ...  # Client* of events.py
    def owns(self, path: str) -> bool: ...  # is it the class of a native agent?
    def native(self, path: str, agent: str, state: bytes) -> NativeAgent: ...  # of such a class, not created yet
    def recover(self) -> None: ...  # take up what the store holds, before the first turn
    def named(self, name: str) -> None: ...  # it is known now, or no longer
    def room(self) -> None: ...  # the server takes work again
    def host(self, agent: str) -> NativeAgent | None: ...  # one that is made when something comes for it
    def lost(self, server: str) -> None: ...  # with all that it held and knew
    def left(self, server: str) -> None: ...  # it is not of this bus any more
    def cut_off(self, servers: set[str]) -> None: ...  # what was under way between us and these may be lost
    def depart(self) -> None: ...  # nor are we from now on

    @property
    def authors(self) -> Destinations: ...  # what authors' agents do with queues and topics
    @property
    def groups(self) -> Groups: ...  # of agents
    @property
    def questions(self) -> Asked: ...  # what clients have asked agents
    @property
    def orphans(self) -> Orphans: ...  # what comes for those who are not there

    leaving: Callable[[], bool]  # is it us who leaves the bus? Then nobody may connect

    @property
    def dropped(self) -> int: ...  # messages of topics that connections did not take in time
    def describe(self, conn: int) -> dict[str, int]: ...  # one connection, for the operator
    def reason(self, agent: str) -> str: ...  # one that waits in a group, or for an order: until this is so
    def why(self) -> list[dict[str, Any]]: ...  # what else waits here, clients and views


class Orphans(Protocol):
    """What comes for agents that are not there any more, or live elsewhere (broker/session/orphans.py)."""

    def inside(self, message: Message, agent: str) -> Iterator[Message]: ...  # those that it takes to an agent
    def settle(self, message: Message, agent: str) -> bool: ...  # True: it needs no dead letter


class Asked(Protocol):
    """What agents were asked, by whom, so that nobody asks twice; it goes along with them."""

    def packed(self, agent: str) -> Iterator[tuple[str, bytes, Callable[[], object]]]: ...
    def left(self, agent: str) -> None: ...
    def brought(self, agent: str, producer: str, packed: bytes) -> None: ...  # raises UnknownNotification


class Channel(Protocol):
    """What sends the messages of native agents; see channel.py."""

    def send(self, message: Message) -> None: ...
    def post(self, source: str, to: str, note: Note) -> None: ...
    def cast(self, source: str, to: tuple[str, ...], note: Note) -> None: ...
    def send_now(self, source: str, native: NativeAgent, note: Note) -> None: ...
    def sent_here(self, source: str, agent: str, type: str, sizes: list[int]) -> list[int] | None: ...
    def run_now(self, source: str, native: NativeAgent, type: str, sizes: list[int]) -> list[int] | None: ...
    def round_now(
        self, sources: Sequence[str], agents: Sequence[str], type: str, sizes: Sequence[int], ids: int = 1
    ) -> list[int] | None: ...


class Natives:
    """The broker's only door to the core.

    1. The row of a changed native agent is written when the batch closes; that of another one says its state.
    2. A removed one sends and writes nothing more, not even in the reaction that removed it.
    3. `ids` are those of all native agents, in order.

    tx         the open batch, and what else a part may ask of its server
    clock      how our clock stands to the wall clock and to those of other servers
    names      the agents that are known by name
    agents     the native agents, by id; all are in memory
    ids        the same in order, so that a page of a long list costs no more than what is on it
    changed    those whose rows are to be written when the batch closes
    unwritten  who has other rows that may not be needed by then
    turns      when they are flushed, and what is left of the turn's work
    types      what is done with messages of some types, whoever they are for
    replication   what a replicated table is made with
    newcomers  servers that were attached while the bus worked
    send       sends a message
    post       sends a note to an agent; cast to several
    send_now   sends a note to one of our own, which takes it at once if nothing is in its way; not to be called while
               another one is at work, which might not expect that this one changes
    sent_here  the numbers of messages to an agent of ours, for whoever does here what is done at their delivery
    run_now    ids of messages that one of our own takes in one piece, as by `send_now`, if nothing is in their way
    round_now  the same of messages of which each has its own source, and is for another agent
    waits      does something wait in the inbox of an agent here?
    """

    __slots__ = (
        "tx", "clock", "names", "agents", "ids", "changed", "unwritten", "turns", "types", "replication", "newcomers",
        "send", "post", "cast", "send_now", "sent_here", "run_now", "round_now", "waits", "_timers",
        "_collections",
    )  # fmt: skip

    def __init__(
        self,
        tx: Transaction,
        clock: Clock,
        names: Names,
        collections: Collections,
        timers: Timers,
        channel: Channel,
        types: MessageTypes,
        replication: Replication,
        newcomers: Newcomers,
    ):
        self.tx, self.clock, self.names, self._collections, self._timers = tx, clock, names, collections, timers
        self.send, self.post, self.cast = channel.send, channel.post, channel.cast
        self.send_now, self.sent_here, self.run_now = channel.send_now, channel.sent_here, channel.run_now
        self.round_now = channel.round_now
        self.types, self.replication, self.newcomers = types, replication, newcomers
        self.waits: Callable[[str], bool]
        self.agents: dict[str, NativeAgent] = {}
        self.ids: list[str] = []
        self.changed: dict[NativeAgent, None] = {}
        self.unwritten: dict[Unwritten, None] = {}
        self.turns = Turns(tx, self.agents)

    def add(self, native: NativeAgent) -> None:
        """One that is here from now on. Its row, if it is to have one, is the business of whoever adds it."""
        if native.id not in self.agents:
            insort(self.ids, native.id)
        self.agents[native.id] = native

    def alarm(self, at: int, native: NativeAgent) -> None:
        """Let it know that a time has come; in memory only."""
        self._timers.alarm(at, native.id)

    def collection(self, agent: str, name: str) -> Collection:
        """An agent's collection, as it is in the store."""
        return self._collections.open(agent, name)

    def table(self, agent: str, name: str) -> Table:
        """An agent's table, as it is in the store."""
        return self._collections.table(agent, name)

    def watch(self, agent: str, name: str, watch: Watch) -> None:
        """Have somebody told what rows of an agent's table were before they change."""
        self._collections.watches.setdefault((agent, name), []).append(watch)

    def unwatch(self, agent: str, name: str, watch: Watch) -> None:
        watches = self._collections.watches[agent, name]
        watches.remove(watch)
        if not watches:
            del self._collections.watches[agent, name]

    def remove(self, id: str, written: bool = True) -> None:
        """An agent is gone, and its rows, except its inbox, if it ever had any."""
        if native := self.agents.pop(id, None):
            del self.ids[bisect_left(self.ids, id)]
            self.changed.pop(native, None)
            self.turns.forget(native)
        if written:
            self._timers.drop(id)
            self._collections.drop(id)


class NativeHost(Natives):
    """The core's side of the door: native agents are created and written."""

    __slots__ = ()

    def create(self, native: NativeAgent) -> None:
        self.add(native)
        self.tx.rows.agents[native.id] = (native.path, native.pack())
        native.created()

    def alarmed(self, agent: str) -> None:
        """The time of an alarm has come."""
        if native := self.agents.get(agent):
            native.alarm()

    def close(self) -> None:
        """The open batch closes. Who is flushed may give others something to say: all of it is in this batch, or a
        crash would part what is written from what is sent."""
        while self.turns.touched:
            self.turns.flush()
        unwritten, self.unwritten = self.unwritten, {}
        for part in unwritten:
            part.write()
        changed, self.changed = self.changed, {}
        for native in changed:
            if self.agents.get(native.id) is native:
                self.tx.rows.agents[native.id] = (native.path, native.pack())

    def check(self) -> None:
        assert self.ids == sorted(self.agents), "native agents are not listed as they are"
        for native in self.agents.values():
            native.check()
            if native not in self.changed and native not in self.turns.touched:
                row = self.tx.written("agents", native.id)
                assert row is None or row[1] == native.pack(), f"the row of {native.id} is not its state"
