"""Groups in the simulator: joins, leaves and casts under crashes, cuts and failing reactions."""

import pytest

from mombroker.sim.groups import synchrony, unheard
from mombroker.sim.seeds import run
from tests.fakes_groups import CONTROLS, broken

# Of these seeds at least one shows it, mostly the first: what members do changes all that comes behind it.
SHOWN = {
    "no flush": (5,), "no wait": (2,), "not inhibited": (5,), "no wait for a state": (2,), "not barred": (16,),
    "all belong": (16,), "install without copies": (37, 10, 46), "asked once": (88, 10, 28),
    "filled at once": (1,), "rows as they are now": (1,), "rows of before": (5,), "two states mixed": (24,),
    "held back": (22, 4, 21), "told again": (9,), "one is told": (9,), "no return": (9,), "told late": (27,),
    "told while down": (9,), "former home": (0, 2),
}  # fmt: skip
LONG = [
    pytest.param(seed, marks=pytest.mark.long)
    for seed in (
        80476,
        80524,
        80625,
        81040,
        83067,
        83181,
        83187,
        90063,
        90096,
        90441,
        90704,
        90868,
        100971,
        101840,
        101841,
        102398,
        102604,
        103318,
        105453,
        106320,
    )
]


@pytest.mark.parametrize("seed", [*range(1, 7), 80215, 80313, *LONG])
def test_members_of_a_view_have_the_same_casts(seed):
    result = run(seed, groups=True)
    assert not result.wrong
    assert result.counts["views"] > 2


@pytest.mark.parametrize("seed", [22, 34, 46])
def test_who_is_put_out_when_it_has_just_cast_leaves_no_difference(seed):
    """Two of these have found casts that waited for ever, and what two that are out together have of each other."""
    assert not run(seed, groups=True).wrong


@pytest.mark.parametrize("seed", [9, 177])
def test_members_that_want_to_know_are_told_who_is_down(seed):
    result = run(seed, groups=True)
    assert not result.wrong
    assert result.counts["told_down"] > 2 and result.counts["told_up"] > 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_members_of_a_view_have_the_same_casts_in_many_runs(part):
    assert [seed for seed in range(100 * part, 100 * part + 100) if run(seed, groups=True).wrong] == []


LATE = [
    pytest.param(seed, marks=pytest.mark.long)
    for seed in (90162, 90184, 90310, 90531, 90562, 100358, 100547, 100568, 101018, 101129, 103088, 104510)
]


@pytest.mark.parametrize("seed", [1, 2, 5, 60073, 60266, 60286, *LATE])
def test_members_that_are_left_after_a_loss_have_the_same_casts(seed):
    result = run(seed, groups=True, losses=True)
    assert not result.wrong
    assert result.counts["losses"]


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_members_that_are_left_after_a_loss_have_the_same_casts_in_many_runs(part):
    seeds = range(100 * part, 100 * part + 100)
    assert [seed for seed in seeds if run(seed, groups=True, losses=True).wrong] == []


CAST, NEXT = ["s", "c", "cast", "desk"], ["v", "desk", 8, ["a/x", "b/y"], "h#2"]
OUT = ["v", "desk", 9, ["b/y"], "h#3"]


@pytest.mark.parametrize(
    "later, found",
    [
        ([NEXT, OUT], []),
        ([NEXT], ["cast c is lost"]),
        ([], ["cast c is lost"]),
        ([["s", "m", "direct"], NEXT, ["d", "m"], OUT], ["cast c is lost"]),
        ([["s", "m", "direct"], NEXT, OUT, ["d", "m"]], []),
    ],
)
def test_who_is_out_before_it_casts_is_none_of_those_that_cast_as_members(later, found):
    """x is behind with what lies in its inbox.
    1. Views 8 and 9 come, the first one with it, the second one without.
    2. It reacts to something of before, and casts. It is no member by then: the home places that, for y alone.
    3. y is lost with its server, and the cast with it.
    4. x reacts to both views.

    What x has sent behind the cast, and gets before a view, was sent before that came.
    """
    before = ["v", "desk", 7, ["a/x", "b/y"], "h#1"]
    assert [*unheard({"a/x": [before, CAST, *later], "b/y": []}, lost=True)] == found


@pytest.mark.parametrize(
    "before, wrong", [("s4#851", []), ("s2#728", ["['s4/y'] never came into view s2#763 of desk"])]
)
def test_whoever_gives_up_before_its_first_view_of_a_home_was_in_none_of_it(before, wrong):
    """y was in view 7 of this home, or in that of another one, of which x has seen the end, and is not in view 8."""
    view = ["v", "desk", 7, ["s2/x", "s4/y"], before]
    new, last = ["v", "desk", 8, ["s2/x", "s4/y"], "s2#763"], ["v", "desk", 9, ["s2/x"], "s2#828"]
    assert [*synchrony({"s2/x": [view, new, last], "s4/y": [view, last]}, lost=False)] == wrong


def test_a_word_about_a_cast_that_was_given_up_lets_no_other_one_pass():
    """Of the first 90 seeds with losses 20, 23, 38 and 81 show it."""
    with broken("a place without a number"):
        assert "violations" in "".join(run(20, groups=True, losses=True).wrong)
    assert not run(20, groups=True, losses=True).wrong


def test_who_has_not_heard_that_a_name_is_free_waits_for_good_unless_it_is_told_again():
    """Without the control it is one of the seeds above."""
    with broken("a name that is free"):
        assert "lost among agents" in "".join(run(103088, groups=True, losses=True).wrong)


@pytest.mark.parametrize(
    "control", [pytest.param(each, marks=pytest.mark.long) if each == "former home" else each for each in SHOWN]
)
def test_what_is_broken_is_caught(control):
    with broken(control):
        shown = any(run(seed, groups=True).wrong for seed in SHOWN[control])
    assert shown, f"look for other seeds of {control}, one of {len(CONTROLS)}"
