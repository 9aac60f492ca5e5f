"""Domains whose back ends deliver a member's own copies: a server may be in one of them.

In two, a copy of its own may wait for either order, and nothing keeps what it sends next behind both.
"""

from collections.abc import Iterable

from mombroker import ordering
from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, listed


def owning(domain: Domain) -> bool:
    """Not of a back end that is not installed here: of that others tell."""
    try:
        return ordering.backend(domain.backend).own
    except MomError:
        return False


def clash(server: str, domains: Iterable[Domain]) -> str:
    """Why a server cannot be in all of these domains; empty if it can."""
    names = [domain.name for domain in domains if owning(domain)]
    if len(names) < 2:
        return ""
    return (
        f"{server} is in domains {listed(names)}, each of which makes one order of all that its members deliver, and a "
        "server can keep one such order: choose another back end for all but one of them"
    )
