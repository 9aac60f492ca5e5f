"""Topologies by rule: how n servers are split into domains (paper 004 §6, figure 10), on loopback addresses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isqrt

from mombroker.core.errors import MomError
from mombroker.core.topology import Domain, Server, Topology

Split = dict[str, tuple[str, ...]]  # domain -> its servers
PORT, MOST_PORT = 16300, 65535


def build(
    domains: Mapping[str, Sequence[str]],
    *,
    name: str = "bus",
    servers: Iterable[str] = (),
    host: str = "127.0.0.1",
    port: int = PORT,
    stomp: int | None = None,
    ordering: str = "",
    checked: bool = True,
) -> Topology:
    """A topology of these domains; ports count up from `port`, and from `stomp` for clients.

    Servers come in the order in which they are first named, those of `servers` first; the first is the registry.
    """
    names = dict.fromkeys([*servers, *(member for members in domains.values() for member in members)])
    made = {
        each: Server(each, host, port + at, None if stomp is None else f"{host}:{stomp + at}", f"var/{each}")
        for at, each in enumerate(names)
    }
    split = {each: Domain(each, tuple(members), ordering) for each, members in domains.items()}
    return Topology(name, made, split, registry=next(iter(made), None), checked=checked)


def flat(names: Sequence[str]) -> Split:
    """All servers in one domain."""
    return {"d1": tuple(names)}


def bus(names: Sequence[str]) -> Split:
    """About √n domains of √n servers; the first server of each is a router and a member of the backbone."""
    count = isqrt(len(names))
    if count < 2:
        return flat(names)
    size, larger = divmod(len(names), count)
    split, start = Split(), 0
    for at in range(count):
        end = start + size + (at < larger)
        split[f"d{at + 1}"] = tuple(names[start:end])
        start = end
    return {"backbone": tuple(members[0] for members in split.values()), **split}


def chain(names: Sequence[str], size: int | None = None) -> Split:
    """A chain of domains of `size` servers (about √n unless given), each sharing one with the next."""
    size = size or max(2, isqrt(len(names)))
    starts = range(0, len(names) - 1, size - 1)
    return {f"d{at + 1}": tuple(names[start : start + size]) for at, start in enumerate(starts)}


def tree(names: Sequence[str], size: int = 4, children: int = 3) -> Split:
    """Domains of `size` servers; `children` of those that a domain brings in are each the router of one below it.

    With 1 + (size - 1)(children^(depth + 1) - 1)/(children - 1) servers the tree is full (protocols DO4).
    """
    split, routers, start = Split(), list(names[:1]), 1
    while start < len(names):
        router = routers.pop(0)
        brought = names[start : start + size - 1]
        split[f"d{len(split) + 1}"] = (router, *brought)
        routers.extend(brought[:children])
        start += size - 1
    return split


LAYOUTS: dict[str, Callable[[Sequence[str]], Split]] = {"bus": bus, "chain": chain, "tree": tree, "flat": flat}


def generate(
    layout: str,
    n: int,
    *,
    size: int | None = None,
    children: int | None = None,
    name: str = "",
    host: str = "127.0.0.1",
    port: int = PORT,
    stomp: int | None = None,
    ordering: str = "",
) -> Topology:
    """n servers s1, s2, ... in a layout of LAYOUTS. `size` is for chain and tree, `children` for tree.

    Raises MomError where the layout cannot have that shape.
    """
    if layout not in LAYOUTS:
        raise MomError(f"there is no layout {layout!r}: choose {', '.join(LAYOUTS)}")
    if n < 1:
        raise MomError(f"a bus of {n} servers is none: ask for 1 or more")
    for first in (port, stomp or port):
        if (room := MOST_PORT - first + 1) < n:
            raise MomError(f"{n} servers need as many ports from {first} on, and there are {room}: ask for fewer")
    if size is not None and (layout not in ("chain", "tree") or size < 2):
        raise MomError("the size of domains can be chosen for chain and tree, 2 or more")
    names = [f"s{at}" for at in range(1, n + 1)]
    if layout == "tree":
        size = size or max(4, (children or 0) + 1)
        children = size - 1 if children is None else children
        if not 1 <= children < size:
            raise MomError(f"domains of {size} servers have room for 1 to {size - 1} child domains, not {children}")
        split = tree(names, size, children)
    elif children is not None:
        raise MomError("the number of child domains can be chosen for tree only")
    else:
        split = chain(names, size) if layout == "chain" else LAYOUTS[layout](names)
    if n == 1:
        split = {}
    return build(split, name=name or layout, servers=names, host=host, port=port, stomp=stomp, ordering=ordering)
