"""What changes between two topologies of one bus, and how little of it has to pause for that.

Settings pause nobody, and neither does what is attached at the end of the forest. Any other change of the domains stops
S: the smallest connected set of old domains that holds all changed ones and covers the servers of the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from mombroker.core import forest
from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, Topology, listed


class Kind(StrEnum):
    """Cheapest first; a change of one kind may bring settings along."""

    NOTHING = "nothing"
    SETTINGS = "settings"  # addresses, policies, permissions, declared agents, what may be deployed
    ATTACH = "attach"  # new servers in new domains, each lot of them behind one server that is there
    FREEZE = "freeze"  # everything else


class Setting(NamedTuple):
    """One setting that differs; `old` or `new` is None where there is none. Of `what` "server" it is the address where
    peers reach it, of "agent" the declaration, of "allow", "policies" and "permissions", which have no name, the whole
    list."""

    what: str
    name: str
    old: Any
    new: Any


class Attachment(NamedTuple):
    """New servers in new domains that hang at one server of the bus, the sponsor."""

    sponsor: str
    servers: tuple[str, ...]
    domains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Names in order of the file that they are in; those of domains that are gone, and of leavers, are of the old one.

    attached   where what is new hangs, if that is all that is new (kind ATTACH)
    frozen     S, the old domains that stop (kind FREEZE)
    replacing  the new domains in place of S; none if what has left was all that S had beside one server
    inside     all servers of S and of what replaces it
    newcomers  servers that only the new topology has
    leavers    servers that only the old one has
    moved      servers of both whose domains are not the same, by name
    drop       what leavers hold goes with them
    lost       leavers that are lost for good
    """

    kind: Kind
    settings: tuple[Setting, ...] = ()
    attached: tuple[Attachment, ...] = ()
    frozen: tuple[str, ...] = ()
    replacing: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    newcomers: tuple[str, ...] = ()
    leavers: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    drop: bool = False
    lost: tuple[str, ...] = ()


def compare(old: Topology, new: Topology) -> Change:
    """How `new` differs from `old`; both are valid. Raises MomError, with the remedy, where it is no successor."""
    for refusal in refusals(old, new):
        raise MomError(refusal)
    return difference(old, new)


def difference(old: Topology, new: Topology) -> Change:
    """How `new` differs from `old`, whether it may follow or not."""
    settings = tuple(_settings(old, new))
    before, after = _digests(old), _digests(new)
    changed = {name for name, digest in before.items() if after.get(name) != digest}
    fresh = {name for name, digest in after.items() if before.get(name) != digest}
    if not changed and not fresh:
        return Change(Kind.SETTINGS if settings else Kind.NOTHING, settings)
    newcomers = tuple(name for name in new.servers if name not in old.servers)
    leavers = tuple(name for name in old.servers if name not in new.servers)
    moved = tuple(name for name in new.servers if name in old.servers and _names(old, name) != _names(new, name))
    if not changed:
        attached = tuple(_attachments(old, new, fresh))
        return Change(Kind.ATTACH, settings, attached, newcomers=newcomers, moved=moved)
    stay = {server for name in fresh for server in new.domains[name].members if server in old.servers}
    frozen = _spanned({name: domain.members for name, domain in old.domains.items()}, changed, stay)
    replacing = [name for name in new.domains if name in fresh or name in frozen]
    inside = {server for name in frozen for server in old.domains[name].members}
    inside |= {server for name in replacing for server in new.domains[name].members}
    return Change(
        Kind.FREEZE, settings, (), tuple(name for name in old.domains if name in frozen), tuple(replacing),
        tuple(name for name in {**old.servers, **new.servers} if name in inside), newcomers, leavers, moved,
    )  # fmt: skip


def refusals(old: Topology, new: Topology) -> Iterable[str]:
    """Why `new` cannot follow `old`, a sentence with the remedy each."""
    if new.name != old.name:
        yield f'this bus is {old.name}, and the file is of {new.name}: write name = "{old.name}" or take another file'
    if old.registry and old.registry not in new.servers:
        yield f"{old.registry} is the registry, which decides names, and cannot leave: keep it in the file"
    elif old.registry != new.registry:
        yield f'the registry of this bus is {old.registry} and stays: write registry = "{old.registry}"'
    homes = {agent.name: agent.server for agent in old.agents}
    for agent in new.agents:
        if (home := homes.get(agent.name, agent.server)) != agent.server:
            yield f'agent {agent.name} lives on {home}: write server = "{home}" for it'


def told(old: Topology, new: Topology) -> list[str]:
    """The difference in words, a line each: `+` what is new, `-` what is gone, `~` what is changed."""
    lines = [f"+ server {name} at {server.listens}" for name, server in new.servers.items() if name not in old.servers]
    lines += [f"- server {name}" for name in old.servers if name not in new.servers]
    for name in {**old.domains, **new.domains}:
        was, now = old.domains.get(name), new.domains.get(name)
        if now is None:
            lines.append(f"- domain {name}")
        elif was is None:
            lines.append(f"+ domain {name}: {listed(now.members)} by {ordered(now)}")
        elif was.digest() != now.digest():
            lines.append(f"~ domain {name}: {reordered(was, now)}")
    if old.registry != new.registry:
        lines.append(f"~ registry: {old.registry} -> {new.registry}")
    return lines + [_line(setting) for setting in _settings(old, new)]


def reordered(old: Domain, new: Domain) -> str:
    """How the order of a domain differs; empty if it does not."""
    found = [f"+ {server}" for server in new.members if server not in old]
    found += [f"- {server}" for server in old.members if server not in new]
    if not found and old.members != new.members:
        found.append(f"members in the order {' '.join(new.members)}")
    if (old.backend, old.options) != (new.backend, new.options):
        found.append(f"{ordered(old)} -> {ordered(new)}")
    return ", ".join(found)


def ordered(domain: Domain) -> str:
    """A back end with its options, as they are written in a file."""
    options = ", ".join(f"{name} = {json.dumps(value)}" for name, value in domain.options.items())
    return f"{domain.backend} {{{options}}}" if options else domain.backend


def _line(setting: Setting) -> str:
    what, name, old, new = setting
    if what == "agent":
        shown = new or old
        sign = "~" if old and new else "+" if new else "-"
        return f"{sign} agent {name} on {shown['server']} ({shown['cls']})"
    if what == "policies":
        return f"~ policies of the file: {_rules(old)} -> {_rules(new)}"
    if what == "permissions":
        return f"~ permissions of the file: {_permissions(old)} -> {_permissions(new)}"
    if what == "allow":
        return f"~ allow: {', '.join(old) or 'nothing'} -> {', '.join(new) or 'nothing'}"
    return f"~ {what} {name}: {old} -> {new}"


def _rules(policies: list[dict[str, Any]]) -> str:
    return listed((str(each.get("match")) for each in policies), 4) or "none"


def _permissions(permissions: list[dict[str, Any]]) -> str:
    whose = (f"{each.get('user') or each.get('role')} for {each.get('match')}" for each in permissions)
    return listed(whose, 4) or "none, so that everybody may do everything unless one was set at run time"


def _digests(topology: Topology) -> dict[str, str]:
    return {name: domain.digest() for name, domain in topology.domains.items()}


def _names(topology: Topology, server: str) -> set[str]:
    return {domain.name for domain in topology.domains_of(server)}


def _settings(old: Topology, new: Topology) -> Iterable[Setting]:
    for name, server in new.servers.items():
        if name in old.servers and (was := old.servers[name].listens) != server.listens:
            yield Setting("server", name, was, server.listens)
    if old.allow != new.allow:
        yield Setting("allow", "", list(old.allow), list(new.allow))
    before, after = {each.name: each for each in old.agents}, {each.name: each for each in new.agents}
    for name in {**before, **after}:
        old_one, new_one = before.get(name), after.get(name)
        if old_one != new_one:
            yield Setting("agent", name, asdict(old_one) if old_one else None, asdict(new_one) if new_one else None)
    if old.policies != new.policies:
        yield Setting("policies", "", old.policies, new.policies)
    if old.permissions != new.permissions:
        yield Setting("permissions", "", old.permissions, new.permissions)


def _attachments(old: Topology, new: Topology, fresh: set[str]) -> Iterable[Attachment]:
    """One for each sponsor. Old domains are as they were, so each piece of what is new has one server of the bus in it:
    with none the new bus would be in pieces, and a second one would close a cycle."""
    sets = forest.UnionFind()
    for name in fresh:
        for server in new.domains[name].members:
            if server not in old.servers:
                sets.join((name, True), (server, False))
    roots: dict[forest.Node, str] = {}
    for name in fresh:
        for server in new.domains[name].members:
            if server in old.servers:
                roots[sets.find((name, True))] = server
    sponsors = dict.fromkeys(server for server in old.servers if server in roots.values())
    for sponsor in sponsors:
        domains = tuple(name for name in new.domains if name in fresh and roots[sets.find((name, True))] == sponsor)
        members = {server for name in domains for server in new.domains[name].members}
        yield Attachment(sponsor, tuple(name for name in new.servers if name in members - {sponsor}), domains)


def _spanned(members: Mapping[str, Iterable[str]], domains: set[str], servers: set[str]) -> set[str]:
    """The domains of the smallest subtree of a forest that joins these domains and servers. In a tree there is one: it
    is what stays when all other ends are cut off."""
    graph: dict[forest.Node, set[forest.Node]] = {}
    for domain, inside in members.items():
        for server in inside:
            graph.setdefault((domain, True), set()).add((server, False))
            graph.setdefault((server, False), set()).add((domain, True))
    kept: set[forest.Node] = {*((name, True) for name in domains), *((name, False) for name in servers)}
    ends = [node for node, near in graph.items() if len(near) == 1 and node not in kept]
    while ends:
        end = ends.pop()
        for near in graph.pop(end):
            graph[near].discard(end)
            if len(graph[near]) <= 1 and near not in kept:
                ends.append(near)
    return {name for name, is_domain in graph if is_domain}
