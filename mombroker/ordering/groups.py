"""The tree of groups of a daisy: read from nested lists, checked, and asked who connects what."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)  # an index, or a name as in the topology file
TOP = -1


@dataclass(slots=True, frozen=True)
class Group(Generic[Member]):
    """A leaf group has servers as members; any other has the connectors of its children.

    parent     the number of the group above, or TOP
    connector  the member that is also in the parent
    below      the members whose home, the leaf group that they are in, is this group or beneath it
    """

    members: tuple[Member, ...]
    children: tuple[int, ...]
    parent: int
    connector: Member
    below: frozenset[Member]


def plant(groups: Sequence[Any], connectors: Sequence[Member] = ()) -> list[Group[Member]]:
    """The groups by number, each before those beneath it. Of a group's members the one that comes first among
    `connectors` is its connector, else the first."""
    tree: list[Group[Member]] = []
    rank = {member: at for at, member in enumerate(dict.fromkeys(connectors))}

    def grow(node: Sequence[Any], parent: int) -> int:
        number = len(tree)
        tree.append(Group((), (), parent, node[0], frozenset()))  # holds the place
        children: tuple[int, ...] = ()
        members, below = tuple(node), frozenset(node if is_leaf(node) else ())
        if not is_leaf(node):
            children = tuple([grow(child, number) for child in node])
            members = tuple([tree[child].connector for child in children])
            below = below.union(*(tree[child].below for child in children))
        connector = min(members, key=lambda member: rank.get(member, len(rank)))
        tree[number] = Group(members, children, parent, connector, below)
        return number

    grow(groups, TOP)
    return tree


def is_leaf(node: Collection[Any]) -> bool:
    return not any(isinstance(each, list | tuple) for each in node)


def even(size: int) -> list[list[int]]:
    """The groups where none are chosen: about as many as each has members, in their order."""
    count = max(1, round(size**0.5))
    cuts = [size * k // count for k in range(count + 1)]
    return [list(range(a, b)) for a, b in zip(cuts, cuts[1:], strict=False)]


def faults(members: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """One sentence per fault of the options `groups` and `connectors`, as they are in the topology file."""
    groups, connectors = options.get("groups"), options.get("connectors", [])
    if not isinstance(connectors, list) or not all(isinstance(name, str) for name in connectors):
        return ['connectors is a list of servers: write connectors = ["b", "d"]']
    if groups is None:
        return ["connectors without groups: write the groups too"] if connectors else []
    found = list(_shape(groups))
    if found:
        return found
    named = list(leaves(groups))
    found += [
        f"{name!r} in groups is no server of this domain: take it out, or name it in `servers`"
        for name in dict.fromkeys(named)
        if name not in members
    ]
    found += [f"{name!r} is in two groups: take it out of one" for name in members if named.count(name) > 1]
    missing = [name for name in members if name not in named]
    if missing:
        found.append(f"{', '.join(missing)} in no group: add each to one of `groups`")
    if not found:
        connect = [group.connector for group in plant(groups, connectors) if group.parent != TOP]
        found += [
            f"{name!r} in connectors connects no group: it is no server of this domain, or comes after another of its "
            f"group; take it out"
            for name in dict.fromkeys(connectors)
            if name not in connect
        ]
        twice = dict.fromkeys(name for name in connectors if connectors.count(name) > 1)
        found += [f"{name!r} is twice in connectors: take one out" for name in twice]
    return found


def _shape(node: Any) -> Iterable[str]:
    """What is wrong with the lists, as lists."""
    if not isinstance(node, list):
        yield 'groups is a list of groups, each a list of servers: write groups = [["a", "b"], ["c", "d"]]'
    elif not node:
        yield "a group is empty: take it out"
    elif is_leaf(node):
        if not all(isinstance(name, str) for name in node):
            yield f"a group names {next(each for each in node if not isinstance(each, str))!r}, which is no server"
    elif not all(isinstance(child, list) for child in node):
        name = next(each for each in node if not isinstance(each, list))
        yield f'{name!r} stands beside groups: write a group of one, ["{name}"]'
    else:
        for child in node:
            yield from _shape(child)


def leaves(node: Any) -> Iterable[Any]:
    """The servers, in order."""
    for each in node:
        if isinstance(each, list | tuple):
            yield from leaves(each)
        else:
            yield each
