"""TOML as text: where its keys are, and what is written is read back."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mombroker.net.toml import DEEPEST, key_lines, line_of, write

TRICKY = '''# [not.a.table]
top = 1 # comment
"quoted key" = [ # a = 1
  "]", """
[fake]
x = 1
""", { b = [1,
2] },
]

  [ servers . "a.b" ]
text = \'\'\'
[fake]
\'\'\'
esc = "\\"[" # "
dotted.inner.key = \'x\'
[[agents]]
one = 2020-01-01T00:00:00Z
[agents.fields]
two = -1
[[agents]]
empty = """"""
quotes = """a""\\""""
three = {}
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_of_keys_are_found_through_strings_lists_and_comments(newline):
    assert key_lines(TRICKY.replace("\n", newline)) == {
        ("top",): 2,
        ("quoted key",): 3,
        ("servers",): 11,
        ("servers", "a.b"): 11,
        ("servers", "a.b", "text"): 12,
        ("servers", "a.b", "esc"): 15,
        ("servers", "a.b", "dotted"): 16,
        ("servers", "a.b", "dotted", "inner"): 16,
        ("servers", "a.b", "dotted", "inner", "key"): 16,
        ("agents",): 17,
        ("agents", 0): 17,
        ("agents", 0, "one"): 18,
        ("agents", 0, "fields"): 19,
        ("agents", 0, "fields", "two"): 20,
        ("agents", 1): 21,
        ("agents", 1, "empty"): 22,
        ("agents", 1, "quotes"): 23,
        ("agents", 1, "three"): 24,
    }


def test_what_has_no_line_of_its_own_has_that_of_the_table_around_it():
    lines = key_lines(TRICKY)
    assert [line_of(lines, key) for key in (("servers", "a.b", "none", 1), ("agents", 7), ("other",))] == [11, 17, 0]


def test_a_key_of_very_many_parts_costs_no_more_than_its_length():
    assert len(key_lines(".".join("a" * 7_000) + " = 1")) == DEEPEST


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.dictionaries(texts, st.none() | texts | st.booleans() | st.lists(st.dictionaries(texts, texts)), max_size=4))
def test_a_table_is_read_back_without_what_is_none(table):
    out = []
    write(out, "[one]", table)
    write(out, "[two]", {"after": 1})
    written = {name: value for name, value in table.items() if value is not None}
    assert tomllib.loads("\n".join(out)) == {"one": written, "two": {"after": 1}}


def test_a_comment_at_the_end_is_no_key_and_a_long_one_takes_no_time():
    """It was looked at from each of its characters: hours for a million of them."""
    assert key_lines("a = 1\n[t]\nb = 2\n# c = 3\n# d") == {("a",): 1, ("t",): 2, ("t", "b"): 3}
    assert key_lines("a = 1\n# " + "x" * 1_000_000) == {("a",): 1}
