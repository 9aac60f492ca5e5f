"""Domains that are drawn: random forests of servers, with back ends and their options."""

from collections.abc import Sequence
from random import Random
from typing import Any

from mombroker.core.owners import owning
from mombroker.core.topology import Domain

BACKENDS = ("", "matrix")  # of a domain; empty: its default, which is `fifo` between two servers


def draw_domains(rng: Random, size: int, backends: Sequence[str] = BACKENDS) -> dict[str, Domain]:
    """A random forest: each further domain hangs on a server that is there already, often on a router."""
    names = [f"s{n}" for n in range(size)]
    placed, left = [names[0]], names[1:]
    domains: dict[str, Domain] = {}
    while left:
        routers = [name for name in placed if sum(name in domain for domain in domains.values()) > 1]
        root = rng.choice(routers if routers and rng.random() < 0.3 else placed)
        members = [root, *left[: rng.choice((1, 1, 2, 2, 3, 4, 6))]]
        left = left[len(members) - 1 :]
        placed += members[1:]
        rng.shuffle(members)
        backend = rng.choice(backends)
        options = draw_options(rng, backend, members)
        domains[f"d{len(domains)}"] = Domain(f"d{len(domains)}", tuple(members), backend, options)
    return without_clashes(domains)


def without_clashes(domains: dict[str, Domain]) -> dict[str, Domain]:
    """The same, where no server is in two domains whose back ends deliver own copies: the later one has its default."""
    taken: set[str] = set()
    for name, domain in domains.items():
        if owning(domain):
            if taken & {*domain.members}:
                domains[name] = Domain(name, domain.members)
            else:
                taken |= {*domain.members}
    return domains


def draw_options(rng: Random, backend: str, members: list[str]) -> dict[str, Any]:
    """As they would be in a topology file."""
    options: dict[str, Any]
    if backend == "ks":
        return {"encoding": rng.choice(("list", "bitmap"))}
    if backend == "abcast":
        options = {"patience": rng.choice((1, 2, 16))}
        return options | ({"holder": rng.choice(members)} if rng.random() < 0.5 else {})
    if backend == "overlay" and rng.random() < 0.5:
        return {"links": draw_links(rng, members)}
    if backend == "daisy":
        options = {"relay": rng.choice(("eager", "stable"))}
        return options | ({"groups": draw_groups(rng, members)} if rng.random() < 0.7 else {})
    return {}


def draw_links(rng: Random, members: list[str]) -> list[list[str]]:
    """A tree, and some links more."""
    links = [{member, rng.choice(members[:at])} for at, member in enumerate(members) if at]
    for _ in range(rng.randrange(len(members))):
        link = set(rng.sample(members, 2))
        if link not in links:
            links.append(link)
    return [sorted(link) for link in links]


def draw_groups(rng: Random, members: list[str]) -> list[Any]:
    """Groups of any sizes, and now and then groups of these."""
    cuts = sorted(rng.sample(range(1, len(members)), rng.randrange(len(members))))
    groups: list[Any] = [members[a:b] for a, b in zip([0, *cuts], [*cuts, len(members)], strict=True)]
    while len(groups) > 2 and rng.random() < 0.5:
        at = rng.randrange(len(groups) - 1)
        groups[at : at + 2] = [groups[at : at + 2]]
    return groups
