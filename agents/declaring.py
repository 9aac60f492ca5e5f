"""What an author says of a class of agents beside its code: names, a version, how often a reaction is tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mombroker.core import times
from mombroker.core.reaction import Retry

C = TypeVar("C", bound=type[Any])
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
NAMES: dict[str, Any] = {}  # classes by the paths that they had before, or have beside their own


class Reject(Exception):
    """Raised in a reaction: it is not tried again. A notification becomes a dead letter at once, with this reason, and
    its sender is told; a message goes to the dead letters of its queue."""


def agent(
    *,
    version: int = 1,
    aliases: Iterable[str] = (),
    attempts: int = 0,
    first: float = 0,
    factor: int = 0,
    most: float = 0,
    fatal: tuple[type[BaseException], ...] = (),
) -> Callable[[C], C]:
    """Say more of a class of agents.

    version    of its fields; with another one stored, `migrate(version, fields)` makes today's fields of those
    aliases    `module:Class` that it was called before. Agents are stored and created under the first of them, so that
               servers with the older program know it, too
    attempts   how often a reaction is tried, at intervals of `first` seconds, times `factor` after each, at most
               `most`; 0: as [limits] says
    fatal      errors after which a reaction is not tried again, beside Reject

    Raises TypeError.
    """
    names = tuple(aliases)
    for name in names:
        if not isinstance(name, str) or not PATH.fullmatch(name):
            raise TypeError(f"an alias is the path of a class, as 'shop.desk:Desk', not {name!r}")
    if type(version) is not int or version < 1:
        raise TypeError(f"a version is a whole number from 1 on, not {version!r}")
    if min(attempts, factor, first, most) < 0:
        raise TypeError("attempts, first, factor and most are not negative")
    retry = Retry(attempts, times.of_seconds(first), factor, times.of_seconds(most))

    def declare(cls: C) -> C:
        for name in names:
            known = NAMES.get(name, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"{name} is an alias of {known.__module__}:{known.__qualname__} already")
            NAMES[name] = cls
        cls._version, cls._aliases, cls._retry = version, names, retry
        cls._fatal = (Reject, *fatal)
        return cls

    return declare
