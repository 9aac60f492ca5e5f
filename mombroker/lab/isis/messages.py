"""What the members of a process group tell each other, and what the membership tells them (the views)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CBCAST, ABCAST, SETS_ORDER = "cbcast", "abcast", "sets-order"
Uid = tuple[int, int, int]  # of a multicast: view, sender, number among those of the sender in this view
Vector = dict[int, int]  # multicasts by sender; who is not in it has sent none
EACH, COORDINATOR = "each", "coordinator"  # whom a member sends its flush: each other (n²), or one for all (2n)


@dataclass(slots=True, frozen=True)
class View:
    """Who is in the group from now on, the eldest first.

    leaving  members that leave of their own accord and still take part in flushes, with the first view without them
    failed   processes that are known to have failed, in this view or before: nothing is taken from them any more
    """

    number: int
    members: tuple[int, ...]
    leaving: Mapping[int, int] = field(default_factory=dict)
    failed: frozenset[int] = frozenset()

    @property
    def everyone(self) -> set[int]:
        return {*self.members, *self.leaving}

    @property
    def coordinator(self) -> int:
        return self.members[0]


@dataclass(slots=True, frozen=True)
class Cast:
    """A multicast. `vector` has the sender's own number, too; on its way from the sender only what else has changed
    since the sender's multicast before (lemma 1). `number`: its place in the total order, if its sender holds the
    token; `orders` and `holder` of a sets-order: what has which number, and who holds the token from now on.
    `others`: what it depends on in other groups, with their views; `epoch`: what has a lower one comes before it."""

    uid: Uid
    kind: str
    vector: Vector
    body: Any = None
    number: int = 0
    orders: tuple[tuple[int, Uid], ...] = ()
    holder: int | None = None
    others: Mapping[str, tuple[int, Vector]] = field(default_factory=dict)
    epoch: int = 0

    @property
    def view(self) -> int:
        return self.uid[0]

    @property
    def sender(self) -> int:
        return self.uid[1]

    @property
    def seq(self) -> int:
        return self.uid[2]


@dataclass(slots=True, frozen=True)
class Multicast:
    """From the sender itself. `stable`: all have its multicasts of this view up to this one."""

    cast: Cast
    stable: int


@dataclass(slots=True, frozen=True)
class Copy:
    """Said again in a flush, with its whole vector; `members` are those of the view that it was sent in."""

    flush: int
    cast: Cast
    members: frozenset[int]


@dataclass(slots=True, frozen=True)
class Flush:
    """All that its sender has of the views before came before; `whole`: all that anybody has, says the coordinator."""

    number: int
    whole: bool = False


@dataclass(slots=True, frozen=True)
class Ack:
    """Its sender has this multicast."""

    uid: Uid


@dataclass(slots=True, frozen=True)
class Stable:
    """All members have the multicasts of a sender in a view up to this number."""

    view: int
    sender: int
    upto: int


Packet = Multicast | Copy | Flush | Ack | Stable


@dataclass(slots=True, frozen=True)
class Sent:
    """What the application has asked for has left, in the view that is installed; some of it had to wait for that."""

    cast: Cast


@dataclass(slots=True)
class Step:
    """What a member does: packets to others, in this order, and what its application sees, in that order."""

    send: list[tuple[int, Packet]] = field(default_factory=list)
    deliver: list[Cast | View | Sent] = field(default_factory=list)
