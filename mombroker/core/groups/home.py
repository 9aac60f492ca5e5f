"""The home of a group: it decides the views (protocols §7.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from mombroker.core.groups.view import View

JOIN, LEAVE = "join", "leave"
MOST_WISHES = 16  # of an agent


@dataclass(slots=True)
class Change:
    """The next view, until all that are asked have flushed.

    out      members that are not asked, and are not in the next view
    waits    servers that have not flushed yet
    attempt  how often they were asked: once more whenever somebody else is out
    lost     those that are lost with their servers, and are told nothing
    """

    members: list[str]
    joined: list[str]
    out: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    attempt: int = 0
    cut: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def values(self) -> list[Any]:
        return [self.members, self.joined, self.out, self.waits, self.attempt, self.cut, self.lost]


class Home:
    """1. There is one change at a time, and it waits for somebody.
    2. Who wishes to join or leave, and is not dealt with yet, is in `wishes`; without a change only members that have
       still to give others their state.
    3. Members without a state are members, and somebody else is to give them one, as of a view that has said so.

    number    of the view
    members   of it, the eldest first
    lacking   those that have not got a state yet, and who is to give them one; empty: nobody can as yet
    since     the view as of which each of these is to get it
    wishes    what agents have asked for, the first one first: (JOIN, agent, whether it needs a state) or (LEAVE, agent,
              whether it gives none any more)
    heard     of agents that have asked to join: by which message, the last time
    refused   those that are told with the next view that they are not in it
    placed    casts of the view in total order
    """

    __slots__ = (
        "where",
        "prepare",
        "announce",
        "number",
        "members",
        "lacking",
        "since",
        "wishes",
        "change",
        "needs",
        "acks",
        "stable",
        "heard",
        "refused",
        "placed",
    )

    def __init__(
        self,
        where: Callable[[str], str],
        prepare: Callable[[list[str], int, int, list[str]], None],
        announce: Callable[[View, list[str]], None],
    ):
        """`where`: the server of an agent. `prepare` asks servers to flush: of which view, which attempt, without
        whom. `announce` tells agents a view."""
        self.where, self.prepare, self.announce = where, prepare, announce
        self.number = 0
        self.members: list[str] = []
        self.lacking: dict[str, str] = {}
        self.since: dict[str, int] = {}
        self.wishes: list[tuple[str, str, bool]] = []
        self.heard: dict[str, int] = {}
        self.refused: list[str] = []
        self.needs: list[str] = []  # joiners of the change that need a state
        self.change: Change | None = None
        self.acks: dict[str, dict[str, int]] = {}  # of servers: casts of the view that they have
        self.stable = 0  # casts of the view that all are known to have
        self.placed = 0

    # -- what members want -------------------------------------------------------------------------------------------

    def wish(self, what: str, agent: str, needs: bool = False, number: int = 0) -> None:
        """An agent is to join or leave, by a message with this number. Who is what it wishes to be stays that; one that
        goes to and fro while a view is made is in no more than so many of those that follow."""
        if what == JOIN:
            self.heard[agent] = number
        mine = [at for at, (_, other, _) in enumerate(self.wishes) if other == agent]
        if mine and self.wishes[mine[-1]][0] == what:
            if what == JOIN:
                self.wishes[mine[-1]] = what, agent, needs
        elif len(mine) < MOST_WISHES:
            self.wishes.append((what, agent, needs))
        else:  # it is back where it was before the last one
            del self.wishes[mine[-1]]
        self._begin()

    def close(self) -> None:
        """All are to leave, and nobody joins who has asked so far."""
        joined = self.change.joined if self.change is not None else []
        self._refuse(agent for what, agent, _ in self.wishes if what == JOIN and agent not in joined)
        self.wishes = [(LEAVE, agent, False) for agent in self.members]
        self.wishes += [(LEAVE, agent, False) for agent in joined]
        self._begin()

    def _refuse(self, agents: Iterable[str]) -> None:
        """These have asked to join, and do not."""
        there = {*self.members, *self.refused}
        self.refused += [agent for agent in dict.fromkeys(agents) if agent not in there]

    def restored(self, agent: str, number: int = 0) -> None:
        """A member has got its state as of a view. That of a former view does not count: it has left and joined again
        since, or its giver was out. 0: an older program does not say of which."""
        if number and self.since.get(agent, number) != number:
            return
        self.since.pop(agent, None)
        if self.lacking.pop(agent, None):
            self._begin()

    def leave(self, agent: str, gives: bool = True) -> None:
        """An agent is to leave, when it has given what it is to give. Unless it `gives`: whoever waits for its state
        gets another one's, with the next view, and so does who joins until it is out."""
        if not gives:
            self._gone(agent)
        self.wish(LEAVE, agent)
        if not gives:
            self.wishes = [(what, each, more or (what, each) == (LEAVE, agent)) for what, each, more in self.wishes]

    def _gone(self, agent: str) -> None:
        self.lacking = {each: "" if giver == agent else giver for each, giver in self.lacking.items()}

    def _begin(self) -> None:
        if self.change is not None:
            return
        members, joined, left = list(self.members), list[str](), list[str]()
        self.needs = []
        wishes, self.wishes, givers = self.wishes, [], set(self.lacking.values())
        for what, agent, needs in wishes:
            waits = what == LEAVE and agent in givers
            if waits or agent in joined or agent in left or any(agent == later for _, later, _ in self.wishes):
                self.wishes.append((what, agent, needs))  # in a later change
            elif what == JOIN and agent not in members:
                members.append(agent)
                joined.append(agent)
                if needs:
                    self.needs.append(agent)
            elif what == LEAVE and agent in members:
                members.remove(agent)
                left.append(agent)
        if joined or left:
            self.change = Change(members, joined)
            self._ask()

    def _ask(self) -> None:
        """Have all members flush that are there."""
        change = self.change
        assert change is not None, "nothing is to change"
        change.attempt += 1
        change.cut = {}
        change.waits = list(dict.fromkeys(self.where(agent) for agent in self.members if agent not in change.out))
        if change.waits:
            self.prepare(list(change.waits), self.number + 1, change.attempt, list(change.out))
        else:
            self._install()

    def place(self) -> int:
        """That of one more cast in total order."""
        self.placed += 1
        return self.placed

    # -- what servers say --------------------------------------------------------------------------------------------

    def flushed(self, server: str, number: int, attempt: int, casts: dict[str, int]) -> None:
        """A server has flushed. `casts`: of its members, how many each has made in the view that ends; of those that
        are out, how many it has delivered."""
        change = self.change
        if change is None or (number, attempt) != (self.number + 1, change.attempt) or server not in change.waits:
            return
        change.waits.remove(server)
        for agent, count in casts.items():
            change.cut[agent] = max(count, change.cut.get(agent, 0))
        if not change.waits:
            self._install()

    def acked(self, server: str, number: int, casts: dict[str, int], every: int) -> dict[str, int]:
        """A server has so many casts of each member of the view. What all have, if `every` more are stable now."""
        if number != self.number:
            return {}
        self.acks[server] = casts
        servers = {self.where(agent) for agent in self.members}
        if not servers <= self.acks.keys():
            return {}
        stable = {agent: min(self.acks[each].get(agent, 0) for each in servers) for agent in self.members}
        if sum(stable.values()) - self.stable < every:
            return {}
        self.stable = sum(stable.values())
        return stable

    def late(self, least: int) -> dict[str, list[str]]:
        """Of members whose casts are still to come to some: the servers that have told of so many fewer than another
        one has."""
        servers = dict.fromkeys(self.where(agent) for agent in self.members)
        found = dict[str, list[str]]()
        for agent in self.members:
            had = {server: self.acks.get(server, {}).get(agent, 0) for server in servers}
            if those := [server for server in servers if max(had.values()) - had[server] >= least]:
                found[agent] = those
        return found

    def exclude(self, agents: Iterable[str], lost: bool = False) -> None:
        """Nobody waits for these any more. `lost`: with their servers."""
        gone = {*agents}
        if lost:
            self.wishes = [wish for wish in self.wishes if wish[1] not in gone]
            self.refused = [agent for agent in self.refused if agent not in gone]
        if self.change is None and not gone.isdisjoint(self.members):
            self.needs = []
            self.change = Change(list(self.members), [])
        change = self.change
        if change is None:
            return
        out = [agent for agent in self.members if agent in gone and agent not in change.out]
        if lost:
            change.lost += [agent for agent in self.members if agent in gone and agent not in change.lost]
        if out or not gone.isdisjoint(change.joined):
            change.out += out
            if not lost:
                self._refuse(agent for agent in change.joined if agent in gone)
            change.joined = [agent for agent in change.joined if agent not in gone]
            change.members = [agent for agent in change.members if agent not in gone]
            self._ask()

    def _install(self) -> None:
        change = self.change
        assert change is not None, "nothing is to change"
        old, self.members, self.change = self.members, change.members, None
        self.number += 1
        self.acks, self.stable = {}, 0
        left = [agent for agent in old if agent not in change.members]
        for agent in change.out:
            self._gone(agent)
        needs = [agent for agent in self.needs if agent in change.joined]
        self.lacking = {agent: giver for agent, giver in self.lacking.items() if agent in change.members}
        self.lacking |= dict.fromkeys(needs, "")
        lacking, giver = [agent for agent, giver in self.lacking.items() if not giver], self._giver(change.joined)
        self.lacking |= dict.fromkeys(lacking, giver)
        for agent in lacking:
            if giver in ("", agent):
                del self.lacking[agent]
        self.since |= dict.fromkeys(lacking, self.number)
        self.since = {agent: number for agent, number in self.since.items() if agent in self.lacking}
        told = [agent for agent in old if agent not in change.lost]
        told += [*change.joined, *(agent for agent in self.refused if agent not in change.joined)]
        self.refused = []
        vain, placed, self.placed = self._vain(told), self.placed, 0
        view = View(self.number, list(self.members), change.joined, left, giver, lacking, change.cut, vain, placed)
        self.announce(view, told)
        self._begin()

    def _vain(self, told: list[str]) -> dict[str, int]:
        """What has come to nothing of those that are told a view and are not in it."""
        joins = {agent for what, agent, _ in self.wishes if what == JOIN}
        self.heard = {agent: number for agent, number in self.heard.items() if agent in {*told, *joins}}
        return {
            agent: self.heard[agent] for agent in told
            if agent in self.heard and agent not in self.members and agent not in joins
        }  # fmt: skip

    def _idle(self) -> set[str]:
        """Who gives nothing any more."""
        return {agent for what, agent, idle in self.wishes if what == LEAVE and idle}

    def _giver(self, joined: list[str]) -> str:
        """Who gives its state: the eldest member that has one, or is to get one, or begins without."""
        idle = self._idle()
        old = [agent for agent in self.members if agent not in joined and agent not in idle]
        able = [agent for agent in old if agent not in self.lacking] or [agent for agent in old if self.lacking[agent]]
        return next(iter(able or old), "")

    # -- its row -----------------------------------------------------------------------------------------------------

    def values(self) -> list[Any]:
        change = self.change and self.change.values()
        values = [self.number, self.members, self.lacking, self.wishes, self.needs, change, self.since]
        return [*values, self.heard, self.refused, self.placed]

    def load(self, values: list[Any]) -> None:
        self.number, self.members, self.lacking, wishes, self.needs, change, *more = values[:10]
        self.wishes = [(what, agent, needs) for what, agent, needs in wishes]
        self.change = Change(*change) if change else None
        self.since = more[0] if more else {}  # an older program has kept none
        if len(more) > 1:
            self.heard, self.refused = more[1:3]
        self.placed = more[3] if len(more) > 3 else 0

    def check(self) -> None:
        assert self.change is None or self.change.waits, "1: a change waits for nobody"
        givers = set(self.lacking.values())
        assert self.change is not None or all(agent in givers for _, agent, _ in self.wishes), "2: a wish is forgotten"
        assert set(self.since) <= set(self.lacking) <= set(self.members), "3: who has left, or has a state, lacks one"
