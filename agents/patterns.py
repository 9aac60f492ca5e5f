"""Patterns of topics, by their segments: to find those that a topic fits takes no more time if there are thousands."""

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

    def remove(self, segments: list[str], key: Key) -> bool:
        """Is nothing left?"""
        if not segments:
            self.here.discard(key)
        elif segments[0] in REST and len(segments) == 1:
            self.rest.discard(key)
        elif (node := self.next.get(segments[0])) and node.remove(segments[1:], key):
            del self.next[segments[0]]
        return not (self.next or self.here or self.rest)


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
