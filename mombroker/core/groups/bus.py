"""Groups of agents, as far as the engine knows of them: what agents ask of the broker (broker/groups/)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from mombroker.core.groups.view import CAST, VIEW
from mombroker.core.message import Message
from mombroker.core.table import Table

TYPES = frozenset((CAST, VIEW))  # of messages to members
REFUSED = "not of its view"  # why a member does not get one of these

# What a reaction does of which the order counts, once a cast of it has to wait: see Members.act.
SEND, PUT, PLACE, JOIN, LEAVE, CASTS = "send", "put", "place", "join", "leave", "cast"


class Groups(Protocol):
    """What authors' agents do with groups."""

    moving: Callable[[str], bool]  # is this agent on its way to another server?

    def bind(
        self,
        hand_over: Callable[[Message, str], None],
        wake: Callable[[str], None],
        rows: Callable[[str, str], Table | None],
        inbox: Callable[[str], Iterable[Message]],
    ) -> None: ...
    def home(self, group: str, make: bool) -> str: ...  # the agent of a group; raises UnknownName, MomError
    def is_over(self, agent: str, group: str) -> bool: ...  # for it, by what lies in its inbox
    def may_join(self, agent: str) -> None: ...  # raises MomError
    def waits(self, agent: str) -> bool: ...  # for a cast of its own, until which it reacts to nothing
    def waiting(self) -> list[str]: ...  # who waits for a cast, or for a place, of its own
    def act(self, agent: str, kind: str, value: Any) -> bool: ...  # True if it waits from now on
    def meets(self, agent: str, message: Message) -> bool: ...  # one of TYPES, in its turn; raises UnknownName
    def state(self, agent: str, group: str, number: int) -> bytes | None: ...  # to begin with, in this view
    def restored(self, agent: str, group: str, number: int) -> None: ...
    def give(
        self, agent: str, group: str, number: int, to: list[str], state: bytes, tables: list[str]
    ) -> None: ...  # before the changes of the reaction that gives it
    def failed(self, agent: str, message: Message) -> None: ...  # one of TYPES has become a dead letter
    def gone(self, agent: str) -> None: ...  # it was deleted
    def has(self, agent: str) -> list[str]: ...  # the groups that it is in, or is to be


CASTS_OF, STATE_OF, ORDER_OF = "casts of ", "state of group ", "order of "  # what an agent waits for: no name begins so


def waits_for(agent: str) -> str:
    """What an agent waits for whose cast has to wait."""
    return CASTS_OF + agent


def awaited(group: str) -> str:
    """What a member waits for that has no state yet."""
    return STATE_OF + group
