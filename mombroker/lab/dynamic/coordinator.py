"""Who decides where members of an evolving daisy sit: the order of the steps of protocols §6.4 and 6.5.

A coordinator has no links. It gives orders, an event for a member each, and looks at the members to see what they have
installed. One operation is under way at a time; what is lost meanwhile is made good when it has ended.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mombroker.lab.dynamic.evolving import EvolvingDaisy
from mombroker.lab.dynamic.group_state import GroupState
from mombroker.lab.dynamic.views import Event, Forget, Gid, Hold, Key, Resume, View
from mombroker.ordering.daisy import Edge
from mombroker.ordering.groups import TOP, plant

Order = tuple[int, Event]  # the member that is told
Work = Generator[list[Order], None, None]  # an empty list: nothing to do before the members have come further


@dataclass(slots=True, frozen=True)
class Split:
    """Members of a leaf group leave it for a new one under the same parent; the first of them is its connector."""

    gid: Gid
    members: tuple[int, ...]


@dataclass(slots=True, frozen=True)
class Merge:
    """The members of a leaf group go over to another one under the same parent."""

    gid: Gid
    into: Gid


@dataclass(slots=True, frozen=True)
class HandOver:
    """Another member of a group becomes its connector."""

    gid: Gid
    member: int


Operation = Split | Merge | HandOver


@dataclass(slots=True)
class Known:
    """What the coordinator knows of a group."""

    parent: Gid
    leaf: bool
    seats: dict[Key, int | None]
    number: int = 1  # of the last view
    forks: set[Gid] = field(default_factory=set)
    leavers: frozenset[int] = frozenset()  # have left, and can still say all that the group knew when they did
    afresh: bool = False  # it had died out, and is not filled again yet

    @property
    def members(self) -> frozenset[int]:
        return frozenset(member for member in self.seats.values() if member is not None)


class Coordinator:
    def __init__(
        self, groups: Sequence[Any], look: Callable[[int], EvolvingDaisy | None], connectors: Sequence[int] = ()
    ) -> None:
        """`look` shows a member; None for one that cannot be seen, whether it is known to be lost or not."""
        self.look = look
        self.lost: set[int] = set()
        self.sealed: set[Gid] = set()  # groups that need no marker of an elder that is no more
        self.operations: list[Operation] = []
        self.groups: dict[Gid, Known] = {}
        for gid, group in enumerate(plant(groups, connectors)):
            seats: dict[Key, int | None] = dict(zip(group.children or group.members, group.members, strict=True))
            self.groups[gid] = Known(group.parent, not group.children, seats)
        self._next = len(self.groups)
        self._work = self._main()
        self.resting = self.mended = True  # nothing is under way; all losses are made good

    def lose(self, member: int) -> None:
        """Somebody is lost for good; what is missing by that is made good before any other operation."""
        self.lost.add(member)
        self.resting = self.mended = False

    def ask(self, operation: Operation) -> None:
        """Do this when what is under way has ended. Raises ValueError for what cannot be done; what a loss has made
        impossible until its turn comes is left undone."""
        if fault := self._fault(operation):
            raise ValueError(fault)
        self.operations.append(operation)
        self.resting = False

    def _fault(self, operation: Operation) -> str | None:
        group = self.groups.get(operation.gid)
        if group is None or group.parent == TOP:
            return f"no group {operation.gid} that has a connector"
        if isinstance(operation, HandOver):
            found = operation.member in group.members
            return None if found else f"member {operation.member} is not in group {operation.gid}"
        if isinstance(operation, Split):
            leaving, connector = set(operation.members), self.groups[group.parent].seats.get(operation.gid)
            if not group.leaf or not leaving or not leaving <= group.members:
                return f"group {operation.gid} is no leaf group of {sorted(leaving)}"
            return f"connector {connector} stays: hand over first" if connector in leaving else None
        into = self.groups.get(operation.into)
        siblings = into is not None and into.leaf and group.leaf and into.parent == group.parent
        if not siblings or operation.into == operation.gid:
            return f"groups {operation.gid} and {operation.into} are no two leaf groups under one group"
        return None

    def orders(self) -> list[Order]:
        """What is to be told now; the orders of one member are to be carried out in this order."""
        orders: list[Order] = []
        while more := next(self._work):
            orders += more
        return orders

    def _main(self) -> Work:
        while True:
            self.resting = False
            while self._is_wounded():
                yield from self._recover()
            self.mended = True
            if self.operations:
                operation = self.operations.pop(0)
                if not self._fault(operation):
                    yield from self._do(operation)
            else:
                self.resting = True
                yield []

    def _do(self, operation: Operation) -> Work:
        if isinstance(operation, Split):
            return self._split(operation.gid, operation.members)
        if isinstance(operation, Merge):
            return self._merge(operation.gid, operation.into)
        return self._hand_over(operation.gid, operation.member)

    # -- views ---------------------------------------------------------------------------------------------------

    def _view(self, gid: Gid, seats: dict[Key, int | None], keep: bool = False, **more: Any) -> Work:
        """Give a group a view, and wait until all live members, old and new, have installed it. Whoever is lost in the
        meantime loses the seat, and the view is given again. If all are lost that knew the last view, and it is certain
        that nothing of them is still to come, those who are left begin afresh. `keep`: who leaves is not to forget the
        group yet; if it dies out they give it to others."""
        group = self.groups[gid]
        voters = group.members
        if not voters - self.lost:
            voters = group.leavers
        while True:
            group.number += 1
            group.seats = {
                key: None if member in self.lost else member
                for key, member in seats.items()
                if not (group.leaf and member in self.lost)
            }
            voters -= self.lost
            group.afresh = group.afresh or not voters
            view = View(
                gid, group.number, group.parent, dict(group.seats), voters, frozenset(self.lost),
                marked=frozenset(self.sealed), **more,
            )  # fmt: skip
            told = voters | view.members
            if told:
                yield [(member, view) for member in sorted(told)]
            orphaned = False
            while not told & self.lost and not orphaned and not all(self._has(member, view) for member in told):
                orphaned = bool(voters) and all(self._waits(member, view) for member in told)
                yield []
            if not told & self.lost and not orphaned:
                break
            voters = frozenset() if orphaned else told
        gone = (told | group.leavers) - view.members - self.lost
        group.leavers = gone if keep or not view.members else frozenset()
        if not group.leavers:
            yield [(member, Forget(gid)) for member in sorted(gone)]

    def _has(self, member: int, view: View) -> bool:
        group = self._group(member, view.gid)
        return group is not None and group.ready and group.view >= view.number

    def _waits(self, member: int, view: View) -> bool:
        """True when a member is told of the view, and has never installed any."""
        group = self._group(member, view.gid)
        return group is not None and not group.ready and view in group.views

    def _group(self, member: int, gid: Gid) -> GroupState | None:
        core = self.look(member)
        return core.groups.get(gid) if core else None

    # -- recovery ------------------------------------------------------------------------------------------------

    def _is_wounded(self) -> bool:
        return any(group.members & self.lost or None in group.seats.values() for group in self.groups.values())

    def _recover(self) -> Work:
        """First all groups that have lost somebody flush. Then vacated seats are filled, the highest first (filled from
        below, a process that connects at several levels may be overtaken by what it has sent itself)."""
        for gid, group in self.groups.items():
            if group.members & self.lost:
                yield from self._view(gid, group.seats)
        for gid, child in sorted(self._vacant(), key=lambda seat: self._depth(seat[0])):
            group, below = self.groups[gid], self.groups[child]
            if not self._is_alive(child):
                self.sealed |= below.forks  # this flush stands in for the markers that never come
                yield from self._view(gid, {key: member for key, member in group.seats.items() if key != child})
                return
            refilling = below.afresh and any(self._is_alive(key) for key, each in below.seats.items() if each is None)
            if below.members and not refilling:
                below.afresh = False
                yield from self._view(gid, group.seats | {child: min(below.members)})
                return

    def _vacant(self) -> list[tuple[Gid, Gid]]:
        return [(gid, key) for gid, group in self.groups.items() for key, each in group.seats.items() if each is None]

    def _depth(self, gid: Gid) -> int:
        parent = self.groups[gid].parent
        return 0 if parent == TOP else 1 + self._depth(parent)

    def _is_alive(self, gid: Gid) -> bool:
        """True when the group has members, or somewhere beneath it there are some."""
        group = self.groups[gid]
        return bool(group.members - self.lost) or (not group.leaf and any(map(self._is_alive, group.seats)))

    # -- operations ----------------------------------------------------------------------------------------------

    def _split(self, gid: Gid, members: Sequence[int]) -> Work:
        group, new = self.groups[gid], self._next
        above = self.groups[group.parent]
        elder, heir = above.seats[gid], members[0]
        if elder is None:
            return
        self._next += 1
        yield [(member, Hold(True)) for member in members]
        halt = frozenset({elder, heir})
        yield from self._view(group.parent, above.seats | {new: heir}, halt=halt, but=gid)
        leaving = frozenset(members) - self.lost
        if leaving:
            staying = {key: member for key, member in group.seats.items() if member not in leaving}
            self.groups[new] = Known(group.parent, True, {member: member for member in sorted(leaving)})
            group.forks.add(new)
            yield from self._view(gid, staying, fork=(new, leaving))
        else:
            yield from self._view(group.parent, {key: each for key, each in above.seats.items() if key != new})
            yield self._live([elder], Resume())

    def _live(self, members: Sequence[int], event: Event) -> list[Order]:
        return [(member, event) for member in members if member not in self.lost]

    def _merge(self, gid: Gid, into: Gid) -> Work:
        group, target = self.groups[gid], self.groups[into]
        above = self.groups[group.parent]
        heir, host = above.seats.get(gid), above.seats.get(into)
        if heir is None or host is None:
            return
        if above.parent != TOP and self.groups[above.parent].seats.get(group.parent) == heir:
            yield from self._hand_over(group.parent, host)
            if self.groups[above.parent].seats.get(group.parent) == heir:
                return
        members = sorted(group.members)
        yield [(member, Hold(True)) for member in members]
        yield from self._flush(gid)
        ready = yield from self._drain(heir, (gid, group.parent))
        if ready:
            more = {"halt": frozenset({host}), "but": into}
            yield from self._view(group.parent, above.seats | {gid: None}, keep=True, **more)
            yield from self._flush(gid)
            ready = heir not in self.lost and (yield from self._drain(host, (group.parent, into), but=gid))
        if not ready:  # dropped: the group takes its seat again, as if its connector were lost
            yield self._live([host], Resume()) + self._live(members, Hold(False))
            return
        joining: dict[Key, int | None] = {member: member for member in members if member not in self.lost}
        yield from self._view(into, target.seats | joining, resume=True)
        self.sealed |= self.groups.pop(gid).forks  # their markers were passed on before
        yield from self._view(group.parent, {key: each for key, each in above.seats.items() if key != gid})

    def _drain(self, member: int, edge: Edge, but: Key = TOP) -> Generator[list[Order], None, bool]:
        """Wait until a member has passed on everything over an edge. False if somebody else is lost, or a seat vacant:
        acknowledgements may never come."""
        while True:
            core = self.look(member)
            if core and not (edge in core.ways and core.ways[edge].outbox):
                return member not in self.lost
            for gid in edge:
                seats = self.groups[gid].seats
                if any(each is None or each in self.lost for key, each in seats.items() if key != but):
                    return False
            yield []

    def _flush(self, gid: Gid) -> Work:
        return self._view(gid, self.groups[gid].seats)

    def _hand_over(self, gid: Gid, member: int) -> Work:
        """A connector that sits higher up too hands over its highest seat first: to another of that group."""
        group = self.groups[gid]
        above = self.groups[group.parent]
        old = above.seats.get(gid)
        if old in (None, member):
            return
        if above.parent != TOP and self.groups[above.parent].seats.get(group.parent) == old:
            others = sorted(above.members - {old})
            if not others:
                return  # it alone connects the two groups above
            yield from self._hand_over(group.parent, others[0])
            if self.groups[above.parent].seats.get(group.parent) == old:
                return
        yield from self._view(group.parent, above.seats, halt=frozenset({old}), but=gid)
        yield from self._flush(gid)  # what the old one has passed down is delivered everywhere
        if self.lost & {old, member}:
            yield self._live([old], Resume())
        else:
            yield from self._view(group.parent, above.seats | {gid: member})
            yield self._live([old], Resume())
