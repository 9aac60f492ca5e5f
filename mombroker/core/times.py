"""Times of the wall clock in ns, bounded to the year 2116: rows and numbers on the wire have 63 bits. A later value,
which clients use for "never", becomes that bound."""

from mombroker.core.words import many

SECOND, MS = 1_000_000_000, 1_000_000
FAR = 60 * SECOND  # clocks that differ by more are wrong, not only apart
LONG = 366 * 86_400 * SECOND  # a server that seems to have been down for longer has a wrong clock, more likely
LAST_NS = 1 << 62  # in the year 2116; any time and any span within it have a sum of less than 63 bits
LAST_S = LAST_NS // SECOND


def at_start(wall: int, stored: int) -> int:
    """The time of a starting server. `stored` is the time of its last commit, 0 for a new store: time never goes back
    behind it, and stands there while the wall clock is in doubt."""
    return stored if stored and wall - stored > LONG else max(wall, stored)


def after(now: int, wait: int) -> int:
    """The time in `wait` ns."""
    return min(now + max(wait, 0), LAST_NS)


def within(at: int) -> int:
    """`at`, bounded to the times that there are."""
    return min(max(at, 1), LAST_NS)


def of_ms(ms: int) -> int:
    return min(ms * MS, LAST_NS)


def shown(span: int) -> str:
    """A span for people."""
    for unit, size in (("days", 86_400 * SECOND), ("hours", 3_600 * SECOND), ("minutes", 60 * SECOND)):
        if span >= 2 * size:
            return f"{span // size} {unit}"
    return many(span // SECOND, "second")


def in_ms(seconds: float) -> int:
    """What a client writes for a number of seconds. Raises ValueError for one that is no number."""
    return round(min(seconds, LAST_S) * 1_000)


def of_seconds(seconds: float) -> int:
    """The ns of a number of seconds that is not negative. Raises ValueError for one that is no number."""
    return int(min(seconds, LAST_S) * SECOND)
