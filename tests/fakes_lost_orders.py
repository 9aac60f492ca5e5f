"""Losses of the homes of topics in total order, broken on purpose: who looks at what is left must notice."""

from collections.abc import Callable
from typing import Any

from mombroker.broker.topic.moving import ENDS

Method = Callable[..., Any]


def waits_for_ever(lost: Method) -> Method:
    """A new home that has lost the former one waits for what that has not sent on."""
    return lambda topic, server: None


def invites_again(lost: Method) -> Method:
    """A home that has lost its new one asks whoever is in the place of that, who takes it for one that knows no
    better."""
    return lambda move, server: move.passed(server) if move.phase >= ENDS else move.again({server})
