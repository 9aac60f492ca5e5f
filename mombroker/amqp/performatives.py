"""The performatives of AMQP 1.0 and what stands in them (parts 2.7, 3.4, 3.5, 4.5, 5.3), both ways.

A performative that was read is a tuple with names; what has a wrong type or is missing raises AmqpError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mombroker.amqp import codec
from mombroker.amqp.codec import (
    INVALID,
    MALFORMED,
    NULL,
    AmqpError,
    Described,
    Symbol,
    binary,
    boolean,
    listed,
    malformed,
    optional,
    performative,
    string,
    symbol,
    symbols,
    ubyte,
    uint,
    ulong,
    ushort,
)

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR, RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x1D, 0x23, 0x24, 0x25, 0x26, 0x27
SOURCE, TARGET, COORDINATOR, DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = *range(0x28, 0x2A), *range(0x30, 0x35)
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44

SENDER, RECEIVER = False, True  # roles
SETTLED = 1  # snd-settle-mode; the others are 0, unsettled, and 2, mixed
MAX_HANDLE = 0xFFFFFFFF
SPACE = 1 << 32  # of numbers that begin anew


class Open(NamedTuple):
    container: str
    hostname: str | None
    max_frame: int
    channel_max: int
    idle_ms: int
    desired: list[str]
    properties: dict[Any, Any]


class Begin(NamedTuple):
    remote_channel: int | None
    next_outgoing: int
    incoming_window: int
    outgoing_window: int
    handle_max: int


class Attach(NamedTuple):
    name: str
    handle: int
    role: bool
    sender_settles: int
    receiver_settles: int
    source: Terminus | None
    target: Terminus | Coordinator | None
    initial_count: int
    max_message: int
    desired: list[str]
    properties: dict[Any, Any]


def _descriptor(found: Any) -> bytes:
    return ulong(found) if isinstance(found, int) else symbol(str(found))


class Terminus(NamedTuple):
    """A source or a target.

    filters   name -> (descriptor, value)
    """

    address: str | None
    durable: int = 0
    expiry: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    copies: bool = False
    filters: Mapping[str, tuple[Any, Any]] = {}
    default_outcome: Any = None
    capabilities: list[str] = []

    def source(self) -> bytes:
        """With what we have understood of it."""
        known = [
            (symbol(name), b"\0" + _descriptor(descriptor) + codec.any_value(found))
            for name, (descriptor, found) in self.filters.items()
        ]
        return performative(
            SOURCE,
            [
                optional(string, self.address), uint(self.durable), symbol(self.expiry), uint(self.timeout),
                boolean(self.dynamic), NULL, symbol("copy") if self.copies else NULL,
                codec.mapped(known) if known else NULL, described_outcome(self.default_outcome),
                symbols(("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")),
                symbols(self.capabilities) if self.capabilities else NULL,
            ],
        )  # fmt: skip

    def target(self) -> bytes:
        return performative(
            TARGET,
            [
                optional(string, self.address), uint(self.durable), symbol(self.expiry), uint(self.timeout),
                boolean(self.dynamic), NULL, symbols(self.capabilities) if self.capabilities else NULL,
            ],
        )  # fmt: skip


class Coordinator(NamedTuple):
    capabilities: list[str] = []

    def target(self) -> bytes:
        return performative(COORDINATOR, [symbols(("amqp:local-transactions",))])


class Flow(NamedTuple):
    next_incoming: int | None
    incoming_window: int
    next_outgoing: int
    outgoing_window: int
    handle: int | None
    delivery_count: int | None
    credit: int | None
    drain: bool
    echo: bool


class Transfer(NamedTuple):
    handle: int
    delivery_id: int | None
    tag: bytes | None
    settled: bool
    more: bool
    state: Any
    aborted: bool


class Disposition(NamedTuple):
    role: bool
    first: int
    last: int
    settled: bool
    state: Any


class Detach(NamedTuple):
    handle: int
    closed: bool
    error: str


class End(NamedTuple):
    error: str


class Close(NamedTuple):
    error: str


class Outcome(NamedTuple):
    """What a delivery has come to. `code`: RECEIVED, ACCEPTED, REJECTED, RELEASED or MODIFIED."""

    code: int
    failed: bool = False
    undeliverable_here: bool = False


class Transactional(NamedTuple):
    txn: bytes
    outcome: Outcome | None = None


class Declare(NamedTuple):
    pass


class Discharge(NamedTuple):
    txn: bytes
    fail: bool


class Init(NamedTuple):
    mechanism: str
    response: bytes


# -- from bytes ----------------------------------------------------------------------------------------------------


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
    """What a message to a coordinator says. Raises AmqpError."""
    if payload[:3] != b"\x00\x53\x77":
        raise AmqpError("a coordinator takes declare and discharge", INVALID)
    said, _ = decode(payload[3:])
    if not isinstance(said, Declare | Discharge):
        raise AmqpError("a coordinator takes declare and discharge", INVALID)
    return said


# -- to bytes ------------------------------------------------------------------------------------------------------

_ACCEPTED = performative(ACCEPTED, ())


def described_outcome(outcome: Outcome | None) -> bytes:
    if outcome is None:
        return NULL
    if outcome.code == ACCEPTED:
        return _ACCEPTED
    if outcome.code == MODIFIED:
        return performative(MODIFIED, [boolean(outcome.failed), boolean(outcome.undeliverable_here)])
    return performative(outcome.code, ())


def error(condition: str, text: str, info: Mapping[str, Any] | None = None) -> bytes:
    more = codec.any_value({Symbol(name): each for name, each in info.items()}) if info else NULL
    return performative(ERROR, [symbol(condition), string(text), more])


def redirect(text: str, host: str, port: int) -> bytes:
    """The error that tells a client to go there (part 2.8.16)."""
    there = [(symbol("hostname"), string(host)), (symbol("network-host"), string(host)), (symbol("port"), ushort(port))]
    return performative(ERROR, [symbol("amqp:connection:redirect"), string(text), codec.mapped(there)])


def rejected(condition: str, text: str) -> bytes:
    return performative(REJECTED, [error(condition, text)])


def declared(txn: bytes) -> bytes:
    return performative(DECLARED, [binary(txn)])


def transactional(txn: bytes, outcome: bytes = NULL) -> bytes:
    return performative(TRANSACTIONAL, [binary(txn), outcome])


def mechanisms(names: list[str]) -> bytes:
    return performative(MECHANISMS, [symbols(names)])


def sasl_outcome(code: int) -> bytes:
    return performative(OUTCOME, [ubyte(code)])


def open_(container: str, max_frame: int, idle_ms: int, offered: list[str], properties: Mapping[str, Any]) -> bytes:
    named = codec.any_value({Symbol(name): each for name, each in properties.items()}) if properties else NULL
    return performative(
        OPEN,
        [string(container), NULL, uint(max_frame), ushort(65_535), uint(idle_ms), NULL, NULL, symbols(offered), NULL,
         named],
    )  # fmt: skip


def begin(remote_channel: int, next_outgoing: int, incoming_window: int, outgoing_window: int, handles: int) -> bytes:
    return performative(
        BEGIN,
        [ushort(remote_channel), uint(next_outgoing), uint(incoming_window), uint(outgoing_window), uint(handles)],
    )  # fmt: skip


def attach(
    name: str,
    handle: int,
    role: bool,
    sender_settles: int,
    receiver_settles: int,
    source: bytes,
    target: bytes,
    max_message: int,
    offered: list[str],
) -> bytes:
    return performative(
        ATTACH,
        [
            string(name), uint(handle), boolean(role), ubyte(sender_settles), ubyte(receiver_settles), source, target,
            NULL, NULL, uint(0) if role == SENDER else NULL, ulong(max_message) if max_message else NULL,
            symbols(offered) if offered else NULL,
        ],
    )  # fmt: skip


def flow(
    next_incoming: int,
    incoming_window: int,
    next_outgoing: int,
    outgoing_window: int,
    handle: int | None = None,
    delivery_count: int = 0,
    credit: int = 0,
    drain: bool = False,
) -> bytes:
    parts = [uint(next_incoming), uint(incoming_window), uint(next_outgoing), uint(outgoing_window)]
    if handle is not None:
        parts += [uint(handle), uint(delivery_count), uint(credit), NULL, boolean(drain)]
    return performative(FLOW, parts)


def transfer(handle: int, delivery_id: int, tag: bytes, settled: bool, more: bool) -> bytes:
    parts = [uint(handle), uint(delivery_id), binary(tag), uint(0), boolean(settled)]
    if more:
        parts.append(boolean(True))
    return performative(TRANSFER, parts)


def disposition(role: bool, first: int, last: int, encoded: bytes) -> bytes:
    """Settles."""
    return bytes((0x00, 0x53, DISPOSITION)) + listed(
        [boolean(role), uint(first), uint(last) if last != first else NULL, boolean(True), encoded]
    )


def detach(handle: int, closed: bool, error: bytes = NULL) -> bytes:
    return performative(DETACH, [uint(handle), boolean(closed), error])


def end(error: bytes = NULL) -> bytes:
    return performative(END, [error])


def close(error: bytes = NULL) -> bytes:
    return performative(CLOSE, [error])
