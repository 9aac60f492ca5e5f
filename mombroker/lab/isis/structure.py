"""The communication structure of groups, and which vectors a process must keep because of it (paper 003, §6.6)."""

from collections.abc import Collection, Iterator, Mapping

Groups = Mapping[str, Collection[int]]  # by name: who is in it


def edges(groups: Groups) -> dict[str, set[str]]:
    """Groups as nodes: by group those that share a process with it."""
    return {
        gid: {other for other in groups if other != gid and {*groups[other]} & {*members}}
        for gid, members in groups.items()
    }


def components(graph: Mapping[str, Collection[str]]) -> Iterator[frozenset[str]]:
    """The biconnected components: an edge that is on no circle is one by itself. By depth first (Hopcroft, Tarjan)."""
    depth: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[tuple[str, str]] = []

    def visit(node: str, parent: str) -> Iterator[frozenset[str]]:
        depth[node] = low[node] = len(depth)
        for other in sorted(graph[node]):
            if other == parent:
                continue
            if other in depth:
                if depth[other] < depth[node]:
                    path.append((node, other))
                    low[node] = min(low[node], depth[other])
                continue
            path.append((node, other))
            yield from visit(other, node)
            low[node] = min(low[node], low[other])
            if low[other] >= depth[node]:
                at = path.index((node, other))
                yield frozenset(end for edge in path[at:] for end in edge)
                del path[at:]

    for node in sorted(graph):
        if node not in depth:
            yield from visit(node, "")


def bound(groups: Groups) -> int:
    """k of a k-bounded structure: groups of the largest component with a circle; 0 where there is none."""
    return max((len(each) for each in components(edges(groups)) if len(each) > 2), default=0)


def carried(groups: Groups) -> dict[int, frozenset[str]]:
    """By process: the groups whose vectors it keeps and sends. Its own ones, and those on circles with one of them
    (theorem 1; lemma 3 where there are none)."""
    circles = [each for each in components(edges(groups)) if len(each) > 2]
    found: dict[int, frozenset[str]] = {}
    for me in {me for members in groups.values() for me in members}:
        mine = frozenset(gid for gid, members in groups.items() if me in members)
        found[me] = mine.union(*(circle for circle in circles if circle & mine))
    return found
