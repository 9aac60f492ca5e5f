"""Patterns of topics as a trie of segments: matching a topic takes as long with thousands of patterns as with few."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
ONE, REST = "*", (">", "#")


def segments_of(pattern: str) -> list[str]:
    """The parts of a pattern between dots; none if it has no wildcard, as whatever is not `topic:NAME`."""
    kind, _, name = pattern.partition(":")
    segments = name.split(".")
    return segments if kind == "topic" and not {ONE, *REST}.isdisjoint(segments) else []


class Node(Generic[Key]):
    """`here`: patterns that end with this segment; `rest`: those that go on with any number of others."""

    __slots__ = ("next", "here", "rest")

    def __init__(self) -> None:
        self.next: dict[str, Node[Key]] = {}
        self.here: set[Key] = set()
        self.rest: set[Key] = set()

    def add(self, segments: list[str], key: Key) -> None:
        node = self
        for at, segment in enumerate(segments):
            if segment in REST and at == len(segments) - 1:
                node.rest.add(key)
                return
            node = node.next.setdefault(segment, Node())
        node.here.add(key)

    def remove(self, segments: list[str], key: Key) -> None:
        way = [self]
        for at, segment in enumerate(segments):
            if segment in REST and at == len(segments) - 1:
                way[-1].rest.discard(key)
                break
            if segment not in way[-1].next:
                return
            way.append(way[-1].next[segment])
        else:
            way[-1].here.discard(key)
        for at in range(len(way) - 1, 0, -1):
            node = way[at]
            if node.next or node.here or node.rest:
                return
            del way[at - 1].next[segments[at - 1]]


class Patterns(Generic[Key]):
    """In `topic:NAME` a segment `*` stands for one that is not empty, `>` and `#` at the end for any number."""

    def __init__(self) -> None:
        self.exact: dict[str, set[Key]] = {}
        self.root = Node[Key]()

    def add(self, pattern: str, key: Key) -> None:
        if segments := segments_of(pattern):
            self.root.add(segments, key)
        else:
            self.exact.setdefault(pattern, set()).add(key)

    def remove(self, pattern: str, key: Key) -> None:
        if segments := segments_of(pattern):
            self.root.remove(segments, key)
        elif keys := self.exact.get(pattern):
            keys.discard(key)
            if not keys:
                del self.exact[pattern]

    def fit(self, topic: str) -> set[Key]:
        """The keys of the patterns that a topic fits."""
        found = set(self.exact.get(topic, ()))
        kind, _, name = topic.partition(":")
        if kind != "topic":
            return found
        nodes = [self.root]
        for segment in name.split("."):
            for node in nodes:
                found |= node.rest
            steps = (segment, ONE) if segment else ("",)
            nodes = [after for node in nodes for step in steps if (after := node.next.get(step))]
        for node in nodes:
            found |= node.here | node.rest
        return found
