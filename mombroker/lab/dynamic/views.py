"""What members of a daisy that changes are told (the events), and what they tell each other (the stamps)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mombroker.ordering.base import Packet
from mombroker.ordering.groups import TOP

Gid = int  # the number of a group
Key = int  # names a seat: in a leaf group by its member, in another by the child group whose connector sits there
Place = tuple[Key, int]  # a broadcast in a group: the seat that sent it, and its number among those of the seat
Id = tuple[int, int]  # a message: its origin, its number
Counts = dict[Key, int]
EMPTY: Counts = {}


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class View:
    """Who sits where in a group from now on. All members, old and new, are told.

    seats   by key: a member, or None while the seat is vacant
    voters  take part in the flush: all that may have something of the views before, and are not lost
    lost    members of which nothing is taken any more
    fork    a new group and its members, who leave for it
    halt    members that process nothing but the group `but` until they fork, or until a view that says `resume`
    marked  groups that need not wait for a marker any more
    """

    gid: Gid
    number: int
    parent: Gid
    seats: Mapping[Key, int | None]
    voters: frozenset[int]
    lost: frozenset[int] = frozenset()
    fork: tuple[Gid, frozenset[int]] | None = None
    halt: frozenset[int] = frozenset()
    but: Gid = TOP
    resume: bool = False
    marked: frozenset[Gid] = frozenset()

    @property
    def members(self) -> frozenset[int]:
        return frozenset(member for member in self.seats.values() if member is not None)


@dataclass(slots=True, frozen=True)
class Hold:
    """What the application sends waits, until the member has changed its home or is told that it may go on."""

    on: bool


@dataclass(slots=True, frozen=True)
class Resume:
    """Process all groups again."""


@dataclass(slots=True, frozen=True)
class Forget:
    """All have installed the view by which this member left the group."""

    gid: Gid


@dataclass(slots=True, frozen=True)
class Report:
    """Acknowledge what was received, and forget what is stable. To be told now and then; relays that wait for
    stability wait for this."""


Event = View | Hold | Resume | Forget | Report


# -- stamps -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Said:
    """On a message in a group. `down` if it came there from above; a marker has `marks`, and no number."""

    number: int
    gid: Gid = TOP
    view: int = 0
    place: Place = (0, 0)
    counts: Counts = field(default_factory=dict)
    down: bool = False
    marks: Gid = TOP


@dataclass(slots=True)
class Heard:
    """Acknowledges for a seat what it has received of each seat; and for each way out of the group that its member
    connects, up to where all is stable beyond."""

    gid: Gid
    key: Key
    got: Counts
    done: dict[Key, Counts]


@dataclass(slots=True)
class Flushed:
    """All that its sender has of the views before this one came before."""

    gid: Gid
    number: int


@dataclass(slots=True)
class State:
    """What a new member of a view must know; as in `GroupState`."""

    gid: Gid
    number: int
    counts: Counts
    seen: Counts
    got: dict[Key, Counts]
    done: dict[Key, Counts]
    marked: set[Gid]
    young: bool
    forks: set[Gid]
    log: list[Packet]
    inherited: list[Packet]


@dataclass(slots=True)
class Pool:
    """Messages of another group that its members bring along."""

    gid: Gid
    packets: list[Packet]


@dataclass(slots=True)
class Clear:
    """Inherited messages that are stable."""

    gid: Gid
    ids: list[Id]


Stamp = Said | Heard | Flushed | State | Pool | Clear
STAMPS = (Said, Heard, Flushed, State, Pool, Clear)


def name(packet: Packet) -> Id:
    """A marker is no message of its origin."""
    said: Said = packet.stamp
    return (packet.origin, said.number) if said.marks == TOP else (-1 - said.place[0], said.place[1])
