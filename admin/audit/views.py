"""Views of groups: have the members of each delivered the same casts in it, those of each sender in one order?

Judged from reactions alone, given causes first. A member is held to the casts of a view when it comes to the next one
and is in that, too: who has left, or was put out, may have had more or less of its last view, and nobody knows yet who
will be in the one after the last.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mombroker.core.ids import identity

MessageId = tuple[str, int]
Key = tuple[str, int]  # the home of a group, and the number of a view
Finding = tuple[str, str, int, MessageId, str]  # agent, group, number of the view, cast, what is wrong
MISSED, ORDER, OUTSIDE = "missed", "out of order", "outside its view"


@dataclass(slots=True)
class _View:
    """`open` and `placed` are casts that somebody may still get: by their ids, and by sender and place in its order."""

    group: str
    key: Key
    members: frozenset[str]
    announced: bool = False
    unsure: set[str] = field(default_factory=set)  # whose reaction to it has failed
    made: dict[str, int] = field(default_factory=dict)  # casts of each sender
    had: dict[str, dict[str, int]] = field(default_factory=dict)  # by agent and sender: the last that it has had
    open: dict[MessageId, "_Cast"] = field(default_factory=dict)
    placed: dict[tuple[str, int], "_Cast"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Cast:
    """left     who may still get it
    skipped  who has had a later one of its sender, and not this one yet
    missed   who is in the next view, and came to that without it
    kept     somebody who is in the next view has had it
    """

    id: MessageId
    view: _View
    sender: str
    place: int
    left: set[str]
    skipped: set[str] = field(default_factory=set)
    missed: list[str] = field(default_factory=list)
    kept: bool = False


class Views:
    """Kept is what each agent has had of the view that it is in, and the casts that are under way.

    of      by the message that has announced it
    moved   agents that were on several servers: what they did is not judged
    """

    def __init__(self) -> None:
        self.of: dict[MessageId, _View] = {}
        self.moved: Collection[str] = ()
        self.findings: list[Finding] = []
        self._views: dict[Key, _View] = {}
        self._told: dict[MessageId, Key] = {}
        self._casts: dict[MessageId, _Cast] = {}
        self._in: dict[tuple[str, str], _View] = {}  # by agent and group
        self._open: dict[str, dict[Key, _View]] = {}  # by group: views with casts that are under way

    def view(self, id: MessageId, detail: str) -> None:
        """A record `view`: all of them are to be known first."""
        said = json.loads(detail)
        if id not in self.of and "home" in said:  # else of an older program
            key = str(said["home"]), int(said["number"])
            self.of[id] = view = _View(said["group"], key, frozenset(map(identity, said["members"])))
            if key[0]:
                self._views[key] = view

    def cast(self, id: MessageId, detail: str) -> None:
        """A record `cast`: the message that is sent next is one."""
        said = json.loads(detail)
        self._told[id] = str(said["home"]), int(said["number"])

    def concerns(self, id: MessageId) -> bool:
        """Is a message a view, or a cast that is not sent yet?"""
        return id in self._told or id in self.of

    def sent(self, sender: str, id: MessageId, dests: Iterable[str], excused: Collection[str]) -> None:
        """A view or a cast. Of those that are `excused` it is known that they do not react to it."""
        if (view := self.of.get(id)) is not None:
            view.announced = True
            view.unsure.update(excused)
        key = self._told.pop(id, None)
        if key is None or (view := self._views.get(key)) is None:
            return
        place = view.made[sender] = view.made.get(sender, 0) + 1
        left = {each for each in dests if each not in excused and each not in self.moved}
        if left:
            made = self._casts[id] = view.open[id] = view.placed[sender, place] = _Cast(id, view, sender, place, left)
            self._open.setdefault(made.view.group, {})[key] = view

    def reacted(self, agent: str, id: MessageId) -> None:
        """An agent has come into a view, or got a cast."""
        if agent in self.moved:
            return
        if (view := self.of.get(id)) is not None:
            self._enters(agent, view)
        elif (cast := self._casts.get(id)) is not None and (agent in cast.left or agent in cast.skipped):
            self._gets(agent, cast)

    def finish(self) -> list[Finding]:
        """What is wrong, in an order that depends on nothing else."""
        for cast in self._casts.values():
            self._judge(cast)
        self.findings.sort()
        return self.findings

    def _survives(self, agent: str, view: _View) -> bool:
        following = self._views.get((view.key[0], view.key[1] + 1))
        return following is not None and agent in view.members and agent in following.members

    def _enters(self, agent: str, view: _View) -> None:
        """It goes from one view to the next; what it has not got by now of former ones it does not get there."""
        former = self._in.pop((agent, view.group), None)
        follows = former is not None and (former.key[0], former.key[1] + 1) == view.key
        for other in list(self._open.get(view.group, {}).values()):
            if other is former or (other.key[0] == view.key[0] and other.key[1] < view.key[1]):
                self._passes(agent, other, other is former and follows and self._survives(agent, other))
        if former is not None:
            former.had.pop(agent, None)
        if agent in view.members:
            self._in[agent, view.group] = view

    def _passes(self, agent: str, view: _View, judged: bool) -> None:
        for cast in list(view.open.values()):
            if agent in cast.left:
                cast.left.remove(agent)
                if judged:
                    cast.missed.append(agent)
            elif agent in cast.skipped:
                cast.skipped.remove(agent)
                self._wrong(agent, cast, MISSED)
            self._close(cast)

    def _gets(self, agent: str, cast: _Cast) -> None:
        view = cast.view
        now = self._in.get((agent, view.group))
        if now is not view:
            if view.announced and agent not in view.unsure and (now is not None or agent not in view.members):
                self._wrong(agent, cast, OUTSIDE)
            elif now is not None:  # it has come out of that unseen
                self._passes(agent, now, False)
                del self._in[agent, view.group]
            cast.left.discard(agent)
            cast.skipped.discard(agent)
        else:
            self._in_order(agent, cast)
            cast.kept = cast.kept or self._survives(agent, view)
        self._close(cast)

    def _in_order(self, agent: str, cast: _Cast) -> None:
        view, had = cast.view, cast.view.had.setdefault(agent, {})
        if agent in cast.skipped:
            cast.skipped.remove(agent)
            self._wrong(agent, cast, ORDER)
            return
        cast.left.remove(agent)
        last, had[cast.sender] = had.get(cast.sender, 0), cast.place
        for place in range(last + 1, cast.place):
            between = view.placed.get((cast.sender, place))
            if between is not None and agent in between.left:
                between.left.remove(agent)
                between.skipped.add(agent)

    def _close(self, cast: _Cast) -> None:
        if not cast.left and not cast.skipped:
            self._judge(cast)
            view = cast.view
            del self._casts[cast.id], view.open[cast.id], view.placed[cast.sender, cast.place]
            if not view.open:
                del self._open[view.group][view.key]
            if not self._open[view.group]:
                del self._open[view.group]

    def _judge(self, cast: _Cast) -> None:
        for agent in [*(cast.missed if cast.kept else ()), *cast.skipped]:
            self._wrong(agent, cast, MISSED)

    def _wrong(self, agent: str, cast: _Cast, what: str) -> None:
        self.findings.append((agent, cast.view.group, cast.view.key[1], cast.id, what))


def excused(dests: Iterable[str], id: MessageId, ended: Collection[tuple[str, MessageId]],
            refused: Collection[tuple[str, MessageId]]) -> list[str]:  # fmt: skip
    """Who does not react to a message for another reason than that it is of no view of its own."""
    return [agent for agent in dests if (agent, id) in ended and (agent, id) not in refused]
