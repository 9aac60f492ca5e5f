"""Notifications: what agents receive. Plain dataclasses with a stable name on the wire, packed by msgpack."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass
from dataclasses import fields as fields_of
from typing import Any, TypeVar, dataclass_transform, overload

import msgpack

from mombroker.agents import annotations as hints
from mombroker.core.errors import MomError, UnknownNotification
from mombroker.core.message import TYPE_CHARS

T = TypeVar("T")
TYPES: dict[str, type] = {}
NAMELESS = "__main__"  # the module of a program that is a file; others cannot import it


def _refuse(value: object) -> object:
    if type(value) is int:
        raise TypeError("an int of more than 64 bits cannot be stored or sent: use bytes or str")
    hint = "use a list" if isinstance(value, tuple) else "use None, bool, int, float, str, bytes, list or dict"
    raise TypeError(f"a {type(value).__name__} cannot be stored or sent: {hint}")


_packer = msgpack.Packer(strict_types=True, default=_refuse)


def pack(value: Any, where: str) -> bytes:
    """msgpack bytes of plain values. Raises TypeError that says what is wrong where; a tuple would return as a list."""
    try:
        packed: bytes = _packer.pack(value)
        return packed
    except (TypeError, OverflowError, ValueError) as error:
        _packer.reset()
        raise TypeError(f"{where}: {error}") from None


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


@overload
def notification(cls: type[T]) -> type[T]: ...
@overload
def notification(*, name: str = ..., expose: bool = ...) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform()
def notification(cls: type[Any] | None = None, *, name: str = "", expose: bool = False) -> Any:
    """Make a class a notification: a slots dataclass, known on the wire by `name` (default: module.Class). `expose`:
    clients may send it.

    Fields are None, bool, int (64 bits), float, str, bytes, lists and dicts of these. Fields may be added at the end,
    with defaults: older senders leave them out, older receivers ignore them.
    """

    def make(cls: type[Any]) -> type[Any]:
        wire = name or f"{_module(cls)}.{cls.__qualname__}"
        if name.startswith("_") or not wire.isprintable() or len(wire) > TYPE_CHARS:
            raise TypeError(f"{ascii(wire[:64])} cannot name a notification: printable text, no leading _")
        known = TYPES.get(wire)
        if known is not None and not _again(known, cls):
            raise TypeError(f"{wire} is the name of {known.__module__}.{known.__qualname__} already: choose another")
        made: type[Any] = dataclass(slots=True)(cls)
        made.__wire_name__ = wire
        made.__wire_fields__ = tuple(field.name for field in fields_of(made))
        made.__wire_exposed__ = expose
        TYPES[wire] = made
        return made

    return make if cls is None else make(cls)


def _module(cls: type) -> str:
    """What others import it from: of `python -m shop.front` that is shop.front, though Python calls it __main__."""
    spec = getattr(sys.modules["__main__"], "__spec__", None) if cls.__module__ == NAMELESS else None
    return spec.name if spec else cls.__module__


def _again(known: type, cls: type) -> bool:
    """The same class, made once more: by a reload, or as the program and as a module that it imports."""
    modules = {known.__module__, cls.__module__}
    return known.__qualname__ == cls.__qualname__ and (len(modules) == 1 or NAMELESS in modules)


def encode(note: Any) -> tuple[str, bytes]:
    """A notification's wire name and its packed fields."""
    cls = type(note)
    try:
        wire, names = cls.__wire_name__, cls.__wire_fields__
    except AttributeError:
        if isinstance(note, type):
            raise TypeError(f"send a {note.__name__}(...), not the class itself") from None
        raise TypeError(f"{cls.__name__} is no notification: put @notification before its class") from None
    return wire, pack([getattr(note, field) for field in names], cls.__name__)


def decode(type: str, payload: bytes) -> Any:
    """A new notification object. Raises UnknownNotification."""
    cls = TYPES.get(type)
    if cls is None:
        raise UnknownNotification(f"no notification is called {type!r} here; import the module that defines it")
    known = len(cls.__wire_fields__)  # type: ignore[attr-defined]
    try:
        values = unpack(payload)
        if not isinstance(values, list):
            raise ValueError("they are no list")
        return cls(*values) if len(values) <= known else cls(*values[:known])
    except (TypeError, ValueError) as error:
        raise UnknownNotification(f"{type} came with fields that do not fit: {error}") from None


def compose(type: str, fields: dict[str, Any]) -> bytes:
    """A packed notification from field values by name, for operators."""
    cls = TYPES.get(type)
    if cls is None:
        raise MomError(
            f"no notification is called {type!r} on this server; known are {', '.join(sorted(TYPES))}; "
            f"a module within allow in [bus] of the topology file is imported when it is named"
        )
    return encode(_made(cls, fields))[1]


def to_json(note: Any) -> tuple[str, bytes]:
    """A notification's wire name and its fields as JSON, for clients. Raises TypeError for what JSON has not."""
    wire, _ = encode(note)
    values = {field: getattr(note, field) for field in note.__wire_fields__}
    try:
        return wire, _json(values).encode()
    except (ValueError, TypeError) as error:  # a surrogate, too, has no UTF-8
        raise TypeError(f"{type(note).__name__} cannot be told to a client: {error}") from None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"a {type(value).__name__} is not in JSON")


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_text).encode


def from_json(cls: type[Any], body: bytes) -> Any:
    """A notification of a class, from its fields as JSON; no body is no fields. Raises MomError."""
    wire: str = cls.__wire_name__
    try:
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise MomError(f"the body is no JSON, as {wire} is asked for: {error}") from None
    if not isinstance(fields, dict):
        raise MomError(f"the body must be a JSON object with the fields of {wire}, not {hints.shown(fields)}")
    return _made(cls, fields)


def _made(cls: type[Any], fields: dict[str, Any]) -> Any:
    """A notification of field values by name, which somebody has written. Raises MomError."""
    type: str = cls.__wire_name__
    unknown = [name for name in fields if name not in cls.__wire_fields__]
    if unknown:
        has = ", ".join(cls.__wire_fields__) or "none"
        raise MomError(f"{type} has no field {unknown[0]}; it has {has}")
    missing = [field.name for field in fields_of(cls) if _required(field) and field.name not in fields]
    if missing:
        raise MomError(f"{type} needs {', '.join(missing)}")
    try:
        made = cls(**hints.typed(cls, fields, type))
        encode(made)
    except TypeError as error:
        raise MomError(str(error)) from None
    return made


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


# -- what the bus itself tells an agent ----------------------------------------------------------------------------


@notification(name="mom.ReactionFailed")
class ReactionFailed:
    """A message of yours was parked among the dead letters of `agent`'s server."""

    agent: str
    type: str
    reason: str
    origin: str
    number: int


@notification(name="mom.UnknownAgent")
class UnknownAgent:
    """A message of yours went to an agent that does not exist (any more)."""

    agent: str
    type: str
    reason: str
    origin: str
    number: int


@notification(name="mom.Expired")
class Expired:
    """A message of yours expired before `agent` could react (agent is empty: on the way)."""

    agent: str
    type: str
    reason: str
    origin: str
    number: int


@notification(name="mom.Undeliverable")
class Undeliverable:
    """A message of yours was on its way when a server was lost for good; `reason` says whether it was delivered, or
    that nobody knows."""

    agent: str
    type: str
    reason: str
    origin: str
    number: int


@notification(name="mom.DeferDone")
class DeferDone:
    """The function that you deferred as `task` has returned; `value` is its result."""

    task: int
    packed: bytes

    @property
    def value(self) -> Any:
        return unpack(self.packed)


@notification(name="mom.DeferFailed")
class DeferFailed:
    """The function that you deferred as `task` has raised."""

    task: int
    reason: str


@notification(name="mom.NotDelivered")
class NotDelivered:
    """A cast of yours in a group was not delivered, or nobody knows whether it was: `reason` says which."""

    group: str
    type: str
    packed: bytes
    reason: str

    @property
    def note(self) -> Any:
        """What you have cast. Raises UnknownNotification."""
        return decode(self.type, self.packed)


NOTICES = {
    cls.__name__: cls
    for cls in (ReactionFailed, UnknownAgent, Expired, Undeliverable, DeferDone, DeferFailed, NotDelivered)
}
