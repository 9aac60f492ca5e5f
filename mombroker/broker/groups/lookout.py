"""Lookout: which members are down, as far as the home of their group can see. It asks the servers of members, while
somebody wants to know, and goes on without who is down for longer than the others wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mombroker.broker.groups.notes import MemberDown, MemberUp, Probe
from mombroker.broker.wire import Note
from mombroker.core import times
from mombroker.core.transaction import Transaction

PROBES = 3  # that are not answered: the server is down


class Around(Protocol):
    """What it needs of the home."""

    tx: Transaction
    id: str

    def servers_of_members(self) -> dict[str, list[str]]: ...  # other servers of this bus, and whose they are
    def ask(self, server: str, note: Note) -> None: ...
    def tell_members(self, agents: list[str], note: Note) -> None: ...
    def exclude(self, agent: str) -> None: ...
    def alarm_at(self, at: int) -> None: ...
    def change(self) -> None: ...


class Lookout:
    """1. Who is down is a server that has members.
    2. Of each that is down it is known what its members were told: they are told no more until it answers.

    wants    by agent: for how long others wait for it when it is down (ns; 0: for ever), and whether it is to be told
             who is down
    down     servers that do not answer, since when
    known    by each of these: those of which its members were told that they are down
    asked    those that have not answered the last question, since when; in memory only
    rings    an alarm is to come
    """

    __slots__ = ("home", "name", "wants", "down", "known", "asked", "rings")

    def __init__(self, home: Around, name: str):
        self.home, self.name = home, name
        self.wants: dict[str, tuple[int, bool]] = {}
        self.down: dict[str, int] = {}
        self.known: dict[str, list[str]] = {}
        self.asked: dict[str, int] = {}
        self.rings = False

    def values(self) -> list[Any]:
        return [self.wants, self.down, self.known]

    def load(self, values: list[Any]) -> None:
        wants, self.down, *known = values[:3]
        self.known = known[0] if known else {each: [*self.down] for each in self.down}  # an older program tells all
        self.wants = {agent: (patience, told) for agent, (patience, told) in wants.items()}

    def joins(self, agent: str, patience: int, told: bool) -> None:
        """An agent asks to be a member."""
        self.wants.pop(agent, None)
        if patience or told:
            self.wants[agent] = patience, told

    def go_on(self, keeps: Callable[[str], bool]) -> None:
        """Members have changed, or the server has started. `keeps`: is an agent a member, or is it to be one?"""
        self.wants = {agent: want for agent, want in self.wants.items() if keeps(agent)}
        there = self.home.servers_of_members() if self.wants else {}
        for those in (self.asked, self.down, self.known):
            for server in [server for server in those if server not in there]:
                del those[server]
        self.known = {server: [each for each in those if each in there] for server, those in self.known.items()}
        if there and not self.rings:
            self.rings = True
            self.home.alarm_at(times.after(self.home.tx.now, self.home.tx.limits.probe_ns))

    def alarm(self, keeps: Callable[[str], bool]) -> None:
        self.rings, now = False, self.home.tx.now
        long = PROBES * self.home.tx.limits.probe_ns
        self.go_on(keeps)
        for server, agents in self.home.servers_of_members().items() if self.rings else ():
            if server not in self.asked:
                self.asked[server] = now
                self.home.ask(server, Probe(self.name))
            elif now - self.asked[server] >= long and server not in self.down:
                self.known[server] = [*self.down]
                self.down[server] = self.asked[server]
                self._tell(MemberDown(self.name, agents), self._listeners())
                self.home.change()
            if server in self.down:
                for agent in agents:
                    patience, _ = self.wants.get(agent, (0, False))
                    if patience and now - self.down[server] >= patience:
                        self.home.exclude(agent)

    def answers(self, server: str) -> None:
        self.asked.pop(server, None)
        if self.down.pop(server, None) is None:
            return
        there, known, listeners = self.home.servers_of_members(), self.known.pop(server), self._listeners()
        back = there.get(server, [])
        self._tell(MemberUp(self.name, back), [agent for agent in listeners if agent not in back])
        missed = [(MemberDown, each) for each in self.down if each not in known]
        missed += [(MemberUp, each) for each in known if each not in self.down]
        for kind, each in missed:
            if each in there:
                self._tell(kind(self.name, there[each]), [agent for agent in listeners if agent in back])
        self.home.change()

    def _listeners(self) -> list[str]:
        """Who wants to know, and is not down itself: what it was told meanwhile would pile up."""
        there = self.home.servers_of_members()
        away = {agent for server in self.down for agent in there.get(server, ())}
        return [agent for agent, (_, told) in self.wants.items() if told and agent not in away]

    def _tell(self, note: Note, agents: list[str]) -> None:
        self.home.tell_members(agents, note)

    def check(self) -> None:
        assert {*self.down} <= {*self.home.servers_of_members()}, "1: a server is down that has no member"
        assert self.known.keys() == self.down.keys(), "2: what is missed by who is down is unknown"
