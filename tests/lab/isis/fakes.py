"""Members of a group that are broken on purpose: what the outsider must catch (protocols §12.2). Nothing is for use."""

from typing import Any

from mombroker.lab.isis.member import Member
from mombroker.lab.isis.messages import ABCAST, SETS_ORDER, Cast, Step, View
from mombroker.lab.isis.several import Process


class NoFlush(Member):
    """Installs a view as soon as it is told of it."""

    def _complete(self, number: int, following: View) -> bool:
        return True


class NoWait(Member):
    """Goes on sending while the view changes."""

    def _send(self) -> bool:
        if not self.waiting or self.left or self.installed not in self.views:
            return False
        self._send_next()
        return True

    def check(self) -> None:
        """Its own invariant is broken with it."""


class InTheQueue(Member):
    """A sets-order counts when it is delivered, as printed (IS1): it waits for what waits for it."""

    def _learn(self, cast: Cast) -> None:
        if cast.kind != SETS_ORDER or cast.sender == self.me:
            super()._learn(cast)

    def _hand_over(self, cast: Cast) -> None:
        super()._hand_over(cast)
        self.order.learn(cast.orders)


class Unnumbered(Member):
    """The holder's own ABCASTs have no number (IS2)."""

    def _emit(self, kind: str, body: Any = None, **more: Any) -> Cast:
        holds, self.order.holder = self.order.holder, -1 if kind == ABCAST else self.order.holder
        try:
            return super()._emit(kind, body, **more)
        finally:
            self.order.holder = holds

    def _deliverable(self, cast: Cast) -> bool:
        own = cast.kind == ABCAST and cast.sender == self.order.holder and cast.uid not in self.order.numbers
        return self._in_turn(cast) if own else super()._deliverable(cast)

    def _hand_over(self, cast: Cast) -> None:
        before = len(self.order.untold)
        super()._hand_over(cast)
        if cast.kind == ABCAST and cast.sender == self.me and len(self.order.untold) > before:
            number, uid = self.order.untold.pop()
            del self.order.numbers[uid]
            self.order.next = number


class Silent(Member):
    """A holder that lives says nothing of what it has ordered before it flushes (IS5)."""

    def see(self, view: View) -> Step:
        self.order.untold.clear()
        return super().see(view)


class Forgets(Member):
    """Copies are dropped when a view is installed (IS3)."""

    def _install(self) -> bool:
        installed = super()._install()
        if installed:
            self.copies.kept.clear()
        return installed


class Once(Member):
    """What was said again once is stable (IS4); to a coordinator that may fail before it has passed it on."""

    def _say_again(self, view: View) -> None:
        super()._say_again(view)
        if not self._leads(view):
            self.copies.kept = {uid: kept for uid, kept in self.copies.kept.items() if uid[0] >= view.number}


class Hasty(Member):
    """Sends in a new view though something of an earlier one may still be lost."""

    @property
    def _unsettled(self) -> bool:
        return False


class ItsOwnToo(Process):
    """Rule 2.3' with the group of the multicast among those compared (IS6)."""

    def _stamp(self, gid: str) -> dict[str, Any]:
        found = super()._stamp(gid)
        member = self.groups[gid]
        found["others"] = {**found["others"], gid: (member.installed, member.delivered | {self.me: member.seq})}
        return found

    def _compared(self, gid: str, cast: Cast) -> list[str]:
        return [other for other in cast.others if other in self.groups]


class InOrderOfReceipt(Process):
    """What came before in another group is delivered before, by the letter of §6.3 (IS7)."""

    def _may(self, gid: str, cast: Cast) -> bool:
        since = self.groups[gid].since.get(cast.uid, 0)
        before = (when for other, each in self.groups.items() if other != gid for when in each.since.values())
        return super()._may(gid, cast) and all(when > since for when in before)
