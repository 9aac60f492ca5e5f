"""One agent's membership of a group, on the agent's server: what is delivered in which view (protocols §7)."""

from __future__ import annotations

from typing import Any

from mombroker.core.groups.view import Cast, View

UNKNOWN = 1 << 62  # greater than any number of casts


class Member:
    """1. Casts are delivered in the view that they were made in, those of each member in its order, and those in total
       order in that.
    2. A view ends when all its casts are delivered that its successor names; others of it are refused.
    3. From its FLUSH to the next view an agent makes no casts, and those of members that are out are doubtful, with all
       that is behind them: they are delivered where they stand, and the next view says whether they belong to this one.

    number     of the view that it is in; 0: it has asked to join, and is in none yet
    members    of that view
    sent       its own casts in it
    had        casts of each member that were delivered in it
    placed     of those in total order it has had this one last; UNKNOWN: an older program has not kept it
    doubtful   of each member that has made such, casts with those behind them that may not belong to it
    inhibited  it has flushed, or is to
    barred     members that are out
    held       what waits: casts, and views
    """

    __slots__ = (
        "agent", "number", "members", "sent", "had", "placed", "doubtful", "told", "inhibited", "barred", "held",
    )  # fmt: skip

    def __init__(self, agent: str):
        self.agent, self.number, self.sent = agent, 0, 0
        self.members: list[str] = []
        self.had: dict[str, int] = {}
        self.placed = 0
        self.doubtful: dict[str, int] = {}
        self.told: dict[str, int] = {}  # of `had`, what its last cast has said
        self.inhibited = False
        self.barred: list[str] = []
        self.held: list[Cast | View] = []

    @property
    def inside(self) -> bool:
        return self.agent in self.members

    def cast(self) -> Cast:
        """Its next one."""
        assert self.inside and not self.inhibited, "it may not cast now"
        self.sent += 1
        after = {each: count for each, count in self.had.items() if each != self.agent and self.told.get(each) != count}
        self.told = dict(self.had)
        return Cast(self.number, self.agent, self.sent, after)

    def prepare(self, number: int, out: list[str]) -> dict[str, int] | None:
        """The next view is being made: what to tell its home; None: what comes before that has not come yet."""
        if self.number + 1 != number:
            return None
        self.inhibited = True
        self.barred += [agent for agent in out if agent not in self.barred]
        return {self.agent: self.sent, **{agent: self.had.get(agent, 0) for agent in self.barred}}

    def offer(self, item: Cast | View) -> tuple[list[Cast | View], list[Cast | View]]:
        """Something has come. What is delivered now, in this order, and casts that are refused: who is in no view is
        told the first one before its casts."""
        if type(item) is Cast and not self.number:
            return [], [item]
        if item.number < self.number or (type(item) is View and item.number == self.number):
            return [], [item] if type(item) is Cast else []
        if type(item) is Cast and item.number == self.number and item.seq and item.seq <= self._seen(item.sender):
            return [], []  # one that has been forwarded, too
        self.held.append(item)
        return self.go_on()

    def go_on(self) -> tuple[list[Cast | View], list[Cast | View]]:
        """What of all that waits is delivered now, and what is refused."""
        done: list[Cast | View] = []
        refused: list[Cast | View] = []
        while (found := next((each for each in self.held if self._is_due(each)), None)) is not None:
            self.held.remove(found)
            done.append(found)
            if type(found) is View:
                refused += self._install(found)
            elif type(found) is Cast:
                self._deliver(found)
        return done, refused

    def _seen(self, agent: str) -> int:
        return self.doubtful.get(agent) or self.had.get(agent, 0)

    def _deliver(self, cast: Cast) -> None:
        sender, had = cast.sender, self.had
        if not cast.seq:
            self.placed = cast.place or self.placed
        elif sender in self.barred or sender in self.doubtful or any(
            had.get(agent, 0) < count for agent, count in cast.after.items()
        ):  # fmt: skip
            cast.behind = had.get(sender, 0)
            self.doubtful[sender] = cast.seq
        else:
            had[sender] = cast.seq

    def _is_due(self, item: Cast | View) -> bool:
        if type(item) is View:
            if not self.inside:  # the one that it joins with may be lost: it begins with no other one
                return self.agent in item.joined or self.agent not in item.members
            return item.number == self.number + 1 and self._ends(item)
        if type(item) is not Cast or item.number != self.number:
            return False
        if not item.seq:
            return item.place <= self.placed + 1
        return item.seq == self._seen(item.sender) + 1 and all(
            self._seen(agent) >= count for agent, count in item.after.items()
        )

    def _ends(self, view: View) -> bool:
        """Is all delivered that the next view names?"""
        return self.placed >= view.placed and all(self._seen(agent) >= count for agent, count in view.cut.items())

    def _install(self, view: View) -> list[Cast | View]:
        self.number, self.members = view.number, view.members
        self.sent, self.had, self.doubtful, self.told, self.barred, self.inhibited = 0, {}, {}, {}, [], False
        self.placed = 0
        late = [each for each in self.held if each.number < view.number]
        self.held = [each for each in self.held if each.number >= view.number]
        return late

    # -- its row -----------------------------------------------------------------------------------------------------

    def values(self) -> list[Any]:
        values = [self.agent, self.number, self.members, self.sent, self.had, self.told, self.inhibited, self.barred]
        return [*values, self.doubtful, self.placed]

    def load(self, values: list[Any]) -> None:
        _, self.number, self.members, self.sent, self.had, self.told, self.inhibited, self.barred, *more = values[:10]
        self.doubtful = more[0] if more else {}
        self.placed = more[1] if len(more) > 1 else UNKNOWN

    def check(self) -> None:
        assert all(each.number >= self.number for each in self.held), "1: a cast of a view that is over waits"
        assert not any(self._is_due(each) for each in self.held), "2: what is due waits"
        assert self.inhibited or not self.barred, "3: somebody is out, and no view follows"
        assert self.barred or not self.doubtful, "3: a cast is doubtful, and nobody is out"
