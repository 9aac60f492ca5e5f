"""The performatives of AMQP 1.0 and what stands in them (parts 2.7, 3.4, 3.5, 4.5, 5.3): those that
were read, which are tuples with names, and their bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mombroker.amqp import codec
from mombroker.amqp.codec import (
    NULL,
    Symbol,
    binary,
    boolean,
    listed,
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
