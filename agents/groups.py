"""Groups of agents: what members get, and what an author does with a group."""

from __future__ import annotations

from typing import Any, Protocol

from mombroker.agents import notifications as notes
from mombroker.agents.notifications import notification, unpack
from mombroker.core.errors import UnknownNotification
from mombroker.core.groups.view import CAST, VIEW
from mombroker.core.reaction import Reaction

ORDERS = ("causal", "total")


@notification(name="mom.View")
class View:
    """A view of a group that you are in, have just left, or have asked to join in vain: who its members are, the eldest
    first, and who has joined and left since the view before. All members get the same views, and between two of them
    the same casts. Without members the group is gone."""

    group: str
    number: int
    members: list[str]
    joined: list[str]
    left: list[str]


@notification(name="mom.MemberDown")
class MemberDown:
    """Other members of a group of yours are down, as far as the group's home can see: their server does not answer. No
    view follows by itself."""

    group: str
    members: list[str]


@notification(name="mom.MemberUp")
class MemberUp:
    """Members that were down are up again, and have missed nothing."""

    group: str
    members: list[str]


class Agent(Protocol):
    """What a Group needs of the agent that has it."""

    def _now_reacting(self) -> Reaction: ...


class Group:
    """A group, as an agent has it in a reaction."""

    __slots__ = ("_agent", "name")

    def __init__(self, agent: Agent, name: str):
        self._agent, self.name = agent, name

    def cast(self, note: Any, *, order: str = "causal") -> None:
        """Send a notification to all members, oneself included. In `total` order all get such casts one after the
        other in the same order. A cast of somebody who is no member is always in that order.

        Until the cast has gone (at once, but for a change of the view, or while its place in the order is asked for)
        the agent reacts to nothing else, so that nothing that it sends later can overtake it.

        Raises UnknownName for a group that is not there (the reaction runs again once it is), MomError, TypeError.
        """
        if order not in ORDERS:
            raise TypeError(f"an order is {' or '.join(map(repr, ORDERS))}, not {order!r}")
        wire, payload = notes.encode(note)
        self._agent._now_reacting().cast(self.name, wire, payload, order == "total")


def view_of(payload: bytes) -> tuple[View, str, list[str]]:
    """A view, who gives a state to those that lack one, and these. Raises UnknownNotification."""
    match unpack(payload):
        case [str(group), int(number), list(members), list(joined), list(left), str(giver), list(lacking), *_]:
            return View(group, number, members, joined, left), giver, lacking
    raise UnknownNotification(f"{VIEW} came with what is no view")


def cast_of(payload: bytes) -> tuple[str, str, bytes]:
    """A cast's sender, and its notification. Raises UnknownNotification."""
    match unpack(payload):
        case [str(), int(), str(sender), str(type), bytes(fields), *_]:
            return sender, type, fields
    raise UnknownNotification(f"{CAST} came with what is no cast")
