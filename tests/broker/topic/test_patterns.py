"""Patterns of topics, against regular expressions."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.broker.topic.patterns import Patterns


@pytest.mark.parametrize("pattern, matches, differs", [
    ("topic:a.*", ["a.b"], ["a", "a.b.c", "b.a", "a."]),
    ("topic:*.b", ["a.b"], ["b", "a.b.c", ".b"]),
    ("topic:a.>", ["a", "a.b", "a.b.c"], ["b", "ab"]),
    ("topic:a.#", ["a", "a.b", "a.b.c"], ["b", "ab"]),
    ("topic:>", ["a", "a.b"], []),
    ("topic:*.*.#", ["a.b", "a.b.c"], ["a"]),
    ("topic:a.b>c", ["a.b>c"], ["a.b", "a.bxc", "a.b.c"]),
])  # fmt: skip
def test_wildcards(pattern, matches, differs):
    patterns = Patterns()
    patterns.add(pattern, 1)
    assert all(patterns.fit(f"topic:{name}") == {1} for name in matches)
    assert not any(patterns.fit(f"topic:{name}") for name in differs)


def test_temporary_topics_have_no_wildcards():
    patterns = Patterns()
    patterns.add("temp-topic:a/*", 1)
    patterns.add("topic:>", 2)
    assert patterns.fit("temp-topic:a/x") == set() and patterns.fit("temp-topic:a/*") == {1}


def expression(pattern: str) -> re.Pattern[str]:
    segments = pattern.removeprefix("topic:").split(".")
    rest = segments[-1] in (">", "#") and bool(segments.pop())
    text = r"\.".join(r"[^.]+" if segment == "*" else re.escape(segment) for segment in segments)
    return re.compile("topic:" + (f"{text}(?:\\..*)?" if rest and segments else ".*" if rest else text), re.DOTALL)


PARTS = st.sampled_from(["a", "b", "ab", "", "*", ">", "#", "*"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "topic:" + ".".join(parts))
TOPICS = st.lists(st.sampled_from(["a", "b", "ab", "", "c\n"]), min_size=1, max_size=5).map(
    lambda parts: "topic:" + ".".join(parts)
)


@given(st.lists(NAMES, max_size=8), st.lists(TOPICS, max_size=5), st.integers(0, 8))
@settings(max_examples=150)
def test_a_topic_fits_what_its_expression_says_also_when_some_are_gone(names, topics, gone):
    patterns = Patterns()
    for key, name in enumerate(names):
        patterns.add(name, key)
    for key, name in list(enumerate(names))[:gone]:
        patterns.remove(name, key)
    for topic in topics:
        wanted = {key for key, name in enumerate(names) if key >= gone and expression(name).fullmatch(topic)}
        assert patterns.fit(topic) == wanted
    for key, name in enumerate(names):
        patterns.remove(name, key)
    assert not patterns.exact and not patterns.root.next and not patterns.root.rest
