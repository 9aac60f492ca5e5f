"""CBCAST and ABCAST within a view: stamps, what waits for what, the order of delivery (paper 003, §5.1 to §5.4)."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from mombroker.lab.isis.copies import Copies
from mombroker.lab.isis.messages import (
    ABCAST,
    CBCAST,
    SETS_ORDER,
    Ack,
    Cast,
    Multicast,
    Packet,
    Sent,
    Stable,
    Step,
    Uid,
    Vector,
    View,
)
from mombroker.lab.isis.total import TotalOrder


class Casting:
    """The part of a member that works within the view that it has installed.

    What it has sent and what it has delivered of itself are counted apart: an ABCAST of its own waits for its number
    like any other, and what it sends behind it waits, too.

    1. Of its own multicasts it has delivered no more than it has sent, and the others wait.
    2. What waits to be delivered is of the installed view, and what is kept for later of a later one.
    3. While the view changes it has told all numbers that it has given.
    """

    def __init__(self, me: int, view: View | None, batch: int, follow: bool):
        """`view`: installed at once; None: it joins by the first that it is told. `batch`: so many multicasts are put
        in order by one sets-order; with `follow` that passes the token on to the sender of the last."""
        self.me, self.batch, self.follow = me, batch, follow
        self.views = {view.number: view} if view else {}
        self.latest = view or View(0, (me,))
        self.installed = self.latest.number if view else -1  # -1: no view yet
        self.left = False
        self.seq = 0
        self.delivered: Vector = {}
        self.order = TotalOrder(self.latest.coordinator)
        self.queue: dict[Uid, Cast] = {}
        self.later: dict[Uid, Cast] = {}
        self.waiting: deque[tuple[str, Any]] = deque()  # the application's, while the view changes
        self.copies = Copies(me, lambda: self.latest.everyone)
        self.told: Vector = {}  # the vector of its multicast before
        self.bases: dict[tuple[int, int], Vector] = {}  # by view and sender: that of the last one that came
        self.allow: Callable[[Cast], bool] = lambda cast: True  # False: it waits for something in another group
        self.clock: Callable[[], int] = count().__next__  # numbers what comes, in all groups of a process
        self.since: dict[Uid, int] = {}  # of what waits
        self.stamp: Callable[[], dict[str, Any]] = dict  # what else is on a multicast: of other groups
        self.orphans = 0  # dropped, since what they depend on died with its sender
        self._step = Step()

    @property
    def changing(self) -> bool:
        """Nothing is sent, and the holder of the token orders nothing, until the newest view is installed."""
        return self.latest.number > self.installed

    @property
    def orders(self) -> bool:
        return self.order.holder == self.me and not self.changing

    @property
    def own_waits(self) -> bool:
        return any(cast.sender == self.me for cast in self.queue.values())

    @property
    def owes(self) -> bool:
        """Something is to be told that has time: `tick` does it."""
        return bool(self.order.untold or self.copies.news)

    # -- what comes from the application -------------------------------------------------------------------------------

    def cast(self, body: Any, kind: str = CBCAST) -> Step:
        """To all members of the view; it is sent at once, unless the view changes."""
        self._step = Step()
        self.waiting.append((kind, body))
        self._run()
        return self._step

    def go(self) -> Step:
        """What may go on, since something has happened in another group."""
        self._step = Step()
        self._run()
        return self._step

    @property
    def first(self) -> int | None:
        """When that came which may be delivered now."""
        return min((self.since[cast.uid] for cast in self.queue.values() if self._deliverable(cast)), default=None)

    def deliver(self) -> Step:
        """One that may be."""
        self._step = Step()
        self._deliver()
        return self._step

    @property
    def ready(self) -> bool:
        """What the application sends leaves at once."""
        return not (self.changing or self.left or self.installed < 0 or self._unsettled)

    def tick(self) -> Step:
        """Tell the numbers that wait for a full batch, and what has become stable."""
        self._step = Step()
        if self.order.untold:
            self._announce()
        self._tell_stable()
        self._run()
        return self._step

    def _run(self) -> None:
        while self._deliver() or self._install() or self._send():
            pass
        if self.changing or self._unsettled:
            self._tell_stable()

    def _tell_stable(self) -> None:
        for stable in self.copies.tell():
            self._tell(self.latest.everyone, stable)

    @property
    def _unsettled(self) -> bool:
        """Something of an earlier view may be lost with its sender and with whoever has passed it on; so nothing may be
        sent that depends on it."""
        return any(uid[0] < self.installed for uid in self.copies.kept)

    def _install(self) -> bool:
        raise NotImplementedError

    def _send(self) -> bool:
        if not self.waiting or not self.ready:
            return False
        self._send_next()
        return True

    def _send_next(self) -> None:
        kind, body = self.waiting.popleft()
        if self.order.untold:
            self._announce()
        self._step.deliver.append(Sent(self._emit(kind, body)))

    def _announce(self) -> None:
        """Delivered here before anything else: by that the token moves, and what comes later has another holder. What
        waits for another group may have to go before: then it stays here."""
        orders, waits = self.order.tell(), self.own_waits
        heir = orders[-1][1][1] if self.follow and not waits else self.me
        cast = self._emit(SETS_ORDER, orders=orders, holder=None if heir == self.me else heir)
        if not waits:
            self._hand_over(cast)

    def _emit(self, kind: str, body: Any = None, **more: Any) -> Cast:
        """An ABCAST of the holder has its number, unless it has to wait itself."""
        waits = self.own_waits
        self.seq += 1
        vector = self.delivered | {self.me: self.seq}
        uid = self.installed, self.me, self.seq
        cast = Cast(uid, kind, vector, body, **more)
        if kind != SETS_ORDER:
            cast = replace(cast, **self.stamp())
        if kind == ABCAST and self.orders and not waits and self.allow(cast):
            cast = replace(cast, number=self.order.next)
        changed = {who: many for who, many in vector.items() if who != self.me and self.told.get(who) != many}
        self.told = vector
        members = frozenset(self.views[self.installed].members)
        self._tell(members, Multicast(replace(cast, vector=changed), self.copies.upto(uid[:2])))
        self.copies.keep(cast, members)
        self._take(cast)
        return cast

    def _tell(self, to: Iterable[int], packet: Packet) -> None:
        self._step.send += ((each, packet) for each in sorted(to) if each != self.me)

    # -- what comes from others ----------------------------------------------------------------------------------------

    def _original(self, frm: int, packet: Multicast) -> None:
        """Its vector is whole with what has not changed since the one before, which has come before: links are FIFO."""
        cast = packet.cast
        run = cast.view, frm
        vector = self.bases[run] = self.bases.get(run, {}) | cast.vector | {frm: cast.seq}
        self._tell([frm], Ack(cast.uid))
        self.copies.told(Stable(*run, packet.stable))
        self._arrive(frm, replace(cast, vector=vector))

    def _arrive(self, frm: int, cast: Cast) -> None:
        """Its view is known here."""
        self.copies.keep(cast, frozenset(self.views[cast.view].members))
        self.copies.heard(cast.uid, frm)
        self.copies.heard(cast.uid, cast.sender)
        self._take(cast)

    def _take(self, cast: Cast) -> None:
        """What is of an earlier view, or here already, is not needed any more."""
        if cast.view > self.installed:
            self.later[cast.uid] = cast
        elif cast.view == self.installed and cast.seq > self.delivered.get(cast.sender, 0):
            self.queue[cast.uid] = cast
            self._learn(cast)
        else:
            return
        self.since.setdefault(cast.uid, self.clock())

    def _learn(self, cast: Cast) -> None:
        """On receipt: a sets-order waits for what it puts in order, which would wait for it."""
        self.order.learn(cast.orders)
        if cast.number:
            self.order.learn([(cast.number, cast.uid)])

    # -- delivery ------------------------------------------------------------------------------------------------------

    def _in_turn(self, cast: Cast) -> bool:
        delivered = self.delivered
        return delivered.get(cast.sender, 0) + 1 == cast.seq and all(
            many <= delivered.get(who, 0) for who, many in cast.vector.items() if who != cast.sender
        )

    def _deliverable(self, cast: Cast) -> bool:
        if not self._in_turn(cast) or not self.allow(cast):
            return False
        if cast.kind != ABCAST or self.order.is_next(cast.uid):
            return True
        return self.orders and cast.uid not in self.order.numbers

    def _deliver(self) -> bool:
        """One that may be; its own before others', so that whoever has the token has nothing of its own that waits."""
        ready = [cast for cast in self.queue.values() if self._deliverable(cast)]
        mine = [cast for cast in ready if cast.sender == self.me]
        if not mine and len(self.order.untold) >= self.batch:
            self._announce()
        elif ready:
            self._hand_over(min(mine or ready, key=lambda cast: self.since[cast.uid]))
        else:
            return False
        return True

    def _hand_over(self, cast: Cast) -> None:
        assert self._in_turn(cast), f"{cast.uid} is delivered before its causes"
        del self.queue[cast.uid], self.since[cast.uid]
        self.delivered[cast.sender] = cast.seq
        if cast.kind != SETS_ORDER:
            self._step.deliver.append(cast)
        elif cast.holder is not None:
            self.order.holder = cast.holder
        if cast.kind == ABCAST and (self.orders or cast.uid in self.order.numbers):
            self.order.take(cast.uid)

    def check(self) -> None:
        own = self.delivered.get(self.me, 0)
        waiting = {cast.seq for cast in self.queue.values() if cast.sender == self.me}
        assert {*range(own + 1, self.seq + 1)} == waiting, f"invariant 1: {own} of {self.seq}, {waiting}"
        assert all(cast.view == self.installed for cast in self.queue.values()), "invariant 2: of another view"
        assert all(cast.view > self.installed for cast in self.later.values()), "invariant 2: of no later view"
        assert not self.changing or not self.order.untold, f"invariant 3: {self.order.untold}"
        self.copies.check()
        self.order.check()
