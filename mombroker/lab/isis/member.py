"""A member of a process group: it sees views, and flushes what is between two of them (paper 003, §5.5)."""

from collections import defaultdict
from math import inf

from mombroker.lab.isis.casting import Casting
from mombroker.lab.isis.messages import (
    ABCAST,
    COORDINATOR,
    EACH,
    Ack,
    Cast,
    Copy,
    Flush,
    Multicast,
    Packet,
    Stable,
    Step,
    View,
)
from mombroker.lab.isis.total import TotalOrder


class Member(Casting):
    """A new view is installed when all that is of the views before is here: each says again what it has that is not
    stable, then its flush. With `how = EACH` it says so to each other, n(n - 1) flushes; with COORDINATOR to the eldest
    of the new view, who passes that on and flushes for all, 2(n - 1).

    Views are told in order, to all that are in them or leave by them. What comes from a process that is known to have
    failed is dropped by the transport; what comes from one that is not known yet is not. Links are FIFO.
    """

    def __init__(self, me: int, view: View | None = None, how: str = EACH, batch: int = 1, follow: bool = False):
        super().__init__(me, view, batch, follow)
        self.how = how
        self.flushed: defaultdict[int, set[int]] = defaultdict(set)  # by view: who has flushed for it
        self.done: set[int] = set()  # views for which a coordinator has flushed
        self.unseen: defaultdict[int, list[tuple[int, Cast | Copy]]] = defaultdict(list)  # of views not told yet
        self.exhausted = 0  # by a flush for this view all of its view is here; what is left waits for other groups
        self.passed: set[tuple[int, tuple[int, int, int]]] = set()  # as coordinator

    def see(self, view: View) -> Step:
        """The membership says who is in the group from now on."""
        self._step = Step()
        if self.order.untold:
            self._announce()
        self.views[view.number] = self.latest = view
        if self.installed < 0:
            self.installed = view.number - 1
        self.copies.review()
        for frm, early in self.unseen.pop(view.number, []):
            if isinstance(early, Copy):
                self._copy(frm, early)
            else:
                self._arrive(frm, early)
        self._say_again(view)
        self._flush(view)
        self._run()
        return self._step

    def receive(self, frm: int, packet: Packet) -> Step:
        self._step = Step()
        if frm not in self.latest.failed:
            if isinstance(packet, Multicast):
                self._original(frm, packet)
            elif isinstance(packet, Copy):
                self._copy(frm, packet)
            elif isinstance(packet, Flush):
                self._flushed(frm, packet)
            elif isinstance(packet, Stable):
                self.copies.told(packet)
            else:
                self.copies.heard(packet.uid, frm)
            self._run()
        return self._step

    # -- the flush -----------------------------------------------------------------------------------------------------

    def _leads(self, view: View) -> bool:
        return self.how == COORDINATOR and view.coordinator == self.me

    def _say_again(self, view: View) -> None:
        """Of each view before, to those of it that are in the new one, or leave by it."""
        for uid in sorted(self.copies.kept):
            kept = self.copies.kept[uid]
            if kept.cast.view < view.number:
                copy = Copy(view.number, kept.cast, kept.members)
                direct = self.how == EACH or self._leads(view)
                self._tell(kept.members & view.everyone if direct else [view.coordinator], copy)
                self.passed.add((view.number, uid))

    def _flush(self, view: View) -> None:
        mine = Flush(view.number)
        self._tell(view.everyone if self.how == EACH else [view.coordinator], mine)
        self._flushed(self.me, mine)

    def _flushed(self, frm: int, flush: Flush) -> None:
        number, view = flush.number, self.views.get(flush.number)
        self.flushed[number].add(frm)
        if flush.whole:
            self.done.add(number)
        elif view and self._leads(view) and number not in self.done and self.flushed[number] >= view.everyone:
            self._tell(view.everyone, Flush(number, whole=True))
            self.done.add(number)

    def _copy(self, frm: int, copy: Copy) -> None:
        """The coordinator passes it on, though it may have it, and may not be of that view itself: each copy counts as
        unstable until all have it."""
        view, cast = self.views.get(copy.flush), copy.cast
        if view is None:
            self.unseen[copy.flush].append((frm, copy))
            return
        if self._leads(view) and self.copies.is_stable(cast.uid):
            self._tell([frm], Stable(*cast.uid[:2], self.copies.stable.get(cast.uid[:2], 0)))
            return
        if self._leads(view) and (view.number, cast.uid) not in self.passed:
            self.passed.add((view.number, cast.uid))
            self._tell((copy.members & view.everyone) - {frm}, copy)
            self.copies.keep(cast, copy.members)
        self._tell([frm], Ack(cast.uid))
        if self.me in copy.members:
            self.copies.keep(cast, copy.members)
            self._take(cast)
        self.copies.heard(cast.uid, frm)

    def _arrive(self, frm: int, cast: Cast) -> None:
        if cast.view in self.views:
            super()._arrive(frm, cast)
        else:
            self.unseen[cast.view].append((frm, cast))

    # -- a new view ----------------------------------------------------------------------------------------------------

    def _complete(self, number: int, following: View) -> bool:
        """The flush for this view has brought all that is of views before the following one."""
        if self.how == COORDINATOR:
            return number in self.done
        view = self.views[number]
        needed = {*following.members} & {*view.members}
        needed |= {leaver for leaver, without in view.leaving.items() if without >= following.number}
        return needed <= self.flushed[number]

    def _install(self) -> bool:
        following = self.views.get(self.installed + 1)
        if self.left or self.installed < 0 or following is None:
            return False
        numbers = [number for number in self.views if number >= following.number and self._complete(number, following)]
        if not numbers:
            return False
        if not self._deliver_rest():
            self.exhausted = max(numbers)
            return False
        self.orphans += len(self.queue)
        for uid in [*self.queue]:
            del self.queue[uid], self.since[uid]
        self.installed = following.number
        self.left = self.me not in following.members
        self.seq, self.delivered, self.told = 0, {}, {}
        self.order = TotalOrder(following.coordinator)
        self._step.deliver.append(following)
        for uid in [uid for uid in self.later if uid[0] == following.number]:
            self._take(self.later.pop(uid))
        self.bases = {run: vector for run, vector in self.bases.items() if run[0] >= following.number}
        return True

    def _deliver_rest(self) -> bool:
        """What has no number, since the holder of the token has failed or is stopped: the least of those in turn, again
        and again. All that live have the same, so they come to the same order. False: something waits for another
        group."""
        while True:
            while self._deliver():
                pass
            turn = [cast for cast in self.queue.values() if self._in_turn(cast)]
            if any(not self.allow(cast) for cast in turn):
                return False
            ready = [cast for cast in turn if cast.kind == ABCAST]
            if not ready:
                return True
            numbers = self.order.numbers
            self._hand_over(min(ready, key=lambda cast: (numbers.get(cast.uid, inf), cast.uid)))
