"""Who is in a group: the one source of its views, as the group view server of Isis (paper 003, §7.4)."""

from collections.abc import Mapping

from mombroker.lab.isis.messages import View


class Membership:
    """Each view adds one member or takes one away, and is told to all that are in it or leave by it.

    1. A group has a member.
    """

    def __init__(self, members: tuple[int, ...]):
        self.view = View(1, members)
        self.installed: dict[int, int] = dict.fromkeys(members, 1)

    def join(self, who: int) -> View:
        self.installed[who] = self.view.number
        return self._next((*self.view.members, who), {})

    def leave(self, who: int) -> View:
        """It takes part in flushes until all that are left have installed the view without it."""
        return self._next(self._without(who), {who: self.view.number + 1})

    def fail(self, who: int) -> View | None:
        """None: it had left, and nobody waits for it."""
        if who not in self.view.everyone:
            return None
        return self._next(self._without(who), {}, self.view.failed | {who})

    def flush(self) -> View:
        """The same members again: a view of its own for a flush (§6.7)."""
        return self._next(self.view.members, {})

    def has_installed(self, who: int, number: int) -> None:
        self.installed[who] = number

    def _without(self, who: int) -> tuple[int, ...]:
        return tuple(each for each in self.view.members if each != who)

    def _next(self, members: tuple[int, ...], more: Mapping[int, int], failed: frozenset[int] | None = None) -> View:
        assert members, "invariant 1: nobody would be left"
        failed = self.view.failed if failed is None else failed
        least = min(self.installed[each] for each in members)
        leaving = {
            who: without
            for who, without in {**self.view.leaving, **more}.items()
            if who not in failed and least < without
        }
        self.view = View(self.view.number + 1, members, leaving, failed)
        return self.view
