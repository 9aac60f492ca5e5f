"""Changes of a bus at work, for a program that looks after its processes meanwhile and must not wait for an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mombroker.core import revision
from mombroker.core.changes import compare, told
from mombroker.core.errors import MomError
from mombroker.core.reconfiguration import MARKED, SWITCHED
from mombroker.core.topology import Domain, Server, Topology
from mombroker.net import adminclient

T = TypeVar("T")
Pick = Callable[[list[T]], T]  # one of several

ANSWER_S = 2.0
QUIET_S = 6.0  # after a request whose answer was lost: longer than the registry asks all that it needs
LOOK_S = 0.1
PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Step:
    """A change that is over, as words of `mom topology plan`."""

    revision: int
    kind: str
    changes: list[str]


class Reshaper:
    """One change at a time: `begin`, then `look` until it returns what has been done, or `under_way` is False.

    topology   in force, with the folders of the servers that a change brings
    refused    why, of changes that were not made
    """

    def __init__(self, topology: Topology):
        self.topology, self.refused = topology, list[str]()
        self._clients: dict[str, adminclient.AdminClient] = {}
        self._asked: adminclient.AdminClient | None = None
        self._wanted: Topology | None = None
        self._number = 0  # of the revision that was in force before
        self._accepted = False
        self._silent = 0.0  # since when the registry is seen at rest
        self._there = set[
            str
        ]()  # servers that were seen at rest under the new revision, which none of them leaves again

    @property
    def under_way(self) -> bool:
        return self._wanted is not None

    @property
    def _registry(self) -> str:
        return self.topology.registry or next(iter(self.topology.servers))

    def begin(self, make: Callable[[Topology], Topology | None]) -> bool:
        """Ask for the topology that `make` makes of that in force; False if nobody answers, or it makes none. Raises
        MomError for one that is no successor."""
        try:
            asked = adminclient.connect(self.topology, self._registry, ANSWER_S)
            now = asked.request("topology")
        except MomError:
            return False
        self.topology = revision.read(now["text"], self.topology)
        new = make(self.topology)
        if new is None:
            asked.close()
            return False
        compare(self.topology, new)
        self._asked, self._wanted, self._number, self._accepted = asked, new, now["revision"], False
        self._silent = time.monotonic()
        self._there.clear()
        with suppress(MomError):  # else it was killed just now: whether it has heard us shows later
            asked.ask("apply_topology", text=revision.text_of(new), revision=self._number)
        return True

    def look(self) -> Step | None:
        """Ask all servers how far they are. What has been done, if that is over now."""
        assert self._wanted is not None, "no change is under way"
        if not self._heard():
            return None
        rows = {name: self._ask(name, "topology_status") for name in self.topology.servers}
        rest = {name: row["revision"] for name, row in rows.items() if row and not row["phase"] and not row["bus"]}
        self._there |= {name for name, number in rest.items() if number == self._number + 1}
        if self._there >= rows.keys():
            return self._over()
        now = time.monotonic()
        if rest.get(self._registry) != self._number:  # it is away, or at work
            self._silent = now
        elif not self._accepted and not self._asked and now > self._silent + QUIET_S:
            self._give_up("the server that was asked was killed before it could")
        return None

    def close(self) -> None:
        for client in [*self._clients.values(), *([self._asked] if self._asked else [])]:
            client.close()
        self._clients, self._asked = {}, None

    def _heard(self) -> bool:
        """Take the answer, if it is there. False if there was a refusal."""
        if self._asked is None or not self._asked.answered():
            return True
        asked, self._asked, self._silent = self._asked, None, time.monotonic()
        try:
            asked.answer()
            self._accepted = True
        except MomError as error:
            if "did not answer" not in str(error):
                self._give_up(str(error))
                return False
        finally:
            asked.close()
        return True

    def _give_up(self, why: str) -> None:
        self.refused.append(why)
        self._wanted = None

    def _over(self) -> Step:
        new = self._wanted
        assert new is not None, "no change is under way"
        step = Step(self._number + 1, compare(self.topology, new).kind.value, told(self.topology, new))
        self.topology, self._wanted = new, None
        if self._asked:
            self._asked.close()
            self._asked = None
        return step

    def _ask(self, server: str, verb: str) -> dict[str, Any] | None:
        try:
            if server not in self._clients:
                self._clients[server] = adminclient.connect(self.topology, server, ANSWER_S)
            return self._clients[server].request(verb)
        except MomError:
            if client := self._clients.pop(server, None):
                client.close()
            return None


def pauses(stores: Mapping[str, Any]) -> dict[int, list[float]]:
    """By revision, how long each server has held what enters the domains that change, ms: from when it closed its gate
    until it had switched, as its log has it."""
    since: dict[int, int] = {}
    for reader in stores.values():
        since |= {number: row[0] for number, row in revision.history(reader.meta()).items()}
    found: dict[int, list[float]] = {}
    for _, closed, switched in held(stores):
        if number := max((each for each, begun in since.items() if begun <= closed), default=0):
            found.setdefault(number, []).append((switched - closed) / 1e6)
    return found


def held(stores: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Servers that have held what enters domains that change: each time from when, and until when, ns."""
    found: list[tuple[str, int, int]] = []
    for server, reader in stores.items():
        closed = after = 0
        while page := reader.log(after, PAGE):
            after = page[-1][0]
            for _, record in page:
                if record.kind == "send" and record.detail == MARKED:
                    closed = record.sent
                elif record.kind == "send" and record.detail == SWITCHED:
                    found.append((server, closed, record.sent))
    return found


# -- what is changed: another topology, or None where the domains are not such ----------------------------------------


def _with(topology: Topology, domains: dict[str, Domain]) -> Topology:
    return replace(topology, domains=domains, checked=False)


def _fresh(topology: Topology, name: str) -> str:
    return next(f"{name}{at}" for at in range(2, 10_000) if f"{name}{at}" not in topology.domains)


def _of(domain: Domain, members: tuple[str, ...], name: str = "") -> Domain:
    """The same domain with other members; `fifo` is for two."""
    backend = "" if domain.backend == "fifo" else domain.backend
    return Domain(name or domain.name, members, backend)


def joined(topology: Topology, server: Server, pick: Pick[str]) -> Topology:
    """A new server, behind a router if there is one."""
    sponsor = pick(topology.routers or list(topology.servers))
    name = f"{sponsor}-{server.name}"
    domains = {**topology.domains, name: Domain(name, (sponsor, server.name))}
    return replace(_with(topology, domains), servers={**topology.servers, server.name: server})


def split(topology: Topology, pick: Pick[Domain]) -> Topology | None:
    """A domain becomes two, with a router between them: that which it has, or its last server."""
    large = [domain for domain in topology.domains.values() if len(domain.members) > 2]
    if not large:
        return None
    domain = pick(large)
    router = next((each for each in domain.members if each in topology.routers), domain.members[-1])
    rest = [each for each in domain.members if each != router]
    half, name = len(rest) // 2, _fresh(topology, domain.name)
    parts = {
        domain.name: _of(domain, (*rest[:half], router)), name: _of(domain, (*rest[half:], router), name)
    }  # fmt: skip
    return _with(topology, topology.domains | parts)


def rerouted(topology: Topology, server: str, pick: Pick[Domain]) -> Topology | None:
    """`server`, at the end of a domain, becomes a router: in another domain it takes the place of the one that it is
    behind."""
    mine = topology.domains_of(server)[0]
    near = [
        (router, domain) for router in mine.members if router != server
        for domain in topology.domains_of(router) if domain is not mine
    ]  # fmt: skip
    if not near:
        return None
    chosen = pick([domain for _, domain in near])
    router = next(router for router, domain in near if domain is chosen)
    members = tuple(server if each == router else each for each in chosen.members)
    return _with(topology, topology.domains | {chosen.name: replace(chosen, members=members)})
