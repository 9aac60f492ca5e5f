"""Patterns with `*` (any text) and `?` (one character), and how they stand to the wildcards of topics.

A subscription to `topic:a.*` asks for every name that this stands for: are all of them among what some patterns match,
or is any? Both are questions about regular languages, and answered by walking both through their automata at once. One
budget of steps is for all that is asked at once: what it does not suffice for stays without an answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from mombroker.broker.topic.patterns import ONE, REST, segments_of
from mombroker.core.errors import MomError

STEPS = 50_000  # that one question may take, with all of its destinations: some ten milliseconds
OTHER = "\0"  # stands for all characters that none of the patterns names; no name has it
# What may stand in an automaton beside a character: any one, one that is no dot, any number of both.
ANY, IN_SEGMENT, ANY_NUMBER, SEGMENT = range(4)
Token = str | int
Tokens = tuple[Token, ...]


class Unjudged(MomError):
    """A question took more steps than it may: nothing is allowed by that."""


class Steps:
    """How many steps are left for a question."""

    __slots__ = ("left",)

    def __init__(self, left: int = STEPS):
        self.left = left

    def take(self, count: int = 1) -> None:
        """Raises Unjudged when there are no more."""
        self.left -= count
        if self.left < 0:
            raise Unjudged(
                "access refused: these wildcards take too long to compare with the permissions: "
                "name fewer topics, or write them without wildcards at the beginning"
            )


class Globs:
    """Some patterns: whether any of them matches a name is found without asking all."""

    __slots__ = ("_by_head", "_heads", "_tails", "_rest")

    def __init__(self, patterns: Iterable[str]):
        self._by_head: dict[str, list[str]] = {}  # by what stands before the first wildcard
        self._tails: dict[str, str] = {}  # by pattern, what stands after its last wildcard
        for pattern in dict.fromkeys(patterns):
            self._by_head.setdefault(_head(pattern), []).append(pattern)
            self._tails[pattern] = _head(pattern[::-1])[::-1]
        self._heads = sorted(self._by_head)
        self._rest = {head for head in self._heads if f"{head}*" in self._tails}  # whatever goes on from there matches

    def match(self, name: str) -> bool:
        """Does any of them match this name?"""
        by_head = self._by_head
        for end in range(len(name) + 1):
            for pattern in by_head.get(name[:end], ()):
                if matches(pattern, name):
                    return True
        return False

    def meet(self, topics: str, steps: Steps) -> bool:
        """Is any topic that a topic pattern stands for matched by one of them? Raises Unjudged."""
        for asked in map(_Asked, _asked(topics)):
            for head, pattern in self.near(asked, steps):
                if asked.meets(pattern, min(len(head), len(asked.begin)), steps):
                    return True
        return False

    def all_from(self, begin: str) -> bool:
        """Does a pattern match whatever begins with this?"""
        return any(begin[:end] in self._rest for end in range(len(begin) + 1))

    def near(self, asked: _Asked, steps: Steps) -> Iterator[tuple[str, str]]:
        """Those that may match something of it, by what both begin and end with, each with its head."""
        begin, end, tails = asked.begin, asked.end, self._tails
        for head in self._heads_near(begin):
            for pattern in self._by_head[head]:
                steps.take()
                if tails[pattern].endswith(end) or end.endswith(tails[pattern]):
                    yield head, pattern

    def _heads_near(self, begin: str) -> Iterator[str]:
        for end in range(len(begin) + 1):
            if begin[:end] in self._by_head:
                yield begin[:end]
        for at in range(bisect_right(self._heads, begin), len(self._heads)):
            if not self._heads[at].startswith(begin):
                return
            yield self._heads[at]


def cover(those: Sequence[Globs], topics: str, steps: Steps) -> bool:
    """Is every topic that a topic pattern stands for matched by one of them, not all by the same perhaps? Raises
    Unjudged."""
    return all(_covers(those, _Asked(tokens), steps) for tokens in _asked(topics))


def _covers(those: Sequence[Globs], asked: _Asked, steps: Steps) -> bool:
    steps.take()
    if any(each.all_from(asked.begin) for each in those):
        return True
    near = []
    for each in those:
        for _, pattern in each.near(asked, steps):
            steps.take(len(pattern))
            near.append(_tokens(pattern))
    return bool(near) and _covered(asked.tokens, near, steps)


class _Asked:
    """An automaton that is asked for, as sets of its places, which are bits of a number.

    begin, end   what all of its texts begin and end with
    """

    __slots__ = ("tokens", "begin", "end", "_skip", "_other", "_ways")

    def __init__(self, tokens: Tokens):
        self.tokens = tokens
        self.begin, self.end = _plain(tokens), _plain(tokens[::-1])[::-1]
        self._skip, self._other = 0, (0, 0)
        self._ways: dict[Token, tuple[int, int]] = {}  # by character: whence it leads on, and whence nowhere else

    def meets(self, pattern: str, same: int, steps: Steps) -> bool:
        """Have both a text in common? Both are known to begin with the `same` many characters. Raises Unjudged."""
        if not self._ways:
            steps.take(len(self.tokens))
            self._walked()
        full = 1 << len(self.tokens)
        places = self._closed(1 << same)
        ways, other = self._ways, self._other
        for character in pattern[same:]:
            steps.take()
            if character == "*":  # each token has some character, so whatever follows the first place is reached
                places = 2 * full - (places & -places)
                continue
            if character == "?":
                places = self._closed(((places & ~self._skip) << 1) | (places & self._skip)) & (2 * full - 1)
            else:
                on, stay = ways.get(character, other)
                places = self._closed(((places & on) << 1) | (places & stay))
            if not places:
                return False
        return bool(places & full)

    def _walked(self) -> None:
        """Make what a walk needs."""
        at_token: dict[Token, int] = {}
        for at, token in enumerate(self.tokens):
            at_token[token] = at_token.get(token, 0) | 1 << at
        rest, segment, one = at_token.get(ANY_NUMBER, 0), at_token.get(SEGMENT, 0), at_token.get(IN_SEGMENT, 0)
        self._skip, self._other = rest | segment, (one, rest | segment)
        self._ways = {each: (places | one, rest | segment) for each, places in at_token.items()}
        self._ways["."] = at_token.get(".", 0), rest

    def _closed(self, places: int) -> int:
        """And where it may be, too, without a further character; no two tokens side by side can be left out."""
        return places | (places & self._skip) << 1


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


def _plain(tokens: Tokens) -> str:
    """What all that it stands for begins with."""
    wild = (at for at, token in enumerate(tokens) if not isinstance(token, str))
    return "".join(map(str, tokens[: next(wild, len(tokens))]))


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


def _covered(asked: Tokens, patterns: list[Tokens], steps: Steps) -> bool:
    """Is each text of `asked` one of some pattern? All patterns are walked at once."""
    begin = frozenset((number, at) for number, tokens in enumerate(patterns) for at in _closed(tokens, 0))
    todo = [(at, begin) for at in _closed(asked, 0)]
    seen = set(todo)
    while todo:
        at, places = todo.pop()
        steps.take(1 + len(places))
        if any(patterns[number][there:] == (ANY_NUMBER,) for number, there in places):
            continue  # whatever follows
        if at == len(asked):
            if not any(there == len(patterns[number]) for number, there in places):
                return False
            continue
        characters = _characters(asked, at)
        if OTHER in characters:
            characters.update(*(_characters(patterns[number], there) for number, there in places))
        for character in sorted(characters):
            for after in _step(asked, at, character):
                steps.take(1 + len(places))
                now = frozenset(
                    (number, to) for number, there in places for to in _step(patterns[number], there, character)
                )
                if (after, now) not in seen:
                    seen.add((after, now))
                    todo.append((after, now))
    return True
