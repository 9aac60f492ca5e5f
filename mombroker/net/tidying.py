"""A store is kept small, in small steps between the commits of its server."""

from __future__ import annotations

import time
from collections.abc import Callable

from mombroker.store.sqlite import SqliteStore

TIDY_S, TIDY_WAIT_S = 0.005, 0.02  # of work on a log or file that is too large, and then for clients at least
DAY_NS = 86_400_000_000_000


def tidy(store: SqliteStore, bounds: tuple[int, int], now: int, busy: Callable[[], object]) -> float:
    """Keep its log within so many bytes and days, and its file small, unless a commit is `busy`. The seconds to wait
    until there is more to do; 0: nothing is. Raises StoreFailed, StoreError."""
    start, more = time.monotonic(), True
    while more and time.monotonic() - start < TIDY_S:
        more = store.prune_log(bounds[0], bounds[1] * DAY_NS, now) > 0
        if busy():
            more = True  # the prune goes with the next batch; whether the file is to shrink is asked then
            break
        more = store.tidy() or more
    if not more:
        store.sync_mark()
    return max(TIDY_WAIT_S, 4 * (time.monotonic() - start)) if more else 0.0
