"""The state of a queue in its row: what its messages' own rows do not say."""

from __future__ import annotations

from typing import Any

import msgpack

from mombroker.broker.queue.arrival import Arrival
from mombroker.broker.queue.departure import Departure
from mombroker.broker.queue.movable import Movable
from mombroker.broker.wire import pack

VERSION = 1
WITHOUT_HELD = True  # the bytes are those of rows in `message` alone; older states do not say so, and have all


def state_of(
    size: int = 0, rows: Any = None, remote: Any = (), blocked: Any = (), purged: int = 0, more: Any = None, *last: Any
) -> bytes:
    """With the defaults that of an empty queue. `more` is a subscription's; older states have less of `last`."""
    packed: bytes = pack([VERSION, size, rows or {}, remote, blocked, purged, more, *last])
    return packed


def arriving(source: str, more: Any = None) -> bytes:
    """That of one that comes from another server, where it has this id."""
    return state_of(0, None, (), (), 0, more, [], [0, 0, 0], WITHOUT_HELD, ["from", source, 0])


def source_of(state: bytes) -> tuple[str, bytes]:
    """Where a new one comes from, empty if from nowhere, and what is its state without that. Raises ValueError."""
    try:
        version, *values = msgpack.unpackb(state, strict_map_key=False)
        made, last = values[:6], values[6:]
        if not last:
            return "", state
        source = last[3][1]
        if type(source) is not str or state != arriving(source, made[5]):
            raise ValueError("it has more than a new one can have")
    except (TypeError, IndexError) as error:
        raise ValueError(str(error)) from None
    return source, pack([version, *made])


def values_of(state: bytes) -> list[Any]:
    """The values that `state_of` was given."""
    values: list[Any] = msgpack.unpackb(state, strict_map_key=False)
    return values[1:]


def move_of(queue: Movable, values: Any) -> Departure | Arrival | None:
    """Its move, from what its row has of that."""
    if not values:
        return None
    way, *rest = values
    return Departure(queue, *rest) if way == "to" else Arrival(queue, *rest)
