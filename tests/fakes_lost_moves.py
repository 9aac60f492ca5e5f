"""Losses of the homes of queues that move, broken on purpose: who looks at what is left must notice."""

from collections.abc import Callable
from typing import Any

Method = Callable[..., Any]


def goes_on(lost: Method) -> Method:
    """Who has lost the new home waits for it."""
    return lambda departure, server: departure.passed(server)


def waits_for_ever(lost: Method) -> Method:
    """Who has lost the old home waits for the rest."""
    return lambda arrival, server: None


def one_home(left: Method) -> Method:
    """The name of what moves goes with one home, as any other."""
    return lambda names, name, id: False


def takes_all(early: Method) -> Method:
    """What was for a former queue waits with what is for this one."""
    return lambda arrival: False
