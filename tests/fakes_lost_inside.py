"""A change that goes on without lost servers, wrong on purpose: each breaks a rule, and the judge must notice."""

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


def never_quiet(quiet: Method) -> Method:
    """They are told to end it whatever is under way."""
    return lambda left, before, now, number: bool(left)


def nobody_is_told(without: Method) -> Method:
    """What is under way at the switch goes without a word."""
    return lambda channel, part, lost, seen: 0


def only_who_is_there(copies: Method) -> Method:
    """Of copies for servers that have left nobody hears."""
    return lambda *args: (each for each in copies(*args) if each[1])
