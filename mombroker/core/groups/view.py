"""What a group's home announces, and what its members send each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CAST, VIEW = "g.cast", "g.view"  # what members get: the types of these messages


@dataclass(slots=True, eq=False)
class View:
    """A view that begins. Its members are in the order in which they have joined, the eldest first.

    joined, left   against the view before
    giver          the member that gives its state, as of the beginning of this view, to those that are
    lacking        one; who is the giver itself, or has none, begins without
    cut            casts of the view before, by member: so many of each are delivered in it, and no others
    heard          of those that are told that they are not in it: the last message by which each has asked to join, if
                   that has come to nothing
    placed         casts of the view before in total order: they are delivered in it, too
    """

    number: int
    members: list[str]
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    giver: str = ""
    lacking: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    placed: int = 0
    of: Any = None  # what has brought it


@dataclass(slots=True, eq=False)
class Cast:
    """A cast of a view, at one of its members.

    seq     of the sender's casts in this view, from 1; 0: the home has placed it, and it is in total order
    after   casts that the sender had when it made this one, since the one before it: how many of each member's
    behind  where it was delivered, and the next view has still to say whether it belongs to this one: so many of its
            sender do in any case; else -1
    place   among those of its view that are in total order, from 1; 0: it is not, or an older home has not said so
    """

    number: int
    sender: str
    seq: int
    after: dict[str, int] = field(default_factory=dict)
    of: Any = None
    behind: int = -1
    place: int = 0
