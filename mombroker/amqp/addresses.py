"""Addresses and capabilities of sources and targets, and the broker's destinations.

An address is written as a destination of STOMP, or as a name alone: then a capability says whether it is a queue, as
without one, or a topic. Temporary destinations have the address that others use, `/remote-temp-queue/...`.
"""

from __future__ import annotations

from collections.abc import Collection

from mombroker.broker import destinations

QUEUE, TOPIC, TEMP_QUEUE, TEMP_TOPIC = "queue", "topic", "temporary-queue", "temporary-topic"
KINDS = {QUEUE: "queue:", TOPIC: "topic:", TEMP_QUEUE: "temp-queue:", TEMP_TOPIC: "temp-topic:"}
CODES = ("queue:", "topic:", "temp-queue:", "temp-topic:")  # of x-opt-jms-dest and -reply-to


def kind_of(capabilities: Collection[str]) -> str:
    """What they ask for, as destinations begin; empty: nothing."""
    return next((kind for name, kind in KINDS.items() if name in capabilities), "")


def one(address: str, kind: str = "") -> str:
    """The destination to send to. Raises DestinationError."""
    return destinations.one(address, "" if kind.startswith("temp-") or _tells(address) else kind)


def several(address: str, kind: str = "") -> tuple[str, ...]:
    """The destinations of one subscription. Raises DestinationError."""
    return destinations.several(address, "" if kind.startswith("temp-") or _tells(address) else kind)


def _tells(address: str) -> bool:
    """Does it say its kind itself?"""
    return address.startswith(tuple(destinations.PREFIXES))


def coded(code: object) -> str:
    """The kind that a message tells by its annotation; empty: none."""
    return CODES[code] if isinstance(code, int) and 0 <= code < len(CODES) else ""


def shown(address: str, code: object) -> str:
    """An address in a message as STOMP has it; what is none of ours stays as it is."""
    try:
        return destinations.shown_as(one(address, coded(code)))
    except destinations.DestinationError:
        return address


def written(text: str) -> tuple[str, int | None]:
    """What STOMP has, as an address with its code: without a prefix, for clients that add none themselves."""
    try:
        destination = destinations.one(text)
    except destinations.DestinationError:
        return text, None
    kind, _, name = destination.partition(":")
    if kind == "agent":
        return text, None
    return (name if kind in (QUEUE, TOPIC) else destinations.shown_as(destination)), CODES.index(f"{kind}:")
