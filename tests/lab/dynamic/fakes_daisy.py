"""Changing daisies that are broken on purpose: what the tests must catch (protocols §12.2). Nothing here is for use."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from mombroker.lab.dynamic.coordinator import Coordinator, Known, Order, Work
from mombroker.lab.dynamic.evolving import EvolvingDaisy
from mombroker.lab.dynamic.group_state import GroupState, Way
from mombroker.lab.dynamic.views import Gid, Place, View
from mombroker.ordering import Packet, Step
from mombroker.ordering.base import Rows


class NoMarker(EvolvingDaisy):
    """A group that forked passes on its own messages at once, while what its members said before may still be on its
    way through the elder's connector (DA3)."""

    def _leave(self, group: GroupState, view: View, step: Step) -> None:
        super()._leave(group, view, step)
        if view.fork and self.me in view.fork[1]:
            new = self.groups[self.home]
            new.young = False
            new.inherited.clear()


class LiteralSplit(Coordinator):
    """Steps (iii) and (iv) of the paper: who departs leaves when the new connector has joined, and nobody waits for
    what is still on its way (DA2)."""

    def _split(self, gid: Gid, members: Sequence[int]) -> Work:
        group, new = self.groups[gid], self._next
        above = self.groups[group.parent]
        self._next += 1
        yield from self._view(group.parent, above.seats | {new: members[0]})
        self.groups[new] = Known(group.parent, True, {member: member for member in members})
        group.number += 1
        group.seats = {key: member for key, member in group.seats.items() if member not in members}
        told: list[Order] = []
        for member in [*group.members, *members]:
            alone = frozenset({member})  # no flush
            fork = new, frozenset(members)
            told.append((member, View(gid, group.number, group.parent, dict(group.seats), alone, fork=fork)))
        yield told


class VacantIsStable(EvolvingDaisy):
    """A vacant seat counts for nothing: what its last member has not passed on is forgotten (DA4)."""

    def _report(self, step: Step) -> None:
        for group in self.groups.values():
            all_of = {key: group.counts for key, member in group.seats.items() if member is None}
            group.learn(all_of, all_of)
        super()._report(step)


class SeparateCommits(EvolvingDaisy):
    """What is delivered is stored, and passed on in a transaction of its own: a restart between the two loses it."""

    taking = False

    def send(self, dests: Iterable[int], body: bytes) -> list[Packet]:
        self.taking = True
        packets = super().send(dests, body)
        self.taking = False
        return packets

    def receive(self, frm: int, packet: Packet) -> Step:
        before = Step([], [])
        self._release(before)
        self.taking = True
        step = super().receive(frm, packet)
        self.taking = False
        return Step(before.send + step.send, before.deliver + step.deliver)

    def _may_go(self, way: Way, place: Place | None) -> bool:
        return not self.taking and super()._may_go(way, place)

    @classmethod
    def restore(cls, me: int, size: int, rows: Rows, **options: Any) -> Self:
        core = super().restore(me, size, rows, **options)
        for way in core.ways.values():
            way.outbox.clear()
        return core
