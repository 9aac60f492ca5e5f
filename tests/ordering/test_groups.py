"""Trees of groups, and what is wrong with them."""

import pytest

from mombroker.ordering.daisy import Daisy
from mombroker.ordering.groups import TOP, even, plant

NAMES = ("a", "b", "c", "d", "e")


def shape(groups, connectors=()):
    """(members, parent, connector) of each group."""
    return [("".join(g.members), g.parent, g.connector) for g in plant(groups, connectors)]


def test_leaf_groups_hang_under_a_group_of_their_first_members():
    assert shape([["a", "b"], ["c", "d"]]) == [("ac", TOP, "a"), ("ab", 0, "a"), ("cd", 0, "c")]


def test_deeper_lists_nest_the_same_way():
    tree = [[["a", "b"], ["c"]], [["d"], ["e"]]]
    assert shape(tree) == [
        ("ad", TOP, "a"),
        ("ac", 0, "a"), ("ab", 1, "a"), ("c", 1, "c"),
        ("de", 0, "d"), ("d", 4, "d"), ("e", 4, "e"),
    ]  # fmt: skip
    assert [sorted(group.below) for group in plant(tree)] == [
        ["a", "b", "c", "d", "e"], ["a", "b", "c"], ["a", "b"], ["c"], ["d", "e"], ["d"], ["e"],
    ]  # fmt: skip


def test_one_list_of_servers_is_one_group():
    assert shape(["a", "b"]) == [("ab", TOP, "a")]


def test_connectors_can_be_chosen_and_the_first_named_goes_highest():
    assert shape([["a", "b"], ["c", "d"]], ["b", "d"]) == [("bd", TOP, "b"), ("ab", 0, "b"), ("cd", 0, "d")]
    tree = [[["a", "b"], ["c", "d"]], [["e"]]]
    assert shape(tree, ["d", "b"])[:2] == [("de", TOP, "d"), ("bd", 0, "d")]
    assert shape(tree, ["b", "d"])[:2] == [("be", TOP, "b"), ("bd", 0, "b")]


@pytest.mark.parametrize("size", range(1, 40))
def test_without_groups_there_are_about_as_many_as_each_has_members(size):
    groups = even(size)
    assert [member for group in groups for member in group] == list(range(size))
    assert all(abs(len(group) - len(groups)) <= 2 for group in groups)


FAULTS = {
    "no list": ({"groups": "ab"}, "groups is a list of groups, each a list of servers: write groups = "),
    "numbers": ({"groups": [[1, 2]]}, "a group names 1, which is no server"),
    "empty": ({"groups": [["a", "b"], []]}, "a group is empty: take it out"),
    "none": ({"groups": []}, "a group is empty: take it out"),
    "mixed": ({"groups": ["a", ["b", "c"]]}, "'a' stands beside groups: write a group of one, [\"a\"]"),
    "a stranger": ({"groups": [["a", "b"], ["c", "d", "e", "x"]]}, "'x' in groups is no server of this domain"),
    "twice": ({"groups": [["a", "b"], ["b", "c", "d", "e"]]}, "'b' is in two groups: take it out of one"),
    "twice in one": ({"groups": [["a", "b", "b"], ["c", "d", "e"]]}, "'b' is in two groups: take it out of one"),
    "missing": ({"groups": [["a", "b"], ["c"]]}, "d, e in no group: add each to one of `groups`"),
    "connectors": ({"groups": [[*NAMES]], "connectors": "a"}, "connectors is a list of servers"),
    "alone": ({"connectors": ["a"]}, "connectors without groups"),
    "two of one group": ({"groups": [["a", "b"], ["c", "d", "e"]], "connectors": ["b", "a"]}, "'a' in connectors"),
    "no server": ({"groups": [["a", "b"], ["c", "d", "e"]], "connectors": ["x"]}, "'x' in connectors"),
    "a connector twice": (
        {"groups": [["a", "b"], ["c", "d", "e"]], "connectors": ["b", "b"]},
        "'b' is twice in connectors",
    ),
    "relay": ({"relay": "lazy"}, 'relay is none of two: write "eager" or "stable", not \'lazy\''),
    "unknown": ({"group": []}, "unknown option 'group': it has groups, connectors, relay"),
}


@pytest.mark.parametrize(("options", "sentence"), FAULTS.values(), ids=[*FAULTS])
def test_faults_are_named(options, sentence):
    (fault,) = Daisy.validate(NAMES, options)
    assert sentence in fault


def test_all_faults_are_told_at_once():
    assert len(Daisy.validate(NAMES, {"groups": [["a", "x"], ["a", "c"]], "relay": 1, "z": 0})) == 5


def test_a_right_tree_has_no_faults_and_its_names_become_indexes():
    options = {"groups": [["e", "a"], [["b"], ["c", "d"]]], "connectors": ["d", "a"], "relay": "stable"}
    assert Daisy.validate(NAMES, options) == [] == Daisy.validate(NAMES, {})
    resolved = Daisy.resolve(NAMES, options)
    assert resolved == {"groups": [[4, 0], [[1], [2, 3]]], "connectors": [3, 0], "relay": "stable"}
    assert [group.members for group in Daisy(0, 5, **resolved).tree][:3] == [(0, 3), (4, 0), (1, 3)]
    assert Daisy.validate(("a",), {"groups": [["a"]]}) == []
