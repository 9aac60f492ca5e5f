"""A change that goes on without lost servers, wrong on purpose: each breaks a rule, and the judge must notice."""

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


def never_quiet(quiet: Method) -> Method:
    """They are told to end it whatever is under way."""
    return lambda left, before, now, number: bool(left)


def no_end(todo: Method) -> Method:
    """They are only told who is lost."""

    def waits(number: int, lost: Any, before: Any, now: Any) -> tuple[str, list[str]]:
        verb, whom = todo(number, lost, before, now)
        return ("change_counts", whom) if verb == "change_end" else (verb, whom)

    return waits


def nobody_is_told(without: Method) -> Method:
    """What is under way at the switch goes without a word."""
    return lambda channel, part, lost, seen: 0


def not_fenced(fence: Method) -> Method:
    """A lost server that comes back with its old store is let in."""
    return lambda lost, server, epoch: None
