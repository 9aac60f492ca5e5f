"""What the arguments of a program must be. Each is checked in the caller's thread, before anything has changed."""

from __future__ import annotations

import threading

from mombroker.broker.names import MAX_NAME
from mombroker.jms.errors import IllegalState, JmsError
from mombroker.stomp.requests import MAX_KEY

Wrong = type[JmsError]
MOST = 10**18 - 1  # that a header has as a number


def text(what: str, value: object, wrong: Wrong = IllegalState) -> None:
    """Text that a header can have."""
    if not isinstance(value, str):
        raise wrong(f"{what} must be text, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise wrong(f"{what} must have a form in UTF-8: a lone surrogate has none") from None
    if "\0" in value:
        raise wrong(f"{what} has a NUL, which no header can hold")


def key(what: str, value: object, wrong: Wrong = IllegalState) -> None:
    """What a server keeps in order to find something again."""
    text(what, value, wrong)
    assert isinstance(value, str)
    if len(value) > MAX_KEY:
        raise wrong(f"{what} has at most {MAX_KEY} characters, not {len(value)}")


def name(what: str, value: object) -> None:
    """Of a client or a subscription, as servers take them."""
    text(what, value)
    assert isinstance(value, str)
    if not value or len(value) > MAX_NAME or not value.isprintable():
        raise IllegalState(f"{what} has 1 to {MAX_NAME} printable characters")


def whole(what: str, value: object, wrong: Wrong = IllegalState) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(f"{what} must be a whole number, not {type(value).__name__}")


def flag(what: str, value: object, wrong: Wrong = IllegalState) -> None:
    if not isinstance(value, bool):
        raise wrong(f"{what} must be True or False, not {type(value).__name__}")


def seconds(what: str, value: object, wrong: Wrong = IllegalState) -> None:
    """A span of time, however long."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:  # NaN, too
        shown = type(value).__name__ if not isinstance(value, int | float) else "less than none"
        raise wrong(f"{what} must be a number of seconds, not {shown}")


def timeout(value: object) -> float | None:
    """How long to wait, as long as a lock can; None: as long as it takes, or as is usual."""
    if value is None:
        return None
    seconds("timeout", value)
    assert isinstance(value, int | float)
    return min(value, threading.TIMEOUT_MAX)


def function(what: str, value: object) -> None:
    if not callable(value):
        raise IllegalState(f"{what} must be a function, not {type(value).__name__}")


def options(what: str, given: dict[str, object], known: frozenset[str], wrong: Wrong = IllegalState) -> None:
    """Raises for an option that there is not."""
    if unknown := set(given) - known:
        raise wrong(f"{what} has no option {min(unknown)[:40]!r}; it has {', '.join(sorted(known))}")
