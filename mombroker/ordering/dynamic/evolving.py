"""A daisy whose groups change: connectors are lost or replaced, groups split and merge (protocols §6.4, 6.5).

One member's part; `mombroker.ordering.steward` says in which order the members are told of changes. On the bus the tree
of groups is fixed, and the links keep what they have not brought over: there the plain daisy serves.
"""

from mombroker.ordering.base import Packet, Step
from mombroker.ordering.dynamic import changes
from mombroker.ordering.dynamic.changes import Flushed, Gid, Pool, State, View
from mombroker.ordering.dynamic.circle import Circle
from mombroker.ordering.dynamic.logged import LoggedDaisy
from mombroker.ordering.groups import TOP


class EvolvingDaisy(LoggedDaisy):
    """Within a group, a view is replaced by a flush: the members stop sending, give each other all that is not stable,
    and install the next view when they have it from all; so all leave a view with the same messages. Seats keep their
    counts when their members change.
    """

    def change(self, event: changes.Event) -> Step:
        step = Step([], [])
        if isinstance(event, View):
            self._see(event, step)
        elif isinstance(event, changes.Hold):
            self.holding = event.on
        elif isinstance(event, changes.Resume):
            self._resume(step)
        elif isinstance(event, changes.Report):
            self._report(step)
        elif event.gid in self.circles:
            circle = self.circles[event.gid]
            assert circle.left, f"member {self.me} is still in group {event.gid}"
            if not (circle.early or circle.states or max(circle.flushed, default=0) > circle.view):
                del self.circles[event.gid]  # else it is to come back
        self._release(step)
        return step

    def _take(self, frm: int, packet: Packet, step: Step) -> None:
        stamp: changes.Stamp = packet.stamp
        circle = self.circles.get(stamp.gid)
        if circle and frm not in circle.lost and isinstance(stamp, Flushed):
            circle.flushed.setdefault(stamp.number, set()).add(frm)
            self._install(circle, step)
        elif circle and frm not in circle.lost and isinstance(stamp, State):
            if stamp.number > circle.view:
                circle.states.setdefault(stamp.number, stamp)
            self._install(circle, step)
        else:
            super()._take(frm, packet, step)

    def _see(self, view: View, step: Step) -> None:
        """A view is to come: give the voters all that is not stable, and say so."""
        circle = self.circles.get(view.gid) or self._circle(view.gid, view.parent)
        if circle.left and self.me not in view.voters:
            circle = self.circles[view.gid] = circle.afresh()
        circle.lost |= view.lost
        circle.views.append(view)
        if self.me in view.voters:
            for to in sorted(view.voters - {self.me}):
                for packet in circle.unstable():
                    step.send.append(Packet(to, packet.dests, packet.body, packet.origin, packet.stamp))
                step.send.append(Packet(to, (), b"", self.me, Flushed(view.gid, view.number)))
            circle.flushed.setdefault(view.number, set()).add(self.me)
        self._install(circle, step)
        self._find(view.gid, step)

    def _find(self, gid: Gid, step: Step) -> None:
        for frm, packet in self.strays.pop(gid, []):
            self._take(frm, packet, step)

    def _install(self, circle: Circle, step: Step) -> None:
        """Install what can be installed of the views to come, in their order."""
        while circle.views:
            flushed = next(filter(circle.is_flushed, circle.views), None)
            joinable = [at for at, each in enumerate(circle.views) if not each.voters or each.number in circle.states]
            if circle.ready and flushed:
                self._enter(circle, circle.views[0], flushed.voters, step)
            elif not circle.ready and joinable:
                del circle.views[: joinable[0]]
                view = circle.views[0]  # without voters: nobody is left that had their state
                self._join(circle, view, circle.states[view.number] if view.voters else None, step)
            else:
                return

    def _enter(self, circle: Circle, view: View, voters: frozenset[int], step: Step) -> None:
        """Leave a view with the same messages as the other voters, for the next one."""
        circle.halted = False
        self._retake(circle, step)
        circle.waiting.clear()  # their causes are lost with those that sent them
        circle.learn({key: circle.counts for key, member in circle.seats.items() if member in voters}, {})
        del circle.views[0]
        circle.view = view.number
        circle.flushed = {number: who for number, who in circle.flushed.items() if number > view.number}
        circle.states = {number: state for number, state in circle.states.items() if number > view.number}
        circle.marked |= view.marked
        lacking = view.members - view.voters | view.members & circle.fresh
        circle.fresh = view.members - {*circle.members}
        step.send += [Packet(to, (), b"", self.me, circle.state()) for to in sorted(lacking - {self.me})]
        if circle.left and self.me not in view.members:
            return
        circle.left = False  # it may be the only one that has kept what a group that has died out knew
        circle.sit(view.seats)
        circle.told = {}, {}  # new members have not heard what was told before
        if view.fork:
            circle.forks.add(view.fork[0])
        way = self.ways.get((circle.gid, circle.parent))
        if self.me not in view.members:
            self._leave(circle, view, step)
        elif view.fork and way:
            way.outbox.append((None, self._marker(view.fork[0])))
        self._connect()
        self._halt(circle, view)
        if view.resume or view.fork:
            self._resume(step)
        self._retake(circle, step)

    def _leave(self, circle: Circle, view: View, step: Step) -> None:
        """If the seat stays vacant, pass on what waits for acknowledgements: all voters have it."""
        for way in self.ways.values():
            if way.frm is circle and view.seats.get(way.to.gid) is None and way.to.open:
                while way.outbox:
                    self._broadcast(way.to, way.outbox.pop(0)[1], not way.up, step)
        circle.left = True
        if view.fork and self.me in view.fork[1]:
            gid, members = view.fork
            kept = [packet for packet in circle.log.values() if packet.stamp.marks == TOP and not packet.stamp.down]
            new = self._circle(gid, circle.parent)
            new.sit({member: member for member in sorted(members)})
            new.view, new.ready, new.young = 1, True, True
            new.seen, new.inherited = dict(circle.seen), circle.inherited + kept
            self._move(gid)
            self._find(gid, step)

    def _move(self, home: Gid) -> None:
        self.home, self.holding = home, False

    def _join(self, circle: Circle, view: View, state: State | None, step: Step) -> None:
        """Take over a group as it is, or begin it afresh if all that knew it are lost."""
        del circle.views[0]
        circle.ready, circle.view = True, view.number
        circle.fresh = view.members
        circle.sit(view.seats)
        old = self.circles[self.home]
        if state:
            circle.take_over(state)
        elif circle.leaf:
            circle.seen = dict(old.seen)
        circle.marked |= view.marked
        if circle.leaf:
            pool = old.inherited + [packet for packet in old.log.values() if packet.stamp.marks == TOP]
            del self.circles[old.gid]
            self._move(circle.gid)
            self._inherit(circle, [packet for packet in pool if not packet.stamp.down])
            self._tell(circle, Pool(circle.gid, circle.inherited[:]), step)
            for packet in circle.log.values():
                self._hand_over(packet, step)
        self._connect()
        self._halt(circle, view)
        self._retake(circle, step)

    def _halt(self, circle: Circle, view: View) -> None:
        if self.me in view.halt:
            for each in self.circles.values():
                each.halted = each.gid != view.but

    def _resume(self, step: Step) -> None:
        for circle in [*self.circles.values()]:
            if circle.halted:
                circle.halted = False
                self._retake(circle, step)
        self._retake(self.circles[self.home], step)

    def _retake(self, circle: Circle, step: Step) -> None:
        early, circle.early = circle.early, []
        for frm, packet in early:
            self._hear(circle, frm, packet, step)
