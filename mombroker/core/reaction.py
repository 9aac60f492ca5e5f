"""What an agent is to the Engine, and what one reaction may do. Nothing of it happens unless the reaction succeeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from mombroker.core import times
from mombroker.core.batch import EVERY, TaskRow
from mombroker.core.collection import Collection
from mombroker.core.destinations import Destinations, Incoming, Source
from mombroker.core.errors import MomError, UnknownName
from mombroker.core.groups.bus import CASTS, JOIN, LEAVE, PLACE, PUT, SEND, Groups
from mombroker.core.ids import OURS, SERVER_NAME, check_address, created_id, is_id, not_an_agent
from mombroker.core.limits import Limits
from mombroker.core.message import Message, new_message
from mombroker.core.names import CREATE, Names
from mombroker.core.table import Table
from mombroker.core.timers import Timers
from mombroker.core.transaction import Transaction

DELETE = "_delete"
SHORTEST_NS = 10 * times.MS  # of a timer that comes again
ASK, ANSWER = "a.ask", "a.answer"  # what a client sends to an agent, and is sent by one: broker/protocol.py


class Retry(NamedTuple):
    """How often a reaction is tried, and at which intervals, in ns; 0 = as the limits of the server say."""

    attempts: int = 0
    first: int = 0
    factor: int = 0
    most: int = 0

    def within(self, limits: Limits) -> Retry:
        return Retry(
            self.attempts or limits.max_attempts, self.first or limits.retry_first_ns,
            self.factor or limits.retry_factor, self.most or limits.retry_max_ns,
        )  # fmt: skip

    def delay(self, failed: int) -> int:
        """Until the next attempt, after so many have failed."""
        delay: int = self.first * self.factor ** min(failed - 1, 60)
        return min(delay, self.most)


class Reactive(Protocol):
    """What the engine needs of an agent in memory."""

    def react(self, reaction: Reaction) -> None: ...  # raises to refuse; UnknownNotification: no such reaction
    def who_cast(self, message: Message) -> tuple[str, str] | None: ...  # who is told that its cast fails, and its type
    def pack(self) -> bytes: ...
    def unpack(self, state: bytes) -> None: ...


class Program(Protocol):
    """The code that a server may run; class and function paths are `module:Name`."""

    def permit(self, allow: tuple[str, ...], declared: frozenset[str]) -> None: ...  # what may be loaded from now on
    def load(
        self, path: str, agent: str, state: bytes, server: str
    ) -> Reactive: ...  # that lives there; raises MomError
    def allowed(self, path: str, remote: bool) -> None: ...  # raises MomError
    def run(self, path: str, arguments: bytes) -> bytes: ...
    def initial(self, path: str, fields: dict[str, Any]) -> bytes: ...  # the state of a new agent
    def notice(self, kind: str, **fields: Any) -> tuple[str, bytes]: ...  # a named notification, packed
    def compose(self, type: str, fields: dict[str, Any]) -> bytes: ...  # a notification given as text
    def read(self, type: str, payload: bytes) -> dict[str, Any]: ...
    def describe(self, path: str, state: bytes) -> dict[str, Any]: ...  # an agent's fields
    def collections(self, path: str) -> tuple[str, ...]: ...  # names of an agent's collections
    def tables(self, path: str) -> tuple[str, ...]: ...
    def key(self, text: str) -> Any: ...  # of a table
    def value(self, body: bytes) -> Any: ...  # of an item in one
    def retry(self, path: str) -> Retry: ...  # how often reactions of a class are tried
    def refuses(self, path: str, error: BaseException) -> bool: ...  # is it one after which nothing is tried again?
    def sources(self, path: str) -> tuple[Source, ...]: ...  # that a class declares; raises MomError


class Kept(Protocol):
    """What agents in memory have on disk."""

    def collection(self, agent: str, name: str) -> Collection: ...
    def table(self, agent: str, name: str) -> Table: ...


class Reaction:
    """What one reaction may do; nothing of it happens unless the reaction succeeds.

    groups     of agents
    source     who has sent the message, if not the agent that it came from
    incoming   what it is a reaction to, if that has come from a destination
    delivered  the same, as its author gets it
    first      the agent is made by it
    given      states that it gives new members, as of before its own changes
    """

    __slots__ = (
        "tx",
        "names",
        "destinations",
        "groups",
        "source",
        "agent",
        "message",
        "incoming",
        "delivered",
        "first",
        "now",
        "ops",
        "given",
        "_kept",
    )

    def __init__(
        self,
        tx: Transaction,
        names: Names,
        destinations: Destinations,
        groups: Groups,
        agent: str,
        message: Message,
        kept: Kept,
    ):
        self.tx, self.names, self.destinations, self.agent, self.message = tx, names, destinations, agent, message
        self.groups, self.source = groups, message.source
        self.now, self._kept = tx.now, kept
        self.incoming: list[Incoming] = []
        self.delivered: Any = None
        self.first = False
        self.ops: list[tuple[str, Any]] = []
        self.given: tuple[tuple[str, int, list[str], bytes, list[str]], ...] = ()

    def send(self, to: tuple[str, ...], type: str, payload: bytes, ttl: int = 0, flags: int = 0) -> None:
        """Send to agents given by id or name; `ttl` in ns. Raises UnknownName, MomError.

        An agent whose home is not on this bus, or not any more, is no error: its copy is a dead letter, and the sender
        is told.
        """
        names = self.names
        dests: dict[str, None] = {}
        for agent in to:
            id = names.known.get(agent)
            if id is None:
                check_address(agent)
                if agent.startswith(OURS):
                    raise not_an_agent(agent)
                id = agent if is_id(agent) else names.resolve(agent)
            dests[id] = None
        self.check_size("a notification", len(payload))
        if len(dests) > 1:
            self.check_size("a list of receivers, with what they get,", sum(map(len, dests)) + len(payload))
        if dests:
            expires = times.after(self.now, ttl) if ttl else 0
            self.ops.append(("send", new_message(self.tx, self.agent, tuple(dests), type, payload, expires, flags)))

    def create(self, path: str, state: bytes, home: str = "") -> str:
        """Create an agent here or on another server; it exists once its home server delivers this.

        A home that is not on this bus is as for `send`.
        """
        tx = self.tx
        home = home or tx.name
        if not SERVER_NAME.fullmatch(home):
            raise MomError(f"{ascii(home[:64])} is no name of a server")
        self.check_size("the state of a new agent", len(state))
        id = created_id(home, tx.name, tx.new_id())
        self.ops.append(("send", new_message(tx, self.agent, (id,), CREATE, path.encode() + b"\n" + state)))
        return id

    def delete(self, agent: str) -> None:
        self.send((agent,), DELETE, b"")

    def timer(self, delay: int, type: str, payload: bytes) -> int:
        """A message to oneself in `delay` ns; survives restarts."""
        id = self.tx.new_id()
        message = Message(self.tx.name, id, self.agent, (self.agent,), type, payload)
        due = times.after(self.now, delay)
        self.ops.append(("task", TaskRow(id, self.agent, "timer", due, message.encode())))
        return id

    def every(self, period: int, type: str, payload: bytes) -> int:
        """The same again and again, every `period` ns, until it is cancelled; what was missed is not made up for."""
        if period < SHORTEST_NS:
            raise MomError(f"a timer that comes again has a period of at least {SHORTEST_NS / times.SECOND:g} s")
        id = self.tx.new_id()
        message = Message(self.tx.name, id, self.agent, (self.agent,), type, payload)
        due = times.after(self.now, period)
        self.ops.append(("task", TaskRow(id, self.agent, f"{EVERY}{period}", due, message.encode())))
        return id

    def cancel(self, task: int) -> None:
        if not isinstance(task, int):
            raise TypeError(f"cancel takes what timer or defer returned, not a {type(task).__name__}")
        self.ops.append(("cancel", task))

    def defer(self, path: str, arguments: bytes) -> int:
        """Run a function outside; it may run more than once, its result comes exactly once."""
        id = self.tx.new_id()
        self.ops.append(("task", TaskRow(id, self.agent, "defer", 0, path.encode() + b"\n" + arguments)))
        return id

    # -- queues and topics ---------------------------------------------------------------------------------------

    def put(self, kind: str, to: str, body: bytes, fields: Mapping[str, Any]) -> None:
        """Send a message to a destination: `kind` is "queue", "topic", or empty. Raises UnknownName, MomError."""
        self.check_size("a message", len(body))
        outgoing = self.destinations.outgoing(self.agent, kind, to, body, fields)
        self.ops.append((PLACE if self.destinations.in_order(outgoing) else PUT, outgoing))

    def take(self, source: Source) -> int:
        """Consume from a destination from now on. Raises MomError."""
        self.destinations.examine(source)
        number = self.tx.new_id()
        self.ops.append(("take", (number, source)))
        return number

    def stop(self, number: int) -> None:
        """Consume from it no more."""
        if not isinstance(number, int):
            raise TypeError(f"stop takes what consume or subscribe returned, not a {type(number).__name__}")
        self.ops.append(("stop", number))

    # -- groups ----------------------------------------------------------------------------------------------------

    def join(self, group: str, needs: bool, patience: int = 0, told: bool = False) -> None:
        """Be a member of a group, which is made if need be; others wait for `patience` ns when it is down, 0 = for
        ever. Raises UnknownName, MomError."""
        if patience < 0:
            raise MomError("others wait for a member that is down for 0 seconds (for ever) or more, not for less")
        self.groups.may_join(self.agent)
        self.ops.append((JOIN, (group, self.groups.home(group, True), needs, patience, told)))

    def leave(self, group: str) -> None:
        """Be none any more. Raises UnknownName, MomError."""
        if home := self._home(group):
            self.ops.append((LEAVE, (group, home)))

    def cast(self, group: str, type: str, payload: bytes, total: bool) -> None:
        """Send to all members of a group. Raises UnknownName, MomError."""
        self.check_size("a notification", len(payload))
        self.ops.append((CASTS, (group, self._home(group), type, payload, total)))

    def _home(self, group: str) -> str:
        """The agent of a group; none for one that is gone, if this agent is still to be told of that."""
        try:
            return self.groups.home(group, False)
        except UnknownName:
            if self.groups.is_over(self.agent, group):
                return ""
            raise

    def give(self, group: str, number: int, to: list[str], state: bytes, tables: list[str]) -> None:
        """Give members of a view a state, and what is in these tables of ours now."""
        self.given = *self.given, (group, number, to, state, tables)

    def restored(self, group: str, number: int) -> None:
        """The state that it was to begin with, in this view, is its own now."""
        self.ops.append(("restored", (group, number)))

    def apply(self, send: Callable[[Message], None], timers: Timers) -> None:
        """The reaction succeeded: do what it asked for, in its order."""
        destinations, groups, agent, waits = self.destinations, self.groups, self.agent, False
        for kind, value in self.ops:
            if kind in (CASTS, JOIN, LEAVE, PLACE) or (waits and kind in (SEND, PUT)):
                waits = groups.act(agent, kind, value)
            elif kind == "send":
                send(value)
            elif kind == "put":
                destinations.send(agent, value)
            elif kind == "restored":
                groups.restored(agent, *value)
            elif kind == "task":
                timers.add(value)
            elif kind == "cancel":
                timers.cancel(agent, value)
            elif kind == "take":
                destinations.take(agent, *value)
            else:
                destinations.stop(agent, value)

    def check_size(self, what: str, size: int) -> None:
        """Whatever leaves must fit into one frame, or it would block its link for ever. Raises MomError."""
        limit = self.tx.limits.max_message
        if size > limit:
            raise MomError(
                f"{what} of {size} bytes is over the limit of {limit}: make it smaller or raise max_message in [limits]"
            )

    def collection(self, name: str) -> Collection:
        return self._kept.collection(self.agent, name)

    def table(self, name: str) -> Table:
        return self._kept.table(self.agent, name)
