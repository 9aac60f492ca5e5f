"""Agent: the base of persistent reactive objects. What an author writes against; the Engine runs it."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack

from mombroker.agents import messages
from mombroker.agents import notifications as notes
from mombroker.agents.declaring import Reject
from mombroker.agents.groups import Group, cast_of, view_of
from mombroker.agents.messages import Delivered, Options
from mombroker.agents.notifications import pack, unpack
from mombroker.agents.tables import Items, Table
from mombroker.core import times
from mombroker.core.destinations import Source
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.groups.view import CAST, VIEW
from mombroker.core.message import Message
from mombroker.core.names import CREATE
from mombroker.core.reaction import ANSWER, ASK, DELETE, Reaction, Retry

F = TypeVar("F", bound=Callable[..., None])
VERSION = ""  # what a state calls the version of its class, if that is not the first
PLAIN = (type(None), bool, int, float, str, bytes, list, dict)


def reacts(method: F) -> F:
    """Mark a method as the reaction to the notification type that its argument is annotated with (A | B: both)."""
    method.__reacts__ = True  # type: ignore[attr-defined]
    return method


class Agent:
    """A persistent reactive object (paper 004 §3). Annotated fields are its state; `@reacts` methods are its reactions.

    A reaction is atomic: its state change, its sends and the message that it consumed become durable together, or it
    is rolled back whole and tried again. Fields hold plain values: None, bool, int, float, str, bytes, list, dict.
    """

    _fields: typing.ClassVar[tuple[str, ...]] = ()
    _items: typing.ClassVar[tuple[str, ...]] = ()
    _tables: typing.ClassVar[tuple[str, ...]] = ()
    _defaults: typing.ClassVar[dict[str, Any]] = {}
    _reactions: typing.ClassVar[dict[str, Callable[[Any, Any], None]]] = {}
    _version: typing.ClassVar[int] = 1
    _aliases: typing.ClassVar[tuple[str, ...]] = ()
    _retry: typing.ClassVar[Retry] = Retry()
    _fatal: typing.ClassVar[tuple[type[BaseException], ...]] = (Reject,)
    _sources: typing.ClassVar[tuple[Source, ...]] = ()
    _takers: typing.ClassVar[dict[str, Callable[[Any, Delivered], None]]] = {}  # by the method of a source

    def __init_subclass__(cls) -> None:
        taken = sorted(_RESERVED & {*cls.__dict__, *cls.__dict__.get("__annotations__", {})})
        if taken:
            raise TypeError(f"{cls.__name__} redefines {', '.join(taken)}, which every Agent has: choose another name")
        hints = {
            name: hint
            for name, hint in typing.get_type_hints(cls).items()
            if typing.get_origin(hint) is not typing.ClassVar and not name.startswith("_")
        }
        cls._items = tuple(name for name, hint in hints.items() if hint is Items)
        cls._tables = tuple(name for name, hint in hints.items() if hint is Table)
        cls._fields = tuple(name for name in hints if name not in cls._items and name not in cls._tables)
        for name in cls._fields:
            origin = typing.get_origin(hints[name]) or hints[name]
            if isinstance(origin, type) and origin not in PLAIN and origin is not types.UnionType:
                raise TypeError(f"{cls.__name__}.{name}: state must be plain (int, str, list, dict, ...), not {origin}")
        cls._defaults = {name: getattr(cls, name) for name in cls._fields if hasattr(cls, name)}
        pack(cls._defaults, f"{cls.__name__}'s defaults")
        cls._version, cls._aliases = 1, ()
        cls._reactions, cls._takers, sources = {}, {}, list[Source]()
        for name in dir(cls):
            method = inspect.getattr_static(cls, name, None)
            if getattr(method, "__takes__", None) or getattr(method, "__reacts__", False):
                _check_plain(f"{cls.__name__}.{name}", method)
            if source := getattr(method, "__takes__", None):
                cls._takers[name] = messages.taking(f"{cls.__name__}.{name}", method, _argument(method))
                sources.append(source._replace(method=name))
            if getattr(method, "__commands__", False) and not getattr(method, "__reacts__", False):
                raise TypeError(f"{cls.__name__}.{name}: only a Replicated has commands")
            if getattr(method, "__reacts__", False):
                for wire in _taken_by(cls, name, method):
                    other = cls._reactions.setdefault(wire, method)
                    if other is not method:
                        raise TypeError(
                            f"{cls.__name__}.{other.__name__} and .{name} both react to {wire}: leave one; a subclass "
                            f"that is to react otherwise redefines the method of that name"
                        )
        cls._sources = tuple(sources)

    def __init__(self, id: str, state: bytes, server: str):
        self.__dict__["_reaction"] = None
        self.id = id
        self.server = server
        self._unpack(state)
        for name in self._items:
            self.__dict__[name] = Items(self, name)
        for name in self._tables:
            self.__dict__[name] = Table(self, name)
        self._expected = len(self.__dict__) + 1
        self.on_load()

    # -- hooks -------------------------------------------------------------------------------------------------

    def on_create(self) -> None:
        """The agent's first reaction; it may send."""

    def on_load(self) -> None:
        """The agent has come into memory; it may not send."""

    def on_delete(self) -> None:
        """The agent's last reaction; it may send."""

    @classmethod
    def migrate(cls, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Today's fields, of those that an agent has which an older version of its class has stored (see `agent`)."""
        return fields

    # -- for reactions -----------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Wall-clock ns of this server, never decreasing."""
        return self._now_reacting().now

    @property
    def sender(self) -> str:
        """The id of the agent that sent the notification at hand; of a client, an address that answers go to, at any
        time and from any agent."""
        return self._now_reacting().source

    @property
    def message_id(self) -> str:
        """`server#number` of the notification at hand, unique on the bus."""
        message = self._now_reacting().message
        return f"{message.origin}#{message.number}"

    def send(self, to: str | Iterable[str], note: Any, *, ttl: float = 0) -> None:
        """Send to one agent or to many (one multicast), by id or name; `ttl` in seconds, 0 = for ever. What is sent to
        the `sender` of a client's question is the answer, as JSON.

        Raises UnknownName (the reaction runs again once the name is known), MomError, TypeError.
        """
        wire, payload = notes.encode(note)
        if not isinstance(to, str | Iterable):
            raise TypeError(f"send takes an agent's id or name, or several, not a {type(to).__name__}")
        agents, life = (to,) if isinstance(to, str) else tuple(to), times.of_seconds(ttl)
        if clients := tuple(each for each in agents if isinstance(each, str) and _is_client(each)):
            agents = tuple(each for each in agents if each not in clients)
            self._answer_clients(clients, *notes.to_json(note), life)
        self._now_reacting().send(agents, wire, payload, life)

    def _answer_clients(self, clients: tuple[str, ...], type: str, body: bytes, life: int = 0) -> None:
        """Those who have asked for no answer, and whose address is that of their connection, get none."""
        waiting = tuple(each for each in clients if "/reply:" in each)
        self._now_reacting().send(waiting, ANSWER, pack([type, body], "an answer"), life)

    def reply(self, note: Any, **options: Unpack[Options]) -> None:
        """Answer the sender of the notification at hand, a client with a value for JSON, too; of a message of a
        destination, its `reply_to`, with its `correlation_id`, or else its id, and options as for `put`."""
        reaction = self._now_reacting()
        asked: Delivered | None = reaction.delivered
        if asked is None:
            if options:
                raise TypeError(f"the reply to a notification has no option {', '.join(options)}")
            if _is_client(self.sender):
                self._answer_clients((self.sender,), *messages.answer(note))
            else:
                self.send(self.sender, note)
            return
        if not asked.reply_to:
            raise MomError(f"message {asked.id} names no queue for an answer: see `delivered.reply_to` before")
        options.setdefault("correlation_id", asked.correlation_id or asked.id)
        reaction.put("", asked.reply_to, *messages.encoded(note, options))

    # -- queues and topics ---------------------------------------------------------------------------------------

    @property
    def delivered(self) -> Delivered | None:
        """The message of a queue or topic that this is the reaction to."""
        return typing.cast(Delivered | None, self._now_reacting().delivered)

    def put(self, queue: str, body: Any, **options: Unpack[Options]) -> None:
        """Send a message to a queue, as clients do: `body` is text, bytes, a notification, or a value for JSON.

        Raises UnknownName for a queue that is being made (the reaction runs again once it is there), MomError,
        TypeError.
        """
        self._now_reacting().put("queue", queue, *messages.encoded(body, options))

    def publish(self, topic: str, body: Any, **options: Unpack[Options]) -> None:
        """The same to a topic."""
        self._now_reacting().put("topic", topic, *messages.encoded(body, options))

    def consume(
        self, queue: str, *, selector: str = "", prefetch: int = 100, exclusive: bool = False, priority: int = 0
    ) -> int:
        """Take the messages of a queue, restarts or not; the reaction to Delivered gets them. Returns an id for `stop`.

        Raises MomError.
        """
        return self._now_reacting().take(Source("", (queue,), False, selector, prefetch, exclusive, priority))

    def subscribe(self, *topics: str, selector: str = "", prefetch: int = 100, shared: str = "") -> int:
        """The same for topics, by a durable subscription, which `stop` ends."""
        return self._now_reacting().take(Source("", topics, True, selector, prefetch, shared=shared))

    def stop(self, consumer: int) -> None:
        """Take no more; what is under way goes back."""
        self._now_reacting().stop(consumer)

    # -- groups --------------------------------------------------------------------------------------------------

    def join(self, group: str, *, patience: float = 0) -> None:
        """Be a member of a group, which is made when the first one joins. The reaction to View tells that it is so.

        When this agent's server is down for `patience` seconds, the others go on without it; 0: they wait until it is
        back. A reaction to MemberDown or MemberUp is told which of the others are down, and up again.

        With a `restore`, or `snapshot_tables`, the agent begins with the state of the eldest member, before it reacts
        to its first View. It does not move to another server meanwhile. Raises UnknownName for a group that is being
        made (the reaction runs again once it is there), MomError.
        """
        mine = type(self)
        needs = mine.restore is not Agent.restore or mine.snapshot_tables is not Agent.snapshot_tables
        told = not _LOOKOUT.isdisjoint(mine._reactions)
        self._now_reacting().join(group, needs, times.of_seconds(patience), told)

    def leave(self, group: str) -> None:
        """Be no member any more, after the casts of the view at hand; the last View says so. Raises UnknownName."""
        self._now_reacting().leave(group)

    def group(self, name: str) -> Group:
        """A group, to cast to; whoever is no member may, too."""
        return Group(self, name)

    def snapshot(self, group: str) -> Any:
        """What a new member of a group is to begin with: a plain value. It is taken at the beginning of its view."""
        return None

    def snapshot_tables(self, group: str) -> Iterable[Table]:
        """Tables that a new member is to have besides, with the rows of that moment: they follow a page at a time,
        while this agent goes on. What the new member has in its own of the same names gives way to them."""
        return ()

    def restore(self, group: str, state: Any) -> None:
        """Begin with what another member had when this agent's first view began; its tables are there by now."""

    # -- agents --------------------------------------------------------------------------------------------------

    def create(self, cls: type[Agent], *, server: str = "", **fields: Any) -> str:
        """Create an agent, here or on another server; what is sent to the returned id from now on reaches it."""
        if not (isinstance(cls, type) and issubclass(cls, Agent)):
            raise TypeError(f"create takes a class of agents, not a {type(cls).__name__}")
        return self._now_reacting().create(path_of(cls), initial(cls, fields), server)

    def delete(self, agent: str = "") -> None:
        """Delete an agent (oneself by default), after the messages that it was sent before."""
        self._now_reacting().delete(agent or self.id)

    def timer(self, seconds: float, note: Any) -> int:
        """Send a notification to oneself in a while, restarts or not; returns an id for `cancel`."""
        return self._now_reacting().timer(times.of_seconds(seconds), *notes.encode(note))

    def every(self, seconds: float, note: Any) -> int:
        """The same again and again, until it is cancelled. One that a server was down for, or late, comes once. Raises
        MomError for less than 0.01 s."""
        return self._now_reacting().every(times.of_seconds(seconds), *notes.encode(note))

    def cancel(self, timer: int) -> None:
        self._now_reacting().cancel(timer)

    def defer(self, function: Callable[..., Any], *arguments: Any) -> int:
        """Run a module's function outside of the reaction; DeferDone or DeferFailed comes back exactly once.

        The function may run more than once (after a crash). Arguments and result are plain values.
        """
        if "<" in function.__qualname__ or "." in function.__qualname__:
            raise TypeError(f"defer takes a function of a module, not {function.__qualname__}")
        path = f"{function.__module__}:{function.__qualname__}"
        return self._now_reacting().defer(path, pack(list(arguments), "arguments of " + path))

    # -- for the Engine ----------------------------------------------------------------------------------------

    def _now_reacting(self) -> Reaction:
        reaction = self._reaction
        if reaction is None:
            raise RuntimeError(f"{type(self).__name__}: this is possible only inside a reaction")
        return reaction

    def react(self, reaction: Reaction) -> None:
        if reaction.incoming:
            self._react_to_delivered(reaction)
            return
        message = reaction.message
        method, note = self._reactions.get(message.type), None
        if message.type == ASK:
            method, note = self._question_of(message.payload)
        if method is None and message.type not in (CREATE, DELETE, CAST, VIEW):
            if message.type in _OPTIONAL:
                return
            raise UnknownNotification(f"{type(self).__name__} has no reaction to {message.type}")
        self._reaction: Reaction | None = reaction
        try:
            if reaction.first:
                self.on_create()
            if message.type == VIEW:
                self._react_to_view(reaction)
            elif message.type == CAST:
                self._react_to_cast(reaction)
            elif method is not None:
                method(self, notes.decode(message.type, message.payload) if note is None else note)
            elif message.type == CREATE:
                self.on_create()
            else:
                self.on_delete()
        finally:
            self._reaction = None

    def _question_of(self, payload: bytes) -> tuple[Callable[[Any, Any], None], Any]:
        """The reaction to what a client has sent, and its notification. Raises UnknownNotification."""
        me = type(self).__name__
        try:
            wire, body = unpack(payload)[:2]
            method = self._reactions.get(wire)
            if method is None:
                raise MomError(f"{me} has no reaction to {wire}")
            cls = notes.TYPES[wire]
            if not cls.__wire_exposed__:  # type: ignore[attr-defined]
                raise MomError(f"{wire} is not for clients: @notification(expose=True) makes it so")
            return method, notes.from_json(cls, body)
        except MomError as error:
            raise UnknownNotification(str(error)) from None
        except (TypeError, ValueError) as error:
            raise UnknownNotification(f"{me} was asked with what is no question: {error}") from None

    def _react_to_view(self, reaction: Reaction) -> None:
        note, giver, lacking = view_of(reaction.message.payload)
        group, number = note.group, note.number
        if self.id in lacking and (found := reaction.groups.state(self.id, group, number)) is not None:
            self.restore(group, unpack(found))
            reaction.restored(group, number)
        if giver == self.id:
            state = pack(self.snapshot(group), f"{type(self).__name__}'s snapshot")
            reaction.give(group, number, lacking, state, [each.name for each in self.snapshot_tables(group)])
        method = self._reactions.get(_VIEWED)
        if method is not None:
            method(self, note)

    def _react_to_cast(self, reaction: Reaction) -> None:
        sender, type_, fields = cast_of(reaction.message.payload)
        method = self._reactions.get(type_)
        if method is None:
            raise UnknownNotification(f"{type(self).__name__} has no reaction to {type_}")
        reaction.source = sender
        method(self, notes.decode(type_, fields))

    def _react_to_delivered(self, reaction: Reaction) -> None:
        self._reaction = reaction
        try:
            if reaction.first:
                self.on_create()
            for incoming in reaction.incoming:
                take = self._takers.get(incoming.method) if incoming.method else self._reactions.get(_DELIVERED)
                if take is None:
                    what = incoming.method or "reaction to Delivered"
                    raise UnknownNotification(f"{type(self).__name__} has no {what}")
                reaction.delivered = delivered = Delivered(incoming)
                take(self, delivered)
        finally:
            self._reaction = None

    def who_cast(self, message: Message) -> tuple[str, str] | None:
        if message.type != CAST:
            return None
        try:
            return self._who_asks(*cast_of(message.payload))
        except MomError:  # it is no cast
            return None

    def _who_asks(self, sender: str, type: str, fields: bytes) -> tuple[str, str]:
        return sender, type

    def pack(self) -> bytes:
        values = self.__dict__
        if len(values) != self._expected:
            known = {*self._fields, *self._items, *self._tables, "id", "server", "_reaction", "_expected"}
            extra = ", ".join(sorted(set(values) - known)) or "a field was deleted"
            raise TypeError(f"{type(self).__name__} set {extra}: annotate every field of the state in the class")
        fields = {name: values[name] for name in self._fields}
        return pack(fields if self._version == 1 else {**fields, VERSION: self._version}, type(self).__name__)

    def unpack(self, state: bytes) -> None:
        self._unpack(state)
        known = {*self._fields, *self._items, *self._tables, "id", "server", "_reaction", "_expected"}
        for extra in set(self.__dict__) - known:
            del self.__dict__[extra]

    @classmethod
    def lacks(cls, state: bytes) -> list[str]:
        """The fields that have neither a value in a stored state nor a default."""
        there = {*cls._defaults, *cls._of_today(state)}
        return [name for name in cls._fields if name not in there]

    @classmethod
    def _of_today(cls, state: bytes) -> dict[str, Any]:
        """The fields of a stored state, in the version of its class. Raises MomError."""
        fields: dict[str, Any] = unpack(state)
        version = fields.pop(VERSION, 1)
        if version > cls._version:
            raise MomError(f"is of version {cls._version}, and the state of version {version}: bring the newer class")
        return fields if version == cls._version else {**cls.migrate(version, fields)}

    def _unpack(self, state: bytes) -> None:
        values = {**unpack(pack(self._defaults, "defaults")), **self._of_today(state)}
        for name in self._fields:
            self.__dict__[name] = values[name]


_DELIVERED = Delivered.__wire_name__
_VIEWED = "mom.View"
_LOOKOUT = {"mom.MemberDown", "mom.MemberUp"}
# Names that came later: a class from before that has one of its own keeps it.
_LATER = {"delivered", "every", "migrate", "put", "publish", "consume", "subscribe", "stop"}
_LATER |= {"join", "leave", "group", "snapshot", "snapshot_tables", "restore", "_who_asks"}
_RESERVED = {name for name in vars(Agent) if not name.startswith(("on_", "__"))} - _LATER | {"id"}

# An agent that does not care for news of its own failed sends need not say so.
_OPTIONAL = _LOOKOUT | {f"mom.{name}" for name in notes.NOTICES}


def _is_client(id: str) -> bool:
    return "/reply:" in id or "/conn:" in id


def _check_plain(name: str, method: Any) -> None:
    """Raises TypeError for what would be called, and do nothing."""
    inner = inspect.unwrap(method)
    if inspect.iscoroutinefunction(inner) or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{name}: a reaction is done when it returns: write it without async and yield")


def _argument(method: Any) -> Any:
    """The annotation of its one argument behind self; None if it has another number of them."""
    arguments = list(inspect.signature(method).parameters)
    return typing.get_type_hints(method).get(arguments[1], typing.Any) if len(arguments) == 2 else None


def _taken_by(cls: type, name: str, method: Any) -> list[str]:
    hint = _argument(method)
    if hint is None:
        raise TypeError(f"{cls.__name__}.{name}: a reaction takes self and one notification")
    taken = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for one in taken:
        if not hasattr(one, "__wire_name__"):
            raise TypeError(f"{cls.__name__}.{name}: annotate its argument with a @notification class, not {one}")
    return [one.__wire_name__ for one in taken]


def path_of(cls: type[Agent]) -> str:
    """What a class is stored and created as: as older programs know it."""
    return cls._aliases[0] if cls._aliases else f"{cls.__module__}:{cls.__qualname__}"


def initial(cls: type[Agent], fields: dict[str, Any]) -> bytes:
    """The state blob of a new agent. Raises TypeError for a field that is unknown, missing or not plain."""
    unknown = sorted(set(fields) - set(cls._fields))
    if unknown:
        raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}; it has {', '.join(cls._fields) or 'none'}")
    missing = [name for name in cls._fields if name not in cls._defaults and name not in fields]
    if missing:
        raise TypeError(f"{cls.__name__} needs a value for {', '.join(missing)}")
    of = {VERSION: cls._version} if cls._version > 1 else {}
    return pack({**cls._defaults, **fields, **of}, cls.__name__)
