"""`mom server lost`: servers whose stores are gone for good are declared so, in each domain that they are in."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

from mombroker import ordering
from mombroker.core import lost_inside
from mombroker.core.errors import MomError
from mombroker.core.reconfiguration import ASKED
from mombroker.core.revision import resets
from mombroker.core.topology import Domain, Topology, listed
from mombroker.net import adminclient, joining
from mombroker.net.secret import secret_of

POLL_S = 0.1
PATIENCE_S = 60.0
ASKS = "mom"  # who asks with the secret of the bus
TRIED = 1_000  # epochs
MOST_LETTERS = 10_000  # of a server, that are looked through for the report


@dataclass(slots=True)
class Asker:
    """Asks servers as their operator or, from another machine, with the secret of the bus."""

    topology: Topology
    secret: bytes = b""
    _known: bool = field(default=False)

    def ask(self, server: str, verb: str, **args: Any) -> dict[str, Any]:
        """Raises MomError."""
        try:
            with adminclient.connect(self.topology, server) as client:
                return client.request(verb, **args)
        except adminclient.NoAccess:
            if not self._known:
                self.secret, self._known = secret_of(self.topology, lambda line: None), True
            return joining.ask(ASKS, self.topology.servers[server].listens, self.secret, verb, **args)


@dataclass(slots=True)
class Plan:
    """What is to be asked: in which domain, of whom, and under which epoch all these domains begin anew."""

    epoch: int
    left: dict[str, list[str]]  # domain -> servers of it that answer, the first is asked
    done: list[str] = field(default_factory=list)  # domains that have begun anew already


def plan(asker: Asker, lost: list[str]) -> Plan:
    """Raises MomError for servers that cannot be declared lost."""
    topology = asker.topology
    for name in lost:
        if name not in topology.servers:
            raise MomError(f"the bus {topology.name} has no server {name}: it has {listed(topology.servers, 12)}")
        if name == topology.registry:
            raise MomError(
                f"{name} is the registry, which decides names: stop all servers and run `mom domain reset` for it"
            )
        if _answers(topology, name):
            raise MomError(
                f"{name} answers at {topology.servers[name].listen}, so it is not lost: stop it, or have it leave by "
                "`mom topology apply`"
            )
    seen: dict[str, dict[str, Any]] = {}
    left: dict[str, list[str]] = {}
    for domain in topology.domains.values():
        if set(lost) & {*domain.members}:
            left[domain.name] = []
            for member in domain.members:
                if member not in lost and (found := _seen(asker, member, seen)):
                    left[domain.name].append(member)
                    seen[member] = found
            if not left[domain.name] and not set(domain.members) <= set(lost):
                raise MomError(
                    f"no server of domain {domain.name} answers: start {listed(set(domain.members) - set(lost))}"
                )
    return _plan(topology, lost, {domain: members for domain, members in left.items() if members}, seen)


def end_change(asker: Asker, lost: list[str], patience: float = PATIENCE_S) -> None:
    """End a change of the domains that has lost servers inside. Asked again, it goes on where it was. Raises
    MomError."""
    steps = lost_inside.carry_out(_coordinator(asker), lost)
    answer: dict[str, Any] | None = None
    end = time.monotonic() + patience
    while True:
        try:
            server, verb, args = steps.send(answer)
        except StopIteration:
            return
        try:
            answer = asker.ask(server, verb, **args)
        except MomError as error:
            answer = None
            if verb != lost_inside.ABORT and time.monotonic() > end:
                raise MomError(
                    f"the change of the domains that is under way cannot go on without {listed(lost)} yet: {error}; "
                    "all other servers of it must be up: start what is down, or declare it lost as well"
                ) from None
        if time.monotonic() > end and verb == lost_inside.COUNTS:
            raise MomError(
                f"{server} has not all yet that is on its way to it in the change of the domains: look at `mom "
                "status`, and ask again, which goes on where it was"
            )
        if answer is None or verb == lost_inside.COUNTS:
            time.sleep(POLL_S / 10)


def change_of(asker: Asker, lost: list[str]) -> str:
    """What becomes of a change of the domains that is under way, in a sentence; empty if they hold none up."""
    try:
        bus = asker.ask(_coordinator(asker), "topology_status")["bus"]
    except MomError:
        return ""  # what follows tells
    inside = [name for name in lost if name in bus.get("inside", ())]
    if not inside:
        return ""
    what, rest = f"the change to revision {bus['change']} of the topology", "; nothing of it has changed"
    if bus["phase"] == ASKED:
        return f"{what} has not begun, and is given up{rest}"
    left = [name for name in bus["inside"] if name not in lost]
    return f"{what} has begun, and is carried out by {listed(left, 12)} without {listed(inside, 12)}"


def _coordinator(asker: Asker) -> str:
    return asker.topology.registry or next(iter(asker.topology.servers))


def _plan(
    topology: Topology, lost: list[str], left: dict[str, list[str]], seen: dict[str, dict[str, Any]]
) -> Plan:  # fmt: skip
    """What was begun goes on, under its epoch. Not where a domain has that and does not know of the loss: all members
    of it were lost, and another one has begun there; or more servers are lost than before. Nor where somebody has met
    the store of a successor, and so takes no other one under that epoch, though it had not told yet that it is there.
    """
    epochs = {domain: max(seen[member]["epochs"][domain] for member in members) for domain, members in left.items()}
    begun = dict[str, int]()
    for name in lost:
        rows = [found["lost"][name] for found in seen.values() if name in found["lost"]]
        under = [row["epoch"] for row in rows if row["free"] or not row["behind"]]
        met = [row["epoch"] for row in rows if row.get("met")]  # an older server does not say it
        if max(under, default=0) > max(met, default=0):
            begun[name] = max(under)
    epoch = max(begun.values(), default=0)
    done = [domain for domain, now in epochs.items() if now >= epoch]
    for domain in done:
        known = [seen[member]["lost"] for member in left[domain]]
        for name in [name for name in lost if name in topology.domains[domain].members]:
            if name not in begun or not any(name in rows and rows[name]["epoch"] >= begun[name] for rows in known):
                return Plan(_next([topology.domains[each] for each in left], lost, 1 + max(epochs.values())), left)
    return Plan(epoch, left, done)


def _next(domains: list[Domain], lost: list[str], epoch: int) -> int:
    """The first epoch from this one on under which none of the domains begins with a token that a lost server holds, or
    this one if there is none in reach."""
    for each in range(epoch, epoch + TRIED):
        if not any(_first(domain, each) in lost for domain in domains):
            return each
    return epoch


def _first(domain: Domain, epoch: int) -> str:
    """The member that all wait for as a domain begins under this epoch; empty if there is none."""
    members = domain.members
    options = ordering.resolved(domain.backend, members, domain.options, resets(epoch))
    awaited = ordering.create(domain.backend, 0, len(members), **options).awaited
    return members[awaited] if awaited >= 0 else ""


def _answers(topology: Topology, name: str) -> bool:
    """Of one that has replicas any: while none leads the others may be about to."""
    return any(_runs(topology, view.label) for view in topology.servers[name].views())


def _runs(topology: Topology, label: str) -> bool:
    try:
        adminclient.connect(topology, label).close()
    except (adminclient.NotRunning, adminclient.NoAnswer):
        return False
    except adminclient.NoAccess:
        return True
    except MomError:
        return False
    return True


def _seen(asker: Asker, member: str, seen: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if member in seen:
        return seen[member]
    try:
        return asker.ask(member, "losses")
    except MomError:
        return {}


def carry_out(asker: Asker, made: Plan, lost: list[str], patience: float = PATIENCE_S) -> None:
    """Declare the loss in each domain, and wait until all that answer have begun anew. Asked again, it goes on where it
    was. Raises MomError."""
    for domain, members in made.left.items():
        gone = [name for name in lost if name in asker.topology.domains[domain].members]
        if domain not in made.done:
            asker.ask(members[0], "lose", domain=domain, servers=gone, epoch=made.epoch)
    end = time.monotonic() + patience
    while waits := _waits(asker, made, lost):
        if time.monotonic() > end:
            raise MomError(
                f"{'; '.join(waits)}: it goes on by itself, and `mom server lost` asked again tells how far it is"
            )
        time.sleep(POLL_S)


def _waits(asker: Asker, made: Plan, lost: list[str]) -> list[str]:
    """What is still to happen, a phrase each. Raises MomError for what does not happen by itself. Who shares no domain
    with a server that was lost before knows of that loss alone until the registry has decided this one."""
    waits, rows = list[str](), dict[str, list[dict[str, Any]]]()
    for domain, members in made.left.items():
        for member in members:
            try:
                found = asker.ask(member, "losses")
            except MomError as error:
                waits.append(str(error))
                continue
            for name in [name for name in lost if name in found["lost"]]:
                rows.setdefault(name, []).append(found["lost"][name])
            if found["epochs"][domain] < made.epoch:
                away = [row["waits_for"] for row in found["under_way"] if row["domain"] == domain and row["waits_for"]]
                waits.append(f"{member} waits for {listed(away[0]) if away else 'the others'}")
    last = {name: max(row["epoch"] for row in those) for name, those in rows.items()}
    decided, free = (
        {name for name, those in rows.items() if any(row[what] and row["epoch"] == last[name] for row in those)}
        for what in ("behind", "free")
    )
    if missing := set(lost) - decided:
        empty = [{*domain.members} for domain in asker.topology.domains.values() if {*domain.members} <= {*lost}]
        between = sorted(name for those in empty if those & missing for name in those & free)
        if between and not waits:
            near, far = between[0], " ".join(sorted(missing))
            raise MomError(
                f"nobody can tell the registry that {listed(sorted(missing))} is lost before another server is in the "
                f"place of {near}: run `mom server start {near}`, then `mom server lost {far}`"
            )
        waits.append(f"the registry has not decided yet that {listed(sorted(missing))} is lost")
    return waits


def letters(asker: Asker, lost: list[str]) -> list[dict[str, Any]]:
    """What was on the way to, or through, these servers and is a dead letter now, on the servers of this machine."""
    found = []
    for server in asker.topology.servers:
        if server in lost:
            continue
        try:
            with adminclient.connect(asker.topology, server) as client:
                rows = client.request("deadletters", limit=MOST_LETTERS)["letters"]
        except MomError:
            continue
        found += [
            {"server": server, **row} for row in rows
            if "which is lost" in row["reason"] and any(name in row["reason"] for name in lost)
        ]  # fmt: skip
    return found


def without(topology: Topology, lost: list[str]) -> Topology:
    """The bus with nobody in their place. Raises MomError where others need somebody there."""
    for name in lost:
        if name in topology.routers:
            raise MomError(
                f"{name} is a router, and the others need one there: start another server in its place, and take that "
                "out by `mom topology apply` of a file in which domains hold together without it"
            )
        for domain in topology.domains_of(name):
            if len(domain.members) > 2 and ordering.backend(domain.backend).relays:
                raise MomError(
                    f"members of domain {domain.name} pass on for one another ({domain.backend}), also {name}: start "
                    "another server in its place, and take that out by `mom topology apply`"
                )
    servers = {name: server for name, server in topology.servers.items() if name not in lost}
    domains = {}
    for domain in topology.domains.values():
        members = tuple(member for member in domain.members if member not in lost)
        if len(members) > 1:
            order = domain if members == domain.members else _shrunk(domain, members, lost)
            domains[domain.name] = order
    agents = [agent for agent in topology.agents if agent.server not in lost]
    return replace(topology, servers=servers, domains=domains, agents=agents, checked=True)


def _shrunk(domain: Domain, members: tuple[str, ...], lost: list[str]) -> Domain:
    """Two members alone have causal order by nature, but not one order of what is for both. An option that names who is
    lost has its default."""
    if len(members) == 2 and not ordering.backend(domain.backend).total:
        return Domain(domain.name, members)
    options = {name: value for name, value in domain.options.items() if value not in lost}
    return Domain(domain.name, members, domain.backend, options)
