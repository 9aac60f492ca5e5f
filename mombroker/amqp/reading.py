"""Bytes to performatives of AMQP 1.0: what has a wrong type or is missing raises AmqpError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mombroker.amqp import codec, messages
from mombroker.amqp.codec import INVALID, MALFORMED, AmqpError, Described, Symbol, malformed
from mombroker.amqp.performatives import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DECLARE,
    DETACH,
    DISCHARGE,
    DISPOSITION,
    END,
    FLOW,
    INIT,
    MAX_HANDLE,
    MODIFIED,
    OPEN,
    RECEIVED,
    REJECTED,
    RELEASED,
    SOURCE,
    SPACE,
    TARGET,
    TRANSACTIONAL,
    TRANSFER,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Init,
    Open,
    Outcome,
    Terminus,
    Transactional,
    Transfer,
)


class _Fields:
    """The fields of a list, each taken with the type that it must have."""

    __slots__ = ("what", "found")

    def __init__(self, what: str, found: Any):
        if type(found) is not list:
            raise AmqpError(f"{what} is no list of fields", INVALID)
        self.what, self.found = what, found

    def get(self, at: int, kind: type | tuple[type, ...], default: Any = None, needed: str = "") -> Any:
        found = self.found[at] if at < len(self.found) else None
        if found is None:
            if needed:
                raise AmqpError(f"{self.what} without {needed}", INVALID)
            return default
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise AmqpError(f"field {at} of {self.what} has a wrong type", INVALID)
        return found

    def number(self, at: int, default: int | None = None, needed: str = "", most: int = SPACE - 1) -> Any:
        found = self.get(at, int, default, needed)
        if found is not None and not 0 <= found <= most:
            raise AmqpError(f"field {at} of {self.what} is out of range", INVALID)
        return found

    def names(self, at: int) -> list[str]:
        """Symbols: one alone stands for a list of one."""
        found = self.get(at, (list, Symbol), [])
        found = [found] if isinstance(found, str) else found
        return [each for each in found if isinstance(each, str)]

    def error(self, at: int) -> str:
        """What an error says, in a line."""
        found = self.get(at, Described)
        if found is None or type(found.value) is not list:
            return ""
        return ": ".join(str(each)[:200] for each in found.value[:2] if each)


def _open(fields: _Fields) -> Open:
    return Open(
        fields.get(0, str, needed="a container-id"), fields.get(1, str), fields.number(2, SPACE - 1),
        fields.number(3, 65_535), fields.number(4, 0), fields.names(8), fields.get(9, dict, {}),
    )  # fmt: skip


def _begin(fields: _Fields) -> Begin:
    return Begin(
        fields.number(0), fields.number(1, needed="next-outgoing-id"), fields.number(2, needed="incoming-window"),
        fields.number(3, needed="outgoing-window"), fields.number(4, MAX_HANDLE),
    )  # fmt: skip


def _attach(fields: _Fields) -> Attach:
    target = fields.get(6, Described)
    to: Terminus | Coordinator | None = None
    if target is not None:
        found = _Fields("a target", target.value)
        if target.descriptor in (COORDINATOR, "amqp:coordinator:list"):
            to = Coordinator(found.names(0))
        elif target.descriptor in (TARGET, "amqp:target:list"):
            to = _terminus(found, 6)
        else:
            raise AmqpError("a target of an unknown kind", INVALID)
    source = fields.get(5, Described)
    if source is not None and source.descriptor not in (SOURCE, "amqp:source:list"):
        raise AmqpError("a source of an unknown kind", INVALID)
    return Attach(
        fields.get(0, str, needed="a name"), fields.number(1, needed="a handle"), fields.get(2, bool, needed="a role"),
        fields.number(3, 2), fields.number(4, 0), _terminus(_Fields("a source", source.value), 10) if source else None,
        to, fields.number(9, 0), fields.number(10, 0, most=(1 << 64) - 1), fields.names(12), fields.get(13, dict, {}),
    )  # fmt: skip


def _terminus(fields: _Fields, capabilities: int) -> Terminus:
    filters = {}
    copies = False
    default = None
    if capabilities == 10:  # it is a source
        copies = fields.get(6, str) == "copy"
        for name, found in fields.get(7, dict, {}).items():
            if isinstance(name, str) and isinstance(found, Described):
                filters[str(name)] = (found.descriptor, found.value)
        found = state(fields.get(8, Described))
        default = found if isinstance(found, Outcome) else None
    return Terminus(
        fields.get(0, str), fields.number(1, 0), fields.get(2, str, "session-end"), fields.number(3, 0),
        fields.get(4, bool, False), copies, filters, default, fields.names(capabilities),
    )  # fmt: skip


def _flow(fields: _Fields) -> Flow:
    return Flow(
        fields.number(0), fields.number(1, needed="incoming-window"), fields.number(2, needed="next-outgoing-id"),
        fields.number(3, needed="outgoing-window"), fields.number(4), fields.number(5), fields.number(6),
        fields.get(8, bool, False), fields.get(9, bool, False),
    )  # fmt: skip


def _transfer(fields: _Fields) -> Transfer:
    return Transfer(
        fields.number(0, needed="a handle"), fields.number(1), fields.get(2, bytes), fields.get(4, bool, False),
        fields.get(5, bool, False), state(fields.get(7, Described)), fields.get(9, bool, False),
    )  # fmt: skip


def _disposition(fields: _Fields) -> Disposition:
    first = fields.number(1, needed="first")
    return Disposition(
        fields.get(0, bool, needed="a role"), first, fields.number(2, first), fields.get(3, bool, False),
        state(fields.get(4, Described)),
    )  # fmt: skip


_OUTCOMES = {
    "amqp:received:list": RECEIVED, "amqp:accepted:list": ACCEPTED, "amqp:rejected:list": REJECTED,
    "amqp:released:list": RELEASED, "amqp:modified:list": MODIFIED,
}  # fmt: skip


def state(found: Described | None) -> Any:
    """An Outcome, a Transactional state, or None. Raises AmqpError."""
    if found is None:
        return None
    code = _OUTCOMES.get(found.descriptor, found.descriptor)
    fields = _Fields("a delivery state", found.value)
    if code == MODIFIED:
        return Outcome(code, fields.get(0, bool, False), fields.get(1, bool, False))
    if code in (RECEIVED, ACCEPTED, REJECTED, RELEASED):
        return Outcome(code)
    if code in (TRANSACTIONAL, "amqp:transactional-state:list"):
        outcome = state(fields.get(1, Described))
        if isinstance(outcome, Transactional):
            raise AmqpError("a transactional state in another one", INVALID)
        return Transactional(fields.get(0, bytes, needed="a txn-id"), outcome)
    raise AmqpError("a delivery state of an unknown kind", INVALID)


_KINDS: dict[Any, tuple[str, Callable[[_Fields], Any]]] = {
    OPEN: ("open", _open), BEGIN: ("begin", _begin), ATTACH: ("attach", _attach), FLOW: ("flow", _flow),
    TRANSFER: ("transfer", _transfer), DISPOSITION: ("disposition", _disposition),
    DETACH: (
        "detach",
        lambda fields: Detach(fields.number(0, needed="a handle"), fields.get(1, bool, False), fields.error(2)),
    ),
    END: ("end", lambda fields: End(fields.error(0))), CLOSE: ("close", lambda fields: Close(fields.error(0))),
    INIT: (
        "sasl-init", lambda fields: Init(fields.get(0, str, needed="a mechanism"), fields.get(1, bytes, b""))
    ),
    DECLARE: ("declare", lambda fields: Declare()),
    DISCHARGE: (
        "discharge", lambda fields: Discharge(fields.get(0, bytes, needed="a txn-id"), fields.get(1, bool, False))
    ),
}  # fmt: skip
_KINDS |= {f"amqp:{name}:list": (name, made) for name, made in _KINDS.values()}


def decode(body: bytes) -> tuple[Any, int]:
    """The performative that a frame begins with, and where its payload begins. Raises AmqpError."""
    try:
        found, at = codec.value(body, 0)
        if type(found) is not Described:
            raise AmqpError("a frame without a performative")
        kind = _KINDS.get(found.descriptor)
        if kind is None:
            raise AmqpError("a performative of an unknown kind")
        return kind[1](_Fields(kind[0], found.value)), at
    except MALFORMED as error:
        raise malformed(error) from None


def of_coordinator(payload: bytes) -> Declare | Discharge:
    """What a message to a coordinator says, whatever sections are before its body. Raises AmqpError."""
    rest = messages.split(payload).rest
    code, at = messages.section(rest, 0) if rest else (0, 0)
    said = decode(rest[at:])[0] if code == messages.VALUE else None
    if not isinstance(said, Declare | Discharge):
        raise AmqpError("a coordinator takes declare and discharge", INVALID)
    return said
