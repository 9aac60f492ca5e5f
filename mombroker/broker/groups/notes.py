"""What the home of a group and the servers of its members tell each other, and what members get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from mombroker.broker.shapes import LAST, Count
from mombroker.broker.wire import SHAPES, Note
from mombroker.core.groups.view import CAST, VIEW
from mombroker.core.ids import ID_CHARS, SERVER_NAME, home_of, is_id

GROUP_CHARS = 200  # of the name of a group
ALL = LAST


class GroupNote(Note):
    """One that names agents."""

    __slots__ = ()

    @classmethod
    def of(cls, values: Any) -> Self:
        """Raises ValueError."""
        note = cls(*SHAPES[cls].read(values))
        if not all(_is_agent(each) for each in note.agents()):
            raise ValueError("no agents")
        return note

    def agents(self) -> list[str]:
        return []


def _is_agent(text: str) -> bool:
    one_line = len(text) <= ID_CHARS and "\n" not in text
    return one_line and is_id(text) and SERVER_NAME.fullmatch(home_of(text)) is not None


# -- to the home -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Join(Note):
    """An agent, which is the source, wants to be a member. `needs`: it has a use for the state of others; `patience`:
    for how long they wait for it when it is down, ns (0: for ever); `told`: it wants to know who is."""

    wire = "g.join"
    needs: bool = False
    patience: Count = 0
    told: bool = False


@dataclass(slots=True)
class Leave(Note):
    """An agent, which is the source, wants to be none. `gone`: it was deleted, or has given up, and gives no state."""

    wire = "g.leave"
    gone: bool = False


@dataclass(slots=True)
class Flush(GroupNote):
    """A server, which is the source, has flushed for a view. `casts` as in Home.flushed."""

    wire = "g.flush"
    number: Count
    attempt: Count
    casts: dict[str, Count] = field(default_factory=dict)

    def agents(self) -> list[str]:
        return [*self.casts]


@dataclass(slots=True)
class Place(Note):
    """An agent, which is the source, asks the home for a cast in total order."""

    wire = "g.place"
    type: str
    payload: bytes


@dataclass(slots=True)
class Ack(GroupNote):
    """A server, which is the source, has so many casts of each member of a view."""

    wire = "g.ack"
    number: Count
    casts: dict[str, Count]

    def agents(self) -> list[str]:
        return [*self.casts]


@dataclass(slots=True)
class Restored(Note):
    """A member, which is the source, has got its state, as of a view (0: an older program does not say of which)."""

    wire = "g.restored"
    number: Count = 0


@dataclass(slots=True)
class Here(Note):
    """A server, which is the source, is up."""

    wire = "g.here"


# -- to the members' servers -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Prepare(GroupNote):
    """A view of a group, which is the source, is to follow: flush, without those that are `out`."""

    wire = "g.prepare"
    number: Count
    attempt: Count
    out: list[str] = field(default_factory=list)

    def agents(self) -> list[str]:
        return self.out


@dataclass(slots=True)
class Probe(Note):
    """The home of a group, which is the source, wants to know whether a server is up."""

    wire = "g.probe"
    group: str


@dataclass(slots=True)
class Placed(GroupNote):
    """What an agent has asked for, by a message with this number, is placed, and does not come to itself."""

    wire = "g.placed"
    agent: str
    number: Count = 0

    def agents(self) -> list[str]:
        return [self.agent]


@dataclass(slots=True)
class Busy(GroupNote):
    """Who is to give members a state, as of the beginning of a view, waits for one itself: they had better not wait.
    `home`: as in State."""

    wire = "g.busy"
    group: str
    number: Count
    to: list[str]
    home: str = ""

    def agents(self) -> list[str]:
        return self.to


@dataclass(slots=True)
class State(GroupNote):
    """A page of what a member gives to others of a group, as of the beginning of a view. `table`: its rows up to the
    key `upto` (none: to the end), and no others; else bytes of its snapshot. `give`: whoever has it says so (GOT).
    `home`: of the group; none: an older program does not say it."""

    wire = "g.state"
    group: str
    number: Count
    to: list[str]
    page: bytes
    at: Count = 0
    last: bool = True
    give: Count = 0
    table: str = ""
    upto: str = ""
    home: str = ""

    def agents(self) -> list[str]:
        return self.to


@dataclass(slots=True)
class Got(GroupNote):
    """An agent has so many pages of a state; ALL: it wants no more of it."""

    wire = "g.got"
    give: Count
    agent: str
    pages: Count

    def agents(self) -> list[str]:
        return [self.agent]


@dataclass(slots=True)
class Stable(GroupNote):
    """All members have so many casts of each in a view; of none: who has how many?"""

    wire = "g.stable"
    group: str
    number: Count
    casts: dict[str, Count]

    def agents(self) -> list[str]:
        return [*self.casts]


@dataclass(slots=True)
class Ended(GroupNote):
    """Nobody is there to whom an agent has said something: a group has ended. `asked`: it was a cast, by a message with
    this number. `view`: it goes on without an agent that is cut off, which was in no later view than this."""

    wire = "g.ended"
    home: str
    agent: str
    asked: bool = False
    number: Count = 0
    view: Count = 0

    def agents(self) -> list[str]:
        return [self.home, self.agent]


# -- to members --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Viewed(GroupNote):
    """A view of a group, which is the source; see core/groups/view.py. Without members: the group is gone."""

    wire = VIEW
    group: str
    number: Count
    members: list[str]
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    giver: str = ""
    lacking: list[str] = field(default_factory=list)
    cut: dict[str, Count] = field(default_factory=dict)
    heard: dict[str, Count] = field(default_factory=dict)
    placed: Count = 0

    def agents(self) -> list[str]:
        return [
            *self.members,
            *self.joined,
            *self.left,
            *self.lacking,
            *self.cut,
            *self.heard,
            *([self.giver] if self.giver else []),
        ]


@dataclass(slots=True)
class Told(GroupNote):
    """A cast: a notification, by its wire name and its packed fields. `seq`, `after` and `place` as in
    core/groups/view.py; `asked`: in total order, the number of the message by which its sender has asked for it;
    `home`: in causal order, of the group; none: an older program does not say it."""

    wire = CAST
    group: str
    number: Count
    sender: str
    type: str
    payload: bytes
    seq: Count = 0
    after: dict[str, Count] = field(default_factory=dict)
    asked: Count = 0
    place: Count = 0
    home: str = ""

    def agents(self) -> list[str]:
        return [self.sender, *self.after]


@dataclass(slots=True)
class Returned(Note):
    """A cast of the agent's own was not delivered, or that is unknown."""

    wire = "mom.NotDelivered"
    group: str
    type: str
    packed: bytes
    reason: str


@dataclass(slots=True)
class MemberDown(GroupNote):
    """Members of a group, which is the source, are down: their server does not answer."""

    wire = "mom.MemberDown"
    group: str
    members: list[str]

    def agents(self) -> list[str]:
        return self.members


@dataclass(slots=True)
class MemberUp(MemberDown):
    """They are up again."""

    wire = "mom.MemberUp"
