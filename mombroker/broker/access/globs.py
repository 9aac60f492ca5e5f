"""Patterns with `*` (any text) and `?` (one character), and how they stand to the wildcards of topics.

A subscription to `topic:a.*` asks for every name that this stands for: are all of them among what some patterns match,
or is any? Both are questions about regular languages, and answered by walking both through their automata at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mombroker.broker.topic.patterns import ONE, REST, segments_of

STEPS = 20_000  # that a question may take; then the answer is the one that allows nothing
OTHER = "\0"  # stands for all characters that none of the patterns names; no name has it
# What may stand in an automaton beside a character: any one, one that is no dot, any number of both.
ANY, IN_SEGMENT, ANY_NUMBER, SEGMENT = range(4)
Token = str | int
Tokens = tuple[Token, ...]


class Globs:
    """Some patterns: whether any of them matches a name is found without asking all."""

    __slots__ = ("_by_head",)

    def __init__(self, patterns: Iterable[str]):
        self._by_head: dict[str, list[str]] = {}  # by what stands before the first wildcard
        for pattern in dict.fromkeys(patterns):
            self._by_head.setdefault(_head(pattern), []).append(pattern)

    def match(self, name: str) -> bool:
        """Does any of them match this name?"""
        by_head = self._by_head
        for end in range(len(name) + 1):
            for pattern in by_head.get(name[:end], ()):
                if matches(pattern, name):
                    return True
        return False

    def cover(self, topics: str) -> bool:
        """Is every topic that a topic pattern stands for matched by one of them, not all by the same perhaps?"""
        near = [_tokens(pattern) for pattern in self._near(topics)]
        return all(_covered(each, near) for each in _asked(topics))

    def meet(self, topics: str) -> bool:
        """Is any topic that a topic pattern stands for matched by one of them?"""
        near = [_tokens(pattern) for pattern in self._near(topics)]
        return any(_common(each, pattern) for each in _asked(topics) for pattern in near)

    def _near(self, topics: str) -> list[str]:
        """Those that may match something of it, by what both begin with."""
        start = _plain(topics)
        found = []
        for head, patterns in self._by_head.items():
            if head.startswith(start) or start.startswith(head) or f"{head}." == start:
                found += patterns
        return found


def matches(pattern: str, name: str) -> bool:
    """Does a pattern match the whole of a name? In time of the product of their lengths at most."""
    at = here = 0
    star, again = -1, 0
    while here < len(name):
        if at < len(pattern) and pattern[at] == "*":
            star, again = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", name[here]):
            at, here = at + 1, here + 1
        elif star >= 0:
            again += 1
            at, here = star + 1, again
        else:
            return False
    return not pattern[at:].strip("*")


def _head(pattern: str) -> str:
    return pattern.partition("*")[0].partition("?")[0]


def _plain(topics: str) -> str:
    """What all that a topic pattern stands for begins with, but for the dot before `>`."""
    plain = []
    for segment in segments_of(topics):
        if segment == ONE or segment in REST:
            break
        plain.append(f"{segment}.")
    return "topic:" + "".join(plain)


def _tokens(pattern: str) -> Tokens:
    return tuple({"*": ANY_NUMBER, "?": ANY}.get(character, character) for character in pattern)


def _asked(topics: str) -> Iterator[Tokens]:
    """What a topic pattern stands for (topic/patterns.py): `a.>` is `a`, and all that begins with `a.`."""
    segments = segments_of(topics)
    tokens: list[Token] = list("topic:")
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment in REST and last:
            if at:
                yield tuple(tokens)
            tokens += ["."] * bool(at) + [ANY_NUMBER]
        else:
            tokens += ["."] * bool(at) + ([IN_SEGMENT, SEGMENT] if segment == ONE else list(segment))
    yield tuple(tokens)


def _closed(tokens: Tokens, at: int) -> Iterator[int]:
    """Where it may be, too, without a further character."""
    yield at
    while at < len(tokens) and tokens[at] in (ANY_NUMBER, SEGMENT):
        at += 1
        yield at


def _step(tokens: Tokens, at: int, character: str) -> Iterator[int]:
    """Where it may be after one more character."""
    if at == len(tokens):
        return
    token = tokens[at]
    if token == ANY_NUMBER or (token == SEGMENT and character != "."):
        yield from _closed(tokens, at)
    elif token in (ANY, character) or (token == IN_SEGMENT and character != "."):
        yield from _closed(tokens, at + 1)


def _characters(tokens: Tokens, at: int) -> set[str]:
    """Those that tell apart where it goes from here."""
    if at == len(tokens):
        return set()
    token = tokens[at]
    return {token} if isinstance(token, str) else {".", OTHER}


def _covered(asked: Tokens, patterns: list[Tokens]) -> bool:
    """Is each text of `asked` one of some pattern? All patterns are walked at once."""
    begin = frozenset((number, at) for number, tokens in enumerate(patterns) for at in _closed(tokens, 0))
    todo = [(at, begin) for at in _closed(asked, 0)]
    seen, steps = set(todo), 0
    while todo:
        at, places = todo.pop()
        steps += 1 + len(places)
        if steps > STEPS:
            return False
        if any(patterns[number][there:] == (ANY_NUMBER,) for number, there in places):
            continue  # whatever follows
        if at == len(asked):
            if not any(there == len(patterns[number]) for number, there in places):
                return False
            continue
        characters = _characters(asked, at)
        if OTHER in characters:
            characters.update(*(_characters(patterns[number], there) for number, there in places))
        for character in characters:
            for after in _step(asked, at, character):
                now = frozenset(
                    (number, to) for number, there in places for to in _step(patterns[number], there, character)
                )
                if (after, now) not in seen:
                    seen.add((after, now))
                    todo.append((after, now))
    return True


def _common(asked: Tokens, pattern: Tokens) -> bool:
    """Have both a text in common?"""
    todo = [(at, there) for at in _closed(asked, 0) for there in _closed(pattern, 0)]
    seen = set(todo)
    while todo:
        at, there = todo.pop()
        if len(seen) > STEPS or (at == len(asked) and there == len(pattern)):
            return True
        for character in _characters(asked, at) | _characters(pattern, there):
            for after in _step(asked, at, character):
                for then in _step(pattern, there, character):
                    if (after, then) not in seen:
                        seen.add((after, then))
                        todo.append((after, then))
    return False
