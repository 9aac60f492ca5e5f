"""Members that are told who is down (Guard in partners.py): at the end a server is down for a while, and all else is
well. Whether they were told all that, and nothing twice, is judged by what all agents have kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mombroker.broker.groups.group import Group
from mombroker.broker.session.service import Sessions
from mombroker.core.ids import home_of
from mombroker.sim.cluster import Cluster
from mombroker.sim.partners import WATCH
from mombroker.sim.world import MS, SECOND

PERIOD = 40 * MS  # between two questions of a home
LONG = 6  # periods that the others wait for a guard that is not waited for for ever
OUTAGE = 16  # periods; a server is down for them behind three
PATIENCE = 1000  # periods until a home must know who is up or down
Logs = Mapping[str, list[list[Any]]]


@dataclass(slots=True)
class Moment:
    """What all have kept, and the last id of each server."""

    logs: Logs
    ids: dict[str, int]


@dataclass(slots=True)
class Lookouts:
    """guards     those that are told, and for how many seconds the others wait for each (0: for ever)
    excluded   members that an operator has put out of group `watch`
    server     was down at the end, from `begin` to `end`
    deaf       each home with the servers of members that it took to be down, too, at the end of that
    quiet      from then on guards are told no more
    """

    rng: Random
    guards: dict[str, float] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    server: str = ""
    begin: Moment | None = None
    end: Moment | None = None
    deaf: set[tuple[str, str]] = field(default_factory=set)
    quiet: dict[str, int] = field(default_factory=dict)

    def guard(self, id: str) -> float:
        """One more. How long the others are to wait for it, s."""
        patience = self.rng.choice((0, LONG * PERIOD / SECOND))
        self.guards[id] = patience
        return patience

    def settle(self, cluster: Cluster, logs: Any, outage: bool) -> None:
        """Let a server be down for a while, if there is to be an `outage`. Then nobody looks out any more, so that all
        can be at rest."""
        if outage:
            self._wait(cluster)
            self.server = self.rng.choice(sorted({home_of(id) for id in self.guards}))
            node = cluster.nodes[self.server]
            self.begin = Moment(logs(), _ids(cluster))
            node.crash()
            self._wait(cluster)
            if self._late(cluster, lambda: _up(cluster, self.server)):  # an answer of it was on its way all the time
                self._wait(cluster)
            self.end, self.deaf = Moment(logs(), _ids(cluster)), _down(cluster)
            node.boot()
            down = _down(cluster)
            self._wait(cluster, 3)
            self._late(cluster, lambda: down & _down(cluster))  # their answers may take longer than that
            self._wait(cluster)
        self.quiet = _ids(cluster)
        cluster.make_room()  # the one that was down may refuse again
        for _ in range(2):
            for id in self.guards:
                cluster.ask(home_of(id), "send", {"to": [id], "type": "sim.enough", "fields": {}})
            self._wait(cluster)

    def _wait(self, cluster: Cluster, times: int = 1) -> None:
        cluster.world.run(cluster.world.now + times * OUTAGE * PERIOD)

    def _late(self, cluster: Cluster, left: Callable[[], set[tuple[str, str]]]) -> bool:
        """Wait until none of these, a home and a server, is left. Was one?"""
        waits = left()
        late = bool(waits)
        for _ in range(PATIENCE):
            if not waits:
                break
            cluster.world.run(cluster.world.now + PERIOD)
            waits &= left()
        return late

    # -- judgement -----------------------------------------------------------------------------------------------------

    def faults(self, logs: Logs, lost: bool) -> Iterator[str]:
        """With servers that were lost nobody knows all views."""
        for id, log in logs.items():
            yield from _behind_views(id, log)
        for home, words in _words(logs).items():
            yield from self._judge(home, words, lost)
        if self.begin is not None and self.end is not None:
            yield from self._outage(logs, self.begin, self.end)

    def _judge(self, home: str, words: dict[int, Word], lost: bool) -> Iterator[str]:
        """What a home has said, in its order: to all that want to know, of a server at once, and each thing once. Who
        is down itself is told only when it is up again, and only what it does not know."""
        members: list[str] = []
        last = dict[str, tuple[str, int]]()  # of each server
        told = dict[str, dict[str, tuple[str, int]]]()  # to each guard; 0: before it came
        missed = dict[int, str]()  # what the guards of a server were told when that was up again
        for number, word in sorted(words.items()):
            if number > self.quiet[home]:
                break
            if word.what == "view":
                members, guards = word.members, self._guards(word.members)
                there = {home_of(agent) for agent in members} if word.number > 1 and guards else set()
                last = {each: (what, 0) for each, (what, _) in last.items() if each in there}
                told = {
                    agent: {each: what for each, what in told.get(agent, last).items() if each in there}
                    for agent in guards
                }  # fmt: skip
                continue
            servers = {home_of(agent) for agent in word.members}
            server = min(servers)
            shown = f"{home} has told that {server} is {word.what}"
            heard = [told[agent] for agent in word.heard if agent in told]
            if any(_said(those, server) == word.what and those[server][1] for those in heard):
                yield f"{shown} twice"
            # Who was never told that it is down need not be told that it is up: it may have come up in silence.
            late = {agent for agent, those in told.items() if (_said(those, server) == "down") is (word.what == "down")}
            if word.what == "up":
                late |= {agent for agent, those in told.items() if not those.get(server, ("", 0))[1]}
                missed |= dict.fromkeys(_missed(words, number), server)
            if number in missed:  # the others were told before, or came when it had long been so
                late |= {agent for agent in told if home_of(agent) != missed[number]}
            for those in (last, *heard):
                those[server] = word.what, number
            if lost:
                continue
            if servers != {server} or server == home or {*word.members} != {*_at(server, members)}:
                yield f"{shown}, and named {word.members} of the members {members}"
            away = {server, *(each for those in heard for each in those if _said(those, each) == "down")}
            away |= _back(words, number, self.quiet[home], missed)
            late |= {agent for agent in told if home_of(agent) in away}
            if not {*told} - late <= word.heard <= {*told} or any(home_of(agent) == server for agent in word.heard):
                yield f"{shown}, and not to {sorted(told)} but to {sorted(word.heard)}"
        if not lost and self.end is not None:
            for agent, those in told.items():
                for server, (what, number) in those.items():
                    if what == "down" and 0 < number <= self.end.ids[home] and _at(server, members):
                        yield f"{home} has not told {agent} that {server} is up again"

    def _guards(self, members: list[str]) -> list[str]:
        return [agent for agent in members if agent in self.guards]

    def _outage(self, logs: Logs, begin: Moment, end: Moment) -> Iterator[str]:
        """Who was down for long was told, whoever was not to be waited for is out, and nobody else."""
        (home, number, members), after = _last_view(begin.logs), _last_view(end.logs)
        if home in ("", self.server) or not self._guards(members):
            return
        out = _at(self.server, members)
        words = _words(logs)[home]
        told = [
            word.what for at, word in sorted(words.items())
            if at <= end.ids[home] and word.what != "view" and home_of(word.members[0]) == self.server
        ]  # fmt: skip
        away = {server for name, server in self.deaf if home_of(name) == home} | {self.server}
        elsewhere = [agent for agent in self._guards(members) if home_of(agent) not in away]
        if out and elsewhere and after[1] == number and told[-1:] != ["down"]:
            yield f"{home} has not told that {self.server} is down"
        for agent in out:
            if self.guards.get(agent) and not any(
                at > number and word.what == "view" and agent not in word.members for at, word in words.items()
            ):
                yield f"{home} waits for {agent} for ever"
            if self.guards.get(agent) == 0 and agent not in after[2] and self._stays(agent, begin.logs[agent]):
                yield f"{home} does not wait for {agent}"

    def _stays(self, agent: str, log: list[list[Any]]) -> bool:
        """Has it its last view, with all that it needs, and nobody wants it out?"""
        views = [entry[3] for entry in log if entry[:2] == ["v", WATCH]]
        return agent not in self.excluded and ["l", WATCH] not in log and bool(views) and agent in views[-1]


def _homes(cluster: Cluster) -> Iterator[Group]:
    """Of group `watch`, on servers that are up."""
    for node in cluster.nodes.values():
        clients = node.server.clients
        assert isinstance(clients, Sessions)
        home = clients.natives.agents.get(f"{node.name}/group:{WATCH}")
        if node.up and isinstance(home, Group):
            yield home


def _down(cluster: Cluster) -> set[tuple[str, str]]:
    """Each home with a server of members that is down, as far as it knows."""
    return {(home.id, server) for home in _homes(cluster) for server in home.lookout.down}


def _up(cluster: Cluster, server: str) -> set[tuple[str, str]]:
    """Each home that asks this server, and takes it to be up."""
    asks = [home for home in _homes(cluster) if home.lookout.wants and server in home.servers_of_members()]
    return {(home.id, server) for home in asks if server not in home.lookout.down}


@dataclass(slots=True)
class Word:
    """What a home has said in one message: a view, or who is down or up; and which guards have heard of that."""

    what: str
    members: list[str]
    number: int = 0  # of a view
    heard: set[str] = field(default_factory=set)


def _words(logs: Logs) -> dict[str, dict[int, Word]]:
    """By home, in group `watch`; by the numbers of the messages."""
    found: dict[str, dict[int, Word]] = {}
    for id, log in logs.items():
        for kind, group, *values in log:
            if kind in "vw" and group == WATCH:
                home, _, number = values[-1].partition("#")
                word = Word("view", values[1], values[0]) if kind == "v" else Word(values[0], values[1])
                found.setdefault(home, {}).setdefault(int(number), word).heard.add(id)
    return found


def _said(those: dict[str, tuple[str, int]], server: str) -> str:
    return those.get(server, ("", 0))[0]


def _back(words: dict[int, Word], number: int, quiet: int, missed: Mapping[int, str]) -> set[str]:
    """Servers of which a home has nothing new to say behind a word until they are up again: they were down, though
    perhaps nobody could be told."""
    later: dict[str, str] = {}
    for at, word in sorted(words.items()):
        if number < at <= quiet and word.what != "view" and (at not in missed or word.what == "up"):
            later.setdefault(home_of(word.members[0]), word.what)
    return {server for server, what in later.items() if what == "up"}


def _missed(words: dict[int, Word], up: int) -> Iterator[int]:
    """The words right behind one that a server is up, which only guards on that server have heard: what was said while
    it was down."""
    server = home_of(words[up].members[0])
    for number, word in sorted(words.items()):
        if number > up:
            if word.what == "view" or {home_of(agent) for agent in word.heard} != {server}:
                return
            yield number


def _at(server: str, members: list[str]) -> list[str]:
    return [agent for agent in members if home_of(agent) == server]


def _last_view(logs: Logs) -> tuple[str, int, list[str]]:
    """The home of the group, and its last view; the members of that."""
    views = [
        (number, home, word.members)
        for home, words in _words(logs).items() for number, word in words.items() if word.what == "view"
    ]  # fmt: skip
    number, home, members = max(views, default=(0, "", []))
    return home, number, members


def _behind_views(id: str, log: list[list[Any]]) -> Iterator[str]:
    """Who is down is told before the view that follows: no view says so first."""
    last: dict[str, int] = {}
    for kind, group, *values in log:
        if kind in "vw" and group == WATCH:
            home, _, number = values[-1].partition("#")
            if kind == "v":
                last[home] = int(number)
            elif int(number) < last.get(home, 0):
                yield f"{id} is told by {home} who is {values[0]} behind a later view"


def _ids(cluster: Cluster) -> dict[str, int]:
    return {name: node.server.tx.durable_id for name, node in cluster.nodes.items()}
