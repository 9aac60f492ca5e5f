"""What a change takes that brings new servers into domains that change: they are attached first, and nobody pauses."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from mombroker.core.changes import Change, Kind
from mombroker.core.topology import Domain, Topology


def first(old: Topology, new: Topology, change: Change) -> Topology | None:
    """The topology to go by first: the old one, with each newcomer in a domain of its own behind a server of both that
    is near to it in the new one. None if the change takes one step."""
    if change.kind is not Kind.FREEZE or not change.newcomers:
        return None
    servers = {**old.servers, **{name: new.servers[name] for name in change.newcomers}}
    domains = dict(old.domains)
    for name in change.newcomers:
        sponsor = _near(old, new, name)
        domain = f"{sponsor}-{name}"
        while domain in domains:
            domain += "-"
        domains[domain] = Domain(domain, (sponsor, name))
    return replace(old, servers=servers, domains=domains, checked=False)


def _near(old: Topology, new: Topology, server: str) -> str:
    """The nearest server of both in the new topology: there is one, since that is connected, and the registry stays."""
    seen, left = {server}, deque([server])
    while left:
        here = left.popleft()
        if here in old.servers:
            return here
        for domain in new.domains_of(here):
            left.extend(member for member in domain.members if member not in seen)
            seen.update(domain.members)
    raise AssertionError(f"{server} is on another bus")
