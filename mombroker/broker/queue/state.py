"""The state of a queue in its row: what its messages' own rows do not say."""

from __future__ import annotations

from typing import Any

import msgpack

from mombroker.broker.wire import pack

VERSION = 1
WITHOUT_HELD = True  # the bytes are those of rows in `message` alone; older states do not say so, and have all


def state_of(
    size: int = 0, rows: Any = None, remote: Any = (), blocked: Any = (), purged: int = 0, more: Any = None, *last: Any
) -> bytes:
    """With the defaults that of an empty queue. `more` is a subscription's; older states have less of `last`."""
    packed: bytes = pack([VERSION, size, rows or {}, remote, blocked, purged, more, *last])
    return packed


def values_of(state: bytes) -> list[Any]:
    """The values that `state_of` was given."""
    values: list[Any] = msgpack.unpackb(state, strict_map_key=False)
    return values[1:]
