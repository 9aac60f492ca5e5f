"""What a consumer or subscription wants of the messages that it could have."""

from __future__ import annotations

from collections.abc import Callable

from mombroker.agents.selectors import compile, lookup
from mombroker.agents.traffic import Put

Wants = Callable[[Put, str, int], bool]  # a message, its id, and its deliveries, the one to be made included


def wanted(selector: str, no_local: str) -> Wants | None:
    """The test by a selector, and against messages of the sender `no_local`; None: everything passes. Raises
    SelectorError."""
    test = compile(selector) if selector else None
    if test is None and not no_local:
        return None

    def wants(put: Put, id: str, count: int) -> bool:
        return (not no_local or put.sender != no_local) and (test is None or test(lookup(put, count, id)))

    return wants
