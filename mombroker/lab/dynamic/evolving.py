"""A daisy whose groups change: connectors are lost or replaced, groups split and merge (protocols §6.4, 6.5).

One member's part; `coordinator` says in which order the members are told of changes. On the bus the tree
of groups is fixed, and the links keep what they have not brought over: there the plain daisy serves.
"""

from mombroker.lab.dynamic import views
from mombroker.lab.dynamic.group_state import GroupState
from mombroker.lab.dynamic.logged_daisy import LoggedDaisy
from mombroker.lab.dynamic.views import Flushed, Gid, Pool, State, View
from mombroker.ordering.base import Packet, Step
from mombroker.ordering.groups import TOP


class EvolvingDaisy(LoggedDaisy):
    """Within a group, a view is replaced by a flush: the members stop sending, give each other all that is not stable,
    and install the next view when they have it from all; so all leave a view with the same messages. Seats keep their
    counts when their members change.
    """

    def change(self, event: views.Event) -> Step:
        step = Step([], [])
        if isinstance(event, View):
            self._see(event, step)
        elif isinstance(event, views.Hold):
            self.holding = event.on
        elif isinstance(event, views.Resume):
            self._resume(step)
        elif isinstance(event, views.Report):
            self._report(step)
        elif event.gid in self.groups:
            group = self.groups[event.gid]
            assert group.left, f"member {self.me} is still in group {event.gid}"
            if not (group.early or group.states or max(group.flushed, default=0) > group.view):
                del self.groups[event.gid]  # else it is to come back
        self._release(step)
        return step

    def _take(self, frm: int, packet: Packet, step: Step) -> None:
        stamp: views.Stamp = packet.stamp
        group = self.groups.get(stamp.gid)
        if group and frm not in group.lost and isinstance(stamp, Flushed):
            group.flushed.setdefault(stamp.number, set()).add(frm)
            self._install(group, step)
        elif group and frm not in group.lost and isinstance(stamp, State):
            if stamp.number > group.view:
                group.states.setdefault(stamp.number, stamp)
            self._install(group, step)
        else:
            super()._take(frm, packet, step)

    def _see(self, view: View, step: Step) -> None:
        """A view is to come: give the voters all that is not stable, and say so."""
        group = self.groups.get(view.gid) or self._group(view.gid, view.parent)
        if group.left and self.me not in view.voters:
            group = self.groups[view.gid] = group.afresh()
        group.lost |= view.lost
        group.views.append(view)
        if self.me in view.voters:
            for to in sorted(view.voters - {self.me}):
                for packet in group.unstable():
                    step.send.append(Packet(to, packet.dests, packet.body, packet.origin, packet.stamp))
                step.send.append(Packet(to, (), b"", self.me, Flushed(view.gid, view.number)))
            group.flushed.setdefault(view.number, set()).add(self.me)
        self._install(group, step)
        self._find(view.gid, step)

    def _find(self, gid: Gid, step: Step) -> None:
        for frm, packet in self.strays.pop(gid, []):
            self._take(frm, packet, step)

    def _install(self, group: GroupState, step: Step) -> None:
        """Install what can be installed of the views to come, in their order."""
        while group.views:
            flushed = next(filter(group.is_flushed, group.views), None)
            joinable = [at for at, each in enumerate(group.views) if not each.voters or each.number in group.states]
            if group.ready and flushed:
                self._enter(group, group.views[0], flushed.voters, step)
            elif not group.ready and joinable:
                del group.views[: joinable[0]]
                view = group.views[0]  # without voters: nobody is left that had their state
                self._join(group, view, group.states[view.number] if view.voters else None, step)
            else:
                return

    def _enter(self, group: GroupState, view: View, voters: frozenset[int], step: Step) -> None:
        """Leave a view with the same messages as the other voters, for the next one."""
        group.halted = False
        self._retake(group, step)
        group.waiting.clear()  # their causes are lost with those that sent them
        group.learn({key: group.counts for key, member in group.seats.items() if member in voters}, {})
        del group.views[0]
        group.view = view.number
        group.flushed = {number: who for number, who in group.flushed.items() if number > view.number}
        group.states = {number: state for number, state in group.states.items() if number > view.number}
        group.marked |= view.marked
        lacking = view.members - view.voters | view.members & group.fresh
        group.fresh = view.members - {*group.members}
        step.send += [Packet(to, (), b"", self.me, group.state()) for to in sorted(lacking - {self.me})]
        if group.left and self.me not in view.members:
            return
        group.left = False  # it may be the only one that has kept what a group that has died out knew
        group.sit(view.seats)
        group.told = {}, {}  # new members have not heard what was told before
        if view.fork:
            group.forks.add(view.fork[0])
        way = self.ways.get((group.gid, group.parent))
        if self.me not in view.members:
            self._leave(group, view, step)
        elif view.fork and way:
            way.outbox.append((None, self._marker(view.fork[0])))
        self._connect()
        self._halt(group, view)
        if view.resume or view.fork:
            self._resume(step)
        self._retake(group, step)

    def _leave(self, group: GroupState, view: View, step: Step) -> None:
        """If the seat stays vacant, pass on what waits for acknowledgements: all voters have it."""
        for way in self.ways.values():
            if way.frm is group and view.seats.get(way.to.gid) is None and way.to.open:
                while way.outbox:
                    self._broadcast(way.to, way.outbox.pop(0)[1], not way.up, step)
        group.left = True
        if view.fork and self.me in view.fork[1]:
            gid, members = view.fork
            kept = [packet for packet in group.log.values() if packet.stamp.marks == TOP and not packet.stamp.down]
            new = self._group(gid, group.parent)
            new.sit({member: member for member in sorted(members)})
            new.view, new.ready, new.young = 1, True, True
            new.seen, new.inherited = dict(group.seen), group.inherited + kept
            self._move(gid)
            self._find(gid, step)

    def _move(self, home: Gid) -> None:
        self.home, self.holding = home, False

    def _join(self, group: GroupState, view: View, state: State | None, step: Step) -> None:
        """Take over a group as it is, or begin it afresh if all that knew it are lost."""
        del group.views[0]
        group.ready, group.view = True, view.number
        group.fresh = view.members
        group.sit(view.seats)
        old = self.groups[self.home]
        if state:
            group.take_over(state)
        elif group.leaf:
            group.seen = dict(old.seen)
        group.marked |= view.marked
        if group.leaf:
            pool = old.inherited + [packet for packet in old.log.values() if packet.stamp.marks == TOP]
            del self.groups[old.gid]
            self._move(group.gid)
            self._inherit(group, [packet for packet in pool if not packet.stamp.down])
            self._tell(group, Pool(group.gid, group.inherited[:]), step)
            for packet in group.log.values():
                self._hand_over(packet, step)
        self._connect()
        self._halt(group, view)
        self._retake(group, step)

    def _halt(self, group: GroupState, view: View) -> None:
        if self.me in view.halt:
            for each in self.groups.values():
                each.halted = each.gid != view.but

    def _resume(self, step: Step) -> None:
        for group in [*self.groups.values()]:
            if group.halted:
                group.halted = False
                self._retake(group, step)
        self._retake(self.groups[self.home], step)

    def _retake(self, group: GroupState, step: Step) -> None:
        early, group.early = group.early, []
        for frm, packet in early:
            self._hear(group, frm, packet, step)
